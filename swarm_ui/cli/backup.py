"""`swarm backup` and `swarm prune`: copies of the database, and what is kept in it."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from swarm_core.errors import InvalidInput
from swarm_ui.cli import light, output, parameters

app = typer.Typer(
    cls=light.Group,
    rich_markup_mode=None,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


@app.callback()
def backup(
    ctx: typer.Context,
    to: Annotated[
        str | None, typer.Option("--to", metavar="FILE", help="A new file, in place of SWARM_HOME/backups.")
    ] = None,
    json: parameters.Json = False,
) -> None:
    """Copy the database while it is in use, and verify the copy.

    Without --to it goes to SWARM_HOME/backups, where the newest `backups_kept` are kept. It holds everything
    that is recorded; worktrees, branches and preserved work are in your repositories and not in it.

    --json prints {"ok", "file", "bytes", "schema", "rows": {TABLE: number}, "removed": [FILE]}.

    \b
    Example:
      swarm backup
      swarm backup --to /mnt/usb/swarm.db
      swarm backup restore /mnt/usb/swarm.db
    """
    if ctx.invoked_subcommand is not None:
        return
    from swarm_ui import views
    from swarm_ui.cli.session import opened

    if to == "":
        raise InvalidInput("--to needs the name of a file", hint="without --to it goes to SWARM_HOME/backups")
    with opened() as swarm:
        made = swarm.backup(Path(to) if to is not None else None)
    if json:
        told: dict[str, Any] = {"ok": True, "file": str(made.path), "bytes": made.bytes, "schema": made.schema}
        output.write_json(told | {"rows": made.rows, "removed": [str(path) for path in made.removed]})
        return
    output.write(f"{made.path} ({views.size_label(made.bytes)}), verified")
    for path in made.removed:
        output.write(f"removed {path}")


@app.command(cls=light.Command)
def restore(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A backup.", show_default=False)],
    json: parameters.Json = False,
) -> None:
    """Put a backup in the database's place; the present one is kept beside it.

    Refused while the coordinator or the dashboard runs. The backup is verified before and after. Tokens and
    links that were ended since, messages that were delivered since, and what was refused, approved, checked or
    preserved since stay so if the present database can be read. An older schema is migrated.

    --json prints {"ok", "database", "replaced", "schema", "rows": {TABLE: number}, "carried": {TABLE: number}},
    carried being null when the present database could not be read.

    \b
    Example:
      swarm down
      swarm backup restore ~/.swarm/backups/swarm-20260131T120000000Z.db
    """
    from swarm_core import config
    from swarm_core.ops import backup as core

    settings = config.load(os.environ)
    progress = output.Progress(sys.stderr)
    try:
        done = core.restore(settings, Path(file), report=progress.say)
    finally:
        progress.close()
    if json:
        told = {"ok": True, "database": str(settings.database_path), "schema": done.content.schema}
        told |= {"replaced": str(done.replaced) if done.replaced else None, "rows": done.content.rows}
        output.write_json(told | {"carried": done.carried})
        return
    output.write(f"{settings.database_path} is {file}: {done.content.rows['instances']} instances")
    if done.replaced:
        output.write(f"the former database is {done.replaced}")
    if done.replaced and done.carried is None:
        output.write("It could not be read: tokens and links revoked since the backup are valid again, and pull")
        output.write("requests refused since can be merged.")
        output.write("`swarm token list`, `swarm link --list` and `swarm pr ls` show them.")


def prune(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would go and delete nothing.")] = False,
    json: parameters.Json = False,
) -> None:
    """Delete what is older than the `keep_` settings say, and never what is still needed.

    The coordinator does the same once a day. Kept in any case: everything of instances that are not cleaned or
    have an open pull request, and messages that were not delivered. The database file does not shrink; the
    space is used again.

    --json prints {"ok", "dry_run", "events", "messages", "feedback", "links", "checks", "preserved", "logs"}.

    \b
    Example:
      swarm prune --dry-run
    """
    from swarm_core.models import as_json
    from swarm_ui.cli.session import opened

    with opened() as swarm:
        done = as_json(swarm.prune(dry_run=dry_run))
    if json:
        output.write_json({"ok": True, "dry_run": dry_run} | done)
        return
    verb = "would delete" if dry_run else "deleted"
    output.fields((name, f"{verb} {count}" if count else "nothing") for name, count in done.items())

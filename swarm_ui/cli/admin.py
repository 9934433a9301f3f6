"""Commands about swarm itself: doctor, config, version."""

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from swarm_core import __version__
from swarm_core.errors import SwarmError
from swarm_ui.cli import output, parameters

if TYPE_CHECKING:
    from swarm_core.ops.doctor import Check

_STATES = {"ok": "green", "warn": "yellow", "fail": "red", "fixed": "green"}


def doctor(
    fix: Annotated[bool, typer.Option("--fix", help="Mend what can be mended without losing anything.")] = False,
    repo: Annotated[
        str | None, typer.Option(metavar="PATH", help="With --fix: where a moved repository is now.")
    ] = None,
    json: parameters.Json = False,
) -> None:
    """Check programs, home, database and instances.

    The exit code is 1 if a check fails.

    --json prints {"ok": bool, "checks": [{"name", "state": ok|warn|fail|fixed, "message", "hint"}]}.

    \b
    Example:
      swarm doctor --fix
    """
    from swarm_core.models import as_json

    if repo is not None and not fix:
        raise typer.BadParameter("only together with --fix", param_hint="--repo")
    checks = _examine(fix, repo)
    well = all(c.state != "fail" for c in checks)
    if json:
        output.write_json({"ok": well, "checks": [as_json(c) for c in checks]})
    else:
        for check in checks:
            state = output.style(f"{check.state:<5}", _STATES[check.state])
            output.write(f"{state}  {output.plain(f'{check.name}: {check.message}')}")
            if check.hint and check.state in ("warn", "fail"):
                output.write(output.style(f"       {output.plain(check.hint)}", "dim"))
    if not well:
        raise typer.Exit(1)


def _examine(fix: bool, repo: str | None) -> "list[Check]":
    """A home that cannot even be opened is a finding too."""
    from swarm_core import config as core
    from swarm_core.ops.doctor import Check
    from swarm_ui.cli.session import opened

    closed = []
    try:
        if fix:
            closed = [Check("home", "fixed", f"{p} is closed to others now") for p in core.close_home(os.environ)]
        with opened() as swarm:
            swarm.context.report("checking")
            return closed + swarm.doctor(fix=fix, repo=repo)
    except SwarmError as error:
        return [*closed, Check("home", "fail", f"{error.message} [{error.code}]", error.hint or "")]


def config(
    key: parameters.Key = None,
    value: Annotated[str | None, typer.Argument(metavar="VALUE", help="New value.", show_default=False)] = None,
    json: parameters.Json = False,
) -> None:
    """Show settings, or set one.

    `pool` set inside a repository is filled at once.

    --json prints {KEY: {"value", "source": default|file|environment, "default", "env", "doc"}}; after a change
    also "restart", the processes that use it once they are restarted, and for a pool that was filled "ready".

    \b
    Example:
      swarm config agent codex
    """
    from swarm_core import config as core

    if key is None:
        _show(_known(list(core.SETTINGS)), json=json)
        return
    core.lookup(key)
    if value is None:
        _show(_known([key]), json=json)
        return
    # Defaults as flags, so that a stored value that is not allowed does not stand in the way of mending it.
    path = core.load(os.environ, **{k: s.default for k, s in core.SETTINGS.items()}).config_path
    core.write_value(path, key, value)
    known = _known([key])
    known[key]["restart"] = _running()
    if key == "pool":
        ready = _fill_pool()
        if ready is not None:
            known["pool"]["ready"] = ready
    _show(known, json=json)
    if known[key]["source"] == "environment":
        output.note(f"{known[key]['env']} in the environment overrides what was stored")
    elif known[key]["restart"]:
        running = " and the ".join(known[key]["restart"])
        output.note(f"commands use it from now on, the {running} after `swarm down` and `swarm up`")


def _known(keys: list[str]) -> dict[str, dict[str, Any]]:
    from swarm_core import config as core

    settings = core.load(os.environ)
    stored = core.read_file(settings.config_path)
    known = {}
    for key in keys:
        setting = core.SETTINGS[key]
        source = "file" if key in stored else "default"
        if setting.env and os.environ.get(setting.env):
            source = "environment"
        known[key] = {
            "value": settings.values[key],
            "source": source,
            "default": setting.default,
            "env": setting.env,
            "doc": setting.doc,
        }
    return known


def _running() -> list[str]:
    """The processes of this home that have read their settings already."""
    from swarm_core import config as core
    from swarm_core import process

    settings = core.load(os.environ)
    return [role for role in (process.COORDINATOR, process.DASHBOARD) if process.running(settings, role)]


def _show(known: dict[str, dict[str, Any]], *, json: bool) -> None:
    if json:
        output.write_json(known)
        return
    rows = [(k, str(v["value"]), v["source"], v["doc"]) for k, v in known.items()]
    output.columns(("SETTING", "VALUE", "SOURCE", "MEANING"), rows, [("bold", "", "dim", "")] * len(rows))
    for name, one in known.items():
        if "ready" in one:
            output.write(f"{name}: {one['ready']} worktrees are ready")


def _fill_pool() -> int | None:
    """Make the pool of the repository in the current folder; None when there is none here."""
    from swarm_ui.cli.session import opened

    try:
        with opened() as swarm:
            if swarm.context.settings.integer("pool") == 0:
                swarm.context.report("taking the waiting worktrees away")
                swarm.drain_pools()
                return 0
            swarm.context.report("filling the pool of worktrees")
            return swarm.fill_pool(".")
    except SwarmError as error:
        if error.code != "GIT_REPOSITORY_NOT_FOUND":
            raise
        return None


def version(json: parameters.Json = False) -> None:
    """Print the version.

    --json prints {"version": "..."}.

    \b
    Example:
      swarm version
    """
    if json:
        output.write_json({"version": __version__})
    else:
        output.write(f"swarm {__version__}")


def print_version(wanted: bool) -> None:
    if wanted:
        output.write(f"swarm {__version__}")
        raise typer.Exit

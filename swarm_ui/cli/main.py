"""The `swarm` command: its commands, and the one place where failures become exit codes.

Exit codes: 0 done, 1 an expected failure, 2 wrong usage, 3 a bug in swarm, 130 interrupted.
With --json a failure is `{"ok": false, "error": {"code", "message", "hint"?, "details"?}}` on stdout.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from swarm_core.errors import InvalidInput, SwarmError
from swarm_ui.cli import (
    act,
    admin,
    attempts,
    backup,
    budget,
    decide,
    issues,
    light,
    link,
    look,
    mcp,
    output,
    pulls,
    run,
    search,
    start,
    token,
)

# What the first screen shows: what each command is for, and those that are used every day with a sentence.
SECTIONS = {
    "start": ("issues", "work", "fork", "review", "restart", "resume", "demo"),
    "watch": ("ls", "show", "attach", "logs", "events", "search", "cost", "compare"),
    "steer": ("msg", "answer", "accept", "rescope", "abandon", "budget"),
    "finish": ("pr", "pick", "stop", "clean", "restore", "merged"),
    "run": ("up", "down", "status", "link", "mcp"),
    "manage": ("doctor", "config", "token", "backup", "prune", "version"),
}
DAILY = ("work", "ls", "show", "attach", "msg", "answer", "review", "stop", "clean", "up", "doctor", "demo")


class Front(light.Group):
    """The first screen fits on one: commands by purpose, the daily ones with what they do."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands by purpose (swarm COMMAND --help says more)"):
            formatter.write_dl([(name, ", ".join(commands)) for name, commands in SECTIONS.items()])
        with formatter.section("Every day"):
            told = [(name, self.get_command(ctx, name)) for name in DAILY]
            formatter.write_dl([(name, one.get_short_help_str(80)) for name, one in told if one is not None])


app = typer.Typer(
    cls=Front,
    rich_markup_mode=None,  # rich's help costs 100 ms of CPU
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
# typer does not name this class of click's, which it brings along since 0.26: the parent of all usage errors.
_ClickException: type[Exception] = typer.BadParameter.__mro__[2]


@app.callback()
def swarm(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=admin.print_version)
    ] = False,
) -> None:
    """Run coding agents, each in a git worktree and a tmux session of its own.

    \b
    Example:
      swarm work "fix the login test" --repo ~/shop
      swarm ls
    """


COMMANDS: tuple[Callable[..., None], ...] = (
    *(issues.issues, start.work, start.fork, attempts.compare, attempts.pick),
    *(look.ls, look.show, look.attach, look.logs, look.events, search.search),
    *(act.msg, decide.answer, act.stop, act.restart, decide.resume, act.restore, act.clean),
    *(decide.review, decide.accept, decide.rescope, decide.abandon, decide.merged),
    *(budget.budget, budget.cost),
    *(run.up, run.down, run.status, link.link, mcp.mcp, run.demo),
    *(admin.doctor, admin.config, backup.prune, admin.version),
)
for _command in COMMANDS:
    app.command(cls=light.Command)(_command)
app.add_typer(token.app, name="token")
app.add_typer(pulls.app, name="pr")
app.add_typer(backup.app, name="backup")


def main() -> None:
    sys.exit(execute(sys.argv[1:]))


def execute(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    _never_fail_to_print(sys.stdout, sys.stderr)
    json = "--json" in _before_dashes(arguments)
    try:
        command = typer.main.get_command(app)
        code = command.main(args=list(arguments) or ["--help"], prog_name="swarm", standalone_mode=False)
        output.flush()
    except typer.Exit as ended:
        return int(ended.exit_code)
    except SwarmError as error:
        return _fail(error, 1, json=json)
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except _ClickException as error:
        return _fail(_usage(error), 2, json=json)
    except Exception:  # noqa: BLE001  a bug must end as exit code 3 with its traceback kept, not as a page of Python
        return _fail(_bug(arguments), 3, json=json)
    return code if isinstance(code, int) else 0


def _before_dashes(arguments: Sequence[str]) -> Sequence[str]:
    return arguments[: arguments.index("--")] if "--" in arguments else arguments


def _never_fail_to_print(*streams: TextIO) -> None:
    """A terminal that cannot show a character gets an escape instead of an error."""
    for stream in streams:
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _fail(error: SwarmError, code: int, *, json: bool) -> int:
    try:
        if json:
            output.write_json(output.error_body(error))
            output.flush()
        else:
            output.show_error(error.code, error.message, error.hint)
    except (typer.Exit, BrokenPipeError):
        output.abandon(sys.stderr)
    return code


def _usage(error: Exception) -> SwarmError:
    message = str(getattr(error, "format_message", error.__str__)())
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "swarm"
    return InvalidInput(message, hint=f"`{path} --help` shows how it is used")


def _bug(arguments: Sequence[str]) -> SwarmError:
    """Keep the traceback where a maintainer finds it and say so in one line."""
    import traceback

    error = sys.exc_info()[1]
    summary = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    from swarm_core import redact

    place = _log(redact.text(f"swarm {' '.join(arguments)[:500]}\n{traceback.format_exc()}\n"))
    if place is None:
        traceback.print_exc()
    hint = f"this is a bug in swarm; the traceback is in {place}" if place else "this is a bug in swarm"
    return SwarmError(f"unexpected {summary}", code="INTERNAL", hint=hint)


def _log(text: str) -> Path | None:
    from swarm_core import config, files

    with contextlib.suppress(SwarmError, OSError):
        settings = config.load(os.environ)
        if settings.home.is_dir():
            path = settings.logs / "cli.log"
            files.make_private(path.parent)
            with os.fdopen(files.append_private(path), "a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
            return path
    return None

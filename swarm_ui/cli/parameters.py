"""Arguments that several commands share, their completion, and reading long text from stdin or a file."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from swarm_core.errors import InvalidInput, SwarmError

TEXT_MAX = 8 << 20
_COMPLETION_WAIT = 0.2


def complete_instance(incomplete: str) -> list[str]:
    """Ids that begin so; nothing when there is no database or it cannot be read."""
    from swarm_core import config, process
    from swarm_core.store import instances
    from swarm_core.store.database import open_database

    try:
        settings = config.load(os.environ)
        path = settings.database_path
        if not path.is_file():
            return []
        db = open_database(path, busy_timeout=_COMPLETION_WAIT, in_use=process.files_in_use(settings))
        try:
            return [i.id for i in instances.listed(db, include_cleaned=True) if i.id.startswith(incomplete)]
        finally:
            db.close()
    except (SwarmError, OSError):
        return []


def complete_agent(incomplete: str) -> list[str]:
    from swarm_core.agents import table

    return [name for name in table.AGENTS if name.startswith(incomplete)]


def complete_setting(incomplete: str) -> list[str]:
    from swarm_core import config

    return [key for key in config.SETTINGS if key.startswith(incomplete)]


def complete_kind(incomplete: str) -> list[str]:
    from swarm_core.store import search

    return [kind for kind in sorted(search.SOURCES) if kind.startswith(incomplete)]


def complete_scope(incomplete: str) -> list[str]:
    from swarm_core.store import tokens

    return [scope for scope in tokens.SCOPES if scope.startswith(incomplete)]


Json = Annotated[bool, typer.Option("--json", help="Print JSON; errors too.")]
NoPrompt = Annotated[
    bool,
    typer.Option("--no-prompt", help="Resume conversations without a turn: agents wait for a message."),
]
One = Annotated[
    str,
    typer.Argument(metavar="INSTANCE", help="Id or name.", show_default=False, autocompletion=complete_instance),
]
Only = Annotated[
    str | None,
    typer.Option(metavar="INSTANCE", help="Only of one instance.", autocompletion=complete_instance),
]
Many = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID", help="Ids or names.", show_default=False, autocompletion=complete_instance),
]
Agent = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Agent program (default: setting `agent`).", autocompletion=complete_agent),
]
Name = Annotated[str | None, typer.Option(metavar="NAME", help="A name to call it by.")]
Key = Annotated[
    str | None,
    typer.Argument(metavar="KEY", help="Setting.", show_default=False, autocompletion=complete_setting),
]


def long_text(given: str | None, file: str | None = None) -> str:
    """Text given as an argument, from stdin when that is `-`, or from a file."""
    if given is not None and file is not None:
        raise typer.BadParameter("give the text or a file, not both")
    source = file if file is not None else given
    if source == "-":
        if sys.stdin is None:
            raise InvalidInput("standard input is closed")
        return _decoded(sys.stdin.buffer.read(TEXT_MAX + 1), "stdin")
    if file is None:
        return given or ""
    try:
        with Path(file).open("rb") as opened:
            return _decoded(opened.read(TEXT_MAX + 1), file)
    except OSError as error:
        raise InvalidInput(
            f"cannot read {file[:200]!r}: {error.strerror}", hint="`-` reads standard input"
        ) from None


def _decoded(raw: bytes, source: str) -> str:
    if len(raw) > TEXT_MAX:
        raise InvalidInput(
            f"{source} has more than {TEXT_MAX >> 20} MB",
            code="PROMPT_TOO_LARGE",
            hint="put the material into a file of the repository and name it in the text",
        )
    return raw.decode(errors="surrogateescape")

"""What tmux says about panes: one process for all of them, parsed into facts.

A pane is an instance's only if it is the one recorded when the session was made (option @swarm_pane); panes that
a person adds by splitting the window carry no instance.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from swarm_core import proc
from swarm_core.errors import ExternalFailure
from swarm_core.tmux import command

_FIELDS = (
    "pid",
    "pane_id",
    "pane_pid",
    "pane_dead",
    "pane_dead_status",
    "pane_dead_signal",
    "@swarm_epoch",
    "pane_width",
    "pane_height",
    "history_size",
    "window_activity",
    "session_attached",
    "session_attached_list",
    "@swarm_pane",
    "@swarm_instance",
    "session_name",
)
_TRIES = 4
FORMAT = "|".join(f"#{{{field}}}" for field in _FIELDS)


@dataclass(frozen=True, slots=True)
class Pane:
    """Facts of one moment; `dead` means that the program ended, even if a child of it still holds the terminal.

    Of a dead pane the code or the signal is known a moment after `dead` (signals only from tmux 3.3 on), and `pid`
    is history: the number may belong to another process by now. `attached` counts people, not control connections
    (where tmux lists the attached clients).
    """

    session: str
    pane_id: str
    pid: int
    dead: bool
    exit_code: int | None
    exit_signal: int | None
    epoch: int | None
    width: int
    height: int
    history_size: int
    activity_at: int
    attached: int
    instance: str | None
    server_pid: int


def list_panes(socket: Path) -> list[Pane]:
    """Every pane of the server, from one process; no server is an empty list."""
    for _ in range(_TRIES):
        done = command.run(socket, ["list-panes", "-a", "-F", FORMAT], check=False)
        if done.returncode == 0:
            return from_lines(done.text.splitlines())
        # It is down, or it is starting or ending and has no session, which list-panes takes for a failure.
        sessions = command.run(socket, ["list-sessions"], check=False) if command.is_up(socket) else None
        if sessions is None or (sessions.returncode == 0 and not sessions.stdout):
            return []
    raise proc.command_failed(done, code="TMUX_COMMAND_FAILED")


def by_instance(panes: Iterable[Pane]) -> dict[str, Pane]:
    """The panes that are ours, by instance."""
    return {pane.instance: pane for pane in panes if pane.instance is not None}


def from_lines(lines: Iterable[str]) -> list[Pane]:
    """Parsed lines; a server that missed the end of a program is nudged, so that the next listing is complete."""
    listed = [parse(line) for line in lines if line]
    for pane in listed:
        if pane.dead and pane.exit_code is None and pane.exit_signal is None:
            nudge(pane)
    return listed


def nudge(pane: Pane) -> None:
    """Make the server look for ended programs. About one end in a hundred escapes tmux 3.3 until the next one."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pane.server_pid, signal.SIGCHLD)


def parse(line: str) -> Pane:
    parts = line.split("|", len(_FIELDS) - 1)
    if len(parts) != len(_FIELDS):
        raise ExternalFailure(f"tmux described a pane as {line!r}", code="TMUX_COMMAND_FAILED")
    fact = dict(zip(_FIELDS, parts, strict=True))
    ours = fact["@swarm_pane"] == fact["pane_id"]
    exit_code, exit_signal = _number(fact["pane_dead_status"]), _signal(fact["pane_dead_signal"])
    return Pane(
        session=fact["session_name"],
        pane_id=fact["pane_id"],
        pid=_number(fact["pane_pid"]) or 0,
        dead=fact["pane_dead"] == "1" or exit_code is not None or exit_signal is not None,
        exit_code=exit_code,
        exit_signal=exit_signal,
        epoch=_number(fact["@swarm_epoch"]) if ours else None,
        width=_number(fact["pane_width"]) or 0,
        height=_number(fact["pane_height"]) or 0,
        history_size=_number(fact["history_size"]) or 0,
        activity_at=_number(fact["window_activity"]) or 0,
        attached=_people(fact["session_attached"], fact["session_attached_list"]),
        instance=(fact["@swarm_instance"] or None) if ours else None,
        server_pid=int(fact["pid"]),
    )


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


def _signal(text: str) -> int | None:
    """tmux gives a number on Linux and a name without SIG on BSD and macOS."""
    named = signal.Signals.__members__.get(f"SIG{text}")
    return int(named) if named is not None else _number(text)


def _people(count: str, clients: str) -> int:
    """A client on a terminal is named after it; one without a terminal (control mode) is `client-<pid>`."""
    if not clients:
        return _number(count) or 0
    return sum(1 for name in clients.split(",") if not name.startswith("client-"))

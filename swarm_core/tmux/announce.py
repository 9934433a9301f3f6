"""A line and a bell for the people attached to our server; tmux itself writes to their terminals."""

from __future__ import annotations

import secrets
from pathlib import Path

from swarm_core.tmux import command
from swarm_core.tmux.text import clean

SHOWN_MS = 5000  # tmux holds back what the agent writes meanwhile; any key ends it
_LONGEST = 400
_WITH_DELAY = (3, 2)
_FORMAT = "#{client_control_mode}|#{session_id}|#{client_name}"
# It stays a moment: a window that is gone when tmux gets round to its bell rings none.
_RING = ("sh", "-c", r"printf '\a'; exec sleep 1")


def show(socket: Path, text: str) -> int:
    """Show the text to every attached person and ring; returns how many there are."""
    if not command.is_up(socket):
        return 0
    listed = command.run(socket, ["list-clients", "-F", _FORMAT], check=False)
    if listed.returncode != 0 and not command.is_up(socket):
        return 0
    clients = [line.split("|", 2) for line in listed.text.splitlines()]
    people = [(session, name) for control, session, name in clients if control != "1"]
    if not people:
        return 0
    for session in sorted({session for session, _ in people}):
        _ring(socket, session)
    delay = ["-d", str(SHOWN_MS)] if command.version() >= _WITH_DELAY else []
    line = command.literal(_literal_format(" ".join(clean(text).split())[:_LONGEST]))
    for _, name in people:  # one who has left meanwhile is no failure
        command.run(socket, ["display-message", "-c", name, *delay, "--", line], check=False)
    return len(people)


def _ring(socket: Path, session: str) -> None:
    """Ring in a short-lived window behind the others of the session.

    A bell rings on clients of the session its window is in. Agents stay silent: our configuration does not monitor
    the bells of their windows.
    """
    name = f"bell-{secrets.token_hex(4)}"
    at = f"{session}:={name}"
    words = ["set-option", "-t", session, "bell-action", "any", ";"]
    words += ["new-window", "-d", "-t", f"{session}:", "-n", name, "-c", "/", *_RING, ";"]
    words += ["set-option", "-w", "-t", at, "remain-on-exit", "off", ";"]
    words += ["set-option", "-w", "-t", at, "monitor-bell", "on"]
    with command.gate(socket):
        command.run(socket, words, check=False)


def _literal_format(text: str) -> str:
    """Text in which tmux finds no format to expand, no command to run, no style and no time."""
    return text.replace("#[", "# [").replace("#", "##").replace("%", "%%")

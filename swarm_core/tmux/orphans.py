"""Control-mode clients whose process was killed: tmux 3.3a may keep them for ever, and does not end meanwhile."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from swarm_core.tmux import command, processes

_OWNER = "SWARM_CLIENT_OF"


def mark() -> dict[str, str]:
    """What a client of this process carries in its environment."""
    return {_OWNER: str(os.getpid())}


def end(socket: Path) -> int:
    """End the clients of ours whose parent is no longer who started them; the caller holds the gate."""
    listed = command.run(socket, ["list-clients", "-F", "#{client_control_mode} #{client_pid}"], check=False)
    pids = [int(line[2:]) for line in listed.text.splitlines() if line.startswith("1 ") and line[2:].isdigit()]
    found = [process for process in map(processes.one, pids) if process is not None and _is_orphan(process)]
    return processes.send(found, signal.SIGKILL)


def _is_orphan(process: processes.Process) -> bool:
    owner = processes.environment(process.pid).get(_OWNER)
    return owner is not None and owner != str(process.parent)

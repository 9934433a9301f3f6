"""Every process that a pane started, also those that left its terminal session.

A process counts if it is in the pane's session or group, descends from such a process, or carries one of the given
marks in its environment (Linux only). A process that left the session, lost its parent and cleaned its environment
is not found.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from swarm_core import proc


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    parent: int
    group: int
    session: int
    started: str  # tells a process from a later one with the same number; empty where unknown
    name: str


def table() -> dict[int, Process]:
    """All processes that have not ended."""
    found = _from_proc() if sys.platform == "linux" else _from_ps()
    return {process.pid: process for process in found}


def members(leader: int, started: str | None = None, marks: Sequence[Collection[bytes]] = ()) -> list[Process]:
    """The processes of the pane whose first process is or was `leader`; never this process or what it started.

    `started` is that of the leader, None if it had ended when first seen: a living process with its number is then
    another one. A mark is a set of beginnings of environment entries (whole entries end in a zero byte), all of
    which a process must carry.
    """
    everyone = table()
    own = os.getpid()
    chosen = set()
    if leader not in everyone or everyone[leader].started == started:
        chosen = {p.pid for p in everyone.values() if leader in (p.pid, p.group, p.session)}
    chosen |= {pid for pid in everyone if marks and pid not in chosen and _is_marked(pid, marks)}
    chosen.discard(own)
    children: dict[int, list[int]] = {}
    for process in everyone.values():
        children.setdefault(process.parent, []).append(process.pid)
    queue = list(chosen)
    while queue:
        for child in children.get(queue.pop(), ()):
            if child not in chosen and child != own:
                chosen.add(child)
                queue.append(child)
    return [everyone[pid] for pid in sorted(chosen) if everyone[pid].parent != own]


def one(pid: int) -> Process | None:
    """The process with this number, unless it has ended."""
    return _stat(pid) if sys.platform == "linux" else table().get(pid)


def environment(pid: int) -> dict[str, str]:
    """What a process was started with; empty where that cannot be known."""
    data = (_read(f"/proc/{pid}/environ") or b"") if sys.platform == "linux" else b""
    pairs = (entry.partition("=") for entry in data.decode(errors="replace").split("\0"))
    return {name: value for name, _, value in pairs if name}


def remaining(processes: Iterable[Process]) -> list[Process]:
    """Those that have not ended."""
    return [process for process in processes if _is_still(process)]


def send(processes: Iterable[Process], sig: signal.Signals) -> int:
    """Signal those that are still the processes they were; returns how many."""
    sent = 0
    for process in processes:
        if not _is_still(process):
            continue
        try:
            os.kill(process.pid, sig)
        except (ProcessLookupError, PermissionError):
            continue
        sent += 1
    return sent


def _is_still(process: Process) -> bool:
    """Whether it runs; its parent may have changed meanwhile."""
    if sys.platform != "linux":
        return proc.is_alive(process.pid)
    now = _stat(process.pid)
    return now is not None and now.started == process.started


def _from_proc() -> list[Process]:
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [process for process in map(_stat, pids) if process is not None]


def _stat(pid: int) -> Process | None:
    data = _read(f"/proc/{pid}/stat")
    if data is None:
        return None
    name = data[data.index(b"(") + 1 : data.rindex(b")")].decode(errors="replace")
    fields = data[data.rindex(b")") + 2 :].split()
    if fields[0] in (b"Z", b"X"):
        return None
    return Process(pid, int(fields[1]), int(fields[2]), int(fields[3]), fields[19].decode(), name)


def _from_ps() -> list[Process]:
    """ps knows no session numbers on macOS; groups and parents have to do."""
    found = []
    for line in proc.run(["ps", "-axo", "pid=,ppid=,pgid=,stat=,comm="]).text.splitlines():
        pid, parent, group, state, name = line.split(maxsplit=4)
        if not state.startswith("Z"):
            found.append(Process(int(pid), int(parent), int(group), 0, "", Path(name).name))
    return found


def _is_marked(pid: int, marks: Sequence[Collection[bytes]]) -> bool:
    data = _read(f"/proc/{pid}/environ") if sys.platform == "linux" else None
    if not data:
        return False
    entries = b"\0" + data
    return any(all(b"\0" + part in entries for part in mark) for mark in marks)


def _read(path: str) -> bytes | None:
    """A file of /proc, or None when its process has gone or is another person's; many times pathlib's speed."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    try:
        data = b""
        while part := os.read(fd, 1 << 16):
            data += part
    except ProcessLookupError:
        return None
    finally:
        os.close(fd)
    return data

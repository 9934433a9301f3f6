"""One operation in a process of its own that can be held, or killed, just before a program it starts or a rename.

Python's audit events name these moments, so nothing in swarm is replaced, and the same moment comes again in a
replay.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

LIMIT = 60.0
ANY = "any"
_FILES = {"os.rename": "rename", "shutil.rmtree": "rmtree", "os.remove": "remove", "os.rmdir": "rmdir"}
# Just before a deletion it is too late for anybody to notice a save, so only a kill can be aimed there.
_ONLY_KILLS = frozenset({"rmtree", "remove", "rmdir"})


@dataclass(frozen=True)
class Moment:
    """Before the `number`-th program or file operation of this name; a git command goes by its own name."""

    name: str
    number: int
    kill: bool = False


@dataclass(frozen=True)
class Outcome:
    """`how` is done, refused, killed, failed (an exception nobody foresaw) or hung."""

    how: str
    detail: str = ""


class Child:
    """A forked process that runs `work` and says how it went; it waits at the moment until it is let go."""

    def __init__(self, work: Callable[[], Outcome], moment: Moment | None = None) -> None:
        self._read, told = os.pipe()
        heard, self._write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _run(work, moment, told, heard)
        os.close(told)
        os.close(heard)
        self._buffer = b""
        self._said: str | None = None
        self._deadline = time.monotonic() + LIMIT

    def wait_moment(self) -> bool:
        """Whether it waits at its moment now; False when it has ended without coming to it."""
        line = self._line()
        self._said = None if line == "held" else line
        return line == "held"

    def let_go(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(self._write, b"\n")

    def kill(self) -> Outcome:
        os.kill(self.pid, signal.SIGKILL)
        self._reap()
        return Outcome("killed")

    def ended_within(self, seconds: float) -> bool:
        return bool(self._buffer) or bool(select.select([self._read], [], [], seconds)[0])

    def end(self) -> Outcome:
        line = self._said or self._line()
        if line is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self._reap()
            return Outcome("hung", f"no answer within {LIMIT:g} s")
        if line == "held":
            self.let_go()
            return self.end()
        self._reap()
        return Outcome(*json.loads(line))

    def _line(self) -> str | None:
        while b"\n" not in self._buffer:
            left = self._deadline - time.monotonic()
            if left <= 0 or not select.select([self._read], [], [], left)[0]:
                return None
            data = os.read(self._read, 65536)
            if not data:
                return json.dumps(["failed", "it died"])
            self._buffer += data
        line, self._buffer = self._buffer.split(b"\n", 1)
        return line.decode()

    def _reap(self) -> None:
        os.waitpid(self.pid, 0)
        os.close(self._read)
        os.close(self._write)
        deadline = time.monotonic() + LIMIT
        while session_members(self.pid) and time.monotonic() < deadline:
            time.sleep(0.005)


def _run(work: Callable[[], Outcome], moment: Moment | None, told: int, heard: int) -> None:
    """The child's side; never returns."""
    try:
        os.setsid()
        if moment is not None:
            sys.addaudithook(_hook(moment, told, heard))
        outcome = work()
    except BaseException:  # noqa: BLE001  whatever it is, the parent has to know
        outcome = Outcome("failed", traceback.format_exc())
    with contextlib.suppress(OSError):
        os.write(told, json.dumps([outcome.how, outcome.detail]).encode() + b"\n")
    os._exit(0)


def _hook(moment: Moment, told: int, heard: int) -> Callable[[str, tuple[object, ...]], None]:
    seen: Counter[str] = Counter()

    def hook(event: str, args: tuple[object, ...]) -> None:
        name = _FILES.get(event) or (_program(args) if event == "subprocess.Popen" else None)
        if name is None or (name in _ONLY_KILLS and not moment.kill):
            return
        seen.update((name,) if name in _ONLY_KILLS else (name, ANY))
        if seen[moment.name] == moment.number and moment.name in (name, ANY):
            seen[moment.name] += 1_000_000
            os.write(told, b"held\n")
            os.read(heard, 1)

    return hook


def _program(args: tuple[object, ...]) -> str:
    argv = [str(word) for word in args[1]]  # type: ignore[attr-defined]
    name = Path(argv[0]).name
    return next(_words(argv[1:]), name) if name == "git" else name


def _words(argv: list[str]) -> Iterator[str]:
    """A git command line without the options before the command."""
    rest = iter(argv)
    for word in rest:
        if word in ("-C", "-c"):
            next(rest, None)
        elif not word.startswith("-"):
            yield word


def session_members(leader: int) -> list[int]:
    """Programs of a killed process that still run; they share its session."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                after_name = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(after_name[3]) == leader and after_name[0] != "Z":
                    found.append(int(entry.name))
    return found

"""Processor time of the commands a person types most, with everything they start."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks import fleet
from benchmarks.figures import Figure, Options
from benchmarks.ground import Home, cpu_of, server_pid
from swarm_core import locks

INSTANCES = 200
HELP_LIMIT_MS, LS_LIMIT_MS = 150, 350


def measure(root: Path, options: Options) -> Iterator[Figure]:
    rounds = options.times(15, 7)
    with Home(root / "h") as home:
        bare = _least([sys.executable, "-c", "pass"], home, rounds)
        yield Figure("startup: python itself", bare, "ms CPU")
        yield Figure("startup: swarm --help", _least(_swarm("--help"), home, rounds), "ms CPU", HELP_LIMIT_MS)
        fleet.stand_ins(home, INSTANCES)
        server, before = server_pid(home), 0.0
        for label, lock in (("", None), (", coordinator up", home.settings.coordinator_lock)):
            with locks.hold(lock, holder="{}") if lock else contextlib.nullcontext():
                before = cpu_of(server)
                spent = _least(_swarm("ls"), home, rounds, lines=INSTANCES + 1)
                asked = (cpu_of(server) - before) / rounds * 1000
            yield Figure(f"startup: swarm ls, {INSTANCES} instances{label}", spent, "ms CPU", LS_LIMIT_MS)
            yield Figure(f"startup: tmux server meanwhile{label}", asked, "ms CPU")


def _swarm(*words: str) -> list[str]:
    return [str(Path(sys.executable).with_name("swarm")), *words]


def _least(argv: list[str], home: Home, rounds: int, *, lines: int = 0) -> float:
    """The least processor time of several runs in ms; the first one may compile and is not counted."""
    return min([_cpu(argv, home, lines=lines) for _ in range(rounds + 1)][1:])


def _cpu(argv: list[str], home: Home, *, lines: int) -> float:
    process = subprocess.Popen(argv, env=home.environ, stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as pipe:
        said = pipe.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0 or said.count(b"\n") < lines:
        raise RuntimeError(f"{argv} ended with {process.returncode} after {len(said.splitlines())} lines")
    return (used.ru_utime + used.ru_stime) * 1000

"""One look at every instance: its time, and how many programs it starts."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import fleet
from benchmarks.figures import Figure, Options
from benchmarks.ground import Home, cpu_of, server_pid, timed

FEW, MANY = 10, 200
LIMIT_MS = 60


def measure(root: Path, options: Options) -> Iterator[Figure]:
    rounds = options.times(40, 15)
    started = _count_programs()
    counts: dict[tuple[str, int], int] = {}
    for label, by_files in (("", True), (" by screens", False)):
        for count in (FEW, MANY):
            with Home(root / f"n{count}{by_files}") as home:
                fleet.stand_ins(home, count, status_files=by_files)
                before = len(started)
                with home.open() as swarm:
                    first, _ = timed(swarm.reconcile)
                    counts[label, count] = len(started) - before
                    if count == MANY:
                        yield Figure(f"reconcile {MANY}{label}: first look", first * 1000, "ms")
                        yield from _steady(f"reconcile {MANY}{label}", home, swarm.reconcile, rounds)
    for label in ("", " by screens"):
        few, many = counts[label, FEW], counts[label, MANY]
        yield Figure(f"reconcile {MANY}{label}: programs started by a first look", many, "")
        yield Figure(f"reconcile{label}: more programs for {MANY} than for {FEW}", many - few, "", 0)


def _steady(label: str, home: Home, look: Callable[[], list[Any]], rounds: int) -> Iterator[Figure]:
    """Looks as the supervise loop does them. The least time is the one without other programs in the way."""
    server = server_pid(home)
    for _ in range(2):
        time.sleep(1.1)  # a screen is read once more in the second after it was written
        if found := look():
            raise RuntimeError(f"the look found something: {found[0]}")
    before = cpu_of(server)
    spent = [timed(look) for _ in range(rounds)]
    theirs = (cpu_of(server) - before) / rounds
    walls, own = [wall for wall, _ in spent], statistics.median(cpu for _, cpu in spent)
    yield Figure(f"{label}: least time", min(walls) * 1000, "ms", LIMIT_MS)
    yield Figure(f"{label}: median time", statistics.median(walls) * 1000, "ms")
    yield Figure(f"{label}: processor, tmux server too", (own + theirs) * 1000, "ms CPU", LIMIT_MS)
    yield Figure(f"{label}: processor of the tmux server", theirs * 1000, "ms CPU")


def _count_programs() -> list[object]:
    """Every program this process starts from now on ends up in the list."""
    started: list[object] = []
    sys.addaudithook(lambda event, args: started.append(args[1]) if event == "subprocess.Popen" else None)
    return started

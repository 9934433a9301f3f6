"""How long after an agent's death it is recorded, with the supervise loop running."""

from __future__ import annotations

import os
import random
import signal
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import fleet
from benchmarks.figures import Figure, Options
from benchmarks.ground import Home, make_repo, wait_for
from benchmarks.watcher import watching
from swarm_core.swarm import Swarm

LIMIT_MS = 1000


def measure(root: Path, options: Options) -> Iterator[Figure]:
    count = options.times(60, 20)
    repo = make_repo(root / "repo", 200)
    with Home(root / "h") as home:
        living = fleet.agents(home, repo, count)
        with home.open() as swarm, watching(home, swarm):
            time.sleep(2)
            spent = sorted(_kill(swarm, i.id, i.pid or 0) * 1000 for i in living)
    yield Figure(f"death to event, {count} deaths: p50", statistics.median(spent), "ms", LIMIT_MS)
    yield Figure(f"death to event, {count} deaths: p99", spent[min(count - 1, count * 99 // 100)], "ms", LIMIT_MS)


def _kill(swarm: Swarm, instance_id: str, pid: int) -> float:
    """Kill at any moment of the loop's second; seconds until the row can be read by another process."""
    time.sleep(random.uniform(0.1, 0.7))
    newest = max((e.id for e in swarm.events(limit=1)), default=0)
    began = time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    wait_for(
        lambda: any(e.name == "instance:exited" for e in swarm.events(after=newest, instance_id=instance_id)),
        what=f"the death of {instance_id}",
        timeout=20,
        every=0.001,
    )
    return time.perf_counter() - began

"""What watching idle agents costs: the supervise loop, what it starts, and the tmux server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import fleet
from benchmarks.figures import Figure, Options
from benchmarks.ground import Home, cpu_of, cpu_of_children, make_repo, server_pid
from benchmarks.watcher import watching

INSTANCES = 60
LIMIT_PERCENT = 2.0
_WARM_UP = 4.0


def measure(root: Path, options: Options) -> Iterator[Figure]:
    seconds = 10.0 if options.quick else 20.0
    repo = make_repo(root / "repo", 200)
    with Home(root / "h") as home:
        fleet.agents(home, repo, INSTANCES)
        with home.open() as swarm, watching(home, swarm) as pid:
            time.sleep(_WARM_UP)
            server = server_pid(home)
            before, began = _spent(pid, server), time.monotonic()
            time.sleep(seconds)
            after, took = _spent(pid, server), time.monotonic() - began
            spent = {kind: cpu - before[kind] for kind, cpu in after.items()}
    for kind, cpu in spent.items():
        yield Figure(f"supervise {INSTANCES} idle: {kind}", cpu / took * 100, "% of a core")
    yield Figure(
        f"supervise {INSTANCES} idle: all", sum(spent.values()) / took * 100, "% of a core", LIMIT_PERCENT
    )


def _spent(loop: int, server: int) -> dict[str, float]:
    return {"loop": cpu_of(loop), "programs it started": cpu_of_children(loop), "tmux server": cpu_of(server)}

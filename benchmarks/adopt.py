"""How long after its start a coordinator knows what the agents do that a killed one has left behind."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import fleet
from benchmarks.calls import coordinator
from benchmarks.figures import Figure, Options
from benchmarks.ground import Home, make_repo, wait_for
from swarm_core.models import Activity, Instance
from swarm_core.ops.context import talk
from swarm_core.swarm import Swarm

LIMIT_S = 5


def measure(root: Path, options: Options) -> Iterator[Figure]:
    count = options.times(60, 10)
    repo = make_repo(root / "repo", 200)
    with Home(root / "h") as home:
        living = fleet.agents(home, repo, count)
        _kill_one(home)
        with home.open() as swarm:
            _wake(home, swarm, living)
            listened, known = _adopt(home, swarm, count)
            left = {(i.id, i.pid, i.status, Activity.BUSY) for i in living}
            found = {(i.id, i.pid, i.status, i.activity) for i in swarm.instances()}
    yield Figure(f"adopt {count}: start to listening", listened, "s")
    yield Figure(f"adopt {count}: start to the activity of all", known, "s", LIMIT_S)
    yield Figure(f"adopt {count}: agents not found as they are", len(left ^ found), "", 0)


def _kill_one(home: Home) -> None:
    """A coordinator looks at everybody, and is killed."""
    with coordinator(home) as (port, pid):
        wait_for(lambda: _healthy(port), what="the first look")
        os.kill(pid, signal.SIGKILL)


def _healthy(port: int) -> bool:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200


def _wake(home: Home, swarm: Swarm, living: list[Instance]) -> None:
    """All go to work while nobody watches, so that the next look has news of each."""
    for agent in living:
        swarm.context.host(agent).hand_over(talk(agent), "busy 600")
    files = [home.settings.instance_dir(agent.id) / "status.json" for agent in living]
    wait_for(
        lambda: {json.loads(file.read_text())["activity"] for file in files} == {Activity.BUSY},
        what="all agents at work",
        every=0.1,
    )


def _adopt(home: Home, swarm: Swarm, count: int) -> tuple[float, float]:
    """Seconds from the start of the process until it listens, and until another process can read what all do."""
    newest = max((e.id for e in swarm.events(limit=1)), default=0)

    def told() -> set[str | None]:
        return {e.instance_id for e in swarm.events(after=newest, limit=10_000) if e.name == "instance:activity"}

    began = time.perf_counter()
    with coordinator(home):
        listened = time.perf_counter() - began
        wait_for(lambda: len(told()) == count, what="the activity of all", every=0.001)
        return listened, time.perf_counter() - began

"""Messages: how fast one is accepted, how soon idle agents have seen many, what the courier costs without any."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import fleet
from benchmarks.calls import coordinator
from benchmarks.figures import Figure, Options
from benchmarks.ground import Home, cpu_of, cpu_of_children, make_repo, server_pid, wait_for, worker_of
from swarm_core.models import Instance, parse_iso
from swarm_core.store import messages
from swarm_core.swarm import Swarm

ACCEPT_LIMIT_MS = 20
BURST_LIMIT_S = 1
IDLE_LIMIT_PERCENT = 5.0
BURST, RECEIVERS = 100, 5
IDLE = 60
_WARM_UP = 6.0
# What `swarm msg` does once Python and the command line are loaded, timed inside the process of the command.
_ACCEPT_PART = """
import os, sys, time
from swarm_core import config
from swarm_core.swarm import Swarm
began = time.perf_counter()
with Swarm.open(config.load(os.environ), os.environ) as swarm:
    swarm.message(sys.argv[1], "say hello")
print(time.perf_counter() - began)
"""


def measure(root: Path, options: Options) -> Iterator[Figure]:
    repo = make_repo(root / "repo", 200)
    with Home(root / "h") as home:
        agents = fleet.agents(home, repo, RECEIVERS)
        with coordinator(home), home.open() as swarm:
            yield from _accept(home, swarm, agents, options)
            yield from _burst(swarm, agents)
    with Home(root / "i") as home:
        yield from _idle(home, repo, options)


def _accept(home: Home, swarm: Swarm, agents: Sequence[Instance], options: Options) -> Iterator[Figure]:
    """Until the row is committed, with a courier at work on the earlier ones."""
    times = sorted(_seconds_to_send(swarm, agents[n % RECEIVERS]) for n in range(options.times(200, 40)))
    label = f"send accepted, {len(times)} in one process"
    yield Figure(f"{label}: median", statistics.median(times) * 1000, "ms", ACCEPT_LIMIT_MS)
    yield Figure(f"{label}: p99", times[len(times) * 99 // 100] * 1000, "ms")
    rounds = options.times(15, 5)
    opened = [float(_run(home, [sys.executable, "-c", _ACCEPT_PART, agents[0].id])) for _ in range(rounds)]
    yield Figure(
        f"send accepted, {rounds} processes, from opening the database: median",
        statistics.median(opened) * 1000,
        "ms",
        ACCEPT_LIMIT_MS,
    )
    command = [str(Path(sys.executable).with_name("swarm")), "msg", agents[0].id, "say hello", "--json"]
    whole = []
    for _ in range(rounds):
        began = time.perf_counter()
        json.loads(_run(home, command))
        whole.append(time.perf_counter() - began)
    yield Figure(f"send accepted, {rounds} runs of `swarm msg`: median", statistics.median(whole) * 1000, "ms")
    _wait_until_seen(swarm)


def _burst(swarm: Swarm, agents: Sequence[Instance]) -> Iterator[Figure]:
    began = time.perf_counter()
    sent = [swarm.message(agents[n % RECEIVERS].id, f"say number {n}") for n in range(BURST)]
    accepted = time.perf_counter() - began
    _wait_until_seen(swarm)
    known = [messages.get(swarm.context.db, m.id) for m in sent]
    first = parse_iso(min(m.created_at for m in known))
    took = (parse_iso(max(m.seen_at or "" for m in known)) - first).total_seconds()
    label = f"{BURST} messages to {RECEIVERS} idle agents"
    yield Figure(f"{label}: all accepted", accepted, "s", BURST_LIMIT_S)
    yield Figure(f"{label}: all seen", took, "s")
    yield Figure(f"{label}: seen per second", BURST / took, "/s")
    yield Figure(f"{label}: sent more than once", sum(m.attempts > 1 for m in known), "", 0)


def _idle(home: Home, repo: Path, options: Options) -> Iterator[Figure]:
    """The whole coordinator with agents that wait and no messages: the courier is part of it."""
    seconds = 10.0 if options.quick else 20.0
    fleet.agents(home, repo, IDLE)
    with coordinator(home) as (_, pid):
        time.sleep(_WARM_UP)
        server = server_pid(home)
        before, began = _spent(pid, server), time.monotonic()
        time.sleep(seconds)
        spent, took = _spent(pid, server), time.monotonic() - began
    label = f"coordinator, {IDLE} idle agents, no messages"
    for kind, cpu in spent.items():
        yield Figure(f"{label}: {kind}", (cpu - before[kind]) / took * 100, "% of a core")
    all_of_it = sum(spent.values()) - sum(before.values())
    yield Figure(f"{label}: all", all_of_it / took * 100, "% of a core", IDLE_LIMIT_PERCENT)


def _seconds_to_send(swarm: Swarm, to: Instance) -> float:
    began = time.perf_counter()
    swarm.message(to.id, "say hello")
    return time.perf_counter() - began


def _wait_until_seen(swarm: Swarm) -> None:
    wait_for(lambda: not messages.waiting_for(swarm.context.db), what="all seen", timeout=300, every=0.02)


def _spent(pid: int, server: int) -> dict[str, float]:
    worker = worker_of(pid)
    itself = cpu_of(pid) + cpu_of(worker)
    return {"itself": itself, "programs it started": cpu_of_children(worker), "tmux server": cpu_of(server)}


def _run(home: Home, argv: Sequence[str]) -> str:
    return subprocess.run(argv, env=home.environ, check=True, capture_output=True, timeout=60, text=True).stdout

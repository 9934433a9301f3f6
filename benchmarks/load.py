"""64 agents at once: what the server keeps up with, and that nothing is lost, doubled or left untold meanwhile."""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.calls import coordinator, memory_of
from benchmarks.figures import Figure, Options
from benchmarks.ground import Home, cpu_of, cpu_of_children, make_repo, run, server_pid, worker_of
from benchmarks.mcp_client import Client
from swarm_core.models import Event, Instance, Kind
from swarm_core.store import feedback, tokens
from swarm_core.swarm import Swarm

PAIRS = 32
LIMIT_P99_MS = 60
LIMITED = ("query_instances", "search", "update_instance_status")
_PAGE = 5000
_READING = 3.0


@dataclass(frozen=True, slots=True)
class Used:
    """Processor seconds so far, to tell a slow server from a slow client or a busy machine."""

    server: float
    worker: float
    programs: float
    tmux: float
    client: float

    @classmethod
    def now(cls, pid: int, tmux: int) -> Used:
        worker = worker_of(pid)
        return cls(cpu_of(pid), cpu_of(worker), cpu_of_children(worker), cpu_of(tmux), time.process_time())


@dataclass(frozen=True, slots=True)
class Measured:
    """Times of reads alone, memory of server and worker in KB, and the ids of all events in the order seen."""

    reads: list[float]
    memory: tuple[tuple[float, float], tuple[float, float]]
    used: tuple[Used, Used]
    followed: list[int]


@dataclass
class Agent:
    """A running agent and its connection; what was answered to it, and how long each answer took."""

    instance: Instance
    client: Client
    number: int
    answered: list[tuple[str, str]] = field(default_factory=list)
    took: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    errors: int = 0
    reads: int = 0

    async def call_until(self, deadline: float) -> None:
        chance, count = random.Random(self.number), 0
        while time.monotonic() < deadline:
            count += 1
            tool, text, arguments = self._next(chance, f"agent {self.number} says {count}")
            began = time.perf_counter()
            answer = await self.client.ask("tools/call", {"name": tool, "arguments": arguments})
            self.took[tool].append(time.perf_counter() - began)
            if "error" in answer or answer["result"].get("isError"):
                self.errors += 1
            else:
                self.answered.append((tool, text))

    def _next(self, chance: random.Random, text: str) -> tuple[str, str, dict[str, Any]]:
        """Half of the calls read, half change something; no two changes are alike."""
        kind = chance.choice(["query", "search", "change", "change"])
        if kind == "query":
            return "query_instances", "", {"limit": 20}
        if kind == "search":
            return "search", text, {"query": text, "limit": 5}
        if self.instance.kind == Kind.REVIEW:
            return "send_feedback", text, {"feedback": text, "feedback_type": "suggestions"}
        return "update_instance_status", text, {"status": "running", "message": text}


def measure(root: Path, options: Options) -> Iterator[Figure]:
    repo = make_repo(root / "repo", 50)
    seconds = 10.0 if options.quick else 60.0
    with Home(root / "h") as home, coordinator(home) as (port, pid):
        with home.open() as swarm:
            agents = _hire(swarm, repo, port)
            begin = max((e.id for e in swarm.events(limit=1)), default=0)
        measured = asyncio.run(_load(home, pid, agents, seconds, begin))
        yield from _speed(agents, seconds, measured.reads)
        yield from _cost(measured, seconds)
        with home.open() as swarm:
            yield from _inside(swarm, agents, begin)
            yield from _truth(swarm, agents, begin, measured.followed)


def _hire(swarm: Swarm, repo: Path, port: int) -> list[Agent]:
    """Real agents in real sessions, half of them reviewing the other half."""
    works = swarm.work("say ready", repo=str(repo), agent="scripted", count=PAIRS)
    for work in works:
        run("git", "commit", "-q", "--allow-empty", "-m", "done", cwd=Path(work.worktree_path))
    with ThreadPoolExecutor(4) as pool:
        reviews = list(pool.map(lambda w: swarm.request_review(w.id, reviewer_prompt="say ready"), works))
    agents = []
    for number, instance in enumerate([*works, *reviews]):
        with swarm.context.db.write():
            token = tokens.issue(swarm.context.db, instance.id, instance.epoch)
        agents.append(Agent(instance, Client(port, token, accept="application/json"), number))
    return agents


async def _load(home: Home, pid: int, agents: Sequence[Agent], seconds: float, begin: int) -> Measured:
    for agent in agents:
        await agent.client.connect()
    reads = await _read_only(agents)
    tmux = server_pid(home)
    before, used_before = _memory(pid), Used.now(pid, tmux)
    ended = asyncio.Event()
    following = asyncio.create_task(_follow(home, begin, ended))
    deadline = time.monotonic() + seconds
    await asyncio.gather(*(agent.call_until(deadline) for agent in agents))
    after, used_after = _memory(pid), Used.now(pid, tmux)
    ended.set()
    followed = await following
    for agent in agents:
        agent.client.close()
    return Measured(reads, (before, after), (used_before, used_after), followed)


def _memory(pid: int) -> tuple[float, float]:
    return memory_of(pid), memory_of(worker_of(pid))


async def _read_only(agents: Sequence[Agent]) -> list[float]:
    """What the same clients get from the same server in the same minute when all they do is read."""
    times: list[float] = []

    async def read(agent: Agent, deadline: float) -> None:
        while time.monotonic() < deadline:
            began = time.perf_counter()
            await agent.client.ask("tools/call", {"name": "query_instances", "arguments": {"limit": 20}})
            times.append(time.perf_counter() - began)
            agent.reads += 1

    deadline = time.monotonic() + _READING
    await asyncio.gather(*(read(agent, deadline) for agent in agents))
    return times


async def _follow(home: Home, cursor: int, ended: asyncio.Event) -> list[int]:
    seen: list[int] = []
    with home.open() as swarm:
        while True:
            over = ended.is_set()
            after = seen[-1] if seen else cursor
            new = await asyncio.to_thread(lambda: [e.id for e in swarm.events(after=after, limit=_PAGE)])  # noqa: B023
            seen += new
            if over and not new:
                return seen
            await asyncio.sleep(0.25)


def _speed(agents: Sequence[Agent], seconds: float, reads: list[float]) -> Iterator[Figure]:
    yield Figure("load: load average of the machine in the last minute", os.getloadavg()[0], "")
    raw = len(reads) / _READING
    yield Figure("load: reads alone, calls per second", raw, "/s")
    alone = sorted(reads)[len(reads) * 99 // 100]
    yield Figure("load: reads alone, p99", alone * 1000, "ms")
    count = sum(len(agent.answered) for agent in agents)
    yield Figure(f"load: calls of {len(agents)} agents in {seconds:g} s", count, "")
    yield Figure("load: calls per second", count / seconds, "/s")
    yield Figure("load: calls per second, as a part of reads alone", count / seconds / raw, "x")
    every = sorted(t for agent in agents for times in agent.took.values() for t in times)
    yield Figure("load: p50 of all calls", statistics.median(every) * 1000, "ms")
    for tool in sorted({tool for agent in agents for tool in agent.took}):
        times = sorted(t for agent in agents for t in agent.took[tool])
        limit = LIMIT_P99_MS if tool in LIMITED else None
        p99 = times[len(times) * 99 // 100]
        yield Figure(f"load: p99 of {tool}", p99 * 1000, "ms", limit)
        yield Figure(f"load: p99 of {tool}, as a part of that of reads alone", p99 / alone, "x")
    yield Figure("load: p99 of all calls", every[len(every) * 99 // 100] * 1000, "ms")
    yield Figure("load: slowest call", every[-1] * 1000, "ms")
    yield Figure("load: calls refused", sum(agent.errors for agent in agents), "")


def _cost(measured: Measured, seconds: float) -> Iterator[Figure]:
    before, after = measured.used
    cores = {
        "the server": after.server - before.server,
        "its worker": after.worker - before.worker,
        "the programs it runs": after.programs - before.programs,
        "the tmux server": after.tmux - before.tmux,
        "this client": after.client - before.client,
    }
    for who, spent in cores.items():
        yield Figure(f"load: processors used by {who}", spent / seconds, "")
    for when, held in zip(("before", "after"), measured.memory, strict=True):
        for who, kilobytes in zip(("the server", "its worker"), held, strict=True):
            yield Figure(f"load: memory of {who} {when}", kilobytes / 1000, "MB")


def _inside(swarm: Swarm, agents: Sequence[Agent], begin: int) -> Iterator[Figure]:
    """What the server measured from dispatch until it recorded a call, the reads alone included.

    The rest of a call's time is queueing and, for a status, waiting for the disk.
    """
    callers = {agent.instance.id for agent in agents}
    took: dict[str, list[float]] = defaultdict(list)
    for event in _events(swarm, begin):
        if event.name == "tool:called" and event.actor in callers and event.tool_name in LIMITED:
            took[event.tool_name].append(event.duration_ms or 0.0)
    for tool, times in sorted(took.items()):
        yield Figure(f"load: p99 of {tool} inside the server", sorted(times)[len(times) * 99 // 100], "ms")


def _truth(swarm: Swarm, agents: Sequence[Agent], begin: int, followed: list[int]) -> Iterator[Figure]:
    said = [(tool, text) for agent in agents for tool, text in agent.answered]
    told = _events(swarm, begin)
    called = Counter((e.actor, e.tool_name, _text(e)) for e in told if e.name == "tool:called" and e.success)
    called.subtract(Counter({(a.instance.id, "query_instances", ""): a.reads for a in agents}))
    expected = Counter((a.instance.id, tool, text) for a in agents for tool, text in a.answered)
    works = [a.instance.id for a in agents if a.instance.kind == Kind.WORK]
    kept = Counter(f.body for work_id in works for f in feedback.of(swarm.context.db, work_id))
    sent = Counter(text for tool, text in said if tool == "send_feedback")
    yield Figure("load: effects lost", (sent - kept).total(), "", 0)
    yield Figure("load: effects doubled", (kept - sent).total(), "", 0)
    yield Figure("load: events missing", (expected - called).total(), "", 0)
    yield Figure("load: events too many", (called - expected).total(), "", 0)
    ids = [e.id for e in told]
    yield Figure("load: events out of order", sum(a != b for a, b in zip(ids, followed, strict=False)), "", 0)


def _events(swarm: Swarm, cursor: int) -> list[Event]:
    found: list[Event] = []
    while more := swarm.events(after=found[-1].id if found else cursor, limit=_PAGE):
        found += more
    return found


def _text(event: Event) -> str:
    asked = event.metadata["arguments"]
    return str(asked.get("feedback") or asked.get("message") or asked.get("query") or "")

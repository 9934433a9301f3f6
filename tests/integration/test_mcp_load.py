"""64 clients call at once for a few seconds: no effect is lost or doubled, no event is missing or out of order."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from swarm_core.models import Event, Instance
from swarm_core.store import feedback, messages
from tests.integration.crash_fixture import settle
from tests.integration.mcp_fixture import Coordinated
from tests.integration.review_fixture import finished_work
from tests.mcp_client import HttpClient

_CLIENTS = 64
_PAIRS = 4
_SECONDS = 5.0


@dataclass
class Caller:
    """One connection of an agent. No two calls that change something are alike."""

    client: HttpClient
    agent: Instance
    number: int
    answered: list[tuple[str, str]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def run(self, deadline: float) -> None:
        chance, count = random.Random(self.number), 0
        while time.monotonic() < deadline:
            count += 1
            tool, text, arguments = self.next_call(chance, f"caller {self.number} says {count}")
            code = self.client.call(tool, **arguments).code
            if code:
                self.failed.append(f"{tool}: {code}")
            else:
                self.answered.append((tool, text))

    def next_call(self, chance: random.Random, text: str) -> tuple[str, str, dict[str, Any]]:
        kind = chance.choice(["query", "search", "change", "change"])
        if kind == "query":
            return "query_instances", "", {"limit": 5}
        if kind == "search":
            return "search", text, {"query": text, "limit": 5}
        if self.agent.kind == "review":
            return "send_feedback", text, {"feedback": text, "feedback_type": "suggestions"}
        return "update_instance_status", text, {"status": "running", "message": text}


def test_64_clients_at_once(mcp: Coordinated) -> None:
    callers = hire(mcp)
    begin, ended = mcp.newest_event(), threading.Event()
    with ThreadPoolExecutor(len(callers) + 1) as pool:
        following = pool.submit(follow, mcp, begin, ended)
        deadline = time.monotonic() + _SECONDS
        calls = [pool.submit(caller.run, deadline) for caller in callers]
        try:
            for call in calls:
                call.result(60)
        finally:
            ended.set()
    assert [text for caller in callers for text in caller.failed] == []
    settle(mcp)
    told = mcp.events(after=begin)
    seen = following.result(20)
    assert seen == [e.id for e in told if e.id <= seen[-1]], "what is delivered to agents goes on afterwards"
    assert_told(callers, [e for e in told if e.tool_name is not None])
    assert_said(mcp, callers)
    print(f"{sum(len(c.answered) for c in callers)} calls answered in {_SECONDS:g} s")


def hire(mcp: Coordinated) -> list[Caller]:
    """Several connections for each agent, as many agents for work as for reviews."""
    agents: list[Instance] = []
    with mcp.swarm() as swarm:
        for _ in range(_PAIRS):
            work = finished_work(mcp.world, swarm)
            agents += [mcp.world.work(swarm), swarm.request_review(work.id, reviewer_prompt="say reviewing")]
    tokens = [mcp.token(agent) for agent in agents]
    return [Caller(mcp.client(tokens[n % len(agents)]), agents[n % len(agents)], n) for n in range(_CLIENTS)]


def follow(mcp: Coordinated, cursor: int, ended: threading.Event) -> list[int]:
    """The ids of all events as they come, read as the dashboard does: what is above the last one seen."""
    seen: list[int] = []
    with mcp.swarm() as swarm:
        while True:
            over = ended.is_set()
            new = [e.id for e in swarm.events(after=seen[-1] if seen else cursor, limit=500)]
            seen += new
            if over and not new:
                return seen
            time.sleep(0.02)


def assert_told(callers: list[Caller], told: list[Event]) -> None:
    """One event for each answered call and no other."""
    expected = Counter((c.agent.id, tool, text) for c in callers for tool, text in c.answered)
    assert Counter((e.actor, e.tool_name, text_of(e)) for e in told) == expected
    assert {(e.name, e.success) for e in told} == {("tool:called", True)}


def text_of(event: Event) -> str:
    asked = event.metadata["arguments"]
    return str(asked.get("feedback") or asked.get("message") or asked.get("query") or "")


def assert_said(mcp: Coordinated, callers: list[Caller]) -> None:
    """What was answered is there, once, with the message that carries it."""
    with mcp.swarm() as swarm:
        db = swarm.context.db
        for work_id in {swarm.review_link(c.agent.id).parent_id for c in callers if c.agent.kind == "review"}:
            said = feedback.of(db, work_id)
            mine = [c for c in callers if c.agent.kind == "review" and c.agent.parent_id == work_id]
            expected = Counter(text for c in mine for tool, text in c.answered if tool == "send_feedback")
            assert Counter(f.body for f in said) == expected
            assert [m.id for m in messages.of(db, work_id, limit=100_000)] == [f.message_id for f in said]
        states = Counter(r[0] for r in db.rows("SELECT state FROM requests"))
        changing = ("send_feedback", "update_instance_status")
        assert states == {"done": sum(tool in changing for c in callers for tool, _ in c.answered)}

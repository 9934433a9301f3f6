"""Agents at work while the coordinator is killed again and again: nothing is lost and nothing happens twice."""

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
from swarm_core.swarm import Swarm
from tests.integration.crash_fixture import CUT_OFF, settle
from tests.integration.mcp_fixture import Coordinated
from tests.integration.review_fixture import finished_work
from tests.mcp_client import Answer, HttpClient
from tests.support import wait_until

_SEED = 20261117
_PAIRS = 4
_KILLS = 10
_ANSWERED_WITHIN = 60.0


@dataclass
class Agent:
    """Calls tools until told to stop, and asks again whenever its answer is lost. No two calls are alike."""

    mcp: Coordinated
    name: str
    token: str
    work: Instance
    seed: int
    answered: list[tuple[str, str]] = field(default_factory=list)
    lost: int = 0
    client: HttpClient | None = None

    def run(self, stop: threading.Event) -> None:
        chance, count = random.Random(self.seed), 0
        while not stop.is_set():
            count += 1
            tool, text, arguments = self.next_call(chance, f"{self.name} says {self.seed}x{count}")
            answer = self.insist(tool, arguments)
            assert answer.code == "", answer.message
            self.answered.append((tool, text))
        self.leave()

    def insist(self, tool: str, arguments: dict[str, Any]) -> Answer:
        deadline = time.monotonic() + _ANSWERED_WITHIN
        while True:
            try:
                return self.connected().call(tool, **arguments)
            except CUT_OFF:
                assert time.monotonic() < deadline, f"{tool} of {self.name} was never answered"
                self.lost += self.client is not None
                self.leave()
                time.sleep(0.1)

    def connected(self) -> HttpClient:
        if self.client is None:
            client = HttpClient(self.mcp.port, self.token, timeout=20)
            client.initialize()
            self.client = client
        return self.client

    def leave(self) -> None:
        if self.client is not None:
            self.client.close()
            self.client = None

    def next_call(self, chance: random.Random, text: str) -> tuple[str, str, dict[str, Any]]:
        raise NotImplementedError


class Reviewer(Agent):
    def next_call(self, chance: random.Random, text: str) -> tuple[str, str, dict[str, Any]]:
        if chance.random() < 0.7:
            return "send_feedback", text, {"feedback": text, "feedback_type": "suggestions"}
        return reading(chance, text)


class Steward(Agent):
    """An automation that approves a piece of work and sends it back in turn, so that each call is a change."""

    approves = False

    def next_call(self, chance: random.Random, text: str) -> tuple[str, str, dict[str, Any]]:
        if chance.random() < 0.7:
            self.approves = not self.approves
            to = "approved" if self.approves else "running"
            asked = {"status": to, "message": text, "instance_id": self.work.id}
            return "update_instance_status", text, asked
        return reading(chance, text)


def reading(chance: random.Random, text: str) -> tuple[str, str, dict[str, Any]]:
    if chance.random() < 0.5:
        return "search", text, {"query": text, "limit": 1}
    return "query_instances", text, {"limit": 5}


def test_killed_at_random_moments_no_effect_is_lost_or_doubled_and_no_event_is_missing(mcp: Coordinated) -> None:
    agents = hire(mcp)
    stop, chance = threading.Event(), random.Random(_SEED)
    begin = mcp.newest_event()
    with ThreadPoolExecutor(len(agents)) as pool:
        running = [pool.submit(agent.run, stop) for agent in agents]
        try:
            for _ in range(_KILLS):
                work_on(agents, chance.randint(1, 80))
                time.sleep(chance.uniform(0.0, 0.05))
                mcp.kill()
                mcp.restart()
            work_on(agents, 80)
        finally:
            stop.set()
        for one in running:
            one.result(_ANSWERED_WITHIN)
    settle(mcp)
    told = mcp.events(after=begin)
    assert [e.id for e in told] == sorted({e.id for e in told})
    with mcp.swarm() as swarm:
        for agent in agents:
            assert_one_effect_each(swarm, agent, told)
            assert_events(agent, told)
    lost, answered = sum(a.lost for a in agents), sum(len(a.answered) for a in agents)
    print(f"{_KILLS} kills: {answered} calls answered, {lost} attempts lost")
    assert lost >= _KILLS


def work_on(agents: list[Agent], calls: int) -> None:
    """Wait until so many more calls are answered."""
    enough = sum(len(a.answered) for a in agents) + calls
    wait_until(lambda: sum(len(a.answered) for a in agents) >= enough, timeout=30, what=f"{calls} answers")


def hire(mcp: Coordinated) -> list[Agent]:
    agents: list[Agent] = []
    with mcp.swarm() as swarm:
        for number in range(_PAIRS):
            work = finished_work(mcp.world, swarm)
            review = swarm.request_review(work.id, reviewer_prompt="say reviewing")
            agents.append(Reviewer(mcp, review.id, mcp.token(review), work, _SEED + number))
            other, name = finished_work(mcp.world, swarm), f"steward{number}"
            token = swarm.create_token(name, ["status", "read"]).token
            agents.append(Steward(mcp, f"automation:{name}", token, other, _SEED - 1 - number))
    return agents


def assert_one_effect_each(swarm: Swarm, agent: Agent, told: list[Event]) -> None:
    """Feedback and changes of status are exactly those that were answered, in their order."""
    done = {tool: [text for t, text in agent.answered if t == tool] for tool, _ in agent.answered}
    if isinstance(agent, Reviewer):
        said = feedback.of(swarm.context.db, agent.work.id)
        assert [f.body for f in said] == done["send_feedback"]
        sent = messages.of(swarm.context.db, agent.work.id, limit=10_000)
        assert [m.id for m in sent] == [f.message_id for f in said]
        assert sum(e.name == "feedback:sent" and e.actor == agent.name for e in told) == len(said)
    else:
        changed = [e for e in told if e.name == "instance:status" and e.instance_id == agent.work.id]
        assert [e.metadata["reason"] for e in changed] == done["update_instance_status"]


def assert_events(agent: Agent, told: list[Event]) -> None:
    """Each answered call is an event; one whose answer was lost may be told of twice."""
    mine = [e for e in told if e.actor == agent.name and e.name == "tool:called"]
    assert all(e.success for e in mine)
    texts = Counter(text_of(e) for e in mine if e.tool_name != "query_instances")
    assert texts.keys() == {text for tool, text in agent.answered if tool != "query_instances"}
    queries = sum(e.tool_name == "query_instances" for e in mine)
    asked = sum(tool == "query_instances" for tool, _ in agent.answered)
    assert asked <= queries <= asked + agent.lost
    assert sum(texts.values()) <= len(texts) + agent.lost


def text_of(event: Event) -> str:
    asked = event.metadata["arguments"]
    return str(asked.get("feedback") or asked.get("message") or asked.get("query"))

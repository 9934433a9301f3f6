"""kill -9 of the coordinator in the middle of every tool: the caller asks again, and there is one effect."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from swarm_core.models import Event, Instance
from swarm_core.store import feedback, pulls, relationships
from swarm_core.swarm import Swarm
from swarm_mcp.tools import TOOLS
from tests.integration.crash_fixture import Crashing, Wish, census, change, crashing, request, settle
from tests.integration.mcp_fixture import Coordinated
from tests.integration.review_fixture import finished_work
from tests.support import wait_until

__all__ = ["crashing"]


@dataclass(frozen=True)
class Scene:
    """A piece of work, and somebody who has not called a tool for it yet."""

    work: Instance
    actor: str
    wish: Wish


def nothing(swarm: Swarm, scene: Scene) -> object:
    return None


@dataclass(frozen=True)
class Case:
    """One way to call a tool. `made` finds in the database what the answer calls `named`."""

    tool: str
    caller: str
    arguments: dict[str, Any]
    named: str = ""
    made: Callable[[Swarm, Scene], object] = nothing

    @property
    def writes(self) -> bool:
        return TOOLS[self.tool].writes

    def scene(self, crashing: Crashing) -> Scene:
        mcp, arguments = crashing.mcp, self.arguments
        with mcp.swarm() as swarm:
            work = finished_work(mcp.world, swarm)
            actor = work.id
            if self.caller == "reviewer":
                actor = swarm.request_review(work.id, reviewer_prompt="say reviewing").id
        if self.caller == "operator":
            arguments = arguments | {"instance_id": work.id}
            return Scene(work, "operator", Wish(mcp.operator_token, self.tool, arguments))
        return Scene(work, actor, Wish(mcp.token(actor), self.tool, arguments))


def child_of(swarm: Swarm, scene: Scene) -> object:
    (link,) = relationships.of(swarm.context.db, scene.work.id)
    return link.child_id


def feedback_to(swarm: Swarm, scene: Scene) -> object:
    (said,) = feedback.of(swarm.context.db, scene.work.id)
    return said.id


def pull_of(swarm: Swarm, scene: Scene) -> object:
    (pull,) = pulls.of(swarm.context.db, scene.work.id)
    return pull.number


def status_of(swarm: Swarm, scene: Scene) -> object:
    return swarm.find(scene.wish.arguments.get("instance_id", scene.actor)).status


_PULL = {"title": "Add it", "description": "It is added."}
_SAID = {"feedback": "Please add a test.", "feedback_type": "needs_work"}

CASES = {
    "review": Case(
        "spawn_review_instance", "author", {"reviewer_prompt": "say hello"}, "review_instance_id", child_of
    ),
    "fork": Case("spawn_fork_instance", "author", {"prompt": "say hello"}, "fork_instance_id", child_of),
    "pull": Case("create_pull_request", "author", _PULL, "pr_number", pull_of),
    "pull by the reviewer": Case("create_pull_request", "reviewer", _PULL, "pr_number", pull_of),
    "feedback": Case("send_feedback", "reviewer", _SAID, "feedback_id", feedback_to),
    "feedback by a person": Case("send_feedback", "operator", _SAID, "feedback_id", feedback_to),
    "approved": Case("update_instance_status", "reviewer", {"status": "approved"}, "status", status_of),
    "terminated": Case("update_instance_status", "operator", {"status": "terminated"}, "status", status_of),
    "search": Case("search", "author", {"query": "made"}),
}
QUERY = Case("query_instances", "author", {"include_relationships": True})


def test_every_tool_is_killed_in_the_middle() -> None:
    assert {case.tool for case in [QUERY, *CASES.values()]} == set(TOOLS)


@pytest.mark.parametrize("name", CASES)
def test_killed_anywhere_in_a_call_its_retry_does_what_one_call_does(crashing: Crashing, name: str) -> None:
    case = CASES[name]
    usual, effect, checkpoints = undisturbed(crashing, case)
    last = f"{case.tool}:recording"
    assert {f"{case.tool}:permitted", f"{case.tool}:ran", last, f"{case.tool}:recorded"} <= set(checkpoints)
    assert len(checkpoints) == len(set(checkpoints))

    scenes = [case.scene(crashing) for _ in checkpoints]
    before, cursor = count(crashing), crashing.mcp.newest_event()
    crashing.cut_off_everywhere([scene.wish for scene in scenes], checkpoints, last)
    with crashing.mcp.swarm() as swarm:
        recorded = [request(swarm, scene.actor, scene.wish) for scene in scenes]
    crashing.start()
    with ThreadPoolExecutor(len(scenes)) as pool:
        answers = [answer.ok for answer in pool.map(crashing.retried, [scene.wish for scene in scenes])]

    assert [outcome(crashing, case, s, a) for s, a in zip(scenes, answers, strict=True)] == [usual] * len(scenes)
    assert change(before, count(crashing)) == {what: n * len(scenes) for what, n in effect.items()}
    told = [e for e in crashing.mcp.events(after=cursor) if e.tool_name is not None]
    if case.writes:
        known = [str(row.get("state", "")) for row in recorded]
        done = checkpoints[checkpoints.index(last) + 1 :]
        assert Counter(known) == {"": 1, "open": len(scenes) - len(done) - 1, "done": len(done)}
        for scene, row in zip(scenes, recorded, strict=True):
            assert_told(scene, row, told)
    else:
        # of a read that was cut off nothing is known until its event is written
        assert sorted(Counter(e.actor for e in told).values()) == [1] * (len(scenes) - 1) + [2]
        assert {e.name for e in told} == {"tool:called"}


def test_killed_anywhere_in_a_small_read_the_retry_is_answered(crashing: Crashing) -> None:
    usual, effect, checkpoints = undisturbed(crashing, QUERY)
    assert checkpoints == [f"query_instances:{moment}" for moment in ("permitted", "ran", "recorded")]
    assert effect == {}
    scene = QUERY.scene(crashing)
    before = count(crashing)
    for checkpoint in checkpoints:
        cursor = crashing.mcp.newest_event()
        crashing.cut_off(crashing.mcp.client(scene.wish.token), checkpoint, scene.wish)
        crashing.start()
        assert outcome(crashing, QUERY, scene, crashing.retried(scene.wish).ok) == usual
        told = [e.name for e in crashing.mcp.events(after=cursor) if e.tool_name is not None]
        assert told == ["tool:called"] * (2 if checkpoint.endswith(":recorded") else 1)
    assert change(before, count(crashing)) == {}


def test_living_agents_are_adopted_within_five_seconds_of_the_next_start(mcp: Coordinated) -> None:
    world = mcp.world
    with mcp.swarm() as swarm:
        agents = [world.work(swarm, prompt) for prompt in ["busy 600", "say ready"] * 4]
        changes = world.work(swarm, "busy 5")
        expected = {a.id: (a.pid, "running", kind) for a, kind in zip(agents, ["busy", "idle"] * 4, strict=True)}
        wait_until(lambda: states(swarm, agents) == expected, what="the first coordinator knows them")
        wait_until(lambda: swarm.find(changes.id).activity == "busy", what="one is still at work")
    mcp.kill()
    status = world.settings.instance_dir(changes.id) / "status.json"
    wait_until(lambda: json.loads(status.read_text())["activity"] == "idle", what="it ends its work unseen")
    cursor = mcp.newest_event()
    took = adoption(mcp)
    with mcp.swarm() as swarm:
        assert states(swarm, agents) == expected
        assert states(swarm, [changes]) == {changes.id: (changes.pid, "running", "idle")}
    assert {e.name for e in mcp.events(after=cursor)} == {"coordinator:started", "instance:activity"}
    for _ in range(2):
        if took >= 5.0:  # others who use the machine only ever add to it
            mcp.kill()
            took = adoption(mcp)
    print(f"{len(agents) + 1} agents are adopted {took:.2f} s after the start of the coordinator")
    assert took < 5.0


def adoption(mcp: Coordinated) -> float:
    """Seconds from the start of the process until it has looked at everybody."""
    began = time.monotonic()
    mcp.restart()
    wait_until(lambda: is_healthy(mcp), what="the first look is done")
    return time.monotonic() - began


def states(swarm: Swarm, agents: list[Instance]) -> dict[str, tuple[int | None, str, str]]:
    known = [swarm.find(agent.id) for agent in agents]
    return {i.id: (i.pid, i.status, i.activity) for i in known}


def is_healthy(mcp: Coordinated) -> bool:
    return mcp.client(None, initialize=False).post(b"", "/health", "GET").status == 200


def undisturbed(crashing: Crashing, case: Case) -> tuple[Any, dict[str, int], list[str]]:
    """The answer of one call, what it changes, and the checkpoints it passes."""
    scene = case.scene(crashing)
    before = count(crashing)
    crashing.passed()
    answer = crashing.mcp.client(scene.wish.token).call(case.tool, **scene.wish.arguments).ok
    checkpoints = crashing.passed()
    return outcome(crashing, case, scene, answer), change(before, count(crashing)), checkpoints


def count(crashing: Crashing) -> Counter[str]:
    settle(crashing.mcp)
    with crashing.mcp.swarm() as swarm:
        return census(swarm)


def outcome(crashing: Crashing, case: Case, scene: Scene, answer: dict[str, Any]) -> Any:
    """The answer, which must be true, without what differs from one piece of work to the next."""
    if not case.writes:
        return sorted(answer)
    with crashing.mcp.swarm() as swarm:
        assert answer[case.named] == case.made(swarm, scene)
    return {name: plain(value) for name, value in answer.items() if name != case.named}


def plain(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return re.sub(r"-a\d+|\b\d+\b", "-N", re.sub(r"[0-9a-f]{40}", "COMMIT", value))


def assert_told(scene: Scene, row: dict[str, Any], told: list[Event]) -> None:
    """A call that was cut off is an event of its own, one whose effect was recorded is the event it would have
    been anyway, and of one that had not begun nothing is known. Its retry is an event in each case."""
    mine = [
        e
        for e in told
        if e.actor == scene.actor
        and (e.metadata.get("arguments") == scene.wish.arguments or e.metadata.get("request", 0) == row.get("id"))
    ]
    names = {"": [], "open": ["tool:interrupted"], "done": ["tool:called"]}[str(row.get("state", ""))]
    assert [e.name for e in mine] == [*names, "tool:called"]
    assert mine[-1].success
    replays = "replay_of_request" in mine[-1].metadata.get("details", {})
    assert replays == (row.get("state") == "done")

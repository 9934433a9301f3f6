"""kill -9 of the coordinator in the middle of every tool: the caller asks again, and there is one effect."""

from __future__ import annotations

import json
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from swarm_core.models import Event, Instance
from swarm_core.ops.context import talk
from swarm_core.store import feedback, relationships
from swarm_core.swarm import Swarm
from swarm_mcp.tools import TOOLS
from tests.integration.crash_fixture import Crashing, Wish, census, change, crashing, request, settle
from tests.integration.mcp_fixture import Coordinated
from tests.integration.review_fixture import commit
from tests.rows import pulls_of
from tests.support import wait_until
from tests.world import World

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
    """One way to call a tool. `made` finds in the database what the answer calls `named`.

    Before a call on what is `merged` the work has a merged pull request. Who is killed while merging is in
    test_mcp_pulls.py and test_merge_local.py: of those one waits for the other.
    """

    tool: str
    caller: str
    arguments: dict[str, Any]
    named: str = ""
    made: Callable[[Swarm, Scene], object] = nothing
    merged: bool = False

    @property
    def writes(self) -> bool:
        return TOOLS[self.tool].writes

    def scene(self, crashing: Crashing) -> Scene:
        mcp, arguments = crashing.mcp, self.arguments
        with mcp.swarm() as swarm:
            work = mcp.world.work(swarm)
            commit(work, f"{work.id}.txt")  # no two change the same file, of which they would be told
            actor = work.id
            if self.caller == "reviewer":
                actor = swarm.request_review(work.id, reviewer_prompt="say reviewing").id
            if self.merged:
                swarm.open_pull(work.id, title="Add it", description="It is added.")
                swarm.pulls.merge(work.id)
        if self.caller == "operator":
            arguments = arguments if self.tool == "get_status" else arguments | {"instance_id": work.id}
            return Scene(work, "operator", Wish(mcp.operator_token, self.tool, arguments))
        return Scene(work, actor, Wish(mcp.token(actor), self.tool, arguments))


def child_of(swarm: Swarm, scene: Scene) -> object:
    (link,) = relationships.of(swarm.context.db, scene.work.id)
    return link.child_id


def feedback_to(swarm: Swarm, scene: Scene) -> object:
    (said,) = feedback.of(swarm.context.db, scene.work.id)
    return said.id


def pull_of(swarm: Swarm, scene: Scene) -> object:
    (pull,) = pulls_of(swarm.context.db, scene.work.id)
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
    "merge": Case("merge_pull_request", "operator", {}, "pr_number", pull_of, merged=True),
    "pulls": Case("query_pulls", "author", {}),
    "search": Case("search", "author", {"query": "made"}),
    "query": Case("query_instances", "author", {"include_relationships": True}),
    "system": Case("get_status", "operator", {}),
}
# The coordinator, when no second look is due for ten minutes.
_LOOKS_ONCE = """
import runpy
from swarm_core.ops import supervise
supervise.TICK = 600.0
runpy.run_module("swarm_mcp", run_name="__main__")
"""


def ways_to_call(*, inline: bool) -> list[str]:
    """The names of the cases of every tool in the registry; a tool without one is named itself, and fails."""
    found: list[str] = []
    for tool in TOOLS.values():
        if tool.inline == inline:
            found += [name for name, case in CASES.items() if case.tool == tool.name] or [tool.name]
    return found


def case_of(name: str) -> Case:
    assert name in CASES, f"nobody kills the coordinator in the middle of {name}"
    return CASES[name]


@pytest.mark.parametrize("name", ways_to_call(inline=False))
def test_killed_anywhere_in_a_call_its_retry_does_what_one_call_does(crashing: Crashing, name: str) -> None:
    case = case_of(name)
    usual, effect, checkpoints = undisturbed(crashing, case)
    last = f"{case.tool}:recording"
    assert {f"{case.tool}:permitted", f"{case.tool}:ran", last, f"{case.tool}:recorded"} <= set(checkpoints)
    assert len(checkpoints) == len(set(checkpoints))

    scenes = [case.scene(crashing) for _ in checkpoints]
    before, cursor = count(crashing), crashing.mcp.newest_event()
    crashing.cut_off_everywhere([scene.wish for scene in scenes], checkpoints, last)
    assert_killed_at(crashing, last)
    with crashing.mcp.swarm() as swarm:
        recorded = [request(swarm, scene.actor, scene.wish) for scene in scenes]
    assert_unfinished(case, recorded, answered=len(checkpoints) - checkpoints.index(last) - 1)
    crashing.start()
    with ThreadPoolExecutor(len(scenes)) as pool:
        answers = [answer.ok for answer in pool.map(crashing.retried, [scene.wish for scene in scenes])]

    assert [outcome(crashing, case, s, a) for s, a in zip(scenes, answers, strict=True)] == [usual] * len(scenes)
    assert change(before, count(crashing)) == {what: n * len(scenes) for what, n in effect.items()}
    told = [e for e in crashing.mcp.events(after=cursor) if e.tool_name is not None]
    if case.writes:
        for scene, row in zip(scenes, recorded, strict=True):
            assert_told(scene, row, told)
    else:
        # of a read that was cut off nothing is known until its event is written
        counted = sorted(Counter(e.actor for e in told).values())
        once_more = [1] * (len(scenes) - 1) + [2]
        assert counted == (once_more if case.caller == "author" else [sum(once_more)])
        assert {e.name for e in told} == {"tool:called"}


def assert_unfinished(case: Case, recorded: list[dict[str, Any]], *, answered: int) -> None:
    """What is recorded of a call that changes something at each checkpoint, the one that was killed first: it is
    open, one has not begun, and `answered` are done. Reads are not recorded."""
    if not case.writes:
        assert recorded == [{}] * len(recorded)
        return
    known = [str(row.get("state", "")) for row in recorded]
    assert known[0] == "open"
    assert Counter(known) == {"": 1, "open": len(recorded) - answered - 1, "done": answered}


@pytest.mark.parametrize("name", ways_to_call(inline=True))
def test_killed_anywhere_in_a_small_read_the_retry_is_answered(crashing: Crashing, name: str) -> None:
    case = case_of(name)
    usual, effect, checkpoints = undisturbed(crashing, case)
    assert checkpoints == [f"{case.tool}:{moment}" for moment in ("permitted", "ran", "recorded")]
    assert effect == {}
    scene = case.scene(crashing)
    before = count(crashing)
    for checkpoint in checkpoints:
        cursor = crashing.mcp.newest_event()
        crashing.cut_off(crashing.mcp.client(scene.wish.token), checkpoint, scene.wish)
        assert_killed_at(crashing, checkpoint)
        crashing.start()
        assert outcome(crashing, case, scene, crashing.retried(scene.wish).ok) == usual
        told = [e.name for e in crashing.mcp.events(after=cursor) if e.tool_name is not None]
        assert told == ["tool:called"] * (2 if checkpoint.endswith(":recorded") else 1)
    assert change(before, count(crashing)) == {}


def assert_killed_at(crashing: Crashing, checkpoint: str) -> None:
    """The coordinator died of SIGKILL, and no call in it came any further than to the checkpoint."""
    assert crashing.mcp.child is not None
    assert crashing.mcp.child.returncode == -signal.SIGKILL
    assert crashing.passed()[-1] == checkpoint


def test_living_agents_are_adopted_by_the_first_look_after_the_next_start(mcp: Coordinated) -> None:
    """How soon that is after the start is measured in `benchmarks adopt`."""
    world = mcp.world
    with mcp.swarm() as swarm:
        busy = [world.work(swarm, "busy 600") for _ in range(3)]
        idle, woken = ([world.work(swarm, "say ready") for _ in range(3)] for _ in range(2))
        known = expected(busy, "busy") | expected([*idle, *woken], "idle")
        wait_until(lambda: states(swarm, known) == known, what="the first coordinator knows them")
    mcp.kill()
    with mcp.swarm() as swarm:
        for agent in woken:
            swarm.context.host(agent).hand_over(talk(agent), "busy 600")
            wait_until(lambda: reports(world, agent) == "busy", what="it goes to work unseen")  # noqa: B023
        assert states(swarm, known) == known
    cursor = mcp.newest_event()
    mcp.start(program=[sys.executable, "-P", "-c", _LOOKS_ONCE])
    wait_until(lambda: health(mcp)["last_look_age_s"] is not None, what="the first look is done")
    with mcp.swarm() as swarm:
        assert states(swarm, known) == known | expected(woken, "busy")
    told = sorted((e.name, e.instance_id) for e in mcp.events(after=cursor))
    assert told == [("coordinator:started", None), *(("instance:activity", agent.id) for agent in woken)]


def expected(agents: list[Instance], activity: str) -> dict[str, tuple[int | None, str, str]]:
    return {agent.id: (agent.pid, "running", activity) for agent in agents}


def reports(world: World, agent: Instance) -> str:
    """What the agent says that it does."""
    status = world.settings.instance_dir(agent.id) / "status.json"
    return str(json.loads(status.read_text())["activity"])


def states(swarm: Swarm, ids: Iterable[str]) -> dict[str, tuple[int | None, str, str]]:
    known = [swarm.find(instance_id) for instance_id in ids]
    return {i.id: (i.pid, i.status, i.activity) for i in known}


def health(mcp: Coordinated) -> dict[str, Any]:
    return mcp.client(None, initialize=False).post(b"", "/health", "GET").message


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
    differs = {case.named, "delivery_status"}  # whether the author has seen it by now is a matter of time
    return {name: plain(value) for name, value in answer.items() if name not in differs}


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

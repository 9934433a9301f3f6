"""Which call is taken for the retry of another, and which is a call of its own."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from swarm_core.models import Feedback, Instance, Principal, PrincipalKind, iso, parse_iso
from swarm_core.ops.presence import Servers
from swarm_core.store import feedback, relationships
from swarm_core.swarm import Swarm
from swarm_mcp.dispatch import Dispatcher, Origin
from swarm_mcp.loop import LoopStore
from swarm_mcp.metrics import Metrics
from tests.integration.crash_fixture import CUT_OFF, Crashing, Wish, crashing, request, settle
from tests.integration.mcp_fixture import Coordinated
from tests.integration.review_fixture import commit, finished_work
from tests.mcp_client import HttpClient, StdioClient
from tests.support import wait_until
from tests.world import World

__all__ = ["crashing"]

_SAID = {"feedback": "Please add a test.", "feedback_type": "suggestions"}


@dataclasses.dataclass(frozen=True)
class Pair:
    """Work and its reviewer, who has something to say."""

    work: Instance
    review: Instance
    wish: Wish


def reviewed(mcp: Coordinated) -> Pair:
    with mcp.swarm() as swarm:
        work = finished_work(mcp.world, swarm)
        review = swarm.request_review(work.id, reviewer_prompt="say reviewing")
    return Pair(work, review, Wish(mcp.token(review), "send_feedback", _SAID))


def said_to(mcp: Coordinated, work: Instance) -> list[Feedback]:
    with mcp.swarm() as swarm:
        return feedback.of(swarm.context.db, work.id)


def age(mcp: Coordinated, seconds: float, *, servers: bool = True) -> None:
    """Make every recorded request that much older, and the servers that took them."""
    with mcp.swarm() as swarm, swarm.context.db.write():
        db = swarm.context.db
        for row in db.rows("SELECT id, started_at, finished_at FROM requests"):
            times = [row["started_at"], row["finished_at"]]
            older = [t and iso(parse_iso(t) - timedelta(seconds=seconds)) for t in times]
            db.execute("UPDATE requests SET started_at = ?, finished_at = ? WHERE id = ?", (*older, row["id"]))
    for path in mcp.world.settings.locks.glob("server-*") if servers else ():
        before = path.stat().st_mtime - seconds
        os.utime(path, (before, before))


@pytest.mark.parametrize("key", ["swarm/idempotencyKey", "claudecode/toolUseId"])
def test_a_lost_connection_and_the_same_key_give_the_same_result_once(crashing: Crashing, key: str) -> None:
    pair, mcp = reviewed(crashing.mcp), crashing.mcp
    meta = {key: "toolu_01"}
    loses, retries = mcp.client(pair.wish.token), mcp.client(pair.wish.token)
    crashing.hold("feedback:file:after")
    with losing_its_connection(loses), pytest.raises(CUT_OFF):
        loses.call(pair.wish.tool, meta, **pair.wish.arguments)
    crashing.wait_held({"feedback:file:after"})
    assert retries.call(pair.wish.tool, meta, **pair.wish.arguments).code == "REQUEST_IN_PROGRESS"
    crashing.let_go()
    wait_until(lambda: said_to(mcp, pair.work), what="the call ends without its client")
    answers = [retries.call(pair.wish.tool, meta, **pair.wish.arguments).ok for _ in range(2)]
    assert [a["feedback_id"] for a in answers] == [said.id for said in said_to(mcp, pair.work)] * 2
    settle(mcp)


@contextlib.contextmanager
def losing_its_connection(client: HttpClient) -> Iterator[None]:
    """A client that closes its connection a second after it has called."""
    client.close()
    before, client.timeout = client.timeout, 1.0
    yield
    client.timeout = before


def test_the_same_call_twice_on_purpose_has_two_effects(crashing: Crashing) -> None:
    pair, mcp = reviewed(crashing.mcp), crashing.mcp
    client = mcp.client(pair.wish.token)
    ids = [client.call(pair.wish.tool, **pair.wish.arguments).ok["feedback_id"] for _ in range(2)]
    for key in ("one", "two"):
        meta = {"swarm/idempotencyKey": key}
        ids.append(client.call(pair.wish.tool, meta, **pair.wish.arguments).ok["feedback_id"])
    assert [said.id for said in said_to(mcp, pair.work)] == ids
    assert len(set(ids)) == 4


def test_a_key_that_was_used_for_another_call_is_refused(crashing: Crashing) -> None:
    pair, mcp = reviewed(crashing.mcp), crashing.mcp
    client, meta = mcp.client(pair.wish.token), {"swarm/idempotencyKey": "one"}
    assert client.call(pair.wish.tool, meta, **pair.wish.arguments).ok
    other = client.call(pair.wish.tool, meta, feedback="Other.", feedback_type="suggestions")
    assert other.code == "KEY_REUSED"
    assert len(said_to(mcp, pair.work)) == 1


def test_the_same_call_of_another_caller_is_its_own(crashing: Crashing) -> None:
    pair, mcp = reviewed(crashing.mcp), crashing.mcp
    wish = dataclasses.replace(pair.wish, arguments=_SAID | {"instance_id": pair.work.id})
    crashing.cut_off(mcp.client(wish.token), "send_feedback:recorded", wish)
    crashing.start()
    person = crashing.retried(dataclasses.replace(wish, token=mcp.operator_token)).ok
    again = crashing.retried(wish).ok
    assert [(f.sender, f.id) for f in said_to(mcp, pair.work)] == [
        (pair.review.id, again["feedback_id"]),
        ("operator", person["feedback_id"]),
    ]
    settle(mcp)


@pytest.mark.parametrize(("minutes", "effects"), [(14, 1), (16, 2)])
def test_long_after_the_crash_the_same_call_is_a_new_one(crashing: Crashing, minutes: int, effects: int) -> None:
    pair, mcp = reviewed(crashing.mcp), crashing.mcp
    crashing.cut_off(mcp.client(pair.wish.token), "send_feedback:recorded", pair.wish)
    age(mcp, minutes * 60)
    crashing.start()
    crashing.retried(pair.wish)
    assert len(said_to(mcp, pair.work)) == effects
    settle(mcp)


def test_after_its_retry_was_answered_the_same_call_is_a_new_one(crashing: Crashing) -> None:
    pair, mcp = reviewed(crashing.mcp), crashing.mcp
    crashing.cut_off(mcp.client(pair.wish.token), "send_feedback:recorded", pair.wish)
    crashing.start()
    first, second = crashing.retried(pair.wish).ok, crashing.retried(pair.wish).ok
    assert [said.id for said in said_to(mcp, pair.work)] == [first["feedback_id"], second["feedback_id"]]
    settle(mcp)


@pytest.mark.parametrize("checkpoint", ["recording", "recorded"])
def test_a_call_that_a_killed_stdio_server_had_taken_is_retried_over_http(
    crashing: Crashing, checkpoint: str
) -> None:
    pair, mcp = reviewed(crashing.mcp), crashing.mcp
    piped = crashing.stdio(pair.wish.token)
    dies(crashing, piped, f"send_feedback:{checkpoint}", pair.wish)
    answer = crashing.retried(pair.wish).ok
    assert [said.id for said in said_to(mcp, pair.work)] == [answer["feedback_id"]]
    first = "tool:interrupted" if checkpoint == "recording" else "tool:called"
    told = [e for e in mcp.events(tool="send_feedback") if e.actor == pair.review.id]
    assert [e.name for e in told] == [first, "tool:called"]
    settle(mcp)


def dies(crashing: Crashing, client: StdioClient, checkpoint: str, wish: Wish) -> None:
    """The stdio server dies in the call; the coordinator lives on."""
    crashing.kill_at(checkpoint)
    with pytest.raises(CUT_OFF):
        client.call(wish.tool, **wish.arguments)
    assert client.process.wait(20) == -9
    (crashing.folder / "kill").unlink()


def test_a_call_that_the_killed_coordinator_had_taken_is_retried_on_stdio(crashing: Crashing) -> None:
    pair, mcp = reviewed(crashing.mcp), crashing.mcp
    crashing.cut_off(mcp.client(pair.wish.token), "send_feedback:recorded", pair.wish)
    answer = mcp.stdio(pair.wish.token).call(pair.wish.tool, **pair.wish.arguments).ok
    assert [said.id for said in said_to(mcp, pair.work)] == [answer["feedback_id"]]


def test_an_equal_call_to_a_living_server_does_not_hide_the_one_that_was_cut_off(crashing: Crashing) -> None:
    pair, mcp = reviewed(crashing.mcp), crashing.mcp
    crashing.hold("send_feedback:recorded")
    with losing_its_connection(client := mcp.client(pair.wish.token)), pytest.raises(CUT_OFF):
        client.call(pair.wish.tool, **pair.wish.arguments)
    crashing.wait_held({"send_feedback:recorded"})
    living = mcp.stdio(pair.wish.token)
    other = living.call(pair.wish.tool, **pair.wish.arguments).ok
    mcp.clients.remove(living)
    mcp.kill()
    mcp.clients.append(living)
    crashing.start()
    again = crashing.retried(pair.wish).ok
    assert [said.id for said in said_to(mcp, pair.work)] == [again["feedback_id"], other["feedback_id"]]


def test_killed_again_while_it_repeats_its_answer_there_is_still_one_effect(crashing: Crashing) -> None:
    pair, mcp = reviewed(crashing.mcp), crashing.mcp
    for checkpoint in ("send_feedback:recorded", "send_feedback:replayed", "send_feedback:replayed"):
        crashing.cut_off(mcp.client(pair.wish.token), checkpoint, pair.wish)
        crashing.start()
    answer = crashing.retried(pair.wish).ok
    assert [said.id for said in said_to(mcp, pair.work)] == [answer["feedback_id"]]
    settle(mcp)


def test_killed_again_in_the_retry_of_a_review_there_is_still_one(crashing: Crashing) -> None:
    mcp = crashing.mcp
    with mcp.swarm() as swarm:
        work = finished_work(mcp.world, swarm)
    wish = Wish(mcp.token(work), "spawn_review_instance", {"reviewer_prompt": "say reviewing"})
    for checkpoint in ("spawn:worktree:before", "spawn_review_instance:ran", "spawn_review_instance:recorded"):
        crashing.cut_off(mcp.client(wish.token), checkpoint, wish)
        crashing.start()
    answer = crashing.retried(wish).ok
    with mcp.swarm() as swarm:
        (link,) = relationships.of(swarm.context.db, work.id)
        assert swarm.find(work.id).status == "waiting_review"
    assert (link.child_id, link.round) == (answer["review_instance_id"], 1)
    settle(mcp)


def test_a_retry_with_a_key_of_its_own_is_known_by_that_key_from_then_on(crashing: Crashing) -> None:
    pair, mcp = reviewed(crashing.mcp), crashing.mcp
    crashing.cut_off(mcp.client(pair.wish.token), "send_feedback:recorded", pair.wish)
    crashing.start()
    client, meta = mcp.client(pair.wish.token), {"claudecode/toolUseId": "toolu_02"}
    first = client.call(pair.wish.tool, meta, **pair.wish.arguments).ok
    assert client.call(pair.wish.tool, meta, **pair.wish.arguments).ok == first
    assert len(said_to(mcp, pair.work)) == 1


def test_the_session_of_a_dead_server_is_unknown_to_the_next(crashing: Crashing) -> None:
    pair, mcp = reviewed(crashing.mcp), crashing.mcp
    client = mcp.client(pair.wish.token)
    session = client.session
    mcp.kill()
    crashing.start()
    later = mcp.client(pair.wish.token, initialize=False)
    later.session = session
    assert later.request("tools/list").status == 404


def test_an_agent_that_ended_itself_is_ended_once_whoever_died(crashing: Crashing) -> None:
    mcp = crashing.mcp
    with mcp.swarm() as swarm:
        work = mcp.world.work(swarm)
    wish = Wish(mcp.token(work), "update_instance_status", {"status": "terminated", "message": "done"})
    crashing.cut_off(mcp.client(wish.token), "update_instance_status:recorded", wish)
    crashing.start()
    # its token ends with its session, so the retry is in time or refused
    assert crashing.retried(wish).code in ("", "UNAUTHORIZED")
    with mcp.swarm() as swarm:
        wait_until(lambda: swarm.find(work.id).activity == "exited", timeout=30, what="its session is ended")
        ended = [e for e in swarm.events(after=0, limit=1000) if e.status_to == "terminated"]
        assert [(e.instance_id, e.actor) for e in ended] == [(work.id, work.id)]
    settle(mcp)


def test_a_server_is_alive_from_its_first_moment_however_many_forget_the_dead(world: World) -> None:
    servers, ended = Servers(world.settings.locks), threading.Event()

    def forget() -> None:
        while not ended.is_set():
            servers.forget_dead()

    forgetting = [threading.Thread(target=forget) for _ in range(3)]
    for thread in forgetting:
        thread.start()
    try:
        for _ in range(300):
            with servers.present() as me:
                assert servers.is_alive(me)
            assert not servers.is_alive(me)
            assert servers.last_seen(me) is None
    finally:
        ended.set()
        for thread in forgetting:
            thread.join(20)


def test_when_a_killed_server_was_last_alive_is_known_until_nobody_asks(crashing: Crashing) -> None:
    locks = crashing.mcp.world.settings.locks
    wait_until(lambda: len(list(locks.glob("server-*"))) == 2, what="the server and its worker")
    servers, known = Servers(locks), [path.stem.removeprefix("server-") for path in locks.glob("server-*")]
    crashing.mcp.kill()
    died_at = datetime.now(UTC)
    wait_until(lambda: not any(map(servers.is_alive, known)), what="the worker has noticed")
    servers.forget_dead()
    for server in known:
        seen = servers.last_seen(server)
        assert seen is not None
        assert timedelta(0) <= died_at - seen < timedelta(seconds=4)
    age(crashing.mcp, 3600)
    servers.forget_dead()
    assert [servers.last_seen(server) for server in known] == [None, None]


def test_a_call_whose_effect_could_not_be_committed_has_failed_and_says_so(world: World) -> None:
    spoilt: list[str] = []

    def spoil(name: str) -> None:
        """Have SQLite refuse to commit the first effect, when all of it is written and the call has finished."""
        if name == "send_feedback:recording" and not spoilt:
            spoilt.append(name)
            swarm.context.db.execute("PRAGMA defer_foreign_keys = ON")
            swarm.context.db.execute("UPDATE feedback SET to_instance = 'nobody'")

    with world.open(checkpoint=spoil) as swarm:
        work = world.work(swarm)
        wish = Wish("", "send_feedback", _SAID | {"instance_id": work.id})
        failed = asyncio.run(dispatched(swarm, wish))
        assert spoilt
        assert (failed["isError"], failed["structuredContent"]["code"]) == (True, "DATABASE_ERROR")
        assert feedback.of(swarm.context.db, work.id) == []
        assert told_of(swarm, wish) == [("tool:called", "DATABASE_ERROR")]
        assert request(swarm, "operator", wish)["state"] == "failed"
        again = asyncio.run(dispatched(swarm, wish))["structuredContent"]
        assert [said.id for said in feedback.of(swarm.context.db, work.id)] == [again["feedback_id"]]
        assert told_of(swarm, wish) == [("tool:called", "DATABASE_ERROR"), ("tool:called", None)]


def test_a_call_whose_effect_is_recorded_cannot_fail_any_more(world: World) -> None:
    under_way: list[asyncio.Task[dict[str, Any]]] = []

    def cancel(name: str) -> None:
        """The client gives the call up when its effect is recorded and its answer is not yet on the way."""
        if name == "send_feedback:recorded":
            under_way[0].get_loop().call_soon_threadsafe(under_way[0].cancel)

    async def give_up(wish: Wish) -> None:
        under_way.append(asyncio.ensure_future(dispatched(swarm, wish)))
        with pytest.raises(asyncio.CancelledError):
            await under_way[0]

    with world.open(checkpoint=cancel) as swarm:
        work = world.work(swarm)
        wish = Wish("", "send_feedback", _SAID | {"instance_id": work.id})
        asyncio.run(give_up(wish))
        assert told_of(swarm, wish) == [("tool:called", None)]
        recorded = request(swarm, "operator", wish)
        assert recorded["state"] == "done"
        answer = json.loads(recorded["result"])
        assert [said.id for said in feedback.of(swarm.context.db, work.id)] == [answer["feedback_id"]]


async def dispatched(swarm: Swarm, wish: Wish) -> dict[str, Any]:
    """What a server answers to the wish of a person; it serves nobody else, and ends."""
    settings = swarm.context.settings
    servers = Servers(settings.locks)
    origin = Origin(Principal(PrincipalKind.OPERATOR, "operator"), "connection", "1", {})
    with contextlib.closing(LoopStore(settings, swarm.context.db)) as store, servers.present() as me:
        dispatcher = Dispatcher(swarm, settings, store, server=me, servers=servers, metrics=Metrics())
        try:
            return await dispatcher.call(origin, wish.tool, wish.arguments)
        finally:
            await dispatcher.close(patience=0)


def told_of(swarm: Swarm, wish: Wish) -> list[tuple[str, str | None]]:
    """The events of the tool: their names and error codes."""
    return [(e.name, e.error_code) for e in swarm.events(after=0, limit=1000) if e.tool_name == wish.tool]


def test_work_that_was_answered_before_the_crash_gets_its_next_review_after_it(crashing: Crashing) -> None:
    mcp = crashing.mcp
    with mcp.swarm() as swarm:
        work = finished_work(mcp.world, swarm)
    author = Wish(mcp.token(work), "spawn_review_instance", {})
    first = crashing.retried(author).ok
    send_back(mcp, first["review_instance_id"], work)
    age(mcp, 60, servers=False)
    mcp.kill()
    crashing.start()
    second = crashing.retried(author).ok
    assert (first["round"], second["round"]) == (1, 2)
    settle(mcp)


def test_work_whose_request_was_cut_off_gets_its_next_review_after_the_verdict(crashing: Crashing) -> None:
    mcp = crashing.mcp
    with mcp.swarm() as swarm:
        work = finished_work(mcp.world, swarm)
    author = Wish(mcp.token(work), "spawn_review_instance", {})
    crashing.cut_off(mcp.client(author.token), "spawn:worktree:between", author)
    crashing.start()
    with mcp.swarm() as swarm:
        wait_until(lambda: swarm.find("review-a1").status == "running", timeout=30, what="the review runs anyway")
    send_back(mcp, "review-a1", work)
    assert crashing.retried(author).ok["round"] == 2
    settle(mcp)


def send_back(mcp: Coordinated, review_id: str, work: Instance) -> None:
    """The reviewer asks for more, and the author does it."""
    asked = {"feedback": "Please add a test.", "feedback_type": "needs_work"}
    assert mcp.agent(review_id).call("send_feedback", **asked).ok
    commit(work, "more.txt")


def test_after_an_end_in_good_order_the_same_call_is_a_new_one(crashing: Crashing) -> None:
    pair, mcp = reviewed(crashing.mcp), crashing.mcp
    first = crashing.retried(pair.wish).ok
    mcp.drop_clients()
    assert mcp.stop() == 0
    crashing.start()
    second = crashing.retried(pair.wish).ok
    assert [said.id for said in said_to(mcp, pair.work)] == [first["feedback_id"], second["feedback_id"]]

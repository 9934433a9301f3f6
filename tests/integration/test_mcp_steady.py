"""A coordinator that runs for months: what went wrong once is over, and no client uses up what is for all."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from swarm_core.models import Instance
from tests.integration.broken_fixture import exclusively_locked
from tests.integration.crash_fixture import Crashing, Wish, crashing
from tests.integration.mcp_fixture import Coordinated
from tests.integration.review_fixture import commit, finished_work
from tests.mcp_client import HttpClient
from tests.support import wait_until

__all__ = ["crashing"]


def lock_of(mcp: Coordinated) -> Path:
    assert mcp.child is not None
    (path,) = [p for p in mcp.world.home.rglob(f"server-{mcp.child.pid}-*.lock") if p.is_file()]
    return path


def test_housekeeping_goes_on_after_a_failure_that_nobody_thought_of(stopped_mcp: Coordinated) -> None:
    stopped_mcp.start()
    folder = lock_of(stopped_mcp).parent
    stopped_mcp.stop()
    in_the_way = folder / "server-x.lock"
    in_the_way.symlink_to(in_the_way)  # nobody can tell how old that is
    stopped_mcp.start()
    wait_until(lambda: "housekeeping met a bug" in stopped_mcp.log.read_text(), timeout=30, what="the failure")
    path, failed_at = lock_of(stopped_mcp), time.time()
    wait_until(lambda: path.stat().st_mtime > failed_at, timeout=30, what="the next beat")


def test_what_hooks_say_while_the_database_is_locked_is_answered_and_written_in_order(
    mcp: Coordinated,
) -> None:
    with mcp.swarm() as swarm:
        work = mcp.world.work(swarm, "say ready")
        mcp.world.wait_idle(swarm, work.id)
        before = mcp.newest_event()
        client = mcp.client(mcp.token(work), initialize=False, timeout=20)
        said = [("prompt_submit", ""), ("notification", "may I?"), ("prompt_submit", ""), ("stop", "")] * 3
        with exclusively_locked(mcp.world.settings.database_path):
            for event, detail in said:
                answer = client.post(f'{{"detail": "{detail}"}}'.encode(), path=f"/hooks/{event}")
                assert (answer.status, answer.message) == (200, {})
            assert mcp_is_unchanged(mcp, work, before)

        def activities() -> list[str]:
            events = mcp.events(after=before, name="instance:activity")
            return [e.metadata["to"] for e in events if e.metadata["source"] == "hook"]

        expected = ["busy", "blocked", "busy", "idle"] * 3
        wait_until(lambda: len(activities()) >= len(expected), timeout=30, what="all that was said is written")
        assert activities() == expected


def mcp_is_unchanged(mcp: Coordinated, work: Instance, newest: int) -> bool:
    return [e for e in mcp.events(after=newest) if e.instance_id == work.id] == []


def test_a_client_that_never_ends_its_sessions_loses_its_own_oldest(mcp: Coordinated) -> None:
    with mcp.swarm() as swarm:
        work = mcp.world.work(swarm)
    other = mcp.operator()
    token = mcp.token(work)
    clients = [mcp.client(token) for _ in range(80)]

    def open_ones() -> list[HttpClient]:
        return [c for c in clients if c.request("tools/list").status == 200]

    wait_until(lambda: len(open_ones()) <= 64, timeout=30, what="the oldest are ended")
    assert open_ones() == clients[-len(open_ones()) :]
    assert len(open_ones()) >= 60
    assert other.request("tools/list").status == 200


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
def test_nobody_can_tell_anothers_session_from_one_that_never_was(mcp: Coordinated, method: str) -> None:
    with mcp.swarm() as swarm:
        mine, theirs = (mcp.agent(mcp.world.work(swarm)) for _ in range(2))
    session = theirs.session
    answers = []
    for named in (session, "0" * len(session or "")):
        mine.session = named
        answers.append(mine.post(b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}', method=method))
    foreign, unknown = answers
    assert foreign.status == unknown.status == 404
    assert foreign.message == unknown.message
    assert foreign.message["error"]["data"]["code"] == "INVALID_REQUEST"


def test_a_request_without_a_session_is_told_so_with_a_code(mcp: Coordinated) -> None:
    client = mcp.client(mcp.operator_token, initialize=False)
    answer = client.request("tools/list")
    assert answer.status == 400
    assert answer.error["data"]["code"] == "INVALID_REQUEST"


def test_a_prompt_that_cannot_be_made_says_what_to_do(mcp: Coordinated) -> None:
    client = mcp.operator()
    answer = client.request("prompts/get", {"name": "review", "arguments": {"instance_id": "work-99-a1"}})
    assert answer.error["data"]["code"] == "INSTANCE_NOT_FOUND"
    assert "swarm ls" in answer.error["data"]["recovery_hint"]
    assert "swarm ls" in answer.error["message"]


def test_a_header_that_only_begins_like_a_claim_is_no_claim(mcp: Coordinated) -> None:
    client = mcp.operator()
    client.extra = {"X-User-Agent": "grpc-web"}
    assert client.request("tools/list").status == 200
    assert mcp.events(name="auth:refused") == []


def test_a_round_that_was_answered_just_before_a_crash_is_not_answered_again(crashing: Crashing) -> None:
    mcp = crashing.mcp
    with mcp.swarm() as swarm:
        work = finished_work(mcp.world, swarm)
    author = Wish(mcp.token(work), "spawn_review_instance", {})
    first = crashing.retried(author).ok
    mcp.kill()
    crashing.start()
    asked = {"feedback": "Please add a test.", "feedback_type": "needs_work"}
    assert mcp.agent(first["review_instance_id"]).call("send_feedback", **asked).ok
    commit(work, "more.txt")
    second = crashing.retried(author).ok
    assert (first["round"], second["round"]) == (1, 2)


def test_a_status_that_changed_since_is_set_again_after_a_crash(crashing: Crashing) -> None:
    mcp = crashing.mcp
    with mcp.swarm() as swarm:
        work = finished_work(mcp.world, swarm)
    back = Wish(mcp.token(work), "update_instance_status", {"status": "running"})
    crashing.retried(Wish(back.token, "create_pull_request", {"title": "It", "description": "All of it."}))
    assert crashing.retried(back).ok["status"] == "running"
    mcp.kill()
    crashing.start()
    opened = crashing.retried(Wish(back.token, "create_pull_request", {"title": "It", "description": "More."}))
    assert opened.ok
    with mcp.swarm() as swarm:
        assert swarm.find(work.id).status == "pr_created"
    assert crashing.retried(back).ok["status"] == "running"
    with mcp.swarm() as swarm:
        assert swarm.find(work.id).status == "running"

"""Database, tmux and git fail while the coordinator runs: an error with a category, nothing half done."""

from __future__ import annotations

import contextlib
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from swarm_core import proc
from swarm_core.store import relationships, tokens
from tests.integration.broken_fixture import Broken, broken, unstarted
from tests.integration.forging_fixture import bearer, send
from tests.mcp_client import HttpClient
from tests.support import git_run, wait_until

__all__ = ["broken", "unstarted"]

KEY = "swarm/idempotencyKey"
# Seconds after which a client takes its server for dead.
_GIVEN_UP = 15.0


# The database is locked


def test_while_the_database_is_locked_reads_are_answered_and_every_other_tool_says_so(broken: Broken) -> None:
    work = broken.work()
    author = broken.mcp.client(broken.mcp.token(work), timeout=_GIVEN_UP)
    operator = broken.mcp.client(broken.mcp.operator_token, timeout=_GIVEN_UP)
    reads: list[tuple[HttpClient, str, dict[str, Any]]] = [
        (author, "query_instances", {}),
        (author, "query_pulls", {}),
        (author, "search", {"query": "ready"}),
    ]
    asked = [
        (author, "update_instance_status", {"status": "running", "message": "at it"}),
        (operator, "send_feedback", {"feedback": "x", "feedback_type": "suggestions", "instance_id": work.id}),
        (author, "spawn_fork_instance", {"prompt": "say fork"}),
        (author, "spawn_review_instance", {"reviewer_prompt": "say review"}),
        (author, "create_pull_request", {"title": "t", "description": "d"}),
        (operator, "merge_pull_request", {"instance_id": work.id}),
    ]
    with broken.locked():
        before = broken.find(work)
        for client, tool, arguments in reads:
            assert broken.call(client, tool, **arguments).ok, tool
        for client, tool, arguments in asked:
            broken.fails(client, tool, "DATABASE_LOCKED", category="database", **arguments)
        assert author.post(b"{}", "/hooks/stop").status == 200
        assert operator.request("ping").result == {}
        after = broken.find(work)
    assert (after.status, after.pr_number, after.updated_at) == (before.status, None, before.updated_at)
    feedback = broken.world.settings.instance_dir(work.id) / "feedback"
    assert not feedback.exists() or list(feedback.iterdir()) == []
    broken.settled()

    def told() -> list[str]:
        """By their times: server and worker write down what waited each for itself."""
        found = sorted((e for e in broken.mcp.events() if e.tool_name is not None), key=lambda e: e.at)
        return [str(e.tool_name) for e in found]

    called = [tool for _, tool, _ in [*reads, *asked]]
    wait_until(lambda: told()[: len(called)] == called, what="every call has its event")
    for client, tool, arguments in [*reads, *asked[:-1]]:
        assert broken.call(client, tool, **arguments).ok, tool
    client, tool, arguments = asked[-1]
    waits = broken.call(client, tool, **arguments).payload
    assert [reason["code"] for reason in waits["reasons"]] == ["review_pending"]
    broken.settled()
    assert broken.calls().count("DATABASE_LOCKED") == len(asked)


def test_while_calls_wait_for_a_locked_database_who_does_not_need_it_is_answered(unstarted: Broken) -> None:
    unstarted.settings["busy_timeout"] = 100.0
    unstarted.start()
    work = unstarted.work()
    waiting = [unstarted.mcp.operator() for _ in range(4)]
    other = unstarted.mcp.client(unstarted.mcp.operator_token, timeout=_GIVEN_UP)
    status = {"status": "running", "instance_id": work.id}
    with ThreadPoolExecutor(len(waiting)) as threads:
        with unstarted.locked():
            asked = [threads.submit(unstarted.call, c, "update_instance_status", **status) for c in waiting]
            wait_until(lambda: under_way(unstarted) == len(asked), what="all of them are waiting")
            assert other.request("ping").result == {}
            assert "query_instances" in other.tools()
            assert [call.done() for call in asked] == [False] * len(asked)
        assert [call.result(30).code for call in asked] == [""] * len(asked)
    unstarted.settled()


def under_way(broken: Broken) -> int:
    """How many calls the server says that it is at."""
    asked = send(broken.mcp, bearer(broken.mcp.operator_token), b"", method="GET", path="/metrics")
    found = re.search(r"^swarm_calls_running (\d+)$", asked.message["text"], re.MULTILINE)
    assert found
    return int(found[1])


def test_a_crowd_that_meets_a_locked_database_is_not_answered_one_after_the_other(unstarted: Broken) -> None:
    """One after the other, each with the same patience, they would be answered in more than a minute."""
    unstarted.settings |= {"queue_max": 32, "busy_timeout": 4.0}
    unstarted.start()
    work = unstarted.work()
    author = unstarted.mcp.agent(work)
    crowd = [unstarted.mcp.operator() for _ in range(32)]

    def ask(n: int) -> str:
        tool = ("query_instances", "update_instance_status")[n % 2]
        return crowd[n].call(tool, **({"status": "approved", "instance_id": work.id} if n % 2 else {})).code

    with ThreadPoolExecutor(len(crowd) + 1) as threads, unstarted.locked():
        asked = [threads.submit(ask, n) for n in range(len(crowd))]
        hook = threads.submit(author.post, b"{}", "/hooks/stop")
        wait_until(lambda: hook.done() and all(c.done() for c in asked), timeout=30, what="all are answered")
        assert hook.result().status == 200
        assert [call.result() for call in asked] == ["", "DATABASE_LOCKED"] * (len(crowd) // 2)
    unstarted.called += len(crowd)
    unstarted.settled()
    assert unstarted.find(work).status == "running"


def test_an_overload_is_refused_at_once_while_the_database_is_locked_and_its_event_is_written_later(
    unstarted: Broken,
) -> None:
    unstarted.settings |= {"queue_max": 2, "busy_timeout": 100.0}
    unstarted.start()
    work = unstarted.work()
    crowd = [unstarted.mcp.operator() for _ in range(2)]
    other = unstarted.mcp.client(unstarted.mcp.operator_token, timeout=_GIVEN_UP)

    def ask(client: HttpClient) -> str:
        return client.call("update_instance_status", status="approved", instance_id=work.id).code

    with ThreadPoolExecutor(len(crowd)) as threads:
        with unstarted.locked():
            asked = [threads.submit(ask, client) for client in crowd]
            wait_until(lambda: under_way(unstarted) == len(crowd), what="the queue is full")
            refused = other.request("tools/call", {"name": "query_pulls", "arguments": {}})
            assert refused.error["data"]["code"] == "QUEUE_OVERLOADED"
            assert not any(call.done() for call in asked)
            assert [e for e in unstarted.mcp.events() if e.error_code == "QUEUE_OVERLOADED"] == []
        assert "DATABASE_LOCKED" not in [call.result(30) for call in asked]
    unstarted.called += len(crowd) + 1
    unstarted.settled()
    assert unstarted.calls().count("QUEUE_OVERLOADED") == 1


def test_a_database_that_is_locked_in_the_middle_of_a_spawn_leaves_one_instance_at_most(broken: Broken) -> None:
    work = broken.work()
    author = broken.mcp.agent(work)
    fork = {"prompt": "say fork"}
    with contextlib.ExitStack() as until, ThreadPoolExecutor(1) as beside:
        with broken.hanging("git", "worktree add") as hangs:
            asked = beside.submit(broken.call, author, "spawn_fork_instance", {KEY: "one"}, **fork)
            wait_until(hangs.exists, what="git hangs")
            until.enter_context(broken.locked())
        broken.check_failure(asked.result(30), "DATABASE_LOCKED", category="database")
    broken.settled()
    made = broken.call(author, "spawn_fork_instance", {KEY: "one"}, **fork).ok
    again = broken.call(author, "spawn_fork_instance", {KEY: "one"}, **fork).ok
    assert made == again
    with broken.mcp.swarm() as swarm:
        assert [i.id for i in swarm.instances() if i.kind == "fork"] == [made["fork_instance_id"]]
    broken.settled()


# tmux


def test_a_tmux_server_that_was_killed_is_started_again_by_the_next_spawn(broken: Broken) -> None:
    work = broken.work()
    operator = broken.mcp.operator()
    broken.world.kill_tmux()
    assert broken.call(operator, "query_instances").ok
    made = broken.call(operator, "spawn_fork_instance", instance_id=work.id, prompt="say fork").ok
    wait_until(lambda: broken.find(work).status == "failed", what="the death of the work is known")
    assert broken.find(made["fork_instance_id"]).status == "running"
    broken.settled()


def test_a_tmux_server_that_is_killed_during_a_spawn_does_not_fail_it(broken: Broken) -> None:
    work = broken.work()
    operator = broken.mcp.operator()
    with ThreadPoolExecutor(1) as beside:
        with broken.hanging("git", "worktree add") as hangs:
            asked = beside.submit(
                broken.call, operator, "spawn_fork_instance", instance_id=work.id, prompt="say fork"
            )
            wait_until(hangs.exists, what="git hangs")
            broken.world.kill_tmux()
            assert broken.call(broken.mcp.operator(), "query_instances").ok
        assert broken.find(asked.result(30).ok["fork_instance_id"]).status == "running"
    broken.settled()


@pytest.mark.parametrize("tool", ["spawn_fork_instance", "spawn_review_instance"])
def test_a_tmux_that_starts_no_session_undoes_the_spawn(broken: Broken, tool: str) -> None:
    work = broken.work()
    author = broken.mcp.agent(work)
    with broken.failing("tmux", "new-session"):
        broken.fails(author, tool, "TMUX_COMMAND_FAILED", category="external")
        assert broken.find(work).status == "running"
    broken.settled()
    assert broken.call(author, tool).ok
    broken.settled()


def test_while_tmux_fails_a_review_is_undone_in_the_record_at_once_and_the_rest_later(broken: Broken) -> None:
    work = broken.work()
    author, operator = broken.mcp.agent(work), broken.mcp.operator()
    with broken.failing("tmux"):
        broken.fails(author, "spawn_review_instance", "TMUX_COMMAND_FAILED", category="external")
        assert broken.find(work).status == "running"
        with broken.mcp.swarm() as swarm:
            (link,) = relationships.of(swarm.context.db, work.id)
            review = swarm.find(link.child_id)
            assert (review.status, link.verdict) == ("failed", "none")
            assert not tokens.has_valid(swarm.context.db, "instance", review.id)
        assert broken.call(
            operator, "send_feedback", feedback="x", feedback_type="suggestions", instance_id=work.id
        ).ok
        assert broken.call(author, "query_instances").ok
    broken.settled()
    assert broken.find(work).status == "running"
    assert broken.find(review).cleaned
    assert broken.call(author, "spawn_review_instance").ok
    broken.settled()


# git


@pytest.mark.parametrize("word", ["", "rev-parse", "worktree", "status", "for-each-ref"])
def test_a_git_that_fails_leaves_nothing_half_done(broken: Broken, word: str) -> None:
    codes = ("GIT_COMMAND_FAILED", "GIT_REPOSITORY_INVALID")
    work = broken.work()
    author = broken.mcp.agent(work)
    asked = {
        "spawn_review_instance": {},
        "create_pull_request": {"title": "t", "description": "d"},
        "spawn_fork_instance": {},
    }
    failed = 0
    with broken.failing("git", word):
        for tool, arguments in asked.items():
            answer = broken.call(author, tool, **arguments)
            if answer.code:
                broken.check_failure(answer, *codes, category="external")
                failed += 1
                assert broken.find(work).status == "running"
            else:
                asked = {name: given for name, given in asked.items() if name != tool}
        assert broken.call(author, "query_instances").ok
        assert broken.call(author, "update_instance_status", status="running").ok
    assert failed
    broken.settled()
    for tool, arguments in reversed(asked.items()):
        if tool != "spawn_review_instance" or broken.find(work).status == "running":
            assert broken.call(author, tool, **arguments).ok, tool
    broken.settled()


@pytest.mark.parametrize(
    ("program", "word"), [("git", "worktree add"), ("git", "rev-parse"), ("tmux", "new-session")]
)
def test_a_program_that_hangs_is_ended_with_its_call(unstarted: Broken, program: str, word: str) -> None:
    unstarted.start(MCP_TOOL_TIMEOUT="1500")
    work = unstarted.work()
    author = unstarted.mcp.agent(work)
    with unstarted.hanging(program, word) as hangs:
        error = unstarted.fails(author, "spawn_fork_instance", "TOOL_TIMEOUT", category="external")
        assert error["details"]["timeoutMs"] == 1500
        pid = int(hangs.read_text())
        wait_until(lambda: not proc.is_alive(pid), what="the program is gone")
        assert unstarted.call(author, "query_instances").ok
    unstarted.settled()
    assert unstarted.call(author, "spawn_fork_instance").ok
    unstarted.settled()


def test_a_branch_in_the_way_is_an_error_and_a_lock_that_a_dead_git_left_is_not(broken: Broken) -> None:
    work = broken.work()
    author = broken.mcp.agent(work)
    git_run(broken.world.repo, "branch", "fork")
    broken.fails(author, "spawn_fork_instance", "BRANCH_BLOCKED", category="state")
    git_run(broken.world.repo, "branch", "-D", "fork")
    locks = [
        Path(git_run(Path(work.worktree_path), "rev-parse", "--absolute-git-dir")) / "index.lock",
        broken.world.repo / ".git" / "index.lock",
        broken.world.repo / ".git" / "refs" / "heads" / "fork" / "fork-a1.lock",
    ]
    for lock in locks:
        lock.parent.mkdir(exist_ok=True)
        lock.touch()
    assert broken.call(author, "spawn_fork_instance").ok
    assert broken.call(author, "spawn_review_instance").ok
    for lock in locks:
        lock.unlink(missing_ok=True)
    broken.settled()


@pytest.mark.parametrize("how", ["moved away", "without .git", "damaged"])
def test_a_repository_that_cannot_be_used_is_an_error_until_it_is_back(broken: Broken, how: str) -> None:
    work = broken.work()
    author, operator = broken.mcp.agent(work), broken.mcp.operator()
    repo = broken.world.repo
    place = {"moved away": repo, "without .git": repo / ".git", "damaged": repo / ".git" / "HEAD"}[how]
    aside = broken.folder / "aside"
    place.rename(aside)
    if how == "damaged":
        place.write_text("rubbish")
    codes = ("GIT_REPOSITORY_NOT_FOUND", "GIT_REPOSITORY_INVALID", "GIT_COMMAND_FAILED")
    for tool in ("spawn_fork_instance", "spawn_review_instance"):
        broken.fails(author, tool, *codes, category="external")
    broken.fails(author, "create_pull_request", *codes, category="external", title="t", description="d")
    assert broken.call(operator, "query_instances", instance_id=work.id).ok
    assert broken.call(author, "search", query="ready").ok
    assert broken.find(work).status == "running"
    place.unlink(missing_ok=True)
    aside.rename(place)
    for tool in ("spawn_fork_instance", "spawn_review_instance"):
        assert broken.call(author, tool).ok, tool
    broken.settled()


def test_a_worktree_that_is_gone_has_no_review_and_the_rest_goes_on(broken: Broken) -> None:
    work = broken.work()
    author, operator = broken.mcp.agent(work), broken.mcp.operator()
    aside = broken.folder / "aside"
    Path(work.worktree_path).rename(aside)
    broken.fails(author, "spawn_review_instance", "WORKTREE_NOT_FOUND", category="external")
    assert broken.call(
        operator, "send_feedback", feedback="x", feedback_type="suggestions", instance_id=work.id
    ).ok
    assert broken.call(author, "spawn_fork_instance").ok
    assert broken.find(work).status == "running"
    aside.rename(work.worktree_path)
    assert broken.call(author, "spawn_review_instance").ok
    broken.settled()


# The agent's program


def test_an_agent_whose_program_is_missing_or_does_not_start_is_an_error(broken: Broken) -> None:
    work = broken.work()
    author = broken.mcp.agent(work)
    with broken.mcp.swarm() as swarm, swarm.context.db.write():
        swarm.context.db.execute("UPDATE instances SET agent = 'codex' WHERE id = ?", (work.id,))
    missing = broken.fails(author, "spawn_fork_instance", "AGENT_NOT_INSTALLED", category="external")
    assert missing["canonical"] == "CAPABILITY_MISSING"
    program = broken.folder / "bin" / "codex"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o755)
    broken.fails(author, "spawn_fork_instance", "AGENT_START_FAILED", category="external")
    broken.settled()


def test_when_tmux_hangs_altogether_a_review_is_undone_in_the_record_at_once_and_a_retry_works(
    unstarted: Broken,
) -> None:
    unstarted.start(MCP_TOOL_TIMEOUT="4000")
    work = unstarted.work()
    author = unstarted.mcp.agent(work)
    with unstarted.hanging("tmux"):
        began = time.monotonic()
        error = unstarted.fails(author, "spawn_review_instance", "TOOL_TIMEOUT", category="external")
        assert time.monotonic() - began < 10  # tmux alone is given 10 s, and its undo another 10
        assert error["details"]["undoing"]
        assert unstarted.find(work).status == "running"
        with unstarted.mcp.swarm() as swarm:
            (link,) = relationships.of(swarm.context.db, work.id)
            review = swarm.find(link.child_id)
            assert (review.status, link.verdict) == ("failed", "none")
            assert not tokens.has_valid(swarm.context.db, "instance", review.id)
    unstarted.settled()
    assert unstarted.find(review).cleaned
    assert unstarted.call(author, "spawn_review_instance").ok["review_instance_id"] != review.id
    unstarted.settled()


@pytest.mark.parametrize("tool", ["spawn_fork_instance", "create_pull_request"])
def test_when_git_hangs_a_call_ends_at_its_limit_and_a_retry_works(unstarted: Broken, tool: str) -> None:
    given = {"title": "Add it", "description": "It is added."} if tool == "create_pull_request" else {}
    unstarted.start(MCP_TOOL_TIMEOUT="3000")
    work = unstarted.work()
    author = unstarted.mcp.agent(work)
    with unstarted.hanging("git"):
        began = time.monotonic()
        unstarted.fails(author, tool, "TOOL_TIMEOUT", category="external", **given)
        assert time.monotonic() - began < 10
        assert unstarted.find(work).status == "running"
    unstarted.settled()
    assert unstarted.call(author, tool, **given).ok
    unstarted.settled()

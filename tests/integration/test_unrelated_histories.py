"""A branch that shares no commit with its base: git does not merge it, and everybody says so beforehand."""

from __future__ import annotations

import json

from swarm_core.models import Activity, Instance, Source
from swarm_core.ops import inbox, pull_status
from swarm_core.ops.pull_status import readiness
from swarm_core.store import instances
from swarm_core.swarm import Swarm
from tests.integration.merge_fixture import look, proposed, pull_of, put, rev
from tests.integration.review_fixture import code_of, refusal
from tests.rows import add_instance
from tests.support import git_run
from tests.world import World


def codes(swarm: Swarm, work: Instance) -> list[str]:
    """Why the pull request of an instance cannot be merged."""
    return [str(reason.code) for reason in readiness(swarm.pulls.of(work.id)).blockers]


def needs(swarm: Swarm) -> list[str]:
    board = inbox.board(swarm.context.db, policy=pull_status.policy(swarm.context.settings))
    return [item.need.key.partition(":")[0] for item in board.items()]


def unrelated(world: World, swarm: Swarm) -> Instance:
    """Work whose pull request is open and whose branch begins with a commit of its own."""
    tree = rev(world.repo, "main^{tree}")
    root = git_run(world.repo, "commit-tree", tree, "-m", "another beginning")
    put(world.repo, "work/work-1-a1", {"1.txt": "1\n"}, start=root)
    work = add_instance(swarm.context.db, "work-1-a1", repo_path=str(world.repo), base_commit=None)
    swarm.open_pull(work.id, title="Make 1", description="")
    return work


def test_a_branch_that_shares_no_commit_with_its_base_is_not_ready_and_the_refusal_says_what_to_do(
    world: World,
) -> None:
    before = rev(world.repo, "main")
    with world.open() as swarm:
        work = unrelated(world, swarm)
        with swarm.context.db.write():
            instances.observe(swarm.context.db, work.id, Activity.EXITED, source=Source.PROCESS, detail="stopped")
        look(swarm)
        assert codes(swarm, work) == ["unrelated_histories"]
        assert readiness(swarm.pulls.of(work.id)).state == "conflict"
        assert pull_of(swarm, work).failure == ""
        assert needs(swarm) == ["pull_failed"]
        for option in ({}, {"anyway": "please"}):
            error = refusal(swarm.pulls.merge, work.id, **option)
            assert (error.code, error.details["reasons"][0]["code"]) == (
                "PULL_NOT_MERGEABLE",
                "unrelated_histories",
            )
            assert "`git rebase main`" in (error.hint or "")
            assert f"`swarm pr open {work.id}`" in (error.hint or "")
    shown = json.loads(world.command("pr", "show", work.id, "--json").stdout)
    assert [reason["code"] for reason in shown["reasons"]] == ["unrelated_histories"]
    assert rev(world.repo, "main") == before


def test_a_branch_that_was_rebased_onto_its_base_is_ready_again(world: World) -> None:
    with world.open() as swarm:
        work = unrelated(world, swarm)
        look(swarm)
        git_run(world.repo, "update-ref", "-d", f"refs/heads/{work.branch}")
        put(world.repo, work.branch, {"1.txt": "1\n"}, start="refs/heads/main")
        swarm.open_pull(work.id, title="Make 1", description="")
        assert codes(swarm, work) == []
        assert swarm.pulls.merge(work.id).state == "merged"


def test_the_base_may_come_to_share_history_with_a_branch(world: World) -> None:
    with world.open() as swarm:
        work = unrelated(world, swarm)
        look(swarm)
        root = rev(world.repo, f"{work.branch}^")
        git_run(world.repo, "merge", "-q", "--allow-unrelated-histories", "-m", "join", root)
        swarm.pulls.look([swarm.pulls.of(work.id)])
        assert codes(swarm, work) == []
        assert swarm.pulls.merge(work.id).state == "merged"


def test_a_merge_of_a_branch_that_moved_says_so_whatever_else_is_in_the_way(world: World) -> None:
    with world.open() as swarm:
        work = unrelated(world, swarm)
        put(world.repo, work.branch, {"1.txt": "2\n"})
        assert code_of(swarm.pulls.merge, work.id) == "PULL_HEAD_MOVED"


def test_the_queue_does_not_take_a_branch_that_shares_no_commit_with_its_base(world: World) -> None:
    before = rev(world.repo, "main")
    with world.open() as swarm:
        work, other = unrelated(world, swarm), proposed(world, swarm, 2)
        for one in (work, other):
            swarm.pulls.enqueue(one.id)
        swarm.pulls.run_queue()
        assert pull_of(swarm, other).state == "merged"
        assert pull_of(swarm, work).state == "open"
        [asked] = [row for row in swarm.pulls.queue() if row.entry.instance_id == work.id]
        assert [str(reason.code) for reason in asked.readiness.blockers] == ["unrelated_histories"]
    assert rev(world.repo, "main") != before

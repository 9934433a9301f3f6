"""Reviews on real git and tmux: what must hold before one starts, its rounds, its verdicts, and how it ends."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from swarm_core.errors import Conflict, ExternalFailure
from swarm_core.hosts.base import SessionFacts
from swarm_core.hosts.local import LocalHost
from swarm_core.hosts.pool import HostPool
from swarm_core.models import WORKTREE_GONE, Instance
from swarm_core.ops import describe
from swarm_core.ops import review as reviews
from swarm_core.store import instances, messages, relationships
from swarm_core.swarm import Swarm
from tests.integration.review_fixture import (
    all_at_once,
    approve,
    code_of,
    commit,
    finished_work,
    head,
    link,
    named,
    needs_work,
    refusal,
    rounds,
)
from tests.support import git_run, wait_until
from tests.world import World, assert_agreement

__all__ = ["rounds"]


def died(swarm: Swarm, instance: Instance) -> Callable[[], bool]:
    def seen() -> bool:
        swarm.reconcile()
        return swarm.find(instance.id).ended

    return seen


def kill(instance: Instance) -> None:
    assert instance.pid is not None
    os.kill(instance.pid, signal.SIGKILL)


# Starting


def test_a_review_starts_at_the_head_of_the_work_which_waits_for_it(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm, issue=7)
        reserved: list[str] = []

        def note(review: Instance) -> None:
            reserved.append(swarm.find(work.id).status)

        review = swarm.request_review(work.id, reserved=note)
        assert (review.id, review.kind, review.status) == ("review-7-a1", "review", "running")
        assert (review.parent_id, review.agent, review.issue_number) == (work.id, work.agent, 7)
        assert (review.branch, review.base_branch) == ("review/review-7-a1", work.branch)
        assert review.base_commit == head(work) == head(review)
        assert (Path(review.worktree_path) / "made.txt").read_text() == "made\n"
        found = swarm.review_link(review.id)
        assert (found.parent_id, found.type, found.round) == (work.id, "spawned_review", 1)
        assert (found.head_commit, found.verdict, found.verdict_at) == (head(work), None, None)
        assert swarm.find(work.id).status == "waiting_review"
        assert reserved == ["running"]  # inside the transaction, before the rest of it
        [told] = named(swarm, "review:requested", work.id)
        assert told.metadata == {"review": review.id, "round": 1, "commit": head(work), "limit": 3}
        assert_agreement(world, swarm)


def test_what_fails_inside_the_reserving_transaction_leaves_no_trace(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)

        def fail(_: Instance) -> None:
            raise Conflict("no")

        assert code_of(swarm.request_review, work.id, reserved=fail) == "CONFLICT"
        assert code_of(swarm.fork, work.id, reserved=fail) == "CONFLICT"
        assert [i.id for i in swarm.instances(include_cleaned=True)] == [work.id]
        assert swarm.find(work.id).status == "running"
        assert_agreement(world, swarm)


def test_only_work_and_forks_are_reviewed_and_an_adhoc_instance_when_a_person_asks(world: World) -> None:
    with world.open() as swarm:
        assert code_of(swarm.request_review, "work-a9") == "INSTANCE_NOT_FOUND"
        adhoc = world.work(swarm, "", adhoc=True)
        assert adhoc.kind == "adhoc"
        commit(adhoc)
        assert code_of(swarm.request_review, adhoc.id, actor=adhoc.id) == "INVALID_INPUT"
        review = swarm.request_review(adhoc.id, actor="operator")
        assert code_of(swarm.request_review, review.id) == "INVALID_INPUT"
        work = finished_work(world, swarm)
        fork = swarm.fork(work.id)
        commit(fork, "other.txt")
        assert swarm.request_review(fork.id, actor=fork.id).parent_id == fork.id


@pytest.mark.parametrize("status", ["approved", "failed", "terminated"])
def test_only_running_work_is_reviewed(world: World, status: str) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        swarm.set_status(work.id, status, by_person=True)
        refused = refusal(swarm.request_review, work.id)
        assert (refused.code, refused.details["status"]) == ("WORKFLOW_INVALID_STATE", status)
        assert status in refused.message
        assert refused.hint


def test_work_that_waits_for_a_review_gets_no_second_one(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        review = swarm.request_review(work.id)
        refused = refusal(swarm.request_review, work.id)
        assert (refused.code, refused.details["review"]) == ("WORKFLOW_INVALID_STATE", review.id)
        swarm.set_status(work.id, "running", actor=work.id)
        refused = refusal(swarm.request_review, work.id)
        assert (refused.code, refused.details["review"]) == ("REVIEW_IN_PROGRESS", review.id)
        assert len(relationships.of(swarm.context.db, work.id)) == 1


def test_nothing_committed_is_nothing_to_review(world: World) -> None:
    with world.open() as swarm:
        work = world.work(swarm)
        (Path(work.worktree_path) / "open.txt").write_text("not committed\n")
        refused = refusal(swarm.request_review, work.id)
        assert (refused.code, refused.details["uncommitted"]) == ("NO_CHANGES", ["open.txt"])
        assert "commit" in (refused.hint or "")
        # commits of the base are not the work's own
        (world.repo / "more.txt").write_text("more\n")
        git_run(world.repo, "add", "-A")
        git_run(world.repo, "commit", "-q", "-m", "on main")
        git_run(Path(work.worktree_path), "merge", "-q", "main")
        assert code_of(swarm.request_review, work.id) == "NO_CHANGES"
        assert swarm.find(work.id).status == "running"


def test_uncommitted_and_untracked_files_are_named_and_refused(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        path = Path(work.worktree_path)
        (path / "README.md").write_text("changed\n")
        refused = refusal(swarm.request_review, work.id)
        assert (refused.code, refused.details["files"]) == ("UNCOMMITTED_CHANGES", ["README.md"])
        assert "commit" in (refused.hint or "")
        git_run(path, "checkout", "-q", "README.md")
        for number in range(25):
            (path / f"new-{number:02}.txt").write_text("x\n")
        refused = refusal(swarm.request_review, work.id)
        assert refused.code == "UNCOMMITTED_CHANGES"
        assert refused.details["files"] == [f"new-{n:02}.txt" for n in range(20)]
        assert refused.details["count"] == 25
        assert swarm.find(work.id).status == "running"
        assert_agreement(world, swarm)


def test_work_that_left_its_branch_is_refused(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        git_run(Path(work.worktree_path), "checkout", "-q", "--detach")
        commit(work, "lost.txt")
        assert code_of(swarm.request_review, work.id) == "WORKFLOW_INVALID_STATE"
        git_run(Path(work.worktree_path), "checkout", "-q", work.branch)
        assert code_of(swarm.request_review, work.id) == ""


def test_the_last_round_is_followed_by_a_person_and_the_mark_is_written_once(
    world: World, rounds: Callable[[int], None]
) -> None:
    rounds(1)
    with world.open() as swarm:
        work = finished_work(world, swarm)
        needs_work(swarm, swarm.request_review(work.id))
        (Path(work.worktree_path) / "open.txt").write_text("the limit is looked at first\n")
        for _ in range(2):
            refused = refusal(swarm.request_review, work.id, actor=work.id)
            assert refused.code == "REVIEW_LIMIT_EXCEEDED"
            assert refused.details["current_iteration"] == refused.details["max_iterations"] == 1
            assert len(refused.details["suggestions"]) == 3
        swarm.reconcile()
        marked = swarm.find(work.id)
        assert marked.needs_person.startswith(reviews.LIMIT)
        assert marked.problem == ""
        assert describe.instance(marked)["needs_person"] == marked.needs_person
        [told] = named(swarm, "review:limit", work.id)
        assert told.metadata["max_iterations"] == 1
        assert swarm.find(work.id).status == "running"
    rounds(2)
    with world.open() as swarm:
        (Path(work.worktree_path) / "open.txt").unlink()
        assert swarm.request_review(work.id).id == "review-a1-r2"
        assert swarm.find(work.id).needs_person == ""


def marked_work(world: World, swarm: Swarm) -> Instance:
    """Work that has had its one review round and has asked for another."""
    work = finished_work(world, swarm)
    needs_work(swarm, swarm.request_review(work.id))
    assert code_of(swarm.request_review, work.id, actor=work.id) == "REVIEW_LIMIT_EXCEEDED"
    return work


def test_a_worktree_that_is_gone_is_told_beside_the_mark_of_used_rounds(
    world: World, rounds: Callable[[int], None]
) -> None:
    rounds(1)
    with world.open() as swarm:
        work = marked_work(world, swarm)
        away = world.home / "away"
        Path(work.worktree_path).rename(away)
        swarm.reconcile()
        found = swarm.find(work.id)
        assert (found.problem, found.needs_person) == (WORKTREE_GONE, f"{reviews.LIMIT} (1)")
        assert [e.metadata["what"] for e in named(swarm, "instance:problem", work.id)] == [WORKTREE_GONE]
        away.rename(work.worktree_path)
        swarm.reconcile()
        found = swarm.find(work.id)
        assert (found.problem, found.needs_person) == ("", f"{reviews.LIMIT} (1)")


class Unwilling(LocalHost):
    """This machine, on which a session cannot be ended for a while."""

    willing = False

    def stop(self, instance_id: str, *, grace: float) -> tuple[SessionFacts | None, str]:
        if not self.willing:
            raise ExternalFailure("the session cannot be ended")
        return super().stop(instance_id, grace=grace)


def test_trouble_that_comes_and_goes_leaves_the_mark_of_used_rounds(
    world: World, rounds: Callable[[int], None]
) -> None:
    rounds(1)
    with world.open() as local:
        host = Unwilling(world.settings, world.environ)
        swarm = Swarm(dataclasses.replace(local.context, hosts=HostPool([host])), world.environ)
        work = marked_work(world, local)
        world.kill_tmux()
        swarm.reconcile()
        found = swarm.find(work.id)
        assert "cannot be ended" in found.problem
        assert found.needs_person.startswith(reviews.LIMIT)
        host.willing = True
        for _ in range(2):
            swarm.reconcile()
        found = swarm.find(work.id)
        assert (found.status, found.problem) == ("failed", "")
        assert found.needs_person.startswith(reviews.LIMIT)


def test_operations_leave_the_mark_of_used_rounds_until_the_work_is_put_away(
    world: World, rounds: Callable[[int], None]
) -> None:
    rounds(1)
    with world.open() as swarm:
        work = marked_work(world, swarm)
        for operation in (swarm.stop, swarm.restart, swarm.stop):
            operation(work.id)
            assert swarm.find(work.id).needs_person.startswith(reviews.LIMIT)
        assert len(named(swarm, "review:limit", work.id)) == 1
        swarm.clean(work.id)
        assert swarm.find(work.id).needs_person == ""


def test_every_round_has_an_id_of_its_own_and_two_works_never_share_one(world: World) -> None:
    with world.open() as swarm:
        work, adhoc = finished_work(world, swarm), world.work(swarm, "", adhoc=True)
        commit(adhoc)
        first = swarm.request_review(work.id)
        assert first.id == "review-a1"
        assert swarm.request_review(adhoc.id).id == "review-a2"
        for number in (2, 3):
            needs_work(swarm, first)
            commit(work, f"round-{number}.txt")
            first = swarm.request_review(work.id)
            assert (first.id, link(swarm, first).round) == (f"review-a1-r{number}", number)
        needs_work(swarm, swarm.find("review-a2"))
        assert swarm.request_review(adhoc.id).id == "review-a2-r2"
        with_issue = finished_work(world, swarm, issue=5)
        assert swarm.request_review(with_issue.id).id == "review-5-a1"
        assert_agreement(world, swarm)


def test_of_many_that_ask_at_once_one_gets_a_review(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
    answers = all_at_once(world, [lambda mine: code_of(mine.request_review, work.id)] * 6)
    assert sorted(answers) == ["", *["WORKFLOW_INVALID_STATE"] * 5]
    with world.open() as swarm:
        assert len(swarm.instances(include_cleaned=True)) == 2
        assert_agreement(world, swarm)


def test_a_reviewer_that_cannot_start_is_undone_and_its_round_does_not_count(
    world: World, rounds: Callable[[int], None]
) -> None:
    rounds(1)
    with world.open() as swarm:
        work = finished_work(world, swarm)

    def in_the_way(name: str) -> None:
        if name == "spawn:session:before":
            (world.settings.instance_dir("review-a1") / "order" / "in-the-way").mkdir(parents=True)

    with world.open(checkpoint=in_the_way) as swarm:
        assert code_of(swarm.request_review, work.id) != ""
        assert swarm.find(work.id).status == "running"
        assert swarm.find("review-a1").status == "failed"
        assert link(swarm, swarm.find("review-a1")).verdict == "none"
        assert len(named(swarm, "review:ended", work.id)) == 1
        [message] = messages.of(swarm.context.db, work.id)
        assert "review-a1" in message.body
        assert_agreement(world, swarm)
    with world.open() as swarm:
        review = swarm.request_review(work.id)
        assert (review.id, link(swarm, review).round) == ("review-a2", 1)
        assert_agreement(world, swarm)


# Verdicts


def test_needs_work_ends_the_round_and_the_work_goes_on(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        review = swarm.request_review(work.id)
        sent = needs_work(swarm, review, "rename it")
        assert (sent.stale, sent.reviewed_commit) == (False, head(work))
        assert swarm.find(review.id).status == "changes_requested"
        assert swarm.find(work.id).status == "running"
        found = link(swarm, review)
        assert found.verdict == "needs_work"
        assert found.verdict_at is not None
        [told] = named(swarm, "review:verdict", work.id)
        assert told.actor == review.id
        assert (told.metadata["verdict"], told.metadata["stale"]) == ("needs_work", False)
        # a second verdict of the same review, of either kind
        assert code_of(needs_work, swarm, review) == "WORKFLOW_INVALID_STATE"
        assert code_of(approve, swarm, review) == "WORKFLOW_INVALID_STATE"
        assert code_of(
            swarm.open_pull, work.id, title="t", description="", actor=review.id, review_id=review.id
        ) == ("WORKFLOW_INVALID_STATE")
        assert len(named(swarm, "feedback:sent")) == 1
        assert_agreement(world, swarm)


@pytest.mark.parametrize("kind", ["suggestions", "clarification"])
def test_other_feedback_decides_nothing(world: World, kind: str) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        review = swarm.request_review(work.id)
        for _ in range(2):
            swarm.send_feedback(work.id, "why?", feedback_type=kind, actor=review.id, review_id=review.id)
        assert swarm.find(review.id).status == "running"
        assert swarm.find(work.id).status == "waiting_review"
        assert link(swarm, review).verdict is None
        assert named(swarm, "review:verdict") == []


def test_an_approval_is_given_once_and_the_author_is_told(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        review = swarm.request_review(work.id)
        assert approve(swarm, review, message="well done").status == "approved"
        assert swarm.find(work.id).status == "approved"
        assert link(swarm, review).verdict == "approved"
        assert approve(swarm, review).status == "approved"
        assert len(named(swarm, "review:verdict")) == 1
        [message] = messages.of(swarm.context.db, work.id)
        assert message.sender == review.id
        assert head(work) in message.body
        assert code_of(needs_work, swarm, review) == "WORKFLOW_INVALID_STATE"
        assert swarm.find(work.id).status == "approved"
        assert_agreement(world, swarm)


def test_a_verdict_on_an_older_commit_says_so_and_approves_nothing_newer(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        review = swarm.request_review(work.id)
        old, new = head(work), commit(work, "later.txt")
        refused = refusal(
            swarm.open_pull, work.id, title="t", description="", actor=review.id, review_id=review.id
        )
        assert (refused.code, refused.details["stale"]) == ("WORKFLOW_INVALID_STATE", True)
        assert link(swarm, review).verdict is None
        after = approve(swarm, review)
        assert after.status == "approved"
        assert old[:12] in after.reason
        assert new[:12] in after.reason
        assert link(swarm, review).verdict == "approved"
        assert link(swarm, review).head_commit == old
        assert swarm.find(work.id).status == "running"
        [told] = named(swarm, "review:verdict")
        assert told.metadata["stale"] is True
        assert (told.metadata["reviewed_commit"], told.metadata["head_commit"]) == (old, new)


def test_feedback_on_an_older_commit_is_stale(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        review = swarm.request_review(work.id)
        old, new = head(work), commit(work, "later.txt")
        sent = needs_work(swarm, review)
        assert (sent.stale, sent.reviewed_commit, sent.head_commit) == (True, old, new)
        [told] = named(swarm, "review:verdict")
        assert told.metadata["stale"] is True
        assert swarm.find(work.id).status == "running"


def test_a_verdict_reaches_work_that_went_on_by_itself_without_moving_it(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        review = swarm.request_review(work.id)
        swarm.set_status(work.id, "running", actor=work.id)
        approve(swarm, review)
        assert swarm.find(work.id).status == "running"
        assert link(swarm, review).verdict == "approved"


def test_an_agent_quicker_than_the_record_of_its_start_is_heard(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)

    def quick(name: str) -> None:
        if name == "spawn:session:after":
            with world.open() as agent:
                needs_work(agent, agent.find("review-a1"))

    with world.open(checkpoint=quick) as swarm:
        review = swarm.request_review(work.id)
        assert review.status == "changes_requested"
        assert swarm.find(work.id).status == "running"
        assert_agreement(world, swarm)


# Ending without a verdict


def by_kill(swarm: Swarm, review: Instance) -> None:
    kill(review)
    wait_until(died(swarm, review), what="the death to be noticed")


def by_stop(swarm: Swarm, review: Instance) -> None:
    swarm.stop(review.id)


def by_itself(swarm: Swarm, review: Instance) -> None:
    swarm.set_status(review.id, "failed", message="cannot read it", actor=review.id)


@pytest.mark.parametrize("ending", [by_kill, by_stop, by_itself])
def test_a_reviewer_that_ends_without_a_verdict_approves_nothing(
    world: World, ending: Callable[[Swarm, Instance], None]
) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        review = swarm.request_review(work.id)
        ending(swarm, review)
        assert swarm.find(review.id).status in ("failed", "terminated")
        assert link(swarm, review).verdict == "none"
        assert swarm.find(work.id).status == "running"
        [told] = named(swarm, "review:ended", work.id)
        assert told.metadata["review"] == review.id
        [message] = messages.of(swarm.context.db, work.id)
        assert "without a verdict" in message.body
        assert code_of(approve, swarm, review) == "WORKFLOW_INVALID_STATE"
        assert code_of(needs_work, swarm, review) == "WORKFLOW_INVALID_STATE"
        swarm.reconcile()
        assert_agreement(world, swarm)
        # the round counts, and the next one may begin
        assert swarm.request_review(work.id).id == "review-a1-r2"


def test_a_reviewer_whose_program_exits_well_has_not_approved(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        review = swarm.request_review(work.id, reviewer_prompt="say looks good\nexit 0")
        wait_until(died(swarm, review), what="the reviewer to end")
        assert swarm.find(review.id).status == "terminated"
        assert link(swarm, review).verdict == "none"
        assert swarm.find(work.id).status == "running"
        assert_agreement(world, swarm)


def test_a_restarted_reviewer_cannot_take_up_a_round_that_is_over(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        review = swarm.request_review(work.id)
        swarm.stop(review.id)
        swarm.restart(review.id)
        assert code_of(approve, swarm, review) == "WORKFLOW_INVALID_STATE"
        assert swarm.find(work.id).status == "running"
        swarm.send_feedback(work.id, "late", feedback_type="suggestions", actor=review.id, review_id=review.id)
        assert_agreement(world, swarm)


@pytest.mark.parametrize("verdict", [needs_work, approve])
def test_a_reviewer_that_ends_after_its_verdict_takes_nothing_back(
    world: World, verdict: Callable[[Swarm, Instance], object]
) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        review = swarm.request_review(work.id)
        verdict(swarm, review)
        status, given = swarm.find(work.id).status, link(swarm, review).verdict
        kill(review)
        wait_until(died(swarm, review), what="the death to be noticed")
        assert swarm.find(work.id).status == status
        assert link(swarm, review).verdict == given
        assert named(swarm, "review:ended") == []
        assert review.id in [i.id for i in swarm.cleanable()]


def test_when_everything_dies_nothing_is_approved_and_nothing_runs(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        review = swarm.request_review(work.id)
        world.kill_tmux()
        wait_until(died(swarm, review), what="the deaths to be noticed")
        swarm.reconcile()
        assert swarm.find(work.id).status == "failed"
        assert link(swarm, review).verdict == "none"
        assert_agreement(world, swarm)
        swarm.restart(work.id)
        assert swarm.request_review(work.id).id == "review-a1-r2"


def test_work_whose_agent_died_while_it_waited_is_ended_by_the_verdict(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        review = swarm.request_review(work.id)
        kill(work)

        def noticed() -> bool:
            swarm.reconcile()
            return swarm.find(work.id).wanted == "stopped"

        wait_until(noticed, what="the death of the work's agent")
        assert swarm.find(work.id).status == "waiting_review"
        needs_work(swarm, review)
        assert swarm.find(work.id).status == "failed"
        assert len(messages.of(swarm.context.db, work.id)) == 1
        assert_agreement(world, swarm)


def test_a_review_never_holds_the_branch_of_the_work(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        review = swarm.request_review(work.id)
        approve(swarm, review)
        for instance in (work, review):
            swarm.stop(instance.id)
            swarm.clean(instance.id)
        assert world.branches() == {"main", work.branch}
        assert git_run(world.repo, "rev-parse", work.branch) == review.base_commit
        assert_agreement(world, swarm)


# Questions


def test_the_newest_instances_are_found_by_what_is_asked_of_them(world: World) -> None:
    with world.open() as swarm:
        first = finished_work(world, swarm, issue=3)
        second = finished_work(world, swarm)
        review = swarm.request_review(first.id)
        db = swarm.context.db

        def ids(**asked: object) -> list[str]:
            found, total = instances.query(db, **asked)  # type: ignore[arg-type]
            assert total >= len(found)
            return [i.id for i in found]

        assert ids() == [review.id, second.id, first.id]
        assert ids(issue_number=3) == [review.id, first.id]
        assert ids(kind="work", issue_number=3) == [first.id]
        assert ids(status="waiting_review") == [first.id]
        assert ids(instance_id=second.id, kind="review") == []
        assert instances.query(db, limit=1)[1] == 3
        swarm.stop(second.id)
        swarm.clean(second.id)
        assert second.id not in ids()
        assert ids(instance_id=second.id) == [second.id]
        both = relationships.of_many(db, [first.id, review.id, second.id])
        assert [(r.parent_id, r.child_id) for r in both] == [(first.id, review.id)]
        assert relationships.of_many(db, []) == []


@pytest.mark.parametrize(
    ("asked", "index"),
    [
        ({}, "instances_open"),
        ({"status": "running"}, "instances_open"),
        ({"kind": "work"}, "instances_"),
        ({"issue_number": 3}, "instances_issue"),
        ({"instance_id": "work-a1"}, "PRIMARY KEY"),
    ],
)
def test_questions_use_an_index(world: World, asked: dict[str, object], index: str) -> None:
    with world.open() as swarm:
        db = swarm.context.db
        seen: list[str] = []
        db._connection.set_trace_callback(seen.append)
        instances.query(db, **asked)  # type: ignore[arg-type]
        db._connection.set_trace_callback(None)
        assert seen
        for statement in seen:
            plan = " ".join(str(r[3]) for r in db.rows(f"EXPLAIN QUERY PLAN {statement}"))
            assert index in plan, (statement, plan)


def test_a_swarm_that_reports_elsewhere_shares_the_rest(world: World) -> None:
    with world.open() as swarm:
        heard: list[str] = []
        work = swarm.reporting(heard.append).work("say hi", repo=str(world.repo), agent="scripted")[0]
        assert "starting the agent" in heard
        assert swarm.find(work.id).status == "running"

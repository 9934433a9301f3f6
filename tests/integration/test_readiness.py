"""Readiness: verdicts and checks of a pull request's commit decide, everywhere the same; a person overrides."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from swarm_core.models import Activity, Instance, Source
from swarm_core.ops import inbox, pull_status
from swarm_core.ops.pull_status import Policy, PullStatus, readiness
from swarm_core.store import instances, verdicts
from swarm_core.swarm import Swarm
from tests.integration.merge_fixture import (
    Check,
    check,
    commit_main,
    configure,
    entries,
    look,
    proposed,
    pull_of,
    put,
    rev,
    told,
)
from tests.integration.review_fixture import (
    approve,
    code_of,
    commit,
    finished_work,
    named,
    needs_work,
    refusal,
)
from tests.support import git_run
from tests.world import World

__all__ = ["check"]


def codes(swarm: Swarm, work: Instance) -> list[str]:
    """Why the pull request of an instance cannot be merged."""
    return [str(reason.code) for reason in readiness(swarm.pulls.of(work.id)).blockers]


def state(swarm: Swarm, work: Instance) -> str:
    return str(readiness(swarm.pulls.of(work.id)).state)


def needs(swarm: Swarm) -> list[str]:
    board = inbox.board(swarm.context.db, policy=pull_status.policy(swarm.context.settings))
    return [item.need.key.partition(":")[0] for item in board.items()]


def refused(world: World, swarm: Swarm) -> Instance:
    """Work whose pull request is open at the commit that its reviewer has sent back."""
    work = finished_work(world, swarm)
    needs_work(swarm, swarm.request_review(work.id))
    swarm.open_pull(work.id, title="Make it", description="", actor=work.id)
    return work


def judge(swarm: Swarm, work: Instance, verdict: str, *, by: str = "review-9-a1", at: str | None = None) -> None:
    """A verdict without a reviewer's agent."""
    with swarm.context.db.write():
        verdicts.add(swarm.context.db, work.id, at or pull_of(swarm, work).head_commit, verdict, by=by)


# Verdicts


def test_a_commit_that_its_reviewer_sent_back_is_not_merged(world: World) -> None:
    with world.open() as swarm:
        work = refused(world, swarm)
        before = rev(world.repo, "main")
        assert (state(swarm, work), codes(swarm, work)) == ("changes requested", ["changes_requested"])
        error = refusal(swarm.pulls.merge, work.id)
        assert (error.code, error.details["reasons"][0]["code"]) == ("PULL_NOT_MERGEABLE", "changes_requested")
        assert "--anyway" in (error.hint or "")
        swarm.pulls.enqueue(work.id)
        assert swarm.pulls.run_queue() == 0
        assert entries(swarm)[work.id].state == "waiting"
        swarm.pulls.dequeue(work.id)
        swarm.pulls.merge(work.id, auto=True)
        look(swarm)
        assert (pull_of(swarm, work).state, rev(world.repo, "main")) == ("open", before)
        assert "pull_ready" not in needs(swarm)


def test_a_fork_at_a_refused_commit_is_refused_too(world: World) -> None:
    with world.open() as swarm:
        first, second = proposed(world, swarm, 1), proposed(world, swarm, 2)
        git_run(world.repo, "update-ref", f"refs/heads/{second.branch}", rev(world.repo, first.branch))
        swarm.open_pull(second.id, title="The same", description="")
        judge(swarm, first, "needs_work")
        assert codes(swarm, second) == ["changes_requested"]


def test_new_commits_after_a_request_for_changes_wait_for_another_review(world: World) -> None:
    with world.open() as swarm:
        work = proposed(world, swarm, 1)
        judge(swarm, work, "needs_work")
        put(world.repo, work.branch, {"fix.txt": "fix\n"})
        swarm.open_pull(work.id, title="Make it", description="")
        assert (state(swarm, work), codes(swarm, work)) == ("review outdated", ["review_outdated"])
        assert code_of(swarm.pulls.merge, work.id) == "PULL_NOT_MERGEABLE"
        judge(swarm, work, "approved")
        assert (state(swarm, work), codes(swarm, work)) == ("approved", [])
        assert swarm.pulls.merge(work.id).state == "merged"


def test_an_approval_is_shown_and_a_newer_commit_makes_it_stale(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        review = swarm.request_review(work.id)
        approve(swarm, review)
        swarm.open_pull(work.id, title="Make it", description="")
        found = readiness(swarm.pulls.of(work.id))
        assert (found.state, found.ready, found.approved_by) == (PullStatus.APPROVED, True, (review.id,))
        commit(work, "more.txt")
        swarm.open_pull(work.id, title="Make it", description="")
        found = readiness(swarm.pulls.of(work.id))
        assert (found.state, found.ready, found.approved_by) == (PullStatus.OPEN, True, ())
        assert [str(r.code) for r in found.reasons] == ["approval_outdated"]


def test_the_newest_verdict_on_a_commit_decides(world: World) -> None:
    with world.open() as swarm:
        work = proposed(world, swarm, 1)
        judge(swarm, work, "approved", by="review-9-a1")
        judge(swarm, work, "needs_work", by="review-9-a1-r2")
        assert codes(swarm, work) == ["changes_requested"]
        judge(swarm, work, "approved", by="review-9-a1-r3")
        assert readiness(swarm.pulls.of(work.id)).approved_by == ("review-9-a1-r3",)
        assert needs(swarm) == ["pull_ready"]


def test_a_reviewer_does_not_lift_what_a_person_refused(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        before = rev(world.repo, "main")
        swarm.send_feedback(work.id, "no", feedback_type="needs_work", actor="kim")
        swarm.set_status(work.id, "running", actor=work.id)
        review = swarm.request_review(work.id)
        approve(swarm, review)
        swarm.open_pull(work.id, title="Make it", description="", actor=review.id)
        found = readiness(swarm.pulls.of(work.id))
        assert (codes(swarm, work), found.refused_by, found.approved_by) == (["changes_requested"], ("kim",), ())
        assert code_of(swarm.pulls.merge, work.id) == "PULL_NOT_MERGEABLE"
        swarm.pulls.enqueue(work.id)
        assert (swarm.pulls.run_queue(), rev(world.repo, "main")) == (0, before)
        judge(swarm, work, "approved", by="anna")
        assert readiness(swarm.pulls.of(work.id)).approved_by == (review.id, "anna")
        assert swarm.pulls.run_queue() == 1


def test_a_review_of_a_newer_commit_lifts_what_a_person_refused_and_one_of_the_same_commit_does_not(
    world: World,
) -> None:
    with world.open() as swarm:
        work = proposed(world, swarm, 1)
        judge(swarm, work, "needs_work", by="kim")
        judge(swarm, work, "approved", by="review-1-a1")
        put(world.repo, work.branch, {"fix.txt": "fix\n"})
        swarm.open_pull(work.id, title="Make it", description="")
        assert codes(swarm, work) == ["review_outdated"]
        judge(swarm, work, "approved", by="review-1-a1-r2")
        assert codes(swarm, work) == []
        put(world.repo, work.branch, {"more.txt": "more\n"})
        swarm.open_pull(work.id, title="Make it", description="")
        assert codes(swarm, work) == []


def test_a_late_approval_of_an_older_commit_does_not_lift_what_a_person_refused(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        review = swarm.request_review(work.id)
        commit(work, "more.txt")
        swarm.send_feedback(work.id, "no", feedback_type="needs_work", actor="kim")
        approve(swarm, review)
        commit(work, "unseen.txt")
        swarm.open_pull(work.id, title="Make it", description="")
        assert codes(swarm, work) == ["review_outdated"]


def test_who_sets_the_status_of_a_review_gives_the_verdict(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        swarm.send_feedback(work.id, "no", feedback_type="needs_work", actor="kim")
        review = swarm.request_review(work.id)
        swarm.set_status(review.id, "approved", actor="kim", by_person=True)
        swarm.open_pull(work.id, title="Make it", description="")
        assert readiness(swarm.pulls.of(work.id)).approved_by == ("kim",)
        other = finished_work(world, swarm)
        commit(other, "other.txt")
        review = swarm.request_review(other.id)
        swarm.set_status(review.id, "approved", actor="automation:ci", by_person=True)
        swarm.open_pull(other.id, title="Make it", description="")
        assert readiness(swarm.pulls.of(other.id)).approved_by == ()


def test_what_a_person_says_is_a_verdict_of_the_commit_and_what_an_automation_says_is_not(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        swarm.open_pull(work.id, title="Make it", description="")
        swarm.send_feedback(work.id, "no", feedback_type="needs_work", actor="kim")
        assert codes(swarm, work) == ["changes_requested"]
        swarm.set_status(work.id, "running", by_person=True)
        swarm.set_status(work.id, "approved", actor="automation:ci", by_person=True)
        assert codes(swarm, work) == ["changes_requested"]
        swarm.set_status(work.id, "running", by_person=True)
        swarm.accept(work.id, actor="kim")
        assert readiness(swarm.pulls.of(work.id)).approved_by == ("kim",)


@pytest.mark.parametrize("how", ["accept", "status"])
def test_a_person_approves_an_open_pull_request_and_its_status_stays(world: World, how: str) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        swarm.open_pull(work.id, title="Make it", description="")
        swarm.send_feedback(work.id, "no", feedback_type="needs_work", actor="kim")
        assert (swarm.find(work.id).status, codes(swarm, work)) == ("pr_created", ["changes_requested"])
        assert code_of(swarm.set_status, work.id, "approved", actor="automation:ci", by_person=True)
        if how == "accept":
            assert world.command("accept", work.id).returncode == 0
        else:
            swarm.set_status(work.id, "approved", actor="operator", by_person=True)
        assert (swarm.find(work.id).status, codes(swarm, work)) == ("pr_created", [])
        assert readiness(swarm.pulls.of(work.id)).approved_by == ("operator",)
        assert refusal(swarm.accept, work.id).code == "WORKFLOW_INVALID_STATE"
        [event] = named(swarm, "work:accepted", work.id)
        assert event.metadata["commit"] == pull_of(swarm, work).head_commit
        assert swarm.pulls.merge(work.id).state == "merged"


def test_a_pull_request_is_approved_when_its_agent_has_ended(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        swarm.open_pull(work.id, title="Make it", description="")
        swarm.stop(work.id)
        judge(swarm, work, "needs_work", by="kim")
        swarm.accept(work.id, actor="kim")
        assert codes(swarm, work) == []


def test_a_pull_request_whose_branch_has_newer_commits_is_not_approved(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        swarm.open_pull(work.id, title="Make it", description="")
        commit(work, "more.txt")
        error = refusal(swarm.accept, work.id)
        assert (error.code, work.id in (error.hint or "")) == ("PULL_HEAD_MOVED", True)
        swarm.pulls.close(work.id)
        assert refusal(swarm.set_status, work.id, "approved", by_person=True).hint


def test_a_conflict_in_the_queue_is_a_reason_and_a_need(world: World) -> None:
    with world.open() as swarm:
        work = proposed(world, swarm, 1, {"README.md": "1\n"})
        with swarm.context.db.write():
            instances.observe(swarm.context.db, work.id, Activity.EXITED, source=Source.PROCESS, detail="stopped")
        swarm.pulls.enqueue(work.id)
        assert needs(swarm) == []
        commit_main(world.repo, {"README.md": "by a person\n"})
        swarm.pulls.run_queue()
        [row] = json.loads(world.command("pr", "queue", "--json").stdout)["waiting"]
        assert [reason["code"] for reason in row["reasons"]] == ["conflict"]
        assert needs(swarm) == ["pull_failed"]


def test_a_stop_that_a_person_asked_for_is_no_need(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        swarm.open_pull(work.id, title="Make it", description="")
        swarm.stop(work.id)
        assert needs(swarm) == ["pull_ready"]


def test_who_requested_changes_is_in_the_json(world: World) -> None:
    with world.open() as swarm:
        work = proposed(world, swarm, 1)
        judge(swarm, work, "needs_work", by="kim")
    shown = json.loads(world.command("pr", "show", work.id, "--json").stdout)
    assert shown["changes_requested_by"] == ["kim"]


def test_a_review_under_way_is_waited_for(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        review = swarm.request_review(work.id)
        swarm.open_pull(work.id, title="Make it", description="")
        assert (state(swarm, work), codes(swarm, work)) == ("under review", ["review_pending"])
        approve(swarm, review)
        assert codes(swarm, work) == []


def test_a_verdict_that_comes_while_the_check_runs_counts(world: World, check: Check) -> None:
    check.use(world, check.once(check.held()))
    with world.open() as swarm:
        work = proposed(world, swarm, 1)
        before = rev(world.repo, "main")
        found: list[str] = []

        def merge() -> None:
            with world.open() as mine:
                found.append(code_of(mine.pulls.merge, work.id))

        thread = threading.Thread(target=merge, daemon=True)
        thread.start()
        try:
            check.wait_held()
            judge(swarm, work, "needs_work")
        finally:
            check.let_go()
            thread.join(60)
        assert (found, rev(world.repo, "main")) == (["PULL_NOT_MERGEABLE"], before)


def test_a_verdict_that_comes_while_the_queue_checks_counts(world: World, check: Check) -> None:
    check.use(world, check.once(check.held()))
    with world.open() as swarm:
        works = [proposed(world, swarm, n) for n in (1, 2)]
        for work in works:
            swarm.pulls.enqueue(work.id)

        def run() -> None:
            with world.open() as mine:
                mine.pulls.run_queue()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            check.wait_held()
            judge(swarm, works[0], "needs_work")
        finally:
            check.let_go()
            thread.join(60)
        assert [pull_of(swarm, work).state for work in works] == ["open", "merged"]


# Commits that another instance brings along


def on_top(world: World, swarm: Swarm, number: int, *below: str) -> Instance:
    """Another instance whose pull request has one commit on top of these branches or commits."""
    work = proposed(world, swarm, number)
    tip = rev(world.repo, work.branch)
    tree, parents = rev(world.repo, f"{below[0]}^{{tree}}"), [f"-p{rev(world.repo, one)}" for one in below]
    merged = git_run(world.repo, "commit-tree", tree, *parents, *([f"-p{tip}"] if len(below) > 1 else []), "-mtop")
    git_run(world.repo, "update-ref", f"refs/heads/{work.branch}", merged)
    put(world.repo, work.branch, {f"top-{number}.txt": "top\n"})
    swarm.open_pull(work.id, title="On top", description="")
    return work


def test_a_fork_with_one_commit_on_top_of_a_refused_one_waits_for_a_review(world: World) -> None:
    with world.open() as swarm:
        first = finished_work(world, swarm)
        review = swarm.request_review(first.id)
        needs_work(swarm, review)
        before, sent_back = rev(world.repo, "main"), rev(world.repo, first.branch)
        fork = swarm.fork(first.id, "say ready")
        commit(fork, "more.txt")
        swarm.open_pull(fork.id, title="Make it", description="", actor=fork.id)
        assert (state(swarm, fork), codes(swarm, fork)) == ("review outdated", ["review_outdated"])
        [reason] = readiness(swarm.pulls.of(fork.id)).blockers
        assert reason.fields == {"by": review.id, "commit": sent_back}
        assert refusal(swarm.pulls.merge, fork.id).details["reasons"][0]["code"] == "review_outdated"
        swarm.pulls.enqueue(fork.id)
        assert swarm.pulls.run_queue() == 0
        swarm.pulls.dequeue(fork.id)
        swarm.pulls.merge(fork.id, auto=True)
        look(swarm)
        assert (pull_of(swarm, fork).state, rev(world.repo, "main")) == ("open", before)
        assert "pull_ready" not in needs(swarm)
        swarm.pulls.merge(fork.id, anyway="I have read it")
        assert pull_of(swarm, fork).state == "merged"


def test_a_review_of_what_contains_the_refused_commit_lifts_the_refusal(world: World) -> None:
    with world.open() as swarm:
        first = proposed(world, swarm, 1)
        judge(swarm, first, "needs_work", by="kim")
        second = on_top(world, swarm, 2, first.branch)
        judge(swarm, first, "approved", by="review-1-a1")
        assert codes(swarm, second) == ["review_outdated"]
        judge(swarm, second, "approved", by="review-2-a1")
        assert codes(swarm, second) == []
        put(world.repo, second.branch, {"more.txt": "more\n"})
        swarm.open_pull(second.id, title="On top", description="")
        assert codes(swarm, second) == []
        assert swarm.pulls.merge(second.id).state == "merged"


def test_a_commit_that_is_refused_as_the_work_of_another_later_is_refused_at_once(world: World) -> None:
    with world.open() as swarm:
        first = proposed(world, swarm, 1)
        shared = pull_of(swarm, first).head_commit
        judge(swarm, first, "approved")
        put(world.repo, first.branch, {"more.txt": "more\n"})
        swarm.open_pull(first.id, title="Make it", description="")
        judge(swarm, first, "approved")
        second = on_top(world, swarm, 2, shared)
        assert (codes(swarm, first), codes(swarm, second)) == ([], [])
        judge(swarm, second, "needs_work", by="kim", at=shared)
        assert (codes(swarm, first), codes(swarm, second)) == (["review_outdated"], ["review_outdated"])
        assert "pull_ready" not in needs(swarm)
        judge(swarm, first, "approved", by="review-1-a1-r2")
        assert (codes(swarm, first), codes(swarm, second)) == ([], ["review_outdated"])


def test_an_approval_of_a_commit_beside_the_refused_one_lifts_nothing(world: World) -> None:
    with world.open() as swarm:
        refused, approved = proposed(world, swarm, 1), proposed(world, swarm, 2)
        judge(swarm, refused, "needs_work")
        judge(swarm, approved, "approved")
        both = on_top(world, swarm, 3, refused.branch, approved.branch)
        assert codes(swarm, both) == ["review_outdated"]
        assert code_of(swarm.pulls.merge, both.id) == "PULL_NOT_MERGEABLE"


def test_a_refused_commit_that_its_base_has_by_now_counts_no_longer(world: World) -> None:
    with world.open() as swarm:
        first = proposed(world, swarm, 1)
        judge(swarm, first, "needs_work")
        second = on_top(world, swarm, 2, first.branch)
        assert codes(swarm, second) == ["review_outdated"]
        swarm.pulls.merge(first.id, method="merge", anyway="I have read it")
        assert swarm.pulls.merge(second.id).state == "merged"


def test_a_refusal_of_an_earlier_commit_that_comes_while_the_check_runs_counts(world: World, check: Check) -> None:
    check.use(world, check.once(check.held()))
    with world.open() as swarm:
        first = proposed(world, swarm, 1)
        second = on_top(world, swarm, 2, first.branch)
        before = rev(world.repo, "main")
        found: list[str] = []

        def merge() -> None:
            with world.open() as mine:
                found.append(code_of(mine.pulls.merge, second.id))

        thread = threading.Thread(target=merge, daemon=True)
        thread.start()
        try:
            check.wait_held()
            judge(swarm, first, "needs_work")
        finally:
            check.let_go()
            thread.join(60)
        assert (found, rev(world.repo, "main")) == (["PULL_NOT_MERGEABLE"], before)


def test_as_many_approvals_are_needed_as_the_setting_says(world: World) -> None:
    configure(world, required_approvals=2)
    with world.open() as swarm:
        work = proposed(world, swarm, 1)
        assert codes(swarm, work) == ["approvals_missing"]
        judge(swarm, work, "approved", by="review-9-a1")
        judge(swarm, work, "approved", by="review-9-a1")
        assert codes(swarm, work) == ["approvals_missing"]
        judge(swarm, work, "approved", by="kim")
        assert codes(swarm, work) == []


# Checks


@pytest.mark.parametrize("how", ["merge", "queue"])
def test_a_check_that_failed_is_shown_with_its_output_and_blocks_until_head_or_base_changes(
    world: World, check: Check, how: str
) -> None:
    check.use(world)
    with world.open() as swarm:
        work = proposed(world, swarm, 1, {"bad.txt": "1\n"})
        if how == "merge":
            assert code_of(swarm.pulls.merge, work.id) == "CHECK_FAILED"
        else:
            swarm.pulls.enqueue(work.id)
            swarm.pulls.run_queue()
        runs = check.runs
        found = swarm.pulls.of(work.id)
        assert (state(swarm, work), codes(swarm, work)) == ("checks failed", ["checks_failed"])
        assert found.check_run is not None
        assert "bad.txt is bad" in found.check_run.output
        assert "pull_ready" not in needs(swarm)
        error = refusal(swarm.pulls.merge, work.id)
        assert (error.code, "bad.txt is bad" in error.details["output"]) == ("CHECK_FAILED", True)
        assert check.runs == runs
        shown = world.command("pr", "show", work.id)
        assert b"bad.txt is bad" in shown.stdout
        [listed] = json.loads(world.command("pr", "ls", "--json").stdout)
        assert (listed["status"], listed["ready"]) == ("checks failed", False)
        assert "bad.txt is bad" in listed["checks"][0]["output"]
        commit_main(world.repo, {"other.txt": "by a person\n"})
        look(swarm)
        known = readiness(swarm.pulls.of(work.id))
        assert (known.ready, [str(r.code) for r in known.reasons]) == (True, ["check_outdated"])
        look(swarm)
        assert readiness(swarm.pulls.of(work.id)) == known
        assert "no blockers" not in world.command("ls").stdout.decode()
        error = refusal(swarm.pulls.merge, work.id)
        assert (error.code, f"pr check {work.id}" in (error.hint or "")) == ("CHECK_FAILED", True)
        assert "--anyway" in (error.hint or "")
        assert check.runs > runs
        git_run(world.repo, "branch", "-q", "-f", work.branch, "main")
        put(world.repo, work.branch, {"good.txt": "1\n"})
        swarm.open_pull(work.id, title="Make it", description="")
        assert codes(swarm, work) == []
        assert swarm.pulls.merge(work.id).state == "merged"


def test_a_base_that_fails_the_check_alone_is_blamed_and_not_the_pull_request(world: World, check: Check) -> None:
    check.use(world)
    commit_main(world.repo, {"bad.txt": "by a person\n"})
    with world.open() as swarm:
        work, later = proposed(world, swarm, 1), proposed(world, swarm, 2)
        error = refusal(swarm.pulls.merge, work.id)
        assert (error.code, error.details["base_fails"], check.runs) == ("CHECK_FAILED", True, 2)
        assert code_of(swarm.pulls.check, work.id) == "CHECK_FAILED"
        judge(swarm, later, "needs_work")
        swarm.pulls.merge(later.id, auto=True)
        judge(swarm, later, "approved")
        before = len(told(swarm, later))
        look(swarm)
        assert (pull_of(swarm, later).auto_merge, len(told(swarm, later))) == ("merge", before)
        (world.repo / "bad.txt").unlink()
        commit_main(world.repo, {})
        look(swarm)
        assert pull_of(swarm, later).state == "merged"


def test_a_person_merges_anyway_though_the_base_alone_fails_the_check(world: World, check: Check) -> None:
    check.use(world)
    commit_main(world.repo, {"bad.txt": "by a person\n"})
    with world.open() as swarm:
        work = proposed(world, swarm, 1)
        assert swarm.pulls.merge(work.id, anyway="main is being mended").state == "merged"


def test_a_failed_check_is_over_when_another_command_is_configured(world: World, check: Check) -> None:
    check.use(world)
    with world.open() as swarm:
        work = proposed(world, swarm, 1, {"bad.txt": "1\n"})
        assert code_of(swarm.pulls.merge, work.id) == "CHECK_FAILED"
    configure(world, check_command="true")
    with world.open() as swarm:
        assert swarm.pulls.merge(work.id).state == "merged"


def test_a_check_is_run_again_when_a_person_asks_for_it(world: World, check: Check) -> None:
    check.use(world, check.once("echo no network", "exit 1"))
    with world.open() as swarm:
        work = proposed(world, swarm, 1)
        assert code_of(swarm.pulls.merge, work.id) == "CHECK_FAILED"
        done = world.command("pr", "check", work.id, "--json")
        assert (done.returncode, json.loads(done.stdout)["status"]) == (0, "checks passed")
        runs = check.runs
        assert swarm.pulls.merge(work.id).state == "merged"
        assert check.runs == runs


def test_what_was_good_before_a_culprit_is_merged_and_the_culprit_keeps_its_failure(
    world: World, check: Check
) -> None:
    check.use(world)
    with world.open() as swarm:
        works = [proposed(world, swarm, 1), proposed(world, swarm, 2, {"bad.txt": "2\n"})]
        for work in works:
            swarm.pulls.enqueue(work.id)
        swarm.pulls.run_queue()
        assert pull_of(swarm, works[0]).state == "merged"
        runs = check.runs
        look(swarm)
        assert code_of(swarm.pulls.merge, works[1].id) == "CHECK_FAILED"
        assert check.runs == runs


# A person says otherwise


def merged_anyway(world: World, name: str = "main") -> str:
    return git_run(world.repo, "log", "-1", "--format=%(trailers:key=Merged-anyway,valueonly)", name).strip()


@pytest.mark.parametrize("method", ["merge", "squash"])
@pytest.mark.parametrize("why", ["verdict", "check"])
def test_a_person_merges_anyway_and_says_why(world: World, check: Check, method: str, why: str) -> None:
    check.use(world)
    with world.open() as swarm:
        work = proposed(world, swarm, 1, {"bad.txt": "1\n"} if why == "check" else None)
        if why == "verdict":
            judge(swarm, work, "needs_work")
        else:
            assert code_of(swarm.pulls.merge, work.id) == "CHECK_FAILED"
        pull = swarm.pulls.merge(work.id, method=method, anyway="the demo is at noon", actor="kim")
        assert (pull.state, merged_anyway(world)) == ("merged", "the demo is at noon (by kim)")
        [event] = named(swarm, "pull:overridden", work.id)
        assert (event.actor, event.metadata["reason"]) == ("kim", "the demo is at noon")
        expected = "changes_requested" if why == "verdict" else "checks_failed"
        assert [one["code"] for one in event.metadata["reasons"]] == [expected]


def test_anyway_is_for_people_and_for_verdicts_and_checks_alone(world: World) -> None:
    with world.open() as swarm:
        work = proposed(world, swarm, 1, {"README.md": "1\n"})
        judge(swarm, work, "needs_work")
        before = commit_main(world.repo, {"README.md": "by a person\n"})
        for actor in (work.id, "automation:ci"):
            assert code_of(swarm.pulls.merge, work.id, anyway="please", actor=actor) == "FORBIDDEN"
        error = refusal(swarm.pulls.merge, work.id, anyway="please")
        assert (error.code, error.details["reasons"][0]["code"]) == ("PULL_NOT_MERGEABLE", "conflict")
        options: list[dict[str, Any]] = [
            {"anyway": " "},
            {"anyway": "one\nMerged-anyway: two"},
            {"anyway": "x" * 2000},
            {"anyway": "please", "auto": True},
            {"anyway": "please", "method": "rebase"},
        ]
        for option in options:
            assert code_of(swarm.pulls.merge, work.id, **option) == "INVALID_INPUT"
        assert rev(world.repo, "main") == before
        assert named(swarm, "pull:overridden") == []


def test_anyway_where_nothing_stands_in_the_way_is_a_plain_merge(world: World) -> None:
    with world.open() as swarm:
        work = proposed(world, swarm, 1)
        assert swarm.pulls.merge(work.id, anyway="just in case").state == "merged"
        assert (merged_anyway(world), named(swarm, "pull:overridden")) == ("", [])


def test_the_command_line_takes_the_reason(world: World) -> None:
    with world.open() as swarm:
        work = proposed(world, swarm, 1)
        judge(swarm, work, "needs_work")
    assert world.command("pr", "merge", work.id).returncode == 1
    done = world.command("pr", "merge", work.id, "--anyway", "seen it", "--json")
    assert (done.returncode, json.loads(done.stdout)["state"]) == (0, "merged")
    assert merged_anyway(world) == "seen it (by operator)"


def test_an_agent_that_runs_the_command_is_not_a_person(world: World) -> None:
    with world.open() as swarm:
        work = proposed(world, swarm, 1)
        judge(swarm, work, "needs_work")
    as_agent = {"SWARM_INSTANCE": work.id, "SWARM_EPOCH": "1", "SWARM_TOKEN": "x"}
    before = rev(world.repo, "main")
    for command in (("pr", "merge", work.id, "--anyway", "let me"), ("accept", work.id)):
        done = world.command(*command, "--json", env=as_agent)
        assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (1, "FORBIDDEN")
    with world.open() as swarm:
        assert not pull_status.readiness(swarm.pulls.of(work.id)).ready
    assert rev(world.repo, "main") == before


def test_policy_is_read_from_the_settings(world: World) -> None:
    configure(world, required_approvals=1)
    with world.open() as swarm:
        assert pull_status.policy(swarm.context.settings) == Policy(grace=90.0, approvals=1)

"""Merging at GitHub: by itself when its checks have passed, and through the queue, which checks here first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from swarm_core import github
from swarm_core.forge import Known, Look, MergeMethod
from swarm_core.models import Instance
from swarm_core.ops import merging, pull_look, queue
from swarm_core.ops.pull_status import readiness
from swarm_core.ops.pulls import forge_of
from swarm_core.store import pulls, verdicts
from swarm_core.swarm import Swarm
from tests.fakes.github_repo import Pull as RepoPull
from tests.fakes.github_repo import Repo
from tests.integration.github_fixture import HubWorld, hub
from tests.integration.merge_fixture import Check, check, configure, entries, pull_of, told
from tests.integration.review_fixture import commit, named, refusal
from tests.support import git_run

__all__ = ["check", "hub"]


def test_it_is_merged_when_its_checks_have_passed_and_only_at_that_commit(hub: HubWorld) -> None:
    with hub.open() as swarm:
        (one, first), (two, second) = hub.proposed(swarm, "one.txt"), hub.proposed(swarm, "two.txt")
        running = [hub.hub.add_check(p.head_commit, "unit", "in_progress", None) for p in (first, second)]
        refused = refusal(swarm.pulls.merge, one.id)
        assert (refused.code, refused.details["hindrances"]) == (
            "PULL_NOT_MERGEABLE",
            ["checks are not finished: unit"],
        )
        for work in (one, two):
            assert swarm.pulls.merge(work.id, method="squash", auto=True).auto_merge == "squash"
        hub.look(swarm)
        assert (pull_of(swarm, one).state, pull_of(swarm, one).auto_merge) == ("open", "squash")
        commit(two, "later.txt")
        hub.open_pull(swarm, two)
        before = hub.remote_tip("main")
        for run in running:
            hub.hub.finish_check(run, "success")
        hub.look(swarm)
        assert (pull_of(swarm, one).state, pull_of(swarm, one).merge_commit) == ("merged", hub.remote_tip("main"))
        assert git_run(hub.bare, "rev-parse", "main^") == before
        assert (pull_of(swarm, two).state, pull_of(swarm, two).auto_merge) == ("open", "")
        assert swarm.find(one.id).status == "pr_merged"
        assert [e.metadata["on"] for e in named(swarm, "pull:auto", two.id)] == [True, False]


def test_the_queue_checks_here_what_is_ready_there_and_merges_it_there(hub: HubWorld, check: Check) -> None:
    check.use(hub)
    with hub.open() as swarm:
        works = [queued(hub, swarm, name) for name in ("one.txt", "two.txt", "bad.txt")]
        pending = hub.hub.add_check(pull_of(swarm, works[1]).head_commit, "unit", "in_progress", None)
        here = git_run(hub.repo, "rev-parse", "main")
        assert swarm.pulls.run_queue() == 1
        assert [entries(swarm)[work.id].state for work in works] == ["merged", "waiting", "left"]
        assert entries(swarm)[works[1].id].detail == "checks are not finished: unit"
        assert pull_of(swarm, works[0]).merge_commit == hub.remote_tip("main")
        assert "> bad.txt is bad" in told(swarm, works[2])[0].body
        hub.hub.finish_check(pending, "success")
        hub.look(swarm)
        assert swarm.pulls.run_queue() == 1
        assert git_run(hub.bare, "ls-tree", "--name-only", "main").split() == [
            *("README.md", "one.txt", "src", "two.txt"),
        ]
        assert git_run(hub.repo, "rev-parse", "main") == here  # a person pulls when they want


def test_a_batch_is_checked_once_and_merged_one_on_top_of_the_other(hub: HubWorld, check: Check) -> None:
    check.use(hub)
    with hub.open() as swarm:
        works = [queued(hub, swarm, name) for name in ("one.txt", "two.txt", "three.txt")]
        assert (swarm.pulls.run_queue(), check.runs) == (3, 1)
        assert pull_of(swarm, works[2]).merge_commit == hub.remote_tip("main")


@pytest.mark.parametrize("good", [["made.txt"], ["first.txt", "made.txt"]], ids=len)
def test_what_was_not_checked_is_not_merged_though_the_base_moves_while_the_check_runs(
    hub: HubWorld, check: Check, tmp_path: Path, good: list[str]
) -> None:
    """made.txt and theirs.txt are good, but not together."""
    other = elsewhere(hub, tmp_path, "theirs.txt")
    push = f"env -u GIT_DIR -u GIT_WORK_TREE -u GIT_INDEX_FILE git -C {other} push -q origin HEAD:main"
    check.use(hub, "[ -e theirs.txt ] && [ -e made.txt ] && { echo not together; exit 1; }", check.once(push))
    with hub.open() as swarm:
        works = [queued(hub, swarm, name) for name in good]
        assert swarm.pulls.run_queue() == len(good) - 1
        assert [entries(swarm)[work.id].state for work in works] == [*["merged"] * (len(good) - 1), "left"]
        assert "> not together" in told(swarm, works[-1])[0].body
    assert "made.txt" not in git_run(hub.bare, "ls-tree", "--name-only", "main").split()


def test_what_somebody_pushes_between_two_merges_of_a_batch_is_checked_first(
    hub: HubWorld, check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = elsewhere(hub, tmp_path, "theirs.txt")
    check.use(hub, "[ -e theirs.txt ] && [ -e made.txt ] && { echo not together; exit 1; }")
    merges = Repo.merge

    def merge_and_push(self: Repo, pull: RepoPull, method: str, title: str) -> str:
        merged = merges(self, pull, method, title)
        git_run(other, "pull", "-q", "--no-rebase", "--no-edit", "origin", "main")
        git_run(other, "push", "-q", "origin", "HEAD:main")
        return merged

    monkeypatch.setattr(Repo, "merge", merge_and_push)
    with hub.open() as swarm:
        works = [queued(hub, swarm, name) for name in ("first.txt", "made.txt")]
        assert swarm.pulls.run_queue() == 1
        assert [entries(swarm)[work.id].state for work in works] == ["merged", "left"]


def test_a_run_by_hand_asks_about_what_hindered_it_before(hub: HubWorld) -> None:
    with hub.open() as swarm:
        work, pull = hub.proposed(swarm)
        running = hub.hub.add_check(pull.head_commit, "unit", "in_progress", None)
        hub.look(swarm)
        swarm.pulls.enqueue(work.id)
        assert swarm.pulls.run_queue() == 0
        hub.hub.finish_check(running, "success")
        assert queue.run(swarm.context) == 0  # the coordinator leaves the asking to whoever follows
        assert swarm.pulls.run_queue() == 1


@pytest.mark.parametrize("trouble", ["check", "review"])
def test_a_merge_is_judged_by_its_own_look_and_not_by_an_older_one_that_is_stored_meanwhile(
    hub: HubWorld, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    configure(hub, github_trusted="kim")
    with hub.open() as swarm:
        work, pull = hub.proposed(swarm)
        hub.hub.add_check(pull.head_commit, "unit")
        hub.look(swarm)
        row = pulls.get(swarm.context.db, pull.id)
        answers, asked_at = github.GitHubForge.look, swarm.context.db.now()
        follower = forge_of(swarm.context, row, person=False)
        earlier = follower.look([pull_look.known_of(row)])[pull.number]
        if trouble == "check":
            hub.hub.add_check(pull.head_commit, "unit", "completed", "failure")
        else:
            hub.hub.add_review(pull.number, "kim", "CHANGES_REQUESTED", "no", association="NONE")

        def look(self: github.GitHubForge, known: Sequence[Known]) -> dict[int, Look]:
            answer = answers(self, known)
            pull_look.take_in(swarm.context, row, earlier, asked_at=asked_at)
            return answer

        monkeypatch.setattr(github.GitHubForge, "look", look)
        assert refusal(swarm.pulls.merge, work.id).code == "PULL_NOT_MERGEABLE"
        assert hub.hub.pulls[pull.number].state == "open"


def test_the_branch_of_what_was_merged_is_deleted_there_once(hub: HubWorld) -> None:
    with hub.open() as swarm:
        work, pull = hub.proposed(swarm)
        swarm.pulls.merge(work.id)
        assert [swarm.pulls.delete_branch(pull_of(swarm, work)) for _ in range(2)] == [True, False]
        assert pull.head_branch not in git_run(hub.bare, "for-each-ref", "--format=%(refname:short)")


def elsewhere(hub: HubWorld, tmp_path: Path, name: str) -> Path:
    """Somebody's clone with a commit of that file, which is not pushed."""
    clone = tmp_path / "elsewhere"
    git_run(hub.repo, "clone", "-q", str(hub.bare), str(clone))
    (clone / name).write_text("theirs\n")
    git_run(clone, "add", "-A")
    git_run(clone, "commit", "-q", "-m", f"add {name}")
    return clone


def queued(hub: HubWorld, swarm: Swarm, name: str) -> Instance:
    work, _ = hub.proposed(swarm, name)
    swarm.pulls.enqueue(work.id)
    return work


def test_our_own_verdict_holds_for_a_pull_request_at_github_until_a_person_overrides_it(hub: HubWorld) -> None:
    with hub.open() as swarm:
        work, pull = hub.proposed(swarm, "one.txt")
        with swarm.context.db.write():
            verdicts.add(swarm.context.db, work.id, pull.head_commit, "needs_work", by="review-9-a1")
        refused = refusal(swarm.pulls.merge, work.id)
        assert (refused.code, refused.details["reasons"][0]["code"]) == ("PULL_NOT_MERGEABLE", "changes_requested")
        assert swarm.pulls.merge(work.id, anyway="seen it", actor="kim").state == "merged"
        said = git_run(hub.bare, "log", "-1", "--format=%(trailers:key=Merged-anyway,valueonly)", "main")
        assert said.strip() == "seen it (by kim)"


def test_a_check_that_failed_in_the_queue_is_over_when_the_base_at_github_has_changed(
    hub: HubWorld, check: Check
) -> None:
    check.use(hub)
    with hub.open() as swarm:
        work = queued(hub, swarm, "bad.txt")
        assert swarm.pulls.run_queue() == 0
        hub.look(swarm)
        assert [str(r.code) for r in readiness(swarm.pulls.of(work.id)).blockers] == ["checks_failed"]
        assert refusal(swarm.pulls.merge, work.id).code == "CHECK_FAILED"
        other, _ = hub.proposed(swarm, "other.txt")
        assert swarm.pulls.merge(other.id).state == "merged"
        assert swarm.pulls.merge(work.id).state == "merged"  # GitHub alone checks what is merged there directly


def on_top_of_a_refused_commit(hub: HubWorld, swarm: Swarm) -> tuple[Instance, Instance]:
    """Two works: the commit of the first is sent back, and the second proposes it with one more on top."""
    first, _ = hub.proposed(swarm, "one.txt")
    second = hub.work(swarm)
    git_run(Path(second.worktree_path), "reset", "-q", "--hard", first.branch)
    commit(second, "two.txt")
    hub.open_pull(swarm, second)
    with swarm.context.db.write():
        verdicts.add(swarm.context.db, first.id, pull_of(swarm, first).head_commit, "needs_work", by="kim")
    return first, second


def test_a_refused_commit_below_the_head_is_not_merged_there(hub: HubWorld) -> None:
    with hub.open() as swarm:
        _, second = on_top_of_a_refused_commit(hub, swarm)
        before = hub.remote_tip("main")
        assert [str(r.code) for r in readiness(swarm.pulls.of(second.id)).blockers] == ["review_outdated"]
        assert refusal(swarm.pulls.merge, second.id).details["reasons"][0]["code"] == "review_outdated"
        swarm.pulls.merge(second.id, auto=True)
        hub.look(swarm)
        swarm.pulls.enqueue(second.id)
        assert (swarm.pulls.run_queue(), hub.remote_tip("main")) == (0, before)


def test_what_the_repository_here_says_of_the_base_does_not_hide_a_refused_commit(hub: HubWorld) -> None:
    """An agent can write every ref; where the base is there counts when it is merged there."""
    with hub.open() as swarm:
        first, second = on_top_of_a_refused_commit(hub, swarm)
        before = hub.remote_tip("main")
        for ref in ("refs/heads/main", "refs/remotes/origin/main"):
            git_run(hub.repo, "update-ref", ref, first.branch)
        hub.look(swarm)
        assert refusal(swarm.pulls.merge, second.id).code == "PULL_NOT_MERGEABLE"
        assert hub.remote_tip("main") == before


def test_a_look_during_a_merge_does_not_hide_a_refused_commit(hub: HubWorld) -> None:
    """The look believes a ref that an agent has written; the merge had read before what was stored."""
    with hub.open() as swarm:
        first, second = on_top_of_a_refused_commit(hub, swarm)
        hub.look(swarm)
        read, before = pull_of(swarm, second), hub.remote_tip("main")
        assert read.span == f"{before}..{read.head_commit}"
        git_run(hub.repo, "update-ref", "refs/remotes/origin/main", first.branch)
        hub.look(swarm)
        assert pull_of(swarm, second).span != read.span
        forge = forge_of(swarm.context, read)
        refused = refusal(merging.carry_out, swarm.context, forge, read, MergeMethod.SQUASH, actor="kim")
        assert (refused.code, hub.remote_tip("main")) == ("PULL_NOT_MERGEABLE", before)


def test_a_refused_commit_that_the_base_there_has_by_now_is_in_nobodys_way(hub: HubWorld) -> None:
    with hub.open() as swarm:
        first, second = on_top_of_a_refused_commit(hub, swarm)
        git_run(hub.repo, "push", "-q", str(hub.bare), f"{first.branch}:main")
        assert swarm.pulls.merge(second.id).state == "merged"

"""Pull requests from a fork: pushed to origin, opened and followed at its upstream."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from swarm_core.ops.follow import Follower
from swarm_core.ops.pull_status import readiness
from swarm_core.swarm import Swarm
from tests.fakes.github_git import GitRemote
from tests.integration.github_fixture import SLUG, HubWorld, hub
from tests.integration.review_fixture import commit, finished_work, named
from tests.support import git_run

__all__ = ["hub"]

FORK = "octo/widgets"


@pytest.fixture
def forked(hub: HubWorld, monkeypatch: pytest.MonkeyPatch) -> HubWorld:
    """A person's clone of a fork, with the repository that was forked as `upstream`."""
    monkeypatch.setenv("SWARM_PULL_REMOTE", "upstream")
    mine = hub.git.create(FORK)
    git_run(hub.repo, "push", "-q", str(mine), "main")
    git_run(hub.repo, "remote", "rename", "origin", "upstream")
    git_run(hub.repo, "remote", "add", "origin", f"{hub.git.url}/{FORK}.git")
    hub.hub.forks["octo"] = hub.api.repo(FORK, remote=GitRemote(mine))
    return hub


@pytest.fixture
def swarm(forked: HubWorld) -> Iterator[Swarm]:
    with forked.open() as opened:
        yield opened


def test_the_branch_is_pushed_to_the_fork_and_proposed_to_its_upstream(forked: HubWorld, swarm: Swarm) -> None:
    work = finished_work(forked, swarm)
    pull = forked.open_pull(swarm, work)
    assert (pull.repository.partition("/")[2], pull.head_branch, pull.base_branch) == (SLUG, work.branch, "main")
    [(number, made)] = forked.hub.pulls.items()
    assert (number, made.head_owner, made.head, made.head_sha) == (
        pull.number,
        "octo",
        work.branch,
        pull.head_commit,
    )
    assert forked.api.repo(FORK).pulls == {}
    assert git_run(forked.bare, "branch", "--list", work.branch) == ""
    assert swarm.find(work.id).status == "pr_created"


def test_asking_twice_and_a_lost_answer_open_one(forked: HubWorld, swarm: Swarm) -> None:
    work = finished_work(forked, swarm)
    git_run(forked.repo, "push", "-q", str(forked.git.root / f"{FORK}.git"), work.branch)
    by_hand = forked.hub.add_pull(work.branch, "By hand", fork="octo")
    assert forked.open_pull(swarm, work).number == by_hand
    assert forked.open_pull(swarm, work).number == by_hand
    assert len(forked.hub.pulls) == 1


def test_it_is_followed_at_its_upstream(forked: HubWorld, swarm: Swarm) -> None:
    work = finished_work(forked, swarm)
    pull = forked.open_pull(swarm, work)
    commit(work, "more.txt")
    again = forked.open_pull(swarm, work)
    assert (again.id, forked.hub.pulls[pull.number].head_sha) == (pull.id, again.head_commit)
    forked.hub.add_review(pull.number, "anna", "CHANGES_REQUESTED", "Please do more.")
    forked.look(swarm)
    assert str(readiness(swarm.pulls.of(work.id)).state) == "changes requested"
    forked.hub.close(pull.number)
    forked.look(swarm)
    assert swarm.find(work.id).status == "pr_closed"


@pytest.mark.parametrize("graphql", [True, False], ids=["together", "one by one"])
def test_a_fork_that_was_deleted_does_not_break_following(forked: HubWorld, swarm: Swarm, graphql: bool) -> None:
    work = finished_work(forked, swarm)
    pull = forked.open_pull(swarm, work)
    forked.api.has_graphql = graphql
    forked.hub.delete_fork("octo")
    forked.look(swarm)
    [found] = swarm.pulls.listed()
    assert (found.pull.number, found.pull.failures, found.pull.head_branch) == (pull.number, 0, work.branch)
    forked.hub.close(pull.number)
    forked.look(swarm)
    assert named(swarm, "pull:closed", work.id)


def test_issues_are_those_of_the_upstream(forked: HubWorld, swarm: Swarm) -> None:
    forked.hub.add_issue("Fix the parser", "say I know it")
    assert forked.work(swarm, "", issue=1).issue_title == "Fix the parser"


def test_after_the_merge_the_branch_is_deleted_at_the_fork(forked: HubWorld, swarm: Swarm) -> None:
    work = finished_work(forked, swarm)
    pull = forked.open_pull(swarm, work)
    assert swarm.pulls.delete_branch(pull)
    assert forked.api.repo(FORK).remote.tip(work.branch) is None


def test_without_the_setting_pull_requests_stay_in_the_fork(
    forked: HubWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SWARM_PULL_REMOTE")
    with forked.open() as swarm:
        pull = forked.open_pull(swarm, finished_work(forked, swarm))
        assert pull.repository.partition("/")[2] == FORK
        assert Follower(swarm.context).look() == 1
    assert forked.hub.pulls == {}

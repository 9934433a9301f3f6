"""What happens to worktrees, branches and repositories behind our back, and how each comes back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from swarm_core.errors import NotFound, SwarmError
from swarm_core.models import Instance
from swarm_core.swarm import Swarm
from tests.support import git_run, wait_until
from tests.world import World, assert_agreement

_WORK = "write done.txt committed\ncommit done\nwrite half.txt not committed"


def at_work(world: World, swarm: Swarm, prompt: str = _WORK, **options: object) -> Instance:
    instance = world.work(swarm, prompt, **options)
    return world.wait_idle(swarm, instance.id)


def head(instance: Instance) -> str:
    return git_run(Path(instance.worktree_path), "rev-parse", "HEAD")


def states(swarm: Swarm, name: str, **options: object) -> list[str]:
    return [check.state for check in swarm.doctor(**options) if check.name == name]


def resume(swarm: Swarm, instance: Instance) -> None:
    again = swarm.restart(instance.id)
    assert (again.status, again.conversation_id) == ("running", instance.conversation_id)
    wait_until(
        lambda: f"resumed conversation {instance.conversation_id}" in swarm.screen(again), what="the conversation"
    )


@pytest.mark.parametrize("stopped", [False, True], ids=["live", "stopped"])
def test_a_worktree_deleted_by_hand_is_reported_and_restored_from_its_branch(world: World, stopped: bool) -> None:
    with world.open() as swarm:
        instance = at_work(world, swarm)
        last = head(instance)
        if stopped:
            swarm.stop(instance.id)
        shutil.rmtree(instance.worktree_path)
        [finding] = swarm.reconcile()
        assert (finding.instance_id, finding.mended) == (instance.id, False)
        assert finding.hint
        assert swarm.reconcile() == []
        assert states(swarm, "worktrees") == ["fail"]
        with pytest.raises(NotFound) as refused:
            swarm.restart(instance.id)
        assert refused.value.code == "WORKTREE_NOT_FOUND"
        swarm.stop(instance.id)
        swarm.restore(instance.id)
        swarm.reconcile()
        assert_agreement(world, swarm)
        assert head(instance) == last
        assert (Path(instance.worktree_path) / "done.txt").read_text() == "committed\n"
        assert git_run(Path(instance.worktree_path), "status", "--porcelain") == ""
        resume(swarm, instance)
        assert_agreement(world, swarm)


def test_a_worktree_deleted_by_hand_can_be_cleaned_and_its_commits_stay(world: World) -> None:
    with world.open() as swarm:
        instance = at_work(world, swarm)
        last = head(instance)
        swarm.stop(instance.id)
        shutil.rmtree(instance.worktree_path)
        assert swarm.clean(instance.id).cleaned
        assert_agreement(world, swarm)
        assert git_run(world.repo, "rev-parse", instance.branch) == last


def test_a_worktree_that_is_gone_does_not_keep_others_from_being_counted(world: World) -> None:
    with world.open() as swarm:
        gone = at_work(world, swarm)
        there = at_work(world, swarm, "write new.txt one line")
        shutil.rmtree(gone.worktree_path)
        swarm.refresh_changes(10)
        assert swarm.find(there.id).lines_added == 1
        assert swarm.find(gone.id).changes_at is not None


def test_a_branch_deleted_under_its_worktree_is_made_again_at_the_last_commit(world: World) -> None:
    with world.open() as swarm:
        instance = at_work(world, swarm)
        last = head(instance)
        git_run(world.repo, "update-ref", "-d", f"refs/heads/{instance.branch}")
        assert states(swarm, "branches") == ["fail"]
        assert states(swarm, "branches", fix=True) == ["fixed"]
        assert states(swarm, "branches") == []
        assert git_run(world.repo, "rev-parse", instance.branch) == last
        assert git_run(Path(instance.worktree_path), "status", "--porcelain") == "?? half.txt"
        assert_agreement(world, swarm)


def test_a_branch_deleted_before_its_first_commit_is_made_again_at_the_base(world: World) -> None:
    with world.open() as swarm:
        instance = at_work(world, swarm, "say nothing yet")
        git_run(world.repo, "update-ref", "-d", f"refs/heads/{instance.branch}")
        swarm.doctor(fix=True)
        assert git_run(world.repo, "rev-parse", instance.branch) == instance.base_commit


def test_cleaning_a_worktree_whose_branch_was_deleted_loses_no_commit(world: World) -> None:
    with world.open() as swarm:
        instance = at_work(world, swarm)
        last = head(instance)
        swarm.stop(instance.id)
        git_run(world.repo, "update-ref", "-d", f"refs/heads/{instance.branch}")
        assert swarm.clean(instance.id).cleaned
        assert last in git_run(world.repo, "rev-list", "--all").split()
        restored = swarm.restore(instance.id)
        assert head(restored) == last
        assert (Path(restored.worktree_path) / "half.txt").read_text() == "not committed\n"
        assert_agreement(world, swarm)


def test_a_deleted_base_branch_does_not_stop_a_clean(world: World) -> None:
    git_run(world.repo, "branch", "feature")
    with world.open() as swarm:
        instance = at_work(world, swarm, base="feature")
        last = head(instance)
        swarm.stop(instance.id)
        git_run(world.repo, "branch", "-D", "feature")
        assert swarm.clean(instance.id).cleaned
        assert git_run(world.repo, "rev-parse", instance.branch) == last
        assert_agreement(world, swarm)


def test_a_worktree_that_a_person_locked_is_left_in_its_place_by_clean(world: World) -> None:
    with world.open() as swarm:
        instance = at_work(world, swarm)
        swarm.stop(instance.id)
        git_run(world.repo, "worktree", "lock", "--reason", "mine", instance.worktree_path)
        with pytest.raises(SwarmError):
            swarm.clean(instance.id)
        assert (Path(instance.worktree_path) / "half.txt").read_text() == "not committed\n"
        assert not swarm.find(instance.id).cleaned
        assert_agreement(world, swarm)
        git_run(world.repo, "worktree", "unlock", instance.worktree_path)
        assert swarm.clean(instance.id).cleaned
        assert_agreement(world, swarm)


def move(world: World) -> Path:
    old, new = world.repo, world.repo.with_name("moved")
    old.rename(new)
    world.repo = new
    return old


def test_a_moved_repository_is_reported_and_nothing_is_lost_until_it_is_adopted(world: World) -> None:
    with world.open() as swarm:
        instance = at_work(world, swarm)
        stopped = at_work(world, swarm)
        swarm.stop(stopped.id)
        last = head(instance)
        move(world)
        swarm.reconcile()
        assert states(swarm, "repositories") == ["fail"]
        with pytest.raises(SwarmError):
            swarm.clean(stopped.id)
        for one in (instance, stopped):
            assert (Path(one.worktree_path) / "half.txt").read_text() == "not committed\n"
        adopted = swarm.doctor(fix=True, repo=str(world.repo))
        assert [c.state for c in adopted if c.name == "repositories"] == ["fixed", "fixed", "ok"]
        assert {i.repo_path for i in swarm.instances()} == {str(world.repo)}
        assert head(instance) == last
        assert_agreement(world, swarm)
        resume(swarm, stopped)
        swarm.stop(instance.id)
        swarm.clean(instance.id)
        restored = swarm.restore(instance.id)
        assert head(restored) == last
        assert (Path(restored.worktree_path) / "half.txt").read_text() == "not committed\n"
        assert_agreement(world, swarm)
    assert git_run(world.repo, "status", "--porcelain") == ""


def test_what_was_cleaned_before_a_repository_moved_can_be_restored_after_it(world: World) -> None:
    with world.open() as swarm:
        instance = at_work(world, swarm)
        swarm.stop(instance.id)
        swarm.clean(instance.id)
        move(world)
        with pytest.raises(SwarmError):
            swarm.restore(instance.id)
        swarm.doctor(fix=True, repo=str(world.repo))
        restored = swarm.restore(instance.id)
        assert (Path(restored.worktree_path) / "half.txt").read_text() == "not committed\n"
        assert_agreement(world, swarm)


def test_a_copy_of_a_repository_is_not_taken_for_its_new_place(world: World) -> None:
    with world.open() as swarm:
        instance = at_work(world, swarm)
        other = world.repo.with_name("clone")
        git_run(world.repo, "clone", "-q", str(world.repo), str(other))
        swarm.doctor(fix=True, repo=str(other))
        assert swarm.find(instance.id).repo_path == str(world.repo)
        old = move(world)
        swarm.doctor(fix=True, repo=str(other))
        assert swarm.find(instance.id).repo_path == str(old)


def emptied(world: World) -> Path:
    """The repository before its first commit."""
    shutil.rmtree(world.repo / ".git")
    git_run(world.repo, "init", "-q", "-b", "main")
    return world.repo


def test_a_branch_without_a_commit_is_no_lost_branch(world: World) -> None:
    repo = emptied(world)
    with world.open() as swarm:
        instance = at_work(world, swarm, "write half.txt not committed")
        assert states(swarm, "branches") == []
        swarm.doctor(fix=True)
        assert git_run(repo, "for-each-ref") == ""
        swarm.stop(instance.id)
        swarm.clean(instance.id)
        assert git_run(repo, "for-each-ref", "refs/heads") == ""
        swarm.restore(instance.id)
        assert (Path(instance.worktree_path) / "half.txt").read_text() == "not committed\n"
        assert states(swarm, "branches") == []


def test_a_first_commit_whose_branch_was_deleted_is_found_again(world: World) -> None:
    repo = emptied(world)
    with world.open() as swarm:
        instance = at_work(world, swarm)
        last = head(instance)
        git_run(repo, "update-ref", "-d", f"refs/heads/{instance.branch}")
        assert states(swarm, "branches") == ["fail"]
        assert states(swarm, "branches", fix=True) == ["fixed"]
        assert head(instance) == last


def test_a_pull_request_into_a_branch_without_a_commit_says_what_to_do(world: World) -> None:
    emptied(world)
    with world.open() as swarm:
        instance = at_work(world, swarm)
        with pytest.raises(NotFound) as refused:
            swarm.open_pull(instance.id, title="Make it", description="")
        assert (refused.value.code, refused.value.message) == ("GIT_BRANCH_NOT_FOUND", "main has no commit yet")
        assert "make the first commit on main" in (refused.value.hint or "")
        assert "`git rebase main`" in (refused.value.hint or "")
        assert (instance.branch in (refused.value.hint or ""), refused.value.details["close"]) == (False, [])

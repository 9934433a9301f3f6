"""Predicting merges, recognising merged branches and deleting only those, on real git."""

from __future__ import annotations

from pathlib import Path

import pytest

from swarm_core import git
from swarm_core.errors import InvalidInput, NotFound
from swarm_core.git import retire
from tests.support import git_run


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "repo.lock"


def commit(repo: Path, name: str, content: str) -> str:
    (repo / name).write_text(content)
    git_run(repo, "add", "-A")
    git_run(repo, "commit", "-q", "-m", f"{name}: {content.strip()[:20]}")
    return git_run(repo, "rev-parse", "HEAD")


@pytest.fixture
def topic(repo: Path) -> Path:
    """The repository with a branch `topic` of two commits, checked out at main."""
    git_run(repo, "checkout", "-q", "-b", "topic")
    commit(repo, "a.txt", "a\n")
    commit(repo, "README.md", "# A project\nfrom topic\n")
    git_run(repo, "checkout", "-q", "main")
    return repo


def test_a_merge_without_conflict_is_predicted_clean_and_changes_nothing(topic: Path) -> None:
    commit(topic, "b.txt", "b\n")
    before = git_run(topic, "for-each-ref"), git_run(topic, "status", "--porcelain")
    prediction = git.predict_merge(topic, "main", "topic")
    assert prediction == git.MergePrediction(clean=True, conflicts=[], supported=True)
    assert (git_run(topic, "for-each-ref"), git_run(topic, "status", "--porcelain")) == before


def test_conflicting_files_are_named(topic: Path) -> None:
    commit(topic, "README.md", "# Another\n")
    commit(topic, "a.txt", "other\n")
    prediction = git.predict_merge(topic, "main", "topic")
    assert not prediction.clean
    assert sorted(prediction.conflicts) == ["README.md", "a.txt"]


def test_an_unknown_branch_cannot_be_predicted(repo: Path) -> None:
    with pytest.raises(NotFound):
        git.predict_merge(repo, "main", "nope")
    with pytest.raises(InvalidInput):
        git.predict_merge(repo, "main", "--stdin")


def test_an_unmerged_branch_is_not_merged(topic: Path) -> None:
    assert not git.is_merged(topic, "topic", "main")
    commit(topic, "a.txt", "a\n")
    assert not git.is_merged(topic, "topic", "main")


def test_a_branch_merged_with_a_merge_commit_is_merged(topic: Path) -> None:
    commit(topic, "b.txt", "b\n")
    git_run(topic, "merge", "-q", "--no-edit", "topic")
    assert git.is_merged(topic, "topic", "main")


@pytest.mark.parametrize("later", [None, ("b.txt", "b\n"), ("README.md", "rewritten\n")])
def test_a_squashed_branch_is_merged_whatever_came_later(topic: Path, later: tuple[str, str] | None) -> None:
    commit(topic, "c.txt", "c\n")
    git_run(topic, "merge", "-q", "--squash", "topic")
    git_run(topic, "commit", "-q", "-m", "squashed")
    if later:
        commit(topic, *later)
    assert git.is_merged(topic, "topic", "main")


def test_a_rebased_branch_is_merged(topic: Path) -> None:
    commit(topic, "c.txt", "c\n")
    git_run(topic, "cherry-pick", "topic~1", "topic")
    commit(topic, "README.md", "rewritten\n")
    assert git.is_merged(topic, "topic", "main")


@pytest.mark.parametrize("how", ["squash", "rebase"])
@pytest.mark.parametrize("later", [None, ("b.txt", "b\n"), ("README.md", "# Another\n")])
def test_what_was_taken_back_is_not_merged(topic: Path, how: str, later: tuple[str, str] | None) -> None:
    if how == "squash":
        git_run(topic, "merge", "-q", "--squash", "topic")
        git_run(topic, "commit", "-q", "-m", "squashed")
        git_run(topic, "revert", "--no-edit", "HEAD")
    else:
        commit(topic, "c.txt", "c\n")
        git_run(topic, "cherry-pick", "topic~1", "topic")
        git_run(topic, "revert", "--no-edit", "HEAD", "HEAD~1")
    if later:
        commit(topic, *later)
    assert not git.is_merged(topic, "topic", "main")


def test_what_was_taken_back_and_written_over_is_not_merged(topic: Path) -> None:
    git_run(topic, "checkout", "-q", "-B", "topic", "main")
    commit(topic, "README.md", "# A project\nfrom topic\n")
    git_run(topic, "checkout", "-q", "main")
    git_run(topic, "merge", "-q", "--squash", "topic")
    git_run(topic, "commit", "-q", "-m", "squashed")
    git_run(topic, "revert", "--no-edit", "HEAD")
    commit(topic, "README.md", "# Another\n")
    assert not git.predict_merge(topic, "main", "topic").clean
    assert not git.is_merged(topic, "topic", "main")


def test_what_was_taken_back_and_brought_again_is_merged(topic: Path) -> None:
    git_run(topic, "merge", "-q", "--squash", "topic")
    git_run(topic, "commit", "-q", "-m", "squashed")
    git_run(topic, "revert", "--no-edit", "HEAD")
    git_run(topic, "revert", "--no-edit", "HEAD")
    assert git.is_merged(topic, "topic", "main")


def test_an_equal_change_by_somebody_else_leaves_nothing_to_merge(topic: Path) -> None:
    commit(topic, "a.txt", "a\n")
    commit(topic, "README.md", "# A project\nfrom topic\n")
    assert git.is_merged(topic, "topic", "main")


def test_a_commit_added_after_the_squash_is_not_merged(topic: Path) -> None:
    git_run(topic, "merge", "-q", "--squash", "topic")
    git_run(topic, "commit", "-q", "-m", "squashed")
    git_run(topic, "checkout", "-q", "topic")
    commit(topic, "late.txt", "late\n")
    git_run(topic, "checkout", "-q", "main")
    assert not git.is_merged(topic, "topic", "main")


def test_commits_that_cancel_out_are_not_taken_for_merged(repo: Path) -> None:
    git_run(repo, "checkout", "-q", "-b", "topic")
    commit(repo, "idea.txt", "an idea\n")
    git_run(repo, "revert", "--no-edit", "HEAD")
    git_run(repo, "checkout", "-q", "main")
    assert not git.is_merged(repo, "topic", "main")


def test_an_unmerged_branch_is_never_deleted(topic: Path, lock: Path) -> None:
    assert not git.delete_branch(topic, "topic", lock=lock)
    assert "topic" in git.branches(topic)


def test_a_branch_at_the_named_commit_is_retired_once_and_its_commit_kept(topic: Path, lock: Path) -> None:
    tip = git_run(topic, "rev-parse", "topic")
    first = git_run(topic, "rev-parse", "main")
    assert not retire.retire_branch(topic, "topic", first, ref="refs/swarm/merged/x", lock=lock)
    for _ in range(2):
        assert retire.retire_branch(topic, "topic", tip, ref="refs/swarm/merged/x", lock=lock)
    assert git.branches(topic) == {"main"}
    assert git_run(topic, "rev-parse", "refs/swarm/merged/x") == tip


def test_a_merged_branch_is_deleted_with_its_settings(topic: Path, lock: Path) -> None:
    config = (topic / ".git" / "config").read_bytes()
    git_run(topic, "config", "branch.topic.remote", "origin")
    git_run(topic, "merge", "-q", "--ff-only", "topic")
    assert git.delete_branch(topic, "topic", lock=lock)
    assert (topic / ".git" / "config").read_bytes() == config


def test_a_packed_branch_is_deleted(topic: Path, lock: Path) -> None:
    git_run(topic, "merge", "-q", "--ff-only", "topic")
    git_run(topic, "pack-refs", "--all")
    assert git.delete_branch(topic, "topic", lock=lock)
    assert git.branches(topic) == {"main"}


def test_a_holder_that_moves_while_a_branch_is_deleted_keeps_the_branch(topic: Path, lock: Path) -> None:
    tip = git_run(topic, "rev-parse", "topic")
    git_run(topic, "branch", "copy", "topic")
    git_run(topic, "update-ref", "refs/heads/copy", "main")
    assert not retire.delete_guarded(topic, "topic", tip, f"verify refs/heads/copy {tip}")
    assert "topic" in git.branches(topic)


@pytest.mark.parametrize("how", ["main checkout", "linked worktree", "folder gone", "rebase"])
def test_a_branch_in_use_is_never_deleted(topic: Path, tmp_path: Path, lock: Path, how: str) -> None:
    git_run(topic, "branch", "copy", "topic")
    if how == "main checkout":
        git_run(topic, "checkout", "-q", "topic")
    else:
        git_run(topic, "worktree", "add", "-q", str(tmp_path / "wt"), "topic")
    if how == "folder gone":
        (tmp_path / "wt").rename(tmp_path / "unmounted")
    if how == "rebase":
        commit(topic, "README.md", "conflict\n")
        with pytest.raises(AssertionError):
            git_run(tmp_path / "wt", "rebase", "main")
        assert git.current_branch(tmp_path / "wt") is None
    assert not git.delete_branch(topic, "topic", lock=lock)
    assert "topic" in git.branches(topic)


# What keeps the commits of a branch that goes


def only_here(repo: Path) -> str:
    return git_run(repo, "commit-tree", "-m", "only here", "-p", "HEAD", "HEAD^{tree}")


def holders(repo: Path, tip: str) -> list[str]:
    return git_run(repo, "for-each-ref", "--format=%(refname)", "--contains", tip).split()


def test_a_symbolic_branch_does_not_hold_the_branch_that_it_names(repo: Path, lock: Path) -> None:
    tip = only_here(repo)
    git_run(repo, "branch", "one", tip)
    git_run(repo, "symbolic-ref", "refs/heads/alias", "refs/heads/one")
    git_run(repo, "symbolic-ref", "refs/heads/second", "refs/heads/alias")
    assert not git.delete_branch(repo, "one", lock=lock)
    assert "refs/heads/one" in holders(repo, tip)


def test_a_symbolic_branch_goes_and_the_branch_that_it_names_stays(repo: Path, lock: Path) -> None:
    tip = only_here(repo)
    git_run(repo, "branch", "one", tip)
    git_run(repo, "symbolic-ref", "refs/heads/alias", "refs/heads/one")
    assert git.delete_branch(repo, "alias", lock=lock)
    assert holders(repo, tip) == ["refs/heads/one"]


@pytest.mark.parametrize("also", ["refs/remotes/origin/one", "refs/remotes/origin/other", "refs/tags/seen"])
def test_a_commit_of_the_log_that_only_a_remote_branch_or_tag_has_beside_it_is_kept(
    repo: Path, lock: Path, also: str
) -> None:
    before = only_here(repo)
    git_run(repo, "branch", "one", before)
    git_run(repo, "update-ref", also, before)
    git_run(repo, "update-ref", "refs/heads/one", "main")
    assert git.delete_branch(repo, "one", lock=lock)
    git_run(repo, "update-ref", "-d", also)
    [held] = holders(repo, before)
    assert held.startswith(f"{retire.LOGGED}one-")


def test_a_commit_of_the_log_that_only_a_symbolic_branch_has_beside_it_is_kept(repo: Path, lock: Path) -> None:
    before = only_here(repo)
    git_run(repo, "branch", "one", before)
    git_run(repo, "tag", "seen", before)
    git_run(repo, "symbolic-ref", "refs/heads/alias", "refs/tags/seen")
    git_run(repo, "update-ref", "refs/heads/one", "main")
    assert git.delete_branch(repo, "one", lock=lock)
    git_run(repo, "tag", "-d", "seen")
    [held] = holders(repo, before)
    assert held.startswith(f"{retire.LOGGED}one-")


def test_a_commit_of_the_log_that_another_branch_has_needs_no_ref(repo: Path, lock: Path) -> None:
    before = only_here(repo)
    for name in ("one", "other"):
        git_run(repo, "branch", name, before)
    git_run(repo, "update-ref", "refs/heads/one", "main")
    assert git.delete_branch(repo, "one", lock=lock)
    assert holders(repo, before) == ["refs/heads/other"]

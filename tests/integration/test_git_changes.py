"""What a worktree contains beyond a commit, on real git."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from swarm_core import git
from swarm_core.errors import InvalidInput
from swarm_core.git import commits, diffs, overlap
from tests.support import git_run, make_repo


@pytest.fixture
def base(repo: Path) -> str:
    return git_run(repo, "rev-parse", "HEAD")


def test_committed_staged_unstaged_and_untracked_changes_are_one_sum(repo: Path, base: str) -> None:
    (repo / "README.md").write_text("# A project\ncommitted\n")
    git_run(repo, "commit", "-q", "-am", "more")
    (repo / "staged").write_text("1\n2\n")
    git_run(repo, "add", "staged")
    (repo / "src" / "app.py").write_text("print('bye')\n")
    (repo / "untracked").write_text("1\n2\n3")
    (repo / "binary").write_bytes(b"\0\n\n\n")
    assert git.change_stats(repo, base) == git.ChangeStats(files=5, added=1 + 2 + 1 + 3, deleted=1, untracked=2)


def test_a_clean_worktree_has_no_changes(repo: Path, base: str) -> None:
    assert git.change_stats(repo, base) == git.ChangeStats(0, 0, 0, 0)
    assert git.changes(repo, base) == []
    assert git.diff(repo, base, max_bytes=1000) == ""
    assert not git.is_dirty(repo)


def test_numbers_match_git_once_everything_is_committed(repo: Path, base: str) -> None:
    (repo / "a b\nc").write_text("1\n2\nno end")
    (repo / "link").symlink_to("README.md")
    (repo / "empty").touch()
    before = git.change_stats(repo, base)
    git_run(repo, "add", "-A")
    git_run(repo, "commit", "-q", "-m", "all")
    after = git.change_stats(repo, base)
    assert (before.files, before.added, before.deleted) == (after.files, after.added, after.deleted) == (3, 4, 0)


def test_a_rename_counts_once_and_names_the_old_path(repo: Path, base: str) -> None:
    git_run(repo, "mv", "src/app.py", "src/main.py")
    assert git.changes(repo, base) == [git.FileChange("src/main.py", "R", old_path="src/app.py")]
    assert git.change_stats(repo, base) == git.ChangeStats(1, 0, 0, 0)


def test_odd_names_come_through_whole(repo: Path, base: str) -> None:
    names = ["new\nline", "-dash", "tab\t", os.fsdecode(b"\xff"), "ü"]
    for name in names:
        (repo / name).write_text("x\n")
    found = git.changes(repo, base)
    assert {change.path for change in found} == set(names)
    assert all(change.untracked and change.status == "A" for change in found)
    assert set(git.dirty_files(repo)) == set(names)
    git_run(repo, "add", "-A")
    assert {change.path for change in git.changes(repo, base)} == set(names)


def test_deleted_files_and_nested_repositories_are_listed(repo: Path, base: str) -> None:
    (repo / "README.md").unlink()
    make_repo(repo / "nested")
    assert git.changes(repo, base) == [
        git.FileChange("README.md", "D"),
        git.FileChange("nested/", "A", untracked=True),
    ]
    assert git.change_stats(repo, base) == git.ChangeStats(files=2, added=0, deleted=1, untracked=1)


def test_an_unmerged_file_is_listed_once(repo: Path, base: str) -> None:
    for branch in ("one", "two"):
        git_run(repo, "checkout", "-q", "-b", branch, "main")
        (repo / "README.md").write_text(f"{branch}\n")
        git_run(repo, "commit", "-q", "-am", branch)
    with pytest.raises(AssertionError):
        git_run(repo, "merge", "one")
    assert [change.path for change in git.changes(repo, base)] == ["README.md"]
    assert git.change_stats(repo, base).files == 1


def test_the_diff_shows_untracked_files_and_leaves_the_index_alone(repo: Path, base: str) -> None:
    (repo / "README.md").write_text("edited\n")
    (repo / "new file").write_text("brand new\n")
    make_repo(repo / "nested")
    index = (repo / ".git" / "index").read_bytes()
    shown = git.diff(repo, base, max_bytes=100_000)
    assert "+edited\n" in shown
    assert "+brand new\n" in shown
    assert (repo / ".git" / "index").read_bytes() == index


def test_a_long_diff_is_cut_at_a_line_and_says_so(repo: Path, base: str) -> None:
    (repo / "README.md").write_text("line\n" * 1000)
    shown = git.diff(repo, base, max_bytes=500)
    assert len(shown) < 600
    assert shown.splitlines()[-2] == "+line"


def test_a_person_s_diff_settings_do_not_change_the_diff(repo: Path, base: str) -> None:
    (repo / "README.md").write_text("edited\n")
    plain = git.diff(repo, base, max_bytes=10_000)
    for name, value in (("color.ui", "always"), ("diff.noprefix", "true"), ("diff.external", "/bin/false")):
        git_run(repo, "config", name, value)
    assert git.diff(repo, base, max_bytes=10_000) == plain


def test_changes_in_a_repository_without_commits_are_against_nothing(tmp_path: Path) -> None:
    git_run(tmp_path, "init", "-q", "-b", "main", "empty")
    (tmp_path / "empty" / "staged").write_text("1\n")
    git_run(tmp_path / "empty", "add", "-A")
    (tmp_path / "empty" / "loose").write_text("1\n2\n")
    assert git.change_stats(tmp_path / "empty", None) == git.ChangeStats(2, 3, 0, 1)
    assert "+++ b/loose" in git.diff(tmp_path / "empty", None, max_bytes=10_000)


def test_a_base_that_is_no_commit_id_is_refused(repo: Path) -> None:
    for base in ("--output=/tmp/x", "main..HEAD", "HEAD"):
        with pytest.raises(InvalidInput):
            git.changes(repo, base)


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_files_hidden_from_git_status_count_as_dirty(repo: Path, flag: str) -> None:
    git_run(repo, "update-index", flag, "README.md")
    assert not git.is_dirty(repo)
    (repo / "README.md").write_text("hidden\n")
    assert git.is_dirty(repo)
    assert git.dirty_files(repo) == ["README.md"]


# What an agent can write into the shared configuration

ONE_ODD_LINE = "".join(f"line {number}\n" for number in range(40))
# Settings with which git's own diff says something else, or nothing
SETTINGS = {
    "color.diff": "always",
    "color.ui": "always",
    "core.bigFileThreshold": "1",
    "diff.context": "0",
    "diff.external": "false",
    "diff.ignoreSubmodules": "all",
    "diff.interHunkContext": "100",
    "diff.mnemonicPrefix": "true",
    "diff.noprefix": "true",
    "diff.orderFile": "/nowhere",
    "diff.relative": "true",
    "diff.renames": "copies",
    "diff.submodule": "log",
    "diff.suppressBlankEmpty": "true",
    "log.showSignature": "true",
    "status.showUntrackedFiles": "no",
    "status.submoduleSummary": "true",
    "submodule.sm.ignore": "all",
}


@pytest.fixture
def changed(repo: Path) -> Path:
    """Commits, staged, unstaged and untracked changes, and a submodule that was added and then moved."""
    (repo / "long").write_text(f"\n{ONE_ODD_LINE}\n{ONE_ODD_LINE}")
    git_run(repo, "add", "-A")
    git_run(repo, "commit", "-q", "-m", "long")
    inner = make_repo(repo / "sm")
    (repo / ".gitmodules").write_text('[submodule "sm"]\n\tpath = sm\n\turl = ../sm\n')
    (repo / "long").write_text(f"first\n\n{ONE_ODD_LINE}middle\n\n{ONE_ODD_LINE}")
    git_run(repo, "-c", "advice.addEmbeddedRepo=false", "add", "-A")
    git_run(repo, "commit", "-q", "-m", "submodule")
    git_run(inner, "commit", "-q", "--allow-empty", "-m", "moved")
    (repo / "src" / "app.py").write_text("print('bye')\n")
    git_run(repo, "mv", "README.md", "README.txt")
    (repo / "untracked").write_text("new\n")
    return repo


def said(repo: Path, first: str) -> list[object]:
    """All that is shown of the changes in a worktree and between its commits."""
    last = git_run(repo, "rev-parse", "main")
    return [
        git.change_stats(repo, first),
        git.changes(repo, first),
        git.diff(repo, first, max_bytes=100_000),
        sorted(git.dirty_files(repo)),
        git.is_dirty(repo),
        diffs.between(repo, first, last, max_bytes=100_000),
        commits.compare(repo, first, last),
        overlap.touched(repo, first, last),
        overlap.touched_in(repo, first),
    ]


@pytest.mark.parametrize(("name", "value"), SETTINGS.items(), ids=list(SETTINGS))
def test_what_is_shown_does_not_depend_on_the_configuration(changed: Path, name: str, value: str) -> None:
    first = git_run(changed, "rev-parse", "main~1")
    before = said(changed, first)
    git_run(changed, "config", name, value)
    assert said(changed, first) == before


def test_gitmodules_hides_no_change_of_a_submodule(changed: Path) -> None:
    before = diffs.between(changed, None, git_run(changed, "rev-parse", "main"), max_bytes=100_000)
    assert "+Subproject commit " in before
    with (changed / ".gitmodules").open("a") as file:
        file.write("\tignore = all\n")
    assert diffs.between(changed, None, git_run(changed, "rev-parse", "main"), max_bytes=100_000) == before
    assert "sm" in git.dirty_files(changed)
    assert "sm" in [change.path for change in git.changes(changed, git_run(changed, "rev-parse", "main"))]


@pytest.mark.parametrize("flag", ["", "--assume-unchanged", "--skip-worktree"])
def test_no_filter_of_the_repository_runs_for_what_is_shown(
    repo: Path, base: str, tmp_path: Path, flag: str
) -> None:
    ran = tmp_path / "ran"
    if flag:
        git_run(repo, "update-index", flag, "README.md")
    (repo / ".gitattributes").write_text("* filter=own\n")
    for name in ("clean", "smudge"):
        git_run(repo, "config", f"filter.own.{name}", f"touch '{ran}'; cat")
    git_run(repo, "config", "filter.own.required", "true")
    (repo / "README.md").write_text("changed\n")
    said(repo, base)
    assert "README.md" in git.dirty_files(repo)
    assert git.is_dirty(repo)
    assert not ran.exists()


def test_no_filter_of_a_submodule_runs_for_what_is_shown(changed: Path, tmp_path: Path) -> None:
    ran, inner = tmp_path / "ran", make_repo(changed / "sm" / "inner")
    git_run(changed / "sm", "-c", "advice.addEmbeddedRepo=false", "add", "-A")
    for place in (changed / "sm", inner):
        git_run(place, "config", f"filter.{place.name}.clean", f"touch '{ran}'; cat")
        (place / ".gitattributes").write_text(f"* filter={place.name}\n")
        (place / "README.md").write_text("changed!\n")
    said(changed, git_run(changed, "rev-parse", "main~1"))
    assert "sm" in git.dirty_files(changed)
    assert not ran.exists()


def test_a_submodule_whose_repository_is_gone_hides_no_other_change(changed: Path) -> None:
    (changed / "sm" / ".git").rename(changed.parent / "gone")
    assert "src/app.py" in git.dirty_files(changed)

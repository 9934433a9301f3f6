"""Worktrees on real git: made, repeated after kills, moved, pooled and removed."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from swarm_core import git, locks
from swarm_core.errors import Conflict, InvalidInput, NotFound
from tests.support import git_run, make_repo

FILES = 400


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "locks" / "repo.lock"


@pytest.fixture
def large(tmp_path: Path) -> Path:
    repo = make_repo(tmp_path / "large")
    for number in range(FILES):
        (repo / f"file-{number}").write_text(f"{number}\n" * 20)
    git_run(repo, "add", "-A")
    git_run(repo, "commit", "-q", "-m", "many")
    return repo


def head(repo: Path) -> str:
    return git_run(repo, "rev-parse", "HEAD")


def check_whole(repo: Path, path: Path, branch: str) -> None:
    assert git_run(path, "status", "--porcelain") == ""
    assert git_run(path, "symbolic-ref", "HEAD") == f"refs/heads/{branch}"
    assert git_run(path, "rev-parse", "HEAD") == head(repo)
    entries = [entry for entry in git.list_worktrees(repo) if entry.path == str(path)]
    assert entries == [git.WorktreeEntry(str(path), head(repo), branch, locked=False, prunable=False)]


def test_a_new_worktree_is_on_its_branch_with_all_files(repo: Path, tmp_path: Path, lock: Path) -> None:
    path = tmp_path / "deep" / "er" / "wt"
    git.add_worktree(repo, path, branch="work/a1", base_commit=head(repo), lock=lock)
    check_whole(repo, path, "work/a1")
    assert (path / "src" / "app.py").read_text() == "print('hello')\n"
    assert git.current_branch(path) == "work/a1"
    assert git.head_commit(path) == head(repo)


def test_adding_twice_keeps_the_work_done_in_between(repo: Path, tmp_path: Path, lock: Path) -> None:
    path = tmp_path / "wt"
    git.add_worktree(repo, path, branch="b", base_commit=head(repo), lock=lock)
    (path / "README.md").write_text("edited\n")
    git_run(path, "commit", "-q", "-am", "mine")
    (path / "README.md").write_text("edited again\n")
    git.add_worktree(repo, path, branch="b", base_commit=head(repo), lock=lock)
    assert (path / "README.md").read_text() == "edited again\n"


def test_a_checkout_cut_short_is_repeated_and_its_stale_lock_removed(
    repo: Path, tmp_path: Path, lock: Path
) -> None:
    path = tmp_path / "wt"
    git_run(repo, "worktree", "add", "-q", "--no-checkout", "-b", "b", str(path))
    (repo / ".git" / "worktrees" / "wt" / "index.lock").touch()
    git.add_worktree(repo, path, branch="b", base_commit=head(repo), lock=lock)
    check_whole(repo, path, "b")


def test_a_caller_who_says_finished_gets_no_reset(repo: Path, tmp_path: Path, lock: Path) -> None:
    path = tmp_path / "wt"
    git_run(repo, "worktree", "add", "-q", "-b", "b", str(path))
    (path / "README.md").write_text("edited\n")
    git.add_worktree(repo, path, branch="b", base_commit=head(repo), lock=lock, finished=True)
    assert (path / "README.md").read_text() == "edited\n"


def test_a_branch_left_by_a_failed_attempt_is_used(repo: Path, tmp_path: Path, lock: Path) -> None:
    git_run(repo, "branch", "b")
    git.add_worktree(repo, tmp_path / "wt", branch="b", base_commit=head(repo), lock=lock)
    check_whole(repo, tmp_path / "wt", "b")


def test_a_branch_at_another_commit_is_a_conflict_and_stays(repo: Path, tmp_path: Path, lock: Path) -> None:
    first = head(repo)
    git_run(repo, "checkout", "-q", "-b", "b")
    git_run(repo, "commit", "-q", "--allow-empty", "-m", "more")
    mine = head(repo)
    git_run(repo, "checkout", "-q", "main")
    with pytest.raises(Conflict) as caught:
        git.add_worktree(repo, tmp_path / "wt", branch="b", base_commit=first, lock=lock)
    assert caught.value.code == "WORKTREE_EXISTS"
    assert git_run(repo, "rev-parse", "b") == mine
    assert not (tmp_path / "wt").exists()


def test_a_branch_checked_out_elsewhere_is_a_conflict(repo: Path, tmp_path: Path, lock: Path) -> None:
    git.add_worktree(repo, tmp_path / "one", branch="b", base_commit=head(repo), lock=lock)
    with pytest.raises(Conflict):
        git.add_worktree(repo, tmp_path / "two", branch="b", base_commit=head(repo), lock=lock)
    check_whole(repo, tmp_path / "one", "b")


def test_a_branch_whose_parent_name_is_a_branch_is_a_conflict(repo: Path, tmp_path: Path, lock: Path) -> None:
    git_run(repo, "branch", "work")
    with pytest.raises(Conflict) as caught:
        git.add_worktree(repo, tmp_path / "wt", branch="work/a1", base_commit=head(repo), lock=lock)
    assert caught.value.code == "WORKTREE_EXISTS"


@pytest.mark.parametrize("name", ["-b", "a..b", "HEAD", "a\0b"])
def test_a_bad_branch_name_makes_nothing(repo: Path, tmp_path: Path, lock: Path, name: str) -> None:
    with pytest.raises(InvalidInput):
        git.add_worktree(repo, tmp_path / "wt", branch=name, base_commit=head(repo), lock=lock)
    assert not (tmp_path / "wt").exists()


def test_a_folder_with_files_is_a_conflict_and_keeps_them(repo: Path, tmp_path: Path, lock: Path) -> None:
    (tmp_path / "wt").mkdir()
    (tmp_path / "wt" / "mine.txt").write_text("mine")
    with pytest.raises(Conflict) as caught:
        git.add_worktree(repo, tmp_path / "wt", branch="b", base_commit=head(repo), lock=lock)
    assert caught.value.code == "WORKTREE_EXISTS"
    assert (tmp_path / "wt" / "mine.txt").read_text() == "mine"


def test_an_empty_folder_is_used(repo: Path, tmp_path: Path, lock: Path) -> None:
    (tmp_path / "wt").mkdir()
    git.add_worktree(repo, tmp_path / "wt", branch="b", base_commit=head(repo), lock=lock)
    check_whole(repo, tmp_path / "wt", "b")


def leave_initializing(repo: Path, path: Path) -> None:
    git_run(repo, "worktree", "add", "-q", "--no-checkout", "-b", "b", str(path))
    (repo / ".git" / "worktrees" / "wt" / "locked").write_text("initializing")


def leave_without_head(repo: Path, path: Path) -> None:
    leave_initializing(repo, path)
    (repo / ".git" / "worktrees" / "wt" / "HEAD").unlink()


def leave_only_admin(repo: Path, path: Path) -> None:
    leave_initializing(repo, path)
    shutil.rmtree(path)


def leave_only_dot_git(repo: Path, path: Path) -> None:
    leave_initializing(repo, path)
    shutil.rmtree(repo / ".git" / "worktrees" / "wt")


def leave_admin_without_dot_git(repo: Path, path: Path) -> None:
    leave_initializing(repo, path)
    (path / ".git").unlink()


def leave_nameless_admin(repo: Path, path: Path) -> None:
    leave_only_admin(repo, path)
    (repo / ".git" / "worktrees" / "wt" / "gitdir").unlink()


def leave_empty_dot_git(repo: Path, path: Path) -> None:
    leave_initializing(repo, path)
    (path / ".git").write_bytes(b"")


@pytest.mark.parametrize(
    "leave",
    [
        leave_initializing,
        leave_without_head,
        leave_only_admin,
        leave_only_dot_git,
        leave_empty_dot_git,
        leave_admin_without_dot_git,
        leave_nameless_admin,
    ],
)
def test_every_state_a_killed_add_can_leave_is_finished(repo: Path, tmp_path: Path, lock: Path, leave) -> None:
    leave(repo, tmp_path / "wt")
    git.add_worktree(repo, tmp_path / "wt", branch="b", base_commit=head(repo), lock=lock)
    check_whole(repo, tmp_path / "wt", "b")


@pytest.mark.parametrize("step", range(12))
def test_git_killed_at_any_moment_of_an_add_can_be_repeated(
    large: Path, tmp_path: Path, lock: Path, step: int
) -> None:
    path = tmp_path / "wt"
    argv = ["git", "-C", str(large), "worktree", "add", "--no-checkout", "-b", "b", str(path), "HEAD"]
    kill_after(argv, step * 0.0012)
    git.add_worktree(large, path, branch="b", base_commit=head(large), lock=lock)
    check_whole(large, path, "b")


@pytest.mark.parametrize("step", range(12))
def test_git_killed_at_any_moment_of_the_checkout_can_be_repeated(
    large: Path, tmp_path: Path, lock: Path, step: int
) -> None:
    path = tmp_path / "wt"
    git_run(large, "worktree", "add", "-q", "--no-checkout", "-b", "b", str(path))
    kill_after(["git", "-C", str(path), "reset", "--hard", "-q"], step * 0.004)
    git.add_worktree(large, path, branch="b", base_commit=head(large), lock=lock)
    check_whole(large, path, "b")
    assert len(list(path.glob("file-*"))) == FILES


def killed_checkout(repo: Path, path: Path) -> None:
    """What a checkout leaves that was killed among its files: some are whole, one is begun, others are missing."""
    git_run(repo, "worktree", "add", "-q", "--no-checkout", "-b", "b", str(path))
    (path / "file-1").write_text("1\n" * 20)
    (path / "file-2").write_text("2\n" * 7)
    (path / "file-3").write_text("")


@pytest.mark.parametrize("attach", [False, True])
def test_a_repeated_checkout_never_overwrites_an_edit_made_meanwhile(
    large: Path, tmp_path: Path, lock: Path, attach: bool
) -> None:
    path = tmp_path / "wt"
    killed_checkout(large, path)
    (path / "README.md").write_text("edited meanwhile\n")
    (path / "src").mkdir()
    (path / "src" / "app.py").write_text("print('hello')\n# added\n")
    (path / "new.txt").write_text("mine\n")
    if attach:
        git.attach_worktree(large, path, branch="b", lock=lock)
    else:
        git.add_worktree(large, path, branch="b", base_commit=head(large), lock=lock)
    assert (path / "README.md").read_text() == "edited meanwhile\n"
    assert (path / "src" / "app.py").read_text() == "print('hello')\n# added\n"
    assert git_run(path, "status", "--porcelain") == "M README.md\n M src/app.py\n?? new.txt"
    assert (path / "file-2").read_text() == "2\n" * 20


def test_an_edit_where_a_folder_must_be_refuses_the_repeated_checkout(
    large: Path, tmp_path: Path, lock: Path
) -> None:
    path = tmp_path / "wt"
    killed_checkout(large, path)
    (path / "src").write_text("a file of mine\n")
    with pytest.raises(Conflict) as caught:
        git.add_worktree(large, path, branch="b", base_commit=head(large), lock=lock)
    assert caught.value.code == "WORKTREE_EXISTS"
    assert (path / "src").read_text() == "a file of mine\n"


def test_a_repeated_adoption_never_overwrites_an_edit_made_meanwhile(
    large: Path, tmp_path: Path, lock: Path
) -> None:
    git.add_pooled(large, tmp_path / "p", commit=head(large), lock=lock)
    for number in range(5):
        (large / f"file-{number}").write_text(f"newer {number}\n")
    git_run(large, "rm", "-q", "file-5", "file-6")
    (large / "added").write_text("added\n")
    git_run(large, "add", "-A")
    git_run(large, "commit", "-q", "-m", "newer")
    path = tmp_path / "wt"
    git_run(large, "worktree", "move", str(tmp_path / "p"), str(path))
    (large / ".git" / "worktrees" / "p" / "swarm-adopting").touch()
    (path / "file-0").write_text("newer 0\n")
    (path / "file-1").write_text("new")
    (path / "file-2").write_text("edited meanwhile\n")
    (path / "file-5").write_text("edited meanwhile too\n")
    git.adopt_pooled(large, tmp_path / "p", path, branch="b", base_commit=head(large), lock=lock)
    assert git_run(path, "status", "--porcelain") == "M file-2\n?? file-5"
    assert (path / "file-2").read_text() == "edited meanwhile\n"
    assert (path / "file-5").read_text() == "edited meanwhile too\n"
    assert git_run(path, "symbolic-ref", "HEAD") == "refs/heads/b"


def kill_after(argv: list[str], seconds: float) -> None:
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, process_group=0)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=seconds)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


ADD = """
import sys
from pathlib import Path
from swarm_core import git, locks
repo, path, commit, lock, mine = sys.argv[1:]
print("go", flush=True)
with locks.hold(Path(mine)) as fd:
    git.add_worktree(repo, path, branch="b", base_commit=commit, lock=Path(lock), keep_open=(fd,))
"""


@pytest.mark.parametrize("step", range(8))
def test_swarm_killed_at_any_moment_leaves_its_git_holding_the_locks(
    large: Path, tmp_path: Path, lock: Path, step: int
) -> None:
    path, mine = tmp_path / "wt", tmp_path / "instance.lock"
    argv = [sys.executable, "-c", ADD, str(large), str(path), head(large), str(lock), str(mine)]
    process = subprocess.Popen(
        argv, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"go\n"
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=step * 0.008)
    process.kill()
    process.communicate()
    with locks.hold(mine) as fd:
        git.add_worktree(large, path, branch="b", base_commit=head(large), lock=lock, keep_open=(fd,))
    check_whole(large, path, "b")


def add_one(repo: str, path: str, branch: str, commit: str, lock: str) -> None:
    git.add_worktree(repo, path, branch=branch, base_commit=commit, lock=Path(lock))


def test_sixteen_parallel_adds_from_a_remote_branch_all_succeed(repo: Path, tmp_path: Path, lock: Path) -> None:
    clone = tmp_path / "clone"
    git_run(tmp_path, "clone", "-q", str(repo), str(clone))
    config = (clone / ".git" / "config").read_bytes()
    commit = git.resolve_base(str(clone), "origin/main").commit
    assert commit is not None
    with ProcessPoolExecutor(8, mp_context=multiprocessing.get_context("spawn")) as pool:
        jobs = [
            pool.submit(add_one, str(clone), str(tmp_path / f"wt{n}"), f"work/a{n}", commit, str(lock))
            for n in range(16)
        ]
        for job in jobs:
            job.result(timeout=100)
    for number in range(16):
        check_whole(clone, tmp_path / f"wt{number}", f"work/a{number}")
    assert (clone / ".git" / "config").read_bytes() == config


def write_hook(repo: Path, name: str, body: str) -> None:
    hook = repo / ".git" / "hooks" / name
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\n{body}\n")
    hook.chmod(0o755)


def test_the_post_checkout_hook_runs_once_as_git_runs_it(repo: Path, tmp_path: Path, lock: Path) -> None:
    write_hook(repo, "post-checkout", f'echo "$PWD $*" >> {tmp_path}/hook.log; exit 3')
    git.add_worktree(repo, tmp_path / "wt", branch="b", base_commit=head(repo), lock=lock)
    ours = (tmp_path / "hook.log").read_text()
    (tmp_path / "hook.log").unlink()
    subprocess.run(["git", "-C", str(repo), "worktree", "add", "-q", str(tmp_path / "raw")], check=False)
    assert ours == (tmp_path / "hook.log").read_text().replace("/raw ", "/wt ")


def test_an_empty_repository_gives_a_worktree_on_an_unborn_branch(tmp_path: Path, lock: Path) -> None:
    repo = tmp_path / "empty"
    git_run(tmp_path, "init", "-q", "-b", "main", str(repo))
    for _ in range(2):
        git.add_worktree(repo, tmp_path / "wt", branch="work/a1", base_commit=None, lock=lock)
    assert git.head_commit(tmp_path / "wt") is None
    (tmp_path / "wt" / "first.txt").write_text("first\n")
    git_run(tmp_path / "wt", "add", "-A")
    git_run(tmp_path / "wt", "commit", "-q", "-m", "first")
    assert git_run(tmp_path / "wt", "rev-list", "--count", "work/a1") == "1"


def test_a_restored_branch_gets_its_worktree_back(repo: Path, tmp_path: Path, lock: Path) -> None:
    git_run(repo, "branch", "b")
    for _ in range(2):
        git.attach_worktree(repo, tmp_path / "wt", branch="b", lock=lock)
    check_whole(repo, tmp_path / "wt", "b")


def test_attaching_renews_only_the_entry_of_a_folder_deleted_by_hand(
    repo: Path, tmp_path: Path, lock: Path
) -> None:
    for name in ("mine", "unmounted"):
        git.add_worktree(repo, tmp_path / name, branch=name, base_commit=head(repo), lock=lock)
        shutil.rmtree(tmp_path / name)
    git.attach_worktree(repo, tmp_path / "mine", branch="mine", lock=lock)
    check_whole(repo, tmp_path / "mine", "mine")
    assert (repo / ".git" / "worktrees" / "unmounted" / "HEAD").exists()


def test_attaching_a_branch_that_does_not_exist_is_not_found(repo: Path, tmp_path: Path, lock: Path) -> None:
    with pytest.raises(NotFound) as caught:
        git.attach_worktree(repo, tmp_path / "wt", branch="nope", lock=lock)
    assert caught.value.code == "GIT_BRANCH_NOT_FOUND"


def test_a_worktree_moves_and_moving_again_is_fine(repo: Path, tmp_path: Path, lock: Path) -> None:
    git.add_worktree(repo, tmp_path / "a", branch="b", base_commit=head(repo), lock=lock)
    for _ in range(2):
        git.move_worktree(repo, tmp_path / "a", tmp_path / "sub" / "z", lock=lock)
    check_whole(repo, tmp_path / "sub" / "z", "b")


def test_a_move_killed_after_the_rename_is_finished(repo: Path, tmp_path: Path, lock: Path) -> None:
    git.add_worktree(repo, tmp_path / "a", branch="b", base_commit=head(repo), lock=lock)
    (tmp_path / "a").rename(tmp_path / "z")
    git.move_worktree(repo, tmp_path / "a", tmp_path / "z", lock=lock)
    check_whole(repo, tmp_path / "z", "b")


def test_a_move_onto_something_is_a_conflict(repo: Path, tmp_path: Path, lock: Path) -> None:
    git.add_worktree(repo, tmp_path / "a", branch="b", base_commit=head(repo), lock=lock)
    (tmp_path / "z").mkdir()
    with pytest.raises(Conflict):
        git.move_worktree(repo, tmp_path / "a", tmp_path / "z", lock=lock)
    check_whole(repo, tmp_path / "a", "b")


def test_worktrees_work_again_after_the_repository_moved(repo: Path, tmp_path: Path, lock: Path) -> None:
    git.add_worktree(repo, tmp_path / "a", branch="b", base_commit=head(repo), lock=lock)
    repo.rename(tmp_path / "moved")
    git.repair_worktrees(tmp_path / "moved", [tmp_path / "a"])
    check_whole(tmp_path / "moved", tmp_path / "a", "b")


def test_a_pooled_worktree_becomes_an_agents(large: Path, tmp_path: Path, lock: Path) -> None:
    for _ in range(2):
        git.add_pooled(large, tmp_path / "pool" / "1", commit=head(large), lock=lock)
    assert git.current_branch(tmp_path / "pool" / "1") is None
    for _ in range(2):
        git.adopt_pooled(
            large, tmp_path / "pool" / "1", tmp_path / "wt", branch="b", base_commit=head(large), lock=lock
        )
    check_whole(large, tmp_path / "wt", "b")
    assert not (tmp_path / "pool" / "1").exists()


def test_a_pooled_worktree_at_an_older_commit_is_brought_forward(large: Path, tmp_path: Path, lock: Path) -> None:
    git.add_pooled(large, tmp_path / "p", commit=head(large), lock=lock)
    (large / "file-1").write_text("newer\n")
    git_run(large, "commit", "-q", "-am", "newer")
    git.adopt_pooled(large, tmp_path / "p", tmp_path / "wt", branch="b", base_commit=head(large), lock=lock)
    check_whole(large, tmp_path / "wt", "b")
    assert (tmp_path / "wt" / "file-1").read_text() == "newer\n"


@pytest.mark.parametrize("newer", [False, True])
def test_an_adoption_killed_after_the_move_or_the_branch_is_finished(
    large: Path, tmp_path: Path, lock: Path, newer: bool
) -> None:
    git.add_pooled(large, tmp_path / "p", commit=head(large), lock=lock)
    if newer:
        (large / "file-1").write_text("newer\n")
        git_run(large, "commit", "-q", "-am", "newer")
    git_run(large, "worktree", "move", str(tmp_path / "p"), str(tmp_path / "wt"))
    git_run(large, "branch", "b")
    (large / ".git" / "worktrees" / "p" / "swarm-adopting").touch()
    if newer:
        (tmp_path / "wt" / "file-1").write_text("newer\n")
    git.adopt_pooled(large, tmp_path / "p", tmp_path / "wt", branch="b", base_commit=head(large), lock=lock)
    check_whole(large, tmp_path / "wt", "b")


def test_a_pooled_worktree_never_finished_or_edited_is_refused(large: Path, tmp_path: Path, lock: Path) -> None:
    git_run(large, "worktree", "add", "-q", "--no-checkout", "--detach", str(tmp_path / "p"))
    with pytest.raises(Conflict):
        git.adopt_pooled(large, tmp_path / "p", tmp_path / "wt", branch="b", base_commit=head(large), lock=lock)
    git.add_pooled(large, tmp_path / "q", commit=head(large), lock=lock)
    (large / "file-1").write_text("newer\n")
    git_run(large, "commit", "-q", "-am", "newer")
    (tmp_path / "q" / "file-1").write_text("edited\n")
    with pytest.raises(Conflict):
        git.adopt_pooled(large, tmp_path / "q", tmp_path / "wt", branch="b", base_commit=head(large), lock=lock)
    assert (tmp_path / "q" / "file-1").read_text() == "edited\n"
    assert git.branches(large) == {"main"}
    git.add_worktree(large, tmp_path / "wt", branch="b", base_commit=head(large), lock=lock)
    check_whole(large, tmp_path / "wt", "b")


def test_a_pooled_worktree_is_not_adopted_for_a_branch_at_another_commit(
    large: Path, tmp_path: Path, lock: Path
) -> None:
    git.add_pooled(large, tmp_path / "p", commit=head(large), lock=lock)
    git_run(large, "branch", "b", "HEAD~1")
    with pytest.raises(Conflict) as caught:
        git.adopt_pooled(large, tmp_path / "p", tmp_path / "wt", branch="b", base_commit=head(large), lock=lock)
    assert caught.value.code == "WORKTREE_EXISTS"
    assert (tmp_path / "p" / "file-1").exists()
    assert not (tmp_path / "wt").exists()


@pytest.mark.parametrize("step", range(10))
def test_an_adoption_killed_at_any_moment_can_be_repeated(
    large: Path, tmp_path: Path, lock: Path, step: int
) -> None:
    git.add_pooled(large, tmp_path / "p", commit=head(large), lock=lock)
    for number in range(FILES):
        (large / f"file-{number}").write_text("newer\n")
    git_run(large, "commit", "-q", "-am", "newer")
    git_run(large, "worktree", "move", str(tmp_path / "p"), str(tmp_path / "wt"))
    (large / ".git" / "worktrees" / "p" / "swarm-adopting").touch()
    kill_after(["git", "-C", str(tmp_path / "wt"), "switch", "-q", "-c", "b", head(large)], step * 0.004)
    git.adopt_pooled(large, tmp_path / "p", tmp_path / "wt", branch="b", base_commit=head(large), lock=lock)
    check_whole(large, tmp_path / "wt", "b")


@pytest.mark.parametrize("killed", ["before the move", "after the rename", "after the move", "after the branch"])
def test_an_ordinary_add_finishes_an_adoption_that_was_killed(
    large: Path, tmp_path: Path, lock: Path, killed: str
) -> None:
    git.add_pooled(large, tmp_path / "p", commit=head(large), lock=lock)
    (large / "file-1").write_text("newer\n")
    git_run(large, "commit", "-q", "-am", "newer")
    (large / ".git" / "worktrees" / "p" / "swarm-adopting").touch()
    if killed == "after the rename":
        (tmp_path / "p").rename(tmp_path / "wt")
    elif killed != "before the move":
        git_run(large, "worktree", "move", str(tmp_path / "p"), str(tmp_path / "wt"))
    if killed == "after the branch":
        git_run(large, "branch", "b")
        (tmp_path / "wt" / "file-1").write_text("newer\n")
    git.add_worktree(large, tmp_path / "wt", branch="b", base_commit=head(large), lock=lock)
    check_whole(large, tmp_path / "wt", "b")


def test_a_worktree_someone_detached_is_not_taken_for_an_adoption(repo: Path, tmp_path: Path, lock: Path) -> None:
    git.add_worktree(repo, tmp_path / "wt", branch="b", base_commit=head(repo), lock=lock)
    git_run(tmp_path / "wt", "checkout", "-q", "--detach")
    git_run(tmp_path / "wt", "commit", "-q", "--allow-empty", "-m", "on no branch")
    mine = head(tmp_path / "wt")
    with pytest.raises(Conflict):
        git.add_worktree(repo, tmp_path / "wt", branch="b", base_commit=head(repo), lock=lock)
    for pooled in (tmp_path / "p", tmp_path / "wt"):
        with pytest.raises(Conflict):
            git.adopt_pooled(repo, pooled, tmp_path / "wt", branch="b", base_commit=head(repo), lock=lock)
    assert head(tmp_path / "wt") == mine


def test_the_list_names_locked_prunable_and_detached_worktrees(repo: Path, tmp_path: Path) -> None:
    for name in ("locked", "gone", "odd\nname"):
        git_run(repo, "worktree", "add", "-q", "--detach", str(tmp_path / name))
    git_run(repo, "worktree", "lock", "--reason", "disk away", str(tmp_path / "locked"))
    shutil.rmtree(tmp_path / "gone")
    found = {Path(entry.path).name: entry for entry in git.list_worktrees(repo)}
    assert found["repo"].branch == "main"
    assert found["locked"].locked
    assert found["gone"].prunable
    assert found["odd\nname"].branch is None

"""Removing one worktree on real git: everything stored and read back first, and any kill repeated."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from swarm_core import git
from swarm_core.errors import Conflict
from swarm_core.git import admin, removal, retire
from tests.integration.removal_fixture import Bench
from tests.support import git_run, make_repo, wait_until

FILES = 300
_ROOT = str(Path(__file__).parents[2])
_REMOVE = """
import sys
from pathlib import Path
from swarm_core import git

repo, path, lock, ref = sys.argv[1:]
print("begun", flush=True)
git.remove_worktree(repo, path, lock=Path(lock), ref=ref, message="removed")
"""


@pytest.fixture
def bench(repo: Path, tmp_path: Path) -> Bench:
    return Bench(repo, tmp_path)


def test_a_clean_worktree_is_removed_twice_and_leaves_nothing(bench: Bench) -> None:
    for _ in range(2):
        assert bench.remove() == []
        bench.assert_gone()
    assert git.branches(bench.repo) == {"main", "b"}


def test_what_is_not_committed_is_stored_and_counted(bench: Bench) -> None:
    (bench.path / "README.md").write_text("changed\n")
    (bench.path / "new.txt").write_text("untracked\n")
    [kept] = bench.remove()
    assert (kept.files, kept.bytes) == (2, len("changed\n") + len("untracked\n"))
    assert bench.stored("new.txt") == {"untracked\n"}
    bench.assert_gone()


def test_a_snapshot_that_the_repository_does_not_have_whole_keeps_the_folder(bench: Bench) -> None:
    (bench.path / "new.txt").write_text("untracked\n")
    kept = bench.store()
    assert kept is not None
    (bench.repo / ".git" / "objects" / "pack" / kept.pack).unlink()
    with pytest.raises(Conflict) as caught:
        removal.read_back(bench.repo, bench.aside, kept)
    assert caught.value.details["reason"] == "not_stored"
    git_run(bench.repo, "update-ref", "-d", kept.ref)
    with pytest.raises(Conflict):
        removal.read_back(bench.repo, bench.aside, kept)


def test_a_folder_that_is_no_worktree_of_the_repository_is_kept(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("x")
    for folder in (tmp_path / "mine", bench.repo):
        with pytest.raises(Conflict) as caught:
            git.remove_worktree(bench.repo, folder, lock=bench.lock, ref=bench.next_ref(), message="x")
        assert caught.value.details["reason"] == "unregistered"
    assert (tmp_path / "mine" / "file").exists()
    assert (bench.repo / "README.md").exists()


def test_a_worktree_that_a_person_locked_is_kept_with_its_lock(bench: Bench) -> None:
    git_run(bench.repo, "worktree", "lock", "--reason", "mine", str(bench.path))
    assert bench.refused().details["reason"] == "locked"
    assert (bench.entry.folder / "locked").read_text().strip() == "mine"
    git_run(bench.repo, "worktree", "unlock", str(bench.path))
    bench.remove()
    bench.assert_gone()


def test_read_only_folders_and_links_in_a_worktree_are_removed_and_nothing_behind_them(
    bench: Bench, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("x")
    (bench.path / "link").symlink_to(outside)
    (bench.path / "cache").mkdir()
    (bench.path / "cache" / "file").write_text("x")
    (bench.path / "cache").chmod(0o555)
    bench.remove()
    bench.assert_gone()
    assert (outside / "file").read_text() == "x"


def test_a_worktree_with_a_submodule_is_moved_stored_and_put_back(bench: Bench, tmp_path: Path) -> None:
    lib = make_repo(tmp_path / "lib")
    allowed = ("-c", "protocol.file.allow=always")
    git_run(bench.path, *allowed, "submodule", "-q", "add", str(lib), "lib")
    git_run(bench.path, "commit", "-q", "-m", "lib")
    (bench.path / "lib" / "own.txt").write_text("only here\n")
    bench.store()
    assert git_run(bench.aside / "lib", "status", "--porcelain") == "?? own.txt"
    removal.put_back(bench.repo, bench.path, lock=bench.lock)
    assert git_run(bench.path / "lib", "status", "--porcelain") == "?? own.txt"
    [kept] = bench.remove()
    bench.assert_gone()
    git.attach_worktree(bench.repo, bench.path, branch="b", lock=bench.lock)
    git.restore(bench.path, ref=kept.ref)
    assert (bench.path / "lib" / "own.txt").read_text() == "only here\n"


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("own", [False, True])
def test_a_repository_inside_a_worktree_does_not_look_written_to(bench: Bench, own: bool, packed: bool) -> None:
    inner = make_repo(bench.path / "inner")
    if own:  # objects that the snapshot has in common with this repository alone
        (inner / "own.txt").write_text("own\n")
        git_run(inner, "add", "-A")
        git_run(inner, "commit", "-q", "-m", "own")
    if packed:
        git_run(inner, "repack", "-a", "-d", "-q")
    assert len(bench.remove()) == 1
    bench.assert_gone()


def test_a_submodule_does_not_look_written_to(bench: Bench, tmp_path: Path) -> None:
    make_repo(tmp_path / "library")
    allow = ("-c", "protocol.file.allow=always")
    git_run(bench.path, *allow, "submodule", "--quiet", "add", str(tmp_path / "library"), "sub")
    (bench.path / "sub" / "own.txt").write_text("own\n")
    git_run(bench.path / "sub", "add", "-A")
    assert len(bench.remove()) == 1
    bench.assert_gone()


def test_an_object_that_an_agent_writes_again_is_noticed(bench: Bench) -> None:
    inner = make_repo(bench.path / "inner")
    git_run(inner, "repack", "-a", "-d", "-q")
    bench.store()
    [pack] = (bench.aside / "inner" / ".git" / "objects" / "pack").glob("*.pack")
    pack.chmod(0o644)
    pack.write_bytes(pack.read_bytes()[::-1])
    pack.chmod(0o444)
    written = removal.discard(bench.repo, bench.path, lock=bench.lock, last=False)
    assert written == [f"inner/.git/objects/pack/{pack.name}"]


# What other programs do meanwhile


def test_what_is_written_after_the_snapshot_is_stored_too(bench: Bench) -> None:
    (bench.path / "notes.txt").write_text("first\n")
    bench.store()
    (bench.aside / "notes.txt").write_text("other\n")
    assert removal.discard(bench.repo, bench.path, lock=bench.lock, last=False) == ["notes.txt"]
    bench.store()
    assert removal.discard(bench.repo, bench.path, lock=bench.lock, last=True) == []
    assert bench.stored("notes.txt") == {"first\n", "other\n"}
    bench.assert_gone()


@pytest.mark.parametrize("what", ["file", "folder", "commit", "staged"])
def test_nothing_is_deleted_when_the_last_look_finds_something_new(bench: Bench, what: str) -> None:
    if what == "folder":
        (bench.path / "src" / "deep").mkdir()
    if what == "commit":
        git_run(bench.path, "checkout", "-q", "--detach")
    bench.store()
    if what == "file":
        (bench.aside / "late.txt").write_text("late\n")
    elif what == "folder":
        (bench.aside / "src" / "deep").rename(bench.aside / "deep")
    elif what == "commit":
        git_run(bench.aside, "commit", "-q", "--allow-empty", "-m", "late")
    else:
        git_run(bench.aside, "rm", "-q", "--cached", "README.md")
    with pytest.raises(Conflict) as caught:
        removal.discard(bench.repo, bench.path, lock=bench.lock, last=True)
    assert caught.value.details["reason"] == "writing"
    assert caught.value.details["path"] == str(bench.path)
    assert not bench.aside.exists()
    assert git_run(bench.path, "rev-parse", "--show-toplevel") == str(bench.path)
    bench.remove()
    bench.assert_gone()


def test_a_file_that_a_program_holds_open_for_writing_keeps_the_folder(bench: Bench) -> None:
    held = "import sys, time; f = open(sys.argv[1], 'ab'); print('open', flush=True); time.sleep(60)"
    argv = [sys.executable, "-c", held, str(bench.path / "log.txt")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        error = bench.refused()
        child.kill()
    assert error.details["reason"] == "open"
    assert str(child.pid) in error.details["files"][0]
    bench.remove()
    bench.assert_gone()


def test_a_file_that_a_program_can_write_through_its_memory_keeps_the_folder(bench: Bench) -> None:
    (bench.path / "new.txt").write_bytes(bytes(4096))
    hold = (
        "import mmap, sys; f = open(sys.argv[1], 'r+b'); m = mmap.mmap(f.fileno(), 4096); f.close(); "
        "m[0] = 65; print(1, flush=True); sys.stdin.read()"
    )
    argv = [sys.executable, "-c", hold, str(bench.path / "new.txt")]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(Conflict) as caught:
            bench.remove()
        assert caught.value.details["reason"] == "open"
        holder.communicate(timeout=20)
    assert (bench.path / "new.txt").read_bytes()[:1] == b"A"


def test_a_folder_that_is_mounted_inside_is_not_emptied(bench: Bench, tmp_path: Path) -> None:
    if os.geteuid() != 0 or not sys.platform.startswith("linux"):
        pytest.skip("mounting needs root on Linux")
    outside, inside = tmp_path / "outside", bench.path / "inside"
    outside.mkdir()
    inside.mkdir()
    (outside / "mine.txt").write_text("not in the worktree\n")
    if subprocess.run(["mount", "--bind", str(outside), str(inside)], check=False, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        with pytest.raises(Conflict) as caught:
            bench.remove()
        assert caught.value.details["reason"] == "other_device"
    finally:
        for line in Path("/proc/self/mounts").read_text().splitlines():
            if line.split()[1].startswith(str(tmp_path)):
                subprocess.run(["umount", "-l", line.split()[1]], check=True, capture_output=True, timeout=20)
    assert (outside / "mine.txt").read_text() == "not in the worktree\n"


def test_a_folder_made_again_at_the_old_place_is_kept_and_named(bench: Bench) -> None:
    (bench.path / "notes.txt").write_text("first\n")
    bench.store()
    bench.path.mkdir()
    (bench.path / "saved.txt").write_text("saved by path\n")
    with pytest.raises(Conflict) as caught:
        removal.discard(bench.repo, bench.path, lock=bench.lock)
    assert (caught.value.details["reason"], caught.value.details["files"]) == ("recreated", ["saved.txt"])
    assert (bench.path / "saved.txt").read_text() == "saved by path\n"
    assert bench.refused().details["reason"] == "unregistered"
    (bench.path / "saved.txt").rename(bench.path.parent / "saved.txt")
    bench.remove()
    assert not bench.path.exists()


def test_a_file_changed_while_the_folder_is_deleted_is_left_and_named(bench: Bench) -> None:
    bench.store()
    look = removal.look(bench.aside, since=0)
    bench.entry.note(admin.SEEN, look.folders)
    (bench.aside / "src" / "app.py").write_text("changed late\n")
    (bench.aside / "src" / "new.py").write_text("made late\n")
    error = bench.refused()
    assert (error.details["reason"], error.details["path"]) == ("left", str(bench.aside))
    found = {str(p.relative_to(bench.aside)): p.read_text() for p in bench.aside.rglob("*") if p.is_file()}
    assert found == {"src/app.py": "changed late\n", "src/new.py": "made late\n"}
    subprocess.run(["rm", "-rf", str(bench.aside)], check=True, timeout=20)
    bench.remove()
    bench.assert_gone()


def test_a_folder_that_was_exchanged_for_a_link_is_not_followed(bench: Bench, tmp_path: Path) -> None:
    bench.store()
    bench.entry.note(admin.SEEN, removal.look(bench.aside, since=0).folders)
    (bench.aside / "src").rename(tmp_path / "src")
    (bench.aside / "src").symlink_to(tmp_path / "src")
    assert bench.refused().details["reason"] == "left"
    assert (tmp_path / "src" / "app.py").exists()


@pytest.mark.parametrize("tidy", [("worktree", "prune", "--expire=now"), ("gc", "-q", "--prune=now")])
def test_pruning_meanwhile_takes_nothing_away(bench: Bench, tidy: tuple[str, ...]) -> None:
    (bench.path / "notes.txt").write_text("mine\n")
    entry = bench.entry
    entry.lock()
    bench.path.rename(bench.aside)  # as it is between the rename and the registration
    git_run(bench.repo, *tidy)
    bench.store()
    git_run(bench.repo, *tidy)
    bench.remove()
    git_run(bench.repo, *tidy)
    assert bench.stored("notes.txt") == {"mine\n"}
    bench.assert_gone()


# Kills


def aside_unregistered(bench: Bench) -> None:
    bench.entry.lock()
    bench.path.rename(bench.aside)


def locked(bench: Bench) -> None:
    bench.entry.lock()


def aside(bench: Bench) -> None:
    removal.set_aside(bench.repo, bench.path, lock=bench.lock)


def stored(bench: Bench) -> None:
    bench.store()


def half_deleted(bench: Bench) -> None:
    bench.store()
    bench.entry.note(admin.SEEN, removal.look(bench.aside, since=0).folders)
    (bench.aside / "README.md").unlink()
    (bench.aside / ".git").unlink()


def deleted(bench: Bench) -> None:
    half_deleted(bench)
    subprocess.run(["rm", "-rf", str(bench.aside)], check=True, timeout=20)


def half_forgotten(bench: Bench) -> None:
    deleted(bench)
    for name in ("locked", "HEAD", "index", admin.SEEN):
        (bench.entry.folder / name).unlink()


def all_but_forgotten(bench: Bench) -> None:
    deleted(bench)
    folder = bench.entry.folder
    subprocess.run(["rm", "-rf", str(folder)], check=True, timeout=20)
    folder.mkdir(parents=True)


Leave = Callable[[Bench], None]


@pytest.mark.parametrize(
    "leave", [locked, aside_unregistered, aside, stored, half_deleted, deleted, half_forgotten, all_but_forgotten]
)
def test_every_state_a_killed_removal_can_leave_is_finished(bench: Bench, leave: Leave) -> None:
    (bench.path / "notes.txt").write_text("mine\n")
    (bench.path / "README.md").write_text("changed\n")
    leave(bench)
    bench.remove()
    bench.assert_gone()
    assert bench.stored("notes.txt") == {"mine\n"}
    assert bench.stored("README.md") == {"changed\n"}


@pytest.mark.parametrize("leave", [locked, aside_unregistered, aside, stored])
def test_a_removal_that_has_deleted_nothing_can_be_taken_back(bench: Bench, leave: Leave) -> None:
    (bench.path / "notes.txt").write_text("mine\n")
    leave(bench)
    for _ in range(2):
        assert removal.put_back(bench.repo, bench.path, lock=bench.lock) == bench.path
    assert git_run(bench.path, "status", "--porcelain") == "?? notes.txt"
    [entry] = [e for e in git.list_worktrees(bench.repo) if e.path == str(bench.path)]
    assert (entry.branch, entry.locked) == ("b", False)


@pytest.mark.parametrize("step", range(14))
def test_a_removal_killed_at_any_moment_loses_nothing(bench: Bench, step: int) -> None:
    for number in range(FILES):
        (bench.path / f"file-{number}").write_text(f"{number}\n")
    argv = [sys.executable, "-c", _REMOVE, str(bench.repo), str(bench.path), str(bench.lock), bench.next_ref()]
    env = os.environ | {"PYTHONPATH": _ROOT}
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, start_new_session=True) as child:
        assert child.stdout is not None
        child.stdout.readline()
        try:
            child.wait(step * 0.02)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
    wait_until(lambda: bench.remove() is not None, what="the removal repeated")
    bench.assert_gone()
    for number in (0, FILES // 2, FILES - 1):
        assert f"{number}\n" in bench.stored(f"file-{number}")


# Branches


def test_of_two_branches_that_hold_each_other_one_stays(repo: Path, tmp_path: Path) -> None:
    lock = tmp_path / "repo.lock"
    tip = git_run(repo, "commit-tree", "-m", "only here", "-p", "HEAD", "HEAD^{tree}")
    for name in ("one", "two"):
        git_run(repo, "branch", name, tip)
    assert [git.delete_branch(repo, name, lock=lock) for name in ("one", "two")] == [True, False]
    assert git.branches(repo) == {"main", "two"}


def test_the_branch_of_a_review_does_not_hold_the_work(repo: Path, tmp_path: Path) -> None:
    tip = git_run(repo, "commit-tree", "-m", "only here", "-p", "HEAD", "HEAD^{tree}")
    for name in ("work/a", "review/a"):
        git_run(repo, "branch", name, tip)
    lock = tmp_path / "repo.lock"
    assert not git.delete_branch(repo, "work/a", lock=lock)
    assert git.delete_branch(repo, "review/a", lock=lock)


def test_a_branch_held_by_a_tag_goes_and_its_commits_stay_when_the_tag_goes(repo: Path, tmp_path: Path) -> None:
    tip = git_run(repo, "commit-tree", "-m", "only here", "-p", "HEAD", "HEAD^{tree}")
    git_run(repo, "branch", "one", tip)
    git_run(repo, "tag", "-a", "-m", "seen", "seen", tip)
    assert git.delete_branch(repo, "one", lock=tmp_path / "repo.lock")
    git_run(repo, "tag", "-d", "seen")
    held = git_run(repo, "for-each-ref", "--format=%(refname)", "--contains", tip)
    assert held == f"{retire.HELD}one-{tip[:12]}"

"""Ways in which work was once lost: killed cleans, taken places, superseded snapshots, vanished branches."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from swarm_core import ids, process
from swarm_core.errors import SwarmError
from swarm_core.git.removal import aside_of
from swarm_core.models import Instance
from swarm_core.store import instances
from swarm_core.swarm import Swarm
from tests.support import git_run, make_repo, wait_until
from tests.world import World, assert_agreement

_ROOT = str(Path(__file__).parents[2])


def crash(world: World, checkpoint: str, operation: str, *arguments: str) -> None:
    """Run the operation in a process that dies at the checkpoint; fails if it never got there."""
    argv = [sys.executable, "-m", "tests.fakes.crash", checkpoint, operation, *arguments]
    env = world.environ | {"PYTHONPATH": _ROOT}
    done = subprocess.run(argv, cwd=world.repo, env=env, capture_output=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


def idle(world: World, swarm: Swarm, prompt: str = "say ready", **options: object) -> tuple[Instance, Path]:
    """A running agent that has done its steps, and its worktree."""
    instance = world.wait_idle(swarm, world.work(swarm, prompt, **options).id)
    return instance, Path(instance.worktree_path)


def commit(path: Path, message: str = "done") -> str:
    git_run(path, "add", "-A")
    git_run(path, "commit", "-q", "-m", message)
    return git_run(path, "rev-parse", "HEAD")


def place_of(world: World, instance_id: str) -> Path:
    """Where the worktree of a future instance of the world's repository goes."""
    return world.settings.worktrees / ids.repo_folder(str(world.repo)) / instance_id


def is_held(repo: Path, tip: str) -> bool:
    """Whether a branch, remote branch or tag has the commit."""
    holders = ("refs/heads", "refs/remotes", "refs/tags")
    return git_run(repo, "for-each-ref", "--contains", tip, *holders) != ""


def files(root: Path) -> dict[str, bytes]:
    """Every file below the folder but git's own."""
    found = (p for p in sorted(root.rglob("*")) if p.is_file() and ".git" not in p.relative_to(root).parts)
    return {str(p.relative_to(root)): p.read_bytes() for p in found}


# A clean that was killed


@pytest.mark.parametrize("checkpoint", ["clean:end:after", "clean:worktree:before", "clean:worktree:stored"])
def test_a_file_written_after_a_clean_was_killed_can_be_restored(world: World, checkpoint: str) -> None:
    with world.open() as swarm:
        instance, root = idle(world, swarm)
        swarm.stop(instance.id)
    (root / "before.txt").write_text("written before the clean\n")
    crash(world, checkpoint, "clean", instance.id)
    there = aside_of(root) if checkpoint == "clean:worktree:stored" else root
    (there / "after.txt").write_text("written after it was killed\n")
    (there / "before.txt").write_text("changed after it was killed\n")
    written = files(there)
    with world.open() as swarm:
        swarm.reconcile()
        assert swarm.find(instance.id).cleaned
        assert not root.exists()
        swarm.restore(instance.id)
        assert files(root) == written
        assert_agreement(world, swarm)


def test_what_a_killed_clean_stored_first_can_still_be_named(world: World) -> None:
    with world.open() as swarm:
        instance, root = idle(world, swarm)
        swarm.stop(instance.id)
    (root / "notes.txt").write_text("first\n")
    crash(world, "clean:worktree:stored", "clean", instance.id)
    (aside_of(root) / "notes.txt").write_text("second\n")
    with world.open() as swarm:
        swarm.reconcile()
        first, second = swarm.detail(instance.id).preserved
        assert first.ref != second.ref
        swarm.restore(instance.id, ref=first.ref)
        assert (root / "notes.txt").read_text() == "first\n"


def test_a_folder_that_took_the_place_of_a_worktree_a_killed_clean_removed_is_left_alone(world: World) -> None:
    with world.open() as swarm:
        instance, root = idle(world, swarm)
        swarm.stop(instance.id)
    crash(world, "clean:worktree:between", "clean", instance.id)
    assert not root.exists()
    root.mkdir()
    (root / "mine.txt").write_text("a person's\n")
    with world.open() as swarm:
        swarm.reconcile()
        assert files(root) == {"mine.txt": b"a person's\n"}


# A place that is taken


def worktree_by_hand(world: World, at: Path) -> None:
    """A person's worktree on a branch of their own, with an untracked, a changed and an ignored file."""
    at.parent.mkdir(parents=True, exist_ok=True)
    git_run(world.repo, "worktree", "add", "-q", "-b", "mine", str(at))
    (world.repo / ".git" / "info" / "exclude").write_text("secret.env\n")
    (at / "secret.env").write_text("KEY=1\n")
    (at / "draft.txt").write_text("untracked\n")
    (at / "README.md").write_text("changed\n")


def folder_by_hand(world: World, at: Path) -> None:
    at.mkdir(parents=True)
    (at / "mine.txt").write_text("untracked by anybody\n")


def empty_folder_by_hand(world: World, at: Path) -> None:
    at.mkdir(parents=True)


Taker = Callable[[World, Path], None]


@pytest.mark.parametrize("take", [worktree_by_hand, folder_by_hand, empty_folder_by_hand])
def test_a_spawn_goes_round_a_place_that_somebody_else_has_taken(world: World, take: Taker) -> None:
    taken = place_of(world, "work-a1")
    take(world, taken)
    before, known = files(taken), world.worktrees()
    with world.open() as swarm:
        instance = world.work(swarm)
        assert (instance.id, instance.status) == ("work-a2", "running")
        swarm.reconcile()
        assert taken.is_dir()
        assert files(taken) == before
        assert world.worktrees() == known | {instance.worktree_path: instance.branch}


@pytest.mark.parametrize("take", [worktree_by_hand, folder_by_hand])
def test_a_place_taken_while_a_spawn_was_interrupted_is_neither_removed_nor_changed(
    world: World, take: Taker
) -> None:
    crash(world, "spawn:worktree:before", "spawn")
    taken = place_of(world, "work-a1")
    take(world, taken)
    before, known = files(taken), world.worktrees()
    with world.open() as swarm:
        swarm.reconcile()
        assert files(taken) == before
        assert world.worktrees() == known
        assert swarm.find("work-a1").status == "failed"
        swarm.reconcile()
        assert files(taken) == before
        assert world.work(swarm).id == "work-a2"


def test_a_spawn_leaves_the_folder_of_an_instance_it_does_not_know_alone(world: World) -> None:
    theirs = world.home / "instances" / "work-a1"
    theirs.mkdir(parents=True)
    (theirs / "conversation.jsonl").write_text("{}\n")
    with world.open() as swarm:
        instance = world.work(swarm)
        assert (instance.id, instance.status) == ("work-a2", "running")
        assert files(theirs) == {"conversation.jsonl": b"{}\n"}


# What a restore brings back


def test_a_restore_does_not_bring_back_what_a_later_commit_has_superseded(world: World) -> None:
    with world.open() as swarm:
        instance, root = idle(world, swarm)
        (root / "notes.txt").write_text("draft\n")
        (root / "README.md").write_text("draft\n")
        swarm.stop(instance.id)
        swarm.clean(instance.id)
        swarm.restore(instance.id)
        assert (root / "notes.txt").read_text() == "draft\n"
        (root / "notes.txt").write_text("final\n")
        (root / "README.md").write_text("final\n")
        tip = commit(root)
        swarm.clean(instance.id)
        swarm.restore(instance.id)
        assert (root / "notes.txt").read_text() == "final\n"
        assert (root / "README.md").read_text() == "final\n"
        assert git_run(root, "rev-parse", "HEAD") == tip
        assert git_run(root, "status", "--porcelain") == ""
        assert_agreement(world, swarm)


def test_a_restore_does_not_resurrect_a_file_that_a_later_commit_deleted(world: World) -> None:
    with world.open() as swarm:
        instance, root = idle(world, swarm)
        (root / "notes.txt").write_text("draft\n")
        swarm.stop(instance.id)
        swarm.clean(instance.id)
        swarm.restore(instance.id)
        (root / "notes.txt").unlink()
        (root / "other.txt").write_text("kept\n")
        commit(root)
        swarm.clean(instance.id)
        swarm.restore(instance.id)
        assert not (root / "notes.txt").exists()
        assert (root / "other.txt").read_text() == "kept\n"
        assert git_run(root, "status", "--porcelain") == ""


def test_a_restore_brings_back_the_last_of_several_cleans_and_an_older_one_by_its_ref(world: World) -> None:
    with world.open() as swarm:
        instance, root = idle(world, swarm)
        swarm.stop(instance.id)
        for text in ("first\n", "second\n"):
            (root / "notes.txt").write_text(text)
            swarm.clean(instance.id)
            swarm.restore(instance.id)
            assert (root / "notes.txt").read_text() == text
        swarm.clean(instance.id)
        older = swarm.detail(instance.id).preserved[0]
        swarm.restore(instance.id, ref=older.ref)
        assert (root / "notes.txt").read_text() == "first\n"


def test_work_is_restored_onto_the_commit_it_was_made_on_after_its_branch_was_merged_and_deleted(
    world: World,
) -> None:
    with world.open() as swarm:
        instance, root = idle(world, swarm)
        (root / "README.md").write_text("committed\n")
        tip = commit(root)
        (root / "README.md").write_bytes(b"changed again\r\nand not \x00 committed")
        (root / "new.bin").write_bytes(bytes(range(256)))
        written = files(root)
        swarm.stop(instance.id)
        git_run(world.repo, "merge", "-q", "--ff-only", instance.branch)
        swarm.clean(instance.id)
        assert world.branches() == {"main"}
        swarm.restore(instance.id)
        assert git_run(root, "rev-parse", "HEAD") == tip
        assert git_run(root, "symbolic-ref", "--short", "HEAD") == instance.branch
        assert files(root) == written
        assert git_run(root, "status", "--porcelain").splitlines() == ["M README.md", "?? new.bin"]
        assert_agreement(world, swarm)


def test_a_clean_worktree_is_restored_at_its_commit_after_main_moved_on(world: World) -> None:
    with world.open() as swarm:
        instance, root = idle(world, swarm)
        (root / "made.txt").write_text("committed\n")
        tip = commit(root)
        swarm.stop(instance.id)
        git_run(world.repo, "merge", "-q", "--ff-only", instance.branch)
        git_run(world.repo, "commit", "-q", "--allow-empty", "-m", "later")
        swarm.clean(instance.id)
        swarm.restore(instance.id)
        assert git_run(root, "rev-parse", "HEAD") == tip


# Forks and branches


def test_a_fork_of_a_parent_that_made_the_first_commit_has_its_file(world: World, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    git_run(empty, "init", "-q", "-b", "main")
    world.repo = empty
    with world.open() as swarm:
        parent, root = idle(world, swarm)
        (root / "first.txt").write_text("the parent's\n")
        tip = commit(root, "first")
        fork = swarm.fork(parent.id, "say ready")
        forked = Path(fork.worktree_path)
        assert git_run(forked, "rev-parse", "HEAD") == tip
        assert (forked / "first.txt").read_text() == "the parent's\n"
        assert git_run(forked, "status", "--porcelain") == ""


def test_cleaning_a_fork_keeps_its_branch_when_the_parents_was_rewritten(world: World) -> None:
    with world.open() as swarm:
        parent, root = idle(world, swarm)
        (root / "made.txt").write_text("made\n")
        tip = commit(root)
        swarm.refresh_changes(5)
        fork = swarm.fork(parent.id, "say ready")
        assert git_run(Path(fork.worktree_path), "rev-parse", "HEAD") == tip
        git_run(root, "commit", "-q", "--amend", "-m", "rewritten")
        swarm.stop(fork.id)
        swarm.clean(fork.id)
        assert fork.branch in world.branches()
        swarm.stop(parent.id)
        swarm.clean(parent.id)
        git_run(world.repo, "-c", "gc.reflogExpire=now", "gc", "-q", "--prune=now")
        assert git_run(world.repo, "cat-file", "-t", tip) == "commit"
        swarm.restore(fork.id)
        assert (Path(fork.worktree_path) / "made.txt").read_text() == "made\n"


def test_cleaning_keeps_the_branch_when_only_a_detached_head_has_its_commits(world: World) -> None:
    with world.open() as swarm:
        instance, root = idle(world, swarm, base="HEAD")
        (root / "made.txt").write_text("made\n")
        tip = commit(root)
        swarm.stop(instance.id)
        git_run(world.repo, "checkout", "-q", "--detach", instance.branch)
        swarm.clean(instance.id)
        git_run(world.repo, "checkout", "-q", "main")
        assert is_held(world.repo, tip)


def other_branch(repo: Path, branch: str) -> None:
    git_run(repo, "branch", "other", branch)


def merged(repo: Path, branch: str) -> None:
    git_run(repo, "merge", "-q", "--no-ff", "-m", "merged", branch)


def tag(repo: Path, branch: str) -> None:
    git_run(repo, "tag", "v1", branch)


def remote_branch(repo: Path, branch: str) -> None:
    git_run(repo, "update-ref", "refs/remotes/origin/work", branch)


def nothing(repo: Path, branch: str) -> None:
    return


def private_ref(repo: Path, branch: str) -> None:
    git_run(repo, "update-ref", "refs/private/x", branch)


@pytest.mark.parametrize(
    ("hold", "deleted"),
    [
        (other_branch, True),
        (merged, True),
        (tag, True),
        (remote_branch, True),
        (private_ref, False),
        (nothing, False),
    ],
)
def test_cleaning_deletes_the_branch_only_if_a_branch_remote_branch_or_tag_has_its_tip(
    world: World, hold: Callable[[Path, str], None], deleted: bool
) -> None:
    with world.open() as swarm:
        instance, root = idle(world, swarm)
        (root / "made.txt").write_text("made\n")
        tip = commit(root)
        swarm.stop(instance.id)
        hold(world.repo, instance.branch)
        swarm.clean(instance.id)
        assert (instance.branch not in world.branches()) is deleted
        assert is_held(world.repo, tip)
        swarm.restore(instance.id)
        assert git_run(root, "rev-parse", "HEAD") == tip


# A database that is gone or oddly named


def move_database_away(world: World, to: Path) -> None:
    to.mkdir()
    for file in world.home.glob("swarm.db*"):
        file.rename(to / file.name)


def test_after_the_database_was_moved_away_work_elsewhere_starts_its_own_program(
    world: World, short_tmp: Path
) -> None:
    with world.open() as swarm:
        old, _ = idle(world, swarm, "say old")
    move_database_away(world, short_tmp / "away")
    world.repo = make_repo(short_tmp / "other")
    with world.open() as swarm:
        new = world.work(swarm, "write made.txt by the new one")
        assert new.id != old.id
        world.wait_idle(swarm, new.id)
        assert (Path(new.worktree_path) / "made.txt").read_text() == "by the new one\n"
        assert new.pid != old.pid
        assert os.readlink(f"/proc/{new.pid}/cwd") == new.worktree_path  # noqa: PTH115
        assert world.sessions() == {old.id: True, new.id: True}
        swarm.stop(new.id)
        assert world.sessions() == {old.id: True}
        assert Path(f"/proc/{old.pid}").exists()


def test_after_the_database_was_moved_away_the_old_worktree_and_agent_stay_as_they_are(
    world: World, short_tmp: Path
) -> None:
    with world.open() as swarm:
        old, root = idle(world, swarm)
    git_run(root, "branch", "-m", "fix-login")
    (root / "draft.txt").write_text("not committed\n")
    (world.repo / ".git" / "info" / "exclude").write_text(".env\n")
    (root / ".env").write_text("KEY=1\n")
    before = files(root)
    move_database_away(world, short_tmp / "away")
    with world.open() as swarm:
        new = world.work(swarm)
        assert (new.id, new.status) == ("work-a2", "running")
        swarm.reconcile()
        assert files(root) == before
        assert git_run(root, "symbolic-ref", "--short", "HEAD") == "fix-login"
        assert world.sessions() == {old.id: True, new.id: True}


@contextmanager
def coordinator(world: World) -> Iterator[process.Card]:
    argv = [sys.executable, "-P", "-m", "swarm_mcp"]
    env = world.environ | {"MCP_SERVER_PORT": "0"}
    child = subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:

        def serving() -> process.Card | None:
            assert child.poll() is None, "the coordinator has ended"
            card = process.running(world.settings, process.COORDINATOR)
            return card if card and card.port else None

        found = wait_until(serving, timeout=30, what="the coordinator runs")
        assert isinstance(found, process.Card)
        yield found
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize("name", ["swarm.lock", "swarm", "work.db"])
def test_a_database_of_any_name_survives_its_coordinator(
    world: World, short_tmp: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("MCP_DATABASE_PATH", str(short_tmp / name))
    assert world.settings.coordinator_lock != world.settings.database_path
    with world.open() as swarm:
        instance, _ = idle(world, swarm)
    with coordinator(world), world.open() as swarm:
        assert swarm.coordinator() is not None
        wait_until(
            lambda: [e for e in swarm.events() if e.name == "coordinator:started"], what="it has written its start"
        )
    with world.open() as swarm:
        assert [i.id for i in swarm.instances()] == [instance.id]
        assert swarm.context.db.check() == []
        assert swarm.coordinator() is None
    assert (short_tmp / name).read_bytes().startswith(b"SQLite format 3\0")


# Last words


def test_a_stop_killed_before_it_recorded_the_end_keeps_the_screen_that_was_known(world: World) -> None:
    with world.open() as swarm:
        instance, _ = idle(world, swarm, "say the last words")
        with swarm.context.db.write():
            instances.set_fields(swarm.context.db, instance.id, last_screen="the last words")
    crash(world, "stop:end:between", "stop", instance.id)
    assert world.sessions() == {}
    with world.open() as swarm:
        swarm.reconcile()
        stopped = swarm.find(instance.id)
        assert (stopped.status, stopped.activity, stopped.pid) == ("terminated", "exited", None)
        assert stopped.last_screen == "the last words"
        assert_agreement(world, swarm)


def test_a_restart_that_fails_keeps_the_last_screen_of_the_start_before(world: World) -> None:
    with world.open() as swarm:
        instance = world.work(swarm, "say the last words\nexit 3")

        def ended() -> bool:
            swarm.reconcile()
            return swarm.find(instance.id).status == "failed"

        wait_until(ended, what="the end is recorded")
        assert "the last words" in swarm.find(instance.id).last_screen
        world.kill_tmux()
        (world.home / "instances" / instance.id / "order" / "in-the-way").mkdir(parents=True)
        with pytest.raises(SwarmError):
            swarm.restart(instance.id)
        failed = swarm.find(instance.id)
        assert (failed.status, failed.wanted) == ("failed", "stopped")
        assert "the last words" in failed.last_screen

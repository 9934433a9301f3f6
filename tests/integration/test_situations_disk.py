"""A full disk: operations fail with a clear error, leave nothing half done and lose nothing.

The disks are small tmpfs mounts. Without root each test runs again inside mounts of its own.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from swarm_core.errors import SwarmError
from swarm_core.swarm import Swarm
from tests.support import git_run, make_repo
from tests.world import World, assert_agreement

_SMALL = "size=5m,nr_inodes=400,mode=700"
_CLEAR = {"DISK_FULL", "EXTERNAL_FAILURE", "GIT_COMMAND_FAILED"}


@pytest.fixture(autouse=True)
def own_mounts(request: pytest.FixtureRequest) -> None:
    """Mounting needs root, or a user namespace in which we are it."""
    if os.geteuid() == 0:
        return
    if subprocess.run(["unshare", "-Urm", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("neither root nor user namespaces: no disk can be mounted")
    argv = ["unshare", "-Urm", sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    done = subprocess.run([*argv, request.node.nodeid], capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stdout
    pytest.skip("passed in mounts of its own")


@contextlib.contextmanager
def small_disk(path: Path, options: str = _SMALL) -> Iterator[Path]:
    path.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(path)], check=True)
    try:
        yield path
    finally:
        end = ["tmux", "-S", str(path / "tmux.sock"), "kill-server"]
        subprocess.run(end, capture_output=True, check=False, timeout=20)
        subprocess.run(["umount", "-l", str(path)], check=True)


def fill(disk: Path, *, but: int) -> Path:
    """Take all space except `but` bytes."""
    filler = disk / "filler"
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(free - but, 1))
    return filler


def fill_inodes(disk: Path, *, but: int) -> list[Path]:
    made = [disk / f"inode-{n}" for n in range(max(os.statvfs(disk).f_ffree - but, 0))]
    for path in made:
        path.touch()
    return made


@pytest.fixture
def heavy(world: World) -> World:
    """The repository's checkout has 1 MB that does not fit beside what fills the disk."""
    (world.repo / "heavy.bin").write_bytes(os.urandom(1 << 20))
    git_run(world.repo, "add", "-A")
    git_run(world.repo, "commit", "-q", "-m", "heavy")
    return world


def assert_unharmed(world: World, swarm: Swarm) -> None:
    assert git_run(world.repo, "status", "--porcelain") == ""
    assert world.branches() == {"main", *(i.branch for i in swarm.instances())}
    git_run(world.repo, "fsck", "--no-progress")


def assert_clear(error: SwarmError) -> None:
    assert error.code in _CLEAR, error.as_json()
    assert error.message


@pytest.mark.parametrize("room", [0, 40_000, 200_000, 900_000])
def test_a_spawn_without_space_fails_clearly_and_leaves_nothing(heavy: World, room: int) -> None:
    with small_disk(heavy.home), heavy.open() as swarm:
        filler = fill(heavy.home, but=room)
        with pytest.raises(SwarmError) as failed:
            heavy.work(swarm)
        assert_clear(failed.value)
        filler.unlink()
        swarm.reconcile()
        assert_agreement(heavy, swarm)
        assert_unharmed(heavy, swarm)
        # a failure that could not even be written down is taken for a crash, and the spawn is finished
        assert {i.status for i in swarm.instances()} <= {"running"}
        assert heavy.work(swarm).status == "running"
        assert_agreement(heavy, swarm)


@pytest.mark.parametrize("room", [0, 3, 8, 14])
def test_a_spawn_without_room_for_one_more_file_fails_clearly_and_leaves_nothing(heavy: World, room: int) -> None:
    with small_disk(heavy.home), heavy.open() as swarm:
        taken = fill_inodes(heavy.home, but=room)
        with pytest.raises(SwarmError) as failed:
            heavy.work(swarm)
        assert_clear(failed.value)
        for path in taken:
            path.unlink()
        swarm.reconcile()
        assert_agreement(heavy, swarm)
        assert_unharmed(heavy, swarm)
        assert heavy.work(swarm).status == "running"


def test_a_home_on_a_full_disk_cannot_be_opened_and_says_why(world: World) -> None:
    with small_disk(world.home):
        fill(world.home, but=0)
        with pytest.raises(SwarmError) as failed, world.open():
            pass
        assert failed.value.code == "DISK_FULL"
        for path in world.home.iterdir():
            path.unlink()
        taken = fill_inodes(world.home, but=0)
        with pytest.raises(SwarmError) as failed, world.open():
            pass
        assert failed.value.code in ("DISK_FULL", "DATABASE_READ_ONLY")
        for path in taken:
            path.unlink()
        with world.open() as swarm:
            assert swarm.instances() == []


def test_a_database_on_a_disk_that_became_full_says_why_it_cannot_be_opened(world: World) -> None:
    with small_disk(world.home):
        with world.open():
            pass
        filler = fill(world.home, but=0)
        with pytest.raises(SwarmError) as failed, world.open():
            pass
        assert failed.value.code == "DISK_FULL"
        filler.unlink()
        with world.open() as swarm:
            assert swarm.instances() == []


def test_a_clean_that_cannot_preserve_removes_nothing(short_tmp: Path) -> None:
    work = {"big.bin": os.urandom(1 << 20), "note.txt": b"kept\n"}
    with small_disk(short_tmp / "disk") as disk:
        world = World(short_tmp / "h", make_repo(disk / "repo"))
        with world.open() as swarm:
            instance = world.work(swarm)
            for name, data in work.items():
                (Path(instance.worktree_path) / name).write_bytes(data)
            swarm.stop(instance.id)
            filler = fill(disk, but=100_000)
            with pytest.raises(SwarmError) as failed:
                swarm.clean(instance.id)
            assert_clear(failed.value)
            for name, data in work.items():
                assert (Path(instance.worktree_path) / name).read_bytes() == data
            assert_agreement(world, swarm)
            filler.unlink()
            assert swarm.clean(instance.id).cleaned
            assert not Path(instance.worktree_path).exists()
            swarm.restore(instance.id)
            for name, data in work.items():
                assert (Path(instance.worktree_path) / name).read_bytes() == data
            git_run(world.repo, "fsck", "--no-progress")


@pytest.mark.parametrize("step", ["worktree", "branch"])
def test_a_clean_whose_record_cannot_be_written_is_finished_when_there_is_space(world: World, step: str) -> None:
    def checkpoint(name: str) -> None:
        if name == f"clean:{step}:between":
            fill(world.home, but=0)

    with small_disk(world.home):
        with world.open(checkpoint=checkpoint) as swarm:
            instance = world.work(swarm)
            (Path(instance.worktree_path) / "note.txt").write_bytes(b"kept\n")
            swarm.stop(instance.id)
            with pytest.raises(SwarmError) as failed:
                swarm.clean(instance.id)
            assert failed.value.code == "DISK_FULL"
        (world.home / "filler").unlink()
        with world.open() as swarm:
            swarm.reconcile()
            assert_agreement(world, swarm)
            assert swarm.find(instance.id).cleaned
            swarm.restore(instance.id)
            assert (Path(instance.worktree_path) / "note.txt").read_bytes() == b"kept\n"
            assert_agreement(world, swarm)

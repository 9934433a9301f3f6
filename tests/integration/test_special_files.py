"""A named pipe or huge file in the place of one of git's: nothing waits, and nothing is removed because of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swarm_core import git
from swarm_core.errors import SwarmError
from swarm_core.git import command
from tests.integration.test_removal import stopped
from tests.integration.web_fixture import serving
from tests.support import git_run
from tests.world import World

_WITHIN = 60.0
_LOOK = """
import sys
from swarm_core import git
from swarm_core.errors import SwarmError
for look in (git.head_commit, git.current_branch, git.is_dirty, git.dirty_files):
    try:
        look(sys.argv[1])
    except SwarmError as error:
        print(error.code)
"""


def pipe(path: Path) -> Path:
    """Put a named pipe in the place of a file, which is kept beside it."""
    if path.exists():
        path.rename(path.with_name(f"{path.name}.kept"))
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    return path


def take_away(path: Path) -> None:
    path.unlink()
    kept = path.with_name(f"{path.name}.kept")
    if kept.exists():
        kept.rename(path)


def included(root: Path, common: Path) -> Path:
    git_run(root, "config", "include.path", str(root.parent / "included"))
    return pipe(root.parent / "included")


def included_by_the_included(root: Path, common: Path) -> Path:
    (root.parent / "first").write_text("[include]\n\tpath = second\n")
    git_run(root, "config", "include.path", str(root.parent / "first"))
    return pipe(root.parent / "second")


def huge(path: Path) -> Path:
    """Put a file that has more than this machine's memory in the place of one, which is kept beside it."""
    if path.exists():
        path.rename(path.with_name(f"{path.name}.kept"))
    path.touch()
    os.truncate(path, 1 << 42)
    return path


def included_without_end(root: Path, common: Path) -> Path:
    git_run(root, "config", "include.path", str(root.parent / "included"))
    return huge(root.parent / "included")


def excludes_file(root: Path, common: Path) -> Path:
    git_run(root, "config", "core.excludesFile", str(root.parent / "excludes"))
    return pipe(root.parent / "excludes")


PLACES: dict[str, Callable[[Path, Path], Path]] = {
    "include.path": included,
    "an include of an include": included_by_the_included,
    "core.excludesFile": excludes_file,
    ".gitignore": lambda root, common: pipe(root / ".gitignore"),
    ".gitignore in a folder": lambda root, common: pipe(root / "src" / ".gitignore"),
    ".gitattributes": lambda root, common: pipe(root / ".gitattributes"),
    ".gitattributes in a folder": lambda root, common: pipe(root / "src" / ".gitattributes"),
    "info/exclude": lambda root, common: pipe(common / "info" / "exclude"),
    "config": lambda root, common: pipe(common / "config"),
    "HEAD": lambda root, common: pipe(common / "worktrees" / root.name / "HEAD"),
    "index": lambda root, common: pipe(common / "worktrees" / root.name / "index"),
    "commondir": lambda root, common: pipe(common / "worktrees" / root.name / "commondir"),
    "a huge include.path": included_without_end,
    "a huge config": lambda root, common: huge(common / "config"),
    "a huge commondir": lambda root, common: huge(common / "worktrees" / root.name / "commondir"),
}


def said(world: World, *argv: str) -> tuple[int, Any]:
    done = world.command(*argv, "--json", timeout=_WITHIN)
    return done.returncode, json.loads(done.stdout)[0]


@pytest.mark.parametrize("place", PLACES)
def test_a_worktree_with_a_pipe_for_a_file_is_kept_and_the_pipe_is_named(world: World, place: str) -> None:
    with world.open() as swarm:
        instance, root = stopped(world, swarm)
    (root / "notes.txt").write_text("mine\n")
    in_the_way = PLACES[place](root, world.repo / ".git")
    code, plan = said(world, "clean", "--dry-run", instance.id)
    assert (code, plan["kept"]["reason"]) == (0, "special")
    code, failed = said(world, "clean", "--yes", instance.id)
    assert (code, failed["error"]["code"], failed["error"]["details"]["reason"]) == (1, "WORKTREE_KEPT", "special")
    assert str(in_the_way) in failed["error"]["hint"]
    assert (root / "notes.txt").read_text() == "mine\n"
    take_away(in_the_way)
    assert said(world, "clean", "--yes", instance.id)[0] == 0
    with world.open() as swarm:
        swarm.restore(instance.id)
    assert (root / "notes.txt").read_text() == "mine\n"


def test_a_pipe_in_the_place_of_the_worktrees_link_keeps_it(world: World) -> None:
    with world.open() as swarm:
        instance, root = stopped(world, swarm)
    in_the_way = pipe(root / ".git")
    code, failed = said(world, "clean", "--yes", instance.id)
    assert (code, failed["error"]["details"]["reason"]) == (1, "bent_link")
    take_away(in_the_way)
    (root / ".git.kept").unlink(missing_ok=True)
    assert said(world, "clean", "--yes", instance.id)[0] == 0


# One that is deeper in the worktree git finds by itself: the next test.
@pytest.mark.parametrize("place", [place for place in PLACES if not place.endswith("in a folder")])
def test_looking_at_a_worktree_with_a_pipe_for_a_file_ends(world: World, place: str) -> None:
    with world.open() as swarm:
        _, root = stopped(world, swarm)
    PLACES[place](root, world.repo / ".git")
    argv = [sys.executable, "-c", _LOOK, str(root)]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(argv, capture_output=True, env=env, timeout=_WITHIN, check=True)
    assert set(done.stdout.split()) == {b"SPECIAL_FILE"}


def test_what_a_git_that_did_not_end_waited_for_is_named_and_not_waited_for_again(repo: Path) -> None:
    in_the_way = pipe(repo / "src" / ".gitignore")
    with pytest.raises(SwarmError) as caught:
        command._git(repo, "status", "--porcelain", timeout=1)
    assert (caught.value.code, caught.value.details["path"]) == ("SPECIAL_FILE", str(in_the_way))
    assert str(in_the_way) in (caught.value.hint or "")
    with pytest.raises(SwarmError) as again:
        git.is_dirty(repo)
    assert again.value.details["path"] == str(in_the_way)
    in_the_way.unlink()
    assert not git.is_dirty(repo)


def test_a_huge_file_in_the_place_of_HEAD_is_not_read(repo: Path) -> None:
    in_the_way = huge(repo / ".git" / "HEAD")
    for look in (git.head_commit, git.current_branch):
        with pytest.raises(SwarmError) as caught:
            look(repo)
        assert (caught.value.code, caught.value.details["path"]) == ("SPECIAL_FILE", str(in_the_way))


def test_a_large_program_that_a_setting_names_is_not_a_file_that_git_reads(repo: Path, tmp_path: Path) -> None:
    git_run(repo, "config", "difftool.other.path", str(huge(tmp_path / "difftool")))
    assert not git.is_dirty(repo)


def test_the_null_device_may_be_included(repo: Path) -> None:
    git_run(repo, "config", "include.path", os.devnull)
    git_run(repo, "config", "core.excludesFile", os.devnull)
    assert not git.is_dirty(repo)


@pytest.mark.parametrize("place", ["include.path", ".gitattributes", "HEAD"])
def test_the_dashboard_answers_a_diff_with_what_is_in_the_way_again_and_again(world: World, place: str) -> None:
    with world.open() as swarm, serving(world.settings, swarm) as web:
        instance, root = stopped(world, swarm)
        in_the_way = PLACES[place](root, world.repo / ".git")
        for _ in range(8):  # more than it has threads and places
            answer = web.get(f"/api/v1/instances/{instance.id}/diff")
            assert answer.code == "SPECIAL_FILE"
        take_away(in_the_way)
        assert web.get(f"/api/v1/instances/{instance.id}/diff").status == 200


def test_a_pipe_in_the_place_of_an_agents_log_is_not_read(world: World) -> None:
    with world.open() as swarm:
        instance = world.wait_idle(swarm, world.work(swarm).id)
        log = world.home / "instances" / instance.id / "conversation.jsonl"
        assert log.is_file()
        pipe(log)
    code = world.command("ls", timeout=_WITHIN).returncode
    assert (code, world.command("show", instance.id, timeout=_WITHIN).returncode) == (0, 0)
    assert world.command("msg", instance.id, "hello", timeout=_WITHIN).returncode == 0

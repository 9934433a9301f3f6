"""Removing a worktree: what is refused, what is stored first, and what other programs do to it meanwhile."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from swarm_core.errors import SwarmError
from swarm_core.git import removal
from swarm_core.hosts.local import LocalHost
from swarm_core.models import KEPT, Instance, remedy
from swarm_core.ops import attention, doctor
from swarm_core.store import instances
from swarm_core.swarm import Swarm
from tests.support import git_run, make_repo, wait_until
from tests.world import World

_ROOT = str(Path(__file__).parents[2])
_MANY = 3000


def python(world: World, *argv: str) -> subprocess.Popen[bytes]:
    env = world.environ | {"PYTHONPATH": _ROOT}
    return subprocess.Popen([sys.executable, *argv], cwd=world.repo, env=env)


def stopped(world: World, swarm: Swarm) -> tuple[Instance, Path]:
    """An instance whose agent has ended, and its worktree."""
    instance = world.wait_idle(swarm, world.work(swarm).id)
    swarm.stop(instance.id)
    return instance, Path(instance.worktree_path)


def commit(path: Path, message: str = "done") -> str:
    git_run(path, "add", "-A")
    git_run(path, "commit", "-q", "-m", message)
    return git_run(path, "rev-parse", "HEAD")


def is_held(repo: Path, commit_id: str) -> bool:
    return git_run(repo, "for-each-ref", "--contains", commit_id) != ""


def needs(swarm: Swarm, instance_id: str) -> dict[str, str]:
    """The commands a person is told to run, by what they are needed for."""
    return {reason.key: reason.command for reason in attention.reasons(swarm.find(instance_id))}


def refused(swarm: Swarm, instance_id: str) -> SwarmError:
    with pytest.raises(SwarmError) as caught:
        swarm.clean(instance_id)
    assert caught.value.code == "WORKTREE_KEPT"
    return caught.value


# Commits


def test_two_cleans_at_once_of_a_work_and_its_fork_keep_its_commit_on_a_branch(world: World) -> None:
    for _ in range(4):
        with world.open() as swarm:
            instance, root = stopped(world, swarm)
            (root / "done.txt").write_text(instance.id)
            tip = commit(root)
            fork = swarm.fork(instance.id)
            swarm.stop(fork.id)
        both = [python(world, "-m", "tests.fakes.crash", "never", "clean", i) for i in (instance.id, fork.id)]
        assert [child.wait(60) for child in both] == [0, 0]
        assert git_run(world.repo, "for-each-ref", "--contains", tip, "refs/heads") != ""


def test_a_commit_that_only_the_log_of_a_deleted_branch_knows_is_kept(world: World) -> None:
    with world.open() as swarm:
        instance, root = stopped(world, swarm)
        (root / "draft.txt").write_text("first\n")
        amended_away = commit(root)
        git_run(root, "commit", "-q", "--amend", "-m", "second")
        reset_away = git_run(root, "rev-parse", "HEAD")
        git_run(root, "reset", "-q", "--hard", "main")
        swarm.clean(instance.id)
        assert instance.branch not in world.branches()
        assert is_held(world.repo, amended_away)
        assert is_held(world.repo, reset_away)


def test_a_commit_that_only_a_remote_branch_or_tag_has_stays_after_these_go(world: World) -> None:
    with world.open() as swarm:
        instance, root = stopped(world, swarm)
        (root / "done.txt").write_text("done\n")
        tip = commit(root)
        git_run(world.repo, "update-ref", "refs/remotes/origin/other", tip)
        git_run(world.repo, "tag", "seen", tip)
        swarm.clean(instance.id)
        git_run(world.repo, "update-ref", "-d", "refs/remotes/origin/other")
        git_run(world.repo, "tag", "-d", "seen")
        assert is_held(world.repo, tip)
        swarm.restore(instance.id)
        assert git_run(root, "rev-parse", "HEAD") == tip


# A folder that is not what git registered


def make_anew(world: World, root: Path) -> Callable[[], None]:
    link = (root / ".git").read_text()
    (root / ".git").unlink()
    git_run(root, "init", "-q", "-b", "main")
    commit(root)

    def undo() -> None:
        subprocess.run(["rm", "-rf", str(root / ".git")], check=True, timeout=20)
        (root / ".git").write_text(link)

    return undo


def lead_elsewhere(world: World, root: Path) -> Callable[[], None]:
    link = (root / ".git").read_text()
    other = make_repo(root.parent.parent.parent / "other")
    (root / ".git").write_text(f"gitdir: {other / '.git'}\n")
    return lambda: (root / ".git").write_text(link) and None


def link_to_git(world: World, root: Path) -> Callable[[], None]:
    kept = root.parent / "dot-git"
    (root / ".git").rename(kept)
    (root / ".git").symlink_to(kept)

    def undo() -> None:
        (root / ".git").unlink()
        kept.rename(root / ".git")

    return undo


def work_elsewhere(world: World, root: Path) -> Callable[[], None]:
    elsewhere = root.parent.parent.parent / "elsewhere"
    elsewhere.mkdir()
    git_run(world.repo, "config", "extensions.worktreeConfig", "true")
    git_run(root, "config", "--worktree", "core.worktree", str(elsewhere))
    entry = world.repo / ".git" / "worktrees" / root.name
    return lambda: (entry / "config.worktree").unlink()


def share_another_repository(world: World, root: Path) -> Callable[[], None]:
    other = make_repo(root.parent.parent.parent / "other")
    common = world.repo / ".git" / "worktrees" / root.name / "commondir"
    before = common.read_text()
    common.write_text(f"{other / '.git'}\n")
    return lambda: common.write_text(before) and None


def link_to_folder(world: World, root: Path) -> Callable[[], None]:
    moved = root.parent.parent.parent / "moved"
    root.rename(moved)
    root.symlink_to(moved)

    def undo() -> None:
        root.unlink()
        moved.rename(root)

    return undo


Bend = Callable[[World, Path], Callable[[], None]]


@pytest.mark.parametrize(
    "bend",
    [make_anew, lead_elsewhere, link_to_git, work_elsewhere, share_another_repository, link_to_folder],
)
def test_a_folder_that_is_not_the_registered_worktree_is_kept_until_it_is_again(world: World, bend: Bend) -> None:
    with world.open() as swarm:
        instance, root = stopped(world, swarm)
        (root / "work.txt").write_text("nowhere else\n")
        undo = bend(world, root)
        error = refused(swarm, instance.id)
        assert (root / "work.txt").read_text() == "nowhere else\n"
        assert error.details["path"] == str(root)
        assert f"swarm clean {instance.id}" in needs(swarm, instance.id)["kept"]
        swarm.reconcile()
        assert "kept" in needs(swarm, instance.id)
        undo()
        swarm.clean(instance.id)
        assert needs(swarm, instance.id) == {}
        swarm.restore(instance.id)
        assert (root / "work.txt").read_text() == "nowhere else\n"


# What other programs write meanwhile


@contextmanager
def writing(world: World, how: str, root: Path, notes: Path) -> Iterator[Callable[[], list[int]]]:
    """A program that saves all the time; yields what ends it and returns the saves that returned."""
    notes.mkdir()
    child = python(world, "-m", "tests.fakes.writer", how, str(root), str(notes))
    saved = notes / "saved"
    wait_until(lambda: saved.exists() and saved.read_text().count("\n") > 5, what="the first saves")

    def end() -> list[int]:
        (notes / "stop").touch()
        assert child.wait(20) == 0
        return [int(line) for line in saved.read_text().split()]

    try:
        yield end
    finally:
        child.kill()
        child.wait(20)


def everything(world: World) -> bytes:
    """All file contents under the worktrees' folder and in every ref of the repository."""
    found = [p.read_bytes() for p in world.settings.worktrees.rglob("*") if p.is_file() and not p.is_symlink()]
    objects = git_run(world.repo, "rev-list", "--objects", "--all").splitlines()
    names = "".join(f"{line.split(' ')[0]}\n" for line in objects).encode()
    batch = subprocess.run(
        ["git", "-C", str(world.repo), "cat-file", "--batch"],
        input=names,
        capture_output=True,
        check=True,
        timeout=60,
    )
    return b"\n".join([*found, batch.stdout])


def outcome(swarm: Swarm, instance_id: str) -> str | None:
    """Clean, and return the code of the refusal if there is one."""
    try:
        swarm.clean(instance_id)
    except SwarmError as error:
        return error.code
    return None


@pytest.mark.parametrize("how", ["path", "cwd", "open"])
def test_no_save_that_returned_while_a_clean_ran_is_lost(world: World, tmp_path: Path, how: str) -> None:
    with world.open() as swarm:
        instance, root = stopped(world, swarm)
        (root / "many").mkdir()
        for number in range(_MANY):
            (root / "many" / f"{number}.txt").write_text(f"file {number}\n")
        with writing(world, how, root, tmp_path / "notes") as end:
            refusal = outcome(swarm, instance.id)
            saves = end()
        assert refusal in (None, "WORKTREE_KEPT")
        there = everything(world)
        assert [n for n in saves if f"save {n} by {how}\n".encode() not in there] == []
        assert [n for n in range(_MANY) if f"file {n}\n".encode() not in there] == []


# Branches in the way of a new one


def test_a_branch_below_the_name_of_a_new_one_makes_a_spawn_take_the_next_id(world: World) -> None:
    git_run(world.repo, "branch", "work/work-a1/x")
    with world.open() as swarm:
        assert world.work(swarm).id == "work-a2"


def test_a_branch_above_the_name_of_every_new_one_refuses_the_spawn_and_records_nothing(world: World) -> None:
    git_run(world.repo, "branch", "work")
    with world.open() as swarm:
        with pytest.raises(SwarmError) as caught:
            world.work(swarm)
        assert caught.value.code == "BRANCH_BLOCKED"
        assert swarm.instances(include_cleaned=True) == []


# What is told beforehand and afterwards


def test_a_dry_run_names_what_is_stored_and_what_goes_because_git_ignores_it(world: World) -> None:
    with world.open() as swarm:
        instance, root = stopped(world, swarm)
        (root / ".gitignore").write_text("build/\n*.log\n")
        commit(root)
        (root / "notes.txt").write_text("mine\n")
        (root / "build" / "deep").mkdir(parents=True)
        (root / "build" / "deep" / "out.bin").write_bytes(bytes(5000))
        (root / "trace.log").write_text("x" * 100)
        left = swarm.leftovers(instance)
        assert (left["dirty"], left["dirty_bytes"]) == ([{"path": "notes.txt", "bytes": 5}], 5)
        assert left["ignored"] == [{"path": "build/", "bytes": 5000}, {"path": "trace.log", "bytes": 100}]
        assert (left["ignored_paths"], left["ignored_bytes"]) == (2, 5100)
    said = world.command("clean", "--dry-run").stdout.decode()
    assert all(name in said for name in ("notes.txt (5 B)", "build/ (5.0 KB)", "trace.log (100 B)"))
    [told] = json.loads(world.command("clean", "--dry-run", "--json").stdout)
    assert told["ignored"] == left["ignored"]
    assert root.is_dir()


def test_linked_worktrees_inside_are_stored_and_unregistered(world: World) -> None:
    with world.open() as swarm:
        instance, root = stopped(world, swarm)
        (world.repo / ".git" / "info" / "exclude").write_text("hidden/\n")
        for name in ("seen", "hidden/inner"):
            git_run(root, "worktree", "add", "-q", "-b", f"own/{name}", str(root / name))
            (root / name / "draft.txt").write_text(f"only in {name}\n")
        swarm.clean(instance.id)
        assert world.worktrees() == {}
        there = everything(world)
        assert b"only in seen\n" in there
        assert b"only in hidden/inner\n" in there
        listed = git_run(world.repo, "worktree", "list", "--porcelain")
        assert listed.count("worktree ") == 1


def test_pruning_while_a_worktree_is_aside_keeps_the_worktrees_inside(world: World) -> None:
    with world.open() as swarm:
        instance, root = stopped(world, swarm)
        git_run(root, "worktree", "add", "-q", "--detach", str(root / "inner"))
        git_run(root / "inner", "commit", "-q", "--allow-empty", "-m", "on no branch")
        commit = git_run(root / "inner", "rev-parse", "HEAD")
        removal.set_aside(world.repo, root, lock=world.settings.repo_lock(str(world.repo)))
        git_run(world.repo, "worktree", "prune")
        swarm.clean(instance.id)
        assert commit in git_run(world.repo, "rev-list", "--all").split()


def test_a_folder_left_aside_is_reported_with_the_command_that_goes_on(world: World) -> None:
    with world.open() as swarm:
        instance, root = stopped(world, swarm)
        (root / "notes.txt").write_text("mine\n")
        removal.set_aside(world.repo, root, lock=world.settings.repo_lock(str(world.repo)))
        checks = [c for c in doctor.examine(swarm.context, fix=False) if c.name == "removals"]
        assert [c.state for c in checks] == ["warn"]
        assert f"swarm clean {instance.id}" in checks[0].hint
        swarm.clean(instance.id)
        swarm.restore(instance.id)
        assert (root / "notes.txt").read_text() == "mine\n"


def test_a_spawn_whose_undo_must_keep_the_folder_leaves_an_instance_that_can_be_cleaned(world: World) -> None:
    def checkpoint(name: str) -> None:
        if name == "spawn:session:before":
            (world.settings.instance_dir("work-a1") / "order" / "in-the-way").mkdir(parents=True)
        if name == "spawn:worktree:undo":
            [root] = world.settings.worktrees.glob("*/work-a1")
            kept.append((root / ".git").read_text())
            (root / ".git").write_text("gitdir: /nowhere\n")
            (root / "saved.txt").write_text("mine\n")

    kept: list[str] = []
    with world.open(checkpoint=checkpoint) as swarm:
        with pytest.raises(SwarmError):
            world.work(swarm)
        instance = swarm.find("work-a1")
        root = Path(instance.worktree_path)
        assert (instance.status, instance.cleaned) == ("failed", False)
        assert "kept" in needs(swarm, instance.id)
        (root / ".git").write_text(kept[0])
        swarm.clean(instance.id)
        assert b"mine\n" in everything(world)
        assert not root.exists()


# A folder that is not the worktree any more


def remove_link(world: World, root: Path) -> str:
    (root / ".git").unlink()
    return "no_link"


def replace_folder(world: World, root: Path) -> str:
    root.rename(root.parent / "away")
    root.mkdir()
    (root / "other.txt").write_text("not a worktree\n")
    return "no_link"


def begin_anew(world: World, root: Path) -> str:
    make_anew(world, root)
    return "bent_link"


@pytest.mark.parametrize("bend", [remove_link, replace_folder, begin_anew])
def test_nothing_uses_a_folder_that_is_not_the_worktree(world: World, bend: Callable[[World, Path], str]) -> None:
    with world.open() as swarm:
        instance, root = stopped(world, swarm)
        # A repository above the home: git would find it from a folder without a .git of its own.
        git_run(world.settings.home, "init", "-q")
        reason = bend(world, root)
        for act in (swarm.restart, swarm.restore):
            with pytest.raises(SwarmError) as caught:
                act(instance.id)
            assert caught.value.code == "WORKTREE_MISMATCH"
            assert caught.value.details == {"path": str(root), "reason": reason}
            assert f"git -C {world.repo} worktree repair" in str(caught.value.hint)
        assert swarm.find(instance.id).wanted == "stopped"
        left = swarm.leftovers(swarm.find(instance.id))
        assert left["kept"] == {"path": str(root), "reason": reason}
        assert (left["dirty_files"], left["ignored_paths"]) == (0, 0)
        swarm.reconcile()
        assert f"git -C {world.repo} worktree repair" in needs(swarm, instance.id)["problem"]
        found = [c for c in doctor.examine(swarm.context, fix=False) if c.name == "worktrees"]
        assert [(c.state, "worktree repair" in c.hint) for c in found] == [("fail", True)]
        assert refused(swarm, instance.id).details["reason"] == reason
    [told] = json.loads(world.command("clean", "--dry-run", "--json").stdout)
    assert told["kept"]["reason"] == reason
    assert "would be kept" in world.command("clean", "--dry-run").stdout.decode()


def test_doctor_names_every_folder_that_is_not_its_worktree(world: World) -> None:
    with world.open() as swarm:
        both = [stopped(world, swarm)[1] for _ in range(2)]
        for root in both:
            (root / ".git").unlink()
        found = [c for c in doctor.examine(swarm.context, fix=False) if c.name == "worktrees"]
        assert all(any(str(root) in c.message and c.hint for c in found) for root in both)


def test_the_repair_that_is_named_makes_the_folder_a_worktree_again(world: World) -> None:
    with world.open() as swarm:
        instance, root = stopped(world, swarm)
        (root / "work.txt").write_text("nowhere else\n")
        (root / ".git").unlink()
        error = refused(swarm, instance.id)
        assert str(error.hint) == f"`git -C {world.repo} worktree repair`, then `swarm clean {instance.id}`"
        assert needs(swarm, instance.id)["kept"] == str(error.hint).replace("`", "")
        git_run(world.repo, "worktree", "repair")
        swarm.clean(instance.id)
        assert needs(swarm, instance.id) == {}
        swarm.restore(instance.id)
        assert (root / "work.txt").read_text() == "nowhere else\n"


def test_a_repository_that_was_begun_anew_is_moved_away_and_the_worktree_repaired(world: World) -> None:
    with world.open() as swarm:
        instance, root = stopped(world, swarm)
        make_anew(world, root)
        (root / "work.txt").write_text("nowhere else\n")
        hint = str(refused(swarm, instance.id).hint)
        for command in hint.split("`")[1:4:2]:
            subprocess.run(shlex.split(command), check=True, timeout=20)
        swarm.clean(instance.id)
        swarm.restore(instance.id)
        assert (root / "work.txt").read_text() == "nowhere else\n"


def test_a_lock_of_a_person_without_a_reason_keeps_the_worktree_and_is_shown_beforehand(world: World) -> None:
    with world.open() as swarm:
        instance, root = stopped(world, swarm)
        git_run(world.repo, "worktree", "lock", str(root))
        left = swarm.leftovers(instance)
        assert left["kept"] == {"path": str(root), "reason": "locked"}
        assert refused(swarm, instance.id).details["reason"] == "locked"
        assert f"worktree unlock {root}" in needs(swarm, instance.id)["kept"]
        assert root.is_dir()


def test_every_reason_to_keep_a_folder_has_a_remedy() -> None:
    for reason in KEPT:
        assert remedy(reason, "/a b", ["x by vim (process 12)"], "/repo")
    assert remedy("open", "/a", ["x by vim (process 12)", "y by vim (process 12)"]) == "`kill 12`"


def test_an_agent_whose_git_link_goes_while_it_runs_commits_nowhere(world: World) -> None:
    with world.open() as swarm:
        instance = world.wait_idle(swarm, world.work(swarm).id)
        host = swarm.context.host(instance)
        git_run(world.settings.home, "init", "-q")
        root = Path(instance.worktree_path)
        (root / ".git").unlink()
        assert isinstance(host, LocalHost)
        env = host._environ
        found = subprocess.run(
            ["git", "rev-parse"], cwd=root, env=env, capture_output=True, timeout=20, check=False
        )
        assert found.returncode != 0


def test_a_branch_that_is_checked_out_elsewhere_is_named_with_that_folder(world: World, tmp_path: Path) -> None:
    with world.open() as swarm:
        instance, root = stopped(world, swarm)
        git_run(root, "commit", "-q", "--allow-empty", "-m", "own")
        git_run(world.repo, "worktree", "move", str(root), str(tmp_path / "moved"))
        swarm.clean(instance.id)
        with pytest.raises(SwarmError) as caught:
            swarm.restore(instance.id)
        assert caught.value.code == "WORKTREE_EXISTS"
        assert str(tmp_path / "moved") in caught.value.message
        assert ".git/worktrees" not in caught.value.message


# Open pull requests, and a home that was moved


def test_a_stopped_instance_with_an_open_pull_request_is_named_as_left(world: World) -> None:
    with world.open() as swarm:
        instance, root = stopped(world, swarm)
        (root / "draft.txt").write_text("mine\n")
        with swarm.context.db.write():
            swarm.context.db.execute("UPDATE instances SET status = 'pr_created' WHERE id = ?", (instance.id,))
    [planned] = json.loads(world.command("clean", "--dry-run", "--json").stdout)
    assert (planned["left"] != "", [one["path"] for one in planned["dirty"]]) == (True, ["draft.txt"])
    [done] = json.loads(world.command("clean", "--yes", "--json").stdout)
    assert (done["cleaned"], done["left"] != "") == (False, True)
    assert f"swarm clean {instance.id}" in world.command("clean", "--yes").stdout.decode()
    assert (root / "draft.txt").exists()
    [done] = json.loads(world.command("clean", instance.id, "--yes", "--json").stdout)
    assert done["cleaned"]


def moved_home(world: World, instance_id: str) -> tuple[str, str]:
    """Record the worktree in another home than the one that is used, as after a move; return both paths."""
    with world.open() as swarm:
        here = Path(swarm.find(instance_id).worktree_path)
        old = world.settings.home.parent / "oldhome" / "worktrees" / here.parent.name / here.name
        with swarm.context.db.write():
            instances.set_fields(swarm.context.db, instance_id, worktree_path=str(old))
    return str(old), str(here)


def test_doctor_connects_a_worktree_that_moved_with_its_home(world: World) -> None:
    with world.open() as swarm:
        instance, root = stopped(world, swarm)
        (root / "draft.txt").write_text("mine\n")
    old, here = moved_home(world, instance.id)
    entry = world.repo / ".git" / "worktrees" / instance.id
    (entry / "gitdir").write_text(f"{old}/.git\n")
    with world.open() as swarm:
        with pytest.raises(SwarmError) as caught:
            swarm.restore(instance.id)
        assert (caught.value.code, "doctor --fix" in str(caught.value.hint)) == ("WORKTREE_EXISTS", True)
        found = [c for c in doctor.examine(swarm.context, fix=False) if c.name == "worktrees"]
        assert [(c.state, c.hint) for c in found] == [("fail", "swarm doctor --fix")]
        found = [c for c in doctor.examine(swarm.context, fix=True) if instance.id in c.message]
        assert [(c.name, c.state) for c in found] == [("worktrees", "fixed")]
        assert swarm.find(instance.id).worktree_path == here
        assert needs(swarm, instance.id) == {}
        swarm.clean(instance.id)
        swarm.restore(instance.id)
        assert (root / "draft.txt").read_text() == "mine\n"


def test_a_restore_after_a_move_makes_the_worktree_in_the_home_that_is_used(world: World) -> None:
    with world.open() as swarm:
        instance, root = stopped(world, swarm)
        (root / "draft.txt").write_text("mine\n")
        swarm.clean(instance.id)
    old, here = moved_home(world, instance.id)
    with world.open() as swarm:
        assert swarm.restore(instance.id).worktree_path == here
        assert (root / "draft.txt").read_text() == "mine\n"
        assert not Path(old).parents[2].exists()


@pytest.mark.parametrize("fix", [False, True])
def test_doctor_gives_one_hint_for_one_missing_worktree(world: World, fix: bool) -> None:
    with world.open() as swarm:
        instance, root = stopped(world, swarm)
        subprocess.run(["rm", "-rf", str(root)], check=True, timeout=20)
        found = [c for c in doctor.examine(swarm.context, fix=fix) if instance.id in c.message]
        assert [(c.name, c.state, c.hint) for c in found] == [
            ("worktrees", "fail", f"`swarm restore {instance.id}`")
        ]

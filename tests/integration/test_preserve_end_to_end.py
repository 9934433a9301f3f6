"""Uncommitted work through whole lives of instances: whatever happens, it comes back byte for byte."""

from __future__ import annotations

# pathlib knows no names that are only bytes
# ruff: noqa: PTH114, PTH115, PTH118, PTH123
import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from swarm_core.errors import SwarmError
from swarm_core.models import Instance
from swarm_core.swarm import Swarm
from tests.support import git_run, wait_until
from tests.world import World, assert_agreement

Fingerprint = dict[bytes, tuple[str, bytes]]


def fingerprint(root: Path) -> Fingerprint:
    """Every file and link below, without git's own: kind (with the exec bit) and content."""
    found: Fingerprint = {}
    top = os.fsencode(root)
    for folder, folders, names in os.walk(top):
        if b".git" in folders:
            folders.remove(b".git")
        for name in names + [f for f in folders if os.path.islink(os.path.join(folder, f))]:
            path = os.path.join(folder, name)
            facts = os.lstat(path)
            if name == b".git":
                continue
            if stat.S_ISLNK(facts.st_mode):
                found[os.path.relpath(path, top)] = ("link", os.readlink(path))
            else:
                kind = "program" if facts.st_mode & stat.S_IXUSR else "file"
                found[os.path.relpath(path, top)] = (kind, Path(os.fsdecode(path)).read_bytes())
    return found


def git_view(root: Path) -> list[str]:
    """Branch, commit and what is staged and not, as git tells it."""
    how = ("status", "--porcelain=v2", "--branch", "-z", "--untracked-files=all")
    return [git_run(root, *how), git_run(root, "ls-files", "--stage", "-z")]


def start(world: World, swarm: Swarm, prompt: str = "say ready") -> Instance:
    return world.wait_idle(swarm, world.work(swarm, prompt).id)


def through_clean(world: World, swarm: Swarm, instance: Instance) -> None:
    swarm.stop(instance.id)
    swarm.clean(instance.id)
    assert not Path(instance.worktree_path).exists()
    assert_agreement(world, swarm)
    swarm.restore(instance.id)


def through_stop(world: World, swarm: Swarm, instance: Instance) -> None:
    swarm.stop(instance.id)


def through_restart(world: World, swarm: Swarm, instance: Instance) -> None:
    swarm.restart(instance.id)
    wait_until(lambda: "resumed conversation" in swarm.screen(instance), what="the agent to resume")


def through_a_crash(world: World, swarm: Swarm, instance: Instance) -> None:
    pid = swarm.find(instance.id).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: swarm.reconcile() != [], what="the death to be noticed")
    assert swarm.find(instance.id).status == "failed"


def through_two_lives(world: World, swarm: Swarm, instance: Instance) -> None:
    through_a_crash(world, swarm, instance)
    swarm.restart(instance.id)
    through_clean(world, swarm, instance)
    swarm.restart(instance.id)
    through_clean(world, swarm, instance)


Passage = Callable[[World, Swarm, Instance], None]


def fill_with_everything(root: Path) -> None:
    """Changes of every kind in one worktree; the repository was prepared by `prepared`."""
    odd = [
        b"new\nline",
        "ünï ☃.txt".encode(),
        b"\xff\xfe not utf-8",
        b"-leading",
        b" spaces ",
        b'"quoted"',
        b"back\\slash",
    ]
    for name in odd:
        with open(os.path.join(os.fsencode(root), name), "wb") as file:
            file.write(b"odd " + name)
    (root / "binary.bin").write_bytes(bytes(range(256)) * 300)
    (root / "empty").write_bytes(b"")
    (root / "deep" / "er").mkdir(parents=True)
    (root / "deep" / "er" / "file").write_bytes(b"deep")
    (root / "tool.sh").write_text("#!/bin/sh\n")
    (root / "tool.sh").chmod(0o755)
    (root / "src" / "app.py").chmod(0o755)
    (root / "link").symlink_to("nowhere/at all")
    (root / "folder-link").symlink_to("deep")
    (root / "crlf.txt").write_bytes(b"one\r\ntwo\nthree\r\n")
    (root / "mixed.txt").write_bytes(b"changed\r\nmixed\n")
    (root / "staged.txt").write_text("first version\n")
    git_run(root, "add", "staged.txt")
    (root / "staged.txt").write_text("second version\n")
    (root / "README.md").write_text("# staged change\n")
    git_run(root, "add", "README.md")
    (root / "README.md").write_text("# unstaged change\n")
    (root / "gone.txt").unlink()
    git_run(root, "rm", "-q", "gone-staged.txt")
    (root / "tracked.log").write_text("tracked and ignored, changed\n")
    (root / "becomes-a-folder").unlink()
    (root / "becomes-a-folder").mkdir()
    (root / "becomes-a-folder" / "inside").write_text("now a folder")


@pytest.fixture
def prepared(world: World) -> World:
    for name in ("gone.txt", "gone-staged.txt", "tracked.log", "becomes-a-folder"):
        (world.repo / name).write_text(f"{name}\n")
    (world.repo / "mixed.txt").write_bytes(b"as it was\r\n")
    (world.repo / ".gitattributes").write_text("*.txt text\nmixed.txt text eol=crlf\n")
    git_run(world.repo, "add", "-A", "-f")
    (world.repo / ".gitignore").write_text("*.log\nbuild/\n")
    git_run(world.repo, "add", "-A")
    git_run(world.repo, "commit", "-q", "-m", "prepared")
    return world


@pytest.mark.parametrize(
    "passage", [through_stop, through_restart, through_a_crash, through_clean, through_two_lives]
)
def test_changes_of_every_kind_survive(prepared: World, passage: Passage) -> None:
    with prepared.open() as swarm:
        instance = start(prepared, swarm)
        root = Path(instance.worktree_path)
        fill_with_everything(root)
        before = fingerprint(root), git_view(root)
        assert len(before[0]) > 20
        passage(prepared, swarm, instance)
        assert fingerprint(root) == before[0]
        assert git_view(root) == before[1]
        swarm.reconcile()
        assert_agreement(prepared, swarm)
    assert git_run(prepared.repo, "status", "--porcelain") == ""


def test_ignored_files_are_not_kept_but_everything_else_is(prepared: World) -> None:
    with prepared.open() as swarm:
        instance = start(prepared, swarm)
        root = Path(instance.worktree_path)
        (root / "build").mkdir()
        (root / "build" / "big.o").write_text("can be made again")
        (root / "kept.txt").write_text("cannot")
        through_clean(prepared, swarm, instance)
        assert (root / "kept.txt").read_text() == "cannot"
        assert not (root / "build").exists()


def test_a_clean_worktree_leaves_no_preserved_ref(world: World) -> None:
    with world.open() as swarm:
        instance = start(world, swarm)
        swarm.stop(instance.id)
        swarm.clean(instance.id)
        assert swarm.detail(instance.id).preserved == []
    assert git_run(world.repo, "for-each-ref", "refs/swarm") == ""
    assert world.branches() == {"main"}


def test_restoring_twice_or_onto_newer_work_overwrites_nothing(world: World) -> None:
    with world.open() as swarm:
        instance = start(world, swarm)
        note = Path(instance.worktree_path) / "note.txt"
        note.write_text("first")
        through_clean(world, swarm, instance)
        [kept] = swarm.detail(instance.id).preserved
        swarm.restore(instance.id, ref=kept.ref)
        assert note.read_text() == "first"
        with pytest.raises(SwarmError) as nothing:
            swarm.restore(instance.id)
        assert nothing.value.code == "NOTHING_PRESERVED"
        note.write_text("newer")
        with pytest.raises(SwarmError) as refused:
            swarm.restore(instance.id, ref=kept.ref)
        assert refused.value.code == "RESTORE_WOULD_OVERWRITE"
        assert note.read_text() == "newer"
        assert_agreement(world, swarm)


def test_an_earlier_preserved_work_can_be_named(world: World) -> None:
    with world.open() as swarm:
        instance = start(world, swarm)
        note = Path(instance.worktree_path) / "note.txt"
        for text in ("first", "second"):
            note.write_text(text)
            swarm.stop(instance.id)
            swarm.clean(instance.id)
            if text == "first":
                swarm.restore(instance.id)
        first, _ = swarm.detail(instance.id).preserved
        swarm.restore(instance.id, ref=first.ref)
        assert note.read_text() == "first"


def test_an_empty_repository_takes_an_agent_that_makes_its_first_commit(short_tmp: Path) -> None:
    repo = short_tmp / "empty"
    repo.mkdir()
    git_run(repo, "init", "-q", "-b", "main")
    world = World(short_tmp / "h", repo)
    try:
        with world.open() as swarm:
            committing = start(world, swarm, "write first.txt one\ncommit the first\nwrite half.txt two")
            dirty = start(world, swarm, "write only.txt never committed")
            staged = Path(dirty.worktree_path) / "staged.txt"
            staged.write_text("staged\n")
            git_run(staged.parent, "add", "staged.txt")
            assert git_run(repo, "rev-list", "--count", committing.branch) == "1"
            for one in (committing, dirty):
                root = Path(one.worktree_path)
                before = fingerprint(root), git_run(root, "status", "--porcelain")
                swarm.stop(one.id)
                assert swarm.clean(one.id).cleaned
                swarm.restore(one.id)
                assert (fingerprint(root), git_run(root, "status", "--porcelain")) == before
                swarm.restart(one.id)
            assert git_run(repo, "rev-list", "--count", committing.branch) == "1"
            assert git_run(Path(dirty.worktree_path), "symbolic-ref", "HEAD") == f"refs/heads/{dirty.branch}"
            assert git_run(repo, "symbolic-ref", "HEAD") == "refs/heads/main"
            assert git_run(repo, "status", "--porcelain") == ""
    finally:
        world.kill_tmux()


def add_submodule(world: World, name: str) -> Path:
    library = world.repo.parent / f"library-{name}"
    library.mkdir()
    git_run(library, "init", "-q", "-b", "main")
    (library / "lib.txt").write_text("library\n")
    git_run(library, "add", "-A")
    git_run(library, "commit", "-q", "-m", "library")
    allow = ("-c", "protocol.file.allow=always")
    git_run(world.repo, *allow, "submodule", "--quiet", "add", str(library), name)
    git_run(world.repo, "commit", "-q", "-m", f"submodule {name}")
    return library


def test_submodules_initialised_and_dirty_or_not_initialised_survive(world: World) -> None:
    for name in ("used", "unused"):
        add_submodule(world, name)
    with world.open() as swarm:
        instance = start(world, swarm)
        root = Path(instance.worktree_path)
        git_run(root, "-c", "protocol.file.allow=always", "submodule", "--quiet", "update", "--init", "used")
        (root / "used" / "own.txt").write_text("committed in the submodule\n")
        git_run(root / "used", "add", "-A")
        git_run(root / "used", "commit", "-q", "-m", "own")
        own = git_run(root / "used", "rev-parse", "HEAD")
        (root / "used" / "lib.txt").write_text("dirty in the submodule\n")
        (root / "used" / "new.bin").write_bytes(b"\0\xff")
        (root / "beside.txt").write_text("beside\n")
        before = fingerprint(root)
        through_clean(world, swarm, instance)
        assert fingerprint(root) == before
        assert git_run(root / "used", "rev-parse", "HEAD") == own
        assert list((root / "unused").iterdir()) == []
        assert_agreement(world, swarm)


def test_a_submodule_that_nobody_touched_does_not_stand_in_the_way(world: World) -> None:
    add_submodule(world, "unused")
    with world.open() as swarm:
        instance = start(world, swarm)
        swarm.stop(instance.id)
        assert swarm.clean(instance.id).cleaned
        assert swarm.detail(instance.id).preserved == []
        assert_agreement(world, swarm)


def test_commits_on_no_branch_survive(world: World) -> None:
    with world.open() as swarm:
        instance = start(world, swarm)
        root = Path(instance.worktree_path)
        git_run(root, "checkout", "-q", "--detach")
        (root / "lost.txt").write_text("on no branch\n")
        git_run(root, "add", "-A")
        git_run(root, "commit", "-q", "-m", "on no branch")
        (root / "dirty.txt").write_text("and more\n")
        before = fingerprint(root), git_view(root)
        through_clean(world, swarm, instance)
        assert (fingerprint(root), git_view(root)) == before


def test_a_repository_made_inside_the_worktree_survives_with_its_commits(world: World) -> None:
    with world.open() as swarm:
        instance = start(world, swarm)
        root = Path(instance.worktree_path)
        inner = root / "made inside"
        inner.mkdir()
        git_run(inner, "init", "-q", "-b", "trunk")
        (inner / "file").write_text("inner\n")
        git_run(inner, "add", "-A")
        git_run(inner, "commit", "-q", "-m", "inner")
        (inner / "dirty").write_text("inner and dirty\n")
        commit = git_run(inner, "rev-parse", "HEAD")
        before = fingerprint(root)
        through_clean(world, swarm, instance)
        assert fingerprint(root) == before
        assert git_run(inner, "rev-parse", "trunk") == commit


@pytest.mark.parametrize("ignored", [True, False])
def test_a_worktree_that_the_agent_added_inside_its_own_survives(world: World, ignored: bool) -> None:
    if ignored:
        (world.repo / ".gitignore").write_text("sub/\n")
        git_run(world.repo, "add", "-A")
        git_run(world.repo, "commit", "-q", "-m", "ignore")
    with world.open() as swarm:
        instance = start(world, swarm)
        root = Path(instance.worktree_path)
        git_run(root, "worktree", "add", "-q", "-b", "inner", "./sub")
        (root / "sub" / "inner.txt").write_text("not committed\n")
        before = fingerprint(root)
        swarm.stop(instance.id)
        swarm.clean(instance.id)
        assert not root.exists()
        git_run(world.repo, "worktree", "prune")
        swarm.restore(instance.id)
        assert fingerprint(root) == before
        assert git_run(root / "sub", "symbolic-ref", "HEAD") == "refs/heads/inner"


def test_what_stays_under_the_ref_is_named_when_the_branch_went_on(world: World) -> None:
    with world.open() as swarm:
        instance = start(world, swarm)
        root = Path(instance.worktree_path)
        git_run(root, "commit", "-q", "--allow-empty", "-m", "keeps the branch")
        (root / "staged.txt").write_text("staged\n")
        git_run(root, "add", "-A")
        swarm.stop(instance.id)
        swarm.clean(instance.id)
        tree = git_run(world.repo, "rev-parse", f"{instance.branch}^{{tree}}")
        later = git_run(world.repo, "commit-tree", tree, "-p", instance.branch, "-m", "later")
        git_run(world.repo, "update-ref", f"refs/heads/{instance.branch}", later)
        swarm.restore(instance.id)
        told = [e.metadata for e in swarm.detail(instance.id).events if e.name == "instance:restored"]
        assert len(told[-1]["left"]) == 1
        assert (root / "staged.txt").read_text() == "staged\n"


def write_hook(world: World, name: str, text: str) -> None:
    hook = world.repo / ".git" / "hooks" / name
    hook.write_text(f"#!/bin/sh\n{text}\n")
    hook.chmod(0o755)


def test_a_persons_hooks_and_signing_stop_no_operation_and_their_files_survive(world: World) -> None:
    write_hook(world, "post-checkout", "echo hooked >> hooked.txt")
    write_hook(world, "pre-commit", "exit 1")
    write_hook(world, "reference-transaction", "case $(cat) in *refs/swarm*) exit 1;; esac")
    git_run(world.repo, "config", "commit.gpgsign", "true")
    git_run(world.repo, "config", "gpg.program", "/bin/false")
    with world.open() as swarm:
        instance = start(world, swarm)
        root = Path(instance.worktree_path)
        assert (root / "hooked.txt").read_text() == "hooked\n"
        (root / "mine.txt").write_text("mine\n")
        swarm.stop(instance.id)
        swarm.clean(instance.id)
        (world.repo / ".git" / "hooks" / "post-checkout").unlink()
        swarm.restore(instance.id)
        assert (root / "mine.txt").read_text() == "mine\n"
        assert (root / "hooked.txt").read_text() == "hooked\n"
        assert_agreement(world, swarm)


def test_a_restore_that_a_hook_makes_impossible_loses_nothing_and_works_without_the_hook(world: World) -> None:
    write_hook(world, "post-checkout", "echo hooked > hooked.txt")
    with world.open() as swarm:
        instance = start(world, swarm)
        root = Path(instance.worktree_path)
        (root / "hooked.txt").write_text("changed by the agent\n")
        swarm.stop(instance.id)
        swarm.clean(instance.id)
        with pytest.raises(SwarmError) as refused:
            swarm.restore(instance.id)
        assert refused.value.code == "RESTORE_WOULD_OVERWRITE"
        assert swarm.find(instance.id).cleaned
        assert_agreement(world, swarm)
        (world.repo / ".git" / "hooks" / "post-checkout").unlink()
        swarm.restore(instance.id)
        assert (root / "hooked.txt").read_text() == "changed by the agent\n"
        assert_agreement(world, swarm)


def test_what_a_failed_spawn_has_made_can_be_restored(
    world: World, short_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_hook(world, "post-checkout", "echo made by the hook > made.txt")
    (short_tmp / "bin").mkdir()
    broken = short_tmp / "bin" / "codex"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{short_tmp / 'bin'}:{os.environ['PATH']}")
    with world.open() as swarm:
        with pytest.raises(SwarmError) as failed:
            swarm.work("anything", repo=str(world.repo), agent="codex")
        assert failed.value.code == "AGENT_START_FAILED"
        assert_agreement(world, swarm)
        attempt = swarm.find("work-a1")
        assert (attempt.status, attempt.cleaned) == ("failed", True)
        assert world.branches() == {"main"}
        assert not (world.home / "instances" / "work-a1").exists()
        (world.repo / ".git" / "hooks" / "post-checkout").unlink()
        restored = swarm.restore(attempt.id)
        assert (Path(restored.worktree_path) / "made.txt").read_text() == "made by the hook\n"
        assert_agreement(world, swarm)

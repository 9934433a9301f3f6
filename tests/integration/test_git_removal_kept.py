"""Worktrees that a removal keeps, and why, on real git."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from swarm_core import git
from swarm_core.errors import Conflict
from swarm_core.git import admin, removal
from swarm_core.git.ignored import going
from tests.integration.removal_fixture import Bench
from tests.support import git_run


@pytest.fixture
def bench(repo: Path, tmp_path: Path) -> Bench:
    return Bench(repo, tmp_path)


# What is not the worktree that git registered, and what only looks as if somebody wrote to it


def test_a_lock_without_a_reason_keeps_the_worktree(bench: Bench) -> None:
    git_run(bench.repo, "worktree", "lock", str(bench.path))
    error = bench.refused()
    assert error.details["reason"] == "locked"
    assert f"git worktree unlock {bench.path}" in str(error.hint)
    assert bench.path.is_dir()
    git_run(bench.repo, "worktree", "unlock", str(bench.path))
    bench.remove()
    bench.assert_gone()


def test_a_worktree_that_an_empty_folder_replaced_gives_up_what_only_its_index_has(bench: Bench) -> None:
    (bench.path / "staged.txt").write_text("only staged\n")
    git_run(bench.path, "add", "staged.txt")
    admin.remove_tree(bench.path)
    bench.path.mkdir()
    [kept] = bench.remove()
    listed = git_run(bench.repo, "rev-list", "--objects", kept.ref)
    assert "staged.txt" in listed
    bench.assert_gone()


def test_a_file_in_the_place_of_a_worktree_is_kept(bench: Bench) -> None:
    bench.path.rename(bench.path.parent / "elsewhere")
    bench.path.write_text("mine\n")
    assert bench.refused().details["reason"] == "no_folder"
    assert bench.path.read_text() == "mine\n"


@pytest.mark.parametrize("ignored", [False, True])
def test_packs_that_a_bare_clone_inside_shares_with_the_repository_do_not_count_as_written(
    bench: Bench, ignored: bool
) -> None:
    git_run(bench.repo, "gc", "-q")
    if ignored:
        (bench.repo / ".git" / "info" / "exclude").write_text("mirror.git/\n")
    git_run(bench.path, "clone", "-q", "--bare", "--local", str(bench.repo), "mirror.git")
    (bench.path / "notes.txt").write_text("mine\n")
    bench.remove()
    bench.assert_gone()
    assert bench.stored("notes.txt") == {"mine\n"}


def test_a_new_file_among_shared_packs_is_seen(bench: Bench) -> None:
    git_run(bench.repo, "gc", "-q")
    git_run(bench.path, "clone", "-q", "--bare", "--local", str(bench.repo), "mirror.git")
    bench.store()
    (bench.aside / "mirror.git" / "objects" / "pack" / "notes.txt").write_text("mine\n")
    written = removal.discard(bench.repo, bench.path, lock=bench.lock, last=False)
    assert "mirror.git/objects/pack/notes.txt" in written


# What the system does not let anybody read, move or delete


@pytest.fixture
def immutable() -> Iterator[Callable[[Path], None]]:
    made: list[Path] = []

    def change(sign: str, path: Path) -> int:
        done = subprocess.run(["chattr", f"{sign}i", str(path)], capture_output=True, check=False, timeout=20)
        return done.returncode

    def make(path: Path) -> None:
        made.append(path)
        if shutil.which("chattr") is None or change("+", path) != 0:
            pytest.skip("nothing can be made immutable here")

    yield make
    for path in made:
        for place in (path, *path.parent.parent.glob(f".*.aside/{path.name}")):
            change("-", place)


def test_a_file_that_cannot_be_deleted_keeps_the_folder_and_is_stored(
    bench: Bench, immutable: Callable[[Path], None]
) -> None:
    (bench.path / "fixed.txt").write_text("fixed\n")
    immutable(bench.path / "fixed.txt")
    for _ in range(2):
        error = bench.refused()
        assert (error.details["reason"], error.details["files"]) == ("undeletable", ["fixed.txt"])
    assert (bench.aside / "fixed.txt").read_text() == "fixed\n"
    assert bench.stored("fixed.txt") == {"fixed\n"}


def test_the_remedy_for_a_file_that_cannot_be_deleted_lets_the_next_clean_finish(
    bench: Bench, immutable: Callable[[Path], None]
) -> None:
    (bench.path / "fixed.txt").write_text("fixed\n")
    immutable(bench.path / "fixed.txt")
    for command in re.findall("`([^`]+)`", bench.refused().hint or ""):
        subprocess.run(shlex.split(command.removeprefix("sudo ")), check=True, timeout=20)
    bench.remove()
    bench.assert_gone()
    assert bench.stored("fixed.txt") == {"fixed\n"}


def test_a_file_written_beside_one_that_cannot_be_deleted_is_named_first(
    bench: Bench, immutable: Callable[[Path], None]
) -> None:
    """The remedy for the other one deletes the folder."""
    (bench.path / "fixed.txt").write_text("fixed\n")
    immutable(bench.path / "fixed.txt")
    assert bench.refused().details["reason"] == "undeletable"
    (bench.aside / "new.txt").write_text("new\n")
    error = bench.refused()
    assert (error.details["reason"], error.details["files"]) == ("left", ["new.txt"])
    (bench.aside / "new.txt").unlink()
    assert bench.refused().details["reason"] == "undeletable"


def test_a_folder_that_cannot_be_moved_is_kept_where_it_is(
    bench: Bench, immutable: Callable[[Path], None]
) -> None:
    (bench.path / "notes.txt").write_text("mine\n")
    immutable(bench.path)
    assert bench.refused().details["reason"] == "undeletable"
    assert (bench.path / "notes.txt").read_text() == "mine\n"
    assert not (bench.entry.folder / "locked").exists()


@pytest.mark.parametrize("ignored", [False, True])
@pytest.mark.parametrize("depth", [19, 25])  # the path of the file alone is too long, and that of a folder
def test_files_deeper_than_a_path_can_be_long_keep_the_folder(bench: Bench, ignored: bool, depth: int) -> None:
    if ignored:
        (bench.repo / ".git" / "info" / "exclude").write_text("deep/\n")
    make_deep(bench.path / "deep", depth)
    assert removal.hindrance(bench.repo, bench.path) in (None, removal.Hindrance(bench.path, "unreadable"))
    error = bench.refused()
    assert (error.details["reason"], error.details["path"]) == ("unreadable", str(bench.path))
    assert going(bench.path) is not None
    if depth > 20:
        assert removal.hindrance(bench.repo, bench.path) == removal.Hindrance(bench.path, "unreadable")
    assert bench.path.is_dir()
    assert not bench.aside.exists()


def make_deep(folder: Path, depth: int) -> None:
    """A file below so many folders with long names, made step by step."""
    folder.mkdir()
    fd = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("x" * 200, dir_fd=fd)
        below = os.open("x" * 200, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(os.open("y" * 250, os.O_WRONLY | os.O_CREAT, dir_fd=fd))
    os.close(fd)


@pytest.mark.parametrize("where", ["README.md", "new.txt"])
def test_a_save_after_the_clock_was_put_back_is_stored_and_not_deleted(bench: Bench, where: str) -> None:
    (bench.path / "draft.txt").write_text("stored\n")
    bench.store()
    put_clock_back(bench.entry)
    (bench.aside / where).write_text("saved later\n")
    assert where in removal.discard(bench.repo, bench.path, lock=bench.lock, last=False)
    bench.store()
    assert removal.discard(bench.repo, bench.path, lock=bench.lock) == []
    bench.assert_gone()
    assert bench.stored(where) == {"saved later\n"} | ({"# A project\n"} if where == "README.md" else set())


def test_something_staged_after_the_clock_was_put_back_keeps_the_folder(bench: Bench) -> None:
    (bench.path / "draft.txt").write_text("stored\n")
    bench.store()
    put_clock_back(bench.entry)
    git_run(bench.aside, "add", "draft.txt")
    with pytest.raises(Conflict) as caught:
        removal.discard(bench.repo, bench.path, lock=bench.lock)
    assert caught.value.details["reason"] == "writing"
    assert (bench.path / "draft.txt").exists()


def put_clock_back(entry: admin.Admin) -> None:
    """Have what is written from now on carry a time before the one that was noted."""
    stored = entry.recall(admin.STORED)
    entry.note(admin.STORED, stored | {"began": stored["began"] + 10**15})


# Objects that the repository uses and that are in the worktree


def borrow(bench: Bench) -> Path:
    """Name a clone inside the worktree as a store of objects."""
    clone = bench.path / "ignored/clone"
    git_run(bench.repo, "clone", "-q", "--no-local", str(bench.repo), str(clone))
    alternates = bench.repo / ".git/objects/info/alternates"
    alternates.parent.mkdir(exist_ok=True)
    alternates.write_text(f"# a comment\n{clone}/.git/objects\n")
    return clone / ".git/objects"


def borrow_quoted(bench: Bench) -> Path:
    store = borrow(bench)
    quoted = str(store).replace("ignored", "i\\147nored")
    (bench.repo / ".git/objects/info/alternates").write_text(f'"{quoted}"\n')
    return store


def borrow_by_another(bench: Bench) -> Path:
    """The same through a store outside, with a relative path."""
    store, outside = borrow(bench), bench.repo.parent / "outside.git"
    git_run(bench.repo, "init", "-q", "--bare", str(outside))
    (outside / "objects/info/alternates").write_text(f"{os.path.relpath(store, outside / 'objects')}\n")
    relative = os.path.relpath(outside / "objects", bench.repo / ".git/objects")
    (bench.repo / ".git/objects/info/alternates").write_text(f"{relative}\n")
    return store


def link(bench: Bench, name: str) -> Path:
    place, inside = bench.repo / ".git" / name, bench.path / "ignored" / Path(name).name
    inside.parent.mkdir()
    place.rename(inside)
    place.symlink_to(inside)
    return inside


def link_objects(bench: Bench) -> Path:
    return link(bench, "objects")


def link_packs(bench: Bench) -> Path:
    git_run(bench.repo, "gc", "-q")
    return link(bench, "objects/pack")


def link_one_pack(bench: Bench) -> Path:
    git_run(bench.repo, "gc", "-q")
    pack = next((bench.repo / ".git/objects/pack").glob("*.pack"))
    return link(bench, f"objects/pack/{pack.name}")


def link_loose(bench: Bench) -> Path:
    return link(bench, f"objects/{git.head_commit(bench.repo)[:2]}")


def link_refs(bench: Bench) -> Path:
    return link(bench, "refs")


@pytest.mark.parametrize(
    "lend",
    [borrow, borrow_quoted, borrow_by_another, link_objects, link_packs, link_one_pack, link_loose, link_refs],
)
def test_a_worktree_that_holds_what_the_repository_uses_is_kept_and_that_is_named(
    bench: Bench, lend: Callable[[Bench], Path]
) -> None:
    (bench.path / "new.txt").write_text("mine\n")
    inside = lend(bench)
    named = str(inside.relative_to(bench.path))
    found = removal.hindrance(bench.repo, bench.path)
    assert found is not None
    assert (found.path, found.reason, list(found.files)) == (bench.path, "lends", [named])
    details = bench.refused().details
    assert (details["reason"], details["files"]) == ("lends", [named])
    git_run(bench.repo, "fsck")
    assert (bench.path / "new.txt").read_text() == "mine\n"


def test_a_worktree_from_which_objects_are_borrowed_goes_after_the_remedy(bench: Bench) -> None:
    store = borrow(bench)
    blob = git_run(store.parent.parent, "hash-object", "-w", "--stdin", stdin=b"only in the clone\n")
    (bench.path / "file").write_text("only in the clone\n")
    git_run(bench.path, "add", "file")
    git_run(bench.path, "commit", "-q", "-m", "one")
    git_run(bench.path, "rm", "-q", "file")
    git_run(bench.path, "commit", "-q", "-m", "two")
    assert not (bench.repo / ".git/objects" / blob[:2] / blob[2:]).exists()
    assert "git repack -a -d" in str(bench.refused().hint)
    git_run(bench.repo, "repack", "-q", "-a", "-d")
    (bench.repo / ".git/objects/info/alternates").unlink()
    bench.remove()
    assert git_run(bench.repo, "show", "b~1:file") == "only in the clone"
    bench.assert_gone()


def test_an_alternate_that_is_gone_keeps_no_folder(bench: Bench) -> None:
    borrow(bench)
    shutil.rmtree(bench.path / "ignored")
    bench.remove()
    bench.assert_gone()


# Staged content that is nowhere any more


def stage_and_lose(bench: Bench, name: str, content: str = "staged\n") -> None:
    """Stage a file, then delete it and its object."""
    (bench.path / name).write_text(content)
    git_run(bench.path, "add", name)
    lose(bench, name)


def lose(bench: Bench, name: str) -> None:
    oid = git_run(bench.path, "rev-parse", f":{name}")
    (bench.repo / ".git/objects" / oid[:2] / oid[2:]).unlink()
    (bench.path / name).unlink()


@pytest.mark.parametrize("then", ["nothing", "the file has other content", "the file is hidden", "a merge failed"])
def test_staged_content_that_is_gone_everywhere_keeps_the_folder_until_it_is_unstaged(
    bench: Bench, then: str
) -> None:
    stage_and_lose(bench, "s")
    (bench.path / "new.txt").write_text("mine\n")
    if then == "the file has other content":
        (bench.path / "s").write_text("other\n")
    elif then == "the file is hidden":
        git_run(bench.path, "update-index", "--skip-worktree", "s")
    elif then == "a merge failed":
        oid = git_run(bench.path, "rev-parse", ":s")
        told = f"0 {'0' * 40}\ts\n100644 {oid} 2\ts\n".encode()
        git_run(bench.path, "update-index", "--index-info", stdin=told)
    found = removal.hindrance(bench.repo, bench.path)
    assert found is not None
    assert (found.path, found.reason, list(found.files)) == (bench.path, "staged_lost", ["s"])
    error = bench.refused()
    assert (error.details["reason"], error.details["files"]) == ("staged_lost", ["s"])
    assert "rm --cached" in str(error.hint)
    assert (bench.path / "new.txt").read_text() == "mine\n"
    git_run(bench.path, "rm", "-q", "--cached", "-f", "--sparse", "s")
    assert removal.hindrance(bench.repo, bench.path) is None
    bench.remove()
    bench.assert_gone()
    assert bench.stored("new.txt") == {"mine\n"}


def test_staged_content_that_another_file_has_is_stored(bench: Bench) -> None:
    stage_and_lose(bench, "s")
    (bench.path / "copy").write_text("staged\n")
    assert removal.hindrance(bench.repo, bench.path) is None
    bench.remove()
    assert bench.stored("copy") == {"staged\n"}
    bench.assert_gone()


def test_committed_content_that_is_gone_everywhere_does_not_keep_what_is_staged_beside_it(bench: Bench) -> None:
    (bench.path / "s").write_text("staged\n")
    git_run(bench.path, "add", "s")
    git_run(bench.path, "commit", "-q", "-m", "s")
    (bench.path / "t").write_text("mine\n")
    git_run(bench.path, "add", "t")
    lose(bench, "s")
    assert removal.hindrance(bench.repo, bench.path) is None
    bench.remove()
    bench.assert_gone()
    assert bench.stored("t") == {"mine\n"}

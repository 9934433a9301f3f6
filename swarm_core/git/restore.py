"""Preserved work brought back into a worktree, byte for byte, refusing to overwrite anything newer."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from swarm_core import proc
from swarm_core.errors import Conflict, NotFound
from swarm_core.git import restore_state
from swarm_core.git.changes import empty_tree, is_dirty
from swarm_core.git.checkout import Checkout, open_checkout
from swarm_core.git.command import check_swarm_ref, nul_list
from swarm_core.git.preserve import Inside, Record, read_record
from swarm_core.git.refs import branches, head_commit, ref_commit
from swarm_core.git.restore_inside import rebuild_git_dir
from swarm_core.git.restore_modules import restore_modules
from swarm_core.git.snapshot import GITLINK, LINK, hash_files, on_disk

_NOTHING = "000000"
_REPOSITORIES = ("repository", "submodule", "module")


@dataclass(frozen=True, slots=True)
class Restored:
    """Paths that were brought back, and what stays under the ref alone, in words."""

    files: list[str]
    left: list[str]


@dataclass(frozen=True, slots=True)
class _Change:
    """One path the snapshot changed: what HEAD had (`old`), what to bring back (`new`)."""

    path: str
    old_mode: str
    old: str
    mode: str
    new: str


def restore(path: str | Path, *, ref: str) -> Restored:
    """Bring a preserved snapshot back into the worktree; twice is safe.

    Staging and an operation in progress come back when the worktree is at the commit the snapshot was taken on.
    Raises NotFound (NOTHING_PRESERVED), and Conflict (RESTORE_WOULD_OVERWRITE) before anything was changed.
    """
    check_swarm_ref(ref)
    at = open_checkout(Path(path))
    commit = ref_commit(at.path, ref)
    if commit is None:
        raise NotFound(f"nothing is preserved as {ref}", code="NOTHING_PRESERVED", details={"ref": ref})
    return _restore(at, commit, ref)


def _restore(at: Checkout, commit: str, ref: str) -> Restored:
    record = read_record(at.path, commit)
    _go_to_detached(at, record)
    whole = _rebuilt_whole(at, record)
    tracked = [change for change in _changes(at, record, commit) if not change.path.startswith(whole)]
    around = (change for one in record.inside for change in _changes_inside(at, one))
    changed = [*tracked, *(change for change in around if not change.path.startswith(whole))]
    staged = restore_state.newer_staging(at, record)
    todo = _unfinished(at, changed, [one.path for one in record.nested], staged)
    for one in record.inside:
        if one.kind == "worktree":
            _make_linked(at, one)
    for change in todo:
        if change.mode == _NOTHING:
            _remove(at.path, change.path)
    for change, content in _contents(at, [change for change in todo if change.mode != _NOTHING]):
        _write(at.path, change, content)
    left = restore_state.restore_index(at, record)
    left += restore_state.restore_state(at, record)
    for one in record.inside:
        if one.kind in _REPOSITORIES:
            rebuild_git_dir(at, one)
        elif one.kind == "worktree":
            inner = open_checkout(at.path / one.path)
            left += [f"{one.path}: {what}" for what in _restore(inner, one.commit, ref).left]
    restore_modules(at.path, record.nested, ref, restore=lambda place, inner_ref: restore(place, ref=inner_ref))
    inside = [*(one.path or one.name for one in record.inside), *(one.path for one in record.nested)]
    return Restored([*(change.path for change in tracked), *inside], left)


def _go_to_detached(at: Checkout, record: Record) -> None:
    """Go back to a commit that was on no branch; HEAD of a snapshot taken on a branch is left to the caller."""
    if record.branch is not None or record.head in {None, head_commit(at.path)}:
        return
    if is_dirty(at.path):
        raise _would_overwrite(at.path, ["HEAD"])
    at.run("checkout", "--quiet", "--detach", str(record.head), "--")


def _changes(at: Checkout, record: Record, commit: str) -> list[_Change]:
    start = f"{record.head}^{{tree}}" if record.head else empty_tree(at.path)
    how = ("diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev")
    listed = nul_list(at.run(*how, start, f"{commit}^{{tree}}"))
    found = []
    for facts, name in zip(listed[::2], listed[1::2], strict=True):
        old_mode, mode, old, new, _ = facts.removeprefix(":").split(" ")
        found.append(_Change(name, old_mode, old, mode, new))
    return [change for change in found if GITLINK not in {change.mode, change.old_mode}]


def _changes_inside(at: Checkout, one: Inside) -> Iterator[_Change]:
    """The files of a repository inside, and its `.git` where that is no folder to be rebuilt."""
    if one.kind == "worktree":
        return
    above = f"{one.path}/" if one.path else ""
    for mode, oid, name in restore_state.files_of(at, one.commit):
        top, _, rest = name.partition("/")
        if top == "work":
            yield _Change(f"{above}{rest}", _NOTHING, "", mode, oid)
        elif top == "git" and (one.kind == "file" or not rest):
            yield _Change(f"{above}{one.name}{'/' if rest else ''}{rest}", _NOTHING, "", mode, oid)


def _rebuilt_whole(at: Checkout, record: Record) -> tuple[str, ...]:
    """The bare repositories that will be rebuilt, of which the snapshot may have some files as well."""
    inside = [one for one in record.inside if one.kind == "repository" and one.name.lower() != ".git"]
    names = [f"{one.path}/{one.name}" if one.path else one.name for one in inside]
    return tuple(f"{name}/" for name in names if not os.path.lexists(at.path / name))


def _make_linked(at: Checkout, one: Inside) -> None:
    """Make a linked worktree again, on its branch if that is free; before anything is put into its folder."""
    place = at.path / one.path
    record = read_record(at.path, one.commit)
    if not (place / ".git").exists() and record.head:
        place.parent.mkdir(parents=True, exist_ok=True)
        free = record.branch in branches(at.path, record.branch or "") and not _is_checked_out(at, record.branch)
        where = [str(record.branch)] if free else ["--detach", record.head]
        at.run("worktree", "add", "--quiet", "--force", str(place), *where)


def _is_checked_out(at: Checkout, branch: str | None) -> bool:
    listed = nul_list(at.run("worktree", "list", "--porcelain", "-z"))
    return f"branch refs/heads/{branch}" in listed


def _unfinished(
    at: Checkout, changed: Sequence[_Change], nested: Iterable[str], staged: Iterable[str]
) -> list[_Change]:
    """What still differs from the snapshot; raises before anything would be overwritten."""
    modes = {change.path: on_disk(at.path, change.path) for change in changed}
    there = [name for name, mode in modes.items() if mode is not None]
    raw = hash_files(at, there, write=False)
    todo = [c for c in changed if (modes[c.path] or _NOTHING, raw.get(c.path, c.new)) != (c.mode, c.new)]
    odd = [c for c in todo if c.path in raw and raw[c.path] not in {c.old, c.new}]
    as_git_stores = hash_files(at, [change.path for change in odd], write=False, filters=True)
    refused = [change.path for change in odd if as_git_stores[change.path] != change.old]
    refused += _in_the_way(at.path, changed)
    refused += [name for name in nested if _is_foreign(at.path / name)]
    refused += staged
    if refused:
        raise _would_overwrite(at.path, refused)
    return todo


def _in_the_way(root: Path, changed: Sequence[_Change]) -> list[str]:
    """Files where folders must be, and folders where files must be, that the snapshot does not know."""
    leaving = {change.path for change in changed if change.mode == _NOTHING}
    refused = []
    for change in changed:
        if change.mode == _NOTHING:
            continue
        place = root / change.path
        above = [str(parent) for parent in Path(change.path).parents if str(parent) != "."]
        refused += [name for name in above if name not in leaving and (_is_link_or_file(root / name))]
        if place.is_dir() and not place.is_symlink():
            inside = [str(file.relative_to(root)) for file in place.rglob("*") if _is_link_or_file(file)]
            refused += [name for name in inside if name not in leaving]
    return refused


def _is_link_or_file(path: Path) -> bool:
    return path.is_symlink() or path.is_file()


def _is_foreign(folder: Path) -> bool:
    """Whether something that is no repository fills the place of a nested one."""
    if _is_link_or_file(folder):
        return True
    return folder.is_dir() and not (folder / ".git").exists() and any(folder.iterdir())


def _contents(at: Checkout, changed: Sequence[_Change]) -> Iterator[tuple[_Change, bytes]]:
    wanting: dict[str, list[_Change]] = {}
    for change in changed:
        wanting.setdefault(change.new, []).append(change)
    for oid, content in restore_state.read_blobs(at, list(wanting)):
        for change in wanting[oid]:
            yield change, content


def _write(root: Path, change: _Change, content: bytes) -> None:
    """Write beside the file and rename, so that a kill leaves the old or the new one."""
    place = root / change.path
    _make_folder(place.parent)
    if place.is_dir() and not place.is_symlink():
        _remove_empty_folders(place)
    fresh = place.parent / f".swarm-restore-{secrets.token_hex(4)}"
    if change.mode == LINK:
        fresh.symlink_to(os.fsdecode(content))
    else:
        wanted = 0o777 if change.mode == "100755" else 0o666
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, wanted)
        with os.fdopen(fd, "wb") as sink:
            os.fchmod(fd, wanted & ~proc.user_umask())
            sink.write(content)
    fresh.replace(place)


def _make_folder(path: Path) -> None:
    """With the user's umask, which a server's own may differ from."""
    if not path.is_dir():
        _make_folder(path.parent)
        path.mkdir(exist_ok=True)
        path.chmod(0o777 & ~proc.user_umask())


def _remove_empty_folders(place: Path) -> None:
    for folder, _, _ in os.walk(place, topdown=False):
        Path(folder).rmdir()


def _remove(root: Path, name: str) -> None:
    if on_disk(root, name) is None:
        return
    (root / name).unlink(missing_ok=True)
    for parent in Path(name).parents:
        if str(parent) == ".":
            return
        with contextlib.suppress(OSError):  # not empty
            (root / parent).rmdir()


def _would_overwrite(root: Path, files: Iterable[str]) -> Conflict:
    names = sorted(set(files))
    return Conflict(
        f"restoring would overwrite {len(names)} file{'s' if len(names) != 1 else ''} in {root}",
        code="RESTORE_WOULD_OVERWRITE",
        hint="commit, move or unstage these files, or restore into a new worktree",
        details={"files": names},
    )

"""Preserved work brought back into a worktree, byte for byte, refusing to overwrite anything newer."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from swarm_core.errors import Conflict, NotFound
from swarm_core.git.changes import empty_tree, is_dirty
from swarm_core.git.command import LONG_TIMEOUT, _git, check_swarm_ref, in_chunks, nul_list
from swarm_core.git.preserve import Nested, Record, modules_prefix, modules_root, read_record
from swarm_core.git.refs import git_dirs, head_commit, ref_commit
from swarm_core.git.snapshot import GITLINK, LINK, hash_files, on_disk

_NOTHING = "000000"


@dataclass(frozen=True, slots=True)
class _Change:
    """One path the snapshot changed: what HEAD had (`old`), what to bring back (`new`)."""

    path: str
    old_mode: str
    old: str
    mode: str
    new: str


def restore(path: str | Path, *, ref: str) -> list[str]:
    """Bring a preserved snapshot back into the worktree and return the paths it concerns; twice is safe.

    Staging is restored when the worktree is at the commit the snapshot was taken on. Raises NotFound
    (NOTHING_PRESERVED), and Conflict (RESTORE_WOULD_OVERWRITE) before anything was changed.
    """
    check_swarm_ref(ref)
    root = Path(os.path.realpath(path))
    commit = ref_commit(root, ref)
    if commit is None:
        raise NotFound(f"nothing is preserved as {ref}", code="NOTHING_PRESERVED", details={"ref": ref})
    record = read_record(root, commit)
    _go_to_detached(root, record)
    changed = _changes(root, record, commit)
    todo = _unfinished(root, changed, record.nested)
    for change in todo:
        if change.mode == _NOTHING:
            _remove(root, change.path)
    for change, content in _contents(root, [change for change in todo if change.mode != _NOTHING]):
        _write(root, change, content)
    _restore_index(root, record)
    for nested in record.nested:
        _restore_nested(root, nested, ref)
    return [*(change.path for change in changed), *(nested.path for nested in record.nested)]


def _go_to_detached(root: Path, record: Record) -> None:
    """Go back to a commit that was on no branch; HEAD of a snapshot taken on a branch is left to the caller."""
    if record.branch is not None or record.head in {None, head_commit(root)}:
        return
    if is_dirty(root):
        raise _would_overwrite(root, ["HEAD"])
    how = ("checkout", "--quiet", "--detach", str(record.head), "--")
    _git(root, *how, timeout=LONG_TIMEOUT)


def _changes(root: Path, record: Record, commit: str) -> list[_Change]:
    start = record.head or empty_tree(root)
    how = ("diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev")
    listed = nul_list(_git(root, *how, f"{start}^{{tree}}" if record.head else start, f"{commit}^{{tree}}"))
    found = []
    for facts, name in zip(listed[::2], listed[1::2], strict=True):
        old_mode, mode, old, new, _ = facts.removeprefix(":").split(" ")
        found.append(_Change(name, old_mode, old, mode, new))
    return [change for change in found if GITLINK not in {change.mode, change.old_mode}]


def _unfinished(root: Path, changed: Sequence[_Change], nested: Iterable[Nested]) -> list[_Change]:
    """What still differs from the snapshot; raises before anything would be overwritten."""
    modes = {change.path: on_disk(root, change.path) for change in changed}
    there = [name for name, mode in modes.items() if mode is not None]
    raw = hash_files(root, there, write=False)
    todo = [c for c in changed if (modes[c.path] or _NOTHING, raw.get(c.path, c.new)) != (c.mode, c.new)]
    odd = [c for c in todo if c.path in raw and raw[c.path] not in {c.old, c.new}]
    as_git_stores = hash_files(root, [change.path for change in odd], write=False, filters=True)
    refused = [change.path for change in odd if as_git_stores[change.path] != change.old]
    refused += _in_the_way(root, changed)
    refused += [one.path for one in nested if _is_foreign(root / one.path)]
    if refused:
        raise _would_overwrite(root, refused)
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


def _contents(root: Path, changed: Sequence[_Change]) -> Iterator[tuple[_Change, bytes]]:
    by_path = {change.path: change for change in changed}
    for names in in_chunks(list(by_path)):
        asked = "".join(f"{by_path[name].new}\n" for name in names).encode()
        output = _git(root, "cat-file", "--batch", stdin=asked, timeout=LONG_TIMEOUT)
        at = 0
        for name in names:
            end_of_line = output.index(b"\n", at)
            size = int(output[at:end_of_line].rsplit(b" ", 1)[1])
            at = end_of_line + 1 + size + 1
            yield by_path[name], output[end_of_line + 1 : at - 1]


def _write(root: Path, change: _Change, content: bytes) -> None:
    """Write beside the file and rename, so that a kill leaves the old or the new one."""
    place = root / change.path
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_dir() and not place.is_symlink():
        _remove_empty_folders(place)
    fresh = place.parent / f".swarm-restore-{secrets.token_hex(4)}"
    if change.mode == LINK:
        fresh.symlink_to(os.fsdecode(content))
    else:
        wanted = 0o777 if change.mode == "100755" else 0o666
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, wanted)
        with os.fdopen(fd, "wb") as sink:
            sink.write(content)
    fresh.replace(place)


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


def _restore_index(root: Path, record: Record) -> None:
    if record.index is None or head_commit(root) != record.head:
        return
    _git(root, "read-tree", "--reset", f"{record.index}^{{tree}}")
    _git(root, "update-index", "-q", "--refresh", ok_codes=(0, 1))


def _restore_nested(root: Path, nested: Nested, ref: str) -> None:
    """Rebuild a repository that was inside the worktree from what was fetched into this one."""
    place = root / nested.path
    source = str(git_dirs(root)[1])
    prefix = modules_prefix(ref, nested.number)
    if not (place / ".git").exists():
        _rebuild(place, nested, source, ref)
    kept = [f"+{prefix}/snapshot:{ref}", f"+{prefix}/modules/*:{modules_root(ref)}/*"]
    _fetch(place, source, kept)
    restore(place, ref=ref)


def _rebuild(place: Path, nested: Nested, source: str, ref: str) -> None:
    prefix = modules_prefix(ref, nested.number)
    fresh = place.parent / f".swarm-restore-{secrets.token_hex(4)}"
    fresh.mkdir(parents=True)
    _git(fresh, "init", "--quiet", "--template=")
    _fetch(fresh, source, [f"+{prefix}/heads/*:refs/heads/*", f"+{prefix}/tags/*:refs/tags/*"])
    if ref_commit(source, f"{prefix}/stash") is not None:
        _fetch(fresh, source, [f"+{prefix}/stash:refs/stash"])
    if nested.url:
        _git(fresh, "remote", "add", "--", "origin", nested.url)
    if nested.branch:
        _git(fresh, "symbolic-ref", "HEAD", f"refs/heads/{nested.branch}")
    elif nested.head:
        _fetch(fresh, source, [f"+{prefix}/snapshot:{ref}"])
        _git(fresh, "update-ref", "--no-deref", "HEAD", nested.head)
    if nested.head:
        _git(fresh, "reset", "--hard", "--quiet", "--no-recurse-submodules", timeout=LONG_TIMEOUT)
    with contextlib.suppress(FileNotFoundError):
        place.rmdir()
    fresh.rename(place)


def _fetch(place: Path, source: str, kept: Sequence[str]) -> None:
    how = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--update-shallow", "--update-head-ok")
    _git(place, "-c", "protocol.file.allow=always", *how, source, *kept, timeout=LONG_TIMEOUT)


def _would_overwrite(root: Path, files: Iterable[str]) -> Conflict:
    names = sorted(set(files))
    return Conflict(
        f"restoring would overwrite {len(names)} file{'s' if len(names) != 1 else ''} in {root}",
        code="RESTORE_WOULD_OVERWRITE",
        hint="commit or move these files, or restore into a new worktree",
        details={"files": names},
    )

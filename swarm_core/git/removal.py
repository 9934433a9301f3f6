"""Removing a worktree in one order: verified, moved aside, stored, read back, looked at again, deleted.

A removal that was killed is found by the name of the folder aside and by what its entry under .git/worktrees
remembers, and is repeated from there. Anything unexpected keeps the folder.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from swarm_core import locks, proc
from swarm_core.errors import CommandFailed, Conflict, InvalidInput, SwarmError
from swarm_core.git import admin, special
from swarm_core.git.checkout import open_checkout
from swarm_core.git.command import _ANY_CODE, _git, _run
from swarm_core.git.history import create_branch, lost_branch
from swarm_core.git.inside import search
from swarm_core.git.preserve import Preserved, check_storable, preserve, verify_preserved
from swarm_core.git.refs import git_dirs, head_commit
from swarm_core.git.snapshot import refuse_lost
from swarm_core.git.worktrees import is_unmade, real
from swarm_core.models import KEPT, remedy

ROUNDS = 3
_NAMED = 20
_ASIDE = ".aside"
_CLOSES_WITHIN = 0.5
# Failures of storing that keep the folder, and why: one of KEPT.
_UNSTORED = {"WORK_NOT_STORED": "unreadable", "SPECIAL_FILE": "special", "TIMED_OUT": "stuck"}
_OBJECT = re.compile(r"/objects/(?:pack/pack-[0-9a-f]{40,64}\.\w+|[0-9a-f]{2}/[0-9a-f]{38,62})\Z")

Stamp = list[int]


@dataclass(frozen=True, slots=True)
class Look:
    """A folder as it was seen: the inode of each folder in it and the stamps of its files, parents first.

    `changed` are the paths written to since a moment, or since an earlier look, with their stamps.
    """

    folders: dict[str, tuple[int, dict[str, Stamp]]]
    changed: dict[str, Stamp]


@dataclass(frozen=True, slots=True)
class Hindrance:
    """A folder that may not be removed, why, which is one of KEPT, and the files that are the reason."""

    path: Path
    reason: str
    files: Sequence[str] = ()


def remove(repo: str | Path, path: str | Path, *, lock: Path, ref: str, message: str) -> list[Preserved]:
    """Remove a worktree and its registration; returns what was stored, under `ref` and refs beside it.

    Twice is safe, and a killed removal can be repeated. Raises Conflict (WORKTREE_KEPT).
    """
    stored: list[Preserved] = []
    try:
        for number in range(1, ROUNDS + 1):
            name = ref if number == 1 else f"{ref}-{number}"
            kept = store(repo, path, lock=lock, ref=name, message=message)
            stored += [kept] if kept else []
            if not discard(repo, path, lock=lock, last=number == ROUNDS):
                break
    except SwarmError:
        put_back(repo, path, lock=lock)
        raise
    return stored


def store(
    repo: str | Path, path: str | Path, *, lock: Path, ref: str, message: str, branch: str | None = None
) -> Preserved | None:
    """Move the worktree aside, store what is not committed and read that back from the repository.

    None when there is nothing to store. `branch` is made again if it was deleted under the worktree. Raises
    Conflict (WORKTREE_KEPT) before anything was changed when the folder is not the worktree that git registered.
    """
    with kept_unless_stored(repo, path, lock):
        return _store(repo, path, lock=lock, ref=ref, message=message, branch=branch)


@contextlib.contextmanager
def kept_unless_stored(repo: str | Path, path: str | Path, lock: Path) -> Iterator[None]:
    """Put the folder back and raise Conflict (WORKTREE_KEPT) when git cannot read or store what is in it."""
    try:
        yield
    except SwarmError as error:
        reason = _why_unstored(error)
        if reason is None:
            raise
        raise kept_at(_put_back_if_possible(repo, path, lock), reason, _named(error)) from error


def _store(
    repo: str | Path, path: str | Path, *, lock: Path, ref: str, message: str, branch: str | None
) -> Preserved | None:
    is_gone = _is_unmade(repo, real(path))
    if is_gone and not _stand_in(repo, real(path), lock):
        return None
    began = _moment()
    entry = set_aside(repo, path, lock=lock)
    if entry is None:
        return None
    folder = entry.path_now
    if (commit := lost_branch(folder, branch) if branch else None) is not None:
        create_branch(repo, str(branch), commit)
    known = _known_before(entry, folder, began)
    kept = preserve(folder, ref=ref, message=message, unfinished=is_gone or not entry.is_ready)
    if kept is not None:
        read_back(repo, folder, kept)
    suspects = entry.recall(admin.SUSPECTS) or {}
    entry.note(admin.STORED, {"began": began, "known": known, "suspects": suspects})
    return kept


def _known_before(entry: admin.Admin, folder: Path, began: int) -> dict[str, dict[str, Stamp]]:
    """The stamps of all files before they are stored: the worktree's, and by name those of the entries' folders.

    The clock that stamps files can be put back, or be another machine's: a moment alone does not tell what was
    written since. Nothing is known of a folder that cannot be read; the look that follows says why.
    """
    try:
        found = {"": look(folder, since=began)}
        for one in _entries_of(entry, folder):
            found[one.folder.name] = look(one.folder, since=began, is_git=True)
    except (OSError, Conflict):
        return {}
    return {name: _stamps(seen) for name, seen in found.items()}


def _stamps(seen: Look) -> dict[str, Stamp]:
    return {
        f"{folder}/{name}" if folder else name: stamp
        for folder, (_, files) in seen.folders.items()
        for name, stamp in files.items()
    }


def _put_back_if_possible(repo: str | Path, path: str | Path, lock: Path) -> Path:
    """Where the folder is then."""
    with contextlib.suppress(SwarmError):
        return put_back(repo, path, lock=lock) or real(path)
    return next((one for one in (real(path), aside_of(real(path))) if os.path.lexists(one)), real(path))


def _why_unstored(error: SwarmError) -> str | None:
    """The reason of KEPT that a failure of storing is; None when it is none."""
    reason = _UNSTORED.get(error.code)
    return str(error.details.get("reason", reason)) if reason else None


def _named(error: SwarmError) -> list[str]:
    """The files that a failure is about."""
    one = [str(error.details["path"])] if "path" in error.details else []
    return list(error.details.get("files", one))


def set_aside(repo: str | Path, path: str | Path, *, lock: Path) -> admin.Admin | None:
    """Move the verified worktree to a name beside its own, registration and all, and return its entry.

    None when there is no worktree, or when its deletion has begun. Programs that write by path no longer reach it.
    """
    place, common_dir = real(path), git_dirs(repo)[1]
    with locks.hold(lock):
        entry = _entry(common_dir, place)
        if entry is None:
            _clear_unregistered(common_dir, place)
            return None
        if entry.recall(admin.SEEN) is not None:
            return None
        aside = aside_of(place)
        if entry.path != aside and admin.linked_folder(aside) != entry.folder:
            if not os.path.lexists(place):
                return None
            _verify(entry, place, common_dir)
            if os.path.lexists(aside):
                raise kept_at(aside, "unregistered")
            entry.lock()
            try:
                place.rename(aside)
            except PermissionError as error:
                entry.unlock()
                raise kept_at(place, "undeletable") from error
        elif not os.path.lexists(aside):
            return None
        entry.register(aside)
        _follow_modules(entry, place, aside)
        _follow_inner(common_dir, place, aside)
        _verify_link(entry, aside)
        return entry


def discard(repo: str | Path, path: str | Path, *, lock: Path, last: bool = True) -> list[str]:
    """Delete a worktree that was stored; returns what was written since then, and deletes nothing in that case.

    When it is the `last` try, or a program has a file in it open for writing, the folder is put back and Conflict
    (WORKTREE_KEPT) raised. A file that is not as it was seen is never deleted.
    """
    place, common_dir = real(path), git_dirs(repo)[1]
    entry = _entry(common_dir, place)
    if entry is None:
        with locks.hold(lock):
            _clear_unregistered(common_dir, place)
        return []
    aside = aside_of(place)
    if entry.path != aside and (os.path.lexists(entry.path) or os.path.lexists(aside)):
        if not _is_unmade(repo, place):
            raise kept_at(place, "not_stored")
        _clear_unmade(entry, lock)
        return []
    seen = entry.recall(admin.SEEN)
    if seen is None and entry.path.is_dir():
        again = _look_again(repo, place, entry, lock)
        if again.changed:
            if last:
                raise kept_at(put_back(repo, path, lock=lock) or entry.path, "writing", again.changed)
            entry.note(admin.SUSPECTS, again.changed)
            return list(again.changed)
        seen = again.folders
        entry.note(admin.SEEN, seen)
    left, stuck = _delete(entry.path, seen or {})
    if new := [name for name in left if name not in stuck]:
        raise kept_at(entry.path, "left", new)
    if stuck:
        raise kept_at(entry.path, "undeletable", stuck)
    with locks.hold(lock):
        for inner in _inner(common_dir, aside):
            admin.forget(inner)
        admin.forget(entry)
    if os.path.lexists(place):
        raise kept_at(place, "recreated", _names(place))
    return []


def put_back(repo: str | Path, path: str | Path, *, lock: Path) -> Path | None:
    """Move a worktree that was set aside back to its place if that is free; returns where it is now.

    Nothing happens to one whose deletion has begun.
    """
    place, common_dir = real(path), git_dirs(repo)[1]
    with locks.hold(lock):
        entry = _entry(common_dir, place)
        if entry is None:
            return None
        aside = aside_of(place)
        if entry.recall(admin.SEEN) is None and admin.linked_folder(aside) == entry.folder:
            if os.path.lexists(place):
                return aside
            aside.rename(place)
            entry.register(place)
            _follow_modules(entry, aside, place)
            _follow_inner(common_dir, aside, place)
        if entry.path_now == place:
            entry.unlock()
        return entry.path_now


def remove_scratch(repo: str | Path, path: str | Path, *, lock: Path) -> None:
    """Remove a worktree that swarm made for itself and in which nobody works; nothing of it is stored."""
    place, common_dir = real(path), git_dirs(repo)[1]
    if place == real(repo):
        raise InvalidInput(f"{place} is the main checkout, not a linked worktree")
    aside = aside_of(place)
    with locks.hold(lock):
        entry = _entry(common_dir, place)
        if entry is None:
            _clear_unregistered(common_dir, place)
            return
        with contextlib.suppress(FileNotFoundError):
            place.rename(aside)
        admin.forget(entry)
    if os.path.lexists(aside):
        admin.remove_tree(aside)


def mismatch(repo: str | Path, path: str | Path) -> str:
    """Why the folder at `path` is not the worktree that the repository registers there, one of KEPT.

    Empty when it is, and when there is no folder.
    """
    place, common_dir = real(path), git_dirs(repo)[1]
    if not os.path.lexists(place):
        return ""
    entry = admin.find(common_dir, place)
    return "unregistered" if entry is None else _mismatch(entry, place, common_dir)


def require_registered(repo: str | Path, path: str | Path) -> None:
    """Raise Conflict (WORKTREE_MISMATCH) if a folder is at `path` that is not the worktree registered there."""
    if reason := mismatch(repo, path):
        raise Conflict(
            f"{path} cannot be used: {KEPT[reason]}",
            code="WORKTREE_MISMATCH",
            hint=f"{remedy(reason, str(path), repo=str(repo))}, then try again",
            details={"path": str(path), "reason": reason},
        )


def hindrance(repo: str | Path, path: str | Path) -> Hindrance | None:
    """What a removal would keep, and why, without changing anything; None when it would go."""
    try:
        return _hindrance_at(repo, real(path))
    except SwarmError as error:
        reason = _why_unstored(error)
        if reason is None:
            raise
        return Hindrance(real(path), reason, _named(error))


def _hindrance_at(repo: str | Path, place: Path) -> Hindrance | None:
    common_dir = git_dirs(repo)[1]
    if not os.path.lexists(place) or _is_unmade(repo, place):
        return None
    entry = admin.find(common_dir, place)
    if entry is None:
        is_aside = admin.find(common_dir, aside_of(place)) is not None
        return Hindrance(place, "recreated" if is_aside else "unregistered")
    if found := _hindrance(entry, place, common_dir):
        return found
    check_storable(place)
    if search(place).closed:
        return Hindrance(place, "unreadable")
    with contextlib.suppress(CommandFailed):  # a damaged repository; storing says what it is
        refuse_lost(open_checkout(place), head=head_commit(place))
    return None


def aside_of(place: Path) -> Path:
    """Where a worktree is while it is being removed."""
    return place.parent / f".{place.name}{_ASIDE}"


def place_of(folder: Path) -> Path:
    """The place of a worktree that may have been set aside."""
    is_aside = folder.name.startswith(".") and folder.name.endswith(_ASIDE)
    return folder.parent / folder.name[1 : -len(_ASIDE)] if is_aside else folder


def places_aside(folder: Path) -> list[Path]:
    """The places of the worktrees in a folder that were set aside."""
    return sorted(place_of(path) for path in folder.glob(f".*{_ASIDE}")) if folder.is_dir() else []


def kept_at(path: Path, reason: str, files: Sequence[str] | dict[str, Stamp] = ()) -> Conflict:
    named = list(files)[:_NAMED]
    return Conflict(
        f"{path} is kept: {KEPT[reason]}{': ' + ', '.join(named[:3]) if named else ''}",
        code="WORKTREE_KEPT",
        hint=f"{remedy(reason, str(path), named)}, then clean again",
        details={"path": str(path), "reason": reason, "files": named},
    )


def _entry(common_dir: Path, place: Path) -> admin.Admin | None:
    return admin.find(common_dir, place) or admin.find(common_dir, aside_of(place))


def _is_unmade(repo: str | Path, place: Path) -> bool:
    return is_unmade(repo, place) and not os.path.lexists(aside_of(place))


def _moment() -> int:
    """A time that every later change of a file carries at least, and no earlier one does."""
    if not hasattr(time, "CLOCK_REALTIME_COARSE"):
        return time.time_ns()
    before = time.clock_gettime_ns(time.CLOCK_REALTIME_COARSE)
    while (now := time.clock_gettime_ns(time.CLOCK_REALTIME_COARSE)) == before:  # the kernel's next tick
        time.sleep(0.0005)
    return now


def _clear_unregistered(common_dir: Path, place: Path) -> None:
    """Clear what a killed attempt left where no worktree is registered; anything else is kept."""
    if os.path.lexists(aside_of(place)):
        raise kept_at(aside_of(place), "unregistered")
    try:
        admin.clear_leftovers(common_dir, place)
    except Conflict as error:
        raise kept_at(place, "unregistered") from error
    with contextlib.suppress(FileNotFoundError):
        place.rmdir()
    with contextlib.suppress(OSError):  # what a killed `forget` leaves at last is empty
        (common_dir / "worktrees" / place.name).rmdir()
    with contextlib.suppress(OSError):
        (common_dir / "worktrees").rmdir()


def _stand_in(repo: str | Path, place: Path, lock: Path) -> bool:
    """Make an empty folder for a worktree whose own was deleted, so that what git has of it can be stored."""
    common_dir, aside = git_dirs(repo)[1], aside_of(place)
    with locks.hold(lock):
        entry = admin.find(common_dir, place)
        if entry is None or not entry.is_ready or not entry.head:
            return False
        with contextlib.suppress(FileNotFoundError):
            place.rmdir()  # of one that is not empty, nothing was deleted
        aside.mkdir(mode=0o700)
        (aside / ".git").write_bytes(b"gitdir: " + os.fsencode(entry.folder) + b"\n")
        entry.lock()
        entry.register(aside)
        return True


def _clear_unmade(entry: admin.Admin, lock: Path) -> None:
    with locks.hold(lock):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            (entry.path / ".git").unlink()
        with contextlib.suppress(FileNotFoundError):
            entry.path.rmdir()
        admin.forget(entry)


def _verify(entry: admin.Admin, place: Path, common_dir: Path) -> None:
    """Raise unless the folder is the worktree that the entry registers, and git works in it alone."""
    if found := _hindrance(entry, place, common_dir):
        raise kept_at(found.path, found.reason, found.files)


def _hindrance(entry: admin.Admin, place: Path, common_dir: Path) -> Hindrance | None:
    facts = place.lstat()
    if stat.S_ISDIR(facts.st_mode) and facts.st_dev != place.parent.lstat().st_dev:
        return Hindrance(place, "other_device")
    for one in (entry, *_inner(common_dir, place)):
        if one.is_locked:
            return Hindrance(place if one is entry else one.path, "locked")
    if common_dir.is_relative_to(place):
        return Hindrance(place, "holds_repository")
    if lent := admin.lent(common_dir, place):
        return Hindrance(place, "lends", lent)
    if stat.S_ISDIR(facts.st_mode) and not _link_mismatch(entry, place) and (found := special.search(place)):
        return Hindrance(place, "special", found)
    reason = _mismatch(entry, place, common_dir)
    return Hindrance(place, reason) if reason else None


def _mismatch(entry: admin.Admin, place: Path, common_dir: Path) -> str:
    """Why the folder is not the worktree that the entry registers, one of KEPT; empty when it is."""
    if not stat.S_ISDIR(place.lstat().st_mode):
        return "no_folder"
    if reason := _link_mismatch(entry, place):
        return reason
    how = ("rev-parse", "--path-format=absolute", "--show-toplevel", "--git-dir", "--git-common-dir")
    found = _run(place, *how, ok_codes=_ANY_CODE)
    is_right = found.stdout == os.fsencode(f"{place}\n{entry.folder}\n{common_dir}\n")
    return "" if is_right else "works_elsewhere"


def _link_mismatch(entry: admin.Admin, folder: Path) -> str:
    dot_git = folder / ".git"
    if not os.path.lexists(dot_git):
        return "no_link"
    is_file = stat.S_ISREG(dot_git.lstat().st_mode)
    return "" if is_file and admin.linked_folder(folder) == entry.folder else "bent_link"


def _verify_link(entry: admin.Admin, folder: Path) -> None:
    if reason := _link_mismatch(entry, folder):
        raise kept_at(folder, reason)


def _follow_modules(entry: admin.Admin, old: Path, new: Path) -> None:
    """Tell the submodules' repositories, which git keeps in the entry, where their files are now."""
    for config in (entry.folder / "modules").rglob("config"):
        if not (config.parent / "HEAD").is_file():
            continue
        found = _git(entry.folder, "config", "--file", str(config), "core.worktree", ok_codes=(0, 1))
        files = Path(os.path.normpath(config.parent / os.fsdecode(found).rstrip("\n")))
        if found and files.is_relative_to(old):
            moved = os.path.relpath(new / files.relative_to(old), config.parent)
            _git(entry.folder, "config", "--file", str(config), "core.worktree", moved)


def _inner(common_dir: Path, folder: Path) -> list[admin.Admin]:
    """Worktrees of the same repository that are registered inside this one."""
    return [entry for entry in admin.all_entries(common_dir) if folder in entry.path.parents]


def _entries_of(entry: admin.Admin, folder: Path) -> list[admin.Admin]:
    """The entry of the worktree in the folder, and those of worktrees inside it."""
    return [entry, *_inner(entry.folder.parents[1], folder)]


def _follow_inner(common_dir: Path, old: Path, new: Path) -> None:
    """Register the worktrees inside a moved one where they are now, so that pruning leaves them alone."""
    for inner in _inner(common_dir, old):
        inner.relocate(new / inner.path.relative_to(old))


def read_back(repo: str | Path, folder: Path, kept: Preserved) -> None:
    """Raise unless the repository itself, asked past the worktree, has all that was stored."""
    try:
        verify_preserved(repo, kept)
    except Conflict as error:
        raise kept_at(folder, "not_stored") from error


def _look_again(repo: str | Path, place: Path, entry: admin.Admin, lock: Path) -> Look:
    """See everything in the folder, and what of it or of its entry was written to since it was stored."""
    stored = entry.recall(admin.STORED)
    if not isinstance(stored, dict):
        raise kept_at(put_back(repo, place, lock=lock) or entry.path, "not_stored")
    if held := _held_open(entry.path):
        raise kept_at(put_back(repo, place, lock=lock) or entry.path, "open", held)
    since, known = int(stored["began"]), stored.get("known", {})
    try:
        found = look(entry.path, since=since, known=known.get(""))
    except OSError as error:
        name = str(error.filename).removeprefix(f"{entry.path}/")
        raise kept_at(put_back(repo, place, lock=lock) or entry.path, "unreadable", [name]) from error
    changed = dict(found.changed)
    for one in _entries_of(entry, entry.path):
        own = look(one.folder, since=since, known=known.get(one.folder.name), is_git=True).changed
        below = one.path.relative_to(entry.path) / ".git"
        changed |= {f"{below}/{name}": stamp for name, stamp in own.items() if not admin.is_ours(name)}
    suspects = stored["suspects"]
    return Look(found.folders, {name: stamp for name, stamp in changed.items() if suspects.get(name) != stamp})


def _held_open(folder: Path) -> list[str]:
    """Files that a program still has open for writing, after a moment in which it may close them."""
    deadline = time.monotonic() + _CLOSES_WITHIN
    while (found := proc.open_for_writing(folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def look(root: Path, *, since: int, known: Mapping[str, Stamp] | None = None, is_git: bool = False) -> Look:
    """Walk a folder without leaving its device; in a repository the folders' own times do not count.

    `known` are the stamps of an earlier look: a file with another one was written to, whatever its time is.
    """
    device = root.lstat().st_dev
    if mounts := proc.mounts_below(root):
        raise kept_at(Path(mounts[0]), "other_device")
    found = Look({}, {})
    waiting: list[tuple[str, int, bool]] = [("", root.lstat().st_ino, is_git)]
    while waiting:
        name, inode, in_git = waiting.pop()
        files: dict[str, Stamp] = {}
        found.folders[name] = (inode, files)
        with os.scandir(root / name) as entries:
            for one in entries:
                facts = one.stat(follow_symlinks=False)
                path = f"{name}/{one.name}" if name else one.name
                stamp = _stamp(facts)
                is_folder = stat.S_ISDIR(facts.st_mode)
                is_new = known is not None and not is_folder and known.get(path) != stamp
                is_written = is_new or (facts.st_ctime_ns >= since and not (is_folder and in_git))
                if is_written and not _is_shared_object(path, facts):
                    found.changed[path] = stamp
                if not is_folder:
                    files[one.name] = stamp
                    continue
                if facts.st_dev != device:
                    raise kept_at(root / path, "other_device")
                waiting.append((path, facts.st_ino, in_git or one.name == ".git"))
    return found


def _is_shared_object(path: str, facts: os.stat_result) -> bool:
    """Whether it is a git object that another repository has by a hard link; git renews its times from there."""
    is_shared = stat.S_ISREG(facts.st_mode) and facts.st_nlink > 1 and not facts.st_mode & 0o222
    return is_shared and _OBJECT.search(f"/{path}") is not None


def _stamp(facts: os.stat_result) -> Stamp:
    return [facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns]


def _delete(root: Path, seen: dict[str, tuple[int, dict[str, Stamp]]]) -> tuple[list[str], list[str]]:
    """Delete what was seen and is still the same, the innermost first; returns what is left and what cannot go."""
    left: list[str] = []
    stuck: list[str] = []
    for name, (inode, files) in reversed(seen.items()):
        folder = root / name
        try:
            fd = _open_folder(folder)
        except FileNotFoundError:
            continue
        except OSError:  # a link took its place, or it cannot be opened
            left.append(name)
            continue
        try:
            if os.fstat(fd).st_ino != inode:
                left.append(name)
                continue
            _unlink(fd, files, name, left, stuck)
        finally:
            os.close(fd)
        with contextlib.suppress(OSError):
            folder.rmdir()
    return left or (_names(root) if os.path.lexists(root) else []), stuck


def _open_folder(folder: Path) -> int:
    """Open a folder for deleting in it; one that is closed even to its owner is opened up."""
    how = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(folder, how)
    except PermissionError:
        folder.chmod(stat.S_IRWXU)
        fd = os.open(folder, how)
    mode = os.fstat(fd).st_mode
    if mode & stat.S_IRWXU != stat.S_IRWXU:
        os.fchmod(fd, mode | stat.S_IRWXU)
    return fd


def _unlink(fd: int, files: dict[str, Stamp], folder: str, left: list[str], stuck: list[str]) -> None:
    for name, stamp in files.items():
        path = f"{folder}/{name}" if folder else name
        try:
            if _stamp(os.stat(name, dir_fd=fd, follow_symlinks=False)) == stamp:
                os.unlink(name, dir_fd=fd)
            else:
                left.append(path)
        except FileNotFoundError:
            continue
        except PermissionError:  # an immutable file, or one in an immutable folder
            stuck.append(path)


def _names(root: Path) -> list[str]:
    """The first files in a folder, or the folder itself when it has none."""
    if root.is_symlink() or not root.is_dir():
        return [root.name]
    found = []
    for folder, _, names in os.walk(root):
        found += [str((Path(folder) / name).relative_to(root)) for name in names]
        if len(found) >= _NAMED:
            break
    return sorted(found)[:_NAMED] or ["."]

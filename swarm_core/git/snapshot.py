"""A worktree's files as they are on disk, turned into trees byte for byte.

git's filters (line ends, LFS, ident) would change content on the way in, so files are hashed without them into
a copy of the index; starting from the index keeps files that are tracked and ignored at the same time.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from swarm_core.errors import CommandFailed, Conflict, SwarmError
from swarm_core.git.checkout import Checkout, open_checkout
from swarm_core.git.command import in_chunks, nul_list
from swarm_core.git.refs import head_commit

GITLINK = "160000"
LINK = "120000"
_FILES = ("100644", "100755")
_ATTEMPTS = 3
_LATER = 4_000_000_000  # a time that no file has, in 2096
_INTENDED = 1 << 29  # the flag of `git add --intent-to-add`
_WORD = 0xFFFFFFFF
_SMALL = 1 << 20
_AT_ONCE = 32 << 20
_ENTRY = re.compile(
    rb"(\S) (\d+) ([0-9a-f]+) (\d)\t([^\0]*)\0"
    rb"  ctime: (\d+):(\d+)\n  mtime: (\d+):(\d+)\n  dev: \d+\tino: (\d+)\n"
    rb"  uid: \d+\tgid: \d+\n  size: (\d+)\tflags: ([0-9a-f]+)\n"
)


class Entry(NamedTuple):
    """One index entry: `flag` is the letter of `git ls-files -v`; times are in nanoseconds."""

    mode: str
    oid: str
    stage: str
    flag: str
    ctime: int
    mtime: int
    inode: int
    size: int
    intended: bool

    @property
    def hidden(self) -> bool:
        """Whether git does not expect a file: assume-unchanged (lower case) or skip-worktree."""
        return self.flag.islower() or self.flag == "S"


Entries = dict[str, list[Entry]]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The trees of the files and of the index, and what they leave out.

    The index is None when it could not be read. With unmerged entries its tree has a folder per stage. `rescued`
    are objects that the index or HEAD names and the repository has lost, written again. `written` are all that
    were written, but for the trees of folders that the repository has.
    """

    tree: str
    index_tree: str | None
    stages: bool
    submodules: dict[str, str]
    nested: list[str]
    rescued: list[str]
    written: list[str]


def take(at: Checkout, *, head: str | None) -> Snapshot:
    """Write the content of the folder as objects; repeated when files vanish or change while it reads.

    The worktree, its index and all refs stay as they are. Raises Conflict (WORK_NOT_STORED).
    """
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return _take(at, head)
        except (CommandFailed, Conflict):
            if attempt == _ATTEMPTS:
                raise
    raise AssertionError("unreachable")


def differs(at: Checkout, head: str) -> bool:
    """Whether the files or the index are not those of the commit; writes no object, and so renews none."""
    with _scratch_index(at, head) as (env, entries, refreshed_at):
        fresh = at.run("ls-files", "--others", "--exclude-standard", "-z", env=env)
        present, gone, same = _compare(at, entries, refreshed_at)
        if fresh or gone or refreshed_at is None or _moved(at.path, initialised_submodules(at.path, entries)):
            return True
        if at.run("diff-index", "--cached", "--raw", "--no-renames", head, "--", env=env):
            return True
        if _lost(at, entries, same | present) or not _has_folders(at, head):
            return True
        oids = hash_files(at, list(present), write=False)
        known = {name: (entries[name][0].mode, entries[name][0].oid) for name in present}
        intended = any(entries[name][0].intended for name in present)
        return intended or any(known[name] != (mode, oids[name]) for name, mode in present.items())


def refuse_lost(at: Checkout, *, head: str | None) -> None:
    """Raise Conflict (WORK_NOT_STORED) for staged content that neither the repository nor a file has any more.

    Writes nothing.
    """
    with _scratch_index(at, head) as (env, entries, _):
        lost = _staged_and_missing(at, env, entries, head)
        if not lost:
            return
        listed = nul_list(at.run("ls-files", "--cached", "--others", "--exclude-standard", "-z", env=env))
        names = list(_present(at.path, [name for name in listed if not name.endswith("/")]))
        _refuse_staged(lost, set(hash_files(at, names, write=False).values()))


def not_stored(what: str, files: Iterable[str], *, reason: str = "unreadable") -> Conflict:
    """Return the error; `reason`, one of KEPT, says why a removal keeps the folder."""
    names = sorted(set(files))
    return Conflict(
        f"the folder stays, because {what}: {', '.join(names[:5])}{' ...' if len(names) > 5 else ''}",
        code="WORK_NOT_STORED",
        hint="look at these files in the worktree, then try again",
        details={"files": names, "reason": reason},
    )


def hash_files(at: Checkout, names: Sequence[str], *, write: bool, filters: bool = False) -> dict[str, str]:
    """The blob ids of files and links as they are on disk (or as git would store them: `filters`)."""
    links = [name for name in names if _is_link(str(at.path), name)]
    linked = set(links)
    plain = [name for name in names if name not in linked]
    how = [*(["-w"] if write else []), *([] if filters else ["--no-filters"])]
    found: dict[str, str] = {}
    by_line = [name for name in plain if not _needs_argument(name)]
    if by_line:
        asked = b"".join(os.fsencode(name) + b"\n" for name in by_line)
        answer = at.run("hash-object", *how, "--stdin-paths", stdin=asked)
        found.update(zip(by_line, answer.decode().split(), strict=True))
    for some in in_chunks([name for name in plain if _needs_argument(name)]):
        found.update(zip(some, at.line("hash-object", *how, "--", *some).split(), strict=True))
    found.update(_hash_links(at, links, write=write))
    return found


def store_files(at: Checkout, names: Sequence[str]) -> dict[str, str]:
    """Write files and links as blobs; raises Conflict (WORK_NOT_STORED) for what changes or cannot be read."""
    root = str(at.path)
    before = {name: _stamp(root, name) for name in names}
    regular = [name for name, stamp in before.items() if stamp and not stat.S_ISLNK(stamp[0])]
    closed = [name for name in regular if not os.access(_join(root, name), os.R_OK)]
    if closed:
        raise not_stored("files cannot be read", closed)
    try:
        oids = _store(at, before)
    except (CommandFailed, OSError) as error:
        _refuse_changed(root, before, error)
        raise
    _refuse_changed(root, before)
    return oids


def on_disk(path: Path, name: str) -> str | None:
    """The mode git would see at `name`: None when nothing, a folder, or something behind a link is there."""
    place = path / name
    for parent in place.relative_to(path).parents:
        if (path / parent).is_symlink() and parent != Path():
            return None
    facts = _lstat(str(place))
    return _mode(facts) if facts else None


def tree_of(at: Checkout, lines: Iterable[tuple[str, str, str]]) -> str:
    """Write the tree with exactly these (mode, object, path); the objects may be elsewhere."""
    with tempfile.TemporaryDirectory(prefix="swarm-index-") as folder:
        env = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
        update_index(at, env, lines)
        return at.line("write-tree", "--missing-ok", env=env)


def update_index(at: Checkout, env: Mapping[str, str], lines: Iterable[tuple[str, str, str]]) -> None:
    told = "".join(f"{mode} {oid}\t{name}\0" for mode, oid, name in lines)
    _trust_times(env)
    at.run("update-index", "-z", "--index-info", env=env, stdin=os.fsencode(told))


def _write_tree(at: Checkout, env: Mapping[str, str]) -> str:
    """Write the tree of an index in which only content is missing that HEAD misses too."""
    _trust_times(env)
    return at.line("write-tree", "--missing-ok", env=env)


def _trust_times(env: Mapping[str, str]) -> None:
    """Have git take no entry for one that changed in the moment the index was written.

    When it writes an index it reads such files again, through the clean filters of the agent.
    """
    with contextlib.suppress(FileNotFoundError):
        os.utime(env["GIT_INDEX_FILE"], (_LATER, _LATER))


def read_entries(at: Checkout, env: Mapping[str, str] | None = None) -> Entries:
    """Every entry of the index by path; unmerged paths have several."""
    found: Entries = {}
    for match in _ENTRY.finditer(at.run("ls-files", "--stage", "-v", "--debug", "-z", env=env)):
        flag, mode, oid, stage, name, *numbers, flags = match.groups()
        ctime, ctime_ns, mtime, mtime_ns, inode, size = (int(number) for number in numbers)
        entry = Entry(
            mode.decode(),
            oid.decode(),
            stage.decode(),
            flag.decode(),
            ctime * 10**9 + ctime_ns,
            mtime * 10**9 + mtime_ns,
            inode,
            size,
            bool(int(flags, 16) & _INTENDED),
        )
        found.setdefault(os.fsdecode(name), []).append(entry)
    return found


def index_entries(path: Path) -> Entries:
    return read_entries(open_checkout(path))


def initialised_submodules(path: Path, entries: Entries) -> dict[str, str]:
    """Submodules that have a repository in the worktree, with the commit the index records."""
    links = {name: found[0].oid for name, found in entries.items() if found[0].mode == GITLINK}
    return {name: oid for name, oid in links.items() if (path / name / ".git").exists()}


def is_named_like_git(name: str) -> bool:
    """Whether a part of the path is `.git` in any case, which no index takes."""
    return ".git" in name.lower().split("/")


def _take(at: Checkout, head: str | None) -> Snapshot:
    has_folders = head is None or _has_folders(at, head)
    with _scratch_index(at, head) as (env, entries, refreshed_at):
        fresh = nul_list(at.run("ls-files", "--others", "--exclude-standard", "-z", env=env))
        present, gone, same = _compare(at, entries, refreshed_at)
        lost = _lost(at, entries, same | present)
        present |= lost
        present |= _present(at.path, [name for name in fresh if not name.endswith("/")])
        lost |= _lost_outside(at, env, head)
        oids = store_files(at, [*present, *(name for name in lost if name not in present)])
        _refuse_staged(_staged_and_missing(at, env, entries, head), set(oids.values()))
        unmerged = [name for name, found in entries.items() if found[0].stage != "0"]
        index_tree = _index_tree(at, env, entries, stages=bool(unmerged)) if refreshed_at is not None else None
        submodules = initialised_submodules(at.path, entries)
        lines = [("0", "0" * len(entries[name][0].oid), name) for name in (*gone, *unmerged)]
        lines += [(mode, oids[name], name) for name, mode in present.items()]
        lines += [(GITLINK, commit, name) for name, commit in _moved(at.path, submodules).items()]
        if lines:
            update_index(at, env, lines)
        tree = _write_tree(at, env) if lines or index_tree is None else index_tree
    nested = [name.rstrip("/") for name in fresh if name.endswith("/")]
    folders = [] if has_folders else _folders(at, tree)
    rescued = [*(oids[name] for name in lost), *folders]
    return Snapshot(tree, index_tree, bool(unmerged), submodules, nested, rescued, [*oids.values(), *folders])


@contextlib.contextmanager
def _scratch_index(at: Checkout, head: str | None) -> Iterator[tuple[dict[str, str], Entries, int | None]]:
    """A copy of the index, its entries, and since when a file may have changed unnoticed by its stat data.

    A missing or damaged index gives way to HEAD's files, of which nothing is known (None).
    """
    with tempfile.TemporaryDirectory(prefix="swarm-index-") as folder:
        copy = Path(folder) / "index"
        env = {"GIT_INDEX_FILE": str(copy)}
        read = _copy_index(at, copy)
        if read is not None:
            yield env, *read
            return
        copy.unlink(missing_ok=True)
        at.run("read-tree", *([head] if head else ["--empty"]), env=env)
        yield env, read_entries(at, env), None if head else 0


def _copy_index(at: Checkout, copy: Path) -> tuple[Entries, int] | None:
    try:
        refreshed_at = at.index.stat().st_mtime_ns
        shutil.copyfile(at.index, copy)
        entries = read_entries(at, {"GIT_INDEX_FILE": str(copy)})
    except (FileNotFoundError, CommandFailed):
        return None
    if not copy.stat().st_size:
        return None
    return entries, 0 if any(at.git_dir.glob("sharedindex.*")) else refreshed_at


def _compare(
    at: Checkout, entries: Entries, refreshed_at: int | None
) -> tuple[dict[str, str], list[str], dict[str, str]]:
    """Tracked files that may differ from the index, with their modes, those that are gone, and the unchanged.

    Stat data are compared here and not by git, which would follow settings and run filters of the agent.
    """
    folders: dict[str, bool] = {"": True}
    root = str(at.path)
    kinds = {_mode(facts) for facts in [_lstat(f"{root}/.git")] if facts}
    odd: dict[str, os.stat_result] = {}
    present: dict[str, str] = {}
    gone: list[str] = []
    same: dict[str, str] = {}
    for name, found in entries.items():
        entry = found[0]
        if entry.mode == GITLINK:
            continue
        facts = _lstat(f"{root}/{name}") if _is_folder(root, name.rpartition("/")[0], folders) else None
        mode = _mode(facts) if facts else None
        if facts is None or mode is None:
            if not entry.hidden or entry.stage != "0":
                gone.append(name)
            continue
        kinds.add(mode)
        if mode != entry.mode and LINK not in {mode, entry.mode}:
            odd[name] = facts
        if entry.stage != "0" or not _is_unchanged(entry, mode, facts, refreshed_at):
            present[name] = mode
        else:
            same[name] = mode
    for name, facts in odd.items() if odd and not _has_modes(at, kinds) else ():
        entry = entries[name][0]
        present[name] = entry.mode
        if entry.stage == "0" and _is_unchanged(entry, entry.mode, facts, refreshed_at):
            same[name] = present.pop(name)
    return present, gone, same


def _lost(at: Checkout, entries: Entries, there: Mapping[str, str]) -> dict[str, str]:
    """Of the tracked files those whose content in the index the repository has not, or cannot read, any more."""
    if not there:
        return {}
    missing = _missing(at, {entries[name][0].oid for name in there})
    return {name: mode for name, mode in there.items() if entries[name][0].oid in missing}


def _lost_outside(at: Checkout, env: Mapping[str, str], head: str | None) -> dict[str, str]:
    """Files on disk that are in HEAD and not in the index, whose content in HEAD the repository has lost."""
    if head is None:
        return {}
    how = ("diff-index", "--cached", "--raw", "--no-renames", "--diff-filter=D", "-z", head, "--")
    told = nul_list(at.run(*how, env=env, ok_codes=(0, 128)))
    oids = {name: fields.split()[2] for fields, name in zip(told[::2], told[1::2], strict=True)}
    missing = _missing(at, set(oids.values())) if oids else set()
    return _present(at.path, [name for name, oid in oids.items() if oid in missing])


def _has_folders(at: Checkout, head: str) -> bool:
    """Whether the repository has every tree of the commit; what it lost is written again from the index."""
    try:
        _folders(at, head)
    except CommandFailed:
        return False
    return True


def _folders(at: Checkout, tree: str) -> list[str]:
    """The tree and those of all folders in it."""
    top = at.line("rev-parse", "--verify", f"{tree}^{{tree}}")
    return [top, *at.run("ls-tree", "-r", "-d", "--object-only", tree).decode().split()]


def _staged_and_missing(
    at: Checkout, env: Mapping[str, str], entries: Entries, head: str | None
) -> dict[str, set[str]]:
    """The blobs that are staged, are not HEAD's and that the repository has lost, by path."""
    names = list(entries)
    if head is not None:
        how = ("diff-index", "--cached", "--name-only", "--no-renames", "-z", head, "--")
        names = [name for name in nul_list(at.run(*how, env=env, ok_codes=(0, 128))) if name in entries]
    staged = {
        name: {one.oid for one in entries[name] if one.mode != GITLINK and not one.intended} for name in names
    }
    asked = set().union(*staged.values())
    missing = _missing(at, asked) if asked else set()
    return {name: oids & missing for name, oids in staged.items() if oids & missing}


def _refuse_staged(lost: Mapping[str, set[str]], on_disk: set[str]) -> None:
    if names := [name for name, oids in lost.items() if oids - on_disk]:
        raise not_stored("staged content is gone", names, reason="staged_lost")


def _missing(at: Checkout, oids: Iterable[str]) -> set[str]:
    """Of these blobs those that the repository has not, or cannot read, any more."""
    asked = list(oids)
    told = at.run("cat-file", "--batch-check=%(objecttype)", stdin="".join(f"{oid}\n" for oid in asked).encode())
    return {oid for oid, kind in zip(asked, told.splitlines(), strict=True) if kind != b"blob"}


def _has_modes(at: Checkout, kinds: Container[str | None]) -> bool:
    """Whether the file system keeps executable bits: it does where files of both kinds are seen.

    Otherwise `core.fileMode` says it, which an agent can set too.
    """
    if all(mode in kinds for mode in _FILES):
        return True
    told = at.run("config", "--type=bool", "--get", "core.fileMode", ok_codes=(0, 1, 128))
    return told.strip() != b"false"


def _is_unchanged(entry: Entry, mode: str, facts: os.stat_result, refreshed_at: int | None) -> bool:
    if entry.intended or refreshed_at is None or entry.mtime >= refreshed_at or entry.mode != mode:
        return False
    known = entry.ctime, entry.mtime, entry.inode, entry.size
    return known == (facts.st_ctime_ns, facts.st_mtime_ns, facts.st_ino & _WORD, facts.st_size & _WORD)


def _is_folder(root: str, name: str, known: dict[str, bool]) -> bool:
    """Whether the path leads through folders only, and through no link."""
    if name not in known:
        facts = _lstat(f"{root}/{name}") if _is_folder(root, name.rpartition("/")[0], known) else None
        known[name] = facts is not None and stat.S_ISDIR(facts.st_mode)
    return known[name]


def _present(path: Path, names: Iterable[str]) -> dict[str, str]:
    modes = {name: on_disk(path, name) for name in names if not is_named_like_git(name)}
    return {name: mode for name, mode in modes.items() if mode is not None}


def _index_tree(at: Checkout, env: Mapping[str, str], entries: Entries, *, stages: bool) -> str:
    if not stages:
        return _write_tree(at, env)
    staged = [(name, entry) for name, found in entries.items() for entry in found if not entry.intended]
    return tree_of(at, [(entry.mode, entry.oid, f"{entry.stage}/{name}") for name, entry in staged])


def _moved(path: Path, submodules: Mapping[str, str]) -> dict[str, str]:
    """Submodules that are at another commit than the index records."""
    heads = {name: _head_of(path / name) for name in submodules}
    return {name: head for name, head in heads.items() if head not in {"", submodules[name]}}


def _head_of(path: Path) -> str:
    try:
        return head_commit(path) or ""
    except SwarmError:
        return ""


def _store(at: Checkout, stamps: Mapping[str, tuple[int, ...]]) -> dict[str, str]:
    """Write small files as packs, which is several times faster than one object file each."""
    small = [name for name, stamp in stamps.items() if stamp and stamp[2] <= _SMALL]
    chosen = set(small)
    found = hash_files(at, [name for name in stamps if name not in chosen], write=True)
    batch: list[str] = []
    waiting = 0
    for name in small:
        batch.append(name)
        waiting += stamps[name][2]
        if waiting > _AT_ONCE:
            found |= _import(at, batch)
            batch, waiting = [], 0
    return found | _import(at, batch)


def _import(at: Checkout, names: Sequence[str]) -> dict[str, str]:
    if not names:
        return {}
    contents = [_read(_join(str(at.path), name)) for name in names]
    told = [b"blob\nmark :%d\ndata %d\n%s\n" % (n, len(c), c) for n, c in enumerate(contents, start=1)]
    with tempfile.TemporaryDirectory(prefix="swarm-marks-") as folder:
        marks = Path(folder) / "marks"
        how = ("fast-import", "--quiet", "--depth=0", f"--export-marks={marks}")
        at.run("-c", "fastimport.unpackLimit=0", "-c", "pack.compression=1", *how, stdin=b"".join(told))
        pairs = [line.split() for line in marks.read_text().splitlines()]
    return {names[int(mark[1:]) - 1]: oid for mark, oid in pairs}


def _read(place: str) -> bytes:
    """A link's target or a file's content; nothing else is opened, not even for a moment."""
    facts = os.lstat(place)
    if stat.S_ISLNK(facts.st_mode):
        return os.fsencode(Path(place).readlink())
    fd = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as source:
        return source.read()


def _refuse_changed(root: str, before: Mapping[str, tuple[int, ...]], cause: Exception | None = None) -> None:
    changed = [name for name, stamp in before.items() if _stamp(root, name) != stamp]
    if changed:
        raise not_stored("files change while they are being stored", changed) from cause


def _stamp(root: str, name: str) -> tuple[int, ...]:
    facts = _lstat(_join(root, name))
    return (facts.st_mode, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns) if facts else ()


def _is_link(root: str, name: str) -> bool:
    facts = _lstat(_join(root, name))
    return facts is not None and stat.S_ISLNK(facts.st_mode)


def _join(root: str, name: str) -> str:
    return name if name.startswith("/") else f"{root}/{name}"


def _lstat(place: str) -> os.stat_result | None:
    try:
        return os.lstat(place)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _mode(facts: os.stat_result) -> str | None:
    if stat.S_ISLNK(facts.st_mode):
        return LINK
    if stat.S_ISREG(facts.st_mode):
        return "100755" if facts.st_mode & stat.S_IXUSR else "100644"
    return None


def _needs_argument(name: str) -> bool:
    """`hash-object --stdin-paths` reads lines: it strips a carriage return and unquotes a leading quote."""
    return "\n" in name or name.startswith('"') or name.endswith("\r")


def _hash_links(at: Checkout, links: Sequence[str], *, write: bool) -> dict[str, str]:
    if not links:
        return {}
    with tempfile.TemporaryDirectory(prefix="swarm-links-") as folder:
        copies = [Path(folder) / str(number) for number in range(len(links))]
        for copy, name in zip(copies, links, strict=True):
            copy.write_bytes(os.fsencode((at.path / name).readlink()))
        asked = "".join(f"{copy}\n" for copy in copies).encode()
        how = ("hash-object", *(("-w",) if write else ()), "--no-filters", "--stdin-paths")
        return dict(zip(links, at.run(*how, stdin=asked).decode().split(), strict=True))

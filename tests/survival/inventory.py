"""Everything in a repository, its worktrees and the folders of swarm that would be missed, by content.

Written against git's file formats and plumbing alone, so that a mistake in swarm's own snapshots cannot hide here.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import subprocess
import zlib
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

TIMEOUT = 60
# Nobody's work: the empty file, the empty tree, and the commit from which swarm starts where there is none.
_NOTHING = (
    hashlib.sha1(b"blob 0\0").hexdigest(),
    hashlib.sha1(b"tree 0\0").hexdigest(),
    "8ec4fd517a28f0f92c32f04007d6b36a2bfc9506",
)
_ANY = range(256)  # an index or a HEAD that an agent has broken names nothing
_ID = re.compile(r"\b[0-9a-f]{40}\b")
_OBJECT = re.compile(r"/objects/[0-9a-f]{2}/[0-9a-f]{38}\Z")
_PSEUDO_REF = re.compile(r"[A-Z_]+_HEAD|HEAD|MERGE_AUTOSTASH|BISECT_EXPECTED_REV")
_REBASE = ("rebase-merge", "rebase-apply", "sequencer")
_NAMES_COMMITS = ("autostash", "orig-head", "onto", "head", "stopped-sha", "squash-onto", "abort-safety", "todo")
_QUIET = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "LC_ALL": "C",
}


@dataclass
class Inventory:
    """Object ids with where each was seen. `ignored` are files git ignores, with the worktree they are in."""

    kept: dict[str, str] = field(default_factory=dict)
    ignored: dict[str, tuple[str, Path, int]] = field(default_factory=dict)

    def lost_in(self, later: Inventory) -> dict[str, str]:
        """What is nowhere any more. Ignored files may go only together with their worktree."""
        there = later.kept.keys() | later.ignored.keys()
        lost = {oid: where for oid, where in self.kept.items() if oid not in there}
        for oid, (where, root, inode) in self.ignored.items():
            if oid not in there and _inode(root) == inode:
                lost[oid] = f"ignored {where}"
        for oid in _NOTHING:
            lost.pop(oid, None)
        return lost


def take(repo: Path, home: Path, *others: Path) -> Inventory:
    """Look at the repository, at every worktree of it, at every folder under swarm's home and at the others."""
    found = Inventory()
    common = repo / ".git"
    admins = [admin for admin in _admins(common) if not _is_scratch(admin)]
    tips = _tips(common, "repository")
    for admin in admins:
        tips |= _tips(admin, f"{admin.name}'s")
    _add_objects(found, common, tips)
    registered = {root: admin for admin in admins if (root := _root_of(admin)) is not None}
    for root in dict.fromkeys([repo, *registered, *_folders(home), *others]):
        if root.is_dir() and not root.is_symlink():
            _add_folder(found, root, registered.get(root, common), set(registered))
    return found


def _admins(common: Path) -> list[Path]:
    folder = common / "worktrees"
    return sorted(p for p in folder.iterdir() if p.is_dir()) if folder.is_dir() else []


def _root_of(admin: Path) -> Path | None:
    line = _text(admin / "gitdir").strip()
    return Path(os.path.normpath(admin / line)).parent if line else None


def _is_scratch(admin: Path) -> bool:
    """Where swarm tries a merge; nobody's work is in it."""
    root = _root_of(admin)
    return root is not None and "scratch" in root.parts


def _folders(home: Path) -> Iterator[Path]:
    """Worktrees and folders put aside, registered or not."""
    for repo_folder in (home / "worktrees").glob("*"):
        for folder in repo_folder.iterdir():
            if folder.name == ".pool":
                yield from folder.iterdir()
            else:
                yield folder
    for other in home.glob("*"):
        if other.is_dir() and other.name not in ("worktrees", "scratch", "instances", "locks", "logs", "run"):
            yield other


def _add_folder(found: Inventory, root: Path, git_dir: Path | None, registered: set[Path]) -> None:
    """Add one worktree's files, and the repositories inside it with their objects and files."""
    own = _git_dir_at(root)
    if own is not None and not (own / "commondir").exists() and own != git_dir:
        _add_store(found, own, root.name)
    files, nested = _walk(root, registered)
    bare = sorted({str(Path(n).parent) for n in files if Path(n).name == "HEAD" and _is_bare((root / n).parent)})
    ignored = _ignored(own or git_dir, git_dir or own, root, [*files, *nested, *bare])
    for name in files:
        _add_file(found, root, name, ignored=name in ignored)
    for name in nested:
        if name in ignored:
            _add_ignored_tree(found, root, root / name)
            _add_own_commits(found, _git_dir_at(root / name))
        else:
            _add_folder(found, root / name, None, registered)
    for name in bare:
        if name in ignored:
            _add_own_commits(found, root / name)


def _walk(root: Path, registered: set[Path]) -> tuple[list[str], list[str]]:
    """Names of files and of nested repositories below a root; other registered worktrees are roots themselves."""
    files, nested = [], []
    for folder, dirs, names in os.walk(root):
        here = Path(folder)
        if here != root and here in registered:
            dirs.clear()
            continue
        if here != root and _git_dir_at(here) is not None:
            nested.append(os.path.relpath(folder, root))
            dirs.clear()
            continue
        links = [d for d in dirs if (here / d).is_symlink()]
        dirs[:] = [d for d in dirs if d not in links and not _is_repository(here / d)]
        at_root = here == root
        files += [os.path.relpath(here / n, root) for n in [*names, *links] if not (at_root and n == ".git")]
    return files, nested


def _is_repository(path: Path) -> bool:
    return path.name == ".git" and (path / "HEAD").exists()


def _is_bare(folder: Path) -> bool:
    return (folder / "HEAD").is_file() and (folder / "objects").is_dir() and (folder / "refs").is_dir()


def _git_dir_at(folder: Path) -> Path | None:
    """Where a folder's `.git` leads; None when it leads to nothing."""
    dot_git = folder / ".git"
    if dot_git.is_dir():
        return dot_git if (dot_git / "HEAD").exists() else None
    target = _text(dot_git)
    if not target.startswith("gitdir: "):
        return None
    path = Path(os.path.normpath(folder / target.removeprefix("gitdir: ").strip()))
    return path if (path / "HEAD").exists() else None


def _ignored(git_dir: Path | None, tracked_by: Path | None, root: Path, names: list[str]) -> set[str]:
    """Which of the files git ignores. Those in the index or in HEAD are not ignored, whatever the patterns say."""
    if git_dir is None or tracked_by is None:
        return set()
    tracked = {name for name, _ in _index(tracked_by)}
    unknown = [name for name in names if name not in tracked]
    if not unknown:
        return set()
    asked = b"".join(b"./" + os.fsencode(n) + b"\0" for n in unknown)
    how = (f"--git-dir={git_dir}", f"--work-tree={root}", "check-ignore", "-z", "--stdin")
    # The index matters: a sparse checkout has its .gitignore only there. A broken one is left aside.
    listed = _git(root, *how, *([] if _index(git_dir) else ["--no-index"]), stdin=asked, ok=(0, 1))
    ignored = {os.fsdecode(n).removeprefix("./") for n in listed.split(b"\0") if n}
    if ignored:
        at = (f"--git-dir={tracked_by}", "--work-tree=.")
        in_head = _git(root, *at, "ls-tree", "-rz", "--name-only", "HEAD", ok=_ANY)
        ignored -= {os.fsdecode(n) for n in in_head.split(b"\0")}
    return ignored


def _add_file(found: Inventory, root: Path, name: str, *, ignored: bool) -> None:
    oid = _hash(root / name)
    if oid is None:
        return
    where = f"file {name!r} in {root.name}"
    if ignored:
        found.ignored.setdefault(oid, (where, root, _inode(root)))
    else:
        found.kept.setdefault(oid, where)


def _add_ignored_tree(found: Inventory, root: Path, top: Path) -> None:
    for folder, _, names in os.walk(top):
        for name in names:
            _add_file(found, root, os.path.relpath(Path(folder) / name, root), ignored=True)


def _hash(path: Path) -> str | None:
    """The id git would give the content, without filters; of a link, its target."""
    try:
        facts = path.lstat()
        if stat.S_ISLNK(facts.st_mode):
            data = os.fsencode(path.readlink())
        elif stat.S_ISREG(facts.st_mode):
            data = path.read_bytes()
        else:
            return None
    except OSError:
        return None
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def _add_store(found: Inventory, git_dir: Path, name: str) -> None:
    """Add a repository that has objects of its own."""
    tips = _tips(git_dir, f"nested {name}'s")
    for admin in _admins(git_dir):
        tips |= _tips(admin, f"nested {name} {admin.name}'s")
    _add_objects(found, git_dir, tips)


def _add_own_commits(found: Inventory, git_dir: Path | None) -> None:
    """Add what a repository in an ignored folder has committed and none of its remotes has."""
    if git_dir is None or (git_dir / "commondir").exists():
        return
    how = ("rev-list", "--objects", "--no-object-names", "--all", "--reflog", "--not", "--remotes")
    for oid in _git(git_dir, f"--git-dir={git_dir}", "--work-tree=.", *how, ok=_ANY).decode().split():
        found.kept.setdefault(oid, f"ignored repository {git_dir.name}'s object")


def _tips(git_dir: Path, whose: str) -> dict[str, str]:
    """Every id that a ref, a log, a pseudo ref, an operation in progress or the index names, with where."""
    found: dict[str, str] = {}

    def add(ids: Iterable[str], where: str) -> None:
        for oid in ids:
            if oid.strip("0"):
                found.setdefault(oid, f"{whose} {where}")

    for line in _text(git_dir / "packed-refs").splitlines():
        if not line.startswith("#"):
            add(_ID.findall(line), f"ref {line.partition(' ')[2] or 'peeled'}")
    for path in _files_below(git_dir / "refs"):
        add(_ID.findall(_text(path)), f"ref {path.relative_to(git_dir)}")
    for path in git_dir.iterdir():
        if _PSEUDO_REF.fullmatch(path.name) and path.is_file():
            add(_ID.findall(_text(path)), path.name)
    for path in [git_dir / folder / name for folder in _REBASE for name in _NAMES_COMMITS]:
        add(_ID.findall(_text(path)), str(path.relative_to(git_dir)))
    for path in _files_below(git_dir / "logs"):
        for line in _text(path).splitlines():
            add(line.split(" ")[:2], f"log of {path.relative_to(git_dir / 'logs')}")
    for name, oid in _index(git_dir):
        add([oid], f"index entry {name!r}")
    return found


def _index(git_dir: Path) -> list[tuple[str, str]]:
    """Names and ids of all stages; submodules name commits of another repository."""
    if not (git_dir / "index").exists():
        return []
    listed = os.fsdecode(_git(git_dir, f"--git-dir={git_dir}", "--work-tree=.", "ls-files", "-s", "-z", ok=_ANY))
    entries = [line.partition("\t") for line in listed.split("\0") if line]
    return [(name, facts.split(" ")[1]) for facts, _, name in entries if not facts.startswith("160000")]


def _files_below(folder: Path) -> Iterator[Path]:
    for above, _, names in os.walk(folder):
        yield from (Path(above) / name for name in names if not name.endswith(".lock"))


def _add_objects(found: Inventory, git_dir: Path, tips: dict[str, str]) -> None:
    """Add whatever the tips lead to, also objects of another repository that were committed as files."""
    asked = "".join(f"{oid}\n" for oid in tips).encode()
    how = ("rev-list", "--objects", "--missing=allow-any", "--ignore-missing", "--stdin")
    # A submodule names a folder for its files, which may have been moved at this very moment.
    reached = _git(git_dir, f"--git-dir={git_dir}", "--work-tree=.", *how, stdin=asked).decode(errors="replace")
    where = f"object of {git_dir.parent.name if git_dir.name == '.git' else git_dir.name}"
    for line in reached.splitlines():
        oid, _, name = line.partition(" ")
        if not _ID.fullmatch(oid):
            continue  # a line of a file's name
        found.kept.setdefault(oid, tips.get(oid, where))
        if _OBJECT.search(name) or name.endswith(".idx"):
            for inner in _objects_in(git_dir, oid, is_index=name.endswith(".idx")):
                found.kept.setdefault(inner, f"{name} in {where}")


def _objects_in(git_dir: Path, blob: str, *, is_index: bool) -> list[str]:
    """The ids of the objects in a file of an object store: a loose object, or the index of a pack."""
    data = _git(git_dir, f"--git-dir={git_dir}", "--work-tree=.", "cat-file", "blob", blob, ok=_ANY)
    if is_index:
        return _ID.findall(_git(git_dir, "show-index", stdin=data, ok=_ANY).decode())
    try:
        return [hashlib.sha1(zlib.decompress(data)).hexdigest()]
    except zlib.error:
        return []


def _inode(path: Path) -> int:
    return path.stat().st_ino if path.exists() else 0


def _git(cwd: Path, *args: str, stdin: bytes | None = None, ok: Container[int] = (0,)) -> bytes:
    env = {"PATH": os.environ["PATH"], "HOME": os.devnull} | _QUIET
    done = subprocess.run(
        ["git", *args], cwd=cwd, env=env, input=stdin, capture_output=True, check=False, timeout=TIMEOUT
    )
    assert done.returncode in ok, f"git {args} in {cwd}: {done.stderr.decode(errors='replace')}"
    return done.stdout


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""

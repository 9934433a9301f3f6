"""Which repositories inside a worktree are stored with it, and how each becomes a commit of this one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from swarm_core.errors import CommandFailed
from swarm_core.git import gitfiles, snapshot
from swarm_core.git.checkout import Checkout, find_checkout
from swarm_core.git.command import in_chunks, nul_list
from swarm_core.git.identity import IDENTITY
from swarm_core.git.inside import (
    DotGit,
    Found,
    buried_in,
    goes_with_entry,
    ignored,
    ignored_below,
    unstorable,
)
from swarm_core.git.snapshot import GITLINK, Snapshot

# In the place of `.git`: a submodule's repository without a folder, named by its path below `modules`.
MODULE = "modules"
_MOST_PARENTS = 400


@dataclass(frozen=True, slots=True)
class Part:
    """Something inside a worktree to be stored beside its files.

    `inner` is the repository, if it is one; its git folder is stored when it is `owned` by the worktree and would
    go with it. `files` says whether no other repository stores the files around it.
    """

    dot_git: DotGit
    inner: Checkout | None
    owned: bool
    files: bool
    submodule: bool


@dataclass(frozen=True, slots=True)
class _Listing:
    """What a repository says of the folders in it."""

    at: Checkout
    nested: set[str]
    submodules: set[str]


def survey(at: Checkout, snap: Snapshot, found: Found, linked: Mapping[Path, Path]) -> list[Part]:
    """The parts that hold work. `linked` are the worktrees of this repository inside, by their git folders.

    In a folder that git ignores, only a repository with commits of its own counts.
    """
    homes = [at.git_dir, *linked]
    owners = {"": _Listing(at, set(snap.nested), set(snap.submodules))}
    parts: list[Part] = []
    for dot_git in found.dot_gits:
        folder = dot_git.folder
        inner = _repository(at.path / folder) if dot_git.name == ".git" else None
        owner_folder, owner = _owner(owners, folder)
        below = folder.removeprefix(f"{owner_folder}/") if owner_folder else folder
        if inner is not None:
            owners[folder] = _list(inner)
            if linked.get(inner.git_dir) == at.path / folder:
                continue
        part = _part(at, dot_git, inner, homes, owner, below)
        hidden = not part.submodule and below not in owner.nested and bool(ignored(owner.at, [below]))
        if _counts(at, part, hidden=hidden, listed=below in owner.nested):
            parts.append(part)
    parts += _bare(at, owners, linked, found.bare)
    return parts + _without_folder(at, homes, [listing.at.git_dir for listing in owners.values()])


def refuse_unstorable(at: Checkout, found: Found, linked: Mapping[Path, Path]) -> None:
    """Raise Conflict (WORK_NOT_STORED) for what no commit of ours can hold, with a reason of KEPT."""
    entries = [git_dir for git_dir in (at.git_dir, *linked) if git_dir != at.common_dir]
    if buried := [*found.buried, *(name for git_dir in entries for name in buried_in(git_dir))]:
        raise unstorable("git_in_git", buried)
    folders = [dot_git.folder for dot_git in found.dot_gits if dot_git.name == ".git"]
    if held := [folder for folder in folders if _has_work_elsewhere(at, entries, at.path / folder)]:
        raise unstorable("other_worktree", held)


def can_be_taken_over(part: Part, at: Checkout) -> bool:
    """Whether commits of the repository can become commits of this one: same hashes, and nothing missing."""
    inner = part.inner
    if inner is None or not part.owned:
        return False
    if (inner.common_dir / "shallow").exists() or (inner.common_dir / "reftable").exists():
        return False
    if any((inner.objects / "pack").glob("*.promisor")):
        return False
    return _format(inner) == _format(at)


def store_part(
    at: Checkout, joined: Checkout, part: Part, *, taken_over: bool, others: Iterable[Path], message: str
) -> str:
    """Write a commit: `git` is the git folder or file, `work` the files, and the parents are its own commits.

    Otherwise than taken over, `git` has the objects too, byte for byte. `others` are git folders with commits of
    their own. `joined` is `at` with the objects of what is taken over.
    """
    place = at.path / part.dot_git.folder / part.dot_git.name
    files: dict[str, Path] = {}
    lines: list[tuple[str, str, str]] = []
    commits: list[str] = []
    if part.owned and part.inner is not None:
        own = part.inner.git_dir
        left_out = [str(other.relative_to(own)) for other in others if other != own and other.is_relative_to(own)]
        kept = gitfiles.files_below(own, leave_out=[*left_out, *(["objects"] if taken_over else [])])
        files |= {f"git/{name}": file for name, file in kept.items()}
        if taken_over:
            lines += _staged(part.inner, kept)
            named = gitfiles.look_up(part.inner, gitfiles.ids_in(_texts(kept)))
            commits = [*named.commits, *wrapped_trees(joined, named)]
            lines += loose_objects(at, named)
    elif place.is_dir() and not place.is_symlink():
        files |= {f"git/{name}": file for name, file in gitfiles.files_below(place).items()}
    else:
        files["git"] = place
    if part.files and part.inner is not None:
        files |= {f"work/{name}": part.inner.path / name for name in _names(part.inner)}
    return commit(joined, tree_of_files(at, files, lines), commits, message)


def tree_of_files(at: Checkout, files: Mapping[str, Path], lines: Sequence[tuple[str, str, str]] = ()) -> str:
    """Write a tree of files that lie anywhere, under new names, and of further (mode, object, path)."""
    modes = {name: snapshot.on_disk(place.parent, place.name) for name, place in files.items()}
    present = {name: mode for name, mode in modes.items() if mode is not None}
    oids = snapshot.store_files(at, [str(files[name]) for name in present])
    return snapshot.tree_of(
        at, [*((mode, oids[str(files[name])], name) for name, mode in present.items()), *lines]
    )


def commit(at: Checkout, tree: str, parents: Sequence[str | None], message: str) -> str:
    """Write a commit with any number of parents; many are gathered in commits of their own."""
    chosen = [parent for parent in dict.fromkeys(parents) if parent]
    while len(chosen) > _MOST_PARENTS:
        chosen = [_commit(at, tree, some, "more parents\n") for some in in_chunks(chosen)]
    return _commit(at, tree, chosen, message)


def wrapped_trees(at: Checkout, named: gitfiles.Named) -> list[str]:
    """Commits that keep trees which no commit has."""
    return [_commit(at, oid, [], "tree\n") for oid, kind in named.others if kind == "tree"]


def loose_objects(at: Checkout, named: gitfiles.Named) -> list[tuple[str, str, str]]:
    """Lines of a tree that keep blobs, and annotated tags as text, because a commit cannot refer to a tag."""
    lines = [("100644", oid, f"objects/{oid}") for oid, kind in named.others if kind == "blob"]
    for oid, body in named.tags.items():
        blob = at.line("hash-object", "-w", "--no-filters", "--stdin", stdin=body)
        lines.append(("100644", blob, f"tags/{oid}"))
    return lines


def _commit(at: Checkout, tree: str, parents: Iterable[str], message: str) -> str:
    told = [arg for parent in parents for arg in ("-p", parent)]
    how = ("-c", "i18n.commitEncoding=UTF-8", "commit-tree", tree, *told, "-F", "-")
    return at.line(*how, env=IDENTITY, stdin=message.encode(errors="replace"))


def _bare(
    at: Checkout, owners: Mapping[str, _Listing], linked: Mapping[Path, Path], found: Iterable[DotGit]
) -> list[Part]:
    """Bare repositories with commits of their own, unless the worktree stores all their files as plain ones."""
    parts = []
    for one in found:
        name = f"{one.folder}/{one.name}" if one.folder else one.name
        git_dir = at.path / name
        inner = Checkout(git_dir, git_dir, git_dir)
        owner_folder, owner = _owner(owners, name)
        is_ours = not owner_folder or owner.at.git_dir in linked
        if is_ours and not ignored_below(owner.at, name.removeprefix(f"{owner_folder}/" if owner_folder else "")):
            continue
        if _format(inner) and _has_own_work(inner, at.path):
            parts.append(Part(one, inner, owned=True, files=False, submodule=False))
    return parts


def _without_folder(at: Checkout, homes: Sequence[Path], known: Sequence[Path]) -> list[Part]:
    """Submodules' repositories whose folder is gone (deinit, `git rm`); the worktree's entry has them."""
    found = []
    for home in homes:
        for head in sorted((home / "modules").rglob("HEAD")):
            git_dir = head.parent
            if git_dir in known or not (git_dir / "objects").is_dir():
                continue
            inner = Checkout(git_dir, git_dir, git_dir)
            name = str(git_dir.relative_to(home / "modules"))
            part = Part(DotGit(name, MODULE), inner, owned=True, files=False, submodule=True)
            if _has_own_work(inner, at.path) or _has_staged(inner):
                found.append(part)
    return found


def _has_staged(inner: Checkout) -> bool:
    """Whether the index has anything that HEAD has not."""
    try:
        return bool(inner.run("diff-index", "--cached", "--raw", "--no-renames", "--diff-filter=d", "HEAD", "--"))
    except CommandFailed:  # damaged, so it is kept as it is
        return True


def _repository(place: Path) -> Checkout | None:
    inner = find_checkout(place)
    return inner if inner is not None and _format(inner) else None


def _format(at: Checkout) -> str:
    """The name of the repository's hash; empty when git does not take it for a repository."""
    return at.run("rev-parse", "--show-object-format", ok_codes=(0, 128)).decode().strip()


def _owner(owners: Mapping[str, _Listing], folder: str) -> tuple[str, _Listing]:
    above = [name for name in owners if not name or folder.startswith(f"{name}/")]
    nearest = max(above, key=len)
    return nearest, owners[nearest]


def _list(inner: Checkout) -> _Listing:
    try:
        listed = nul_list(inner.run("ls-files", "--others", "--exclude-standard", "-z"))
        entries = snapshot.read_entries(inner)
    except CommandFailed:
        return _Listing(inner, set(), set())
    links = {name for name, found in entries.items() if found[0].mode == GITLINK}
    return _Listing(inner, {name.rstrip("/") for name in listed if name.endswith("/")}, links)


def _part(
    at: Checkout, dot_git: DotGit, inner: Checkout | None, homes: Sequence[Path], owner: _Listing, below: str
) -> Part:
    place = at.path / dot_git.folder / dot_git.name
    submodule = below in owner.submodules
    owned = inner is not None and (
        (place.is_dir() and not place.is_symlink())
        or any(inner.git_dir.is_relative_to(home / "modules") for home in homes)
    )
    tracked_around = not submodule and below not in owner.nested and not ignored(owner.at, [below])
    return Part(dot_git, inner, owned=owned, files=inner is not None and not tracked_around, submodule=submodule)


def _counts(at: Checkout, part: Part, *, hidden: bool, listed: bool) -> bool:
    if part.inner is None:
        return not hidden
    if listed:
        return True
    if part.owned and _has_own_work(part.inner, at.path):
        return True
    return (not hidden or goes_with_entry(part.inner)) and _is_dirty(part.inner)


def _has_work_elsewhere(at: Checkout, entries: Sequence[Path], place: Path) -> bool:
    """Whether a worktree of a repository outside has more than files: staging, an operation, commits on no branch.

    That is in the other repository, which drops it some time after the folder is gone.
    """
    inner = find_checkout(place)
    if inner is None or not goes_with_entry(inner):
        return False
    homes = (at.path, *entries)  # what is in them is stored
    if inner.common_dir == at.common_dir or any(inner.common_dir.is_relative_to(home) for home in homes):
        return False
    state = gitfiles.state_files(inner.git_dir)
    if gitfiles.is_under_way(state) or _has_staged(inner):
        return True
    how = ("rev-list", "--max-count=1", "--stdin", "--not", "--branches", "--tags", "--remotes")
    try:
        known = gitfiles.look_up(inner, gitfiles.ids_in(state.values())).commits
        return bool(inner.run(*how, stdin="".join(f"{oid}\n" for oid in known).encode()))
    except CommandFailed:  # damaged, so it is kept as it is
        return True


def _has_own_work(inner: Checkout, root: Path) -> bool:
    """Whether more than files and index goes with the git folder: commits, an operation, or a linked worktree's.

    Linked worktrees may be anywhere; their staging, operations and own refs are in this git folder.
    """
    if _has_own_commits(inner, root) or gitfiles.is_under_way(_top(inner.git_dir)):
        return True
    for folder in sorted((inner.git_dir / "worktrees").glob("*/")):
        linked = Checkout(folder, folder, inner.git_dir)
        if gitfiles.is_under_way(item.name for item in folder.iterdir()) or _has_staged(linked):
            return True
    return False


def _has_own_commits(inner: Checkout, root: Path) -> bool:
    """Whether a ref, a stash or a reflog has commits that no branch of a remote outside the worktree has."""
    try:
        names = os.fsdecode(inner.run("remote")).splitlines()
        gone = [name for name in names if not _stays(inner, name, root)]
        held = [f"--remotes={name}" for name in names if not any(f"{one}/".startswith(f"{name}/") for one in gone)]
        return bool(inner.run("rev-list", "--max-count=1", "--all", "--reflog", "--not", *held))
    except CommandFailed:  # damaged, so it is kept as it is
        return True


def _stays(inner: Checkout, remote: str, root: Path) -> bool:
    """Whether every address of the remote is on another machine, or a path that exists outside the worktree."""
    fetched = inner.run("remote", "get-url", "--all", "--", remote)
    pushed = inner.run("remote", "get-url", "--push", "--all", "--", remote)
    places = [_local_path(url) for url in os.fsdecode(fetched + pushed).splitlines()]
    found = [Path(os.path.realpath(inner.path / place)) for place in places if place is not None]
    return all(place.exists() and not place.is_relative_to(root) for place in found)


def _local_path(url: str) -> str | None:
    """The path that an address of git is; None when it leads through a program or to another machine."""
    if url.startswith("file://"):
        return unquote(url.removeprefix("file://"))
    return None if ":" in url.partition("/")[0] else url


def _top(git_dir: Path) -> list[str]:
    return [item.name for item in git_dir.iterdir() if item.name != "refs"]


def _is_dirty(inner: Checkout) -> bool:
    try:
        head = inner.line("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        return snapshot.differs(inner, head)
    except CommandFailed:  # damaged or without a commit
        return True


def _staged(inner: Checkout, kept: Mapping[str, Path]) -> list[tuple[str, str, str]]:
    """Lines of a tree that keep what is staged, in the repository and in its linked worktrees."""
    lines: list[tuple[str, str, str]] = []
    indexes = [place for name, place in kept.items() if name == "index" or name.endswith("/index")]
    for number, place in enumerate(sorted(indexes)):
        try:
            entries = snapshot.read_entries(inner, {"GIT_INDEX_FILE": str(place)})
        except CommandFailed:  # no index, or a damaged one: its bytes are kept
            continue
        lines += [
            (entry.mode, entry.oid, f"index/{number}/{entry.stage}/{name}")
            for name, found in entries.items()
            for entry in found
            if entry.mode != GITLINK and not entry.intended
        ]
    return lines


def _texts(kept: Mapping[str, Path]) -> list[Path]:
    return [place for name, place in kept.items() if not name.endswith("index") and "/objects/" not in name]


def _names(inner: Checkout) -> list[str]:
    """Every file of a repository that git does not ignore."""
    try:
        listed = nul_list(
            inner.run("ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate", "-z")
        )
    except CommandFailed:
        listed = [name for name in gitfiles.files_below(inner.path) if not snapshot.is_named_like_git(name)]
    names = [name for name in listed if not name.endswith("/") and not snapshot.is_named_like_git(name)]
    return [name for name in names if snapshot.on_disk(inner.path, name) is not None]

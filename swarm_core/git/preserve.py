"""Uncommitted work stored as a commit under refs/swarm, changing nothing in the worktree or its branches.

Repositories inside the worktree (submodules and others) are stored with it, because removing a worktree
deletes them: their commits are fetched into this repository under refs/swarm/modules.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from swarm_core.errors import CommandFailed, Conflict, InvalidInput
from swarm_core.git import snapshot
from swarm_core.git.changes import empty_tree
from swarm_core.git.command import (
    LONG_TIMEOUT,
    _git,
    check_commit_id,
    check_swarm_ref,
    nul_list,
    text,
)
from swarm_core.git.identity import IDENTITY
from swarm_core.git.refs import current_branch, git_dirs, head_commit, ref_commit
from swarm_core.git.repo import public_url
from swarm_core.git.snapshot import GITLINK, Snapshot

_PRESERVED = "refs/swarm/preserved/"
_HALF_WRITTEN = 8  # more than a checkout writes at the same time
# Files of the git folder that name commits of an operation in progress, which may be reachable from nowhere else.
_PENDING = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "MERGE_AUTOSTASH", "rebase-merge/autostash")


@dataclass(frozen=True, slots=True)
class Preserved:
    ref: str
    commit: str
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Nested:
    """A repository inside a preserved worktree; its refs are under `modules_prefix(ref, number)`."""

    path: str
    number: int
    url: str | None
    head: str | None
    branch: str | None
    submodule: bool


@dataclass(frozen=True, slots=True)
class Record:
    """What a preserved commit says about itself beside its files."""

    head: str | None
    branch: str | None
    index: str | None
    nested: list[Nested]


def preserve(path: str | Path, *, ref: str, message: str, unfinished: bool = False) -> Preserved | None:
    """Store what is not committed (ignored files aside) under the new ref; None when nothing would be lost.

    A detached HEAD whose commit is on no branch, tag or remote branch is stored even when it is clean. In an
    `unfinished` checkout a missing file is no work of anybody's. Raises Conflict when the ref exists.
    """
    check_swarm_ref(ref)
    if not ref.startswith(_PRESERVED):
        raise InvalidInput(f"{ref!r} is not a ref under {_PRESERVED}")
    return _store(Path(path), ref=ref, message=message, replace=False, unfinished=unfinished)


def preserved_refs(repo: str | Path, instance: str) -> list[tuple[str, str]]:
    """An instance's preserved refs with their commits, ordered by name (and so by time)."""
    prefix = f"{_PRESERVED}{instance}"
    check_swarm_ref(prefix)
    listed = _git(repo, "for-each-ref", "--sort=refname", "--format=%(objectname) %(refname)%00", f"{prefix}/")
    pairs = [line.lstrip("\n").split(" ", 1) for line in nul_list(listed)]
    return [(pair[1], pair[0]) for pair in pairs if len(pair) == 2]


def delete_ref(repo: str | Path, ref: str, old: str) -> bool:
    """Delete a preserved ref that is at `old`, with what was stored of nested repositories; False if missing."""
    check_swarm_ref(ref)
    check_commit_id(old)
    if ref_commit(repo, ref) is None:
        return False
    nested = _git(repo, "for-each-ref", "--format=delete %(refname) %(objectname)", f"{modules_root(ref)}/")
    commands = f"delete {ref} {old}\n".encode() + nested
    _git(repo, "update-ref", "--no-deref", "--stdin", stdin=commands)
    return True


def modules_prefix(ref: str, number: int) -> str:
    return f"{modules_root(ref)}/{number}"


def read_record(repo: str | Path, commit: str) -> Record:
    """What `preserve` wrote at the end of the commit's message."""
    body = _git(repo, "cat-file", "commit", commit).decode(errors="replace")
    found = re.findall(r"^Swarm-Record: (.*)$", body, re.MULTILINE)
    if not found:
        raise InvalidInput(f"{commit} was not stored by swarm")
    facts = json.loads(found[-1])
    return Record(facts["head"], facts["branch"], facts["index"], [Nested(**one) for one in facts["nested"]])


def _store(path: Path, *, ref: str, message: str, replace: bool, unfinished: bool = False) -> Preserved | None:
    head = head_commit(path)
    first = snapshot.take(path)
    if unfinished and head and not first.nested and not _adds(path, head, first.tree):
        return None
    nested, gitlinks = _store_nested(path, first, ref=ref, message=message)
    snap = snapshot.take(path, gitlinks=gitlinks) if gitlinks else first
    if not (replace or nested or _would_be_lost(path, snap, head)):
        return None
    index = _commit(path, snap.index_tree, [head], "index\n") if snap.index_tree else None
    record = Record(head, current_branch(path), index, nested)
    text_of_record = json.dumps(asdict(record), sort_keys=True)
    body = f"{message.rstrip()}\n\nSwarm-Record: {text_of_record}\n"
    commit = _commit(path, snap.tree, [head, index, *_pending(path)], body)
    _write_ref(path, ref, commit, replace=replace)
    files, size = _extent(path, head, snap.tree)
    return Preserved(ref, commit, files, size)


def _extent(path: Path, head: str | None, tree: str) -> tuple[int, int]:
    """How many files the snapshot changes, and how many bytes their new contents have."""
    start = f"{head}^{{tree}}" if head else empty_tree(path)
    listed = nul_list(_git(path, "diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", start, tree))
    blobs = [facts.split(" ")[3] for facts in listed[::2] if facts.split(" ")[1] not in {"000000", GITLINK}]
    asked = "".join(f"{blob}\n" for blob in blobs).encode()
    sizes = _git(path, "cat-file", "--batch-check=%(objectsize)", stdin=asked).split()
    return len(listed) // 2, sum(int(size) for size in sizes)


def _adds(path: Path, head: str, tree: str) -> bool:
    """Whether the tree has anything that the commit has not, missing and half-written files aside."""
    how = ("diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", "--diff-filter=d")
    changed = nul_list(_git(path, *how, f"{head}^{{tree}}", tree))[::2]
    return len(changed) > _HALF_WRITTEN or not all(_is_begun(path, facts) for facts in changed)


def _is_begun(path: Path, facts: str) -> bool:
    """Whether a changed file is the beginning of the committed one: a killed checkout leaves such."""
    _, _, old, new, status = facts.split(" ")
    return status == "M" and _git(path, "cat-file", "blob", old).startswith(_git(path, "cat-file", "blob", new))


def _would_be_lost(path: Path, snap: Snapshot, head: str | None) -> bool:
    if head is None:
        return {snap.tree, snap.index_tree} != {empty_tree(path)}
    tree = text(path, "rev-parse", "--verify", f"{head}^{{tree}}")
    if snap.tree != tree or snap.index_tree != tree:
        return True
    return current_branch(path) is None and not _is_on_a_branch(path, head)


def _is_on_a_branch(path: Path, commit: str) -> bool:
    where = ("refs/heads", "refs/tags", "refs/remotes")
    return bool(_git(path, "for-each-ref", "--count=1", "--format=x", "--contains", commit, *where))


def _store_nested(path: Path, snap: Snapshot, *, ref: str, message: str) -> tuple[list[Nested], dict[str, str]]:
    """Store the repositories inside; returns their records and the submodules' present commits."""
    stored: list[Nested] = []
    gitlinks: dict[str, str] = {}
    for name in [*snap.submodules, *snap.nested]:
        inner = path / name
        recorded = snap.submodules.get(name)
        head = head_commit(inner)
        if recorded is not None and head not in {None, recorded}:
            gitlinks[name] = str(head)
        if recorded is None or head != recorded or _holds_own_work(inner):
            stored.append(_store_one(path, name, len(stored), ref=ref, message=message, recorded=recorded))
    return stored, gitlinks


def _holds_own_work(inner: Path) -> bool:
    """Whether a submodule has files, branches or stashes that its remote does not have."""
    local = _git(
        inner, "rev-list", "--max-count=1", "--branches", "--glob=refs/stash", "HEAD", "--not", "--remotes"
    )
    if local:
        return True
    snap = snapshot.take(inner)
    nested, gitlinks = (
        bool(snap.nested),
        any(
            head_commit(inner / name) != oid or _holds_own_work(inner / name)
            for name, oid in snap.submodules.items()
        ),
    )
    tree = text(inner, "rev-parse", "--verify", "HEAD^{tree}")
    return nested or gitlinks or snap.tree != tree or snap.index_tree != tree


def _store_one(path: Path, name: str, number: int, *, ref: str, message: str, recorded: str | None) -> Nested:
    inner = path / name
    _store(inner, ref=ref, message=message, replace=True)
    prefix = modules_prefix(ref, number)
    kept = [
        f"+{ref}:{prefix}/snapshot",
        f"+refs/heads/*:{prefix}/heads/*",
        f"+refs/tags/*:{prefix}/tags/*",
        f"+{modules_root(ref)}/*:{prefix}/modules/*",
    ]
    if ref_commit(inner, "refs/stash") is not None:
        kept.append(f"+refs/stash:{prefix}/stash")
    how = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--update-shallow", "--no-recurse-submodules")
    _git(path, "-c", "protocol.file.allow=always", *how, str(inner.resolve()), *kept, timeout=LONG_TIMEOUT)
    url = _git(inner, "config", "--get", "remote.origin.url", ok_codes=(0, 1))
    return Nested(
        path=name,
        number=number,
        url=public_url(os.fsdecode(url).strip()) or None,
        head=head_commit(inner),
        branch=current_branch(inner),
        submodule=recorded is not None,
    )


def _commit(path: Path, tree: str, parents: list[str | None], message: str) -> str:
    chosen = [arg for parent in dict.fromkeys(parents) if parent for arg in ("-p", parent)]
    how = ("-c", "i18n.commitEncoding=UTF-8", "commit-tree", tree, *chosen, "-F", "-")
    return text(path, *how, env=IDENTITY, stdin=message.encode(errors="replace"))


def _pending(path: Path) -> list[str]:
    """Commits of a merge, pick or rebase in progress."""
    git_dir = git_dirs(path)[0]
    found = [line for name in _PENDING if (git_dir / name).is_file() for line in _lines(git_dir / name)]
    return [line for line in found if re.fullmatch(r"[0-9a-f]{40,64}", line)]


def _lines(path: Path) -> list[str]:
    return path.read_text(errors="replace").split()


def _write_ref(path: Path, ref: str, commit: str, *, replace: bool) -> None:
    missing = () if replace else ("0" * len(commit),)
    try:
        _git(path, "update-ref", "--no-deref", ref, commit, *missing)
    except CommandFailed as error:
        if ref_commit(path, ref) is not None:
            raise Conflict(f"{ref} exists already", details={"ref": ref}) from error
        raise


def modules_root(ref: str) -> str:
    return f"refs/swarm/modules/{ref.removeprefix(_PRESERVED)}"

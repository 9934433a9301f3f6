"""Staging and operations in progress, put back into a worktree's git folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from swarm_core import files
from swarm_core.git import gitfiles, snapshot
from swarm_core.git.checkout import Checkout
from swarm_core.git.preserve import Record
from swarm_core.git.refs import current_branch, head_commit

_REFLOG = "logs/HEAD"
_IN_MEMORY = 32 * 1024 * 1024
# The new worktree has its own; settings of an agent are not put back in force.
_NOT_PUT_BACK = ("HEAD", "index", "config.worktree", "info/")


def newer_staging(at: Checkout, record: Record) -> list[str]:
    """Paths at which something is staged that neither HEAD nor the snapshot has: `restore_index` would drop it."""
    if record.index is None or head_commit(at.path) != record.head:
        return []
    staged = files_of(at, record.index)
    known = {(name[2:] if record.stages else name, oid) for _, oid, name in staged}
    known |= {(name, oid) for _, oid, name in files_of(at, record.head)} if record.head else set()
    entries = [(name, entry) for name, found in snapshot.read_entries(at).items() for entry in found]
    counted = [(name, e.oid) for name, e in entries if e.mode != snapshot.GITLINK and not e.intended]
    return [name for name, oid in counted if (name, oid) not in known]


def restore_index(at: Checkout, record: Record) -> list[str]:
    """Stage what was staged, stages of a conflict included; returns what is left under the ref."""
    if record.index is None:
        return []
    if head_commit(at.path) != record.head:
        staged = at.line("rev-parse", f"{record.index}^{{tree}}", f"{record.head}^{{tree}}").split()
        return [f"staging, in {record.index}"] if len(set(staged)) == 2 else []
    if record.stages:
        told = "".join(f"{mode} {oid} {name[0]}\t{name[2:]}\0" for mode, oid, name in files_of(at, record.index))
        at.run("read-tree", "--empty")
        at.run("update-index", "-z", "--index-info", stdin=os.fsencode(told))
    else:
        at.run("read-tree", "--reset", f"{record.index}^{{tree}}")
    at.run("update-index", "-q", "--refresh", ok_codes=(0, 1))
    return []


def restore_state(at: Checkout, record: Record) -> list[str]:
    """Put back the worktree's own refs, reflog and operation in progress; returns what is left under the ref.

    Nothing that is there is overwritten. An operation comes back only onto the commit it was begun on.
    """
    if record.state is None:
        return []
    stored = {name: oid for _, oid, name in files_of(at, record.state) if name.startswith("state/")}
    contents = dict(read_blobs(at, list(stored.values())))
    files = {name.removeprefix("state/"): contents[oid] for name, oid in stored.items()}
    left = [name for name in files if name.startswith(_NOT_PUT_BACK[1:])]
    _prepend(at.git_dir / _REFLOG, files.pop(_REFLOG, b""))
    wanted = {name: content for name, content in files.items() if not name.startswith(_NOT_PUT_BACK)}
    if _fits(at, record, wanted):
        for name, content in wanted.items():
            _write_missing(at.git_dir / name, content)
    elif gitfiles.is_under_way(wanted):
        left += sorted({name.split("/")[0] for name in wanted if gitfiles.is_under_way([name])})
    return [f"{name}, in {record.state}:state" for name in left]


def files_of(at: Checkout, commit: str) -> Iterator[tuple[str, str, str]]:
    """The (mode, object, path) of every file in a commit."""
    for line in at.run("ls-tree", "-r", "-z", commit).split(b"\0"):
        if line:
            facts, _, name = line.partition(b"\t")
            mode, _, oid = facts.decode().split(" ")
            yield mode, oid, os.fsdecode(name)


def read_blobs(at: Checkout, oids: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """The contents of blobs, a limited amount of them in memory at a time."""
    for some in _by_size(at, list(dict.fromkeys(oids))):
        output = at.run("cat-file", "--batch", stdin="".join(f"{oid}\n" for oid in some).encode())
        start = 0
        for oid in some:
            end = output.index(b"\n", start)
            size = int(output[start:end].rsplit(b" ", 1)[1])
            yield oid, output[end + 1 : end + 1 + size]
            start = end + 1 + size + 1


def _by_size(at: Checkout, oids: Sequence[str]) -> Iterator[list[str]]:
    if not oids:
        return
    asked = "".join(f"{oid}\n" for oid in oids).encode()
    sizes = at.run("cat-file", "--batch-check=%(objectsize)", stdin=asked).split()
    some: list[str] = []
    total = 0
    for oid, size in zip(oids, sizes, strict=True):
        if some and total + int(size) > _IN_MEMORY:
            yield some
            some, total = [], 0
        some.append(oid)
        total += int(size)
    yield some


def _fits(at: Checkout, record: Record, wanted: dict[str, bytes]) -> bool:
    if (head_commit(at.path), current_branch(at.path)) != (record.head, record.branch):
        return False
    under_way = {name: at.git_dir / name for name in wanted if gitfiles.is_under_way([name])}
    return all(
        not place.exists() or files.read_regular(place, len(wanted[name]) + 1) == wanted[name]
        for name, place in under_way.items()
    )


def _write_missing(place: Path, content: bytes) -> None:
    if place.name != "ORIG_HEAD" and place.exists():
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    fresh = place.parent / f"{place.name}.swarm"
    fresh.write_bytes(content)
    fresh.replace(place)


def _prepend(log: Path, older: bytes) -> None:
    """Put an old reflog before the present one, once."""
    present = files.read_regular(log) if log.is_file() else b""
    if older and not present.startswith(older):
        log.parent.mkdir(parents=True, exist_ok=True)
        fresh = log.parent / "HEAD.swarm"
        fresh.write_bytes(older + present)
        fresh.replace(log)

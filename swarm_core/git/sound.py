"""Whether objects are what their names say. Git trusts the files below `.git/objects`, which agents can write.

Every object that a head brings to a base is read as git reads it and hashed, and so are those it is merged with.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shlex
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from swarm_core import cancel, proc
from swarm_core.errors import Conflict, ExternalFailure, TimedOut
from swarm_core.git.command import _ALONE, _QUIET, LONG_TIMEOUT, _failure, _run, check_commit_id, clean_environment

_CHECKED_EVERY = 500
_BLOCK = 1 << 20
_COMMIT_MAX = 1 << 24
_LINK = b"160000"
_NAMED = 5


def require_sound(repo: str | Path, base: str | None, head: str) -> None:
    """Raise Conflict (DAMAGED_OBJECTS, details["objects"]) if an object is missing or not what its name says."""
    found = damaged(repo, base, head)
    if found:
        raise Conflict(
            f"objects of {repo} are not what their names say, or cannot be read: {', '.join(found[:_NAMED])}",
            code="DAMAGED_OBJECTS",
            hint=f"find out who wrote them: `git -C {shlex.quote(str(repo))} fsck`; then delete their files below"
            " .git/objects and fetch them again, or commit the work again",
            details={"objects": found},
        )


def damaged(repo: str | Path, base: str | None, head: str) -> list[str]:
    """Name the objects of base..head, and those at its edges, that are not what their names say.

    A commit counts too if git does not see its parents, as with a `shallow` file that cuts them off.
    """
    below = [base] if base else []
    for commit in (*below, head):
        check_commit_id(commit)
    walk = ("rev-list", "--boundary", head, *(f"^{one}" for one in below))
    done = _run(repo, *walk, ok_codes=(0, 128))
    if done.returncode != 0:
        return [head]
    listed = done.stdout.decode().split()
    new, edges = {one for one in listed if one[0] != "-"}, {*below, *(one[1:] for one in listed if one[0] == "-")}
    known = new | edges
    commits = _read(repo, sorted(known), len(head))
    cut = [one.name for one in commits if one.name in new and not known.issuperset(one.parents)]
    found = {*cut, *_unsound(commits)}
    if not found:
        trees = {tree for one in commits for tree in one.trees}
        found = _compared(repo, head, new, edges, trees)
    return sorted(found)


@dataclass(frozen=True, slots=True)
class _Object:
    name: str
    sound: bool
    parents: tuple[str, ...] = ()
    trees: tuple[str, ...] = ()


def _unsound(objects: Sequence[_Object]) -> list[str]:
    return [one.name for one in objects if not one.sound]


def _compared(repo: str | Path, head: str, new: set[str], edges: set[str], trees: set[str]) -> set[str]:
    """The unsound ones of the trees and of what new commits change of their parents, and the head of an edge.

    `rev-list --objects` is no help: it leaves out whatever a folder of the base lists, and that can be forged.
    """
    lines = [*sorted(new), *(f"{head} {edge}" for edge in sorted(edges))]
    how = ("--stdin", "--root", "-m", "-r", "-t", "--no-renames", "--no-commit-id", "--no-ext-diff", "-z")
    done = _run(repo, "diff-tree", *how, stdin=_lines(lines), ok_codes=(0, 128))
    names = trees | (_both_sides(done.stdout) if done.returncode == 0 else _readable(repo, [*new, *edges]))
    found = _unsound(_read(repo, sorted(names), len(head)))
    if done.returncode != 0 and not found:
        raise _failure(done, repo)
    return set(found)


def _both_sides(raw: bytes) -> set[str]:
    # A name follows each of them, and can look like one.
    rows = [field[1:].split(b" ") for field in raw.split(b"\0")[:-1:2]]
    sides = {side for row in rows for side in ((row[0], row[2]), (row[1], row[3]))}
    return {name.decode() for mode, name in sides if mode != _LINK and name.strip(b"0")}


def _readable(repo: str | Path, commits: Sequence[str]) -> set[str]:
    """The folders of the commits up to the first that git cannot read, and that one."""
    how = ("--objects", "--no-object-names", "--no-walk", "--filter=blob:none", "--stdin")
    done = _run(repo, "rev-list", *how, stdin=_lines(commits), ok_codes=(0, 128))
    width = len(commits[0])
    return {name.decode() for name in re.findall(rb"\b[0-9a-f]{%d}\b" % width, done.stdout + done.stderr)}


def _lines(names: Sequence[str]) -> bytes:
    return "".join(f"{name}\n" for name in names).encode()


def _read(repo: str | Path, names: Sequence[str], width: int) -> list[_Object]:
    """Hash them all. One at which git gives up, or of which it prints more or less than it said, is not sound."""
    found = _answers(repo, names, width)
    if found is not None:
        return found
    if len(names) == 1:
        return [_Object(names[0], sound=False)]
    half = len(names) // 2
    return [*_read(repo, names[:half], width), *_read(repo, names[half:], width)]


def _answers(repo: str | Path, names: Sequence[str], width: int) -> list[_Object] | None:
    """What git prints for the names; None unless that is one whole object for each."""
    argv = ["git", "-C", str(repo), *_ALONE, "cat-file", "--batch", "--buffer"]
    is_late = threading.Event()

    def end() -> None:
        is_late.set()
        proc.end_group(process.pid)

    with proc.start_pipes(argv, env={**clean_environment(), **_QUIET}) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        # Git writes objects and errors while it still reads names, so that all of it has to be done at once.
        feeder = threading.Thread(target=_feed, args=(process.stdin, names), daemon=True)
        listener = threading.Thread(target=process.stderr.read, daemon=True)
        late = threading.Timer(LONG_TIMEOUT, end)
        for thread in (feeder, listener, late):
            thread.start()
        try:
            found = _all_hashed(process.stdout, names, width)
            code = None if process.stdout.read(1) else process.wait()
        finally:
            late.cancel()
            if process.returncode is None:
                proc.end_group(process.pid)
            feeder.join()
            listener.join()
    if code == 0:
        return found
    if is_late.is_set():
        raise TimedOut(f"git took longer than {LONG_TIMEOUT:g} s to read the objects of {repo} and was ended")
    if code is not None and code < 0:
        raise ExternalFailure(f"git was ended by signal {-code} while it read the objects of {repo}")
    return None


def _all_hashed(stream: IO[bytes], names: Sequence[str], width: int) -> list[_Object] | None:
    found = []
    for number, name in enumerate(names):
        if number % _CHECKED_EVERY == 0:
            cancel.check()
        one = _hashed(stream, name, width)
        if one is None:
            return None
        found.append(one)
    return found


def _feed(stream: IO[bytes], names: Sequence[str]) -> None:
    with contextlib.suppress(BrokenPipeError):
        stream.write(_lines(names))
    with contextlib.suppress(BrokenPipeError):
        stream.close()


def _hashed(stream: IO[bytes], asked: str, width: int) -> _Object | None:
    """One answer of git; None if it is no answer to this, as after an object with more bytes than it says."""
    words = stream.readline().split()
    if words == [asked.encode(), b"missing"]:
        return _Object(asked, sound=False)
    if len(words) != 3 or words[0] != asked.encode() or not words[2].isdigit():
        return None
    kind, left = words[1], int(words[2])
    digest = hashlib.new("sha1" if width == 40 else "sha256", b"%s %d\0" % (kind, left), usedforsecurity=False)
    kept = b""
    while left and (block := stream.read(min(left, _BLOCK))):
        digest.update(block)
        left -= len(block)
        if kind == b"commit" and len(kept) < _COMMIT_MAX:
            kept += block
    if stream.read(1) != b"\n":
        return None
    return _Object(
        asked, digest.hexdigest() == asked, parents=_named(kept, b"parent "), trees=_named(kept, b"tree ")
    )


def _named(commit: bytes, key: bytes) -> tuple[str, ...]:
    lines = commit.partition(b"\n\n")[0].split(b"\n")
    return tuple(line[len(key) :].decode(errors="replace") for line in lines if line.startswith(key))

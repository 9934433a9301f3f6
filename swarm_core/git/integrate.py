"""Merging without touching anybody's checkout: in a scratch worktree, checked, then landed on the base branch."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from swarm_core import locks, proc
from swarm_core.errors import CommandFailed, Conflict, InvalidInput, TimedOut
from swarm_core.git import admin
from swarm_core.git.apart import apart
from swarm_core.git.changes import dirty_files
from swarm_core.git.checkout import TRUE_TO_DISK, find_checkout
from swarm_core.git.command import (
    _ALONE,
    _ANY_CODE,
    _QUIET,
    LONG_TIMEOUT,
    _git,
    _run,
    check_branch_name,
    check_commit_id,
    clean_environment,
    code_of,
    in_chunks,
    nul_list,
    text,
)
from swarm_core.git.identity import IDENTITY
from swarm_core.git.refs import git_dirs, ref_commit
from swarm_core.git.removal import remove_scratch
from swarm_core.git.repo import inspect
from swarm_core.git.snapshot import GITLINK
from swarm_core.git.worktrees import real

Method = Literal["merge", "squash", "rebase"]

_NAMED = 20
_NOTHING = "000000"
_ANSWER_TIMEOUT = 60.0
_LAST_WORDS = 5.0
# What a person's configuration must not do here: ask, sign, move other branches, remember or reuse resolutions.
_CALM = (
    *("-c", "commit.gpgSign=false", "-c", "merge.verifySignatures=false", "-c", "rerere.enabled=false"),
    *("-c", "rebase.updateRefs=false", "-c", "rebase.rebaseMerges=false", "-c", "rebase.autoSquash=false"),
    *("-c", "rebase.autoStash=false", "-c", "merge.autoStash=false", "-c", "submodule.recurse=false"),
    *("-c", "advice.detachedHead=false", "-c", "rebase.missingCommitsCheck=ignore", "-c", "merge.log=false"),
    *("-c", "merge.ff=true", "-c", "notes.rewrite.rebase=false"),
)
_NO_EDITOR = {"GIT_EDITOR": ":", "GIT_SEQUENCE_EDITOR": ":"}
_UNDER_WAY = {
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase",
    "sequencer": "a cherry-pick or revert",
    "BISECT_LOG": "a bisect",
}
# No part of the command is read by the shell: it only puts the output into a file, which needs no memory.
_INTO_FILE = ("/bin/sh", "-c", 'exec "$@" >"$0" 2>&1')
_NO_TEXT = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f]")


@contextlib.contextmanager
def scratch(repo: str | Path, commit: str, folder: str | Path, *, lock: Path) -> Iterator[Path]:
    """A detached worktree at the commit, gone afterwards whatever happens. No hook runs.

    What a killed process left at the place is removed first; the caller sees to it that no living one uses it.
    """
    check_commit_id(commit)
    place = real(folder)
    _clear(repo, place, lock)
    try:
        with locks.hold(lock) as fd:
            how = ("worktree", "add", "--quiet", "--no-checkout", "--detach", "--", str(place), commit)
            _git(repo, *how, keep_open=(fd,))
        with apart(place) as env:
            checkout = ("reset", "--hard", "--no-recurse-submodules", "--quiet")
            _git(place, *checkout, env=env, timeout=LONG_TIMEOUT)
        yield place
    finally:
        # A process that the check left behind may still write: what it writes goes with the next scratch here.
        with contextlib.suppress(OSError):
            _clear(repo, place, lock)


def combine(path: Path, head: str, method: Method, message: str) -> str:
    """Bring what leads to `head` on top of what the scratch has, and return the commit that it is at then.

    The same commit as before when it has all of it. Raises Conflict (MERGE_CONFLICT, details["files"]) and leaves
    the scratch as it was.
    """
    check_commit_id(head)
    before = text(path, "rev-parse", "--verify", "HEAD")
    if code_of(path, "merge-base", "--is-ancestor", head, before) == 0:
        return before
    if not _git(path, "merge-base", before, head, ok_codes=(0, 1)):
        raise _conflict(head, before, [], "they share no commit")
    with apart(path) as env:
        try:
            return _METHODS[method](path, before, head, message.strip() or f"Merge commit {head[:12]}", env)
        except (CommandFailed, TimedOut) as error:
            files = _unmerged(path)
            _put_back(path, before, env)
            if files and isinstance(error, CommandFailed):
                raise _conflict(head, before, files, f"{len(files)} files") from error
            raise


def tree_of(repo: str | Path, commit: str) -> str:
    """The name of a commit's files: the same for the same files."""
    return text(repo, "rev-parse", "--verify", f"{commit}^{{tree}}")


def reworded(repo: str | Path, commit: str, message: str) -> str:
    """The same commit with another message; the files, parents, names and times stay."""
    header = _git(repo, "cat-file", "commit", commit).partition(b"\n\n")[0]
    body = message.strip().encode(errors="replace")
    return text(repo, "hash-object", "-t", "commit", "-w", "--stdin", stdin=header + b"\n\n" + body + b"\n")


def run_check(
    path: Path, argv: Sequence[str], *, timeout: float, max_output: int, env: Mapping[str, str], log: Path
) -> tuple[bool, str]:
    """Run a command in the scratch; whether it ended well in time, and the end of its output (kept in `log`)."""
    if not argv or not argv[0]:
        raise InvalidInput("the check command is empty")
    log.unlink(missing_ok=True)
    ended = ""
    try:
        done = proc.run([*_INTO_FILE, str(log), *argv], cwd=path, env=env, timeout=timeout, check=False)
        if done.returncode != 0:
            ended = f"[exit code {done.returncode}]"
    except TimedOut:
        ended = f"[ended: it took longer than {timeout:g} s]"
    output = _tail(log, max_output)
    log.unlink(missing_ok=True)
    return not ended, f"{output}\n{ended}".strip()


def land(
    repo: str | Path, base_branch: str, new_commit: str, expected: str, *, lock: Path, what: str = ""
) -> None:
    """Move a branch from `expected` to `new_commit`, and the files of the checkout that has it; twice is safe.

    All or nothing, but for a kill after the files and before the branch: then the merge is staged in the checkout,
    and merging again finishes it. Raises Conflict, details["reason"] `base_moved`, or `checkout` if uncommitted
    or ignored files would be overwritten or something is under way there; InvalidInput if the commit does not
    descend from `expected`.
    """
    check_branch_name(base_branch)
    for commit in (new_commit, expected):
        check_commit_id(commit)
    if code_of(repo, "merge-base", "--is-ancestor", expected, new_commit) != 0:
        raise InvalidInput(f"{new_commit} does not descend from {expected}")
    with locks.hold(lock):
        found = ref_commit(repo, f"refs/heads/{base_branch}")
        if found and code_of(repo, "merge-base", "--is-ancestor", new_commit, found) == 0:
            return
        if found != expected:
            raise _moved(base_branch, expected, found)
        place = _checkout_of(repo, base_branch)
        with _prepared(place or Path(repo), base_branch, new_commit, expected, what) as commit_it:
            if place is not None:
                _follow(place, expected, new_commit)
            try:
                commit_it()
            except BaseException:
                if place is not None and ref_commit(repo, f"refs/heads/{base_branch}") != new_commit:
                    _follow(place, new_commit, expected)
                raise


def _clear(repo: str | Path, place: Path, lock: Path) -> None:
    """Remove the scratch, or what is left of one, and its registration."""
    target = admin.linked_folder(place)
    if target is not None and not target.exists() and not place.is_symlink():
        admin.remove_tree(place)  # its repository has forgotten it, or was made anew
    remove_scratch(repo, place, lock=lock)


def _merge(path: Path, before: str, head: str, message: str, env: Mapping[str, str]) -> str:
    _change(path, env, "merge", "--no-ff", "--no-commit", "--no-stat", "--quiet", head)
    return _commit(path, env, message)


def _squash(path: Path, before: str, head: str, message: str, env: Mapping[str, str]) -> str:
    _change(path, env, "merge", "--squash", "--no-stat", "--quiet", head)
    if code_of(path, "diff", "--cached", "--quiet", "--no-ext-diff", before) == 0:
        return before
    return _commit(path, env, message, author=head)


def _rebase(path: Path, before: str, head: str, message: str, env: Mapping[str, str]) -> str:
    how = ("--empty=drop", "--no-keep-empty", "--no-stat", "--quiet", "--no-verify", "--no-gpg-sign")
    _change(path, env, "rebase", *how, before, head)
    return text(path, "rev-parse", "--verify", "HEAD")


_METHODS = {"merge": _merge, "squash": _squash, "rebase": _rebase}


def _change(path: Path, env: Mapping[str, str], *args: str) -> None:
    full = {**env, **_identity(path, env), **_NO_EDITOR}
    _git(path, *_CALM, *args, env=full, timeout=LONG_TIMEOUT)


def _commit(path: Path, env: Mapping[str, str], message: str, *, author: str | None = None) -> str:
    full = {**env, **_identity(path, env), **_NO_EDITOR, **(_author_of(path, author) if author else {})}
    how = ("commit", "--quiet", "--no-verify", "--cleanup=whitespace", "-F", "-")
    _git(path, *_CALM, *how, env=full, stdin=message.encode(errors="replace"), timeout=LONG_TIMEOUT)
    return text(path, "rev-parse", "--verify", "HEAD")


def _identity(path: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Ours, unless the person's git knows who they are; a guess from the machine's name does not count."""
    asked = ("-c", "user.useConfigOnly=true", "var", "GIT_COMMITTER_IDENT")
    known = _run(path, *asked, env=env, ok_codes=(0, 128)).returncode
    return {} if known == 0 else IDENTITY


def _author_of(path: Path, commit: str) -> dict[str, str]:
    name, email = text(path, "log", "-1", "--no-show-signature", "--format=%an%x00%ae", commit).split("\0")
    return {"GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": email} if name.strip() and email.strip() else {}


def _unmerged(path: Path) -> list[str]:
    listed = nul_list(_git(path, "ls-files", "--unmerged", "-z"))
    return sorted({line.partition("\t")[2] for line in listed})


def _put_back(path: Path, before: str, env: Mapping[str, str]) -> None:
    if (git_dirs(path)[0] / "rebase-merge").exists():
        _git(path, "rebase", "--quit", env=env)
    admin.Admin(git_dirs(path)[0], path).drop_stale_locks()
    _git(path, "reset", "--hard", "--quiet", before, env=env, timeout=LONG_TIMEOUT)
    _git(path, "clean", "-ffdq", env=env, timeout=LONG_TIMEOUT)


def _conflict(head: str, before: str, files: list[str], why: str) -> Conflict:
    return Conflict(
        f"{head[:12]} cannot be merged into {before[:12]}: {why}",
        code="MERGE_CONFLICT",
        hint="rebase the branch onto its base and resolve what conflicts",
        details={"files": files},
    )


def _tail(log: Path, size: int) -> str:
    try:
        with log.open("rb") as file:
            length = file.seek(0, os.SEEK_END)
            file.seek(max(0, length - size))
            data = file.read(size)
    except FileNotFoundError:
        return ""
    shown = _NO_TEXT.sub("", data.decode(errors="replace").replace("\r\n", "\n"))
    return shown if length <= size else f"[the last {size} of {length} bytes]\n{shown}"


def _checkout_of(repo: str | Path, branch: str) -> Path | None:
    """The folder whose files belong to the branch; Conflict when it cannot follow a move of the branch."""
    common_dir = git_dirs(repo)[1]
    holders = admin.holders(common_dir, branch)
    if not holders:
        return None
    places = {entry.folder: entry.path for entry in admin.all_entries(common_dir)}
    folder, *others = holders
    place = places.get(folder) or Path(inspect(repo).path)
    if others:
        raise _stuck(place, f"{branch} is checked out in {len(holders)} places")
    if not place.is_dir():
        raise _stuck(
            place, f"{branch} is checked out there, and the folder is gone", f"git worktree remove {place}"
        )
    for name, what in _UNDER_WAY.items():
        if (folder / name).exists():
            raise _stuck(place, f"{what} is under way there", "finish or abort it, then try again")
    return place


def _follow(place: Path, old: str, new: str) -> None:
    """Change the files from one commit to another; none if one of them has changes that this would overwrite."""
    if hidden := _untracked_in_the_way(place, old, new):
        raise _overwritten(place, hidden)
    _git(place, "update-index", "-q", "--refresh", ok_codes=_ANY_CODE)
    done = _run(place, *_CALM, "read-tree", "-m", "-u", old, new, timeout=LONG_TIMEOUT, ok_codes=_ANY_CODE)
    if done.returncode == 0:
        return
    changed = set(nul_list(_git(place, "diff", "--name-only", "--no-renames", "-z", old, new)))
    if dirty := [name for name in dirty_files(place) if name in changed]:
        raise _overwritten(place, dirty)
    raise _stuck(place, done.stderr.decode(errors="replace").strip()[:500])


def _untracked_in_the_way(place: Path, old: str, new: str) -> list[str]:
    """List what git does not track and would delete or overwrite to make room for the change.

    That is what lies at a path that is added, below it or above it, ignored or not; what lies below a path that is
    changed or removed; a link above a path that is changed; and what lies where a submodule changes. Git is not
    asked what lies there: it lists nothing below the name `.git`, and deletes it.
    """
    how = ("diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", old, new)
    listed = nul_list(_git(place, *how))
    modes = {name: facts.lstrip(":").split(" ")[:2] for facts, name in zip(listed[::2], listed[1::2], strict=True)}
    modules = {name for name, (before, _) in modes.items() if before == GITLINK}
    found = {name for name in modules if _is_replaced(place / name, modes[name][1])}
    taken = [_taken(place, name, *modes[name]) for name in modes if name not in modules]
    spots = sorted({spot for spot in taken if spot is not None})
    followed = _tracked(place, spots) & (modes.keys() - modules)
    for spot in spots:
        found.update(name for name in _walk(place, spot) if name.rstrip("/") not in followed)
    return sorted(found)


def _tracked(place: Path, spots: Sequence[str]) -> set[str]:
    """The paths in the index at these paths and below them."""
    asked = (*TRUE_TO_DISK, "--literal-pathspecs", "ls-files", "--cached", "-z", "--")
    return {name for names in in_chunks(spots) for name in nul_list(_git(place, *asked, *names))}


def _walk(place: Path, spot: str) -> Iterator[str]:
    """Yield every file at a path or below it; a repository, or a folder that cannot be read, as `name/`."""
    waiting = [spot]
    while waiting:
        name = waiting.pop()
        here = place / name
        if here.is_symlink() or not here.is_dir():
            yield name
        elif find_checkout(here) is not None:
            yield f"{name}/"
        else:
            try:
                waiting += [f"{name}/{one.name}" for one in here.iterdir()]
            except OSError:
                yield f"{name}/"


def _is_replaced(module: Path, mode: str) -> bool:
    """Whether something lies where a submodule is that git would delete to give the path another mode."""
    if mode == _NOTHING or not os.path.lexists(module):
        return False
    is_folder = module.is_dir() and not module.is_symlink()
    return not is_folder or (mode != GITLINK and any(module.iterdir()))


def _taken(place: Path, name: str, before: str, after: str) -> str | None:
    """The path at which something lies already: the one named, or a file where a folder of it has to be."""
    parts = name.split("/")
    for depth in range(1, len(parts)):
        above = place / "/".join(parts[:depth])
        if not os.path.lexists(above):
            return None
        if above.is_symlink() or not above.is_dir():
            return "/".join(parts[:depth]) if after != _NOTHING else None
    here = place / name
    is_folder = here.is_dir() and not here.is_symlink()
    return name if is_folder or (before == _NOTHING and os.path.lexists(here)) else None


def _overwritten(place: Path, files: list[str]) -> Conflict:
    return _stuck(
        place,
        f"these files would be overwritten: {', '.join(files[:_NAMED])}",
        "commit them, stash them or move them away, then try again",
        files=files[:_NAMED],
    )


@contextlib.contextmanager
def _prepared(path: Path, branch: str, new: str, old: str, what: str) -> Iterator[Callable[[], None]]:
    """Hold the branch at `old` for every other git, until it is committed to `new` or, without that, let go."""
    argv = ["git", "-C", str(path), *_ALONE, "update-ref", "-m", f"swarm: merge {what}".strip(), "--stdin"]
    with proc.start_pipes(argv, env={**clean_environment(), **_QUIET}) as process:

        def say(*lines: str, answers: int) -> None:
            assert process.stdin
            assert process.stdout
            with _ended_after(_ANSWER_TIMEOUT, process.pid), contextlib.suppress(BrokenPipeError):
                process.stdin.write("".join(f"{line}\n" for line in lines).encode())
                process.stdin.flush()
                if all(process.stdout.readline().endswith(b": ok\n") for _ in range(answers)):
                    return
            raise _held(path, branch, old)

        say("start", f"update refs/heads/{branch} {new} {old}", "prepare", answers=2)
        yield lambda: say("commit", answers=1)


@contextlib.contextmanager
def _ended_after(seconds: float, pid: int) -> Iterator[None]:
    """End a program that does not answer in time; asked first, git removes the locks it holds."""
    timers = [
        threading.Timer(seconds, proc.end_group, (pid, signal.SIGTERM)),
        threading.Timer(seconds + _LAST_WORDS, proc.end_group, (pid, signal.SIGKILL)),
    ]
    for timer in timers:
        timer.daemon = True
        timer.start()
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()


def _held(path: Path, branch: str, expected: str) -> Conflict:
    found = ref_commit(path, f"refs/heads/{branch}")
    if found != expected:
        return _moved(branch, expected, found)
    return _stuck(path, f"another git holds {branch}", "try again when it has ended")


def _moved(branch: str, expected: str, found: str | None) -> Conflict:
    return Conflict(
        f"{branch} is at {found}, not at {expected}",
        hint="merge again onto where it is now",
        details={"reason": "base_moved", "branch": branch, "expected": expected, "found": found},
    )


def _stuck(place: Path, why: str, hint: str = "", *, files: Sequence[str] = ()) -> Conflict:
    return Conflict(
        f"{place} cannot follow the merge: {why}",
        hint=hint or "see what it is there, then try again",
        details={"reason": "checkout", "path": str(place), "files": list(files)},
    )

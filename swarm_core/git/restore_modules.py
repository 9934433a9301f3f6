"""Repositories inside a worktree as older versions stored them: fetched under refs/swarm/modules."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from swarm_core.git.command import LONG_TIMEOUT, _git
from swarm_core.git.preserve import Nested, modules_prefix, modules_root
from swarm_core.git.refs import git_dirs, ref_commit


def restore_modules(
    root: Path, stored: Iterable[Nested], ref: str, *, restore: Callable[[Path, str], object]
) -> None:
    """Rebuild repositories that were inside the worktree from what was fetched into this one."""
    for nested in stored:
        place = root / nested.path
        source = str(git_dirs(root)[1])
        prefix = modules_prefix(ref, nested.number)
        if not (place / ".git").exists():
            _rebuild(place, nested, source, ref)
        _fetch(place, source, [f"+{prefix}/snapshot:{ref}", f"+{prefix}/modules/*:{modules_root(ref)}/*"])
        restore(place, ref)


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

"""Deleting branches: only while a ref that lasts holds every commit, which git checks in the same transaction.

Everything happens under the repository's lock, so that of two branches that hold each other one stays.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from swarm_core import files, locks
from swarm_core.errors import CommandFailed
from swarm_core.git import admin
from swarm_core.git.command import (
    _ANY_CODE,
    _git,
    check_branch_name,
    check_commit_id,
    check_swarm_ref,
    code_of,
    text,
)
from swarm_core.git.identity import FIXED_DATE, IDENTITY
from swarm_core.git.quarantine import DURABLE, sync_object, sync_ref
from swarm_core.git.refs import LIST_REFS, git_dirs, plain_refs, ref_commit

HELD = "refs/swarm/held/"
LOGGED = "refs/swarm/logged/"
_HEADS, _REVIEWS = "refs/heads/", "refs/heads/review/"
_ATTEMPTS = 3


def delete_branch(repo: str | Path, branch: str, *, lock: Path) -> bool:
    """Delete the branch if another ref has all its commits; True when it is gone.

    Another branch holds them by itself, unless it is a review's: that comes and goes with the reviewed work.
    A tag or a remote branch may go with the next `git fetch`, so a ref of ours keeps the commits then. Where the
    branch itself was pushed to does not count. A branch that is checked out, rebased or bisected anywhere stays.
    """
    check_branch_name(branch)
    with locks.hold(lock):
        for _ in range(_ATTEMPTS):
            tip = ref_commit(repo, f"{_HEADS}{branch}")
            if tip is None:
                return True
            found = _holders(repo, branch, tip)
            lasting = [(ref, commit) for ref, commit in found if ref.startswith(_HEADS)]
            if lasting:
                ref, commit = lasting[0]
                guard = f"verify {ref} {commit}"
            elif found:
                guard = f"update {HELD}{branch}-{tip[:12]} {tip}"
            else:
                return False
            if delete_guarded(repo, branch, tip, guard):
                return True
    return False


def retire_branch(repo: str | Path, branch: str, commit: str, *, ref: str, lock: Path) -> bool:
    """Delete the branch if it is at the commit, which `ref` keeps from then on; True when it is gone.

    Twice is safe. What the ref kept before and the commit does not contain stays under a ref beside it.
    """
    check_branch_name(branch)
    check_commit_id(commit)
    check_swarm_ref(ref)
    with locks.hold(lock):
        tip = ref_commit(repo, f"{_HEADS}{branch}")
        if tip != commit:
            return tip is None
        before = ref_commit(repo, ref)
        guard = f"update {ref} {commit}"
        if before is not None and code_of(repo, "merge-base", "--is-ancestor", before, commit) != 0:
            guard = f"update {ref}-{before[:12]} {before}\n{guard} {before}"
        return delete_guarded(repo, branch, commit, guard)


def _holders(repo: str | Path, branch: str, tip: str) -> list[tuple[str, str]]:
    """The refs that have the commit and count, with what they point at."""
    listed = _git(repo, *LIST_REFS, "--contains", tip, _HEADS, "refs/remotes", "refs/tags")
    return [(ref, commit) for ref, commit in plain_refs(listed) if not _comes_and_goes(ref, branch)]


def _comes_and_goes(ref: str, branch: str) -> bool:
    pushed = ref.startswith("refs/remotes/") and ref.endswith(f"/{branch}")
    return ref == f"{_HEADS}{branch}" or ref.startswith(_REVIEWS) or pushed


def delete_guarded(repo: str | Path, branch: str, tip: str, guard: str) -> bool:
    """Delete the branch at `tip` while the refs of its guard hold; False when it was left alone.

    The guard is lines for `git update-ref`, `verify` or `update`. What these refs hold is on disk before the
    branch goes, which is verified in the same transaction.
    """
    common_dir = git_dirs(repo)[1]
    if admin.holders(common_dir, branch):
        return False
    lines = [*guard.splitlines(), *_keep_logged(repo, common_dir, branch, tip)]
    if made := [line for line in lines if line.startswith("update ")]:
        _update_refs(repo, made)
    held = {ref: commit for _, ref, commit, *_ in (line.split(" ") for line in lines)}
    for ref in held:
        sync_ref(common_dir, ref)
    try:
        verified = [f"verify {ref} {commit}" for ref, commit in held.items()]
        _update_refs(repo, [*verified, f"delete {_HEADS}{branch} {tip}"])
    except CommandFailed:
        if all(ref_commit(repo, ref) == commit for ref, commit in {**held, f"{_HEADS}{branch}": tip}.items()):
            raise
        return False
    _drop_settings(repo, common_dir, branch)
    return True


def _update_refs(repo: str | Path, lines: Sequence[str]) -> None:
    told = "".join(f"{line}\n" for line in ("start", *lines, "prepare", "commit"))
    _git(repo, *DURABLE, "update-ref", "--no-deref", "--stdin", stdin=told.encode())


def _keep_logged(repo: str | Path, common_dir: Path, branch: str, tip: str) -> list[str]:
    """The command that keeps commits which no lasting ref has but the branch's log knows: amended, or reset away.

    The log goes with the branch. They become the parents of a commit without files.
    """
    log = common_dir / "logs" / _HEADS / branch
    lines = files.read_regular(log).decode(errors="replace").splitlines() if log.is_file() else []
    named = {found for line in lines for found in line.split(" ", 2)[:2]}
    known = sorted(c for c in named - {tip} if re.fullmatch(r"[0-9a-f]{40,64}", c) and c.strip("0"))
    if not known:
        return []
    refs = plain_refs(_git(repo, *LIST_REFS, _HEADS, "refs/swarm/"))
    lasting = {tip, *(oid for ref, oid in refs if not _comes_and_goes(ref, branch))}
    asked = "".join(f"{one}\n" for one in (*known, *(f"^{oid}" for oid in sorted(lasting)))).encode()
    lost = set(_git(repo, "rev-list", "--ignore-missing", "--stdin", stdin=asked).decode().split())
    ends = [commit for commit in known if commit in lost]
    if not ends:
        return []
    ends = text(repo, "merge-base", "--independent", *ends).split()
    parents = [argument for end in ends for argument in ("-p", end)]
    kept = _store_commit(repo, common_dir, parents, f"commits that only the log of {branch} knew")
    return [f"update {LOGGED}{branch}-{kept[:12]} {kept}"]


def _store_commit(repo: str | Path, common_dir: Path, parents: Sequence[str], message: str) -> str:
    """Write a commit without files, which is on disk when this returns."""
    empty = text(repo, *DURABLE, "hash-object", "-t", "tree", "-w", "--stdin", stdin=b"")
    how = (*DURABLE, "commit-tree", empty, *parents, "-m", message)
    commit = text(repo, *how, env={**IDENTITY, **FIXED_DATE})
    for oid in (empty, commit):
        sync_object(common_dir / "objects", oid)
    return commit


def _drop_settings(repo: str | Path, common_dir: Path, branch: str) -> None:
    """Remove the branch's section in the repository's configuration, as `git branch -d` does."""
    if f'[branch "{branch}"]'.encode() in files.read_small(common_dir / "config"):
        _git(repo, "config", "--local", "--remove-section", f"branch.{branch}", ok_codes=_ANY_CODE)

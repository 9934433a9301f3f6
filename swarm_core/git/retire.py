"""Deleting branches: only while a ref that lasts holds every commit, which git checks in the same transaction.

Everything happens under the repository's lock, so that of two branches that hold each other one stays.
"""

from __future__ import annotations

import re
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
    nul_list,
    text,
)
from swarm_core.git.identity import FIXED_DATE, IDENTITY
from swarm_core.git.refs import git_dirs, ref_commit

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
    where = (_HEADS, "refs/remotes", "refs/tags")
    how = ("for-each-ref", "--format=%(refname)%00%(objectname)%00", "--contains", tip, *where)
    fields = [field.lstrip("\n") for field in nul_list(_git(repo, *how))]
    pairs = [(ref, commit) for ref, commit in zip(fields[::2], fields[1::2], strict=False) if ref]
    return [pair for pair in pairs if not _comes_and_goes(pair[0], branch)]


def _comes_and_goes(ref: str, branch: str) -> bool:
    pushed = ref.startswith("refs/remotes/") and ref.endswith(f"/{branch}")
    return ref == f"{_HEADS}{branch}" or ref.startswith(_REVIEWS) or pushed


def delete_guarded(repo: str | Path, branch: str, tip: str, guard: str) -> bool:
    """Delete the branch at `tip` in one transaction with its guard; False when it was left alone."""
    common_dir = git_dirs(repo)[1]
    if admin.holders(common_dir, branch):
        return False
    lines = ["start", guard, *_keep_logged(repo, common_dir, branch, tip), f"delete {_HEADS}{branch} {tip}"]
    told = "".join(f"{line}\n" for line in (*lines, "prepare", "commit"))
    try:
        _git(repo, "update-ref", "--no-deref", "--stdin", stdin=told.encode())
    except CommandFailed:
        held = ref_commit(repo, guard.split(" ")[1]) if guard.startswith("verify ") else None
        if ref_commit(repo, f"{_HEADS}{branch}") == tip and (held is None or held == guard.split(" ")[2]):
            raise
        return False
    _drop_settings(repo, common_dir, branch)
    return True


def _keep_logged(repo: str | Path, common_dir: Path, branch: str, tip: str) -> list[str]:
    """The command that keeps commits which only the branch's log knows: amended, or reset away.

    The log goes with the branch. They become the parents of a commit without files.
    """
    log = common_dir / "logs" / _HEADS / branch
    lines = files.read_regular(log).decode(errors="replace").splitlines() if log.is_file() else []
    named = {found for line in lines for found in line.split(" ", 2)[:2]}
    known = sorted(c for c in named - {tip} if re.fullmatch(r"[0-9a-f]{40,64}", c) and c.strip("0"))
    if not known:
        return []
    asked = "".join(f"{commit}\n" for commit in known).encode()
    how = ("rev-list", "--ignore-missing", "--stdin", "--not", "--all")
    lost = set(_git(repo, *how, stdin=asked).decode().split())
    ends = [commit for commit in known if commit in lost]
    if not ends:
        return []
    ends = text(repo, "merge-base", "--independent", *ends).split()
    parents = [argument for end in ends for argument in ("-p", end)]
    message = f"commits that only the log of {branch} knew"
    kept = text(repo, "commit-tree", _empty(repo), *parents, "-m", message, env={**IDENTITY, **FIXED_DATE})
    return [f"update {LOGGED}{branch}-{kept[:12]} {kept}"]


def _empty(repo: str | Path) -> str:
    return text(repo, "hash-object", "-t", "tree", "-w", "--stdin", stdin=b"")


def _drop_settings(repo: str | Path, common_dir: Path, branch: str) -> None:
    """Remove the branch's section in the repository's configuration, as `git branch -d` does."""
    if f'[branch "{branch}"]'.encode() in files.read_small(common_dir / "config"):
        _git(repo, "config", "--local", "--remove-section", f"branch.{branch}", ok_codes=_ANY_CODE)

"""Deleting the branch of merged work: where its last commit is kept, and only if nothing was added to it."""

from __future__ import annotations

from pathlib import Path

from swarm_core.git.command import _git, check_branch_name, check_commit_id, check_swarm_ref, code_of
from swarm_core.git.merge import delete_branch
from swarm_core.git.refs import ref_commit


def retire_branch(repo: str | Path, branch: str, commit: str, *, ref: str) -> bool:
    """Delete the branch if it is at the commit, which `ref` keeps from then on; True when it is gone.

    Twice is safe. What the ref kept before and the commit does not contain stays under a ref beside it.
    """
    check_branch_name(branch)
    check_commit_id(commit)
    check_swarm_ref(ref)
    tip = ref_commit(repo, f"refs/heads/{branch}")
    if tip is None:
        return True
    if tip != commit:
        return False
    before = ref_commit(repo, ref)
    if before is not None and code_of(repo, "merge-base", "--is-ancestor", before, commit) != 0:
        _git(repo, "update-ref", f"{ref}-{before[:12]}", before)
    _git(repo, "update-ref", ref, commit)
    return delete_branch(repo, branch, only_if_at=commit)

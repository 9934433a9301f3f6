"""What a branch holds of its own, and finding one again that was deleted under its worktree."""

from __future__ import annotations

from pathlib import Path

from swarm_core.git.command import _git, check_branch_name, check_commit_id, nul_list, text
from swarm_core.git.merge import delete_branch
from swarm_core.git.refs import branches, git_dirs, ref_commit

_REVIEWS = "refs/heads/review/"


def own_commits(repo: str | Path, branch: str, base_commit: str | None) -> int:
    """How many commits the branch has beyond its base; 0 when the branch does not exist."""
    check_branch_name(branch)
    if branch not in branches(repo, branch):
        return 0
    since = [f"^{base_commit}"] if base_commit else []
    return int(text(repo, "rev-list", "--count", f"refs/heads/{branch}", *since))


def tip(repo: str | Path, branch: str) -> str | None:
    check_branch_name(branch)
    return ref_commit(repo, f"refs/heads/{branch}")


def delete_if_elsewhere(repo: str | Path, branch: str) -> bool:
    """Delete the branch if another branch, remote branch or tag has all its commits; True when it is gone.

    The branch of a review does not count: it comes and goes with the work that it was made from. Nor does where
    the branch itself was pushed to: that is gone after the next `git fetch --prune`.
    """
    commit = tip(repo, branch)
    if commit is None:
        return True
    holders = ("refs/heads", "refs/remotes", "refs/tags")
    found = nul_list(_git(repo, "for-each-ref", "--format=%(refname)%00", "--contains", commit, *holders))
    others = {name.strip() for name in found} - {f"refs/heads/{branch}", ""}
    if all(name.startswith(_REVIEWS) or _is_copy(name, branch) for name in others):
        return False
    return delete_branch(repo, branch, only_if_at=commit)


def _is_copy(ref: str, branch: str) -> bool:
    return ref.startswith("refs/remotes/") and ref.endswith(f"/{branch}")


def lost_branch(path: str | Path, branch: str) -> str | None:
    """The last commit of a worktree whose branch is gone, from its own log; None when nothing is lost."""
    git_dir, _ = git_dirs(path)
    head = (git_dir / "HEAD").read_text(errors="replace").strip()
    if head != f"ref: refs/heads/{branch}" or branch in branches(path, branch):
        return None
    log = git_dir / "logs" / "HEAD"
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    commit = lines[-1].split(" ")[1] if lines else ""
    return commit if commit.strip("0") else None


def create_branch(repo: str | Path, branch: str, commit: str) -> None:
    """Make a branch that does not exist; raises if it does."""
    check_branch_name(branch)
    check_commit_id(commit)
    _git(repo, "update-ref", f"refs/heads/{branch}", commit, "")

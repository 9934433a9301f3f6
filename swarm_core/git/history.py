"""What a branch holds of its own, and finding one again that was deleted under its worktree."""

from __future__ import annotations

from pathlib import Path

from swarm_core import files
from swarm_core.git.command import _git, _run, check_branch_name, check_commit_id, text
from swarm_core.git.identity import FIXED_DATE, IDENTITY
from swarm_core.git.refs import branches, git_dirs, ref_commit


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


def beyond(repo: str | Path, base: str, head: str) -> dict[str, list[str]] | None:
    """The commits that lead to `head` and not to `base`, each with its parents; None if git cannot list them."""
    for commit in (base, head):
        check_commit_id(commit)
    done = _run(repo, "rev-list", "--parents", head, f"^{base}", ok_codes=(0, 128))
    if done.returncode != 0:
        return None
    lines = [line.split() for line in done.stdout.decode().splitlines()]
    return {commit: parents for commit, *parents in lines}


def lost_branch(path: str | Path, branch: str) -> str | None:
    """The last commit of a worktree whose branch is gone, from its own log; None when nothing is lost.

    A branch that has no commit yet is not lost.
    """
    git_dir, _ = git_dirs(path)
    head = files.read_small(git_dir / "HEAD").decode(errors="replace").strip()
    if head != f"ref: refs/heads/{branch}" or branch in branches(path, branch):
        return None
    log = git_dir / "logs" / "HEAD"
    lines = files.read_regular(log).decode(errors="replace").splitlines() if log.exists() else []
    commit = lines[-1].split(" ")[1] if lines else ""
    return commit if commit.strip("0") and commit != empty_commit(path) else None


def empty_commit(repo: str | Path) -> str:
    """A commit with no files, the same each time, only to satisfy `git worktree add` before its first commit."""
    tree = text(repo, "hash-object", "-t", "tree", "-w", "--stdin", stdin=b"")
    return text(repo, "commit-tree", tree, "-m", "empty", env={**IDENTITY, **FIXED_DATE})


def create_branch(repo: str | Path, branch: str, commit: str) -> None:
    """Make a branch that does not exist; raises if it does."""
    check_branch_name(branch)
    check_commit_id(commit)
    _git(repo, "update-ref", f"refs/heads/{branch}", commit, "")

"""Whether a branch would merge, and whether it has been merged."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from swarm_core.git.apart import apart
from swarm_core.git.command import _git, _run, code_of, git_version, nul_list, text
from swarm_core.git.identity import FIXED_DATE, IDENTITY
from swarm_core.git.repo import resolve_base

_MERGE_TREE_SINCE = (2, 38)


@dataclass(frozen=True, slots=True)
class MergePrediction:
    clean: bool
    conflicts: list[str]
    supported: bool
    related: bool = True


def predict_merge(repo: str | Path, ours: str, theirs: str) -> MergePrediction:
    """Merge in memory and say which files would conflict; no branch, index or file changes.

    Two that are not `related` have no commit in common, and git merges nothing then. Where a shallow history may
    hide one, nothing can be predicted.
    """
    one, other = _commit(repo, ours), _commit(repo, theirs)
    if not _common(repo, one, other):
        is_cut = text(repo, "rev-parse", "--is-shallow-repository") == "true"
        return MergePrediction(clean=False, conflicts=[], supported=not is_cut, related=is_cut)
    return _merge(repo, one, other)[0]


def is_merged(repo: str | Path, branch_or_commit: str, into: str) -> bool:
    """Whether everything on the branch is in `into`: by ancestry, or rebased or squashed into it.

    Commits that cancel each other out are not taken for merged, nor what was taken back in `into` since. An equal
    change that somebody else has made there counts: nothing of the branch is missing then.
    """
    branch, target = _commit(repo, branch_or_commit), _commit(repo, into)
    if _is_ancestor(repo, branch, target):
        return True
    common = _common(repo, target, branch)
    if not common or _tree(repo, common) == _tree(repo, branch):
        return False
    prediction, tree = _merge(repo, target, branch)
    if prediction.clean and tree == _tree(repo, target):
        return True
    if prediction.supported and _brings(repo, target, tree) - set(prediction.conflicts):
        return False
    whole = _change(repo, branch, common)
    came = _rebased(repo, branch, target) or _is_made_in(repo, target, whole)
    return came and not _is_made_in(repo, target, _change(repo, common, whole))


def _merge(repo: str | Path, ours: str, theirs: str) -> tuple[MergePrediction, str]:
    if git_version() < _MERGE_TREE_SINCE:
        return MergePrediction(clean=False, conflicts=[], supported=False), ""
    how = ("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages")
    with apart(repo) as env:
        done = _run(repo, *how, ours, theirs, env=env, ok_codes=(0, 1))
    tree, *conflicts = nul_list(done.stdout)
    return MergePrediction(clean=done.returncode == 0, conflicts=conflicts, supported=True), tree


def _rebased(repo: str | Path, branch: str, target: str) -> bool:
    """Whether each commit has its like in the target; merge commits have none that could be compared."""
    marks = _git(repo, "rev-list", "--cherry-mark", "--right-only", "--parents", f"{target}...{branch}").decode()
    lines = marks.splitlines()
    return bool(lines) and all(line.startswith("=") and len(line.split()) == 2 for line in lines)


def _brings(repo: str | Path, target: str, tree: str) -> set[str]:
    """The files of a merged tree that differ from the target's; those in conflict always do."""
    return set(nul_list(_git(repo, "diff-tree", "-r", "--name-only", "--no-renames", "-z", target, tree)))


def _change(repo: str | Path, to: str, parent: str) -> str:
    """A commit that nobody sees, which changes its parent's files to those of another."""
    return text(repo, "commit-tree", _tree(repo, to), "-p", parent, "-m", "whole", env={**IDENTITY, **FIXED_DATE})


def _is_made_in(repo: str | Path, target: str, change: str) -> bool:
    """Whether one commit of the target changes the same as this one does."""
    return _git(repo, "cherry", target, change, f"{change}^").startswith(b"-")


def _common(repo: str | Path, one: str, other: str) -> str:
    """The last commit that both have; empty when they have none in common."""
    return _git(repo, "merge-base", one, other, ok_codes=(0, 1)).decode().strip()


def _is_ancestor(repo: str | Path, commit: str, of: str) -> bool:
    return code_of(repo, "merge-base", "--is-ancestor", commit, of) == 0


def _tree(repo: str | Path, commit: str) -> str:
    return text(repo, "rev-parse", "--verify", f"{commit}^{{tree}}")


def _commit(repo: str | Path, name: str) -> str:
    commit = resolve_base(repo, name).commit
    assert commit is not None  # only an unnamed base may have no commit
    return commit

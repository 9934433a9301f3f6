"""The last step of adopting a pooled worktree: onto its branch, also after a kill among the files."""

from __future__ import annotations

from collections.abc import Sequence

from swarm_core.git import admin
from swarm_core.git.command import LONG_TIMEOUT, _git, run_post_checkout
from swarm_core.git.refs import head_commit, ref_commit
from swarm_core.git.worktree_files import complete


def switch_adopted(
    entry: admin.Admin, branch: str, commit: str, *, resumed: bool, keep_open: Sequence[int]
) -> None:
    """Put the worktree on the branch at the commit; `resumed` completes what a killed switch left half done.

    `switch` without a start point looks at no file; with one it reads the whole tree.
    """
    if entry.head != f"ref: refs/heads/{branch}":
        entry.drop_stale_locks()
        admin.drop_stale_branch_lock(entry.folder.parents[1], branch)
        before = head_commit(entry.path)
        exists = ref_commit(entry.path, f"refs/heads/{branch}") is not None
        if resumed and before != commit:
            complete(entry.path, before, commit, keep_open=keep_open)
            if not exists:
                _git(entry.path, "branch", "--no-track", branch, commit, keep_open=keep_open)
            how = ["symbolic-ref", "HEAD", f"refs/heads/{branch}"]
        elif before == commit and exists:
            how = ["symbolic-ref", "HEAD", f"refs/heads/{branch}"]
        elif before == commit:
            how = ["switch", "--quiet", "-c", branch]
        else:
            how = ["switch", "--quiet", *([branch] if exists else ["--no-track", "-c", branch, commit])]
        _git(entry.path, *how, keep_open=keep_open, timeout=LONG_TIMEOUT)
        run_post_checkout(entry.path, before, commit)
    entry.drop_adopting()

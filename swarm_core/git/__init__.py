"""git: repositories, worktrees, changes, preserved work and merges, on the real program.

GitPython is imported only here. Nothing writes to a person's git configuration, hooks or index.
"""

from __future__ import annotations

from swarm_core.git.changes import (
    ChangeStats,
    FileChange,
    change_stats,
    changes,
    diff,
    dirty_files,
    is_dirty,
)
from swarm_core.git.command import check_branch_name, git_version
from swarm_core.git.inside import linked_worktrees_below
from swarm_core.git.merge import MergePrediction, is_merged, predict_merge
from swarm_core.git.pool import adopt_pooled
from swarm_core.git.preserve import (
    Preserved,
    delete_ref,
    measure_preserved,
    preserve,
    preserved_refs,
    verify_preserved,
)
from swarm_core.git.refs import branches, current_branch, head_commit
from swarm_core.git.removal import remove as remove_worktree
from swarm_core.git.replaced import replaced
from swarm_core.git.repo import Base, RepoInfo, inspect, resolve_base
from swarm_core.git.restore import Restored, restore
from swarm_core.git.retire import delete_branch
from swarm_core.git.worktrees import (
    WorktreeEntry,
    add_pooled,
    add_worktree,
    attach_worktree,
    is_checked_out,
    is_unmade,
    list_worktrees,
    move_worktree,
    repair_worktrees,
)

__all__ = [
    "Base",
    "ChangeStats",
    "FileChange",
    "MergePrediction",
    "Preserved",
    "RepoInfo",
    "Restored",
    "WorktreeEntry",
    "add_pooled",
    "add_worktree",
    "adopt_pooled",
    "attach_worktree",
    "branches",
    "change_stats",
    "changes",
    "check_branch_name",
    "current_branch",
    "delete_branch",
    "delete_ref",
    "diff",
    "dirty_files",
    "git_version",
    "head_commit",
    "inspect",
    "is_checked_out",
    "is_dirty",
    "is_merged",
    "is_unmade",
    "linked_worktrees_below",
    "list_worktrees",
    "measure_preserved",
    "move_worktree",
    "predict_merge",
    "preserve",
    "preserved_refs",
    "remove_worktree",
    "repair_worktrees",
    "replaced",
    "resolve_base",
    "restore",
    "verify_preserved",
]

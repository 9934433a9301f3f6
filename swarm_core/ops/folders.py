"""Where an instance's worktree should be, and what a person does when it is not there or is something else."""

from __future__ import annotations

import json
from pathlib import Path

from swarm_core.models import UNLINKED, WORKTREE_GONE, Instance, Wanted, remedy
from swarm_core.ops.context import Context


def in_this_home(context: Context, instance: Instance) -> str:
    """The worktree's path in the home that is used now; the recorded one is in the home it was made in."""
    recorded = Path(instance.worktree_path)
    return str(context.settings.worktrees / recorded.parent.name / recorded.name)


def kept_remedy(instance: Instance) -> str:
    """Return what to do about the folder that a removal kept, and the clean that follows."""
    kept = json.loads(instance.kept)
    todo = remedy(kept["reason"], kept["path"], kept["files"], instance.repo_path)
    return f"{todo}, then `swarm clean {instance.id}`"


def problem_remedy(instance: Instance, problem: str) -> str:
    """Return what to do about one of FOLDER_PROBLEMS."""
    stop = f"`swarm stop {instance.id}`, then " if instance.wanted == Wanted.RUNNING else ""
    if problem == WORKTREE_GONE:
        return f"{stop}`swarm restore {instance.id}`"
    return f"{stop}{remedy(UNLINKED[problem], instance.worktree_path, repo=instance.repo_path)}"

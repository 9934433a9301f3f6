"""Replaced and damaged objects: nothing is reviewed, approved or merged while they hide what was committed."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from swarm_core.errors import Conflict
from swarm_core.models import Instance
from swarm_core.ops import lineage
from swarm_core.ops.context import Context

_REF, _GRAFTS = "refs/replace/", "info/grafts"
_NAMED = 20


def require_none(context: Context, work: Instance) -> None:
    """Raise Conflict (REPLACED_OBJECTS) if the repository of the work has replaced objects."""
    if names := context.host(work).replaced(work.repo_path):
        raise refusal(work.repo_path, names)


def require_as_committed(context: Context, work: Instance, head: str | None) -> None:
    """Raise Conflict (REPLACED_OBJECTS, DAMAGED_OBJECTS) unless git shows the work as it was committed."""
    require_none(context, work)
    if head is not None:
        first = lineage.origin(context.db, work)
        bases = [first.base_branch, *([first.base_commit] if first.base_commit else [])]
        context.host(work).require_sound(work.repo_path, bases, head)


def refusal(repo_path: str, names: Sequence[str], **details: Any) -> Conflict:
    shown = ", ".join(names[:_NAMED])
    return Conflict(
        f"objects of {repo_path} are replaced, so nobody sees what was committed: {shown}",
        code="REPLACED_OBJECTS",
        hint=f"find out who made them, then remove them: {remedy(repo_path, names)}",
        details={"refs": list(names), **details},
    )


def remedy(repo_path: str, names: Sequence[str]) -> str:
    """The commands that remove them."""
    where = shlex.quote(repo_path)
    objects = [name.removeprefix(_REF) for name in names if name.startswith(_REF)]
    commands = [f"git -C {where} replace -d {' '.join(objects)}"] if objects else []
    if _GRAFTS in names:
        commands.append(f'rm "$(git -C {where} rev-parse --path-format=absolute --git-common-dir)/{_GRAFTS}"')
    return " && ".join(commands)

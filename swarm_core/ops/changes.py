"""How much an instance has changed against its base: counted when it may have, and remembered."""

from __future__ import annotations

import contextlib
import logging
from typing import Any

from swarm_core.errors import SwarmError
from swarm_core.models import Activity, Instance, Wanted
from swarm_core.ops.context import Context, place
from swarm_core.ops.hanging import Hanging
from swarm_core.store import instances

log = logging.getLogger(__name__)


def may_have_happened(instance: Instance) -> bool:
    """Whether the agent was at work since its changes were counted."""
    if instance.wanted != Wanted.RUNNING and instance.changes_at and instance.changes_at >= instance.activity_at:
        return False
    if instance.activity in (Activity.IDLE, Activity.BLOCKED, Activity.EXITED):
        return instance.changes_at is None or instance.changes_at < instance.activity_at
    return True


def refresh(context: Context, instance: Instance, *, hanging: Hanging | None = None) -> None:
    """Count what the instance has changed against its base and remember it.

    Of a worktree that cannot be read the last counts stay, and the others get their turn.
    """
    try:
        with hanging.asking(instance.repo_path) if hanging else contextlib.nullcontext():
            facts = context.host(instance).changes(place(instance))
    except SwarmError as error:
        log.debug("changes of %s cannot be counted: %s", instance.id, error.message)
        counted: dict[str, Any] = {}
    else:
        counted = {"files_changed": facts["files"], "lines_added": facts["added"]}
        counted |= {"lines_deleted": facts["deleted"], "head_commit": facts["head_commit"]}
    with context.db.write():
        instances.set_fields(context.db, instance.id, changes_at=context.db.now(), **counted)

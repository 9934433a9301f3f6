"""The table of multi-step operations, and taking up the open one of an instance."""

from __future__ import annotations

from swarm_core.models import Instance
from swarm_core.ops.clean import CLEAN
from swarm_core.ops.context import Context
from swarm_core.ops.publish import PULL
from swarm_core.ops.restart import RESTART
from swarm_core.ops.restore import RESTORE
from swarm_core.ops.spawn import SPAWN
from swarm_core.ops.steps import Job, Operation, run
from swarm_core.ops.stop import STOP
from swarm_core.store import actions, instances

OPERATIONS: dict[str, Operation] = {o.kind: o for o in (SPAWN, STOP, RESTART, RESTORE, CLEAN, PULL)}


def carry_out(context: Context, instance_id: str, *, lock: int) -> Instance:
    """Bring the instance's open action to its end; the caller holds the instance's lock."""
    action = actions.open_for(context.db, instance_id)
    instance = instances.get(context.db, instance_id)
    if action is None:
        return instance
    return run(OPERATIONS[action.kind], Job(context, instance, action, lock))

"""Runs one operation in a process that kills itself with SIGKILL at a named checkpoint.

python -m tests.fakes.crash CHECKPOINT OPERATION [ID]

The operation `failing-spawn` finds something in the way of the session's files and undoes itself.
"""

from __future__ import annotations

import os
import signal
import sys

from swarm_core import config
from swarm_core.swarm import Swarm


def main(target: str, operation: str, instance_id: str = "") -> None:
    settings = config.load(os.environ)

    def checkpoint(name: str) -> None:
        if operation == "failing-spawn" and name == "spawn:session:before":
            (settings.instance_dir("work-a1") / "order" / "in-the-way").mkdir(parents=True)
        if name == target:
            os.kill(os.getpid(), signal.SIGKILL)

    with Swarm.open(settings, os.environ, checkpoint=checkpoint) as swarm:
        if operation in ("spawn", "failing-spawn"):
            swarm.work("write made.txt by the agent", repo=".", agent="scripted")
        elif operation == "reconcile":
            swarm.reconcile()
        else:
            getattr(swarm, operation)(instance_id)


if __name__ == "__main__":
    main(*sys.argv[1:])

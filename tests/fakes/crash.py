"""Runs one operation in a process that kills itself with SIGKILL at a named checkpoint.

python -m tests.fakes.crash CHECKPOINT OPERATION [ID]
"""

from __future__ import annotations

import os
import signal
import sys

from swarm_core import config
from swarm_core.swarm import Swarm


def main(target: str, operation: str, instance_id: str = "") -> None:
    def checkpoint(name: str) -> None:
        if name == target:
            os.kill(os.getpid(), signal.SIGKILL)

    settings = config.load(os.environ)
    with Swarm.open(settings, os.environ, checkpoint=checkpoint) as swarm:
        if operation == "spawn":
            swarm.work("write made.txt by the agent", repo=".", agent="scripted")
        elif operation == "reconcile":
            swarm.reconcile()
        else:
            getattr(swarm, operation)(instance_id)


if __name__ == "__main__":
    main(*sys.argv[1:])

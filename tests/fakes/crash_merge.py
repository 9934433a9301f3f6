"""Merges in a process that kills itself with SIGKILL at a named checkpoint.

python -m tests.fakes.crash_merge CHECKPOINT INSTANCE    or    ... CHECKPOINT queue
"""

from __future__ import annotations

import os
import signal
import sys

from swarm_core import config
from swarm_core.swarm import Swarm


def main(target: str, what: str) -> None:
    def checkpoint(name: str) -> None:
        if name == target:
            os.kill(os.getpid(), signal.SIGKILL)

    with Swarm.open(config.load(os.environ), os.environ, checkpoint=checkpoint) as swarm:
        if what == "queue":
            swarm.pulls.run_queue()
        else:
            swarm.pulls.merge(what)


if __name__ == "__main__":
    main(*sys.argv[1:])

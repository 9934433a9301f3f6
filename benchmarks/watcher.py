"""A process that does what the coordinator does for the agents: the supervise loop, until SIGTERM."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

from benchmarks.ground import Home, wait_for
from swarm_core import config
from swarm_core.ops.supervise import Supervisor
from swarm_core.swarm import Swarm


@contextlib.contextmanager
def watching(home: Home, swarm: Swarm) -> Iterator[int]:
    """The supervise loop in a process of its own, from its first look on; yields its pid."""
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.watcher"], env=home.environ)
    try:
        wait_for(
            lambda: (
                process.poll() is not None or any(e.name == "coordinator:started" for e in swarm.events(limit=500))
            ),
            what="the supervise loop",
        )
        if process.poll() is not None:
            raise RuntimeError("the supervise loop ended")
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


def main() -> None:
    with Swarm.open(config.load(os.environ), os.environ) as swarm:
        supervisor = Supervisor(swarm.context)
        signal.signal(signal.SIGTERM, lambda *_: supervisor.stop())
        supervisor.run()


if __name__ == "__main__":
    main()

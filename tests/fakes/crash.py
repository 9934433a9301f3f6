"""Runs one operation in a process that kills itself with SIGKILL at a named checkpoint.

python -m tests.fakes.crash CHECKPOINT OPERATION [ID]

The operations `failing-spawn` and `failing-review` find something in the way of the session's files and undo
themselves.
"""

from __future__ import annotations

import os
import signal
import sys

from swarm_core import config
from swarm_core.swarm import Swarm

_FAILING = {"failing-spawn": "work-a1", "failing-review": "review-a1"}


def main(target: str, operation: str, instance_id: str = "") -> None:
    settings = config.load(os.environ)

    def checkpoint(name: str) -> None:
        if operation in _FAILING and name == "spawn:session:before":
            (settings.instance_dir(_FAILING[operation]) / "order" / "in-the-way").mkdir(parents=True)
        if name == target:
            os.kill(os.getpid(), signal.SIGKILL)

    with Swarm.open(settings, os.environ, checkpoint=checkpoint) as swarm:
        if operation in ("spawn", "failing-spawn"):
            swarm.work("write made.txt by the agent", repo=".", agent="scripted")
        elif operation == "reconcile":
            swarm.reconcile()
        elif operation == "failing-review":
            swarm.request_review(instance_id)
        elif operation == "needs-work":
            link = swarm.review_link(instance_id)
            swarm.send_feedback(
                link.parent_id, "fix it", feedback_type="needs_work", actor=instance_id, review_id=instance_id
            )
        elif operation == "open-pull":
            swarm.open_pull(instance_id, title="Make it", description="It was not made.")
        else:
            getattr(swarm, operation)(instance_id)


if __name__ == "__main__":
    main(*sys.argv[1:])

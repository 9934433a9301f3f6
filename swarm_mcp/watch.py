"""The loops that go on by themselves, each in a thread of its own, and what is known of the last look."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from swarm_core.ops.context import Context
from swarm_core.ops.courier import Courier
from swarm_core.ops.follow import Follower
from swarm_core.ops.merger import Merger
from swarm_core.ops.supervise import Supervisor

_END_WITHIN = 8.0

log = logging.getLogger(__name__)


class Watch:
    """What goes on by itself: looking at agents, delivering messages, following and merging pull requests."""

    def __init__(self, context: Context) -> None:
        self._supervisor = Supervisor(context)
        self._courier = Courier(context)
        self._merger = Merger(context)
        self.follower = Follower(context)
        self._failure: BaseException | None = None

    def state(self) -> dict[str, Any]:
        """What the last look found, and how many seconds ago it ended: None before the first one."""
        looked_at = self._supervisor.looked_at
        age = None if looked_at is None else time.monotonic() - looked_at
        return {"instances": self._supervisor.counted, "age": age, "problem": self._supervisor.problem}

    @contextlib.contextmanager
    def watching(self, *, on_failure: Callable[[], None]) -> Iterator[None]:
        """Look until the block ends; `on_failure` is called when the loop itself breaks."""

        def body(run: Callable[[], None]) -> None:
            try:
                run()
            except BaseException as error:  # a thread's failure must end the process, not vanish with the thread
                log.exception("the supervise loop broke")
                self._failure = error
                on_failure()

        loops = {
            "supervise": self._supervisor.run,
            "courier": self._courier.run,
            "follower": self.follower.run,
            "merger": self._merger.run,
        }
        threads = [threading.Thread(target=body, args=(r,), name=n, daemon=True) for n, r in loops.items()]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            for one in (self._supervisor, self._courier, self.follower, self._merger):
                one.stop()
            deadline = time.monotonic() + _END_WITHIN
            for thread in threads:
                thread.join(max(0.0, deadline - time.monotonic()))
                if thread.is_alive():
                    log.warning("%s did not end within %g s; the next start goes on", thread.name, _END_WITHIN)

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

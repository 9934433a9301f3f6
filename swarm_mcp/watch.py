"""The supervise loop in a thread of its own, and what is known of its last look."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator

from swarm_core.ops.context import Context
from swarm_core.ops.courier import Courier
from swarm_core.ops.follow import Follower
from swarm_core.ops.merger import Merger
from swarm_core.ops.supervise import Supervisor

STALE_AFTER = 10.0
_END_WITHIN = 8.0

log = logging.getLogger(__name__)


class Watch:
    """Health needs no database: it answers while a look is stuck in it."""

    def __init__(self, context: Context) -> None:
        self._supervisor = Supervisor(context)
        self._courier = Courier(context)
        self._merger = Merger(context)
        self.follower = Follower(context)
        self._failure: BaseException | None = None

    @property
    def instances(self) -> int | None:
        return self._supervisor.counted

    def age(self) -> float | None:
        """Seconds since the last look ended; None before the first one."""
        looked_at = self._supervisor.looked_at
        return None if looked_at is None else time.monotonic() - looked_at

    def problem(self) -> str | None:
        """Why the watching cannot be relied on now."""
        age = self.age()
        if age is None:
            return "the first look is not done yet"
        if age > STALE_AFTER:
            return f"the last look ended {age:.0f} s ago"
        return self._supervisor.problem

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

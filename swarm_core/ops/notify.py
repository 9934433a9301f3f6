"""Call a person when one is needed: once for each reason, through every channel that is on.

Each channel has a thread of its own, so that one that hangs holds up neither the others nor the loop.
"""

from __future__ import annotations

import functools
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from swarm_core.errors import SwarmError
from swarm_core.models import Instance
from swarm_core.ops import attention, channels
from swarm_core.ops.attention import Reason
from swarm_core.ops.channels import Call
from swarm_core.ops.context import Context
from swarm_core.store import instances, notices, tokens
from swarm_core.store.notices import Notice

PAUSES = (5.0, 30.0)  # after the first and the second failure; the third is the last
_PATIENCE = 1.0
_UNREAD = 10.0
_AT_ONCE = 20

log = logging.getLogger(__name__)

_Send = Callable[[Sequence[Call]], None]
_Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Outcome:
    channel: str
    sent: Sequence[Notice]
    failure: SwarmError | None


@dataclass(slots=True)
class _Attempts:
    made: int = 0
    due: float = 0.0


class Notifier:
    """One per database, in the coordinator. `look` is called from one thread and again and again.

    What was sent is kept in the database, so that a restart repeats nothing; how often a channel failed is not.
    """

    def __init__(
        self,
        context: Context,
        *,
        pauses: Sequence[float] = PAUSES,
        patience: float = _PATIENCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._context = context
        self._pauses = pauses
        self._patience = patience
        self._clock = clock
        self._channels = _channels(context)
        self._threads: dict[str, threading.Thread] = {}
        self._outcomes: queue.SimpleQueue[_Outcome] = queue.SimpleQueue()
        self._seen_at: dict[_Key, float] = {}
        self._settled: dict[int, set[str]] = {}
        self._attempts: dict[tuple[int, str], _Attempts] = {}

    def look(self) -> None:
        """Compare what needs a person with what was said, and say what is new; returns within moments."""
        self._record()
        current = self._current()
        self._compare(current)
        self._hand_out(current)
        self._record()

    def _current(self) -> dict[_Key, tuple[Instance, Reason]]:
        listed = instances.listed(self._context.db)
        return {(i.id, reason.key): (i, reason) for i in listed for reason in attention.reasons(i)}

    def _compare(self, current: dict[_Key, tuple[Instance, Reason]]) -> None:
        db, now = self._context.db, self._clock()
        known = {(notice.instance_id, notice.reason): notice for notice in notices.lasting(db)}
        self._seen_at = {key: self._seen_at.get(key, now) for key in current}
        gone = [notice for key, notice in known.items() if key not in current]
        new = [key for key in current if key not in known and self._is_ripe(*current[key])]
        if not gone and not new:
            return
        with db.write():
            for notice in gone:
                notices.over(db, notice)
            for instance_id, reason in new:
                notices.raise_(db, instance_id, reason, current[instance_id, reason][1].text)

    def _is_ripe(self, instance: Instance, reason: Reason) -> bool:
        """Whether it is worth a call: no question that is answered at once, and nothing a person has done."""
        if reason.key == attention.FAILED:
            return not tokens.is_operator(notices.status_set_by(self._context.db, instance.id))
        if not reason.key.startswith(attention.BLOCKED):
            return True
        after = self._context.settings.number("notify_after")
        # Until the question was read, it may be the one that was answered a moment ago.
        wait = after if attention.is_read(instance) else max(after, _UNREAD)
        return self._clock() - self._seen_at[instance.id, reason.key] >= wait

    def _hand_out(self, current: dict[_Key, tuple[Instance, Reason]]) -> None:
        """Give each channel that is free what it has to send, and wait a little for those that are quick."""
        waiting = notices.unsent(self._context.db)
        self._forget_all_but({notice.id for notice in waiting})
        started = []
        for name, (send, together) in self._channels.items():
            if (thread := self._threads.get(name)) is not None and thread.is_alive():
                continue
            due = [notice for notice in waiting if self._is_due(notice, name)][:_AT_ONCE]
            calls = [
                (n, _call(*current[n.instance_id, n.reason])) for n in due if (n.instance_id, n.reason) in current
            ]
            if calls:
                for notice, _ in calls:
                    self._attempts.setdefault((notice.id, name), _Attempts()).made += 1
                batches = [calls] if together else [[one] for one in calls]
                thread = threading.Thread(
                    target=self._send, args=(name, send, batches), name=f"notify-{name}", daemon=True
                )
                self._threads[name] = thread
                thread.start()
                started.append(thread)
        deadline = time.monotonic() + self._patience
        for thread in started:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _is_due(self, notice: Notice, channel: str) -> bool:
        if notice.id not in self._settled:
            self._settled[notice.id] = notices.settled(self._context.db, notice)
        if channel in self._settled[notice.id]:
            return False
        attempts = self._attempts.get((notice.id, channel))
        return attempts is None or (attempts.made <= len(self._pauses) and self._clock() >= attempts.due)

    def _send(self, channel: str, send: _Send, batches: Sequence[Sequence[tuple[Notice, Call]]]) -> None:
        """In the channel's thread."""
        for batch in batches:
            failure = None
            try:
                send([call for _, call in batch])
            except SwarmError as error:
                failure = error
            self._outcomes.put(_Outcome(channel, [notice for notice, _ in batch], failure))

    def _record(self) -> None:
        """Write down what the channels have done since; what failed is tried again after a pause."""
        while not self._outcomes.empty():
            outcome = self._outcomes.get()
            for notice in outcome.sent:
                self._record_one(notice, outcome.channel, outcome.failure)

    def _record_one(self, notice: Notice, channel: str, failure: SwarmError | None) -> None:
        attempts = self._attempts.setdefault((notice.id, channel), _Attempts(made=1))
        if failure is not None:
            said = (channel, notice.instance_id, notice.reason, attempts.made, failure.message, failure.code)
            log.warning("%s could not tell of %s (%s), attempt %d: %s (%s)", *said)
            if attempts.made <= len(self._pauses):
                attempts.due = self._clock() + self._pauses[attempts.made - 1]
                return
        settled = self._settled.setdefault(notice.id, set())
        settled.add(channel)
        db = self._context.db
        with db.write():
            why = (failure.code, failure.message) if failure else None
            notices.settle(db, notice, channel, attempts=attempts.made, failure=why)
            if settled >= self._channels.keys():
                notices.mark_sent(db, notice)

    def _forget_all_but(self, kept: set[int]) -> None:
        self._settled = {key: value for key, value in self._settled.items() if key in kept}
        self._attempts = {key: value for key, value in self._attempts.items() if key[0] in kept}


def _channels(context: Context) -> dict[str, tuple[_Send, bool]]:
    """The channels that are on, and whether one call takes all there is to say."""
    found: dict[str, tuple[_Send, bool]] = {}
    if context.settings.integer("notify_terminal"):
        found["terminal"] = (functools.partial(_terminal, context), True)
    if context.settings.integer("notify_desktop"):
        found["desktop"] = (lambda calls: channels.desktop(calls[0]), False)
    if url := context.settings.text("notify_webhook"):
        found["webhook"] = (lambda calls: channels.webhook(url, calls[0]), False)
    return found


def _terminal(context: Context, calls: Sequence[Call]) -> None:
    """On every host, also when one of them fails."""
    failures = []
    for host in context.hosts:
        try:
            host.announce(channels.line(calls))
        except SwarmError as error:
            failures.append(error)
    if failures:
        raise failures[0]


def _call(instance: Instance, reason: Reason) -> Call:
    return Call(
        instance_id=instance.id,
        reason=reason.key.partition(":")[0],
        title=f"{instance.id} ({instance.name})" if instance.name else instance.id,
        text=reason.text,
        more=reason.more,
        command=reason.command,
        priority=3 if reason.key == attention.BUDGET_WARNED else 4,
    )

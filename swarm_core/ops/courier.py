"""The courier: hands messages to agents in the order they were sent, and finds out whether they arrived.

Nothing is typed unless the agent is idle, nothing is sent twice unless it is certain that it did not arrive, and
what the agent has seen is known from its own log. Agents that are busy get their messages through hook replies.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from swarm_core import proc
from swarm_core.agents import table
from swarm_core.errors import SwarmError
from swarm_core.hosts.base import BLOCKED, GONE, SENT
from swarm_core.models import Activity, Instance, Message, MessageState, Wanted, parse_iso
from swarm_core.ops import envelopes, ledger
from swarm_core.ops.context import Context, talk
from swarm_core.store import instances, messages

_TICK = 0.1
_HOUSEKEEPING = 1.0
_AT_ONCE = 8
_CONFIRM_FOR, _CONFIRM_EVERY = 1.5, 0.03
_NUDGE_AFTER = 2.5
_LOST_AFTER = 15.0
_ATTEMPTS = 6
_LONGEST_PAUSE = 60.0
_TURN_OVER_AFTER = 5.0

log = logging.getLogger(__name__)


class Courier:
    """One per database, in the coordinator. `run` returns after `stop`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._stop = threading.Event()
        self._under_way: dict[str, Future[float]] = {}
        self._not_before: dict[str, float] = {}
        self._nudged: dict[str, int] = {}

    def stop(self) -> None:
        self._stop.set()

    def run(self) -> None:
        kept_at = 0.0
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="courier", initializer=proc.give_way) as pool:
            while not self._stop.is_set():
                try:
                    self._send_off(pool)
                    if time.monotonic() - kept_at > _HOUSEKEEPING:
                        kept_at = time.monotonic()
                        self.keep_house()
                except SwarmError as error:
                    log.warning("messages wait: %s (%s)", error.message, error.code)
                except Exception:  # the courier must outlive its own bugs; the traceback is kept
                    log.exception("the courier met a bug")
                self._stop.wait(_TICK)

    def keep_house(self) -> None:
        """Give up what nobody saw in time, and note which turns are over."""
        db = self._context.db
        if messages.overdue(db):
            with db.write():
                for message in messages.expire(db):
                    log.warning("message %s to %s was not seen in time", message.id, message.instance_id)
        for instance_id in messages.unacknowledged(db):
            if _is_over(db.now(), instances.get(db, instance_id), messages.of(db, instance_id)):
                with db.write():
                    messages.acknowledge(db, instance_id)

    def _send_off(self, pool: ThreadPoolExecutor) -> None:
        """One errand for each instance that waits for something and is due, all of them side by side."""
        for instance_id, done in list(self._under_way.items()):
            if done.done():
                del self._under_way[instance_id]
                self._not_before[instance_id] = time.monotonic() + done.result()
        waiting = messages.waiting_for(self._context.db)
        self._not_before = {i: t for i, t in self._not_before.items() if i in waiting}
        for instance_id in waiting:
            due = self._not_before.get(instance_id, 0.0) <= time.monotonic()
            if due and instance_id not in self._under_way:
                self._under_way[instance_id] = pool.submit(self._errand, instance_id)

    def _errand(self, instance_id: str) -> float:
        try:
            return self.deliver(instance_id)
        except SwarmError as error:
            log.warning("the messages of %s wait: %s (%s)", instance_id, error.message, error.code)
        except Exception:  # one instance's bug must not keep the others' messages
            log.exception("the messages of %s wait", instance_id)
        return 2.0

    def deliver(self, instance_id: str) -> float:
        """Do for one instance what can be done now; returns the seconds until it is worth trying again."""
        db = self._context.db
        instance = instances.get(db, instance_id)
        pending = messages.undelivered(db, instance_id)
        if any(m.how for m in pending):  # also what was taken back: an ending program may have taken it late
            self._read_log(instance, pending)
            pending = messages.undelivered(db, instance_id)
        sent = [m for m in pending if m.state == MessageState.INJECTED]
        if instance.cleaned or instance.wanted != Wanted.RUNNING:
            self._take_back(sent, "its program ended before it took the message")
            return 2.0
        before = [m for m in sent if not m.how.endswith(_start(instance))]
        if before:
            self._take_back(before, "its program was started anew before it took the message")
            return 0.0
        if sent:
            return self._chase(instance, sent)
        return self._next(instance, pending)

    def _next(self, instance: Instance, pending: Sequence[Message]) -> float:
        db = self._context.db
        if not pending:
            return 0.0
        if instance.activity == Activity.BLOCKED:
            return self._hold(instance)
        if any(m.state == MessageState.HELD for m in pending):
            with db.write():
                messages.release(db, instance.id)
        if pending[0].next_at is not None and (left := _seconds(db.now(), pending[0].next_at)) > 0:
            return left
        if instance.activity in (Activity.BUSY, Activity.STARTING, Activity.EXITED):
            return 0.25
        heard = self._context.host(instance).can_hear(talk(instance))
        if heard == BLOCKED:
            return self._hold(instance)
        return self._hand_over(instance, pending) if heard == SENT else 0.5

    def _hold(self, instance: Instance) -> float:
        with self._context.db.write():
            messages.hold(self._context.db, instance.id, why=instance.activity_detail or "it shows a dialog")
        return 0.5

    def _hand_over(self, instance: Instance, pending: Sequence[Message]) -> float:
        db, ways = self._context.db, table.get(instance.agent).ways
        text, taken = envelopes.join(pending if ways.joins else pending[:1], longest=envelopes.MESSAGE_MAX)
        how = f"paste {_start(instance)}" if ways.confirms else messages.UNCONFIRMED
        with db.write():
            if not messages.inject(db, [m.id for m in taken], how=how):
                return 0.1
        self._context.checkpoint("message:injected")
        outcome = self._context.host(instance).hand_over(talk(instance), text)
        self._context.checkpoint("message:handed over")
        if outcome not in (SENT, BLOCKED) or (outcome == BLOCKED and not ways.confirms):  # nothing was submitted
            self._take_back(taken, "the agent was not idle any more" if outcome != GONE else "its program ended")
            return 0.5
        if outcome == SENT and ways.confirms:
            self._await_receipt(instance, taken)
        return 0.0

    def _await_receipt(self, instance: Instance, taken: Sequence[Message]) -> None:
        deadline = time.monotonic() + _CONFIRM_FOR
        left = list(taken)
        while left and time.monotonic() < deadline and not self._stop.is_set():
            left = self._read_log(instance, left)
            if left:
                time.sleep(_CONFIRM_EVERY)

    def _read_log(self, instance: Instance, sent: Sequence[Message]) -> list[Message]:
        """Note what the agent's own log shows it has taken; returns what it does not show."""
        ledger.take_in(self._context, instance)
        known = [messages.get(self._context.db, m.id) for m in sent]
        return [m for m in known if m.state == MessageState.INJECTED]

    def _chase(self, instance: Instance, sent: Sequence[Message]) -> float:
        """What to do about messages that were handed over and are in no log yet."""
        first = sent[0]
        age = _seconds(first.injected_at or first.updated_at, self._context.db.now())
        if instance.activity == Activity.BLOCKED or age < _NUDGE_AFTER:
            return 0.2
        pasted = first.how.startswith("paste")
        host, said = self._context.host(instance), talk(instance)
        if pasted and self._nudged.get(first.id) != first.attempts:
            self._nudged[first.id] = first.attempts
            host.press_enter(said)
            return 0.5
        if age < _LOST_AFTER or host.can_hear(said) != SENT:
            return 0.5
        self._take_back(sent, "its log does not show it", counts=True)
        return 0.0

    def _take_back(self, lost: Sequence[Message], why: str, *, counts: bool = False) -> None:
        """They certainly did not arrive. What `counts` is a program that ran and did not take them."""
        db = self._context.db
        if not lost:
            return
        with db.write():
            for message in lost:
                if counts and message.attempts >= _ATTEMPTS:
                    messages.fail(db, message.id, why=f"{why}, {message.attempts} times")
                else:
                    pauses = counts and message.attempts > 1
                    pause = min(2.0**message.attempts, _LONGEST_PAUSE) if pauses else 0.0
                    messages.again(db, message.id, why=why, after=pause, counts=counts)
                self._nudged.pop(message.id, None)


def how_of(event: str, instance: Instance) -> str:
    """How a message went that a hook's reply carried."""
    return f"hook {event} {_start(instance)}"


def _start(instance: Instance) -> str:
    return f"start {instance.epoch}"


def _seconds(since: str, until: str) -> float:
    return (parse_iso(until) - parse_iso(since)).total_seconds()


def _is_over(now: str, instance: Instance, recent: Sequence[Message]) -> bool:
    """Whether the agent has been idle since it saw its last message, so that its turn with it has ended."""
    seen_at = max((m.seen_at or "" for m in recent if m.state == MessageState.SEEN), default="")
    if instance.activity != Activity.IDLE or not seen_at:
        return False
    return instance.activity_at > seen_at or _seconds(seen_at, now) > _TURN_OVER_AFTER

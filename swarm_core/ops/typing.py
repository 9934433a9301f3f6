"""Typing at an agent's terminal for a person who watches it: what may be pressed, and what is recorded of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from swarm_core.errors import Conflict, InvalidInput, SwarmError
from swarm_core.hosts.base import BLOCKED, BUSY, GONE, KEYS, SENT
from swarm_core.models import Instance
from swarm_core.ops import texts
from swarm_core.ops.context import Context, talk
from swarm_core.store import events

TEXT_MAX = 2048
KEYS_MAX = 64
_TELL_EVERY = 10.0
_counting = threading.Lock()


def check(text: str, keys: Sequence[str]) -> None:
    """Raise InvalidInput for what can never be typed."""
    if bool(text) == bool(keys):
        raise InvalidInput("what is typed is a text or keys", hint="give one of text and keys")
    if text:
        # A space is a key too, so that a text of spaces is one.
        texts.check(f"{text}.", "what is typed", max_bytes=TEXT_MAX + 1, one_line=True)
    if len(keys) > KEYS_MAX:
        raise InvalidInput(f"no more than {KEYS_MAX} keys are pressed at once")
    unknown = [key for key in keys if key not in KEYS]
    if unknown:
        raise InvalidInput(f"{unknown[0][:20]!r} is no key", hint="known: " + ", ".join(sorted(KEYS)))


def type_keys(context: Context, instance: Instance, *, text: str, keys: Sequence[str], actor: str) -> int:
    """Type the text as it is, or press the keys; returns how many keys that were.

    Escape and Ctrl-C approve nothing, so that they also reach a program that is at work. Everything else reaches
    an idle program alone, and nothing ever a dialog: that is answered with `answer`.
    """
    check(text, keys)
    outcome = context.host(instance).type_keys(talk(instance), text, list(keys))
    if outcome != SENT:
        raise _refused(instance, outcome)
    count = len(text) or len(keys)
    _tell(context, instance.id, actor, count)
    return count


def _refused(instance: Instance, outcome: str) -> SwarmError:
    who, details = instance.id, {"outcome": outcome}
    if outcome == GONE:
        return Conflict(
            f"the program of {who} has ended",
            code="TMUX_SESSION_NOT_FOUND",
            hint=f"`swarm restart {who}` starts it",
            details=details,
        )
    if outcome == BLOCKED:
        return Conflict(
            f"{who} asks something; nothing is typed into a question",
            code="DIALOG_OPEN",
            hint=f"answer it: `swarm answer {who}`",
            details=details,
        )
    if outcome == BUSY:
        return Conflict(
            f"{who} is at work; only Escape and Ctrl-C reach it now",
            code="AGENT_BUSY",
            hint="send a message: it is delivered as soon as the agent can take it",
            details=details,
        )
    return Conflict(
        f"the screen of {who} is not understood; it may show a question",
        code="SCREEN_UNCLEAR",
        hint=f"`swarm attach {who}` lets you type without a guard",
        details=details,
    )


def _tell(context: Context, instance_id: str, actor: str, count: int) -> None:
    """One event for many keys, never with what they say: it may be a password."""
    now, pressed = time.monotonic(), context.typed
    with _counting:
        told_at, waiting = pressed.get((instance_id, actor), (None, 0))
        if told_at is not None and now - told_at < _TELL_EVERY:
            pressed[instance_id, actor] = (told_at, waiting + count)
            return
        pressed[instance_id, actor] = (now, 0)
    with context.db.write():
        told = {"keys": waiting + count}
        events.add(context.db, "instance:typed", instance_id=instance_id, actor=actor, metadata=told)

"""What a blocked agent asks, and answering it: only ever the question that is still on its screen."""

from __future__ import annotations

import json
import re
import time
from typing import Any

from swarm_core.errors import Conflict, InvalidInput
from swarm_core.hosts.base import DialogFacts
from swarm_core.models import Activity, Instance
from swarm_core.ops import texts
from swarm_core.ops.context import Context, talk
from swarm_core.store import events, instances
from swarm_core.store.database import Database

_TEXT_MAX = 4000
_ANSWER_MAX = 10_000
_TAKEN_WITHIN = 2.0


def shown(instance: Instance) -> dict[str, Any] | None:
    """The question a blocked instance asks, as it was last read."""
    found: dict[str, Any] | None = json.loads(instance.blocked_on) if instance.blocked_on else None
    return found if found and found.get("digest") else None


def refresh(context: Context, instance: Instance) -> None:
    """Keep the question with an instance that has come to a stop at it; forget one that is over."""
    since = f"{instance.activity_at} {instance.activity_detail}"
    known = json.loads(instance.blocked_on) if instance.blocked_on else None
    blocked = instance.activity == Activity.BLOCKED
    if (known is None and not blocked) or (known is not None and blocked and known["since"] == since):
        return
    asked = context.host(instance).dialog(talk(instance)) if blocked else None
    with context.db.write():
        now = instances.get(context.db, instance.id)
        if now.blocked_on != instance.blocked_on or (now.activity == Activity.BLOCKED) != blocked:
            return
        told = _cut(asked) if asked else None
        held = {"held": known["held"]} if known and known.get("held") else {}
        kept = {"since": since, **held, **(told or {})} if blocked else None
        instances.set_fields(context.db, instance.id, blocked_on=json.dumps(kept) if kept else "")
        if told:
            events.add(
                context.db, "dialog:shown", instance_id=instance.id, actor="supervisor", metadata=dict(told)
            )
        elif known and known.get("digest"):
            over = {"digest": known["digest"]}
            events.add(context.db, "dialog:closed", instance_id=instance.id, actor="supervisor", metadata=over)


def answer(
    context: Context,
    instance: Instance,
    *,
    choice: int | None = None,
    text: str | None = None,
    digest: str | None = None,
    actor: str,
) -> DialogFacts:
    """Answer by a choice (from 1) or by text. Without a digest the question that was last recorded is meant."""
    if (choice is None) == (text is None):
        raise InvalidInput("an answer is a choice or a text", hint="--choice N, or --text TEXT")
    if text is not None:
        texts.check(text, "an answer", max_bytes=_ANSWER_MAX)
    known = shown(instance)
    meant = digest or (str(known["digest"]) if known else None)
    if meant is None:
        raise Conflict(
            f"{instance.id} asks nothing",
            code="DIALOG_CHANGED",
            hint=f"`swarm show {instance.id}` shows what it does",
            details={"activity": instance.activity},
        )
    asked = _through_hook(context, instance, meant, choice, actor) or context.host(instance).answer(
        talk(instance), meant, choice, text or ""
    )
    label = asked["choices"][choice - 1] if choice is not None else texts.cut(text or "", 200)
    told = {"digest": meant, "question": asked["text"][:_TEXT_MAX], "choice": choice, "answer": label}
    with context.db.write():
        events.add(context.db, "dialog:answered", instance_id=instance.id, actor=actor, metadata=told)
        instances.set_fields(context.db, instance.id, blocked_on="")
    return asked


def hold(db: Database, instance_id: str, hold_id: str) -> None:
    """A hook of the agent waits for the answer to its dialog; inside the caller's transaction."""
    instances.set_fields(db, instance_id, blocked_on=json.dumps({"since": "", "held": hold_id}))


def take_answer(db: Database, instance_id: str, hold_id: str) -> dict[str, Any] | None:
    """The answer somebody gave to a dialog whose hook waits, once; inside a transaction."""
    known = _held(instances.get(db, instance_id), hold_id)
    given: dict[str, Any] | None = known.pop("answer", None) if known else None
    if known is not None and given is not None:
        instances.set_fields(db, instance_id, blocked_on=json.dumps(known | {"taken": True}))
    return given


def is_held(instance: Instance, hold_id: str) -> bool:
    """Whether the hook has still something to wait for."""
    return instance.activity == Activity.BLOCKED and _held(instance, hold_id) is not None


def _held(instance: Instance, hold_id: str) -> dict[str, Any] | None:
    known: dict[str, Any] = json.loads(instance.blocked_on) if instance.blocked_on else {}
    return known if known.get("held") == hold_id else None


def _through_hook(
    context: Context, instance: Instance, digest: str, choice: int | None, actor: str
) -> DialogFacts | None:
    """Answer a plain yes or no by the reply to the hook that waits for it; None when that is not possible."""
    known = shown(instance)
    if known is None or known["digest"] != digest or not known.get("held") or known["kind"] != "permission":
        return None
    if choice is None or not 1 <= choice <= len(known["choices"]):
        return None
    label = str(known["choices"][choice - 1])
    if label != "Yes" and not re.match(r"No\b", label):
        return None
    said = {"allow": label == "Yes", "why": f"{actor} said no", "by": actor}
    with context.db.write():
        now = _held(instances.get(context.db, instance.id), known["held"])
        if now is None or now.get("digest") != digest:
            return None
        instances.set_fields(context.db, instance.id, blocked_on=json.dumps(now | {"answer": said}))
    if _is_taken(context, instance.id, known["held"]):
        return DialogFacts(text=known["text"], choices=known["choices"], kind=known["kind"], digest=digest)
    with context.db.write():  # nobody listens any more: the keys will do, and the answer must not be given twice
        if take_answer(context.db, instance.id, known["held"]) is None:
            return DialogFacts(text=known["text"], choices=known["choices"], kind=known["kind"], digest=digest)
    return None


def _is_taken(context: Context, instance_id: str, hold_id: str) -> bool:
    deadline = time.monotonic() + _TAKEN_WITHIN
    while time.monotonic() < deadline:
        known = _held(instances.get(context.db, instance_id), hold_id)
        if known is None or "answer" not in known:
            return True
        time.sleep(0.05)
    return False


def _cut(asked: DialogFacts) -> dict[str, Any]:
    """What an agent shows is foreign text: it is kept short and without control characters."""
    text = "".join(c if c.isprintable() or c == "\n" else " " for c in asked["text"])[-_TEXT_MAX:]
    choices = ["".join(c if c.isprintable() else " " for c in one)[:200] for one in asked["choices"][:20]]
    return {"text": text, "choices": choices, "kind": asked["kind"], "digest": asked["digest"]}

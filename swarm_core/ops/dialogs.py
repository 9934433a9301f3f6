"""What a blocked agent asks, and answering it: only ever the question that is still on its screen."""

from __future__ import annotations

import json
from typing import Any

from swarm_core.errors import Conflict, InvalidInput
from swarm_core.hosts.base import DialogFacts
from swarm_core.models import Activity, Instance
from swarm_core.ops import texts
from swarm_core.ops.context import Context, talk
from swarm_core.store import events, instances

_TEXT_MAX = 4000
_ANSWER_MAX = 10_000


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
        kept = {"since": since, **told} if told else {"since": since} if blocked else None
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
    asked = context.host(instance).answer(talk(instance), meant, choice, text or "")
    label = asked["choices"][choice - 1] if choice is not None else texts.cut(text or "", 200)
    told = {"digest": meant, "question": asked["text"][:_TEXT_MAX], "choice": choice, "answer": label}
    with context.db.write():
        events.add(context.db, "dialog:answered", instance_id=instance.id, actor=actor, metadata=told)
        instances.set_fields(context.db, instance.id, blocked_on="")
    return asked


def _cut(asked: DialogFacts) -> dict[str, Any]:
    """What an agent shows is foreign text: it is kept short and without control characters."""
    text = "".join(c if c.isprintable() or c == "\n" else " " for c in asked["text"])[-_TEXT_MAX:]
    choices = ["".join(c if c.isprintable() else " " for c in one)[:200] for one in asked["choices"][:20]]
    return {"text": text, "choices": choices, "kind": asked["kind"], "digest": asked["digest"]}

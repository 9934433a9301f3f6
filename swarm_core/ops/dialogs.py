"""What a blocked agent asks, and answering it: only ever the question that is still on its screen."""

from __future__ import annotations

import json
import re
import time
from typing import Any

from swarm_core.errors import Conflict, InvalidInput
from swarm_core.hosts.base import DialogFacts
from swarm_core.models import Activity, Instance, parse_iso
from swarm_core.ops import texts
from swarm_core.ops.context import Context, talk
from swarm_core.store import events, instances
from swarm_core.store.database import Database

_TEXT_MAX = 4000
_ANSWER_MAX = 10_000
_TAKEN_WITHIN = 2.0
_READ_EVERY = 5.0


def shown(instance: Instance) -> dict[str, Any] | None:
    """The question a blocked instance asks, as it was last read."""
    found: dict[str, Any] | None = json.loads(instance.blocked_on) if instance.blocked_on else None
    return found if found and found.get("digest") else None


def refresh(context: Context, instance: Instance) -> None:
    """Keep the question with an instance that has come to a stop at it; forget one that is over."""
    since = f"{instance.activity_at} {instance.activity_detail}"
    known = json.loads(instance.blocked_on) if instance.blocked_on else None
    blocked = instance.activity == Activity.BLOCKED
    if (known is None and not blocked) or (known is not None and blocked and _is_fresh(context, known, since)):
        return
    asked = context.host(instance).dialog(talk(instance)) if blocked else None
    with context.db.write():
        now = instances.get(context.db, instance.id)
        if now.blocked_on != instance.blocked_on or (now.activity == Activity.BLOCKED) != blocked:
            return
        told = _cut(asked) if asked else None
        kept = {k: v for k, v in (known or {}).items() if k in ("held", "about", "answer")}
        kept |= {"since": since, "read_at": context.db.now(), **(told or {})}
        instances.set_fields(context.db, instance.id, blocked_on=json.dumps(kept) if blocked else "")
        before = known.get("digest") if known else None
        if told and told["digest"] != before:
            _tell(context.db, instance.id, "dialog:shown", "supervisor", told)
        elif before and not told:
            _tell(context.db, instance.id, "dialog:closed", "supervisor", {"digest": before})


def _is_fresh(context: Context, known: dict[str, Any], since: str) -> bool:
    """One question may follow another without any other sign, so that it is read again now and then."""
    if known["since"] != since or not known.get("digest"):
        return False
    return (parse_iso(context.db.now()) - parse_iso(known["read_at"])).total_seconds() < _READ_EVERY


def _tell(db: Database, instance_id: str, name: str, actor: str, told: dict[str, Any]) -> None:
    events.add(db, name, instance_id=instance_id, actor=actor, metadata=told)


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
    by_hook = _through_hook(context, instance, meant, choice, actor)
    if by_hook is not None:
        return by_hook
    asked = context.host(instance).answer(talk(instance), meant, choice, text or "")
    label = asked["choices"][choice - 1] if choice is not None else texts.cut(text or "", 200)
    told = {"digest": meant, "question": asked["text"][:_TEXT_MAX], "choice": choice, "answer": label}
    with context.db.write():
        _tell(context.db, instance.id, "dialog:answered", actor, told)
        instances.set_fields(context.db, instance.id, blocked_on="")
    return asked


def hold(db: Database, instance_id: str, hold_id: str, about: str) -> None:
    """A hook of the agent waits for the answer to its dialog; inside the caller's transaction.

    When two wait at once nobody can tell which of them the screen shows: both are answered there.
    """
    instance = instances.get(db, instance_id)
    known = json.loads(instance.blocked_on) if instance.blocked_on else {}
    only = "" if known.get("held") else hold_id
    kept = {"since": "", "read_at": db.now(), "held": only, "about": about[:_TEXT_MAX]}
    instances.set_fields(db, instance_id, blocked_on=json.dumps(kept))


def take_answer(db: Database, instance_id: str, hold_id: str) -> dict[str, Any] | None:
    """The answer somebody gave to a dialog whose hook waits, once and told of; inside a transaction."""
    known = _held(instances.get(db, instance_id), hold_id)
    given: dict[str, Any] | None = known.pop("answer", None) if known else None
    if known is not None and given is not None:
        instances.set_fields(db, instance_id, blocked_on="")
        _tell(db, instance_id, "dialog:answered", given["by"], given["told"] | {"hold": hold_id})
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
    if _letters(known.get("about", "")) not in _letters(known["text"]):
        return None  # the screen shows something else, or not all of it: its own digest decides
    told = {"digest": digest, "question": known["text"], "choice": choice, "answer": label}
    said = {"allow": label == "Yes", "why": f"{actor} said no", "by": actor, "told": told}
    hold_id = str(known["held"])
    with context.db.write():
        now = _held(instances.get(context.db, instance.id), hold_id)
        if now is None or now.get("digest") != digest:
            return None
        if "answer" in now:  # somebody was quicker, and the hook has not taken it yet
            raise _over(instance.id)
        instances.set_fields(context.db, instance.id, blocked_on=json.dumps(now | {"answer": said}))
    if not _is_taken(context, instance.id, hold_id) and _withdraw(context, instance.id, hold_id):
        return None  # nobody listens any more: the keys will do
    if not _was_told(context.db, instance.id, hold_id):
        raise _over(instance.id)
    return DialogFacts(text=known["text"], choices=known["choices"], kind=known["kind"], digest=digest)


def _over(instance_id: str) -> Conflict:
    return Conflict(
        f"{instance_id} no longer shows that question",
        code="DIALOG_CHANGED",
        hint=f"`swarm show {instance_id}` shows what it asks now",
    )


def _letters(text: str) -> str:
    """Without white space: a screen breaks lines where it likes."""
    return "".join(text.split())


def _is_taken(context: Context, instance_id: str, hold_id: str) -> bool:
    """Whether the answer is gone from where it was put, within a moment."""
    deadline = time.monotonic() + _TAKEN_WITHIN
    while time.monotonic() < deadline:
        known = _held(instances.get(context.db, instance_id), hold_id)
        if known is None or "answer" not in known:
            return True
        time.sleep(0.05)
    return False


def _withdraw(context: Context, instance_id: str, hold_id: str) -> bool:
    """Take an answer back that nobody has taken, so that it is not given twice."""
    with context.db.write():
        known = _held(instances.get(context.db, instance_id), hold_id)
        if known is None or known.pop("answer", None) is None:
            return False
        instances.set_fields(context.db, instance_id, blocked_on=json.dumps(known))
    return True


def _was_told(db: Database, instance_id: str, hold_id: str) -> bool:
    recent = events.newest(db, instance_id=instance_id, limit=50)
    return any(e.name == "dialog:answered" and e.metadata.get("hold") == hold_id for e in recent)


def _cut(asked: DialogFacts) -> dict[str, Any]:
    """What an agent shows is foreign text: it is kept short and without control characters."""
    text = "".join(c if c.isprintable() or c == "\n" else " " for c in asked["text"])[-_TEXT_MAX:]
    choices = ["".join(c if c.isprintable() else " " for c in one)[:200] for one in asked["choices"][:20]]
    return {"text": text, "choices": choices, "kind": asked["kind"], "digest": asked["digest"]}

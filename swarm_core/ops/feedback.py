"""Feedback: what a reviewer or a person says to an instance about its work."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import secrets
from collections.abc import Callable

from swarm_core.errors import Conflict, InvalidInput
from swarm_core.models import (
    ENDED,
    Feedback,
    FeedbackType,
    Instance,
    MessageKind,
    Priority,
    Relationship,
    Status,
    Verdict,
)
from swarm_core.ops import post, texts, verdict
from swarm_core.ops.context import Context, nothing
from swarm_core.store import events, feedback, instances, messages

BODY_MAX = 200 * 1024
_SUMMARY = 600
_ORDER = [str(Priority.HIGH), str(Priority.MEDIUM), str(Priority.LOW)]
_WEIGHTS = {
    **dict.fromkeys(("blocker", "critical", "high", "must"), _ORDER[0]),
    **dict.fromkeys(("medium", "should"), _ORDER[1]),
    **dict.fromkeys(("low", "minor", "nit", "optional"), _ORDER[2]),
}
_WEIGHT = re.compile(rf"^\W*({'|'.join(_WEIGHTS)})\b\W*[:\])]", re.IGNORECASE)
_POINT = re.compile(r"\s{0,3}(?:[-*+]|\d{1,3}[.)])\s+(\S.*)")
_LOCATION = re.compile(r"(?<![\w/.])[\w./-]*\w\.\w{1,8}:\d{1,7}(?:-\d{1,7})?")
_NEXT = {
    "needs_work": "1. Make the required changes and test them.\n2. Commit everything.\n"
    "3. Call `spawn_review_instance` for the next round.",
    "suggestions": "Take up what improves the work; the review is still under way.",
    "clarification": "Answer in your work or its commit messages; the review is still under way.",
}
_STILL_HEARS = frozenset({Status.FAILED, Status.TERMINATED})


def send(
    context: Context,
    target_id: str,
    body: str,
    *,
    feedback_type: str,
    priority: str,
    actor: str,
    review_id: str | None = None,
    recorded: Callable[[Feedback], None] = nothing,
) -> Feedback:
    """Record feedback with its message, its event and, if it is a reviewer's needs_work, its verdict, at once.

    The text is in a file before anything is recorded, and the file goes when nothing could be.
    """
    texts.check(body, "feedback", max_bytes=BODY_MAX)
    kind, weight = _one_of(FeedbackType, feedback_type), _one_of(Priority, priority)
    db = context.db
    target = instances.get(db, target_id)
    link = verdict.link_of(db, review_id, target_id) if review_id is not None else None
    _check_target(target, by_review=link is not None)
    decides = link is not None and kind == FeedbackType.NEEDS_WORK
    if link is not None and decides:
        verdict.require_open(db, link)
    head = verdict.head_of(context, target)
    said = Feedback(
        id=f"fb-{secrets.token_hex(6)}",
        sender=actor,
        to_instance=target_id,
        relationship_id=link.id if link else None,
        feedback_type=str(kind),
        priority=str(weight),
        body=body,
        file_path="",
        message_id="",
        reviewed_commit=link.head_commit if link else None,
        head_commit=head,
        created_at=db.now(),
    )
    host, name = context.host(target), f"feedback/{said.id}.md"
    with contextlib.ExitStack() as undo:
        undo.callback(host.remove_file, target_id, name)
        path = host.write_file(target_id, name, _document(said))
        context.checkpoint("feedback:file:after")
        with db.write():
            kept = _record(context, said, path, link, decides=decides)
            recorded(kept)
        undo.pop_all()
    return kept


def _record(context: Context, said: Feedback, path: str, link: Relationship | None, *, decides: bool) -> Feedback:
    db = context.db
    _check_target(instances.get(db, said.to_instance), by_review=link is not None)
    message = messages.accept(
        db,
        said.to_instance,
        sender=said.sender,
        body=_message(said, path),
        kind=MessageKind.FEEDBACK,
        document=path,
        expires_after=post.expiry(context),
    )
    kept = feedback.insert(db, dataclasses.replace(said, file_path=path, message_id=message.id))
    told = {
        "feedback_id": kept.id,
        "feedback_type": kept.feedback_type,
        "priority": kept.priority,
        "message_id": message.id,
        "stale": kept.stale,
    }
    events.add(db, "feedback:sent", instance_id=kept.to_instance, actor=kept.sender, metadata=told)
    if link is not None and decides:
        link = verdict.link_of(db, link.child_id, link.parent_id)
        verdict.give(db, link, Verdict.NEEDS_WORK, actor=kept.sender, head_commit=kept.head_commit)
    elif link is None and kept.feedback_type == FeedbackType.NEEDS_WORK:
        _send_back(context, kept)
    return kept


def _send_back(context: Context, said: Feedback) -> None:
    """A person's needs_work returns the work; a review that is under way still gives its own verdict."""
    db, reason = context.db, f"{said.sender} asks for changes"
    instances.leave_review(db, said.to_instance, actor=said.sender, reason=reason)
    work = instances.get(db, said.to_instance)
    verdict.give_as_person(db, work, Verdict.NEEDS_WORK, said.head_commit, actor=said.sender)
    if work.status == Status.APPROVED:
        instances.change_status(db, work.id, Status.RUNNING, actor=said.sender, reason=reason)


def _check_target(target: Instance, *, by_review: bool) -> None:
    """Feedback to what has ended is still kept where somebody may go on with it."""
    over = target.status in ENDED and target.status not in _STILL_HEARS
    if target.cleaned or (by_review and over):
        raise Conflict(
            f"{target.id} is {'cleaned' if target.cleaned else target.status} and cannot be told anything",
            code="WORKFLOW_INVALID_STATE",
            hint=f"`swarm restore {target.id}` brings it back" if target.cleaned else "its work is over",
            details={"status": target.status},
        )


def _one_of(kind: type[FeedbackType] | type[Priority], value: str) -> str:
    known = [str(one) for one in kind]
    if value not in known:
        raise InvalidInput(f"{value[:40]!r} is none of {', '.join(known)}")
    return value


def _document(said: Feedback) -> str:
    """What is to be done comes first, sorted by weight; the whole text is below it, word for word."""
    body = said.body.strip()
    changes = "\n".join(f"- [{weight}] {text}" for weight, text in _changes(body, said.priority))
    places = "\n".join(f"- `{place}`" for place in dict.fromkeys(_LOCATION.findall(body)))
    parts = [
        f"# {said.feedback_type} ({said.priority}) from {said.sender}",
        _about(said),
        f"## Summary\n\n{texts.cut(body.partition(chr(10) * 2)[0], _SUMMARY)}",
        f"## Required changes\n\n{changes}" if changes else "",
        f"## Locations\n\n{places}" if places else "",
        f"## Next steps\n\n{_NEXT[said.feedback_type]}",
        f"## Full text\n\n{body}",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _changes(body: str, weight: str) -> list[tuple[str, str]]:
    """The points of a list in the text, heaviest first; one that names no weight has that of the whole."""
    found: list[tuple[str, str]] = []
    for line in body.splitlines():
        if point := _POINT.match(line):
            named = _WEIGHT.search(point[1])
            found.append((_WEIGHTS[named[1].lower()] if named else weight, point[1].strip()))
    return sorted(found, key=lambda one: _ORDER.index(one[0]))


def _message(said: Feedback, path: str) -> str:
    head = f"Feedback from {said.sender}: {said.feedback_type}, priority {said.priority}. It is also in {path}"
    return f"{head}\n{_about(said)}\n\n{said.body.strip()}"


def _about(said: Feedback) -> str:
    if said.reviewed_commit is None:
        return f"Sent {said.created_at}."
    moved = f" The branch has moved on since to {said.head_commit}." if said.stale else ""
    return f"Sent {said.created_at}, about commit {said.reviewed_commit}.{moved}"

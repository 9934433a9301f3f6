"""Feedback threads: what reviewers, people and swarm said to a piece of work, in the order it was said."""

from __future__ import annotations

import re
from typing import Any

from pydantic import Field

from swarm_core.models import Feedback, Instance, Message, Relationship, Verdict
from swarm_core.store import feedback, glance, instances, messages, relationships
from swarm_ui.views import plain
from swarm_ui.web import rows
from swarm_ui.web.asking import Asked, named, reading
from swarm_ui.web.endpoint import Endpoint, Question

_BODY = 20_000
_ITEMS = 500
_REFS = 50
_REF = re.compile(r"(?<![\w/.-])((?:[\w.-]+/)*[\w-][\w.-]*\.[A-Za-z]\w{0,9}):(\d{1,6})\b")
_VERDICTS = {
    Verdict.APPROVED: "Approved.",
    Verdict.NEEDS_WORK: "Sent back: it needs work.",
    Verdict.NONE: "Ended without a verdict.",
}


class Listed(Asked):
    limit: int = Field(100, ge=1, le=500)


def _list(question: Question) -> dict[str, Any]:
    with reading(question) as swarm:
        db = swarm.context.db
        found = glance.threads(db, limit=question.query.limit)
        names = rows.repo_names(glance.repositories(db))
        works = [(instances.get(db, work), said, reviews, at) for work, said, reviews, at in found]
    return {
        "items": [
            {
                "id": work.id,
                "title": rows.title(work),
                "repo": names.get(work.repo_path, work.repo_path),
                "status": work.status,
                "said": said,
                "reviews": reviews,
                "last_at": at,
            }
            for work, said, reviews, at in works
        ]
    }


def _one(question: Question) -> dict[str, Any]:
    """A review's id stands for the work it reviews."""
    with reading(question) as swarm:
        db = swarm.context.db
        work = named(db, question)
        link = relationships.find_review_link(db, work.id)
        work = instances.get(db, link.parent_id) if link else work
        links = relationships.reviews_of(db, work.id)
        people = [work.id, *(link.child_id for link in links)]
        told = {m.id: m for one in people for m in messages.of(db, one, limit=_ITEMS)}
        said = [s for one in people for s in feedback.of(db, one)[-_ITEMS:]]
        names = rows.repo_names(glance.repositories(db))
    by_message = {s.message_id: s for s in said}
    items = [_said(s, None) for s in said if s.message_id not in told]
    items += [_said(by_message[m.id], m) if m.id in by_message else _message(m) for m in told.values()]
    items += [_verdict(link, work) for link in links if link.verdict is not None]
    items.sort(key=lambda item: str(item["at"]))
    return {
        "id": work.id,
        "title": rows.title(work),
        "repo": names.get(work.repo_path, work.repo_path),
        "status": work.status,
        "head_commit": work.head_commit,
        "reviews": [_review(link) for link in links],
        "items": items[-_ITEMS:],
    }


def _said(said: Feedback, carrier: Message | None) -> dict[str, Any]:
    about = {"commit": said.reviewed_commit, "stale": said.stale, "state": carrier.state if carrier else None}
    more = {"priority": said.priority, "file": plain(said.file_path, 500, lines=False)}
    item = _item(said.id, said.sender, said.to_instance, said.feedback_type, said.body, said.created_at)
    return item | about | more


def _message(one: Message) -> dict[str, Any]:
    about = {"commit": None, "stale": False, "state": one.state, "priority": None, "file": None}
    return _item(one.id, one.sender, one.instance_id, one.kind, one.body, one.created_at) | about


def _verdict(link: Relationship, work: Instance) -> dict[str, Any]:
    body = f"{_VERDICTS[Verdict(link.verdict or Verdict.NONE)]} Round {link.round}."
    about = {"commit": link.head_commit, "stale": link.head_commit != work.head_commit, "state": link.verdict}
    at = link.verdict_at or link.created_at
    item = _item(f"verdict-{link.id}", link.child_id, link.parent_id, "verdict", body, at)
    return item | about | {"priority": None, "file": None}


def _item(key: str, sender: str, to: str, type_: str, body: str, at: str) -> dict[str, Any]:
    text = plain(body, _BODY)
    named = {"id": key, "from": plain(sender, 200, lines=False), "to": to, "type": type_}
    return named | {"body": text, "at": at, "refs": references(text)}


def _review(link: Relationship) -> dict[str, Any]:
    known = {"id": link.child_id, "round": link.round, "commit": link.head_commit}
    return known | {"verdict": link.verdict, "created_at": link.created_at, "verdict_at": link.verdict_at}


def references(text: str) -> list[dict[str, Any]]:
    """The places that a text names as file:line, each once."""
    found = dict.fromkeys((m[1], int(m[2])) for m in _REF.finditer(text))
    return [{"path": path, "line": line} for path, line in list(found)[:_REFS]]


ENDPOINTS = (
    Endpoint("GET", "/api/v1/threads", "Work that was reviewed or given feedback.", _list, query=Listed),
    Endpoint("GET", "/api/v1/threads/{id}", "Everything said about one piece of work, in order.", _one),
)

"""Instances: all of them as pages show them, those that match as MCP clients see them, and one with everything."""

from __future__ import annotations

import re
import shlex
from typing import Any, Literal

from pydantic import Field

from swarm_core import proc
from swarm_core.errors import SwarmError
from swarm_core.models import Instance, Message, Relationship, as_json, parse_iso
from swarm_core.ops import budget, describe, dialogs, inbox, lineage, pull_status, timeline
from swarm_core.ops.context import place
from swarm_core.store import events, feedback, instances, messages, overlaps, preserved, relationships
from swarm_core.store.database import Database
from swarm_core.swarm import Swarm
from swarm_ui import views
from swarm_ui.views import plain
from swarm_ui.web import rows
from swarm_ui.web.asking import Asked, InstanceId, named, reading
from swarm_ui.web.endpoint import Endpoint, Question
from swarm_ui.web.slow import GIT, TMUX

DIFF_BYTES = 400_000
_COUNTED_BYTES = 4_000_000
_MESSAGES = 100
_EVENTS = 2000
_PROMPT = 50_000
_BODY = 10_000
_LINE = 2000
_ATTACH_WITHIN = 2.0
_FILE = re.compile(r"^diff --git (?:\"?a/(.*?)\"?) (?:\"?b/(.*?)\"?)$")
_DETAILS = (
    *("worktree_path", "head_commit", "base_commit", "base_branch", "branch", "pid", "epoch", "host", "wanted"),
    *("started_at", "terminated_at", "cleaned_at", "changes_at", "exit_code", "exit_signal", "issue_title"),
)
_RECEIPT = (
    *("id", "sender", "kind", "state", "attempts"),
    *("created_at", "injected_at", "seen_at", "acknowledged_at"),
)
_STATUS = {"new file": "added", "deleted file": "deleted", "rename from": "renamed", "copy from": "copied"}


class Query(Asked):
    """As for the MCP tool query_instances."""

    instance_id: InstanceId | None = None
    type: Literal["work", "review", "fork", "adhoc"] | None = None
    status: (
        Literal[
            "starting",
            "running",
            "waiting_review",
            "changes_requested",
            "approved",
            "pr_created",
            "pr_merged",
            "pr_closed",
            "failed",
            "terminated",
        ]
        | None
    ) = None
    issue_number: int | None = Field(None, ge=1, le=999_999_999)
    include_relationships: bool = False
    limit: int = Field(20, ge=1, le=200)


def _snapshot(question: Question) -> dict[str, Any]:
    return question.site.hub.boot(question.visitor)


def _query(question: Question) -> describe.Instances:
    asked, who = question.query, question.visitor.name
    with reading(question) as swarm:
        found = describe.query_instances(
            swarm.context.db,
            instance_id=asked.instance_id,
            kind=asked.type,
            status=asked.status,
            issue_number=asked.issue_number,
            include_relationships=asked.include_relationships,
            limit=asked.limit,
            you=who,
            sees_all=not who.startswith("automation:"),
        )
    return rows.clean(found)


def _one(question: Question) -> dict[str, Any]:
    with reading(question) as swarm:
        return detail(swarm, named(swarm.context.db, question))


def detail(swarm: Swarm, one: Instance) -> dict[str, Any]:
    """One instance with everything that hangs on it; the row is the one of the snapshot."""
    db, settings = swarm.context.db, swarm.context.settings
    now = parse_iso(db.now())
    board = inbox.board(db, policy=pull_status.policy(settings))
    names = rows.repo_names({i.repo_path for i in board.instances} | {one.repo_path})
    met = overlaps.of(db, one.id)
    row = rows.instance(
        one,
        board.needs.get(one.id, ()),
        board.pulls.get(one.id),
        now=now,
        repo=names[one.repo_path],
        overlap=views.overlap_note(one, met),
        weight=1 + (one.id in board.reviewed_by),
        budget=settings.number("budget_usd"),
    )
    links = relationships.of(db, one.id)
    return {
        "row": row,
        "detail": _detail(swarm, one),
        "parent": one.parent_id,
        "children": [_child(db, link) for link in links if link.parent_id == one.id],
        "relationships": [describe.link(link) for link in links],
        "messages": [message(m) for m in messages.of(db, one.id, limit=_MESSAGES)],
        "feedback": [_feedback(said) for said in feedback.of(db, one.id)[-_MESSAGES:]],
        "preserved": [as_json(kept) for kept in preserved.of(db, one.id)],
        "overlaps": rows.clean(views.overlaps_json(one, met)),
        "cost": rows.clean(views.account_json(budget.account(swarm.context, one))),
        "pull": _pull(swarm, one),
        "dialog": rows.clean(dialogs.shown(one)),
        "tasks": [],
    }


def _detail(swarm: Swarm, one: Instance) -> dict[str, Any]:
    told = {name: getattr(one, name) for name in _DETAILS}
    return rows.clean(told) | {
        "session": one.tmux_session,
        "prompt": plain(one.prompt, _PROMPT),
        "last_screen": plain(one.last_screen, _PROMPT),
        "problem": plain(one.problem, _LINE),
        "needs_person": plain(one.needs_person, _LINE),
        "attach": _attach(swarm, one),
    }


def _attach(swarm: Swarm, one: Instance) -> str | None:
    """The command with which a person looks at the session; None when there is none or nobody can tell."""
    try:
        with proc.within(_ATTACH_WITHIN):
            return shlex.join(swarm.attach_argv(one))
    except SwarmError:
        return None


def _child(db: Database, link: Relationship) -> dict[str, Any]:
    found = instances.get(db, link.child_id)
    known = {"id": found.id, "kind": found.kind, "status": found.status, "title": rows.title(found)}
    return known | {"type": link.type, "round": link.round, "verdict": link.verdict}


def message(one: Message) -> dict[str, Any]:
    """A message with its receipt."""
    told = {name: getattr(one, name) for name in _RECEIPT}
    return rows.clean(told) | {
        "body": plain(one.body, _BODY),
        "error": plain(one.error or "", _LINE, lines=False),
        "how": plain(one.how or "", _LINE, lines=False),
    }


def _feedback(said: Any) -> dict[str, Any]:
    told = as_json(said) | {"stale": said.stale, "body": plain(said.body, _BODY)}
    return rows.clean(told)


def _pull(swarm: Swarm, one: Instance) -> dict[str, Any] | None:
    """The newest pull request of its branch, with checks, reviews and comments."""
    if one.pr_number is None:
        return None
    try:
        found = swarm.pulls.of(one.id)
    except SwarmError:
        return None
    told = describe.pull(found, swarm.context.db.now()) | {
        "reviews": [
            {"author": r.author, "state": r.state, "body": r.body, "commit": r.commit, "at": r.at, "url": r.url}
            for r in found.reviews[-_MESSAGES:]
        ],
        "body": plain(found.pull.body, _BODY),
        "auto_merge": found.pull.auto_merge,
        "stale": found.pull.failures > 0,
        "problem": found.pull.failure,
    }
    return rows.clean(told)


def _timeline(question: Question) -> dict[str, Any]:
    with reading(question) as swarm:
        db = swarm.context.db
        one = named(db, question)
        found = events.newest(db, instance_id=one.id, limit=_EVENTS)
        groups = [as_json(group) for group in timeline.groups(found, now=db.now(), over=one.terminated_at)]
    for group in groups:
        group["from"] = group.pop("begin")
        group["to"] = group.pop("end")
        group["label"] = plain(group["label"], 120, lines=False)
    return {"groups": groups}


def _diff(question: Question) -> dict[str, Any]:
    swarm = question.site.swarm
    one = named(swarm.context.db, question)
    host = swarm.context.host(one)
    facts = host.branch_state(place(one), lineage.origin(swarm.context.db, one).base_branch)
    start = facts["start"] or one.base_commit
    text = host.diff(place(one), start, facts["head_commit"], max_bytes=_COUNTED_BYTES)
    kept = text if len(text) <= DIFF_BYTES else text[:DIFF_BYTES].rpartition("\n")[0] + "\n"
    shown = "\n".join(plain(line, _LINE) for line in kept.split("\n"))
    return {"files": diff_files(text), "text": shown, "cut": len(kept) < len(text)}


def diff_files(text: str) -> list[dict[str, Any]]:
    """The files of a diff, with how many lines each adds and deletes."""
    found: list[dict[str, Any]] = []
    in_hunk = False
    for line in text.split("\n"):
        if line.startswith("diff --git "):
            match = _FILE.match(line)
            path = match[2] if match else line.removeprefix("diff --git ")
            found.append({"path": plain(path, 500, lines=False), "added": 0, "deleted": 0, "status": "changed"})
            in_hunk = False
        elif line.startswith("@@"):
            in_hunk = True
        elif found and in_hunk:
            found[-1]["added"] += line.startswith("+")
            found[-1]["deleted"] += line.startswith("-")
        elif found:
            for begins, status in _STATUS.items():
                if line.startswith(begins):
                    found[-1]["status"] = status
            if line.startswith("Binary files "):
                found[-1]["binary"] = True
    return found


def _leftovers(question: Question) -> dict[str, Any]:
    swarm = question.site.swarm
    return dict(swarm.leftovers(named(swarm.context.db, question)))


ENDPOINTS = (
    Endpoint("GET", "/api/v1/snapshot", "Everything a page shows at first.", _snapshot),
    Endpoint("GET", "/api/v1/instances", "The newest instances that match.", _query, query=Query),
    Endpoint("GET", "/api/v1/instances/{id}", "One instance with everything that hangs on it.", _one, runs=TMUX),
    Endpoint("GET", "/api/v1/instances/{id}/timeline", "What an instance did, in groups of events.", _timeline),
    Endpoint(
        "GET",
        "/api/v1/instances/{id}/diff",
        "What an instance has changed since it started.",
        _diff,
        runs=GIT,
    ),
    Endpoint(
        "GET",
        "/api/v1/instances/{id}/leftovers",
        "What removing an instance would take away.",
        _leftovers,
        runs=GIT,
    ),
)

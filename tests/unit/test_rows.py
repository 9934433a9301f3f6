"""Rows of the dashboard: their state, their title, their text, and how quickly they are made."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from swarm_core.forge import Check, Review
from swarm_core.models import Event, Overlap, Pull
from swarm_core.ops import inbox
from swarm_core.ops.inbox import Board, Need
from swarm_core.ops.pull_status import Facts
from swarm_ui import views
from swarm_ui.web import rows
from tests.unit.test_views import instance

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
ASKED = {"since": "x", "text": "Run rm -rf build?", "choices": ["Yes", "No"], "kind": "permission", "digest": "d1"}
PULL: dict[str, Any] = {
    "id": 1,
    "forge": "local",
    "repo_path": "/srv/shop",
    "number": 12,
    "url": "u",
    "instance_id": "work-7-a1",
    "opened_by": "operator",
    "head_branch": "b",
    "base_branch": "main",
    "head_commit": "c" * 40,
    "title": "Fix",
    "body": "",
    "state": "open",
    "created_at": "2026-03-01T11:00:00.000Z",
    "updated_at": "2026-03-01T11:00:00.000Z",
}


def facts(*checks: str, **changes: Any) -> Facts:
    return Facts(Pull(**(PULL | changes)), [Check(str(n), f"check {n}", s) for n, s in enumerate(checks)])


def needs(pull: Facts | None = None, *, has_mail: bool = False, **changes: Any) -> list[Need]:
    return inbox.needs_of(instance(**changes), pull, {}, has_mail=has_mail)


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"activity": "busy"}, "running"),
        ({"activity": "unknown"}, "running"),
        ({"activity": "idle"}, "idle"),
        ({"activity": "starting"}, "starting"),
        ({"status": "starting", "activity": "unknown"}, "starting"),
        ({"activity": "blocked", "blocked_on": json.dumps(ASKED)}, "waiting"),
        ({"activity": "blocked"}, "waiting"),
        ({"activity": "busy", "needs_person": "no rounds left"}, "waiting"),
        ({"activity": "idle", "budget_state": "held"}, "waiting"),
        ({"activity": "busy", "budget_state": "warned"}, "running"),
        ({"status": "failed", "activity": "exited", "reason": "crashed"}, "error"),
        ({"status": "failed", "activity": "exited", "activity_detail": "session lost"}, "error"),
        ({"activity": "idle", "problem": "the worktree is gone"}, "error"),
        ({"activity": "idle", "activity_detail": "error: rate_limit"}, "error"),
        ({"status": "terminated", "activity": "exited"}, "done"),
        ({"status": "pr_merged", "activity": "idle"}, "done"),
        ({"status": "pr_created", "activity": "exited"}, "idle"),
    ],
)
def test_the_state_is_one_word_for_all_that_is_known(changes: dict[str, Any], state: str) -> None:
    one = instance(**changes)
    assert views.state(one, inbox.needs_of(one, None, {})) == state
    assert state in views.STATES


def test_what_was_dismissed_still_has_failed() -> None:
    assert views.state(instance(status="failed", activity="exited"), []) == "error"


def test_a_question_is_answered_by_its_choices_the_first_being_the_one_to_press() -> None:
    (need,) = needs(activity="blocked", blocked_on=json.dumps(ASKED))
    told = [(a.act, a.label, dict(a.body), a.primary) for a in need.acts]
    assert told == [
        ("answer", "Yes", {"choice": 1, "digest": "d1"}, True),
        ("answer", "No", {"choice": 2, "digest": "d1"}, False),
        ("open", "Open", {}, False),
    ]
    (free,) = needs(activity="blocked", blocked_on=json.dumps(ASKED | {"choices": []}))
    assert [(a.act, dict(a.body)) for a in free.acts] == [("answer", {"text": None, "digest": "d1"}), ("open", {})]


@pytest.mark.parametrize(
    ("changes", "acts"),
    [
        ({"needs_person": "no rounds left"}, ["approve", "rescope", "abandon", "open"]),
        ({"status": "failed", "activity": "exited"}, ["restart", "open"]),
        ({"activity": "idle", "activity_detail": "error: rate_limit"}, ["message", "restart", "open"]),
        ({"budget_state": "held"}, ["budget", "open"]),
        ({"activity": "blocked"}, ["open"]),
        ({"problem": "the worktree is gone"}, ["stop", "restore", "open"]),
        ({"problem": "something odd"}, ["open"]),
    ],
)
def test_every_need_has_what_a_person_can_do(changes: dict[str, Any], acts: list[str]) -> None:
    (need,) = needs(**changes)
    assert [a.act for a in need.acts] == acts
    assert sum(a.primary for a in need.acts) <= 1


@pytest.mark.parametrize(
    ("pull", "changes", "key"),
    [
        (facts(), {"activity": "idle"}, "pull_ready"),
        (facts("passed"), {"activity": "exited"}, "pull_ready"),
        (facts("passed"), {"activity": "busy"}, None),
        (facts("pending"), {"activity": "idle"}, None),
        (facts("passed", draft=True), {"activity": "idle"}, None),
        (facts("failed"), {"activity": "idle"}, "pull_failed"),
        (facts("failed"), {"activity": "busy"}, None),
        (facts("failed"), {"activity": "idle", "has_mail": True}, None),
        (facts("failed"), {"activity": "exited", "has_mail": True}, "pull_failed"),
        (facts(mergeable=False), {"activity": "exited"}, "pull_failed"),
    ],
)
def test_a_pull_request_needs_a_person_when_nobody_else_goes_on(
    pull: Facts, changes: dict[str, Any], key: str | None
) -> None:
    found = needs(pull, status="pr_created", **changes)
    assert [need.key.partition(":")[0] for need in found] == ([key] if key else [])


def test_a_ready_pull_request_waits_and_names_its_commit() -> None:
    ready = facts("passed")
    one = instance(status="pr_created", activity="idle")
    (need,) = inbox.needs_of(one, ready, {})
    assert need.key == f"pull_ready:12@{'c' * 12}"
    assert [a.act for a in need.acts] == ["merge", "enqueue", "open"]
    row = rows.instance(one, [need], ready, now=NOW, repo="shop")
    assert (row["state"], row["pr"]["status"], row["pr"]["stale"]) == ("waiting", "checks passed", False)
    assert views.state(one, inbox.needs_of(one, facts("failed"), {})) == "error"


def test_who_approved_is_named() -> None:
    review = Review("1", "anna", "approved", "", "c" * 40, "2026-03-01T11:00:00.000Z", trusted=True)
    (need,) = needs(Facts(Pull(**PULL), reviews=[review]), status="pr_created", activity="idle")
    assert "anna" in need.text


@pytest.mark.parametrize(
    ("changes", "title"),
    [
        ({"name": "fast", "issue_title": "Slow", "prompt": "Do"}, "fast"),
        ({"name": None, "issue_title": "Slow", "prompt": "Do"}, "Slow"),
        ({"name": None, "issue_title": None, "prompt": "\n\n## Do it \nmore"}, "Do it"),
        ({"name": None, "issue_title": None, "prompt": "x" * 500}, "x" * 119 + "…"),
        ({"name": None, "issue_title": None, "prompt": "", "kind": "review", "parent_id": "work-1-a1"}, None),
        ({"name": None, "issue_title": None, "prompt": " "}, "work-7-a1"),
    ],
)
def test_the_title_is_what_people_call_it(changes: dict[str, Any], title: str | None) -> None:
    assert rows.title(instance(**changes)) == (title or "Review of work-1-a1")


def test_text_is_only_text_and_bounded() -> None:
    nasty = "a\x1b[31mred\x1b[0m\x1b]0;title\x07b\x1b]8;;http://x\x1b\\c\x9b1m\u202ed\x00\te\r\nf"
    assert views.plain(nasty, 100) == "aredbc1md\te\nf"
    assert views.plain(nasty, 100, lines=False) == "aredbc1md e f"
    assert len(views.plain("y" * 2_000_000, 50)) == 50
    assert len(views.plain("é\n" * 1_000_000, 50)) == 50
    assert views.plain("half \ud800 pair", 50) == "half  pair"
    assert rows.clean({"a": [nasty], "b": 1, "c": None}) == {"a": ["aredbc1md\te\nf"], "b": 1, "c": None}


def test_an_event_is_a_row_without_control_characters() -> None:
    event = Event(
        id=5,
        at="2026-03-01T11:00:00.000Z",
        instance_id="work-7-a1",
        actor="courier\n",
        tool_name=None,
        name="message:failed",
        success=False,
        error_code="TIMED_OUT",
        error_message="no\x1b[2Janswer\nhere",
        duration_ms=1.234,
        status_from=None,
        status_to=None,
        metadata={"why": "x" * 1000, "empty": ""},
    )
    row = rows.event(event)
    assert row["level"] == "error"
    assert row["text"].startswith("noanswer here why=xxx")
    assert len(row["text"]) <= 240
    assert (row["actor"], row["ms"], row["code"]) == ("courier", 1.2, "TIMED_OUT")
    assert row.keys() == {
        *("id", "at", "instance", "actor", "name", "tool"),
        *("level", "text", "from", "to", "ms", "code"),
    }


def test_two_repositories_of_one_name_are_told_apart() -> None:
    assert rows.repo_names(["/a/shop", "/b/shop", "/c/web", "/"]) == {
        "/a/shop": "a/shop",
        "/b/shop": "b/shop",
        "/c/web": "web",
        "/": "/",
    }


def test_what_others_wait_for_weighs_more() -> None:
    one = instance()
    board = Board([one], {}, {}, {one.id: "work-1-a1"}, 0)
    (row,) = rows.instances(board, [], {}, NOW, budget=0.0)
    assert row["weight"] == 2
    (alone,) = rows.instances(Board([one], {}, {}, {}, 0), [], {}, NOW, budget=2.5)
    assert (alone["weight"], alone["budget"]) == (1, 2.5)


def test_two_hundred_rows_take_milliseconds() -> None:
    blocked = json.dumps(ASKED)
    many = [
        instance(id=f"work-{n}-a1", activity="blocked", blocked_on=blocked, prompt="é" * 400) for n in range(200)
    ]
    met = [Overlap(f"work-{n}-a1", f"work-{n + 1}-a1", {"a.py": [[1, 2]]}, ["a.py"], "x") for n in range(199)]
    board = Board(many, {i.id: inbox.needs_of(i, None, {}) for i in many}, {}, {}, 0)
    best = 1.0
    for _ in range(10):
        started = time.thread_time()
        found = rows.instances(board, met, {"/srv/shop": "shop"}, NOW, budget=0.0)
        best = min(best, time.thread_time() - started)
    assert len(found) == 200
    assert best < 0.01

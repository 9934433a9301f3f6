"""Why an instance needs a person, with the command to act: a table of situations."""

from __future__ import annotations

import json

import pytest

from swarm_core.models import WORKTREE_GONE
from swarm_core.ops import attention
from swarm_ui import views
from tests.unit.test_views import instance

ID = "work-7-a1"
ASKED = {"since": "x", "text": "Run rm -rf build?", "choices": ["Yes", "No"], "kind": "permission", "digest": "d1"}
OPEN = ASKED | {"text": "Which name?", "choices": [], "digest": "d2"}


def found(**changes: object) -> list[tuple[str, str, str]]:
    return [(r.key, r.text, r.command) for r in attention.reasons(instance(**changes))]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"activity": "idle"},
        {"activity": "idle", "activity_detail": "waiting"},
        {"activity": "unknown"},
        {"activity": "busy", "activity_detail": "error: rate_limit"},
        {"status": "waiting_review", "activity": "idle"},
        {"status": "terminated", "activity": "exited", "reason": "stopped"},
        {"status": "terminated", "activity": "blocked", "blocked_on": json.dumps(ASKED)},
        {"status": "terminated", "activity": "idle", "activity_detail": "error: rate_limit"},
        {"status": "terminated", "budget_state": "held"},
        {"status": "pr_created", "activity": "exited", "activity_detail": "stopped", "wanted": "stopped"},
        {"cleaned_at": "2026-03-01T11:00:00.000Z", "needs_person": "no rounds", "problem": WORKTREE_GONE},
        {"cleaned_at": "2026-03-01T11:00:00.000Z", "status": "failed", "reason": "crashed"},
    ],
)
def test_what_goes_on_by_itself_or_is_over_needs_nobody(changes: dict[str, object]) -> None:
    assert found(**changes) == []


@pytest.mark.parametrize(
    ("changes", "key", "text", "command"),
    [
        ({"needs_person": "all review rounds are used (3)"}, "needs_person", "all review", f"swarm accept {ID}"),
        (
            {"needs_person": "author and reviewers disagree"},
            "needs_person",
            "disagree",
            f"swarm rescope {ID} TASK",
        ),
        ({"needs_person": "no verdict within 24 hours"}, "needs_person", "no verdict", f"swarm abandon {ID}"),
        ({"problem": WORKTREE_GONE}, "problem", WORKTREE_GONE, f"swarm restore {ID}"),
        ({"problem": "clean failed: no space"}, "problem", "no space", "swarm doctor --fix"),
        ({"activity": "blocked"}, "blocked", "blocked", f"swarm attach {ID}"),
        (
            {"activity": "blocked", "activity_detail": "permission: Bash", "blocked_on": '{"since": "x"}'},
            "blocked",
            "blocked: permission: Bash",
            f"swarm attach {ID}",
        ),
        (
            {"activity": "blocked", "blocked_on": json.dumps(ASKED)},
            "blocked:d1",
            "blocked",
            f"swarm answer {ID} --choice N",
        ),
        (
            {"activity": "blocked", "blocked_on": json.dumps(OPEN)},
            "blocked:d2",
            "blocked",
            f"swarm answer {ID} --text TEXT",
        ),
        (
            {"status": "failed", "reason": "the agent exited with code 3"},
            "failed",
            "code 3",
            f"swarm restart {ID}",
        ),
        ({"status": "failed"}, "failed", "failed", f"swarm logs {ID}"),
        (
            {"status": "failed", "activity": "exited", "activity_detail": "session lost", "reason": "it is gone"},
            "session_lost",
            "failed: it is gone",
            "swarm resume",
        ),
        (
            {
                "status": "waiting_review",
                "activity": "exited",
                "activity_detail": "session lost",
                "reason": "it is gone",
            },
            "session_lost",
            "waiting_review, but it is gone",
            "swarm resume",
        ),
        (
            {"status": "pr_created", "activity": "exited", "reason": "the agent exited with code 1"},
            "exited",
            "pr_created, but the agent",
            f"swarm restart {ID}",
        ),
        ({"budget_state": "warned"}, "budget_warned", "nearly used", f"swarm budget {ID} --raise USD"),
        ({"budget_state": "held"}, "budget_held", "used up", f"swarm budget {ID} --raise USD"),
        ({"activity": "idle", "activity_detail": "error: rate_limit"}, "error", "rate limited", f"swarm msg {ID}"),
        ({"activity": "idle", "activity_detail": "error: overloaded"}, "error", "rate limited", f"swarm msg {ID}"),
        (
            {"activity": "idle", "activity_detail": "error: billing_error"},
            "error",
            "out of credit",
            "swarm attach",
        ),
        (
            {"activity": "idle", "activity_detail": "error: out of credit"},
            "error",
            "out of credit",
            "swarm attach",
        ),
        ({"activity": "idle", "activity_detail": "error: context full"}, "error", "context full", "swarm attach"),
        (
            {"activity": "idle", "activity_detail": "error: authentication_failed"},
            "error",
            "login needed",
            "swarm attach",
        ),
        ({"activity": "idle", "activity_detail": "error: login needed"}, "error", "login needed", "swarm attach"),
        (
            {"activity": "idle", "activity_detail": "error: something new"},
            "error",
            "something new",
            "swarm attach",
        ),
    ],
)
def test_each_situation_has_its_reason_and_its_command(
    changes: dict[str, object], key: str, text: str, command: str
) -> None:
    [(had_key, had_text, had_command)] = found(**changes)
    assert had_key == key
    assert text in had_text
    assert command in had_command


def test_all_reasons_are_named_the_gravest_first() -> None:
    both = {"needs_person": "no rounds", "problem": WORKTREE_GONE, "budget_state": "held"}
    assert [key for key, _, _ in found(**both)] == ["needs_person", "problem", "budget_held"]


def test_a_question_is_shown_with_the_numbers_that_answer_it() -> None:
    [reason] = attention.reasons(instance(activity="blocked", blocked_on=json.dumps(ASKED)))
    assert reason.more == "Run rm -rf build?\n1. Yes\n2. No"


def test_lists_say_the_same_without_the_question_itself() -> None:
    blocked = instance(activity="blocked", activity_detail="permission", blocked_on=json.dumps(ASKED))
    assert views.needs_you(blocked) == "blocked: permission"
    assert views.needs_you(instance(activity="idle", activity_detail="error: rate_limit")) == (
        "stopped by an error: rate limited"
    )

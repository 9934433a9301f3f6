"""Records as rows, labels and reasons."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta

import pytest

from swarm_core.models import WORKTREE_GONE, Event, Instance, iso
from swarm_ui import views

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def instance(**changes: object) -> Instance:
    known: dict[str, object] = {
        "id": "work-7-a1",
        "kind": "work",
        "status": "running",
        "wanted": "running",
        "host": "local",
        "epoch": 1,
        "repo_path": "/repo",
        "worktree_path": "/home/worktrees/repo/work-7-a1",
        "branch": "work/work-7-a1",
        "base_branch": "main",
        "base_commit": "0" * 40,
        "tmux_session": "work-7-a1",
        "agent": "scripted",
        "conversation_id": "c",
        "agent_number": 1,
        "activity": "busy",
        "activity_source": "file",
        "activity_at": iso(NOW - timedelta(seconds=3)),
        "created_at": iso(NOW - timedelta(hours=1)),
        "updated_at": iso(NOW),
    }
    return Instance(**(known | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, ""),
        ({"activity": "idle"}, ""),
        ({"activity": "blocked"}, "blocked"),
        ({"activity": "blocked", "activity_detail": "permission"}, "blocked: permission"),
        ({"status": "failed", "activity": "exited"}, "failed"),
        ({"status": "failed", "reason": "the agent exited with code 3"}, "failed: the agent exited with code 3"),
        ({"problem": WORKTREE_GONE}, WORKTREE_GONE),
        ({"needs_person": "all review rounds are used (3)"}, "all review rounds are used (3)"),
        ({"needs_person": "no rounds", "problem": WORKTREE_GONE}, f"no rounds; {WORKTREE_GONE}"),
        ({"needs_person": "no rounds", "cleaned_at": "2026-03-01T11:00:00.000Z"}, ""),
        (
            {"problem": "clean failed: no space", "status": "terminated", "wanted": "stopped"},
            "clean failed: no space",
        ),
        ({"status": "terminated", "activity": "exited", "reason": "stopped"}, ""),
        ({"status": "terminated", "activity": "blocked"}, ""),
        ({"status": "pr_merged", "activity": "exited", "reason": "the agent exited with code 0"}, ""),
        (
            {"status": "pr_created", "activity": "exited", "reason": "the agent exited with code 1"},
            "pr_created, but the agent exited with code 1",
        ),
        (
            {"status": "waiting_review", "activity": "exited", "reason": "its tmux session is gone"},
            "waiting_review, but its tmux session is gone",
        ),
        ({"status": "pr_created", "activity": "exited", "activity_detail": "stopped", "wanted": "stopped"}, ""),
        ({"status": "failed", "reason": "crashed", "cleaned_at": "2026-03-01T11:00:00.000Z"}, ""),
    ],
)
def test_a_person_is_needed_exactly_when_nothing_goes_on_without_one(
    changes: dict[str, object], reason: str
) -> None:
    assert views.needs_you(instance(**changes)) == reason


@pytest.mark.parametrize(
    ("seconds", "label"),
    [
        (-30, "0s"),
        (0, "0s"),
        (3, "3s"),
        (59.9, "59s"),
        (60, "1m"),
        (3599, "59m"),
        (3600, "1h"),
        (86399, "23h"),
        (86400, "1d"),
        (86400 * 400, "400d"),
    ],
)
def test_an_age_has_one_unit_and_is_never_negative(seconds: float, label: str) -> None:
    assert views.age(iso(NOW - timedelta(seconds=seconds)), NOW) == label


def test_the_activity_is_shown_with_its_evidence_and_age() -> None:
    assert views.activity_label(instance(), NOW) == "busy (file, 3s)"


def test_changes_that_nobody_counted_are_not_shown_as_zero() -> None:
    assert views.changes_label(instance()) == ""
    counted = instance(lines_added=12, lines_deleted=3, changes_at=iso(NOW))
    assert views.changes_label(counted) == "+12 -3"
    assert views.changes_label(instance(changes_at=iso(NOW))) == "+0 -0"


def test_a_row_carries_everything_the_list_shows() -> None:
    row = views.row(instance(name="login", activity="blocked", activity_detail="question"), NOW)
    assert row == views.Row(
        id="work-7-a1",
        name="login",
        kind="work",
        status="running",
        activity="blocked (file, 3s)",
        branch="work/work-7-a1",
        changes="",
        needs_you="blocked: question",
    )


def test_the_json_of_an_instance_has_every_field_and_the_long_texts_only_in_full() -> None:
    fields = {f.name for f in dataclasses.fields(Instance)}
    long = {"prompt", "last_screen"}
    assert set(views.instance_json(instance())) == fields - long | {"needs_you"}
    assert set(views.instance_json(instance(), full=True)) == fields | {"needs_you"}


@pytest.mark.parametrize(
    ("size", "label"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 KB"),
        (16384, "16.4 KB"),
        (250_000, "250 KB"),
        (5 * 10**15, "5000 TB"),
    ],
)
def test_sizes_are_readable(size: int, label: str) -> None:
    assert views.size_label(size) == label


def test_an_event_is_one_line_with_its_change_and_its_error() -> None:
    event = Event(
        id=4,
        at=iso(NOW),
        instance_id="work-7-a1",
        actor="operator",
        tool_name=None,
        name="instance:status",
        success=False,
        error_code="DISK_FULL",
        error_message="no space",
        duration_ms=None,
        status_from="starting",
        status_to="failed",
        metadata={"why": "x" * 100, "nothing": None},
    )
    assert views.event_label(event) == f"instance:status starting -> failed why={'x' * 59}… [DISK_FULL] no space"


@pytest.mark.parametrize(
    ("before", "now", "new"),
    [
        ([], ["a", "b"], ["a", "b"]),
        (["a"], ["a"], []),
        (["a"], ["a", "b", "c"], ["b", "c"]),
        (["a", "b", "c"], ["b", "c", "d"], ["d"]),
        (["a", "b"], ["x", "y"], ["x", "y"]),
        (["a", "a"], ["a", "a", "a"], ["a"]),
        (["a", "b", "box"], ["a", "b", "c", "box"], ["c", "box"]),
        (["a", "b"], [], []),
        (["a", "", "b"], ["", "b", "", "c"], ["", "c"]),
        (["a", "b", "c", "box"], ["b", "c", "d", "box"], ["d", "box"]),
        (["a", "b", "❯"], ["a", "b", "❯ hello", "c"], ["❯ hello", "c"]),
        (["❯", "a", "b", "❯"], ["❯", "a", "b", "❯ x", "❯"], ["❯ x", "❯"]),
    ],
)
def test_only_lines_that_were_not_there_before_are_new(before: list[str], now: list[str], new: list[str]) -> None:
    assert views.new_lines(before, now) == new

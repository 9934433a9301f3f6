"""The pure part of a comparison: who touches what, for how long, and what the last review said."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm_core.models import Instance, Relationship
from swarm_core.ops import compare
from swarm_ui.cli import attempts

NOW = "2026-03-01T12:00:00.000Z"


def instance(**changes: object) -> Instance:
    required = [f.name for f in dataclasses.fields(Instance) if f.default is dataclasses.MISSING]
    known: dict[str, object] = dict.fromkeys(required, "")
    return Instance(**(known | {"activity": "busy", "activity_at": NOW} | changes))  # type: ignore[arg-type]


def test_files_are_shared_by_all_or_touched_by_one_or_neither():
    touched = {"a": ["x", "y", "own-a"], "b": ["x", "y"], "c": ["x", "own-c"]}
    shared, only = compare.split_files(touched)
    assert shared == ["x"]
    assert only == {"a": ["own-a"], "b": [], "c": ["own-c"]}


def test_one_alone_shares_nothing_and_an_empty_one_leaves_nothing_to_share():
    assert compare.split_files({"a": ["x"]}) == ([], {"a": ["x"]})
    assert compare.split_files({"a": ["x"], "b": []}) == ([], {"a": ["x"], "b": []})
    assert compare.split_files({}) == ([], {})


@given(st.dictionaries(st.sampled_from("abcd"), st.lists(st.sampled_from("uvwxyz")), min_size=2))
def test_no_file_is_both_shared_and_of_one_alone(touched):
    shared, only = compare.split_files(touched)
    assert shared == sorted(set.intersection(*(set(files) for files in touched.values())))
    for one, files in touched.items():
        others = {name for other, theirs in touched.items() if other != one for name in theirs}
        assert only[one] == sorted(set(files) - others)


@pytest.mark.parametrize(
    ("changes", "seconds"),
    [
        ({}, 0),
        ({"started_at": "2026-03-01T11:58:00.000Z"}, 120),
        (
            {
                "started_at": "2026-03-01T11:58:00.000Z",
                "activity": "idle",
                "activity_at": "2026-03-01T11:59:00.000Z",
            },
            60,
        ),
        ({"started_at": "2026-03-01T11:58:00.000Z", "terminated_at": "2026-03-01T11:58:30.000Z"}, 30),
        ({"started_at": "2026-03-01T12:00:01.000Z"}, 0),
    ],
    ids=["never started", "busy", "at rest", "ended", "clock set back"],
)
def test_the_time_is_that_of_the_agent_at_work(changes, seconds):
    assert compare.seconds_of(instance(**changes), NOW) == seconds


def test_the_last_review_counts_and_says_whether_it_saw_what_is_there():
    links = [
        Relationship(1, "work-a1", "review-a1", "spawned_review", 1, "aaa", NOW, "needs_work", NOW),
        Relationship(2, "work-a1", "review-a1-r2", "spawned_review", 2, "bbb", NOW, None, None),
    ]
    assert compare.last_review([], "aaa") is None
    assert compare.last_review(links[:1], "aaa") == compare.Reviewed("review-a1", 1, "needs_work", True)
    assert compare.last_review(links, "ccc") == compare.Reviewed("review-a1-r2", 2, "under way", False)


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.2, "0s"), (59, "59s"), (61, "1m 1s"), (3599, "59m 59s"), (7260, "2h 1m")]
)
def test_durations_are_short(seconds, shown):
    assert attempts._duration(seconds) == shown

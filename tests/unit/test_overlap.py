"""Overlaps as pure functions: who is compared, where two meet, and how that is said."""

from __future__ import annotations

import pytest

from swarm_core.models import Overlap
from swarm_core.ops import overlap, places
from swarm_ui import views
from tests.unit.test_views import instance

WHOLE = [[0, 2**31 - 1]]
NOW = "2026-03-01T12:00:00.000Z"


def pair(
    files: dict[str, list[list[int]]], conflicts: list[str] | None = None, *, one: str = "work-1-a1"
) -> Overlap:
    return Overlap(one, "work-7-a1", files, conflicts or [], NOW)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ({"id": "work-1-a1"}, {"id": "work-2-a1"}, True),
        ({"id": "work-1-a1"}, {"id": "work-1-a1"}, False),
        ({"id": "work-1-a1"}, {"id": "work-2-a1", "repo_path": "/other"}, False),
        ({"id": "work-1-a1"}, {"id": "work-2-a1", "host": "far"}, False),
        ({"id": "work-1-a1", "attempt_group": "g"}, {"id": "work-1-a2", "attempt_group": "g"}, False),
        ({"id": "work-1-a1", "attempt_group": "g"}, {"id": "work-1-a2", "attempt_group": "h"}, True),
        ({"id": "work-1-a1"}, {"id": "fork-1-a1", "kind": "fork", "parent_id": "work-1-a1"}, False),
        ({"id": "work-2-a1"}, {"id": "fork-1-a1", "kind": "fork", "parent_id": "work-1-a1"}, True),
        (
            {"id": "fork-1-a1", "kind": "fork", "parent_id": "gone-a1"},
            {"id": "fork-1-a2", "kind": "fork", "parent_id": "gone-a1"},
            False,
        ),
    ],
)
def test_attempts_at_one_task_are_not_compared(one: dict[str, str], other: dict[str, str], expected: bool) -> None:
    first, second = instance(**one), instance(**other)
    present = {i.id: i for i in (first, second)}
    assert overlap.is_comparable(first, second, present) is expected
    assert overlap.is_comparable(second, first, present) is expected


def test_a_fork_of_a_fork_belongs_to_the_attempts_of_its_first_parent() -> None:
    root = instance(id="work-1-a1", attempt_group="g")
    child = instance(id="fork-1-a1", kind="fork", parent_id="work-1-a1")
    grandchild = instance(id="fork-1-a2", kind="fork", parent_id="fork-1-a1")
    sibling = instance(id="work-1-a2", attempt_group="g")
    present = {i.id: i for i in (root, child, grandchild, sibling)}
    assert not overlap.is_comparable(grandchild, sibling, present)


def test_parents_in_a_circle_end() -> None:
    one = instance(id="fork-1-a1", kind="fork", parent_id="fork-1-a2")
    two = instance(id="fork-1-a2", kind="fork", parent_id="fork-1-a1")
    assert not overlap.is_comparable(one, two, {i.id: i for i in (one, two)})


def test_where_two_meet_comes_first_and_far_places_have_no_lines() -> None:
    one = {"a.py": [[1, 2]], "b.py": [[10, 20], [90, 91]], "c.py": WHOLE, "only": [[1, 1]]}
    other = {"a.py": [[50, 60]], "b.py": [[19, 30]], "c.py": [[4, 4]]}
    found = overlap.shared(one, other)
    assert list(found) == ["b.py", "c.py", "a.py"]
    assert found == {"b.py": [[10, 20]], "c.py": WHOLE, "a.py": []}


def test_a_crowd_of_files_is_cut() -> None:
    many = {f"f{n:03}": [[1, 1]] for n in range(400)}
    assert len(overlap.shared(many, many)) == 50


@pytest.mark.parametrize(
    ("found", "level"),
    [
        (None, ""),
        (pair({"a": []}), ""),
        (pair({"a": [[1, 1]]}), "overlap"),
        (pair({"a": []}, ["a"]), "conflict"),
    ],
)
def test_how_bad_it_is(found: Overlap | None, level: str) -> None:
    assert places.level(found) == level


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"a.py": [[3, 5], [9, 9]]}, "a.py:3-5,9"),
        ({"a.py": [[0, 1]]}, "a.py:1"),
        ({"a.py": WHOLE, "b.py": []}, "a.py, b.py"),
        ({"a\nwrite x.py": [[1, 1]]}, "a�write x.py:1"),
        ({"a": [[n, n] for n in (1, 3, 5, 7)]}, "a:1,3,5,…"),
        ({f"f{n}": [] for n in range(7)}, "f0, f1, f2, f3, f4, and 2 more"),
    ],
)
def test_files_and_lines_are_said_shortly(files: dict[str, list[list[int]]], said: str) -> None:
    assert places.label(files) == said


def test_a_warning_is_one_line_that_names_who_where_and_what_to_do() -> None:
    said = overlap.warning(
        instance(name="shop\nexit", base_branch="develop"), pair({"a.py": [[3, 5]], "far.py": []}, ["b.py"])
    )
    assert "\n" not in said
    assert said.startswith("work-7-a1 (shop�exit) changes the same places as you: a.py:3-5.")
    assert "would conflict today in b.py" in said
    assert "rebase onto develop" in said
    assert "far.py" not in said


def test_notes_and_lines_tell_the_gravest_first() -> None:
    found = [
        pair({"far.py": []}, one="work-1-a1"),
        pair({"a.py": [[1, 2]]}, one="work-2-a1"),
        pair({"b.py": [[7, 7]]}, ["b.py"], one="work-3-a1"),
    ]
    one = instance()
    assert views.overlap_note(one, found) == "would conflict with work-3-a1; overlaps work-2-a1"
    assert views.overlap_lines(one, found) == [
        "work-3-a1: same places in b.py:7; would conflict today in b.py (as committed)",
        "work-2-a1: same places in a.py:1-2",
        "work-1-a1: other places of far.py",
    ]
    assert [(o["instance_id"], o["level"]) for o in views.overlaps_json(one, found)] == [
        ("work-1-a1", "file"),
        ("work-2-a1", "overlap"),
        ("work-3-a1", "conflict"),
    ]
    assert views.overlap_note(one, []) == ""

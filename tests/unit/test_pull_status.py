"""What a pull request is at: a table of facts and what follows, and how a failing batch is bisected."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm_core.forge import Check, Comment, Review
from swarm_core.hosts.base import CheckFacts
from swarm_core.models import Pull
from swarm_core.ops.pull_status import Facts, PullStatus, status
from swarm_core.ops.queue import first_bad
from swarm_ui.cli.pulls import progress

HEAD = "a" * 40
OLD = "b" * 40


def pull(**fields: Any) -> Pull:
    known: dict[str, Any] = {
        "id": 1,
        "forge": "local",
        "repo_path": "/srv/shop",
        "number": 7,
        "instance_id": "work-1-a1",
        "opened_by": "operator",
        "head_branch": "work/work-1-a1",
        "base_branch": "main",
        "head_commit": HEAD,
        "url": "file:///7.md",
        "title": "Make it",
        "body": "",
        "state": "open",
        "created_at": "2026-11-16T12:00:00.000Z",
        "updated_at": "2026-11-16T12:00:00.000Z",
        "mergeable": True,
    }
    return Pull(**(known | fields))


def checks(*states: str) -> list[Check]:
    return [Check(str(n), f"check {n}", state) for n, state in enumerate(states)]


def review(state: str, *, by: str = "kim", commit: str = HEAD, trusted: bool = True) -> Review:
    return Review("1", by, state, "", commit, "2026-11-16T12:00:00.000Z", trusted=trusted)


def comment(**fields: Any) -> Comment:
    return Comment("1", "kim", "hm", "2026-11-16T12:00:00.000Z", **({"trusted": True} | fields))


APPROVED, REFUSED = review("approved"), review("changes_requested")
ALL = {"checks": checks("failed", "pending"), "reviews": [REFUSED], "comments": [comment()]}

TABLE = [
    (Facts(pull()), PullStatus.OPEN, []),
    (Facts(pull(state="merged", draft=True), **ALL), PullStatus.MERGED, ["it is merged"]),
    (Facts(pull(state="closed", mergeable=False), **ALL), PullStatus.CLOSED, ["it is closed"]),
    (
        Facts(pull(mergeable=False, draft=True), **ALL),
        PullStatus.CONFLICT,
        [
            "it is a draft",
            "it conflicts with main",
            "checks failed: check 0",
            "checks are not finished: check 1",
            "changes are requested by kim",
        ],
    ),
    (
        Facts(pull(draft=True), checks("failed", "passed")),
        PullStatus.CHECKS_FAILED,
        ["it is a draft", "checks fai"],
    ),
    (Facts(pull(), checks("pending"), [REFUSED]), PullStatus.CHANGES_REQUESTED, ["checks are not", "changes are"]),
    (Facts(pull(draft=True), checks("pending")), PullStatus.DRAFT, ["it is a draft", "checks are not finished"]),
    (Facts(pull(), checks("pending", "passed"), [APPROVED]), PullStatus.CHECKS_PENDING, ["checks are not"]),
    (Facts(pull(), checks("passed"), [APPROVED], [comment()]), PullStatus.APPROVED, []),
    (Facts(pull(), checks("passed"), [], [comment()]), PullStatus.COMMENTED, []),
    (Facts(pull(), checks("passed"), [], [comment(outdated=True)]), PullStatus.CHECKS_PASSED, []),
    (Facts(pull(), checks("skipped")), PullStatus.CHECKS_PASSED, []),
    (Facts(pull(mergeable=None)), PullStatus.OPEN, []),
    # what was said of another commit, or by somebody without a say, approves and hinders nothing
    (Facts(pull(), (), [review("approved", commit=OLD)]), PullStatus.OPEN, []),
    (Facts(pull(), (), [review("approved", trusted=False)]), PullStatus.OPEN, []),
    (Facts(pull(), (), [review("changes_requested", trusted=False)]), PullStatus.OPEN, []),
    # a request stands until whoever made it takes it back, whatever commit it was about
    (Facts(pull(), (), [review("changes_requested", commit=OLD)]), PullStatus.CHANGES_REQUESTED, ["changes are"]),
    (Facts(pull(), (), [REFUSED, review("commented")]), PullStatus.CHANGES_REQUESTED, ["changes are requested"]),
    (Facts(pull(), (), [REFUSED, review("approved")]), PullStatus.APPROVED, []),
    (Facts(pull(), (), [REFUSED, review("dismissed")]), PullStatus.OPEN, []),
    (Facts(pull(), (), [REFUSED, review("approved", by="lee")]), PullStatus.CHANGES_REQUESTED, ["changes are"]),
]


@pytest.mark.parametrize(("facts", "expected", "hindrances"), TABLE, ids=range(len(TABLE)))
def test_status_and_hindrances_follow_from_the_facts(
    facts: Facts, expected: PullStatus, hindrances: list[str]
) -> None:
    assert status(facts) == expected
    assert len(facts.hindrances) == len(hindrances)
    for found, begins in zip(facts.hindrances, hindrances, strict=True):
        assert found.startswith(begins)


def test_every_status_is_in_the_table() -> None:
    assert {expected for _, expected, _ in TABLE} == set(PullStatus)


MOMENT, LATER = "2026-11-16T12:00:00.000Z", "2026-11-16T12:01:31.000Z"
GITHUB = {"repository": "github.com/o/r", "looked_at": MOMENT}
AT_ONCE = {"head_at": MOMENT}


@pytest.mark.parametrize(
    ("facts", "checks_", "ready", "merged", "over"),
    [
        (Facts(pull(state="merged")), "there", "there", "there", "there"),
        (Facts(pull(state="closed")), "never", "never", "never", "there"),
        (Facts(pull(**GITHUB), checks("pending")), "not yet", "not yet", "not yet", "not yet"),
        (Facts(pull(**GITHUB), checks("passed")), "there", "there", "not yet", "not yet"),
        (Facts(pull(**GITHUB), checks("failed", "pending")), "never", "never", "not yet", "not yet"),
        (Facts(pull(**GITHUB)), "there", "there", "not yet", "not yet"),
        (Facts(pull(**GITHUB | AT_ONCE), now=MOMENT, grace=90), "not yet", "not yet", "not yet", "not yet"),
        (Facts(pull(**GITHUB | AT_ONCE), now=LATER, grace=90), "there", "there", "not yet", "not yet"),
        (Facts(pull(**GITHUB | {"mergeable": None}), checks("passed")), "there", "not yet", "not yet", "not yet"),
        (Facts(pull(mergeable=False)), "not yet", "never", "not yet", "not yet"),
        (Facts(pull(draft=True)), "not yet", "not yet", "not yet", "not yet"),
        (Facts(pull(looked_at="2026-11-16T12:00:00.000Z")), "there", "there", "not yet", "not yet"),
    ],
    ids=range(12),
)
def test_how_far_a_wait_has_come(facts: Facts, checks_: str, ready: str, merged: str, over: str) -> None:
    goals = {"checks": checks_, "ready": ready, "merged": merged, "over": over}
    assert {goal: progress(facts, goal) for goal in goals} == goals


@given(st.integers(1, 300).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n - 1))))
def test_the_good_before_any_culprit_are_found_with_few_checks(size: tuple[int, int]) -> None:
    count, culprit = size
    asked: list[int] = []

    def check(first: int) -> CheckFacts:
        asked.append(first)
        return {"ok": first <= culprit, "output": f"{first} failed"}

    good, output = first_bad(count, "all failed", check)
    assert good == culprit
    assert output == ("all failed" if culprit + 1 == count else f"{culprit + 1} failed")
    assert len(asked) <= math.ceil(math.log2(count))
    assert len(set(asked)) == len(asked)


def test_a_check_that_finds_nothing_to_run_finds_nothing_bad() -> None:
    assert first_bad(4, "said", lambda _: None) == (3, "said")

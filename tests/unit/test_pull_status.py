"""What a pull request is at: a table of facts and what follows, and how a failing batch is bisected."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm_core.forge import Check, Comment, Review
from swarm_core.hosts.base import CheckFacts
from swarm_core.models import CheckRun, CommitVerdict, Pull
from swarm_core.ops.pull_status import (
    OVERRIDABLE,
    Facts,
    Policy,
    PullStatus,
    Reason,
    ReasonCode,
    readiness,
    sentence,
)
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


def verdict(said: str, *, by: str = "review-1-a1", commit: str = HEAD, work: str = "work-1-a1") -> CommitVerdict:
    return CommitVerdict(work, commit, said, by, "2026-11-16T12:00:00.000Z")


def run(*, ok: bool, head: str = HEAD) -> CheckRun:
    return CheckRun(1, head, OLD, "make test", ok, "said", "2026-11-16T12:00:00.000Z")


def judged(*verdicts: CommitVerdict, **fields: Any) -> Facts:
    return Facts(pull(), verdicts=verdicts, **fields)


YES, NO = verdict("approved"), verdict("needs_work")
BELOW = verdict("needs_work", commit=OLD, work="work-2-a1")
BETWEEN = verdict("approved", commit="c", work="work-2-a1")

# The facts, the state that follows, and the codes of what stands in the way
TABLE: list[tuple[Facts, PullStatus, list[str]]] = [
    (Facts(pull()), PullStatus.OPEN, []),
    (Facts(pull(state="merged", draft=True), **ALL), PullStatus.MERGED, ["merged"]),
    (Facts(pull(state="closed", mergeable=False), **ALL), PullStatus.CLOSED, ["closed"]),
    (
        Facts(pull(mergeable=False, draft=True), **ALL),
        PullStatus.CONFLICT,
        ["draft", "conflict", "checks_failed", "checks_pending", "changes_requested"],
    ),
    (Facts(pull(mergeable=False, unrelated=True)), PullStatus.CONFLICT, ["unrelated_histories"]),
    (Facts(pull(mergeable=None, unrelated=True)), PullStatus.CONFLICT, ["unrelated_histories"]),
    (Facts(pull(draft=True), checks("failed", "passed")), PullStatus.CHECKS_FAILED, ["draft", "checks_failed"]),
    (
        Facts(pull(), checks("pending"), [REFUSED]),
        PullStatus.CHANGES_REQUESTED,
        ["checks_pending", "changes_requested"],
    ),
    (Facts(pull(draft=True), checks("pending")), PullStatus.DRAFT, ["draft", "checks_pending"]),
    (Facts(pull(), checks("pending", "passed"), [APPROVED]), PullStatus.CHECKS_PENDING, ["checks_pending"]),
    (Facts(pull(), checks("passed"), [APPROVED], [comment()]), PullStatus.APPROVED, []),
    (Facts(pull(), checks("passed"), [], [comment()]), PullStatus.COMMENTED, []),
    (Facts(pull(), checks("passed"), [], [comment(outdated=True)]), PullStatus.CHECKS_PASSED, []),
    (Facts(pull(), checks("skipped")), PullStatus.CHECKS_PASSED, []),
    (Facts(pull(mergeable=None)), PullStatus.OPEN, []),
    # what was said of another commit, or by somebody without a say, approves and hinders nothing
    (Facts(pull(), (), [review("approved", commit=OLD)]), PullStatus.OPEN, []),
    (Facts(pull(), (), [review("approved", trusted=False)]), PullStatus.OPEN, []),
    (Facts(pull(), (), [review("changes_requested", trusted=False)]), PullStatus.OPEN, []),
    # at the forge a request stands until whoever made it takes it back, whatever commit it was about
    (
        Facts(pull(), (), [review("changes_requested", commit=OLD)]),
        PullStatus.CHANGES_REQUESTED,
        ["changes_requested"],
    ),
    (Facts(pull(), (), [REFUSED, review("commented")]), PullStatus.CHANGES_REQUESTED, ["changes_requested"]),
    (Facts(pull(), (), [REFUSED, review("approved")]), PullStatus.APPROVED, []),
    (Facts(pull(), (), [REFUSED, review("dismissed")]), PullStatus.OPEN, []),
    (
        Facts(pull(), (), [REFUSED, review("approved", by="lee")]),
        PullStatus.CHANGES_REQUESTED,
        ["changes_requested"],
    ),
    # our own verdicts: the newest on the commit decides, whoever's work it was reviewed as
    (judged(YES), PullStatus.APPROVED, []),
    (judged(NO), PullStatus.CHANGES_REQUESTED, ["changes_requested"]),
    (judged(verdict("needs_work", work="work-2-a1")), PullStatus.CHANGES_REQUESTED, ["changes_requested"]),
    (judged(NO, YES), PullStatus.APPROVED, []),
    (judged(YES, NO), PullStatus.CHANGES_REQUESTED, ["changes_requested"]),
    (judged(NO, reviews=[APPROVED]), PullStatus.CHANGES_REQUESTED, ["changes_requested"]),
    (judged(YES, reviews=[REFUSED]), PullStatus.CHANGES_REQUESTED, ["changes_requested"]),
    # on an earlier commit: a refusal waits for another review, an approval is none of this commit
    (judged(verdict("needs_work", commit=OLD)), PullStatus.REVIEW_OUTDATED, ["review_outdated"]),
    (judged(verdict("needs_work", commit=OLD), YES), PullStatus.APPROVED, []),
    (judged(verdict("approved", commit=OLD)), PullStatus.OPEN, []),
    # a commit below the head that was refused as the work of another, until what contains it is approved
    (judged(BELOW, commits={OLD: []}), PullStatus.REVIEW_OUTDATED, ["review_outdated"]),
    (judged(BELOW), PullStatus.OPEN, []),
    (judged(BELOW, YES, commits={OLD: []}), PullStatus.APPROVED, []),
    (judged(YES, BELOW, commits={OLD: []}), PullStatus.REVIEW_OUTDATED, ["review_outdated"]),
    (judged(BELOW, BETWEEN, commits={OLD: [], "c": [OLD]}), PullStatus.OPEN, []),
    (judged(BELOW, BETWEEN, commits={OLD: [], "c": []}), PullStatus.REVIEW_OUTDATED, ["review_outdated"]),
    (judged(reviewer="review-1-a1"), PullStatus.UNDER_REVIEW, ["review_pending"]),
    # our own check counts for the commit it was run on
    (Facts(pull(), check_run=run(ok=False)), PullStatus.CHECKS_FAILED, ["checks_failed"]),
    (Facts(pull(), check_run=run(ok=False, head=OLD)), PullStatus.OPEN, []),
    (Facts(pull(), checks("passed"), check_run=run(ok=False)), PullStatus.CHECKS_FAILED, ["checks_failed"]),
    (Facts(pull(), check_run=run(ok=True)), PullStatus.CHECKS_PASSED, []),
    # policy, and what hides what was committed
    (judged(YES, policy=Policy(approvals=2)), PullStatus.APPROVED, ["approvals_missing"]),
    (judged(YES, reviews=[APPROVED], policy=Policy(approvals=2)), PullStatus.APPROVED, []),
    (
        Facts(pull(replaced="refs/replace/a info/grafts"), checks("failed")),
        PullStatus.BLOCKED,
        ["replaced_objects", "checks_failed"],
    ),
]


@pytest.mark.parametrize(("facts", "expected", "codes"), TABLE, ids=range(len(TABLE)))
def test_state_and_blockers_follow_from_the_facts(facts: Facts, expected: PullStatus, codes: list[str]) -> None:
    found = readiness(facts)
    assert (found.state, [str(reason.code) for reason in found.blockers]) == (expected, codes)
    assert found.ready == (not codes)
    assert all(sentence(reason) for reason in found.reasons)


def test_every_status_is_in_the_table() -> None:
    assert {expected for _, expected, _ in TABLE} == set(PullStatus)


def test_only_verdicts_and_checks_can_be_overridden() -> None:
    blocking = {code for code in ReasonCode if Reason(code).blocks}
    lasting = {"merged", "closed", "draft", "conflict", "unrelated_histories", "replaced_objects"}
    assert blocking - OVERRIDABLE == lasting
    assert blocking >= OVERRIDABLE


MOMENT, LATER = "2026-11-16T12:00:00.000Z", "2026-11-16T12:01:31.000Z"
GITHUB = {"repository": "github.com/o/r", "looked_at": MOMENT}
AT_ONCE = {"head_at": MOMENT}
PATIENT = Policy(grace=90)


@pytest.mark.parametrize(
    ("facts", "checks_", "ready", "merged", "over"),
    [
        (Facts(pull(state="merged")), "there", "there", "there", "there"),
        (Facts(pull(state="closed")), "never", "never", "never", "there"),
        (Facts(pull(**GITHUB), checks("pending")), "not yet", "not yet", "not yet", "not yet"),
        (Facts(pull(**GITHUB), checks("passed")), "there", "there", "not yet", "not yet"),
        (Facts(pull(**GITHUB), checks("failed", "pending")), "never", "never", "not yet", "not yet"),
        (Facts(pull(**GITHUB)), "there", "there", "not yet", "not yet"),
        (
            Facts(pull(**GITHUB | AT_ONCE), now=MOMENT, policy=PATIENT),
            "not yet",
            "not yet",
            "not yet",
            "not yet",
        ),
        (
            Facts(pull(**GITHUB | AT_ONCE), now=LATER, policy=PATIENT),
            "there",
            "there",
            "not yet",
            "not yet",
        ),
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

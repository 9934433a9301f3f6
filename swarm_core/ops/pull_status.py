"""Whether a pull request can be merged, worked out from its facts. Nothing is looked up and nothing is stored.

`readiness` is the only place that decides it. Front ends show its state and reasons; a merge asks it again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypedDict

from swarm_core.config import Settings
from swarm_core.forge import Check, CheckState, Comment, Review, ReviewState
from swarm_core.models import CheckRun, CommitVerdict, Pull, PullState, Verdict, parse_iso
from swarm_core.ops import rules

_NAMED = 5


class PullStatus(StrEnum):
    """In the order in which one hides another: what keeps it from being merged comes first."""

    MERGED = "merged"
    CLOSED = "closed"
    BLOCKED = "blocked"
    CONFLICT = "conflict"
    CHECKS_FAILED = "checks failed"
    CHANGES_REQUESTED = "changes requested"
    REVIEW_OUTDATED = "review outdated"
    DRAFT = "draft"
    CHECKS_PENDING = "checks pending"
    UNDER_REVIEW = "under review"
    APPROVED = "approved"
    COMMENTED = "review comments"
    CHECKS_PASSED = "checks passed"
    OPEN = "open"


class ReasonCode(StrEnum):
    MERGED = "merged"
    CLOSED = "closed"
    DRAFT = "draft"
    CONFLICT = "conflict"
    UNRELATED_HISTORIES = "unrelated_histories"
    REPLACED_OBJECTS = "replaced_objects"
    CHECKS_FAILED = "checks_failed"
    CHECKS_PENDING = "checks_pending"
    CHECKS_NOT_STARTED = "checks_not_started"
    CHANGES_REQUESTED = "changes_requested"
    REVIEW_OUTDATED = "review_outdated"
    REVIEW_PENDING = "review_pending"
    APPROVALS_MISSING = "approvals_missing"
    APPROVED = "approved"
    APPROVAL_OUTDATED = "approval_outdated"
    CHECKS_PASSED = "checks_passed"
    CHECK_OUTDATED = "check_outdated"


_INFORMS = frozenset(
    {ReasonCode.APPROVED, ReasonCode.APPROVAL_OUTDATED, ReasonCode.CHECKS_PASSED, ReasonCode.CHECK_OUTDATED}
)
# Verdicts and checks: a person may merge against these and says why.
OVERRIDABLE = frozenset(
    {
        ReasonCode.CHECKS_FAILED,
        ReasonCode.CHECKS_PENDING,
        ReasonCode.CHECKS_NOT_STARTED,
        ReasonCode.CHANGES_REQUESTED,
        ReasonCode.REVIEW_OUTDATED,
        ReasonCode.REVIEW_PENDING,
        ReasonCode.APPROVALS_MISSING,
    }
)


@dataclass(frozen=True, slots=True)
class Policy:
    """What the settings ask for: seconds in which checks may still start after a push, and approvals."""

    grace: float = 0.0
    approvals: int = 0


def policy(settings: Settings) -> Policy:
    return Policy(settings.number("checks_grace"), settings.integer("required_approvals"))


class ReasonRow(TypedDict):
    """A reason as programs read it; `fields` depend on the code."""

    code: str
    blocks: bool
    text: str
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a pull request can be merged or not: a code, and the names and numbers that belong to it."""

    code: ReasonCode
    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def blocks(self) -> bool:
        return self.code not in _INFORMS

    def as_json(self) -> ReasonRow:
        code, fields = str(self.code), dict(self.fields)
        return {"code": code, "blocks": self.blocks, "text": sentence(self), "fields": fields}


@dataclass(frozen=True, slots=True)
class Readiness:
    """`settled` is False while nobody knows whether it conflicts: what merges by itself waits for that."""

    state: PullStatus
    reasons: tuple[Reason, ...]
    approved_by: tuple[str, ...] = ()
    refused_by: tuple[str, ...] = ()
    settled: bool = True

    @property
    def blockers(self) -> list[Reason]:
        return [reason for reason in self.reasons if reason.blocks]

    @property
    def ready(self) -> bool:
        return not self.blockers

    @property
    def sentences(self) -> list[str]:
        """Why it cannot be merged now, in words; empty when it can."""
        return [sentence(reason) for reason in self.blockers]


@dataclass(frozen=True, slots=True)
class Facts:
    """A pull request with everything that belongs to it, at the time `now`.

    `verdicts` are ours, oldest first: on its work and on every commit it would bring. `commits` are those below
    its head with their parents, given when one of them has a verdict. `reviewer` is reviewing its work now.
    """

    pull: Pull
    checks: Sequence[Check] = ()
    reviews: Sequence[Review] = ()
    comments: Sequence[Comment] = ()
    verdicts: Sequence[CommitVerdict] = ()
    commits: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    check_run: CheckRun | None = None
    reviewer: str | None = None
    now: str = ""
    policy: Policy = Policy()

    @property
    def own_check(self) -> CheckRun | None:
        """The run of our check command on the commit it is at, merged into its base of now."""
        run = self.check_run
        return run if run is not None and run.head_commit == self.pull.head_commit and run.base_commit else None

    @property
    def failed_before(self) -> bool:
        """Whether our check failed on the commit it is at, merged into an earlier commit of its base."""
        run = self.check_run
        return run is not None and run.head_commit == self.pull.head_commit and not run.base_commit

    @property
    def all_checks(self) -> list[Check]:
        """The forge's checks and our own."""
        run = self.own_check
        if run is None:
            return list(self.checks)
        state = CheckState.PASSED if run.ok else CheckState.FAILED
        return [*self.checks, Check(f"swarm:{run.at}", run.command, str(state), summary=run.output)]

    @property
    def checks_awaited(self) -> bool:
        """Whether checks of the newest commit may still begin."""
        if self.checks or not self.pull.repository or not self.pull.head_at or not self.now:
            return False
        return (parse_iso(self.now) - parse_iso(self.pull.head_at)).total_seconds() < self.policy.grace

    @property
    def checks_state(self) -> str:
        """One of CheckState for all together; empty when there are none."""
        states = {check.state for check in self.all_checks}
        for state in (CheckState.FAILED, CheckState.PENDING, CheckState.PASSED, CheckState.SKIPPED):
            if state in states:
                return CheckState.PASSED if state == CheckState.SKIPPED else state
        return ""

    @property
    def last_words(self) -> dict[str, Review]:
        """The last review of everybody with a say at the forge; a comment takes nothing back."""
        last: dict[str, Review] = {}
        for review in self.reviews:
            if review.trusted and review.state != ReviewState.COMMENTED:
                last[review.author] = review
        return last


def readiness(facts: Facts) -> Readiness:
    """Decide whether a pull request can be merged now, with every reason for and against."""
    pull = facts.pull
    if pull.state != PullState.OPEN:
        merged = pull.state == PullState.MERGED
        over = ReasonCode.MERGED if merged else ReasonCode.CLOSED
        return Readiness(PullStatus.MERGED if merged else PullStatus.CLOSED, (Reason(over),))
    verdict = _verdict(facts)
    reasons = [*_of_pull(pull), *_of_checks(facts), *_of_verdict(facts, verdict)]
    if facts.checks_state == CheckState.PASSED and not any(reason.blocks for reason in _of_checks(facts)):
        reasons.append(Reason(ReasonCode.CHECKS_PASSED))
    if facts.failed_before:
        reasons.append(Reason(ReasonCode.CHECK_OUTDATED, {"base_branch": pull.base_branch}))
    return Readiness(
        _state(facts, {reason.code for reason in reasons}),
        tuple(reasons),
        approved_by=tuple(verdict.approved_by),
        refused_by=tuple(verdict.refused_by),
        settled=pull.mergeable is not None,
    )


def sentence(reason: Reason) -> str:
    """A reason as a person reads it."""
    return _SENTENCES[reason.code](reason.fields)


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What all reviewers say together; `outdated` is the verdict on an earlier commit that counts now."""

    approved_by: list[str]
    refused_by: list[str]
    outdated: CommitVerdict | None


def _verdict(facts: Facts) -> _Verdict:
    """Ours on the head commit count until they are lifted; at the forge everybody's last word counts."""
    head, words = facts.pull.head_commit, facts.last_words
    refused = [a for a, r in words.items() if r.state == ReviewState.CHANGES_REQUESTED]
    approved = [a for a, r in words.items() if r.state == ReviewState.APPROVED and r.commit == head]
    here = [verdict for verdict in facts.verdicts if verdict.commit == head]
    if standing := _standing(here):
        refused += [one.by for one in standing]
    else:
        last_refusal = max((n for n, one in enumerate(here) if one.verdict == Verdict.NEEDS_WORK), default=-1)
        approved += [one.by for one in here[last_refusal + 1 :]]
    earlier = [one for one in facts.verdicts if one.instance_id == facts.pull.instance_id]
    outdated = [*earlier, *_standing(earlier)][-1] if earlier and not here else None
    if below := _refused_below(facts):
        outdated = below[-1]
    return _Verdict(list(dict.fromkeys(approved)), list(dict.fromkeys(refused)), outdated)


def _standing(verdicts: Sequence[CommitVerdict]) -> list[CommitVerdict]:
    """The requests for changes that no later approval lifts, oldest first."""
    found: list[CommitVerdict] = []
    for one in verdicts:
        if one.verdict == Verdict.NEEDS_WORK:
            found.append(one)
        else:
            found = [refusal for refusal in found if not _lifts(one, refusal)]
    return found


def _refused_below(facts: Facts) -> list[CommitVerdict]:
    """The requests for changes of commits below the head, whosever work they are, that nobody has lifted since.

    What lifts one is an approval of the head or of another commit that contains it.
    """
    found: list[CommitVerdict] = []
    for one in facts.verdicts:
        if one.verdict == Verdict.APPROVED:
            inside = None if one.commit == facts.pull.head_commit else _ancestors(facts.commits, one.commit)
            contained = [r for r in found if inside is None or r.commit in inside]
            found = [r for r in found if r not in contained or not _lifts(one, r)]
        elif one.commit in facts.commits:
            found.append(one)
    return found


def _ancestors(commits: Mapping[str, Sequence[str]], commit: str) -> set[str]:
    """The commit and what leads to it, as far as it is listed."""
    found: set[str] = set()
    ahead = [commit]
    while ahead:
        if (one := ahead.pop()) in commits and one not in found:
            found.add(one)
            ahead += commits[one]
    return found


def _lifts(approval: CommitVerdict, refusal: CommitVerdict) -> bool:
    """A reviewing agent does not overrule a person about the same commit."""
    by_person = rules.is_person(approval.by)
    return by_person or not rules.is_person(refusal.by) or approval.commit != refusal.commit


def _of_pull(pull: Pull) -> list[Reason]:
    found = []
    if pull.draft:
        found.append(Reason(ReasonCode.DRAFT))
    if pull.unrelated:
        found.append(Reason(ReasonCode.UNRELATED_HISTORIES, {"base_branch": pull.base_branch}))
    elif pull.mergeable is False:
        found.append(Reason(ReasonCode.CONFLICT, {"base_branch": pull.base_branch}))
    if pull.replaced:
        refs = pull.replaced.split()
        found.append(Reason(ReasonCode.REPLACED_OBJECTS, {"refs": refs}))
    return found


def _of_checks(facts: Facts) -> list[Reason]:
    found = []
    for state, code in (
        (CheckState.FAILED, ReasonCode.CHECKS_FAILED),
        (CheckState.PENDING, ReasonCode.CHECKS_PENDING),
    ):
        names = [check.name for check in facts.all_checks if check.state == state]
        if names:
            found.append(Reason(code, {"checks": names}))
    if facts.checks_awaited:
        found.append(Reason(ReasonCode.CHECKS_NOT_STARTED))
    return found


def _of_verdict(facts: Facts, verdict: _Verdict) -> list[Reason]:
    found, outdated = [], verdict.outdated
    if verdict.refused_by:
        found.append(Reason(ReasonCode.CHANGES_REQUESTED, {"by": verdict.refused_by}))
    if outdated is not None:
        refused = outdated.verdict == Verdict.NEEDS_WORK
        code = ReasonCode.REVIEW_OUTDATED if refused else ReasonCode.APPROVAL_OUTDATED
        found.append(Reason(code, {"by": outdated.by, "commit": outdated.commit}))
    if facts.reviewer is not None:
        found.append(Reason(ReasonCode.REVIEW_PENDING, {"by": facts.reviewer}))
    if len(verdict.approved_by) < facts.policy.approvals:
        counted = {"approvals": len(verdict.approved_by), "required": facts.policy.approvals}
        found.append(Reason(ReasonCode.APPROVALS_MISSING, counted))
    if verdict.approved_by:
        found.append(Reason(ReasonCode.APPROVED, {"by": verdict.approved_by}))
    return found


_STATES = {
    ReasonCode.REPLACED_OBJECTS: PullStatus.BLOCKED,
    ReasonCode.CONFLICT: PullStatus.CONFLICT,
    ReasonCode.UNRELATED_HISTORIES: PullStatus.CONFLICT,
    ReasonCode.CHECKS_FAILED: PullStatus.CHECKS_FAILED,
    ReasonCode.CHANGES_REQUESTED: PullStatus.CHANGES_REQUESTED,
    ReasonCode.REVIEW_OUTDATED: PullStatus.REVIEW_OUTDATED,
    ReasonCode.DRAFT: PullStatus.DRAFT,
    ReasonCode.CHECKS_PENDING: PullStatus.CHECKS_PENDING,
    ReasonCode.REVIEW_PENDING: PullStatus.UNDER_REVIEW,
    ReasonCode.APPROVED: PullStatus.APPROVED,
}


def _state(facts: Facts, codes: set[ReasonCode]) -> PullStatus:
    for code, state in _STATES.items():
        if code in codes:
            return state
    if any(comment.trusted and not comment.outdated for comment in facts.comments):
        return PullStatus.COMMENTED
    return PullStatus.CHECKS_PASSED if facts.checks_state == CheckState.PASSED else PullStatus.OPEN


def _names(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


_SENTENCES: dict[ReasonCode, Callable[[Mapping[str, Any]], str]] = {
    ReasonCode.MERGED: lambda fields: "it is merged",
    ReasonCode.CLOSED: lambda fields: "it is closed",
    ReasonCode.DRAFT: lambda fields: "it is a draft",
    ReasonCode.CONFLICT: lambda fields: f"it conflicts with {fields['base_branch']}",
    ReasonCode.UNRELATED_HISTORIES: lambda fields: f"it shares no commit with {fields['base_branch']}",
    ReasonCode.REPLACED_OBJECTS: lambda fields: f"git objects are replaced: {_names(fields['refs'])}",
    ReasonCode.CHECKS_FAILED: lambda fields: f"checks failed: {_names(fields['checks'])}",
    ReasonCode.CHECKS_PENDING: lambda fields: f"checks are not finished: {_names(fields['checks'])}",
    ReasonCode.CHECKS_NOT_STARTED: lambda fields: "its checks have not begun",
    ReasonCode.CHANGES_REQUESTED: lambda fields: f"changes are requested by {_names(fields['by'])}",
    ReasonCode.REVIEW_OUTDATED: lambda fields: (
        f"{fields['by']} requested changes at {fields['commit'][:12]} and the commits since are not reviewed"
    ),
    ReasonCode.REVIEW_PENDING: lambda fields: f"{fields['by']} is reviewing it",
    ReasonCode.APPROVALS_MISSING: lambda fields: (
        f"it has {fields['approvals']} of {fields['required']} required approvals"
    ),
    ReasonCode.APPROVED: lambda fields: f"approved by {_names(fields['by'])}",
    ReasonCode.APPROVAL_OUTDATED: lambda fields: (
        f"{fields['by']} approved {fields['commit'][:12]}, not the commits since"
    ),
    ReasonCode.CHECKS_PASSED: lambda fields: "its checks passed",
    ReasonCode.CHECK_OUTDATED: lambda fields: (
        f"its check failed on an earlier {fields['base_branch']} and has not run on this one"
    ),
}

"""What a pull request is at, worked out from its facts. Nothing is looked up and nothing is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from swarm_core.forge import Check, CheckState, Comment, Review, ReviewState
from swarm_core.models import Pull, PullState, parse_iso


class PullStatus(StrEnum):
    """In the order in which one hides another: what keeps it from being merged comes first."""

    MERGED = "merged"
    CLOSED = "closed"
    CONFLICT = "conflict"
    CHECKS_FAILED = "checks failed"
    CHANGES_REQUESTED = "changes requested"
    DRAFT = "draft"
    CHECKS_PENDING = "checks pending"
    APPROVED = "approved"
    COMMENTED = "review comments"
    CHECKS_PASSED = "checks passed"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Facts:
    """A pull request with everything that hangs on it, at the time `now`.

    `grace` is for how many seconds after a push nobody takes a commit without checks for one that has none.
    """

    pull: Pull
    checks: Sequence[Check] = ()
    reviews: Sequence[Review] = ()
    comments: Sequence[Comment] = ()
    now: str = ""
    grace: float = 0.0

    @property
    def checks_awaited(self) -> bool:
        """Whether checks of the newest commit may still begin."""
        if self.checks or not self.pull.repository or not self.pull.head_at or not self.now:
            return False
        return (parse_iso(self.now) - parse_iso(self.pull.head_at)).total_seconds() < self.grace

    @property
    def checks_state(self) -> str:
        """One of CheckState for all together; empty when there are none."""
        states = {check.state for check in self.checks}
        for state in (CheckState.FAILED, CheckState.PENDING, CheckState.PASSED, CheckState.SKIPPED):
            if state in states:
                return CheckState.PASSED if state == CheckState.SKIPPED else state
        return ""

    @property
    def verdicts(self) -> dict[str, Review]:
        """The last word of every reviewer who has a say; a comment takes nothing back."""
        last: dict[str, Review] = {}
        for review in self.reviews:
            if review.trusted and review.state != ReviewState.COMMENTED:
                last[review.author] = review
        return last

    @property
    def refused_by(self) -> list[str]:
        return [a for a, r in self.verdicts.items() if r.state == ReviewState.CHANGES_REQUESTED]

    @property
    def approved_by(self) -> list[str]:
        """Who approved the commit it is at; an approval of another commit is none of this one."""
        return [
            author
            for author, review in self.verdicts.items()
            if review.state == ReviewState.APPROVED and review.commit == self.pull.head_commit
        ]

    @property
    def hindrances(self) -> list[str]:
        """Why it cannot be merged now, in words; empty when it can."""
        pull, found = self.pull, []
        if pull.state != PullState.OPEN:
            return [f"it is {pull.state}"]
        if pull.draft:
            found.append("it is a draft")
        if pull.mergeable is False:
            found.append(f"it conflicts with {pull.base_branch}")
        failed = [check.name for check in self.checks if check.state == CheckState.FAILED]
        pending = [check.name for check in self.checks if check.state == CheckState.PENDING]
        if failed:
            found.append(f"checks failed: {', '.join(failed[:5])}")
        if pending:
            found.append(f"checks are not finished: {', '.join(pending[:5])}")
        if self.checks_awaited:
            found.append("its checks have not begun")
        if self.refused_by:
            found.append(f"changes are requested by {', '.join(self.refused_by[:5])}")
        return found


def status(facts: Facts) -> PullStatus:
    pull = facts.pull
    if pull.state != PullState.OPEN:
        return PullStatus.MERGED if pull.state == PullState.MERGED else PullStatus.CLOSED
    checks = facts.checks_state
    found = (
        (pull.mergeable is False, PullStatus.CONFLICT),
        (checks == CheckState.FAILED, PullStatus.CHECKS_FAILED),
        (bool(facts.refused_by), PullStatus.CHANGES_REQUESTED),
        (pull.draft, PullStatus.DRAFT),
        (checks == CheckState.PENDING, PullStatus.CHECKS_PENDING),
        (bool(facts.approved_by), PullStatus.APPROVED),
        (any(c.trusted and not c.outdated for c in facts.comments), PullStatus.COMMENTED),
        (checks == CheckState.PASSED, PullStatus.CHECKS_PASSED),
    )
    return next((state for holds, state in found if holds), PullStatus.OPEN)

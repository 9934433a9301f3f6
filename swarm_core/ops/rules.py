"""The rules that operations keep whoever calls them: what a denial names as the one that decided."""

from __future__ import annotations

from typing import Any

from swarm_core.errors import Denied

NOBODY_APPROVES_OWN_WORK = "nobody-approves-own-work"
NOT_SET_BY_HAND = "not-set-by-hand"
ONLY_THE_REVIEWER = "only-the-reviewer"

RULES: dict[str, str] = {
    NOBODY_APPROVES_OWN_WORK: "An agent does not approve its own work; a reviewer or a person does.",
    NOT_SET_BY_HAND: "A status that follows from a review, a pull request or a start is not set by anybody.",
    ONLY_THE_REVIEWER: "A reviewer acts on the work it reviews and on no other.",
}


def denied(rule: str, message: str, *, hint: str, **details: Any) -> Denied:
    """The refusal that names its rule."""
    return Denied(message, code="FORBIDDEN", hint=hint, details={"rule": rule, **details})

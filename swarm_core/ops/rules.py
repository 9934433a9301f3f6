"""The rules that operations keep whoever calls them: what a denial names as the one that decided."""

from __future__ import annotations

from typing import Any

from swarm_core import ids
from swarm_core.errors import Denied
from swarm_core.models import AUTOMATION

NOBODY_APPROVES_OWN_WORK = "nobody-approves-own-work"
NOT_SET_BY_HAND = "not-set-by-hand"
ONLY_A_PERSON_ACCEPTS = "only-a-person-accepts"
ONLY_A_PERSON_OVERRIDES = "only-a-person-overrides"
ONLY_THE_REVIEWER = "only-the-reviewer"

RULES: dict[str, str] = {
    NOBODY_APPROVES_OWN_WORK: "An agent does not approve its own work; a reviewer or a person does.",
    NOT_SET_BY_HAND: "A status that follows from a review, a pull request or a start is not set by anybody.",
    ONLY_A_PERSON_ACCEPTS: "Only a person approves work without a review; no agent and no automation does.",
    ONLY_A_PERSON_OVERRIDES: "Only a person merges against a verdict or a check; no agent and no automation does.",
    ONLY_THE_REVIEWER: "A reviewer acts on the work it reviews and on no other.",
}


def is_person(actor: str) -> bool:
    """Whether a name in events is a person's: neither an instance nor an automation."""
    return not ids.is_id(actor) and not actor.startswith(AUTOMATION)


def denied(rule: str, message: str, *, hint: str, **details: Any) -> Denied:
    """The refusal that names its rule."""
    return Denied(message, code="FORBIDDEN", hint=hint, details={"rule": rule, **details})

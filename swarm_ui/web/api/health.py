"""Whether the dashboard answers, and how everything it stands on is."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from swarm_core import process
from swarm_core.errors import SwarmError
from swarm_core.models import parse_iso
from swarm_core.store import instances
from swarm_ui.web import rows
from swarm_ui.web.asking import check_database
from swarm_ui.web.endpoint import Endpoint, Question, Unwell
from swarm_ui.web.slow import HEALTH


def _alive(question: Question) -> dict[str, Any]:
    """For whoever watches over the process, as the coordinator answers too."""
    site = question.site
    problem, count = None, None
    try:
        check_database(site.swarm)
        count = instances.count(site.swarm.context.db)
    except SwarmError as error:
        problem = error
    said = f"{problem.message} [{problem.code}]" if problem else None
    facts = process.health(site.card, site.settings, instances=count, last_look_age_s=None, problem=said)
    started = parse_iso(site.card.started_at)
    facts |= {"uptimeMs": max(0, round((datetime.now(UTC) - started).total_seconds() * 1000))}
    if problem is not None:
        raise Unwell(problem.message, code=problem.code, hint=problem.hint, details=facts)
    return facts


def _health(question: Question) -> dict[str, Any]:
    site = question.site
    return rows.health(site.swarm, site.card, viewers=site.hub.viewers)


ENDPOINTS = (
    Endpoint("GET", "/health", "Whether the dashboard answers, and for how long it has run.", _alive, open=True),
    Endpoint(
        "GET", "/api/v1/health", "How the coordinator, the database, tmux and GitHub are.", _health, runs=HEALTH
    ),
)

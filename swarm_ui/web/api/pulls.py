"""Pull requests and the merge queue, as they were last seen."""

from __future__ import annotations

from typing import Any

from swarm_core.ops import describe
from swarm_ui import pull_views
from swarm_ui.web import rows
from swarm_ui.web.asking import Asked, InstanceId, reading
from swarm_ui.web.endpoint import Endpoint, Question
from swarm_ui.web.slow import GIT

_OVER = 20


class Query(Asked):
    """As for the MCP tool query_pulls."""

    instance_id: InstanceId | None = None
    include_over: bool = False


def _query(question: Question) -> describe.Pulls:
    asked = question.query
    with reading(question) as swarm:
        if asked.instance_id is not None:
            found = [swarm.pulls.of(asked.instance_id)]
        else:
            found = swarm.pulls.listed(include_over=asked.include_over, limit=describe.PULLS_MAX)
        return rows.clean(describe.query_pulls(found, swarm.context.db.now()))


def _queue(question: Question) -> dict[str, Any]:
    """Which of them conflict is asked of git, so this may take a moment."""
    with reading(question) as swarm:
        waiting, over = swarm.pulls.queue(), swarm.pulls.queue_over(_OVER)
    return rows.clean(
        {
            "items": [pull_views.outlook_json(one) for one in waiting],
            "over": [pull_views.queued_json(one) for one in over],
        }
    )


ENDPOINTS = (
    Endpoint("GET", "/api/v1/pulls", "Pull requests with checks, reviews and comments.", _query, query=Query),
    Endpoint("GET", "/api/v1/queue", "What waits in the merge queue, and what left it last.", _queue, runs=GIT),
)

"""What waits for a person."""

from __future__ import annotations

from typing import Any

from swarm_core.ops import inbox, pull_status
from swarm_ui.web import rows
from swarm_ui.web.asking import Asked, Repo, reading, repository
from swarm_ui.web.endpoint import Endpoint, Question


class Query(Asked):
    repo: Repo | None = None


def _inbox(question: Question) -> dict[str, Any]:
    with reading(question) as swarm:
        db = swarm.context.db
        only = repository(db, question.query.repo)
        found = inbox.board(db, policy=pull_status.policy(swarm.context.settings))
    names = rows.repo_names({one.repo_path for one in found.instances})
    items = [one for one in found.items() if only in (None, one.instance.repo_path)]
    return {"items": [rows.item(one, names) for one in items]}


ENDPOINTS = (Endpoint("GET", "/api/v1/inbox", "What waits for a person, oldest first.", _inbox, query=Query),)

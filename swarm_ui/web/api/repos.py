"""What a new agent can be started with: repositories, agents and issues."""

from __future__ import annotations

import os
import shutil
import threading
import time
from typing import Any

from pydantic import Field

from swarm_core.agents import table
from swarm_core.models import as_json
from swarm_core.store import glance
from swarm_ui.web import rows
from swarm_ui.web.asking import Asked, Repo, check_database, reading, repository
from swarm_ui.web.endpoint import Endpoint, Question
from swarm_ui.web.slow import GIT

_ISSUES_KEPT = 60.0
_ISSUES = 100
_BODY = 2000

_lock = threading.Lock()
_listings: dict[tuple[str, str], tuple[float, dict[str, Any]]] = {}


class IssuesQuery(Asked):
    repo: Repo
    limit: int = Field(_ISSUES, ge=1, le=_ISSUES)


def _repos(question: Question) -> dict[str, Any]:
    with reading(question) as swarm:
        paths = glance.repositories(swarm.context.db)
    return {"items": [{"path": path, "name": name} for path, name in sorted(rows.repo_names(paths).items())]}


def _agents(question: Question) -> dict[str, Any]:
    context = question.site.swarm.context
    path = context.environ.get("PATH", os.defpath)
    return {
        "items": [
            {
                "name": name,
                "title": agent.title,
                "installed": shutil.which(agent.program, path=path) is not None,
                "experimental": agent.experimental,
                "hint": agent.install_hint,
            }
            for name, agent in table.AGENTS.items()
        ],
        "default": context.settings.text("agent"),
    }


def _issues(question: Question) -> dict[str, Any]:
    """As they were at most a minute ago; the forge is asked when nobody has asked since."""
    swarm, asked = question.site.swarm, question.query
    check_database(swarm)
    repo_path = repository(swarm.context.db, asked.repo)
    assert repo_path is not None
    key = (str(swarm.context.settings.database_path), repo_path)
    with _lock:
        at, known = _listings.get(key, (0.0, {}))
    if not known or time.monotonic() - at > _ISSUES_KEPT:
        found = swarm.issues(repo_path, limit=_ISSUES)
        known = {
            "source": found.source,
            "repo": found.repo_path,
            "as_of": found.as_of,
            "failure": found.failure,
            "items": [
                as_json(issue)
                | {"body": issue.body[:_BODY], "workers": [w.id for w in found.workers.get(issue.number, ())]}
                for issue in found.issues
            ],
        }
        with _lock:
            _listings[key] = (time.monotonic(), known)
    return rows.clean(known | {"items": known["items"][: asked.limit]})


ENDPOINTS = (
    Endpoint("GET", "/api/v1/repos", "The repositories that have instances.", _repos),
    Endpoint("GET", "/api/v1/agents", "The agents there are, and which are installed.", _agents),
    Endpoint(
        "GET",
        "/api/v1/issues",
        "Open issues of a repository and their workers.",
        _issues,
        query=IssuesQuery,
        runs=GIT,
    ),
)

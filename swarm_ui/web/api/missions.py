"""Missions: there are none yet."""

from __future__ import annotations

from typing import Any

from swarm_core.errors import NotFound
from swarm_ui.web.endpoint import Endpoint, Question


def _list(_: Question) -> dict[str, Any]:
    return {"items": []}


def _one(question: Question) -> dict[str, Any]:
    raise NotFound(f"there is no mission {question.path['id'][:80]!r}")


ENDPOINTS = (
    Endpoint("GET", "/api/v1/missions", "All missions.", _list),
    Endpoint("GET", "/api/v1/missions/{id}", "One mission with its tasks.", _one),
)

"""The terminal of an instance, once."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from swarm_ui.web.asking import Asked, named
from swarm_ui.web.endpoint import Endpoint, Question
from swarm_ui.web.pictures import LINES
from swarm_ui.web.slow import TMUX
from swarm_ui.web.terminals import LINES_MAX


class Lines(Asked):
    lines: Annotated[int, Field(ge=1, le=LINES_MAX, description="How many of the last lines.")] = LINES


def terminal(question: Question) -> dict[str, Any]:
    found = named(question.site.swarm.context.db, question)
    return question.site.terminals.look(found, question.query.lines)


_RUN = {
    "type": "array",
    "description": "text; then style {f, b, a}; then width in cells",
    "minItems": 1,
    "maxItems": 3,
}
_RESULT = {
    "type": "object",
    "required": ["id", "lines", "cols", "rows", "alive", "cursor", "history"],
    "properties": {
        "id": {"type": "string"},
        "lines": {"type": "array", "items": {"type": "array", "items": _RUN}},
        "cols": {"type": "integer"},
        "rows": {"type": "integer"},
        "alive": {"type": "boolean"},
        "cursor": {"type": ["array", "null"], "items": {"type": "integer"}},
        "history": {"type": "integer"},
        "ended": {"type": "boolean"},
        "exit": {"type": ["integer", "null"]},
    },
}

ENDPOINTS = (
    Endpoint(
        "GET",
        "/api/v1/instances/{id}/terminal",
        "The last lines of an instance's terminal, with colours; of an ended one what was kept.",
        terminal,
        query=Lines,
        runs=TMUX,
        result=_RESULT,
    ),
)

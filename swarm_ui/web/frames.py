"""How news travel: one event of a text/event-stream, one message of the WebSocket."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, field
from typing import Any

from swarm_core.models import Event
from swarm_ui.web import rows
from swarm_ui.web.state import State

as_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str).encode


def frame(name: str, data: Any, event_id: int | None = None) -> bytes:
    head = "" if event_id is None else f"id: {event_id}\n"
    return f"{head}event: {name}\ndata: {as_json(data)}\n\n".encode(errors="replace")


def message(row: dict[str, Any], event: Event) -> str:
    text = as_json({"id": event.id, "event": event.name, "data": {**row, "metadata": rows.clean(event.metadata)}})
    return text.encode(errors="replace").decode()


@dataclass
class Change:
    """Something to tell, written down once, however many are told; `state` is what is known after it.

    `told` are the events whose rows `data` are. `trouble` means that the database cannot be read now.
    """

    name: str
    data: Any
    state: State | None = None
    told: list[Event] = field(default_factory=list)
    trouble: bool = False

    @functools.cached_property
    def sse(self) -> bytes:
        return frame(self.name, self.data, self.data[-1]["id"] if self.told else None)

    @functools.cached_property
    def messages(self) -> list[str]:
        return [message(row, event) for row, event in zip(self.data, self.told, strict=True)] if self.told else []

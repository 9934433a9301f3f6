"""What happened to one instance as bars on a line of time: how it was, and what was done in between. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from swarm_core.models import Event, parse_iso
from swarm_core.store.events import LEVELS, level

_TOGETHER = 120.0  # seconds between two events that are one group
_KINDS = {
    "tool": "tool",
    "mcp": "tool",
    "auth": "tool",
    "token": "tool",
    "message": "message",
    "notice": "message",
    "dialog": "message",
    "review": "review",
    "feedback": "review",
    "pull": "pull",
    "queue": "pull",
    "forge": "pull",
    "overlap": "pull",
}


@dataclass(frozen=True, slots=True)
class Group:
    """`kind` is status, activity, tool, message, review or pull; a status or activity lasts until the next one."""

    begin: str
    end: str
    kind: str
    label: str
    count: int
    level: str


def groups(events: Sequence[Event], *, now: str, over: str | None = None) -> list[Group]:
    """Of an instance's events, oldest first. What lasts goes on until `over`, or now."""
    lasting: dict[str, Group] = {}
    open_: dict[str, Group] = {}
    found: list[Group] = []
    for event in events:
        kind = _kind(event)
        if event.name in ("instance:status", "instance:activity", "instance:created"):
            before = lasting.pop(kind, None)
            found += [replace(before, end=event.at)] if before else []
            lasting[kind] = _group(event, kind)
            continue
        last = open_.get(kind)
        if last is not None and _seconds(last.end, event.at) <= _TOGETHER:
            open_[kind] = _joined(last, event)
            continue
        found += [last] if last else []
        open_[kind] = _group(event, kind)
    found += [replace(group, end=max(group.begin, over or now)) for group in lasting.values()]
    return sorted([*found, *open_.values()], key=lambda group: (group.begin, group.kind))


def _kind(event: Event) -> str:
    if event.name == "instance:activity":
        return "activity"
    return _KINDS.get(event.name.partition(":")[0], "status")


def _group(event: Event, kind: str) -> Group:
    return Group(event.at, event.at, kind, _label(event), 1, level(event))


def _joined(group: Group, event: Event) -> Group:
    worst = max(group.level, level(event), key=LEVELS.index)
    label = group.label if group.label == _label(event) else event.name.partition(":")[0]
    return replace(group, end=event.at, count=group.count + 1, level=worst, label=label)


def _label(event: Event) -> str:
    if event.name == "instance:activity":
        return str(event.metadata.get("to", ""))
    if event.name in ("instance:status", "instance:created"):
        return event.status_to or ""
    return event.tool_name if event.name == "tool:called" and event.tool_name else event.name


def _seconds(one: str, other: str) -> float:
    return (parse_iso(other) - parse_iso(one)).total_seconds()

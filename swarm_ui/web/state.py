"""What every viewer has been told of, and what to tell one who knows an older version of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

PARTS = ("inbox", "pulls", "health")
# They change with the clock alone; a page counts them on by itself.
_CLOCKS = frozenset({"age_s", "silent_s", "last_look_age_s", "now", "viewers", "bytes", "wal_bytes"})
RECENT = 60

News = tuple[str, Any]


@dataclass(frozen=True, slots=True)
class State:
    """`changed` names the version at which a row last changed or went, `parts_changed` the same of a part.

    `last` is the newest event that was told, `fixed` what changes with the process alone.
    """

    version: int = 0
    last: int = 0
    rows: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    changed: Mapping[str, int] = field(default_factory=dict)
    parts: Mapping[str, Any] = field(default_factory=dict)
    parts_changed: Mapping[str, int] = field(default_factory=dict)
    recent: tuple[dict[str, Any], ...] = ()
    fixed: Mapping[str, Any] = field(default_factory=dict)

    def after(self, events: list[dict[str, Any]]) -> State:
        """The state after these events, oldest first, were told."""
        if not events:
            return self
        return replace(self, last=events[-1]["id"], recent=(*self.recent, *events)[-RECENT:])

    def with_rows(self, rows: list[dict[str, Any]]) -> tuple[State, list[News]]:
        """The state with these rows, all there are, and what is new in them."""
        version = self.version + 1
        told: list[dict[str, Any]] = []
        for row in rows:
            old = self.rows.get(row["id"])
            if old is None:
                told.append(row)
            elif old != row and (changes := _changes(old, row)):
                told.append({"id": row["id"], **changes})
        here = {row["id"]: row for row in rows}
        told += [{"id": one, "gone": True} for one in self.rows if one not in here]
        if not told:
            return replace(self, rows=here), []
        changed = {**self.changed, **{row["id"]: version for row in told}}
        return replace(self, version=version, rows=here, changed=changed), [("instances", told)]

    def with_part(self, name: str, value: Any) -> tuple[State, list[News]]:
        """The state with a part as it is now; of one that is an object only the changed keys are told."""
        old = self.parts.get(name)
        parts = {**self.parts, name: value}
        if name in self.parts and _same(old, value):
            return replace(self, parts=parts), []
        told = value
        if isinstance(old, dict) and isinstance(value, dict):
            told = _changes(old, value)
        version = self.version + 1
        changed = {**self.parts_changed, name: version}
        return replace(self, version=version, parts=parts, parts_changed=changed), [(name, told)]

    def since(self, version: int) -> list[News]:
        """What somebody who knows the state at that version has to be told, as whole rows and parts."""
        ids = [one for one, at in self.changed.items() if at > version]
        rows = [self.rows.get(one, {"id": one, "gone": True}) for one in ids]
        news: list[News] = [("instances", rows)] if rows else []
        return news + [(name, self.parts[name]) for name, at in self.parts_changed.items() if at > version]

    def snapshot(self) -> dict[str, Any]:
        parts = {name: self.parts.get(name) for name in PARTS}
        events = list(reversed(self.recent))
        return {**self.fixed, "last": self.last, "instances": list(self.rows.values()), **parts, "events": events}


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    changed = {key: value for key, value in new.items() if key not in old or not _same(old[key], value)}
    return {key: value for key, value in changed.items() if key not in _CLOCKS}


def _same(old: Any, new: Any) -> bool:
    """Whether nothing but a clock has moved."""
    if old == new:
        return True
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(k in _CLOCKS or _same(old[k], new[k]) for k in old)
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_same, old, new))
    return False

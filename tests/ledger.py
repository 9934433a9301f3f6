"""What the database holds, read beside the program: that nothing changed, and what was written down."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import wait_until

TABLES = (
    "instances",
    "relationships",
    "feedback",
    "pulls",
    "messages",
    "actions",
    "preserved",
    "tokens",
    "requests",
)
# What supervising sees and counts by itself, whoever calls meanwhile.
_OBSERVED = {
    "activity",
    "activity_source",
    "activity_at",
    "activity_detail",
    "updated_at",
    "head_commit",
    "files_changed",
    "lines_added",
    "lines_deleted",
    "changes_at",
    "last_screen",
}

State = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Row:
    """An event."""

    id: int
    name: str
    actor: str
    instance_id: str | None
    tool_name: str | None
    success: bool
    error_code: str | None
    error_message: str | None
    metadata: dict[str, Any]


class Ledger:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        connection.row_factory = sqlite3.Row

    def state(self, *, without: tuple[str, ...] = ()) -> State:
        """Every row of what a call could change."""
        return {name: self._table(name) for name in TABLES if name not in without}

    def newest(self) -> int:
        return int(self._connection.execute("SELECT coalesce(max(id), 0) FROM mcp_events").fetchone()[0])

    def events(self, after: int = 0, *, like: str = "%") -> list[Row]:
        names = ", ".join(Row.__slots__)
        found = self._connection.execute(
            f"SELECT {names} FROM mcp_events WHERE id > ? AND name LIKE ? ORDER BY id", (after, like)
        )
        return [Row(*r[:5], bool(r[5]), *r[6:8], json.loads(r[8])) for r in map(tuple, found)]

    def calls(self, after: int, count: int = 1) -> list[Row]:
        """The events of calls; one that changes nothing may be written a moment after its answer."""
        wait_until(lambda: len(self.events(after, like="tool:%")) >= count, what=f"{count} calls recorded")
        return self.events(after, like="tool:%")

    def _table(self, name: str) -> list[dict[str, Any]]:
        # Agents that change the same file are told so when the radar has got round to them.
        which = "sender <> 'swarm'" if name == "messages" else "1"
        rows = self._connection.execute(f"SELECT * FROM {name} WHERE {which} ORDER BY 1")
        hidden = _OBSERVED if name == "instances" else set()
        return [{k: r[k] for k in r.keys() if k not in hidden} for r in rows]  # noqa: SIM118  a Row's own iteration gives values


@contextmanager
def reading(path: Path) -> Iterator[Ledger]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)) as connection:
        yield Ledger(connection)

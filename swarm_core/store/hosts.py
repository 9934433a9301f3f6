"""The machines instances live on."""

from __future__ import annotations

import json
from typing import Any

from swarm_core.store.database import Database


def seen(db: Database, name: str, info: dict[str, Any] | None = None) -> None:
    """Note that a host answered; the first time makes its row."""
    db.execute(
        "INSERT INTO hosts (name, state, info, seen_at) VALUES (?, 'up', ?, ?)"
        " ON CONFLICT(name) DO UPDATE SET state = 'up', seen_at = excluded.seen_at,"
        " info = CASE excluded.info WHEN '{}' THEN info ELSE excluded.info END",
        (name, json.dumps(info or {}), db.now()),
    )

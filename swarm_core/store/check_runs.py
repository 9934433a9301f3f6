"""The last run of the check command on each pull request, with its output."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from swarm_core.models import CheckRun
from swarm_core.store.database import Database

_CHUNK = 500
_NAMES = tuple(f.name for f in dataclasses.fields(CheckRun))


def put(db: Database, run: CheckRun) -> None:
    """Store a run in the place of the one before."""
    marks = ", ".join("?" for _ in _NAMES)
    values = [getattr(run, name) for name in _NAMES]
    db.execute(f"INSERT OR REPLACE INTO check_runs ({', '.join(_NAMES)}) VALUES ({marks})", values)


def of(db: Database, pull_id: int) -> CheckRun | None:
    return of_pulls(db, [pull_id]).get(pull_id)


def of_pulls(db: Database, pull_ids: Sequence[int]) -> dict[int, CheckRun]:
    found: dict[int, CheckRun] = {}
    for start in range(0, len(pull_ids), _CHUNK):
        some = list(pull_ids[start : start + _CHUNK])
        marks = ", ".join("?" for _ in some)
        _collect(db, found, ", ".join(_NAMES), f"pull_id IN ({marks})", some)
    return found


def of_open_pulls(db: Database) -> dict[int, CheckRun]:
    """Without their output."""
    found: dict[int, CheckRun] = {}
    names = ", ".join("''" if name == "output" else name for name in _NAMES)
    _collect(db, found, names, "pull_id IN (SELECT id FROM pulls WHERE state = 'open')", [])
    return found


def drop(db: Database, pull_id: int) -> None:
    db.execute("DELETE FROM check_runs WHERE pull_id = ?", (pull_id,))


def _collect(db: Database, found: dict[int, CheckRun], names: str, which: str, values: list[int]) -> None:
    for row in db.rows(f"SELECT {names} FROM check_runs WHERE {which}", values):
        run = CheckRun(*row)
        found[run.pull_id] = dataclasses.replace(run, ok=bool(run.ok))

"""Backups of the database: where they are, how many are kept, and putting one back while nothing runs."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from swarm_core import files, process
from swarm_core.config import Settings
from swarm_core.models import iso, parse_iso
from swarm_core.ops.context import Context, Report
from swarm_core.process import COORDINATOR, DASHBOARD, UP
from swarm_core.store import backup as store
from swarm_core.store import events
from swarm_core.store.backup import Restored
from swarm_core.store.database import open_database

_NAME = re.compile(r"swarm-\d{8}T\d{9}Z\.db")


@dataclass(frozen=True, slots=True)
class Backup:
    path: Path
    bytes: int
    schema: int
    rows: dict[str, int]
    removed: list[Path]


def take(context: Context, to: Path | None) -> Backup:
    """Raises FILE_EXISTS, BACKUP_INVALID, or what keeps the file from being written; then nothing is left."""
    settings = context.settings
    with files.errors():
        path = to.absolute() if to is not None else settings.backups / f"swarm-{_stamp(context.db.now())}.db"
        content = store.take(context.db, path, progress=_percent(context.report, "copying"))
        removed = _remove_oldest(settings, path) if to is None else []
        size = path.stat().st_size
    with context.db.write():
        told = {"file": str(path), "bytes": size, "removed": len(removed)}
        events.add(context.db, "data:saved", actor="operator", metadata=told)
    return Backup(path, size, content.schema, content.rows, removed)


def restore(settings: Settings, source: Path, *, report: Report) -> Restored:
    """Put a backup in the database's place; refused while a coordinator or dashboard runs."""
    for role in (UP, DASHBOARD):
        process.require_free(settings, role)
    path = Path(os.path.realpath(settings.database_path))
    with files.errors(), process.claim(settings, process.own_card(COORDINATOR, settings, {})):
        kept_as = path.with_name(f"{path.name}.replaced-{_stamp(iso(datetime.now(UTC)))}")
        done = store.restore(path, source.absolute(), kept_as=kept_as, progress=_percent(report, "copying"))
        with contextlib.closing(open_database(path)) as db, db.write():
            told = {"file": str(source), "replaced": str(done.replaced or ""), "carried": done.carried}
            events.add(db, "data:restored", actor="operator", metadata=told)
    return done


def newest(settings: Settings) -> tuple[Path, float] | None:
    """The last backup in the home, and when it was made."""
    found = _listed(settings)
    return (found[-1], found[-1].stat().st_mtime) if found else None


def _remove_oldest(settings: Settings, made: Path) -> list[Path]:
    """Keep the one just made, whatever the clock says, and the newest of the others."""
    keep = settings.integer("backups_kept")
    others = [path for path in _listed(settings) if path != made]
    old = others[: max(len(others) + 1 - keep, 0)] if keep else []
    for path in old:
        path.unlink()
    return old


def _listed(settings: Settings) -> list[Path]:
    """Oldest first; only what `swarm backup` has named. One from the future predates a change of the clock."""
    if not settings.backups.is_dir():
        return []
    found = [path for path in settings.backups.iterdir() if _NAME.fullmatch(path.name)]
    now = time.time()
    return sorted(found, key=lambda path: (path.stat().st_mtime <= now, path.name))


def _stamp(now: str) -> str:
    return f"{parse_iso(now):%Y%m%dT%H%M%S}{parse_iso(now).microsecond // 1000:03d}Z"


def _percent(report: Report, what: str) -> Callable[[int], None]:
    return lambda percent: report(f"{what}: {percent} %")

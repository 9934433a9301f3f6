"""How swarm itself is: its processes, its database, tmux and GitHub. Asking may take a second or two."""

from __future__ import annotations

import contextlib
import functools
import platform
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from swarm_core import __version__, git, overview, proc, process
from swarm_core.config import Settings
from swarm_core.errors import SwarmError
from swarm_core.models import iso, parse_iso
from swarm_core.ops import forge_overview
from swarm_core.ops.forge_overview import HostView
from swarm_core.process import Card
from swarm_core.store import events
from swarm_core.store.database import Database
from swarm_core.store.events import Wanted
from swarm_core.swarm import Swarm
from swarm_core.tmux import command
from swarm_ui import pull_views, views

_ERRORS = 10
_KEPT = 2.0
_ASKED_WITHIN = 3.0  # seconds for all programs together
_TEXT = 300

_lock = threading.Lock()
_known: dict[str, tuple[float, dict[str, Any]]] = {}


def look(swarm: Swarm, card: Card) -> dict[str, Any]:
    """All of it, at most two seconds old."""
    path = str(swarm.context.settings.database_path)
    with _lock:
        at, found = _known.get(path, (0.0, {}))
        if not found or time.monotonic() - at > _KEPT:
            with proc.within(_ASKED_WITHIN):
                found = _look(swarm, card)
            _known[path] = (time.monotonic(), found)
    return dict(found)


def _look(swarm: Swarm, card: Card) -> dict[str, Any]:
    settings = swarm.context.settings
    versions = _versions()
    told: dict[str, Any] = {
        "versions": versions | {"sqlite": None},
        "coordinator": _coordinator(settings),
        "database": _database(settings.database_path),
        "tmux": _tmux(settings),
        "github": [],
        "started_at": card.started_at,
        "errors": [],
    }
    try:
        with swarm.context.db.reader() as db:
            told |= _recorded(db)
            told["versions"] = versions | {"sqlite": _engine(db)}
    except SwarmError as error:
        told["database"] |= {"problem": error.message, "code": error.code, "hint": error.hint}
    return told


def _coordinator(settings: Settings) -> dict[str, Any]:
    found = overview.state(settings, process.COORDINATOR)
    if found is None:
        return {"running": False, "ok": False, "problem": "it is not running", "age_s": None}
    return {
        "running": True,
        "ok": found["ok"],
        "problem": found["problem"],
        "age_s": found["last_look_age_s"],
    }


def _database(path: Path) -> dict[str, Any]:
    sizes = {"bytes": path, "wal_bytes": path.with_name(path.name + "-wal")}
    told: dict[str, Any] = {"path": str(path), "problem": None, "code": None, "hint": None}
    for name, file in sizes.items():
        told[name] = 0
        with contextlib.suppress(OSError):
            told[name] = file.stat().st_size
    return told


def _tmux(settings: Settings) -> dict[str, Any]:
    told: dict[str, Any] = {"up": False, "version": None, "sessions": 0}
    with contextlib.suppress(SwarmError):  # a tmux that cannot be asked is not up
        told["version"] = _tmux_version()
        told["up"] = command.is_up(settings.tmux_socket)
        told["sessions"] = overview.live_sessions(settings)
    return told


def _recorded(db: Database) -> dict[str, Any]:
    now = iso(datetime.now(UTC))
    return {
        "github": [_github(one, now) for one in forge_overview.hosts(db)],
        "errors": [
            views.event_row(e) for e in events.before(db, None, Wanted(level="error"), limit=_ERRORS).events
        ],
    }


def _github(one: HostView, now: str) -> dict[str, Any]:
    silent = one.silent_since
    return {
        "host": one.host,
        "quota": [pull_views.quota_label(share, now) for share in one.shares],
        "unanswered": one.unanswered,
        "silent_s": (parse_iso(now) - parse_iso(silent)).total_seconds() if silent else None,
        "problem": views.plain(one.problem, _TEXT, lines=False),
    }


def _engine(db: Database) -> str:
    row = db.row("SELECT sqlite_version()")
    return str(row[0]) if row else ""


def _versions() -> dict[str, str | None]:
    """Those of programs are asked for again until they are known."""
    told: dict[str, str | None] = {"swarm": __version__, "python": platform.python_version()}
    told |= {"tmux": None, "git": None}
    with contextlib.suppress(SwarmError):
        told["tmux"] = _tmux_version()
    with contextlib.suppress(SwarmError):
        told["git"] = ".".join(map(str, git.git_version()))
    return told


@functools.cache
def _tmux_version() -> str:
    return ".".join(map(str, command.version()))

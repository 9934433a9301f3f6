"""How swarm itself is: its processes, its database, tmux, and what waits for a person. Creates nothing."""

from __future__ import annotations

import collections
import contextlib
import http.client
import json
from datetime import UTC, datetime
from typing import Any, TypedDict

from swarm_core import process
from swarm_core.config import Settings
from swarm_core.errors import SwarmError
from swarm_core.models import as_json, iso, parse_iso
from swarm_core.ops import forge_overview, inbox, pull_status
from swarm_core.ops.forge_overview import Overview
from swarm_core.ops.inbox import Board
from swarm_core.process import Card
from swarm_core.store.database import log_files, open_database
from swarm_core.tmux import command, panes

_ANSWER_WITHIN = 2.0


class ProcessRow(TypedDict):
    pid: int
    port: int
    started_at: str
    ok: bool
    problem: str | None
    last_look_age_s: float | None


class Waiting(TypedDict):
    id: str
    name: str | None
    reason: str


class Counted(TypedDict):
    total: int
    by_status: dict[str, int]
    by_activity: dict[str, int]
    needs_you: list[Waiting]


class DatabaseRow(TypedDict):
    exists: bool
    bytes: int
    problem: str | None


class PullsRow(TypedDict):
    open: int
    by_status: dict[str, int]
    oldest_s: float | None
    queued: int


class ForgeRow(TypedDict):
    host: str
    open: int
    unanswered: int
    silent_s: float | None
    problem: str


class TmuxRow(TypedDict):
    up: bool
    sessions: int


def look(settings: Settings) -> dict[str, Any]:
    """All of it; asks the processes and tmux, each for two seconds at most."""
    supervisor = process.running(settings, process.UP)
    return {
        "up": {"pid": supervisor.pid, "started_at": supervisor.started_at} if supervisor else None,
        "coordinator": state(settings, process.COORDINATOR),
        "dashboard": state(settings, process.DASHBOARD),
        **_recorded(settings),
        "tmux": _tmux(settings),
    }


def state(settings: Settings, role: str) -> dict[str, Any] | None:
    """The process that holds the role's lock and what it says of itself; None when there is none."""
    card = process.running(settings, role)
    if card is None:
        return None
    body = ask(card)
    return {
        "pid": card.pid,
        "port": card.port,
        "url": card.url,
        "started_at": card.started_at,
        "home": card.home,
        "ok": bool(body and body["ok"]),
        "problem": body["problem"] if body else "it does not answer",
        "last_look_age_s": body["last_look_age_s"] if body else None,
    }


def ask(card: Card) -> dict[str, Any] | None:
    """Its answer to `GET /health`, good or bad; None when it does not answer or somebody else does."""
    if card.port == 0:
        return None
    connection = http.client.HTTPConnection(process.LOOPBACK, card.port, timeout=_ANSWER_WITHIN)
    with contextlib.closing(connection):
        try:
            connection.request("GET", "/health")
            body = _opened(json.loads(connection.getresponse().read()))
        except (OSError, ValueError, http.client.HTTPException):
            return None
    return body if body is not None and body.get("pid") == card.pid else None


def _opened(answer: Any) -> dict[str, Any] | None:
    """What a process says of itself: the coordinator as it is, the dashboard in its envelope."""
    if not isinstance(answer, dict):
        return None
    told, error = answer.get("result"), answer.get("error")
    if isinstance(error, dict):
        told = {"problem": error.get("message")} | (error.get("details") or {})
    elif not isinstance(told, dict):
        told = answer
    return {"problem": None, "last_look_age_s": None} | told | {"ok": answer.get("ok") is True}


def live_sessions(settings: Settings) -> int:
    """Agents whose program runs now, as tmux knows it."""
    if not command.is_up(settings.tmux_socket):
        return 0
    return sum(1 for p in panes.list_panes(settings.tmux_socket) if p.instance and not p.dead)


def _recorded(settings: Settings) -> dict[str, Any]:
    path = settings.database_path
    database: dict[str, Any] = {"path": str(path), "exists": path.exists(), "bytes": 0, "problem": None}
    board, forge = inbox.EMPTY, forge_overview.EMPTY
    log = log_files(path)[0]
    database["bytes"] = sum(f.stat().st_size for f in (path, log) if f.exists())
    try:
        in_use = process.files_in_use(settings)
        if database["exists"] or log.exists() or in_use:
            wait = settings.number("busy_timeout")
            db = open_database(path, busy_timeout=wait, create=False, in_use=in_use)
            with contextlib.closing(db):
                policy = pull_status.policy(settings)
                board = inbox.board(db, policy=policy)
                forge = forge_overview.overview(db, policy=policy)
    except SwarmError as error:
        database["problem"] = f"{error.message} [{error.code}]"
    return {"database": database, "instances": counted(board), **_forge(forge)}


def counted(board: Board, repo_path: str | None = None) -> Counted:
    """How many instances there are, all or those of one repository, and which of them need a person."""
    listed = [one for one in board.instances if repo_path in (None, one.repo_path)]
    waiting: list[Waiting] = [
        {"id": i.id, "name": i.name, "reason": "; ".join(one.text for one in needs)}
        for i in listed
        if (needs := board.needs.get(i.id))
    ]
    return {
        "total": len(listed),
        "by_status": dict(collections.Counter(i.status for i in listed)),
        "by_activity": dict(collections.Counter(i.activity for i in listed)),
        "needs_you": waiting,
    }


def _forge(found: Overview) -> dict[str, Any]:
    now = iso(datetime.now(UTC))
    return {
        "pulls": {
            "open": found.open,
            "by_status": found.by_status,
            "oldest_s": _seconds_since(found.oldest, now),
            "queued": found.queued,
        },
        "github": [
            {
                "host": one.host,
                "quota": [as_json(share) for share in one.shares],
                "open": sum(place.open for place in one.places),
                "unanswered": one.unanswered,
                "silent_s": _seconds_since(one.silent_since, now),
                "problem": one.problem,
            }
            for one in found.hosts
        ],
    }


def _seconds_since(moment: str | None, now: str) -> float | None:
    return None if moment is None else (parse_iso(now) - parse_iso(moment)).total_seconds()


def _tmux(settings: Settings) -> dict[str, Any]:
    told: dict[str, Any] = {"socket": str(settings.tmux_socket), "up": False, "sessions": 0}
    with contextlib.suppress(SwarmError):  # a socket that cannot be asked is not up
        told["up"] = command.is_up(settings.tmux_socket)
        told["sessions"] = live_sessions(settings)
    return told

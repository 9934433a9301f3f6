"""The coordinator and the dashboard: whether they run and are well, and keeping them so."""

from __future__ import annotations

import collections
import contextlib
import http.client
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from swarm_core import proc, process
from swarm_core.config import Settings
from swarm_core.errors import ExternalFailure, SwarmError
from swarm_core.models import as_json, iso, parse_iso
from swarm_core.ops import forge_overview, inbox
from swarm_core.ops.forge_overview import Overview
from swarm_core.ops.inbox import Board
from swarm_core.process import COORDINATOR, DASHBOARD, Card
from swarm_core.store.database import open_database
from swarm_core.tmux import command, panes
from swarm_ui import pull_views, views

_ANSWER_WITHIN = 2.0
_MODULES = {COORDINATOR: "swarm_mcp", DASHBOARD: "swarm_ui.web"}
_PORT_SETTINGS = {COORDINATOR: "mcp_port", DASHBOARD: "ui_port"}
_PORT_ENV = {COORDINATOR: "MCP_SERVER_PORT", DASHBOARD: "SWARM_UI_PORT"}
_DELAYS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
_SETTLED_AFTER = 60.0
_TICK = 0.1
_TAIL = 8000

Report = Callable[[str], None]


def overview(settings: Settings) -> dict[str, Any]:
    """The shape of `swarm status --json`. Creates nothing."""
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
    if database["exists"]:
        files = (path, path.with_name(path.name + "-wal"))
        database["bytes"] = sum(f.stat().st_size for f in files if f.exists())
        try:
            db = open_database(path, busy_timeout=settings.number("busy_timeout"))
            with contextlib.closing(db):
                board = inbox.board(db, grace=settings.number("checks_grace"))
                forge = forge_overview.overview(db)
        except SwarmError as error:
            database["problem"] = error.message
    return {"database": database, "instances": counted(board), **_forge(forge)}


def counted(board: Board, repo_path: str | None = None) -> dict[str, Any]:
    """How many instances there are, all or those of one repository, and which of them need a person."""
    listed = [one for one in board.instances if repo_path in (None, one.repo_path)]
    waiting = [
        {"id": i.id, "name": i.name, "reason": views.needs_you(i, needs)}
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
                "quota": [as_json(share) | {"label": pull_views.quota_label(share, now)} for share in one.shares],
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


class Children:
    """Both processes. `run` returns after `stop`, or raises what kept one of them from ever getting healthy."""

    def __init__(self, settings: Settings, environ: Mapping[str, str], *, report: Report) -> None:
        self._settings = settings
        self._marks = log_sizes(settings)
        self._all = [_Child(role, settings, environ, report) for role in _MODULES]
        self._stop = False

    def stop(self) -> None:
        self._stop = True

    def run(self, *, on_healthy: Callable[[], None]) -> None:
        told = False
        try:
            while not self._stop:
                if not all(child.tick() for child in self._all):
                    raise why(self._settings, self._marks)
                if not told and all(child.healthy for child in self._all):
                    told = True
                    on_healthy()
                time.sleep(_TICK)
        finally:
            self._end()

    def _end(self) -> None:
        for child in self._all:
            child.signal(signal.SIGTERM)
        deadline = time.monotonic() + process.ENDS_WITHIN
        while any(child.runs() for child in self._all) and time.monotonic() < deadline:
            time.sleep(_TICK / 2)
        for child in self._all:
            child.signal(signal.SIGKILL)


class _Running(Protocol):
    pid: int

    def poll(self) -> int | None: ...


class _Child:
    def __init__(self, role: str, settings: Settings, environ: Mapping[str, str], report: Report) -> None:
        self.healthy = False
        self._role = role
        self._settings = settings
        self._environ = environ
        self._report = report
        self._port = settings.integer(_PORT_SETTINGS[role])
        self._process: _Running | None = None
        self._was_healthy = False
        self._failures = 0
        self._started = self._due = 0.0

    def tick(self) -> bool:
        """Look after the process; False when it ended before it was ever healthy."""
        now = time.monotonic()
        if self._process is None:
            if now >= self._due:
                self._start(now)
            return True
        code = self._process.poll()
        if code is not None:
            self._ended(code, now)
            return self._was_healthy
        if not self.healthy:
            self._ask(self._process.pid)
        elif now - self._started > _SETTLED_AFTER:
            self._failures = 0
        return True

    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def signal(self, number: int) -> None:
        if self._process is not None and self.runs():
            proc.end_group(self._process.pid, number)

    def _start(self, now: float) -> None:
        own = {process.SUPERVISOR_ENV: str(os.getpid()), _PORT_ENV[self._role]: str(self._port)}
        argv = [sys.executable, "-P", "-m", _MODULES[self._role]]
        log = _log(self._settings, self._role)
        self._process = proc.start_child(argv, log=log, env=dict(self._environ) | own)
        self._started = now

    def _ended(self, code: int, now: float) -> None:
        delay = _DELAYS[min(self._failures, len(_DELAYS) - 1)]
        self._failures += 1
        self._process, self.healthy, self._due = None, False, now + delay
        if self._was_healthy:
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            self._report(f"the {self._role} {how}; it starts again in {delay:g} s")

    def _ask(self, pid: int) -> None:
        card = process.running(self._settings, self._role)
        if card is None or card.pid != pid:
            return
        body = ask(card)
        if body is None or not body["ok"]:
            return
        if self._was_healthy:
            self._report(f"the {self._role} is well again (pid {pid})")
        # Agents were told this address, so a later start keeps it.
        self._port = card.port
        self.healthy = self._was_healthy = True


def log_sizes(settings: Settings) -> dict[str, int]:
    """Where the logs end now, to tell later what was added."""
    paths = {role: _log(settings, role) for role in (*_MODULES, process.UP)}
    return {role: path.stat().st_size if path.exists() else 0 for role, path in paths.items()}


def why(settings: Settings, marks: Mapping[str, int]) -> SwarmError:
    """The failure a process told in its log since `marks`, with its own code."""
    said = tails(settings, marks)
    for text in said.values():
        for line in reversed(text.splitlines()):
            with contextlib.suppress(ValueError, TypeError, KeyError):
                told = json.loads(line)["error"]
                return ExternalFailure(
                    told["message"], code=told["code"], hint=told.get("hint"), details=told.get("details")
                )
    last = "\n".join(line for text in said.values() for line in text.splitlines()[-5:])
    return ExternalFailure(
        f"a process ended before it was healthy: {last or 'it said nothing'}",
        hint=f"the logs are in {settings.logs}",
    )


def tails(settings: Settings, marks: Mapping[str, int]) -> dict[str, str]:
    found = {}
    for role, mark in marks.items():
        path = _log(settings, role)
        if path.exists():
            with path.open("rb") as file:
                file.seek(max(mark, path.stat().st_size - _TAIL))
                found[role] = file.read().decode(errors="replace")
    return found


def _log(settings: Settings, role: str) -> Path:
    return settings.logs / f"{role}.log"

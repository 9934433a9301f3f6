"""The coordinator and the dashboard: keeping them running, and what `swarm status` says of them."""

from __future__ import annotations

import contextlib
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
from swarm_core.models import iso
from swarm_core.overview import ask, look
from swarm_core.process import COORDINATOR, DASHBOARD
from swarm_core.store.quota import Share
from swarm_ui import pull_views

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
    found, now = look(settings), iso(datetime.now(UTC))
    for one in found["github"]:
        for share in one["quota"]:
            share["label"] = pull_views.quota_label(Share(**share), now)
    return found


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


def logs(settings: Settings) -> list[Path]:
    """Where the processes of `swarm up` write."""
    return [_log(settings, role) for role in (*_MODULES, process.UP)]


def log_sizes(settings: Settings) -> dict[str, int]:
    """Where the logs end now, to tell later what was added."""
    return {path.stem: path.stat().st_size if path.exists() else 0 for path in logs(settings)}


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

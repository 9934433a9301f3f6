"""What the long-running processes share: one of each kind, where it says who it is, how it logs and ends.

Knows no web framework. A process exists when its lock is held; a pid in a file is only a description.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import platform
import re
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

from swarm_core import __version__, locks
from swarm_core.config import Settings
from swarm_core.errors import Conflict, ExternalFailure, InvalidInput, SwarmError
from swarm_core.models import iso

COORDINATOR, DASHBOARD, UP = "coordinator", "dashboard", "up"
SUPERVISOR_ENV = "SWARM_SUPERVISOR"
LOOPBACK = "127.0.0.1"
LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
# `locks.holder` takes the lock for an instant to ask, so one try could fail on a mere question.
_TAKE_WITHIN = 0.5
_CARD_SIZE = 1024

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Card:
    """What a process says about itself; `port` is 0 until it listens, `supervisor` the pid of its `swarm up`."""

    role: str
    pid: int
    host: str
    port: int
    started_at: str
    home: str
    supervisor: int | None = None

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"


def own_card(role: str, settings: Settings, environ: Mapping[str, str]) -> Card:
    supervisor = environ.get(SUPERVISOR_ENV, "")
    return Card(
        role=role,
        pid=os.getpid(),
        host=platform.node(),
        port=0,
        started_at=iso(datetime.now(UTC)),
        home=str(settings.home),
        supervisor=int(supervisor) if supervisor.isascii() and supervisor.isdigit() else None,
    )


class Claim:
    """The held lock of a role."""

    def __init__(self, card: Card, fd: int, run_file: Path) -> None:
        self.card = card
        self._fd = fd
        self._run_file = run_file

    def announce(self, port: int) -> None:
        """Tell where we listen, in the lock and in the run file."""
        self.card = replace(self.card, port=port)
        os.pwrite(self._fd, _text(self.card).encode(), 0)
        fresh = self._run_file.with_suffix(".new")
        fresh.write_text(_text(self.card).rstrip() + "\n")
        fresh.replace(self._run_file)


@contextlib.contextmanager
def claim(settings: Settings, card: Card) -> Iterator[Claim]:
    """Be the only process of this role; raises Conflict COORDINATOR_RUNNING or ALREADY_UP naming the holder."""
    run_file = settings.home / "run" / f"{card.role}.json"
    with contextlib.ExitStack() as stack:
        try:
            run_file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            held = locks.hold(lock_path(settings, card.role), timeout=_TAKE_WITHIN, holder=_text(card))
            fd = stack.enter_context(held)
        except Conflict as error:
            raise _taken(card.role, _parse(str(error.details.get("holder", "")))) from None
        except OSError as error:
            raise ExternalFailure(
                f"cannot write {error.filename}: {error.strerror}",
                hint="set SWARM_HOME to a folder you can write",
            ) from error
        stack.callback(run_file.unlink, missing_ok=True)
        yield Claim(card, fd, run_file)


def require_free(settings: Settings, role: str) -> None:
    """Raise what `claim` would, before anything expensive is done."""
    holder = running(settings, role)
    if holder is not None:
        raise _taken(role, holder)


def running(settings: Settings, role: str) -> Card | None:
    """Who holds the role now; None when nobody does."""
    text = locks.holder(lock_path(settings, role))
    return _parse(text) if text else None


def lock_path(settings: Settings, role: str) -> Path:
    return settings.coordinator_lock if role == COORDINATOR else settings.home / "run" / f"{role}.lock"


def listen(port: int) -> socket.socket:
    """A listening socket on the loopback; 0 is any free port. Raises PORT_IN_USE."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((LOOPBACK, port))
        listening.listen(128)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise Conflict(
                f"port {port} is taken by another program",
                code="PORT_IN_USE",
                hint="choose another port, or 0 for any free one",
                details={"port": port},
            ) from None
        raise ExternalFailure(f"cannot listen on port {port}: {error.strerror}") from error
    return listening


# Longest a coordinator takes to end: it answers or undoes calls, closes connections, and ends its last look.
ENDS_WITHIN = 30.0


def host_allowed(headers: list[bytes], port: int) -> bool:
    """Whether a request was meant for us: exactly one Host header, a loopback name, our port."""
    if len(headers) != 1:
        return False
    found = re.fullmatch(r"(127\.0\.0\.1|localhost|\[::1\]):([0-9]{1,5})", headers[0].decode("latin-1").lower())
    return found is not None and int(found[2]) == port


def origin_allowed(headers: list[bytes], port: int) -> bool:
    """Whether no page of another site sent the request: a browser names the page's origin, a program none."""
    return all(o.startswith(b"http://") and host_allowed([o[7:]], port) for o in headers)


def health(
    card: Card, settings: Settings, *, instances: int | None, last_look_age_s: float | None, problem: str | None
) -> dict[str, Any]:
    """The one shape of `GET /health`."""
    return {
        "ok": problem is None,
        "role": card.role,
        "pid": card.pid,
        "version": __version__,
        "database": str(settings.database_path),
        "started_at": card.started_at,
        "last_look_age_s": None if last_look_age_s is None else round(last_look_age_s, 3),
        "instances": instances,
        "problem": problem,
    }


def run(main: Callable[[], None]) -> int:
    """Run a process to its end: 0 in good order, 1 an expected failure, 3 a bug; both told in the log."""
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, _end)
    log_to_stderr("info")
    try:
        main()
    except SwarmError as error:
        log.error(error.message, extra={"error": error.as_json()})
        return 1
    except Exception:  # the process ends with exit code 3 and its traceback is kept in the log
        log.exception("this is a bug")
        return 3
    return 0


def log_to_stderr(level: str) -> None:
    """One JSON object a line; stdout stays free for a protocol."""
    if level.lower() not in LEVELS:
        raise InvalidInput(
            f"log_level cannot be {level!r}", code="INVALID_SETTING", hint="it is one of " + ", ".join(LEVELS)
        )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(handlers=[handler], level=LEVELS[level.lower()], force=True)


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": iso(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        error = getattr(record, "error", None)
        if isinstance(error, dict):
            line["error"] = error
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def _end(number: int, frame: object) -> NoReturn:
    """Asked to end: unwind, so that every `with` puts its things in order."""
    raise SystemExit(0)


def _text(card: Card) -> str:
    """Padded, so that rewriting it is one write that leaves no tail of the old text."""
    return json.dumps(asdict(card)).ljust(_CARD_SIZE)


def _parse(text: str) -> Card | None:
    try:
        return Card(**json.loads(text))
    except (ValueError, TypeError):
        return None


def _taken(role: str, holder: Card | None) -> Conflict:
    who = f"pid {holder.pid} on {holder.host}, since {holder.started_at}" if holder else "another process"
    told = {"holder": asdict(holder)} if holder else {}
    if role == COORDINATOR:
        return Conflict(
            f"another coordinator holds the database: {who}",
            code="COORDINATOR_RUNNING",
            hint="`swarm status` shows it, `swarm down` stops it",
            details=told,
        )
    what = "swarm is already up" if role == UP else f"the {role} already runs"
    return Conflict(f"{what}: {who}", code="ALREADY_UP", hint="`swarm status` shows it", details=told)

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
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

from swarm_core import __version__, contract, files, locks, proc, redact
from swarm_core.config import Settings
from swarm_core.errors import Conflict, ExternalFailure, InvalidInput, SwarmError
from swarm_core.models import iso

COORDINATOR, DASHBOARD, UP = "coordinator", "dashboard", "up"
SUPERVISOR_ENV = "SWARM_SUPERVISOR"
LOOPBACK = "127.0.0.1"
LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
# `locks.holder` takes the lock for an instant to ask, so one try could fail on a mere question.
_TAKE_WITHIN = 0.5
# A killed coordinator's worker holds the lock until it notices.
_WORKER_ENDS_WITHIN = 10.0
# From taking its lock to opening the database a coordinator starts its worker.
_OPENS_WITHIN = 5.0
_POLL = 0.01
_CARD_SIZE = 1024

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Card:
    """What a process says about itself; `port` is 0 until it listens, `supervisor` the pid of its `swarm up`,
    `database_path` the real path of its database, `database` the files it has open there ("" until it has)."""

    role: str
    pid: int
    host: str
    port: int
    started_at: str
    home: str
    supervisor: int | None = None
    database: str = ""
    database_path: str = ""

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
        database_path=os.path.realpath(settings.database_path),
    )


class Claim:
    """The held locks of a role."""

    def __init__(self, card: Card, fds: Sequence[int], run_file: Path) -> None:
        self.card = card
        self._fds = fds
        self._run_file = run_file

    def opened(self, database: str) -> None:
        """Publish which files we have open, so that no other process opens others in their place."""
        self.card = replace(self.card, database=database)
        self._write()

    def announce(self, port: int) -> None:
        """Publish where we listen, in the locks and in the run file."""
        self.card = replace(self.card, port=port)
        self._write()
        files.write_private(self._run_file, _text(self.card).rstrip().encode() + b"\n")

    def _write(self) -> None:
        for fd in self._fds:
            os.pwrite(fd, _text(self.card).encode(), 0)


@contextlib.contextmanager
def claim(settings: Settings, card: Card) -> Iterator[Claim]:
    """Be the only process of this role; raises Conflict COORDINATOR_RUNNING or ALREADY_UP naming the holder.

    A coordinator is the only one of its database and of its home; OTHER_DATABASE when the home has another.
    """
    run_file = settings.home / "run" / f"{card.role}.json"
    with contextlib.ExitStack() as stack:
        try:
            files.make_private(run_file.parent)
            fds = [
                stack.enter_context(locks.hold(path, timeout=_patience(path), holder=_text(card)))
                for path in _lock_paths(settings, card.role)
            ]
        except Conflict as error:
            holder = _parse(str(error.details.get("holder", "")))
            raise _other_database(settings, holder) or _taken(card.role, holder) from None
        except OSError as error:
            raise ExternalFailure(
                f"cannot write {error.filename}: {error.strerror}",
                hint="set SWARM_HOME to a folder you can write",
            ) from error
        stack.callback(run_file.unlink, missing_ok=True)
        yield Claim(card, fds, run_file)


def has_announced(settings: Settings, role: str, pid: int) -> bool:
    """Whether this process has published its run file."""
    try:
        card = _parse((settings.home / "run" / f"{role}.json").read_text())
    except OSError:
        return False
    return card is not None and card.pid == pid


def require_free(settings: Settings, role: str) -> None:
    """Raise what `claim` would, before anything expensive is done."""
    holder = running(settings, role)
    if holder is not None:
        raise _other_database(settings, holder) or _taken(role, holder)


def running(settings: Settings, role: str) -> Card | None:
    """Who holds the role now, for our database or in our home; None when nobody does."""
    return next(_holders(settings, role), None)


def files_in_use(settings: Settings) -> list[str]:
    """Return which database files the other servers have open, "" for a coordinator that has not opened them yet.

    Where there is no database, a coordinator that has just started gets the time to make it. Raises OTHER_DATABASE
    when a server of our home uses another database.
    """
    deadline = time.monotonic() + _OPENS_WITHIN
    while "" in (found := _files_in_use(settings)) and not settings.database_path.exists():
        if time.monotonic() > deadline:
            break
        time.sleep(_POLL)
    return found


def _files_in_use(settings: Settings) -> list[str]:
    found = []
    for role in (COORDINATOR, DASHBOARD):
        for card in _holders(settings, role, living=False):
            if card.pid == os.getpid():
                continue
            if (other := _other_database(settings, card)) is not None:
                raise other
            if card.database or role == COORDINATOR:
                found.append(card.database)
    return found


def holder(path: Path) -> str | None:
    """What the process that holds the lock wrote about itself; None when nobody does, or only a worker is left."""
    text = locks.holder(path)
    return None if text is None or _is_dead(_parse(text)) else text


def _holders(settings: Settings, role: str, *, living: bool = True) -> Iterator[Card]:
    """Who holds the role's locks; without `living` also a killed coordinator, whose worker has not noticed yet."""
    for path in _lock_paths(settings, role):
        text = holder(path) if living else locks.holder(path)
        card = _parse(text) if text else None
        if card is not None:
            yield card


def _is_dead(card: Card | None) -> bool:
    """Whether the coordinator was killed, and its worker has not noticed yet."""
    return card is not None and card.host == platform.node() and not proc.is_alive(card.pid)


def _patience(path: Path) -> float:
    text = locks.holder(path)
    return _WORKER_ENDS_WITHIN if text and _is_dead(_parse(text)) else _TAKE_WITHIN


def _lock_paths(settings: Settings, role: str) -> tuple[Path, ...]:
    in_home = settings.home / "run" / f"{role}.lock"
    return (settings.coordinator_lock, in_home) if role == COORDINATOR else (in_home,)


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
    """The one shape of `GET /health`, which anybody on this machine may read: it names no folder."""
    return {
        "ok": problem is None,
        "role": card.role,
        "pid": card.pid,
        "version": __version__,
        "database": settings.database_path.name,
        "started_at": card.started_at,
        "last_look_age_s": None if last_look_age_s is None else round(last_look_age_s, 3),
        "instances": instances,
        "problem": contract.without_paths(problem, settings.own_folders),
    }


def run(main: Callable[[], None]) -> int:
    """Run a process to its end: 0 in good order, 1 an expected failure, 3 a bug; both told in the log."""
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, _end)
    proc.keep_files_private()
    log_to_stderr("info")
    return finished(main)


def finished(main: Callable[[], None]) -> int:
    """Call `main` and return the exit code for how it ended."""
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
            "message": redact.text(record.getMessage()),
        }
        error = getattr(record, "error", None)
        if isinstance(error, dict):
            line["error"] = {k: redact.text(v) if isinstance(v, str) else v for k, v in error.items()}
        if record.exc_info:
            line["traceback"] = redact.text(self.formatException(record.exc_info))
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


def _other_database(settings: Settings, holder: Card | None) -> Conflict | None:
    """The error for a server of our home that uses another database; None when it uses ours."""
    ours = os.path.realpath(settings.database_path)
    if holder is None or holder.database_path in ("", ours):
        return None
    return Conflict(
        f"the {holder.role} of this home (pid {holder.pid}) uses {holder.database_path}, not {ours}",
        code="OTHER_DATABASE",
        hint=f"set MCP_DATABASE_PATH={holder.database_path}, or run `swarm down` first",
        details={"holder": asdict(holder)},
    )


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
    hint = "`swarm status` shows it, `swarm down` stops it"
    return Conflict(f"{what}: {who}", code="ALREADY_UP", hint=hint, details=told)

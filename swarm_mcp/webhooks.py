"""What GitHub reports, `POST /webhooks/github`: which pull requests are to be looked at, and nothing else.

A delivery only says where to look: what is true is asked of GitHub itself. Its sender is known by the signature
alone, so the page answers under whatever name a tunnel gives it.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from swarm_core.errors import SwarmError
from swarm_core.forge import parse_remote
from swarm_core.models import iso, parse_iso
from swarm_core.store import deliveries, pulls
from swarm_core.store.database import Database
from swarm_mcp import contract
from swarm_mcp.loop import LoopStore
from swarm_mcp.metrics import Metrics
from swarm_mcp.refusals import Refusals

PATH = "/webhooks/github"
SECRET = "SWARM_WEBHOOK_SECRET"  # noqa: S105  the name of the variable
BODY_MAX = 5 << 20
_READ_WITHIN = 10.0  # GitHub gives up after that
_MOST_AT_ONCE = 16
_WRITTEN_WITHIN = 5.0
_KEPT = timedelta(days=30)
_FORGET_EVERY = 3600.0
_JSON, _FORM = "application/json", "application/x-www-form-urlencoded"
_SIGNATURE = re.compile(rb"sha256=([0-9a-f]{64})")
_DELIVERY = re.compile(r"[A-Za-z0-9-]{1,100}")
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_REPORTS = frozenset(
    {
        *("pull_request", "pull_request_review", "pull_request_review_comment", "pull_request_review_thread"),
        *("issue_comment", "check_run", "check_suite", "status", "workflow_run", "workflow_job"),
    }
)
_RUNS = ("check_run", "check_suite", "workflow_run", "workflow_job")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pointer:
    """Where a delivery says that something has happened; `repository` is host/owner/name."""

    repository: str
    numbers: frozenset[int]
    commits: frozenset[str]


class _Refused(Exception):
    def __init__(self, status: int, code: str, reason: str) -> None:
        super().__init__(reason)
        self.status, self.code, self.reason = status, code, reason


class Webhooks:
    """Off without a secret. `wake` is called when there is something to look at."""

    def __init__(
        self,
        secret: str,
        store: LoopStore,
        refusals: Refusals,
        metrics: Metrics,
        wake: Callable[[], None],
        folders: Sequence[str] = (),
    ) -> None:
        self._secret = secret.encode()
        self._store = store
        self._refusals = refusals
        self._metrics = metrics
        self._wake = wake
        self._folders = folders
        self._reading: dict[asyncio.Timeout, None] = {}
        self._forget_at = 0.0

    @property
    def is_on(self) -> bool:
        return bool(self._secret)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except _Refused as refused:
            response = self._refuse(refused)
        except ClientDisconnect:
            response = _error(400, "INVALID_REQUEST", "the delivery did not arrive whole")
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> JSONResponse:
        if not self.is_on:
            hint = f"start the coordinator with {SECRET} to receive GitHub's webhooks"
            return _error(404, "NOT_FOUND", "webhooks are off", hint)
        if request.method != "POST":
            return _error(405, "INVALID_REQUEST", "a webhook is a POST")
        raw = await self._signed(request)
        name = request.headers.get("x-github-delivery", "")
        if not _DELIVERY.fullmatch(name):
            raise _Refused(400, "INVALID_REQUEST", "no delivery id")
        payload = _payload(raw, request.headers.get("content-type", ""))
        found = pointer(payload) if request.headers.get("x-github-event", "") in _REPORTS else None
        if found is None:
            self._metrics.webhooks["ignored"] += 1
            return JSONResponse({"ok": True, "pulls": 0})
        names = (name, f"body:{hashlib.sha256(raw).hexdigest()}")  # the id is not signed, the body is
        return await self._take(names, found)

    async def _signed(self, request: Request) -> bytes:
        """The body, once it is known who sent it."""
        given = [v for n, v in request.scope["headers"] if n == b"x-hub-signature-256"]
        said = _SIGNATURE.fullmatch(given[0]) if len(given) == 1 else None
        if said is None:
            raise _Refused(401, "UNAUTHORIZED", "no signature")
        reading = asyncio.timeout(_READ_WITHIN)
        try:
            async with reading:
                self._make_room(reading)
                raw = await _body(request)
        except TimeoutError:
            raise _Refused(408, "INVALID_REQUEST", "a slow delivery") from None
        finally:
            self._reading.pop(reading, None)
        if not hmac.compare_digest(hmac.digest(self._secret, raw, "sha256").hex().encode(), said[1]):
            raise _Refused(401, "UNAUTHORIZED", "wrong signature")
        return raw

    def _make_room(self, newest: asyncio.Timeout) -> None:
        """Whose body it is, only its end tells: the delivery that has taken longest gives way to the newest."""
        self._reading[newest] = None
        if len(self._reading) > _MOST_AT_ONCE:
            slowest = next(iter(self._reading))
            del self._reading[slowest]
            slowest.reschedule(asyncio.get_running_loop().time())

    async def _take(self, names: tuple[str, str], found: Pointer) -> JSONResponse:
        told: dict[str, Any] = {}

        def write(db: Database) -> None:
            told.clear()
            if not deliveries.take(db, names):
                told["replayed"] = True
                return
            told["pulls"] = _hurry(db, found)
            self._forget(db)

        try:
            await self._store.write(write, within=_WRITTEN_WITHIN)
        except SwarmError as error:
            log.warning("a webhook delivery could not be written down: %s", error.code)
            self._metrics.webhooks["failed"] += 1
            return JSONResponse(contract.failure(error, folders=self._folders), status_code=503)
        if told.get("pulls"):
            self._wake()
        outcome = "replayed" if "replayed" in told else "taken" if told["pulls"] else "ignored"
        self._metrics.webhooks[outcome] += 1
        return JSONResponse({"ok": True, **told})

    def _forget(self, db: Database) -> None:
        if time.monotonic() >= self._forget_at:
            self._forget_at = time.monotonic() + _FORGET_EVERY
            deliveries.forget(db, before=iso(parse_iso(db.now()) - _KEPT))

    def _refuse(self, refused: _Refused) -> JSONResponse:
        """What was sent is not repeated: it may be a secret in the wrong place."""
        self._metrics.webhooks["refused"] += 1
        self._refusals.add(refused.reason, code=refused.code, event="webhook:refused", path=PATH)
        return _error(refused.status, refused.code, refused.reason)


def pointer(payload: dict[str, Any]) -> Pointer | None:
    """What a payload points at; None when it names no repository."""
    repository = _dict(payload.get("repository"))
    place = parse_remote(_text(repository.get("html_url")))
    if place is None or "/".join(place[1:]).lower() != _text(repository.get("full_name")).lower():
        return None
    numbers = {n for n in _numbers(payload) if isinstance(n, int) and not isinstance(n, bool) and 0 < n < 1 << 53}
    commits = {c for c in _commits(payload) if isinstance(c, str) and _COMMIT.fullmatch(c)}
    return Pointer("/".join(place), frozenset(numbers), frozenset(commits))


def _numbers(payload: dict[str, Any]) -> Iterator[Any]:
    yield _dict(payload.get("pull_request")).get("number")
    issue = _dict(payload.get("issue"))
    if issue.get("pull_request"):
        yield issue.get("number")
    for run in (_dict(payload.get(kind)) for kind in _RUNS):
        listed = run.get("pull_requests")
        yield from (_dict(one).get("number") for one in (listed if isinstance(listed, list) else []))


def _commits(payload: dict[str, Any]) -> Iterator[Any]:
    """Those of checks: GitHub does not name the pull requests of a fork."""
    yield payload.get("sha")
    yield from (_dict(payload.get(kind)).get("head_sha") for kind in _RUNS)


def _hurry(db: Database, found: Pointer) -> int:
    meant = deliveries.meant(db, found.repository, numbers=found.numbers, commits=found.commits)
    return sum(pulls.hurry(db, "github", repository, number) for repository, number in meant)


async def _body(request: Request) -> bytes:
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length[:12]) > BODY_MAX:
        raise _Refused(413, "INVALID_REQUEST", "a delivery of more than 5 MB")
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > BODY_MAX:
            raise _Refused(413, "INVALID_REQUEST", "a delivery of more than 5 MB")
        parts.append(part)
    return b"".join(parts)


def _payload(raw: bytes, content_type: str) -> dict[str, Any]:
    kind = content_type.partition(";")[0].strip().lower()
    if kind not in (_JSON, _FORM):
        raise _Refused(415, "INVALID_REQUEST", "a content type that is neither JSON nor a form")
    try:
        text: str | bytes = raw
        if kind == _FORM:
            text = parse_qs(raw.decode("ascii"), strict_parsing=True, max_num_fields=10)["payload"][0]
        payload = json.loads(text)
    except (ValueError, KeyError, RecursionError):
        raise _Refused(400, "INVALID_REQUEST", "a body that is no JSON") from None
    if not isinstance(payload, dict):
        raise _Refused(400, "INVALID_REQUEST", "a body that is no JSON object")
    return payload


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _error(status: int, code: str, message: str, hint: str = "") -> JSONResponse:
    return JSONResponse(contract.refusal(code, message, hint or None), status_code=status)

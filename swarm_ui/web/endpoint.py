"""One entry of the HTTP API: what is asked, who may ask it, and how every answer and every failure looks."""

from __future__ import annotations

import inspect
import json
import logging
import time
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from swarm_core import contract
from swarm_core.errors import Conflict, Denied, ExternalFailure, InvalidRequest, NotFound, SwarmError
from swarm_core.models import iso
from swarm_ui.web.threads import shared

if TYPE_CHECKING:
    from swarm_ui.web.site import Site

BODY_MAX = 1_000_000

log = logging.getLogger(__name__)


class Nothing(BaseModel):
    """A request without parameters, or without a body."""

    model_config = ConfigDict(extra="forbid", defer_build=True)


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who asks; `name` is the actor in events."""

    name: str
    may_write: bool
    how: str


NOBODY = Visitor("nobody", may_write=False, how="open")


@dataclass(frozen=True, slots=True)
class Question:
    """One request whose parameters and body are what the endpoint says."""

    site: Site
    visitor: Visitor
    path: Mapping[str, str]
    query: Any
    body: Any
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`answer` runs in a worker thread and returns the result; `result` is its JSON schema.

    The shared threads start no program: one that does names its pool (see `slow`) in `runs`, and has a time limit.
    A coroutine function chooses its threads itself.
    """

    method: str
    path: str
    summary: str
    answer: Callable[[Question], Any]
    query: type[BaseModel] = Nothing
    body: type[BaseModel] = Nothing
    writes: bool = False
    open: bool = False
    runs: str = ""
    status: int = 200
    result: Mapping[str, Any] | None = None


class Refused(InvalidRequest):
    """A request that the endpoint does not take; `status` is 400, 405, 413 or 415."""

    def __init__(self, message: str, *, status: int = 400, violations: Sequence[Mapping[str, Any]] = ()) -> None:
        super().__init__(message, violations=violations, hint="GET /openapi.json describes every request")
        self.status = status


class Unwell(ExternalFailure):
    """Bad health is 503, whatever its code: that is what load balancers and supervisors look at."""


def routes(site: Site, endpoints: Iterable[Endpoint]) -> list[Route]:
    return [Route(e.path, _handler(site, e), methods=[e.method]) for e in endpoints]


def visitor(request: Request) -> Visitor:
    """Whom the guard has let in."""
    found: Visitor = request.scope.get("swarm.visitor", NOBODY)
    return found


def _handler(site: Site, endpoint: Endpoint) -> Callable[[Request], Any]:
    async def handle(request: Request) -> Response:
        started = time.monotonic()
        try:
            question = await _question(site, endpoint, request)
            result = await _answer(site, endpoint, question)
        except Exception as error:  # noqa: BLE001  the one place where a failure becomes an answer; bugs are logged
            return failed(error, started=started, folders=site.settings.own_folders)
        return JSONResponse(ok(result, started=started), status_code=endpoint.status)

    return handle


async def _answer(site: Site, endpoint: Endpoint, question: Question) -> Any:
    if inspect.iscoroutinefunction(endpoint.answer):
        return await endpoint.answer(question)
    if endpoint.runs:
        return await site.pools[endpoint.runs].run(lambda: endpoint.answer(question))
    return await shared(endpoint.answer, question)


async def _question(site: Site, endpoint: Endpoint, request: Request) -> Question:
    who = visitor(request)
    if endpoint.writes and not who.may_write:
        raise Denied("this visit may look, not act", code="FORBIDDEN", hint="`swarm link` prints a link that may")
    query = validated(endpoint.query, parameters(endpoint.query, request))
    body = await read_body(request, endpoint.body) if endpoint.method == "POST" else Nothing()
    key = request.headers.get("idempotency-key")
    if key is not None and not (1 <= len(key) <= 200 and key.isascii() and key.isprintable()):
        raise Refused("Idempotency-Key is 1 to 200 printable ASCII characters")
    return Question(site, who, request.path_params, query, body, key)


async def read_body(request: Request, model: type[BaseModel]) -> BaseModel:
    """The body as the model; an empty one counts as `{}`."""
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    raw = await request.body()
    if len(raw) > BODY_MAX:
        raise Refused(f"a body has at most {BODY_MAX} bytes", status=413)
    if kind != "application/json":
        raise Refused("a body is JSON: Content-Type: application/json", status=415)
    try:
        given = json.loads(raw or b"{}")
    except (ValueError, RecursionError) as error:
        raise Refused(f"the body is not JSON: {type(error).__name__}") from None
    if not isinstance(given, dict):
        raise Refused("the body is not a JSON object")
    return validated(model, given)


def validated(model: type[BaseModel], given: Mapping[str, Any]) -> BaseModel:
    """The model; raises Refused. As over MCP, a field that is not given is left out and never null."""
    found = contract.nulls(given, model.model_fields)
    if not found:
        try:
            return model.model_validate(given)
        except ValidationError as error:
            told = error.errors(include_url=False, include_input=False, include_context=False)
            found = contract.violations(told)
    raise Refused(contract.described(found), violations=found)


def parameters(model: type[BaseModel], request: Request) -> dict[str, Any]:
    """Query parameters; a field that is a list takes all values of its name, another refuses a second one."""
    given: dict[str, Any] = {}
    for name in request.query_params:
        values = request.query_params.getlist(name)
        field = model.model_fields.get(name)
        if field is not None and _is_list(field.annotation):
            given[name] = values
        elif len(values) > 1:
            raise Refused(f"{name[:80]} is given {len(values)} times")
        else:
            given[name] = values[0]
    return given


def _is_list(annotation: Any) -> bool:
    parts = typing.get_args(annotation)
    return typing.get_origin(annotation) is list or any(typing.get_origin(part) is list for part in parts)


def ok(result: Any, *, started: float | None = None) -> dict[str, Any]:
    return {"ok": True, "result": result, "_meta": _meta(started)}


def failed(error: Exception, *, started: float | None = None, folders: Sequence[str] = ()) -> JSONResponse:
    """The answer to a request that failed; what is not ours is a bug and keeps its traceback in the log."""
    status, body = failure(error, folders)
    return JSONResponse({"ok": False, "error": body, "_meta": _meta(started)}, status_code=status)


def failure(error: Exception, folders: Sequence[str] = ()) -> tuple[int, dict[str, Any]]:
    """The HTTP status and the error object of an envelope."""
    if not isinstance(error, SwarmError):
        log.error("unhandled exception in a request", exc_info=error)
        error = ExternalFailure("a bug in swarm; its traceback is in the log", code="INTERNAL")
    return status_of(error), contract.error_object(error, folders=folders)


def status_of(error: SwarmError) -> int:
    if isinstance(error, Refused):
        return error.status
    if isinstance(error, Unwell):
        return 503
    if error.code == "UNAUTHORIZED":
        return 401
    if isinstance(error, Denied):
        return 403
    if error.code == "NO_INDEX" or isinstance(error, Conflict):
        return 409
    if isinstance(error, NotFound):
        return 404
    if error.code == "QUEUE_OVERLOADED" or contract.category(error) == "database":
        return 503
    return 500 if isinstance(error, ExternalFailure) else 400


def _meta(started: float | None) -> dict[str, Any]:
    return {
        "schemaVersion": contract.SCHEMA_VERSION,
        "toolVersion": contract.TOOL_VERSION,
        "ts": iso(datetime.now(UTC)),
        "durationMs": 0 if started is None else round((time.monotonic() - started) * 1000, 1),
    }

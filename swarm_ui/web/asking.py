"""What endpoints share: the instance and the repository that a request names, and streams of events."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from swarm_core import ids
from swarm_core.errors import Denied, NotFound
from swarm_core.models import Instance
from swarm_core.store import glance, instances
from swarm_core.store.database import Database
from swarm_core.swarm import Swarm
from swarm_ui.web import endpoint, rows
from swarm_ui.web.endpoint import Nothing, Question

if TYPE_CHECKING:
    from swarm_ui.web.site import Site

_T = TypeVar("_T")

Repo = Annotated[
    str, Field(min_length=1, max_length=4096, description="A repository that has instances: its path or its name.")
]
InstanceId = Annotated[str, Field(pattern=r"^(work|review|fork|adhoc)(-[1-9]\d{0,8})?-a[1-9]\d{0,5}(-r\d{1,4})?$")]


class Asked(BaseModel):
    """Parameters of a request; what is not known is refused."""

    model_config = ConfigDict(extra="forbid", defer_build=True)


@dataclass(frozen=True, slots=True)
class Described:
    """A route whose answer is no envelope but a stream; for the description of the API alone."""

    method: str
    path: str
    summary: str
    media: str
    query: type[BaseModel] = Nothing
    body: type[BaseModel] = Nothing


def check_database(swarm: Swarm) -> None:
    """Raise NO_INDEX or DATABASE_REPLACED when the database was taken away under the running dashboard."""
    swarm.context.db.check_file()


@contextlib.contextmanager
def reading(question: Question) -> Iterator[Swarm]:
    """A swarm with a connection of its own, so that a long read keeps nobody waiting."""
    swarm = question.site.swarm
    check_database(swarm)
    with swarm.context.db.reader() as db:
        yield swarm.on(db)


def named(db: Database, question: Question) -> Instance:
    """The instance that the path names."""
    asked = question.path["id"]
    if not ids.is_id(asked):
        raise NotFound(
            f"there is no instance {asked[:80]!r}", code="INSTANCE_NOT_FOUND", hint="ids look like work-1-a1"
        )
    return instances.get(db, asked)


def repository(db: Database, asked: str | None) -> str | None:
    """The path of the repository that is asked for by path or name; one that has no instance is FORBIDDEN."""
    if asked is None:
        return None
    names = rows.repo_names(glance.repositories(db))
    found = [path for path, name in names.items() if asked in (path, name)]
    if len(found) != 1:
        raise Denied(
            "no instance is of that repository, so nothing of it is shown",
            code="FORBIDDEN",
            hint="GET /api/v1/repos lists those that can be asked for",
        )
    return found[0]


def sse(name: str, data: Mapping[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()


async def outcome(
    site: Site, work: Awaitable[_T], told: Callable[[_T], Mapping[str, Any]], started: float
) -> bytes:
    """What came of it, or why nothing did: a stream that has begun tells of a failure as an event."""
    try:
        found = await work
    except Exception as error:  # noqa: BLE001  as for every other endpoint, where it becomes an answer
        meta = endpoint.ok(None, started=started)["_meta"]
        failure = endpoint.failure(error, site.settings.own_folders)[1]
        return sse("error", {"ok": False, "error": failure, "_meta": meta})
    return sse("result", endpoint.ok(told(found), started=started))


def event_stream(parts: AsyncIterator[bytes]) -> StreamingResponse:
    return StreamingResponse(parts, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


def route(site: Site, method: str, path: str, handle: Callable[[Request], Awaitable[Response]]) -> BaseRoute:
    """A route that answers by itself; what fails before its answer has begun becomes an envelope."""

    async def guarded(request: Request) -> Response:
        started = time.monotonic()
        try:
            return await handle(request)
        except Exception as error:  # noqa: BLE001  as for every other endpoint, where it becomes an answer
            return endpoint.failed(error, started=started, folders=site.settings.own_folders)

    return Route(path, guarded, methods=[method])

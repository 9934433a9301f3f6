"""The one page: a shell with what it shows first, for every address that a person can open."""

from __future__ import annotations

import functools
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, select_autoescape
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Match, Route
from starlette.types import Scope

from swarm_core.errors import SwarmError
from swarm_ui.web import endpoint, rows, static
from swarm_ui.web.endpoint import Visitor
from swarm_ui.web.threads import shared

if TYPE_CHECKING:
    from swarm_ui.web.site import Site

_NOW = "now"
# Every address and the module that draws it.
ADDRESSES = {
    "/": _NOW,
    "/i/{id}": "instance",
    "/graph": "graph",
    "/wall": "wall",
    "/missions": "missions",
    "/missions/{id}": "missions",
    "/inbox": "inbox",
    "/threads/{id}": "thread",
    "/events": "events",
    "/pulls": "pulls",
    "/health": "health",
}
ICONS = ("/favicon.svg", "/favicon.ico")
_HEALTH = "/health"
_FIRST = 60
_TEMPLATES = Path(__file__).with_name("templates")


def routes(site: Site) -> list[Route]:
    def shell(name: str) -> Callable[[Request], Awaitable[Response]]:
        async def show(request: Request) -> Response:
            boot = await shared(_boot, site, endpoint.visitor(request))
            first = (
                rows.by_cost(boot["instances"], datetime.now(UTC)) if name == _NOW and "instances" in boot else []
            )
            text = _render("shell.html", boot=boot, first=first[:_FIRST], **_links(name))
            return html(text, request.headers)

        return show

    shown = [_PageRoute(path, shell(name)) for path, name in ADDRESSES.items()]
    return [*shown, *(Route(path, _icon) for path in ICONS)]


def is_page(path: str, headers: Headers) -> bool:
    """Whether the request is for a page; `/health` is one only for a browser, a program gets JSON there."""
    if path == _HEALTH:
        return prefers_html(headers.get("accept", ""))
    return _pages().fullmatch(path) is not None


def prefers_html(accept: str) -> bool:
    """Whether HTML is wanted rather than JSON; a client that takes both alike gets JSON."""
    return _weight(accept, "text/html") > _weight(accept, "application/json")


def _render(name: str, **values: Any) -> str:
    return _templates().get_template(name).render(**values)


def html(text: str, headers: Headers, status: int = 200) -> Response:
    body = text.encode()
    small = static.packed(body, headers.get("accept-encoding", ""))
    if small is None:
        return HTMLResponse(body, status)
    return HTMLResponse(small, status, headers={"Content-Encoding": "gzip", "Vary": "Accept-Encoding"})


def notice(headers: Headers, status: int, **values: Any) -> Response:
    """A small page that needs no script."""
    files = static.files()
    styles = [files.url(name) for name in ("app.css", "notice.css")]
    return html(_render("notice.html", styles=styles, **values), headers, status)


class _PageRoute(Route):
    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] == "http" and scope["path"] == _HEALTH and not is_page(_HEALTH, Headers(scope=scope)):
            return Match.NONE, {}
        return super().matches(scope)


def _boot(site: Site, visitor: Visitor) -> dict[str, Any]:
    """What the page shows before it asks; a failure is shown by the page itself."""
    try:
        told = site.hub.boot(visitor)
    except SwarmError as error:
        me = {"name": visitor.name, "may_write": visitor.may_write}
        told = {"error": endpoint.failure(error, site.settings.own_folders)[1], "me": me}
    return {**told, "static": static.files().hash}


@functools.cache
def _links(name: str) -> dict[str, Any]:
    """What a page asks for at once; a module that is found only when another has come would cost a round trip."""
    files, own = static.files(), f"pages/{name}.js"
    modules = dict.fromkeys([*files.imported_by("app.js"), own, *files.imported_by(own)])
    return {
        "styles": [files.url(style) for style in ("app.css", "pages.css")],
        "script": files.url("app.js"),
        "modules": [files.url(module) for module in modules],
        "icons": files.url("icons.svg"),
    }


async def _icon(_: Request) -> Response:
    return Response(_favicon(), media_type="image/svg+xml", headers={"Cache-Control": "max-age=86400"})


@functools.cache
def _favicon() -> bytes:
    return (_TEMPLATES / "favicon.svg").read_bytes()


@functools.cache
def _templates() -> Environment:
    return Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=select_autoescape(default=True), auto_reload=False
    )


@functools.cache
def _pages() -> re.Pattern[str]:
    return re.compile("|".join(re.escape(a).replace(r"\{id\}", "[^/]+") for a in ADDRESSES))


def _weight(accept: str, kind: str) -> float:
    """How much a client wants a kind of answer: by its most exact entry that fits."""
    ranks = {kind: 3, kind.split("/")[0] + "/*": 2, "*/*": 1}
    best, weight = 0, 0.0
    for part in accept.lower().split(","):
        name, *parameters = (one.strip() for one in part.split(";"))
        if ranks.get(name, 0) > best:
            best = ranks[name]
            weight = next((_number(p[2:]) for p in parameters if p.startswith("q=")), 1.0)
    return weight


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0

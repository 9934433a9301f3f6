"""Coming in: a link's token becomes a cookie, and whoever has neither is told how to get one."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import Headers
from starlette.responses import RedirectResponse, Response
from starlette.types import Scope

from swarm_core.errors import SwarmError
from swarm_core.models import parse_iso
from swarm_core.ops.links import Entered
from swarm_ui.web import page
from swarm_ui.web.doors import Doors
from swarm_ui.web.threads import shared

_PARAMETER = "token"
# The longest a browser keeps a cookie; when a visit is over is decided here and not there.
_KEPT = 400 * 86400


def token(scope: Scope) -> str | None:
    """The link's token that a page is opened with; None without, when it is there twice, or to look ahead."""
    found = [value for name, value in _query(scope) if name == _PARAMETER]
    looks_ahead = scope["method"] != "GET" or "prefetch" in Headers(scope=scope).get("sec-purpose", "")
    return found[0] if len(found) == 1 and not looks_ahead else None


async def enter(doors: Doors, scope: Scope, given: str) -> Response | None:
    """The same address without the token, and the cookie of a new visit; None when the token opens nothing."""
    entered = await shared(doors.enter, given)
    if entered is None:
        return None
    answer = onward(scope)
    answer.set_cookie(
        doors.cookie, entered.secret, max_age=_lasts(entered), path="/", httponly=True, samesite="strict"
    )
    return answer


def onward(scope: Scope) -> Response:
    """To the same address without the token."""
    address, headers = _address(scope), Headers(scope=scope)
    if came_from_elsewhere(headers):
        return _again(address, headers, status=200)
    return RedirectResponse(address, status_code=303)


def came_from_elsewhere(headers: Headers) -> bool:
    """Whether a link on another site led here.

    A browser then leaves out strict cookies, after a redirect too; they come when our own page leads on.
    """
    navigates = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    return navigates and headers.get("sec-fetch-site") in ("cross-site", "same-site")


def not_in(scope: Scope, *, again: bool) -> Response:
    """Who has no visit; `again` when the browser may have left its cookie out."""
    headers = Headers(scope=scope)
    if again:
        return _again(_address(scope), headers, status=401)
    return _notice(
        headers,
        401,
        title="You are not signed in",
        text="This dashboard opens with a link. A link that may act is good once, and for 15 minutes.",
        command="swarm link",
        does="in a terminal on this machine, and open the link it prints.",
    )


def out_of_order(scope: Scope, status: int, error: SwarmError) -> Response:
    return _notice(
        Headers(scope=scope), status, title="This did not work", text=error.message, does=error.hint or ""
    )


def _again(address: str, headers: Headers, *, status: int) -> Response:
    return _notice(headers, status, title="One moment", text="The dashboard is opened.", again=address)


def _notice(
    headers: Headers,
    status: int,
    *,
    title: str,
    text: str,
    command: str = "",
    does: str = "",
    again: str | None = None,
) -> Response:
    return page.notice(headers, status, title=title, text=text, command=command, does=does, again=again)


def _lasts(entered: Entered) -> int:
    until = entered.visit.expires_at
    if until is None:
        return _KEPT
    return max(1, int((parse_iso(until) - datetime.now(UTC)).total_seconds()))


def _address(scope: Scope) -> str:
    """Path and query without the token; a page's path has one slash at its start, so it names no other host."""
    rest = urlencode([(name, value) for name, value in _query(scope) if name != _PARAMETER])
    return quote(scope["path"], safe="/:@-._~!$&'()*+,=") + (f"?{rest}" if rest else "")


def _query(scope: Scope) -> list[tuple[str, str]]:
    text = scope.get("query_string", b"").decode("latin-1")
    try:
        return parse_qsl(text, keep_blank_values=True, max_num_fields=100)
    except ValueError:
        return []

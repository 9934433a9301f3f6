"""One question to GitHub's API: sent once and as it is, and every failure an error that never carries the token.

PyGithub makes the request: authentication, address, encoding. The answer is read here, because PyGithub repeats a
202, follows a 301 with any verb and without its query, and lets threads that share a connection mix up requests.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import Any
from urllib.parse import SplitResult, quote, urljoin, urlsplit

import requests
import urllib3
from github import Auth, Github
from github.Requester import HTTPRequestsConnectionClass, Requester, RequestsResponse

from swarm_core.errors import ExternalFailure, InvalidInput
from swarm_core.forge import Gate, Quota, Seen
from swarm_core.models import iso, parse_iso

PER_PAGE = 100
_MOST_PAGES = 50
_MOST_BYTES = 32 * 1024 * 1024
_MOST_REDIRECTS = 3
_MOST_READINGS = 3
_PIECE = 64 * 1024
_LONGEST_WAY = timedelta(seconds=10)
_PATIENCE_S = 60.0  # what GitHub asks for when it names no time
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_KEEPS_VERB = frozenset({307, 308})
_TOKENS = re.compile(r"(?:gh[a-z]_|github_pat_)\w+|(?<=://)[^/\s@]+@")
_LIMIT_WORDS = ("rate limit", "abuse", "secondary")


@dataclass(frozen=True, slots=True)
class Answer:
    """`data` is the JSON that came, None without any."""

    status: int
    headers: Mapping[str, str]
    data: Any

    @property
    def etag(self) -> str:
        return self.headers.get("ETag", "")

    @property
    def said(self) -> str:
        """GitHub's own words, the details of a refused field included."""
        if not isinstance(self.data, dict):
            return "no message"
        errors = self.data.get("errors")
        texts = [self.data.get("message"), *(errors if isinstance(errors, list) else [errors])]
        return "; ".join(_words(text) for text in texts if text)[:300] or "no message"


@dataclass(frozen=True, slots=True)
class Question:
    """A list that may have many pages; `key` is where the answer keeps it, if not at the top."""

    path: str
    params: Mapping[str, str]
    key: str = ""


class Api:
    """GitHub's API of one host. Many threads may share it."""

    def __init__(
        self,
        base_url: str,
        *,
        host: str,
        token: str | None,
        gate: Gate | None,
        timeout_s: float,
        clock: Callable[[], datetime],
    ) -> None:
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidInput("GITHUB_API_URL is no http(s) address", code="INVALID_SETTING")
        self.host = host
        self.timeout_s = timeout_s
        self._token = token
        self._gate = gate
        self._clock = clock
        self._origin = _origin(parts)
        self._prefix = parts.path.rstrip("/")
        self._session = session_without_credentials()
        self._requester = Github(
            base_url=self._origin + self._prefix,
            auth=Auth.Token(token) if token else None,
            retry=None,
            seconds_between_requests=None,
            seconds_between_writes=None,
            user_agent="swarm",
        ).requester

    @property
    def is_encrypted(self) -> bool:
        return self._origin.startswith("https:")

    @property
    def graphql_path(self) -> str:
        return self._requester.graphql_url  # an address, because it is not below the prefix

    def ask(
        self,
        verb: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        etag: str = "",
        accept: Sequence[int] = (),
        resource: str = "core",
    ) -> Answer:
        """The answer, which is a failure only if its status is in `accept`; with an etag it may be a 304.

        `resource` is what GitHub counts the request for.
        """
        query, headers = dict(params or {}), {"If-None-Match": etag} if etag else {}
        for _ in range(_MOST_REDIRECTS + 1):
            answer = self._ask_once(verb, path, query, headers, body, resource)
            location = answer.headers.get("Location")
            if answer.status not in _REDIRECTS or not location or answer.status in accept:
                return self._checked(answer, accept)
            if verb != "GET" and answer.status not in _KEEPS_VERB:
                raise self.failure(answer.status, f"it redirects a {verb}")
            path, query = self._followed(answer.status, location, query)
        raise self.failure(None, "it redirects without an end")

    def read(self, questions: Sequence[Question], etag: str) -> Seen[list[list[Any]]]:
        """Every page of every list, or None if all of them are as they were when `etag` was given.

        The etag holds that of each page: where the last changed comes first, page 1 tells of all that is new or
        changed, but not of what leaves a later page.
        """
        known = _known_tags(etag, len(questions))
        changed = self._first_change(questions, known) if known else {}
        if known and not changed:
            return Seen(None, etag)
        lists, tags = [], []
        for number, question in enumerate(questions):
            items, of_pages = self._all_pages(question, changed.get(number, {}))
            lists.append(items)
            tags.append(of_pages)
        complete = all(tag for of_pages in tags for tag in of_pages)
        return Seen(lists, json.dumps(tags, separators=(",", ":")) if complete else "")

    def failure(self, status: int | None, said: str, *, hint: str = "", code: str = "") -> ExternalFailure:
        message = f"GitHub ({self.host}): {f'HTTP {status}: ' if status else ''}{said}"
        return ExternalFailure(
            self.cleaned(message),
            code=code or ("GITHUB_UNREACHABLE" if status is None or status >= 500 else "GITHUB_ERROR"),
            hint=self.cleaned(hint) or _hint(status),
            details={"host": self.host, "status": status},
        )

    def limited(self, answer: Answer) -> ExternalFailure:
        wait = self._wait(answer)
        retry_at = iso(self._clock() + timedelta(seconds=_PATIENCE_S if wait is None else wait))
        error = self.failure(
            answer.status, answer.said, hint=f"It may be asked again at {retry_at}.", code="GITHUB_RATE_LIMITED"
        )
        error.details["retry_at"] = retry_at
        return error

    def not_understood(self, problem: object) -> ExternalFailure:
        return self.failure(None, f"its answer was not understood ({problem})")

    def cleaned(self, text: str) -> str:
        """Without the token, however it is written, and without any other."""
        if self._token:
            text = text.replace(self._token, "***").replace(quote(self._token, safe=""), "***")
        return _TOKENS.sub("***", text)

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        """Failures to send or to receive become ours."""
        try:
            yield
        except (requests.Timeout, urllib3.exceptions.TimeoutError):
            raise self.failure(None, "it did not answer in time") from None
        except _TooLargeError:
            error = self.failure(None, "its answer is too large")
            error.details["too_large"] = True
            raise error from None
        except (requests.RequestException, urllib3.exceptions.HTTPError) as problem:
            raise self.failure(None, f"it cannot be reached ({type(problem).__name__})") from None
        except ValueError:
            raise self.not_understood("an address that is none") from None

    def _ask_once(
        self, verb: str, path: str, query: dict[str, str], headers: dict[str, str], body: Any, resource: str
    ) -> Answer:
        if self._gate is not None:
            self._gate.enter(resource)
        status, quota, retry_after = None, None, None
        try:
            sent = _Sent(self._session, self._origin, self.timeout_s)
            with self.translated():
                self._requester.requestJson(verb, path, dict(query), dict(headers), body, sent)
            status, received, raw = sent.answer
            answer = Answer(status, received, _json(raw))
            quota, retry_after = self._quota(received, resource), self._wait(answer)
        finally:
            if self._gate is not None:
                self._gate.leave(status=status, quota=quota, retry_after=retry_after)
        if status < 300 and raw and answer.data is None:
            raise self.not_understood("no JSON")
        return answer

    def _followed(self, status: int, location: str, query: dict[str, str]) -> tuple[str, dict[str, str]]:
        """The path below the API that a redirect leads to; to anywhere else nothing is sent."""
        with self.translated():
            target = urlsplit(urljoin(self._origin, location))
            is_here = _origin(target) == self._origin and target.path.startswith(f"{self._prefix}/")
        path = target.path.removeprefix(self._prefix)
        if not is_here:
            raise self.failure(
                status, "it redirects to another place", hint="Check GITHUB_API_URL and the remote."
            )
        return (f"{path}?{target.query}", {}) if target.query else (path, query)

    def _checked(self, answer: Answer, accept: Sequence[int]) -> Answer:
        status = answer.status
        if status < 300 or status == 304 or status in accept:
            return answer
        if status in (403, 429) and self._wait(answer) is not None:
            raise self.limited(answer)
        if status == 401:
            hint = "The token is not valid there; renew it." if self._token else "Set GITHUB_TOKEN."
            raise self.failure(status, answer.said, hint=hint, code="GITHUB_UNAUTHORIZED")
        if status == 403:
            raise self.failure(status, answer.said, hint=_what_is_needed(answer), code="GITHUB_UNAUTHORIZED")
        raise self.failure(status, answer.said)

    def _wait(self, answer: Answer) -> float | None:
        """For how many seconds GitHub wants no more requests, if it says so. GraphQL says it with a 200."""
        now = self._clock()
        asked = _seconds(answer.headers.get("Retry-After", ""), now - self._skew(answer.headers))
        if answer.status not in (200, 403, 429):
            return asked if answer.status >= 500 else None
        words = answer.said.lower() if answer.status != 200 or _has_errors(answer.data) else ""
        quota = self._quota(answer.headers)
        is_refused = answer.status != 200 or "rate limit" in words
        if asked is None and is_refused and quota is not None and quota.remaining == 0:
            asked = max(0.0, (parse_iso(quota.reset_at) - now).total_seconds())
        limited = answer.status == 429 or any(word in words for word in _LIMIT_WORDS)
        return _PATIENCE_S if asked is None and limited else asked

    def _quota(self, headers: Mapping[str, str], resource: str = "core") -> Quota | None:
        try:
            limit, remaining = (int(headers[f"X-RateLimit-{name}"]) for name in ("Limit", "Remaining"))
            reset_at = datetime.fromtimestamp(int(headers["X-RateLimit-Reset"]), UTC) + self._skew(headers)
        except (KeyError, ValueError, OverflowError, OSError):
            return None
        return Quota(limit, remaining, iso(reset_at), headers.get("X-RateLimit-Resource", resource))

    def _skew(self, headers: Mapping[str, str]) -> timedelta:
        """How far our clock is ahead of GitHub's; what may be the answer's way here counts as nothing."""
        try:
            ahead = self._clock() - parsedate_to_datetime(headers.get("Date", ""))
        except (TypeError, ValueError):
            return timedelta(0)
        return ahead if abs(ahead) > _LONGEST_WAY else timedelta(0)

    def _first_change(self, questions: Sequence[Question], known: list[list[str]]) -> dict[int, dict[int, Answer]]:
        """The first page that is not what it was, by its list and number; what is unchanged costs nothing."""
        for number, (question, tags) in enumerate(zip(questions, known, strict=True)):
            for page, tag in enumerate(tags, start=1):
                answer = self._page(question, page, etag=tag)
                if answer.status != 304:
                    return {number: {page: answer}}
        return {}

    def _all_pages(self, question: Question, ready: dict[int, Answer]) -> tuple[list[Any], list[str]]:
        """The items and the pages' etags; `ready` are pages that have come already."""
        for _ in range(_MOST_READINGS):
            items: list[Any] = []
            tags: list[str] = []
            for page in range(1, _MOST_PAGES + 1):
                answer = ready.get(page) or self._page(question, page)
                found = self._items(question, answer)
                items += found
                tags.append(answer.etag)
                # A page that is full may be the last, but then the next thing to come is on another page.
                if len(found) < PER_PAGE and 'rel="next"' not in answer.headers.get("Link", ""):
                    break
            if len(tags) == 1 or not tags[0]:
                break
            again = self._page(question, 1, etag=tags[0])
            if again.status == 304:
                break
            ready = {1: again}  # something moved between the pages while they were read
        return items, tags

    def _page(self, question: Question, page: int, *, etag: str = "") -> Answer:
        params = {**question.params, "per_page": str(PER_PAGE), "page": str(page)}
        return self.ask("GET", question.path, params=params, etag=etag)

    def _items(self, question: Question, answer: Answer) -> list[Any]:
        found = answer.data
        if question.key:
            found = found.get(question.key) if isinstance(found, dict) else None
        if not isinstance(found, list):
            raise self.not_understood("no list")
        return found


class _TooLargeError(requests.RequestException):
    """There is more of an answer than anybody reads."""


class _Watched:
    """A connection whose headers must all come within its timeout, which by itself is one for each piece."""

    sock: Any
    timeout: Any

    def getresponse(self) -> Any:
        late = threading.Event()
        watchdog = threading.Timer(float(self.timeout), _hang_up, [self.sock, late])
        watchdog.daemon = True
        watchdog.start()
        try:
            response = super().getresponse()  # type: ignore[misc]
        except (OSError, HTTPException):
            if late.is_set():
                raise TimeoutError from None
            raise
        finally:
            watchdog.cancel()
        if late.is_set():  # headers that end in the middle pass for whole ones
            response.close()
            raise TimeoutError
        return response


class _Connection(_Watched, urllib3.connection.HTTPConnection):
    pass


class _EncryptedConnection(_Watched, urllib3.connection.HTTPSConnection):
    pass


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Connection


class _EncryptedPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _EncryptedConnection


class _Adapter(requests.adapters.HTTPAdapter):
    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, **options)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, *args: Any, **options: Any) -> Any:
        manager = super().proxy_manager_for(*args, **options)
        manager.pool_classes_by_scheme = _POOLS
        return manager


_POOLS = {"http": _Pool, "https": _EncryptedPool}


def _hang_up(sock: Any, late: threading.Event) -> None:
    late.set()
    with contextlib.suppress(OSError):  # it has ended by itself
        sock.shutdown(socket.SHUT_RDWR)


class _Sent(HTTPRequestsConnectionClass):
    """Takes one request from PyGithub, sends it and keeps the answer, of which PyGithub sees only that it came."""

    def __init__(self, session: requests.Session, origin: str, timeout_s: float) -> None:
        self.session = session
        self._origin = origin
        self._timeout_s = timeout_s
        self.answer: tuple[int, Mapping[str, str], bytes] = (0, {}, b"")

    def getresponse(self) -> RequestsResponse:
        url = self._origin + self.url
        with opened(self.session, self.verb, url, self._timeout_s, headers=self.headers, data=self.input) as (
            response,
            pieces,
        ):
            body = bytearray()
            for piece in pieces:
                body += piece
                if len(body) > _MOST_BYTES:
                    raise _TooLargeError
            self.answer = response.status_code, response.headers, bytes(body)
        came = requests.Response()
        came.status_code = 200
        return RequestsResponse(came)


def session_without_credentials() -> requests.Session:
    session = requests.Session()
    session.auth = Requester.noopAuth  # or it would look for some in ~/.netrc
    for scheme in ("http://", "https://"):
        session.mount(scheme, _Adapter())
    return session


@contextlib.contextmanager
def opened(
    session: requests.Session,
    verb: str,
    url: str,
    timeout_s: float,
    *,
    headers: Mapping[str, str] | None = None,
    data: Any = None,
) -> Iterator[tuple[requests.Response, Iterator[bytes]]]:
    """An answer and its body in pieces, which must all come within the timeout, as its headers must before.

    Redirects are not followed.
    """
    deadline = time.monotonic() + timeout_s

    def pieces() -> Iterator[bytes]:
        while piece := response.raw.read1(_PIECE, decode_content=True):
            yield piece
            if time.monotonic() > deadline:
                raise requests.Timeout

    with session.request(
        verb, url, headers=headers, data=data, timeout=timeout_s, allow_redirects=False, stream=True
    ) as response:
        yield response, pieces()


def segment(text: str) -> str:
    """One part of a path, whatever is in it."""
    if text in ("", ".", ".."):
        raise InvalidInput(f"{text!r} is no name at GitHub")
    return quote(text, safe="")


def _origin(parts: SplitResult) -> str:
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    port = f":{parts.port}" if parts.port not in (None, {"http": 80, "https": 443}.get(parts.scheme)) else ""
    return f"{parts.scheme}://{host}{port}"


def _known_tags(etag: str, lists: int) -> list[list[str]]:
    try:
        found = json.loads(etag) if etag else []
    except ValueError:
        return []
    if not isinstance(found, list) or len(found) != lists:
        return []
    good = all(isinstance(tags, list) and tags and all(isinstance(t, str) and t for t in tags) for tags in found)
    return found if good else []


def _json(body: bytes) -> Any:
    try:
        return json.loads(body) if body else None
    except (ValueError, RecursionError):
        return None


def _has_errors(data: Any) -> bool:
    return isinstance(data, dict) and bool(data.get("errors"))


def _words(said: object) -> str:
    if not isinstance(said, dict):
        return str(said)
    return str(said.get("message") or " ".join(str(said[k]) for k in ("resource", "field", "code") if k in said))


def _seconds(retry_after: str, now: datetime) -> float | None:
    """Retry-After is a number of seconds or a date."""
    if retry_after.strip().isdecimal():
        return min(float(retry_after), 86400.0)
    try:
        at = parsedate_to_datetime(retry_after)
    except (TypeError, ValueError):
        return None
    return max(0.0, (at - now).total_seconds()) if at.tzinfo else None


def _what_is_needed(answer: Answer) -> str:
    headers = answer.headers
    if headers.get("X-GitHub-SSO", "").startswith("required"):
        return "The organisation wants the token to be authorised for single sign-on."
    if needed := headers.get("X-Accepted-GitHub-Permissions"):
        return f"The token needs the permission {needed}."
    if needed := headers.get("X-Accepted-OAuth-Scopes"):
        return f"The token needs one of the scopes {needed}; it has {headers.get('X-OAuth-Scopes') or 'none'}."
    return "The token may not do this; it needs the scope `repo`, or write access to contents and pull requests."


def _hint(status: int | None) -> str:
    if status == 404:
        return "There is none, or the token may not see the repository."
    if status is not None and status >= 500:
        return "GitHub has a problem; try again later."
    if status is not None:
        return "GitHub did not accept the request as it was."
    return "Check the network, the proxy and the host name, then try again."

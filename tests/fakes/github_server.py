"""A strict stand-in for GitHub on loopback: repositories, quota, ETags, pages, renames, and every way of failing.

Every request and every answer is held against what GitHub publishes. What that does not have is a fault, which
fails the test at the end.
"""

from __future__ import annotations

import contextlib
import json
import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

from tests.fakes import github_graphql
from tests.fakes.github_front import KINDS, Front, LogHost
from tests.fakes.github_repo import Repo
from tests.fakes.github_routes import ROUTES, Call, Refused, Reply, Route
from tests.fakes.github_schemas import editions

TOKEN = "ghp_aSecretOfTheTests0123456789"
QUOTA = 5000
LIMITED = "API rate limit exceeded for user ID 1."


class Request(NamedTuple):
    """`path` is as it came, with its query; a request that was not answered has the status 0."""

    method: str
    path: str
    status: int


@dataclass
class Failure:
    kind: str
    times: int
    method: str
    path: str


class GitHubServer:
    """`now` is its clock. `counted` are the requests that cost quota, which is new every hour."""

    def __init__(
        self,
        *,
        prefix: str = "/api/v3",
        token: str = TOKEN,
        scopes: tuple[str, ...] | None = ("repo",),
        quota: int = QUOTA,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.prefix, self.token, self.scopes, self.quota, self.now = prefix, token, scopes, quota, now
        self.has_graphql = True
        self.counted = 0
        self.requests: list[Request] = []
        self.authorizations: list[str | None] = []
        self.faults: list[str] = []
        self.repos: dict[str, Repo] = {}
        self.moved: dict[str, Repo] = {}
        self.logs = LogHost()
        self.closing = threading.Event()
        self.lock = threading.RLock()
        self.failures: list[Failure] = []
        self._window: tuple[datetime, int] | None = None
        self._front = Front(self)

    @property
    def port(self) -> int:
        return self._front.port

    @property
    def api_url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.prefix}"

    @property
    def remaining(self) -> int:
        return self.quota - self._used()

    @property
    def reset_at(self) -> datetime:
        """When the quota is whole again."""
        self._used()
        return (self._window[0] if self._window else self.now()) + timedelta(hours=1)

    def repo(self, slug: str = "acme/widgets", **more: Any) -> Repo:
        """The repository, made when it is asked for first."""
        if slug not in self.repos:
            owner, _, name = slug.partition("/")
            self.repos[slug] = Repo(
                1000 + len(self.repos) + len(self.moved), owner, name, lambda: self.now(), **more
            )
        return self.repos[slug]

    def rename(self, old: str, new: str) -> None:
        """Requests to the old name are redirected, as long as nobody takes it."""
        repo = self.moved[old] = self.repos[new] = self.repos.pop(old)
        repo.owner, _, repo.name = new.partition("/")

    def fail_next(self, kind: str, times: int = 1, *, method: str = "", path: str = "") -> None:
        """The next requests, or those with a method and `path` in theirs, fail; "lost" loses only the answer."""
        assert kind in KINDS, kind
        with self.lock:
            self.failures.append(Failure(kind, times, method, path))

    def exhaust(self) -> None:
        """Use up the quota of this hour."""
        self._window = (self._window[0] if self._window else self.now(), self.quota)

    def go_down(self) -> None:
        """Connections are refused, those that are open are cut."""
        self._front.stop(hold_port=True)

    def come_back(self) -> None:
        self._front.start()

    def asked(self, method: str = "", path: str = "") -> list[Request]:
        """The requests with a method and with `path` in theirs."""
        return [r for r in self.requests if r.method.startswith(method) and path in r.path]

    def close(self) -> None:
        self.closing.set()
        self._front.stop(hold_port=False)
        self.logs.close()

    def failure_of(self, method: str, path: str) -> str:
        with self.lock:
            for failure in self.failures:
                if failure.times and method.startswith(failure.method) and failure.path in path:
                    failure.times -= 1
                    return failure.kind
        return ""

    def record(self, method: str, path: str, status: int) -> None:
        self.requests.append(Request(method, path, status))

    def headers(self) -> dict[str, str]:
        shown = {} if self.scopes is None else {"X-OAuth-Scopes": ", ".join(self.scopes)}
        return shown | {
            "X-RateLimit-Limit": str(self.quota),
            "X-RateLimit-Remaining": str(self.remaining),
            "X-RateLimit-Reset": str(math.ceil(self.reset_at.timestamp())),
            "X-RateLimit-Resource": "core",
        }

    def count(self) -> None:
        used = self._used()
        self._window = (self._window[0] if self._window else self.now(), used + 1)
        self.counted += 1

    def _used(self) -> int:
        if self._window and self.now() - self._window[0] >= timedelta(hours=1):
            self._window = None
        return self._window[1] if self._window else 0

    def check_request(self, method: str, target: str, body: bytes) -> None:
        """What GitHub's own description of its API does not have is a fault."""
        if self._is_rest(target):
            below = target.removeprefix(self.prefix)
            self.faults += [fault for one in editions() for fault in one.asked(method, below, body)]

    def checked(self, method: str, target: str, reply: Reply) -> Reply:
        """The answer with the fields that no test cares about; what GitHub does not send is a fault."""
        if not self._is_rest(target):
            return reply
        below, whole = urlsplit(target).path.removeprefix(self.prefix), reply.data
        for one in editions():
            made = one.whole(method, below, reply.status, reply.data)
            self.faults += one.answered(method, below, reply.status, made)
            whole = made if one.name == "github.com" else whole
        return replace(reply, data=whole)

    def _is_rest(self, target: str) -> bool:
        return target.startswith(f"{self.prefix}/") and not urlsplit(target).path.endswith("/graphql")

    def answer(self, method: str, target: str, authorization: str | None, body: bytes) -> Reply:
        """What GitHub says, before anything is made of pages and ETags."""
        parts = urlsplit(target)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        anonymous = authorization is None
        if not anonymous and authorization not in (f"token {self.token}", f"Bearer {self.token}"):
            raise Refused(401, "Bad credentials")
        if self.remaining <= 0 and parts.path != f"{self.prefix}/rate_limit":
            raise Refused(403, LIMITED, costs=False)
        path = parts.path.removeprefix(self.prefix)
        if (method, parts.path) == ("POST", self.prefix.removesuffix("/v3") + "/graphql"):
            return self._graphql(body, anonymous)
        if not parts.path.startswith(f"{self.prefix}/"):
            raise self._unknown(method, target)
        if (method, path) == ("GET", "/rate_limit"):
            return Reply({"rate": {"limit": self.quota, "remaining": self.remaining}}, costs=False)
        found = self._repo_of(method, path, parts.query)
        if isinstance(found, Reply):
            return found
        repo, below = found
        if anonymous and (repo.private or method != "GET"):
            raise Refused(404 if repo.private else 401, "Not Found" if repo.private else "Requires authentication")
        return self._routed(method, repo, below, query, body, target)

    def _graphql(self, body: bytes, anonymous: bool) -> Reply:
        """GitHub follows a rename here without a redirect."""
        asked = _json(body)
        if anonymous:
            raise Refused(401, "This endpoint requires you to be authenticated.")
        if not self.has_graphql:
            raise Refused(404, "Not Found")
        if not isinstance(asked, dict) or asked.keys() != {"query", "variables"}:
            raise Refused(400, "Problems parsing JSON")
        slug = f"{asked['variables'].get('owner')}/{asked['variables'].get('name')}"
        repo = self.repos.get(slug) or self.moved.get(slug)
        if repo is not None:
            repo.refresh()
        reply = github_graphql.answer(repo, asked["query"])
        self.faults += github_graphql.faults(asked["query"], reply)
        return Reply(reply, headers={"X-RateLimit-Resource": "graphql"})

    def _repo_of(self, method: str, path: str, query: str) -> Reply | tuple[Repo, str]:
        kind, *words = path.strip("/").split("/")
        if kind == "repositories" and words:
            by_id = {str(repo.id): repo for repo in self.repos.values()}
            if words[0] in by_id:
                return by_id[words[0]], "/".join(["", *words[1:]])
        if kind == "repos" and len(words) >= 2:
            slug, below = "/".join(words[:2]), "/".join(["", *words[2:]])
            if slug in self.repos:
                return self.repos[slug], below
            if slug in self.moved:
                url = f"{self.api_url}/repositories/{self.moved[slug].id}{below}{f'?{query}' if query else ''}"
                return Reply({"message": "Moved", "url": url}, 301 if method == "GET" else 307, {"Location": url})
            raise Refused(404, "Not Found")
        raise self._unknown(method, path)

    def _routed(
        self, method: str, repo: Repo, below: str, query: dict[str, str], body: bytes, target: str
    ) -> Reply:
        for route in ROUTES:
            match = route.path.fullmatch(below)
            if match and route.method == method:
                self._check_query(route, query, target)
                repo.refresh()
                reply = route.answer(Call(repo, match.groupdict(), query, _json(body), self.logs.keep))
                return _paged(self, repo, below, query, reply)
        raise self._unknown(method, target)

    def _check_query(self, route: Route, query: dict[str, str], target: str) -> None:
        """GitHub overlooks what it does not know; a test must not."""
        if query.keys() - route.query:
            self.faults.append(f"unknown parameter: {route.method} {target}")

    def _unknown(self, method: str, target: str) -> Refused:
        self.faults.append(f"unknown request: {method} {target}")
        return Refused(404, "Not Found")


def _paged(github: GitHubServer, repo: Repo, below: str, query: dict[str, str], reply: Reply) -> Reply:
    """A page of a list, with links to the others by the repository's id, as GitHub writes them."""
    if reply.rows is None:
        return reply
    page, size = int(query.get("page", "1")), min(int(query.get("per_page", "30")), 100)
    last = max(1, -(-len(reply.rows) // size))
    others = {"prev": page - 1, "next": page + 1, "first": 1, "last": last}
    wanted = {"prev": page > 1, "next": page < last, "first": page > 1, "last": page < last}
    links = [
        f'<{github.api_url}/repositories/{repo.id}{below}?{urlencode({**query, "page": other})}>; rel="{name}"'
        for name, other in others.items()
        if wanted[name]
    ]
    headers = reply.headers | ({"Link": ", ".join(links)} if links else {})
    return Reply(reply.wrap(reply.rows[(page - 1) * size : page * size]), reply.status, headers)


def _json(body: bytes) -> Any:
    try:
        return json.loads(body) if body else None
    except ValueError:
        return None


@contextlib.contextmanager
def running(**options: Any) -> Iterator[GitHubServer]:
    """A server with its log host; a request that GitHub would not know fails the test here."""
    server = GitHubServer(**options)
    try:
        yield server
    finally:
        server.close()
    assert server.faults == []

"""A stand-in for GitHub, a clock that stands still until it is moved, and forges that ask it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from swarm_core.errors import ExternalFailure
from swarm_core.forge import Draft, Quota
from swarm_core.github import GitHubForge
from tests.fakes import github_server
from tests.fakes.github_server import GitHubServer


class Clock:
    def __init__(self) -> None:
        self.time = datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.time

    def move(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


class Gate:
    """Notes every request and its end; `closed` is raised instead of letting one through, as after `most`."""

    def __init__(self) -> None:
        self.entered = 0
        self.resources: list[str] = []
        self.left: list[tuple[int | None, Quota | None, float | None]] = []
        self.closed: Exception | None = None
        self.most: int | None = None

    def enter(self, resource: str) -> None:
        if self.closed is not None:
            raise self.closed
        if self.entered == self.most:
            raise ExternalFailure("no more", code="GITHUB_RATE_LIMITED", hint="later")
        self.entered += 1
        self.resources.append(resource)

    def leave(self, *, status: int | None, quota: Quota | None, retry_after: float | None) -> None:
        self.left.append((status, quota, retry_after))

    @property
    def statuses(self) -> list[int | None]:
        return [status for status, _, _ in self.left]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(clock: Clock) -> Iterator[GitHubServer]:
    with github_server.running(now=clock) as running:
        running.repo()
        yield running


def forge_on(server: GitHubServer, slug: str = "acme/widgets", **options: Any) -> GitHubForge:
    owner, _, name = slug.partition("/")
    given = {"token": server.token, "api_url": server.api_url, "clock": server.now, **options}
    return GitHubForge("127.0.0.1", owner, name, **given)


def draft(head: str = "work/a", **more: Any) -> Draft:
    return Draft("A title", "A body", head, "main", "a" * 40, **more)

"""Many pull requests at GitHub since the last look: one question about all, more only about what changed.

Their ETags would not do: the repository is part of every pull request, so a push to any branch changes them all.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

from swarm_core.errors import ExternalFailure
from swarm_core.forge import Check, Comment, Known, Look, RemotePull, Review, Seen
from swarm_core.models import parse_iso

T = TypeVar("T")
_SETTLED = timedelta(seconds=5)
_EVERYONE = frozenset({"GITHUB_RATE_LIMITED", "GITHUB_UNAUTHORIZED"})
_NOTHING = "0"  # in place of the etag of what is not there

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Now:
    """A pull request now. Checks are None when they are not known yet, and so are the numbers of what is said."""

    pull: RemotePull
    checks: list[Check] | None = None
    reviews: int | None = None
    comments: int | None = None


class Source(Protocol):
    def checks(self, commit: str, etag: str) -> Seen[list[Check]]: ...

    def reviews(self, number: int, etag: str) -> Seen[list[Review]]: ...

    def comments(self, number: int, etag: str) -> Seen[list[Comment]]: ...


def look(source: Source, known: Sequence[Known], now: Mapping[int, Now], moment: datetime) -> dict[int, Look]:
    """`now` has every pull request that is there, with its checks if they are known.

    What GitHub cannot tell of one of them stays as it was, unless that is so for all.
    """
    looks: dict[int, Look] = {}
    failures: list[ExternalFailure] = []
    for one in known:
        if one.number not in now:
            continue
        try:
            looks[one.number] = _look(source, one, now[one.number], moment)
        except ExternalFailure as error:
            if error.code in _EVERYONE or error.details.get("status") is None:
                raise
            log.warning("pull request #%d cannot be looked at: %s", one.number, error.message)
            failures.append(error)
            looks[one.number] = Look(_as_it_was(now[one.number].pull, one), None, None, None, one.etags)
    if failures and len(failures) == len(looks):
        raise failures[0]
    return looks


def _look(source: Source, known: Known, now: Now, moment: datetime) -> Look:
    """Whatever people do changes the pull request's time; checks do not."""
    pull, found, had = now.pull, now.checks, known.etags
    if pull.state != "open":
        return Look(pull, None, None, None, had)
    same = had.get("head") == pull.head_commit
    rollup = hashlib.sha256(repr(found).encode()).hexdigest() if found is not None else ""
    checks: Seen[list[Check]] = Seen(None if same and rollup == had.get("rollup") else found, "")
    if found is None:
        checks = source.checks(pull.head_commit, had.get("checks", "") if same else "")
    moved = had.get("updated_at") != pull.updated_at

    def said(count: int | None, etag: str, ask: Callable[[int, str], Seen[list[T]]]) -> Seen[list[T]]:
        if count == 0:
            return Seen(None if etag == _NOTHING else [], _NOTHING)
        before = "" if etag == _NOTHING else etag
        return Seen(None, etag) if before and not moved else ask(known.number, before)

    reviews = said(now.reviews, had.get("reviews", ""), source.reviews)
    comments = said(now.comments, had.get("comments", ""), source.comments)
    # GitHub's times are whole seconds: what comes in the same second as this look must not be overlooked.
    settled = bool(pull.updated_at) and parse_iso(pull.updated_at) < moment - _SETTLED
    etags = {
        "head": pull.head_commit,
        "rollup": rollup,
        "checks": checks.etag,
        "reviews": reviews.etag,
        "comments": comments.etag,
        "updated_at": pull.updated_at if settled else "",
    }
    return Look(pull, checks.value, reviews.value, comments.value, etags)


def _as_it_was(pull: RemotePull, known: Known) -> RemotePull:
    return replace(pull, head_commit=known.head_commit, updated_at=known.updated_at, mergeable=None)

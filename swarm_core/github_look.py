"""Many pull requests at GitHub since the last look: one question about all, more only about what changed.

Their ETags would not do: the repository is part of every pull request, so a push to any branch changes them all.
Where there is no such question they are used all the same.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

from swarm_core.errors import ExternalFailure
from swarm_core.forge import Check, CheckState, Comment, Known, Look, RemotePull, Review, Seen
from swarm_core.models import parse_iso

T = TypeVar("T")
_SETTLED = timedelta(seconds=5)
_LIMITED = "GITHUB_RATE_LIMITED"
_EVERYONE = frozenset({_LIMITED, "GITHUB_UNAUTHORIZED"})
_MOST_SUMMARIES = 10  # of one pull request in one look; whoever has more failures has read enough
_NOTHING = "0"  # in place of the etag of what is not there

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Now:
    """A pull request now. Checks are None when they are not known yet, and so are the numbers of what is said.

    `memory` is the pull request with its etag, where it was asked for by itself.
    """

    pull: RemotePull
    checks: list[Check] | None = None
    reviews: int | None = None
    comments: int | None = None
    memory: str = ""


class Source(Protocol):
    def checks(self, commit: str, etag: str) -> Seen[list[Check]]: ...

    def reviews(self, number: int, etag: str) -> Seen[list[Review]]: ...

    def comments(self, number: int, etag: str) -> Seen[list[Comment]]: ...

    def summary(self, check: Check) -> str: ...


def look(source: Source, known: Sequence[Known], now: Mapping[int, Now], moment: datetime) -> dict[int, Look]:
    """`now` has every pull request that is there, with its checks if they are known.

    What GitHub cannot tell of one of them stays as it was, unless that is so for all. So does the rest when a
    limit is met on the way: what was seen before it need not be asked for again.
    """
    looks: dict[int, Look] = {}
    failures: list[ExternalFailure] = []
    for one in known:
        if one.number not in now:
            continue
        try:
            looks[one.number] = _look(source, one, now[one.number], moment)
        except ExternalFailure as error:
            if error.code == _LIMITED and len(looks) > len(failures):
                rest = [one for one in known if one.number in now and one.number not in looks]
                return looks | {one.number: _unseen(one, now[one.number].pull) for one in rest}
            if error.code in _EVERYONE or error.details.get("status") is None:
                raise
            log.warning("pull request #%d cannot be looked at: %s", one.number, error.message)
            failures.append(error)
            looks[one.number] = _unseen(one, now[one.number].pull)
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
    summaries = had.get("summaries", "")
    checks: Seen[list[Check]] = Seen(None, "")
    if found is None:
        checks = source.checks(pull.head_commit, had.get("checks", "") if same else "")
    elif not same or rollup != had.get("rollup"):
        told, summaries = _summed_up(source, found, summaries)
        checks = Seen(told, "")
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
        "summaries": summaries,
        "pull": now.memory,
        "updated_at": pull.updated_at if settled else "",
    }
    return Look(pull, checks.value, reviews.value, comments.value, etags)


def _summed_up(source: Source, found: list[Check], had: str) -> tuple[list[Check], str]:
    """The checks with what those that failed have found, and that for the next look: it is asked for once."""
    before = _summaries(had)
    failed = [check for check in found if check.state == CheckState.FAILED and check.fault and not check.summary]
    new = [check for check in failed if check.id not in before][:_MOST_SUMMARIES]
    asked = {check.id: source.summary(check) for check in new}
    known = {check.id: (before | asked).get(check.id, "") for check in failed}
    told = [replace(check, summary=known.get(check.id, check.summary)) for check in found]
    return told, json.dumps(known) if known else ""


def _summaries(had: str) -> dict[str, str]:
    try:
        found = json.loads(had) if had else {}
    except ValueError:
        return {}
    return {str(key): str(said) for key, said in found.items()} if isinstance(found, dict) else {}


def _unseen(known: Known, pull: RemotePull) -> Look:
    as_it_was = replace(pull, head_commit=known.head_commit, updated_at=known.updated_at, mergeable=None)
    return Look(as_it_was, None, None, None, known.etags)

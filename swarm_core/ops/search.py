"""Search as people ask for it: an instance by id or name, times as dates or as how long ago."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta

from swarm_core.errors import InvalidInput
from swarm_core.models import Hit, iso, parse_iso
from swarm_core.ops.context import Context
from swarm_core.store import search

_SPAN = re.compile(r"([0-9]{1,6})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_TICK = timedelta(milliseconds=1)


def find(
    context: Context,
    query: str,
    *,
    kinds: Sequence[str],
    instance_id: str | None,
    since: str | None,
    until: str | None,
    limit: int,
    catch_up: bool = True,
) -> list[Hit]:
    now = parse_iso(context.db.now())
    first = moment(since, now) if since is not None else None
    last = moment(until, now, end=True) if until is not None else None
    if first is not None and last is not None and first > last:
        raise InvalidInput(f"nothing is after {first} and before {last}", hint="swap since and until")
    if catch_up and search.behind(context.db):
        context.report("indexing what is new")
    return search.find(
        context.db,
        query,
        kinds=kinds,
        instance_id=instance_id,
        since=first,
        until=last,
        limit=limit,
        indexes=catch_up,
    )


def moment(text: str, now: datetime, *, end: bool = False) -> str:
    """A time (UTC unless it says otherwise), a span before now such as `2h`, or a date: its start or its `end`."""
    try:
        return iso(_moment(text.strip(), now, end=end))
    except (ValueError, OverflowError):
        raise InvalidInput(
            f"{text[:80]!r} is no time", hint="for example 2026-01-31, 2026-01-31T14:00, 30m, 2h, 3d or 1w"
        ) from None


def _moment(text: str, now: datetime, *, end: bool) -> datetime:
    span = _SPAN.fullmatch(text)
    if span is not None:
        return now - timedelta(**{_UNITS[span[2]]: int(span[1])})
    try:
        day = date.fromisoformat(text)
    except ValueError:
        exact = datetime.fromisoformat(text)
        return exact if exact.tzinfo else exact.replace(tzinfo=UTC)
    begin = datetime(day.year, day.month, day.day, tzinfo=UTC)
    return begin + timedelta(days=1) - _TICK if end else begin

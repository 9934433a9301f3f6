"""Retention: what is old and no longer needed is deleted, a little at a time."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from swarm_core import cancel, files
from swarm_core.config import Settings
from swarm_core.errors import SwarmError
from swarm_core.models import Preserved, as_json, iso, parse_iso
from swarm_core.ops.context import Context
from swarm_core.store import events, instances, retention
from swarm_core.store.database import Database

_FIRST_AFTER = 600.0
_EVERY = 86_400.0
_LINKS_DAYS = 30.0  # a visit lasts while it was seen in so many days
_MB = 1 << 20


@dataclass(slots=True)
class Pruned:
    """How many rows, refs and log files went, or would go."""

    events: int = 0
    messages: int = 0
    feedback: int = 0
    links: int = 0
    checks: int = 0
    preserved: int = 0
    logs: int = 0


def prune(context: Context, *, dry_run: bool) -> Pruned:
    done = Pruned()
    if dry_run:
        with context.db.reader() as db:
            found = retention.count(
                db, events_before=_events_before(context), messages_before=_messages_before(context)
            )
            for name, number in found.items():
                setattr(done, name, number)
        done.preserved = len(_old_preserved(context))
        done.logs = len(_long_logs(context.settings))
        return done
    for _ in _steps(context, done, actor="operator"):
        context.report(f"{done.events} events, {done.messages} messages")
        cancel.check()
    return done


class Janitor:
    """The coordinator's part: once a day, one short step at every look."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._due = time.monotonic() + _FIRST_AFTER
        self._steps: Iterator[None] | None = None

    def look(self) -> None:
        if self._steps is None and time.monotonic() < self._due:
            return
        if self._steps is None:
            self._due = time.monotonic() + _EVERY
            self._steps = _steps(self._context, Pruned(), actor="supervisor")
        try:
            next(self._steps)
        except StopIteration:
            self._steps = None
        except BaseException:
            self._steps = None
            raise


def _steps(context: Context, done: Pruned, *, actor: str) -> Iterator[None]:
    """Delete everything that may go, counted in `done`; killed between two steps, the next run goes on."""
    db = context.db
    if before := _events_before(context):
        yield from _old_events(db, before, done)
        yield from _old_checks(db, before, done)
        done.links += retention.delete_links(db, min(before, _days_ago(context, _LINKS_DAYS)))
        yield
    if before := _messages_before(context):
        yield from _old_messages(db, before, done)
    if done.events or done.messages or done.feedback:
        row: int | None = 0
        while row is not None:
            row = retention.sweep_index(db, after=row)
            yield
    yield from _forget_preserved(context, done)
    for log in _long_logs(context.settings):
        _set_aside(log)
        done.logs += 1
    told = {name: number for name, number in as_json(done).items() if number}
    if told:
        with db.write():
            events.add(db, "data:pruned", actor=actor, metadata=told)


def _old_events(db: Database, before: str, done: Pruned) -> Iterator[None]:
    with db.reader() as reader:
        until = retention.last_event(reader, before)
    after: int | None = 0
    while after is not None:
        gone, after = retention.delete_events(db, before, after=after, until=until)
        done.events += gone
        yield


def _old_checks(db: Database, before: str, done: Pruned) -> Iterator[None]:
    after: retention.Key | None = retention.Key("", "")
    while after is not None:
        gone, after = retention.delete_checks(db, before, after=after)
        done.checks += gone
        yield


def _old_messages(db: Database, before: str, done: Pruned) -> Iterator[None]:
    after: int | None = 0
    while after is not None:
        gone, after = retention.delete_feedback(db, before, after=after)
        done.feedback += gone
        yield
    after = 0
    while after is not None:
        gone, after = retention.delete_messages(db, before, after=after)
        done.messages += gone
        yield


def _forget_preserved(context: Context, done: Pruned) -> Iterator[None]:
    """The ref first: killed in between, the row still names a ref that is gone, and goes the next time."""
    for one in _old_preserved(context):
        instance = instances.get(context.db, one.instance_id)
        try:
            context.host(instance).forget_preserved(one.repo_path, one.ref, one.commit)
        except SwarmError:
            continue  # its repository is gone or does not answer; the ref may still be there
        with context.db.write():
            retention.forget_preserved(context.db, one.ref)
        done.preserved += 1
        yield


def _old_preserved(context: Context) -> list[Preserved]:
    before = _before(context, context.settings.number("keep_preserved_days"))
    return retention.old_preserved(context.db, before) if before else []


def _long_logs(settings: Settings) -> list[Path]:
    most = settings.integer("keep_log_mb") * _MB
    if not most or not settings.logs.is_dir():
        return []
    return [path for path in sorted(settings.logs.glob("*.log")) if path.lstat().st_size > most]


def _set_aside(log: Path) -> None:
    """Copy and empty it, because its process has it open and goes on appending."""
    old = log.with_name(f"{log.name}.old")
    old.unlink(missing_ok=True)
    with files.errors():
        fd = files.open_private(log, os.O_RDWR)
        with os.fdopen(fd, "rb+") as source:
            sink_fd = files.open_private(old, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            with os.fdopen(sink_fd, "wb") as sink:
                shutil.copyfileobj(source, sink, _MB)
            source.truncate(0)


def _events_before(context: Context) -> str:
    return _before(context, context.settings.number("keep_events_days"))


def _messages_before(context: Context) -> str:
    return _before(context, context.settings.number("keep_messages_days"))


def _before(context: Context, days: float) -> str:
    """Older than this may go; empty when it is kept for ever."""
    return _days_ago(context, days) if days else ""


def _days_ago(context: Context, days: float) -> str:
    return iso(parse_iso(context.db.now()) - timedelta(days=days))

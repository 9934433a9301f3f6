"""Full-text search over what was said and done.

Rows are indexed by the coordinator, and for a moment by who searches, so that writing them costs nothing extra.
The cursor moves in the transaction that indexes: a row is in the index once, whoever was killed or came second.
"""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from swarm_core import cancel, redact
from swarm_core.errors import InvalidInput
from swarm_core.models import Hit
from swarm_core.store.database import Database

QUERY_MAX = 500
LIMIT_MAX = 100
_BATCH_ROWS = 250
_BATCH_CHARACTERS = 1 << 18
INDEX_WITHIN = 0.5  # seconds that a search spends on what is not indexed yet
_RANKED = 10_000  # of a word that is nearly everywhere, only the newest rows are compared
_EXCERPT = 200
_BEFORE_THE_WORD = 60
_MARK = "\x02"
# A terminal's sequence would stick to the word behind it.
_COLOURS = re.compile(r"\x1b\[[0-9;:?]*[a-zA-Z]")

Text = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Source:
    """Where the rows of a kind are. `key` only grows; `text` gives title and body, or None to leave a row out."""

    table: str
    key: str
    ref: str
    instance_id: str
    at: str
    text: Callable[[sqlite3.Row], Text | None]
    more: str = ""


def _event(row: sqlite3.Row) -> Text | None:
    """A tool call that went well is left out: what it did has events of its own, and most only read."""
    if row["name"] == "tool:called" and row["success"]:
        return None
    title = _joined(" ", row["name"], row["tool_name"], row["error_code"])
    moved = f"{row['status_from'] or ''} -> {row['status_to']}" if row["status_to"] else ""
    said = _joined("; ", row["error_message"], moved, *_leaves(json.loads(row["metadata"])))
    return title, _joined("; ", f"by {row['actor']}", said)


def _feedback(row: sqlite3.Row) -> Text:
    return f"{row['feedback_type']} from {row['sender']}", row["body"]


def _message(row: sqlite3.Row) -> Text | None:
    return None if row["is_feedback"] else (f"from {row['sender']}", row["body"])


SOURCES: dict[str, Source] = {
    "feedback": Source("feedback", "seq", "id", "to_instance", "created_at", _feedback),
    # What was said as feedback is found as feedback, and not a second time as the message that carries it.
    "message": Source(
        *("messages", "seq", "id", "instance_id", "created_at", _message),
        more=", EXISTS (SELECT 1 FROM feedback f WHERE f.to_instance = messages.instance_id"
        " AND f.message_id = messages.id) AS is_feedback",
    ),
    # Last, so that a flood of events does not keep what people said out of the index.
    "event": Source("mcp_events", "id", "id", "instance_id", "at", _event),
}


def catch_up(db: Database, limit: int | None = None, *, within: float | None = None) -> int:
    """Index what is new in short transactions, at most `limit` rows, beginning none after `within` seconds.

    Returns how many rows were looked at.
    """
    done, begun = 0, time.monotonic()
    for kind, newest in behind(db).items():
        left = True
        while left and (limit is None or done < limit):
            if within is not None and time.monotonic() - begun >= within:
                return done
            cancel.check()
            room = _BATCH_ROWS if limit is None else min(_BATCH_ROWS, limit - done)
            count, left = _index(db, kind, newest, room)
            done += count
    return done


def unindexed(db: Database) -> int:
    """About how many rows a search cannot find yet."""
    return sum(newest - indexed for indexed, newest in _cursors(db).values() if newest > indexed)


def behind(db: Database) -> dict[str, int]:
    """The kinds that have rows which are not indexed, each with the key of its newest; reads a few pages."""
    return {kind: newest for kind, (indexed, newest) in _cursors(db).items() if newest > indexed}


def _cursors(db: Database) -> dict[str, tuple[int, int]]:
    """Of each kind the key up to which it is indexed, and the key of its newest row."""
    row = db.row(_CURSORS)
    assert row is not None
    return {kind: (row[f"{kind}_indexed"], row[f"{kind}_newest"] or 0) for kind in SOURCES}


_CURSORS = "SELECT " + ", ".join(
    f"(SELECT indexed FROM search_cursor WHERE kind = '{kind}') AS {kind}_indexed,"
    f" (SELECT max({source.key}) FROM {source.table}) AS {kind}_newest"
    for kind, source in SOURCES.items()
)


def find(
    db: Database,
    query: str,
    *,
    kinds: Sequence[str] = (),
    instance_id: str | None = None,
    since: str | None = None,
    until: str | None = None,
    limit: int = 20,
    indexes: bool = True,
) -> list[Hit]:
    """What has all the words, best first, the newer first among equals. Times are as `models.iso` writes them.

    Answers within a bound from what is indexed; `unindexed` tells how much is not.
    """
    match = expression(query)
    where, values = _where(kinds, instance_id, since, until)
    if not 1 <= limit <= LIMIT_MAX:
        raise InvalidInput(f"the limit is between 1 and {LIMIT_MAX}", hint="narrow the search with more words")
    if indexes:
        catch_up(db, within=INDEX_WITHIN)
    with db.reader() as reader:
        best = reader.rows(
            "SELECT rowid FROM (SELECT rowid, at, round(bm25(search, 2.0, 1.0), 2) AS score FROM search"
            f" WHERE search MATCH ? {where} ORDER BY rowid DESC LIMIT {_RANKED})"
            " ORDER BY score, at DESC, rowid DESC LIMIT ?",
            [match, *values, limit],
        )
        return [hit for row in best for hit in _hits(reader, match, row["rowid"])]


def expression(query: str) -> str:
    """The query as FTS5 takes it: every word quoted, all of them needed, the last a prefix if it ends with `*`."""
    if len(query) > QUERY_MAX:
        raise InvalidInput(f"a query has at most {QUERY_MAX} characters", hint="give the few words that matter")
    words = [word for word in _plain(query).split() if any(c.isalnum() or c == "_" for c in word)]
    if not words:
        raise InvalidInput("there is no word to search for", hint="give words with letters or digits")
    quoted = ['"' + word.rstrip("*").replace('"', '""') + '"' for word in words]
    prefix = " *" if words[-1].endswith("*") else ""
    return " ".join([*dict.fromkeys(quoted[:-1]), quoted[-1]]) + prefix


def _index(db: Database, kind: str, newest: int, room: int) -> tuple[int, bool]:
    """One transaction: the next rows of a kind and the cursor.

    Returns how many rows it moved over, and whether some are left.
    """
    count = characters = 0
    with db.write():
        row = db.row("SELECT indexed FROM search_cursor WHERE kind = ?", (kind,))
        assert row is not None
        with contextlib.closing(_new(db, SOURCES[kind], row["indexed"], newest, room)) as new:
            for one in new:
                cancel.check()
                characters += _add(db, kind, one)
                count, last = count + 1, one[SOURCES[kind].key]
                if characters > _BATCH_CHARACTERS:
                    break
        if count:
            db.execute("UPDATE search_cursor SET indexed = ? WHERE kind = ?", (last, kind))
    return count, count == room or characters > _BATCH_CHARACTERS


def _new(db: Database, source: Source, after: int, newest: int, room: int) -> sqlite3.Cursor:
    """Row by row, as messages may be long."""
    key = source.key
    return db.execute(
        f"SELECT *{source.more} FROM {source.table} WHERE {key} > ? AND {key} <= ? ORDER BY {key} LIMIT ?",
        (after, newest, room),
    )


def _add(db: Database, kind: str, row: sqlite3.Row) -> int:
    """Index one row; returns the length of its text."""
    source = SOURCES[kind]
    text = source.text(row)
    if text is None:
        return 0
    title, body = (redact.text(_COLOURS.sub("", part)) for part in text)
    db.execute(
        "INSERT INTO search (title, body, kind, ref, instance_id, at) VALUES (?, ?, ?, ?, ?, ?)",
        (title, body, kind, str(row[source.ref]), row[source.instance_id], row[source.at]),
    )
    return len(body)


def _where(
    kinds: Sequence[str], instance_id: str | None, since: str | None, until: str | None
) -> tuple[str, list[Any]]:
    unknown = [kind for kind in kinds if kind not in SOURCES]
    if unknown:
        raise InvalidInput(f"there is no kind {unknown[0][:80]!r}", hint="kinds: " + ", ".join(SOURCES))
    parts, values = [], list[Any](kinds)
    if kinds:
        parts.append(f"AND kind IN ({', '.join('?' for _ in kinds)})")
    for condition, value in (("instance_id = ?", instance_id), ("at >= ?", since), ("at <= ?", until)):
        if value is not None:
            parts.append(f"AND {condition}")
            values.append(value)
    return " ".join(parts), values


def _hits(db: Database, match: str, rowid: int) -> Iterator[Hit]:
    # An excerpt costs much more than a rank, so it is made only of what is shown.
    row = db.row(
        f"SELECT *, snippet(search, 1, '{_MARK}', '', '…', 40) AS excerpt FROM search"
        " WHERE search MATCH ? AND rowid = ?",
        (match, rowid),
    )
    if row is not None:
        title, excerpt = _plain(row["title"])[:_EXCERPT], _excerpt(row["excerpt"])
        yield Hit(row["kind"], row["ref"], row["instance_id"], row["at"], title, excerpt)


def _excerpt(text: str) -> str:
    """One line, short, with the first word that was found."""
    line = _plain(text, keep=_MARK)
    found = max(line.find(_MARK), 0)
    line = line.replace(_MARK, "")
    if len(line) <= _EXCERPT:
        return line
    begin = max(0, min(found - _BEFORE_THE_WORD, len(line) - _EXCERPT))
    end = begin + _EXCERPT - 2
    return ("…" if begin else "") + line[begin:end].strip() + ("…" if end < len(line) else "")


def _plain(text: str, *, keep: str = "") -> str:
    """One line without control characters."""
    if not text.isprintable():
        text = "".join(c if c.isprintable() or c == keep else " " for c in text)
    return " ".join(text.split())


def _joined(between: str, *parts: str | None) -> str:
    return between.join(part for part in parts if part)


def _leaves(value: Any, name: str = "") -> Iterator[str]:
    """The texts and numbers of an event's metadata, each after its name."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _leaves(one, str(key))
    elif isinstance(value, list):
        for one in value:
            yield from _leaves(one, name)
    elif value is not None and value != redact.REMOVED:
        yield f"{name}: {value}" if name else str(value)

"""Deleting what is old and no longer needed, in short transactions that each look and act together."""

from __future__ import annotations

from typing import NamedTuple

from swarm_core.models import Preserved
from swarm_core.store.database import Database
from swarm_core.store.events import MARKS
from swarm_core.store.messages import OPEN
from swarm_core.store.preserved import read

_BATCH = 200  # rows that one transaction looks at


class Key(NamedTuple):
    repo_path: str
    commit: str


# Events that are read back later, whatever became of the instance.
_KEPT = tuple(sorted(MARKS | {"attempt:picked"}))

# Instances with anything going on, and those that belong to one: its reviews, forks and other attempts.
_NEEDED = f"""WITH live(id) AS (
        SELECT id FROM instances WHERE cleaned_at IS NULL OR cleaned_at >= :before
        UNION SELECT instance_id FROM pulls WHERE state = 'open'
        UNION SELECT instance_id FROM merge_queue WHERE state IN ('waiting', 'merging')
        UNION SELECT instance_id FROM actions WHERE state = 'open'
        UNION SELECT instance_id FROM notices WHERE over_at IS NULL
        UNION SELECT instance_id FROM messages WHERE {OPEN}
    ), needed(id) AS (
        SELECT id FROM live
        UNION SELECT parent_id FROM relationships WHERE child_id IN live
        UNION SELECT child_id FROM relationships WHERE parent_id IN live
        UNION SELECT id FROM instances WHERE attempt_group IN (
            SELECT attempt_group FROM instances WHERE id IN live AND attempt_group IS NOT NULL)
    )"""
# The newest event stays, or its number would be given again. What is not indexed yet is left to the next time.
_EVENTS = f"""at < :before AND id < (SELECT max(id) FROM mcp_events)
    AND id <= (SELECT indexed FROM search_cursor WHERE kind = 'event')
    AND name NOT IN ({", ".join(f"'{name}'" for name in _KEPT)})
    AND (instance_id IS NULL OR instance_id NOT IN needed)"""
_MESSAGES = f"""updated_at < :before AND NOT ({OPEN}) AND instance_id NOT IN needed
    AND seq <= (SELECT indexed FROM search_cursor WHERE kind = 'message')"""
_FEEDBACK = """seq <= (SELECT indexed FROM search_cursor WHERE kind = 'feedback')
    AND created_at < :before AND to_instance NOT IN needed"""
_VISITS = "coalesce(ended_at, expires_at, seen_at) < :before"
_LINKS = "coalesce(ended_at, expires_at) < :before AND id NOT IN (SELECT link_id FROM visits)"
_CHECKS = "at < :before AND repo_path NOT IN (SELECT repo_path FROM pulls WHERE state = 'open')"


def count(db: Database, *, events_before: str, messages_before: str) -> dict[str, int]:
    """What would go now; an empty time is that nothing goes."""
    found = dict.fromkeys(("events", "messages", "feedback", "links", "checks"), 0)
    if events_before:
        found["events"] = _count(db, "mcp_events", _EVENTS, events_before)
        found["links"] = _count(db, "visits", _VISITS, events_before) + _count(db, "links", _LINKS, events_before)
        found["checks"] = _count(db, "checked_commits", _CHECKS, events_before)
    if messages_before:
        found["messages"] = _count(db, "messages", _MESSAGES, messages_before)
        found["feedback"] = _count(db, "feedback", _FEEDBACK, messages_before)
    return found


def last_event(db: Database, before: str) -> int:
    """The last event that is so old, 0 when none is; looks at them all, as clocks are set back."""
    row = db.row("SELECT coalesce(max(id), 0) FROM mcp_events WHERE at < ?", (before,))
    assert row is not None
    return int(row[0])


def delete_events(db: Database, before: str, *, after: int, until: int) -> tuple[int, int | None]:
    """Delete among the next events; returns how many went, and after which to go on, None when all is done."""
    with db.write():
        window = db.rows(
            "SELECT id FROM mcp_events WHERE id > ? AND id <= ? ORDER BY id LIMIT ?", (after, until, _BATCH)
        )
        if not window:
            return 0, None
        last = int(window[-1]["id"])
        given = {"before": before, "after": after, "last": last}
        old = f"{_NEEDED} SELECT id FROM mcp_events WHERE id > :after AND id <= :last AND {_EVENTS}"
        return db.execute(f"DELETE FROM mcp_events WHERE id IN ({old})", given).rowcount, last


def delete_feedback(db: Database, before: str, *, after: int) -> tuple[int, int | None]:
    """As `delete_events`."""
    with db.write():
        old, last = _old(db, "feedback", _FEEDBACK, before, after)
        for one in old:
            db.execute("DELETE FROM feedback WHERE id = ?", (one,))
    return len(old), last


def delete_messages(db: Database, before: str, *, after: int) -> tuple[int, int | None]:
    """As `delete_events`; a message goes after the feedback that it carried."""
    carried = "NOT EXISTS (SELECT 1 FROM feedback f WHERE f.message_id = messages.id)"
    with db.write():
        old, last = _old(db, "messages", f"{_MESSAGES} AND {carried}", before, after)
        for one in old:
            db.execute("UPDATE pull_news SET message_id = NULL WHERE message_id = ?", (one,))
            db.execute("DELETE FROM messages WHERE id = ?", (one,))
    return len(old), last


def delete_links(db: Database, before: str) -> int:
    """Delete visits and links that ended long ago."""
    with db.write():
        gone = db.execute(f"DELETE FROM visits WHERE {_VISITS}", {"before": before}).rowcount
        return gone + db.execute(f"DELETE FROM links WHERE {_LINKS}", {"before": before}).rowcount


def delete_checks(db: Database, before: str, *, after: Key) -> tuple[int, Key | None]:
    """As `delete_events`; all that ran on one commit go together."""
    with db.write():
        window = db.rows(
            'SELECT DISTINCT repo_path, "commit" FROM checked_commits WHERE (repo_path, "commit") > (?, ?)'
            f' ORDER BY repo_path, "commit" LIMIT {_BATCH}',
            after,
        )
        if not window:
            return 0, None
        last = Key(*window[-1])
        given = {"before": before, "repo": after.repo_path, "commit": after.commit}
        given |= {"last_repo": last.repo_path, "last_commit": last.commit}
        which = '(repo_path, "commit") > (:repo, :commit) AND (repo_path, "commit") <= (:last_repo, :last_commit)'
        return db.execute(f"DELETE FROM checked_commits WHERE {which} AND {_CHECKS}", given).rowcount, last


def sweep_index(db: Database, *, after: int) -> int | None:
    """Take rows out of the search index whose source is gone; returns after which to go on, None at the end."""
    there = {"event": ("mcp_events", "id"), "message": ("messages", "id"), "feedback": ("feedback", "id")}
    with db.write():
        window = db.rows(
            "SELECT rowid, kind, ref FROM search WHERE rowid > ? ORDER BY rowid LIMIT ?", (after, _BATCH)
        )
        for kind, (table, key) in there.items():
            refs = {row["ref"]: row["rowid"] for row in window if row["kind"] == kind}
            marks = ", ".join("?" for _ in refs)
            known = {
                str(row[0]) for row in db.rows(f"SELECT {key} FROM {table} WHERE {key} IN ({marks})", list(refs))
            }
            for ref in refs.keys() - known:
                db.execute("DELETE FROM search WHERE rowid = ?", (refs[ref],))
    return int(window[-1]["rowid"]) if window else None


def old_preserved(db: Database, before: str) -> list[Preserved]:
    """Stored work that may go: of instances that are not needed, and never the newest of one."""
    rows = db.rows(
        f"{_NEEDED} SELECT * FROM preserved p WHERE created_at < :before AND instance_id NOT IN needed"
        " AND id < (SELECT max(id) FROM preserved n WHERE n.instance_id = p.instance_id) ORDER BY id",
        {"before": before},
    )
    return [read(row) for row in rows]


def forget_preserved(db: Database, ref: str) -> None:
    db.execute("DELETE FROM preserved WHERE ref = ?", (ref,))


def _count(db: Database, table: str, where: str, before: str) -> int:
    row = db.row(f"{_NEEDED} SELECT count(*) FROM {table} WHERE {where}", {"before": before})
    assert row is not None
    return int(row[0])


def _old(db: Database, table: str, where: str, before: str, after: int) -> tuple[list[str], int | None]:
    """The ids of those that may go among the next rows, and the last row of these; None when there are none."""
    window = db.rows(f"SELECT seq FROM {table} WHERE seq > ? ORDER BY seq LIMIT ?", (after, _BATCH))
    if not window:
        return [], None
    last = int(window[-1]["seq"])
    sql = f"{_NEEDED} SELECT id FROM {table} WHERE seq > :after AND seq <= :last AND {where} ORDER BY seq"
    return [str(row[0]) for row in db.rows(sql, {"before": before, "after": after, "last": last})], last

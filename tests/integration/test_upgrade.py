"""A database of a release before: the migration keeps every row, and one that is cut short changes nothing."""

from __future__ import annotations

import dataclasses
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlite_utils

from swarm_core.errors import SwarmError
from swarm_core.models import Instance, Message, Pull
from swarm_core.ops import review
from swarm_core.store import feedback, instances, messages, migrations, pulls, search
from swarm_core.store.database import open_database
from swarm_core.store.schema import VERSION

AT = "2026-01-01T00:00:00.000Z"
_ROOT = str(Path(__file__).parents[2])
_LIMIT = f"{review.LIMIT} (3)"
_STATES = ("accepted", "injected", "seen", "acknowledged", "held", "expired", "failed")
_UNDELIVERED = {"accepted", "held", "injected"}

Rows = dict[str, list[dict[str, Any]]]
Records = Iterator[tuple[str, dict[str, Any]]]


def version_two(path: Path) -> None:
    """A database as the second migration left it, with rows in every table that holds any."""
    _at_version(path, 2, stop_before="0003_messages", records=_records())


def version_three(path: Path) -> None:
    """A database as the third migration left it, with rows in every table that holds any."""
    _at_version(path, 3, stop_before="0004_pulls", records=_records_of_three())


def _at_version(path: Path, version: int, *, stop_before: str, records: Records) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN IMMEDIATE")
        migrations.migrations.apply(sqlite_utils.Database(connection), stop_before=stop_before)
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute("COMMIT")
        for table, row in records:
            marks = ", ".join("?" * len(row))
            connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", list(row.values()))
        connection.execute("UPDATE search_cursor SET indexed = 21 WHERE kind = 'message'")


def _records() -> Records:
    yield "hosts", {"name": "local", "state": "up", "seen_at": AT}
    for name, problem in (("work-a1", _LIMIT), ("work-a2", "the worktree is gone"), ("review-a1", "")):
        yield "instances", _instance(name) | {"problem": problem, "pid": 7, "lines_added": 12}
    link = {"parent_id": "work-a1", "child_id": "review-a1", "type": "spawned_review"}
    yield "relationships", link | {"created_at": AT}
    for number, state in enumerate(_STATES):
        message = {"seq": 10 * number + 1, "id": f"m{number}", "instance_id": "work-a1", "sender": "operator"}
        message |= {"state": state, "body": f"number {number}", "created_at": AT, "updated_at": AT}
        yield "messages", message | {"attempts": number, "error": "no terminal" if state == "failed" else None}
    said = {"id": "fb-1", "sender": "review-a1", "to_instance": "work-a1", "relationship_id": 1, "body": "rename"}
    said |= {"feedback_type": "needs_work", "priority": "high", "file_path": "/f.md", "message_id": "m0"}
    yield "feedback", said | {"created_at": AT}
    yield "mcp_events", {"at": AT, "instance_id": "work-a1", "actor": "operator", "name": "message:accepted"}
    action = {"instance_id": "work-a1", "kind": "stop", "state": "done", "actor": "operator"}
    yield "actions", action | {"started_at": AT}
    yield "tokens", {"hash": "h", "kind": "instance", "name": "work-a1", "epoch": 3, "created_at": AT}
    pull = {"forge": "local", "repo_path": "/r", "number": 1, "url": "file:///p", "instance_id": "work-a1"}
    pull |= {"opened_by": "work-a1", "head_branch": "work-a1", "base_branch": "main", "head_commit": "0" * 40}
    yield "pulls", pull | {"title": "t", "body": "b", "state": "open", "created_at": AT, "updated_at": AT}
    request = {"principal": "work-a1", "tool": "search", "digest": "d", "server": "s", "state": "done"}
    yield "requests", request | {"started_at": AT}
    kept = {"instance_id": "work-a1", "repo_path": "/r", "ref": "refs/x", '"commit"': "0" * 40, "files": 1}
    yield "preserved", kept | {"bytes": 2, "why": "stop", "created_at": AT}


def _records_of_three() -> Records:
    """Those of before with something in every column that is new, and in every table."""
    for table, row in _records():
        if table == "instances":
            row |= {"needs_person": "the budget is used", "blocked_on": "question", "budget_usd": 2.5}
            row |= {"budget_state": "held", "cost_usd": 2.75, "tokens_used": 901}
        if table == "messages":
            row |= {"error": row["error"] or "", "kind": "review", "document": "/d.md", "next_at": AT}
            row |= {"injected_at": AT, "seen_at": AT, "acknowledged_at": AT, "expires_at": AT, "how": "hook"}
        yield table, row
    used = {"instance_id": "work-a1", "message_id": "u1", "model": "m", "input_tokens": 5, "cost_usd": 0.25}
    yield "usage", used | {"at": AT}
    yield "notices", {"instance_id": "work-a1", "reason": "budget", "text": "It is used.", "raised_at": AT}


def _instance(name: str) -> dict[str, Any]:
    known = {"id": name, "kind": name.partition("-")[0], "status": "running", "wanted": "running"}
    place = {"host": "local", "repo_path": "/r", "worktree_path": f"/w/{name}", "branch": name}
    agent = {"base_branch": "main", "tmux_session": name, "agent": "scripted", "conversation_id": "c"}
    seen = {"activity": "idle", "activity_source": "file", "activity_at": AT, "created_at": AT, "updated_at": AT}
    return known | place | agent | seen | {"epoch": 3, "agent_number": 1}


def rows(path: Path) -> Rows:
    """Every row of every table by its columns; of the search index and of SQLite's own tables nothing."""
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        names = [r[0] for r in connection.execute("SELECT name FROM pragma_table_list WHERE schema = 'main'")]
        kept = [n for n in names if not n.startswith(("sqlite_", "search")) or n == "search_cursor"]
        return {n: [dict(r) for r in connection.execute(f"SELECT * FROM {n}")] for n in kept}


def schema(path: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        version = connection.execute("PRAGMA user_version").fetchall()
        return version + connection.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall()


def columns(path: Path, table: str) -> set[str]:
    with closing(sqlite3.connect(path)) as connection:
        return {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}


def columns_before(folder: Path, start: Callable[[Path], None], table: str) -> set[str]:
    path = folder / "before.db"
    if not path.exists():
        start(path)
    return columns(path, table)


def same_columns(before: Rows, after: Rows) -> Rows:
    """What is there now, without the columns and tables that are new."""
    return {
        table: [{name: new[name] for name in old} for old, new in zip(was, after[table], strict=True)]
        for table, was in before.items()
    }


def test_every_row_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "swarm.db"
    version_two(path)
    before = rows(path)
    open_database(path).close()
    after = rows(path)
    assert [r["name"] for r in after["_sqlite_migrations"]] == migrations.names()
    del before["_sqlite_migrations"]
    for row in before["instances"]:
        row["problem"] = "" if row["problem"] == _LIMIT else row["problem"]
    for row in before["messages"]:
        row["error"] = row["error"] or ""
    assert {table for table, was in before.items() if not was} == set()
    assert same_columns(before, after) == before
    new = after.keys() - before.keys() - {"_sqlite_migrations"}
    assert "usage" in new
    assert [table for table in new if after[table]] == []


def test_every_row_of_version_three_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "swarm.db"
    version_three(path)
    before = rows(path)
    assert schema(path)[0] == (3,)
    open_database(path).close()
    after = rows(path)
    assert schema(path)[0] == (VERSION,)
    assert [r["name"] for r in after["_sqlite_migrations"]] == migrations.names()
    del before["_sqlite_migrations"]
    assert {table for table, was in before.items() if not was} == set()
    assert same_columns(before, after) == before
    new = after.keys() - before.keys() - {"_sqlite_migrations"}
    assert {"pull_checks", "pull_reviews", "pull_comments", "pull_news", "merge_queue"} <= new
    assert [table for table in new if after[table]] == []


def test_records_are_read_as_before_and_nothing_refers_to_what_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "swarm.db"
    version_two(path)
    with closing(open_database(path)) as db:
        assert db.rows("PRAGMA foreign_key_check") == []
        assert db.check() == []
        assert [m.state for m in messages.of(db, "work-a1")] == list(_STATES)
        assert {m.kind for m in messages.of(db, "work-a1")} == {"message"}
        assert [f.message_id for f in feedback.of(db, "work-a1")] == ["m0"]
        with db.write():
            assert messages.accept(db, "work-a1", sender="operator", body="the newest").state == "accepted"
        newest = db.rows("SELECT seq FROM messages ORDER BY seq DESC")[0][0]
        assert newest > 61
        assert [hit.ref for hit in search.find(db, "newest")] == [messages.of(db, "work-a1")[-1].id]


def test_the_mark_of_used_review_rounds_moves_to_its_own_column(tmp_path: Path) -> None:
    path = tmp_path / "swarm.db"
    version_two(path)
    with closing(open_database(path)) as db:
        marks = {i.id: (i.needs_person, i.problem) for i in instances.listed(db)}
    assert marks == {
        "work-a1": (_LIMIT, ""),
        "work-a2": ("", "the worktree is gone"),
        "review-a1": ("", ""),
    }


@pytest.mark.parametrize(
    ("start", "tables"),
    [
        (version_two, {"messages": Message, "instances": Instance, "pulls": Pull}),
        (version_three, {"instances": Instance, "pulls": Pull}),
    ],
)
def test_what_is_new_is_read_and_has_a_default(
    tmp_path: Path, start: Callable[[Path], None], tables: dict[str, Any]
) -> None:
    path = tmp_path / "swarm.db"
    start(path)
    open_database(path).close()
    for table, record in tables.items():
        known = {f.name: f.default for f in dataclasses.fields(record)}
        assert columns(path, table) - {"seq"} == known.keys()
        empty = [row for row in rows(path)[table] if row["id"] in ("m0", "review-a1", 1)]
        assert empty
        for row in empty:
            new = {name: row[name] for name in columns(path, table) - columns_before(tmp_path, start, table)}
            assert new
            assert new == {name: known[name] for name in new}


def test_a_pull_request_of_before_is_read_with_the_defaults_of_its_record(tmp_path: Path) -> None:
    path = tmp_path / "swarm.db"
    version_three(path)
    [was] = rows(path)["pulls"]
    with closing(open_database(path)) as db:
        [found] = pulls.listed(db)
    assert found == Pull(**was)
    assert [type(v) for v in dataclasses.astuple(found)] == [type(v) for v in dataclasses.astuple(Pull(**was))]


def test_a_message_has_one_of_the_known_states_and_kinds(tmp_path: Path) -> None:
    path = tmp_path / "swarm.db"
    version_two(path)
    with closing(open_database(path)) as db:
        for column, known in (("state", _STATES), ("kind", ("message", "feedback", "review", "notice"))):
            for value in known:
                with db.write():
                    db.execute(f"UPDATE messages SET {column} = ? WHERE id = 'm0'", [value])
            with pytest.raises(SwarmError) as refused, db.write():
                db.execute(f"UPDATE messages SET {column} = 'other' WHERE id = 'm0'")
            assert refused.value.code == "DATABASE_ERROR"


def test_what_is_not_delivered_is_found_in_order_by_an_index(tmp_path: Path) -> None:
    path = tmp_path / "swarm.db"
    version_two(path)
    question = (
        "SELECT id, state FROM messages WHERE instance_id = 'work-a1'"
        " AND state IN ('accepted', 'held', 'injected') ORDER BY seq"
    )
    with closing(open_database(path)) as db:
        found = [r["id"] for r in db.rows(question)]
        assert found == [f"m{n}" for n, state in enumerate(_STATES) if state in _UNDELIVERED]
        plan = " ".join(str(r[3]) for r in db.rows(f"EXPLAIN QUERY PLAN {question}"))
        assert "messages_undelivered" in plan
        assert "TEMP B-TREE" not in plan


_KILLED_AT = """
import os, signal, sqlite3
from swarm_core.store import migrations
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
def die(sql):
    if sql == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)
connection.set_trace_callback(die)
migrations.apply(connection)
"""
_ENDS = (f"PRAGMA user_version = {VERSION}", "COMMIT")
_STARTS: dict[int, Callable[[Path], None]] = {2: version_two, 3: version_three}
# Every statement of what follows a version, and the two that end it.
_MOMENTS = {
    2: (*migrations._MESSAGES, *migrations._PULLS, *_ENDS),
    3: (*migrations._PULLS, *_ENDS),
}


def _killed(path: Path, statement: str) -> None:
    program = f"import sys; sys.path.insert(0, {_ROOT!r})\n{_KILLED_AT}"
    argv = [sys.executable, "-c", program, str(path), statement]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.parametrize("version", _STARTS)
def test_no_migration_after_these_is_forgotten_and_no_statement_is_there_twice(version: int) -> None:
    later = [n for n in migrations.names() if int(n[:4]) > version]
    known = ["0003_messages", "0004_pulls", "0005_dashboard", "0006_kept", "0007_readiness", "0008_retention"]
    assert later == [*known, "0009_brought", "0010_unrelated"][version - 2 :]
    assert len(set(_MOMENTS[version])) == len(_MOMENTS[version])


@pytest.mark.parametrize(("version", "part"), [(v, p) for v in _STARTS for p in range(6)])
def test_a_process_killed_in_the_middle_leaves_the_schema_before(tmp_path: Path, version: int, part: int) -> None:
    """At every statement, each sixth of them in a test of its own; only then is the database brought up."""
    path = tmp_path / "swarm.db"
    _STARTS[version](path)
    before, shape = rows(path), schema(path)
    assert shape[0] == (version,)
    moments = _MOMENTS[version][part::6]
    assert moments
    for moment in moments:
        _killed(path, moment)
        assert (rows(path), schema(path)) == (before, shape), moment
    with closing(open_database(path)) as db:
        assert db.rows("PRAGMA foreign_key_check") == []
        assert len(messages.of(db, "work-a1")) == len(_STATES)
    assert schema(path)[0] == (VERSION,)


def test_a_migration_that_fails_changes_nothing_and_succeeds_when_its_cause_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "swarm.db"
    version_two(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE usage (in_the_way)")
    before, shape = rows(path), schema(path)
    with pytest.raises(SwarmError) as refused:
        open_database(path).close()
    assert refused.value.code == "DATABASE_ERROR"
    assert (rows(path), schema(path)) == (before, shape)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE usage")
    open_database(path).close()
    assert len(rows(path)["messages"]) == len(_STATES)


def _given() -> Records:
    """Verdicts as they were recorded before they had a table: of reviewers, and of people."""
    yield "hosts", {"name": "local", "state": "up", "seen_at": AT}
    for name in ("work-a1", "review-a1", "review-a1-r2"):
        yield "instances", _instance(name)
    for round_, verdict in ((1, "needs_work"), (2, "none")):
        review_id = "review-a1" if round_ == 1 else f"review-a1-r{round_}"
        link = {"parent_id": "work-a1", "child_id": review_id, "type": "spawned_review", "round": round_}
        yield "relationships", link | {"head_commit": "a", "verdict": verdict, "verdict_at": AT, "created_at": AT}
    message = {"id": "m0", "instance_id": "work-a1", "sender": "kim", "state": "seen", "body": "no"}
    yield "messages", message | {"created_at": AT, "updated_at": AT}
    said = {"id": "fb-1", "sender": "kim", "to_instance": "work-a1", "feedback_type": "needs_work", "body": "no"}
    said |= {"priority": "high", "file_path": "/f.md", "message_id": "m0", "head_commit": "b"}
    yield "feedback", said | {"created_at": "2026-01-02T00:00:00.000Z"}
    accepted = {"at": "2026-01-03T00:00:00.000Z", "instance_id": "work-a1", "actor": "kim"}
    yield "mcp_events", accepted | {"name": "work:accepted", "metadata": '{"commit": "c"}'}
    yield "mcp_events", accepted | {"name": "work:accepted", "metadata": '{"commit": null}'}


def test_verdicts_that_were_given_before_count_after_the_upgrade(tmp_path: Path) -> None:
    path = tmp_path / "swarm.db"
    before = migrations.names().index("0007_readiness")
    _at_version(path, before, stop_before="0007_readiness", records=_given())
    with closing(open_database(path)) as db:
        rows = db.rows('SELECT instance_id, "commit", verdict, by FROM verdicts ORDER BY id')
        assert [tuple(row) for row in rows] == [
            ("work-a1", "a", "needs_work", "review-a1"),
            ("work-a1", "b", "needs_work", "kim"),
            ("work-a1", "c", "approved", "kim"),
        ]

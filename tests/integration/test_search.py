"""Search: what is found and how it is ranked, hostile queries, and an index that is never short or double."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlite_utils
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from swarm_core import config
from swarm_core.cancel import Scope
from swarm_core.errors import Cancelled, InvalidInput, NotFound, SwarmError
from swarm_core.ops.search import moment
from swarm_core.ops.supervise import Supervisor
from swarm_core.store import events, migrations, search, tokens
from swarm_core.store.database import Database, open_database
from swarm_core.swarm import Swarm
from tests.rows import add_feedback, add_instance, add_message

_ROOT = str(Path(__file__).parents[2])
_NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    opened = open_database(tmp_path / "swarm.db")
    add_instance(opened)
    yield opened
    opened.close()


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    return dict(os.environ) | {"SWARM_HOME": str(tmp_path / "h")}


def open_swarm(environ: dict[str, str], **options: Any) -> Swarm:
    return Swarm.open(config.load(environ), environ, **options)


def add_event(db: Database, name: str = "instance:problem", **fields: Any) -> int:
    with db.write():
        return events.add(db, name, **({"actor": "supervisor"} | fields))


def add_many(path: Path, count: int) -> None:
    """Events with a word of their own each, written by SQLite itself."""
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
            " INSERT INTO mcp_events (at, actor, name, metadata) SELECT '2026-01-01T00:00:00.000Z', 'supervisor',"
            " 'instance:activity', json_object('detail', 'common word' || i) FROM n",
            (count,),
        )
    connection.close()


def refs(found: list[Any]) -> list[str]:
    return [hit.ref for hit in found]


def assert_whole(db: Database) -> None:
    """Every row of every source is in the index, once, and the index is sound."""
    for kind, table, ref in (
        ("event", "mcp_events", "id"),
        ("feedback", "feedback", "id"),
        ("message", "messages", "id"),
    ):
        there = [r[0] for r in db.rows("SELECT ref FROM search WHERE kind = ?", (kind,))]
        carried = "WHERE id NOT IN (SELECT message_id FROM feedback)" if kind == "message" else ""
        assert sorted(there) == sorted(str(r[0]) for r in db.rows(f"SELECT {ref} FROM {table} {carried}"))
    with db.write():
        db.execute("INSERT INTO search(search) VALUES ('integrity-check')")


def writes(path: Path, work: Callable[[], object]) -> bool:
    """Whether the work committed anything."""
    other = sqlite3.connect(path)
    try:
        before = other.execute("PRAGMA data_version").fetchone()
        work()
        return bool(other.execute("PRAGMA data_version").fetchone() != before)
    finally:
        other.close()


# What is found


def test_events_feedback_and_messages_are_found_by_their_words(db: Database) -> None:
    event = add_event(
        db, instance_id="work-1-a1", metadata={"what": "the zebra crossed", "n": [{"deep": "okapi"}]}
    )
    said = add_feedback(db, "a zebra is missing in the test")
    message = add_message(db, "please mind the zebra")
    found = {hit.kind: hit for hit in search.find(db, "zebra")}
    assert {kind: hit.ref for kind, hit in found.items()} == {
        "event": str(event),
        "feedback": said.id,
        "message": message.id,
    }
    assert found["feedback"].instance_id == "work-1-a1"
    assert found["feedback"].title == "needs_work from review-1-a1"
    assert found["message"].excerpt == "please mind the zebra"
    assert "zebra" in found["event"].excerpt
    assert refs(search.find(db, "okapi")) == [str(event)]


def test_an_event_is_found_by_name_tool_code_message_and_status(db: Database) -> None:
    ours = add_event(
        db, "tool:called", tool_name="send_feedback", error_code="DATABASE_LOCKED", error_message="quagga is busy"
    )
    moved = add_event(db, "instance:status", status_from="running", status_to="waiting_review")
    for query in ("send_feedback", "DATABASE_LOCKED", "database_locked", "quagga", "tool:called quagga"):
        assert refs(search.find(db, query)) == [str(ours)], query
    assert refs(search.find(db, "waiting_review")) == [str(moved)]


def test_feedback_is_not_found_a_second_time_as_its_message(db: Database) -> None:
    add_feedback(db, "the walrus")
    assert [hit.kind for hit in search.find(db, "walrus")] == ["feedback"]
    assert search.find(db, "walrus", kinds=["message"]) == []
    assert search.behind(db) == {}


def test_secrets_that_were_cut_from_an_event_are_not_found(db: Database) -> None:
    add_event(db, metadata={"api_key": "sesame", "note": "kept"})
    assert search.find(db, "sesame") == []
    assert search.find(db, "removed") == []
    assert len(search.find(db, "kept")) == 1


def test_all_words_are_needed_in_any_order_case_and_accent(db: Database) -> None:
    one = add_message(db, "The Café was closed at noon")
    add_message(db, "the cafe was open")
    assert refs(search.find(db, "CLOSED cafe")) == [one.id]
    assert refs(search.find(db, "noon café the")) == [one.id]
    assert search.find(db, "closed open") == []
    assert search.find(db, "clos") == []


def test_the_last_word_may_be_a_beginning(db: Database) -> None:
    one = add_message(db, "migrations ran")
    assert refs(search.find(db, "ran migr*")) == [one.id]
    assert one.id in refs(search.find(db, "m*"))
    assert search.find(db, "migr* ran") == []


def test_an_instance_id_in_a_text_is_found_as_a_whole(db: Database) -> None:
    one = add_message(db, "compare with work-12-a1 first")
    add_message(db, "a1 is 12 times the work")
    assert refs(search.find(db, "work-12-a1")) == [one.id]


def test_kind_instance_and_times_narrow_the_search(tmp_path: Path) -> None:
    moments = iter(_NOW + timedelta(hours=n) for n in range(1000))
    db = open_database(tmp_path / "swarm.db", clock=lambda: next(moments))
    add_instance(db, "work-1-a1")
    add_instance(db, "work-2-a1")
    first = add_message(db, "gecko one")
    second = add_message(db, "gecko two", to="work-2-a1")
    event = add_event(db, instance_id="work-2-a1", metadata={"what": "gecko"})
    everything = {first.id, second.id, str(event)}
    assert set(refs(search.find(db, "gecko"))) == everything
    assert refs(search.find(db, "gecko", kinds=["event"])) == [str(event)]
    assert set(refs(search.find(db, "gecko", kinds=["event", "message"]))) == everything
    assert set(refs(search.find(db, "gecko", instance_id="work-2-a1"))) == {second.id, str(event)}
    assert refs(search.find(db, "gecko", until=first.created_at)) == [first.id]
    assert first.id not in refs(search.find(db, "gecko", since=second.created_at))
    assert refs(search.find(db, "gecko", since=second.created_at, until=second.created_at)) == [second.id]
    db.close()


def test_the_best_match_is_first_and_of_equals_the_newest(db: Database) -> None:
    buried = add_message(db, "heron " + "other words entirely " * 60)
    older = add_message(db, "the heron flew away")
    newer = add_message(db, "the heron flew again")
    assert refs(search.find(db, "heron")) == [newer.id, older.id, buried.id]
    assert refs(search.find(db, "heron", limit=1)) == [newer.id]


def test_an_excerpt_is_one_short_line_around_the_word(db: Database) -> None:
    hostile = (
        "\x1b]0;owned\x07 lead " * 80
        + "the \x1b[31mneedle\u202e is here\n\n"
        + "tail \x00 ".replace("\0", "") * 80
    )
    add_message(db, hostile, sender="operator")
    add_message(db, "x" * 5000 + " needle " + "y" * 5000)
    for hit in search.find(db, "needle"):
        assert "needle" in hit.excerpt
        assert len(hit.excerpt) <= 200
        assert hit.excerpt.isprintable()
        assert hit.title.isprintable()


def test_a_hit_has_the_shape_that_clients_are_promised(db: Database) -> None:
    message = add_message(db, "ibis")
    (hit,) = search.find(db, "ibis")
    assert hit.as_json() == {
        "kind": "message",
        "id": message.id,
        "instance_id": "work-1-a1",
        "at": message.created_at,
        "title": "from operator",
        "excerpt": "ibis",
    }


# Queries


_NO_WORDS = ["", " \t\n", '"', "*", "***", '" "', "()", "-- ;", "\0", "\u202e", "\ud800", "🦓", "\u0301"]


@pytest.mark.parametrize("query", _NO_WORDS)
def test_a_query_without_a_word_is_refused_with_a_hint(db: Database, query: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        search.find(db, query)
    assert refused.value.hint


_WITH_SYNTAX = {
    True: [
        *('lynx"', '"lynx', "^lynx", "lynx + lynx", "-lynx", "lynx)", "(lynx", "*lynx", "lynx**", "lynx'--"),
    ],
    False: [
        *('ly"nx', "lynx AND", "lynx OR nothing", "NOT lynx", "NEAR(lynx, 2)", "{title body}: lynx"),
        *("title:lynx", "lynx\0OR nothing"),
    ],
}


@pytest.mark.parametrize(
    ("query", "found"), [(q, found) for found, queries in _WITH_SYNTAX.items() for q in queries]
)
def test_the_syntax_of_the_search_engine_is_only_text(db: Database, query: str, found: bool) -> None:
    one = add_message(db, "lynx")
    add_message(db, "nothing")
    assert refs(search.find(db, query)) == ([one.id] if found else [])


@pytest.mark.parametrize("query", ["x" * 501, "word " * 101])
def test_a_query_that_is_too_long_is_refused(db: Database, query: str) -> None:
    with pytest.raises(InvalidInput):
        search.find(db, query)


def test_as_many_words_as_fit_are_searched(db: Database) -> None:
    one = add_message(db, " ".join(f"w{n}" for n in range(120)))
    assert refs(search.find(db, " ".join(f"w{n}" for n in range(110)))) == [one.id]
    assert refs(search.find(db, "w1 " * 166)) == [one.id]
    assert search.find(db, " ".join("abcdefghijklmnopqrstuvwxyz" * 9)) == []


@pytest.mark.parametrize("limit", [0, -1, 101, 1 << 70])
def test_a_limit_out_of_range_is_refused(db: Database, limit: int) -> None:
    with pytest.raises(InvalidInput):
        search.find(db, "x", limit=limit)


def test_an_unknown_kind_is_refused_and_the_known_are_named(db: Database) -> None:
    with pytest.raises(InvalidInput) as refused:
        search.find(db, "x", kinds=["event", "secret' OR 1"])
    assert all(kind in (refused.value.hint or "") for kind in search.SOURCES)


_VOCABULARY = ["ant", "bee", "cat", "dog", "eel", "a_b", "x1", "über"]
_SYNTAX = [
    '"',
    "'",
    "*",
    "NEAR(",
    ")",
    "AND",
    "OR",
    "NOT",
    "^",
    ":",
    "title:",
    "{",
    "}",
    "-",
    "+",
    "\0",
    "\\",
    ";",
    ",",
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Database, dict[str, set[str]]]]:
    db = open_database(tmp_path_factory.mktemp("corpus") / "swarm.db")
    add_instance(db)
    texts = {}
    for number in range(1 << len(_VOCABULARY)):
        words = {word for bit, word in enumerate(_VOCABULARY) if number >> bit & 1}
        if words and number % 5 == 0:
            texts[add_message(db, " ".join(sorted(words))).id] = words
    yield db, texts
    db.close()


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], database=None
)
@given(
    st.lists(st.one_of(st.sampled_from(_VOCABULARY + _SYNTAX), st.text(max_size=12)), max_size=8),
    st.sampled_from(["", " "]),
)
def test_any_text_is_searched_or_refused_and_nothing_else(
    corpus: tuple[Database, dict[str, set[str]]], parts: list[str], between: str
) -> None:
    db, _ = corpus
    query = between.join(parts)
    if not any(c.isalnum() or c == "_" for c in query):
        with pytest.raises(InvalidInput):
            search.find(db, query)
    else:
        assert all(hit.excerpt.isprintable() for hit in search.find(db, query, limit=100))


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], database=None
)
@given(
    st.lists(st.sampled_from(_VOCABULARY), min_size=1, max_size=6),
    st.lists(st.sampled_from(['"', "*", "^", "-", ""])),
)
def test_the_hits_are_exactly_the_texts_that_have_every_word(
    corpus: tuple[Database, dict[str, set[str]]], words: list[str], marks: list[str]
) -> None:
    db, texts = corpus
    marked = [f"{mark}{word}" for word, mark in zip(words, [*marks, *[""] * len(words)], strict=False)]
    found = refs(search.find(db, " ".join(marked), kinds=["message"], limit=100))
    assert set(found) == {ref for ref, there in texts.items() if there >= set(words)}


# Times


@pytest.mark.parametrize(
    ("text", "since", "until"),
    [
        ("2026-01-31", "2026-01-31T00:00:00.000Z", "2026-01-31T23:59:59.999Z"),
        ("20260131", "2026-01-31T00:00:00.000Z", "2026-01-31T23:59:59.999Z"),
        ("2026-01-31T14:05", "2026-01-31T14:05:00.000Z", None),
        ("2026-01-31 14:05:06.789", "2026-01-31T14:05:06.789Z", None),
        ("2026-01-31T14:05:00+02:00", "2026-01-31T12:05:00.000Z", None),
        ("2026-01-31T14:05:00Z", "2026-01-31T14:05:00.000Z", None),
        (" 30s ", "2026-03-10T11:59:30.000Z", None),
        ("30m", "2026-03-10T11:30:00.000Z", None),
        ("2h", "2026-03-10T10:00:00.000Z", None),
        ("3d", "2026-03-07T12:00:00.000Z", None),
        ("1w", "2026-03-03T12:00:00.000Z", None),
        ("0s", "2026-03-10T12:00:00.000Z", None),
    ],
)
def test_a_time_is_a_date_a_time_or_how_long_ago(
    monkeypatch: pytest.MonkeyPatch, text: str, since: str, until: str | None
) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "XYZ+5")
        time.tzset()
        told = (moment(text, _NOW), moment(text, _NOW, end=True))
    time.tzset()
    assert told == (since, until or since)


@pytest.mark.parametrize(
    "text",
    [
        *("", "yesterday", "2", "h", "2y", "-2h", "2.5h", "9999999d", "999999w", "2026-13-01", "2026-01-32T00:00"),
        *("0001-01-01T00:00+14:00", "٢h", "1h\0", "'; DROP TABLE search"),
    ],
)
def test_what_is_no_time_is_refused_with_examples(text: str) -> None:
    for end in (False, True):
        with pytest.raises(InvalidInput) as refused:
            moment(text, _NOW, end=end)
        assert "2h" in (refused.value.hint or "")


def test_the_last_day_there_is_has_an_end_or_is_refused() -> None:
    assert moment("9999-12-31", _NOW) == "9999-12-31T00:00:00.000Z"
    with pytest.raises(InvalidInput):
        moment("9999-12-31", _NOW, end=True)


def test_swarm_searches_by_id_or_name_and_by_time(home: dict[str, str]) -> None:
    with open_swarm(home) as swarm:
        db = swarm.context.db
        add_instance(db, "work-1-a1", name="the login fix")
        add_instance(db, "work-2-a1")
        one = add_message(db, "newt")
        add_message(db, "newt", to="work-2-a1")
        assert refs(swarm.search("newt", instance="the login fix")) == [one.id]
        assert refs(swarm.search("newt", instance="work-1-a1", kinds=("message",), since="1h", until="0s")) == [
            one.id
        ]
        assert swarm.search("newt", until="1h") == []
        assert len(swarm.search("newt", since="2020-01-01")) == 2
        with pytest.raises(NotFound):
            swarm.search("newt", instance="work-3-a1")
        with pytest.raises(InvalidInput):
            swarm.search("newt", since="1h", until="2h")
        with pytest.raises(InvalidInput):
            swarm.search("newt", kinds=["thought"])


# The index


def test_a_hundred_thousand_events_are_indexed_once_and_found_at_once(db: Database) -> None:
    add_many(db.path, 100_000)
    total = search.catch_up(db)
    assert total >= 100_000
    began = time.perf_counter()
    assert len(search.find(db, "word77777")) == 1
    assert len(search.find(db, "common", limit=100)) == 100
    assert time.perf_counter() - began < 3
    add_event(db, metadata={"what": "the newcomer"})
    add_message(db, "another newcomer")
    assert sum(1 for _ in search.find(db, "newcomer")) == 2
    assert search.catch_up(db) == 0
    cursor = {r["kind"]: r["indexed"] for r in db.rows("SELECT kind, indexed FROM search_cursor")}
    assert cursor["event"] == db.rows("SELECT max(id) FROM mcp_events")[0][0]
    assert_whole(db)


def test_catching_up_does_what_is_new_and_no_more_than_it_may(db: Database) -> None:
    search.catch_up(db)
    for number in range(7):
        add_event(db, metadata={"number": number})
    assert search.catch_up(db, 3) == 3
    assert search.catch_up(db, 0) == 0
    assert search.catch_up(db, 100) == 4
    assert search.catch_up(db, 100) == 0
    assert_whole(db)


def test_a_search_with_nothing_new_writes_nothing(db: Database) -> None:
    add_message(db, "toad")
    search.catch_up(db)
    assert not writes(db.path, lambda: search.find(db, "toad"))
    add_message(db, "toad again")
    assert writes(db.path, lambda: search.find(db, "toad"))


def test_what_people_said_is_indexed_before_a_flood_of_events(db: Database) -> None:
    add_many(db.path, 2000)
    add_message(db, "urgent")
    search.catch_up(db, 10)
    assert len(db.rows("SELECT 1 FROM search WHERE kind = 'message'")) == 1


def test_long_messages_are_indexed_in_short_transactions(db: Database) -> None:
    for number in range(5):
        add_message(db, f"long{number} " + "filling " * 130_000)
    said: list[str] = []
    db._connection.set_trace_callback(said.append)
    assert search.catch_up(db, 4) == 4
    db._connection.set_trace_callback(None)
    assert said.count("BEGIN IMMEDIATE") == said.count("COMMIT") == 4
    assert len(search.find(db, "long4")) == 1
    assert_whole(db)


def test_a_search_that_is_cancelled_stops_and_the_next_goes_on(db: Database) -> None:
    add_many(db.path, 2000)
    scope = Scope()
    scope.cancel()
    with scope.active(), pytest.raises(Cancelled):
        search.find(db, "common")
    assert len(search.find(db, "word2000")) == 1
    assert_whole(db)


class Held(Scope):
    """Work in it stops where it asks whether to go on, until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.let_go = threading.Event(), threading.Event()

    @property
    def pending(self) -> bool:
        self.asked.set()
        assert self.let_go.wait(30)
        return super().pending


@contextlib.contextmanager
def search_held_in_the_middle(db: Database) -> Iterator[tuple[Held, Future[list[Any]]]]:
    """A search that reads much and finds nothing, in a thread of its own."""
    add_many(db.path, 20_000)
    search.catch_up(db)
    scope = Held()

    def find() -> list[Any]:
        with scope.active():
            return search.find(db, "common", instance_id="work-1-a1")

    with ThreadPoolExecutor(1) as threads:
        found = threads.submit(find)
        try:
            assert scope.asked.wait(30), "nobody asked in the middle of the search"
            assert not found.done()
            yield scope, found
        finally:
            scope.let_go.set()


def test_others_read_and_write_while_a_search_is_in_the_middle(db: Database) -> None:
    with search_held_in_the_middle(db) as (scope, found), ThreadPoolExecutor(1) as others:
        try:
            added = others.submit(add_event, db).result(30)
            assert others.submit(events.newest_id, db).result(30) == added
            assert len(others.submit(search.find, db, "word777").result(30)) == 1
            assert not found.done()
        finally:
            scope.let_go.set()
        assert found.result(30) == []


def test_a_search_that_is_cancelled_in_the_middle_stops_there_and_the_next_goes_on(db: Database) -> None:
    with search_held_in_the_middle(db) as (scope, found):
        scope.cancel()
        scope.let_go.set()
        assert isinstance(found.exception(30), Cancelled)
        assert not scope.pending
    assert len(search.find(db, "word777")) == 1


def test_a_connection_for_searching_cannot_write_and_ends_with_the_database(tmp_path: Path) -> None:
    path = tmp_path / "a 100% #odd? name.db"
    db = open_database(path)
    with db.reader() as first, db.reader() as second:
        assert first is not second
        with pytest.raises(SwarmError) as refused:
            first.rows("DELETE FROM search_cursor")
        assert refused.value.code == "DATABASE_READ_ONLY"
        db.close()
        assert [r["kind"] for r in second.rows("SELECT kind FROM search_cursor ORDER BY kind")] == sorted(
            search.SOURCES
        )
    for closed in (first, second):
        with pytest.raises(sqlite3.ProgrammingError):
            closed._connection.execute("SELECT 1")


def start(path: Path, *killed_before: object) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "tests.fakes.catch_up", str(path), *map(str, killed_before)]
    process = subprocess.Popen(
        argv, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_processes_that_catch_up_at_once_share_the_work(db: Database) -> None:
    add_many(db.path, 12_000)
    for number in range(300):
        add_message(db, f"message {number}")
    racing = [start(db.path) for _ in range(3)]
    for process in racing:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for number in range(40):
        add_event(db, metadata={"late": number})
        search.catch_up(db, 100)
    done = [process.communicate(timeout=90) for process in racing]
    assert [process.returncode for process in racing] == [0, 0, 0], done
    search.catch_up(db)
    assert_whole(db)


_KILLED_BEFORE = [
    ("BEGIN", 2),
    ("INSERT INTO search", 300),
    ("INSERT INTO search", 251),
    ("UPDATE", 2),
    ("COMMIT", 3),
]


def test_a_process_killed_while_catching_up_leaves_no_row_out_and_none_double(db: Database) -> None:
    add_many(db.path, 5000)
    for killed_before in _KILLED_BEFORE:
        process = start(db.path, *killed_before)
        process.communicate("go\n", timeout=60)
        assert process.returncode == -signal.SIGKILL, killed_before
        upto = db.rows("SELECT indexed FROM search_cursor WHERE kind = 'event'")[0][0]
        there = [int(r[0]) for r in db.rows("SELECT ref FROM search WHERE kind = 'event'")]
        known = db.rows("SELECT id FROM mcp_events WHERE id <= ? ORDER BY id", (upto,))
        assert sorted(there) == [r[0] for r in known], killed_before
    search.catch_up(db)
    assert_whole(db)
    assert len(search.find(db, "word5000")) == 1


def test_the_coordinator_indexes_between_searches_and_rests_when_nothing_is_new(home: dict[str, str]) -> None:
    with open_swarm(home) as swarm:
        db = swarm.context.db
        for number in range(20):
            add_event(db, metadata={"number": number})
        supervisor = Supervisor(swarm.context)
        supervisor.do_chores()
        assert search.behind(db) == {}
        assert not writes(db.path, supervisor.do_chores)


# Migration


def version_one(path: Path) -> tuple[str, str]:
    """A database as the first release left it, with an instance, its token, an event and a message."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("BEGIN IMMEDIATE")
    migrations.migrations.apply(sqlite_utils.Database(connection), stop_before="0002_coordination")
    connection.execute("PRAGMA user_version = 1")
    connection.execute("COMMIT")
    at = "2026-01-01T00:00:00.000Z"
    connection.execute("INSERT INTO hosts VALUES ('local', 'up', ?)", (at,))
    connection.execute(
        "INSERT INTO instances (id, kind, status, wanted, host, epoch, repo_path, worktree_path, branch,"
        " base_branch, tmux_session, agent, conversation_id, agent_number, activity, activity_source,"
        " activity_at, created_at, updated_at) VALUES ('work-a1', 'work', 'running', 'running', 'local', 3, '/r',"
        " '/w', 'b', 'main', 'work-a1', 'scripted', 'c', 1, 'idle', 'file', ?, ?, ?)",
        (at, at, at),
    )
    for token, epoch, revoked in (("good", 3, None), ("stale", 2, None), ("gone", 3, at)):
        connection.execute(
            "INSERT INTO tokens VALUES (?, 'work-a1', ?, ?, ?)", (tokens._hash(token), epoch, at, revoked)
        )
    connection.execute(
        "INSERT INTO mcp_events (at, instance_id, actor, name, metadata)"
        " VALUES (?, 'work-a1', 'supervisor', 'instance:problem', ?)",
        (at, '{"what": "the ancient mariner"}'),
    )
    connection.execute(
        "INSERT INTO messages (id, instance_id, sender, state, body, created_at, updated_at)"
        " VALUES ('m1', 'work-a1', 'operator', 'accepted', 'an ancient message', ?, ?)",
        (at, at),
    )
    connection.close()
    return at, "work-a1"


def test_a_database_of_the_first_version_keeps_its_tokens_events_and_messages(tmp_path: Path) -> None:
    path = tmp_path / "swarm.db"
    at, instance_id = version_one(path)
    db = open_database(path)
    try:
        found = tokens.lookup(db, "good").principal
        assert found is not None
        assert (found.kind, found.name) == ("instance", instance_id)
        assert "earlier start" in tokens.lookup(db, "stale").reason
        assert "revoked" in tokens.lookup(db, "gone").reason
        assert [(r.name, r.created_at) for r in tokens.listed(db, include_revoked=True)] == [(instance_id, at)] * 3
        assert {(hit.kind, hit.at) for hit in search.find(db, "ancient")} == {("event", at), ("message", at)}
        assert db.rows("PRAGMA foreign_key_check") == []
        assert_whole(db)
    finally:
        db.close()

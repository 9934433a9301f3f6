"""Retention: what is old goes, what is needed stays, the index agrees, and nobody waits for it."""

from __future__ import annotations

import contextlib
import itertools
import json
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from swarm_core import git
from swarm_core.models import iso, parse_iso
from swarm_core.ops import retention
from swarm_core.ops.retention import Janitor, Pruned
from swarm_core.store import checked, events, instances, messages, preserved, search
from swarm_core.store.database import Database, open_database
from swarm_core.swarm import Swarm
from tests.integration.test_search import assert_whole
from tests.rows import add_feedback, add_instance, add_message
from tests.support import git_run
from tests.world import World


@pytest.fixture
def swarm(world: World) -> Iterator[Swarm]:
    with world.open() as opened:
        yield opened


def ago(db: Database, days: float) -> str:
    return iso(parse_iso(db.now()) - timedelta(days=days))


def add(db: Database, instance_id: str, **fields: Any) -> None:
    """An instance with an event, a message that was seen, and feedback, all of a year and more ago."""
    add_instance(db, instance_id, repo_path="/srv/shop", **fields)
    with db.write():
        events.add(db, "instance:problem", instance_id=instance_id, actor="supervisor")
    one = add_message(db, f"to {instance_id}", to=instance_id)
    two = add_feedback(db, "please", to=instance_id)
    with db.write():
        for message_id in (one.id, two.message_id):
            messages.see(db, message_id, evidence="test")


def make_old(db: Database, days: float = 400) -> None:
    """Everything that is there now was written that long ago; then one more event, as there always is."""
    then = ago(db, days)
    with db.write():
        for table, column in (
            ("mcp_events", "at"),
            ("messages", "updated_at"),
            ("messages", "created_at"),
            ("feedback", "created_at"),
            ("preserved", "created_at"),
            ("checked_commits", "at"),
        ):
            db.execute(f"UPDATE {table} SET {column} = ?", (then,))
        db.execute("UPDATE instances SET cleaned_at = ? WHERE cleaned_at IS NOT NULL", (then,))
        events.add(db, "coordinator:started", actor="test")
    search.catch_up(db)


def of(db: Database, instance_id: str) -> tuple[int, int, int]:
    """How many events, messages and feedback of it are left."""
    tables = {"mcp_events": "instance_id", "messages": "instance_id", "feedback": "to_instance"}
    counts = [
        db.rows(f"SELECT count(*) FROM {table} WHERE {column} = ?", (instance_id,))[0][0]
        for table, column in tables.items()
    ]
    return counts[0], counts[1], counts[2]


def test_old_rows_of_cleaned_instances_go_and_those_of_others_stay(swarm: Swarm) -> None:
    db = swarm.context.db
    add(db, "work-1-a1", cleaned_at=db.now())
    add(db, "work-2-a1")
    make_old(db)
    kept = of(db, "work-2-a1")
    would = swarm.prune(dry_run=True)
    assert of(db, "work-1-a1") != (0, 0, 0)
    done = swarm.prune(dry_run=False)
    assert (done.events, done.messages, done.feedback) == (would.events, would.messages, would.feedback)
    assert of(db, "work-1-a1") == (0, 0, 0)
    assert of(db, "work-2-a1") == kept
    assert instances.get(db, "work-1-a1").id == "work-1-a1"
    search.catch_up(db)
    assert_whole(db)
    assert search.find(db, '"to work-1-a1"') == []
    assert db.rows("PRAGMA foreign_key_check") == []
    assert swarm.events()[-1].name == "data:pruned"


def test_a_second_time_nothing_goes(swarm: Swarm) -> None:
    add(swarm.context.db, "work-1-a1", cleaned_at=swarm.context.db.now())
    make_old(swarm.context.db)
    assert swarm.prune(dry_run=False).events > 0
    assert swarm.prune(dry_run=True) == Pruned()
    newest = events.newest_id(swarm.context.db)
    assert swarm.prune(dry_run=False) == Pruned()
    assert events.newest_id(swarm.context.db) == newest


def open_pull(db: Database) -> None:
    db.execute(
        "INSERT INTO pulls (forge, repo_path, number, url, instance_id, opened_by, head_branch, base_branch,"
        " head_commit, title, body, state, created_at, updated_at)"
        " VALUES ('local', '/srv/shop', 1, '', 'work-1-a1', 'operator', 'work/work-1-a1',"
        " 'main', '', '', '', 'open', '', '')"
    )


def open_notice(db: Database) -> None:
    db.execute("INSERT INTO notices (instance_id, reason, text, raised_at) VALUES ('work-1-a1', 'x', 'x', '')")


def undelivered(db: Database) -> None:
    add_message(db, "not seen yet", to="work-1-a1")


def living_review(db: Database) -> None:
    add_instance(db, "review-1-a1", kind="review", parent_id="work-1-a1")
    db.execute(
        "INSERT INTO relationships (parent_id, child_id, type, created_at)"
        " VALUES ('work-1-a1', 'review-1-a1', 'spawned_review', '')"
    )


def living_attempt(db: Database) -> None:
    add_instance(db, "work-1-a2", attempt_group="g")
    db.execute("UPDATE instances SET attempt_group = 'g' WHERE id = 'work-1-a1'")


def not_cleaned(db: Database) -> None:
    db.execute("UPDATE instances SET cleaned_at = NULL WHERE id = 'work-1-a1'")


@pytest.mark.parametrize("need", [open_pull, open_notice, undelivered, living_review, living_attempt, not_cleaned])
def test_nothing_of_an_instance_goes_that_is_still_needed(swarm: Swarm, need: Any) -> None:
    db = swarm.context.db
    add(db, "work-1-a1", cleaned_at=db.now())
    with db.write():
        need(db)
    make_old(db)
    kept = of(db, "work-1-a1")
    assert kept > (0, 0, 0)
    swarm.prune(dry_run=False)
    assert of(db, "work-1-a1") == kept


def test_an_undelivered_message_stays_however_old_it_is(swarm: Swarm) -> None:
    db = swarm.context.db
    add(db, "work-1-a1", cleaned_at=db.now())
    waiting = add_message(db, "wait for me", to="work-1-a1")
    make_old(db, days=4000)
    swarm.prune(dry_run=False)
    assert messages.get(db, waiting.id).state == "accepted"


@pytest.mark.parametrize("name", ["work:rescoped", "attempt:picked", "mcp:connected"])
def test_events_that_are_read_back_stay(swarm: Swarm, name: str) -> None:
    db = swarm.context.db
    add(db, "work-1-a1", cleaned_at=db.now())
    with db.write():
        events.add(db, name, instance_id="work-1-a1", actor="operator")
    make_old(db)
    swarm.prune(dry_run=False)
    assert [e.name for e in events.newest(db, instance_id="work-1-a1")] == [name]


def test_the_newest_event_stays_so_that_no_number_is_given_twice(swarm: Swarm) -> None:
    db = swarm.context.db
    with db.write():
        db.execute("DELETE FROM mcp_events")
        for _ in range(3):
            events.add(db, "coordinator:started", actor="test")
        db.execute("UPDATE mcp_events SET at = ?", (ago(db, 400),))
    search.catch_up(db)
    newest = events.newest_id(db)
    retention.prune(swarm.context, dry_run=False)
    assert events.after(db, newest - 1)[0].id == newest
    assert events.newest_id(db) == newest + 1  # the one that tells of it


def test_zero_days_keep_everything(world: World) -> None:
    for key in ("keep_events_days", "keep_messages_days", "keep_log_mb"):
        assert world.command("config", key, "0").returncode == 0
    with world.open() as swarm:
        add(swarm.context.db, "work-1-a1", cleaned_at=swarm.context.db.now())
        make_old(swarm.context.db, days=9000)
        assert swarm.prune(dry_run=False) == Pruned()


def test_rows_that_are_not_indexed_yet_wait_for_the_index(swarm: Swarm) -> None:
    db = swarm.context.db
    add(db, "work-1-a1", cleaned_at=db.now())
    make_old(db)
    with db.write():
        db.execute("UPDATE search_cursor SET indexed = 0")
    assert swarm.prune(dry_run=False) == Pruned()


def test_checks_of_repositories_without_open_pull_requests_go(swarm: Swarm) -> None:
    db = swarm.context.db
    add(db, "work-1-a1", cleaned_at=db.now())
    with db.write():
        open_pull(db)
        for repo in ("/srv/shop", "/srv/other"):
            checked.put(db, repo, "a" * 40, "make test", ok=False, output="no", seconds=1)
    make_old(db)
    assert swarm.prune(dry_run=False).checks == 1
    assert len(checked.of(db, "/srv/shop", "a" * 40)) == 1


def test_expired_links_and_visits_go_and_live_ones_stay(swarm: Swarm) -> None:
    db = swarm.context.db
    long_ago, soon = ago(db, 400), ago(db, -1)
    with db.write():
        for name, expires in (("old", long_ago), ("new", soon)):
            db.execute(
                "INSERT INTO links (id, hash, may_write, reusable, created_at, expires_at)"
                " VALUES (?, ?, 0, 1, ?, ?)",
                (name, name, long_ago, expires),
            )
            db.execute(
                "INSERT INTO visits (id, hash, link_id, port, may_write, created_at, seen_at, expires_at)"
                " VALUES (?, ?, ?, 1, 0, ?, ?, ?)",
                (name, name, name, long_ago, long_ago, expires),
            )
    assert swarm.prune(dry_run=False).links == 2
    assert [r[0] for r in db.rows("SELECT id FROM links")] == ["new"]


def test_preserved_work_goes_only_when_asked_and_never_the_newest(world: World, repo: Path) -> None:
    refs = [f"refs/swarm/preserved/work-1-a1/{n}" for n in range(3)]
    with world.open() as swarm:
        db = swarm.context.db
        add_instance(db, repo_path=str(repo), cleaned_at=db.now())
        for number, ref in enumerate(refs):
            (repo / "new.txt").write_text(f"{number}\n")
            stored = git.preserve(repo, ref=ref, message="kept")
            assert stored is not None
            with db.write():
                preserved.add(
                    db,
                    "work-1-a1",
                    repo_path=str(repo),
                    ref=ref,
                    commit=stored.commit,
                    files=1,
                    size=2,
                    why="clean",
                )
        make_old(db)
        assert swarm.prune(dry_run=False).preserved == 0
        assert len(git.preserved_refs(repo, "work-1-a1")) == 3
    assert world.command("config", "keep_preserved_days", "30").returncode == 0
    with world.open() as swarm:
        assert swarm.prune(dry_run=True).preserved == 2
        assert swarm.prune(dry_run=False).preserved == 2
        assert [ref for ref, _ in git.preserved_refs(repo, "work-1-a1")] == [refs[-1]]
        assert [p.ref for p in preserved.of(swarm.context.db, "work-1-a1")] == [refs[-1]]
    assert git_run(repo, "show", f"{refs[-1]}:new.txt") == "2"


def test_a_long_log_is_moved_aside_under_its_writer(world: World) -> None:
    assert world.command("config", "keep_log_mb", "1").returncode == 0
    log = world.home / "logs" / "coordinator.log"
    log.parent.mkdir(mode=0o700)
    with log.open("ab") as writer, world.open() as swarm:
        writer.write(b"x" * (2 << 20))
        writer.flush()
        assert swarm.prune(dry_run=True).logs == 1
        assert swarm.prune(dry_run=False).logs == 1
        writer.write(b"goes on\n")
        writer.flush()
        assert log.read_bytes() == b"goes on\n"
        assert log.with_name("coordinator.log.old").stat().st_size == 2 << 20
        assert swarm.prune(dry_run=False).logs == 0


def add_many(path: Path, count: int, at: str) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
            " INSERT INTO mcp_events (at, actor, name, metadata) SELECT ?, 'supervisor', 'instance:activity',"
            " json_object('detail', 'word' || i) FROM n",
            (count, at),
        )
    connection.close()


def test_the_coordinator_deletes_a_little_at_every_look(swarm: Swarm, monkeypatch: pytest.MonkeyPatch) -> None:
    db = swarm.context.db
    add_many(db.path, 5000, ago(db, 400))
    with db.write():
        events.add(db, "coordinator:started", actor="test")
    search.catch_up(db)
    waiting = Janitor(swarm.context)
    waiting.look()
    assert len(events.after(db, 0, limit=9000)) == 5001, "not in the first minutes"
    monkeypatch.setattr(retention, "_FIRST_AFTER", 0.0)
    janitor, left = Janitor(swarm.context), []
    for _ in range(80):
        janitor.look()
        left.append(len(events.after(db, 0, limit=9000)))
    assert max(before - after for before, after in itertools.pairwise([5001, *left])) == 200
    assert [e.name for e in events.after(db, 0)] == ["coordinator:started", "data:pruned"]
    search.catch_up(db)
    assert_whole(db)


def costs(swarm: Swarm) -> list[int]:
    """How much of SQLite's work each step of the coordinator is; nobody else writes meanwhile."""
    done, found = [0], list[int]()

    def count() -> None:
        done[0] += 1

    swarm.context.db._connection.set_progress_handler(count, 100)
    for _ in retention._steps(swarm.context, Pruned(), actor="supervisor"):
        found.append(done[0])
        done[0] = 0
    swarm.context.db._connection.set_progress_handler(None, 0)
    return found


def test_a_step_costs_the_same_however_much_is_kept(swarm: Swarm) -> None:
    db = swarm.context.db
    add(db, "work-1-a1")

    def fill(many: int) -> None:
        with db.write():
            for number in range(many):
                said = messages.accept(db, "work-1-a1", sender="operator", body="hello")
                messages.see(db, said.id, evidence="test")
                checked.put(db, "/srv/shop", f"{number:040}", "make", ok=True, output="", seconds=0.1)
        make_old(db)

    fill(400)
    few = max(costs(swarm))
    fill(8000)
    assert max(costs(swarm)) < 3 * few


def test_others_write_while_much_is_deleted(world: World, swarm: Swarm) -> None:
    db = swarm.context.db
    add_many(db.path, 20_000, ago(db, 400))
    with db.write():
        events.add(db, "coordinator:started", actor="test")
    search.catch_up(db)
    with ThreadPoolExecutor(1) as threads, contextlib.closing(open_database(db.path, busy_timeout=5)) as other:
        pruning, written = threads.submit(swarm.prune, dry_run=False), 0
        while not pruning.done():
            with other.write():
                events.add(other, "coordinator:stopped", actor="test")
            written += 1
        assert pruning.result().events == 20_000
    assert written > 1
    assert len([e for e in events.after(db, 0, limit=90_000) if e.name == "coordinator:stopped"]) == written


def test_the_command_tells_what_would_go(world: World) -> None:
    assert world.command("ls").returncode == 0
    told = json.loads(world.command("prune", "--dry-run", "--json").stdout)
    assert told == {
        "ok": True,
        "dry_run": True,
        **dict.fromkeys(("events", "messages", "feedback", "links", "checks", "preserved", "logs"), 0),
    }

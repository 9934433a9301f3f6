"""The inbox: what waits for a person, since when, and until it is dismissed; many are read as quickly as few."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from swarm_core.errors import NotFound
from swarm_core.forge import Check, Comment, Review
from swarm_core.models import CheckRun, Pull
from swarm_core.ops import inbox, pull_known
from swarm_core.ops.pull_status import Policy, readiness
from swarm_core.store import check_runs, notices, pull_facts, pulls, queue, relationships, verdicts
from swarm_core.store.database import Database
from swarm_core.swarm import Swarm
from swarm_ui.web import rows
from tests.rows import add_instance, add_message
from tests.world import World

ASKED = json.dumps({"digest": "abcdef012345", "text": "Allow?", "choices": ["Yes", "No"], "since": "x"})


class Clock:
    def __init__(self) -> None:
        self.time = datetime(2031, 5, 6, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.time += timedelta(seconds=1)
        return self.time


@pytest.fixture
def swarm(short_tmp: Path, repo: Path) -> Iterator[Swarm]:
    with World(short_tmp / "h", repo).open(clock=Clock()) as made:
        yield made


def add_pull(db: Database, instance_id: str = "work-1-a1", **changes: object) -> Pull:
    known = {
        "id": 0,
        "forge": "local",
        "repo_path": "/srv/shop",
        "number": int(instance_id.split("-")[1]),
        "url": "u",
        "instance_id": instance_id,
        "opened_by": instance_id,
        "head_branch": f"work/{instance_id}",
        "base_branch": "main",
        "head_commit": "c" * 40,
        "title": "Fix",
        "body": "x" * 1000,
        "state": "open",
        "created_at": db.now(),
        "updated_at": db.now(),
    }
    with db.write():
        return pulls.insert(db, Pull(**(known | changes)))  # type: ignore[arg-type]


def keys(swarm: Swarm) -> list[str]:
    return [item.id for item in inbox.board(swarm.context.db, policy=Policy()).items()]


def test_what_waits_longest_comes_first_and_since_when_is_the_notice(swarm: Swarm) -> None:
    db = swarm.context.db
    add_instance(db, "work-1-a1", activity="blocked", blocked_on=ASKED)
    add_instance(db, "work-2-a1", status="failed", activity="exited", reason="crashed")
    add_instance(db, "work-3-a1", activity="busy")
    with db.write():
        notices.raise_(db, "work-1-a1", "blocked:abcdef012345", "blocked")
    (raised,) = notices.lasting(db)
    items = inbox.board(db, policy=Policy()).items()
    assert [item.id for item in items] == ["work-2-a1:failed", "work-1-a1:blocked:abcdef012345"]
    assert items[1].need.since == raised.raised_at


def test_what_is_dismissed_is_gone_until_it_is_needed_anew(swarm: Swarm) -> None:
    db = swarm.context.db
    add_instance(db, activity="blocked", blocked_on=ASKED)
    (before,) = keys(swarm)
    inbox.dismiss(swarm.context, before, actor="operator:anna")
    assert keys(swarm) == []
    assert db.rows("SELECT by FROM dismissed")[0]["by"] == "operator:anna"
    with db.write():
        db.execute("UPDATE instances SET activity_at = ?", (db.now(),))
    assert keys(swarm) == [before]
    inbox.dismiss(swarm.context, before, actor="operator")
    with db.write():
        db.execute("UPDATE instances SET blocked_on = ?", (ASKED.replace("abcdef", "fedcba"),))
    assert keys(swarm) == ["work-1-a1:blocked:fedcba012345"]
    for gone in (before, "work-9-a1:failed", "nonsense", ""):
        with pytest.raises(NotFound):
            inbox.dismiss(swarm.context, gone, actor="operator")


def test_a_ready_pull_request_waits_until_swarm_or_a_person_takes_it(swarm: Swarm) -> None:
    db = swarm.context.db
    add_instance(db, status="pr_created", activity="idle")
    pull = add_pull(db)
    assert keys(swarm) == [f"work-1-a1:pull_ready:1@{'c' * 12}"]
    with db.write():
        entry = queue.add(db, pull, method="merge", asked_by="operator")
    board = inbox.board(db, policy=Policy())
    assert (board.items(), board.queued) == ([], 1)
    with db.write():
        queue.change(db, entry, state=queue.LEFT)
        pulls.change(db, pull, auto_merge="squash")
    assert keys(swarm) == []
    with db.write():
        pulls.change(db, pull, auto_merge="", head_commit="d" * 40)
    (ready,) = keys(swarm)
    inbox.dismiss(swarm.context, ready, actor="operator")
    with db.write():
        pulls.change(db, pull, title="Another title")
    assert keys(swarm) == []
    with db.write():
        pulls.change(db, pull, head_commit="e" * 40)
    assert keys(swarm) == [f"work-1-a1:pull_ready:1@{'e' * 12}"]


def test_red_checks_need_a_person_only_when_the_agent_has_read_its_mail_and_rests(swarm: Swarm) -> None:
    db = swarm.context.db
    add_instance(db, status="pr_created", activity="idle")
    pull = add_pull(db)
    with db.write():
        pull_facts.replace_checks(db, pull.id, [Check("1", "tests", "failed")])
    assert keys(swarm) == [f"work-1-a1:pull_failed:1@{'c' * 12}"]
    add_message(db, "the checks are red")
    assert keys(swarm) == []


def test_a_glance_gives_every_pull_request_the_status_that_a_full_read_does(swarm: Swarm) -> None:
    db = swarm.context.db
    said = {"author": "anna", "body": "b", "at": db.now(), "trusted": True}
    for number in range(1, 12):
        add_instance(db, f"work-{number}-a1", status="pr_created", activity="idle")
        pull = add_pull(db, f"work-{number}-a1", draft=number == 5, mergeable=False if number == 6 else None)
        with db.write():
            if number in (1, 2):
                state = ("failed", "pending")[number - 1]
                pull_facts.replace_checks(db, pull.id, [Check("1", "tests", state), Check("2", "lint", "passed")])
            if number in (3, 4):
                state = ("approved", "changes_requested")[number - 3]
                pull_facts.replace_reviews(db, pull.id, [Review("1", state=state, commit="c" * 40, **said)])
            if number in (7, 8):
                outdated = number == 8
                pull_facts.replace_comments(db, pull.id, [Comment("1", outdated=outdated, **said)])
            if number == 9:
                verdicts.add(db, pull.instance_id, "d" * 40, "needs_work", by="review-9-a1")
            if number == 10:
                run = CheckRun(pull.id, pull.head_commit, "b" * 40, "make test", True, "said", db.now())
                check_runs.put(db, run)
            if number == 11:
                add_instance(db, "review-11-a1", kind="review", parent_id=pull.instance_id)
                relationships.add(db, pull.instance_id, "review-11-a1", relationships.REVIEW, head_commit="c" * 40)
    full = {
        one.pull.instance_id: readiness(one) for one in pull_known.facts_of(db, pulls.listed(db), policy=Policy())
    }
    glanced = {name: readiness(one) for name, one in inbox.board(db, policy=Policy()).pulls.items()}
    assert glanced == full
    assert len({found.state for found in full.values()}) == 11


def test_many_instances_are_read_in_as_few_queries_as_few(swarm: Swarm) -> None:
    db = swarm.context.db
    add_instance(db, activity="blocked", blocked_on=ASKED, prompt="p" * 100_000)
    few = queries(db, lambda: rows.snapshot(swarm, datetime.now(UTC)))
    for number in range(2, 60):
        add_instance(db, f"work-{number}-a1", activity="blocked", blocked_on=ASKED)
        add_pull(db, f"work-{number}-a1")
    assert queries(db, lambda: rows.snapshot(swarm, datetime.now(UTC))) == few
    assert few < 20
    (first, *_) = inbox.board(db, policy=Policy()).instances
    assert len(first.prompt) == 400


def queries(db: Database, read: Callable[[], object]) -> int:
    seen: list[str] = []
    db._connection.set_trace_callback(seen.append)
    try:
        read()
    finally:
        db._connection.set_trace_callback(None)
    return len(seen)


def test_cleaned_instances_need_nobody(swarm: Swarm) -> None:
    db = swarm.context.db
    one = add_instance(db, status="failed", activity="exited", cleaned_at=db.now())
    add_pull(db)
    assert keys(swarm) == []
    assert inbox.needs_of(dataclasses.replace(one), None, {}) == []


def test_status_and_ls_tell_of_pull_requests_too(short_tmp: Path, repo: Path) -> None:
    world = World(short_tmp / "h", repo)
    with world.open() as swarm:
        add_instance(swarm.context.db, status="pr_created", activity="exited", wanted="stopped")
        add_pull(swarm.context.db)
    (waiting,) = json.loads(world.command("status", "--json").stdout)["instances"]["needs_you"]
    assert waiting["id"] == "work-1-a1"
    assert "#1 can be merged: no blockers" in waiting["reason"]
    (row,) = json.loads(world.command("ls", "--json").stdout)
    assert waiting["reason"] in row["needs_you"]
    assert b"can be merged" in world.command("ls").stdout

"""Backups: taken while the database is written, verified, put back while nothing runs, the former one kept."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from swarm_core import locks
from swarm_core.errors import SwarmError
from swarm_core.models import Instance
from swarm_core.ops import backup
from swarm_core.store import backup as copies
from swarm_core.store import checked, events, instances, messages, preserved, tokens
from swarm_core.store.backup import Restored
from swarm_core.store.database import open_database
from swarm_core.store.schema import VERSION
from swarm_core.swarm import Swarm
from tests.integration.merge_fixture import Check, check, proposed, put, rev
from tests.integration.review_fixture import refusal
from tests.integration.test_readiness import codes, judge
from tests.rows import add_instance, add_message
from tests.support import git_run
from tests.world import World

__all__ = ["check"]


def code_of(act: Callable[[], object]) -> str | None:
    try:
        act()
    except SwarmError as error:
        return error.code
    return None


def silent(_: object) -> None:
    return


@pytest.fixture
def swarm(world: World) -> Iterator[Swarm]:
    with world.open() as opened:
        add_instance(opened.context.db)
        add_message(opened.context.db, "hello")
        yield opened


def restore(world: World, file: Path) -> Restored:
    return backup.restore(world.settings, file, report=silent)


def test_a_backup_is_one_private_file_that_reads_back_the_same(world: World, swarm: Swarm) -> None:
    made = swarm.backup()
    assert made.path.parent == world.home / "backups"
    assert stat.S_IMODE(made.path.stat().st_mode) == 0o600
    assert [p.name for p in made.path.parent.iterdir()] == [made.path.name]
    with contextlib.closing(sqlite3.connect(f"file:{made.path}?immutable=1", uri=True)) as raw:
        assert raw.execute("SELECT body FROM messages").fetchall() == [("hello",)]
        assert raw.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    assert (made.schema, made.rows["messages"], made.rows["instances"]) == (VERSION, 1, 1)


def test_a_backup_taken_while_others_write_is_of_one_moment(world: World, swarm: Swarm, tmp_path: Path) -> None:
    """Two rows are written together each time, so that their numbers agree at every moment."""
    stop = threading.Event()

    def write() -> None:
        with world.open() as other:
            while not stop.is_set():
                with other.context.db.write():
                    for name in ("coordinator:started", "coordinator:stopped"):
                        events.add(other.context.db, name, actor="x" * 400)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        before = events.newest_id(swarm.context.db)
        made = [swarm.backup(tmp_path / f"{n}.db").path for n in range(5)]
        assert events.newest_id(swarm.context.db) > before
    finally:
        stop.set()
        writer.join()
    for path in made:
        with contextlib.closing(sqlite3.connect(path)) as raw:
            count = "SELECT count(*) FROM mcp_events WHERE name = ?"
            names = ("coordinator:started", "coordinator:stopped")
            assert len({raw.execute(count, (name,)).fetchone() for name in names}) == 1


def test_a_backup_never_overwrites_and_leaves_nothing_when_it_fails(swarm: Swarm, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("mine")
    assert code_of(lambda: swarm.backup(tmp_path / "there")) == "FILE_EXISTS"
    (tmp_path / "link").symlink_to("nowhere")
    assert code_of(lambda: swarm.backup(tmp_path / "link")) == "FILE_EXISTS"
    (tmp_path / "shut").touch()
    assert code_of(lambda: swarm.backup(tmp_path / "shut" / "file")) == "EXTERNAL_FAILURE"
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == ["shut", "there"]
    assert (tmp_path / "there").read_text() == "mine"


def test_only_the_newest_backups_are_kept_and_only_ours_go(world: World, swarm: Swarm) -> None:
    (world.home / "backups").mkdir(mode=0o700)
    (world.home / "backups" / "mine.db").write_text("mine")
    assert world.command("config", "backups_kept", "2").returncode == 0
    with world.open() as again:
        made = [again.backup().path.name for _ in range(4)]
    kept = {p.name for p in (world.home / "backups").iterdir()}
    assert kept == {"mine.db", *made[-2:]}


def test_a_backup_made_after_the_clock_was_put_back_is_kept(world: World) -> None:
    assert world.command("config", "backups_kept", "1").returncode == 0
    with world.open() as swarm:
        first = swarm.backup().path
    with world.open(clock=lambda: datetime.now(UTC) - timedelta(days=1)) as swarm:
        made = swarm.backup()
    assert made.removed == [first]
    assert list((world.home / "backups").iterdir()) == [made.path]
    with world.open() as swarm:
        assert [made.path.name in c.message for c in swarm.doctor() if c.name == "backup"] == [True]


def test_backups_made_before_the_clock_was_put_back_go_first(world: World) -> None:
    assert world.command("config", "backups_kept", "3").returncode == 0
    ahead = timedelta(days=30)
    with world.open(clock=lambda: datetime.now(UTC) + ahead) as swarm:
        for _ in range(3):
            path = swarm.backup().path
            at = path.stat().st_mtime + ahead.total_seconds()
            os.utime(path, (at, at))
    with world.open() as swarm:
        made = [swarm.backup().path for _ in range(3)]
    assert sorted((world.home / "backups").iterdir()) == made


def test_a_backup_without_a_name_is_refused(world: World) -> None:
    assert world.command("ls").returncode == 0
    refused = world.command("backup", "--to", "", "--json")
    assert json.loads(refused.stdout)["error"]["code"] == "INVALID_INPUT"
    assert not (world.home / "backups").exists()


def test_a_restored_database_has_what_the_backup_had_and_the_former_one_is_kept(world: World) -> None:
    with world.open() as swarm:
        add_instance(swarm.context.db)
        add_message(swarm.context.db, "before")
        made = swarm.backup()
        add_message(swarm.context.db, "after")
    done = restore(world, made.path)
    assert done.replaced is not None
    with world.open() as swarm:
        assert [m.body for m in messages.of(swarm.context.db, "work-1-a1")] == ["before"]
        assert [e.name for e in swarm.events()][-1] == "data:restored"
        assert swarm.context.db.check() == []
    former = copies.verify(done.replaced)
    assert former.rows["messages"] == 2
    assert stat.S_IMODE(world.settings.database_path.stat().st_mode) == 0o600
    again = restore(world, done.replaced)
    assert again.content.rows["messages"] == 2


def test_what_ended_since_the_backup_stays_ended(world: World) -> None:
    """A revoked token does not work again, and a delivered message is not delivered twice."""
    with world.open() as swarm:
        db = swarm.context.db
        add_instance(db)
        message = add_message(db, "hello")
        token = swarm.create_token("ci", ["read"]).token
        made = swarm.backup()
        swarm.revoke_token("ci")
        with db.write():
            assert messages.inject(db, [message.id], how="paste")
            assert messages.see(db, message.id, evidence="test")
    done = restore(world, made.path)
    assert done.carried is not None
    assert {table: number for table, number in done.carried.items() if number} == {"tokens": 1, "messages": 1}
    with world.open() as swarm:
        assert tokens.lookup(swarm.context.db, token).principal is None
        assert messages.get(swarm.context.db, message.id).state == "seen"


def test_what_was_refused_or_approved_since_the_backup_stays_so(world: World) -> None:
    with world.open() as swarm:
        works = [proposed(world, swarm, number) for number in (1, 2, 3)]
        refused, approved, older = works
        judge(swarm, older, "needs_work")
        made = swarm.backup()
        judge(swarm, refused, "needs_work")
        for verdict in ("needs_work", "approved"):
            judge(swarm, approved, verdict)
        judge(swarm, older, "approved")
        former = [codes(swarm, work) for work in works]
    done = restore(world, made.path)
    assert done.carried is not None
    assert done.carried["verdicts"] == 4
    with world.open() as swarm:
        assert [codes(swarm, work) for work in works] == former == [["changes_requested"], [], []]
        assert refusal(swarm.pulls.merge, refused.id).code == "PULL_NOT_MERGEABLE"
        assert swarm.pulls.merge(approved.id).state == "merged"
    assert done.replaced is not None
    again = restore(world, done.replaced)
    assert again.carried is not None
    assert again.carried["verdicts"] == 0, "each verdict is there once"


def test_a_refusal_of_work_that_the_backup_does_not_know_counts_for_the_same_commit(world: World) -> None:
    with world.open() as swarm:
        first, other = proposed(world, swarm, 1), proposed(world, swarm, 3)
        made = swarm.backup()
        second = proposed(world, swarm, 2)
        commit = put(world.repo, first.branch, {"more.txt": "more\n"})
        git_run(world.repo, "update-ref", f"refs/heads/{second.branch}", commit)
        for work in (first, second):
            swarm.open_pull(work.id, title="The same", description="")
        judge(swarm, second, "needs_work")
    restore(world, made.path)
    with world.open() as swarm:
        swarm.open_pull(first.id, title="The same", description="")
        assert swarm.pulls.of(first.id).pull.head_commit == commit
        assert (codes(swarm, first), codes(swarm, other)) == (["changes_requested"], [])


def test_a_refusal_of_work_that_the_backup_does_not_know_counts_for_what_was_built_on_it(world: World) -> None:
    with world.open() as swarm:
        first = proposed(world, swarm, 1)
        made = swarm.backup()
        second = proposed(world, swarm, 2)
        judge(swarm, second, "needs_work")
        git_run(world.repo, "update-ref", f"refs/heads/{first.branch}", rev(world.repo, second.branch))
        put(world.repo, first.branch, {"more.txt": "more\n"})
        swarm.open_pull(first.id, title="On top", description="")
        former = codes(swarm, first)
        assert former != []
    restore(world, made.path)
    with world.open() as swarm:
        swarm.open_pull(first.id, title="On top", description="")
        assert codes(swarm, first) == former


def test_verdicts_are_carried_from_a_database_that_does_not_list_commits_below_a_head(world: World) -> None:
    with world.open() as swarm:
        work = proposed(world, swarm, 1)
        made = swarm.backup()
        judge(swarm, work, "needs_work")
    with contextlib.closing(sqlite3.connect(world.settings.database_path)) as raw:
        raw.execute("DROP TABLE pull_commits")
        raw.execute("ALTER TABLE checked_commits DROP COLUMN tree")
    done = restore(world, made.path)
    assert done.carried is not None
    assert done.carried["verdicts"] == 1
    with world.open() as swarm:
        assert codes(swarm, work) == ["changes_requested"]


def test_an_instance_that_only_has_the_same_id_gets_no_verdict(world: World) -> None:
    with world.open() as swarm:
        empty = swarm.backup()
        judge(swarm, proposed(world, swarm, 1), "needs_work")
        judged = swarm.backup()
    restore(world, empty.path)
    git_run(world.repo, "branch", "-D", "work/work-1-a1")
    with world.open() as swarm:
        work = proposed(world, swarm, 1, {"other.txt": "other\n"})
        other = swarm.backup()
    restore(world, judged.path)
    restore(world, other.path)
    with world.open() as swarm:
        assert codes(swarm, work) == []


def test_a_check_that_failed_since_the_backup_stays_failed(world: World, check: Check) -> None:
    check.use(world)
    with world.open() as swarm:
        work = proposed(world, swarm, 1, {"bad.txt": "1\n"})
        made, before = swarm.backup(), rev(world.repo, "main")
        assert refusal(swarm.pulls.merge, work.id).code == "CHECK_FAILED"
        former, runs = codes(swarm, work), check.runs
    restore(world, made.path)
    with world.open() as swarm:
        assert codes(swarm, work) == former
        assert refusal(swarm.pulls.merge, work.id).code == "CHECK_FAILED"
        assert (check.runs, rev(world.repo, "main")) == (runs, before)


def test_a_check_since_the_backup_is_known_with_the_files_that_it_saw(world: World) -> None:
    with world.open() as swarm:
        made = swarm.backup()
        with swarm.context.db.write():
            checked.put(swarm.context.db, "/repo", "c1", "make", ok=True, output="", seconds=1.0, tree="t1")
    restore(world, made.path)
    with world.open() as swarm:
        assert [one.tree for one in checked.of(swarm.context.db, "/repo", "c1")] == ["t1"]


def work_with_a_file(world: World, swarm: Swarm, text: str) -> Instance:
    return world.wait_idle(swarm, world.work(swarm, f"write notes.txt {text}").id)


def cleaned(swarm: Swarm, instance: Instance) -> str:
    """Stop and clean it; the ref under which its file is."""
    swarm.stop(instance.id)
    swarm.clean(instance.id)
    return preserved.of(swarm.context.db, instance.id)[-1].ref


@pytest.mark.parametrize("former", ["whole", "damaged"])
def test_work_preserved_since_the_backup_is_restored_by_its_instance(world: World, former: str) -> None:
    with world.open() as swarm:
        instance = work_with_a_file(world, swarm, "mine")
        swarm.stop(instance.id)
        made = swarm.backup()
        ref = cleaned(swarm, instance)
    if former == "damaged":
        world.settings.database_path.write_bytes(b"damaged")
    restore(world, made.path)
    with world.open() as swarm:
        if former == "whole":
            assert [one.ref for one in preserved.of(swarm.context.db, instance.id)] == [ref]
        swarm.restore(instance.id)
        assert (Path(instance.worktree_path) / "notes.txt").read_text().strip() == "mine"
        assert [one.ref for one in preserved.of(swarm.context.db, instance.id)] == [ref]


def test_doctor_finds_work_that_was_preserved_since_the_backup(world: World) -> None:
    with world.open() as swarm:
        known = work_with_a_file(world, swarm, "known")
        made = swarm.backup()
        unknown = work_with_a_file(world, swarm, "unknown")
        refs = {one.id: cleaned(swarm, one) for one in (known, unknown)}
    world.settings.database_path.write_bytes(b"damaged")
    restore(world, made.path)

    def told(swarm: Swarm, *, fix: bool) -> dict[str, str]:
        found = [one for one in swarm.doctor(fix=fix) if one.name == "preserved work"]
        return {one.state: f"{one.message} {one.hint}" for one in found}

    with world.open() as swarm:
        assert set(told(swarm, fix=False)) == {"warn"}
        after = told(swarm, fix=True)
        assert set(after) == {"warn", "fixed"}
        assert (refs[unknown.id] in after["warn"], f"swarm restore {known.id}" in after["fixed"]) == (True, True)
        assert [one.ref for one in preserved.of(swarm.context.db, known.id)] == [refs[known.id]]
        assert set(told(swarm, fix=True)) == {"warn"}, "what was found once is known"


def test_a_ref_that_an_agent_made_among_those_of_preserved_work_is_reported_and_not_recorded(world: World) -> None:
    with world.open() as swarm:
        instance = work_with_a_file(world, swarm, "mine")
        made_up = f"refs/swarm/preserved/{instance.id}"
        git_run(world.repo, "update-ref", made_up, "HEAD")
        for fix in (False, True):
            found = [one for one in swarm.doctor(fix=fix) if one.name == "preserved work"]
            assert [(one.state, made_up in f"{one.message} {one.hint}") for one in found] == [("warn", True)]
        assert preserved.of(swarm.context.db, instance.id) == []


def test_work_of_an_earlier_instance_of_the_same_id_is_not_restored(world: World) -> None:
    with world.open() as swarm:
        made = swarm.backup()
        first = work_with_a_file(world, swarm, "first")
        cleaned(swarm, first)
    world.settings.database_path.write_bytes(b"damaged")
    restore(world, made.path)
    shutil.rmtree(world.home / "instances" / first.id)
    with world.open() as swarm:
        second = world.wait_idle(swarm, world.work(swarm).id)
        assert second.id == first.id
        swarm.stop(second.id)
        assert refusal(swarm.restore, second.id).code == "NOTHING_PRESERVED"


def test_a_backup_is_restored_over_a_database_of_an_older_swarm(world: World) -> None:
    """What the older one has is taken over all the same."""
    with world.open() as swarm:
        token = swarm.create_token("ci", ["read"]).token
        made = swarm.backup()
        swarm.revoke_token("ci")
    with contextlib.closing(sqlite3.connect(world.settings.database_path)) as raw:
        for table in ("verdicts", "links"):
            raw.execute(f"DROP TABLE {table}")
    done = restore(world, made.path)
    assert done.carried is not None
    assert done.carried["tokens"] == 1
    with world.open() as swarm:
        assert tokens.lookup(swarm.context.db, token).principal is None


@pytest.mark.parametrize("role", ["coordinator", "dashboard", "up"])
def test_nothing_is_restored_while_a_process_of_swarm_runs(world: World, role: str) -> None:
    with world.open() as swarm:
        made = swarm.backup()
    before = world.settings.database_path.stat().st_ino
    path = world.home / "swarm.lock" if role == "coordinator" else world.home / "run" / f"{role}.lock"
    card = {"role": role, "pid": 1, "host": "here", "port": 0, "started_at": "", "home": ""}
    with locks.hold(path, holder=json.dumps(card)):
        assert code_of(lambda: restore(world, made.path)) in ("COORDINATOR_RUNNING", "ALREADY_UP")
        refused = world.command("backup", "restore", str(made.path))
        assert b"swarm down" in refused.stderr
    assert world.settings.database_path.stat().st_ino == before


def test_nothing_is_restored_while_another_command_has_the_database_open(world: World) -> None:
    with world.open() as swarm:
        made = swarm.backup()
        assert code_of(lambda: restore(world, made.path)) == "DATABASE_LOCKED"
        add_instance(swarm.context.db)
    with world.open() as swarm:
        assert len(swarm.instances()) == 1
    assert sorted(p.name for p in world.home.glob("*restoring*")) == []


class Restoring:
    """Acts once the copy that a restore prepares has what was carried over, and is checked."""

    def __init__(self, world: World, act: Callable[[], None]) -> None:
        self._log = world.settings.database_path.with_name(f".{world.settings.database_path.name}.restoring-wal")
        self._over = threading.Event()
        self._act = act
        self.code: str | None = "nothing was done"
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Restoring:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._log.exists() and not self._over.is_set():  # it is there for milliseconds
            pass
        while self._log.exists() and not self._over.is_set():
            pass
        self.code = code_of(self._act)


def fill(path: Path) -> None:
    """Make a check of the database take a while."""
    with contextlib.closing(sqlite3.connect(path)) as raw, raw:
        raw.execute(
            """INSERT INTO mcp_events (name, actor, at)
            WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
            SELECT 'coordinator:started', 'test-' || i, '2026-01-01T00:00:00.000Z' FROM n"""
        )


def test_what_is_revoked_while_a_backup_is_restored_stays_revoked(world: World) -> None:
    with world.open() as swarm:
        token = swarm.create_token("ci", ["read"]).token
    fill(world.settings.database_path)
    with world.open() as swarm:
        made = swarm.backup()

    def revoke() -> None:
        with contextlib.closing(open_database(world.settings.database_path)) as db, db.write():
            tokens.revoke_automation(db, "ci")

    with Restoring(world, revoke) as revoked:
        restore(world, made.path)
    assert revoked.code is None
    with world.open() as swarm:
        assert tokens.lookup(swarm.context.db, token).principal is None
        assert swarm.context.db.check() == []


def test_a_database_that_is_locked_for_a_moment_is_not_taken_for_one_that_cannot_be_read(world: World) -> None:
    with world.open():
        pass
    fill(world.settings.database_path)
    with world.open() as swarm:
        made = swarm.backup()
    before = world.settings.database_path.stat().st_ino
    raw = sqlite3.connect(world.settings.database_path, isolation_level=None, check_same_thread=False)
    with contextlib.closing(raw):
        raw.execute("PRAGMA journal_mode = DELETE")
        raw.execute("BEGIN EXCLUSIVE")
        with Restoring(world, raw.rollback):
            assert code_of(lambda: restore(world, made.path)) == "DATABASE_LOCKED"
    assert world.settings.database_path.stat().st_ino == before
    assert list(world.home.glob("*.replaced-*")) == []


def damaged(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(b"\xff" * 8192)


def cut_short(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def another(path: Path) -> None:
    path.unlink()
    with contextlib.closing(sqlite3.connect(path)) as raw:
        raw.execute("CREATE TABLE things (id)")


def dangling(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("PRAGMA foreign_keys = OFF")
        raw.execute("UPDATE messages SET instance_id = 'work-9-a9'")


@pytest.mark.parametrize("harm", [damaged, cut_short, another, dangling, Path.unlink])
def test_a_backup_that_is_not_whole_is_refused_and_nothing_changes(
    world: World, harm: Callable[[Path], None]
) -> None:
    with world.open() as swarm:
        add_instance(swarm.context.db)
        add_message(swarm.context.db, "hello " * 50_000)
        made = swarm.backup()
    before = world.settings.database_path.stat().st_ino
    harm(made.path)
    assert code_of(lambda: restore(world, made.path)) == "BACKUP_INVALID"
    assert world.settings.database_path.stat().st_ino == before
    assert list(world.home.glob("*.replaced-*")) == []


def test_a_backup_of_a_newer_swarm_is_refused(world: World) -> None:
    with world.open() as swarm:
        made = swarm.backup()
    with contextlib.closing(sqlite3.connect(made.path)) as raw:
        raw.execute(f"PRAGMA user_version = {VERSION + 1}")
    assert code_of(lambda: restore(world, made.path)) == "DATABASE_TOO_NEW"


@pytest.mark.parametrize("harm", [damaged, Path.unlink])
def test_a_backup_replaces_a_database_that_cannot_be_used(world: World, harm: Callable[[Path], None]) -> None:
    with world.open() as swarm:
        add_instance(swarm.context.db)
        for _ in range(50):
            add_message(swarm.context.db, "hello " * 10_000)
        made = swarm.backup()
    harm(world.settings.database_path)
    done = restore(world, made.path)
    with world.open() as swarm:
        assert instances.count(swarm.context.db) == 1
        assert swarm.context.db.check() == []
    assert (done.replaced is None) == (harm is Path.unlink)


def test_a_backup_copied_into_place_by_hand_is_opened(world: World) -> None:
    """Its journal mode is another, which opening mends."""
    with world.open() as swarm:
        add_instance(swarm.context.db)
        made = swarm.backup()
    made.path.replace(world.settings.database_path)
    with world.open() as swarm:
        add_message(swarm.context.db, "goes on")
        assert instances.count(swarm.context.db) == 1


def test_the_command_backs_up_restores_and_says_what_it_did(world: World) -> None:
    assert world.command("ls").returncode == 0
    made = json.loads(world.command("backup", "--json").stdout)
    assert made["ok"]
    done = json.loads(world.command("backup", "restore", made["file"], "--json").stdout)
    assert (done["ok"], done["carried"]["tokens"]) == (True, 0)
    assert Path(done["replaced"]).is_file()
    failed = world.command("backup", "restore", "/nowhere.db", "--json")
    assert failed.returncode == 1
    assert json.loads(failed.stdout)["error"]["code"] == "BACKUP_INVALID"


def test_doctor_tells_of_the_last_backup(world: World) -> None:
    def said() -> list[str]:
        with world.open() as swarm:
            return [c.message for c in swarm.doctor() if c.name == "backup"]

    assert "none" in said()[0]
    with world.open(clock=lambda: datetime.now(UTC) - timedelta(days=3)) as swarm:
        swarm.backup()
    assert "backups" in said()[0]

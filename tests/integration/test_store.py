"""The SQLite file: every way in which it cannot be used, many processes at once, what a transaction promises."""

from __future__ import annotations

import dataclasses
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from swarm_core.errors import SwarmError
from swarm_core.models import EVENTS
from swarm_core.store import events, instances, messages, migrations
from swarm_core.store.database import open_database
from swarm_core.store.schema import VERSION
from swarm_core.swarm import Swarm
from tests.rows import add_instance
from tests.world import World, assert_agreement

_ROOT = str(Path(__file__).parents[2])


def refusal(path: Path, **options: float) -> str:
    with pytest.raises(SwarmError) as refused:
        open_database(path, **options).close()
    assert refused.value.hint
    assert str(path) in refused.value.message or str(path.parent) in refused.value.message
    return refused.value.code


def read_all(path: Path) -> None:
    opened = open_database(path)
    try:
        assert opened.check() != []
        opened.rows("SELECT * FROM mcp_events")
    finally:
        opened.close()


def listing(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@contextmanager
def exclusively_locked(path: Path) -> Iterator[None]:
    """Another process holds the database for as long as this lasts."""
    program = (
        "import sqlite3, sys\n"
        "db = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "db.execute('BEGIN EXCLUSIVE'); print('held', flush=True); sys.stdin.read()"
    )
    argv = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        try:
            yield
        finally:
            holder.communicate(timeout=20)


def test_the_file_is_private_and_in_wal_mode(tmp_path: Path) -> None:
    path = tmp_path / "new" / "swarm.db"
    db = open_database(path)
    try:
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700
        assert [tuple(r) for r in db.rows("PRAGMA journal_mode")] == [("wal",)]
        assert [tuple(r) for r in db.rows("PRAGMA foreign_keys")] == [(1,)]
        assert [tuple(r) for r in db.rows("PRAGMA user_version")] == [(VERSION,)]
        assert db.check() == []
    finally:
        db.close()


def test_the_schema_version_counts_the_migrations() -> None:
    assert len(migrations.names()) == VERSION
    assert migrations.names() == sorted(migrations.names())


def test_a_newer_schema_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "swarm.db"
    open_database(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    connection.close()
    before = listing(tmp_path)
    assert refusal(path) == "DATABASE_TOO_NEW"
    assert listing(tmp_path) == before


@pytest.mark.parametrize(
    "content", [b"not a database at all", b"\0" * 4096, b"SQLite format 3\0" + b"\xff" * 8000]
)
def test_a_file_that_is_no_database_is_refused_and_not_touched(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "swarm.db"
    path.write_bytes(content)
    assert refusal(path) == "DATABASE_CORRUPT"
    assert listing(tmp_path) == {str(path): content}


def test_a_truncated_database_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "swarm.db"
    db = open_database(path)
    with db.write():
        for _ in range(500):
            events.add(db, "coordinator:started", actor="x" * 200)
    db.close()
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2 + 100])
    before = path.read_bytes()
    with pytest.raises(SwarmError) as refused:
        read_all(path)
    assert refused.value.code == "DATABASE_CORRUPT"
    assert path.read_bytes() == before


def test_a_database_damaged_inside_is_told_by_doctor(world: World) -> None:
    with world.open() as swarm:
        for _ in range(1000):
            with swarm.context.db.write():
                events.add(swarm.context.db, "coordinator:started", actor="x" * 200)
        path = swarm.context.db.path
    data = bytearray(path.read_bytes())
    for page in range(len(data) // 4096 * 3 // 4, len(data) // 4096):
        data[page * 4096 : page * 4096 + 64] = b"\xde" * 64
    path.write_bytes(data)
    with world.open() as swarm:
        assert [c.state for c in swarm.doctor() if c.name == "database"] == ["fail"]


def test_an_empty_file_becomes_a_database(tmp_path: Path) -> None:
    path = tmp_path / "swarm.db"
    path.touch()
    db = open_database(path)
    assert db.rows("SELECT * FROM instances") == []
    db.close()


def test_a_folder_in_the_files_place_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "swarm.db"
    (path / "kept").mkdir(parents=True)
    assert refusal(path) == "DATABASE_CORRUPT"
    assert (path / "kept").is_dir()


def test_a_file_in_the_folders_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("mine")
    assert refusal(tmp_path / "home" / "swarm.db") == "DATABASE_READ_ONLY"
    assert (tmp_path / "home").read_text() == "mine"


def test_a_home_that_is_a_file_is_refused(short_tmp: Path, repo: Path) -> None:
    world = World(short_tmp / "h", repo)
    world.home.write_text("mine")
    with pytest.raises(SwarmError) as refused, world.open():
        pass
    assert refused.value.hint
    assert world.home.read_text() == "mine"


def as_nobody(program: str, *arguments: str) -> str:
    """Run Python as a user without rights; root itself ignores permissions."""
    if os.geteuid() == 0:
        program = f"import os; os.setgroups([]); os.setgid(65534); os.setuid(65534)\n{program}"
    argv = [sys.executable, "-c", f"import sys; sys.path.insert(0, {_ROOT!r})\nimport swarm_core.swarm\n{program}"]
    done = subprocess.run([*argv, *arguments], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


_TRY_TO_OPEN = """
from pathlib import Path
from swarm_core.errors import SwarmError
from swarm_core.store.database import open_database
try:
    open_database(Path(sys.argv[1])).close()
except SwarmError as error:
    print(error.code)
else:
    print("opened")
"""


@pytest.mark.parametrize("there", [False, True], ids=["new", "existing"])
def test_a_read_only_folder_is_refused_and_not_touched(short_tmp: Path, there: bool) -> None:
    home = short_tmp / "home"
    home.mkdir()
    if there:
        open_database(home / "swarm.db").close()
        (home / "swarm.db").chmod(0o666)
    short_tmp.chmod(0o755)
    before = listing(home)
    home.chmod(0o555)
    try:
        assert as_nobody(_TRY_TO_OPEN, str(home / "swarm.db")) == "DATABASE_READ_ONLY"
        assert listing(home) == before
    finally:
        home.chmod(0o755)


def test_a_read_only_disk_is_refused(short_tmp: Path) -> None:
    home = short_tmp / "home"
    open_database(home / "swarm.db").close()
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    subprocess.run(["mount", "--bind", str(home), str(home)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(home)], check=True)
        assert refusal(home / "swarm.db") == "DATABASE_READ_ONLY"
        assert refusal(home / "other.db") == "DATABASE_READ_ONLY"
        assert refusal(home / "deeper" / "other.db") == "DATABASE_READ_ONLY"
    finally:
        subprocess.run(["umount", str(home)], check=True)


def test_a_database_held_by_another_process_is_an_error_after_a_bounded_wait(tmp_path: Path) -> None:
    path = tmp_path / "swarm.db"
    db = open_database(path, busy_timeout=0.3)
    try:
        with exclusively_locked(path):
            began = time.monotonic()
            with pytest.raises(SwarmError) as refused, db.write():
                events.add(db, "coordinator:started", actor="x")
            assert refused.value.code == "DATABASE_LOCKED"
            assert 0.2 < time.monotonic() - began < 5
        assert db.rows("SELECT * FROM mcp_events") == []
        with db.write():
            events.add(db, "coordinator:started", actor="x")
        assert len(db.rows("SELECT * FROM mcp_events")) == 1
    finally:
        db.close()


def test_a_spawn_into_a_held_database_changes_nothing(world: World) -> None:
    with world.open():
        pass
    (world.home / "config.toml").write_text("busy_timeout = 0.3\n")
    with world.open() as swarm, exclusively_locked(swarm.context.db.path):
        for attempt in (lambda: world.work(swarm), lambda: swarm.message("work-a1", "hello")):
            with pytest.raises(SwarmError) as refused:
                attempt()
            assert refused.value.code in ("DATABASE_LOCKED", "INSTANCE_NOT_FOUND")
    with world.open() as swarm:
        assert swarm.instances(include_cleaned=True) == []
        assert swarm.events() == []
        assert (world.branches(), world.worktrees(), world.sessions()) == ({"main"}, {}, {})
        assert_agreement(world, swarm)


def test_a_stop_in_a_held_database_changes_nothing_and_works_later(world: World) -> None:
    with world.open() as swarm:
        instance = world.work(swarm)
        world.wait_idle(swarm, instance.id)
    (world.home / "config.toml").write_text("busy_timeout = 0.3\n")
    with world.open() as swarm:
        with exclusively_locked(swarm.context.db.path):
            with pytest.raises(SwarmError) as refused:
                swarm.stop(instance.id)
            assert refused.value.code == "DATABASE_LOCKED"
            assert world.sessions() == {instance.id: True}
        assert swarm.find(instance.id).status == "running"
        assert_agreement(world, swarm)
        assert swarm.stop(instance.id).status == "terminated"


def test_sixteen_processes_open_a_fresh_database_at_once(tmp_path: Path) -> None:
    program = (
        f"import sys; sys.path.insert(0, {_ROOT!r})\n"
        "from pathlib import Path\nfrom swarm_core.store import events\n"
        "from swarm_core.store.database import open_database\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "for path in sys.argv[2:]:\n"
        "    db = open_database(Path(path))\n"
        "    with db.write(): events.add(db, 'coordinator:started', actor=sys.argv[1])\n"
        "    db.close()"
    )
    paths = [tmp_path / str(n) / "swarm.db" for n in range(12)]
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(n), *map(str, paths)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for n in range(16)
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
    failures = [said[1].decode() for p in started if (said := p.communicate(timeout=60)) and p.returncode]
    assert failures == []
    for path in paths:
        db = open_database(path)
        assert {r[0] for r in db.rows("SELECT actor FROM mcp_events")} == {str(n) for n in range(16)}
        assert db.check() == []
        db.close()


def test_a_failed_transaction_leaves_nothing_and_a_nested_one_belongs_to_the_outer(tmp_path: Path) -> None:
    db = open_database(tmp_path / "swarm.db")

    def fail_after_the_inner() -> None:
        with db.write():
            with db.write():
                events.add(db, "coordinator:started", actor="inner")
            raise RuntimeError("outer")

    with pytest.raises(RuntimeError):
        fail_after_the_inner()
    assert db.rows("SELECT * FROM mcp_events") == []
    with pytest.raises(AssertionError):
        events.add(db, "coordinator:started", actor="outside")
    db.close()


def test_an_event_that_is_not_in_the_table_of_events_is_a_bug(tmp_path: Path) -> None:
    db = open_database(tmp_path / "swarm.db")
    assert "made:up" not in EVENTS
    with pytest.raises(AssertionError), db.write():
        events.add(db, "made:up", actor="x")
    db.close()


def test_events_keep_no_secret_and_no_long_text(tmp_path: Path) -> None:
    db = open_database(tmp_path / "swarm.db")
    told = {"api_key": "k1", "nested": [{"Authorization": "k2"}], "password": {"deep": "k3"}, "text": "y" * 9000}
    with db.write():
        events.add(db, "coordinator:started", actor="x", metadata=told, error_message="z" * 9000)
    [row] = db.rows("SELECT metadata, error_message FROM mcp_events")
    assert not any(secret in row[0] for secret in ("k1", "k2", "k3"))
    assert len(row[0]) < 1000
    assert len(row[1]) < 1000
    db.close()


def test_a_cursor_walks_all_events_once_in_order(tmp_path: Path) -> None:
    db = open_database(tmp_path / "swarm.db")
    with db.write():
        made = [events.add(db, "coordinator:started", actor=str(n)) for n in range(25)]
    seen: list[int] = []
    while page := events.after(db, seen[-1] if seen else 0, limit=10):
        seen += [e.id for e in page]
    assert seen == made
    assert [e.id for e in events.newest(db, limit=3)] == made[-3:]
    db.close()


def test_messages_are_kept_in_order_whatever_becomes_of_the_agent(world: World) -> None:
    with world.open() as swarm:
        instance = world.work(swarm)
        for n in range(5):
            swarm.message(instance.id, f"message {n}")
        swarm.stop(instance.id)
        swarm.message(instance.id, "after the stop")
        kept = [m.body for m in messages.of(swarm.context.db, instance.id)]
        assert kept == [*(f"message {n}" for n in range(5)), "after the stop"]
        swarm.clean(instance.id)
        with pytest.raises(SwarmError):
            swarm.message(instance.id, "after the clean")
        assert len(swarm.detail(instance.id).messages) == 6


def test_two_homes_do_not_see_each_other(world: World, short_tmp: Path) -> None:
    other = World(short_tmp / "o", world.repo)
    with world.open() as swarm, other.open() as second:
        world.work(swarm)
        assert second.instances() == []
        assert second.reconcile() == []
    shutil.rmtree(other.home)


def test_a_database_may_live_elsewhere_than_the_home(world: World, short_tmp: Path) -> None:
    environ = world.environ | {"MCP_DATABASE_PATH": str(short_tmp / "elsewhere" / "my.db")}
    from swarm_core import config

    with Swarm.open(config.load(environ), environ) as swarm:
        instance = world.work(swarm)
        assert swarm.find(instance.id).status == "running"
    assert (short_tmp / "elsewhere" / "my.db").is_file()
    assert not (world.home / "swarm.db").exists()


def test_instances_that_are_asked_for_come_without_prompt_and_screen(tmp_path: Path) -> None:
    db = open_database(tmp_path / "swarm.db")
    long = {"prompt": "do it", "last_screen": "done"}
    made = [
        add_instance(db, f"work-7-a{n}", agent_number=n, issue_number=7, reason="said so", **long)
        for n in range(1, 4)
    ]
    bare = {i.id: dataclasses.replace(i, prompt="", last_screen="") for i in made}
    read: set[str] = set()

    def note(action: int, table: str | None, column: str | None, *_: object) -> int:
        if (action, table) == (sqlite3.SQLITE_READ, "instances"):
            read.add(str(column))
        return sqlite3.SQLITE_OK

    db._connection.set_authorizer(note)
    for asked in ({}, {"limit": 2}, {"kind": "work", "status": "running"}, {"issue_number": 7}):
        found, total = instances.query(db, **asked)
        assert total == 3
        assert {i.id: i for i in found}.items() <= bare.items()
    assert instances.query(db, instance_id="work-7-a2") == ([bare["work-7-a2"]], 1)
    assert instances.query(db, instance_id="work-7-a2", status="failed") == ([], 0)
    assert "reason" in read
    assert read.isdisjoint(long)
    db._connection.set_authorizer(None)
    assert instances.get(db, "work-7-a2") == made[1]
    db.close()

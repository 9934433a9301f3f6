"""The database moved, replaced or deleted under who has it open: noticed, and nothing is acknowledged into it."""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from swarm_core import locks
from swarm_core.errors import SwarmError
from swarm_core.store import events
from swarm_core.store.database import Database, open_database
from tests.integration.mcp_fixture import Coordinated
from tests.integration.web_fixture import dashboard_process
from tests.support import wait_until
from tests.world import World


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    opened = open_database(tmp_path / "swarm.db")
    yield opened
    opened.close()


def write_one(db: Database) -> None:
    with db.write():
        events.add(db, "coordinator:started", actor="test")


def code_of(act: Callable[[], object]) -> str | None:
    try:
        act()
    except SwarmError as error:
        return error.code
    return None


def delete(path: Path) -> None:
    path.unlink()


def move(path: Path) -> None:
    path.rename(path.with_name("moved.db"))


def replace(path: Path) -> None:
    shutil.copyfile(path, path.with_name("other.db"))
    path.with_name("other.db").replace(path)


def delete_log(path: Path) -> None:
    path.with_name(path.name + "-wal").unlink()


def replace_log(path: Path) -> None:
    log = path.with_name(path.name + "-wal")
    shutil.copyfile(log, log.with_name("other"))
    log.with_name("other").replace(log)


def delete_index(path: Path) -> None:
    path.with_name(path.name + "-shm").unlink()


@pytest.mark.parametrize(
    ("harm", "code"),
    [
        (delete, "NO_INDEX"),
        (move, "NO_INDEX"),
        (replace, "DATABASE_REPLACED"),
        (delete_log, "DATABASE_REPLACED"),
        (replace_log, "DATABASE_REPLACED"),
        (delete_index, "DATABASE_REPLACED"),
    ],
)
def test_no_write_succeeds_once_the_file_is_another(db: Database, harm: Callable[[Path], None], code: str) -> None:
    write_one(db)
    harm(db.path)
    assert code_of(lambda: write_one(db)) == code
    wait_until(lambda: code_of(lambda: db.rows("SELECT 1")) == code, timeout=1, what="reads fail too")
    assert {code_of(lambda: db.rows("SELECT 1")) for _ in range(20)} == {code}


def test_a_file_taken_away_in_the_middle_of_a_transaction_is_not_acknowledged(db: Database) -> None:
    def write() -> None:
        with db.write():
            events.add(db, "coordinator:started", actor="test")
            delete(db.path)

    assert code_of(write) == "NO_INDEX"


def test_the_connection_goes_on_when_the_same_file_comes_back(db: Database) -> None:
    write_one(db)
    move(db.path)
    assert code_of(lambda: write_one(db)) == "NO_INDEX"
    db.path.with_name("moved.db").rename(db.path)
    write_one(db)
    assert len(events.newest(db)) == 2


def test_a_link_that_leads_to_another_file_is_a_replaced_database(tmp_path: Path) -> None:
    open_database(tmp_path / "real.db").close()
    open_database(tmp_path / "other.db").close()
    link = tmp_path / "link.db"
    link.symlink_to("real.db")
    with contextlib.closing(open_database(link)) as db:
        write_one(db)
        link.unlink()
        link.symlink_to("other.db")
        assert code_of(lambda: write_one(db)) == "DATABASE_REPLACED"


def test_a_new_reader_does_not_read_the_file_that_took_the_place(db: Database) -> None:
    write_one(db)
    replace(db.path)

    def read() -> None:
        with db.reader() as reader:
            reader.rows("SELECT 1")

    assert code_of(read) == "DATABASE_REPLACED"


def test_no_database_is_made_beside_the_log_of_another(tmp_path: Path) -> None:
    path = tmp_path / "swarm.db"
    db = open_database(path)
    write_one(db)
    log = path.with_name(path.name + "-wal")
    kept = log.read_bytes()
    move(path)
    assert code_of(lambda: open_database(path)) == "NO_INDEX"
    assert not path.exists()
    assert log.read_bytes() == kept
    db.close()


def test_no_command_makes_a_database_while_a_coordinator_holds_the_lock(world: World) -> None:
    with world.open():
        pass
    for name in ("swarm.db", "swarm.db-wal", "swarm.db-shm"):
        (world.home / name).unlink(missing_ok=True)
    with locks.hold(world.settings.coordinator_lock, holder=card(pid=1)):
        done = world.command("ls", "--json")
        assert json.loads(done.stdout)["error"]["code"] == "NO_INDEX"
        assert not (world.home / "swarm.db").exists()
    assert world.command("ls").returncode == 0


def test_who_starts_beside_a_coordinator_lets_it_make_the_database(world: World) -> None:
    path, said = world.settings.database_path, list[str | None]()

    def begin() -> None:
        with world.open():
            pass

    start = threading.Thread(target=lambda: said.append(code_of(begin)))
    with locks.hold(world.settings.coordinator_lock, holder=card(pid=1)):
        start.start()
        start.join(0.3)
        assert not path.exists()
        assert start.is_alive()
        open_database(path).close()
        start.join(30)
    assert said == [None]


def card(pid: int) -> str:
    told = {"role": "coordinator", "pid": pid, "host": "here", "port": 0, "started_at": "", "home": ""}
    return json.dumps(told)


def health(port: int) -> tuple[int, dict[str, Any]]:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
        connection.request("GET", "/health")
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


@pytest.mark.parametrize(
    ("harm", "code"), [(delete, "NO_INDEX"), (move, "NO_INDEX"), (replace, "DATABASE_REPLACED")]
)
def test_a_coordinator_acknowledges_nothing_into_a_database_that_was_taken_away(
    mcp: Coordinated, harm: Callable[[Path], None], code: str
) -> None:
    with mcp.swarm() as swarm:
        mcp.world.work(swarm)
    operator = mcp.operator()
    accepted = operator.call("send_feedback", instance_id="work-a1", feedback="one", feedback_type="suggestions")
    assert not accepted.ok.get("error")
    wait_until(lambda: health(mcp.port)[0] == 200, what="the coordinator is well")
    harm(mcp.world.settings.database_path)
    status, body = health(mcp.port)
    assert (status, body["ok"]) == (503, False)
    assert f"[{code}]" in body["problem"]
    assert str(mcp.world.home) not in json.dumps(body)
    refused = operator.call("send_feedback", instance_id="work-a1", feedback="two", feedback_type="suggestions")
    assert refused.code == code
    assert mcp.child is not None
    assert mcp.child.poll() is None


def test_mcp_and_http_report_a_missing_database_with_the_same_error_object(mcp: Coordinated) -> None:
    operator = mcp.operator()
    path = mcp.world.settings.database_path

    def refused() -> dict[str, Any]:
        error: dict[str, Any] = ask(mcp.port, "POST", "/mcp", operator.token)[1]["error"]
        return error

    with dashboard_process(mcp.world) as card:
        move(path)
        wait_until(lambda: refused()["code"] == "NO_INDEX", timeout=1, what="it is noticed")
        over_mcp = refused()
        _, over_http = ask(card.port, "GET", "/api/v1/instances", operator.token)
        path.with_name("moved.db").rename(path)
    assert over_mcp == over_http["error"]
    assert over_mcp["recovery_hint"]


def ask(port: int, method: str, page: str, token: str | None) -> tuple[int, dict[str, Any]]:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
        connection.request(method, page, headers=headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


@pytest.mark.parametrize("anew", [True, False])
def test_each_way_on_that_the_hint_for_a_missing_database_names_works(mcp: Coordinated, anew: bool) -> None:
    with mcp.swarm() as swarm:
        mcp.world.work(swarm)
        backup = swarm.backup().path
    move(mcp.world.settings.database_path)
    status = json.loads(mcp.world.command("status", "--json").stdout)
    assert "[NO_INDEX]" in status["database"]["problem"]
    assert b"not made yet" not in mcp.world.command("status").stdout
    assert mcp.world.command("down").returncode == 0
    wait_until(lambda: mcp.child is not None and mcp.child.poll() is not None, what="the coordinator ends")
    if anew:
        assert b"swarm.db-wal" in mcp.world.command("ls").stderr
        for name in ("swarm.db-wal", "swarm.db-shm"):
            with contextlib.suppress(FileNotFoundError):
                (mcp.world.home / name).rename(mcp.world.home / f"moved.{name}")
    else:
        assert mcp.world.command("backup", "restore", str(backup)).returncode == 0
    mcp.restart()
    with mcp.swarm() as swarm:
        assert len(swarm.instances()) == (0 if anew else 1)


def test_a_coordinator_goes_on_when_its_database_comes_back(mcp: Coordinated) -> None:
    wait_until(lambda: health(mcp.port)[0] == 200, what="the coordinator is well")
    path = mcp.world.settings.database_path
    move(path)
    assert health(mcp.port)[0] == 503
    path.with_name("moved.db").rename(path)
    wait_until(lambda: health(mcp.port)[0] == 200, what="it is well again")
    assert mcp.operator().call("query_instances").ok
    assert mcp.stop() == 0
    with contextlib.closing(sqlite3.connect(path)) as raw:
        assert raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_coordinator_without_its_database_still_ends_when_it_is_asked_to(mcp: Coordinated) -> None:
    wait_until(lambda: health(mcp.port)[0] == 200, what="the coordinator is well")
    mcp.world.settings.database_path.unlink()
    assert mcp.stop() == 0


def told(done: subprocess.CompletedProcess[bytes]) -> str | None:
    """The code that a command failed with."""
    answer = json.loads(done.stdout)
    return answer["error"]["code"] if isinstance(answer, dict) and "error" in answer else None


@pytest.mark.parametrize(
    "command",
    [
        ("ls",),
        ("show", "work-a1"),
        ("msg", "work-a1", "hello"),
        ("backup",),
        ("doctor", "--fix"),
        ("status",),
        ("events",),
    ],
)
def test_no_command_touches_a_database_that_was_put_in_the_place_of_the_coordinators(
    mcp: Coordinated, command: tuple[str, ...]
) -> None:
    """What was acknowledged is in the log; SQLite would apply that log to the other file and delete it."""
    path = mcp.world.settings.database_path
    with mcp.swarm() as swarm:
        backup = swarm.backup().path
        mcp.world.work(swarm)
    wait_until(lambda: health(mcp.port)[0] == 200, what="the coordinator is well")
    path.rename(path.with_name("old.db"))
    shutil.copyfile(backup, path)
    path.chmod(0o600)
    kept = path.read_bytes()
    done = mcp.world.command(*command, "--json")
    if command[0] in ("doctor", "status"):
        assert b"[DATABASE_REPLACED]" in done.stdout
    else:
        assert told(done) == "DATABASE_REPLACED"
    assert path.read_bytes() == kept
    path.unlink()
    path.with_name("old.db").rename(path)
    wait_until(lambda: health(mcp.port)[0] == 200, what="it is well again")
    assert told(mcp.world.command("show", "work-a1", "--json")) is None
    assert mcp.operator().call("query_instances").ok["total"] == 1
    assert mcp.stop() == 0
    with mcp.swarm() as swarm:
        assert swarm.context.db.check() == []
        assert [i.id for i in swarm.instances()] == ["work-a1"]


def test_the_log_of_a_replaced_database_survives_swarm_down(mcp: Coordinated) -> None:
    path = mcp.world.settings.database_path
    with mcp.swarm() as swarm:
        backup = swarm.backup().path
        mcp.world.work(swarm)
    path.rename(path.with_name("old.db"))
    shutil.copyfile(backup, path)
    path.chmod(0o600)
    assert mcp.stop() == 0
    for command in (("ls",), ("backup", "restore", str(backup))):
        assert told(mcp.world.command(*command, "--json")) == "DATABASE_REPLACED"
    path.unlink()
    path.with_name("old.db").rename(path)
    mcp.restart()
    assert told(mcp.world.command("show", "work-a1", "--json")) is None
    assert not path.with_name("swarm.db-wal.left").exists()


@pytest.mark.parametrize("name", ["swarm.db-wal", "swarm.db-shm"])
def test_no_command_makes_a_new_log_in_the_place_of_the_coordinators(mcp: Coordinated, name: str) -> None:
    with mcp.swarm() as swarm:
        mcp.world.work(swarm)
    log = mcp.world.home / name
    log.rename(log.with_name("aside"))
    assert told(mcp.world.command("ls", "--json")) == "DATABASE_REPLACED"
    assert not log.exists()
    log.with_name("aside").rename(log)
    wait_until(lambda: health(mcp.port)[0] == 200, what="it is well again")
    assert told(mcp.world.command("show", "work-a1", "--json")) is None


def test_no_command_touches_a_database_that_was_put_in_the_place_of_the_dashboards(world: World) -> None:
    with world.open() as swarm:
        backup = swarm.backup().path
    path = world.settings.database_path
    with dashboard_process(world):
        with world.open() as swarm:
            world.work(swarm)
        path.rename(path.with_name("old.db"))
        backup.rename(path)
        assert told(world.command("ls", "--json")) == "DATABASE_REPLACED"
        path.unlink()
        path.with_name("old.db").rename(path)
        assert told(world.command("show", "work-a1", "--json")) is None


def test_no_command_uses_another_database_than_the_coordinator_of_its_home(
    mcp: Coordinated, short_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_DATABASE_PATH", str(short_tmp / "other.db"))
    assert told(mcp.world.command("ls", "--json")) == "OTHER_DATABASE"
    assert told(mcp.world.command("work", "a task", "--json")) == "OTHER_DATABASE"
    assert b"MCP_DATABASE_PATH" in mcp.world.command("ls").stderr
    assert b"[OTHER_DATABASE]" in mcp.world.command("status", "--json").stdout
    assert not (short_tmp / "other.db").exists()
    argv = [sys.executable, "-P", "-m", "swarm_mcp"]
    second = subprocess.run(argv, env=mcp.world.environ, capture_output=True, check=False, timeout=60)
    assert second.returncode == 1
    assert json.loads(second.stderr.splitlines()[-1])["error"]["code"] == "OTHER_DATABASE"
    assert mcp.stop() == 0
    assert told(mcp.world.command("ls", "--json")) is None

"""What another user planted beside the database or inside the home is refused before anything uses it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from swarm_core import config
from swarm_core.errors import SwarmError
from swarm_core.store import backup
from swarm_core.store.database import open_database
from tests.integration.cli_fixture import ROOT, Cli

_NOBODY = 65534
_BESIDE = ("-wal", "-shm", "-journal", "-wal.left")
_FOLDERS = ("agents", "backups", "instances", "locks", "logs", "run", "scratch", "worktrees")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")


def code_of(act: Callable[[], object]) -> str | None:
    try:
        act()
    except SwarmError as error:
        return error.code
    return None


def error_of(cli: Cli, *command: str) -> str:
    return str(json.loads(cli(*command, "--json", check=1).out)["error"]["code"])


@pytest.fixture
def cli(short_tmp: Path, tmp_path: Path) -> Cli:
    return Cli(short_tmp / "h", tmp_path, {"MCP_SERVER_PORT": "0", "SWARM_UI_PORT": "0"})


@pytest.fixture
def shared(short_tmp: Path) -> Path:
    """A database in a folder like /tmp."""
    folder = short_tmp / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    open_database(folder / "s.db").close()
    return folder / "s.db"


def log_of_a_copy(path: Path, tmp_path: Path) -> dict[str, bytes]:
    """The log and its index of a copy that somebody changed: SQLite takes them for the database's own."""
    copy = tmp_path / "copy.db"
    shutil.copy(path, copy)
    with contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as db:
        db.execute("INSERT INTO hosts (name, state, seen_at) VALUES ('planted', 'up', '')")
        return {end: copy.with_name(copy.name + end).read_bytes() for end in ("-wal", "-shm")}


def plant(path: Path, data: bytes, *, owner: int = _NOBODY) -> None:
    path.write_bytes(data)
    path.chmod(0o666)
    os.chown(path, owner, owner)


def hosts_in(path: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as db:
        return [str(row[0]) for row in db.execute("SELECT name FROM hosts")]


@as_root
@pytest.mark.parametrize(
    "command",
    [
        *(["ls"], ["show", "work-a1"], ["events"], ["search", "x"], ["cost"], ["issues"], ["work", "x"]),
        *(["msg", "work-a1", "x"], ["stop", "--all"], ["clean", "--yes"], ["pr", "ls"], ["token", "list"]),
        *(["backup"], ["prune"], ["resume"], ["up", "--detach"], ["link"]),
    ],
    ids=" ".join,
)
def test_no_command_uses_the_log_of_another_user(
    cli: Cli, shared: Path, repo: Path, tmp_path: Path, command: list[str]
) -> None:
    cli.cwd = repo
    cli.extra["MCP_DATABASE_PATH"] = str(shared)
    for end, data in log_of_a_copy(shared, tmp_path).items():
        plant(shared.with_name(shared.name + end), data)
    before = {path: path.read_bytes() for path in shared.parent.iterdir() if path.name.startswith("s.db-")}
    try:
        assert error_of(cli, *command) == "NOT_PRIVATE"
    finally:
        cli("down", check=None)
    assert {path: path.read_bytes() for path in before} == before
    assert hosts_in(shared) == []


@as_root
@pytest.mark.parametrize("end", _BESIDE)
def test_a_file_of_another_user_beside_the_database_is_refused_even_when_it_is_empty(
    shared: Path, end: str
) -> None:
    planted = shared.with_name(shared.name + end)
    plant(planted, b"")
    assert code_of(lambda: open_database(shared)) == "NOT_PRIVATE"
    shared.unlink()
    assert code_of(lambda: open_database(shared)) == "NOT_PRIVATE"
    planted.unlink()
    open_database(shared).close()


_PLANTED_AT = """
import os, sys
from pathlib import Path
from swarm_core.errors import SwarmError
from swarm_core.store.database import open_database
database, planted, data, moment = *map(Path, sys.argv[1:4]), int(sys.argv[4])
seen = []

def plant(event, args):
    if event == "sqlite3.connect":
        seen.append(event)
        if len(seen) == moment:
            planted.write_bytes(data.read_bytes())
            planted.chmod(0o666)
            os.chown(planted, 65534, 65534)

sys.addaudithook(plant)
try:
    open_database(database).close()
except SwarmError as error:
    print(error.code)
"""


@as_root
@pytest.mark.parametrize("moment", [1, 2])
@pytest.mark.parametrize("end", ["-wal", "-journal"])
def test_a_log_that_comes_between_the_look_and_the_opening_does_not_get_into_the_database(
    shared: Path, tmp_path: Path, end: str, moment: int
) -> None:
    """Python says when it is about to open a database: after we looked, before SQLite reads anything."""
    data, planted = tmp_path / "data", shared.with_name(shared.name + end)
    make = {
        "-wal": lambda: log_of_a_copy(shared, tmp_path)["-wal"],
        "-journal": lambda: journal_of_a_copy(shared, tmp_path),
    }
    data.write_bytes(make[end]())
    argv = [sys.executable, "-c", _PLANTED_AT, str(shared), str(planted), str(data), str(moment)]
    done = subprocess.run(
        argv, env=dict(os.environ) | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["NOT_PRIVATE"]
    planted.unlink(missing_ok=True)
    with contextlib.closing(open_database(shared)) as db:
        assert db.rows("SELECT name FROM hosts") == []
        assert db.check() == []


def journal_of_a_copy(path: Path, tmp_path: Path) -> bytes:
    """A journal that plays back pages with a row that was never in the database."""
    copy = tmp_path / "journal.db"
    shutil.copy(path, copy)
    with contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as db:
        db.execute("INSERT INTO hosts (name, state, seen_at) VALUES ('planted', 'up', '')")
        db.execute("PRAGMA journal_mode = PERSIST")
        db.execute("BEGIN")
        db.execute("DELETE FROM hosts")
        db.execute("PRAGMA cache_size = 1")
        db.execute("PRAGMA cache_spill = 1")
        db.execute(
            "CREATE TABLE filler AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 9999) "
            "SELECT x, hex(randomblob(100)) AS y FROM n"
        )
        return copy.with_name(copy.name + "-journal").read_bytes()


@as_root
def test_doctor_reports_the_log_of_another_user(cli: Cli, shared: Path, tmp_path: Path) -> None:
    cli.extra["MCP_DATABASE_PATH"] = str(shared)
    plant(shared.with_name("s.db-wal"), log_of_a_copy(shared, tmp_path)["-wal"])
    found = cli("doctor", "--fix", "--json", check=1).json["checks"]
    assert [c["state"] for c in found] == ["fail"]
    assert "NOT_PRIVATE" in found[0]["message"]
    assert "NOT_PRIVATE" in cli("status", "--json").json["database"]["problem"]


@pytest.mark.parametrize("end", _BESIDE)
@pytest.mark.parametrize("kind", ["link", "second name", "folder", "pipe", "open to others"])
def test_only_a_plain_private_file_is_used_beside_the_database(
    shared: Path, tmp_path: Path, end: str, kind: str
) -> None:
    planted, victim = shared.with_name(shared.name + end), tmp_path / "victim"
    victim.write_text("mine\n")
    make: dict[str, Callable[[], object]] = {
        "link": lambda: planted.symlink_to(victim),
        "second name": lambda: planted.hardlink_to(victim),
        "folder": planted.mkdir,
        "pipe": lambda: os.mkfifo(planted),
        "open to others": lambda: plant(planted, b"", owner=os.geteuid()),
    }
    make[kind]()
    assert code_of(lambda: open_database(shared)) == "NOT_PRIVATE"
    assert victim.read_text() == "mine\n"


@as_root
def test_a_link_of_another_user_in_the_place_of_the_database_is_refused(shared: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.db"
    open_database(mine).close()
    shared.unlink()
    shared.symlink_to(mine)
    open_database(shared).close()
    os.chown(shared, _NOBODY, _NOBODY, follow_symlinks=False)
    assert code_of(lambda: open_database(shared)) == "NOT_PRIVATE"


def test_the_folder_that_a_link_leads_to_is_checked_too(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir(mode=0o700)
    open_database(real / "s.db").close()
    (tmp_path / "link.db").symlink_to(real / "s.db")
    open_database(tmp_path / "link.db").close()
    real.chmod(0o777)
    assert code_of(lambda: open_database(tmp_path / "link.db")) == "NOT_PRIVATE"


@as_root
def test_a_backup_is_not_restored_with_a_log_that_another_user_put_beside_it(shared: Path, tmp_path: Path) -> None:
    plant(shared.with_name("s.db-wal"), log_of_a_copy(shared, tmp_path)["-wal"])
    target = tmp_path / "h" / "swarm.db"
    target.parent.mkdir(mode=0o700)

    def restore() -> None:
        backup.restore(target, shared, kept_as=tmp_path / "kept", progress=lambda _: None)

    assert code_of(restore) == "NOT_PRIVATE"
    assert not target.exists()


@as_root
def test_a_backup_that_another_user_made_whole_is_restored_on_request(shared: Path, tmp_path: Path) -> None:
    for path in (shared, *(plant(p, d) or p for p, d in _planted(shared, tmp_path))):
        os.chown(path, _NOBODY, _NOBODY)
    target = tmp_path / "h" / "swarm.db"
    target.parent.mkdir(mode=0o700)
    backup.restore(target, shared, kept_as=tmp_path / "kept", progress=lambda _: None)
    assert hosts_in(target) == ["planted"]


def _planted(path: Path, tmp_path: Path) -> list[tuple[Path, bytes]]:
    return [(path.with_name(path.name + end), data) for end, data in log_of_a_copy(path, tmp_path).items()]


@pytest.mark.parametrize("name", _FOLDERS)
def test_a_link_in_the_place_of_a_folder_of_the_home_is_refused(cli: Cli, tmp_path: Path, name: str) -> None:
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o700)
    cli.home.mkdir(mode=0o700)
    (cli.home / name).symlink_to(victim)
    for command in (["ls"], ["up", "--detach"], ["work", "x"], ["config", "pool", "2"], ["backup"]):
        assert error_of(cli, *command) == "NOT_PRIVATE"
    found = cli("doctor", "--fix", "--json", check=1).json["checks"]
    assert [c["state"] for c in found] == ["fail"]
    assert list(victim.iterdir()) == []
    assert [p.name for p in cli.home.iterdir()] == [name]


@as_root
@pytest.mark.parametrize("name", _FOLDERS)
def test_a_folder_of_another_user_inside_the_home_is_refused(cli: Cli, name: str) -> None:
    (cli.home / name).mkdir(parents=True, mode=0o700)
    cli.home.chmod(0o700)
    os.chown(cli.home / name, _NOBODY, _NOBODY)
    assert error_of(cli, "ls") == "NOT_PRIVATE"


@as_root
@pytest.mark.parametrize("name", ["tmux.sock", "tmux.conf", "prices.toml", "swarm.lock", "operator.token", "x"])
def test_whatever_another_user_left_in_the_home_is_refused(cli: Cli, name: str) -> None:
    cli("ls")
    plant(cli.home / name, b"")
    assert error_of(cli, "ls") == "NOT_PRIVATE"
    (cli.home / name).unlink()
    (cli.home / name).symlink_to("/dev/null")
    os.chown(cli.home / name, _NOBODY, _NOBODY, follow_symlinks=False)
    assert error_of(cli, "ls") == "NOT_PRIVATE"


def test_a_link_in_the_place_of_the_folder_for_sockets_is_refused(
    short_tmp: Path, tmp_path: Path, repo: Path
) -> None:
    """Who made it could lead us to a tmux of their own after we looked."""
    cli = Cli(short_tmp / ("h" * 90), repo)
    outside = config.load(cli.environ).short_folder
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o700)
    outside.symlink_to(victim)
    try:
        assert error_of(cli, "ls") == "NOT_PRIVATE"
        assert error_of(cli, "work", "x") == "NOT_PRIVATE"
        victim.rmdir()
        assert error_of(cli, "work", "x") == "NOT_PRIVATE"
    finally:
        outside.unlink()


def test_the_folders_of_a_home_are_all_checked(cli: Cli) -> None:
    cli("up", "--detach")
    cli("backup")
    cli("down")
    made = {path.name for path in cli.home.iterdir() if path.is_dir()}
    assert made <= set(config.FOLDERS)
    assert set(config.FOLDERS) == set(_FOLDERS)


def test_doctor_closes_folders_of_the_home_that_others_can_write_to(cli: Cli) -> None:
    cli("ls")
    (cli.home / "logs").mkdir(exist_ok=True)
    (cli.home / "logs").chmod(0o777)
    assert error_of(cli, "ls") == "NOT_PRIVATE"
    cli("doctor", "--fix", check=None)
    cli("ls")

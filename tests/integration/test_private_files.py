"""A home that others can write to is refused, planted links are not followed, and what is made is private."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from swarm_core import config, files, locks, proc, process
from swarm_core.errors import SwarmError
from swarm_core.store.database import open_database
from tests.integration.cli_fixture import Cli
from tests.support import wait_until
from tests.world import World

_NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")


def code_of(act: Callable[[], object]) -> str | None:
    try:
        act()
    except SwarmError as error:
        return error.code
    return None


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture
def cli(short_tmp: Path, tmp_path: Path) -> Cli:
    return Cli(short_tmp / "h", tmp_path)


@pytest.mark.parametrize("bits", [0o777, 0o770, 0o720, 0o702, 0o1777])
def test_a_home_that_others_can_write_to_is_refused_by_every_command(cli: Cli, bits: int) -> None:
    cli.home.mkdir()
    cli.home.chmod(bits)
    for command in (["ls"], ["status"], ["up", "--detach"], ["config", "pool"], ["work", "x"]):
        error = json.loads(cli(*command, "--json", check=1).out)["error"]
        assert error["code"] == "NOT_PRIVATE"
        assert f"chmod go-w {cli.home}" in error["hint"]
    assert list(cli.home.iterdir()) == []


@as_root
@pytest.mark.parametrize("what", ["home", "config.toml", "swarm.db"])
def test_what_another_user_made_is_refused(cli: Cli, what: str) -> None:
    cli("ls")
    (cli.home / "config.toml").write_text("check_command = 'touch /tmp/owned'\n")
    os.chown(cli.home if what == "home" else cli.home / what, _NOBODY, _NOBODY)
    assert json.loads(cli("ls", "--json", check=1).out)["error"]["code"] == "NOT_PRIVATE"


def test_a_config_file_that_others_can_write_to_is_refused(cli: Cli) -> None:
    cli("ls")
    (cli.home / "config.toml").write_text("check_command = 'touch /tmp/owned'\n")
    (cli.home / "config.toml").chmod(0o666)
    assert json.loads(cli("ls", "--json", check=1).out)["error"]["code"] == "NOT_PRIVATE"


def test_doctor_closes_a_home_of_ours(cli: Cli) -> None:
    cli("ls")
    cli.home.chmod(0o777)
    assert cli("doctor", check=1).out
    found = cli("doctor", "--fix", "--json", check=None).json["checks"]
    assert [c["state"] for c in found if c["name"] == "home"] == ["fixed", "ok"]
    assert mode(cli.home) == 0o700


def test_doctor_names_a_repository_that_is_not_there_and_looks_at_the_rest(cli: Cli) -> None:
    cli("ls")
    found = cli("doctor", "--fix", "--repo", "/nosuch", "--json", check=1).json["checks"]
    states = {(c["name"], c["state"]) for c in found}
    assert ("repositories", "fail") in states
    assert ("home", "ok") in states


@pytest.mark.parametrize("bits", [0o777, 0o722])
def test_the_folder_of_a_database_elsewhere_is_checked_too(cli: Cli, short_tmp: Path, bits: int) -> None:
    folder = short_tmp / "elsewhere"
    folder.mkdir()
    folder.chmod(bits)
    cli.extra["MCP_DATABASE_PATH"] = str(folder / "s.db")
    assert json.loads(cli("ls", "--json", check=1).out)["error"]["code"] == "NOT_PRIVATE"
    folder.chmod(0o1777)
    cli("ls")
    assert mode(folder / "s.db") == 0o600


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_up_first_makes_everything_private_whatever_the_umask(short_tmp: Path, tmp_path: Path, umask: int) -> None:
    cli = Cli(short_tmp / "above" / "h", tmp_path, {"MCP_SERVER_PORT": "0", "SWARM_UI_PORT": "0"})
    cli.extra["MCP_DATABASE_PATH"] = str(short_tmp / "data" / "below" / "s.db")
    before = os.umask(umask)
    try:
        cli("up", "--detach")
    finally:
        os.umask(before)
    try:
        made = [short_tmp / "above", short_tmp / "data"]
        every = [*made, *(p for top in made for p in top.rglob("*"))]
        assert {str(p.relative_to(short_tmp)) for p in every} >= {
            *("above/h/logs/coordinator.log", "above/h/logs/up.log", "above/h/run/coordinator.json"),
            *("above/h/operator.token", "data/below/s.db", "data/below/s.db-wal", "data/below/s.db.lock"),
        }
        assert {str(p): oct(mode(p)) for p in every if not p.is_symlink() and mode(p) & 0o077} == {}
    finally:
        cli("down")


@pytest.mark.parametrize(
    "name",
    ["logs/up.log", "logs/coordinator.log", "run/up.lock", "run/coordinator.lock", "swarm.lock", "operator.token"],
)
def test_a_planted_link_is_not_followed(short_tmp: Path, tmp_path: Path, name: str) -> None:
    cli = Cli(short_tmp / "h", tmp_path, {"MCP_SERVER_PORT": "0", "SWARM_UI_PORT": "0"})
    victim = tmp_path / "victim"
    victim.write_text("mine\n")
    (cli.home / name).parent.mkdir(parents=True, mode=0o700)
    cli.home.chmod(0o700)
    (cli.home / name).symlink_to(victim)
    done = cli("up", "--detach", "--json", check=None)
    cli("down", check=None)
    assert victim.read_text() == "mine\n"
    assert mode(victim) != 0o600 or name == "operator.token"
    if done.code:
        assert done.json["error"]["code"] == "NOT_PRIVATE"


def test_a_log_with_a_second_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("mine\n")
    (tmp_path / "log").hardlink_to(tmp_path / "other")
    assert code_of(lambda: files.append_private(tmp_path / "log")) == "NOT_PRIVATE"
    assert code_of(lambda: proc.start_detached(["true"], log=tmp_path / "log")) == "NOT_PRIVATE"
    assert (tmp_path / "other").read_text() == "mine\n"


def test_a_lock_is_not_taken_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "victim")

    def take() -> None:
        with locks.hold(tmp_path / "lock", holder="me"):
            pass

    assert code_of(take) == "NOT_PRIVATE"
    assert code_of(lambda: locks.holder(tmp_path / "lock")) == "NOT_PRIVATE"
    assert not (tmp_path / "victim").exists()


def test_a_home_that_is_a_link_to_a_folder_of_ours_is_used(cli: Cli, short_tmp: Path) -> None:
    (short_tmp / "real").mkdir(mode=0o700)
    cli.home.symlink_to(short_tmp / "real")
    cli("ls")
    assert (short_tmp / "real" / "swarm.db").exists()


_SERVER = """
import os, sys
from pathlib import Path
from swarm_core import proc
proc.keep_files_private()
proc.keep_files_private()
Path("own").write_text("")
proc.run(["touch", "child"])
print(oct(proc.user_umask()))
"""


@pytest.mark.parametrize("umask", [0o022, 0o002, 0o027])
def test_a_server_makes_private_files_and_its_programs_keep_the_users_umask(tmp_path: Path, umask: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SERVER], cwd=tmp_path, umask=umask, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == oct(umask)
    assert mode(tmp_path / "own") == 0o600
    assert mode(tmp_path / "child") == 0o666 & ~umask


@pytest.mark.parametrize("umask", [0o022, 0o002])
def test_an_agent_has_the_umask_of_who_started_swarm(world: World, umask: int) -> None:
    """Also when a server with a private umask starts its tmux and its program."""
    program = (
        "import os; from swarm_core import proc; proc.keep_files_private()\n"
        "from swarm_core import config; from swarm_core.swarm import Swarm\n"
        "with Swarm.open(config.load(os.environ), os.environ) as swarm:\n"
        f"    swarm.work('write new/told.txt hello', repo={str(world.repo)!r}, agent='scripted')\n"
    )
    subprocess.run([sys.executable, "-c", program], env=world.environ, umask=umask, check=True, timeout=60)
    with world.open() as swarm:
        worktree = Path(swarm.find("work-a1").worktree_path)
    told = worktree / "new" / "told.txt"
    wait_until(lambda: told.exists() and told.read_text(), what="the agent has written")
    assert (mode(told), mode(told.parent)) == (0o666 & ~umask, 0o777 & ~umask)
    assert mode(worktree / "README.md") == 0o666 & ~umask
    assert mode(worktree / "src") == 0o777 & ~umask


def test_restored_files_have_the_users_umask(repo: Path) -> None:
    program = (
        "import shutil; from swarm_core import git, proc; proc.keep_files_private()\n"
        "git.preserve('.', ref='refs/swarm/preserved/work-a1/1', message='kept')\n"
        "shutil.rmtree('new')\n"
        "git.restore('.', ref='refs/swarm/preserved/work-a1/1')\n"
    )
    (repo / "new").mkdir()
    (repo / "new" / "file.txt").write_text("hello\n")
    (repo / "new" / "run.sh").write_text("#!/bin/sh\n")
    (repo / "new" / "run.sh").chmod(0o755)
    subprocess.run([sys.executable, "-c", program], cwd=repo, umask=0o022, check=True, timeout=60)
    assert (mode(repo / "new"), mode(repo / "new" / "file.txt")) == (0o755, 0o644)
    assert mode(repo / "new" / "run.sh") == 0o755


def test_the_card_in_the_run_folder_is_private(world: World) -> None:
    before = os.umask(0)
    try:
        card = process.own_card(process.DASHBOARD, world.settings, world.environ)
        with process.claim(world.settings, card) as claim:
            claim.announce(1)
            assert mode(world.home / "run" / "dashboard.json") == 0o600
            assert mode(world.home / "run") == 0o700
    finally:
        os.umask(before)


def test_settings_are_not_read_from_a_home_of_others(tmp_path: Path) -> None:
    (tmp_path / "h").mkdir()
    (tmp_path / "h" / "config.toml").write_text("pool = 3\n")
    (tmp_path / "h").chmod(0o777)
    environ = os.environ | {"SWARM_HOME": str(tmp_path / "h")}
    assert code_of(lambda: config.load(environ)) == "NOT_PRIVATE"
    (tmp_path / "h").chmod(0o755)
    assert config.load(environ).integer("pool") == 3
    open_database(tmp_path / "h" / "swarm.db").close()

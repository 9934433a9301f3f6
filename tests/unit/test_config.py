"""Settings: which source wins, which values are refused, and a file that is never half written."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from swarm_core import config
from swarm_core.config import ENVIRONMENT, SETTINGS
from swarm_core.errors import InvalidInput, SwarmError

_NUMBERS = sorted(key for key, setting in SETTINGS.items() if not isinstance(setting.default, str))


def refused(environ: dict[str, str], **flags: object) -> InvalidInput:
    with pytest.raises(InvalidInput) as failed:
        config.load(environ, **flags)
    assert failed.value.code == "INVALID_SETTING"
    return failed.value


def test_a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default(tmp_path: Path) -> None:
    environ = {"SWARM_HOME": str(tmp_path)}
    assert config.load(environ).integer("mcp_port") == 3001
    (tmp_path / "config.toml").write_text("mcp_port = 4001\n")
    assert config.load(environ).integer("mcp_port") == 4001
    environ["MCP_SERVER_PORT"] = "5001"
    assert config.load(environ).integer("mcp_port") == 5001
    assert config.load(environ, mcp_port=6001).integer("mcp_port") == 6001
    assert config.load(environ, mcp_port=None).integer("mcp_port") == 5001


def test_an_empty_variable_counts_as_none(tmp_path: Path) -> None:
    environ = {"SWARM_HOME": str(tmp_path), "MCP_SERVER_PORT": "", "SWARM_AGENT": "", "MCP_DATABASE_PATH": ""}
    assert config.load(environ).integer("mcp_port") == 3001
    assert config.load(environ).text("agent") == "claude"
    assert config.load(environ).database_path == tmp_path / "swarm.db"
    assert config.load({"SWARM_HOME": "", "HOME": "/h"}).home == Path("/h/.swarm")


def test_loading_creates_nothing(tmp_path: Path) -> None:
    config.load({"SWARM_HOME": str(tmp_path / "home"), "MCP_DATABASE_PATH": str(tmp_path / "d" / "x.db")})
    assert list(tmp_path.iterdir()) == [tmp_path / "user-home"]


@pytest.mark.parametrize("key", sorted(SETTINGS))
def test_every_setting_is_explained_and_its_default_is_allowed(key: str) -> None:
    setting = SETTINGS[key]
    assert setting.doc.endswith(".")
    assert setting.parse(setting.default) == setting.default
    assert setting.parse(str(setting.default)) == setting.default


def test_every_variable_is_explained() -> None:
    assert all(meaning.endswith(".") for meaning in ENVIRONMENT.values())
    assert not {s.env for s in SETTINGS.values()} & ENVIRONMENT.keys()


@pytest.mark.parametrize("key", _NUMBERS)
@pytest.mark.parametrize(
    "value", ["nan", "inf", "-inf", "-1", "1e999", "", "abc", "1_0x", "9" * 5000, "\0", "0x10", "\u0663", "\uff13"]
)
def test_a_number_that_cannot_be_is_refused_from_every_source(tmp_path: Path, key: str, value: str) -> None:
    environ = {"SWARM_HOME": str(tmp_path)}
    error = refused(environ, **{key: value})
    assert key in error.message
    assert error.hint
    assert len(error.message) < 500
    variable = SETTINGS[key].env
    if variable and value:
        refused(environ | {variable: value})
    with pytest.raises(InvalidInput):
        config.write_value(tmp_path / "config.toml", key, value)
    assert not (tmp_path / "config.toml").exists()


@pytest.mark.parametrize(
    "literal", ["nan", "inf", "-inf", "true", "[1]", "{a = 1}", "1979-05-27", '"x\\u0000"', '""']
)
def test_a_bad_value_in_the_file_is_refused(tmp_path: Path, literal: str) -> None:
    for key in ("stop_grace", "pool", "agent"):
        if key == "agent" and literal in ("nan", "inf", "-inf"):
            continue
        (tmp_path / "config.toml").write_text(f"{key} = {literal}\n")
        refused({"SWARM_HOME": str(tmp_path)})


def test_a_whole_number_is_not_taken_for_a_broken_one(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("pool = 1.5\n")
    refused({"SWARM_HOME": str(tmp_path)})
    (tmp_path / "config.toml").write_text("stop_grace = 3\n")
    assert config.load({"SWARM_HOME": str(tmp_path)}).number("stop_grace") == 3.0


@pytest.mark.parametrize("text", ["pool = ", "= 1", "pool = 1\npool = 2", "\xff\xfe", "[pool", "pool: 1"])
def test_a_file_that_is_no_toml_is_refused_with_its_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.toml").write_bytes(text.encode("latin-1"))
    error = refused({"SWARM_HOME": str(tmp_path)})
    assert "config.toml" in error.message
    assert error.hint


def test_an_unknown_key_is_refused_with_those_that_are_known(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("poool = 1\n")
    assert "pool" in (refused({"SWARM_HOME": str(tmp_path)}).hint or "")
    with pytest.raises(InvalidInput):
        config.write_value(tmp_path / "config.toml", "-x", "1")


def test_a_folder_in_the_files_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.toml").mkdir()
    refused({"SWARM_HOME": str(tmp_path)})


def test_a_value_that_was_written_is_read_back_and_the_others_stay(tmp_path: Path) -> None:
    path = tmp_path / "new" / "config.toml"
    config.write_value(path, "pool", "3")
    config.write_value(path, "stop_grace", "2.5")
    config.write_value(path, "agent", 'odd "name" \\ ü')
    loaded = config.load({"SWARM_HOME": str(path.parent)})
    assert (loaded.integer("pool"), loaded.number("stop_grace")) == (3, 2.5)
    assert loaded.text("agent") == 'odd "name" \\ ü'
    assert [p.name for p in path.parent.iterdir()] == ["config.toml"]
    assert path.stat().st_mode & 0o077 == 0


@given(st.text(min_size=1, max_size=50))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_any_text_is_written_as_toml_or_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.toml"
    path.unlink(missing_ok=True)
    try:
        config.write_value(path, "agent", text)
    except InvalidInput:
        assert not path.exists()
    else:
        assert tomllib.loads(path.read_text(encoding="utf-8")) == {"agent": text}


def test_a_file_that_cannot_be_written_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    with pytest.raises(SwarmError):
        config.write_value(tmp_path / "home" / "config.toml", "pool", "1")
    (tmp_path / "config.toml").mkdir()
    with pytest.raises(SwarmError):
        config.write_value(tmp_path / "config.toml", "pool", "1")


def test_a_read_only_home_is_an_error_of_ours(short_tmp: Path) -> None:
    """In a process without rights, because root ignores permissions."""
    home = short_tmp / "home"
    home.mkdir()
    (home / "config.toml").write_text("pool = 1\n")
    (home / "config.toml").chmod(0o644)
    short_tmp.chmod(0o755)
    home.chmod(0o555)
    drop = "os.setgroups([]); os.setgid(65534); os.setuid(65534)" if os.geteuid() == 0 else ""
    program = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from pathlib import Path
from swarm_core import config
from swarm_core.errors import SwarmError
{drop}
try:
    config.write_value(Path(sys.argv[1]), "pool", "2")
except SwarmError as error:
    print(error.code)
"""
    argv = [sys.executable, "-c", program, str(home / "config.toml")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30)
    home.chmod(0o755)
    assert done.stdout.strip() == "INVALID_SETTING", done.stderr
    assert (home / "config.toml").read_text() == "pool = 1\n"


def test_a_home_is_absolute_whatever_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert config.load({"SWARM_HOME": "x/../y"}).home == tmp_path / "y"
    assert config.load({"SWARM_HOME": "~/h", "HOME": "/people/a"}).home == Path("/people/a/h")
    refused({"SWARM_HOME": "a\0b"})


def test_a_socket_path_always_fits_and_depends_on_the_home_alone(tmp_path: Path) -> None:
    short = config.load({"SWARM_HOME": "/h"}).tmux_socket
    long = config.load({"SWARM_HOME": f"/{'h' * 200}"}).tmux_socket
    assert short == Path("/h/tmux.sock")
    assert len(os.fsencode(long)) < 100
    assert long == config.load({"SWARM_HOME": f"/{'h' * 200}", "TMUX_TMPDIR": "/t", "TMPDIR": "/u"}).tmux_socket
    assert long != config.load({"SWARM_HOME": f"/{'h' * 201}"}).tmux_socket
    assert len(os.fsencode(config.load({"SWARM_HOME": f"/{'ü' * 45}"}).tmux_socket)) < 104


def test_one_coordinator_lock_belongs_to_one_database() -> None:
    plain = config.load({"SWARM_HOME": "/h"})
    one = config.load({"SWARM_HOME": "/h", "MCP_DATABASE_PATH": "/d/x.db"})
    other = config.load({"SWARM_HOME": "/other", "MCP_DATABASE_PATH": "/d/x.db"})
    assert plain.coordinator_lock == Path("/h/swarm.lock")
    assert one.coordinator_lock == other.coordinator_lock


def test_the_servers_of_one_database_keep_their_locks_together(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "x.db")
    plain, one, other, linked = (
        config.load({"SWARM_HOME": home} | ({"MCP_DATABASE_PATH": str(tmp_path / name)} if name else {}))
        for home, name in (("/h", ""), ("/h", "x.db"), ("/other", "x.db"), ("/other", "link.db"))
    )
    assert plain.server_locks == plain.locks
    assert one.server_locks == other.server_locks == linked.server_locks
    assert one.server_locks.parent == tmp_path.resolve()

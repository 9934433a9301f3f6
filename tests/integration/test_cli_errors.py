"""Bad input through the real command: an error with code and hint, the right exit code, and no trace."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from swarm_core.errors import CODES
from tests.integration.cli_fixture import ARGV, ROOT, Cli, traces
from tests.support import git_run, make_repo


@pytest.fixture
def cli(short_tmp: Path) -> Iterator[Cli]:
    """A current folder that holds a good, a bare and no repository, and a file."""
    place = short_tmp / "place"
    make_repo(place / "repo")
    git_run(place, "init", "-q", "--bare", "bare.git")
    (place / "plain").mkdir()
    (place / "file").write_text("text")
    command = Cli(home=short_tmp / "home", cwd=place)
    yield command
    command.end()


IN_REPO = ("--repo", "repo")
BAD: list[tuple[str, tuple[str | bytes, ...], int, str]] = [
    ("unknown repository", ("work", "x", "--repo", "nowhere"), 1, "GIT_REPOSITORY_NOT_FOUND"),
    ("a file for a repository", ("work", "x", "--repo", "file"), 1, "GIT_REPOSITORY_NOT_FOUND"),
    ("not a repository", ("work", "x", "--repo", "plain"), 1, "GIT_REPOSITORY_NOT_FOUND"),
    ("repository with ../", ("work", "x", "--repo", "../../"), 1, "GIT_REPOSITORY_NOT_FOUND"),
    ("repository with a dash", ("work", "x", "--repo=--upload-pack=true"), 1, "GIT_REPOSITORY_NOT_FOUND"),
    ("bare repository", ("work", "x", "--repo", "bare.git"), 1, "GIT_REPOSITORY_INVALID"),
    ("unknown base", ("work", "x", *IN_REPO, "--base", "nope"), 1, "GIT_BRANCH_NOT_FOUND"),
    ("base with a dash", ("work", "x", *IN_REPO, "--base=--output=owned"), 1, "INVALID_BRANCH_NAME"),
    ("base with ../", ("work", "x", *IN_REPO, "--base", "../main"), 1, "INVALID_BRANCH_NAME"),
    ("base with ..", ("work", "x", *IN_REPO, "--base", "main..main"), 1, "INVALID_BRANCH_NAME"),
    ("base with a line break", ("work", "x", *IN_REPO, "--base", "ma\nin"), 1, "INVALID_BRANCH_NAME"),
    ("base with a space", ("work", "x", *IN_REPO, "--base", "ma in"), 1, "INVALID_BRANCH_NAME"),
    ("empty base", ("work", "x", *IN_REPO, "--base", ""), 1, "INVALID_BRANCH_NAME"),
    ("unknown agent", ("work", "x", *IN_REPO, "--agent", "nope"), 1, "AGENT_UNKNOWN"),
    ("agent with a dash", ("work", "x", *IN_REPO, "--agent=--help"), 1, "AGENT_UNKNOWN"),
    ("agent with ../", ("work", "x", *IN_REPO, "--agent", "../scripted"), 1, "AGENT_UNKNOWN"),
    ("agent not installed", ("work", "x", *IN_REPO, "--agent", "opencode"), 1, "AGENT_NOT_INSTALLED"),
    ("empty name", ("work", "x", *IN_REPO, "--name", ""), 1, "INVALID_INPUT"),
    ("name that is an id", ("work", "x", *IN_REPO, "--name", "work-a1"), 1, "INVALID_INPUT"),
    ("name with a dash", ("work", "x", *IN_REPO, "--name=-n"), 1, "INVALID_INPUT"),
    ("name with an escape", ("work", "x", *IN_REPO, "--name", "\x1b[31mred"), 1, "INVALID_INPUT"),
    ("long name", ("work", "x", *IN_REPO, "--name", "n" * 10_000), 1, "INVALID_INPUT"),
    ("issue zero", ("work", *IN_REPO, "--issue", "0"), 1, "INVALID_INPUT"),
    ("huge issue", ("work", *IN_REPO, "--issue", "9" * 30), 1, "INVALID_INPUT"),
    ("issue that is no number", ("work", *IN_REPO, "--issue", "one"), 2, "INVALID_INPUT"),
    ("no such issue", ("work", *IN_REPO, "--issue", "999"), 1, "ISSUE_NOT_FOUND"),
    ("no task", ("work", *IN_REPO), 2, "INVALID_INPUT"),
    ("an empty task", ("work", " ", *IN_REPO), 2, "INVALID_INPUT"),
    ("a task that nobody can see", ("work", "\u200b\ufeff\n", *IN_REPO), 1, "INVALID_INPUT"),
    ("no such issue and an empty task", ("work", " ", *IN_REPO, "--issue", "999"), 1, "ISSUE_NOT_FOUND"),
    ("a task for an adhoc instance", ("work", "x", *IN_REPO, "--adhoc"), 2, "INVALID_INPUT"),
    ("no agents", ("work", "x", *IN_REPO, "--count", "0"), 1, "INVALID_INPUT"),
    ("too many agents", ("work", "x", *IN_REPO, "--count", "33"), 1, "INVALID_INPUT"),
    ("prompt twice", ("work", "x", *IN_REPO, "--prompt-file", "file"), 2, "INVALID_INPUT"),
    ("prompt file that is not there", ("work", *IN_REPO, "--prompt-file", "nope"), 1, "INVALID_INPUT"),
    ("prompt that is no text", ("work", b"\xff\xfe", *IN_REPO), 1, "INVALID_INPUT"),
    ("fork of nothing", ("fork", "work-a1"), 1, "INSTANCE_NOT_FOUND"),
    ("id that is no text", ("show", b"\xff"), 1, "INVALID_INPUT"),
    ("id with ../", ("show", "../work-a1"), 1, "INSTANCE_NOT_FOUND"),
    ("id with a dash", ("show", "--", "-work"), 1, "INSTANCE_NOT_FOUND"),
    ("empty id", ("show", ""), 1, "INSTANCE_NOT_FOUND"),
    ("logs of nothing", ("logs", "work-a1"), 1, "INSTANCE_NOT_FOUND"),
    ("attach to nothing", ("attach", "work-a1"), 1, "INSTANCE_NOT_FOUND"),
    ("message to nobody", ("msg", "work-a1", "hello"), 1, "INSTANCE_NOT_FOUND"),
    ("restore of nothing", ("restore", "work-a1", "--ref=--all"), 1, "INSTANCE_NOT_FOUND"),
    ("events of nothing", ("events", "--instance", "work-a1"), 1, "INSTANCE_NOT_FOUND"),
    ("list of no repository", ("ls", "--repo", "plain"), 1, "GIT_REPOSITORY_NOT_FOUND"),
    ("unknown setting", ("config", "../pool", "1"), 1, "INVALID_SETTING"),
    ("setting out of range", ("config", "pool", "33"), 1, "INVALID_SETTING"),
    ("setting of another type", ("config", "pool", "many"), 1, "INVALID_SETTING"),
    ("setting with an escape", ("config", "agent", "\x1b]0;x\x07"), 1, "INVALID_SETTING"),
    ("stop of what", ("stop",), 2, "INVALID_INPUT"),
    ("stop of all and one", ("stop", "work-a1", "--all"), 2, "INVALID_INPUT"),
    ("restart of what", ("restart",), 2, "INVALID_INPUT"),
    ("no event", ("events", "-n", "0"), 2, "INVALID_INPUT"),
    ("cursor below zero", ("events", "--after=-1"), 2, "INVALID_INPUT"),
    ("no line", ("logs", "work-a1", "-n", "0"), 2, "INVALID_INPUT"),
    ("unknown option", ("work", "x", *IN_REPO, "--force"), 2, "INVALID_INPUT"),
    ("too many words", ("work", "fix", "the", "test"), 2, "INVALID_INPUT"),
    ("unknown command", ("wrok",), 2, "INVALID_INPUT"),
]


@pytest.mark.parametrize(("args", "exit_code", "code"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_bad_input_ends_with_a_code_and_leaves_no_trace(
    cli: Cli, args: tuple[str | bytes, ...], exit_code: int, code: str
) -> None:
    command, *rest = args
    done = cli(command, "--json", *rest, check=exit_code) if command != "wrok" else cli(*args, "--json", check=2)
    body = done.json
    assert set(body) == {"ok", "error"}
    assert body["ok"] is False
    assert body["error"]["code"] == code
    assert body["error"]["message"]
    assert set(body["error"]) <= {"code", "message", "hint", "details"}
    assert done.err == ""
    assert traces(cli.home, cli.cwd / "repo") == []


def test_the_table_of_bad_input_uses_only_known_codes() -> None:
    assert {b[3] for b in BAD} <= set(CODES)


def test_a_person_reads_the_error_on_stderr_with_code_and_hint(cli: Cli) -> None:
    done = cli("work", "x", "--repo", "plain", check=1)
    first, second = done.err.splitlines()
    assert done.out == ""
    assert first.startswith("error: ")
    assert first.endswith("[GIT_REPOSITORY_NOT_FOUND]")
    assert second.startswith("hint: ")


def test_a_usage_error_names_the_help_of_its_command(cli: Cli) -> None:
    done = cli("work", "--nope", check=2)
    assert done.out == ""
    assert "swarm work --help" in done.err
    assert "Traceback" not in done.err


def test_json_after_two_dashes_is_text_and_not_a_switch(cli: Cli) -> None:
    done = cli("msg", "--", "work-a1", "--json", check=1)
    assert done.out == ""
    assert "[INSTANCE_NOT_FOUND]" in done.err


def test_control_characters_in_arguments_do_not_reach_the_terminal(cli: Cli) -> None:
    done = cli("show", "\x1b[2Jgone\x07\u202e", check=1)
    assert not any(c in done.err for c in "\x1b\x07\u202e")


def test_clean_without_a_terminal_asks_for_yes_and_removes_nothing(cli: Cli) -> None:
    done = cli("clean", check=2)
    assert "--yes" in done.err
    assert traces(cli.home, cli.cwd / "repo") == []


@pytest.mark.parametrize("content", ["pool = 99\n", "nope = 1\n", "[[", "pool = true\n"])
def test_a_bad_config_file_is_refused_and_left_as_it_is(cli: Cli, content: str) -> None:
    cli.home.mkdir()
    path = cli.home / "config.toml"
    path.write_text(content)
    assert cli("ls", "--json", check=1).json["error"]["code"] == "INVALID_SETTING"
    assert path.read_text() == content


def test_a_stored_value_out_of_range_can_be_mended_with_config(cli: Cli) -> None:
    cli.home.mkdir()
    (cli.home / "config.toml").write_text("stop_grace = 9999\n")
    assert cli("config", "stop_grace", "2", "--json").json["stop_grace"]["value"] == 2.0
    assert cli("ls", "--json").json == []


def test_a_file_that_is_no_database_is_refused_and_kept(cli: Cli) -> None:
    cli.home.mkdir()
    (cli.home / "swarm.db").write_bytes(b"my precious notes")
    assert cli("ls", "--json", check=1).json["error"]["code"] == "DATABASE_CORRUPT"
    report = cli("doctor", "--json", check=1).json
    assert [c["state"] for c in report["checks"]] == ["fail"]
    assert (cli.home / "swarm.db").read_bytes() == b"my precious notes"


def test_a_prompt_over_the_limit_is_refused_without_a_trace(cli: Cli) -> None:
    done = cli("work", "-", "--repo", "repo", "--json", stdin=b"x" * (9 << 20), check=1)
    assert done.json["error"]["code"] == "PROMPT_TOO_LARGE"
    assert traces(cli.home, cli.cwd / "repo") == []


BUG = """
import sys
from swarm_ui.cli import light, main

@main.app.command(cls=light.Command)
def boom(json: bool = False) -> None:
    raise RuntimeError("a bug\\nof two lines")

main.main()
"""


def _boom(cli: Cli, *args: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", BUG, "boom", *args]
    return subprocess.run(
        argv, env=cli.environ, cwd=cli.cwd, capture_output=True, text=True, check=False, timeout=60
    )


def test_a_bug_ends_with_3_and_keeps_its_traceback_in_the_log(cli: Cli) -> None:
    cli.home.mkdir()
    done = _boom(cli)
    assert done.returncode == 3
    assert "Traceback" not in done.stderr
    assert "RuntimeError: a bug [" in done.stderr
    log = (cli.home / "logs" / "cli.log").read_text()
    assert "Traceback" in log
    assert 'raise RuntimeError("a bug' in log or "RuntimeError: a bug" in log


def test_a_bug_with_json_is_an_error_object(cli: Cli) -> None:
    cli.home.mkdir()
    done = _boom(cli, "--json")
    assert done.returncode == 3
    assert '"ok": false' in done.stdout
    assert "INTERNAL" in done.stdout


def test_a_bug_without_a_home_shows_its_traceback_and_makes_no_home(cli: Cli) -> None:
    done = _boom(cli)
    assert done.returncode == 3
    assert "Traceback" in done.stderr
    assert not cli.home.exists()


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_goes_away_ends_the_command_quietly(cli: Cli, unbuffered: str) -> None:
    cli.extra = {"PYTHONUNBUFFERED": unbuffered}
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [*ARGV, "config"], env=cli.environ, cwd=cli.cwd, stdout=write, stderr=subprocess.PIPE, check=False
        )
    finally:
        os.close(write)
    assert done.returncode == 141
    assert done.stderr == b""


def test_help_and_version_need_no_home_and_make_none(cli: Cli) -> None:
    assert cli().out == cli("--help").out
    assert cli("--version").out == cli("version").out
    assert cli("config", "--json").json["pool"]["source"] == "default"
    assert not cli.home.exists()


def test_the_installed_script_and_the_module_are_the_same_command() -> None:
    declared = (ROOT / "pyproject.toml").read_text()
    assert 'swarm = "swarm_ui.cli.main:main"' in declared

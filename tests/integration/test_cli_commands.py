"""The commands with real scripted agents in real tmux: what they do, and the JSON they promise."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from swarm_core import locks
from swarm_ui.cli.main import COMMANDS, DAILY
from tests.integration.cli_fixture import ARGV, Cli, change
from tests.support import git_run, wait_until

PROMISED = {"id", "kind", "status", "repo_path", "worktree_path", "branch", "base_branch", "tmux_session"}
MESSAGE = {"id", "instance_id", "sender", "state", "body", "created_at", "updated_at", "attempts", "error"}
MESSAGE |= {"kind", "document", "next_at", "injected_at", "seen_at", "acknowledged_at", "expires_at", "how"}


@pytest.fixture
def cli(short_tmp: Path, repo: Path) -> Iterator[Cli]:
    command = Cli(home=short_tmp / "h", cwd=repo)
    yield command
    command.end()


def test_work_starts_an_agent_and_prints_what_it_promises(cli: Cli, repo: Path) -> None:
    made = cli.work("write a.txt hi", "commit first", options=("--name", "login fix"))
    assert made.keys() >= PROMISED
    assert "prompt" not in made
    assert (made["id"], made["kind"], made["status"]) == ("work-a1", "work", "running")
    assert (made["repo_path"], made["base_branch"]) == (str(repo), "main")
    assert made["tmux_session"] == "work-a1"
    cli.until("work-a1", activity="idle")
    assert git_run(repo, "log", "-1", "--format=%s", made["branch"]) == "first"
    assert cli("show", "login fix", "--json").json["id"] == "work-a1"


def test_count_gives_an_array_of_instances(cli: Cli) -> None:
    made = cli("work", "say hi", "--count", "2", "--json").json
    assert [m["id"] for m in made] == ["work-a1", "work-a2"]


def test_a_prompt_of_a_megabyte_comes_whole_through_stdin_and_file(cli: Cli, tmp_path: Path) -> None:
    text = "say hello\n" + "quotes \" ' $(x) `y` \x1b[31m ünïcode 漢\n" * 30_000
    assert len(text.encode()) > 1 << 20
    (tmp_path / "task.md").write_text(text)
    cli("work", "-", stdin=text.encode())
    cli("work", "--prompt-file", str(tmp_path / "task.md"))
    for name in ("work-a1", "work-a2"):
        assert cli("show", name, "--json").json["prompt"] == text
        cli.until(name, activity="idle")


def test_a_prompt_with_a_leading_dash_works_after_two_dashes(cli: Cli) -> None:
    made = cli("work", "--json", "--", "--help me").json
    assert cli("show", made["id"], "--json").json["prompt"] == "--help me"


def test_ls_shows_evidence_lines_and_who_needs_you(cli: Cli) -> None:
    cli.work("write a.txt one\\ntwo", options=("--name", "login"))
    cli.work("dialog may I")
    cli.until("work-a1", activity="idle")
    cli.until("work-a2", activity="blocked")
    head, first, second = cli("ls").out.splitlines()
    assert head.split() == ["ID", "KIND", "STATUS", "ACTIVITY", "BRANCH", "LINES", "NEEDS", "YOU"]
    assert re.match(r"work-a1 \(login\)  work  running  idle \(file, \d+s\) .* work/work-a1  \+2 -0$", first)
    assert second.endswith("blocked: permission")


def test_ls_json_leaves_the_long_texts_to_show(cli: Cli) -> None:
    cli.work("say hello")
    cli.until("work-a1", activity="idle")
    (row,) = cli("ls", "--json").json
    detail = cli("show", "work-a1", "--json").json
    assert set(detail) - set(row) == {
        "prompt",
        "last_screen",
        "relationships",
        "messages",
        "preserved",
        "events",
        "account",
        "pull",
    }
    assert row.keys() >= PROMISED | {"needs_you", "activity", "activity_source", "activity_at", "lines_added"}


def test_ls_of_one_repository_leaves_out_the_others(cli: Cli, tmp_path: Path) -> None:
    other = tmp_path / "other"
    git_run(tmp_path, "init", "-q", "-b", "main", str(other))
    cli.work("say here")
    cli.work("say there", options=("--repo", str(other)))
    assert [r["id"] for r in cli("ls", "--repo", ".", "--json").json] == ["work-a1"]
    assert [r["id"] for r in cli("ls", "--repo", str(other), "--json").json] == ["work-a2"]


def test_an_agent_that_died_is_seen_by_ls_without_a_coordinator(cli: Cli) -> None:
    cli.work("say last words", "exit 3")
    row = cli.until("work-a1", status="failed")
    assert row["exit_code"] == 3
    assert row["needs_you"].startswith("failed: ")
    assert "last words" in cli("logs", "work-a1").out


def test_show_is_true_without_a_coordinator(cli: Cli) -> None:
    cli.work("exit 0")
    wait_until(lambda: cli("show", "work-a1", "--json").json["status"] == "terminated", timeout=30)


def test_show_prints_the_history_for_people(cli: Cli) -> None:
    cli.work("say hello")
    cli("msg", "work-a1", "how is it going?")
    shown = cli("show", "work-a1").out
    assert "work/work-a1 from main" in shown
    assert "how is it going?" in shown
    assert "instance:created" in shown


def test_fork_starts_from_the_parents_commit_and_is_related(cli: Cli, repo: Path) -> None:
    cli.work("write a.txt hi", "commit first", "say ready")
    cli.until("work-a1", activity="idle")
    made = cli("fork", "work-a1", "say second attempt", "--json").json
    assert (made["id"], made["kind"], made["parent_id"]) == ("fork-a1", "fork", "work-a1")
    assert git_run(repo, "log", "-1", "--format=%s", made["branch"]) == "first"
    (relation,) = cli("show", "fork-a1", "--json").json["relationships"]
    assert (relation["parent_id"], relation["child_id"], relation["type"]) == (
        "work-a1",
        "fork-a1",
        "created_fork",
    )


def test_logs_print_the_last_lines_of_a_living_and_of_a_stopped_agent(cli: Cli) -> None:
    cli.work("say one", "say two", "say three")
    cli.until("work-a1", activity="idle")
    assert cli("logs", "work-a1").out.splitlines()[:3] == ["one", "two", "three"]
    body = cli("logs", "work-a1", "-n", "2", "--json").json
    assert (body["id"], body["activity"], len(body["lines"])) == ("work-a1", "idle", 2)
    cli("stop", "work-a1")
    assert cli("logs", "work-a1").out.splitlines()[:3] == ["one", "two", "three"]


def test_following_logs_prints_every_line_once_and_ends_with_the_agent(cli: Cli) -> None:
    lines = [f"line {i}" for i in range(8)]
    steps = [step for line in lines for step in (f"say {line}", "wait 0.2")]
    cli.work(*steps, "exit 0")
    follower = cli.start("logs", "work-a1", "-f")
    out, err = follower.communicate(timeout=60)
    assert follower.returncode == 0, err
    assert [line for line in out.decode().splitlines() if line.startswith("line")] == lines


def test_following_goes_on_where_the_last_lines_were_printed_even_when_much_scrolls_by(cli: Cli) -> None:
    lines = [f"line {i}" for i in range(160)]
    batches = [lines[i : i + 20] for i in range(0, len(lines), 20)]
    steps = [step for batch in batches for step in (*(f"say {line}" for line in batch), "wait 0.3")]
    cli.work(*steps, "exit 0")
    follower = cli.start("logs", "work-a1", "-f", "-n", "5")
    out, err = follower.communicate(timeout=60)
    assert follower.returncode == 0, err
    printed = [line for line in out.decode().splitlines() if line.startswith("line")]
    assert printed == lines[lines.index(printed[0]) :]
    assert lines.index(printed[0]) < 150


def test_screens_reach_the_terminal_without_control_characters(cli: Cli) -> None:
    cli.work("say hello")
    cli("stop", "work-a1")
    change(cli.home, "UPDATE instances SET last_screen = 'safe \x1b[2J\x07' || char(10) || 'and \x9b31m sound'")
    assert cli("logs", "work-a1").out == "safe [2J\nand 31m sound\n"


def test_a_message_is_recorded_with_an_id_and_a_state(cli: Cli) -> None:
    cli.work("say hello")
    message = cli("msg", "work-a1", "-", "--json", stdin="längerer\nText".encode()).json
    assert set(message) == MESSAGE
    assert (message["state"], message["sender"], message["body"]) == ("accepted", "operator", "längerer\nText")
    said = cli("msg", "work-a1", "again").out
    assert re.fullmatch(r"message [0-9a-f]{12} to work-a1: accepted\n", said)
    bodies = [m["body"] for m in cli("show", "work-a1", "--json").json["messages"]]
    assert bodies == ["längerer\nText", "again"]


def test_stop_keeps_the_work_and_restart_goes_on_with_it(cli: Cli) -> None:
    made = cli.work("write notes.txt kept", "say done")
    cli.until("work-a1", activity="idle")
    (stopped,) = cli("stop", "work-a1", "--json").json
    assert (stopped["ok"], stopped["status"]) == (True, "terminated")
    assert Path(made["worktree_path"], "notes.txt").read_text() == "kept\n"
    (again,) = cli("restart", "work-a1", "--json").json
    assert (again["ok"], again["status"], again["epoch"]) == (True, "running", 2)
    assert again["conversation_id"] == made["conversation_id"]
    assert cli("stop", "work-a1").out == "work-a1 terminated: stopped\n"


def test_of_several_ids_every_one_is_done_and_a_failure_is_told(cli: Cli) -> None:
    cli.work("say a")
    cli.work("say b")
    done = cli("stop", "work-a1", "work-a9", "work-a2", "--json", check=1).json
    assert [(d["id"], d["ok"]) for d in done] == [("work-a1", True), ("work-a9", False), ("work-a2", True)]
    assert done[1]["error"]["code"] == "INSTANCE_NOT_FOUND"
    told = cli("restart", "work-a9", "work-a1", check=1)
    assert told.out.startswith("work-a1 running")
    assert "error: work-a9: " in told.err


def test_stop_all_ends_everyone_and_twice_is_safe(cli: Cli) -> None:
    cli("work", "say hi", "--count", "3")
    assert {d["status"] for d in cli("stop", "--all", "--json").json} == {"terminated"}
    assert cli("stop", "--all", "--json").json == []
    assert cli("stop", "--all").out == "no agent is running\n"


def test_clean_says_first_and_restore_brings_back(cli: Cli, repo: Path) -> None:
    made = cli.work("write kept.txt committed", "commit first", "write loose.txt loose")
    worktree = Path(made["worktree_path"])
    cli.until("work-a1", activity="idle")
    assert cli("clean", "work-a1", "--yes", "--json", check=1).json[0]["error"]["code"] == "INSTANCE_RUNNING"
    cli("stop", "work-a1")

    (planned,) = cli("clean", "--dry-run", "--json").json
    assert planned["bytes"] > 0
    assert {k: planned[k] for k in ("id", "ok", "cleaned", "dirty_files", "own_commits")} == {
        "id": "work-a1",
        "ok": True,
        "cleaned": False,
        "dirty_files": 1,
        "own_commits": 1,
    }
    assert worktree.is_dir()

    (cleaned,) = cli("clean", "--yes", "--json").json
    assert (cleaned["cleaned"], cleaned["branch_deleted"], cleaned["status"]) == (True, False, "terminated")
    assert git_run(repo, "show", f"{cleaned['preserved']}:loose.txt") == "loose"
    assert not worktree.exists()
    assert cli("ls", "--json").json == []
    assert [r["id"] for r in cli("ls", "--all", "--json").json] == ["work-a1"]
    assert cli("clean", "--yes").out == "nothing to clean\n"

    back = cli("restore", "work-a1", "--json").json
    assert (back["id"], back["cleaned_at"]) == ("work-a1", None)
    assert (worktree / "loose.txt").read_text() == "loose\n"
    assert cli("show", "work-a1", "--json").json["preserved"][0]["ref"] == cleaned["preserved"]


def test_clean_asks_a_person_and_takes_no_for_an_answer(cli: Cli) -> None:
    made = cli.work("write loose.txt loose")
    cli.until("work-a1", activity="idle")
    cli("stop", "work-a1")
    with Terminal(cli, "clean") as terminal:
        terminal.until("[y/N]")
        assert "1 uncommitted file to preserve" in terminal.seen
        terminal.type("n\r")
        assert terminal.ended() == 1
    assert Path(made["worktree_path"], "loose.txt").exists()
    with Terminal(cli, "clean") as terminal:
        terminal.until("[y/N]")
        terminal.type("y\r")
        assert terminal.ended() == 0
    assert not Path(made["worktree_path"]).exists()


def test_events_come_oldest_first_and_after_a_cursor(cli: Cli) -> None:
    cli.work("say a")
    found = cli("events", "--json").json
    assert [e["id"] for e in found] == sorted(e["id"] for e in found)
    assert found[0]["name"] == "instance:created"
    assert set(found[0]) == {
        *("id", "at", "instance_id", "actor", "tool_name", "name", "success", "error_code"),
        *("error_message", "duration_ms", "status_from", "status_to", "metadata"),
    }
    later = cli("events", "--after", str(found[1]["id"]), "--instance", "work-a1", "--json").json
    assert later[0]["id"] == found[2]["id"]
    assert len(cli("events", "-n", "2", "--json").json) == 2
    assert "instance:created" in cli("events").out


def test_following_events_gives_one_object_per_line_as_it_happens(cli: Cli) -> None:
    cli.work("say a")
    newest = cli("events", "-n", "1", "--json").json[0]["id"]
    follower = cli.start("events", "-f", "--after", str(newest), "--json")
    try:
        cli("msg", "work-a1", "news")
        assert follower.stdout is not None
        told: list[dict[str, Any]] = []
        while not told or told[-1]["name"] != "message:accepted":
            told.append(json.loads(_line(follower.stdout)))
        assert told[-1]["instance_id"] == "work-a1"
        assert all(e["id"] > newest for e in told)
        follower.send_signal(signal.SIGINT)
        assert follower.wait(timeout=30) == 130
    finally:
        follower.kill()
        follower.communicate()


def test_config_shows_sources_and_stores_a_value(cli: Cli) -> None:
    listed = cli("config", "--json").json
    assert (listed["agent"]["value"], listed["agent"]["source"]) == ("scripted", "environment")
    assert (listed["pool"]["value"], listed["pool"]["source"]) == (0, "default")
    stored = cli("config", "stop_grace", "1.5", "--json").json
    assert (stored["stop_grace"]["value"], stored["stop_grace"]["source"]) == (1.5, "file")
    assert cli("config", "stop_grace").out.split()[4:7] == ["stop_grace", "1.5", "file"]
    told = cli("config", "agent", "codex")
    assert "SWARM_AGENT" in told.err


def test_setting_the_pool_in_a_repository_fills_it(cli: Cli, tmp_path: Path) -> None:
    assert cli("config", "pool", "2", "--json").json["pool"]["ready"] == 2
    cli.cwd = tmp_path
    assert cli("config", "pool", "0", "--json").json["pool"]["ready"] == 0
    assert list((cli.home / "worktrees").glob("*/.pool/*")) == []


def test_doctor_checks_and_says_so_in_json(cli: Cli) -> None:
    cli.work("say hello")
    report = cli("doctor", "--json").json
    assert report["ok"] is True
    assert all(set(c) == {"name", "state", "message", "hint"} for c in report["checks"])
    assert {c["state"] for c in report["checks"]} <= {"ok", "warn", "fail", "fixed"}
    assert "git" in cli("doctor").out


def test_attach_shows_the_session_even_inside_another_tmux(cli: Cli) -> None:
    cli.work("say look at me")
    cli.until("work-a1", activity="idle")
    argv = cli("attach", "work-a1", "--read-only", "--json").json["argv"]
    assert Path(argv[0]).name == "tmux"
    assert "-r" in argv
    assert cli("attach", "work-a1", check=1).err.endswith("follows it as text\n")
    cli.extra = {"TMUX": "/nowhere/socket,1,0", "TERM": "xterm"}
    with Terminal(cli, "attach", "work-a1") as terminal:
        terminal.until("look at me")
        environ = Path(f"/proc/{terminal.pid}/environ")
        if environ.exists():
            assert not re.search(rb"(^|\0)TMUX=", environ.read_bytes())
        cli("stop", "work-a1")
        assert terminal.ended() == 0


def test_a_terminal_gets_colour_and_hears_that_nobody_supervises(cli: Cli) -> None:
    cli.work("say hello")
    with Terminal(cli, "ls") as terminal:
        assert terminal.ended() == 0
        assert "\x1b[32mrunning\x1b[0m" in terminal.seen
        assert "coordinator is not running" in terminal.seen
    cli.extra = {"NO_COLOR": "1"}
    with Terminal(cli, "ls") as terminal:
        assert terminal.ended() == 0
        assert "\x1b[3" not in terminal.seen


def test_progress_is_one_line_on_a_terminal_and_never_on_stdout(cli: Cli) -> None:
    with Terminal(cli, "work", "say hello", "--json", stderr_too=False) as terminal:
        assert terminal.ended() == 0
        assert json.loads(terminal.seen)["id"] == "work-a1"
    with Terminal(cli, "work", "say hello") as terminal:
        assert terminal.ended() == 0
        assert "\r\x1b[Kmaking the worktree" in terminal.seen
        assert "\nmaking the worktree" not in terminal.seen


def test_who_waits_without_a_terminal_hears_after_a_second_what_is_being_done(cli: Cli) -> None:
    cli.work("say hello")
    with locks.hold(cli.home / "locks" / "work-a1.lock"):
        waiting = cli.start("stop", "work-a1", "--json")
        assert waiting.stderr is not None
        assert _line(waiting.stderr) == b"stopping work-a1\n"
    out, _ = waiting.communicate(timeout=60)
    assert json.loads(out)[0]["status"] == "terminated"


def test_names_and_agents_cannot_steer_the_terminal_of_ls(cli: Cli) -> None:
    cli.work("say hello")
    cli.until("work-a1", activity="idle")
    change(cli.home, "UPDATE instances SET reason = 'bad \x1b[2J', status = 'failed' WHERE id = 'work-a1'")
    out = cli("ls").out
    assert "bad [2J" in out
    assert "\x1b" not in out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_comes_with_the_command(cli: Cli, shell: str) -> None:
    cli.extra = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    assert "_SWARM_COMPLETE" in cli("--show-completion", shell).out


def _complete(cli: Cli, words: str) -> list[str]:
    count = len(words.split(" ")) - 1
    cli.extra = {"_SWARM_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(count)}
    found = cli().out.split()
    cli.extra = {}
    return found


def test_ids_agents_and_settings_are_completed(cli: Cli) -> None:
    cli("work", "say hi", "--count", "2")
    assert _complete(cli, "swarm show wo") == ["work-a1", "work-a2"]
    assert _complete(cli, "swarm stop work-a1 work-a2") == ["work-a2"]
    assert _complete(cli, "swarm work --agent scr") == ["scripted"]
    assert _complete(cli, "swarm config po") == ["pool"]
    assert "restart" in _complete(cli, "swarm rest")


def test_completion_without_or_with_a_broken_database_is_empty_and_changes_nothing(cli: Cli) -> None:
    assert _complete(cli, "swarm show wo") == []
    assert not cli.home.exists()
    cli.home.mkdir()
    (cli.home / "swarm.db").write_text("not a database")
    assert _complete(cli, "swarm show wo") == []
    (cli.home / "config.toml").write_text("[[")
    assert _complete(cli, "swarm show wo") == []
    assert (cli.home / "swarm.db").read_text() == "not a database"


@pytest.mark.parametrize("command", [c.__name__ for c in COMMANDS])
def test_help_fits_a_screen_and_has_an_example_and_json(cli: Cli, command: str) -> None:
    shown = cli(command, "--help").out
    assert len(shown.splitlines()) <= 30
    assert f"Example:\n    swarm {command}" in shown or f"    swarm {command}" in shown.partition("Example:")[2]
    assert "--json" in shown
    assert max(len(line) for line in shown.splitlines()) <= 100


def test_the_first_screen_names_every_command(cli: Cli) -> None:
    shown = cli("--help").out
    assert len(shown.splitlines()) <= 40
    by_purpose, _, daily = shown.partition("Commands by purpose")[2].partition("Every day:")
    named = [name for line in by_purpose.splitlines()[1:] for name in re.findall(r"\w+", line)[1:]]
    assert sorted(named) == sorted({*(c.__name__ for c in COMMANDS), "token", "pr", "backup"})
    assert set(re.findall(r"^  (\w+)  ", daily, re.MULTILINE)) == set(DAILY)
    assert "..." not in daily


class Terminal:
    """The command with a real terminal as its stdin, stdout and, if wanted, stderr."""

    def __init__(self, cli: Cli, *args: str, stderr_too: bool = True) -> None:
        self._master, slave = pty.openpty()
        self.seen = ""
        environ = {"TERM": "xterm"} | cli.environ
        self._process = subprocess.Popen(
            [*ARGV, *args],
            cwd=cli.cwd,
            env=environ,
            stdin=slave,
            stdout=slave,
            stderr=slave if stderr_too else subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(slave)

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(timeout=30)
        os.close(self._master)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def until(self, text: str) -> None:
        wait_until(lambda: self._read() and text in self.seen, timeout=30, what=f"{text!r} in {self.seen!r}")

    def ended(self) -> int:
        wait_until(lambda: self._read() and self._process.poll() is not None, timeout=30, what="the end")
        self._read()
        assert self._process.returncode is not None
        return self._process.returncode

    def _read(self) -> bool:
        """Take what is there; a terminal whose programs have ended reads as an error."""
        with contextlib.suppress(OSError):
            while select.select([self._master], [], [], 0.05)[0]:
                data = os.read(self._master, 65536)
                if not data:
                    break
                self.seen += data.decode(errors="replace")
        return True


def _line(stream: IO[bytes]) -> bytes:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if select.select([stream], [], [], 0.5)[0]:
            return stream.readline()
    pytest.fail("no line within 30 s")

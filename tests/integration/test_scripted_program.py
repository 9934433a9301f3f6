"""The scripted agent as a real process on a real terminal, in real git, tmux and against a real MCP server."""

from __future__ import annotations

import base64
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from swarm_core.agents.base import Plan, Spec
from swarm_core.agents.scripted import Scripted
from tests.fakes import mcp_server
from tests.support import git_run, wait_until

CONVERSATION = "11111111-2222-4333-8444-555555555555"


class Running:
    """The program on a pseudo terminal: its screen so far, its status file, what it recorded."""

    def __init__(self, plan: Plan, *, cwd: Path, folder: Path, resume: bool, env: dict[str, str]) -> None:
        self.folder = folder
        self.master, self.slave = pty.openpty()
        self.before = termios.tcgetattr(self.slave)
        argv = plan.resume_argv if resume else plan.argv
        assert argv is not None
        self.process = subprocess.Popen(
            argv,
            cwd=cwd,
            env={**os.environ, "SWARM_INSTANCE_DIR": str(folder), **env},
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            start_new_session=True,
        )
        self._output = bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self.master, 65536)
            except OSError:
                return
            if not data:
                return
            self._output += data

    @property
    def screen(self) -> str:
        return bytes(self._output).decode(errors="replace")

    @property
    def status(self) -> dict[str, Any]:
        """What this process says of itself; a killed one before it left its last word in the file."""
        path = self.folder / "status.json"
        body = json.loads(path.read_text()) if path.exists() else {}
        return body if body.get("pid") == self.process.pid else {}

    @property
    def received(self) -> list[dict[str, Any]]:
        path = self.folder / "received.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def is_now(self, activity: str, detail: str | None = None) -> None:
        wait_until(
            lambda: self.status.get("activity") == activity and detail in (None, self.status["detail"]),
            what=f"{activity}; is {self.status}; screen {self.screen}",
        )

    def shows(self, text: str, times: int = 1) -> None:
        wait_until(lambda: self.screen.count(text) >= times, what=f"{text!r} on {self.screen!r}")

    def type(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.master, data) :]

    def paste(self, data: bytes) -> None:
        self.type(b"\x1b[200~" + data + b"\x1b[201~")

    def send(self, data: bytes) -> None:
        self.paste(data)
        self.type(b"\r")

    def ends(self, code: int) -> None:
        assert self.process.wait(timeout=15) == code, self.screen

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(timeout=10)
        os.close(self.slave)
        self._reader.join(timeout=10)
        os.close(self.master)


Start = Callable[..., Running]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "instance"
    path.mkdir()
    return path


@pytest.fixture
def start(repo: Path, folder: Path) -> Iterator[Start]:
    started: list[Running] = []

    def begin(script: str, *, resume: bool = False, env: dict[str, str] | None = None) -> Running:
        (folder / "prompt.md").write_text(script)
        running = Running(
            plan_for(repo, folder), cwd=repo, folder=folder, resume=resume, env={"SWARM_URL": "", **(env or {})}
        )
        started.append(running)
        return running

    yield begin
    for running in started:
        running.close()


def plan_for(repo: Path, folder: Path) -> Plan:
    spec = Spec(
        instance_id="work-1-a1",
        epoch=1,
        conversation_id=CONVERSATION,
        worktree_path=str(repo),
        instance_dir=str(folder),
        prompt="",
        prompt_path=str(folder / "prompt.md"),
        coordinator_url="",
    )
    return Scripted().plan(spec, resume=True)


def test_a_script_writes_commits_and_ends_with_its_code(start, repo):
    agent = start(
        "Please do this.\nwrite src/new.txt one\\n\\ttwo\nappend src/new.txt three\\c\ncommit Add it\nexit 3\n"
    )
    agent.ends(3)
    assert (repo / "src" / "new.txt").read_bytes() == b"one\n\ttwo\nthree"
    assert git_run(repo, "log", "-1", "--format=%s|%an") == "Add it|Test Person"
    assert git_run(repo, "status", "--porcelain") == ""
    assert agent.status["activity"] == "exited"
    assert agent.status["detail"] == "exit 3"


def test_a_commit_without_a_configured_identity_has_the_fixed_one(start, repo, monkeypatch):
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.delenv(f"GIT_{role}_NAME")
        monkeypatch.delenv(f"GIT_{role}_EMAIL")
    start("write a b\ncommit Work\nexit 0").ends(0)
    assert (
        git_run(repo, "log", "-1", "--format=%an %ae %cn")
        == "Scripted Agent scripted@swarm.invalid Scripted Agent"
    )


def test_nothing_to_commit_is_said_and_the_script_goes_on(start, repo):
    head = git_run(repo, "rev-parse", "HEAD")
    agent = start("commit Nothing\nsay went on\nexit 0")
    agent.ends(0)
    agent.shows("nothing to commit")
    agent.shows("went on")
    assert git_run(repo, "rev-parse", "HEAD") == head


def test_a_commit_hook_that_refuses_ends_the_script_and_never_sees_the_token(start, repo, tmp_path):
    hook = repo / ".git" / "hooks" / "pre-commit"
    hook.write_text(f"#!/bin/sh\nenv > {tmp_path}/seen\necho refused >&2\nexit 1\n")
    hook.chmod(0o755)
    agent = start("write a b\ncommit Work\nexit 0", env={"SWARM_TOKEN": "the-secret"})
    agent.ends(1)
    agent.shows("refused")
    assert "the-secret" not in (tmp_path / "seen").read_text()


@pytest.mark.parametrize("line", ["write ../out x", "wait long", "call t [1]", "exit 999"])
def test_a_step_with_bad_syntax_ends_with_two_before_anything_is_done(start, repo, line):
    agent = start(f"write first.txt x\n{line}\n")
    agent.ends(2)
    agent.shows("error: line 2")
    assert not (repo / "first.txt").exists()


def test_a_path_that_leads_out_through_a_link_is_refused(start, repo, tmp_path):
    (repo / "link").symlink_to(tmp_path)
    agent = start("write link/out.txt x\nexit 0")
    agent.ends(1)
    assert not (tmp_path / "out.txt").exists()


def test_task_text_and_messages_are_shown_without_control_characters(start):
    agent = start("Do \x1b]0;title\x07it\x1b[2J now\nawait-message\nexit 0")
    agent.is_now("idle")
    agent.send(b"evil \x1b[2J\x9b31m\x07text")
    agent.ends(0)
    agent.shows("Do ]0;titleit[2J now")
    agent.shows("evil [2J")
    assert "\x1b[2J" not in agent.screen
    assert "\x07" not in agent.screen


def test_a_used_up_script_waits_for_messages_and_runs_their_steps(start, repo):
    agent = start("say ready")
    agent.is_now("idle")
    agent.send(b"Please change it:\nwrite m.txt from message\nand then stop")
    wait_until(lambda: (repo / "m.txt").exists(), what="the step of the message")
    agent.is_now("idle")
    agent.type(b"exit 4\r")
    agent.ends(4)


def test_bad_syntax_in_a_message_is_said_and_ends_nothing(start, repo):
    agent = start("say ready")
    agent.is_now("idle")
    agent.send(b"wait for me\nwrite m.txt still done")
    wait_until(lambda: (repo / "m.txt").exists(), what="the good step")
    agent.shows("not a step: wait needs seconds")
    agent.is_now("idle")


@pytest.mark.parametrize(
    "message",
    [
        b"x",
        b"!echo hi",
        b"/exit",
        b"-rf",
        "ünïcode ✓ 👩‍👩‍👧".encode(),
        b"many\nlines\r\nand\ttabs\n\n",
        b"\x1b[31mansi\x07\x00\x7f\x03",
        b"\xff\xfe not utf-8",
        b"0123456789abcdef\n" * 6000,
    ],
    ids=["one", "bang", "slash", "dash", "unicode", "lines", "control", "bytes", "100kB"],
)
def test_a_pasted_message_is_recorded_byte_for_byte(start, message):
    agent = start("await-message\nexit 0")
    agent.is_now("idle")
    agent.send(message)
    agent.ends(0)
    assert [base64.b64decode(entry["base64"]) for entry in agent.received] == [message]


def test_the_same_message_id_is_executed_once(start, repo):
    agent = start("say ready")
    agent.is_now("idle")
    for text in (
        b"[swarm msg m1 from x]\nappend log one",
        b"[swarm msg m1 from x]\nappend log one",
        b"append log end",
    ):
        agent.send(text)
    wait_until(lambda: (repo / "log").exists() and "end" in (repo / "log").read_text(), what="the last message")
    assert (repo / "log").read_text() == "one\nend\n"
    assert [(entry["message_id"], entry["kind"]) for entry in agent.received] == [
        ("m1", "message"),
        ("m1", "duplicate"),
        (None, "message"),
    ]


def test_a_message_pasted_twice_before_one_enter_is_executed_once(start, repo):
    agent = start("say ready")
    agent.is_now("idle")
    agent.paste(b"[swarm msg m1]\nappend log one")
    agent.send(b"[swarm msg m1]\nappend log one")
    agent.send(b"append log end")
    wait_until(lambda: (repo / "log").exists() and "end" in (repo / "log").read_text(), what="the last message")
    assert (repo / "log").read_text() == "one\nend\n"


def test_input_that_arrives_while_busy_is_kept_in_order(start, repo):
    agent = start("busy 0.3\nsay done")
    agent.is_now("busy")
    for number in range(50):
        agent.send(f"[swarm msg {number} x]\nappend log {number}".encode())
    wait_until(lambda: (repo / "log").exists() and "49" in (repo / "log").read_text(), what="all messages")
    assert (repo / "log").read_text().split() == [str(number) for number in range(50)]


def test_input_typed_before_the_program_listens_is_not_lost(start, repo):
    agent = start("await-message\nexit 0")
    agent.type(b"write early.txt x\r")
    agent.ends(0)
    assert (repo / "early.txt").exists()


def test_a_question_blocks_until_the_next_line_which_is_not_a_step(start, repo):
    agent = start("ask Which colour?\nsay thanks\nexit 0")
    agent.is_now("blocked", "question")
    agent.shows("Which colour?")
    agent.type(b"write no.txt x\r")
    agent.ends(0)
    agent.shows("answered: write no.txt x")
    assert not (repo / "no.txt").exists()
    assert agent.received[0]["kind"] == "answer"


@pytest.mark.parametrize(
    ("keys", "answer"),
    [(b"\r", "yes"), (b"1", "yes"), (b"2", "no"), (b"\x1b", "no"), (b"abc\r", "yes"), (b"\x1b[A\r", "yes")],
    ids=["enter", "one", "two", "escape", "text then enter", "arrow then enter"],
)
def test_a_dialog_is_answered_by_its_keys(start, keys, answer):
    agent = start("dialog Run rm -rf build\nexit 0")
    agent.is_now("blocked", "permission")
    agent.shows("Do you want to proceed?")
    agent.type(keys)
    agent.ends(0)
    agent.shows(f"answered: {answer}")


def test_a_message_sent_into_a_dialog_is_swallowed_and_its_enter_approves(start):
    agent = start("dialog Run it\nsay after\nexit 0")
    agent.is_now("blocked")
    agent.send(b"[swarm msg m1]\nsay hello 2 you")
    agent.ends(0)
    agent.shows("answered: yes")
    assert agent.received == []


def test_a_message_that_came_before_the_dialog_is_kept(start):
    agent = start("busy 0.3\ndialog Run it\nawait-message\nexit 0")
    agent.shows("Working")
    agent.send(b"early")
    agent.is_now("blocked")
    agent.type(b"2")
    agent.ends(0)
    agent.shows("answered: no")
    agent.shows("received: early")


def test_the_screen_and_the_status_file_tell_the_same(start):
    agent = start("busy 0.5\ndialog Run it\nask Why?\nsay end")
    adapter = Scripted()
    for activity, keys in (("busy", b""), ("blocked", b"\r"), ("blocked", b"because\r"), ("idle", b"")):
        agent.is_now(activity)
        read = adapter.read_status((agent.folder / "status.json").read_text())
        assert read is not None
        assert read.at == agent.status["at"]
        wait_until(lambda: (adapter.read_screen(agent.screen) or read).activity == activity, what=activity)  # noqa: B023
        detail = agent.status["detail"]
        agent.type(keys)
        wait_until(lambda: not keys or agent.status["detail"] != detail, what="the next state")  # noqa: B023


def test_the_status_names_the_process_and_the_conversation(start):
    agent = start("say a\nsay b\nhang")
    agent.shows("b")
    wait_until(lambda: agent.status.get("activity") == "busy", what="busy")
    assert agent.status["pid"] == agent.process.pid
    assert agent.status["conversation_id"] == CONVERSATION


@pytest.mark.parametrize("script", ["hang", "wait 60", "await-message", "ask x", "dialog x", "say idle"])
def test_sigterm_ends_it_cleanly_with_the_terminal_restored(start, script):
    agent = start(f"say up\n{script}")
    agent.shows("up")
    wait_until(lambda: termios.tcgetattr(agent.slave) != agent.before, what="raw mode")
    agent.process.send_signal(signal.SIGTERM)
    agent.ends(143)
    assert termios.tcgetattr(agent.slave) == agent.before
    agent.shows("\x1b[?2004l")
    assert agent.status["detail"] == "exit 143"


def test_a_hanging_agent_ignores_its_input(start):
    agent = start("hang")
    agent.is_now("busy")
    agent.type(b"exit 0\r\x03")
    with pytest.raises(subprocess.TimeoutExpired):
        agent.process.wait(timeout=0.3)
    assert agent.received == []


def test_a_crash_is_a_real_signal(start):
    agent = start("say before\ncrash")
    agent.ends(-signal.SIGSEGV)


def test_a_closed_terminal_ends_it(repo, folder):
    (folder / "prompt.md").write_text("say up")
    done = subprocess.run(
        plan_for(repo, folder).argv,
        cwd=repo,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 0
    assert b"up" in done.stdout


def test_it_resumes_after_the_last_finished_step(start, repo):
    agent = start("append log one\nappend log two\nhang\n")
    agent.is_now("busy")
    wait_until(lambda: (repo / "log").exists() and (repo / "log").read_text() == "one\ntwo\n", what="two steps")
    wait_until(lambda: len((agent.folder / "conversation.jsonl").read_text().splitlines()) == 5, what="the log")
    agent.process.kill()
    agent.ends(-signal.SIGKILL)
    again = start("append log one\nappend log two\nappend log three\nexit 0\n", resume=True)
    again.ends(0)
    again.shows(f"resumed conversation {CONVERSATION}")
    assert (repo / "log").read_text() == "one\ntwo\nthree\n"
    assert again.screen.count("appended to") == 1


def test_after_a_crash_it_resumes_behind_the_crash(start, repo):
    script = "crash\nwrite after.txt x\nexit 0"
    start(script).ends(-signal.SIGSEGV)
    start(script, resume=True).ends(0)
    assert (repo / "after.txt").exists()


def test_an_append_that_was_not_logged_is_not_done_twice(start, repo, folder):
    (repo / "log").write_text("old\nhalf")
    entry = {"conversation_id": CONVERSATION, "script": "prompt", "step": 0, "size": 4}
    (folder / "conversation.jsonl").write_text(json.dumps(entry) + "\n" + '{"torn')
    start("append log new\nexit 0", resume=True).ends(0)
    assert (repo / "log").read_text() == "old\nnew\n"


def test_a_message_received_but_not_finished_is_finished_after_a_kill(start, repo):
    agent = start("busy 0.3\nsay ready")
    agent.shows("Working")
    agent.send(b"[swarm msg m1]\nappend log one\ndialog Go on?\nappend log two")
    agent.send(b"[swarm msg m2]\nappend log three")
    agent.is_now("blocked")
    agent.process.kill()
    agent.ends(-signal.SIGKILL)
    again = start("busy 0.3\nsay ready", resume=True)
    again.is_now("blocked")
    again.type(b"\r")
    again.is_now("idle")
    assert (repo / "log").read_text() == "one\ntwo\nthree\n"
    again.send(b"[swarm msg m2]\nappend log three")
    again.send(b"exit 0")
    again.ends(0)
    assert (repo / "log").read_text() == "one\ntwo\nthree\n"
    third = start("busy 0.3\nsay ready", resume=True)
    third.is_now("idle")
    assert "received" not in third.screen


def test_a_fresh_start_in_the_same_folder_forgets_the_steps_but_not_the_numbers(start, repo):
    first = start("append log a\nawait-message\nexit 0")
    first.is_now("idle")
    first.send(b"hello")
    first.ends(0)
    second = start("append log b\nawait-message\nexit 0")
    second.is_now("idle")
    second.send(b"again")
    second.ends(0)
    assert (repo / "log").read_text() == "a\nb\n"
    assert [entry["n"] for entry in second.received] == [1, 2]


@pytest.mark.parametrize("json_response", [False, True], ids=["sse", "json"])
def test_a_tool_is_called_with_one_handshake_and_errors_do_not_end_the_script(start, json_response):
    calls = ['call echo {"a": "ü"}', "call refuse", "call unknown {}", "call progress", 'call echo {"n": 2}']
    script = "\n".join([*calls, "say went on", "exit 0"])
    with mcp_server.running(json_response=json_response) as server:
        agent = start(script, env={"SWARM_URL": server.url, "SWARM_TOKEN": mcp_server.TOKEN})
        agent.ends(0)
    assert [name for name, _ in server.calls] == ["echo", "refuse", "unknown", "progress", "echo"]
    assert server.calls[0][1] == {"a": "ü"}
    assert server.initialised == 1
    agent.shows('call echo: {"echo": {"a": "\\u00fc"}}')
    agent.shows("call refuse failed: ")
    agent.shows("call unknown failed: Unknown tool: unknown")
    agent.shows('call progress: {"done": true}')
    agent.shows("went on")


def test_a_server_that_forgot_the_session_is_greeted_again(start):
    with mcp_server.running() as server:
        agent = start(
            'call echo {"n": 1}\nawait-message\ncall echo {"n": 2}\nexit 0',
            env={"SWARM_URL": server.url, "SWARM_TOKEN": mcp_server.TOKEN},
        )
        agent.is_now("idle")
    port = int(server.url.rpartition(":")[2])
    with mcp_server.running(port=port, recorder=server):
        agent.send(b"go on")
        agent.ends(0)
    assert [arguments for _, arguments in server.calls] == [{"n": 1}, {"n": 2}]
    assert server.initialised == 2


def test_a_wrong_token_is_said_and_not_shown(start):
    with mcp_server.running() as server:
        agent = start("call echo\nexit 0", env={"SWARM_URL": server.url, "SWARM_TOKEN": "wrong-secret"})
        agent.ends(0)
    agent.shows("call echo failed: ")
    agent.shows("401")
    assert server.calls == []
    assert "wrong-secret" not in agent.screen


def test_a_coordinator_that_is_not_there_is_given_up_after_a_bounded_time(start):
    agent = start("call echo\nsay went on\nexit 0", env={"SWARM_URL": "http://127.0.0.1:1"})
    agent.ends(0)
    agent.shows("connection refused")
    agent.shows("went on")


def test_without_an_address_a_call_is_said_to_fail(start):
    agent = start("call echo\nexit 0")
    agent.ends(0)
    agent.shows("call echo failed: SWARM_URL is not set")


def test_hooks_are_sent_only_when_asked_for(start):
    with mcp_server.running() as server:
        env = {"SWARM_URL": server.url, "SWARM_TOKEN": mcp_server.TOKEN}
        start("exit 0", env=env).ends(0)
        assert server.hooks == []
        agent = start("dialog sure?\nawait-message\nexit 0", env={**env, "SWARM_HOOKS": "1"})
        agent.is_now("blocked")
        agent.type(b"\r")
        agent.is_now("idle")
        agent.send(b"hello")
        agent.ends(0)
    assert [event for event, _, _ in server.hooks] == [
        "session_start",
        "notification",
        "step",
        "prompt_submit",
        "stop",
        "step",
        "session_end",
    ]
    assert {authorization for _, _, authorization in server.hooks} == {f"Bearer {mcp_server.TOKEN}"}


def test_it_starts_without_the_slow_parts_of_the_library(repo, folder):
    (folder / "prompt.md").write_text("exit 0")
    argv = plan_for(repo, folder).argv
    done = subprocess.run(
        [argv[0], "-X", "importtime", *argv[1:]],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "swarm_core.agents.script.program" in imported
    assert not imported & {"typing", "pathlib", "http.client", "subprocess", "dataclasses", "contextlib", "site"}


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_in_tmux_a_pasted_message_arrives_exactly(short_tmp, repo, folder):
    environment = {**os.environ, "TMUX_TMPDIR": str(short_tmp), "TERM": "xterm-256color"}

    def tmux(*args: str, stdin: bytes | None = None) -> str:
        done = subprocess.run(
            ["tmux", "-f", "/dev/null", *args],
            input=stdin,
            capture_output=True,
            env=environment,
            timeout=20,
            check=True,
        )
        return done.stdout.decode()

    def activity() -> str:
        path = folder / "status.json"
        return json.loads(path.read_text())["activity"] if path.exists() else ""

    def received() -> int:
        path = folder / "received.jsonl"
        return len(path.read_text().splitlines()) if path.exists() else 0

    (folder / "prompt.md").write_text("say ready")
    tmux("new-session", "-d", "-s", "one", "-x", "120", "-y", "40", "-c", str(repo), *plan_for(repo, folder).argv)
    try:
        wait_until(lambda: activity() == "idle", what="idle")
        messages = [f"[swarm msg {n} x]\n!{'ü' * n * 700}\tend".encode() for n in range(5)]
        for count, message in enumerate(messages, start=1):
            tmux("load-buffer", "-b", "b", "-", stdin=message)
            tmux("paste-buffer", "-d", "-r", "-p", "-b", "b", "-t", "one:")
            tmux("send-keys", "-t", "one:", "Enter")
            wait_until(lambda wanted=count: received() == wanted, what="the message")
        lines = (folder / "received.jsonl").read_text().splitlines()
        assert [base64.b64decode(json.loads(line)["base64"]) for line in lines] == messages
        wait_until(lambda: activity() == "idle", what="idle again")
        reading = Scripted().read_screen(tmux("capture-pane", "-p", "-t", "one:"))
        assert reading is not None
        assert reading.activity == "idle"
        tmux("send-keys", "-t", "one:", "-l", "exit 0")
        tmux("send-keys", "-t", "one:", "Enter")
        wait_until(lambda: activity() == "exited", what="the end")
    finally:
        subprocess.run(["tmux", "kill-server"], env=environment, capture_output=True, check=False, timeout=20)


def test_the_session_start_hook_of_claude_waits_reports_and_says_nothing(repo):
    script = Path(sys.modules[Scripted.__module__].__file__ or "").with_name("claude_session_start.py")
    with mcp_server.running() as server:
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(script)],
            input=b'{"source": "startup"}',
            env={**os.environ, "SWARM_URL": server.url, "SWARM_TOKEN": mcp_server.TOKEN},
            capture_output=True,
            timeout=20,
            check=False,
        )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert server.hooks == [("SessionStart", {"source": "startup"}, f"Bearer {mcp_server.TOKEN}")]


def test_the_session_start_hook_of_claude_succeeds_without_a_coordinator():
    script = Path(sys.modules[Scripted.__module__].__file__ or "").with_name("claude_session_start.py")
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(script)],
        input=b"{}",
        env={**os.environ, "SWARM_URL": "http://127.0.0.1:1"},
        capture_output=True,
        timeout=20,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")

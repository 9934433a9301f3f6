"""People are called once for each reason: by webhook, desktop and terminal, also when one of those fails."""

from __future__ import annotations

import fcntl
import json
import os
import select
import struct
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from swarm_core import config
from swarm_core.errors import ExternalFailure, InvalidInput
from swarm_core.models import Event, Instance
from swarm_core.ops import channels
from swarm_core.ops.channels import Call
from swarm_core.ops.notify import Notifier
from swarm_core.ops.supervise import Supervisor
from swarm_core.store import hosts, instances, notices
from swarm_core.swarm import Swarm
from swarm_core.tmux import announce, control
from tests.fakes.webhook import SECRET, Receiver, receiver
from tests.integration.tmux_fixture import Server, start_environment, tmux_server
from tests.support import wait_until
from tests.unit.test_views import instance
from tests.world import World

CALL = Call("work-a1", "blocked", "work-a1", "blocked: permission", "", "swarm attach work-a1", 4)
NASTY = "-x \x1b[31mred\x1b[0m \x07 \x9b2J \u202e #(touch %s) #{pid} #[fg=red] %%H \\033 <b>&</b> @here;"
FAKE_NOTIFY_SEND = """#!/bin/sh
printf '%s\\0' "$@" >> "$0.said"
printf '\\n' >> "$0.said"
"""


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def hook() -> Iterator[Receiver]:
    with receiver() as made:
        yield made


@pytest.fixture
def desktop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A notify-send on PATH; what it is told is in the file beside it."""
    program = tmp_path / "bin" / "notify-send"
    program.parent.mkdir()
    program.write_text(FAKE_NOTIFY_SEND)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    return program


def said(program: Path) -> list[list[str]]:
    """The arguments of each time it was run."""
    told = Path(f"{program}.said")
    return [r.split("\0") for r in told.read_text().split("\0\n") if r] if told.exists() else []


def turn_on(world: World, **values: object) -> None:
    for key, value in ({"notify_terminal": 0} | values).items():
        config.write_value(world.home / "config.toml", key, str(value))


def add(swarm: Swarm, number: int = 1, **changes: object) -> Instance:
    made = instance(id=f"work-7-a{number}", agent_number=number, **changes)
    with swarm.context.db.write():
        hosts.seen(swarm.context.db, made.host)
        instances.insert(swarm.context.db, made, actor="operator")
    return made


def change(swarm: Swarm, one: Instance, **fields: object) -> None:
    with swarm.context.db.write():
        instances.set_fields(swarm.context.db, one.id, **fields)


def events(swarm: Swarm, name: str) -> list[Event]:
    return [e for e in swarm.events(after=0, limit=1000) if e.name == name]


def ask(digest: str) -> str:
    return json.dumps({"since": "x", "text": "Delete it?", "choices": ["Yes", "No"], "kind": "", "digest": digest})


def test_a_reason_is_told_once_with_the_command_to_act(world: World, hook: Receiver) -> None:
    turn_on(world, notify_webhook=hook.url)
    with world.open() as swarm:
        one = add(swarm, name="login", needs_person="all review rounds are used (3)")
        notifier = Notifier(swarm.context)
        notifier.look()
        notifier.look()
        [body] = hook.bodies
        assert body.keys() == {
            *("text", "title", "message", "tags", "priority", "instance", "reason", "command"),
        }
        assert (body["instance"], body["reason"]) == (one.id, "needs_person")
        assert body["title"] == f"swarm: {one.id} (login)"
        for part in ("all review rounds are used (3)", f"swarm accept {one.id}", f"swarm abandon {one.id}"):
            assert part in body["message"]
            assert part in body["text"]
        assert f"swarm accept {one.id}" in body["command"]
        assert hook.paths == [f"/{SECRET}?key={SECRET}"]
        assert hook.headers[0]["Authorization"].startswith("Basic ")
        [raised], [sent] = events(swarm, "notice:raised"), events(swarm, "notice:sent")
        assert raised.metadata["reason"] == "needs_person"
        assert (sent.success, sent.metadata["channel"], sent.metadata["attempts"]) == (True, "webhook", 1)
        assert notices.unsent(swarm.context.db) == []


def test_two_reasons_are_two_calls_and_end_one_by_one(world: World, hook: Receiver) -> None:
    turn_on(world, notify_webhook=hook.url)
    with world.open() as swarm:
        one = add(swarm, needs_person="no rounds", problem="clean failed")
        notifier = Notifier(swarm.context)
        notifier.look()
        assert [b["reason"] for b in hook.bodies] == ["needs_person", "problem"]
        change(swarm, one, problem="")
        notifier.look()
        assert [e.metadata["reason"] for e in events(swarm, "notice:over")] == ["problem"]
        assert [n.reason for n in notices.lasting(swarm.context.db)] == ["needs_person"]
        change(swarm, one, needs_person="", cleaned_at="2026-03-01T11:00:00.000Z")
        notifier.look()
        assert notices.lasting(swarm.context.db) == []
        assert len(hook.bodies) == 2


def test_a_restart_repeats_nothing_and_a_reason_that_comes_back_is_told_again(
    world: World, hook: Receiver
) -> None:
    turn_on(world, notify_webhook=hook.url)
    with world.open() as swarm:
        one = add(swarm, needs_person="no rounds")
        Notifier(swarm.context).look()
    with world.open() as swarm:
        notifier = Notifier(swarm.context)
        notifier.look()
        assert len(hook.bodies) == len(events(swarm, "notice:raised")) == 1
        change(swarm, one, needs_person="")
        notifier.look()
        change(swarm, one, needs_person="no rounds")
        notifier.look()
        assert len(hook.bodies) == len(events(swarm, "notice:raised")) == 2


def test_after_a_restart_only_the_channels_that_have_not_told_it_are_used(
    world: World, hook: Receiver, desktop: Path
) -> None:
    turn_on(world, notify_webhook=hook.url, notify_desktop=1)
    hook.answer = 500
    with world.open() as swarm:
        add(swarm, needs_person="no rounds")
        Notifier(swarm.context).look()
        assert [e.metadata["channel"] for e in events(swarm, "notice:sent")] == ["desktop"]
    hook.answer = 200
    with world.open() as swarm:
        Notifier(swarm.context).look()
        assert (len(said(desktop)), len(hook.bodies)) == (1, 2)
        assert notices.unsent(swarm.context.db) == []


def test_what_was_raised_while_nothing_was_on_is_told_when_something_is(world: World, hook: Receiver) -> None:
    turn_on(world)
    with world.open() as swarm:
        add(swarm, needs_person="no rounds")
        Notifier(swarm.context).look()
        assert len(notices.unsent(swarm.context.db)) == 1
    turn_on(world, notify_webhook=hook.url)
    with world.open() as swarm:
        Notifier(swarm.context).look()
    assert len(hook.bodies) == 1


def test_a_channel_that_fails_is_tried_three_times_with_pauses_and_then_given_up(
    world: World, hook: Receiver, desktop: Path, caplog: pytest.LogCaptureFixture
) -> None:
    turn_on(world, notify_webhook=hook.url, notify_desktop=1)
    hook.answer = 500
    clock = Clock()
    with world.open() as swarm:
        add(swarm, needs_person="no rounds")
        notifier = Notifier(swarm.context, pauses=(5, 30), clock=clock)
        counts = []
        for later in (0, 4.9, 0.2, 29.9, 0.2, 1000):
            clock.now += later
            notifier.look()
            counts.append(len(hook.bodies))
        assert counts == [1, 1, 2, 2, 3, 3]
        assert len(said(desktop)) == 1
        told = {e.metadata["channel"]: e for e in events(swarm, "notice:sent")}
        assert told["desktop"].success
        assert (told["webhook"].success, told["webhook"].error_code) == (False, "EXTERNAL_FAILURE")
        assert told["webhook"].metadata["attempts"] == 3
        assert notices.unsent(swarm.context.db) == []
        assert len([r for r in caplog.records if "webhook" in r.getMessage()]) == 3
        assert_no_secret(swarm, caplog)


def test_a_webhook_that_hangs_holds_up_neither_the_desktop_nor_the_loop(
    world: World, hook: Receiver, desktop: Path
) -> None:
    turn_on(world, notify_webhook=hook.url, notify_desktop=1)
    hook.answer = "hang"
    with world.open() as swarm:
        one = add(swarm, needs_person="no rounds")
        notifier = Notifier(swarm.context, patience=0.2)
        for problem in ("clean failed", "", "clean failed again"):
            change(swarm, one, problem=problem)
            notifier.look()
        # The first request hangs still, and nobody has begun a second.
        assert len(hook.bodies) == 1
        assert not hook.release.is_set()
        assert {e.metadata["channel"] for e in events(swarm, "notice:sent")} == {"desktop"}
        assert len(said(desktop)) == 3


@pytest.mark.parametrize("answer", ["hang", "drip"])
def test_a_webhook_that_does_not_answer_is_cut_off(
    hook: Receiver, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    monkeypatch.setattr(channels, "TIMEOUT", 0.3)
    hook.answer = answer
    with pytest.raises(ExternalFailure) as failed:
        channels.webhook(hook.url, CALL)
    assert len(hook.bodies) == 1
    assert SECRET not in str(failed.value.as_json())


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed_and_is_a_failure(
    world: World, hook: Receiver, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    turn_on(world, notify_webhook=hook.url)
    with receiver() as elsewhere, world.open() as swarm:
        hook.answer, hook.leads_to = status, elsewhere.url
        add(swarm, needs_person="no rounds")
        Notifier(swarm.context, pauses=()).look()
        assert (len(hook.bodies), elsewhere.bodies) == (1, [])
        [sent] = events(swarm, "notice:sent")
        assert sent.error_code == "EXTERNAL_FAILURE"
        assert_no_secret(swarm, caplog)


def test_a_webhook_that_nobody_listens_at_is_a_failure_without_its_address(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    with receiver() as closed:
        url = closed.url
    turn_on(world, notify_webhook=url)
    with world.open() as swarm:
        add(swarm, needs_person="no rounds")
        Notifier(swarm.context, pauses=()).look()
        [sent] = events(swarm, "notice:sent")
        assert not sent.success
        assert_no_secret(swarm, caplog)


def assert_no_secret(swarm: Swarm, caplog: pytest.LogCaptureFixture) -> None:
    assert SECRET not in caplog.text
    assert SECRET not in str(swarm.events(after=0, limit=1000))


@pytest.mark.parametrize(
    "url", ["htps://h/S3", "file:///S3", "ftp://h/S3", "h/S3", "http:///S3", "https://h:x/S3", "https://h/S 3"]
)
def test_an_address_that_is_none_is_refused_and_not_repeated(tmp_path: Path, url: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        config.write_value(tmp_path / "config.toml", "notify_webhook", url)
    assert refused.value.code == "INVALID_SETTING"
    assert url not in str(refused.value.as_json())
    assert config.write_value(tmp_path / "config.toml", "notify_webhook", "") == ""
    assert config.write_value(tmp_path / "config.toml", "notify_webhook", "https://h:8/S3?a=b")


def test_foreign_text_stays_text_in_a_webhook(hook: Receiver) -> None:
    channels.webhook(hook.url, Call("work-a1", "blocked", "work-a1", NASTY, f"{NASTY}\nsecond", "swarm ls", 4))
    [body] = hook.bodies
    for key in ("text", "title", "message", "command"):
        assert body[key].replace("\n", "").replace("\u200b", "").isprintable()
    assert "red" in body["message"]
    assert "\nsecond\n" in body["message"]
    assert "<b>&</b>" in body["message"]
    assert "&lt;b&gt;" in body["text"]
    assert "@here" not in body["text"]


def test_foreign_text_stays_text_on_the_desktop(desktop: Path) -> None:
    more = "\n".join(["--help", "x" * 9000, *["y"] * 9000])
    channels.desktop(Call("work-a1", "blocked", "-work", NASTY, more, "swarm ls", 4))
    [argv] = said(desktop)
    options, [title, body] = argv[: argv.index("--")], argv[argv.index("--") + 1 :]
    assert options == ["--app-name=swarm", "--urgency=critical"]
    assert title == "swarm: -work"
    assert body.replace("\n", "").isprintable()
    assert "\\\\033" in body
    assert "&lt;b&gt;&amp;&lt;/b&gt;" in body
    assert "x" * 200 not in body
    assert len(body) < 2000
    assert body.endswith("\nswarm ls")


def test_a_desktop_without_notify_send_is_a_failure_that_is_recorded(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn_on(world, notify_desktop=1)
    with world.open() as swarm, monkeypatch.context() as without:
        without.setenv("PATH", str(tmp_path))
        add(swarm, needs_person="no rounds")
        Notifier(swarm.context, pauses=()).look()
        [sent] = events(swarm, "notice:sent")
        assert (sent.success, sent.metadata["channel"]) == (False, "desktop")


def test_a_question_is_told_only_when_it_lasts(world: World, hook: Receiver) -> None:
    turn_on(world, notify_webhook=hook.url)
    clock = Clock()
    with world.open() as swarm:
        one = add(swarm, activity="blocked", blocked_on=ask("first"))
        notifier = Notifier(swarm.context, clock=clock)
        notifier.look()
        clock.now += 2.9
        notifier.look()
        assert events(swarm, "notice:raised") == []
        change(swarm, one, blocked_on=ask("second"))  # answered at once, and asks again
        notifier.look()
        clock.now += 2.9
        notifier.look()
        assert events(swarm, "notice:raised") == []
        clock.now += 0.2
        notifier.look()
        notifier.look()
        [body] = hook.bodies
        assert body["reason"] == "blocked"
        assert "Delete it?\n1. Yes\n2. No" in body["message"]
        assert body["command"] == f"swarm answer {one.id} --choice N"
        change(swarm, one, blocked_on=ask("third"))
        notifier.look()
        clock.now += 3
        notifier.look()
        assert len(hook.bodies) == 2
        assert [e.metadata["reason"] for e in events(swarm, "notice:over")] == ["blocked:second"]


@pytest.mark.parametrize("unread", ["", '{"since": "", "held": "h1"}'])
def test_a_question_that_was_answered_a_moment_ago_is_not_told_as_another(
    world: World, hook: Receiver, unread: str
) -> None:
    turn_on(world, notify_webhook=hook.url, notify_after=0)
    clock = Clock()
    with world.open() as swarm:
        one = add(swarm, activity="blocked", blocked_on=ask("first"))
        notifier = Notifier(swarm.context, clock=clock)
        notifier.look()
        change(swarm, one, blocked_on=unread)
        notifier.look()
        clock.now += 5
        notifier.look()
        assert len(hook.bodies) == 1
        clock.now += 6  # nobody could read the screen
        notifier.look()
        assert hook.bodies[-1]["command"] == f"swarm attach {one.id}"


@pytest.mark.parametrize(
    ("actor", "calls"), [("operator", 0), ("operator:anna", 0), ("supervisor", 1), ("work-7-a1", 1)]
)
def test_a_person_is_not_told_what_that_person_did(world: World, hook: Receiver, actor: str, calls: int) -> None:
    turn_on(world, notify_webhook=hook.url)
    with world.open() as swarm:
        one = add(swarm)
        with swarm.context.db.write():
            instances.change_status(swarm.context.db, one.id, "failed", actor=actor, reason="enough")  # type: ignore[arg-type]
        Notifier(swarm.context).look()
        assert len(hook.bodies) == calls


def test_the_coordinator_looks_by_itself(world: World, hook: Receiver) -> None:
    turn_on(world, notify_webhook=hook.url)
    with world.open() as swarm:
        add(swarm, needs_person="no rounds")
        Supervisor(swarm.context).do_chores()
        assert len(hook.bodies) == 1


class Terminal:
    """A person's terminal with tmux attached in it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.shown = b""

    def shows(self, data: bytes) -> bool:
        while select.select([self._fd], [], [], 0)[0]:
            self.shown += os.read(self._fd, 65536)
        return data in self.shown

    def until_shows(self, data: bytes) -> None:
        wait_until(lambda: self.shows(data), what=f"the terminal shows {data!r}")


@contextmanager
def attached(argv: list[str]) -> Iterator[Terminal]:
    outer, inner = os.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 400, 0, 0))
    env = {**start_environment(), "TERM": "xterm"}
    with subprocess.Popen(argv, stdin=inner, stdout=inner, stderr=inner, env=env) as person:
        os.close(inner)
        try:
            yield Terminal(outer)
        finally:
            person.kill()
            os.close(outer)


@pytest.fixture
def server(short_tmp: Path) -> Iterator[Server]:
    with tmux_server(short_tmp) as made:
        yield made


def test_the_terminal_shows_a_line_and_rings(world: World) -> None:
    with world.open() as swarm:
        work = world.work(swarm)
        change(swarm, work, needs_person="no rounds")
        with attached(swarm.context.host(work).attach_argv(work.id, read_only=False)) as terminal:
            terminal.until_shows(b"leaves it running")
            wait_until(lambda: people(world.settings.tmux_socket), what="a person is attached")
            assert not terminal.shows(b"\a")
            Notifier(swarm.context).look()
            terminal.until_shows(f"{work.id}: no rounds | swarm accept {work.id}".encode())
            terminal.until_shows(b"\a")
            [sent] = events(swarm, "notice:sent")
            assert (sent.success, sent.metadata["channel"]) == (True, "terminal")
        assert world.sessions() == {work.id: True}


def people(socket: Path) -> str:
    argv = ["tmux", "-S", str(socket), "list-clients"]
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=20).stdout


def test_several_reasons_at_once_are_one_line(world: World) -> None:
    with world.open() as swarm:
        work = world.work(swarm)
        change(swarm, work, needs_person="no rounds", problem="clean failed")
        with attached(swarm.context.host(work).attach_argv(work.id, read_only=True)) as terminal:
            wait_until(lambda: people(world.settings.tmux_socket), what="a person is attached")
            Notifier(swarm.context).look()
            terminal.until_shows(b"2 reasons to look: work-a1: no rounds, work-a1: clean failed")
            assert len(events(swarm, "notice:sent")) == 2


def test_a_line_from_an_agent_can_run_style_and_control_nothing(server: Server, tmp_path: Path) -> None:
    server.start("seen", "cat", "-")
    touched = tmp_path / "touched"
    with attached(server.tmux.attach_argv("seen")) as terminal:
        wait_until(lambda: server.pane("seen").attached == 1, what="a person is attached")
        text = NASTY.replace("%s", str(touched)[:8])
        assert announce.show(server.socket, f"#(touch {touched}) {text}") == 1
        terminal.until_shows(b"#{pid} # [fg=red]")
        assert b"%%H \\033 <b>&</b> @here;" in terminal.shown
        assert f"#(touch {touched})".encode() in terminal.shown
        assert b"\x1b[31mred" not in terminal.shown
        # A second line is shown after whatever the first may have run.
        announce.show(server.socket, "done")
        terminal.until_shows(b"done")
        assert not touched.exists()


def test_an_agents_own_bell_stays_silent_and_no_window_is_left(server: Server) -> None:
    server.python(
        "seen", "import sys; print(end='\\a', flush=True)\nfor line in sys.stdin: print('\\arang', line)"
    )
    with attached(server.tmux.attach_argv("seen")) as terminal:
        wait_until(lambda: server.pane("seen").attached == 1, what="a person is attached")
        announce.show(server.socket, "look")
        terminal.until_shows(b"\a")
        windows = ["tmux", "-S", str(server.socket), "list-windows", "-t", "seen", "-F", "#{window_id}"]
        wait_until(lambda: len(subprocess.check_output(windows).split()) == 1, what="the bell's window is gone")
        rung = terminal.shown.count(b"\a")
        server.tmux.send_keys("seen", "x", "Enter")
        terminal.until_shows(b"rang x")
        assert terminal.shown.count(b"\a") == rung == 1


def test_nobody_attached_and_no_server_are_no_failure(server: Server) -> None:
    assert announce.show(server.socket, "nobody hears it") == 0
    server.start("alone", "cat", "-")
    with control.Control(server.socket, server.config) as connection:
        assert connection.command("display-message", "-p", "here") == ["here"]
        assert announce.show(server.socket, "a control connection is nobody") == 0


def test_the_persons_own_server_hears_nothing(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = server.folder / "own"
    started = ["tmux", "-S", str(own), "-f", os.devnull, "new-session", "-d", "-s", "mine", "cat"]
    subprocess.run(started, check=True, timeout=20, env=start_environment())
    try:
        monkeypatch.setenv("TMUX", f"{own},1,0")
        server.start("seen", "cat", "-")
        mine = ["tmux", "-S", str(own), "attach-session", "-t", "mine"]
        with attached(mine) as elsewhere, attached(server.tmux.attach_argv("seen")) as terminal:
            wait_until(lambda: people(own) and people(server.socket), what="both are attached")
            elsewhere.shows(b"")
            before = elsewhere.shown
            assert announce.show(server.socket, "for ours alone") == 1
            terminal.until_shows(b"for ours alone")
            terminal.until_shows(b"\a")
            asked = ["tmux", "-S", str(own), "show-messages", "-t", people(own).partition(":")[0]]
            assert "for ours alone" not in subprocess.check_output(asked, text=True, env=start_environment())
            elsewhere.shows(b"")
            assert b"\a" not in elsewhere.shown[len(before) :]
    finally:
        subprocess.run(["tmux", "-S", str(own), "kill-server"], check=False, timeout=20)

"""The control connection: one process for many questions, no confusion by content, no end by a lost session."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from swarm_core import proc
from swarm_core.errors import ExternalFailure, InvalidInput
from swarm_core.tmux import command, orphans, panes
from swarm_core.tmux.control import Control, Output, decode_output, quote
from tests.integration.tmux_fixture import Server, tmux_server
from tests.support import wait_until


@pytest.fixture
def server(short_tmp: Path) -> Iterator[Server]:
    with tmux_server(short_tmp) as running:
        yield running


@pytest.fixture
def control(server: Server) -> Iterator[Control]:
    with Control(server.socket, server.config) as connection:
        yield connection


def clients(server: Server) -> list[str]:
    return command.run(server.socket, ["list-clients", "-F", "#{client_name}"]).text.split()


def test_it_lists_what_a_process_lists(server: Server, control: Control) -> None:
    server.start("a", "sleep", "60", epoch=2)
    server.start("b", "sleep", "60", epoch=3)
    assert [p.session for p in control.list_panes()] == ["a", "b"]
    assert control.list_panes() == panes.list_panes(server.socket)


def test_without_server_or_sessions_every_answer_is_empty(server: Server, control: Control) -> None:
    for _ in range(2):
        assert control.list_panes() == []
        assert control.capture_many(["%0"]) == {}
        assert control.command("display-message", "-p", "x") == []
        assert control.pipeline([["list-panes"], ["list-sessions"]]) == [None, None]
        assert control.pipeline([]) == []
        assert control.fileno() is None
        assert not command.is_up(server.socket)  # asking does not start a server
        server.start("a", "sleep", "60")
        assert len(control.list_panes()) == 1
        server.tmux.kill_server()
        wait_until(lambda: not command.is_up(server.socket))
        control.drain()


def test_it_survives_the_death_of_its_session_and_of_the_server(server: Server, control: Control) -> None:
    names = ["a", "b", "c"]
    for name in names:
        server.start(name, "sleep", "60")
    while names:
        attached = wait_until(lambda: control.command("display-message", "-p", "#{client_session}")[0])
        server.tmux.kill_session(attached)
        names.remove(attached)
        assert sorted(pane.session for pane in control.list_panes()) == names
    server.start("again", "sleep", "60")
    assert [pane.session for pane in control.list_panes()] == ["again"]
    pid = int(control.command("display-message", "-p", "#{pid}")[0])
    os.kill(pid, 9)
    assert control.list_panes() == []
    server.start("later", "sleep", "60")
    assert [pane.session for pane in control.list_panes()] == ["later"]


def test_fifty_screens_come_over_one_connection(server: Server, control: Control) -> None:
    for number in range(50):
        server.start(f"s{number}", "sh", "-c", f"echo screen {number}; echo '%end 1 2 1'; sleep 60")
    ids = {pane.session: pane.pane_id for pane in control.list_panes()}
    expected = {pane_id: f"screen {name[1:]}\n%end 1 2 1" for name, pane_id in ids.items()}
    wait_until(lambda: control.capture_many(ids.values()) == expected, what="all screens")
    assert len(clients(server)) == 1
    assert control.capture_many([*ids.values(), "%999"]) == expected


def test_a_screen_full_of_forged_guards_stays_inside_its_own_answer(server: Server, control: Control) -> None:
    """The server counts its guards upwards, so a hostile program can print every number of the near future."""
    server.start("honest", "sh", "-c", "echo honest; sleep 60")
    code = (
        "import sys, time\n"
        "now, number = int(time.time()), int(sys.argv[1])\n"
        "kinds = ('end', 'begin')\n"
        "lines = [f'%{k} {now + dt} {number + n} 1' for dt in (0, 1) for n in range(12) for k in kinds]\n"
        "print('\\n'.join([*lines, 'forged']), flush=True)\n"
        "time.sleep(60)\n"
    )
    for seen in range(0, 1200, 12):
        server.python(f"forger{seen}", code, str(200 + seen))
        if seen > 60:
            break
    order = [pane.pane_id for pane in control.list_panes() if pane.session != "honest"]
    honest = server.pane("honest").pane_id
    wait_until(lambda: all("forged" in s for s in control.capture_many(order).values()))
    for _ in range(40):
        answer = control.capture_many([*order, honest])
        assert answer[honest] == "honest"
        assert all(answer[pane_id].endswith("forged") for pane_id in order)
        assert len(answer) == len(order) + 1


def test_a_refused_command_is_an_error_and_hurts_no_other(server: Server, control: Control) -> None:
    server.start("a", "sleep", "60")
    with pytest.raises(ExternalFailure) as caught:
        control.command("no-such-command")
    assert caught.value.code == "TMUX_COMMAND_FAILED"
    answers = control.pipeline(
        [["display-message", "-p", "one"], ["capture-pane", "-p", "-t", "%77"], ["display-message", "-p", "two"]]
    )
    assert answers == [["one"], None, ["two"]]


@pytest.mark.parametrize(
    "word", ["a b", "it's", '"x"', "a;", ";", "\\", "$HOME", "~", "{ x }", "tab\there", "ü☃", "-", "", "'", "a\\;"]
)
def test_quoted_words_arrive_as_they_are(server: Server, control: Control, word: str) -> None:
    server.start("a", "sleep", "60")
    control.command("set-option", "-t", "=a:", "@word", word)
    assert command.run(server.socket, ["show-options", "-v", "-t", "=a:", "@word"]).text == word + "\n"


@pytest.mark.parametrize("word", ["a\nkill-server", "\r", "\0"])
def test_a_line_break_is_refused(word: str) -> None:
    with pytest.raises(InvalidInput):
        quote(word)


def test_it_neither_resizes_nor_counts_as_a_person(server: Server, control: Control) -> None:
    server.start("a", "sleep", "60")
    [pane] = control.list_panes()
    assert (pane.width, pane.height, pane.attached) == (200, 50, 0)
    with Control(server.socket, server.config) as second:
        second.list_panes()
        assert server.pane("a").attached == 0
        assert len(clients(server)) == 2
    wait_until(lambda: len(clients(server)) == 1, what="a closed connection is gone")


def test_output_of_the_attached_session_does_not_flood_it(server: Server, control: Control) -> None:
    server.start("loud", "sh", "-c", "while :; do seq 1 1000; done")
    for _ in range(50):
        assert len(control.list_panes()) == 1
    assert [news for news in control.drain() if news.startswith("%output")] == []


def test_news_makes_the_connection_readable(server: Server, control: Control) -> None:
    server.start("a", "sleep", "60")
    control.list_panes()
    control.drain()
    server.start("b", "sleep", "60")
    seen: list[str] = []

    def told() -> bool:
        seen.extend(control.drain())
        return "%sessions-changed" in seen

    wait_until(told, what="news of a session")


def test_a_thousand_questions_at_once_do_not_block(server: Server, control: Control) -> None:
    server.start("a", "sh", "-c", "seq 1 100; sleep 60")
    server.until_shows("a", "100")
    pane_id = server.pane("a").pane_id
    answers = control.pipeline([["capture-pane", "-p", "-t", pane_id]] * 1000)
    assert len(answers) == 1000
    assert all(answer is not None and "100" in answer for answer in answers)


def test_output_carries_arbitrary_bytes(server: Server) -> None:
    everything = bytes(n for n in range(256) if n not in b"\n\r\x0e\x0f\x1b\x90\x98\x9b\x9d\x9e\x9f") * 3
    source = server.folder / "bytes"
    source.write_bytes(everything)
    code = (
        "import os, sys, tty; tty.setraw(1); os.write(1, b'ready'); os.read(0, 1);"
        "os.write(1, open(sys.argv[1], 'rb').read() + b'EOF'); os.read(0, 1)"
    )
    server.python("talks", code, str(source))
    server.until_shows("talks", "ready")
    pane = server.pane("talks")
    output = Output(server.socket, server.config, "talks")
    got = b""

    def whole() -> bool:
        nonlocal got
        for pane_id, data in output.read(1.0):
            assert pane_id == pane.pane_id
            got += data
        return got.endswith(b"EOF")

    command.run(server.socket, ["send-keys", "-t", "=talks:", "x"])
    wait_until(whole, what="all bytes")
    assert got.endswith(everything + b"EOF")
    assert output.read(0.0) == []
    server.tmux.kill_session("talks")
    wait_until(lambda: output.read(0.2) == [] and output.closed, what="the stream ends")
    assert output.fileno() is None


def test_output_of_a_session_that_is_not_there_is_closed(server: Server) -> None:
    assert Output(server.socket, server.config, "none").closed
    server.start("a", "sleep", "60")
    with_server = Output(server.socket, server.config, "none")
    assert with_server.closed
    assert with_server.read(0.1) == []


def test_decoding_leaves_everything_but_octal_escapes() -> None:
    assert decode_output(rb"a\033[0m\134\012" + b"\xff\xc3\xbc") == b"a\x1b[0m\\\n\xff\xc3\xbc"


def test_the_server_survives_connections_that_come_and_go_while_sessions_do(server: Server) -> None:
    server.start("keeper", "sleep", "60")
    [keeper] = panes.list_panes(server.socket)

    def come_and_go() -> None:
        for _ in range(60):
            with Control(server.socket, server.config) as connection:
                assert connection.command("display-message", "-p", "hello") == ["hello"]

    def make_and_end(name: str) -> None:
        for _ in range(40):
            server.start(name, "sleep", "60")
            server.tmux.kill_session(name)

    with ThreadPoolExecutor(max_workers=3) as pool:
        runs = [pool.submit(come_and_go), pool.submit(make_and_end, "a"), pool.submit(make_and_end, "b")]
    for run in runs:
        run.result()
    assert panes.list_panes(server.socket)[0].server_pid == keeper.server_pid


def test_clients_that_a_killed_process_left_behind_are_ended_by_the_next_to_connect(server: Server) -> None:
    server.start("one", "sleep", "60")
    argv = [*command.prefix(server.socket, server.config), "-C", "attach-session"]
    # Somebody else has started it, as it is when the process that did has died and the client goes on.
    left = proc.start_pipes(argv, env=command.environment() | orphans.mark() | {"SWARM_CLIENT_OF": "1"})
    wait_until(lambda: len(clients(server)) == 1, what="it is attached")
    with Control(server.socket, server.config) as first, Control(server.socket, server.config) as second:
        first.list_panes()
        assert left.wait(timeout=10) == -signal.SIGKILL
        second.list_panes()
        wait_until(lambda: len(clients(server)) == 2, what="those whose process lives stay")
    for pipe in (left.stdin, left.stdout, left.stderr):
        if pipe is not None:
            pipe.close()

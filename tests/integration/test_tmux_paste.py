"""What arrives at a program when text is pasted into its pane: every byte, one paste, never an escape."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from swarm_core.errors import Conflict, InvalidInput, NotFound
from swarm_core.tmux import command
from swarm_core.tmux.sessions import MAX_PASTE_BYTES, clean
from tests.integration.tmux_fixture import Server, tmux_server
from tests.support import wait_until

BEGIN, END = b"\x1b[200~", b"\x1b[201~"


@pytest.fixture
def server(short_tmp: Path) -> Iterator[Server]:
    with tmux_server(short_tmp) as running:
        yield running


def received(sink: Path, length: int) -> bytes:
    wait_until(lambda: sink.exists() and sink.stat().st_size >= length, what=f"{length} bytes arrive")
    return sink.read_bytes()


def test_every_size_from_one_byte_to_the_limit_arrives_exactly_as_one_paste(server: Server) -> None:
    sink = server.receiver("in")
    letters = random.Random(7)
    expected = b""
    for size in (1, 2, 100, 1023, 4096, 16_384, 65_537, MAX_PASTE_BYTES):
        text = "".join(letters.choices("abc \t\n;#%'\"\\$`{}-", k=size))
        server.tmux.paste("in", text, submit=False)
        expected += BEGIN + text.encode() + END
        assert received(sink, len(expected)) == expected, size


@pytest.mark.parametrize(
    "text",
    [
        "-",
        "-t %0",
        "ünïcödé 日本語 👩‍👩‍👧 \u202e",
        "a;",
        ";",
        "#{pane_id}",
        "\n\n",
        "tab\tin",
        "!ls\n/quit",
        "trailing\n",
    ],
)
def test_odd_text_arrives_exactly(server: Server, text: str) -> None:
    sink = server.receiver("in")
    server.tmux.paste("in", text, submit=True, settle=0.0)
    expected = BEGIN + text.encode() + END + b"\r"
    assert received(sink, len(expected)) == expected


def test_no_escape_gets_through(server: Server) -> None:
    sink = server.receiver("in")
    hostile = "a\x1b[201~\rrm -rf /\r\x9b201~\x00\x07\x08\x7f\x03\x04b\r\nc"
    server.tmux.paste("in", hostile, submit=True, settle=0.0)
    expected = BEGIN + b"a[201~\nrm -rf /\n201~b\nc" + END + b"\r"
    assert received(sink, len(expected)) == expected


def test_cleaning_keeps_tab_newline_and_all_other_text() -> None:
    everything = "".join(map(chr, range(0x2000)))
    kept = clean(everything)
    assert [ch for ch in kept if ord(ch) < 0x20] == ["\t", "\n", "\n"]  # a carriage return became a newline
    assert set(everything) - set(kept) == {chr(n) for n in (*range(9), *range(11, 32), *range(127, 160))}


def test_a_program_that_did_not_ask_for_paste_marks_gets_none(server: Server) -> None:
    sink = server.receiver("in", bracketed=False)
    server.tmux.paste("in", "one\ntwo", submit=True, settle=0.0)
    assert received(sink, 8) == b"one\ntwo\r"


@pytest.mark.parametrize("mode", ["copy-mode", "choose-tree", "clock-mode"])
def test_text_and_enter_arrive_although_a_person_scrolls_or_chooses(server: Server, mode: str) -> None:
    sink = server.receiver("in")
    command.run(server.socket, [mode, "-t", "=in:"])
    server.tmux.paste("in", "hello", submit=True, settle=0.0)
    expected = BEGIN + b"hello" + END + b"\r"
    assert received(sink, len(expected)) == expected


def test_text_goes_to_our_pane_although_a_person_split_the_window(server: Server) -> None:
    sink = server.receiver("in")
    command.run(server.socket, ["split-window", "-t", "=in:", "cat"])
    server.tmux.paste("in", "hello", submit=False)
    assert received(sink, 17) == BEGIN + b"hello" + END


def test_a_dead_pane_is_refused_and_the_server_lives(server: Server) -> None:
    """tmux 3.3 crashes when it pastes into a dead pane, so this must hold at the very moment of death too."""
    server.start("alive", "sleep", "60")
    server.start("dead", "sh", "-c", "exit 0")
    server.until_dead("dead")
    for act in (
        lambda: server.tmux.paste("dead", "hello", submit=True),
        lambda: server.tmux.send_keys("dead", "Enter"),
    ):
        with pytest.raises(Conflict):
            act()
    stale = server.pane("dead")
    with pytest.raises(Conflict):
        server.tmux._insert("dead", stale.pane_id, b"as if it had died after the look")
    assert command.run(server.socket, ["list-buffers"]).text == ""
    assert not server.pane("alive").dead


def test_a_paste_that_names_a_pane_of_another_instance_is_refused(server: Server) -> None:
    """The pane of an ended session may have been seen a moment ago, and a new server counts from the start."""
    mine, other = server.receiver("in"), server.receiver("other")
    with pytest.raises(Conflict):
        server.tmux.paste("in", "hello", submit=True, settle=0.0, pane_id=server.pane("other").pane_id)
    assert command.run(server.socket, ["list-buffers"]).text == ""
    server.tmux.paste("in", "hello", submit=True, settle=0.0, pane_id=server.pane("in").pane_id)
    expected = BEGIN + b"hello" + END + b"\r"
    assert received(mine, len(expected)) == expected
    assert not other.exists() or other.read_bytes() == b""


def test_pasting_while_programs_die_never_ends_the_server(server: Server) -> None:
    server.start("alive", "sleep", "60")
    for number in range(15):
        pane = server.start(f"dying-{number}", "sleep", "60")
        os.kill(pane.pid, 9)
        try:
            server.tmux.paste(f"dying-{number}", "x" * 5000, submit=True, settle=0.0)
        except Conflict:
            continue
    assert not server.pane("alive").dead


def test_nothing_empty_or_too_large_is_pasted_and_nothing_into_nowhere(server: Server) -> None:
    server.start("in", "cat", "-")
    for text in ("", "\x1b", "x" * (MAX_PASTE_BYTES + 1)):
        with pytest.raises(InvalidInput):
            server.tmux.paste("in", text, submit=False)
    with pytest.raises(NotFound):
        server.tmux.paste("nowhere", "x", submit=False)

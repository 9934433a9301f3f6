from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm_core.agents.base import Reading
from swarm_core.agents.script.steps import GRAMMAR, BadStep, parse_line
from swarm_core.agents.script.terminal import Draft, Keys, sanitised
from swarm_core.agents.scripted import Scripted

AGENT = Scripted()


@pytest.mark.parametrize(
    ("line", "name", "path", "text", "value"),
    [
        ("write a/b.txt one\\ntwo\\tthree", "write", "a/b.txt", "one\ntwo\tthree\n", None),
        ("append a.txt open\\c", "append", "a.txt", "open", None),
        ("write a.txt a\\\\nb", "write", "a.txt", "a\\nb\n", None),
        ("write empty \\c", "write", "empty", "", None),
        ("  commit Fix the thing  ", "commit", "", "Fix the thing", None),
        ("say hi", "say", "", "hi", None),
        ("wait 0.5", "wait", "", "", 0.5),
        ("call echo", "call", "", "echo", {}),
        ('call echo {"a": [1]}', "call", "", "echo", {"a": [1]}),
        ("exit 3", "exit", "", "", 3),
        ("exit", "exit", "", "", 0),
        ("hang", "hang", "", "", None),
    ],
)
def test_a_line_is_the_step_it_says(line, name, path, text, value):
    step = parse_line(line)
    assert step is not None
    assert (step.name, step.path, step.text, step.value) == (name, path, text, value)


@pytest.mark.parametrize(
    "line", ["", "Fix the bug", "Write a test", "writes x y", "# write a b", "- say hi", "exit: no"]
)
def test_a_line_that_is_no_step_is_task_text(line):
    assert parse_line(line) is None


@pytest.mark.parametrize(
    "line",
    [
        "write",
        "write /etc/passwd x",
        "write ../x y",
        "append a/../../b c",
        "commit",
        "say",
        "ask",
        "dialog",
        "wait",
        "wait soon",
        "wait -1",
        "wait nan",
        "wait inf",
        "busy 1e9",
        "call",
        "call echo [1]",
        "call echo {",
        "exit 256",
        "exit -1",
        "exit now",
        "hang on",
        "crash now",
        "await-message please",
    ],
)
def test_a_step_with_bad_syntax_is_refused(line):
    with pytest.raises(BadStep):
        parse_line(line)


def test_the_grammar_is_exactly_the_documented_steps():
    assert set(GRAMMAR) == {
        "write",
        "append",
        "commit",
        "call",
        "say",
        "wait",
        "await-message",
        "ask",
        "dialog",
        "busy",
        "hang",
        "crash",
        "exit",
    }


def messages_of(chunks: list[bytes]) -> list[bytes]:
    keys, draft, found = Keys(), Draft(), list[bytes]()
    for chunk in chunks:
        for kind, data in keys.feed(chunk):
            found += draft.take(kind, data)
    return found


def pasted(data: bytes) -> bytes:
    return b"\x1b[200~" + data + b"\x1b[201~"


@given(st.binary(max_size=60).filter(lambda b: b and b"\x1b[201~" not in b), st.lists(st.integers(0, 80)))
def test_a_pasted_message_is_exact_however_the_reads_split_it(data, cuts):
    stream = pasted(data) + b"\r"
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    chunks = [stream[a:b] for a, b in itertools.pairwise(edges)]
    assert messages_of(chunks) == [data]


def test_typed_text_is_a_message_at_enter_and_keys_are_not_part_of_it():
    assert messages_of([b"he", b"llo\x1b[A\x1bOP\x1b[1;5C!", b"\r\r\n"]) == [b"hello!"]


def test_backspace_and_cancel_edit_the_draft():
    assert messages_of([b"helo\x7flo\xc3\xa9\x7f\r", b"never\x03mind\r"]) == [b"hello", b"mind"]


def test_newlines_inside_a_paste_do_not_send_it():
    assert messages_of([pasted(b"a\nb\r\nc\x03\x7f")]) == []
    assert messages_of([pasted(b"a\nb\r\nc\x03\x7f"), b"\r"]) == [b"a\nb\r\nc\x03\x7f"]


def test_two_pastes_with_headers_before_one_enter_are_two_messages():
    one, two = b"[swarm msg 1 x]\nsay a", b"[swarm msg 2 x]\nsay b"
    assert messages_of([pasted(one) + pasted(two) + b"\r"]) == [one, two]


def test_a_paste_without_a_header_joins_what_was_typed():
    assert messages_of([b"see: " + pasted(b"text") + b"!\r"]) == [b"see: text!"]


@given(st.text())
def test_what_is_shown_has_no_control_characters(text):
    shown = sanitised(text)
    assert not any((ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160 for c in shown)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"activity":"blocked","detail":"question","at":"2026-01-01T00:00:00.000+00:00"}',
         Reading("blocked", "question", "2026-01-01T00:00:00.000+00:00")),
        ('{"activity":"sleeping"}', None),
        ("{", None),
    ],
)  # fmt: skip
def test_the_status_file_is_read(text, expected):
    assert AGENT.read_status(text) == expected


@pytest.mark.parametrize(
    ("screen", "expected"),
    [
        ("task\nhello\n❯ ", Reading("idle")),
        ("❯ [pasted 3 bytes]\nreceived: go\nwrote x", Reading("busy")),
        ("✽ Working… (3s · esc to interrupt)", Reading("busy")),
        ("rm x\nDo you want to proceed?\n❯ 1. Yes\n  2. No\n\nEsc to cancel\n", Reading("blocked", "permission")),
        ("Do you want to proceed?\n❯ 1. Yes\n  2. No\n\nEsc to cancel\nanswered: yes\n", Reading("busy")),
        ("? which\nanswer ❯ ", Reading("blocked", "question")),
        ("just text", None),
    ],
)
def test_the_screen_is_read_from_its_last_telling_line(screen, expected):
    assert AGENT.read_screen(screen) == expected


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ("prompt_submit", Reading("busy")),
        ("stop", Reading("idle")),
        ("session_start", Reading("starting")),
        ("session_end", Reading("exited")),
        ("notification", Reading("blocked")),
        ("other", None),
    ],
)
def test_hooks_are_read(event, expected):
    assert AGENT.read_hook(event, {}) == expected

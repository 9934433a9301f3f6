"""Text with escapes to runs: nothing but text and its look survives, and patches add up to the whole."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarm_ui.web import ansi
from swarm_ui.web.ansi import CELLS_MAX, Reader, diff, read_line, read_lines
from swarm_ui.web.frames import frame
from swarm_ui.web.pictures import Picture, term_frames


def runs(text: str) -> list[list[object]]:
    return read_line(text).runs


@pytest.mark.parametrize(
    ("sequence", "style"),
    [
        ("\x1b[1m", {"a": "b"}),
        ("\x1b[2;3m", {"a": "di"}),
        ("\x1b[4m", {"a": "u"}),
        ("\x1b[4:3m", {"a": "u"}),
        ("\x1b[21m", {"a": "u"}),
        ("\x1b[5;7;9m", {"a": "rsk"}),
        ("\x1b[31m", {"f": 1}),
        ("\x1b[97;100m", {"f": 15, "b": 8}),
        ("\x1b[38;5;208m", {"f": 208}),
        ("\x1b[48;2;1;22;255m", {"b": "#0116ff"}),
        ("\x1b[38:2::1:2:3m", {"f": "#010203"}),
        ("\x1b[38:2:1:2:3m", {"f": "#010203"}),
        ("\x1b[38:5:9m", {"f": 9}),
        ("\x1b[58;5;1;32m", {"f": 2}),
        ("\x1b[38;5;300;31m", {"f": 1}),
        ("\x1b[38m", {}),
        ("\x1b[38;9;1m", {"a": "b"}),
        ("\x1b[1;4;22;24m", {}),
        ("\x1b[31;1m\x1b[m", {}),
        ("\x1b[31;42m\x1b[39m", {"b": 2}),
        ("\x1b[31;42m\x1b[49m", {"f": 1}),
        ("\x1b[999;99999999999999999999m", {}),
        ("\x1b[?1m", {}),
        ("\x1b[>4;1m", {}),
    ],
)
def test_every_attribute_and_colour(sequence: str, style: dict[str, object]) -> None:
    assert runs(f"{sequence}x") == [["x", style] if style else ["x"]]


@pytest.mark.parametrize(
    "sequence",
    [
        "\x1b]0;title\x07",
        "\x1b]8;;http://host\x1b\\",
        "\x1b[2J",
        "\x1b[6n",
        "\x1b[200~",
        "\x1bP1$q\x1b\\",
        "\x1b_apc\x1b\\",
        "\x1b^pm\x1b\\",
        "\x1bc",
        "\x1b(0\x1b(B",
        "\x07\x08\x7f\x85\x9b",
        "\u202e\u2066",
        "\ud800",
    ],
)
def test_what_is_no_colour_is_dropped(sequence: str) -> None:
    assert runs(f"a{sequence}b") == [["ab"]]


def test_an_unfinished_string_swallows_its_rest_and_no_more() -> None:
    assert [line.runs for line in read_lines(["a\x1b]0;never ends", "next"])] == [[["a"]], [["next"]]]


def test_colours_go_on_over_line_ends() -> None:
    first, second, third = read_lines(["\x1b[31mone", "two\x1b[0m", "three"])
    assert (first.runs, second.runs, third.runs) == ([["one", {"f": 1}]], [["two", {"f": 1}]], [["three"]])


def test_lines_drawn_with_letters_are_lines() -> None:
    assert [line.text for line in read_lines(["\x0elqk", "x\x0fx"])] == ["┌─┐", "│x"]


def test_hidden_text_is_not_told() -> None:
    assert runs("a\x1b[8m漢x\x1b[28mb") == [["a   b"]]


def test_wide_and_combining_characters_tell_their_cells() -> None:
    assert runs("a漢字b") == [["a"], ["漢字", {}, 4], ["b"]]
    assert runs("xe\u0301y") == [["x"], ["e\u0301", {}, 1], ["y"]]
    assert runs("\x1b[1m😀\x1b[0m.") == [["😀", {"a": "b"}, 2], ["."]]


def test_invisible_spaces_at_the_end_are_dropped_and_coloured_ones_are_not() -> None:
    assert runs("a  \x1b[31m  ") == [["a"]]
    assert runs("a\x1b[44m  ") == [["a"], ["  ", {"b": 4}]]


def test_a_line_of_a_megabyte_is_cut() -> None:
    assert runs("x" * 1_000_000) == [["x" * CELLS_MAX]]
    [[text, _, cells]] = runs("漢" * 1_000_000)
    assert (len(str(text)), cells) == (CELLS_MAX // 2, CELLS_MAX)
    assert len(runs("\x1b[31mx\x1b[32my" * 100_000)) <= CELLS_MAX


pieces = st.one_of(
    st.text(max_size=8),
    st.sampled_from(["\x1b[31m", "\x1b[0m", "\x1b[1;48;5;7m", "\x1b]0;", "\x07", "\x0e", "\x0f", "漢", "e\u0301"]),
    st.builds(lambda body: f"\x1b[{body}m", st.from_regex(r"[0-9;:]{0,12}", fullmatch=True)),
    st.binary(max_size=6).map(lambda data: data.decode("latin-1")),
)
texts = st.lists(pieces, max_size=8).map("".join).map(lambda text: re.sub("[\n]", "", text))
screens = st.lists(texts, max_size=12)


@settings(max_examples=50, deadline=None)
@given(screens)
def test_whatever_is_printed_becomes_printable_runs(lines: list[str]) -> None:
    for line in read_lines(lines):
        for run in line.runs:
            assert run[0]
            assert not re.search("[\x00-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e]", run[0])
            assert len(run) == 1 or set(run[1]) <= {"f", "b", "a"}
        assert json.loads(line.json) == line.runs


@settings(max_examples=30, deadline=None)
@given(st.lists(screens, max_size=3))
def test_a_reader_that_remembers_reads_the_same(many: list[list[str]]) -> None:
    reader = Reader()
    for lines in many:
        assert [line.runs for line in reader.lines(lines)] == [line.runs for line in read_lines(lines)]


def apply(lines: list[object], drop: int, length: int, changes: list[tuple[int, object]]) -> list[object]:
    lines = lines[drop:][:length]
    lines += [[] for _ in range(length - len(lines))]
    for at, line in changes:
        lines[at] = line
    return lines


few = st.lists(st.sampled_from(["", "a", "b", "\x1b[31mc", "d\x1b[0m", "e"]), max_size=10)


@settings(max_examples=100, deadline=None)
@given(st.lists(few, max_size=6))
def test_patches_add_up_to_the_whole_screen(many: list[list[str]]) -> None:
    reader = Reader()
    page: list[object] = []
    seen: Picture | None = None
    for n, texts_now in enumerate(many):
        picture = Picture(reader.lines(texts_now), series=str(n // 3))
        told = json.loads(term_frames("i", seen, picture, None).decode().split("data: ")[1])
        page = apply([] if told.get("full") else page, told["drop"], told["len"], told["set"])
        assert page == [line.runs for line in read_lines(texts_now)]
        seen = picture


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(), min_size=20, max_size=40, unique=True), st.integers(1, 8))
def test_scrolling_costs_only_the_new_lines(numbers: list[int], by: int) -> None:
    lines = read_lines([str(n) for n in numbers])
    drop, changed = diff(lines[:-by], lines[by:])
    assert (drop, len(changed)) == (by, by)


def test_a_screen_that_stays_costs_nothing() -> None:
    assert diff(read_lines(["a", "", "b"]), read_lines(["a", "", "b"])) == (0, [])


def test_a_frame_is_one_block_whatever_is_in_it() -> None:
    told = frame("x", {"text": "a\n\nb\r\u2028"}, 7)
    assert told.count(b"\n") == 4
    assert told.startswith(b"id: 7\nevent: x\ndata: ")


def test_the_pen_is_the_only_thing_a_line_leaves_behind() -> None:
    assert read_line("x\x1b[0m").after == ansi.PLAIN


def test_the_same_text_after_another_colour_is_another_line() -> None:
    reader = Reader()
    assert [line.runs for line in reader.lines(["x"])] == [[["x"]]]
    assert [line.runs for line in reader.lines(["\x1b[31m", "x"])] == [[], [["x", {"f": 1}]]]

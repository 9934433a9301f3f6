"""Text on its way to a terminal."""

from __future__ import annotations

import pytest

from swarm_ui.cli import output


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("naïve 漢字 🎉", "naïve 漢字 🎉"),
        ("\x1b[31mred\x1b[0m", "[31mred[0m"),
        ("\x1b]0;title\x07", "]0;title"),
        ("a\nb\tc\r", "a b c"),
        ("c1 \x9b31m", "c1 31m"),
        ("bidi \u202eevil\u2028x", "bidi evilx"),
        ("bad byte \udcff", "bad byte \ufffd"),
        ("no break\u00a0space", "no break\u00a0space"),
    ],
)
def test_nothing_that_steers_a_terminal_passes(text: str, shown: str) -> None:
    assert output.plain(text) == shown


def test_line_breaks_pass_only_where_they_are_wanted() -> None:
    assert output.plain("a\nb\x1b", lines=True) == "a\nb"


@pytest.mark.parametrize(
    ("text", "room", "shown"),
    [("abc", 3, "abc"), ("abcd", 3, "ab…"), ("漢字", 4, "漢字"), ("漢字漢", 4, "漢…"), ("abc", 0, "")],
)
def test_text_is_cut_to_the_cells_it_has(text: str, room: int, shown: str) -> None:
    assert output.cut(text, room) == shown


def test_columns_are_aligned_by_cells(capsys: pytest.CaptureFixture[str]) -> None:
    output.columns(("ID", "NAME", "X"), [("a", "漢字", "1"), ("bbb", "é", "")], [("", "", "")] * 2)
    assert capsys.readouterr().out.splitlines() == ["ID   NAME  X", "a    漢字  1", "bbb  é"]

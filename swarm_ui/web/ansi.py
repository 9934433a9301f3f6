"""Text with colours, as tmux tells of a screen, as runs that a page can show. Pure.

Only colours and attributes survive: every other sequence and control character is dropped, so that nothing an
agent prints can be more than text.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

CELLS_MAX = 2000
_CHARACTERS_MAX = 100_000  # of one line, escapes included
_TRIED = 8

Run = list[Any]
Colour = int | str | None

# An escape sequence, or a control character, in the order in which a terminal would see them.
_SEQUENCE = re.compile(
    "\x1b\\[([0-9:;<=>?]*)[ -/]*([@-~])"  # CSI
    "|\x1b[\\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\\\|$)"  # OSC, DCS, SOS, PM, APC with their text
    "|\x1b[ -/]*[0-~]?"
    "|[\x00-\x1f\x7f-\x9f]"
)
_ATTRIBUTES = {1: "b", 2: "d", 3: "i", 4: "u", 5: "k", 6: "k", 7: "r", 8: "h", 9: "s", 21: "u"}
_ENDS = {22: "bd", 23: "i", 24: "u", 25: "k", 27: "r", 28: "h", 29: "s"}
_ORDER = "bdiurskh"
_LINES = str.maketrans(
    "`afgijklmnopqrstuvwxyz{|}~",
    "◆▒°±␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·",
)
# Direction marks would show text in another order than the terminal does.
_DIRECTIONS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_PLAIN = re.compile(r"[\x20-\x7e\u00a0-\u02ff\u2500-\u259f]*")


@dataclass(frozen=True, slots=True)
class Pen:
    """How the next character looks; `lines` draws lines with letters, as terminals did."""

    fg: Colour = None
    bg: Colour = None
    attributes: str = ""
    lines: bool = False

    def style(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.fg is not None:
            found["f"] = self.fg
        if self.bg is not None:
            found["b"] = self.bg
        shown = self.attributes.replace("h", "")
        if shown:
            found["a"] = shown
        return found


PLAIN = Pen()


@dataclass(frozen=True)
class Line:
    """One line; the same object as long as the line stays the same."""

    runs: list[Run]
    after: Pen

    @cached_property
    def json(self) -> str:
        return json.dumps(self.runs, ensure_ascii=False, separators=(",", ":"))

    @property
    def text(self) -> str:
        return "".join(run[0] for run in self.runs)


EMPTY = Line([], PLAIN)


class Reader:
    """Reads screens one after another; a line that was on the last one costs a look into a table."""

    def __init__(self) -> None:
        self._known: dict[tuple[Pen, str], Line] = {}

    def lines(self, texts: Iterable[str]) -> list[Line]:
        pen = PLAIN
        found = []
        known, self._known = self._known, {}
        for text in texts:
            key = (pen, text)
            line = self._known.get(key) or known.get(key) or read_line(text, pen)
            self._known[key] = line
            found.append(line)
            pen = line.after
        return found


def read_lines(texts: Iterable[str]) -> list[Line]:
    return Reader().lines(texts)


def read_line(text: str, pen: Pen = PLAIN) -> Line:
    """The line, begun with the pen that the line before it left."""
    pieces: list[tuple[str, Pen]] = []
    at, end = 0, min(len(text), _CHARACTERS_MAX)
    for found in _SEQUENCE.finditer(text, 0, end):
        if found.start() > at:
            pieces.append((text[at : found.start()], pen))
        at = found.end()
        if found[2] == "m" and not found[1].startswith(("<", "=", ">", "?")):
            pen = _after(pen, found[1])
        elif found[0] in ("\x0e", "\x0f"):
            pen = Pen(pen.fg, pen.bg, pen.attributes, lines=found[0] == "\x0e")
    if at < end:
        pieces.append((text[at:end], pen))
    return Line(_runs(pieces), pen)


def diff(old: Sequence[Line], new: Sequence[Line]) -> tuple[int, list[tuple[int, Line]]]:
    """(drop, set): take `drop` lines off the front of the old ones, set these, and they are the new ones.

    A line that there was none for counts as empty.
    """
    drop, changed = 0, _changed(old, new, 0)
    anchor = next((n for n, line in enumerate(new) if line.runs), None)
    if not changed or anchor is None:
        return drop, changed
    seen = [n - anchor for n in range(anchor + 1, len(old)) if _same(old[n], new[anchor])]
    for candidate in seen[:_TRIED]:
        found = _changed(old, new, candidate)
        if len(found) < len(changed):
            drop, changed = candidate, found
    return drop, changed


def _changed(old: Sequence[Line], new: Sequence[Line], drop: int) -> list[tuple[int, Line]]:
    before = [*old[drop : drop + len(new)], *[EMPTY] * (len(new) - len(old) + drop)]
    return [(n, line) for n, line in enumerate(new) if not _same(before[n], line)]


def _same(one: Line, other: Line) -> bool:
    return one is other or one.runs == other.runs


def _after(pen: Pen, parameters: str) -> Pen:
    """The pen after `ESC [ parameters m`; what is not known changes nothing."""
    fg, bg, attributes = pen.fg, pen.bg, set(pen.attributes)
    words = [word.split(":") for word in parameters.split(";")][:64]
    while words:
        first, *rest = words.pop(0)
        code = _number(first)
        if code == 0:
            fg, bg, attributes = None, None, set()
        elif code == 4 and rest:
            attributes = attributes - {"u"} if _number(rest[0]) == 0 else attributes | {"u"}
        elif code in _ATTRIBUTES:
            attributes.add(_ATTRIBUTES[code])
        elif code in _ENDS:
            attributes -= set(_ENDS[code])
        elif code in (38, 48, 58):
            colour = _colour(rest) if rest else _colour_of(words)
            if code == 38 and colour is not None:
                fg = colour
            elif code == 48 and colour is not None:
                bg = colour
        elif 30 <= code <= 37:
            fg = code - 30
        elif 40 <= code <= 47:
            bg = code - 40
        elif code == 39:
            fg = None
        elif code == 49:
            bg = None
        elif 90 <= code <= 97:
            fg = code - 82
        elif 100 <= code <= 107:
            bg = code - 92
    return Pen(fg, bg, "".join(a for a in _ORDER if a in attributes), pen.lines)


def _colour_of(words: list[list[str]]) -> Colour:
    """A colour whose numbers are words of their own; they are taken off the list."""
    kind = _number(words[0][0]) if words else -1
    count = {5: 2, 2: 4}.get(kind, 1)
    taken = [word[0] for word in words[:count]]
    del words[:count]
    return _colour(taken)


def _colour(numbers: Sequence[str]) -> Colour:
    """From `5 n`, `2 r g b` or `2 space r g b`; None when it is not one."""
    found = [_number(n) for n in numbers]
    if len(found) >= 2 and found[0] == 5 and found[1] <= 255:
        return found[1]
    if len(found) >= 4 and found[0] == 2:
        channels = found[2:5] if len(found) >= 5 else found[1:4]
        if all(0 <= c <= 255 for c in channels):
            return "#{:02x}{:02x}{:02x}".format(*channels)
    return None


def _number(text: str) -> int:
    """An empty parameter is 0; -1 is none that means anything."""
    if not text:
        return 0
    return int(text) if len(text) < 6 and text.isdigit() else -1


def _runs(pieces: Iterable[tuple[str, Pen]]) -> list[Run]:
    runs: list[Run] = []
    left = CELLS_MAX
    for text, pen in pieces:
        style = pen.style()
        for part, cells in _parts(_shown(text, pen)):
            fits, taken = (part[:left], None) if cells is None else _fitting(part, cells, left)
            if fits:
                _add(runs, fits, style, taken)
            left -= len(fits) if taken is None else taken
            if len(fits) < len(part):
                return runs
    _strip(runs)
    return runs


def _fitting(text: str, cells: int, left: int) -> tuple[str, int]:
    if cells <= left and len(text) <= 2 * CELLS_MAX:
        return text, cells
    taken = 0
    for n, one in enumerate(text):
        if taken + _width(one) > left or n == 2 * CELLS_MAX:
            return text[:n], taken
        taken += _width(one)
    return text, taken


def _add(runs: list[Run], text: str, style: dict[str, Any], cells: int | None) -> None:
    if cells is not None:
        runs.append([text, style, cells])
    elif runs and len(runs[-1]) < 3 and (runs[-1][1] if len(runs[-1]) == 2 else {}) == style:
        runs[-1][0] += text
    else:
        runs.append([text, style] if style else [text])


def _strip(runs: list[Run]) -> None:
    """Take spaces off the end that nobody can see."""
    while runs and (len(runs[-1]) == 1 or (len(runs[-1]) == 2 and not _fills(runs[-1][1]))):
        runs[-1][0] = runs[-1][0].rstrip(" ")
        if runs[-1][0]:
            return
        runs.pop()


def _fills(style: dict[str, Any]) -> bool:
    return "b" in style or any(a in "urs" for a in style.get("a", ""))


def _shown(text: str, pen: Pen) -> str:
    text = _DIRECTIONS.sub("", text)
    if pen.lines:
        text = text.translate(_LINES)
    return " " * sum(map(_width, text)) if "h" in pen.attributes else text


def _parts(text: str) -> Iterable[tuple[str, int | None]]:
    """The text in parts, each with its cells, or None where every character is one cell and one UTF-16 unit."""
    if _PLAIN.fullmatch(text):
        return [(text, None)]
    parts: list[tuple[str, int | None]] = []
    plain, odd, cells = "", "", 0
    for one in text:
        width = _width(one)
        if width == 1 and one <= "\uffff":
            if odd:
                parts.append((odd, cells))
                odd, cells = "", 0
            plain += one
            continue
        if width == 0 and plain:  # it belongs to the character before it
            odd, cells, plain = plain[-1], 1, plain[:-1]
        if plain:
            parts.append((plain, None))
            plain = ""
        odd += one
        cells += width
    return parts + ([(plain, None)] if plain else []) + ([(odd, cells)] if odd else [])


def _width(one: str) -> int:
    if one < "\u0300":
        return 1
    if unicodedata.category(one) in ("Mn", "Me", "Cf") or "\u1160" <= one <= "\u11ff":
        return 0
    return 2 if unicodedata.east_asian_width(one) in "WF" else 1

"""What reaches the terminal: text without control characters, JSON, columns, progress, errors."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

import typer

from swarm_core.errors import SwarmError

PIPE_CLOSED = 141  # as a shell reports a program that SIGPIPE ended
_QUIET = 1.0
_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}
_REMOVED = frozenset({"Cc", "Cf", "Zl", "Zp"})


def plain(text: str, *, lines: bool = False) -> str:
    """Text of agents and users without anything that could steer a terminal; keeps line breaks if `lines`."""
    if text.isprintable():
        return text
    return "".join(_plain_character(c, lines=lines) for c in text)


def _plain_character(character: str, *, lines: bool) -> str:
    if character == "\n" and lines:
        return character
    if character in "\n\t":
        return " "
    kind = unicodedata.category(character)
    if kind == "Cs":
        return "\ufffd"
    return "" if kind in _REMOVED else character


def write(text: str = "") -> None:
    """One text to stdout; ends the command quietly when nobody reads it any more."""
    try:
        sys.stdout.write(text + "\n")
    except BrokenPipeError:
        abandon(sys.stdout)
        raise typer.Exit(PIPE_CLOSED) from None


def flush() -> None:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        abandon(sys.stdout)
        raise typer.Exit(PIPE_CLOSED) from None


def abandon(stream: TextIO) -> None:
    """Let what is still buffered go nowhere, or Python complains about the closed pipe when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def write_json(value: Any, *, indent: int | None = 2) -> None:
    write(json.dumps(value, indent=indent))


def note(text: str) -> None:
    """A remark beside the result, on stderr."""
    print(style(plain(text), "dim", stream=sys.stderr), file=sys.stderr)


def style(text: str, *names: str, stream: TextIO | None = None) -> str:
    """The text in a style on a terminal, as it is elsewhere and under NO_COLOR."""
    if not text or not names or not coloured(stream or sys.stdout):
        return text
    return f"\x1b[{';'.join(_STYLES[n] for n in names)}m{text}\x1b[0m"


def coloured(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def columns(head: Sequence[str], rows: Sequence[Sequence[str]], styles: Sequence[Sequence[str]]) -> None:
    """Aligned columns; `styles` names one style per cell of each row, or ''. Cut to the width of a terminal."""
    cells = [[plain(c) for c in one] for one in rows]
    sizes = [max(width(one[i]) for one in [head, *cells]) for i in range(len(head))]
    limit = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for values, names in zip([head, *cells], [["dim"] * len(head), *styles], strict=True):
        write(_line(values, names, sizes, limit))


def _line(values: Sequence[str], names: Sequence[str], sizes: list[int], limit: int | None) -> str:
    parts, used = [], 0
    for i, (value, name) in enumerate(zip(values, names, strict=True)):
        shown = value if limit is None else cut(value, limit - used)
        last = i == len(values) - 1
        parts.append(style(shown, *([name] if name else [])))
        if not last:
            pad = sizes[i] - width(shown) + 2
            parts.append(" " * pad)
            used += width(shown) + pad
    return "".join(parts).rstrip()


def width(text: str) -> int:
    """Terminal cells; ideographs and emoji take two."""
    if text.isascii():
        return len(text)
    return sum(_cells(c) for c in text)


def _cells(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cut(text: str, room: int) -> str:
    if width(text) <= room:
        return text
    while text and width(text) > room - 1:
        text = text[:-1]
    return f"{text}…" if room > 0 else ""


def fields(pairs: Iterable[tuple[str, str]]) -> None:
    """Names and values below one another; empty values are left out."""
    shown = [(name, plain(value)) for name, value in pairs if value]
    size = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        write(f"{style(name.ljust(size), 'dim')}  {value}")


def heading(text: str) -> None:
    write()
    write(style(text, "bold"))


def error_body(error: SwarmError) -> dict[str, Any]:
    """The one shape of a failure in JSON."""
    return {"ok": False, "error": error.as_json()}


def show_error(code: str, message: str, hint: str | None, *, about: str = "") -> None:
    before = f"{plain(about)}: " if about else ""
    label = style("error:", "red", "bold", stream=sys.stderr)
    print(f"{label} {before}{plain(message)} [{code}]", file=sys.stderr)
    if hint:
        print(f"{style('hint:', 'dim', stream=sys.stderr)} {plain(hint)}", file=sys.stderr)


class Progress:
    """What is being done, for a person who waits: one changing line on a terminal, else lines after a second."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._live = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._pending = ""

    def say(self, text: str) -> None:
        with self._lock:
            if self._live:
                self._write(f"\r\x1b[K{cut(plain(text), shutil.get_terminal_size().columns - 2)}…")
            elif time.monotonic() - self._began >= _QUIET:
                self._write(f"{plain(text)}\n")
            else:
                self._later(text)

    def close(self) -> None:
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self._pending = ""
            if self._live:
                self._write("\r\x1b[K")

    def _later(self, text: str) -> None:
        """Say it when the first second is over, unless something else is being done by then."""
        self._pending = text
        if self._timer is None:
            self._timer = threading.Timer(_QUIET - (time.monotonic() - self._began), self._overdue)
            self._timer.daemon = True
            self._timer.start()

    def _overdue(self) -> None:
        with self._lock:
            if self._pending:
                self._write(f"{plain(self._pending)}\n")
                self._pending = ""

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

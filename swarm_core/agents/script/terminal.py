"""The terminal: what is shown on it, and the messages that keys and pastes make."""

from __future__ import annotations

import os
import re
import select
import signal
import termios
import time

TYPE_CHECKING = False  # as type checkers know it, without importing typing
if TYPE_CHECKING:
    from typing import Any

PASTE_START, PASTE_END = b"\x1b[200~", b"\x1b[201~"
HEADER = b"[swarm msg "
ESCAPE_WITHIN_S = 0.1
SHOWN_CHARS = 2000


def sanitised(text: str) -> str:
    """Foreign text without control characters, except newline and tab."""
    return "".join(c for c in text if c in "\n\t" or not (c < " " or "\x7f" <= c <= "\x9f"))


def emit(text: str) -> None:
    data = text.encode(errors="replace")
    while data:
        data = data[os.write(1, data) :]


def show(text: str, *, before: str = "", after: str = "\n") -> None:
    clean = sanitised(text)
    cut = clean if len(clean) <= SHOWN_CHARS else f"{clean[:SHOWN_CHARS]}… ({len(clean)} characters)"
    emit(f"{before}{cut}{after}")


class Keys:
    """Turns the terminal's bytes into typed text, pastes and keys, however the reads split them."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._pasting = False
        self._searched = 0

    @property
    def undecided_escape(self) -> bool:
        return not self._pasting and self._pending == b"\x1b"

    def escape(self) -> tuple[str, bytes]:
        """The lone escape byte was the key."""
        self._pending.clear()
        return ("escape", b"")

    def feed(self, data: bytes) -> list[tuple[str, bytes]]:
        self._pending += data
        found: list[tuple[str, bytes]] = []
        while self._pending and (token := self._paste() if self._pasting else self._key()):
            found.append(token)
        return [token for token in found if token[0]]

    def _paste(self) -> tuple[str, bytes] | None:
        end = self._pending.find(PASTE_END, max(0, self._searched - len(PASTE_END)))
        self._searched = len(self._pending)
        if end < 0:
            return None
        pasted = bytes(self._pending[:end])
        del self._pending[: end + len(PASTE_END)]
        self._pasting, self._searched = False, 0
        return ("paste", pasted)

    def _key(self) -> tuple[str, bytes] | None:
        pending = self._pending
        if pending.startswith(PASTE_START):
            del pending[: len(PASTE_START)]
            self._pasting = True
            return ("", b"")
        if pending[0] == 0x1B:
            sequence = re.match(rb"\x1b(\[[0-?]*[ -/]*[@-~]|O.|(?![\[O]).)", pending, re.DOTALL)
            if sequence is None:
                return None
            known = sequence[1].startswith((b"[", b"O"))
            del pending[: len(sequence[0]) if known else 1]
            return ("", b"") if known else ("escape", b"")
        if pending[0] in b"\r\n\x03\x7f\x08":
            name = {0x0D: "enter", 0x0A: "enter", 0x03: "cancel"}.get(pending[0], "erase")
            del pending[:1]
            return (name, b"")
        run = re.match(rb"[^\x1b\r\n\x03\x7f\x08]+", pending)
        assert run is not None
        typed = bytes(run[0])
        del pending[: len(typed)]
        return ("typed", typed)


class Draft:
    """The input box: what was typed and pasted since the last Enter."""

    def __init__(self) -> None:
        self._parts: list[tuple[str, bytes]] = []

    def take(self, kind: str, data: bytes) -> list[bytes]:
        """The messages that this token completes."""
        if kind == "enter":
            return self._submit()
        if kind == "cancel":
            self._parts.clear()
        elif kind == "erase" and self._parts and self._parts[-1][0] == "typed":
            shorter = self._parts.pop()[1].decode(errors="surrogateescape")[:-1]
            if shorter:
                self._parts.append(("typed", shorter.encode(errors="surrogateescape")))
        elif kind == "paste" or (kind == "typed" and (not self._parts or self._parts[-1][0] == "paste")):
            self._parts.append((kind, data))
        elif kind == "typed":
            self._parts[-1] = ("typed", self._parts[-1][1] + data)
        return []

    def _submit(self) -> list[bytes]:
        """A paste that begins with a header is a message of its own, even if its forerunner's Enter got lost."""
        messages: list[bytes] = []
        for kind, data in self._parts:
            if messages and not (kind == "paste" and data.startswith(HEADER)):
                messages[-1] += data
            else:
                messages.append(data)
        self._parts.clear()
        return [message for message in messages if message]


class Terminal:
    def __init__(self) -> None:
        self._keys = Keys()
        self._saved: list[Any] | None = None
        self._open = True

    def start(self) -> None:
        if os.isatty(0):
            self._saved = termios.tcgetattr(0)
            mode = termios.tcgetattr(0)
            mode[0] &= ~(
                termios.ICRNL | termios.INLCR | termios.IGNCR | termios.ISTRIP | termios.IXON | termios.BRKINT
            )
            mode[3] &= ~(termios.ICANON | termios.ECHO | termios.ISIG | termios.IEXTEN)
            mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
            termios.tcsetattr(0, termios.TCSANOW, mode)  # NOW, not FLUSH: what was typed already is kept
            emit("\x1b[?2004h")

    def restore(self) -> None:
        if self._saved is None:
            return
        try:
            emit("\x1b[?2004l\x1b[0m")
            termios.tcsetattr(0, termios.TCSANOW, self._saved)
        except (OSError, termios.error):
            pass  # the terminal is gone

    def has_input(self) -> bool:
        return self._open and bool(select.select([0], [], [], 0)[0])

    def forget_escape(self) -> None:
        """An escape key pressed earlier must not answer what is shown next."""
        if self._keys.undecided_escape:
            self._keys.escape()

    def listen(self, timeout: float | None, *, escape_key: bool = False) -> list[tuple[str, bytes]]:
        """What arrives first within `timeout` seconds; ends the program if nothing ever can."""
        if not self._open:
            if timeout is None:
                raise SystemExit(0)
            time.sleep(timeout)
            return []
        if escape_key and self._keys.undecided_escape:
            timeout = ESCAPE_WITHIN_S
            if not select.select([0], [], [], timeout)[0]:
                return [self._keys.escape()]
        if not select.select([0], [], [], timeout)[0]:
            return []
        try:
            data = os.read(0, 65536)
        except OSError:
            data = b""
        if data:
            return self._keys.feed(data)
        self._open = False
        if self._saved is not None:
            raise SystemExit(128 + signal.SIGHUP)
        return []


def echo(tokens: list[tuple[str, bytes]]) -> None:
    for kind, data in tokens:
        if kind == "typed":
            show(data.decode(errors="replace"), after="")
        elif kind == "paste":
            emit(f"[pasted {len(data)} bytes]")
        elif kind == "enter":
            emit("\n")

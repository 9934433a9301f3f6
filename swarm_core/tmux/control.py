"""Control mode: one lasting connection to the server, for what is streamed.

The connection is not read-only: from tmux 3.7 on a read-only client, being the session's latest, makes `send-keys`
of others fail. It never has a size, so it does not resize a window.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import select
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType

from swarm_core import proc
from swarm_core.errors import ExternalFailure, InvalidInput, TimedOut
from swarm_core.tmux import command, orphans, panes
from swarm_core.tmux.panes import Pane

_ATTEMPTS = 4
_CLIENT_FLAGS = (3, 2)  # from here on flags can be given while attaching; set later, they may hang behind output
_OCTAL = re.compile(rb"\\([0-7]{3})")


def quote(word: str) -> str:
    """One argument in the command language; a line break cannot be sent."""
    if "\n" in word or "\r" in word or "\0" in word:
        raise InvalidInput("an argument in control mode cannot contain a line break")
    return "'" + word.replace("'", "'\\''") + "'"


def decode_output(data: bytes) -> bytes:
    """The bytes a program wrote, from the text of `%output`."""
    return _OCTAL.sub(lambda found: bytes([int(found[1], 8)]), data)


class Control:
    """Questions to the server over one connection, made when needed and again when it breaks.

    Questions must be safe to repeat. With no server or no session every answer is empty. Safe to share between
    threads (one question at a time); `fileno` and `drain` belong to one thread.
    """

    def __init__(self, socket: Path, config: Path, *, timeout: float = 5.0) -> None:
        self._socket = socket
        self._config = config
        self._timeout = timeout
        self._version: tuple[int, ...] = ()
        self._wire: _Wire | None = None
        self._lock = threading.Lock()

    def command(self, *words: str) -> list[str]:
        """The lines one command answers with. Raises ExternalFailure TMUX_COMMAND_FAILED when tmux refuses it."""
        answers = self._exchange([words])
        if not answers:
            return []
        ok, lines = answers[0]
        if not ok:
            said = " ".join(lines) or "no output"
            raise ExternalFailure(f"tmux {words[0]} failed: {said}", code="TMUX_COMMAND_FAILED")
        return lines

    def pipeline(self, commands: Sequence[Sequence[str]]) -> list[list[str] | None]:
        """The answers of many commands written at once; None for one that failed."""
        answers = self._exchange(commands) if commands else []
        return [lines if ok else None for ok, lines in answers] or [None] * len(commands)

    def list_panes(self) -> list[Pane]:
        return panes.from_lines(self.command("list-panes", "-a", "-F", panes.FORMAT))

    def capture_many(self, pane_ids: Iterable[str], *, escapes: bool = False) -> dict[str, str]:
        """The visible text of each pane that exists, without empty lines at its end."""
        wanted = list(pane_ids)
        flags = ["-p", "-e"] if escapes else ["-p"]
        answers = self.pipeline([["capture-pane", *flags, "-t", pane_id] for pane_id in wanted])
        return {
            pane_id: "\n".join(lines).rstrip()
            for pane_id, lines in zip(wanted, answers, strict=True)
            if lines is not None
        }

    def fileno(self) -> int | None:
        """Readable when tmux has news (sessions made, renamed, gone); None while not connected. See `drain`."""
        return None if self._wire is None else self._wire.fileno()

    def drain(self) -> list[str]:
        """The news that arrived outside of answers, for example `%sessions-changed`; never waits."""
        if self._wire is None:
            return []
        try:
            lines = self._wire.read_lines(time.monotonic())
        except _Closed:
            self.close()
            return ["%exit"]
        return [line.decode(errors="replace") for line in lines if _is_news(line)]

    def close(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()

    def __enter__(self) -> Control:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _exchange(self, commands: Sequence[Sequence[str]]) -> list[tuple[bool, list[str]]]:
        """The answers, or nothing at all when there is no server or no session."""
        timeouts = 0
        with self._lock:
            for _ in range(_ATTEMPTS):
                try:
                    if self._wire is None:
                        self._wire = self._connect()
                    if self._wire is None:
                        return []
                    return self._wire.ask(commands, self._timeout)
                except _Closed:
                    self.close()
                except TimedOut:
                    self.close()
                    timeouts += 1
                    if timeouts > 1:
                        raise
        return []

    def _connect(self) -> _Wire | None:
        if not command.is_up(self._socket):
            return None
        self._version = self._version or command.version()
        if self._version >= _CLIENT_FLAGS:
            flags = ["-f", "no-output,ignore-size"]
            return _Wire(self._socket, self._config, flags, timeout=self._timeout)
        wire = _Wire(self._socket, self._config, [], timeout=self._timeout)
        wire.ask([["refresh-client", "-F", "no-output"]], self._timeout)
        return wire


class Output:
    """What the programs of one session write, as it is written. Not thread-safe.

    A connection of its own: tmux sends output only to a client attached to that session.
    """

    def __init__(self, socket: Path, config: Path, session: str, *, timeout: float = 5.0) -> None:
        self._wire: _Wire | None = None
        flags = ["-f", "ignore-size"] if command.version() >= _CLIENT_FLAGS else []
        if command.is_up(socket):
            with contextlib.suppress(_Closed):
                self._wire = _Wire(socket, config, [*flags, "-t", f"={session}"], timeout=timeout)
        self.closed = self._wire is None

    def fileno(self) -> int | None:
        return None if self._wire is None else self._wire.fileno()

    def read(self, timeout: float) -> list[tuple[str, bytes]]:
        """(pane id, bytes) in order; empty after `timeout` s without output, and for ever once `closed`."""
        deadline = time.monotonic() + timeout
        while self._wire is not None:
            try:
                lines = self._wire.read_lines(deadline)
            except _Closed:
                self.close()
                break
            found = [pair for pair in map(_parse_output, lines) if pair is not None]
            if found or time.monotonic() >= deadline:
                return found
        return []

    def skip(self) -> bool:
        """Whether anything has arrived since, which is forgotten; never waits. Once `closed`, call `close` too."""
        if self._wire is None:
            return False
        try:
            return self._wire.skip()
        except _Closed:
            self.closed = True
            return False

    def close(self) -> None:
        self.closed = True
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()


class _Closed(Exception):
    """The connection ended: its session or the server is gone."""


class _Wire:
    """The process `tmux -C attach` and its two pipes."""

    def __init__(self, socket: Path, config: Path, flags: Sequence[str], *, timeout: float) -> None:
        self._socket = socket
        with command.gate(socket, connecting=True):
            orphans.end(socket)
            self._open([*command.prefix(socket, config), "-C", "attach-session", *flags], timeout)

    def _open(self, argv: Sequence[str], timeout: float) -> None:
        self._process = proc.start_pipes(argv, env=command.environment() | orphans.mark())
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in = self._process.stdin.fileno()
        self._out = self._process.stdout.fileno()
        os.set_blocking(self._in, False)
        os.set_blocking(self._out, False)
        self._rest = b""
        self._early: list[bytes] = []
        try:
            self._await_attached(timeout)
        except (_Closed, TimedOut):
            self._end()
            raise

    def fileno(self) -> int:
        return self._out

    def ask(self, commands: Sequence[Sequence[str]], timeout: float) -> list[tuple[bool, list[str]]]:
        """Write all commands, each followed by a line nobody else can know, and read up to the last such line.

        The text between two of those lines is one command's answer, whatever it contains: a pane that shows
        `%begin` and `%end` lines cannot pass as another answer.
        """
        nonce = secrets.token_hex(16)
        text = "".join(
            f"{' '.join(map(quote, words))}\ndisplay-message -p {nonce}{n}\n" for n, words in enumerate(commands)
        )
        deadline = time.monotonic() + timeout
        unsent = text.encode()
        answers: list[tuple[bool, list[str]]] = []
        region: list[bytes] = []
        while True:
            unsent, lines = self._step(unsent, deadline)
            for line in lines:
                region.append(line)
                if line == f"{nonce}{len(answers)}".encode():
                    answers.append(_answer(region))
                    region = []
                    deadline = time.monotonic() + timeout  # it bounds the wait for one answer
            if len(answers) == len(commands):
                return answers
            if time.monotonic() > deadline:
                raise _timed_out(timeout)

    def read_lines(self, deadline: float) -> list[bytes]:
        """Whole lines that arrived, waiting for the first bytes until `deadline`."""
        early, self._early = self._early, []
        return early or self._step(b"", deadline)[1]

    def skip(self) -> bool:
        """Whether anything has arrived; it is not looked at."""
        arrived, self._early, self._rest = bool(self._early), [], b""
        try:
            data = os.read(self._out, 1 << 18)
        except BlockingIOError:
            return arrived
        if not data:
            raise _Closed
        return True

    def close(self) -> None:
        with command.gate(self._socket, connecting=True):
            self._end()

    def _end(self) -> None:
        proc.end_group(self._process.pid)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def _await_attached(self, timeout: float) -> None:
        """A question that tmux reads before it has attached the client is answered as if from nowhere."""
        deadline = time.monotonic() + timeout
        while True:
            lines = self._step(b"", deadline)[1]
            if any(line.startswith(b"%error ") for line in lines):
                raise _Closed
            self._early += [line for line in lines if _is_news(line)]
            if any(line.startswith(b"%end ") for line in lines):
                return
            if time.monotonic() > deadline:
                raise _timed_out(timeout)

    def _step(self, unsent: bytes, deadline: float) -> tuple[bytes, list[bytes]]:
        poll = select.poll()
        poll.register(self._out, select.POLLIN)
        if unsent:
            poll.register(self._in, select.POLLOUT)
        ready = dict(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))
        if self._in in ready:
            try:
                unsent = unsent[os.write(self._in, unsent) :]
            except BlockingIOError:
                pass
            except BrokenPipeError as error:
                raise _Closed from error
        return unsent, self._lines() if self._out in ready else []

    def _lines(self) -> list[bytes]:
        try:
            data = os.read(self._out, 1 << 18)
        except BlockingIOError:
            return []
        if not data:
            raise _Closed
        *lines, self._rest = (self._rest + data).split(b"\n")
        return lines


def _answer(region: list[bytes]) -> tuple[bool, list[str]]:
    """The answer in the lines that end with our own: from the first guard to the last one that matches it."""
    begins = [n for n, line in enumerate(region) if line.startswith(b"%begin ") and not line.endswith(b" 0")]
    if not begins:
        raise _Closed
    first = begins[0]
    guard = region[first].removeprefix(b"%begin ")
    ends = [n for n, line in enumerate(region) if line in (b"%end " + guard, b"%error " + guard)]
    if not ends:
        raise _Closed
    last = ends[-1]
    content = [line.decode(errors="replace") for line in region[first + 1 : last]]
    return region[last].startswith(b"%end "), content


def _timed_out(timeout: float) -> TimedOut:
    return TimedOut(f"tmux did not answer within {timeout:g} s", details={"timeout_s": timeout})


def _is_news(line: bytes) -> bool:
    return line.startswith(b"%") and not line.startswith((b"%begin ", b"%end ", b"%error "))


def _parse_output(line: bytes) -> tuple[str, bytes] | None:
    if not line.startswith(b"%output "):
        return None
    _, pane_id, data = line.split(b" ", 2)
    return pane_id.decode(), decode_output(data)

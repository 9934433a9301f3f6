"""MCP over the process's own stdin and stdout, on the event loop alone: no blocked read keeps the process alive.

While it serves, fd 1 is stderr and fd 0 is empty: neither a print nor a program we start touches the protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress

import anyio
import mcp_types as t
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import ServerMessageMetadata, SessionMessage

from swarm_mcp import envelope

LONGEST_LINE = 8 * 2**20
# Somebody who asks this often and does not read the answers is not read from either.
MOST_UNANSWERED = 1000
ANSWER_WITHIN = 3.0
_FLUSH_WITHIN = 1.0
_CHUNK = 2**16

Incoming = MemoryObjectReceiveStream[SessionMessage | Exception]
Outgoing = MemoryObjectSendStream[SessionMessage]


@asynccontextmanager
async def stdio_streams(
    *, answer_within: float = ANSWER_WITHIN, before_end: Callable[[], Awaitable[None]] | None = None
) -> AsyncIterator[tuple[Incoming, Outgoing]]:
    """The two streams for `Server.run`.

    The first ends with the input, with an `exit` notification, with SIGTERM and when nobody reads stdout any more;
    but not before `before_end` has returned and the requests under way are answered, or `answer_within` seconds
    have passed.
    """
    loop = asyncio.get_running_loop()
    to_server, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, to_client = anyio.create_memory_object_stream[SessionMessage](0)
    with _taken() as (source, sink):
        wire = _Wire(source, sink, answer_within, before_end)
        loop.add_signal_handler(signal.SIGTERM, wire.end)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wire.read, to_server, write.clone())
                tasks.start_soon(wire.write, to_client)
                with read, write:
                    yield read, write
                wire.end()
                tasks.cancel_scope.deadline = anyio.current_time() + _FLUSH_WITHIN
        finally:
            loop.remove_signal_handler(signal.SIGTERM)


class _Wire:
    """The client's side of the streams."""

    def __init__(
        self, source: int, sink: int, answer_within: float, before_end: Callable[[], Awaitable[None]] | None
    ) -> None:
        self._source = source
        self._sink = sink
        self._answer_within = answer_within
        self._before_end = before_end
        self._reading = anyio.CancelScope()
        self._unanswered = _Count()

    def end(self) -> None:
        """Take no more input."""
        self._reading.cancel()

    async def read(self, to_server: MemoryObjectSendStream[SessionMessage | Exception], back: Outgoing) -> None:
        with to_server, back, suppress(anyio.BrokenResourceError):
            with self._reading:
                await self._pass_on(to_server, back)
            with anyio.move_on_after(self._answer_within):
                if self._before_end is not None:
                    await self._before_end()
                await self._unanswered.below(1)

    async def _pass_on(
        self, to_server: MemoryObjectSendStream[SessionMessage | Exception], back: Outgoing
    ) -> None:
        async with aclosing(_lines(self._source)) as lines:
            async for line in lines:
                try:
                    message = _message(line)
                except envelope.Malformed as malformed:
                    await self._unanswered.up()
                    await back.send(SessionMessage(malformed.answer))
                    continue
                if isinstance(message, t.JSONRPCNotification) and message.method == "exit":
                    return
                if message is not None:
                    await to_server.send(await self._counted(message))

    async def _counted(self, message: t.JSONRPCMessage) -> SessionMessage:
        if not isinstance(message, t.JSONRPCRequest):
            return SessionMessage(message)
        await self._unanswered.up()
        return SessionMessage(message, ServerMessageMetadata(on_request_unanswered=self._unanswered.down))

    async def write(self, to_client: MemoryObjectReceiveStream[SessionMessage]) -> None:
        """When nobody reads any more, what is left to say is dropped."""
        heard = True
        with to_client:
            async for item in to_client:
                if heard:
                    heard = await _write(self._sink, envelope.write(item.message) + b"\n")
                    if not heard:
                        self.end()
                if isinstance(item.message, t.JSONRPCResponse | t.JSONRPCError):
                    await self._unanswered.down()


class _Count:
    """How many messages were taken that get an answer and have none yet."""

    def __init__(self) -> None:
        self._value = 0
        self._fell = asyncio.Event()

    async def up(self) -> None:
        await self.below(MOST_UNANSWERED)
        self._value += 1

    async def down(self) -> None:
        self._value -= 1
        self._fell.set()

    async def below(self, limit: int) -> None:
        while self._value >= limit:
            self._fell.clear()
            await self._fell.wait()


def _message(line: bytes | None) -> t.JSONRPCMessage | None:
    if line is None:
        raise envelope.Malformed(envelope.invalid(f"a message is longer than {LONGEST_LINE} bytes"))
    return envelope.read(line) if line.strip() else None


async def _lines(fd: int) -> AsyncGenerator[bytes | None, None]:
    """Each line without its end; None for one that is too long, of which nothing is kept."""
    line = bytearray()
    skipping = False
    while chunk := await _read(fd):
        *parts, rest = chunk.split(b"\n")
        for part in parts:
            if not skipping:
                yield bytes(line + part) if len(line) + len(part) <= LONGEST_LINE else None
            skipping = False
            line.clear()
        if not skipping:
            line += rest
        if len(line) > LONGEST_LINE:
            skipping = True
            line.clear()
            yield None
    if line:
        yield bytes(line)


async def _read(fd: int) -> bytes:
    """The next bytes; none at the end of the input, whatever brought it about."""
    while True:
        with suppress(PermissionError):  # a file, which epoll refuses because it never has to be waited for
            await anyio.wait_readable(fd)
        try:
            return os.read(fd, _CHUNK)
        except BlockingIOError:
            continue
        except OSError:
            return b""


async def _write(fd: int, data: bytes) -> bool:
    """False when nobody can read it any more."""
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(fd, left) :]
        except BlockingIOError:
            await anyio.wait_writable(fd)
        except ConnectionError:
            return False
    return True


@contextmanager
def _taken() -> Iterator[tuple[int, int]]:
    """Copies of stdin and stdout that nobody else knows of; both are put back at the end."""
    with contextlib.ExitStack() as undo:
        source, sink = os.dup(0), os.dup(1)
        undo.callback(os.close, source)
        undo.callback(os.close, sink)
        empty = os.open(os.devnull, os.O_RDWR)
        try:
            os.dup2(empty, 0)
            undo.callback(os.dup2, source, 0)
            _copy_stderr(empty)
            undo.callback(os.dup2, sink, 1)
        finally:
            os.close(empty)
        undo.callback(os.set_blocking, sink, os.get_blocking(sink))
        os.set_blocking(sink, False)
        undo.callback(_flush)
        yield source, sink


def _copy_stderr(otherwise: int) -> None:
    try:
        os.dup2(2, 1)
    except OSError:
        os.dup2(otherwise, 1)


def _flush() -> None:
    """What was printed goes where fd 1 points now, not into the protocol."""
    with suppress(OSError, AttributeError):
        sys.stdout.flush()

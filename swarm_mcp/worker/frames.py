"""Messages between the server and its worker: JSON objects over a socket pair, each after its length."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from typing import Any

Frame = dict[str, Any]

_LENGTH = struct.Struct("!I")
_encode = json.JSONEncoder(separators=(",", ":")).encode


class Frames:
    """One end of the connection, on an event loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, end: socket.socket) -> Frames:
        return cls(*await asyncio.open_connection(sock=end))

    def send(self, frame: Frame) -> None:
        """Queue a frame; once the other end is gone, drop it."""
        body = _encode(frame).encode()
        self._writer.write(_LENGTH.pack(len(body)) + body)

    async def receive(self) -> Frame | None:
        """Return the next frame, or None when the other end is gone."""
        try:
            (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
            frame: Frame = json.loads(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        return frame

    def close(self) -> None:
        self._writer.close()

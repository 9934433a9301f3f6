"""What outlives the process: finished steps, received messages, and the status others read."""

from __future__ import annotations

# pathlib is slow to import
# ruff: noqa: PTH105, PTH118, PTH123
import binascii
import json
import os
import re
import time

TYPE_CHECKING = False  # as type checkers know it, without importing typing
if TYPE_CHECKING:
    from typing import Any


class Journal:
    """The conversation on disk: finished steps in conversation.jsonl, received messages in received.jsonl."""

    def __init__(self, folder: str, conversation_id: str) -> None:
        self._folder, self._conversation_id = folder, conversation_id
        self.done: dict[str, int] = {}
        self.begun: dict[tuple[str, int], int] = {}
        self.finished: set[int] = set()
        self.seen: set[str] = set()
        self.count = 0
        self.run = ""

    def start(self) -> None:
        """Begin the conversation anew; numbers of messages are never used twice in a folder."""
        self.count = max((entry["n"] for entry in self._lines("received.jsonl")), default=0)
        self.run = binascii.b2a_hex(os.urandom(8)).decode()
        self._append("conversation.jsonl", {"started": self.run})

    def load(self) -> list[tuple[int, bytes]]:
        """Remember an earlier run of this conversation; returns the messages it had not finished."""
        for entry in self._mine("conversation.jsonl"):
            if "started" in entry:
                self.run = str(entry["started"])
                self.done.clear()
                self.begun.clear()
            elif "finished" in entry:
                self.finished.add(entry["finished"])
            elif "size" in entry:
                self.begun[entry["script"], entry["step"]] = entry["size"]
            else:
                self.done[entry["script"]] = entry["step"]
        waiting = []
        self.count = max((entry["n"] for entry in self._lines("received.jsonl")), default=0)
        for entry in self._mine("received.jsonl"):
            if entry["message_id"]:
                self.seen.add(entry["message_id"])
            if entry["kind"] == "message" and entry["n"] not in self.finished:
                waiting.append((entry["n"], binascii.a2b_base64(entry["base64"])))
        return waiting

    def received(self, kind: str, raw: bytes) -> tuple[int, str | None, bool]:
        """Record a message or answer; its number, its id, and whether the id is new."""
        header = re.match(rb"\[swarm msg ([^\s\]]+)", raw)
        message_id = header[1].decode(errors="replace") if header else None
        new = message_id is None or message_id not in self.seen
        self.count += 1
        self._append(
            "received.jsonl",
            {
                "n": self.count,
                "kind": kind if new else "duplicate",
                "message_id": message_id,
                "text": raw.decode(errors="replace"),
                "base64": binascii.b2a_base64(raw, newline=False).decode(),
            },
        )
        if message_id:
            self.seen.add(message_id)
        return self.count, message_id, new

    def key(self, script: str, step: int) -> str:
        """The same for a step that is repeated after a kill, and for no other."""
        return f"{self._conversation_id[:64]} {self.run} {script} {step}"

    def begin(self, script: str, step: int, size: int) -> None:
        self._append("conversation.jsonl", {"script": script, "step": step, "size": size})

    def finish_step(self, script: str, step: int) -> None:
        self.done[script] = step
        self._append("conversation.jsonl", {"script": script, "step": step})

    def finish_message(self, number: int) -> None:
        self.finished.add(number)
        self._append("conversation.jsonl", {"finished": number})

    def _append(self, name: str, entry: dict[str, Any]) -> None:
        line = json.dumps({"conversation_id": self._conversation_id, "at": now(), **entry}) + "\n"
        descriptor = os.open(os.path.join(self._folder, name), os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            os.write(descriptor, (b"\n" if torn else b"") + line.encode())
        finally:
            os.close(descriptor)

    def _lines(self, name: str) -> list[dict[str, Any]]:
        try:
            with open(os.path.join(self._folder, name), encoding="utf-8", errors="replace") as file:
                lines = file.read().split("\n")
        except FileNotFoundError:
            return []
        entries = []
        for line in lines:
            try:
                entry = json.loads(line)
            except ValueError:
                continue  # a line torn by a kill
            if isinstance(entry, dict):
                entries.append(entry)
        return entries

    def _mine(self, name: str) -> list[dict[str, Any]]:
        return [entry for entry in self._lines(name) if entry.get("conversation_id") == self._conversation_id]


def write_status(folder: str, body: dict[str, Any]) -> None:
    """Replace status.json; a reader sees the old one or the new one."""
    path = os.path.join(folder, "status.json")
    fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(fd, "w", encoding="utf-8") as file:
        json.dump({**body, "at": now()}, file)
    os.replace(path + ".new", path)


def now() -> str:
    seconds, millis = divmod(time.time_ns() // 1_000_000, 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{millis:03d}+00:00"

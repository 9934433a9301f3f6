"""Transcripts as Claude Code writes them, without the program: lines of JSON, several for one answer."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from swarm_core.models import Instance
from swarm_core.swarm import Swarm
from tests.rows import add_instance

SONNET = "claude-sonnet-4-5-20250929"
CONVERSATION = "0b1f6c1e-9d6c-4e0e-8f0a-1c6d6c7f2a11"


@dataclass
class Transcript:
    path: Path

    @classmethod
    def of(cls, config: Path, instance: Instance) -> Transcript:
        folder = re.sub(r"[^A-Za-z0-9]", "-", instance.worktree_path)
        path = config / "projects" / folder / f"{instance.conversation_id}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        return cls(path)

    def write(self, text: str) -> None:
        with self.path.open("a") as file:
            file.write(text)

    def answer(self, message_id: str, **options: Any) -> None:
        self.write(answer(message_id, **options))

    def receive(self, message_id: str) -> None:
        """The prompt with a message of ours, as an idle program notes it."""
        said = {"role": "user", "content": f"[swarm msg {message_id} from operator]\nhello"}
        self.write(_line({"type": "user", "message": said}))


def answer(
    message_id: str,
    *,
    took: int = 0,
    gave: int = 0,
    read: int = 0,
    wrote: int = 0,
    model: str = SONNET,
    text: str = "ok",
    **more: Any,
) -> str:
    """One line of an answer; `more` goes into the line itself."""
    used = {
        "input_tokens": took,
        "cache_creation_input_tokens": wrote,
        "cache_read_input_tokens": read,
        "output_tokens": gave,
        "service_tier": "standard",
    }
    content = [{"type": "text", "text": text}]
    message = {"id": message_id, "type": "message", "role": "assistant", "model": model, "content": content}
    known = {"isSidechain": False, "message": message | {"usage": used}, "requestId": "req_1", "type": "assistant"}
    return _line(known | {"timestamp": "2026-11-16T11:23:09.286Z", "version": "2.1.197"} | more)


def _line(entry: dict[str, Any]) -> str:
    return json.dumps(entry, separators=(",", ":")) + "\n"


@pytest.fixture
def claude_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "claude-config"
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(folder))
    return folder


def add_claude(swarm: Swarm, instance_id: str = "work-1-a1", **fields: Any) -> Instance:
    """An instance of Claude Code whose program nobody has started."""
    return add_instance(swarm.context.db, instance_id, agent="claude", conversation_id=CONVERSATION, **fields)

"""A coordinator with two agents, of whom one tries to be the other, and requests written by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from swarm_core.models import Instance
from swarm_core.swarm import Swarm
from tests import ledger
from tests.integration import mcp_fixture
from tests.integration.mcp_fixture import Coordinated
from tests.integration.review_fixture import commit
from tests.ledger import Ledger, Row
from tests.mcp_client import Answer
from tests.support import wait_until

MODERN = "2026-07-28"
NOT_SENT, UNKNOWN, REVOKED = "no token was sent", "the token is unknown", "the token was revoked"
# Every tool with arguments that would do something.
TOOLS: dict[str, dict[str, Any]] = {
    "spawn_review_instance": {},
    "spawn_fork_instance": {},
    "create_pull_request": {"title": "Take it", "description": "It is good."},
    "send_feedback": {"feedback": "All wrong.", "feedback_type": "needs_work"},
    "update_instance_status": {"status": "failed"},
    "merge_pull_request": {"instance_id": "work-a1"},
    "query_instances": {},
    "query_pulls": {},
    "search": {"query": "anything"},
    "get_status": {},
}
Headers = Sequence[tuple[str, str]]


def send(
    mcp: Coordinated,
    headers: Headers,
    body: bytes = b"{}",
    *,
    method: str = "POST",
    path: str = "/mcp",
    host: str | None = "own",
) -> Answer:
    """The request with exactly these headers, besides what makes it a request at all."""
    with closing(HTTPConnection("127.0.0.1", mcp.port, timeout=20)) as connection:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        if host is not None:
            connection.putheader("Host", f"127.0.0.1:{mcp.port}" if host == "own" else host)
        for name, value in headers:
            connection.putheader(name, value.encode("latin-1"))
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        response = connection.getresponse()
        text = response.read()
    found = {name.lower(): value for name, value in response.getheaders()}
    is_json = found.get("content-type", "").startswith("application/json")
    return Answer(response.status, json.loads(text) if is_json else {"text": text.decode()}, [], found)


def bearer(token: str) -> Headers:
    return [("Authorization", f"Bearer {token}")]


def complete(tool: str, request_id: Any = 1, **arguments: Any) -> tuple[Headers, bytes]:
    """A call that needs no session: all of it is in one request."""
    prefix = "io.modelcontextprotocol/"
    meta = {f"{prefix}protocolVersion": MODERN, f"{prefix}clientCapabilities": {}}
    params = {"name": tool, "arguments": arguments, "_meta": meta}
    message = {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}
    headers = [
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
        ("MCP-Protocol-Version", MODERN),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", tool),
    ]
    return headers, json.dumps(message).encode()


HARM_HEADERS, HARM = complete("update_instance_status", status="failed", message="forged")


@dataclass
class Town:
    """Ann and Bob work, each with a token; Bob is the one who tries."""

    mcp: Coordinated
    read: Ledger
    ann: Instance
    bob: Instance
    ann_token: str
    bob_token: str
    ci_token: str

    def __post_init__(self) -> None:
        self.ann_client = self.mcp.client(self.ann_token)
        self.bob_client = self.mcp.client(self.bob_token)

    def new(self, prompt: str = "say ready") -> Instance:
        with self.mcp.swarm() as swarm:
            return _finished(self.mcp, swarm, prompt)

    def harm(self, headers: Headers, **options: Any) -> Answer:
        """A request that ends the agent it is taken to come from."""
        return send(self.mcp, [*HARM_HEADERS, *headers], HARM, **options)

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """What an earlier test began is brought to its end first."""
        wait_until(lambda: all(a["state"] != "open" for a in self.read.state()["actions"]), what="nothing is open")
        before = self.read.state()
        yield
        assert self.read.state() == before

    def refused(self, after: int, count: int = 1) -> list[Row]:
        """The events of refusals, which are written a moment after their answer."""
        wait_until(lambda: len(self.read.events(after, like="auth:%")) >= count, what=f"{count} refusals recorded")
        found = self.read.events(after, like="auth:%")
        assert len(found) == count
        assert not any(e.success for e in found)
        return found

    def open_gate(self) -> None:
        (self.mcp.folder / "gate").unlink()


def _finished(mcp: Coordinated, swarm: Swarm, prompt: str = "say ready") -> Instance:
    """Work with a file of its own: those who change the same are told of it, at a time nobody knows."""
    work = mcp.world.work(swarm, prompt)
    commit(work, f"{work.id}.txt")
    return work


def facts(event: Row) -> tuple[Any, ...]:
    """Why, with which code, who tried, and whose token it was."""
    return event.error_message, event.error_code, event.actor, event.metadata.get("belonged_to")


def total(events: list[Row]) -> int:
    return sum(e.metadata.get("count", 1) for e in events)


def environment(pid: int) -> dict[str, str]:
    raw = Path(f"/proc/{pid}/environ").read_bytes().decode()
    return dict(part.partition("=")[::2] for part in raw.split("\0") if part)


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    with mcp_fixture.shared_by_a_module(tmp_path_factory.mktemp("town")) as mcp:
        with mcp.swarm() as swarm:
            ann, bob = (_finished(mcp, swarm) for _ in range(2))
            for one in (ann, bob):
                mcp.world.wait_idle(swarm, one.id)
            ci = swarm.create_token("ci", ["read"]).token
        with ledger.reading(mcp.world.settings.database_path) as read:
            yield Town(mcp, read, ann, bob, mcp.token(ann), mcp.token(bob), ci)


@pytest.fixture
def gate(town: Town) -> Iterator[Path]:
    """While it exists a new worktree is not finished, so that the call which makes it is under way."""
    hooks = town.mcp.world.repo / ".git" / "hooks"
    closed, began = town.mcp.folder / "gate", town.mcp.folder / "began"
    hook = hooks / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch '{began}'\nwhile [ -e '{closed}' ]; do sleep 0.05; done\n")
    hook.chmod(0o755)
    closed.touch()
    began.unlink(missing_ok=True)
    yield began
    closed.unlink(missing_ok=True)
    hook.unlink()

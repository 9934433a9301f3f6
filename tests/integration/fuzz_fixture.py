"""A coordinator to be shot at with rubbish, and all that must hold after every shot.

FUZZ_SEED chooses other examples than the usual ones, FUZZ_EXAMPLES multiplies their number.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, seed, settings

from swarm_core.errors import CODES
from swarm_core.models import Instance
from swarm_mcp import contract
from tests.integration.mcp_fixture import Coordinated
from tests.integration.review_fixture import finished_work
from tests.mcp_client import VERSION
from tests.odd_json import encode
from tests.support import isolate, make_repo
from tests.world import World

SEED = int(os.environ.get("FUZZ_SEED", "3"))
MORE = int(os.environ.get("FUZZ_EXAMPLES", "1"))

JSON, BOTH = "application/json", "application/json, text/event-stream"
# -32603 is not among them: it would be a bug of ours.
NUMBERS = contract.NUMBERS.keys() - {-32603}
STATUSES = {200, 202, 400, 404, 405, 406, 409, 413, 415}
CATEGORIES = {"validation", "state", "external", "database"}
CODE_LEAKS = (
    *("Traceback (most recent", 'File "', "site-packages", "swarm_core", "swarm_mcp", "pydantic", "uvicorn"),
    *("object at 0x", "sqlite", "SELECT ", "INSERT ", "UPDATE ", "BEGIN IMMEDIATE", "[Errno", "\\n    raise "),
)


def fuzzed(examples: int) -> Callable[[Any], Any]:
    """The same examples on every run of one seed; what fails is printed with the seed."""

    def decorate(test: Any) -> Any:
        some = settings(
            max_examples=examples * MORE,
            deadline=None,
            database=None,
            print_blob=False,
            suppress_health_check=list(HealthCheck),
        )
        print(f"FUZZ_SEED={SEED}")
        return seed(SEED)(some(test))

    return decorate


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def messages(self) -> list[dict[str, Any]]:
        """What JSON-RPC there is in it."""
        kind = self.headers.get("content-type", "")
        if kind.startswith("text/event-stream"):
            lines = self.text.replace("\r\n", "\n").split("\n")
            return [json.loads(line[5:]) for line in lines if line.startswith("data:")]
        return [json.loads(self.text)] if kind.startswith(JSON) and self.body else []


@dataclass
class Target:
    """A coordinator to be shot at, and what it must never say."""

    mcp: Coordinated
    work: Instance
    review: Instance
    ended: Instance
    tokens: dict[str, str]
    secrets: list[str]
    sessions: dict[str, str] = field(default_factory=dict)
    seen: Counter[str] = field(default_factory=Counter)
    _connection: http.client.HTTPConnection | None = None
    _log_read: int = 0

    def send(self, caller: str, body: bytes, *, session: bool = True, **extra: str) -> Reply:
        """One POST to /mcp by the caller, in its session unless it wants none."""
        headers = {"accept": BOTH, "content-type": JSON, "authorization": f"Bearer {self.tokens[caller]}"}
        if session:
            headers |= {"mcp-session-id": self.session(caller), "mcp-protocol-version": VERSION}
        return self.request("POST", "/mcp", body, headers | extra)

    def session(self, caller: str) -> str:
        if caller not in self.sessions:
            params = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "f", "version": "1"}}
            message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
            self.sessions[caller] = self.send(caller, encode(message), session=False).headers["mcp-session-id"]
        return self.sessions[caller]

    def request(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Reply:
        fresh = self._connection is None
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self.mcp.port, timeout=30)
        try:
            self._connection.request(method, path, body, headers)
            answer = self._connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Reply(answer.status, found, answer.read())
        except (OSError, http.client.HTTPException):
            self._connection.close()
            self._connection = None
            if fresh:
                raise
            return self.request(method, path, body, headers)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def check(self, reply: Reply | None = None) -> None:
        """All that must hold after every example."""
        if reply is not None:
            self.check_reply(reply)
        assert self.mcp.child is not None
        assert self.mcp.child.poll() is None, self.mcp.log.read_text()[-3000:]
        health = self.request("GET", "/health", b"", {})
        assert health.status in (200, 503)
        assert json.loads(health.body)["role"] == "coordinator"
        self.check_log()

    def check_reply(self, reply: Reply) -> None:
        assert reply.status in STATUSES, (reply.status, reply.body[:2000])
        assert len(reply.body) < 1_000_000
        self.seen[str(reply.status)] += 1
        messages = reply.messages
        for message in messages:
            self.check_message(message)
        if not messages and reply.status >= 400:
            self.check_silence(reply.text)

    def check_message(self, message: dict[str, Any]) -> None:
        """Well-formed JSON-RPC; an error has a number and a code that are known, and no secrets."""
        assert message["jsonrpc"] == "2.0"
        assert ("result" in message) + ("error" in message) + ("method" in message) == 1, message
        text = json.dumps(message, ensure_ascii=False)
        error = message.get("error")
        if error is not None:
            assert error["code"] in NUMBERS, message
            assert isinstance(error["message"], str)
            assert error["message"]
            assert not isinstance(error.get("data"), dict) or error["data"].get("code", "INVALID_REQUEST") in CODES
            assert len(json.dumps(error)) < 20_000
            self.seen[str(error["code"])] += 1
            self.check_silence(text)
        elif message.get("result", {}).get("isError"):
            self.check_silence(text)
            self.check_failure(message["result"])
        elif "result" in message:
            self.seen["ok"] += 1
            assert not any(token in text for token in self.tokens.values())

    def check_failure(self, result: dict[str, Any]) -> None:
        body = result["structuredContent"]
        assert json.loads(result["content"][0]["text"]) == body
        assert (body["ok"], body["error"]["code"]) == (False, body["code"])
        assert body["code"] in CODES
        assert body["code"] != "INTERNAL", body
        assert body["error"]["category"] in CATEGORIES
        self.seen[body["code"]] += 1

    def check_silence(self, text: str) -> None:
        told = [secret for secret in (*self.secrets, *self.tokens.values(), *CODE_LEAKS) if secret in text]
        assert not told, (told, text[:2000])

    def check_log(self) -> None:
        with self.mcp.log.open("rb") as file:
            file.seek(self._log_read)
            fresh = file.read()
        whole = fresh[: fresh.rfind(b"\n") + 1]
        self._log_read += len(whole)
        for line in whole.splitlines():
            entry = json.loads(line)
            assert "traceback" not in entry, entry["traceback"]
            assert entry["level"] in ("info", "warning"), entry


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    """Its folders have names that are hard to recognise as paths in a text."""
    folder = Path(tempfile.mkdtemp(prefix="sw-", dir="/tmp"))
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        isolate(patch, folder)
        world = World(folder / "my home (é)", make_repo(folder / "re po, [ü]"))
        stack.callback(world.kill_tmux)
        mcp = Coordinated(world, folder)
        stack.callback(mcp.end)
        mcp.start()
        made = attacked(mcp)
        stack.callback(made.close)
        yield made
        finish(made)


def attacked(mcp: Coordinated) -> Target:
    with mcp.swarm() as swarm:
        work = finished_work(mcp.world, swarm, issue=471100)
        reviewed = finished_work(mcp.world, swarm, issue=471101)
        review = swarm.request_review(reviewed.id, reviewer_prompt="busy 600")
        ended = mcp.world.work(swarm, issue=471102)
        swarm.stop(ended.id)
    tokens = {"operator": mcp.operator_token, "work": mcp.token(work), "review": mcp.token(review)}
    folder = mcp.world.home.parent
    paths = [str(folder), str(Path(__file__).parents[2]), sys.prefix, sys.base_prefix, "/usr/", "/proc/"]
    names = [mcp.world.home.name, mcp.world.repo.name, "user-home", "swarm.db", "tmux.sock"]
    return Target(mcp, work, review, ended, tokens, [p for p in paths if p != "/"] + names)


def finish(target: Target) -> None:
    target.check()
    with target.mcp.swarm() as swarm:
        assert swarm.context.db.check() == []
    assert target.mcp.stop() == 0
    target.check_log()

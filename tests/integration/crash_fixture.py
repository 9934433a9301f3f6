"""A coordinator that dies where it is told to, and what calls leave behind, for the tests of retried calls."""

from __future__ import annotations

import http.client
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from swarm_core.store import actions
from swarm_core.swarm import Swarm
from swarm_mcp.call import digest
from tests.integration.mcp_fixture import Coordinated
from tests.mcp_client import Answer, Client, StdioClient
from tests.support import wait_until
from tests.world import assert_agreement

CUT_OFF = (OSError, EOFError, http.client.HTTPException)
_ROOT = str(Path(__file__).parents[2])
_TABLES = ("relationships", "messages", "feedback", "pulls", "actions", "preserved")
_DELIVERY = tuple(f"message:{what}" for what in ("injected", "seen", "acknowledged", "held", "lost"))
_TOLD_AT_ANY_TIME = ("tool:", "coordinator:", "instance:activity", "mcp:", "notice:", "overlap:", *_DELIVERY)


@dataclass(frozen=True)
class Wish:
    """A call that somebody wants answered, and asks again for when the answer is lost."""

    token: str
    tool: str
    arguments: dict[str, Any]


@dataclass
class Crashing:
    """The control files of `tests.fakes.crash_coordinator`; `mcp` is the coordinator as its clients see it."""

    mcp: Coordinated
    folder: Path

    def start(self) -> None:
        """A new coordinator, which does not die by itself."""
        for name in ("kill", "hold", "held", "passed"):
            (self.folder / name).unlink(missing_ok=True)
        self.mcp.start(program=self._program(), PYTHONPATH=_ROOT)

    def stdio(self, token: str) -> StdioClient:
        environ = self.mcp.world.environ | {"PYTHONPATH": _ROOT, "SWARM_TOKEN": token}
        client = StdioClient(environ, command=self._program("--stdio"))
        self.mcp.clients.append(client)
        client.initialize()
        return client

    def kill_at(self, checkpoint: str) -> None:
        (self.folder / "kill").write_text(checkpoint)

    def hold(self, checkpoint: str = "") -> None:
        """Have the first call that comes to the checkpoint, or to any, wait there."""
        (self.folder / "hold").write_text(checkpoint)

    def let_go(self) -> None:
        (self.folder / "hold").unlink()

    def passed(self) -> list[str]:
        """The checkpoints of the calls since this was asked last."""
        found = self._lines("passed")
        (self.folder / "passed").unlink(missing_ok=True)
        return found

    def wait_held(self, checkpoints: set[str]) -> None:
        """Until a call waits at each of the checkpoints."""
        wait_until(lambda: set(self._lines("held")) >= checkpoints, timeout=60, what=f"calls at {checkpoints}")

    def cut_off(self, client: Client, checkpoint: str, wish: Wish) -> None:
        """Call, and see the coordinator die at the checkpoint."""
        self.kill_at(checkpoint)
        try:
            answer = client.call(wish.tool, **wish.arguments)
        except CUT_OFF:
            assert self.mcp.child is not None
            assert self.mcp.child.wait(20) == -signal.SIGKILL
            self.mcp.drop_clients()
        else:
            pytest.fail(f"{wish.tool} never came to {checkpoint}: {answer.message}")

    def cut_off_everywhere(self, wishes: Sequence[Wish], checkpoints: Sequence[str], last: str) -> None:
        """As many calls as checkpoints: one waits at each, and the one that comes to the last kills the server."""
        clients = [self.mcp.client(wish.token) for wish in wishes]
        self.hold()
        with ThreadPoolExecutor(len(wishes)) as pool:
            calls = [
                pool.submit(c.call, w.tool, **w.arguments) for c, w in zip(clients[1:], wishes[1:], strict=True)
            ]
            try:
                self.wait_held(set(checkpoints) - {last})
                self.cut_off(clients[0], last, wishes[0])
            finally:
                self.mcp.end()
            assert [_is_cut_off_or_done(call) for call in calls] == [True] * len(calls)

    def retried(self, wish: Wish) -> Answer:
        """As a client does it that lost its server: a new connection, a new session, a new request."""
        return self.mcp.client(wish.token).call(wish.tool, **wish.arguments)

    def _program(self, *options: str) -> list[str]:
        return [sys.executable, "-m", "tests.fakes.crash_coordinator", str(self.folder), *options]

    def _lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []


def _is_cut_off_or_done(call: Future[Answer]) -> bool:
    """A call whose message waits in the courier has its answer when the receipt is overdue."""
    failure = call.exception(20)
    return isinstance(failure, CUT_OFF) or (failure is None and bool(call.result().ok))


@pytest.fixture
def crashing(stopped_mcp: Coordinated, tmp_path: Path) -> Crashing:
    folder = tmp_path / "control"
    folder.mkdir()
    made = Crashing(stopped_mcp, folder)
    made.start()
    return made


def settle(mcp: Coordinated) -> None:
    """Wait until the coordinator has ended what was begun; then all is as recorded and nothing is open."""
    with mcp.swarm() as swarm:
        wait_until(lambda: not actions.all_open(swarm.context.db), timeout=30, what="no open action")
        assert_agreement(mcp.world, swarm)
        assert swarm.context.db.rows("SELECT id FROM requests WHERE state = 'open'") == []


def request(swarm: Swarm, principal: str, wish: Wish) -> dict[str, Any]:
    """What is recorded of the wish; empty when nothing is."""
    asked = (principal, digest(wish.tool, wish.arguments))
    found = swarm.context.db.rows("SELECT * FROM requests WHERE principal = ? AND digest = ?", asked)
    assert len(found) <= 1
    return dict(found[0]) if found else {}


def census(swarm: Swarm) -> Counter[str]:
    """How many there are of everything that a call may make; a doubled effect shows in it somewhere."""
    db = swarm.context.db
    counts: Counter[str] = Counter()
    for table in _TABLES:
        counts[table] = db.rows(f"SELECT count(*) FROM {table}")[0][0]
    # Agents that change the same file are told so when the radar has got round to them.
    counts["messages"] = db.rows("SELECT count(*) FROM messages WHERE sender <> 'swarm'")[0][0]
    counts["tokens"] = db.rows("SELECT count(*) FROM tokens WHERE revoked_at IS NULL")[0][0]
    for instance in swarm.instances(include_cleaned=True):
        counts[f"{instance.kind} {instance.status} {instance.wanted}"] += 1
    for event in swarm.events(after=0, limit=100_000):
        if not event.name.startswith(_TOLD_AT_ANY_TIME) and event.actor != "swarm":
            counts[event.name] += 1
    return counts


def change(before: Counter[str], after: Counter[str]) -> dict[str, int]:
    return {what: after[what] - before[what] for what in before | after if after[what] != before[what]}

"""A coordinator with agents to speak for, for the tests of the MCP server."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from swarm_core import process
from swarm_core.models import Event, Instance
from swarm_core.store import tokens
from swarm_core.swarm import Swarm
from tests.mcp_client import HttpClient, StdioClient
from tests.support import isolate, make_repo, wait_until
from tests.world import World


@dataclass
class Coordinated:
    """A world with a coordinator; `restart` is what a person does after a crash."""

    world: World
    folder: Path
    environ: dict[str, str] = field(default_factory=dict)
    port: int = 0
    child: subprocess.Popen[bytes] | None = None
    clients: list[Any] = field(default_factory=list)
    starts: int = 0

    def start(self, *, program: list[str] | None = None, **environ: str) -> None:
        """Start the coordinator and wait until it listens. `program` runs another one in its place."""
        self.starts += 1
        argv = program or [sys.executable, "-P", "-m", "swarm_mcp"]
        given = self.world.environ | {"MCP_SERVER_PORT": "0"} | self.environ | environ
        with self.log.open("wb") as sink:
            self.child = subprocess.Popen(argv, env=given, stdout=subprocess.DEVNULL, stderr=sink)

        def listens() -> int:
            assert self.child is not None
            assert self.child.poll() is None, self.log.read_text()[-3000:]
            card = process.running(self.world.settings, process.COORDINATOR)
            return card.port if card and card.pid == self.child.pid else 0

        self.port = int(wait_until(listens, timeout=30, what="the coordinator listens"))

    @property
    def log(self) -> Path:
        return self.folder / f"coordinator-{self.starts}.log"

    def kill(self) -> None:
        assert self.child is not None
        self.child.send_signal(signal.SIGKILL)
        self.child.wait(20)
        self.drop_clients()

    def stop(self) -> int:
        """End it in good order; its exit code."""
        assert self.child is not None
        self.child.terminate()
        return self.child.wait(30)

    def restart(self, **environ: str) -> None:
        assert self.child is not None
        assert self.child.poll() is not None
        self.start(**environ)

    @contextlib.contextmanager
    def swarm(self) -> Iterator[Swarm]:
        with self.world.open() as swarm:
            yield swarm

    def token(self, instance: Instance | str) -> str:
        """A new token for the instance; the one its agent has stops working."""
        with self.world.open() as swarm, swarm.context.db.write():
            found = swarm.find(instance if isinstance(instance, str) else instance.id)
            return tokens.issue(swarm.context.db, found.id, found.epoch)

    @property
    def operator_token(self) -> str:
        return (self.world.home / "operator.token").read_text().strip()

    def client(self, token: str | None, *, initialize: bool = True, timeout: float = 60) -> HttpClient:
        client = HttpClient(self.port, token, timeout=timeout)
        self.clients.append(client)
        if initialize:
            client.initialize()
        return client

    def agent(self, instance: Instance | str) -> HttpClient:
        """A client that speaks for the instance over HTTP."""
        return self.client(self.token(instance))

    def operator(self) -> HttpClient:
        return self.client(self.operator_token)

    def stdio(self, token: str | None, *, initialize: bool = True, **environ: str) -> StdioClient:
        """A client of a stdio server that was started with the token."""
        given = self.world.environ | self.environ | ({"SWARM_TOKEN": token} if token else {}) | environ
        client = StdioClient(given)
        self.clients.append(client)
        if initialize:
            client.initialize()
        return client

    def events(self, *, after: int = 0, name: str | None = None, tool: str | None = None) -> list[Event]:
        with self.world.open() as swarm:
            found = swarm.events(after=after, limit=100_000)
        return [e for e in found if name in (None, e.name) and tool in (None, e.tool_name)]

    def newest_event(self) -> int:
        with self.world.open() as swarm:
            return max((e.id for e in swarm.events(limit=1)), default=0)

    def drop_clients(self) -> None:
        for client in self.clients:
            client.close()
        self.clients.clear()

    def end(self) -> None:
        self.drop_clients()
        if self.child is not None and self.child.poll() is None:
            self.child.kill()
            self.child.wait(20)


@pytest.fixture
def mcp(world: World, tmp_path: Path) -> Iterator[Coordinated]:
    made = Coordinated(world, tmp_path)
    made.start()
    yield made
    made.end()


@pytest.fixture
def stopped_mcp(world: World, tmp_path: Path) -> Iterator[Coordinated]:
    """For tests that start the coordinator themselves."""
    made = Coordinated(world, tmp_path)
    yield made
    made.end()


@contextlib.contextmanager
def shared_by_a_module(folder: Path) -> Iterator[Coordinated]:
    """A coordinator with a world of its own, for a fixture that all tests of a module use."""
    short = Path(tempfile.mkdtemp(prefix="sw-", dir="/tmp"))
    with pytest.MonkeyPatch.context() as patch:
        isolate(patch, folder)
        made = Coordinated(World(short / "h", make_repo(folder / "repo")), folder)
        try:
            made.start()
            yield made
        finally:
            made.end()
            made.world.kill_tmux()
            shutil.rmtree(short, ignore_errors=True)

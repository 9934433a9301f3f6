"""A coordinator for a whole module of tests, a client on each transport, and a gate that holds a call up."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.mcp_fixture import Coordinated
from tests.integration.tmux_fixture import in_time
from tests.mcp_client import Answer, Client, HttpClient, StdioClient
from tests.support import make_repo, wait_until
from tests.world import World

TRANSPORTS = ("http", "stdio")
# The same commits every time: git names a commit after what is in it, and its times are in it.
_DATE = "2026-01-31T12:00:00+00:00"
_gates = itertools.count(1)


@contextlib.contextmanager
def coordinated(*, config: str = "", start: bool = True, **environ: str) -> Iterator[Coordinated]:
    """A coordinator in a home of its own, for fixtures that outlive one test."""
    folder = Path(tempfile.mkdtemp(prefix="sw-", dir="/tmp"))
    with pytest.MonkeyPatch.context() as patch:
        for name in [n for n in os.environ if n.startswith(("SWARM_", "MCP_", "GIT_", "GITHUB_", "TMUX"))]:
            patch.delenv(name)
        patch.setenv("HOME", str(folder))
        for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
            patch.setenv(name, os.devnull)
        for role in ("AUTHOR", "COMMITTER"):
            patch.setenv(f"GIT_{role}_NAME", "Test Person")
            patch.setenv(f"GIT_{role}_EMAIL", "person@example.invalid")
            patch.setenv(f"GIT_{role}_DATE", _DATE)
        world = World(folder / "h", make_repo(folder / "repo"))
        made = Coordinated(world, folder, environ)
        if config:
            world.home.mkdir(mode=0o700)
            (world.home / "config.toml").write_text(config)
        try:
            if start:
                made.start()
            yield made
        finally:
            made.end()
            world.kill_tmux()
            shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Line:
    """One client, and calls that go on while the test does something else."""

    transport: str
    client: Client
    made: Coordinated

    def begin(self, tool: str, *, id: Any = None, meta: dict[str, Any] | None = None, **arguments: Any) -> Held:
        number = self.client.next_id() if id is None else id
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        if meta is not None:
            params["_meta"] = meta
        message = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
        if isinstance(self.client, StdioClient):
            self.client.write(json.dumps(message).encode() + b"\n")
            return Held(self, number, None)
        pool = ThreadPoolExecutor(1)
        held = Held(self, number, pool.submit(self.beside().send, message))
        pool.shutdown(wait=False)
        return held

    def beside(self) -> Client:
        """Another connection of the same client; on stdio there is only one."""
        if isinstance(self.client, StdioClient):
            return self.client
        assert isinstance(self.client, HttpClient)
        other = HttpClient(self.client.port, self.client.token, timeout=self.client.timeout)
        other.session, other.ids, other.extra = self.client.session, 1_000_000, self.client.extra
        self.made.clients.append(other)
        return other


@dataclass
class Held:
    """A call under way."""

    line: Line
    id: Any
    sent: Future[Answer] | None

    def answer(self, timeout: float = 30) -> Answer:
        if self.sent is not None:
            return self.sent.result(timeout)
        assert isinstance(self.line.client, StdioClient)
        return self.line.client.answer_to(self.id)


def open_line(made: Coordinated, transport: str, token: str | None = None) -> Line:
    """The operator's client, or that of whom the token belongs to."""
    known = token or made.operator_token
    client = made.client(known) if transport == "http" else made.stdio(known)
    return Line(transport, client, made)


class Gate:
    """A git hook that holds every checkout in the repository up until the gate is opened."""

    def __init__(self, world: World) -> None:
        self.folder = world.home.parent / f"gate-{next(_gates)}"
        self.folder.mkdir()
        self.hook = world.repo / ".git" / "hooks" / "post-checkout"
        self.hook.parent.mkdir(exist_ok=True)
        self.hook.write_text(
            f"#!/bin/sh\ncd '{self.folder}'\necho $$ > writing\nmv writing pid\n"
            "while [ ! -e open ]; do sleep 0.02; done\n"
        )
        self.hook.chmod(0o755)

    def held(self) -> int:
        """The process of the hook, once it holds somebody up."""
        wait_until(self.reached, timeout=30, what="a checkout is held up")
        return int((self.folder / "pid").read_text())

    def reached(self) -> bool:
        return (self.folder / "pid").exists()

    def open(self) -> None:
        (self.folder / "open").touch()

    def gone(self) -> bool:
        """Whether the process that was held up has ended."""
        return in_time([int((self.folder / "pid").read_text())])

    def remove(self) -> None:
        self.open()
        self.hook.unlink(missing_ok=True)


@contextlib.contextmanager
def gate(world: World) -> Iterator[Gate]:
    made = Gate(world)
    try:
        yield made
    finally:
        made.remove()

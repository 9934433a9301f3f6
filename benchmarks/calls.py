"""What a tool call costs: a small read with identity and event, against a bare server with the same answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, Options
from benchmarks.ground import Home, cpu_of, make_repo, wait_for
from benchmarks.mcp_client import Client, load
from swarm_core import process
from swarm_core.store import tokens

LIMIT_RATIO = 1.5
LIMIT_LIST_KB = 12
LIMIT_SESSION_KB = 150
_TOOL = "query_instances"
_ARGUMENTS: dict[str, Any] = {"limit": 1}
_AGENTS = 200


def measure(root: Path, options: Options) -> Iterator[Figure]:
    repo = make_repo(root / "repo", 50)
    with Home(root / "h") as home, coordinator(home) as (port, pid):
        with home.open() as swarm:
            agent = swarm.work("say ready", repo=str(repo), agent="scripted")[0]
            with swarm.context.db.write():
                token = tokens.issue(swarm.context.db, agent.id, agent.epoch)
        answer, listed = asyncio.run(_first(port, token))
        with bare(answer) as (bare_port, bare_pid):
            ours, theirs = (port, pid, token), (bare_port, bare_pid, "")
            calls, rounds = (400, 4) if options.quick else (1600, options.times(8, 4))
            for clients in (1, 16, 64):
                yield from _compare(ours, theirs, clients, calls, rounds)
        yield Figure("tools/list for a work agent", len(listed) / 1000, "KB", LIMIT_LIST_KB)
        count = 50 if options.quick else _AGENTS
        yield Figure(
            f"memory per connected agent, {count} with an open stream",
            asyncio.run(_memory(port, pid, token, count)),
            "KB",
            LIMIT_SESSION_KB,
        )


@contextlib.contextmanager
def coordinator(home: Home) -> Iterator[tuple[int, int]]:
    """A coordinator of this home; its port and pid."""
    log = home.settings.home.with_suffix(".log")
    with log.open("wb") as sink:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "swarm_mcp"], env=home.environ | {"MCP_SERVER_PORT": "0"}, stderr=sink
        )
    try:
        wait_for(lambda: _port(home), what="the coordinator", timeout=20)
        yield _port(home), child.pid
    finally:
        child.terminate()
        child.wait(20)


def _port(home: Home) -> int:
    card = process.running(home.settings, process.COORDINATOR)
    return card.port if card else 0


@contextlib.contextmanager
def bare(answer: dict[str, Any]) -> Iterator[tuple[int, int]]:
    child = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.bare_mcp", json.dumps(answer)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        yield int(child.stdout.readline()), child.pid
    finally:
        child.kill()
        child.wait(20)


async def _first(port: int, token: str) -> tuple[dict[str, Any], bytes]:
    client = Client(port, token)
    await client.connect()
    answer = await client.ask("tools/call", {"name": _TOOL, "arguments": _ARGUMENTS})
    _, listed = await client.post({"jsonrpc": "2.0", "id": 9, "method": "tools/list"})
    client.close()
    return answer["result"]["structuredContent"], listed


def _compare(
    ours: tuple[int, int, str], theirs: tuple[int, int, str], clients: int, calls: int, rounds: int
) -> Iterator[Figure]:
    """Rounds of both in turn, in random order, so that a busy machine disturbs both alike."""
    cpu: dict[str, list[float]] = {"ours": [], "theirs": []}
    times: list[float] = []
    rates: list[float] = []
    for _ in range(rounds):
        for name in random.sample(["ours", "theirs"], 2):
            port, pid, token = ours if name == "ours" else theirs
            spent, took, each = asyncio.run(_round(port, pid, token, clients, calls))
            cpu[name].append(spent / len(each))
            if name == "ours":
                times += each
                rates.append(len(each) / took)
    mine, bare_cpu = statistics.median(cpu["ours"]), statistics.median(cpu["theirs"])
    at = f"{clients} client{'s' if clients > 1 else ''}"
    yield Figure(f"call, {at}: processor of a bare server", bare_cpu * 1000, "ms CPU")
    yield Figure(f"call, {at}: processor of ours", mine * 1000, "ms CPU")
    yield Figure(f"call, {at}: ratio of processor time", mine / bare_cpu, "x", LIMIT_RATIO)
    times.sort()
    yield Figure(f"call, {at}: calls per second", statistics.median(rates), "/s")
    yield Figure(f"call, {at}: p50", times[len(times) // 2] * 1000, "ms")
    yield Figure(f"call, {at}: p99", times[len(times) * 99 // 100] * 1000, "ms")


async def _round(port: int, pid: int, token: str, clients: int, calls: int) -> tuple[float, float, list[float]]:
    connected = [Client(port, token) for _ in range(clients)]
    for client in connected:
        await client.connect()
    await load(connected, max(clients, calls // 10), _TOOL, _ARGUMENTS)
    before, began = cpu_of(pid), time.perf_counter()
    each = await load(connected, calls, _TOOL, _ARGUMENTS)
    took, spent = time.perf_counter() - began, cpu_of(pid) - before
    for client in connected:
        client.close()
    return spent, took, each


async def _memory(port: int, pid: int, token: str, count: int) -> float:
    """Kilobytes the server grows by for each agent that connects, calls a tool and stays."""
    clients = [Client(port, token) for _ in range(count + 20)]
    for client in clients[:20]:
        await _settle(client)
    before = memory_of(pid)
    for client in clients[20:]:
        await _settle(client)
    grown = memory_of(pid) - before
    for client in clients:
        client.close()
    return grown / count


async def _settle(client: Client) -> None:
    await client.connect()
    await client.listen()
    await client.ask("tools/call", {"name": _TOOL, "arguments": _ARGUMENTS})


def memory_of(pid: int) -> float:
    """Kilobytes a process holds in memory."""
    text = Path(f"/proc/{pid}/status").read_text()
    return float(next(line.split()[1] for line in text.splitlines() if line.startswith("VmRSS:")))

"""The database's log stays small under a stdio server, with no coordinator to move it into the file."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.integration.mcp_fixture import Coordinated
from tests.mcp_client import StdioClient
from tests.support import wait_until

_WITHOUT_PAUSE = 50
# The stdio server, when a checkpoint is due at every beat and a beat every few calls.
_PROGRAM = """
import runpy
from swarm_mcp import pipe
pipe._BEAT_EVERY = 0.01
pipe._CHECKPOINT_EVERY = 0.0
runpy.run_module("swarm_mcp", run_name="__main__")
"""


def times_begun_anew(log: Path) -> int:
    """SQLite counts in the header of the log how often it was all in the file and written from its start again."""
    with log.open("rb") as opened:
        return int.from_bytes(opened.read(16)[12:])


def log_of(mcp: Coordinated) -> Path:
    database = mcp.world.settings.database_path
    return database.with_name(database.name + "-wal")


def piped(mcp: Coordinated) -> StdioClient:
    with mcp.swarm() as swarm:
        swarm.ensure_operator_token()
    environ = mcp.world.environ | {"SWARM_TOKEN": mcp.operator_token}
    client = StdioClient(environ, command=[sys.executable, "-P", "-c", _PROGRAM, "--stdio"])
    mcp.clients.append(client)
    client.initialize()
    return client


def calls_until_begun_anew(client: StdioClient, log: Path, times: int) -> int:
    """Call again and again; how many calls it took."""
    calls = 0

    def begun_anew() -> bool:
        nonlocal calls
        for _ in range(_WITHOUT_PAUSE):
            assert client.call("query_instances").ok
            calls += 1
        return times_begun_anew(log) >= times

    wait_until(begun_anew, timeout=60, what=f"a log that was begun anew {times} times")
    return calls


def test_the_log_begins_anew_again_and_again_while_a_stdio_server_answers(stopped_mcp: Coordinated) -> None:
    client, log = piped(stopped_mcp), log_of(stopped_mcp)
    calls = calls_until_begun_anew(client, log, 3)

    def told() -> int:
        return len(stopped_mcp.events(tool="query_instances"))

    # While the log is moved, the event of a read is written after its answer.
    wait_until(lambda: told() >= calls, timeout=30, what="an event of every call")
    assert told() == calls

"""The MCP inspector, a client that nobody here wrote, lists and calls tools on both transports."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from docs import contract as snapshot
from tests.integration.mcp_fixture import Coordinated
from tests.integration.mcp_lines import TRANSPORTS, coordinated

PROGRAM = Path(sys.prefix) / "npm" / "node_modules" / ".bin" / "mcp-inspector-cli"

pytestmark = pytest.mark.skipif(
    shutil.which("npm") is None and not os.environ.get("CI"), reason="npm is missing, which installs it"
)


@pytest.fixture(scope="module")
def shared() -> Iterator[Coordinated]:
    assert PROGRAM.exists(), "the MCP inspector is not installed: run `make setup`"
    with coordinated() as made:
        yield made


def server(shared: Coordinated, transport: str) -> list[str]:
    """What the inspector is told about where the server is and who asks."""
    token = shared.operator_token
    if transport == "http":
        url = f"http://127.0.0.1:{shared.port}/mcp"
        return [url, "--transport", "http", "--header", f"Authorization: Bearer {token}"]
    environ = [f"SWARM_HOME={shared.world.home}", f"SWARM_TOKEN={token}"]
    command = [str(Path(sys.prefix) / "bin" / "swarm"), "mcp", "--stdio"]
    return [*(word for pair in environ for word in ("-e", pair)), *command]


def inspect(server: list[str], method: str, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [str(PROGRAM), "--cli", *server, "--method", method, *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=100, check=False)


def shown(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_inspector_lists_the_tools(shared: Coordinated, transport: str) -> None:
    listed = shown(inspect(server(shared, transport), "tools/list"))["tools"]
    expected = json.loads(snapshot.SNAPSHOT.read_text())["tools"]
    assert {tool["name"]: tool["inputSchema"] for tool in listed} == {
        name: tool["inputSchema"] for name, tool in expected.items()
    }


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_inspector_calls_a_tool(shared: Coordinated, transport: str) -> None:
    words = ("--tool-name", "query_instances", "--tool-arg", "limit=3")
    answer = shown(inspect(server(shared, transport), "tools/call", *words))
    assert answer["structuredContent"] == {"instances": [], "total": 0, "you": "operator"}
    assert json.loads(answer["content"][0]["text"]) == answer["structuredContent"]


def test_the_inspector_shows_which_argument_is_wrong(shared: Coordinated) -> None:
    words = ("--tool-name", "query_instances", "--tool-arg", "surplus=3")
    done = inspect(server(shared, "http"), "tools/call", *words)
    assert done.returncode == 1
    assert "-32602" in done.stderr
    assert "surplus" in done.stderr


def test_the_inspector_without_a_token_is_refused(shared: Coordinated) -> None:
    done = inspect([f"http://127.0.0.1:{shared.port}/mcp", "--transport", "http"], "tools/list")
    assert done.returncode == 1
    assert "UNAUTHORIZED" in done.stderr

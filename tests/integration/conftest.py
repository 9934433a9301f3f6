"""Worlds for integration tests; each ends its tmux server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.forging_fixture import gate, town
from tests.integration.mcp_fixture import mcp, stopped_mcp
from tests.world import World

__all__ = ["gate", "mcp", "stopped_mcp", "town"]


@pytest.fixture
def world(short_tmp: Path, repo: Path) -> Iterator[World]:
    made = World(short_tmp / "h", repo)
    yield made
    made.kill_tmux()

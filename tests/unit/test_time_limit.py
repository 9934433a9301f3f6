"""How long a call may take: as somebody has set it, and only without that longer for some tools."""

from __future__ import annotations

from pathlib import Path

import pytest

from swarm_core import config
from swarm_mcp import registry
from swarm_mcp.dispatch import LONG_TIMEOUT, time_limit

LONG = ("spawn_review_instance", "spawn_fork_instance", "create_pull_request", "merge_pull_request")


def limits(environ: dict[str, str]) -> dict[str, float]:
    settings = config.load(environ)
    return {name: time_limit(settings, tool) for name, tool in registry.tools().items()}


def test_by_default_spawns_and_pull_requests_take_longer(tmp_path: Path) -> None:
    found = limits({"SWARM_HOME": str(tmp_path)})
    assert {name for name, limit in found.items() if limit == LONG_TIMEOUT} == set(LONG)
    assert {limit for name, limit in found.items() if name not in LONG} == {120.0}


@pytest.mark.parametrize(("given", "seconds"), [("120000", 120.0), ("4000", 4.0), ("0", 0.0)])
def test_a_limit_that_is_set_holds_for_every_tool_even_if_it_is_the_default(
    tmp_path: Path, given: str, seconds: float
) -> None:
    assert set(limits({"SWARM_HOME": str(tmp_path), "MCP_TOOL_TIMEOUT": given}).values()) == {seconds}
    (tmp_path / "config.toml").write_text(f"tool_timeout_ms = {given}\n")
    assert set(limits({"SWARM_HOME": str(tmp_path)}).values()) == {seconds}

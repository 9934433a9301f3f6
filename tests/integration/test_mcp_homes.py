"""Servers of different homes that share one database."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from swarm_core.store import feedback
from tests.integration.crash_fixture import Crashing, crashing, settle

__all__ = ["crashing"]

_META = {"swarm/idempotencyKey": "one"}


@pytest.mark.parametrize("by", ["its path", "a symbolic link"])
def test_a_call_under_way_is_known_to_a_server_of_another_home(
    crashing: Crashing, short_tmp: Path, by: str
) -> None:
    mcp, database = crashing.mcp, crashing.mcp.world.settings.database_path
    if by == "a symbolic link":
        (short_tmp / "link.db").symlink_to(database)
        database = short_tmp / "link.db"
    with mcp.swarm() as swarm:
        work = mcp.world.work(swarm)
    said = {"instance_id": work.id, "feedback": "Please add a test.", "feedback_type": "suggestions"}
    first = mcp.operator()
    crashing.hold("feedback:file:after")
    with ThreadPoolExecutor(1) as threads:
        under_way = threads.submit(first.call, "send_feedback", _META, **said)
        try:
            crashing.wait_held({"feedback:file:after"})
            elsewhere = {"SWARM_HOME": str(short_tmp / "other"), "MCP_DATABASE_PATH": str(database)}
            second = mcp.stdio(mcp.operator_token, initialize=True, **elsewhere)
            assert second.call("send_feedback", _META, **said).code == "REQUEST_IN_PROGRESS"
        finally:
            crashing.let_go()
        answer = under_way.result(60).ok
    again = second.call("send_feedback", _META, **said).ok
    at_any_time = {"delivery_status": ""}  # the agent may see it at any moment
    assert again | at_any_time == answer | at_any_time
    with mcp.swarm() as swarm:
        assert [f.id for f in feedback.of(swarm.context.db, work.id)] == [answer["feedback_id"]]
    assert mcp.events(name="tool:interrupted") == []
    settle(mcp)

"""A secret in a message reaches the agent it was meant for, and stays out of events, search and logs."""

from __future__ import annotations

import json
import logging

import pytest

from swarm_core import process
from swarm_core.store import events, feedback
from tests.integration.mcp_fixture import Coordinated
from tests.integration.review_fixture import finished_work

HIDDEN = {
    "github": "ghp_0123456789abcdefABCDEF0123456789abcd",
    "header": "Authorization: Bearer s3cr3t.bearer-value",
    "password": "password=hunter2andmore",
    "address": "https://bot:hunter3andmore@example.invalid/x.git",
    "aws": "AKIAIOSFODNN7EXAMPLE",
}
WORDS = ("0123456789abcdefABCDEF", "s3cr3t.bearer", "hunter2", "hunter3", "IOSFODNN7")


def test_a_secret_in_feedback_reaches_the_author_and_no_event_nor_the_index(mcp: Coordinated) -> None:
    said = "Do not commit these: " + " ; ".join(HIDDEN.values())
    with mcp.swarm() as swarm:
        work = finished_work(mcp.world, swarm)
    client = mcp.operator()
    client.call("send_feedback", feedback=said, feedback_type="suggestions", instance_id=work.id).ok  # noqa: B018
    client.call("update_instance_status", status="running", message=said, instance_id=work.id)
    client.call("search", query="x", since=said)
    client.call("search", query="x", **{said[:60]: said})
    client.call(said[:80])
    with mcp.swarm() as swarm:
        assert [one.body for one in feedback.of(swarm.context.db, work.id)] == [said]
        rows = swarm.context.db.rows("SELECT * FROM mcp_events")
        kept = json.dumps([[str(value) for value in row] for row in rows], ensure_ascii=False)
        for word in WORDS:
            assert word not in kept, word
            assert swarm.search(word) == []
        assert "[removed]" in kept
        (hit,) = swarm.search("commit these", kinds=["feedback"])
        assert "[removed]" in hit.excerpt
    mcp.stop()
    log = mcp.log.read_text()
    assert [word for word in WORDS if word in log] == []


def test_a_log_line_and_its_traceback_are_without_secrets() -> None:
    try:
        raise ValueError(f"cannot clone {HIDDEN['address']}")
    except ValueError as error:
        record = logging.LogRecord(
            "x",
            logging.ERROR,
            __file__,
            1,
            "tried %s",
            (HIDDEN["github"],),
            (type(error), error, error.__traceback__),
        )
    record.error = {"code": "X", "message": HIDDEN["password"]}
    line = process.JsonLines().format(record)
    assert [word for word in WORDS if word in line] == []
    assert json.loads(line)["error"]["code"] == "X"


@pytest.mark.parametrize("kind", HIDDEN)
def test_what_an_event_says_went_wrong_has_no_secret(mcp: Coordinated, kind: str) -> None:
    with mcp.swarm() as swarm, swarm.context.db.write():
        about = {"command": ["git", HIDDEN[kind]]}
        events.add(
            swarm.context.db,
            "forge:lost",
            actor="x",
            error_code="GITHUB_ERROR",
            error_message=f"failed: {HIDDEN[kind]}",
            metadata=about,
        )
    kept = json.dumps([(e.error_message, e.metadata) for e in mcp.events(name="forge:lost")])
    assert [word for word in WORDS if word in kept] == []

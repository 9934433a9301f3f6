"""A disk that is full or read-only while the coordinator runs: tools say so, and go on when it can be written."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from swarm_core.models import Instance
from tests.integration.broken_fixture import Broken
from tests.integration.test_situations_disk import fill, own_mounts, small_disk
from tests.mcp_client import Client

__all__ = ["own_mounts"]

CODES = ("DISK_FULL", "EXTERNAL_FAILURE", "GIT_COMMAND_FAILED")


@pytest.fixture
def on_small_disk(short_tmp: Path) -> Iterator[Broken]:
    made = Broken(short_tmp)
    with small_disk(made.world.home, "size=24m,mode=700"):
        made.start()
        yield made
        made.end()


def idle_work(broken: Broken) -> Instance:
    """It has nothing more to write: its agent would end if it could not."""
    work = broken.work()
    with broken.mcp.swarm() as swarm:
        return broken.world.wait_idle(swarm, work.id)


@pytest.mark.parametrize("room", [0, 20_000, 100_000])
def test_tools_on_a_full_disk_do_all_or_nothing_and_work_when_there_is_space(
    on_small_disk: Broken, room: int
) -> None:
    broken = on_small_disk
    work = idle_work(broken)
    author, operator = broken.mcp.agent(work), broken.mcp.operator()
    asked: list[tuple[Client, str, dict[str, str]]] = [
        (author, "query_instances", {}),
        (
            operator,
            "send_feedback",
            {"feedback": "x" * 150_000, "feedback_type": "suggestions", "instance_id": work.id},
        ),
        (author, "spawn_fork_instance", {"prompt": "x" * 90_000}),
        (author, "spawn_review_instance", {"reviewer_prompt": "x" * 90_000}),
        (author, "update_instance_status", {"status": "running"}),
    ]
    filler = fill(broken.world.home, but=room)
    codes = []
    for client, tool, arguments in asked:
        answer = broken.call(client, tool, **arguments)
        codes.append(answer.code)
        if answer.code:
            category = "database" if answer.code == "DISK_FULL" else "external"
            broken.check_failure(answer, *CODES, category=category)
    assert codes[2], codes
    assert list(broken.world.home.rglob(".*.new")) == []  # half of a file
    filler.unlink()
    broken.settled()
    for (client, tool, arguments), code in zip(asked, codes, strict=True):
        if code and not (tool == "spawn_review_instance" and broken.find(work).status == "waiting_review"):
            assert broken.call(client, tool, **arguments).ok, tool
    broken.settled()


@contextlib.contextmanager
def read_only(path: Path) -> Iterator[None]:
    """What is open stays so; nothing can be made or opened for writing."""
    subprocess.run(["mount", "--bind", str(path), str(path)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(path)], check=True)
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def test_tools_of_a_home_that_cannot_be_written_do_nothing_and_work_when_it_can_be(short_tmp: Path) -> None:
    broken = Broken(short_tmp)
    broken.start()
    try:
        work = idle_work(broken)
        author, operator = broken.mcp.agent(work), broken.mcp.operator()
        said = {"feedback": "x", "feedback_type": "needs_work", "instance_id": work.id}
        with read_only(broken.world.home):
            for tool in ("spawn_fork_instance", "spawn_review_instance"):
                broken.fails(author, tool, "EXTERNAL_FAILURE", category="external")
            broken.fails(operator, "send_feedback", "EXTERNAL_FAILURE", category="external", **said)
            assert broken.call(author, "query_instances").ok
        broken.settled()
        with broken.mcp.swarm() as swarm:
            assert [i.id for i in swarm.instances()] == [work.id]
        assert broken.find(work).status == "running"
        assert broken.call(operator, "send_feedback", **said).ok
        for tool in ("spawn_fork_instance", "spawn_review_instance"):
            assert broken.call(author, tool).ok
        broken.settled()
    finally:
        broken.end()

"""The coordinator's worker: calls that need threads run there, and neither process outlives the other."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

from swarm_core.models import Principal
from swarm_mcp.dispatch import Answer, Origin
from swarm_mcp.worker import process
from swarm_mcp.worker.frames import Frames
from tests.integration.crash_fixture import Crashing, crashing
from tests.integration.mcp_fixture import Coordinated
from tests.integration.review_fixture import finished_work
from tests.support import wait_until

__all__ = ["crashing"]


def health(mcp: Coordinated) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", mcp.port, timeout=10)
    connection.request("GET", "/health")
    with contextlib.closing(connection):
        found: dict[str, Any] = json.loads(connection.getresponse().read())
    return found


def worker_of(mcp: Coordinated) -> int:
    """The process that the coordinator has forked."""
    assert mcp.child is not None
    of_parent = Path(f"/proc/{mcp.child.pid}/cmdline").read_bytes()
    children = Path(f"/proc/{mcp.child.pid}/task/{mcp.child.pid}/children").read_text().split()
    named = [int(pid) for pid in children if Path(f"/proc/{pid}/cmdline").read_bytes() == of_parent]
    assert len(named) == 1, children
    return named[0]


def is_running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_a_killed_coordinator_takes_its_worker_along_and_the_next_one_starts_at_once(mcp: Coordinated) -> None:
    worker = worker_of(mcp)
    mcp.kill()
    mcp.restart()
    assert not is_running(worker)
    assert mcp.operator().call("query_instances").ok


def test_a_coordinator_whose_worker_was_killed_ends_and_says_so(mcp: Coordinated) -> None:
    assert mcp.child is not None
    os.kill(worker_of(mcp), signal.SIGKILL)
    assert mcp.child.wait(30) == 1
    assert "the worker ended with exit code -9" in mcp.log.read_text()
    mcp.restart()
    assert mcp.operator().call("query_instances").ok


def test_a_call_whose_worker_was_killed_says_so_and_sent_again_takes_effect_once(crashing: Crashing) -> None:
    mcp = crashing.mcp
    with mcp.swarm() as swarm:
        work = finished_work(mcp.world, swarm)
    token = mcp.token(work)
    crashing.hold("spawn:worktree:between")
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(mcp.client(token).call, "spawn_review_instance")
        crashing.wait_held({"spawn:worktree:between"})
        os.kill(worker_of(mcp), signal.SIGKILL)
        answer = call.result(60)
    assert answer.code == "INTERRUPTED"
    assert mcp.child is not None
    assert mcp.child.wait(30) == 1
    mcp.drop_clients()
    crashing.start()
    again = mcp.client(token).call("spawn_review_instance")
    assert again.ok, again.message
    with mcp.swarm() as swarm:
        assert len([one for one in swarm.instances() if one.kind == "review"]) == 1


def test_a_signal_to_the_whole_group_leaves_a_call_under_way_its_answer(crashing: Crashing) -> None:
    mcp = crashing.mcp
    with mcp.swarm() as swarm:
        work = finished_work(mcp.world, swarm)
    worker = worker_of(mcp)
    crashing.hold("spawn:worktree:between")
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(mcp.client(mcp.token(work)).call, "spawn_review_instance")
        crashing.wait_held({"spawn:worktree:between"})
        assert mcp.child is not None
        for pid in (worker, mcp.child.pid):
            os.kill(pid, signal.SIGTERM)
        crashing.let_go()
        assert call.result(60).ok
    assert mcp.child.wait(30) == 0
    assert not is_running(worker)


def test_health_comes_from_the_worker(mcp: Coordinated) -> None:
    wait_until(lambda: health(mcp)["ok"], timeout=30, what="the first look")
    os.kill(worker_of(mcp), signal.SIGSTOP)
    try:
        wait_until(lambda: health(mcp)["last_look_age_s"] > 10, timeout=60, what="the last look is old")
        assert "the last look ended" in health(mcp)["problem"]
    finally:
        os.kill(worker_of(mcp), signal.SIGCONT)
    wait_until(lambda: health(mcp)["ok"], timeout=30, what="it looks again")


def test_programs_that_the_worker_starts_can_be_ended_by_signals(crashing: Crashing) -> None:
    """What ignores a signal hands that on to every program it starts, and a shell cannot undo it."""
    ignored = Path(f"/proc/{worker_of(crashing.mcp)}/status").read_text().partition("SigIgn:")[2].split()[0]
    for number in (signal.SIGTERM, signal.SIGINT):
        assert not int(ignored, 16) & (1 << (number - 1))


class _Silent:
    """A dispatcher whose calls wait until they are cancelled, and a watch that has nothing to say."""

    def __init__(self, answer: Answer | None = None) -> None:
        self.answer = answer
        self.cancelled: list[str] = []

    async def carry_out(self, origin: Origin, name: str, arguments: dict[str, Any]) -> Answer:
        try:
            if self.answer is None:
                await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.cancelled.append(origin.request_id)
            raise
        assert self.answer is not None
        return self.answer


async def _exchange(dispatcher: _Silent, *sent: dict[str, Any]) -> list[dict[str, Any]]:
    """The answers to frames that the desk reads all at once."""
    ours, theirs = socket.socketpair()
    here, there = await Frames.over(ours), await Frames.over(theirs)
    for frame in sent:
        here.send(frame)
    desk = process._Desk(there, cast("Any", dispatcher), cast("Any", None))
    taking = asyncio.create_task(desk.take_frames())
    answer = await asyncio.wait_for(here.receive(), 20)
    here.close()
    await taking
    there.close()
    assert answer is not None
    return [answer]


def _asked(number: int) -> dict[str, Any]:
    who = Origin(Principal("operator", "operator"), "c", str(number), {})
    return {"call": number, "name": "search", "arguments": {}, **process.written(who)}


def test_a_cancel_that_comes_together_with_its_call_ends_it() -> None:
    dispatcher = _Silent()
    [answer] = asyncio.run(_exchange(dispatcher, _asked(7), {"cancel": 7}))
    assert (answer, dispatcher.cancelled) == ({"id": 7, "cancelled": True}, ["7"])


def test_an_answer_that_cannot_be_sent_is_answered_as_a_bug() -> None:
    [answer] = asyncio.run(_exchange(_Silent(Answer({"odd": object()})), _asked(8)))
    assert (answer["id"], answer["error"][2]["code"]) == (8, "INTERNAL")

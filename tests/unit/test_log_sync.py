"""One sync for all who wait: on the event loop while the disk is quick, in a thread when it is not."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from swarm_core.errors import ExternalFailure
from swarm_mcp import log_sync
from swarm_mcp.log_sync import LogSync


class Disk:
    def __init__(self) -> None:
        self.takes = 0.0
        self.failure: BaseException | None = None
        self.on_loop: list[bool] = []

    def sync(self) -> None:
        self.on_loop.append(threading.current_thread() is threading.main_thread())
        time.sleep(self.takes)
        if self.failure is not None:
            raise self.failure


def played(disk: Disk, story: Callable[[LogSync], Coroutine[Any, Any, None]]) -> list[bool]:
    async def play() -> None:
        log = LogSync(disk.sync)
        try:
            await asyncio.wait_for(story(log), 10)
        finally:
            log.close()

    asyncio.run(play())
    return disk.on_loop


def test_calls_of_one_turn_share_a_sync_of_a_quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_sync, "_QUICK", 10.0)  # on a busy machine no disk is quick

    async def story(log: LogSync) -> None:
        await asyncio.gather(*(log.synced() for _ in range(20)))
        await log.synced()

    assert played(Disk(), story) == [True, True]


def test_a_slow_disk_keeps_the_event_loop_once_and_then_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_sync, "_ASIDE", 0.3)
    disk = Disk()
    disk.takes = 0.01

    async def story(log: LogSync) -> None:
        for _ in range(4):
            await asyncio.gather(*(log.synced() for _ in range(5)))
        disk.takes = 0.0
        await asyncio.sleep(0.4)
        await log.synced()

    assert played(disk, story) == [True, False, False, False, True]


@pytest.mark.parametrize("aside", [False, True])
@pytest.mark.parametrize("failure", [ExternalFailure("no space is left"), ValueError("a bug")])
def test_a_sync_that_fails_is_told_to_everyone_who_waits_and_the_next_is_tried(
    failure: Exception, aside: bool
) -> None:
    disk = Disk()
    disk.takes, disk.failure = 0.01 if aside else 0.0, failure

    async def story(log: LogSync) -> None:
        if aside:
            with pytest.raises(type(failure)):
                await log.synced()
        told = await asyncio.gather(*(log.synced() for _ in range(5)), return_exceptions=True)
        assert told == [failure] * 5
        disk.failure = None
        await log.synced()

    played(disk, story)


def test_who_is_woken_and_waits_again_gets_a_sync_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_sync, "_QUICK", 10.0)  # on a busy machine no disk is quick

    async def story(log: LogSync) -> None:
        async def twice() -> None:
            await log.synced()
            await log.synced()

        await asyncio.gather(twice(), twice())

    assert played(Disk(), story) == [True, True]


def test_a_call_that_is_cancelled_takes_no_other_with_it() -> None:
    async def story(log: LogSync) -> None:
        first, second = asyncio.create_task(log.synced()), asyncio.create_task(log.synced())
        await asyncio.sleep(0)
        first.cancel()
        await second
        assert first.cancelled()

    played(Disk(), story)

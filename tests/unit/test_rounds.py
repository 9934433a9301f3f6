"""Threads that ask at the same time share one answer, which is newer than their question."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from swarm_core.errors import ExternalFailure
from swarm_core.hosts.rounds import Rounds
from tests.support import wait_until


class Slow:
    """Answers in upper case, the first time only once it may."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.may = threading.Event()
        self.fails = False

    def __call__(self, names: list[str]) -> dict[str, str]:
        self.asked.append(sorted(names))
        assert self.may.wait(10)
        if self.fails:
            raise ExternalFailure("no answer", code="TMUX_COMMAND_FAILED")
        return {name: name.upper() for name in names if name != "nobody"}


def test_those_who_ask_while_a_round_is_under_way_share_the_next_one() -> None:
    slow = Slow()
    rounds = Rounds(slow)
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(rounds.ask, "a")
        wait_until(lambda: slow.asked, what="the first round begins")
        others = [pool.submit(rounds.ask, name) for name in ("a", "b", "b", "nobody")]
        wait_until(lambda: len(rounds._next.names) == 4, what="four more have asked")
        slow.may.set()
        assert first.result() == "A"
        assert [other.result() for other in others] == ["A", "B", "B", None]
    assert slow.asked == [["a"], ["a", "b", "nobody"]]


def test_a_failure_reaches_all_who_share_it_and_nobody_after_them() -> None:
    slow = Slow()
    rounds = Rounds(slow)
    slow.fails = True
    with ThreadPoolExecutor(8) as pool:
        asking = [pool.submit(rounds.ask, name) for name in ("a", "b")]
        wait_until(lambda: slow.asked, what="a round begins")
        slow.may.set()
        for asked in asking:
            with pytest.raises(ExternalFailure):
                asked.result()
    slow.fails = False
    assert rounds.ask("a") == "A"

"""Actions of the dashboard: accepted at once, done once, told to everybody, and known after a kill."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from swarm_core import cancel, config
from swarm_core.errors import Conflict, InvalidInput, SwarmError
from swarm_core.ops.presence import Servers
from swarm_core.store import requests
from swarm_core.swarm import Swarm
from swarm_ui.web.runner import Runner, Wish
from tests.support import wait_until


@pytest.fixture
def swarm(tmp_path: Path) -> Iterator[Swarm]:
    environ = {"SWARM_HOME": str(tmp_path / "home")}
    with Swarm.open(config.load(environ), environ) as opened:
        yield opened


class Desk:
    """A runner, the frames it has told, and an action that waits until it is let go."""

    def __init__(self, swarm: Swarm, **options: Any) -> None:
        self.swarm = swarm
        self.frames: list[dict[str, Any]] = []
        self.runner = Runner(swarm, publish=self.frames.append, **options)
        self.ran: list[str] = []
        self.go = threading.Event()

    def wish(self, name: str = "message", *, key: str | None = None, by: str = "operator", **options: Any) -> Wish:
        def work(_: Swarm) -> dict[str, Any]:
            self.ran.append(name)
            return {"said": name}

        return Wish(**{"name": name, "instance": None, "body": {}, "by": by, "work": work, "key": key} | options)

    def held(self, **options: Any) -> Wish:
        def work(reporting: Swarm) -> dict[str, Any]:
            reporting.context.report("wait\x1b[2J\n")
            while not self.go.wait(0.01):
                cancel.check()
            return {}

        return self.wish("hold", work=work, **options)

    def ends(self, action_id: str) -> dict[str, Any]:
        def over() -> dict[str, Any] | None:
            found = self.runner.get(action_id)
            return found if found["state"] in ("done", "failed") else None

        found = wait_until(over, what=f"the end of {action_id}")
        assert isinstance(found, dict)
        return found

    def close(self) -> None:
        asyncio.run(self.runner.close())


@pytest.fixture
def desks(swarm: Swarm) -> Iterator[Callable[..., Desk]]:
    made: list[Desk] = []

    def make(**options: Any) -> Desk:
        made.append(Desk(swarm, **options))
        return made[-1]

    yield make
    for desk in made:
        desk.go.set()
        desk.close()


@pytest.fixture
def desk(desks: Callable[..., Desk]) -> Desk:
    return desks()


def kill(desk: Desk) -> None:
    """As a kill does: the kernel lets go of the lock that says it lives, and nothing is written down."""
    desk.runner._presence.close()


def test_an_action_is_accepted_then_runs_then_is_done_and_everybody_is_told(desk: Desk) -> None:
    accepted = desk.runner.accept(desk.held(by="operator:anna"))
    assert (accepted["state"], accepted["name"], accepted["by"]) == ("accepted", "hold", "operator:anna")
    wait_until(lambda: any("text" in f for f in desk.frames), what="a progress line")
    desk.go.set()
    assert desk.ends(accepted["id"])["result"] == {}
    wait_until(lambda: desk.frames[-1]["state"] == "done", what="the last frame")
    assert [f["state"] for f in desk.frames] == ["accepted", "running", "running", "done"]
    assert {f["id"] for f in desk.frames} == {accepted["id"]}
    assert all(f["by"] == "operator:anna" for f in desk.frames)
    assert desk.frames[2]["text"].isprintable()


def test_a_failure_tells_code_and_hint_and_is_recorded_with_who_asked(desk: Desk) -> None:
    def work(_: Swarm) -> dict[str, Any]:
        raise Conflict("no", code="DIALOG_CHANGED", hint="look again")

    accepted = desk.runner.accept(desk.wish("answer", by="operator:anna", work=work))
    error = desk.ends(accepted["id"])["error"]
    assert (error["code"], error["canonical"]) == ("DIALOG_CHANGED", "INVALID_REQUEST")
    assert error["recovery_hint"] == "look again"
    (told,) = [e for e in desk.swarm.events() if e.name == "dashboard:acted"]
    assert (told.actor, told.tool_name, told.error_code) == ("operator:anna", "answer", "DIALOG_CHANGED")


def test_a_bug_is_an_outcome_and_the_next_action_runs(desk: Desk) -> None:
    def work(_: Swarm) -> dict[str, Any]:
        raise ZeroDivisionError

    assert desk.ends(desk.runner.accept(desk.wish(work=work))["id"])["error"]["code"] == "INTERNAL"
    assert desk.ends(desk.runner.accept(desk.wish())["id"])["state"] == "done"


def test_what_is_certain_to_fail_is_refused_and_its_key_stays_free(desk: Desk) -> None:
    def check() -> None:
        raise InvalidInput("never")

    with pytest.raises(InvalidInput):
        desk.runner.accept(desk.wish(key="k", check=check))
    assert desk.frames == []
    desk.ends(desk.runner.accept(desk.wish("stop", key="k"))["id"])
    assert desk.ran == ["stop"]


def test_the_same_key_does_nothing_twice_while_it_runs_and_after(desk: Desk) -> None:
    first = desk.runner.accept(desk.held(key="k"))
    assert desk.runner.accept(desk.held(key="k"))["id"] == first["id"]
    desk.go.set()
    desk.ends(first["id"])
    again = desk.runner.accept(desk.held(key="k"))
    assert (again["id"], again["state"]) == (first["id"], "done")
    assert [f["state"] for f in desk.frames].count("accepted") == 1


def test_a_known_key_is_answered_without_looking_again(desk: Desk) -> None:
    """Cleaning what was cleaned would be refused; whoever lost the answer gets it all the same."""
    first = desk.runner.accept(desk.wish("clean", key="k"))
    desk.ends(first["id"])

    def check() -> None:
        raise Conflict("it is clean")

    assert desk.runner.accept(desk.wish("clean", key="k", check=check))["id"] == first["id"]


@pytest.mark.parametrize("other", [{"body": {"body": "else"}}, {"name": "stop"}, {"instance": "work-a2"}])
def test_a_key_that_was_used_for_something_else_is_refused(desk: Desk, other: dict[str, Any]) -> None:
    desk.ends(desk.runner.accept(desk.wish(key="k"))["id"])
    with pytest.raises(Conflict) as refused:
        desk.runner.accept(desk.wish(**{"name": "message", "key": "k"} | other))
    assert refused.value.code == "KEY_REUSED"
    assert len(desk.ran) == 1


def test_a_key_in_use_by_a_running_action_is_refused_for_another(desk: Desk) -> None:
    desk.runner.accept(desk.held(key="k"))
    with pytest.raises(Conflict) as refused:
        desk.runner.accept(desk.held(key="k", body={"n": 1}))
    assert refused.value.code == "KEY_REUSED"


def test_two_people_may_use_the_same_key_and_no_key_means_a_new_action(desk: Desk) -> None:
    wishes = [desk.wish(key="k", by="anna"), desk.wish(key="k", by="ben"), desk.wish(), desk.wish()]
    assert len({desk.ends(desk.runner.accept(w)["id"])["id"] for w in wishes}) == 4
    assert len(desk.ran) == 4


def test_of_eight_that_send_the_same_key_at_once_one_acts(desk: Desk) -> None:
    found: list[str] = []
    at_once = threading.Barrier(8)

    def ask() -> None:
        at_once.wait()
        found.append(desk.runner.accept(desk.wish(key="k"))["id"])

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    desk.ends(found[0])
    assert desk.ran == ["message"]


def test_a_restarted_dashboard_knows_what_was_done(desks: Callable[..., Desk]) -> None:
    first = desks()
    done = first.ends(first.runner.accept(first.wish(key="k"))["id"])
    first.close()
    second = desks()
    assert second.runner.accept(second.wish(key="k")) == done
    assert second.runner.get(done["id"]) == done
    assert second.ran == []


def test_what_a_kill_cut_off_is_told_to_be_interrupted_and_is_not_done_again(desks: Callable[..., Desk]) -> None:
    first = desks()
    cut_off = first.runner.accept(first.held(key="k"))
    kill(first)
    second = desks()
    assert second.runner.get(cut_off["id"])["error"]["code"] == "INTERRUPTED"
    told = second.runner.accept(second.held(key="k"))
    assert (told["id"], told["state"], told["error"]["code"]) == (cut_off["id"], "failed", "INTERRUPTED")
    assert told["error"]["retry"] is False
    assert second.frames == []
    (event,) = [e for e in second.swarm.events() if e.name == "tool:interrupted"]
    assert event.actor == "operator"


def test_sweeping_the_calls_of_dead_servers_spares_a_living_dashboard(desk: Desk) -> None:
    desk.runner.accept(desk.held(key="k"))
    servers = Servers(desk.swarm.context.settings.server_locks)
    assert requests.sweep(desk.swarm.context.db, servers) == 0
    kill(desk)
    assert requests.sweep(desk.swarm.context.db, servers) == 1


def test_too_many_at_once_are_refused(desks: Callable[..., Desk]) -> None:
    desk = desks(workers=1, waiting=2)
    for _ in range(3):
        desk.runner.accept(desk.held())
    with pytest.raises(SwarmError) as refused:
        desk.runner.accept(desk.held())
    assert refused.value.code == "QUEUE_OVERLOADED"
    desk.go.set()
    wait_until(lambda: desk.runner.size == 0, what="the queue is empty")
    desk.ends(desk.runner.accept(desk.wish())["id"])


def test_closing_stops_what_runs_and_what_waits_may_be_asked_for_again(desks: Callable[..., Desk]) -> None:
    first = desks(workers=1)
    running, waiting = first.runner.accept(first.held(key="k1")), first.runner.accept(first.wish(key="k2"))
    wait_until(lambda: any("text" in f for f in first.frames), what="the first runs")
    first.close()
    told = {f["id"]: f for f in first.frames}
    for one in (running, waiting):
        assert told[one["id"]]["error"]["code"] == "SHUTTING_DOWN"
        assert told[one["id"]]["error"]["retry"] is True
    with pytest.raises(SwarmError) as refused:
        first.runner.accept(first.wish())
    assert refused.value.code == "SHUTTING_DOWN"
    second = desks()
    second.ends(second.runner.accept(second.wish(key="k2"))["id"])
    assert second.ran == ["message"]


def test_the_last_actions_can_be_asked_for_and_no_others(desk: Desk) -> None:
    with pytest.raises(SwarmError) as unknown:
        desk.runner.get("a_77")
    assert unknown.value.code == "NOT_FOUND"
    for odd in ("", "a_", "a_-1", "77", "a_1e3", "a_٣", "a_" + "9" * 30):
        with pytest.raises(SwarmError):
            desk.runner.get(odd)
    with desk.swarm.context.db.write():
        claim = requests.claim(
            desk.swarm.context.db,
            principal="operator",
            tool="create_pull_request",
            digest="d",
            key=None,
            server="1-x",
            servers=Servers(desk.swarm.context.settings.server_locks),
        )
    with pytest.raises(SwarmError):
        desk.runner.get(f"a_{claim.id}")


def test_another_key_is_another_action_also_when_the_first_was_cut_off(desks: Callable[..., Desk]) -> None:
    first = desks()
    cut_off = first.runner.accept(first.held(key="k1"))
    kill(first)
    second = desks()
    second.go.set()
    anew = second.runner.accept(second.held(key="k2"))
    assert anew["id"] != cut_off["id"]
    assert second.ends(anew["id"])["state"] == "done"
    assert second.runner.accept(second.held(key="k1"))["error"]["code"] == "INTERRUPTED"

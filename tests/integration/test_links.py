"""`swarm link` and the links and visits behind it: made, used, listed, revoked, over."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from swarm_core import process
from swarm_core.errors import InvalidInput, NotFound
from swarm_core.models import iso
from swarm_core.ops import links
from swarm_core.store import dismissed, visits
from swarm_core.swarm import Swarm
from swarm_ui.web.doors import Doors, Shown
from tests.integration.doors_fixture import Dashboard, own_dashboard, token_of
from tests.support import wait_until
from tests.world import World

__all__ = ["own_dashboard"]

PORT = 7777
MORNING = datetime(2026, 3, 1, 8, tzinfo=UTC)


class Clock:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.now = MORNING

    def __call__(self) -> datetime:
        return self.now

    def later(self, **span: float) -> None:
        self.now += timedelta(**span)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def made(swarm: Swarm, **wish: Any) -> str:
    return links.make(swarm.context, **{"may_write": True} | wish).token


def entered(swarm: Swarm, **wish: Any) -> str:
    """The secret of a new visit."""
    found = links.enter(swarm.context, made(swarm, **wish), port=PORT)
    assert found is not None
    return found.secret


def doors(swarm: Swarm) -> Doors:
    """Without what it remembers of the last second."""
    return Doors(swarm, PORT)


def name(swarm: Swarm, secret: str) -> str | None:
    found = doors(swarm).who(Shown(cookies=(secret,)))
    return found.name if found else None


def test_a_link_that_may_act_is_good_once_and_for_fifteen_minutes(world: World, clock: Clock) -> None:
    with world.open(clock=clock) as swarm:
        first, second, third = made(swarm), made(swarm), made(swarm)
        assert links.enter(swarm.context, first, port=PORT) is not None
        assert links.enter(swarm.context, first, port=PORT) is None
        clock.later(minutes=14, seconds=59)
        assert links.enter(swarm.context, second, port=PORT) is not None
        clock.later(seconds=1)
        assert links.enter(swarm.context, third, port=PORT) is None
        for nonsense in ("", "x" * 43, "\udcff", "\0"):
            assert links.enter(swarm.context, nonsense, port=PORT) is None


def test_a_visit_ends_after_thirty_days_without_its_browser(world: World, clock: Clock) -> None:
    with world.open(clock=clock) as swarm:
        secret = entered(swarm)
        for _ in range(3):
            clock.later(days=29)
            assert name(swarm, secret) == "operator", "each time it is seen the days begin anew"
        clock.later(days=30, minutes=1)
        assert name(swarm, secret) is None
        assert visits.listed(swarm.context.db) == []


def test_being_seen_is_written_now_and_then_and_not_for_every_request(world: World, clock: Clock) -> None:
    with world.open(clock=clock) as swarm:
        secret = entered(swarm)
        clock.later(minutes=4)
        assert name(swarm, secret) == "operator"
        assert visits.listed(swarm.context.db)[0].seen_at == iso(MORNING)
        clock.later(minutes=2)
        assert name(swarm, secret) == "operator"
        assert visits.listed(swarm.context.db)[0].seen_at == iso(clock.now)


def test_a_shared_link_and_its_visits_end_together(world: World, clock: Clock) -> None:
    with world.open(clock=clock) as swarm:
        token = made(swarm, may_write=False, hours=8)
        clock.later(hours=7)
        found = links.enter(swarm.context, token, port=PORT)
        assert found is not None
        assert name(swarm, found.secret) == "viewer"
        clock.later(hours=1)
        assert name(swarm, found.secret) is None
        assert links.enter(swarm.context, token, port=PORT) is None
        by_default = made(swarm, may_write=False)
        clock.later(hours=23)
        assert links.enter(swarm.context, by_default, port=PORT) is not None
        clock.later(hours=1)
        assert links.enter(swarm.context, by_default, port=PORT) is None


def test_a_visit_is_good_at_its_own_port(world: World) -> None:
    with world.open() as swarm:
        secret = entered(swarm)
        assert Doors(swarm, PORT).who(Shown(cookies=(secret,))) is not None
        assert Doors(swarm, PORT + 1).who(Shown(cookies=(secret,))) is None


def test_revoking_by_name_ends_links_and_visits_and_by_id_that_one(world: World) -> None:
    with world.open() as swarm:
        anna, ben = entered(swarm, name="anna"), entered(swarm, name="ben")
        unused = made(swarm, name="anna")
        shared = links.make(swarm.context, may_write=False)
        guest = links.enter(swarm.context, shared.token, port=PORT)
        assert guest is not None
        ended, over = links.revoke(swarm.context, "anna")
        assert (len(ended), len(over)) == (1, 1), "a link that is used up has ended by itself"
        assert (name(swarm, anna), name(swarm, ben)) == (None, "operator:ben")
        assert links.enter(swarm.context, unused, port=PORT) is None
        ended, over = links.revoke(swarm.context, shared.link.id)
        assert ([one.id for one in ended], [one.id for one in over]) == ([shared.link.id], [guest.visit.id])
        assert name(swarm, guest.secret) is None
        ours = visits.listed(swarm.context.db)[0]
        assert links.revoke(swarm.context, ours.id) == ([], [ours])
        assert name(swarm, ben) is None
        with pytest.raises(NotFound) as missing:
            links.revoke(swarm.context, "ben")
        assert missing.value.code == "LINK_NOT_FOUND"
        with pytest.raises(NotFound) as missing:
            links.revoke(swarm.context, unused)
        assert unused not in missing.value.message
        told = [e.name for e in swarm.events() if e.name.startswith(("link:", "visit:"))]
        assert told.count("link:made") == 4
        assert told.count("visit:started") == 3
        assert told.count("link:ended") == 2
        assert told.count("visit:ended") == 3


def test_whoever_leaves_is_out_at_once(world: World) -> None:
    with world.open() as swarm:
        secret = entered(swarm, name="anna")
        at = doors(swarm)
        assert at.who(Shown(cookies=(secret,))) is not None
        at.end(visits.listed(swarm.context.db)[0].id)
        assert at.who(Shown(cookies=(secret,))) is None
        assert [e.actor for e in swarm.events() if e.name == "visit:ended"] == ["operator:anna"]


def test_who_it_was_a_moment_ago_asks_the_database_nothing(world: World) -> None:
    with world.open() as swarm:
        ticks = [0.0]
        at = Doors(swarm, PORT, clock=lambda: ticks[0])
        shown = Shown(cookies=(entered(swarm),))
        assert at.remembered(shown) is None
        assert at.who(shown) == at.remembered(shown)
        links.revoke(swarm.context, visits.listed(swarm.context.db)[0].id)
        ticks[0] = 0.9
        assert at.who(shown) is not None
        ticks[0] = 1.1
        assert at.who(shown) is None
        assert at.remembered(shown) is None


def test_a_flood_of_refusals_is_an_event_now_and_then_with_a_count(world: World) -> None:
    with world.open() as swarm:
        ticks = [100.0]
        at = Doors(swarm, PORT, clock=lambda: ticks[0])

        def told() -> list[tuple[str | None, Any]]:
            found = [e for e in swarm.events(limit=500) if e.name == "auth:refused"]
            return [(e.error_message, e.metadata.get("count")) for e in found]

        for _ in range(50):
            at.refused("no token", code="UNAUTHORIZED", path="/")
        at.refused("another site", code="FORBIDDEN")
        assert told() == [("no token", None)], "one a second, of whatever kind"
        ticks[0] += 1.0
        at.refused("another site", code="FORBIDDEN")
        at.refused("no token", code="UNAUTHORIZED")
        assert told()[1:] == [("another site", 2)]
        ticks[0] += 9.0
        at.refused("no token", code="UNAUTHORIZED")
        assert told()[2:] == [("no token", 51)], "of one kind, one in ten seconds"


@pytest.mark.parametrize("wrong", ["Anna", "a b", "x" * 65, "l0123abcd", "anna\n", "../x"])
def test_a_name_that_could_be_taken_for_something_else_is_refused(world: World, wrong: str) -> None:
    with world.open() as swarm, pytest.raises(InvalidInput):
        links.make(swarm.context, may_write=True, name=wrong)


def test_a_need_that_was_dismissed_is_known_with_its_time(world: World, clock: Clock) -> None:
    with world.open(clock=clock) as swarm:
        db, instance = swarm.context.db, world.work(swarm)
        for _ in range(2):
            clock.later(minutes=1)
            with db.write():
                dismissed.add(db, instance.id, "failed", by="operator:anna")
        assert dismissed.listed(db) == {(instance.id, "failed"): iso(clock.now)}


# The command


def command(world: World, *words: str) -> Any:
    done = world.command("link", *words, "--json")
    return json.loads(done.stdout)


def test_link_needs_a_dashboard(world: World) -> None:
    assert command(world)["error"]["code"] == "DASHBOARD_NOT_RUNNING"
    assert command(world, "--list") == []


def test_link_prints_one_that_opens_the_dashboard(own_dashboard: Dashboard) -> None:
    world = own_dashboard.world
    done = world.command("link", "--name", "anna")
    url = done.stdout.decode().strip()
    assert url.startswith(f"{own_dashboard.origin}/?token=")
    answer = own_dashboard.ask(f"/?token={token_of(url)}")
    assert answer.status == 303
    shared = command(world, "--read-only", "--hours", "2")
    assert set(shared) == {"id", "url", "name", "may_write", "expires_at"}
    assert own_dashboard.ask(f"/?token={token_of(shared['url'])}").status == 303
    found = command(world, "--list")
    assert [(one["kind"], one["name"], one["may_write"]) for one in found] == [
        ("link", "", False),
        ("visit", "anna", True),
        ("visit", "", False),
    ]
    assert "token" not in json.dumps(found)
    table = world.command("link", "--list").stdout.decode()
    assert all(one["id"] in table for one in found)
    ended = command(world, "--revoke", "anna")
    assert ended["visits"] == [found[1]["id"]]
    cookie = ("Cookie", answer.headers["set-cookie"].split(";")[0])
    wait_until(lambda: own_dashboard.ask("/", headers=[cookie]).status == 401, timeout=5, what="anna is out")
    assert command(world, "--revoke", "anna")["error"]["code"] == "LINK_NOT_FOUND"
    for wrong in (
        ("--hours", "3"),
        ("--read-only", "--hours", "0"),
        ("--name", "A B"),
        ("--list", "--revoke", "x"),
    ):
        assert "error" in command(world, *wrong), wrong


@pytest.fixture
def home(world: World) -> Any:
    yield world
    world.command("down")
    assert process.running(world.settings, process.DASHBOARD) is None


ANY_PORT = ("--mcp-port", "0", "--ui-port", "0")


def test_up_tells_a_link_and_keeps_it_out_of_the_logs(home: World) -> None:
    done = home.command("up", "--detach", *ANY_PORT, "--json")
    told = json.loads(done.stdout)
    token = token_of(told["dashboard"]["link"])
    dashboard = Dashboard(home, port=told["dashboard"]["port"])
    assert dashboard.ask(f"/?token={token}").status == 303
    for path in Path(home.home).rglob("*.log"):
        assert b"token=" not in path.read_bytes(), path
    assert home.command("down").returncode == 0
    plain = home.command("up", "--detach", *ANY_PORT).stdout.decode()
    assert "/?token=" in plain


def test_up_in_the_foreground_gives_a_link_to_whoever_asks_for_json(home: World) -> None:
    argv = [sys.executable, "-m", "swarm_ui.cli", "up", *ANY_PORT]
    for words, linked in (["--json"], True), ([], False):
        with subprocess.Popen([*argv, *words], env=home.environ, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            first = child.stdout.readline().decode()
            child.send_signal(signal.SIGTERM)
            rest = child.stdout.read().decode()
            assert child.wait(30) == 0
        assert ("/?token=" in first + rest) is linked


# Two maintainers


def test_what_a_named_maintainer_does_is_told_under_that_name(world: World) -> None:
    anna = "operator:anna"
    with world.open() as swarm:
        instance = world.work(swarm, "read; say done")
        assert swarm.message(instance.id, "hello", sender=anna).sender == anna
        swarm.send_feedback(instance.id, "look again", feedback_type="suggestions", priority="low", actor=anna)
        swarm.stop(instance.id, actor=anna)
        found = {e.name for e in swarm.events(limit=500) if e.actor == anna}
        assert found >= {"message:accepted", "feedback:sent", "action:started", "instance:status"}
        assert [m.sender for m in swarm.detail(instance.id).messages] == [anna, anna]

"""The governor of GitHub's quota: what it lets through, and what it remembers for every process."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from swarm_core.errors import ExternalFailure
from swarm_core.forge import Quota
from swarm_core.models import iso, parse_iso
from swarm_core.ops.quota import Governor, account_of
from swarm_core.store import quota as shares
from swarm_core.swarm import Swarm
from tests.integration.forge_fixture import Clock, clock
from tests.world import World

__all__ = ["clock"]

HOST = "github.com"


@pytest.fixture
def swarm(world: World, clock: Clock) -> Iterator[Swarm]:
    world.home.mkdir(exist_ok=True)
    (world.home / "config.toml").write_text("github_hourly = 40\n")
    with world.open(clock=clock) as opened:
        yield opened


def governor(swarm: Swarm, *, person: bool = True, token: str | None = "ghp_one") -> Governor:
    return Governor(swarm.context, HOST, person, account_of(token))


def refused(gate: Governor, resource: str) -> str:
    """When it may be asked again; empty if it may be asked now."""
    try:
        gate.enter(resource)
    except ExternalFailure as error:
        return str(error.details["retry_at"])
    return ""


def used_up(clock: Clock, resource: str, minutes: int = 50) -> Quota:
    return Quota(5000, 0, iso(clock() + timedelta(minutes=minutes)), resource)


def test_an_account_is_a_token_that_cannot_be_told_from_it():
    assert (account_of(None), account_of("")) == ("", "")
    assert len(account_of("ghp_one")) == 12
    assert account_of("ghp_one") != account_of("ghp_two")
    assert "one" not in account_of("ghp_one")


@pytest.mark.parametrize("status", [200, 403])
def test_a_quota_that_is_used_up_stops_only_what_it_is_for(swarm: Swarm, clock: Clock, status: int):
    gate, spent = governor(swarm), used_up(clock, "graphql")
    gate.leave(status=status, quota=spent, retry_after=3000.0 if status == 403 else None)
    assert refused(gate, "graphql") == spent.reset_at
    assert refused(gate, "core") == ""
    clock.move(3001)
    assert refused(gate, "graphql") == ""


def test_another_account_has_its_own_quota_and_its_own_limits(swarm: Swarm, clock: Clock):
    anonymous = governor(swarm, token=None)
    anonymous.leave(status=403, quota=used_up(clock, "core"), retry_after=3000)
    anonymous.leave(status=403, quota=None, retry_after=60)
    assert refused(anonymous, "core")
    for token in ("ghp_one", "ghp_two"):
        assert refused(governor(swarm, token=token), "core") == ""


def test_a_limit_that_is_not_the_quota_stops_everything_and_is_never_shortened(swarm: Swarm, clock: Clock):
    gate = governor(swarm)
    gate.leave(status=403, quota=Quota(5000, 4000, iso(clock() + timedelta(minutes=9)), "core"), retry_after=3600)
    until = iso(clock() + timedelta(hours=1))
    gate.leave(status=502, quota=None, retry_after=5)
    assert [refused(gate, resource) for resource in ("core", "graphql")] == [until, until]
    clock.move(3601)
    assert [refused(gate, resource) for resource in ("core", "graphql")] == ["", ""]


def test_the_last_of_the_quota_is_for_people(swarm: Swarm, clock: Clock):
    left = Quota(5000, 900, iso(clock() + timedelta(minutes=9)), "core")
    governor(swarm).leave(status=200, quota=left, retry_after=None)
    assert refused(governor(swarm), "core") == ""
    assert refused(governor(swarm, person=False), "core") == left.reset_at
    assert refused(governor(swarm, person=False), "graphql") == ""


def test_no_sixty_minutes_have_more_than_the_share_of_the_hour(swarm: Swarm, clock: Clock):
    gate, let_through = governor(swarm, person=False), []
    for minute in range(240):
        clock.move(60)
        if minute % 60 < 45:
            continue  # bursts, which are what a fixed window lets through twice
        for _ in range(10):
            if not refused(gate, "core"):
                let_through.append(clock())
                gate.leave(status=200, quota=None, retry_after=None)
                gate.leave(status=304, quota=None, retry_after=None)
    most = max(sum(at <= other < at + timedelta(hours=1) for other in let_through) for at in let_through)
    assert 10 <= most <= 40
    assert len(let_through) >= 40


def test_the_share_is_one_for_all_kinds_of_requests_and_comes_back(swarm: Swarm, clock: Clock):
    gate = governor(swarm, person=False)
    for number in range(10):
        resource = ("core", "graphql")[number % 2]
        assert refused(gate, resource) == ""
        gate.leave(status=200, quota=Quota(5000, 4000, iso(clock()), resource), retry_after=None)
    again = refused(gate, "core")
    assert clock() < parse_iso(again) <= clock() + timedelta(minutes=20)
    assert refused(governor(swarm), "core") == ""
    clock.time = parse_iso(again)
    assert refused(gate, "core") == ""


def test_what_is_left_is_listed_by_account(swarm: Swarm, clock: Clock):
    for token in ("ghp_one", "ghp_two"):
        governor(swarm, token=token).leave(status=200, quota=used_up(clock, "core"), retry_after=None)
    assert {share.account for share in shares.listed(swarm.context.db, HOST)} == {
        account_of("ghp_one"),
        account_of("ghp_two"),
    }

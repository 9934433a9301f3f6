"""What `swarm status` and /metrics say of GitHub: what is left, how old what is known is, what waits."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import json
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from swarm_core.forge import Check, Quota, Review
from swarm_core.models import iso, parse_iso
from swarm_core.ops import forge_overview, pull_look
from swarm_core.ops.pull_status import Policy
from swarm_core.store import pull_facts, pulls, quota
from swarm_core.store.database import Database
from swarm_core.swarm import Swarm
from tests.fakes.github_server import TOKEN
from tests.integration.github_fixture import HubWorld, hub
from tests.integration.mcp_fixture import Coordinated
from tests.integration.review_fixture import finished_work
from tests.integration.test_mcp_endpoints import read_metrics
from tests.world import World

__all__ = ["hub"]


def status(world: World) -> tuple[dict[str, Any], str]:
    """As a program and as a person sees it."""
    ran = [world.command("status", *more) for more in (("--json",), ())]
    assert [one.returncode for one in ran] == [0, 0], ran[0].stderr.decode()
    assert all(TOKEN.encode() not in one.stdout + one.stderr for one in ran)
    return json.loads(ran[0].stdout), ran[1].stdout.decode()


def later(swarm: Swarm, **span: float) -> str:
    return iso(parse_iso(swarm.context.db.now()) + timedelta(**span))


def spend(swarm: Swarm, host: str, *, remaining: int = 342, **more: str) -> None:
    db = swarm.context.db
    told = Quota(5000, remaining, later(swarm, minutes=23, seconds=10), **more)
    with db.write():
        quota.spend(db, host, told.resource, told, window_at="", counts=True)


def test_without_github_nothing_is_said_of_it(world: World) -> None:
    body, shown = status(world)
    assert body["github"] == []
    assert body["pulls"] == {"open": 0, "by_status": {}, "oldest_s": None, "queued": 0}
    with world.open() as swarm:
        finished_work(world, swarm)
    body, shown = status(world)
    assert body["github"] == []
    assert "GitHub" not in shown
    assert "pull request" not in shown


def test_local_pull_requests_are_counted_and_github_is_not_named(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        swarm.open_pull(work.id, title="Make it", description="")
    body, shown = status(world)
    assert body["github"] == []
    assert body["pulls"] == {"open": 1, "by_status": {"open": 1}, "oldest_s": None, "queued": 0}
    assert "1 open (1 open)" in shown
    assert "GitHub" not in shown


def test_what_is_left_of_every_quota_is_a_line(world: World) -> None:
    with world.open() as swarm:
        spend(swarm, "github.com")
        spend(swarm, "github.com", remaining=4000, resource="graphql")
        spend(swarm, "ghe.example")
        with swarm.context.db.write():
            quota.block(swarm.context.db, "ghe.example", later(swarm, minutes=5, seconds=10))
    body, shown = status(world)
    assert re.search(r"^forge +GitHub 342/5000, resets in \d+ min$", shown, re.MULTILINE)
    assert re.search(r"^forge +GitHub graphql 4000/5000, resets in \d+ min$", shown, re.MULTILINE)
    assert re.search(
        r"GitHub \(ghe.example\) 342/5000, resets in \d+ min, waits \d+ (min|s)$", shown, re.MULTILINE
    )
    enterprise, public = body["github"]
    assert (enterprise["host"], public["host"]) == ("ghe.example", "github.com")
    assert [(q["resource"], q["remaining"]) for q in public["quota"]] == [("core", 342), ("graphql", 4000)]
    assert enterprise["quota"][0]["blocked_until"]
    assert (public["open"], public["unanswered"], public["silent_s"]) == (0, 0, None)


def test_open_pull_requests_are_counted_by_what_they_are_at(hub: HubWorld) -> None:
    with hub.open() as swarm:
        first, pull = hub.proposed(swarm)
        second, _ = hub.proposed(swarm, "two.txt")
        hub.look(swarm)
        with swarm.context.db.write():
            pull_facts.replace_checks(swarm.context.db, pull.id, [Check("1", "tests", "failed")])
        swarm.pulls.enqueue(second.id)
        known = {first.id, second.id}
        assert {one.pull.instance_id for one in swarm.pulls.listed()} == known
        with swarm.context.db.write():
            for one in pulls.listed(swarm.context.db):
                age = later(swarm, minutes=-4) if one.id == pull.id else later(swarm, seconds=-20)
                pulls.looked(swarm.context.db, one, looked_at=age)
    body, shown = status(hub)
    assert body["pulls"]["open"] == 2
    assert body["pulls"]["by_status"] == {"checks failed": 1, "open": 1}
    assert body["pulls"]["queued"] == 1
    assert body["pulls"]["oldest_s"] >= 240
    said = r"2 open \(1 checks failed, 1 open\), known as of \d+ min ago, 1 in the merge queue"
    assert re.search(said, shown)
    (one,) = body["github"]
    assert (one["open"], one["unanswered"]) == (2, 0)
    assert one["quota"][0]["quota"] == 5000
    assert "not reached" not in shown


def test_that_github_does_not_answer_is_said_with_how_old_what_is_known_is(hub: HubWorld) -> None:
    with hub.open() as swarm:
        hub.proposed(swarm)
        hub.proposed(swarm, "two.txt")
        hub.look(swarm)
        with swarm.context.db.write():
            for one in pulls.listed(swarm.context.db):
                pulls.looked(swarm.context.db, one, looked_at=later(swarm, minutes=-12))
        hub.api.go_down()
        hub.look(swarm)
    body, shown = status(hub)
    (one,) = body["github"]
    assert one["unanswered"] == 2
    assert one["silent_s"] >= 720
    assert "GITHUB_UNREACHABLE" in one["problem"]
    assert re.search(r"GitHub \(127.0.0.1:\d+\) not reached since \d+ min, 2 pull requests wait: GitHub", shown)
    hub.api.come_back()
    with hub.open() as swarm:
        hub.look(swarm)
    body, shown = status(hub)
    assert (body["github"][0]["unanswered"], body["github"][0]["silent_s"]) == (0, None)
    assert "not reached" not in shown


def test_one_that_was_never_reached_is_as_old_as_itself(hub: HubWorld) -> None:
    with hub.open() as swarm:
        hub.proposed(swarm)
        with swarm.context.db.write():
            swarm.context.db.execute(
                "UPDATE pulls SET looked_at = NULL, created_at = ?", (later(swarm, hours=-3),)
            )
        hub.api.go_down()
        hub.look(swarm)
    assert re.search(r"not reached since \d+ h, 1 pull request waits", status(hub)[1])


def test_what_was_answered_does_not_count_as_not_reached_however_old_it_is(hub: HubWorld) -> None:
    with hub.open() as swarm:
        hub.proposed(swarm)
        hub.proposed(swarm, "two.txt")
        failed, answered = pulls.listed(swarm.context.db)
        with swarm.context.db.write():
            pulls.looked(swarm.context.db, failed, looked_at=later(swarm, minutes=-12), failures=1, failure="away")
            pulls.looked(swarm.context.db, answered, looked_at=later(swarm, hours=-50), failures=0)
    body, _ = status(hub)
    (one,) = body["github"]
    assert (one["unanswered"], one["problem"]) == (1, "away")
    assert 720 <= one["silent_s"] < 50 * 3600 <= body["pulls"]["oldest_s"]


def test_many_are_read_in_as_few_queries_as_few(hub: HubWorld) -> None:
    with hub.open() as swarm:
        work, pull = hub.proposed(swarm)
        db, desk = swarm.context.db, swarm.pulls
        few = [queries(db, desk.listed), queries(db, lambda: forge_overview.overview(db, policy=Policy()))]
        with db.write():
            for n in range(2, 602):
                more = pulls.insert(db, dataclasses.replace(pull, number=n, head_branch=f"b{n}"))
                pull_facts.replace_checks(db, more.id, [Check(f"run:{k}", f"c{k}", "passed") for k in range(3)])
                pull_facts.replace_reviews(db, more.id, [Review(f"{n}", "kim", "approved", "", "c", "")])
        many = [queries(db, desk.listed), queries(db, lambda: forge_overview.overview(db, policy=Policy()))]
        assert [a - b for a, b in zip(many, few, strict=True)] == [6, 6]  # two lots of at most 500 instead of one
        shown = desk.listed(limit=2)
        assert [one.pull.number for one in shown] == [601, 600]
        assert shown[1] == dataclasses.replace(pull_look.facts_of(swarm.context, shown[1].pull), now=shown[1].now)
        assert len({one.pull.id for one in desk.listed(include_over=True)}) == 601
        assert work.id == shown[0].pull.instance_id


def queries(db: Database, read: Callable[[], object]) -> int:
    """How many statements it takes."""
    seen: list[str] = []
    db._connection.set_trace_callback(seen.append)
    try:
        read()
    finally:
        db._connection.set_trace_callback(None)
    return len(seen)


# Counts for Prometheus


def test_metrics_count_the_quota_and_what_waits(stopped_mcp: Coordinated) -> None:
    with stopped_mcp.swarm() as swarm:
        work = finished_work(stopped_mcp.world, swarm)
        pull = swarm.open_pull(work.id, title="Make it", description="")
        swarm.pulls.enqueue(work.id)
        spend(swarm, "github.com")
        spend(swarm, 'odd"host\n', remaining=1)
        token = swarm.create_token("prometheus", ["metrics"]).token
        with swarm.context.db.write():
            far = {"repository": "github.com/acme/widgets", "next_at": "2099-01-01T00:00:00.000Z"}
            pulls.change(swarm.context.db, pull, failures=2, **far)
            swarm.context.db.execute("UPDATE pulls SET forge = 'github'")
    stopped_mcp.start()
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", stopped_mcp.port, timeout=20)) as connection:
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"})
        kinds, samples = read_metrics(connection.getresponse().read().decode())
    assert samples["swarm_github_remaining", 'host="github.com",resource="core"'] == 342
    assert samples["swarm_github_remaining", 'host="odd_host_",resource="core"'] == 1
    assert samples["swarm_pulls_open", ""] == 1
    assert samples["swarm_pulls_unanswered", ""] == 1
    assert samples["swarm_queue_length", ""] == 1
    assert {kinds[n] for n in ("swarm_github_remaining", "swarm_pulls_open", "swarm_queue_length")} == {"gauge"}

"""Budgets: a warning, a hold that the agent feels through its hooks, and going on once it is raised."""

from __future__ import annotations

import contextlib
import http.client
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from swarm_core.errors import Conflict, InvalidInput
from swarm_core.models import Instance
from swarm_core.ops import budget
from swarm_core.store import messages
from swarm_core.swarm import Swarm
from swarm_ui import views
from tests.integration.mcp_fixture import Coordinated
from tests.integration.transcript_fixture import Transcript, add_claude, claude_config
from tests.support import wait_until
from tests.world import World

__all__ = ["claude_config"]

MILLION = 1_000_000  # tokens of input, which cost 3 dollars


@pytest.fixture
def swarm(world: World, claude_config: Path) -> Iterator[Swarm]:
    with world.open() as opened:
        yield opened


@pytest.fixture
def work(swarm: Swarm) -> Instance:
    return add_claude(swarm)


@pytest.fixture
def log(claude_config: Path, work: Instance) -> Transcript:
    return Transcript.of(claude_config, work)


def told(swarm: Swarm) -> list[tuple[str, str]]:
    return [(e.name, e.actor) for e in swarm.events(limit=1000) if e.name.startswith("budget:")]


def notices(swarm: Swarm, instance: Instance) -> list[tuple[str, str]]:
    return [(m.kind, m.sender) for m in messages.of(swarm.context.db, instance.id)]


def test_a_budget_warns_at_four_fifths_and_holds_when_it_is_used_up(
    swarm: Swarm, work: Instance, log: Transcript
) -> None:
    swarm.budget(work.id, usd=3)
    log.answer("msg_1", took=799_999)
    assert swarm.budget(work.id).instance.budget_state == ""
    log.answer("msg_2", took=1)
    assert swarm.budget(work.id).instance.budget_state == "warned"
    log.answer("msg_3", took=199_999)
    assert swarm.budget(work.id).instance.budget_state == "warned"
    log.answer("msg_4", took=1)
    assert swarm.budget(work.id).instance.budget_state == "held"
    assert swarm.budget(work.id).instance.budget_state == "held"
    assert told(swarm) == [
        ("budget:set", "operator"),
        ("budget:warned", "supervisor"),
        ("budget:held", "supervisor"),
    ]
    assert notices(swarm, work) == []


def test_a_held_agent_goes_on_when_its_budget_is_above_the_cost(
    swarm: Swarm, work: Instance, log: Transcript
) -> None:
    swarm.budget(work.id, usd=1)
    log.answer("msg_1", took=MILLION)
    assert swarm.budget(work.id).instance.budget_state == "held"
    still = swarm.budget(work.id, raise_by=2)
    assert (still.limit_usd, still.instance.budget_state) == (3, "held")
    assert notices(swarm, work) == []
    raised = swarm.budget(work.id, raise_by=7, actor="automation:night")
    assert (raised.limit_usd, raised.instance.budget_state) == (10, "")
    assert notices(swarm, work) == [("notice", "automation:night")]
    assert [name for name, _ in told(swarm)] == [
        *("budget:set", "budget:held", "budget:set", "budget:set", "budget:raised")
    ]
    assert told(swarm)[-1] == ("budget:raised", "automation:night")
    assert swarm.budget(work.id).instance.budget_state == ""


def test_what_was_raised_a_little_is_warned_again(swarm: Swarm, work: Instance, log: Transcript) -> None:
    log.answer("msg_1", took=MILLION)
    swarm.budget(work.id, usd=3)
    assert swarm.budget(work.id, raise_by=0.1).instance.budget_state == ""
    assert budget.check(swarm.context, swarm.find(work.id)) == "warned"
    assert [name for name, _ in told(swarm)].count("budget:warned") == 1


def test_a_budget_below_the_cost_holds_at_once(swarm: Swarm, work: Instance, log: Transcript) -> None:
    log.answer("msg_1", took=MILLION)
    assert swarm.budget(work.id, usd=2, actor="automation:day").instance.budget_state == "held"
    assert told(swarm)[-1] == ("budget:held", "automation:day")
    assert swarm.budget(work.id, none=True).instance.budget_state == ""
    assert swarm.budget(work.id).limit_usd is None
    assert notices(swarm, work) == [("notice", "operator")]


def test_a_warning_that_is_over_sends_no_message(swarm: Swarm, work: Instance, log: Transcript) -> None:
    log.answer("msg_1", took=900_000)
    assert swarm.budget(work.id, usd=3).instance.budget_state == "warned"
    assert swarm.budget(work.id, usd=30).instance.budget_state == ""
    assert told(swarm)[-1] == ("budget:raised", "operator")
    assert notices(swarm, work) == []


def test_the_setting_holds_for_instances_without_a_budget_of_their_own(world: World, claude_config: Path) -> None:
    world.home.mkdir(parents=True)
    (world.home / "config.toml").write_text("budget_usd = 1\n")
    with world.open() as swarm:
        plain, own, free = (add_claude(swarm, f"work-1-a{n}") for n in (1, 2, 3))
        swarm.budget(own.id, usd=20)
        swarm.budget(free.id, none=True)
        for one in (plain, own, free):
            Transcript.of(claude_config, one).answer("msg_1", took=MILLION)
        found = {a.instance.id: a for a in swarm.costs()}
        assert [(found[i.id].limit_usd, found[i.id].instance.budget_state) for i in (plain, own, free)] == [
            (1, "held"),
            (20, ""),
            (None, ""),
        ]
        assert [found[i.id].own for i in (plain, own, free)] == [False, True, True]
        assert swarm.budget(plain.id, raise_by=4).limit_usd == 5
    (world.home / "config.toml").write_text("budget_usd = 100\n")
    with world.open() as swarm:
        assert swarm.budget(plain.id).limit_usd == 5


def test_a_setting_that_was_raised_lets_held_agents_go_on(world: World, claude_config: Path) -> None:
    world.home.mkdir(parents=True)
    (world.home / "config.toml").write_text("budget_usd = 1\n")
    with world.open() as swarm:
        work = add_claude(swarm)
        Transcript.of(claude_config, work).answer("msg_1", took=MILLION)
        assert swarm.budget(work.id).instance.budget_state == "held"
    (world.home / "config.toml").write_text("budget_usd = 50\n")
    with world.open() as swarm:
        assert swarm.budget(work.id).instance.budget_state == ""
        assert notices(swarm, work) == [("notice", "supervisor")]


@pytest.mark.parametrize("usd", [0.0, -1.0, math.nan, math.inf, 1_000_001.0])
def test_what_is_no_budget_is_refused(swarm: Swarm, work: Instance, usd: float) -> None:
    with pytest.raises(InvalidInput):
        swarm.budget(work.id, usd=usd)
    swarm.budget(work.id, usd=1)
    with pytest.raises(InvalidInput):
        swarm.budget(work.id, raise_by=usd)
    assert swarm.budget(work.id).limit_usd == 1


def test_only_a_budget_can_be_raised(swarm: Swarm, work: Instance) -> None:
    with pytest.raises(Conflict):
        swarm.budget(work.id, raise_by=1)
    assert told(swarm) == []


def test_a_cleaned_instance_gets_no_budget_and_its_cost_stays(
    swarm: Swarm, work: Instance, log: Transcript
) -> None:
    log.answer("msg_1", took=MILLION)
    swarm.costs()
    gone = add_claude(swarm, "work-1-a2", cleaned_at="2026-11-16T11:00:00.000Z")
    with pytest.raises(Conflict):
        swarm.budget(gone.id, usd=1)
    assert [a.instance.id for a in swarm.costs()] == [work.id]


# The commands


def command(world: World, *args: str, code: int = 0) -> Any:
    done = world.command(*args, "--json")
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_the_commands_show_and_change_budgets(world: World, swarm: Swarm, work: Instance, log: Transcript) -> None:
    log.answer("msg_1", took=MILLION, gave=10)
    log.answer("msg_2", took=5, model="claude-next-9")
    shown = command(world, "budget", work.id, "2")
    assert (shown["budget_usd"], shown["budget_state"], shown["estimate"]) == (2, "held", True)
    assert shown["cost_usd"] == pytest.approx(3.00015)
    assert shown["used"] == {
        "answers": 2,
        "input_tokens": MILLION + 5,
        "output_tokens": 10,
        "cache_read_tokens": 0,
        "cache_write_tokens": 0,
    }
    assert [(m["model"], m["cost_usd"]) for m in shown["models"]][1] == ("claude-next-9", None)
    assert shown["unknown_price"] == ["claude-next-9"]
    assert command(world, "budget", work.id, "--raise", "5.5")["budget_usd"] == 7.5
    assert command(world, "budget", work.id)["budget_state"] == ""
    costs = command(world, "cost")
    assert costs["tokens_used"] == MILLION + 15
    assert [a["id"] for a in costs["instances"]] == [work.id]
    assert command(world, "budget", work.id, "--none")["budget_usd"] is None
    assert command(world, "show", work.id)["account"]["tokens_used"] == MILLION + 15


def test_people_read_that_costs_are_estimates_and_what_has_no_price(
    world: World, swarm: Swarm, work: Instance, log: Transcript
) -> None:
    log.answer("msg_1", took=MILLION)
    log.answer("msg_2", took=5, model="claude-next-9")
    swarm.budget(work.id, usd=3)
    for args in (("cost",), ("show", work.id), ("budget", work.id)):
        done = world.command(*args)
        assert done.returncode == 0, done.stderr
        said = done.stdout.decode().lower()
        assert "estimate" in said
        assert "unknown price: claude-next-9" in said
        assert "3.00" in said
        assert "held" in said


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("budget", "work-1-a1", "1", "--none"), 2),
        (("budget", "work-1-a1", "1", "--raise", "1"), 2),
        (("budget", "work-1-a1", "much"), 2),
        (("budget", "work-1-a1", "0"), 1),
        (("budget", "work-1-a1", "nan"), 1),
        (("budget", "work-1-a1", "--raise", "1"), 1),
        (("budget", "work-9-a9"), 1),
    ],
)
def test_commands_that_make_no_sense_are_refused(
    world: World, work: Instance, args: tuple[str, ...], code: int
) -> None:
    assert command(world, *args, code=code)["ok"] is False


def test_prices_that_cannot_be_used_are_told_to_whoever_asks_for_costs(world: World, work: Instance) -> None:
    world.settings.prices_path.write_text("not toml")
    assert command(world, "cost", code=1)["error"]["code"] == "INVALID_SETTING"
    assert command(world, "budget", work.id, code=1)["error"]["code"] == "INVALID_SETTING"
    assert command(world, "show", work.id)["id"] == work.id


# Through a coordinator


@pytest.fixture
def quiet_claude(
    stopped_mcp: Coordinated, claude_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Coordinated:
    """A coordinator whose Claude Code is a program that does nothing; the test speaks and writes for it."""
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    stopped_mcp.start()
    return stopped_mcp


def hook(mcp: Coordinated, event: str, token: str) -> Any:
    body = json.dumps({"tool_name": "Bash", "tool_input": {"command": "ls"}}).encode()
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", mcp.port, timeout=20)) as connection:
        connection.request("POST", f"/hooks/{event}", body, {"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        assert response.status == 200
        return json.loads(response.read())


def decision(reply: dict[str, Any]) -> str | None:
    return reply.get("hookSpecificOutput", {}).get("permissionDecision")


def test_hooks_forbid_tools_while_an_agent_is_held_and_no_longer(
    quiet_claude: Coordinated, claude_config: Path
) -> None:
    mcp = quiet_claude
    with mcp.swarm() as swarm:
        (work,) = swarm.work("do it", repo=str(mcp.world.repo), agent="claude")
        token, log = mcp.token(work), Transcript.of(claude_config, work)
        swarm.budget(work.id, usd=4)
        log.answer("msg_1", took=MILLION)
        wait_until(lambda: swarm.find(work.id).cost_usd == 3, timeout=30, what="the first answer is counted")
        assert decision(hook(mcp, "PreToolUse", token)) is None

        log.answer("msg_2", took=MILLION)
        wait_until(lambda: swarm.find(work.id).budget_state == "held", timeout=30, what="it is held")
        assert decision(hook(mcp, "PreToolUse", token)) == "deny"
        assert hook(mcp, "Stop", token) == {}
        assert "budget" in views.needs_you(swarm.find(work.id))

        mcp.kill()
        mcp.restart()
        log.answer("msg_3", took=MILLION)
        wait_until(lambda: swarm.find(work.id).cost_usd >= 9, timeout=30, what="it is counted on")
        assert swarm.find(work.id).tokens_used == 3 * MILLION
        assert decision(hook(mcp, "PreToolUse", token)) == "deny"

        swarm.budget(work.id, raise_by=20)
        assert decision(hook(mcp, "PreToolUse", token)) is None
        assert notices(swarm, work) == [("notice", "operator")]
        assert [name for name, _ in told(swarm)] == ["budget:set", "budget:held", "budget:set", "budget:raised"]

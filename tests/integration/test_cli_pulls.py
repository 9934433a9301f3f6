"""`swarm pr`: every command for people and for programs, wrong usage, and text that wants to be more than text."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from swarm_core.models import Instance
from tests.integration.cli_fixture import Cli, Done
from tests.integration.github_fixture import HubWorld, hub
from tests.integration.merge_fixture import Check, check, commit_main, proposed, put, rev
from tests.support import git_run, wait_until
from tests.world import World

__all__ = ["check", "hub"]

COMMANDS = ("open", "show", "merge", "close", "queue", "wait")
HOSTILE = "\x1b]0;owned\x07\x1b[31mred\nsecond line\u202e"


@pytest.fixture
def cli(world: World) -> Cli:
    return Cli(world.home, world.repo)


def works(world: World, *numbers: int, **wish: Any) -> list[Instance]:
    with world.open() as swarm:
        return [proposed(world, swarm, n, **wish) for n in numbers]


def refused(done: Done, code: str) -> str:
    """The hint of a command that was refused as JSON."""
    assert done.code == 1
    body = done.json
    assert (body["ok"], body["error"]["code"]) == (False, code)
    return str(body["error"].get("hint", ""))


def test_one_is_opened_shown_merged_and_each_answer_names_what_comes_next(cli: Cli, world: World) -> None:
    work = cli.work("write made.txt by the agent", "commit made")
    name, path = work["id"], Path(work["worktree_path"])
    wait_until(lambda: (path / "made.txt").exists() and rev(path, "HEAD") != rev(world.repo, "main"))
    said = cli("pr", "open", name, "--body", "-", stdin=b"It was **not** made.")
    assert f"{name}: pull request #1 is open: file://" in said.out
    assert f"`swarm pr merge {name}`" in said.err
    again = cli("pr", "open", name, "--json").json
    assert (again["number"], again["title"], again["age_s"]) == (1, "write made.txt by the agent", None)
    shown = cli("pr", "show", name, "--look").out
    for part in ("#1 write made.txt", "0 s ago", "into main", "It was **not** made."):
        assert part in shown
    body = cli("pr", "show", name, "--json").json
    assert (body["status"], body["hindrances"], body["checks"]) == ("open", [], [])
    assert 0 <= body["age_s"] < 3600
    assert "etags" not in body
    merged = cli("pr", "merge", name, "--squash")
    assert "is merged" in merged.out
    assert f"`swarm clean {name}`" in merged.err
    assert (world.repo / "made.txt").read_text() == "by the agent\n"
    assert cli("pr", "merge", name, "--json").json["merge_commit"] == rev(world.repo, "main")


def test_open_ones_are_listed_with_their_age_and_all_with_those_that_are_over(cli: Cli, world: World) -> None:
    assert "swarm pr open INSTANCE" in cli("pr", "ls").out
    assert cli("pr", "ls", "--json").json == []
    first, second = works(world, 1, 2)
    assert cli("pr", "ls").out.count("not looked at yet") == 2
    looked = cli("pr", "ls", "--look").out
    assert "s ago" in looked
    closed = cli("pr", "close", first.id)
    assert "is closed" in closed.out
    assert f"`swarm pr open {first.id}`" in closed.err
    assert [one["instance_id"] for one in cli("pr", "ls", "--json").json] == [second.id]
    assert {one["status"] for one in cli("pr", "ls", "--all", "--json").json} == {"open", "closed"}
    assert cli("pr", "show", first.id, "--json").json["state"] == "closed"
    assert refused(cli("pr", "close", first.id, "--json", check=1), "PULL_NOT_FOUND")
    assert world.branches() == {"main", first.branch, second.branch}


def test_a_merge_that_is_refused_says_why_and_what_to_do(cli: Cli, world: World, check: Check) -> None:
    check.use(world)
    moved, bad, draft = works(world, 1), works(world, 2), works(world, 3, draft=True)
    put(world.repo, moved[0].branch, {"later.txt": "x\n"})
    assert "swarm pr open" in refused(cli("pr", "merge", moved[0].id, "--json", check=1), "PULL_HEAD_MOVED")
    put(world.repo, bad[0].branch, {"bad.txt": "x\n"})
    cli("pr", "open", bad[0].id)
    failed = cli("pr", "merge", bad[0].id, "--json", check=1)
    assert refused(failed, "CHECK_FAILED")
    assert "bad.txt is bad" in failed.json["error"]["details"]["output"]
    human = cli("pr", "merge", bad[0].id, check=1)
    assert "bad.txt is bad [CHECK_FAILED]" in human.err
    assert "--auto" in refused(cli("pr", "merge", draft[0].id, "--json", check=1), "PULL_NOT_MERGEABLE")
    later = cli("pr", "merge", draft[0].id, "--auto", "--rebase")
    assert "it is a draft" in later.err
    assert "`swarm up`" in later.err
    assert "rebase when ready" in cli("pr", "ls").out
    assert "rebase at" in cli("pr", "show", draft[0].id).out
    assert cli("pr", "merge", draft[0].id, "--no-auto", "--json").json["auto_merge"] == ""
    assert not (world.repo / "3.txt").exists()


def test_the_queue_is_filled_shown_emptied_and_worked_off(cli: Cli, world: World) -> None:
    assert "swarm pr queue INSTANCE" in cli("pr", "queue").out
    assert cli("pr", "queue", "--json").json == {"waiting": [], "over": [], "merged": 0, "refused": []}
    one, two, three = works(world, 1, 2, 3)
    some = cli("pr", "queue", two.id, "work-99-a1", one.id, "--squash", check=1)
    assert "INSTANCE_NOT_FOUND" in some.err
    assert "`swarm pr queue --run`" in some.err
    assert some.out.index(two.id) < some.out.index(one.id)
    again = cli("pr", "queue", one.id, three.id, "--json", check=1).json
    assert [e["instance_id"] for e in again["waiting"]] == [two.id, one.id, three.id]
    assert [e["method"] for e in again["waiting"]] == ["squash", "squash", "merge"]
    assert [(e["id"], e["error"]["code"]) for e in again["refused"]] == [(one.id, "CONFLICT")]
    commit_main(world.repo, {"1.txt": "by a person\n"})
    assert "conflicts with main in 1.txt" in cli("pr", "queue").out
    removed = cli("pr", "queue", "--remove", three.id, "--json").json
    assert [(e["instance_id"], e["state"]) for e in removed["over"]] == [(three.id, "left")]
    done = cli("pr", "queue", "--run", "--json").json
    assert done["merged"] == 1
    assert [e["instance_id"] for e in done["waiting"]] == [one.id]
    assert "1.txt" in done["waiting"][0]["detail"]
    shown = cli("pr", "queue").out
    assert [line.split()[0] for line in shown.splitlines()[1:]] == [one.id, two.id, three.id]
    assert "operator took it out" in shown


def test_a_wait_ends_when_it_has_come_so_far_and_not_when_it_cannot(cli: Cli, world: World) -> None:
    ready, conflict, closed = works(world, 1, 2, 3)
    assert cli("pr", "wait", ready.id, "--json").json["status"] == "open"
    assert "swarm pr merge" in cli("pr", "wait", ready.id, "--until", "ready").err
    late = cli("pr", "wait", ready.id, "--until", "merged", "--timeout", "1", "--json", check=1)
    assert "swarm pr show" in refused(late, "PULL_NOT_MERGEABLE")
    assert late.json["error"]["details"]["state"] == "open"
    commit_main(world.repo, {"2.txt": "by a person\n"})
    never = cli("pr", "wait", conflict.id, "--until", "ready", "--json", check=1)
    assert refused(never, "PULL_NOT_MERGEABLE")
    assert never.json["error"]["details"]["hindrances"] == ["it conflicts with main"]
    cli("pr", "close", closed.id)
    assert refused(cli("pr", "wait", closed.id, "--until", "merged", "--json", check=1), "PULL_NOT_MERGEABLE")
    assert cli("pr", "wait", closed.id, "--until", "over", "--json").json["state"] == "closed"
    waiting = cli.start("pr", "wait", ready.id, "--until", "merged", "--json")
    try:
        cli("pr", "merge", ready.id)
        out, err = waiting.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        waiting.kill()
        waiting.communicate()
        raise
    assert waiting.returncode == 0, err
    assert json.loads(out)["state"] == "merged"


def test_a_wait_begins_before_the_pull_request_is_opened(cli: Cli, world: World) -> None:
    with world.open() as swarm:
        work = proposed(world, swarm, 1)
        with swarm.context.db.write():
            swarm.context.db.execute("DELETE FROM pulls")
    began = time.monotonic()
    assert refused(cli("pr", "wait", work.id, "--timeout", "2", "--json", check=1), "PULL_NOT_FOUND")
    assert time.monotonic() - began >= 2
    waiting = cli.start("pr", "wait", work.id, "--until", "ready", "--timeout", "60", "--json")
    try:
        cli("pr", "ls")  # as long as the other takes to begin
        cli("pr", "open", work.id)
        out, err = waiting.communicate(timeout=60)
    finally:
        waiting.kill()
    assert waiting.returncode == 0, err
    assert json.loads(out)["status"] == "open"


def test_a_wait_at_github_ends_without_checks_but_not_before_they_could_begin(hub: HubWorld) -> None:
    with hub.open() as swarm:
        work, pull = hub.proposed(swarm)

    def wait(until: str, grace: int, check: int) -> Done:
        at_hub = Cli(hub.home, hub.repo, hub.environ | {"SWARM_CHECKS_GRACE": str(grace)})
        return at_hub("pr", "wait", work.id, "--until", until, "--timeout", "1", "--json", check=check)

    for until in ("checks", "ready"):
        early = wait(until, 3600, 1)
        assert refused(early, "PULL_NOT_MERGEABLE")
        assert early.json["error"]["details"]["hindrances"] == ["its checks have not begun"]
    for until in ("checks", "ready"):
        assert wait(until, 0, 0).json["status"] == "open"
    hub.hub.add_check(pull.head_commit, "unit", "in_progress", None)
    assert refused(wait("checks", 0, 1), "PULL_NOT_MERGEABLE")


def test_what_was_merged_by_hand_is_printed_as_every_command_prints_it(cli: Cli, world: World) -> None:
    [work] = works(world, 1)
    git_run(world.repo, "merge", "-q", "--no-ff", work.branch)
    noted, shown = (cli(*words, work.id, "--json").json for words in (("merged",), ("pr", "show")))
    ages = noted.pop("age_s"), shown.pop("age_s")
    assert None not in ages
    assert noted == shown
    assert (noted["status"], noted["checks"]) == ("merged", [])


@pytest.mark.parametrize(
    "arguments",
    [
        *([command] for command in COMMANDS if command != "queue"),
        ["merge", "work-1-a1", "--squash", "--rebase"],
        ["merge", "work-1-a1", "--auto", "--no-auto"],
        ["queue", "--remove"],
        ["queue", "work-1-a1", "--merge", "--squash"],
        ["wait", "work-1-a1", "--until", "doomsday"],
        ["wait", "work-1-a1", "--timeout", "soon"],
        ["wait", "work-1-a1", "--timeout", "-1"],
        ["ls", "--nonsense"],
        ["open", "work-1-a1", "--body", "x", "--body-file", "y"],
        ["nonsense"],
    ],
    ids=" ".join,
)
def test_wrong_usage_ends_with_2_and_names_the_help(cli: Cli, arguments: list[str]) -> None:
    done = cli("pr", *arguments, "--json", check=2)
    assert done.json["error"]["code"] == "INVALID_INPUT"
    assert "--help`" in done.json["error"]["hint"]


@pytest.mark.parametrize("command", [c for c in COMMANDS if c != "queue"])
def test_nobody_of_that_name_and_nothing_opened_end_with_1(cli: Cli, world: World, command: str) -> None:
    with world.open() as swarm:
        work = proposed(world, swarm, 1)
        with swarm.context.db.write():
            swarm.context.db.execute("DELETE FROM pulls")
    assert refused(cli("pr", command, "work-99-a1", "--json", check=1), "INSTANCE_NOT_FOUND")
    if command != "open":
        more = ["--timeout", "1"] if command == "wait" else []
        assert "swarm pr" in refused(cli("pr", command, work.id, *more, "--json", check=1), "PULL_NOT_FOUND")
    human = cli("pr", command, "work-99-a1", check=1)
    assert "[INSTANCE_NOT_FOUND]" in human.err
    assert human.out == ""


def test_hostile_text_stays_text(cli: Cli, world: World) -> None:
    [work] = works(world, 1)
    with world.open() as swarm, swarm.context.db.write():
        fields = (HOSTILE * 10, HOSTILE * 100_000, HOSTILE)
        swarm.context.db.execute("UPDATE pulls SET title = ?, body = ?, failure = ?", fields)
    cli("pr", "queue", work.id)
    for arguments in (
        ["ls"],
        ["show", work.id],
        ["queue"],
        ["wait", work.id, "--until", "checks", "--timeout", "1"],
    ):
        done = cli("pr", *arguments)
        assert "\x1b" not in done.out + done.err, arguments
        assert "\x07" not in done.out + done.err
        assert "\u202e" not in done.out
        assert len(done.out) < 10_000
    [_, row] = cli("pr", "ls").out.splitlines()
    assert "red second line" in row
    assert cli("pr", "show", work.id, "--json").json["title"] == HOSTILE * 10
    merged = cli("pr", "merge", work.id)
    assert "\x1b" not in merged.out + merged.err


def test_text_that_cannot_be_kept_is_refused_and_a_task_of_any_text_has_a_title(cli: Cli, world: World) -> None:
    with world.open() as swarm:
        work = proposed(world, swarm, 1)
        swarm.pulls.close(work.id)
        with swarm.context.db.write():
            swarm.context.db.execute("UPDATE instances SET prompt = ?", (f"# {HOSTILE}",))
    large = cli("pr", "open", work.id, "--body", "-", "--json", stdin=b"x" * 1_000_000, check=1)
    assert refused(large, "INVALID_INPUT")
    refused(cli("pr", "open", work.id, "--title", HOSTILE, "--json", check=1), "INVALID_INPUT")
    opened = cli("pr", "open", work.id, "--json").json
    assert opened["title"].isprintable()
    assert opened["title"].endswith("red")

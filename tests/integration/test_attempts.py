"""Several attempts at one task: started as a group, compared, and one of them picked."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from swarm_core.agents import table
from swarm_core.agents.scripted import Scripted
from swarm_core.errors import InvalidInput
from swarm_core.models import Instance
from swarm_core.ops import attempts, compare, spawn
from swarm_core.swarm import Swarm
from tests.integration.cli_fixture import Cli
from tests.integration.github_fixture import HubWorld, hub
from tests.integration.review_fixture import all_at_once, approve, code_of, commit, named, needs_work
from tests.integration.test_cli_commands import Terminal
from tests.support import git_run, make_repo
from tests.world import World, assert_agreement

__all__ = ["hub"]


class Twin(Scripted):
    name = "twin"


@pytest.fixture
def swarm(world: World) -> Iterator[Swarm]:
    with world.open() as opened:
        yield opened


def start(world: World, swarm: Swarm, count: int = 3, prompt: str = "say ready") -> list[Instance]:
    return swarm.work(prompt, repo=str(world.repo), agent="scripted", count=count)


def sides(found: compare.Comparison) -> dict[str, compare.Side]:
    return {side.instance.id: side for side in found.sides}


def refresh(swarm: Swarm, members: list[Instance]) -> list[Instance]:
    return [swarm.find(one.id) for one in members]


# Starting


def test_attempts_at_one_task_are_a_group_named_by_the_first(world: World, swarm: Swarm) -> None:
    made = start(world, swarm)
    assert [i.id for i in made] == ["work-a1", "work-a2", "work-a3"]
    assert {i.attempt_group for i in made} == {"work-a1"}
    for one in made:
        assert [i.id for i in swarm.attempts.of(one.id)] == ["work-a1", "work-a2", "work-a3"]
    again = start(world, swarm, 2)
    assert {i.attempt_group for i in again} == {"work-a4"}


def test_one_alone_is_of_no_group(world: World, swarm: Swarm) -> None:
    [alone] = start(world, swarm, 1)
    assert alone.attempt_group is None
    assert code_of(swarm.attempts.of, alone.id) == "INVALID_INPUT"


@pytest.mark.parametrize(
    ("count", "dealt"),
    [(1, ["scripted", "twin"]), (2, ["scripted", "twin"]), (3, ["scripted", "twin", "scripted"])],
)
def test_attempts_are_dealt_to_the_agents_in_turn(
    world: World, swarm: Swarm, monkeypatch: pytest.MonkeyPatch, count: int, dealt: list[str]
) -> None:
    monkeypatch.setitem(table.AGENTS, "twin", Twin())
    made = swarm.work("say hi", repo=str(world.repo), agent=["scripted", "twin"], count=count)
    assert [i.agent for i in made] == dealt
    assert {i.attempt_group for i in made} == {made[0].id}


def test_an_agent_that_is_not_there_leaves_no_trace_of_the_others(world: World, swarm: Swarm) -> None:
    assert code_of(swarm.work, "say hi", repo=str(world.repo), agent=["scripted", "nobody"]) == "AGENT_UNKNOWN"
    assert swarm.instances(include_cleaned=True) == []


def test_a_group_is_reserved_whole_or_not_at_all(world: World, swarm: Swarm) -> None:
    facts = swarm.context.hosts.choose().ensure_repo(str(world.repo), None)

    def fails(_: Instance) -> str:
        raise InvalidInput("no")

    good = spawn.Wish(kind="work", repo=facts, agent="scripted", prompt=lambda _: "say hi")  # type: ignore[arg-type]
    bad = dataclasses.replace(good, prompt=fails)
    with pytest.raises(InvalidInput):
        spawn.reserve_attempts(swarm.context, [good, bad], actor="kim")
    assert swarm.instances(include_cleaned=True) == []


# Comparing


def test_a_group_is_compared_by_the_id_of_any_of_it(world: World, swarm: Swarm) -> None:
    first, second, third = start(world, swarm)
    for one in (first, second, third):
        commit(one, "shared.txt", f"by {one.id}\n")
    commit(second, "extra.txt", "one\ntwo\n")
    Path(third.worktree_path, "loose.txt").write_text("not committed\n")
    found = swarm.attempts.compare([second.id])
    assert (found.group, found.picked, list(found.shared)) == (first.id, None, ["shared.txt"])
    told = sides(found)
    assert list(told) == [first.id, second.id, third.id]
    assert [s.facts["commits"] for s in found.sides] == [1, 2, 1]
    assert [(s.facts["added"], s.facts["files_count"]) for s in found.sides] == [(1, 1), (3, 2), (1, 1)]
    assert [s.facts["dirty_count"] for s in found.sides] == [0, 0, 1]
    assert [list(s.only) for s in found.sides] == [[], ["extra.txt"], ["loose.txt"]]
    assert list(told[third.id].files) == ["loose.txt", "shared.txt"]
    assert [s.check for s in found.sides] == [None, None, None]


def test_any_instances_of_one_repository_are_compared(world: World, swarm: Swarm) -> None:
    one, other = (start(world, swarm, 1)[0] for _ in range(2))
    commit(one, "a.txt")
    found = swarm.attempts.compare([other.id, one.id, other.id])
    assert [s.instance.id for s in found.sides] == [other.id, one.id]
    assert found.group is None
    assert list(sides(found)[one.id].only) == ["a.txt"]


def test_what_cannot_be_compared_is_refused(world: World, swarm: Swarm, tmp_path: Path) -> None:
    [alone] = start(world, swarm, 1)
    commit(alone)
    review = swarm.request_review(alone.id, reviewer_prompt="say reviewing")
    elsewhere = make_repo(tmp_path / "elsewhere")
    [foreign] = swarm.work("say x", repo=str(elsewhere), agent="scripted")
    assert code_of(swarm.attempts.compare, [alone.id]) == "INVALID_INPUT"
    assert code_of(swarm.attempts.compare, [alone.id, foreign.id]) == "INVALID_INPUT"
    assert code_of(swarm.attempts.compare, [alone.id, review.id]) == "INVALID_INPUT"
    assert code_of(swarm.attempts.compare, []) == "INVALID_INPUT"
    assert code_of(swarm.attempts.compare, [alone.id, "work-a99"]) == "INSTANCE_NOT_FOUND"


def test_the_last_review_is_told_and_whether_it_is_of_what_is_there(world: World, swarm: Swarm) -> None:
    first, second = start(world, swarm, 2)
    for one in (first, second):
        commit(one)
    needs_work(swarm, swarm.request_review(first.id, reviewer_prompt="say reviewing"))
    approve(swarm, swarm.request_review(second.id, reviewer_prompt="say reviewing"))
    commit(second, "late.txt")
    reviews = [s.review for s in swarm.attempts.compare([first.id]).sides]
    assert [(r.verdict, r.round, r.of_head) for r in reviews if r] == [
        ("needs_work", 1, True),
        ("approved", 1, False),
    ]


def test_the_comparison_of_cleaned_attempts_is_of_their_branches(world: World, swarm: Swarm) -> None:
    first, second = start(world, swarm, 2)
    commit(first, "a.txt")
    swarm.stop(first.id)
    swarm.clean(first.id)
    told = sides(swarm.attempts.compare([second.id]))
    assert told[first.id].facts["commits"] == 1
    assert list(told[first.id].only) == ["a.txt"]
    assert "+made" in compare.diff_of(swarm.context, told[first.id])


@pytest.fixture
def counted(world: World, tmp_path: Path) -> Callable[[], int]:
    """A check command that succeeds on good.txt; returns how often it was run."""
    ran = tmp_path / "ran"
    ran.touch()
    folder = world.repo / ".swarm"
    folder.mkdir()
    (folder / "check").write_text(f"sh -c 'echo ran >>{ran}; echo looked; test -e good.txt'\n")
    git_run(world.repo, "add", "-A")
    git_run(world.repo, "commit", "-q", "-m", "check")
    return lambda: len(ran.read_text().splitlines())


def test_checks_run_on_each_last_commit_and_are_remembered(
    world: World, swarm: Swarm, counted: Callable[[], int]
) -> None:
    good, bad, idle = start(world, swarm)
    tip = commit(good, "good.txt")
    commit(bad, "bad.txt")
    Path(bad.worktree_path, "good.txt").write_text("not committed\n")
    checks = {i: s.check for i, s in sides(swarm.attempts.compare([good.id], run_check=True)).items()}
    passed, failed = checks[good.id], checks[bad.id]
    assert passed is not None
    assert (passed.ok, passed.commit, "looked" in passed.output) == (True, tip, True)
    assert passed.seconds >= 0
    assert failed is not None
    assert not failed.ok
    assert checks[idle.id] is None
    assert counted() == 2
    assert {i: s.check for i, s in sides(swarm.attempts.compare([good.id])).items()} == checks
    swarm.attempts.compare([good.id], run_check=True)
    assert counted() == 3, "only the failed one runs again"
    assert_agreement(world, swarm)


def test_a_result_is_that_of_one_commit(world: World, swarm: Swarm, counted: Callable[[], int]) -> None:
    good, _ = start(world, swarm, 2)
    commit(good, "good.txt")
    swarm.attempts.compare([good.id], run_check=True)
    commit(good, "more.txt")
    assert sides(swarm.attempts.compare([good.id]))[good.id].check is None


def test_the_same_commit_is_checked_once(world: World, swarm: Swarm, counted: Callable[[], int]) -> None:
    first, second = start(world, swarm, 2)
    tip = commit(first, "good.txt")
    git_run(Path(second.worktree_path), "merge", "-q", "--ff-only", tip)
    told = [s.check for s in swarm.attempts.compare([first.id], run_check=True).sides]
    assert told[0] == told[1] is not None
    assert counted() == 1


def test_without_a_check_command_none_can_be_run(world: World, swarm: Swarm) -> None:
    first, _ = start(world, swarm, 2)
    commit(first)
    assert code_of(swarm.attempts.compare, [first.id], run_check=True) == "INVALID_SETTING"


def test_diffs_are_against_the_base_or_between_two_and_end_somewhere(
    world: World, swarm: Swarm, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = start(world, swarm, 2)
    commit(first, "a.txt", "alpha\n")
    commit(second, "a.txt", "beta\n")
    Path(second.worktree_path, "loose.txt").write_text("loose\n")
    one, other = swarm.attempts.compare([first.id]).sides
    assert "+alpha" in compare.diff_of(swarm.context, one)
    assert "+loose" in compare.diff_of(swarm.context, other)
    between = compare.diff_between(swarm.context, one, other)
    assert "-alpha\n+beta" in between
    assert "loose" not in between
    monkeypatch.setattr(compare, "DIFF_BYTES", 40)
    assert "diff cut" in compare.diff_of(swarm.context, one)
    assert "diff cut" in compare.diff_between(swarm.context, one, other)


# Picking


def test_picking_one_ends_the_others_and_nothing_of_theirs_is_lost(world: World, swarm: Swarm) -> None:
    first, second, third = start(world, swarm)
    tips = [commit(one, f"{one.id}.txt") for one in (first, second, third)]
    Path(first.worktree_path, "loose.txt").write_text("not committed\n")
    swarm.stop(third.id)
    done = swarm.attempts.pick(second.id, actor="kim")
    assert (done.ended, done.failures) == ([first.id], {})
    after = refresh(swarm, [first, second, third])
    assert [(i.status, i.wanted) for i in after] == [
        ("terminated", "stopped"),
        ("running", "running"),
        ("terminated", "stopped"),
    ]
    assert after[0].reason == f"another attempt was picked: {second.id}"
    assert after[2].reason == "stopped"
    assert Path(first.worktree_path, "loose.txt").read_text() == "not committed\n"
    assert [git_run(world.repo, "rev-parse", i.branch) for i in after] == tips
    [event] = named(swarm, "attempt:picked")
    assert (event.instance_id, event.actor) == (second.id, "kim")
    assert event.metadata == {"group": first.id, "picked": second.id, "ended": [first.id], "left": [third.id]}
    assert swarm.attempts.compare([first.id]).picked == second.id
    assert_agreement(world, swarm)


def test_picking_again_changes_nothing_and_picking_another_ends_the_first(world: World, swarm: Swarm) -> None:
    first, second = start(world, swarm, 2)
    swarm.attempts.pick(first.id)
    rows = refresh(swarm, [first, second])
    assert swarm.attempts.pick(first.id).ended == []
    assert refresh(swarm, [first, second]) == rows
    assert len(named(swarm, "attempt:picked")) == 1
    swarm.restart(second.id)
    assert swarm.attempts.pick(second.id).ended == [first.id]
    assert swarm.attempts.compare([first.id]).picked == second.id


def test_of_eight_racing_picks_of_one_attempt_one_is_told(world: World, swarm: Swarm) -> None:
    first, second = start(world, swarm, 2)
    done = all_at_once(world, [lambda mine: mine.attempts.pick(first.id)] * 8)
    assert [one for d in done for one in d.ended] == [second.id]
    assert len(named(swarm, "attempt:picked")) == 1
    assert_agreement(world, swarm)


def test_the_others_can_be_kept(world: World, swarm: Swarm) -> None:
    first, second = start(world, swarm, 2)
    done = swarm.attempts.pick(first.id, keep=True)
    assert done.ended == []
    assert swarm.find(second.id).status == "running"
    assert named(swarm, "attempt:picked")[0].metadata["left"] == [second.id]
    assert swarm.attempts.pick(first.id).ended == [second.id]


def test_a_review_of_an_attempt_that_was_not_picked_ends_with_it(world: World, swarm: Swarm) -> None:
    first, second = start(world, swarm, 2)
    commit(second)
    review = swarm.request_review(second.id, reviewer_prompt="say reviewing")
    done = swarm.attempts.pick(first.id)
    assert done.reviews == [review.id]
    assert (swarm.find(review.id).status, swarm.review_link(review.id).verdict) == ("terminated", "none")
    assert world.sessions().keys() >= {first.id}
    assert_agreement(world, swarm)


def test_the_pull_requests_of_the_others_are_closed(world: World, swarm: Swarm) -> None:
    first, second = start(world, swarm, 2)
    for one in (first, second):
        commit(one, f"{one.id}.txt")
        swarm.open_pull(one.id, title="Do it", description="Done.", actor=one.id)
    assert [i.id for i in swarm.attempts.ended_by_picking(first.id)] == [second.id]
    done = swarm.attempts.pick(first.id)
    assert done.closed == [swarm.find(second.id).pr_number]
    assert [e.instance_id for e in named(swarm, "pull:closed")] == [second.id]
    assert swarm.find(first.id).status == "pr_created"
    assert swarm.attempts.ended_by_picking(first.id) == []
    assert_agreement(world, swarm)


def test_a_pull_request_that_github_does_not_close_now_is_told_and_closed_next_time(hub: HubWorld) -> None:
    with hub.open() as swarm:
        first, second = start(hub, swarm, 2)
        commit(second)
        pull = hub.open_pull(swarm, second)
        hub.api.go_down()
        failed = swarm.attempts.pick(first.id)
        assert {one: error.code for one, error in failed.failures.items()} == {second.id: "GITHUB_UNREACHABLE"}
        assert swarm.find(second.id).status == "terminated"
        hub.api.come_back()
        again = swarm.attempts.pick(first.id)
        assert (again.ended, again.closed, again.failures) == ([], [pull.number], {})
        assert hub.hub.pulls[pull.number].state == "closed"
        assert len(named(swarm, "attempt:picked")) == 1


def test_a_pick_whose_process_died_is_carried_out_by_whoever_looks_next(world: World, swarm: Swarm) -> None:
    first, second = start(world, swarm, 2)
    attempts.pick(swarm.context, first.id, keep=False, actor="kim")
    assert world.sessions()[second.id]
    with world.open() as later:
        later.reconcile()
        assert_agreement(world, later)


def test_what_cannot_be_picked_is_refused_and_nothing_changes(world: World, swarm: Swarm) -> None:
    [alone] = start(world, swarm, 1)
    first, second = start(world, swarm, 2)
    assert code_of(swarm.attempts.pick, alone.id) == "INVALID_INPUT"
    swarm.stop(first.id)
    swarm.clean(first.id)
    assert code_of(swarm.attempts.pick, first.id) == "WORKFLOW_INVALID_STATE"
    assert swarm.find(second.id).status == "running"
    assert named(swarm, "attempt:picked") == []


# The commands


@pytest.fixture
def cli(short_tmp: Path, repo: Path) -> Iterator[Cli]:
    command = Cli(home=short_tmp / "h", cwd=repo)
    yield command
    command.end()


def attempt(cli: Cli, count: int, *steps: str) -> list[str]:
    made = cli("work", "\n".join(steps), "--count", str(count), "--json").json
    for one in made:
        cli.until(one["id"], activity="idle")
    return [one["id"] for one in made]


def test_compare_is_readable_at_a_hundred_columns_however_many_there_are(cli: Cli) -> None:
    ids = attempt(cli, 5, "write a.txt hi", "commit first")
    shown = cli("compare", "work-a1").out.splitlines()
    assert max(len(line) for line in shown) <= 100
    heads = [line.split() for line in shown if "work-a" in line and "only" not in line]
    assert [one for head in heads for one in head] == ids
    counted = [line.split() for line in shown if line.startswith("lines")]
    assert counted == [["lines", *["+1", "-0"] * 3], ["lines", *["+1", "-0"] * 2]]
    assert shown[-1] == "touched by all  a.txt"


def test_compare_prints_everything_as_json(cli: Cli) -> None:
    ids = attempt(cli, 2, "write a.txt hi", "commit first", "write b.txt loose")
    body = cli("compare", "work-a2", "--json").json
    assert body.keys() == {"repo_path", "group", "picked", "shared", "attempts"}
    assert (body["group"], body["picked"], body["shared"]) == ("work-a1", None, ["a.txt", "b.txt"])
    assert [a["instance"]["id"] for a in body["attempts"]] == ids
    first = body["attempts"][0]
    assert first.keys() == {
        *("instance", "head_commit", "commits", "lines_added", "lines_deleted", "files", "only"),
        *("uncommitted", "check", "review", "tokens_used", "cost_usd", "estimate", "seconds"),
    }
    assert (first["commits"], first["lines_added"]) == (1, 1)
    assert first["uncommitted"] == {"count": 1, "files": ["b.txt"]}


def test_compare_prints_diffs_of_all_or_between_two(cli: Cli, repo: Path) -> None:
    attempt(cli, 2, "write a.txt hi", "commit first")
    every = cli("compare", "work-a1", "--diff").out
    assert every.index("==== work-a1\n") < every.index("==== work-a2\n")
    assert every.count("+hi") == 2
    assert [a["diff"].count("+hi") for a in cli("compare", "work-a1", "--diff", "--json").json["attempts"]] == [
        1,
        1,
    ]
    assert cli("compare", "work-a1", "work-a2", "--diff").out == "==== work-a1 -> work-a2\n(nothing)\n"
    body = cli("compare", "work-a2", "work-a1", "--diff", "--json").json
    assert (body["between"], body["diff"]) == (["work-a2", "work-a1"], "")


def test_compare_runs_the_configured_check(cli: Cli, repo: Path) -> None:
    attempt(cli, 2, "write a.txt hi", "commit first")
    cli("config", "check_command", "test -e a.txt")
    assert "passed" in cli("compare", "work-a1", "--run-check").out
    cli("config", "check_command", "sh -c 'echo why; exit 3'")
    done = cli("compare", "work-a1", "--run-check")
    assert "failed" in done.out
    assert "swarm compare work-a1 --json" in done.err
    check = cli("compare", "work-a1", "--json").json["attempts"][0]["check"]
    assert (check["ok"], "why" in check["output"]) == (False, True)


def test_pick_wants_a_yes_without_a_terminal(cli: Cli) -> None:
    attempt(cli, 2, "say hi")
    assert cli("pick", "work-a1", check=2).code == 2
    assert cli("pick", "work-a1", "--json", check=2).json["error"]["code"] == "INVALID_INPUT"
    body = cli("pick", "work-a1", "--yes", "--json").json
    assert body == {
        "id": "work-a1",
        "group": "work-a1",
        "ended": ["work-a2"],
        "reviews": [],
        "closed": [],
        "failures": {},
    }
    assert "work-a1 is picked" in cli("pick", "work-a1", "--yes").out
    assert cli("show", "work-a2", "--json").json["needs_you"] == ""


@pytest.mark.parametrize(("answer", "code", "status"), [("y", 0, "terminated"), ("n", 1, "running")])
def test_pick_asks_before_it_ends_anything(cli: Cli, answer: str, code: int, status: str) -> None:
    attempt(cli, 2, "say hi")
    with Terminal(cli, "pick", "work-a1") as terminal:
        terminal.until("end these and go on with work-a1? [y/N]")
        assert "work-a2 (running, idle)" in terminal.seen
        terminal.type(f"{answer}\n")
        assert terminal.ended() == code
    assert cli("show", "work-a2", "--json").json["status"] == status


def test_work_says_how_to_compare_several_and_gives_an_array_of_them(cli: Cli) -> None:
    done = cli("work", "say hi", "--agent", "scripted", "--agent", "scripted")
    assert "swarm compare work-a1" in done.err
    made = cli("work", "say hi", "--agent", "scripted", "--agent", "scripted", "--json").json
    assert [m["attempt_group"] for m in made] == ["work-a3", "work-a3"]
    assert cli("work", "say hi", "--json").json["attempt_group"] is None

"""The overlap radar: who changes the same places is found, shown and told, once and only when it is real."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from swarm_core.errors import ExternalFailure
from swarm_core.hosts.base import Place, PredictionFacts
from swarm_core.hosts.local import LocalHost
from swarm_core.hosts.pool import HostPool
from swarm_core.models import Instance, Kind, Overlap, Pull, PullState, Status
from swarm_core.ops import changes, overlap, supervise
from swarm_core.ops.overlap import Radar
from swarm_core.ops.supervise import Supervisor
from swarm_core.store import instances, messages, pulls
from swarm_core.swarm import Swarm
from tests.rows import add_instance
from tests.support import git_run, wait_until
from tests.world import World

LINES = [f"line {n}\n" for n in range(1, 61)]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """One look sees everybody, however slow the machine is."""
    monkeypatch.setattr(overlap, "_SLICE", 600.0)


@pytest.fixture
def repo(repo: Path) -> Path:
    (repo / "long.txt").write_text("".join(LINES))
    git_run(repo, "add", "-A")
    git_run(repo, "commit", "-q", "-m", "long")
    return repo


@pytest.fixture
def swarm(world: World) -> Iterator[Swarm]:
    with world.open() as opened:
        yield opened


class Counting(LocalHost):
    """This machine, which counts what it is asked and cannot read some worktrees."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.seen: list[str] = []
        self.predicted: list[tuple[str, str]] = []
        self.unreadable: set[str] = set()

    def touched(self, places: list[Place]) -> dict[str, dict[str, list[list[int]]]]:
        if self.unreadable & {place["instance_id"] for place in places}:
            raise ExternalFailure("it cannot be read")
        self.seen += [place["instance_id"] for place in places]
        return super().touched(places)

    def predict(self, repo_path: str, ours: str, theirs: str) -> PredictionFacts:
        self.predicted.append((ours, theirs))
        return super().predict(repo_path, ours, theirs)


def radar(swarm: Swarm) -> Radar:
    return Radar(swarm.context, pause_per_cost=0)


def workers(world: World, swarm: Swarm, count: int = 2) -> list[Instance]:
    """Agents with tasks of their own, waiting."""
    made = [world.work(swarm, "say ready", issue=None) for _ in range(count)]
    return [world.wait_idle(swarm, one.id) for one in made]


def edit(instance: Instance, number: int, text: str, *, name: str = "long.txt") -> None:
    path = Path(instance.worktree_path, name)
    lines = path.read_text().splitlines(keepends=True)
    lines[number - 1] = f"{text}\n"
    path.write_text("".join(lines))


def commit(instance: Instance) -> None:
    git_run(Path(instance.worktree_path), "commit", "-q", "-a", "-m", "work")


def look(swarm: Swarm, eye: Radar) -> None:
    """Count what changed, as the supervisor does, and look."""
    for instance in swarm.instances():
        changes.refresh(swarm.context, instance)
    eye.look()


def found(swarm: Swarm) -> list[Overlap]:
    return [replace(o, seen_at="", told_at=None) for o in swarm.overlaps()]


def told(swarm: Swarm, instance: Instance) -> list[str]:
    return [m.body for m in messages.of(swarm.context.db, instance.id) if m.sender == "swarm"]


def happened(swarm: Swarm) -> list[tuple[str, str | None, Any]]:
    names = [e for e in swarm.events(after=0, limit=5000) if e.name.startswith("overlap:")]
    return [(e.name.removeprefix("overlap:"), e.instance_id, e.metadata.get("level")) for e in names]


def test_the_same_lines_are_told_to_both_once_before_anything_is_committed(world: World, swarm: Swarm) -> None:
    one, two = workers(world, swarm)
    eye = radar(swarm)
    edit(one, 10, "mine")
    look(swarm, eye)
    assert found(swarm) == []
    edit(two, 11, "other")
    look(swarm, eye)
    assert found(swarm) == [Overlap(one.id, two.id, {"long.txt": [[10, 10]]}, [], "")]
    assert happened(swarm) == [("found", one.id, "overlap"), ("found", two.id, "overlap")]
    assert [len(told(swarm, i)) for i in (one, two)] == [1, 1]
    assert told(swarm, one)[0].startswith(f"{two.id} changes the same places as you: long.txt:10")
    for again in (eye, radar(swarm)):
        edit(one, 12, "more")
        look(swarm, again)
    assert [len(told(swarm, i)) for i in (one, two)] == [1, 1]
    assert len(happened(swarm)) == 2
    assert swarm.overlaps()[0].told_at is not None


def test_commits_that_would_conflict_are_told_as_a_second_level(world: World, swarm: Swarm) -> None:
    one, two = workers(world, swarm)
    eye = radar(swarm)
    for instance, text in ((one, "mine"), (two, "yours")):
        edit(instance, 10, text)
    look(swarm, eye)
    assert found(swarm)[0].conflicts == []
    commit(one)
    look(swarm, eye)
    assert found(swarm)[0].conflicts == [], "what is not committed conflicts with nothing"
    commit(two)
    look(swarm, eye)
    assert found(swarm)[0].conflicts == ["long.txt"]
    assert happened(swarm)[2:] == [("found", one.id, "conflict"), ("found", two.id, "conflict")]
    assert ["would conflict today in long.txt" in text for text in told(swarm, one)] == [False, True]
    edit(one, 10, "mine again")
    commit(one)
    look(swarm, eye)
    look(swarm, radar(swarm))
    assert [len(told(swarm, i)) for i in (one, two)] == [2, 2]
    assert len(happened(swarm)) == 4


def test_far_places_of_one_file_are_recorded_and_told_to_nobody(world: World, swarm: Swarm) -> None:
    one, two = workers(world, swarm)
    edit(one, 5, "mine")
    edit(two, 50, "yours")
    eye = radar(swarm)
    look(swarm, eye)
    assert found(swarm) == [Overlap(one.id, two.id, {"long.txt": []}, [], "")]
    assert (told(swarm, one), told(swarm, two), happened(swarm)) == ([], [], [])
    edit(two, 5, "now here")
    look(swarm, eye)
    assert [len(told(swarm, i)) for i in (one, two)] == [1, 1]


def test_as_many_changed_lines_elsewhere_are_noticed(
    world: World, swarm: Swarm, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = workers(world, swarm)
    eye = radar(swarm)
    edit(one, 5, "mine")
    edit(two, 50, "yours")
    look(swarm, eye)
    edit(two, 50, "line 50")
    edit(two, 6, "yours")
    look(swarm, eye)
    assert found(swarm)[0].files == {"long.txt": []}, "the counts are the same, so nobody looks at once"
    monkeypatch.setattr(overlap, "_SAME_COUNTS", 0.0)
    look(swarm, eye)
    assert found(swarm)[0].files == {"long.txt": [[5, 5]]}


@pytest.mark.parametrize("how", ["fork", "attempts"])
def test_attempts_at_one_task_overlap_by_design(world: World, swarm: Swarm, how: str) -> None:
    if how == "fork":
        one = workers(world, swarm, 1)[0]
        two = world.wait_idle(swarm, swarm.fork(one.id, "say ready").id)
    else:
        one, two = workers(world, swarm)
        with swarm.context.db.write():
            for instance in (one, two):
                instances.set_fields(swarm.context.db, instance.id, attempt_group="g")
    for instance in (one, two):
        edit(instance, 10, instance.id)
        commit(instance)
    look(swarm, radar(swarm))
    assert (found(swarm), happened(swarm), told(swarm, one)) == ([], [], [])


def test_an_overlap_is_over_when_a_change_is_taken_back_or_its_agent_is_done(world: World, swarm: Swarm) -> None:
    one, two, three = workers(world, swarm, 3)
    eye = radar(swarm)
    for instance in (one, two, three):
        edit(instance, 10, instance.id)
    look(swarm, eye)
    assert len(found(swarm)) == 3
    edit(one, 10, "line 10")
    look(swarm, eye)
    assert [(o.one, o.other) for o in found(swarm)] == [(two.id, three.id)]
    swarm.stop(three.id)
    look(swarm, eye)
    assert found(swarm) == []
    assert [e[:2] for e in happened(swarm)].count(("over", two.id)) == 2
    edit(one, 10, "mine once more")
    look(swarm, eye)
    assert len(told(swarm, one)) == 3, "what was over and is there again is told again"


def test_an_overlap_with_work_whose_branch_and_worktree_were_deleted_by_hand_is_over(
    world: World, swarm: Swarm
) -> None:
    one, two = workers(world, swarm)
    eye = radar(swarm)
    for instance, number in ((one, 10), (two, 11)):
        edit(instance, number, instance.id)
        commit(instance)
    look(swarm, eye)
    assert len(found(swarm)) == 1
    git_run(world.repo, "worktree", "remove", "--force", two.worktree_path)
    look(swarm, eye)
    assert len(found(swarm)) == 1, "its commit is still on the branch"
    git_run(world.repo, "branch", "-D", two.branch)
    look(swarm, eye)
    assert found(swarm) == []
    edit(one, 11, "more")
    look(swarm, eye)
    assert found(swarm) == []


def test_who_waits_for_a_verdict_is_told_when_it_goes_on(world: World, swarm: Swarm) -> None:
    one, two = workers(world, swarm)
    db, eye = swarm.context.db, radar(swarm)
    with db.write():
        instances.change_status(db, one.id, Status.WAITING_REVIEW, actor="test")
    for instance in (one, two):
        edit(instance, 10, instance.id)
    look(swarm, eye)
    assert (len(told(swarm, one)), len(told(swarm, two))) == (0, 1)
    with db.write():
        instances.change_status(db, one.id, Status.RUNNING, actor="test")
    look(swarm, radar(swarm))
    assert (len(told(swarm, one)), len(told(swarm, two))) == (1, 1)


def test_work_that_was_rebased_has_not_changed_what_others_merged(world: World, swarm: Swarm) -> None:
    one, two = workers(world, swarm)
    (world.repo / "long.txt").write_text("".join(["merged by a third\n", *LINES[1:]]))
    git_run(world.repo, "commit", "-q", "-a", "-m", "third")
    for instance in (one, two):
        Path(instance.worktree_path, f"{instance.id}.txt").write_text("own\n")
        git_run(Path(instance.worktree_path), "add", "-A")
        commit(instance)
        git_run(Path(instance.worktree_path), "rebase", "-q", "main")
    look(swarm, radar(swarm))
    assert found(swarm) == []


def test_work_that_started_from_different_commits_is_compared_in_lines_of_one(world: World, swarm: Swarm) -> None:
    one = workers(world, swarm, 1)[0]
    (world.repo / "long.txt").write_text("".join(["new\n"] * 20 + LINES))
    git_run(world.repo, "commit", "-q", "-a", "-m", "twenty lines above")
    two = workers(world, swarm, 1)[0]
    edit(one, 30, "mine")
    edit(two, 30, "not the same line")
    eye = radar(swarm)
    look(swarm, eye)
    assert found(swarm)[0].files == {"long.txt": []}
    edit(two, 50, "the same line")
    look(swarm, eye)
    assert found(swarm)[0].files == {"long.txt": [[30, 30]]}


def test_git_is_asked_again_only_about_what_has_changed(world: World) -> None:
    with world.open() as local:
        host = Counting(world.settings, world.environ)
        swarm = Swarm(replace(local.context, hosts=HostPool([host])), world.environ)
        one, two, three, alone = workers(world, swarm, 4)
        for instance in (one, two, three):
            edit(instance, 10, instance.id)
            commit(instance)
        Path(alone.worktree_path, "alone.txt").write_text("own\n")
        eye = radar(swarm)
        look(swarm, eye)
        assert sorted(host.seen) == sorted(i.id for i in (one, two, three, alone))
        assert len(host.predicted) == 3
        look(swarm, eye)
        assert (len(host.seen), len(host.predicted)) == (4, 3)
        edit(one, 30, "more")
        look(swarm, eye)
        assert (host.seen[4:], len(host.predicted)) == ([one.id], 3), "no commit, no merge"
        commit(one)
        look(swarm, eye)
        assert (host.seen[5:], len(host.predicted)) == ([one.id], 5)


def test_a_worktree_that_cannot_be_read_hides_nobody_else(world: World) -> None:
    with world.open() as local:
        host = Counting(world.settings, world.environ)
        swarm = Swarm(replace(local.context, hosts=HostPool([host])), world.environ)
        one, two, three = workers(world, swarm, 3)
        for instance in (one, two, three):
            edit(instance, 10, instance.id)
        look(swarm, radar(swarm))
        assert len(found(swarm)) == 3
        git_run(world.repo, "commit", "-q", "--allow-empty", "-m", "so that nobody knows where they went apart")
        for instance in (one, two, three):
            edit(instance, 12, instance.id)
            commit(instance)
        host.unreadable = {one.id}
        eye = radar(swarm)
        look(swarm, eye)
        known = {(o.one, o.other): bool(o.conflicts) for o in found(swarm)}
        assert known == {(one.id, two.id): False, (one.id, three.id): False, (two.id, three.id): True}
        host.unreadable = set()
        edit(one, 14, "readable again")
        look(swarm, eye)
        host.unreadable = {two.id}
        edit(one, 13, "while another is not")
        look(swarm, eye)
        assert [bool(o.conflicts) for o in found(swarm)] == [True, True, True]
        where = {o.other: o.files["long.txt"] for o in found(swarm) if o.one == one.id}
        assert (where[two.id][-1], where[three.id][-1]) == ([14, 14], [12, 14])


def test_work_with_an_open_pull_request_counts_though_its_agent_failed(world: World, swarm: Swarm) -> None:
    db = swarm.context.db
    made = [
        add_instance(db, f"work-{n}-a1", repo_path=str(world.repo), **fields)
        for n, fields in enumerate(
            (
                {"status": Status.FAILED, "pr_number": 1},
                {"status": Status.FAILED, "pr_number": 2},
                {"status": Status.FAILED},
                {"status": Status.PR_CREATED},
                {"status": Status.PR_MERGED},
                {"status": Status.APPROVED, "cleaned_at": db.now()},
                {"status": Status.RUNNING, "kind": Kind.REVIEW},
                {"status": Status.RUNNING, "kind": Kind.ADHOC},
            )
        )
    ]
    with db.write():
        for instance, state in zip(made, (PullState.OPEN, PullState.CLOSED), strict=False):
            about = {"head_branch": instance.branch, "base_branch": "main", "head_commit": "0" * 40}
            known = {"forge": "local", "repo_path": instance.repo_path, "number": instance.pr_number, "url": ""}
            text = {"title": "t", "body": "", "created_at": db.now(), "updated_at": db.now(), "opened_by": "x"}
            pulls.insert(db, Pull(id=0, instance_id=instance.id, state=state, **known, **about, **text))
    assert list(overlap.watched(swarm.context)) == ["work-0-a1", "work-3-a1", "work-7-a1"]


def test_people_see_who_overlaps_and_where(world: World, swarm: Swarm) -> None:
    one, two, three = workers(world, swarm, 3)
    for instance in (one, two):
        edit(instance, 10, instance.id)
        commit(instance)
    edit(three, 50, "far")
    look(swarm, radar(swarm))
    listed = {line.split()[0]: line for line in world.command("ls").stdout.decode().splitlines()}
    assert f"would conflict with {two.id}" in listed[one.id]
    assert "overlaps" not in listed[three.id]
    shown = world.command("show", one.id).stdout.decode()
    assert f"{two.id}: same places in long.txt:10; would conflict today in long.txt (as committed)" in shown
    assert f"{three.id}: other places of long.txt" in shown
    for body in (
        json.loads(world.command("show", one.id, "--json").stdout),
        next(i for i in json.loads(world.command("ls", "--json").stdout) if i["id"] == one.id),
    ):
        (near,) = [o for o in body["overlaps"] if o["instance_id"] == two.id]
        assert (near["level"], near["files"]) == ("conflict", {"long.txt": [[10, 10]]})
        assert (near["conflicts"], near["conflicts_of"]) == (["long.txt"], "commits")


def test_the_supervisor_counts_looks_and_tells_two_agents_at_work(
    world: World, swarm: Swarm, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TICK", "_PAUSE_PER_COST"):
        monkeypatch.setattr(supervise, name, 0.0)
    made = [world.work(swarm, f"write shared.txt by {n}\nsay ready") for n in (1, 2)]
    for one in made:
        world.wait_idle(swarm, one.id)
    supervisor = Supervisor(swarm.context)
    monkeypatch.setattr(supervisor, "_radar", radar(swarm))

    def both_told() -> bool:
        supervisor.do_chores()
        return all(told(swarm, one) for one in made)

    wait_until(both_told, timeout=60, what="both were told")
    assert swarm.overlaps()[0].files == {"shared.txt": [[0, 2**31 - 1]]}

"""Noting that a pull request was merged: git is asked, and nothing else decides."""

from __future__ import annotations

import functools
import json

import pytest

from swarm_core.errors import Conflict, InvalidInput, NotFound
from swarm_core.models import Instance, Pull
from swarm_core.swarm import Swarm
from tests.integration.review_fixture import all_at_once, code_of, commit, finished_work, named, refusal
from tests.rows import pulls_of
from tests.support import git_run
from tests.world import World, assert_agreement


def open_pull(swarm: Swarm, work: Instance, **options: str) -> Pull:
    return swarm.open_pull(work.id, title="Make it", description="It was not made.", actor=work.id, **options)


def merge(world: World, work: Instance, *words: str) -> None:
    git_run(world.repo, "merge", "-q", *words, work.branch)


@pytest.mark.parametrize(
    "how", [["--no-ff", "-m", "merge it"], ["--ff-only"]], ids=["merge commit", "fast-forward"]
)
def test_a_merged_pull_request_is_noted_with_its_event_and_status(world: World, how: list[str]) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        opened = open_pull(swarm, work)
        merge(world, work, *how)
        pull = swarm.note_merged(work.id, actor="kim")
        assert (pull.id, pull.number, pull.state) == (opened.id, 1, "merged")
        assert [pull] == pulls_of(swarm.context.db, work.id)
        after = swarm.find(work.id)
        assert (after.status, after.pr_number) == ("pr_merged", 1)
        [event] = named(swarm, "pull:merged", work.id)
        assert event.actor == "kim"
        told = {"number": 1, "url": opened.url, "commit": opened.head_commit}
        told |= {"branch": work.branch, "base_branch": "main"}
        assert event.metadata == told | {"merge_commit": git_run(world.repo, "rev-parse", "main").strip()}
        assert_agreement(world, swarm)


def test_one_that_git_does_not_show_as_merged_is_refused_and_nothing_changes(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        pull = open_pull(swarm, work)
        refused = refusal(swarm.note_merged, work.id)
        assert isinstance(refused, Conflict)
        assert refused.code == "PULL_NOT_MERGED"
        assert refused.details["head_commit"] == pull.head_commit
        [after] = pulls_of(swarm.context.db, work.id)
        assert (after.id, after.state, after.head_commit) == (pull.id, "open", pull.head_commit)
        assert swarm.find(work.id).status == "pr_created"
        assert named(swarm, "pull:merged") == []


def test_a_squash_has_another_commit_and_is_a_merge_all_the_same(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        open_pull(swarm, work)
        merge(world, work, "--squash")
        assert code_of(swarm.note_merged, work.id) == "PULL_NOT_MERGED"
        git_run(world.repo, "commit", "-q", "-m", "squashed")
        assert swarm.note_merged(work.id).merge_commit == git_run(world.repo, "rev-parse", "main").strip()


def test_it_must_be_merged_where_it_was_to_go_and_up_to_its_commit(world: World) -> None:
    git_run(world.repo, "branch", "release")
    with world.open() as swarm:
        work = finished_work(world, swarm)
        open_pull(swarm, work, base_branch="release")
        merge(world, work)
        assert code_of(swarm.note_merged, work.id) == "PULL_NOT_MERGED"
        git_run(world.repo, "switch", "-q", "release")
        merge(world, work)
        commit(work, "later.txt")
        open_pull(swarm, work)
        assert code_of(swarm.note_merged, work.id) == "PULL_NOT_MERGED"
        merge(world, work)
        assert swarm.note_merged(work.id).state == "merged"


def test_a_base_branch_that_is_gone_has_nothing(world: World) -> None:
    git_run(world.repo, "branch", "release")
    with world.open() as swarm:
        work = finished_work(world, swarm)
        open_pull(swarm, work, base_branch="release")
        git_run(world.repo, "branch", "-q", "-D", "release")
        assert code_of(swarm.note_merged, work.id) == "PULL_NOT_MERGED"


def test_noting_it_twice_changes_nothing(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        open_pull(swarm, work)
        merge(world, work)
        first = swarm.note_merged(work.id)
        git_run(world.repo, "reset", "-q", "--hard", "HEAD~1")  # git is not asked again
        assert swarm.note_merged(work.id) == first
        assert len(named(swarm, "pull:merged")) == 1
        assert len([e for e in named(swarm, "instance:status") if e.status_to == "pr_merged"]) == 1


def test_of_many_that_note_it_at_once_one_does(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        open_pull(swarm, work)
        merge(world, work)
        note = functools.partial(Swarm.note_merged, target_id=work.id)
        got = all_at_once(world, [note] * 4)
        assert {pull.state for pull in got} == {"merged"}
        assert len(named(swarm, "pull:merged")) == 1


def test_an_ended_instance_keeps_its_status(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        open_pull(swarm, work)
        swarm.stop(work.id)
        swarm.clean(work.id)
        merge(world, work)
        assert swarm.note_merged(work.id).state == "merged"
        assert swarm.find(work.id).status == "terminated"


def test_without_a_pull_request_there_is_nothing_to_note(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        review = swarm.request_review(work.id)
        merge(world, work)
        assert isinstance(refusal(swarm.note_merged, work.id), NotFound)
        assert isinstance(refusal(swarm.note_merged, review.id), InvalidInput)


def test_a_clean_after_the_merge_deletes_the_branch(world: World) -> None:
    """As long as its pull request is open it stays."""
    with world.open() as swarm:
        work = finished_work(world, swarm)
        open_pull(swarm, work)
        merge(world, work)
        swarm.note_merged(work.id)
        swarm.stop(work.id)
        swarm.clean(work.id)
        assert work.branch not in world.branches()
        assert swarm.find(work.id).status == "pr_merged"


def test_the_command_notes_it_and_says_where_it_is(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        open_pull(swarm, work)
        refused = world.command("merged", work.id, "--json")
        assert refused.returncode == 1
        assert json.loads(refused.stdout)["error"]["code"] == "PULL_NOT_MERGED"
        merge(world, work)
        said = world.command("merged", work.id)
        assert said.stdout == f"{work.id}: pull request #1 is merged into main\n".encode()
        told = json.loads(world.command("merged", work.id, "--json").stdout)
        assert (told["number"], told["state"], told["instance_id"]) == (1, "merged", work.id)
        assert swarm.find(work.id).status == "pr_merged"

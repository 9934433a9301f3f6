"""Pull requests kept here: checked, numbered, opened once, by the author, the reviewer or a person."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from swarm_core.errors import Conflict
from swarm_core.models import Instance, Pull
from swarm_core.store import messages
from swarm_core.swarm import Swarm
from tests.integration.review_fixture import (
    all_at_once,
    approve,
    code_of,
    commit,
    finished_work,
    head,
    link,
    named,
    needs_work,
    refusal,
    rounds,
)
from tests.rows import pulls_of
from tests.support import git_run, make_repo
from tests.world import World, assert_agreement

__all__ = ["rounds"]


def open_pull(swarm: Swarm, work: Instance, **options: Any) -> Pull:
    given = {"title": "Make it", "description": "It was *not* made.", "actor": work.id} | options
    return swarm.open_pull(work.id, **given)


def text_of(pull: Pull) -> str:
    """The file a person opens."""
    return Path(unquote(urlsplit(pull.url).path)).read_text()


def files_of(world: World, work: Instance) -> list[str]:
    folder = world.settings.instance_dir(work.id) / "pulls"
    return sorted(p.name for p in folder.iterdir()) if folder.exists() else []


def by_review(swarm: Swarm, work: Instance, review: Instance) -> Pull:
    return open_pull(swarm, work, actor=review.id, review_id=review.id)


def test_a_pull_request_is_a_row_an_event_and_a_file_a_person_can_open(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        told: list[Pull] = []
        pull = open_pull(swarm, work, recorded=told.append)
        assert told == [pull] == pulls_of(swarm.context.db, work.id)
        assert (pull.number, pull.forge, pull.state) == (1, "local", "open")
        assert (pull.head_branch, pull.base_branch, pull.head_commit) == (work.branch, "main", head(work))
        assert (pull.instance_id, pull.opened_by) == (work.id, work.id)
        after = swarm.find(work.id)
        assert (after.status, after.pr_number, after.pr_url) == ("pr_created", 1, pull.url)
        text = text_of(pull)
        assert "Pull request #1: Make it" in text
        assert "It was *not* made." in text
        [event] = named(swarm, "pull:opened", work.id)
        assert (event.metadata["number"], event.metadata["uncommitted"]) == (1, [])
        assert git_run(world.repo, "status", "--porcelain") == ""
        assert_agreement(world, swarm)


def test_asking_again_returns_the_open_one(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        first = open_pull(swarm, work)
        told: list[Pull] = []
        assert open_pull(swarm, work, title="Another", base_branch="nowhere", recorded=told.append) == first
        assert told == [first]
        swarm.set_status(work.id, "running", actor=work.id)
        assert open_pull(swarm, work) == first
        assert swarm.find(work.id).status == "pr_created"
        assert len(named(swarm, "pull:opened")) == 1


def test_asking_again_after_a_commit_returns_the_open_one_at_that_commit(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        first = open_pull(swarm, work)
        new = commit(work, "later.txt")
        told: list[Pull] = []
        again = open_pull(swarm, work, title="Another", recorded=told.append)
        assert (again.id, again.number, again.url, again.title) == (first.id, 1, first.url, "Make it")
        assert again.head_commit == new
        assert told == [again] == pulls_of(swarm.context.db, work.id)
        assert f"at {new}" in text_of(again)
        assert first.head_commit not in text_of(again)
        [event] = named(swarm, "pull:updated", work.id)
        assert event.actor == work.id
        assert event.metadata == {"number": 1, "url": first.url, "from": first.head_commit, "commit": new}
        assert open_pull(swarm, work) == again
        assert (len(named(swarm, "pull:opened")), len(named(swarm, "pull:updated"))) == (1, 1)


def test_an_open_one_whose_branch_is_gone_keeps_its_commit(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        first = open_pull(swarm, work)
        swarm.stop(work.id)
        git_run(Path(work.worktree_path), "checkout", "-q", "--detach")
        git_run(world.repo, "branch", "-q", "-D", work.branch)
        assert open_pull(swarm, work, actor="operator") == first


def test_numbers_are_counted_per_repository(world: World, tmp_path: Path) -> None:
    other = make_repo(tmp_path / "other")
    with world.open() as swarm:
        numbers = [open_pull(swarm, finished_work(world, swarm)).number for _ in range(2)]
        elsewhere = swarm.work("say hi", repo=str(other), agent="scripted")[0]
        commit(elsewhere)
        assert numbers == [1, 2]
        assert open_pull(swarm, elsewhere).number == 1


def test_of_many_that_open_at_once_each_work_gets_one_and_no_number_comes_twice(world: World) -> None:
    with world.open() as swarm:
        works = [finished_work(world, swarm) for _ in range(3)]
    got = all_at_once(world, [functools.partial(open_pull, work=work) for work in works * 2])
    assert len(got) == 6
    assert sorted(number for _, number in {(pull.instance_id, pull.number) for pull in got}) == [1, 2, 3]


def test_a_reviewer_approves_by_opening_it(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        review = swarm.request_review(work.id)
        pull = by_review(swarm, work, review)
        assert (pull.instance_id, pull.opened_by, pull.head_branch) == (work.id, review.id, work.branch)
        assert link(swarm, review).verdict == "approved"
        for instance, status in ((work, "pr_created"), (review, "approved")):
            after = swarm.find(instance.id)
            assert (after.status, after.pr_number, after.pr_url) == (status, 1, pull.url)
        moves = [e.status_to for e in named(swarm, "instance:status", work.id)]
        assert moves[-3:] == ["waiting_review", "approved", "pr_created"]
        assert by_review(swarm, work, review) == pull
        [message] = messages.of(swarm.context.db, work.id)
        assert pull.url in message.body
        assert len(named(swarm, "review:verdict")) == 1
        assert_agreement(world, swarm)


def test_after_its_approval_the_same_review_opens_it(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        review = swarm.request_review(work.id)
        approve(swarm, review)
        assert by_review(swarm, work, review).number == 1
        assert swarm.find(work.id).status == "pr_created"
        assert len(named(swarm, "review:verdict")) == 1


def test_a_reviewer_approves_the_pull_request_that_is_open_but_not_what_came_after(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        pull = open_pull(swarm, work)
        swarm.set_status(work.id, "running", actor=work.id)
        review = swarm.request_review(work.id)
        commit(work, "later.txt")
        assert code_of(by_review, swarm, work, review) == "WORKFLOW_INVALID_STATE"
        assert link(swarm, review).verdict is None
        needs_work(swarm, review)
        review = swarm.request_review(work.id)
        approved = by_review(swarm, work, review)
        assert (approved.id, approved.head_commit) == (pull.id, head(work))
        assert link(swarm, review).verdict == "approved"
        assert swarm.find(work.id).status == "pr_created"


def test_a_reviewer_opens_nothing_for_others(world: World) -> None:
    with world.open() as swarm:
        work, other = finished_work(world, swarm), finished_work(world, swarm)
        review = swarm.request_review(work.id)
        refused = refusal(open_pull, swarm, other, actor=review.id, review_id=review.id)
        assert (refused.code, refused.details["rule"]) == ("FORBIDDEN", "only-the-reviewer")
        assert code_of(open_pull, swarm, review) == "INVALID_INPUT"
        assert pulls_of(swarm.context.db, other.id) == []


def test_what_cannot_be_merged_is_refused(world: World) -> None:
    with world.open() as swarm:
        work = world.work(swarm)
        (Path(work.worktree_path) / "open.txt").write_text("not committed\n")
        refused = refusal(open_pull, swarm, work)
        assert (refused.code, refused.details["uncommitted"]) == ("NO_CHANGES", ["open.txt"])
        commit(work)
        git_run(world.repo, "tag", "v1")
        for base in ("nowhere", "v1", head(work)):
            assert code_of(open_pull, swarm, work, base_branch=base) == "GIT_BRANCH_NOT_FOUND", base
        assert code_of(open_pull, swarm, work, base_branch=work.branch) == "INVALID_INPUT"
        assert code_of(open_pull, swarm, work, base_branch="--upload-pack=x") == "INVALID_BRANCH_NAME"
        assert swarm.find(work.id).status == "running"
        assert named(swarm, "pull:opened") == []


@pytest.mark.parametrize(
    "options",
    [
        {"title": ""},
        {"title": " "},
        {"title": "two\nlines"},
        {"title": "x" * 1025},
        {"title": "a\0b"},
        {"description": "\ud800"},
        {"description": "x" * (256 * 1024 + 1)},
    ],
    ids=range(7),
)
def test_text_that_cannot_be_kept_is_refused(world: World, options: dict[str, str]) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        assert code_of(open_pull, swarm, work, **options) == "INVALID_INPUT"
        assert open_pull(swarm, work, description="").number == 1


def test_uncommitted_files_do_not_hinder_it_and_are_named(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        (Path(work.worktree_path) / "open.txt").write_text("not committed\n")
        open_pull(swarm, work)
        [event] = named(swarm, "pull:opened")
        assert (event.metadata["uncommitted"], event.metadata["uncommitted_count"]) == (["open.txt"], 1)


def test_a_fork_is_merged_where_the_work_it_was_forked_from_is(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        fork = swarm.fork(work.id)
        commit(fork, "fork.txt")
        assert open_pull(swarm, fork).base_branch == "main"
        git_run(world.repo, "branch", "release")
        assert open_pull(swarm, work, base_branch="release").base_branch == "release"


def test_a_person_opens_that_of_an_agent_that_has_ended(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        swarm.stop(work.id)
        pull = open_pull(swarm, work, actor="operator")
        after = swarm.find(work.id)
        assert (after.status, after.pr_number, pull.opened_by) == ("terminated", 1, "operator")
        swarm.clean(work.id)
        assert work.branch in world.branches()


def test_the_mark_of_used_rounds_goes_with_the_pull_request(world: World, rounds: Callable[[int], None]) -> None:
    rounds(1)
    with world.open() as swarm:
        work = finished_work(world, swarm)
        needs_work(swarm, swarm.request_review(work.id))
        assert code_of(swarm.request_review, work.id) == "REVIEW_LIMIT_EXCEEDED"
        assert swarm.find(work.id).needs_person
        open_pull(swarm, work)
        assert swarm.find(work.id).needs_person == ""


def test_what_fails_inside_the_transaction_leaves_nothing(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        review = swarm.request_review(work.id)

        def fail(_: Pull) -> None:
            raise Conflict("no")

        given = {"actor": review.id, "review_id": review.id, "recorded": fail}
        assert code_of(open_pull, swarm, work, **given) == "CONFLICT"
        assert pulls_of(swarm.context.db, work.id) == []
        assert files_of(world, work) == []
        assert swarm.find(work.id).status == "waiting_review"
        assert link(swarm, review).verdict is None
        assert by_review(swarm, work, review).number == 1


def test_an_update_that_fails_leaves_row_and_file_as_they_were(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        first = open_pull(swarm, work)
        before = text_of(first)
        commit(work, "later.txt")

        def fail(pull: Pull) -> None:
            assert text_of(pull) != before
            raise Conflict("no")

        assert code_of(open_pull, swarm, work, recorded=fail) == "CONFLICT"
        assert pulls_of(swarm.context.db, work.id) == [first]
        assert text_of(first) == before
        assert named(swarm, "pull:updated") == []


def test_one_that_fails_does_not_take_away_the_file_of_one_that_succeeds_meanwhile(world: World) -> None:
    """Two callers get the same number one after the other when the first of them fails."""
    with world.open() as swarm, world.open() as other:
        work = finished_work(world, swarm)
        opened: list[Pull] = []

        def fail(_: Pull) -> None:
            swarm.context.db._connection.execute("ROLLBACK")  # as if SQLite itself had failed
            opened.append(open_pull(other, work, title="The other one"))
            raise Conflict("no")

        assert code_of(open_pull, swarm, work, recorded=fail) == "CONFLICT"
        assert opened == pulls_of(swarm.context.db, work.id)
        assert "The other one" in text_of(opened[0])
        assert files_of(world, work) == ["1.md"]


def test_a_clean_keeps_the_branch_of_an_open_pull_request(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        swarm.fork(work.id)
        open_pull(swarm, work)
        swarm.stop(work.id)
        swarm.clean(work.id)
        assert work.branch in world.branches()
        assert_agreement(world, swarm)

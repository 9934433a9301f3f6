"""What only a person decides, and what is reported to one: limits, disagreement, overdue reviews, reboots."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from swarm_core.errors import Conflict
from swarm_core.models import Instance, Relationship
from swarm_core.ops import decide, supervise
from swarm_core.ops.supervise import Supervisor
from swarm_core.store import instances, messages, relationships
from swarm_core.swarm import Swarm
from tests.integration.review_fixture import code_of, commit, finished_work, head, needs_work, rounds
from tests.support import wait_until
from tests.world import World

__all__ = ["rounds"]


@pytest.fixture
def swarm(world: World) -> Iterator[Swarm]:
    with world.open() as opened:
        yield opened


def reviewed(swarm: Swarm, work: Instance) -> Instance:
    return swarm.request_review(work.id, reviewer_prompt="say reviewing")


def sent_back(swarm: Swarm, work: Instance, *, more: bool = True) -> None:
    needs_work(swarm, reviewed(swarm, work), "Please do more.")
    if more:
        commit(work, f"more-{len(links(swarm, work))}.txt")


def links(swarm: Swarm, work: Instance) -> list[Relationship]:
    return relationships.reviews_of(swarm.context.db, work.id)


def last_message(swarm: Swarm, work: Instance) -> str:
    return messages.of(swarm.context.db, work.id)[-1].body


def names(swarm: Swarm, work: Instance) -> list[str]:
    return [e.name for e in swarm.events(after=0, instance_id=work.id, limit=1000)]


@pytest.fixture
def at_the_limit(world: World, swarm: Swarm, rounds: Callable[[int], None]) -> Iterator[tuple[Swarm, Instance]]:
    rounds(1)
    with world.open() as limited:
        work = finished_work(world, limited)
        sent_back(limited, work)
        assert code_of(limited.request_review, work.id) == "REVIEW_LIMIT_EXCEEDED"
        assert limited.find(work.id).needs_person
        yield limited, work


def test_accepted_work_is_approved_and_its_agent_is_told(at_the_limit: tuple[Swarm, Instance]) -> None:
    swarm, work = at_the_limit
    done = swarm.accept(work.id, message="Good enough.", actor="kim")
    assert (done.status, swarm.find(work.id).needs_person) == ("approved", "")
    assert head(work) in last_message(swarm, work)
    assert last_message(swarm, work).endswith("Good enough.")
    assert "work:accepted" in names(swarm, work)


def test_another_scope_gives_the_work_its_rounds_again(at_the_limit: tuple[Swarm, Instance]) -> None:
    swarm, work = at_the_limit
    after = swarm.rescope(work.id, "Only the parser.")
    assert (after.status, after.needs_person) == ("running", "")
    assert "Only the parser." in last_message(swarm, work)
    review = reviewed(swarm, work)
    assert swarm.review_link(review.id).verdict is None
    needs_work(swarm, review, "Once more.")
    assert code_of(swarm.request_review, work.id) == "REVIEW_LIMIT_EXCEEDED"


def test_abandoned_work_is_ended_and_its_commits_stay(world: World, at_the_limit: tuple[Swarm, Instance]) -> None:
    swarm, work = at_the_limit
    tip = head(work)
    done = swarm.abandon(work.id, why="done in another way")
    assert (done.status, done.wanted, done.reason) == ("failed", "stopped", "done in another way")
    assert not world.sessions().get(work.id)
    assert head(work) == tip
    assert swarm.find(work.id).needs_person == ""


def test_of_two_who_accept_the_same_commit_the_second_is_refused_and_the_agent_told_once(
    at_the_limit: tuple[Swarm, Instance],
) -> None:
    swarm, work = at_the_limit
    swarm.accept(work.id, actor="kim")
    with pytest.raises(Conflict) as refused:
        swarm.accept(work.id, actor="ben")
    assert refused.value.code == "WORKFLOW_INVALID_STATE"
    assert names(swarm, work).count("work:accepted") == 1


@pytest.mark.parametrize("act", ["accept", "rescope", "abandon"])
def test_a_decision_ends_the_review_that_is_under_way(world: World, swarm: Swarm, act: str) -> None:
    work = finished_work(world, swarm)
    review = reviewed(swarm, work)
    getattr(swarm, act)(work.id, *(["Only half."] if act == "rescope" else []))
    assert swarm.review_link(review.id).verdict == "none"
    assert relationships.open_review(swarm.context.db, work.id) is None
    assert code_of(swarm.set_status, review.id, "approved", actor=review.id) == "WORKFLOW_INVALID_STATE"


@pytest.mark.parametrize("act", ["accept", "rescope"])
def test_what_has_ended_is_decided(world: World, swarm: Swarm, act: str) -> None:
    work = finished_work(world, swarm)
    swarm.stop(work.id)
    assert code_of(getattr(swarm, act), work.id, *(["x"] if act == "rescope" else [])) == "WORKFLOW_INVALID_STATE"


def test_a_commit_that_is_sent_back_twice_is_a_disagreement(world: World, swarm: Swarm) -> None:
    work = finished_work(world, swarm)
    sent_back(swarm, work, more=False)
    assert swarm.find(work.id).needs_person == ""
    sent_back(swarm, work, more=False)
    assert "disagree" in swarm.find(work.id).needs_person
    assert "review:disagreement" in names(swarm, work)


def test_a_review_without_a_verdict_in_time_is_reported_and_approves_nothing(world: World, swarm: Swarm) -> None:
    work = finished_work(world, swarm)
    review = reviewed(swarm, work)
    assert decide.end_overdue_reviews(swarm.context) == []
    age(swarm, review, hours=25)
    assert decide.end_overdue_reviews(swarm.context) == [review.id]
    assert decide.end_overdue_reviews(swarm.context) == []
    found = swarm.find(work.id)
    assert (found.status, swarm.review_link(review.id).verdict) == ("running", "none")
    assert "no verdict within 24 hours" in found.needs_person
    assert "Nothing was approved" in last_message(swarm, work)
    assert code_of(swarm.set_status, review.id, "approved", actor=review.id) == "WORKFLOW_INVALID_STATE"


def age(swarm: Swarm, review: Instance, *, hours: float) -> None:
    db = swarm.context.db
    with db.write():
        db.execute(
            "UPDATE relationships SET created_at = strftime('%Y-%m-%dT%H:%M:%S.000+00:00', created_at, ?)"
            " WHERE child_id = ?",
            (f"-{hours} hours", review.id),
        )


def test_a_reviewer_that_is_done_is_stopped_and_can_be_started_again(
    world: World, swarm: Swarm, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = finished_work(world, swarm)
    review = reviewed(swarm, work)
    world.wait_idle(swarm, review.id)
    supervisor = Supervisor(swarm.context)
    monkeypatch.setattr(supervise, "_REVIEWER_STAYS", 0.0)
    supervisor.do_chores()
    assert swarm.find(review.id).wanted == "running", "it has not said anything yet"
    needs_work(swarm, review, "Please do more.")
    supervisor.do_chores()
    swarm.reconcile()
    assert (swarm.find(review.id).wanted, world.sessions().get(review.id, False)) == ("stopped", False)
    assert swarm.find(work.id).wanted == "running"
    assert swarm.restart(review.id).wanted == "running"


def test_a_reviewer_that_said_something_a_moment_ago_is_left_alone(world: World, swarm: Swarm) -> None:
    work = finished_work(world, swarm)
    review = reviewed(swarm, work)
    world.wait_idle(swarm, review.id)
    needs_work(swarm, review, "Please do more.")
    Supervisor(swarm.context).do_chores()
    assert swarm.find(review.id).wanted == "running"


def test_after_a_reboot_one_command_resumes_all_and_no_second_time(world: World, swarm: Swarm) -> None:
    works = [world.wait_idle(swarm, world.work(swarm).id) for _ in range(3)]
    stopped = world.work(swarm)
    swarm.stop(stopped.id)
    world.kill_tmux()
    first = json.loads(world.command("resume", "--json", timeout=120).stdout)
    assert sorted(i["id"] for i in first) == sorted(w.id for w in works)
    assert {i["wanted"] for i in first} == {"running"}
    for work in works:
        found = swarm.find(work.id)
        assert (found.conversation_id, found.epoch) == (work.conversation_id, work.epoch + 1)
        wait_until(
            lambda work=work: "resumed conversation" in swarm.screen(swarm.find(work.id)),
            timeout=20,
            what=f"{work.id} goes on",
        )
    assert json.loads(world.command("resume", "--json").stdout) == []
    assert swarm.find(stopped.id).wanted == "stopped"


def test_ended_work_is_not_resumed_and_is_named(world: World, swarm: Swarm) -> None:
    merged, closed, left, review, goes_on = (world.wait_idle(swarm, world.work(swarm).id) for _ in range(5))
    for work in (merged, closed):
        commit(work, f"{work.id}.txt")
        swarm.open_pull(work.id, title="Done", description="")
    swarm.pulls.merge(merged.id)
    swarm.pulls.close(closed.id)
    commit(review, "reviewed.txt")
    reviewer = reviewed(swarm, review)
    needs_work(swarm, reviewer, "Please do more.")
    asked = world.work(swarm)
    commit(asked, "asked.txt")
    unfinished = reviewed(swarm, asked)
    world.kill_tmux()
    swarm.reconcile()
    swarm.abandon(left.id)
    told = {i["id"]: i for i in json.loads(world.command("resume", "--json", timeout=120).stdout)}
    assert {name: i.get("skipped") for name, i in told.items()} == {
        merged.id: "pr_merged",
        closed.id: "pr_closed",
        reviewer.id: "terminated",
        unfinished.id: "review_over",
        review.id: None,
        asked.id: None,
        goes_on.id: None,
    }
    assert {name for name, i in told.items() if i["wanted"] == "running"} == {review.id, asked.id, goes_on.id}
    assert swarm.find(left.id).wanted == "stopped"
    assert b"skipped, pr_merged" in world.command("resume").stdout


def test_a_conversation_is_resumed_without_a_prompt(world: World, swarm: Swarm) -> None:
    work = world.work(swarm, "say one\nhang")
    wait_until(lambda: "one" in swarm.screen(work), what="its first step")
    world.kill_tmux()
    [told] = json.loads(world.command("resume", "--no-prompt", "--json", timeout=60).stdout)
    assert (told["id"], told["conversation_id"]) == (work.id, work.conversation_id)
    world.wait_idle(swarm, work.id)  # with a prompt it would go on and hang again
    assert "resumed conversation" in swarm.screen(swarm.find(work.id))


def test_a_review_is_started_by_hand(world: World, swarm: Swarm) -> None:
    work = finished_work(world, swarm)
    done = world.command("review", work.id, "say looking", "--json")
    review = json.loads(done.stdout)
    assert (review["kind"], review["parent_id"]) == ("review", work.id)
    assert instances.get(swarm.context.db, work.id).status == "waiting_review"


def test_the_commands_of_a_decision(world: World, swarm: Swarm) -> None:
    work = finished_work(world, swarm)
    assert world.command("rescope", work.id, "half of it").stdout == f"{work.id}: running\n".encode()
    assert world.command("accept", work.id).stdout == f"{work.id}: approved\n".encode()
    assert json.loads(world.command("abandon", work.id, "--json").stdout)["status"] == "failed"


@pytest.mark.parametrize("why", ["a\0b", "half \ud800 a character", "x" * 100_000])
def test_work_that_cannot_be_abandoned_for_that_reason_is_as_it_was(world: World, swarm: Swarm, why: str) -> None:
    work = finished_work(world, swarm)
    review = reviewed(swarm, work)
    before = names(swarm, work)
    assert code_of(swarm.abandon, work.id, why=why) == "INVALID_INPUT"
    assert swarm.review_link(review.id).verdict is None
    assert (swarm.find(work.id).status, names(swarm, work)) == ("waiting_review", before)

"""Statuses as agents and people set them: who may set which, legal moves only, and ends that end the session."""

from __future__ import annotations

import pytest

from swarm_core.errors import Conflict, Denied
from swarm_core.models import TRANSITIONS, Instance, Kind, Status
from swarm_core.ops import status as statuses
from swarm_core.ops import steps
from swarm_core.ops.reconcile import finish_open
from swarm_core.ops.spawn import SPAWN
from swarm_core.store import actions, messages
from tests.integration.review_fixture import approve, code_of, finished_work, link, named, refusal
from tests.world import World, assert_agreement


def test_the_table_has_every_kind_and_nobody_approves_their_own_work() -> None:
    assert statuses.SETTABLE.keys() == set(Kind)
    assert [k for k, may in statuses.SETTABLE.items() if Status.APPROVED in may] == [Kind.REVIEW]
    assert all({Status.RUNNING, Status.FAILED, Status.TERMINATED} <= may for may in statuses.SETTABLE.values())


@pytest.mark.parametrize("kind", ["work", "fork", "adhoc"])
def test_an_author_does_not_approve_its_work(world: World, kind: str) -> None:
    with world.open() as swarm:
        instance = world.work(swarm, "" if kind == "adhoc" else "say hi", adhoc=kind == "adhoc")
        if kind == "fork":
            instance = swarm.fork(instance.id)
        assert instance.kind == kind
        with pytest.raises(Denied) as refused:
            swarm.set_status(instance.id, "approved", actor=instance.id)
        assert refused.value.code == "FORBIDDEN"
        assert refused.value.details["rule"] == "nobody-approves-own-work"
        assert "review" in (refused.value.hint or "")
        assert swarm.find(instance.id).status == "running"


@pytest.mark.parametrize("status", sorted(set(Status) - {"running", "failed", "terminated", "approved"}))
@pytest.mark.parametrize("by_person", [False, True])
def test_statuses_that_follow_from_something_else_are_not_set(world: World, status: str, by_person: bool) -> None:
    with world.open() as swarm:
        work = world.work(swarm)
        refused = refusal(swarm.set_status, work.id, status, actor=work.id, by_person=by_person)
        assert (refused.code, refused.details["rule"]) == ("FORBIDDEN", "not-set-by-hand")
        assert code_of(swarm.set_status, work.id, "sleeping", by_person=by_person) == "INVALID_INPUT"
        assert swarm.find(work.id).status == "running"


@pytest.mark.parametrize("status", ["failed", "terminated"])
def test_an_agent_that_ends_itself_has_its_answer_before_its_session_ends(world: World, status: str) -> None:
    with world.open() as swarm:
        work = world.work(swarm)
        told: list[Instance] = []
        after = swarm.set_status(work.id, status, message="  enough  ", actor=work.id, recorded=told.append)
        assert told == [after]
        assert (after.status, after.reason, after.wanted) == (status, "enough", "stopped")
        assert world.sessions() == {work.id: True}
        [action] = actions.all_open(swarm.context.db)
        assert (action.kind, action.actor) == ("stop", work.id)
        assert finish_open(swarm.context, patience=60) == []  # the supervisor waits a moment
        assert world.sessions() == {work.id: True}
        swarm.reconcile()
        assert world.sessions() == {}
        ended = swarm.find(work.id)
        assert (ended.status, ended.reason, ended.activity) == (status, "enough", "exited")
        assert_agreement(world, swarm)
        assert swarm.restart(work.id).status == "running"


def test_the_same_status_again_is_no_change(world: World) -> None:
    with world.open() as swarm:
        work = world.work(swarm)
        before = len(swarm.events(after=0, limit=1000))
        told: list[Instance] = []
        assert swarm.set_status(
            work.id, "running", message="hm", actor=work.id, recorded=told.append
        ) == swarm.find(work.id)
        assert len(told) == 1
        assert swarm.find(work.id).reason == ""
        assert len(swarm.events(after=0, limit=1000)) == before
        swarm.set_status(work.id, "failed", actor=work.id)
        swarm.set_status(work.id, "failed", actor=work.id)
        assert len(actions.all_open(swarm.context.db)) == 1


def test_only_legal_moves_are_made(world: World) -> None:
    with world.open() as swarm:
        work = world.work(swarm)
        swarm.stop(work.id)
        for status in ("running", "approved", "failed"):
            assert Status(status) not in TRANSITIONS[Status.TERMINATED]
            refused = refusal(swarm.set_status, work.id, status, by_person=True)
            assert refused.code == "INVALID_STATUS_TRANSITION"
        assert swarm.find(work.id).status == "terminated"


def test_what_fails_inside_the_transaction_changes_nothing(world: World) -> None:
    with world.open() as swarm:
        work = world.work(swarm)

        def fail(_: Instance) -> None:
            raise Conflict("no")

        assert code_of(swarm.set_status, work.id, "failed", actor=work.id, recorded=fail) == "CONFLICT"
        assert (swarm.find(work.id).status, swarm.find(work.id).wanted) == ("running", "running")
        assert actions.all_open(swarm.context.db) == []


def test_a_person_approves_work_and_takes_it_back(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        assert swarm.set_status(work.id, "approved", by_person=True).status == "approved"
        assert swarm.set_status(work.id, "running", by_person=True).status == "running"
        assert [e.actor for e in named(swarm, "instance:status", work.id)][-2:] == ["operator", "operator"]


def test_a_person_cannot_approve_work_without_a_commit(world: World) -> None:
    with world.open() as swarm:
        work = world.work(swarm)
        newest = swarm.events(limit=1)[0].id
        assert code_of(swarm.set_status, work.id, "approved", by_person=True) == "NO_CHANGES"
        assert code_of(swarm.accept, work.id, actor="operator") == "NO_CHANGES"
        assert swarm.find(work.id).status == "running"
        assert "instance:status" not in [e.name for e in swarm.events(after=newest)]


def test_a_person_gives_a_reviewers_verdict(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        review = swarm.request_review(work.id)
        swarm.set_status(review.id, "approved", by_person=True)
        assert (link(swarm, review).verdict, swarm.find(work.id).status) == ("approved", "approved")


def test_a_long_message_is_cut_and_one_that_cannot_be_kept_is_refused(world: World) -> None:
    with world.open() as swarm:
        work = world.work(swarm)
        for message in ("a\0b", "\ud800"):
            assert code_of(swarm.set_status, work.id, "failed", message=message, actor=work.id) == "INVALID_INPUT"
        after = swarm.set_status(work.id, "failed", message="x" * 5000, actor=work.id)
        assert len(after.reason) < 1100
        assert named(swarm, "instance:status", work.id)[-1].metadata["reason"].startswith("xxx")


def test_a_reviewer_that_approved_goes_on_and_approves_again_without_a_second_verdict(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        review = swarm.request_review(work.id)
        approve(swarm, review)
        swarm.set_status(review.id, "running", actor=review.id)
        assert approve(swarm, review).status == "approved"
        assert len(named(swarm, "review:verdict")) == 1
        assert len(messages.of(swarm.context.db, work.id)) == 1


@pytest.mark.parametrize("moment", ["spawn:session:after", "spawn:session:between"])
def test_an_agent_that_ends_itself_before_its_start_is_recorded_stays_ended(world: World, moment: str) -> None:
    def quick(name: str) -> None:
        if name == moment:
            with world.open() as agent:
                agent.set_status("work-a1", "terminated", message="nothing to do", actor="work-a1")

    with world.open(checkpoint=quick) as swarm:
        work = world.work(swarm)
        assert (work.status, work.reason) == ("terminated", "nothing to do")
        swarm.reconcile()
        assert world.sessions().get(work.id) is not True
        swarm.reconcile()
        assert_agreement(world, swarm)


def test_the_end_of_a_start_looks_at_the_status_as_it_is_then(world: World) -> None:
    def die(name: str) -> None:
        if name == "spawn:session:after":
            raise ZeroDivisionError

    with world.open(checkpoint=die) as swarm, pytest.raises(ZeroDivisionError):
        world.work(swarm)
    with world.open() as swarm:
        [action] = actions.all_open(swarm.context.db)
        stale = swarm.find("work-a1")
        assert stale.status == "starting"
        swarm.set_status("work-a1", "terminated", actor="work-a1")
        with swarm.context.lock("work-a1") as lock:
            steps.run(SPAWN, steps.Job(swarm.context, stale, action, lock))
        assert swarm.find("work-a1").status == "terminated"
        swarm.reconcile()
        assert_agreement(world, swarm)

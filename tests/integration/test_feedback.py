"""Feedback: one transaction with its message, event and verdict; the text in a file; nothing lost or half done."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from swarm_core.errors import Conflict, InvalidInput
from swarm_core.models import Feedback
from swarm_core.store import feedback, messages
from tests.integration.review_fixture import (
    approve,
    code_of,
    finished_work,
    head,
    link,
    named,
    needs_work,
    refusal,
)
from tests.world import World, assert_agreement


def test_feedback_is_a_row_a_message_an_event_and_a_file(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        review = swarm.request_review(work.id)
        inside: list[tuple[str, int]] = []

        def note(said: Feedback) -> None:
            inside.append((said.id, len(feedback.of(swarm.context.db, work.id))))

        sent = needs_work(swarm, review, "rename *it*\n\nand test it", priority="high", recorded=note)
        assert feedback.of(swarm.context.db, work.id) == [sent]
        assert inside == [(sent.id, 1)]
        assert (sent.sender, sent.to_instance, sent.priority) == (review.id, work.id, "high")
        assert (sent.relationship_id, sent.delivery_status) == (link(swarm, review).id, "queued")
        path = Path(sent.file_path)
        assert path == world.settings.instance_dir(work.id) / "feedback" / f"{sent.id}.md"
        assert "rename *it*\n\nand test it" in path.read_text()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        [message] = messages.of(swarm.context.db, work.id)
        assert (message.id, message.sender, message.state) == (sent.message_id, review.id, "accepted")
        assert sent.file_path in message.body
        assert "rename *it*\n\nand test it" in message.body
        [event] = named(swarm, "feedback:sent", work.id)
        assert (event.actor, event.metadata["feedback_id"]) == (review.id, sent.id)
        assert head(work) in path.read_text()


@pytest.mark.parametrize(
    ("state", "status"), [("seen", "delivered"), ("acknowledged", "delivered"), ("injected", "queued")]
)
def test_delivered_is_only_what_was_seen(world: World, state: str, status: str) -> None:
    with world.open() as swarm:
        work = world.work(swarm)
        sent = swarm.send_feedback(work.id, "hello", feedback_type="suggestions")
        db = swarm.context.db
        with db.write():
            db.execute("UPDATE messages SET state = ? WHERE id = ?", (state, sent.message_id))
        assert [f.delivery_status for f in feedback.of(db, work.id)] == [status]


@pytest.mark.parametrize(
    "body", ["", " \n\t ", "a\0b", "half \ud800", "x" * (200 * 1024 + 1), "ü" * (100 * 1024 + 1)]
)
def test_text_that_cannot_be_kept_or_read_is_refused(world: World, body: str) -> None:
    with world.open() as swarm:
        work = world.work(swarm)
        with pytest.raises(InvalidInput):
            swarm.send_feedback(work.id, body, feedback_type="suggestions")
        assert feedback.of(swarm.context.db, work.id) == []
        assert not (world.settings.instance_dir(work.id) / "feedback").exists()


@pytest.mark.parametrize(
    "body", ["x", "x" * (200 * 1024), "a\r\nb \u202e c", "[swarm msg 1]\n--\n'; DROP TABLE feedback"]
)
def test_text_is_kept_as_it_is(world: World, body: str) -> None:
    with world.open() as swarm:
        work = world.work(swarm)
        sent = swarm.send_feedback(work.id, body, feedback_type="suggestions")
        assert [f.body for f in feedback.of(swarm.context.db, work.id)] == [body] == [sent.body]


def test_unknown_types_and_priorities_are_refused(world: World) -> None:
    with world.open() as swarm:
        work = world.work(swarm)
        assert code_of(swarm.send_feedback, work.id, "x", feedback_type="praise") == "INVALID_INPUT"
        assert code_of(swarm.send_feedback, work.id, "x", feedback_type="suggestions", priority="now") == (
            "INVALID_INPUT"
        )
        assert code_of(swarm.send_feedback, "work-a9", "x", feedback_type="suggestions") == "INSTANCE_NOT_FOUND"


def test_a_reviewer_speaks_only_to_the_work_it_reviews(world: World) -> None:
    with world.open() as swarm:
        work, other = finished_work(world, swarm), finished_work(world, swarm)
        review = swarm.request_review(work.id)
        options = {"feedback_type": "needs_work", "actor": review.id, "review_id": review.id}
        refused = refusal(swarm.send_feedback, other.id, "x", **options)
        assert (refused.code, refused.details["rule"]) == ("FORBIDDEN", "only-the-reviewer")
        assert code_of(swarm.send_feedback, other.id, "x", **(options | {"review_id": work.id})) == "NOT_FOUND"
        assert swarm.find(other.id).status == "running"


def test_feedback_to_work_that_ended_is_kept_and_to_work_that_is_cleaned_is_refused(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        review = swarm.request_review(work.id)
        swarm.stop(work.id)
        swarm.send_feedback(work.id, "so far", feedback_type="suggestions", actor=review.id, review_id=review.id)
        assert needs_work(swarm, review).to_instance == work.id
        assert swarm.find(work.id).status == "terminated"
        assert link(swarm, review).verdict == "needs_work"
        assert len(feedback.of(swarm.context.db, work.id)) == 2
        swarm.clean(work.id)
        options = {"feedback_type": "suggestions", "actor": review.id, "review_id": review.id}
        assert code_of(swarm.send_feedback, work.id, "x", **options) == "WORKFLOW_INVALID_STATE"
        assert code_of(swarm.send_feedback, work.id, "x", feedback_type="suggestions") == "WORKFLOW_INVALID_STATE"
        assert len(feedback.of(swarm.context.db, work.id)) == 2
        assert_agreement(world, swarm)


def test_what_fails_inside_the_transaction_leaves_neither_row_nor_file(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        review = swarm.request_review(work.id)

        def fail(_: Feedback) -> None:
            raise Conflict("no")

        assert code_of(needs_work, swarm, review, recorded=fail) == "CONFLICT"
        assert feedback.of(swarm.context.db, work.id) == []
        assert messages.of(swarm.context.db, work.id) == []
        assert list((world.settings.instance_dir(work.id) / "feedback").iterdir()) == []
        assert swarm.find(work.id).status == "waiting_review"
        assert link(swarm, review).verdict is None


def test_a_person_returns_work_without_taking_the_reviewers_verdict(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        review = swarm.request_review(work.id)
        sent = swarm.send_feedback(work.id, "wrong task", feedback_type="needs_work")
        assert (sent.reviewed_commit, sent.stale) == (None, False)
        assert swarm.find(work.id).status == "running"
        assert link(swarm, review).verdict is None
        approve(swarm, review)
        assert link(swarm, review).verdict == "approved"
        assert swarm.find(work.id).status == "running"


def test_a_person_takes_back_an_approval(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        approve(swarm, swarm.request_review(work.id))
        swarm.send_feedback(work.id, "not yet", feedback_type="suggestions")
        assert swarm.find(work.id).status == "approved"
        swarm.send_feedback(work.id, "one more thing", feedback_type="needs_work")
        assert swarm.find(work.id).status == "running"

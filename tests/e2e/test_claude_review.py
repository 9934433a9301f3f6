"""The review loop with real Claude Code instances and nobody at the keyboard, from task to pull request."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from swarm_core.models import Instance, Message
from swarm_core.store import messages as ledger
from swarm_core.store import pulls, relationships
from tests.e2e.test_claude_messages import conversation, header, wait_state
from tests.fakes.messages_api import Held, Play, Reply, Request, Text, ToolUse, asked, says
from tests.integration.claude_fixture import ClaudeWorld, claude_home, claude_program, claude_world, messages
from tests.integration.review_fixture import commit
from tests.support import wait_until

__all__ = ["claude_home", "claude_program", "claude_world", "messages"]


def tool(name: str, **arguments: str) -> ToolUse:
    return ToolUse(f"mcp__swarm__{name}", arguments)


def loop(claude_world: ClaudeWorld, author_rests: Reply, reviewer_speaks: threading.Event) -> Play:
    """An author that forgets something, a reviewer that says so, and a second one that approves."""

    def commits(name: str) -> Any:
        """The author commits and asks for a review."""

        def answer(request: Request) -> Reply:
            with claude_world.world.open() as swarm:
                [author] = [i for i in swarm.instances() if i.conversation_id == request.session]
            commit(author, name)
            return tool("spawn_review_instance")

        return answer

    found = tool("send_feedback", feedback="heron.txt: the wings are missing", feedback_type="needs_work")
    approve = tool("update_instance_status", status="approved", message="It has wings.")
    pull = tool("create_pull_request", title="Add a heron", description="With wings.")
    play = Play()
    play.when(asked("Round 1 of")).then(Held(reviewer_speaks, found), Text("Sent back."))
    play.when(asked("Round 2 of")).then(approve, Text("Approved."))
    play.when(asked("Add a heron")).then(commits("heron.txt"), author_rests)
    play.when(says("the wings are missing")).then(commits("wings.txt"), Text("Reworked."))
    play.when(says(" approved commit ")).then(pull, Text("Opened."))
    return play


@pytest.mark.parametrize(("author", "how"), [("idle", "paste"), ("busy", "hook Stop")])
def test_the_loop_runs_by_itself_to_one_pull_request(claude_world: ClaudeWorld, author: str, how: str) -> None:
    """The feedback reaches the author as a prompt when it is idle, and in its turn when it is busy."""
    goes_on, reviewer_speaks = threading.Event(), threading.Event()
    rests: Reply = Text("I wait for the review.")
    claude_world.play(loop(claude_world, Held(goes_on, rests) if author == "busy" else rests, reviewer_speaks))
    with claude_world.world.open() as swarm:
        work = claude_world.work(swarm, "Add a heron")
        claude_world.api.wait_for(asked("Round 1 of"), timeout=60)
        claude_world.wait_activity(work, author)
        assert swarm.find(work.id).status == "waiting_review"
        reviewer_speaks.set()
        feedback = wait_until(lambda: first_message(claude_world, work), timeout=30, what="there is feedback")
        assert isinstance(feedback, Message)
        goes_on.set()
        wait_until(lambda: swarm.find(work.id).status == "pr_created", timeout=90, what="the pull request is open")
        assert wait_state(swarm, feedback, "acknowledged").how.startswith(how)
        claude_world.wait_activity(work, "idle")

        feedback, approval = ledger.of(swarm.context.db, work.id)
        wait_state(swarm, approval, "acknowledged")
        given = conversation(claude_world, work)
        assert (given.count(header(feedback)), given.count(header(approval))) == (1, 1)
        assert "the wings are missing" in given

        links = relationships.of(swarm.context.db, work.id)
        reviews = [swarm.find(link.child_id) for link in sorted(links, key=lambda link: link.round)]
        assert [(r.kind, r.status) for r in reviews] == [("review", "changes_requested"), ("review", "approved")]
        assert (feedback.sender, approval.sender) == tuple(r.id for r in reviews)
        told = swarm.events(after=0, instance_id=work.id, limit=10_000)
        verdicts = [e for e in told if e.name == "review:verdict"]
        assert [(e.actor, e.metadata["verdict"]) for e in verdicts] == [
            (reviews[0].id, "needs_work"),
            (reviews[1].id, "approved"),
        ]
        assert [e.metadata["stale"] for e in verdicts] == [False, False]
        called = [(e.actor, e.tool_name, e.success) for e in swarm.events(after=0, limit=10_000) if e.tool_name]
        assert called == [
            (work.id, "spawn_review_instance", True),
            (reviews[0].id, "send_feedback", True),
            (work.id, "spawn_review_instance", True),
            (reviews[1].id, "update_instance_status", True),
            (work.id, "create_pull_request", True),
        ]
        pull = pulls.open_of(swarm.context.db, work.repo_path, work.branch)
        assert pull is not None
        assert (pull.number, pull.opened_by, swarm.find(work.id).pr_number) == (1, work.id, 1)
        assert pulls.next_number(swarm.context.db, pull.forge, work.repo_path) == 2
    assert len({r.session for r in claude_world.api.turns()}) == 3


def first_message(claude_world: ClaudeWorld, work: Instance) -> Message | None:
    with claude_world.world.open() as swarm:
        return next(iter(ledger.of(swarm.context.db, work.id)), None)

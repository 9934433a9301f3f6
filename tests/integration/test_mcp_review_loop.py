"""The review loop as agents play it: over MCP, with real worktrees and sessions."""

from __future__ import annotations

from tests.integration.mcp_fixture import Coordinated
from tests.integration.review_fixture import commit, finished_work


def test_work_review_rework_approval_and_pull_request(mcp: Coordinated) -> None:
    with mcp.swarm() as swarm:
        work = finished_work(mcp.world, swarm)
        mcp.world.wait_idle(swarm, work.id)
    author = mcp.agent(work)
    first = author.call("spawn_review_instance", reviewer_prompt="say reviewing").ok
    assert first["branch_name"] == work.branch
    assert (first["round"], first["max_rounds"]) == (1, 3)
    reviewer = mcp.agent(first["review_instance_id"])
    sent = reviewer.call("send_feedback", feedback="Please add a test.", feedback_type="needs_work").ok
    assert (sent["target_instance_id"], sent["delivery_status"], sent["stale"]) == (work.id, "delivered", False)
    (found,) = author.call("query_instances", instance_id=work.id).ok["instances"]
    assert found["status"] == "running"
    with mcp.swarm() as swarm:
        commit(swarm.find(work.id), "test.txt")
    second = author.call("spawn_review_instance", reviewer_prompt="say reviewing").ok
    assert second["round"] == 2
    approver = mcp.agent(second["review_instance_id"])
    assert approver.call("update_instance_status", status="approved").ok["status"] == "approved"
    pull = author.call("create_pull_request", title="Add it", description="It is added.").ok
    assert (pull["pr_number"], pull["branch_name"]) == (1, work.branch)
    again = author.call("create_pull_request", title="Add it", description="It is added.").ok
    assert again == pull
    assert len(mcp.events(name="pull:opened")) == 1
    with mcp.swarm() as swarm:
        tip = commit(swarm.find(work.id), "more.txt")
    moved = author.call("create_pull_request", title="Add it", description="It is added.").ok
    assert moved == pull | {"head_commit": tip}
    assert tip != pull["head_commit"]
    assert author.call("create_pull_request", title="Add it", description="It is added.").ok == moved
    assert len(mcp.events(name="pull:opened")) == len(mcp.events(name="pull:updated")) == 1
    (found,) = author.call("query_instances", instance_id=work.id).ok["instances"]
    assert (found["status"], found["pr_number"]) == ("pr_created", 1)
    assert [h["kind"] for h in author.call("search", query="add a test", kinds=["feedback"]).ok["hits"]] == [
        "feedback"
    ]
    called = [e for e in mcp.events(name="tool:called") if e.actor == work.id]
    assert [e.tool_name for e in called] == [
        "spawn_review_instance",
        "query_instances",
        "spawn_review_instance",
        *["create_pull_request"] * 4,
        "query_instances",
        "search",
    ]
    assert all(e.success for e in called)


def test_the_same_over_stdio(mcp: Coordinated) -> None:
    with mcp.swarm() as swarm:
        work = finished_work(mcp.world, swarm)
    author = mcp.stdio(mcp.token(work))
    review = author.call("spawn_review_instance", reviewer_prompt="say reviewing").ok
    reviewer = mcp.stdio(mcp.token(review["review_instance_id"]))
    pull = reviewer.call("create_pull_request", title="Add it", description="Reviewed.").ok
    assert pull["branch_name"] == work.branch
    with mcp.swarm() as swarm:
        assert (swarm.find(work.id).status, swarm.find(review["review_instance_id"]).pr_number) == (
            "pr_created",
            1,
        )

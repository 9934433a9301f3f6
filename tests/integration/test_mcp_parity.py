"""The same story over HTTP and over stdio: the answers have one shape and agree (C-003, C-010, C-011)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from swarm_core.models import Instance
from tests.integration.mcp_fixture import Coordinated
from tests.integration.mcp_lines import TRANSPORTS, coordinated, open_line
from tests.integration.mcp_shape import TOOLS, check_failure
from tests.integration.review_fixture import commit, finished_work
from tests.mcp_client import Answer
from tests.support import git_run
from tests.world import World


def play(made: Coordinated, transport: str) -> list[tuple[str, Answer]]:
    """The same story on any transport: every tool goes well once, and fails in its usual ways."""
    said: list[tuple[str, Answer]] = []

    def client(who: Instance | str) -> Any:
        line = open_line(made, transport, made.token(who))

        def call(tool: str, **arguments: Any) -> Answer:
            answer = line.client.call(tool, **arguments)
            said.append((tool, answer))
            return answer

        return call

    with made.swarm() as swarm:
        swarm.ensure_operator_token()
        work = finished_work(made.world, swarm)
    author = client(work)
    author("query_instances", limit=5)
    first = author("spawn_review_instance", reviewer_prompt="say reviewing").ok
    author("spawn_review_instance")
    reviewer = client(first["review_instance_id"])
    reviewer("send_feedback", feedback="Please add a test.", feedback_type="needs_work", priority="high")
    reviewer("send_feedback", feedback="And another.", feedback_type="needs_work")
    commit(work, "test.txt")
    second = author("spawn_review_instance", reviewer_prompt="say reviewing").ok
    client(second["review_instance_id"])("update_instance_status", status="approved")
    author("create_pull_request", title="Add it", description="It is added.")
    author("query_pulls", instance_id=work.id)
    author("query_pulls", instance_id="work-99-a1")
    author("merge_pull_request", instance_id=work.id)
    author("update_instance_status", status="running", message="one more thing")
    author("spawn_fork_instance", prompt="say forked")
    author("search", query="test", kinds=["feedback"])
    author("query_instances", include_relationships=True)
    author("query_instances", instance_id="work-99-a1")
    author("send_feedback", feedback="Hello.", feedback_type="suggestions", instance_id=work.id)
    author("query_instances", limit=0)
    author("nothing_like_it")
    operator = open_line(made, transport).client
    said.append(("spawn_fork_instance", operator.call("spawn_fork_instance")))
    missing = operator.call("update_instance_status", status="failed", instance_id="work-99-a1")
    said.append(("update_instance_status", missing))
    for tool in ("merge_pull_request", "merge_pull_request"):
        said.append((tool, operator.call(tool, instance_id=work.id)))
    for over in (False, True):
        said.append(("query_pulls", operator.call("query_pulls", include_over=over)))
    said.append(("get_status", operator.call("get_status")))
    return said


@pytest.fixture(scope="module")
def played() -> dict[str, tuple[Coordinated, list[tuple[str, Answer]]]]:
    """The story on each transport, each in a world of its own; the worlds are gone, their names are kept."""
    stories = {}
    for transport in TRANSPORTS:
        with coordinated(start=transport == "http") as made:
            stories[transport] = (made, play(made, transport))
    return stories


def test_a_result_is_one_compact_text_and_the_same_object(played: Any) -> None:
    """C-003"""
    went_well = set()
    for tool, answer in (said for _, story in played.values() for said in story):
        if "error" in answer.message:
            continue
        (content,) = answer.result["content"]
        assert content.keys() == {"type", "text"}
        assert content["text"] == json.dumps(answer.payload, separators=(",", ":"), ensure_ascii=False)
        assert answer.result.keys() <= {"content", "structuredContent", "isError"}
        if answer.result.get("isError"):
            check_failure(answer, answer.payload["code"], tool)
        else:
            jsonschema.validate(answer.payload, TOOLS[tool]["outputSchema"])
            went_well.add(tool)
    assert went_well == TOOLS.keys()


# C-010 and C-011: the transports agree


_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.\d]*(Z|\+00:00)")
_FEEDBACK = re.compile(r"\bfb-[0-9a-f]{12}\b")
_FOLDER = re.compile(r"worktrees/repo-[0-9a-f]{8}")
# What was last seen of an instance, or by one, depends on the moment of the question, and on who delivers.
_SEEN = {"activity", "activity_source", "activity_at", "activity_detail", "head_commit"}
_MOMENTARY = {"delivery_status", "age_s"}


def normalised(made: Coordinated, value: Any) -> Any:
    """The same for the same story: without the folders, times and random ids of one run."""
    if isinstance(value, dict):
        seen = _SEEN if "activity" in value else _MOMENTARY
        return {k: "<SEEN>" if k in seen else normalised(made, v) for k, v in value.items()}
    if isinstance(value, list):
        return [normalised(made, v) for v in value]
    if not isinstance(value, str):
        return value
    text = value.replace(str(made.world.home), "<HOME>").replace(str(made.world.repo), "<REPO>")
    return _FOLDER.sub("worktrees/<FOLDER>", _FEEDBACK.sub("<FEEDBACK>", _TIME.sub("<TIME>", text)))


def test_both_transports_answer_the_same_story_with_the_same_payloads(played: Any) -> None:
    """C-010"""
    told = {}
    for transport, (made, answers) in played.items():
        messages = [a.message.get("error") or a.message["result"]["structuredContent"] for _, a in answers]
        told[transport] = [(tool, normalised(made, m)) for (tool, _), m in zip(answers, messages, strict=True)]
    for over_http, over_stdio in zip(told["http"], told["stdio"], strict=True):
        if over_http[0] == "get_status":  # only one of the two stories has a coordinator
            assert over_http[1].keys() == over_stdio[1].keys()
            continue
        assert over_http == over_stdio
    for _, answers in played.values():
        assert {tool for tool, a in answers if a.code == ""} == TOOLS.keys()
        assert {a.code for _, a in answers} >= {
            *("", "INVALID_REQUEST", "NOT_FOUND", "INSTANCE_NOT_FOUND", "FORBIDDEN", "INVALID_INPUT"),
            "WORKFLOW_INVALID_STATE",
        }


def test_the_repository_of_these_tests_is_the_same_every_time() -> None:
    """C-011"""
    with coordinated(start=False) as one, coordinated(start=False) as other:
        heads = {git_run(made.world.repo, "rev-parse", "main") for made in (one, other)}
    assert heads == {"749109973fe6778cd9423ed2fd9b1be9eaf21bc6"}


def test_normalising_hides_what_differs_and_nothing_else(world: World, tmp_path: Path) -> None:
    """C-011"""
    made = Coordinated(world, tmp_path)
    given = {
        "path": f"{made.world.home}/worktrees/repo-0a1b2c3d/work-a1",
        "at": "2026-11-16T05:16:48.973Z",
        "feedback_id": "fb-0a1b2c3d4e5f",
        "activity": "busy",
        "pull": {"age_s": 0.2, "head_commit": "749109"},
        "code": "NOT_FOUND",
        "rows": [{"pr_number": 3, "stale": False, "none": None, "head_commit": "749109"}],
    }
    assert normalised(made, given) == {
        "path": "<HOME>/worktrees/<FOLDER>/work-a1",
        "at": "<TIME>",
        "feedback_id": "<FEEDBACK>",
        "activity": "<SEEN>",
        "pull": {"age_s": "<SEEN>", "head_commit": "749109"},
        "code": "NOT_FOUND",
        "rows": [{"pr_number": 3, "stale": False, "none": None, "head_commit": "749109"}],
    }

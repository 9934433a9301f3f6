"""What a client is shown before it does anything: tools by who asks, prompts, resources."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from docs import source
from swarm_core import overview
from swarm_core.models import Instance
from tests.integration.mcp_fixture import Coordinated
from tests.integration.mcp_lines import TRANSPORTS, Line, coordinated, open_line
from tests.integration.mcp_shape import TOOLS
from tests.integration.review_fixture import finished_work, needs_work
from tests.mcp_client import Answer, Client

KB = 1024
PERMISSIONS = (source.ROOT / "docs" / "reference" / "permissions.md").read_text()


@pytest.fixture(scope="module")
def shared() -> Iterator[Coordinated]:
    with coordinated() as made:
        yield made


@pytest.fixture(scope="module")
def agents(shared: Coordinated) -> dict[str, Instance]:
    """One instance of each kind; the work has had one review."""
    with shared.swarm() as swarm:
        work = finished_work(shared.world, swarm)
        review = swarm.request_review(work.id, reviewer_prompt="say reviewing")
        needs_work(swarm, review, "Please add *a test*.\nAnd docs.")
        fork = swarm.fork(work.id, "say forked")
        adhoc = swarm.work(adhoc=True, repo=str(shared.world.repo), agent="scripted")[0]
        again = swarm.request_review(work.id, reviewer_prompt="say again")
    return {"work": work, "review": again, "fork": fork, "adhoc": adhoc}


@pytest.fixture(scope="module", params=TRANSPORTS)
def line(shared: Coordinated, agents: dict[str, Instance], request: pytest.FixtureRequest) -> Line:
    """The operator."""
    return open_line(shared, request.param)


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table under a heading of the permissions page."""
    part = PERMISSIONS.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines[2:]]


# Tools


@pytest.mark.parametrize("kind", ["work", "fork", "adhoc", "review", "operator"])
def test_each_caller_is_shown_what_the_permissions_page_allows_it(
    shared: Coordinated, agents: dict[str, Instance], kind: str
) -> None:
    allowed = {tool for tool, caller, *cells in rows("Every combination") if caller == kind and any(cells)}
    assert allowed
    client = shared.operator() if kind == "operator" else shared.agent(agents[kind])
    assert client.tools().keys() == allowed


@pytest.mark.parametrize("scope", ["read", "review", "feedback", "pulls", "merge", "status", "spawn"])
def test_an_automation_is_shown_what_its_scope_opens(shared: Coordinated, scope: str) -> None:
    opens = dict(rows("Scopes of automations"))
    tools = {tool for tool, *_ in rows("Every combination")}
    with shared.swarm() as swarm:
        token = swarm.create_token(f"bot-{scope}", [scope]).token
    shown = shared.client(token).tools().keys()
    assert shown == {tool for tool in tools if tool in opens[scope]}


def test_the_tools_of_a_work_agent_are_small(shared: Coordinated, agents: dict[str, Instance]) -> None:
    listed = shared.agent(agents["work"]).request("tools/list").message
    assert len(json.dumps(listed, separators=(",", ":")).encode()) <= 12 * KB


def test_annotations_say_what_a_tool_may_do(line: Line) -> None:
    reading = {"query_instances", "query_pulls", "search", "get_status"}
    repeatable = reading | {"create_pull_request", "merge_pull_request", "update_instance_status"}
    for name, tool in line.client.tools().items():
        told = tool["annotations"]
        assert told["readOnlyHint"] == (name in reading)
        assert told["idempotentHint"] == (name in repeatable)
        assert told["destructiveHint"] == (name in ("merge_pull_request", "update_instance_status"))
        assert told["openWorldHint"] is False
        assert tool["title"]
        assert len(tool["description"]) > 40


def test_what_queries_return_is_what_their_schemas_say(shared: Coordinated, line: Line) -> None:
    """Every field of every row is declared, so that a client may rely on it and a change raises the version."""
    for tool, arguments in (
        ("query_instances", {"include_relationships": True}),
        ("query_instances", {"instance_id": "work-a1"}),
        ("query_pulls", {"include_over": True}),
        ("search", {"query": "work"}),
        ("get_status", {}),
    ):
        found, schema = line.client.call(tool, **arguments).ok, TOOLS[tool]["outputSchema"]
        jsonschema.validate(found, schema)
        assert list(undeclared(found, schema)) == [], tool
    assert line.client.call("query_instances").ok["instances"]


def undeclared(value: Any, schema: dict[str, Any]) -> Iterator[str]:
    if isinstance(value, list):
        for one in value:
            yield from undeclared(one, schema["items"])
    elif isinstance(value, dict) and "properties" in schema:
        yield from value.keys() - schema["properties"].keys()
        for name in value.keys() & schema["properties"].keys():
            yield from undeclared(value[name], schema["properties"][name])


# The system's status


def test_the_operator_and_automations_that_read_ask_for_the_status_of_the_system(
    shared: Coordinated, line: Line, agents: dict[str, Instance]
) -> None:
    with shared.swarm() as swarm:
        told = overview.look(swarm.context.settings)
        token = swarm.create_token(f"watch-{line.transport}", ["read"]).token
        other = swarm.create_token(f"other-{line.transport}", ["feedback"]).token
    for client in (line.client, shared.client(token)):
        found = client.call("get_status").ok
        assert found.keys() == TOOLS["get_status"]["outputSchema"]["properties"].keys()
        assert found["coordinator"]["pid"] == told["coordinator"]["pid"]
        assert (found["coordinator"]["ok"], found["dashboard"]) == (True, None)
        assert found["database"]["exists"] is True
        assert found["instances"]["total"] == told["instances"]["total"]
        assert found["instances"]["by_status"] == told["instances"]["by_status"]
        assert found["tmux"]["up"] is True
        assert str(shared.world.home) not in json.dumps(found)
    for agent in agents.values():
        client = shared.agent(agent)
        assert "get_status" not in client.tools()
        assert client.call("get_status").code == "FORBIDDEN"
    assert shared.client(other).call("get_status").code == "FORBIDDEN"


# Prompts


def prompt(client: Client, name: str, **arguments: str) -> Answer:
    return client.request("prompts/get", {"name": name, "arguments": arguments})


def test_the_prompts_are_listed_with_their_arguments(line: Line) -> None:
    listed = {p["name"]: p for p in line.client.request("prompts/list").result["prompts"]}
    needed = {n: {a["name"]: a["required"] for a in p["arguments"]} for n, p in listed.items()}
    assert needed == {"work": {"task": True, "issue": False}, "review": {"instance_id": True, "focus": False}}
    assert all(p["title"] and p["description"] for p in listed.values())


def text_of(answer: Answer) -> str:
    (message,) = answer.result["messages"]
    assert (message["role"], message["content"]["type"]) == ("user", "text")
    text: str = message["content"]["text"]
    return text


def test_the_work_prompt_has_the_task_and_the_steps(line: Line) -> None:
    text = text_of(prompt(line.client, "work", task="Paint the shed.", issue="17"))
    for part in ("Paint the shed.", "17", "spawn_review_instance", "create_pull_request"):
        assert part in text


def test_the_review_prompt_names_the_work_and_what_to_look_at(line: Line, agents: dict[str, Instance]) -> None:
    work = agents["work"]
    text = text_of(prompt(line.client, "review", instance_id=work.id, focus="Mind the gap."))
    for part in (work.id, work.branch, "made.txt", "Mind the gap.", "send_feedback"):
        assert part in text


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("nothing", {}, "NOT_FOUND"),
        ("x" * 5000, {}, "NOT_FOUND"),
        ("work", {}, "INVALID_INPUT"),
        ("work", {"task": "  "}, "INVALID_INPUT"),
        ("work", {"task": "t", "surplus": "x"}, "INVALID_INPUT"),
        ("work", {"task": "t", "issue": "many"}, "INVALID_INPUT"),
        ("work", {"task": "t", "issue": "0"}, "INVALID_INPUT"),
        ("work", {"task": "t", "issue": "1" * 5000}, "INVALID_INPUT"),
        ("work", {"task": "t", "issue": "١٧"}, "INVALID_INPUT"),
        ("review", {}, "INVALID_INPUT"),
        ("review", {"instance_id": "work-99-a1"}, "INSTANCE_NOT_FOUND"),
        ("work", {"task": 7}, "INVALID_REQUEST"),
        ("work", [], "INVALID_REQUEST"),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_a_prompt_that_cannot_be_given_is_refused(line: Line, name: str, arguments: Any, code: str) -> None:
    error = line.client.request("prompts/get", {"name": name, "arguments": arguments}).error
    assert (error["code"], error["data"]["code"]) == (-32602, code)
    assert len(error["message"]) < 1100


# Resources


def read(client: Client, uri: str) -> tuple[str, str]:
    (content,) = client.request("resources/read", {"uri": uri}).result["contents"]
    assert content["uri"] == uri
    return content["mimeType"], content["text"]


def test_the_resources_and_their_templates_are_listed(line: Line) -> None:
    listed = line.client.request("resources/list").result["resources"]
    assert [r["uri"] for r in listed] == ["swarm://instances"]
    templates = line.client.request("resources/templates/list").result["resourceTemplates"]
    assert [r["uriTemplate"] for r in templates] == ["swarm://instance/{id}", "swarm://feedback/{id}"]
    assert all(r["title"] and r["description"] and r["mimeType"] for r in [*listed, *templates])


def test_all_instances_are_one_resource(line: Line, agents: dict[str, Instance]) -> None:
    kind, text = read(line.client, "swarm://instances")
    found = json.loads(text)
    assert kind == "application/json"
    assert {i["instance_id"] for i in found["instances"]} >= {a.id for a in agents.values()}
    assert found["total"] == len(found["instances"])
    shown = line.client.call("query_instances", limit=200).ok["instances"]
    assert [i["instance_id"] for i in found["instances"]] == [i["instance_id"] for i in shown]
    assert found["instances"][0].keys() == shown[0].keys()


def test_an_instance_is_a_resource_with_its_relationships_and_events(
    line: Line, agents: dict[str, Instance]
) -> None:
    kind, text = read(line.client, f"swarm://instance/{agents['work'].id}")
    found = json.loads(text)
    assert (kind, found["instance_id"]) == ("application/json", agents["work"].id)
    assert {r["type"] for r in found["relationships"]} == {"spawned_review", "created_fork"}
    assert {"feedback:sent", "instance:status"} <= {e["name"] for e in found["events"]}


def test_feedback_is_a_resource(line: Line, agents: dict[str, Instance]) -> None:
    kind, text = read(line.client, f"swarm://feedback/{agents['work'].id}")
    assert kind == "text/markdown"
    assert re.match(r"# needs_work \(medium\) from review-a1,", text)
    assert text.endswith("Please add *a test*.\nAnd docs.")
    assert read(line.client, f"swarm://feedback/{agents['fork'].id}") == ("text/markdown", "No feedback yet.")


@pytest.mark.parametrize(
    ("uri", "code"),
    [
        ("swarm://nothing", "NOT_FOUND"),
        ("swarm://instance", "NOT_FOUND"),
        ("swarm://instance/", "NOT_FOUND"),
        ("swarm://instances/work-a1", "NOT_FOUND"),
        ("swarm://instance/work-99-a1", "INSTANCE_NOT_FOUND"),
        ("swarm://feedback/work-99-a1", "INSTANCE_NOT_FOUND"),
        ("swarm://instance/../../etc/passwd", "INSTANCE_NOT_FOUND"),
        ("file:///etc/passwd", "NOT_FOUND"),
        ("", "NOT_FOUND"),
        ("swarm://instance/" + "x" * 5000, "INSTANCE_NOT_FOUND"),
        (7, "INVALID_REQUEST"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_resource_that_is_not_there_is_refused(line: Line, uri: Any, code: str) -> None:
    error = line.client.request("resources/read", {"uri": uri}).error
    assert (error["code"], error["data"]["code"]) == (-32602, code)
    assert len(error["message"]) < 1100


def test_agents_read_too(shared: Coordinated, agents: dict[str, Instance]) -> None:
    client = shared.agent(agents["adhoc"])
    assert agents["work"].id in read(client, "swarm://instances")[1]
    assert "Paint" in text_of(prompt(client, "work", task="Paint it."))

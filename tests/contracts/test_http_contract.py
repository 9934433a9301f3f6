"""Every route is described, documented and committed, and answers in the one envelope; some as MCP's tools do."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Route

from docs import http, source
from swarm_core import contract, process
from swarm_ui.web import app, endpoint, openapi, slow
from tests.integration.mcp_fixture import mcp  # noqa: F401  the fixture
from tests.integration.web_fixture import Web, serving
from tests.rows import add_instance
from tests.world import World

DOCUMENT = openapi.document()
OPERATIONS = [(method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods]
READS = [path for method, path in OPERATIONS if method == "GET"]
# A stream that does not end by itself.
ENDLESS = {"/api/v1/stream"}
NO_ENVELOPE = {openapi.RAW, "/api/v1/events/export", "/status/stream"}
PAGES = re.compile(r"/(static/.*|favicon.*|i/{id}|graph|wall|missions.*|inbox|threads/{id}|events|pulls|)$")


@pytest.fixture
def world(short_tmp: Path, repo: Path) -> Iterator[World]:
    made = World(short_tmp / "h", repo)
    yield made
    made.kill_tmux()


@pytest.fixture
def web(world: World) -> Iterator[Web]:
    with world.open() as swarm, serving(world.settings, swarm) as made:
        yield made


def test_the_contract_is_committed() -> None:
    committed = json.loads(http.SNAPSHOT.read_text())
    assert http.problem(committed, DOCUMENT) is None
    assert committed == json.loads(http.text()), "run `python -m docs.http --write`"


def test_the_description_has_every_endpoint_and_no_other() -> None:
    described = {(e.method, e.path) for e in (*openapi.endpoints(), *openapi.streams())}
    assert {*described, ("GET", openapi.RAW)} == set(OPERATIONS)


def test_whoever_starts_a_program_names_a_pool_that_there_is() -> None:
    assert {e.runs for e in openapi.endpoints()} == {"", *slow.WAITING}


def test_every_route_that_is_no_page_is_described_and_what_is_described_is_served(web: Web) -> None:
    routes = [route for route in app._routes(web.site) if isinstance(route, Route)]
    served = {(method, route.path) for route in routes for method in route.methods or () if method != "HEAD"}
    api = {(method, path) for method, path in served if not PAGES.match(path)}
    assert api == set(OPERATIONS)


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_every_operation_says_what_it_does(method: str, path: str) -> None:
    told = DOCUMENT["paths"][path][method.lower()]
    assert re.fullmatch(r"[A-Z].*\.", told["summary"])
    assert f"### {method} {path}\n" in (source.ROOT / "docs" / "reference" / "http-api.md").read_text()


def test_operation_ids_are_unique_and_references_lead_somewhere() -> None:
    ids = [one["operationId"] for methods in DOCUMENT["paths"].values() for one in methods.values()]
    assert len(set(ids)) == len(ids)
    named = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(DOCUMENT)))
    assert named == set(DOCUMENT["components"]["schemas"])


def test_bodies_and_queries_refuse_what_they_do_not_know() -> None:
    for one in openapi.endpoints():
        for model in (one.query, one.body):
            assert model.model_config.get("extra") == "forbid", (one.path, model)


@pytest.mark.parametrize("path", READS)
def test_every_answer_has_the_envelope(web: Web, path: str) -> None:
    if path in ENDLESS:
        return
    add_instance(web.db)
    where = path.replace("{id}", "work-1-a1") + ("?repo=shop" if path == "/api/v1/issues" else "")
    answer = web.get(where)
    if path in NO_ENVELOPE:
        assert answer.status == 200
    else:
        assert_envelope(answer.json, answer.status)
    refused = web.get(f"{where}{'&' if '?' in where else '?'}no_such_parameter=1")
    if path != openapi.RAW:
        assert (refused.status, refused.code) == (400, "INVALID_REQUEST")


@pytest.mark.parametrize("path", [path for method, path in OPERATIONS if method == "POST"])
def test_every_refusal_has_the_envelope(web: Web, path: str) -> None:
    where = path.replace("{id}", "work-1-a1")
    for answer, status in (
        (web.post(where, Authorization=None), 401),
        (web.ask("POST", where, raw=b"{"), 400),
        (web.ask("POST", where, raw=b'{"no_such_field": 1}'), 400),
        (web.ask("POST", where, raw=b"x=1", Content_Type="application/x-www-form-urlencoded"), 415),
        (web.ask("POST", where, raw=b'"' + b"a" * 1_000_001 + b'"'), 413),
        (web.ask("DELETE", where, Content_Type="application/json"), 405),
    ):
        assert answer.status == status
        assert_envelope(answer.json, status)


def assert_envelope(told: dict[str, Any], status: int) -> None:
    assert set(told["_meta"]) == {"schemaVersion", "toolVersion", "ts", "durationMs"}
    if status < 400:
        assert told.keys() == {"ok", "result", "_meta"}
        assert told["ok"] is True
        return
    assert told.keys() == {"ok", "error", "_meta"}
    assert told["ok"] is False
    assert told["error"].keys() == contract.ERROR_FIELDS.keys()
    assert told["error"]["canonical"] in contract.CANONICAL
    assert told["error"]["category"] in contract.CATEGORIES


def test_the_description_is_raw_for_generic_clients_and_enveloped_under_the_api(web: Web) -> None:
    raw = web.get("/openapi.json").json
    assert raw == json.loads(http.text())
    assert web.get("/api/v1/openapi.json").result == raw


def test_no_field_of_a_request_may_be_null() -> None:
    for one in openapi.endpoints():
        for model in (one.query, one.body):
            for name, field in model.model_fields.items():
                if not field.is_required():
                    with pytest.raises(endpoint.Refused) as refused:
                        endpoint.validated(model, {name: None})
                    assert refused.value.violations[0]["path"] == name
    bodies = [e.body for e in openapi.endpoints()]
    assert any(not f.is_required() for body in bodies for f in body.model_fields.values())
    for name, schema in DOCUMENT["components"]["schemas"].items():
        if name not in ("Error", "Failure", "Meta"):
            assert '"null"' not in json.dumps(schema), name


def remove_path(document: dict[str, Any]) -> None:
    del document["paths"]["/status"]


def remove_parameter(document: dict[str, Any]) -> None:
    document["paths"]["/api/v1/events"]["get"]["parameters"].pop()


def require(document: dict[str, Any]) -> None:
    document["paths"]["/api/v1/events"]["get"]["parameters"][0]["required"] = True


def require_in_body(document: dict[str, Any]) -> None:
    document["components"]["schemas"]["SearchBody"]["required"].append("since")


@pytest.mark.parametrize("change", [remove_path, remove_parameter, require, require_in_body])
def test_what_breaks_programs_raises_the_major_version(change: Any) -> None:
    new = copy.deepcopy(DOCUMENT)
    change(new)
    assert http.broken(DOCUMENT, new)
    assert http.problem(DOCUMENT, new) is not None
    new["info"]["version"] = "9.0.0"
    assert http.problem(DOCUMENT, new) is None


def test_more_breaks_nothing() -> None:
    new = copy.deepcopy(DOCUMENT)
    new["paths"]["/more"] = new["paths"]["/status"]
    assert http.broken(DOCUMENT, new) == []


def test_mcp_and_http_refuse_the_same_requests_with_the_same_error(mcp: Any) -> None:  # noqa: F811
    """Besides the tool's name and the words before the violations, which only MCP has."""
    client = mcp.operator()
    with mcp.swarm() as swarm, serving(mcp.world.settings, swarm) as web:
        wrong: list[dict[str, Any]] = [
            {"query": "x", "since": "no time"},
            {"query": "x", "kinds": None},
            {"query": "", "limit": 0},
            {"query": "x", "limit": "5"},
            {"query": "x", "more": 1},
        ]
        cases = [
            *(("search", arguments, web.post("/search", arguments)) for arguments in wrong),
            (
                "query_pulls",
                {"instance_id": "work-9-a9"},
                web.get("/api/v1/pulls?instance_id=work-9-a9"),
            ),
        ]
        for tool, arguments, answer in cases:
            told = client.call(tool, **arguments)
            mine = told.message["error"]["data"] if "error" in told.message else told.payload["error"]
            theirs = answer.json["error"]
            assert mine.keys() == theirs.keys() == contract.ERROR_FIELDS.keys()
            for field in ("code", "canonical", "category", "retry"):
                assert mine[field] == theirs[field], (tool, arguments, field)
            paths = [
                [one["path"] for one in error["details"]] if isinstance(error["details"], list) else []
                for error in (mine, theirs)
            ]
            assert paths[0] == paths[1], (tool, arguments)
            assert mine["tool_name"] == tool


def test_instances_pulls_and_search_are_those_of_the_mcp_tools(mcp: Any) -> None:  # noqa: F811
    """Over a real coordinator, for the same person."""
    with mcp.swarm() as swarm:
        work = mcp.world.work(swarm, "say ready")
        mcp.world.wait_idle(swarm, work.id)
        swarm.message(work.id, "the parser drops commas")
        fork = swarm.fork(work.id, "say other")
        mcp.world.wait_idle(swarm, fork.id)
    client = mcp.operator()
    card = process.running(mcp.world.settings, process.COORDINATOR)
    assert card is not None
    with mcp.swarm() as swarm, serving(mcp.world.settings, swarm) as web:

        def steady(tool: str, arguments: dict[str, Any], path: str, *, body: bool = False) -> None:
            """Both answers, asked again when something has changed between them."""
            for _ in range(20):
                told = client.call(tool, **arguments).ok
                answer = web.post(path, arguments).result["search"] if body else web.get(path).result
                if told == answer:
                    return
            assert answer == told

        steady("query_instances", {}, "/api/v1/instances")
        steady("query_instances", {"limit": 1}, "/api/v1/instances?limit=1")
        steady(
            "query_instances",
            {"type": "fork", "include_relationships": True, "limit": 1},
            "/api/v1/instances?type=fork&include_relationships=true&limit=1",
        )
        steady("query_instances", {"instance_id": work.id}, f"/api/v1/instances?instance_id={work.id}")
        steady("query_pulls", {"include_over": True}, "/api/v1/pulls?include_over=true")
        steady("search", {"query": "commas", "kinds": ["message"]}, "/search", body=True)
        assert web.post("/search", {"query": "commas"}).result["search"]["hits"]

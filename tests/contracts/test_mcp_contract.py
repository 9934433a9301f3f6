"""The tools are what was promised: the committed snapshot, and versions that tell of every change."""

from __future__ import annotations

import copy
import json
import re
from typing import TypedDict

import pytest

from docs import contract as snapshot
from swarm_core.ops import describe
from swarm_mcp import contract, registry


def committed():
    return json.loads(snapshot.SNAPSHOT.read_text())


def test_the_tools_are_those_of_the_snapshot():
    assert snapshot.problem(committed(), snapshot.current()) is None
    assert committed() == json.loads(snapshot.text())


def test_versions_are_semantic():
    for version in (contract.SCHEMA_VERSION, contract.TOOL_VERSION):
        assert re.fullmatch(r"\d+\.\d+\.\d+", version)


def test_every_schema_refuses_what_it_does_not_know_and_none_is_empty_of_type():
    for name in registry.tools():
        schema = registry.definition(name).input_schema
        assert schema["type"] == "object"
        assert schema["additionalProperties"] is False
        assert "anyOf" not in json.dumps(schema), "an optional field is left out, never null"


def remove_tool(tools):
    del tools["search"]


def remove_field(tools):
    del tools["search"]["inputSchema"]["properties"]["since"]


def change_type(tools):
    tools["search"]["inputSchema"]["properties"]["limit"]["type"] = "string"


def narrow(tools):
    tools["search"]["inputSchema"]["properties"]["limit"]["maximum"] = 5


def change_default(tools):
    tools["search"]["inputSchema"]["properties"]["limit"]["default"] = 7


def require(tools):
    tools["search"]["inputSchema"]["required"].append("since")


def remove_result(tools):
    del tools["search"]["outputSchema"]["properties"]["hits"]


def rename_in_a_row(tools):
    fields = tools["query_instances"]["outputSchema"]["properties"]["instances"]["items"]["properties"]
    fields["branch"] = fields.pop("branch_name")


def rename_in_a_row_of_a_row(tools):
    pulls = tools["query_pulls"]["outputSchema"]["properties"]["pulls"]["items"]["properties"]
    fields = pulls["checks"]["items"]["properties"]
    fields["result"] = fields.pop("state")


def leave_out_of_a_row(tools):
    tools["search"]["outputSchema"]["properties"]["hits"]["items"]["required"].remove("excerpt")


def add_to_a_row(tools):
    row = tools["search"]["outputSchema"]["properties"]["hits"]["items"]
    row["properties"]["more"] = {"type": "string"}
    row["required"].append("more")


def add_tool(tools):
    tools["another"] = tools["search"]


def add_field(tools):
    tools["search"]["inputSchema"]["properties"]["more"] = {"type": "string"}


def add_result(tools):
    tools["search"]["outputSchema"]["properties"]["more"] = {"type": "string"}


def reword(tools):
    tools["search"]["description"] += " More."


def reword_field(tools):
    tools["search"]["inputSchema"]["properties"]["query"]["description"] = "Other words."


@pytest.mark.parametrize(
    ("change", "part"),
    [
        *((c, "major") for c in (remove_tool, remove_field, change_type, narrow, change_default, require)),
        *((c, "major") for c in (remove_result, rename_in_a_row, rename_in_a_row_of_a_row, leave_out_of_a_row)),
        *((c, "minor") for c in (add_tool, add_field, add_result, add_to_a_row)),
        *((c, "patch") for c in (reword, reword_field)),
    ],
)
def test_a_change_says_which_part_of_the_version_to_raise(change, part):
    old = committed()
    new = copy.deepcopy(old)
    change(new["tools"])
    assert snapshot.needed(old, new) == part
    assert f"raise the {part} part" in str(snapshot.problem(old, new))
    major, minor, patch = (int(n) for n in old["schemaVersion"].split("."))
    new["schemaVersion"] = {
        "major": f"{major + 1}.0.0",
        "minor": f"{major}.{minor + 1}.0",
        "patch": f"{major}.{minor}.{patch + 1}",
    }[part]
    assert "the snapshot is behind" in str(snapshot.problem(old, new))


def test_the_rows_of_the_core_are_the_schemas_of_the_tools(monkeypatch):
    """A field that is renamed in the core is a complaint of the snapshot."""
    fields = dict(describe.InstanceRow.__annotations__)
    fields["branch"] = fields.pop("branch_name")
    renamed = TypedDict("InstanceRow", fields)
    new = copy.deepcopy(committed())
    rows = new["tools"]["query_instances"]["outputSchema"]["properties"]["instances"]
    assert rows["items"] == registry._shape(describe.InstanceRow)
    rows["items"] = registry._shape(renamed)
    assert "raise the major part" in snapshot.problem(committed(), new)


def test_every_row_of_a_query_has_its_fields_in_the_schema():
    for name in ("query_instances", "query_pulls", "search", "get_status"):
        for field in registry.definition(name).output_schema["properties"].values():
            for one in _objects(field):
                assert one.get("properties") or one["additionalProperties"], (name, field)


def _objects(schema):
    if "object" in schema.get("type", ""):
        yield schema
    for inner in [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]:
        yield from _objects(inner)


def test_nothing_changed_needs_nothing():
    assert snapshot.needed(committed(), committed()) is None

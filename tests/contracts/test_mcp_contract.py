"""The tools are what was promised: the committed snapshot, and versions that tell of every change."""

from __future__ import annotations

import copy
import json
import re

import pytest

from docs import contract as snapshot
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
        (remove_result, "major"),
        *((c, "minor") for c in (add_tool, add_field, add_result)),
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


def test_nothing_changed_needs_nothing():
    assert snapshot.needed(committed(), committed()) is None

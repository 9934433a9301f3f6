"""The permission table, every combination of it, written down a second time by hand."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from swarm_core.errors import Denied
from swarm_core.models import Relationship
from swarm_core.ops import rules
from swarm_core.store import tokens
from swarm_mcp import permissions, registry
from swarm_mcp.permissions import SCOPES, Caller, Relation

PEOPLE = ("operator", "automation")
EVERY = ("self", "reviewer_of", "parent_of", "none")
ALLOWED = {
    *itertools.product(("spawn_review_instance",), ("work", "fork"), ("self",)),
    *itertools.product(("spawn_fork_instance",), ("work", "fork", "adhoc"), ("self",)),
    *itertools.product(("create_pull_request",), ("work", "fork", "adhoc"), ("self",)),
    *itertools.product(("create_pull_request",), ("review",), ("reviewer_of",)),
    *itertools.product(("send_feedback",), ("review",), ("reviewer_of",)),
    *itertools.product(("update_instance_status",), ("work", "fork", "adhoc", "review"), ("self",)),
    *itertools.product(("query_instances", "query_pulls", "search"), ("work", "fork", "adhoc", "review"), EVERY),
    *itertools.product(("merge_pull_request",), PEOPLE, EVERY),
    *itertools.product(SCOPES, PEOPLE, EVERY),
}
ALL_SCOPES = frozenset(tokens.SCOPES)


@pytest.mark.parametrize("tool", SCOPES)
def test_every_combination_is_decided_as_written_here(tool):
    for caller, relation in itertools.product(Caller, Relation):
        decision = permissions.decide(tool, caller, relation, ALL_SCOPES)
        assert decision.allowed == ((tool, str(caller), str(relation)) in ALLOWED), (caller, relation)
        assert decision.rule == "default-deny" or decision.allowed


def test_every_tool_of_the_registry_has_a_scope_that_exists():
    assert SCOPES.keys() == registry.tools().keys()
    assert set(SCOPES.values()) <= tokens.SCOPES.keys()


@pytest.mark.parametrize("tool", SCOPES)
def test_an_automation_needs_the_scope_of_the_tool(tool):
    without = ALL_SCOPES - {SCOPES[tool]}
    decision = permissions.decide(tool, Caller.AUTOMATION, Relation.NONE, without)
    assert (decision.allowed, decision.rule) == (False, "scope")
    assert not permissions.may_call(tool, Caller.AUTOMATION, without)
    assert permissions.decide(tool, Caller.AUTOMATION, Relation.NONE, frozenset({SCOPES[tool]})).allowed


def test_what_no_rule_names_is_denied():
    assert not permissions.decide("no_such_tool", Caller.OPERATOR, Relation.SELF, ALL_SCOPES).allowed


def test_a_rule_of_an_operation_has_a_name_of_its_own_and_is_on_the_page():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "permissions.md").read_text()
    assert not rules.RULES.keys() & {rule.name for rule in permissions.RULES}
    assert [name for name in rules.RULES if f"| `{name}` |" not in page] == []


def test_a_denial_names_the_rule_and_both_sides():
    with pytest.raises(Denied) as denied:
        permissions.require("send_feedback", Caller.WORK, Relation.NONE, frozenset(), None)
    assert denied.value.code == "FORBIDDEN"
    assert denied.value.details == {
        "rule": "default-deny",
        "caller": "work",
        "relation": "none",
        "target": None,
    }


def link(parent: str, child: str, type_: str = "spawned_review") -> Relationship:
    return Relationship(1, parent, child, type_, 1, None, "2026-01-01T00:00:00.000Z")


class Target:
    id = "work-a1"


@pytest.mark.parametrize(
    ("caller", "links", "expected"),
    [
        ("work-a1", [], "self"),
        ("review-a1", [link("work-a1", "review-a1")], "reviewer_of"),
        ("review-a2", [link("work-a1", "review-a1")], "none"),
        ("fork-a1", [link("work-a1", "fork-a1", "created_fork")], "none"),
        ("work-a9", [link("work-a9", "work-a1", "created_fork")], "parent_of"),
    ],
)
def test_the_relation_comes_from_the_recorded_relationships(caller, links, expected):
    assert permissions.relation_of(caller, Target(), links) == expected


def test_a_caller_without_a_target_has_no_relation():
    assert permissions.relation_of("work-a1", None, []) == "none"

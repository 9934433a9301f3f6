"""Who may do what: one table, and what it does not allow is denied."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from swarm_core.errors import Denied
from swarm_core.models import Instance, Principal, PrincipalKind, Relationship


class Caller(StrEnum):
    WORK = "work"
    FORK = "fork"
    ADHOC = "adhoc"
    REVIEW = "review"
    OPERATOR = "operator"
    AUTOMATION = "automation"


class Relation(StrEnum):
    """What the caller is to the instance it acts on."""

    SELF = "self"
    REVIEWER_OF = "reviewer_of"
    PARENT_OF = "parent_of"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    tool: str
    callers: frozenset[Caller]
    relations: frozenset[Relation]
    why: str


_C, _R = Caller, Relation
_AUTHORS = frozenset({_C.WORK, _C.FORK})
_AGENTS = frozenset({_C.WORK, _C.FORK, _C.ADHOC, _C.REVIEW})
_ALL = frozenset(Caller)
_ANY = frozenset(Relation)
_SELF = frozenset({_R.SELF})
_PEOPLE = frozenset({_C.OPERATOR, _C.AUTOMATION})

RULES: tuple[Rule, ...] = (
    Rule("own-review", "spawn_review_instance", _AUTHORS, _SELF, "An agent asks for a review of its own work."),
    Rule("person-review", "spawn_review_instance", _PEOPLE, _ANY, "A person may have any work reviewed."),
    Rule("own-fork", "spawn_fork_instance", _AGENTS - {_C.REVIEW}, _SELF, "An agent starts a second attempt."),
    Rule("person-fork", "spawn_fork_instance", _PEOPLE, _ANY, "A person may fork any work."),
    Rule("own-pull", "create_pull_request", _AGENTS - {_C.REVIEW}, _SELF, "An agent opens its own pull request."),
    Rule(
        "reviewed-pull",
        "create_pull_request",
        frozenset({_C.REVIEW}),
        frozenset({_R.REVIEWER_OF}),
        "A reviewer approves by opening the pull request of the work it reviews.",
    ),
    Rule("person-pull", "create_pull_request", _PEOPLE, _ANY, "A person may open any pull request."),
    Rule(
        "reviewer-feedback",
        "send_feedback",
        frozenset({_C.REVIEW}),
        frozenset({_R.REVIEWER_OF}),
        "A reviewer speaks to the work it reviews and to nobody else.",
    ),
    Rule("person-feedback", "send_feedback", _PEOPLE, _ANY, "A person may speak to any agent."),
    Rule("own-status", "update_instance_status", _AGENTS, _SELF, "An agent changes its own status only."),
    Rule("person-status", "update_instance_status", _PEOPLE, _ANY, "A person may change any status."),
    Rule("everyone-queries", "query_instances", _ALL, _ANY, "Everybody may read."),
    Rule("person-merge", "merge_pull_request", _PEOPLE, _ANY, "A person decides what is merged, never an agent."),
    Rule("everyone-reads-pulls", "query_pulls", _ALL, _ANY, "Everybody may read."),
    Rule("everyone-searches", "search", _ALL, _ANY, "Everybody may read."),
    Rule("person-status-of-all", "get_status", _PEOPLE, _ANY, "Only a person looks after the system."),
)

# What an automation's token must carry for each tool. `metrics` alone does not open the tools.
SCOPES: dict[str, str] = {
    "spawn_review_instance": "review",
    "spawn_fork_instance": "spawn",
    "create_pull_request": "pulls",
    "merge_pull_request": "merge",
    "query_pulls": "read",
    "send_feedback": "feedback",
    "update_instance_status": "status",
    "query_instances": "read",
    "search": "read",
    "get_status": "read",
}


# Who may call this may read resources and prompts as well.
READ = "query_instances"


@dataclass(frozen=True, slots=True)
class Decision:
    allowed: bool
    rule: str
    why: str


def caller_of(principal: Principal) -> Caller:
    """An instance's kind is the beginning of its id."""
    if principal.kind == PrincipalKind.INSTANCE:
        return Caller(principal.name.partition("-")[0])
    return Caller(principal.kind)


def relation_of(caller_id: str, target: Instance | None, links: list[Relationship]) -> Relation:
    if target is None:
        return Relation.NONE
    if caller_id == target.id:
        return Relation.SELF
    for link in links:
        if link.type == "spawned_review" and (link.parent_id, link.child_id) == (target.id, caller_id):
            return Relation.REVIEWER_OF
    if any((link.parent_id, link.child_id) == (caller_id, target.id) for link in links):
        return Relation.PARENT_OF
    return Relation.NONE


def decide(tool: str, caller: Caller, relation: Relation, scopes: frozenset[str]) -> Decision:
    if caller == Caller.AUTOMATION and SCOPES.get(tool) not in scopes:
        return Decision(False, "scope", f"the token lacks the scope {SCOPES.get(tool)}")
    for rule in RULES:
        if rule.tool == tool and caller in rule.callers and relation in rule.relations:
            return Decision(True, rule.name, rule.why)
    return Decision(
        False, "default-deny", f"no rule lets a {caller} agent do this to an instance it is {relation} to"
    )


def may_call(tool: str, caller: Caller, scopes: frozenset[str]) -> bool:
    """Whether any relation would allow it: what a caller is shown of the registry."""
    if caller == Caller.AUTOMATION and SCOPES.get(tool) not in scopes:
        return False
    return any(rule.tool == tool and caller in rule.callers for rule in RULES)


def require(tool: str, caller: Caller, relation: Relation, scopes: frozenset[str], target: Instance | None) -> str:
    """The name of the rule that allows it; raises Denied with the one that does not."""
    decision = decide(tool, caller, relation, scopes)
    if not decision.allowed:
        raise Denied(
            f"{tool} is not allowed: {decision.why}",
            code="FORBIDDEN",
            hint="docs/reference/permissions.md lists who may do what",
            details={
                "rule": decision.rule,
                "caller": str(caller),
                "relation": str(relation),
                "target": target.id if target else None,
            },
        )
    return decision.rule

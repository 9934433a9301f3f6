"""Every tool, called by every kind of caller on every kind of target: allowed, denied, and written down.

The table of permissions is here a second time, by hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from typing import Any

import pytest

from swarm_core.models import Instance
from swarm_core.store import relationships
from swarm_core.swarm import Swarm
from tests import ledger
from tests.integration import mcp_fixture
from tests.integration.mcp_fixture import Coordinated
from tests.integration.review_fixture import commit, finished_work
from tests.ledger import Ledger, Row
from tests.mcp_client import Answer, Client
from tests.support import wait_until

AGENTS = ("work", "fork", "adhoc", "review")
READS = {
    "query_instances": "everyone-queries",
    "query_pulls": "everyone-reads-pulls",
    "search": "everyone-searches",
}
# Tools that act on no instance.
ON_NOBODY = (*READS, "get_status")
# tool -> what an agent of a kind must be to the instance -> the rule that then allows it. All else is denied.
BY_AGENTS: dict[str, dict[tuple[str, str], str]] = {
    "spawn_review_instance": {("work", "self"): "own-review", ("fork", "self"): "own-review"},
    "spawn_fork_instance": {
        ("work", "self"): "own-fork",
        ("fork", "self"): "own-fork",
        ("adhoc", "self"): "own-fork",
    },
    "create_pull_request": {
        ("work", "self"): "own-pull",
        ("fork", "self"): "own-pull",
        ("adhoc", "self"): "own-pull",
        ("review", "reviewer_of"): "reviewed-pull",
    },
    "send_feedback": {("review", "reviewer_of"): "reviewer-feedback"},
    "update_instance_status": {(kind, "self"): "own-status" for kind in AGENTS},
    "merge_pull_request": {},
    "get_status": {},
}
# tool -> the rule for people, and the scope without which an automation is not let through to it.
BY_PEOPLE = {
    "spawn_review_instance": ("person-review", "review"),
    "spawn_fork_instance": ("person-fork", "spawn"),
    "create_pull_request": ("person-pull", "pulls"),
    "send_feedback": ("person-feedback", "feedback"),
    "update_instance_status": ("person-status", "status"),
    "merge_pull_request": ("person-merge", "merge"),
    "query_instances": ("everyone-queries", "read"),
    "query_pulls": ("everyone-reads-pulls", "read"),
    "search": ("everyone-searches", "read"),
    "get_status": ("person-status-of-all", "read"),
}
TOOLS = tuple(BY_PEOPLE)
SCOPES = ("read", "review", "feedback", "pulls", "merge", "status", "spawn", "metrics")

# A call that is to be denied would do something if it were not.
EFFECTIVE: dict[str, dict[str, Any]] = {
    "spawn_review_instance": {"reviewer_prompt": "say reviewing"},
    "spawn_fork_instance": {"prompt": "say forked"},
    "create_pull_request": {"title": "Take it", "description": "It is good."},
    "send_feedback": {"feedback": "All wrong.", "feedback_type": "needs_work", "priority": "high"},
    "update_instance_status": {"status": "failed", "message": "not mine"},
    "merge_pull_request": {},
    "query_instances": {},
    "query_pulls": {},
    "search": {"query": "anything"},
    "get_status": {},
}
# A call that is allowed comes as far as the operation, which refuses the text before it changes anything.
HARMLESS = EFFECTIVE | {
    "spawn_review_instance": {"reviewer_prompt": "\0"},
    "spawn_fork_instance": {"prompt": "\0"},
    "create_pull_request": {"title": "two\nlines", "description": "."},
    "send_feedback": {"feedback": "\0", "feedback_type": "needs_work"},
    "update_instance_status": {"status": "failed", "message": "\0"},
}
REFUSED_BY_THE_OPERATION = {"INVALID_INPUT", "REVIEW_IN_PROGRESS", "WORKFLOW_INVALID_STATE"}
# Nobody here has a pull request, so that whoever may merge one, or asks for the one of an instance, learns that.
NO_PULL = "PULL_NOT_FOUND"
NAMES_ITS_TARGET = {"merge_pull_request"}


@dataclass(frozen=True)
class Caller:
    kind: str
    actor: str
    token: str
    scopes: frozenset[str] = frozenset()

    @property
    def is_agent(self) -> bool:
        return self.kind in AGENTS


@dataclass(frozen=True)
class Case:
    """`relation` is the caller's to the target; `named` says whether the call names it."""

    about: str
    relation: str
    target: str | None
    named: bool = True


@dataclass
class Fleet:
    """Agents of every kind, in every relation to one another that can be recorded."""

    mcp: Coordinated
    callers: dict[str, Caller]
    targets: dict[str, Instance]
    reviewed: str
    parents: dict[str, dict[str, str]]

    def cases(self, tool: str, caller: Caller) -> list[Case]:
        if not caller.is_agent:
            named = [Case(f"a {kind}", "none", i.id) for kind, i in self.targets.items() if kind in AGENTS]
            return [*named, Case("no target", "none", None, named=False)]
        own = self.targets[caller.kind].id
        given = [
            Case("itself", "self", own),
            Case("what it reviews", "reviewer_of", self.reviewed_by(caller)),
            Case("a fork of it", "parent_of", self.parents[caller.kind]["fork"]),
            Case("a review of it", "parent_of", self.parents[caller.kind]["review"]),
            Case("what it was forked from", "none", self.targets["origin"].id),
            Case("a stranger", "none", self.targets["stranger"].id),
        ]
        implied = Case("no target", "self", own, named=False)
        if caller.kind == "review" and tool in ("create_pull_request", "send_feedback"):
            implied = Case("no target", "reviewer_of", self.reviewed, named=False)
        return [*given, implied]

    def reviewed_by(self, caller: Caller) -> str:
        return self.reviewed if caller.kind == "review" else self.targets["as if reviewed"].id


def make_fleet(mcp: Coordinated) -> Fleet:
    with mcp.swarm() as swarm:
        work = finished_work(mcp.world, swarm)
        fork = swarm.fork(work.id, "say forked")
        commit(fork, "forked.txt")
        adhoc = mcp.world.work(swarm, "", adhoc=True)
        commit(adhoc, "adhoc.txt")
        others = [finished_work(mcp.world, swarm) for _ in range(5)]
        reviewed, origin, child, as_if, stranger = others
        review = swarm.request_review(reviewed.id, reviewer_prompt="say reviewing")
        second = swarm.request_review(origin.id, reviewer_prompt="say reviewing")
        kinds = {"work": work, "fork": fork, "adhoc": adhoc, "review": review}
        assert {k: i.kind for k, i in kinds.items()} == {k: k for k in AGENTS}
        parents = _link_all(swarm, kinds, origin, child, as_if, second)
        scoped = {f"only-{s}": swarm.create_token(f"only-{s}", [s]).token for s in SCOPES}
        everything = swarm.create_token("everything", SCOPES).token
        for instance in swarm.instances():
            mcp.world.wait_idle(swarm, instance.id)
    callers = {k: Caller(k, i.id, mcp.token(i)) for k, i in kinds.items()}
    callers["operator"] = Caller("operator", "operator", mcp.operator_token)
    callers["everything"] = Caller("automation", "automation:everything", everything, frozenset(SCOPES))
    for name, token in scoped.items():
        scope = frozenset({name.removeprefix("only-")})
        callers[name] = Caller("automation", f"automation:{name}", token, scope)
    targets = kinds | {"stranger": stranger, "origin": origin, "as if reviewed": as_if}
    return Fleet(mcp, callers, targets, reviewed.id, parents)


def _link_all(
    swarm: Swarm,
    kinds: dict[str, Instance],
    origin: Instance,
    child: Instance,
    as_if: Instance,
    second: Instance,
) -> dict[str, dict[str, str]]:
    """Also what does not come about by itself, like work that reviews: the table decides about it too."""
    db = swarm.context.db
    parents = {}
    with db.write():
        for kind, instance in kinds.items():
            relationships.add(db, origin.id, instance.id, relationships.FORK, head_commit=None)
            relationships.add(db, instance.id, child.id, relationships.FORK, head_commit=None)
            relationships.add(db, instance.id, second.id, relationships.REVIEW, head_commit=None)
            if kind != "review":
                relationships.add(db, as_if.id, instance.id, relationships.REVIEW, head_commit=None)
            parents[kind] = {"fork": child.id, "review": second.id}
    return parents


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with mcp_fixture.shared_by_a_module(tmp_path_factory.mktemp("permissions")) as mcp:
        yield make_fleet(mcp)


@pytest.fixture
def read(fleet: Fleet) -> Iterator[Ledger]:
    with ledger.reading(fleet.mcp.world.settings.database_path) as opened:
        yield opened


@pytest.fixture(scope="module")
def http(fleet: Fleet) -> dict[str, Client]:
    return {n: fleet.mcp.client(c.token) for n, c in fleet.callers.items() if n != "only-metrics"}


# What is expected


def rule_for(tool: str, caller: Caller, relation: str) -> str | None:
    """The rule that allows the call; None when it is to be denied."""
    if not caller.is_agent:
        rule, scope = BY_PEOPLE[tool]
        return rule if caller.kind == "operator" or scope in caller.scopes else None
    return READS.get(tool) or BY_AGENTS[tool].get((caller.kind, relation))


def denied_by(tool: str, caller: Caller) -> str:
    return "scope" if caller.kind == "automation" and BY_PEOPLE[tool][1] not in caller.scopes else "default-deny"


# One call and everything that is known of it


def check(read: Ledger, client: Client, tool: str, caller: Caller, case: Case) -> str:
    """Make the call; what is wrong with its outcome, or "" when it is as written here."""
    if tool in ON_NOBODY:
        case = replace(case, relation="none")  # who reads acts on nobody
    rule = rule_for(tool, caller, case.relation)
    arguments = dict((HARMLESS if rule else EFFECTIVE)[tool])
    if case.named and tool != "get_status":
        arguments["instance" if tool == "search" else "instance_id"] = case.target
    before, newest = read.state(), read.newest()
    answer = client.call(tool, **arguments)
    told = wait_until(lambda: calls_since(read, newest), what=f"the event of {tool}")  # a read may come before it
    expected = outcome(tool, caller, case, rule)
    found = seen(answer, told)
    if found != expected:
        return ", ".join(f"{k}: {found[k]!r} and not {v!r}" for k, v in expected.items() if found[k] != v)
    after = read.state()
    wrote = [name for name in after if after[name] != before[name]]
    may = ["requests"] if rule and tool not in ON_NOBODY and (case.named or caller.is_agent) else []
    return "" if wrote == may else f"changed {wrote}"


def calls_since(read: Ledger, newest: int) -> list[Row]:
    return [e for e in read.events(newest) if e.tool_name is not None or e.name == "auth:refused"]


def outcome(tool: str, caller: Caller, case: Case, rule: str | None) -> dict[str, Any]:
    about = None if tool in ON_NOBODY else case.target
    about = about or (caller.actor if caller.is_agent else None)
    known: dict[str, Any] = {"events": 1, "actor": caller.actor, "tool": tool, "instance": about}
    if tool in NAMES_ITS_TARGET and not case.named:
        return (
            known
            | {"event": "tool:called", "code": "INVALID_REQUEST", "rule": None, "details": None}
            | {"instance": caller.actor if caller.is_agent else None}
        )
    if rule is None:
        why = denied_by(tool, caller)
        target = case.target if tool not in ON_NOBODY else None
        details = {"rule": why, "caller": caller.kind, "relation": case.relation, "target": target}
        return known | {"event": "tool:denied", "code": "FORBIDDEN", "rule": why, "details": details}
    if tool in ON_NOBODY:
        code = NO_PULL if tool == "query_pulls" and case.named else ""
        return known | {"event": "tool:called", "code": code, "rule": rule, "details": None}
    if tool == "merge_pull_request":
        return known | {"event": "tool:called", "code": NO_PULL, "rule": rule, "details": None}
    if not case.named and not caller.is_agent:
        return known | {"event": "tool:called", "code": "by the operation", "rule": None, "details": None}
    return known | {"event": "tool:called", "code": "by the operation", "rule": rule, "details": None}


def seen(answer: Answer, told: list[Row]) -> dict[str, Any]:
    event = told[0]
    code = answer.code
    assert event.error_code == (code or None)
    assert event.success == (code == "")
    return {
        "events": len(told),
        "actor": event.actor,
        "tool": event.tool_name,
        "instance": event.instance_id,
        "event": event.name,
        "code": "by the operation" if code in REFUSED_BY_THE_OPERATION else code,
        "rule": event.metadata.get("rule"),
        "details": answer.payload["error"]["details"] if code == "FORBIDDEN" else None,
    }


def run(read: Ledger, fleet: Fleet, tool: str, clients: dict[str, Client]) -> None:
    wrong = []
    for name, client in clients.items():
        caller = fleet.callers[name]
        for case in fleet.cases(tool, caller):
            problem = check(read, client, tool, caller, case)
            if problem:
                wrong.append(f"{tool} by {name} on {case.about}: {problem}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("tool", TOOLS)
def test_every_caller_on_every_target_over_http(fleet: Fleet, read: Ledger, http: dict[str, Client], tool: str):
    sessions, worktrees = fleet.mcp.world.sessions(), fleet.mcp.world.worktrees()
    run(read, fleet, tool, http)
    assert (fleet.mcp.world.sessions(), fleet.mcp.world.worktrees()) == (sessions, worktrees)


@pytest.mark.parametrize("name", ["work", "review", "operator", "only-read"])
def test_every_tool_on_every_target_over_stdio(fleet: Fleet, read: Ledger, name: str):
    client = fleet.mcp.stdio(fleet.callers[name].token)
    try:
        for tool in TOOLS:
            run(read, fleet, tool, {name: client})
    finally:
        client.close()


def test_every_caller_is_shown_the_tools_it_may_call_and_no_other(fleet: Fleet, http: dict[str, Client]):
    for name, client in http.items():
        caller = fleet.callers[name]
        relations = ("self", "reviewer_of", "parent_of", "none")
        usable = {t for t in TOOLS if any(rule_for(t, caller, r) for r in relations)}
        assert set(client.tools()) == usable, name


def test_who_may_never_use_a_tool_learns_nothing_by_naming_what_is_not_there(
    fleet: Fleet, read: Ledger, http: dict[str, Client]
):
    for name, client in http.items():
        caller = fleet.callers[name]
        for tool in BY_AGENTS.keys() - set(ON_NOBODY):
            usable = any(rule_for(tool, caller, r) for r in ("self", "reviewer_of", "parent_of", "none"))
            newest = read.newest()
            answer = client.call(tool, **EFFECTIVE[tool], instance_id="work-a999")
            (event,) = read.calls(newest)
            expected = ("INSTANCE_NOT_FOUND", "tool:called") if usable else ("FORBIDDEN", "tool:denied")
            assert (answer.code, event.name) == expected, (name, tool)
            assert event.metadata.get("rule") == (None if usable else denied_by(tool, caller))


def test_nobody_has_a_tool_that_does_not_exist(fleet: Fleet, read: Ledger, http: dict[str, Client]):
    for name, client in http.items():
        newest = read.newest()
        assert client.call("delete_everything", instance_id=fleet.reviewed).code == "NOT_FOUND"
        (event,) = read.calls(newest)
        assert (event.name, event.actor, event.tool_name, event.error_code) == (
            "tool:called",
            fleet.callers[name].actor,
            "delete_everything",
            "NOT_FOUND",
        )


def test_no_author_approves_its_own_work(fleet: Fleet, read: Ledger, http: dict[str, Client]):
    for kind in ("work", "fork", "adhoc"):
        before, newest = read.state(without=("requests",)), read.newest()
        answer = http[kind].call("update_instance_status", status="approved")
        (event,) = read.calls(newest)
        assert (answer.code, event.name, event.actor) == (
            "FORBIDDEN",
            "tool:denied",
            fleet.callers[kind].actor,
        )
        assert read.state(without=("requests",)) == before


def test_an_automation_for_metrics_alone_does_not_reach_the_tools(fleet: Fleet, read: Ledger):
    newest = read.newest()
    refused = fleet.mcp.client(fleet.callers["only-metrics"].token, initialize=False)
    assert refused.initialize().status == 403
    for tool in TOOLS:
        answer = refused.call(tool, **EFFECTIVE[tool])
        assert (answer.status, answer.code) == (403, "FORBIDDEN")
    assert refusals(read, newest, len(TOOLS) + 1) == {("auth:refused", "automation:only-metrics", "FORBIDDEN")}


@pytest.mark.parametrize(("page", "method"), [("/metrics", "GET"), ("/hooks/stop", "POST")])
def test_the_other_pages_are_for_those_whom_they_are_for(fleet: Fleet, read: Ledger, page: str, method: str):
    for name, caller in fleet.callers.items():
        allowed = (
            caller.is_agent
            if page.startswith("/hooks")
            else (caller.kind == "operator" or "metrics" in caller.scopes)
        )
        newest = read.newest()
        status = plain(fleet.mcp, caller.token, page, method)
        assert status == (200 if allowed else 403), (name, page)
        expected = set() if allowed else {("auth:refused", caller.actor, "FORBIDDEN")}
        assert refusals(read, newest, len(expected)) == expected


def plain(mcp: Coordinated, token: str, page: str, method: str) -> int:
    connection = HTTPConnection("127.0.0.1", mcp.port, timeout=20)
    try:
        connection.request(method, page, b"{}" if method == "POST" else None, {"Authorization": f"Bearer {token}"})
        return connection.getresponse().status
    finally:
        connection.close()


LISTS = {"resources/list": "resources", "resources/templates/list": "resourceTemplates", "prompts/list": "prompts"}
READING = {
    "resources/read": {"uri": "swarm://instances"},
    "prompts/get": {"name": "work", "arguments": {"task": "x"}},
}


@pytest.mark.parametrize("method", LISTS)
def test_resources_and_prompts_are_shown_to_whoever_may_read(fleet: Fleet, http: dict[str, Client], method: str):
    for name, client in http.items():
        may_read = rule_for("query_instances", fleet.callers[name], "none") is not None
        assert bool(client.request(method).result[LISTS[method]]) == may_read, name


@pytest.mark.parametrize("method", READING)
def test_resources_and_prompts_are_for_whoever_may_read(
    fleet: Fleet, read: Ledger, http: dict[str, Client], method: str
):
    for name, client in http.items():
        caller = fleet.callers[name]
        newest = read.newest()
        answer = client.request(method, READING[method])
        if rule_for("query_instances", caller, "none"):
            assert answer.result
            continue
        assert answer.code == "FORBIDDEN", name
        (event,) = read.calls(newest)
        assert (event.name, event.actor, event.tool_name) == ("tool:denied", caller.actor, method)
        assert (event.error_code, event.metadata["rule"]) == ("FORBIDDEN", "scope")


def refusals(read: Ledger, after: int, count: int) -> set[tuple[str, str, str | None]]:
    """They are written a moment after their answer."""
    wait_until(lambda: len(read.events(after, like="auth:%")) >= count, what=f"{count} refusals recorded")
    return {(e.name, e.actor, e.error_code) for e in read.events(after, like="auth:%")}

"""Requests to GitHub, answers of the stand-in and webhook deliveries, held against what GitHub publishes."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from swarm_core.forge import MergeMethod
from swarm_core.github_overview import MOST, query
from swarm_core.ops.pull_look import Known
from swarm_mcp import webhooks
from tests.fakes import github_deliveries, github_queries, github_server
from tests.fakes.github_deliveries import delivery
from tests.fakes.github_schemas import Edition, editions
from tests.fakes.github_server import GitHubServer
from tests.integration.forge_fixture import draft, forge_on

HEAD = "a" * 40
PULLS = "/repos/acme/widgets/pulls"
ASKED = {
    "GET /rate_limit",
    "GET /repos/{owner}/{repo}",
    "GET /repos/{owner}/{repo}/issues",
    "GET /repos/{owner}/{repo}/issues/{issue_number}",
    "POST /repos/{owner}/{repo}/issues/{issue_number}/labels",
    "GET /repos/{owner}/{repo}/issues/{issue_number}/comments",
    "GET /repos/{owner}/{repo}/pulls",
    "POST /repos/{owner}/{repo}/pulls",
    "GET /repos/{owner}/{repo}/pulls/{pull_number}",
    "PATCH /repos/{owner}/{repo}/pulls/{pull_number}",
    "PUT /repos/{owner}/{repo}/pulls/{pull_number}/merge",
    "GET /repos/{owner}/{repo}/pulls/{pull_number}/reviews",
    "GET /repos/{owner}/{repo}/pulls/{pull_number}/comments",
    "POST /repos/{owner}/{repo}/pulls/{pull_number}/requested_reviewers",
    "GET /repos/{owner}/{repo}/commits/{ref}/check-runs",
    "GET /repos/{owner}/{repo}/commits/{ref}/status",
    "GET /repos/{owner}/{repo}/check-runs/{check_run_id}",
    "GET /repos/{owner}/{repo}/git/ref/{ref}",
    "DELETE /repos/{owner}/{repo}/git/refs/{ref}",
    "GET /repos/{owner}/{repo}/actions/jobs/{job_id}/logs",
}

pytestmark = pytest.mark.skipif(not editions(), reason="GitHub's schemas are not installed: make setup")


@pytest.fixture(params=range(len(editions())), ids=[one.name for one in editions()])
def edition(request: pytest.FixtureRequest) -> Edition:
    return editions()[request.param]


@pytest.fixture
def server() -> Iterator[GitHubServer]:
    with github_server.running() as running:
        running.repo().collaborators |= {"anna", "readers"}
        yield running


def asked_by_every_method(server: GitHubServer) -> None:
    """Each thing a forge can do, once."""
    forge, repo = forge_on(server), server.repo()
    for branch in ("work/a", "work/b"):
        repo.branches.tips[branch] = HEAD if branch == "work/a" else "b" * 40
    repo.add_issue("Fix the parser")
    forge.get_issue(1)
    forge.list_issues(limit=10)
    made = forge.open_pull(draft("work/a", labels=("bug",), reviewers=("anna", "acme/readers")))
    other = forge.open_pull(draft("work/b"))
    job = repo.add_check(HEAD, "ci", conclusion="failure", log="it failed")
    repo.add_status(HEAD, "old", "failure")
    repo.add_review(made.number, "anna", "APPROVED")
    repo.add_comment(made.number, "anna", "Why?", path="a.py", line=3)
    repo.add_comment(made.number, "anna", "Why not?")
    assert forge.open_pull(draft("work/a")).number == made.number
    forge.list_pulls("")
    forge.get_pull(made.number, "")
    [check, *_] = forge.checks(HEAD, "").value or []
    forge.summary(check)
    forge.reviews(made.number, "")
    forge.comments(made.number, "")
    known = Known(made.number, "work/a", HEAD, "main", "", {})
    forge.look([known])
    server.has_graphql = False
    forge_on(server).look([known])
    forge.log_tail(job, max_bytes=100)
    forge.merge(made.number, method=MergeMethod.SQUASH, head_commit=HEAD, title="Ours")
    forge.close_pull(other.number)
    forge.delete_branch("work/a", at=HEAD)
    forge.scopes()
    forge.check_access()


def test_every_request_is_one_that_github_publishes_and_every_one_is_made_here(
    server: GitHubServer, edition: Edition
) -> None:
    asked_by_every_method(server)
    rest = [one for one in server.requests if not one.path.endswith("/graphql")]
    paths = [(one.method, one.path.removeprefix(server.prefix).partition("?")[0]) for one in rest]
    found = [edition.operation(method, path) for method, path in paths]
    assert {one.name for one in found if one is not None} == ASKED
    assert None not in found
    assert server.faults == []


@pytest.mark.parametrize("count", [1, MOST])
def test_the_query_for_many_pull_requests_is_valid(count: int) -> None:
    assert github_queries.check(query(range(1, count + 1))).errors == ()


@pytest.mark.parametrize("field", ["isDraft", "statusCheckRollup", "reviewThreads", "detailsUrl", "hasNextPage"])
def test_a_misspelt_field_of_the_query_is_found(field: str) -> None:
    assert github_queries.check(query([1]).replace(field, f"{field}s")).errors


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        ("GET", f"{PULLS}?stat=open", None),
        ("GET", f"{PULLS}?state=opened", None),
        ("GET", f"{PULLS}?per_page=many", None),
        ("GET", "/repos/acme/widgets/pull", None),
        ("PATCH", PULLS, {}),
        ("POST", PULLS, {"titel": "x", "head": "h", "base": "b"}),
        ("POST", PULLS, {"title": "x", "head": "h"}),
        ("POST", PULLS, {"title": "x", "head": "h", "base": 1}),
        ("POST", PULLS, None),
        ("PUT", f"{PULLS}/1/merge", {"merge_method": "octopus"}),
    ],
    ids=str,
)
def test_a_request_that_github_does_not_publish_is_found(
    edition: Edition, method: str, target: str, body: object
) -> None:
    assert edition.asked(method, target, b"" if body is None else json.dumps(body).encode())


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (f"{PULLS}/1", {"titel": "x"}),
        (f"{PULLS}/1", {"head": {"sah": HEAD}}),
        (f"{PULLS}/1", {"state": "merged"}),
        (f"{PULLS}/1", {"number": "1"}),
        (f"{PULLS}/1", {"user": {"logn": "anna"}}),
        (f"/repos/acme/widgets/commits/{HEAD}/check-runs", {"check_runs": [{"concluson": "success"}]}),
        (f"/repos/acme/widgets/commits/{HEAD}/status", {"statuses": [{"contxt": "ci"}]}),
        ("/repos/acme/widgets/issues/1", {"labels": [{"nam": "bug"}]}),
    ],
    ids=str,
)
def test_an_answer_that_github_does_not_publish_is_found(
    edition: Edition, path: str, said: dict[str, object]
) -> None:
    assert edition.answered("GET", path, 200, edition.whole("GET", path, 200, {})) == []
    assert edition.answered("GET", path, 200, edition.whole("GET", path, 200, said))


def test_a_misspelt_field_of_the_stand_in_fails_the_test_that_uses_it(
    server: GitHubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.repo().add_pull("work/a", head_sha=HEAD)
    monkeypatch.setattr(github_server.github_graphql, "_MERGEABLE", dict.fromkeys((True, False, None), "YES"))
    forge_on(server).look([Known(1, "work/a", HEAD, "main", "", {})])
    assert any("mergeable" in fault for fault in server.faults)
    server.faults.clear()


@pytest.mark.parametrize("event", sorted(webhooks._REPORTS))
def test_every_report_is_read_as_github_sends_it(edition: Edition, event: str) -> None:
    place = {"full_name": "acme/widgets", "html_url": "https://github.com/acme/widgets"}
    found = webhooks.pointer(delivery(event, repository=place))
    assert found is not None
    assert found.repository == "github.com/acme/widgets"
    given = {"action": github_deliveries.ACTIONS[event]} if event in github_deliveries.ACTIONS else {}
    assert edition.delivered(event, edition.delivery(event, given | {"repositry": {}}))
    assert edition.delivered(event, {**edition.delivery(event, given), "repository": {"full_nam": "acme/widgets"}})

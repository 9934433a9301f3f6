"""The same client against emulate: what our stand-in says is what a GitHub that nobody here wrote says.

Where emulate is more lenient than GitHub there is no test: it opens a second pull request for a branch and one for
a branch that does not exist, takes every token, moves no head with a push, and has neither ETags nor statuses.
"""

from __future__ import annotations

import itertools
import socket

import pytest

from swarm_core import github_records as records
from swarm_core.errors import Conflict, ExternalFailure, NotFound
from swarm_core.forge import Draft, MergeMethod
from tests.integration.emulate_fixture import emulate, needs_emulate
from tests.integration.forge_fixture import Gate

__all__ = ["emulate"]

pytestmark = needs_emulate

_names = itertools.count(1)


@pytest.fixture
def forge(emulate):
    return emulate.forge()


@pytest.fixture
def work(emulate):
    """A branch with a commit of its own: its name and the commit."""
    branch = f"work/{next(_names)}"
    return branch, emulate.push(branch, f"{branch.replace('/', '-')}.txt", "new\n")


def opened(forge, work, **more):
    branch, commit = work
    return forge.open_pull(Draft("A title", "A body", branch, "main", commit, **more))


def test_an_issue_is_read_and_listed_without_the_pull_requests(emulate, forge, work):
    opened(forge, work)
    issue = forge.get_issue(1)
    assert issue is not None
    assert (issue.title, issue.body, issue.state) == ("It is broken", "Please fix it.", "open")
    assert [found.title for found in forge.list_issues(limit=10)] == ["It is broken"]
    assert forge.get_issue(4711) is None


def test_a_pull_request_is_opened_found_and_listed(emulate, forge, work):
    branch, commit = work
    assert forge._find(branch, {}) is None
    pull = opened(forge, work, draft=True, labels=("swarm",), reviewers=("ann",))
    assert (pull.state, pull.draft, pull.head_branch, pull.head_commit) == ("open", True, branch, commit)
    found = forge._find(branch, {})
    assert found is not None
    assert found.number == pull.number
    assert pull.number in {listed.number for listed in forge.list_pulls("").value}
    theirs = emulate.call("GET", f"/pulls/{pull.number}")
    assert [label["name"] for label in theirs["labels"]] == ["swarm"]
    assert [person["login"] for person in theirs["requested_reviewers"]] == ["ann"]


def test_a_pull_request_is_read_whole(emulate, forge, work):
    pull = opened(forge, work)
    theirs = forge.get_pull(pull.number, "").value
    assert (theirs.head_commit, theirs.mergeable, theirs.merge_commit) == (work[1], True, None)
    assert (theirs.base_branch, theirs.title, theirs.url) == ("main", "A title", pull.url)


def test_what_is_not_there_is_not_found(emulate, forge):
    for ask in (forge.get_pull, forge.reviews, forge.comments):
        with pytest.raises(NotFound) as caught:
            ask(4711, "")
        assert caught.value.code == "PULL_NOT_FOUND"
    with pytest.raises(ExternalFailure) as failed:
        emulate.forge(name="not-there").list_pulls("")
    assert failed.value.code == "GITHUB_ERROR"
    assert forge.log_tail(4711, max_bytes=10) == ""


def test_reviews_are_read_without_those_that_are_being_written(emulate, forge, work):
    number = opened(forge, work).number
    for body in (
        {"event": "REQUEST_CHANGES", "body": "No."},
        {"event": "COMMENT", "body": "Hm."},
        {"event": "APPROVE"},
        {"body": "Not yet said."},
    ):
        emulate.call("POST", f"/pulls/{number}/reviews", body, by="ann")
    reviews = forge.reviews(number, "").value
    assert [(review.author, review.state) for review in reviews] == [
        ("ann", "changes_requested"),
        ("ann", "commented"),
        ("ann", "approved"),
    ]
    assert {review.commit for review in reviews} == {work[1]}


def test_comments_of_both_kinds_are_read_in_order(emulate, forge, work):
    branch, commit = work
    number, path = opened(forge, work).number, f"{branch.replace('/', '-')}.txt"
    line = {"body": "On a line", "path": path, "line": 1, "side": "RIGHT", "commit_id": commit}
    emulate.call("POST", f"/pulls/{number}/comments", line, by="ann")
    emulate.call("POST", f"/issues/{number}/comments", {"body": "On the whole"}, by="ann")
    comments = forge.comments(number, "").value
    assert [(comment.body, comment.path, comment.line, comment.outdated) for comment in comments] == [
        ("On a line", path, 1, False),
        ("On the whole", "", None, False),
    ]


@pytest.mark.parametrize(
    ("body", "state"),
    [
        ({"status": "queued"}, "pending"),
        ({"status": "completed", "conclusion": "success"}, "passed"),
        ({"status": "completed", "conclusion": "failure"}, "failed"),
        ({"status": "completed", "conclusion": "skipped"}, "skipped"),
    ],
)
def test_a_run_of_a_check_has_the_shape_that_is_read(emulate, work, body, state):
    commit, output = work[1], {"title": "2 failed", "summary": "In a test."}
    emulate.call("POST", "/check-runs", {"name": "ci", "head_sha": commit, "output": output, **body})
    (run,) = emulate.call("GET", f"/commits/{commit}/check-runs?filter=latest")["check_runs"]
    check = records.check_of_run(run)
    assert (check.name, check.state, check.summary) == ("ci", state, "2 failed\n\nIn a test.")


@pytest.mark.parametrize("method", list(MergeMethod))
def test_a_pull_request_is_merged_once(emulate, forge, work, method):
    number = opened(forge, work).number
    commit = forge.merge(number, method=method, head_commit=work[1], title="Ours")
    assert emulate.tip("main") == commit
    now = forge.get_pull(number, "").value
    assert (now.state, now.merge_commit) == ("merged", commit)
    assert forge.merge(number, method=method, head_commit=work[1], title="Ours") == commit
    assert number not in {listed.number for listed in forge.list_pulls("").value}


def test_a_merge_that_may_not_be_is_a_conflict(forge, work):
    number = opened(forge, work, draft=True).number
    for head, code in ((work[1], "PULL_NOT_MERGEABLE"), ("0" * 40, "PULL_HEAD_MOVED")):
        with pytest.raises(Conflict) as caught:
            forge.merge(number, method=MergeMethod.SQUASH, head_commit=head, title="")
        assert caught.value.code == code


def test_a_pull_request_is_closed_and_its_branch_deleted(forge, work):
    branch, commit = work
    number = opened(forge, work).number
    forge.close_pull(number)
    assert forge.get_pull(number, "").value.state == "closed"
    assert forge.delete_branch(branch, at="0" * 40) is False
    assert forge.delete_branch(branch, at=commit) is True
    assert forge.delete_branch(branch, at=commit) is False


def test_the_quota_is_read_and_access_is_enough(emulate):
    gate = Gate()
    forge = emulate.forge(gate=gate)
    assert forge.check_access() == ""
    assert forge.scopes() is None
    (_, first, _), (_, second, _) = gate.left
    assert (first.limit, first.resource) == (5000, "core")
    assert second.remaining <= first.remaining


def test_emulate_is_reached_on_the_loopback_alone(emulate):
    port = int(emulate.url.rpartition(":")[2])
    socket.create_connection(("127.0.0.1", port), timeout=5).close()
    with pytest.raises(OSError):  # what listens everywhere answers here too
        socket.create_connection(("127.0.0.2", port), timeout=5)

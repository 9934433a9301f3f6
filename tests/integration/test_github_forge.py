from __future__ import annotations

import pytest

from swarm_core.forge import Issue
from tests.integration.forge_fixture import clock, forge_on, server

__all__ = ["clock", "server"]


def test_an_issue_is_read_with_the_token(server):
    number = server.repo().add_issue("A title", "Please fix it.", labels=("bug", "p1"), assignees=("ann",))
    forge = forge_on(server)
    assert forge.get_issue(number) == Issue(
        number,
        "A title",
        "Please fix it.",
        "https://github.example/acme/widgets/issues/1",
        labels=("bug", "p1"),
        assignees=("ann",),
        updated_at="2031-05-06T07:08:09.000Z",
    )
    assert server.authorizations == [f"token {server.token}"]
    assert (forge.slug, forge.repository, forge.name) == ("acme/widgets", "127.0.0.1/acme/widgets", "github")


def test_an_issue_without_a_body_has_an_empty_one(server):
    server.repo().add_issue("A title", None)
    issue = forge_on(server).get_issue(1)
    assert issue is not None
    assert issue.body == ""


def test_without_a_token_no_authorization_is_sent(server):
    server.repo().add_issue("A title")
    assert forge_on(server, token=None).get_issue(1) is not None
    assert server.authorizations == [None]


def test_a_closed_issue_says_so(server):
    server.repo().add_issue("A title")
    server.repo().close(1)
    issue = forge_on(server).get_issue(1)
    assert issue is not None
    assert issue.state == "closed"


def test_an_issue_that_is_not_there_or_was_deleted_is_none(server):
    server.repo().add_issue("A title")
    server.repo().edit(1, gone=True)
    assert forge_on(server).get_issue(1) is None
    assert forge_on(server).get_issue(9) is None


def test_numbers_below_one_are_not_asked_for(server):
    assert forge_on(server).get_issue(0) is None
    assert forge_on(server).get_issue(-7) is None
    assert server.requests == []


def test_open_issues_are_listed_last_changed_first_and_without_pull_requests(server, clock):
    repo = server.repo()
    for title in ("first", "second", "third", "closed"):
        repo.add_issue(title)
        clock.move(60)
    repo.close(4)
    repo.add_pull("work/a", head_sha="a" * 40)
    clock.move(60)
    repo.edit(1, title="first again")
    assert [issue.title for issue in forge_on(server).list_issues(limit=10)] == ["first again", "third", "second"]
    assert [issue.number for issue in forge_on(server).list_issues(limit=2)] == [1, 3]


@pytest.mark.parametrize(("limit", "pages"), [(20, 2), (200, 3)])
def test_issues_are_read_page_by_page_until_there_are_enough(server, clock, limit, pages):
    repo = server.repo()
    for number in range(1, 251):
        repo.add_issue(f"issue {number}")
    for number in range(1, 101):
        clock.move(1)
        repo.add_pull(f"work/{number}", head_sha=f"{number:040x}")
    found = forge_on(server).list_issues(limit=limit)
    assert len(found) == min(limit, 250)
    assert len(server.requests) == pages

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from swarm_core.errors import ExternalFailure
from swarm_core.forge import Issue
from swarm_core.github import GitHubForge
from tests.fakes import github_server as fake

TOKEN = "ghp_a_secret_of_the_tests"


@pytest.fixture
def server() -> Iterator[fake.GitHubServer]:
    with fake.running() as running:
        yield running


def forge_on(server: fake.GitHubServer, *, token: str | None = TOKEN, timeout_s: int = 10) -> GitHubForge:
    return GitHubForge("127.0.0.1", "acme", "widgets", token=token, api_url=server.api_url, timeout_s=timeout_s)


def test_an_issue_is_read_with_the_token(server):
    forge = forge_on(server)
    url = "https://github.example/acme/widgets/issues/7"
    assert forge.get_issue(7) == Issue(7, "Issue number 7", "Please fix it.", url)
    assert server.requests == [(fake.PREFIX + "7", f"token {TOKEN}")]
    assert forge.slug == "acme/widgets"


def test_an_issue_without_a_body_has_an_empty_one(server):
    issue = forge_on(server).get_issue(8)
    assert issue is not None
    assert issue.body == ""


def test_without_a_token_no_authorization_is_sent(server):
    assert forge_on(server, token=None).get_issue(7) is not None
    assert server.requests[0][1] is None


@pytest.mark.parametrize("number", [9, fake.GONE])
def test_an_issue_that_is_not_there_is_none(server, number):
    assert forge_on(server).get_issue(number) is None


def test_numbers_below_one_are_not_asked_for(server):
    assert forge_on(server).get_issue(0) is None
    assert forge_on(server).get_issue(-7) is None
    assert server.requests == []


def test_a_moved_issue_is_followed_on_the_same_host(server):
    issue = forge_on(server).get_issue(fake.MOVED)
    assert issue is not None
    assert issue.number == fake.MOVED


@pytest.mark.parametrize(
    ("number", "status"),
    [
        (fake.UNAUTHORISED, 401),
        (fake.FORBIDDEN, 403),
        (fake.BROKEN, 500),
        (fake.ELSEWHERE, None),
        (fake.NONSENSE, None),
    ],
)
def test_a_failure_has_a_code_and_a_hint_and_not_the_token_and_is_not_repeated(server, number, status):
    with pytest.raises(ExternalFailure) as caught:
        forge_on(server).get_issue(number)
    assert caught.value.code == "GITHUB_ERROR"
    assert caught.value.hint
    assert caught.value.details["status"] == status
    assert TOKEN not in f"{caught.value} {caught.value.as_json()}"
    assert caught.value.__cause__ is None
    assert len(server.requests) == 1


def test_a_server_that_does_not_answer_is_given_up_within_the_timeout(server):
    started = time.monotonic()
    with pytest.raises(ExternalFailure) as caught:
        forge_on(server, timeout_s=1).get_issue(fake.SLOW)
    assert caught.value.code == "GITHUB_ERROR"
    assert time.monotonic() - started < 5


def test_a_server_that_is_not_there_is_an_external_failure():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/api/v3"
        with pytest.raises(ExternalFailure) as caught:
            GitHubForge("127.0.0.1", "acme", "widgets", token=TOKEN, api_url=url).get_issue(7)
    assert caught.value.code == "GITHUB_ERROR"
    assert TOKEN not in str(caught.value.as_json())

"""How GitHub fails, what becomes of it, and what the gate before every request is told."""

from __future__ import annotations

import logging
import threading
from datetime import timedelta

import pytest

from swarm_core.errors import ExternalFailure, InvalidInput
from swarm_core.forge import Known, MergeMethod, Quota
from swarm_core.github import GitHubForge
from swarm_core.models import parse_iso
from tests.fakes import github_server
from tests.fakes.github_front import SECONDARY_S
from tests.integration.forge_fixture import Gate, clock, draft, forge_on, server

__all__ = ["clock", "server"]

HEAD = "a" * 40


def failed(ask, code):
    """What was raised, which never has the token in it."""
    with pytest.raises(ExternalFailure) as caught:
        ask()
    assert caught.value.code == code
    assert github_server.TOKEN not in f"{caught.value} {caught.value.as_json()} {caught.value.__cause__}"
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize(
    ("kind", "code", "status"),
    [
        ("401", "GITHUB_UNAUTHORIZED", 401),
        ("echo", "GITHUB_UNAUTHORIZED", 401),
        ("403", "GITHUB_UNAUTHORIZED", 403),
        ("primary", "GITHUB_RATE_LIMITED", 403),
        ("secondary", "GITHUB_RATE_LIMITED", 403),
        ("abuse", "GITHUB_RATE_LIMITED", 403),
        ("429", "GITHUB_RATE_LIMITED", 429),
        ("500", "GITHUB_UNREACHABLE", 500),
        ("502", "GITHUB_UNREACHABLE", 502),
        ("503", "GITHUB_UNREACHABLE", 503),
        ("html", "GITHUB_UNREACHABLE", 502),
        ("truncated", "GITHUB_UNREACHABLE", None),
        ("nonsense", "GITHUB_UNREACHABLE", None),
        ("drop", "GITHUB_UNREACHABLE", None),
        ("202", "GITHUB_UNREACHABLE", None),
        ("broken_link", "GITHUB_UNREACHABLE", None),
        ("404", "GITHUB_ERROR", 404),
        ("elsewhere", "GITHUB_ERROR", 301),
    ],
)
def test_a_failure_has_a_code_and_a_hint_and_not_the_token_and_is_not_repeated(server, kind, code, status):
    server.fail_next(kind, times=10)
    gate = Gate()
    error = failed(lambda: forge_on(server, gate=gate).list_pulls(""), code)
    assert (error.details["status"], error.details["host"]) == (status, "127.0.0.1")
    assert len(server.requests) == 1
    assert (gate.entered, len(gate.left)) == (1, 1)


@pytest.mark.parametrize("kind", ["slow", "drip", "drip_head"])
def test_a_server_that_takes_its_time_is_given_up(server, kind):
    server.fail_next(kind)
    gate = Gate()
    failed(lambda: forge_on(server, gate=gate, timeout_s=1).get_issue(1), "GITHUB_UNREACHABLE")
    assert gate.left == [(None, None, None)]


def test_a_server_that_is_down_is_unreachable_until_it_comes_back(server):
    server.repo().add_issue("A title")
    forge = forge_on(server)
    assert forge.get_issue(1) is not None
    server.go_down()
    failed(lambda: forge.get_issue(1), "GITHUB_UNREACHABLE")
    failed(lambda: forge.get_issue(1), "GITHUB_UNREACHABLE")
    server.come_back()
    assert forge.get_issue(1) is not None


def test_a_wrong_token_is_refused_and_never_shown(server):
    secret = "ghp_notTheRightOne"
    with pytest.raises(ExternalFailure) as caught:
        forge_on(server, token=secret).get_issue(1)
    assert caught.value.code == "GITHUB_UNAUTHORIZED"
    assert secret not in str(caught.value.as_json())


def test_writing_without_a_token_asks_for_one(server):
    server.repo().branches.tips["work/a"] = HEAD
    error = failed(lambda: forge_on(server, token=None).open_pull(draft()), "GITHUB_UNAUTHORIZED")
    assert "GITHUB_TOKEN" in error.hint


def test_a_scope_that_is_missing_is_named(server):
    server.scopes = ("gist",)
    server.fail_next("403")
    hint = failed(lambda: forge_on(server).get_issue(1), "GITHUB_UNAUTHORIZED").hint
    assert "repo" in hint
    assert "gist" in hint


def test_a_repository_that_may_not_be_seen_says_so(server):
    error = failed(lambda: forge_on(server, "acme/secret").list_pulls(""), "GITHUB_ERROR")
    assert "may not see" in error.hint


def test_an_answer_of_another_shape_is_not_understood(server):
    server.repo().add_pull("work/a", head_sha=HEAD)
    server.repo().issues[1].title = {"no": "text"}
    server.repo().issues[1].number = "seven"
    failed(lambda: forge_on(server).list_pulls(""), "GITHUB_UNREACHABLE")
    failed(lambda: forge_on(server).get_pull(1, ""), "GITHUB_UNREACHABLE")
    assert any("number" in fault for fault in server.faults), "GitHub does not send this either"
    server.faults.clear()


def test_a_page_of_a_proxy_is_no_answer_to_a_write(server):
    server.repo().add_pull("work/a", head_sha=HEAD)
    server.fail_next("nonsense", method="PATCH")
    failed(lambda: forge_on(server).close_pull(1), "GITHUB_UNREACHABLE")


def test_the_log_never_has_the_token_even_when_everything_is_logged(server, caplog):
    caplog.set_level(logging.DEBUG)
    forge = forge_on(server)
    for kind in ("echo", "echo", "500"):
        server.fail_next(kind)
        failed(lambda: forge.get_issue(1), "GITHUB_UNREACHABLE" if kind == "500" else "GITHUB_UNAUTHORIZED")
    server.repo().branches.tips["work/a"] = HEAD
    server.fail_next("echo", path="labels")
    forge.open_pull(draft(labels=("x",)))
    assert "without its labels" in caplog.text
    assert server.token not in caplog.text


# Limits


def test_the_quota_is_told_after_every_request(server, clock):
    server.repo().add_issue("A title")
    gate = Gate()
    forge = forge_on(server, gate=gate)
    forge.get_issue(1)
    forge.get_issue(2)
    reset = "2031-05-06T08:08:09.000Z"
    assert gate.left == [(200, Quota(5000, 4999, reset), None), (404, Quota(5000, 4998, reset), None)]


def test_an_unchanged_answer_is_told_as_one_and_costs_nothing(server):
    gate = Gate()
    forge = forge_on(server, gate=gate)
    forge.list_pulls(forge.list_pulls("").etag)
    assert gate.statuses == [200, 304]
    assert [quota.remaining for _, quota, _ in gate.left] == [4999, 4999]


def test_a_quota_that_is_used_up_says_when_it_is_whole_again(server, clock):
    gate = Gate()
    forge = forge_on(server, gate=gate)
    forge.get_issue(1)
    clock.move(600)
    server.exhaust()
    error = failed(lambda: forge.get_issue(1), "GITHUB_RATE_LIMITED")
    assert error.details["retry_at"] == "2031-05-06T08:08:09.000Z"
    assert gate.left[-1] == (403, Quota(5000, 0, "2031-05-06T08:08:09.000Z"), 3000.0)
    clock.move(3000)
    assert forge.get_issue(1) is None


@pytest.mark.parametrize(("kind", "wait"), [("secondary", SECONDARY_S), ("abuse", 60), ("429", 60)])
def test_a_limit_that_is_not_the_quota_says_how_long_to_wait(server, clock, kind, wait):
    gate = Gate()
    server.fail_next(kind)
    error = failed(lambda: forge_on(server, gate=gate).get_issue(1), "GITHUB_RATE_LIMITED")
    clock.move(wait)
    assert error.details["retry_at"] == clock().isoformat(timespec="milliseconds").replace("+00:00", "Z")
    assert gate.left[0][2] == wait


def test_a_service_that_is_down_may_ask_for_patience(server):
    gate = Gate()
    server.fail_next("503")
    failed(lambda: forge_on(server, gate=gate).get_issue(1), "GITHUB_UNREACHABLE")
    assert gate.left[0][2] == 7


def test_the_gate_is_told_what_will_be_used(server):
    gate = Gate()
    server.repo().add_pull("work/a", head_sha=HEAD)
    forge = forge_on(server, gate=gate)
    forge.look([Known(1, "work/a", HEAD, "main")])
    forge.get_issue(1)
    assert gate.resources == ["graphql", "core"]
    assert [quota.resource for _, quota, _ in gate.left] == ["graphql", "core"]


@pytest.mark.parametrize("ahead", [-7200, 7200])
def test_a_clock_that_goes_wrong_does_not_change_how_long_is_waited(server, clock, ahead):
    gate = Gate()
    forge = forge_on(server, gate=gate, clock=lambda: clock() + timedelta(seconds=ahead))
    server.exhaust()
    clock.move(600)
    error = failed(lambda: forge.get_issue(1), "GITHUB_RATE_LIMITED")
    assert gate.left[0][2] == 3000
    assert parse_iso(error.details["retry_at"]) == clock() + timedelta(seconds=ahead + 3000)
    assert gate.left[0][1].reset_at == error.details["retry_at"]


def test_nothing_is_asked_when_the_gate_is_closed(server):
    gate = Gate()
    gate.closed = ExternalFailure("not now", code="GITHUB_RATE_LIMITED", hint="later")
    failed(lambda: forge_on(server, gate=gate).list_pulls(""), "GITHUB_RATE_LIMITED")
    assert (server.requests, gate.left) == ([], [])


def test_every_page_and_every_redirect_passes_the_gate(server, clock):
    repo = server.repo()
    for number in range(150):
        repo.add_pull(f"work/{number}", head_sha=f"{number + 1:040x}")
    server.rename("acme/widgets", "acme/gadgets")
    gate = Gate()
    assert len(forge_on(server, gate=gate).list_pulls("").value) == 150
    assert gate.statuses == [301, 200, 301, 200, 301, 304]
    assert gate.entered == 6


# Redirects


def test_a_renamed_repository_is_followed_for_reading_and_writing(server):
    repo = server.repo()
    repo.branches.tips["work/a"] = HEAD
    server.rename("acme/widgets", "acme/gadgets")
    forge = forge_on(server)
    assert forge.open_pull(draft()).number == 1
    found = forge._find("work/a", {})
    assert found is not None
    assert found.number == 1
    forge.merge(1, method=MergeMethod.MERGE, head_commit=HEAD, title="")
    assert repo.pulls[1].merged_at is not None
    assert forge.delete_branch("work/a", at=HEAD) is True
    assert {request.status for request in server.asked("POST")} == {307, 201}


def test_the_query_survives_a_redirect(server):
    repo = server.repo()
    repo.add_pull("work/a", head_sha=HEAD)
    repo.add_pull("work/b", head_sha="b" * 40)
    server.rename("acme/widgets", "acme/gadgets")
    found = forge_on(server)._find("work/a", {})
    assert found is not None
    assert found.number == 1


def test_a_write_is_not_sent_again_after_a_redirect_that_may_change_it(server):
    server.repo().branches.tips["work/a"] = HEAD
    server.fail_next("permanent", method="POST")
    failed(lambda: forge_on(server).open_pull(draft()), "GITHUB_ERROR")
    assert len(server.requests) == 1
    assert server.repo().pulls == {}


def test_redirects_have_an_end(server):
    server.fail_next("loop", times=100)
    failed(lambda: forge_on(server).get_issue(1), "GITHUB_UNREACHABLE")
    assert len(server.requests) == 4


def test_another_port_is_another_place(server):
    with github_server.running() as other:
        other.repo()
        server.repo()
        server.moved["acme/widgets"] = server.repos.pop("acme/widgets")
        server.repos["x/y"] = server.moved["acme/widgets"]
        port, server._front.port = server.port, other.port  # its own address, as it says it
        forge = GitHubForge(
            "h", "acme", "widgets", token=server.token, api_url=f"http://127.0.0.1:{port}/api/v3", clock=server.now
        )
        failed(lambda: forge.get_issue(1), "GITHUB_ERROR")
        server._front.port = port
        assert other.authorizations == []


# The rest


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/x", "nonsense", "https://"])
def test_an_api_address_that_is_none_is_a_setting_that_is_not_valid(url):
    with pytest.raises(InvalidInput) as caught:
        GitHubForge("h", "a", "b", token=None, api_url=url)
    assert caught.value.code == "INVALID_SETTING"


def test_the_api_may_be_at_the_top_of_a_host():
    with github_server.running(prefix="") as server:
        server.repo().add_issue("A title")
        assert forge_on(server).get_issue(1) is not None


def test_threads_that_share_a_forge_do_not_mix_up_their_requests(server):
    repo = server.repo()
    for number in range(1, 41):
        repo.add_issue(f"issue {number}")
    forge, wrong = forge_on(server), []

    def read(start):
        for number in range(start, 41, 8):
            issue = forge.get_issue(number)
            if issue is None or issue.title != f"issue {number}":
                wrong.append((number, issue))

    threads = [threading.Thread(target=read, args=(start,)) for start in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(server.requests) == 40


def test_the_stand_in_does_not_overlook_what_github_would_not_know(server):
    forge = forge_on(server)
    failed(lambda: forge._ask("GET", "no/such/thing"), "GITHUB_ERROR")
    forge._ask("GET", "pulls", params={"stat": "open"})
    assert any("no/such/thing" in fault for fault in server.faults)
    assert any("stat" in fault for fault in server.faults)
    failed(lambda: forge._ask("POST", "pulls", body={"titel": "x"}), "GITHUB_ERROR")
    failed(lambda: forge._ask("POST", "pulls", body={"title": "x", "head": "h", "base": 1}), "GITHUB_ERROR")
    server.faults.clear()

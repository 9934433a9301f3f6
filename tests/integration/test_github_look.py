"""Looking at many pull requests at once: everything that changed, and few requests."""

from __future__ import annotations

import logging

import pytest

from swarm_core.errors import ExternalFailure
from swarm_core.forge import Known
from tests.integration.forge_fixture import Gate, clock, forge_on, server

__all__ = ["clock", "server"]

HEAD, NEXT = "a" * 40, "b" * 40
LONG = 60.0  # seconds, after which GitHub's time of a change is settled


@pytest.fixture(params=["together", "one by one"])
def repo(server, request, clock):
    """One pull request of a branch; without GraphQL each is asked for by itself."""
    made = server.repo()
    made.add_pull("work/a", head_sha=HEAD)
    server.has_graphql = request.param == "together"
    clock.move(LONG)
    return made


@pytest.fixture
def forge(server, repo):
    return forge_on(server)


def known(number=1, look=None):
    if look is None:
        return Known(number, "work/a", HEAD, "main")
    pull = look.pull
    return Known(number, "work/a", pull.head_commit, pull.base_branch, pull.updated_at, look.etags)


def look_again(forge, look=None):
    return forge.look([known(look=look)])[1]


def test_a_first_look_brings_everything_and_a_second_nothing(repo, forge, clock):
    run = repo.add_check(HEAD, "ci", "completed", "failure", title="2 failed", summary="In a test.")
    repo.add_status(HEAD, "old", "success", "It was so.", "https://ci.example/1")
    repo.add_review(1, "ann", "APPROVED")
    repo.add_comment(1, "ann", "Hm.")
    clock.move(LONG)
    first = look_again(forge)
    assert [(check.name, check.state, check.job) for check in first.checks] == [
        ("ci", "failed", run),
        ("old", "passed", None),
    ]
    assert (first.checks[0].id, first.checks[0].summary) == (f"run:{run}", "2 failed\n\nIn a test.")
    assert (first.checks[1].url, first.checks[1].summary) == ("https://ci.example/1", "It was so.")
    assert [review.state for review in first.reviews] == ["approved"]
    assert [comment.body for comment in first.comments] == ["Hm."]
    pull = first.pull
    assert (pull.state, pull.draft, pull.title, pull.mergeable) == ("open", False, "A change", True)
    assert (pull.head_branch, pull.head_commit, pull.base_branch) == ("work/a", HEAD, "main")
    assert pull.url == "https://github.example/acme/widgets/pull/1"
    again = look_again(forge, first)
    assert (again.checks, again.reviews, again.comments) == (None, None, None)
    assert (again.pull, again.etags) == (first.pull, first.etags)


def test_a_look_sees_what_changed_and_only_that(repo, forge, clock):
    check = repo.add_check(HEAD, "ci", "queued")
    first = look_again(forge)
    repo.finish_check(check, "failure")
    second = look_again(forge, first)
    assert [check.state for check in second.checks] == ["failed"]
    assert (second.reviews, second.comments) == (None, None)
    repo.add_review(1, "ann", "CHANGES_REQUESTED")
    third = look_again(forge, second)
    assert [review.state for review in third.reviews] == ["changes_requested"]
    assert (third.checks, third.comments) == (None, None)
    repo.branches.conflicting.add("work/a")
    fourth = look_again(forge, third)
    assert (fourth.pull.mergeable, fourth.checks) == (False, None)
    repo.edit(1, draft=True, title="Another title", base="next")
    assert look_again(forge, fourth).pull.draft is True


def test_checks_of_a_new_commit_are_new(repo, forge):
    repo.add_check(HEAD, "ci", "completed", "failure")
    first = look_again(forge)
    repo.push("work/a", NEXT)
    second = look_again(forge, first)
    assert (second.pull.head_commit, second.checks) == (NEXT, [])
    repo.add_check(NEXT, "ci", "queued")
    assert [check.state for check in look_again(forge, second).checks] == ["pending"]


def test_that_a_new_commit_has_no_checks_either_is_news(repo, forge):
    first = look_again(forge)
    repo.push("work/a", NEXT)
    assert (first.checks, look_again(forge, first).checks) == ([], [])


def test_what_comes_in_the_same_second_as_a_look_is_not_overlooked(repo, forge, clock):
    repo.add_comment(1, "ann", "One")
    first = look_again(forge)
    repo.add_review(1, "ann", "APPROVED")
    assert [review.state for review in look_again(forge, first).reviews] == ["approved"]


@pytest.mark.parametrize("ending", ["merged", "closed"])
def test_a_look_at_what_has_ended_says_how_and_no_more(repo, forge, ending):
    first = look_again(forge)
    commit = repo.merge_by_hand(1, "squash") if ending == "merged" else repo.close(1)
    look = look_again(forge, first)
    assert (look.pull.state, look.pull.merge_commit) == (ending, commit)
    assert (look.checks, look.reviews, look.comments) == (None, None, None)


def test_what_is_gone_is_left_out(repo, forge):
    repo.add_issue("An issue is no pull request")
    assert set(forge.look([known(), known(2), known(9)])) == {1}
    assert forge.look([]) == {}


def test_more_checks_than_fit_are_read_one_list_after_the_other(server, repo, forge):
    for number in range(130):
        repo.add_check(HEAD, f"ci {number}")
    first = look_again(forge)
    assert len(first.checks) == 130
    before = server.counted
    assert look_again(forge, first).checks is None
    assert server.counted == before + (1 if server.has_graphql else 0)


def test_one_that_cannot_be_told_of_stays_as_it_was_and_keeps_nobody_waiting(server, repo, forge, caplog):
    repo.add_pull("work/b", head_sha="c" * 40)
    looks = forge.look([known(), known(2)])
    repo.push("work/a", NEXT)
    repo.add_comment(1, "ann", "Hm.")
    repo.add_comment(2, "ann", "Hm.")
    repo.add_review(1, "ann", "COMMENTED", "Hm.")
    server.fail_next("500", times=1, path="/pulls/1/reviews")
    with caplog.at_level(logging.WARNING):
        now = forge.look([known(1, looks[1]), known(2, looks[2])])
    assert (now[1].pull.head_commit, now[1].comments, now[1].etags) == (HEAD, None, looks[1].etags)
    assert len(now[2].comments) == 1
    assert "#1" in caplog.text
    after = look_again(forge, now[1])
    assert (after.pull.head_commit, len(after.comments)) == (NEXT, 1)


@pytest.mark.parametrize("kind", ["500", "secondary", "drop"])
def test_a_failure_of_all_of_them_is_raised(server, repo, forge, kind):
    repo.add_review(1, "ann", "APPROVED")
    server.fail_next(kind, times=10, path="/reviews")
    with pytest.raises(ExternalFailure):
        look_again(forge)


def test_what_nobody_has_reviewed_or_commented_is_not_asked_for(server, repo, forge):
    server.has_graphql = True  # the numbers come with the overview alone
    first = look_again(forge)
    assert (first.reviews, first.comments, len(server.requests)) == ([], [], 1)
    again = look_again(forge, first)
    assert (again.reviews, again.comments, len(server.requests)) == (None, None, 2)
    kept = repo.add_comment(1, "ann", "Hm.")
    second = look_again(forge, again)
    assert [comment.body for comment in second.comments] == ["Hm."]
    repo.delete_comment(1, kept)
    assert look_again(forge, second).comments == []


def many(server, clock, count):
    repo = server.repo()
    for number in range(1, count + 1):
        repo.add_pull(f"work/{number}", head_sha=f"{number:040x}")
        repo.add_check(f"{number:040x}", "ci", "queued")
    clock.move(LONG)
    return repo


def test_many_that_did_not_change_cost_one_request_whatever_is_pushed_elsewhere(server, clock):
    repo = many(server, clock, 50)
    forge = forge_on(server)
    assert forge.batch == 50
    looks = forge.look([known(number) for number in range(1, 51)])
    before = server.counted
    repo.branches.tips["main"] = NEXT
    repo.pushed_at = clock()
    asked = [known(number, looks[number]) for number in range(1, 51)]
    assert all(look.checks is look.reviews is look.comments is None for look in forge.look(asked).values())
    assert server.counted == before + 1
    assert len(server.requests) == before + 1


def test_a_check_that_changes_costs_no_request_of_its_own(server, clock):
    repo = many(server, clock, 2)
    forge = forge_on(server)
    looks = forge.look([known(1), known(2)])
    before = server.counted
    repo.add_check(f"{2:040x}", "ci", "completed", "success")
    now = forge.look([known(1, looks[1]), known(2, looks[2])])
    assert (now[1].checks, [check.state for check in now[2].checks]) == (None, ["passed"])
    assert server.counted == before + 1


def test_only_a_failure_that_is_new_is_asked_what_it_found(server, clock):
    repo, head = many(server, clock, 1), f"{1:040x}"
    forge = forge_on(server)
    repo.add_check(head, "ci", "completed", "failure", title="2 failed", summary="In a test.")
    repo.add_check(head, "late", "queued")
    repo.add_check(head, "stopped", "completed", "cancelled", summary="Nobody asks.")
    first = look_again(forge)
    assert {c.name: c.summary for c in first.checks} == {"ci": "2 failed\n\nIn a test.", "late": "", "stopped": ""}
    assert len(server.asked("GET", "/check-runs/")) == 1
    repo.add_check(head, "late", "completed", "failure", summary="And here.")
    second = look_again(forge, first)
    found = {c.name: c.summary for c in second.checks}
    assert found == {"ci": "2 failed\n\nIn a test.", "late": "And here.", "stopped": ""}
    assert len(server.asked("GET", "/check-runs/")) == 2
    assert look_again(forge, second).checks is None
    assert len(server.asked("GET", "/check-runs/")) == 2


def test_what_a_failed_check_found_may_be_unknown(server, clock):
    repo, head = many(server, clock, 1), f"{1:040x}"
    for number in range(30):
        repo.add_check(head, f"ci {number}", "completed", "failure", summary="In a test.")
    server.fail_next("500", path="/check-runs/")
    summaries = [check.summary for check in look_again(forge_on(server)).checks]
    assert (len(summaries), summaries.count("In a test.")) == (31, 9)
    assert len(server.asked("GET", "/check-runs/")) == 10


def test_large_summaries_of_many_checks_keep_nobody_from_being_followed(server, clock):
    repo = many(server, clock, 50)
    for number in range(1, 51):
        for check in range(12):
            repo.add_check(f"{number:040x}", f"c{check}", summary="x" * 60_000)
    assert len(forge_on(server).look([known(number) for number in range(1, 51)])) == 50


@pytest.mark.parametrize("kind", ["graphql_heavy", "502", "large"])
def test_what_is_too_much_for_one_answer_is_asked_in_halves(server, clock, kind):
    many(server, clock, 5)
    forge = forge_on(server)
    server.fail_next(kind)
    everything = [known(number) for number in range(1, 6)]
    looks = forge.look(everything)
    assert set(looks) == {1, 2, 3, 4, 5}
    assert len(server.asked("POST")) == 1 + 3  # two, two and one
    forge.look([known(number, looks[number]) for number in looks])
    assert len(server.asked("POST")) == 4 + 3


def test_what_fails_for_one_alone_is_no_matter_of_size(server, clock):
    many(server, clock, 4)
    forge = forge_on(server)
    server.fail_next("502", times=3)
    with pytest.raises(ExternalFailure):
        forge.look([known(number) for number in range(1, 5)])
    before = len(server.requests)
    assert len(forge.look([known(number) for number in range(1, 5)])) == 4
    assert len(server.requests) == before + 1


def test_the_share_of_the_hour_ends_amid_a_look_and_what_was_seen_stays(server, clock):
    repo = many(server, clock, 4)
    for number in range(1, 5):
        repo.add_review(number, "ann", "APPROVED")
    gate = Gate()
    gate.most = 3
    looks = forge_on(server, gate=gate).look([known(number) for number in range(1, 5)])
    assert set(looks) == {1, 2, 3, 4}
    assert [looks[n].reviews is not None for n in (1, 2, 3, 4)] == [True, True, False, False]
    assert looks[4].etags == {}


def test_a_renamed_repository_is_looked_at(server, clock):
    many(server, clock, 1)
    server.rename("acme/widgets", "acme/gadgets")
    assert forge_on(server).look([known()])[1].pull.number == 1


def test_a_fork_s_branch_is_not_taken_for_ours(server):
    server.repo().add_pull("work/a", head_sha=HEAD, fork="stranger")
    assert forge_on(server).look([known()])[1].pull.head_branch == "stranger:work/a"


def test_a_repository_that_may_not_be_seen_is_no_end_of_its_pull_requests(server):
    with pytest.raises(ExternalFailure) as caught:
        forge_on(server, "acme/secret").look([known()])
    assert caught.value.code == "GITHUB_ERROR"


@pytest.mark.parametrize("together", [True, False])
def test_a_repository_that_is_not_seen_for_a_while_ends_no_pull_request(server, clock, together):
    many(server, clock, 2)
    server.has_graphql = together
    forge = forge_on(server)
    looks = forge.look([known(1), known(2)])
    hidden = server.repos.pop("acme/widgets")
    with pytest.raises(ExternalFailure) as caught:
        forge.look([known(1, looks[1]), known(2, looks[2])])
    assert caught.value.code == "GITHUB_ERROR"
    server.repos["acme/widgets"] = hidden
    assert set(forge.look([known(1, looks[1]), known(2, looks[2])])) == {1, 2}


def test_one_that_github_says_nothing_of_is_not_gone(server, clock):
    many(server, clock, 2)
    server.fail_next("graphql_silent")
    with pytest.raises(ExternalFailure) as caught:
        forge_on(server).look([known(1)])
    assert caught.value.code == "GITHUB_UNREACHABLE"


def test_without_graphql_it_is_not_asked_for_every_time_and_what_is_unchanged_costs_nothing(server, clock):
    many(server, clock, 5)
    server.has_graphql = False
    forge = forge_on(server)
    looks = forge.look([known(number) for number in range(1, 6)])
    before = server.counted
    again = forge.look([known(number, looks[number]) for number in looks])
    assert server.counted == before
    assert {n: (look.pull, look.checks, look.etags) for n, look in again.items()} == {
        n: (look.pull, None, look.etags) for n, look in looks.items()
    }
    assert len(server.asked("POST")) == 1
    server.has_graphql = True
    for _ in range(99):
        forge.look([known(1, looks[1])])
    assert len(server.asked("POST")) == 2


def test_a_remembered_pull_request_that_is_none_is_asked_for_whole(server, clock):
    many(server, clock, 1)
    server.has_graphql = False
    forge = forge_on(server)
    look = look_again(forge)
    for broken in ("nonsense", "[]", '{"etag": "x"}', '{"etag": "x", "pull": {"number": 1}}'):
        had = Known(1, "work/a", HEAD, "main", "", {**look.etags, "pull": broken})
        assert forge.look([had])[1].pull == look.pull


def test_a_status_is_the_same_whoever_tells_of_it(server, clock):
    repo, head = many(server, clock, 1), f"{1:040x}"
    forge = forge_on(server)

    def ids(of):
        server.has_graphql = of is None
        found = of.checks(head, "").value if of else look_again(forge_on(server)).checks
        return {check.id for check in found if check.id.startswith("status:")}

    repo.add_status(head, "ci/old", "failure", "bad")
    first = ids(None)
    assert first == ids(forge)
    clock.move(1)
    repo.add_status(head, "ci/old", "failure", "bad again")
    assert ids(None) == ids(forge)
    assert not first & ids(forge)


@pytest.mark.parametrize(
    ("conclusion", "fault"),
    [
        *((word, True) for word in ("failure", "timed_out", "startup_failure")),
        *((word, False) for word in ("cancelled", "action_required", "stale", "neutral")),
    ],
)
def test_a_check_that_nobody_s_change_has_failed_is_no_fault(repo, forge, conclusion, fault):
    repo.add_check(HEAD, "ci", "completed", conclusion)
    (check,) = look_again(forge).checks
    assert (check.state, check.fault) == ("passed" if conclusion == "neutral" else "failed", fault)


def test_a_limit_that_comes_with_a_200_is_one(server, clock):
    many(server, clock, 1)
    gate = Gate()
    server.fail_next("graphql_limited")
    with pytest.raises(ExternalFailure) as caught:
        forge_on(server, gate=gate).look([known()])
    assert caught.value.code == "GITHUB_RATE_LIMITED"
    assert caught.value.details["retry_at"] > clock().isoformat()
    (_, quota, retry_after) = gate.left[0]
    assert (quota.resource, retry_after) == ("graphql", 60)


def test_a_token_that_may_not_ask_for_all_asks_for_each(server, clock):
    many(server, clock, 2)
    server.fail_next("graphql_forbidden")
    assert set(forge_on(server).look([known(1), known(2)])) == {1, 2}


def test_an_answer_that_is_none_is_a_failure_and_no_end(server, clock):
    many(server, clock, 1)
    for kind in ("graphql_broken", "502", "nonsense", "truncated"):
        server.fail_next(kind)
        with pytest.raises(ExternalFailure) as caught:
            forge_on(server).look([known()])
        assert caught.value.code == "GITHUB_UNREACHABLE"

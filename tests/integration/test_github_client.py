"""What GitHubForge asks and makes of the answers, against the strict stand-in."""

from __future__ import annotations

import logging

import pytest

from swarm_core.errors import Conflict, ExternalFailure, InvalidInput, NotFound
from swarm_core.forge import MergeMethod
from swarm_core.github_log import CUT
from tests.fakes.github_git import GitRemote
from tests.integration.forge_fixture import clock, draft, forge_on, server
from tests.support import git_run

__all__ = ["clock", "server"]

HEAD, NEXT = "a" * 40, "b" * 40


@pytest.fixture
def repo(server):
    made = server.repo()
    made.branches.tips["work/a"] = HEAD
    made.collaborators = {"ann", "core"}
    return made


@pytest.fixture
def forge(server, repo):
    return forge_on(server)


# Opening


def test_a_pull_request_is_opened_with_labels_and_reviewers(server, repo, forge):
    opened = forge.open_pull(draft(labels=("swarm", "auto"), reviewers=("ann", "acme/core")))
    assert (opened.number, opened.state, opened.draft) == (1, "open", False)
    assert (opened.head_branch, opened.head_commit, opened.base_branch) == ("work/a", HEAD, "main")
    assert opened.url == "https://github.example/acme/widgets/pull/1"
    assert opened.updated_at == "2031-05-06T07:08:09.000Z"
    made = repo.pulls[1]
    assert (made.title, made.body, made.labels, made.reviewers) == (
        "A title",
        "A body",
        ["swarm", "auto"],
        ["ann", "core"],
    )


def test_a_second_opening_returns_the_first(server, forge):
    first = forge.open_pull(draft())
    again = forge.open_pull(draft())
    assert again.number == first.number
    assert len(server.repo().pulls) == 1


def test_an_opening_whose_answer_was_lost_is_found_by_the_next(server, forge):
    server.fail_next("lost", method="POST")
    with pytest.raises(ExternalFailure) as caught:
        forge.open_pull(draft())
    assert caught.value.code == "GITHUB_UNREACHABLE"
    assert forge.open_pull(draft()).number == 1
    assert len(server.repo().pulls) == 1


def test_labels_and_reviewers_are_set_though_the_answer_was_lost(server, repo, forge):
    wanted = draft(labels=("bug",), reviewers=("ann",))
    server.fail_next("lost", method="POST", path="/pulls")
    with pytest.raises(ExternalFailure):
        forge.open_pull(wanted)
    assert (repo.pulls[1].labels, repo.pulls[1].reviewers) == ([], [])
    for _ in range(2):
        assert forge.open_pull(wanted).number == 1
        assert (repo.pulls[1].labels, repo.pulls[1].reviewers) == (["bug"], ["ann"])


def test_one_that_is_open_into_another_branch_is_not_taken_for_it(server, repo, forge):
    repo.branches.tips["next"] = "d" * 40
    repo.add_pull("work/a", base="main")
    repo.add_pull("work/a", base="next")
    assert forge.open_pull(draft()).number == 1


def test_an_existing_one_is_found_after_the_repository_was_handed_over(server, repo, forge):
    forge.open_pull(draft())
    server.rename("acme/widgets", "umbrella/gadgets")
    repo.pulls[1].head_owner = "umbrella"
    assert forge._find("work/a", {}) is None
    assert forge.open_pull(draft()).number == 1


def test_a_branch_without_new_commits_is_no_change(repo, forge):
    repo.branches.tips["work/a"] = repo.branches.tips["main"]
    with pytest.raises(Conflict) as caught:
        forge.open_pull(draft())
    assert caught.value.code == "NO_CHANGES"


def test_a_branch_that_was_not_pushed_is_an_error_that_says_which(forge):
    with pytest.raises(ExternalFailure) as caught:
        forge.open_pull(draft("work/not-there"))
    assert caught.value.code == "GITHUB_ERROR"
    assert "work/not-there" in (caught.value.hint or "")


@pytest.mark.parametrize("more", [{"labels": ("x" * 51,)}, {"reviewers": ("stranger",)}])
def test_what_cannot_be_set_on_it_is_a_warning(server, forge, caplog, more):
    with caplog.at_level(logging.WARNING, "swarm_core.github"):
        assert forge.open_pull(draft(**more)).number == 1
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert server.token not in caplog.text


def test_reviewers_are_asked_though_labels_failed(server, repo, forge):
    server.fail_next("502", path="/labels")
    assert forge.open_pull(draft(labels=("x",), reviewers=("ann",))).number == 1
    assert repo.pulls[1].reviewers == ["ann"]


def test_a_draft_is_opened_as_one(forge):
    assert forge.open_pull(draft(draft=True)).draft is True


def test_a_draft_is_opened_as_ready_where_there_are_none(repo, forge, caplog):
    repo.takes_drafts = False
    with caplog.at_level(logging.WARNING, "swarm_core.github"):
        assert forge.open_pull(draft(draft=True)).draft is False
    assert len(caplog.records) == 1


# Finding


def test_a_pull_request_is_found_by_its_branch(repo, forge):
    assert forge._find("work/a", {}) is None
    repo.add_pull("work/a")
    found = forge._find("work/a", {})
    assert found is not None
    assert found.number == 1
    repo.close(1)
    assert forge._find("work/a", {}) is None


@pytest.mark.parametrize("branch", ["fix/ü&?=#%2F ", "a:b", ""])
def test_a_branch_with_any_name_is_asked_for_as_it_is(repo, forge, branch):
    repo.add_pull("other", head_sha=NEXT)
    assert forge._find(branch, {}) is None
    if branch:
        repo.add_pull(branch, head_sha=HEAD)
        found = forge._find(branch, {})
        assert found is not None
        assert found.head_branch == branch


def test_a_branch_of_the_same_name_in_a_fork_is_another(repo, forge):
    repo.add_pull("work/a", fork="stranger", head_sha=NEXT)
    assert forge._find("work/a", {}) is None
    assert [pull.head_branch for pull in forge.list_pulls("").value] == ["stranger:work/a"]


# Listing


def test_open_pull_requests_are_listed_last_changed_first(repo, forge, clock):
    for number in (1, 2, 3):
        repo.add_pull(f"work/{number}", head_sha=f"{number:040x}")
        clock.move(5)
    repo.close(2)
    repo.add_comment(1, "ann", "Hm.")
    seen = forge.list_pulls("")
    assert [(pull.number, pull.mergeable) for pull in seen.value] == [(1, None), (3, None)]


def test_an_unchanged_list_costs_nothing(server, repo, forge):
    repo.add_pull("work/a")
    seen = forge.list_pulls("")
    before = server.counted
    again = forge.list_pulls(seen.etag)
    assert (again.value, again.etag) == (None, seen.etag)
    assert server.counted == before
    assert server.requests[-1].status == 304


def many_pulls(repo, clock, count):
    for number in range(1, count + 1):
        repo.add_pull(f"work/{number}", head_sha=f"{number:040x}")
        clock.move(1)


@pytest.mark.parametrize(("count", "pages"), [(99, 1), (100, 2), (101, 2), (250, 3)])
def test_every_page_is_read_and_every_page_is_asked_again_for_nothing(server, repo, forge, clock, count, pages):
    many_pulls(repo, clock, count)
    seen = forge.list_pulls("")
    assert len({pull.number for pull in seen.value}) == count
    assert server.counted == pages
    assert forge.list_pulls(seen.etag).value is None
    assert server.counted == pages


def test_what_leaves_the_last_page_is_noticed(server, repo, forge, clock):
    many_pulls(repo, clock, 150)
    seen = forge.list_pulls("")
    repo.issues[3].state = "closed"
    changed = forge.list_pulls(seen.etag)
    assert len(changed.value) == 149
    assert forge.list_pulls(changed.etag).value is None


def test_what_moves_between_pages_while_they_are_read_is_not_missed(server, repo, clock):
    many_pulls(repo, clock, 150)

    class Meddling:
        asked = 0

        def enter(self, resource):
            self.asked += 1
            if self.asked == 2:
                repo.add_comment(1, "ann", "moves to the first page")

        def leave(self, **_):
            pass

    seen = forge_on(server, gate=Meddling()).list_pulls("")
    assert {pull.number for pull in seen.value} == set(range(1, 151))


@pytest.mark.parametrize("etag", ["nonsense", "[]", "[[]]", '[[""]]', "[[1]]", '{"a":1}', '[["a"],["b"]]'])
def test_an_etag_that_is_none_asks_for_everything(repo, forge, etag):
    repo.add_pull("work/a")
    assert len(forge.list_pulls(etag).value) == 1


# One pull request


def test_a_pull_request_is_read_whole(server, repo, forge, clock):
    repo.add_pull("work/a")
    seen = forge.get_pull(1, "")
    assert (seen.value.mergeable, seen.value.merge_commit) == (True, None)
    again = forge.get_pull(1, seen.etag)
    assert (again.value, again.etag) == (None, seen.etag)
    repo.branches.conflicting.add("work/a")
    assert forge.get_pull(1, seen.etag).value.mergeable is False


def test_whether_it_can_be_merged_may_not_be_known_yet(repo, forge):
    repo.lazy = True
    repo.add_pull("work/a")
    assert [forge.get_pull(1, "").value.mergeable for _ in range(2)] == [None, True]


def test_merged_and_closed_are_told_apart(repo, forge):
    repo.branches.tips["work/b"] = NEXT
    repo.add_pull("work/a")
    repo.add_pull("work/b")
    commit = repo.merge_by_hand(1)
    repo.close(2)
    merged, closed = (forge.get_pull(number, "").value for number in (1, 2))
    assert (merged.state, merged.merge_commit) == ("merged", commit)
    assert (closed.state, closed.merge_commit) == ("closed", None)


def test_a_pull_request_that_is_not_there_is_not_found(repo, forge):
    repo.add_issue("An issue is no pull request")
    for ask in (forge.get_pull, forge.reviews, forge.comments):
        with pytest.raises(NotFound) as caught:
            ask(1, "")
        assert caught.value.code == "PULL_NOT_FOUND"
    with pytest.raises(NotFound):
        forge.close_pull(7)
    with pytest.raises(NotFound):
        forge.merge(7, method=MergeMethod.SQUASH, head_commit=HEAD, title="")


def test_a_push_is_seen(repo, forge, clock):
    repo.add_pull("work/a")
    seen = forge.get_pull(1, "")
    clock.move(60)
    repo.push("work/a", NEXT)
    now = forge.get_pull(1, seen.etag).value
    assert (now.head_commit, now.updated_at > seen.value.updated_at) == (NEXT, True)


# Checks


@pytest.mark.parametrize(
    ("status", "conclusion", "state"),
    [
        *((("completed"), word, "passed") for word in ("success", "neutral")),
        ("completed", "skipped", "skipped"),
        *(
            ("completed", word, "failed")
            for word in ("failure", "timed_out", "cancelled", "action_required", "startup_failure", "stale")
        ),
        *((word, None, "pending") for word in ("queued", "in_progress", "waiting", "requested", "pending")),
    ],
)
def test_the_result_of_a_run_is_one_of_four(repo, forge, status, conclusion, state):
    made = repo.add_check(HEAD, "ci", status, conclusion)
    (check,) = forge.checks(HEAD, "").value
    assert (check.id, check.name, check.state) == (f"run:{made}", "ci", state)


@pytest.mark.parametrize(("status", "conclusion"), [("completed", "a_new_word"), ("new", None)])
def test_a_word_that_github_does_not_publish_yet_is_pending(server, repo, forge, status, conclusion):
    repo.add_check(HEAD, "ci", status, conclusion)
    (check,) = forge.checks(HEAD, "").value
    assert check.state == "pending"
    server.faults.clear()


@pytest.mark.parametrize(
    ("word", "state"),
    [("success", "passed"), ("failure", "failed"), ("error", "failed"), ("pending", "pending"), ("?", "pending")],
)
def test_a_status_of_an_older_service_is_a_check_too(repo, forge, word, state):
    repo.add_status(HEAD, "ci/old", word, "It was so.", "https://ci.example/7")
    (check,) = forge.checks(HEAD, "").value
    assert (check.id, check.name, check.state, check.url, check.summary, check.job) == (
        f"status:ci/old:{word}:2031-05-06T07:08:09.000Z",
        "ci/old",
        state,
        "https://ci.example/7",
        "It was so.",
        None,
    )


def test_a_run_says_what_it_found_and_where_its_log_is(repo, forge):
    job = repo.add_check(HEAD, "test", "completed", "failure", title="2 failed", summary="x" * 5000)
    repo.add_check(HEAD, "lint", app="other", details_url="https://github.example/a/b/actions/runs/5/job/77")
    repo.add_check(HEAD, "scan", app="other", details_url="https://scan.example/1")
    found = {check.name: check for check in forge.checks(HEAD, "").value}
    assert found["test"].summary.startswith("2 failed\n\nxxx")
    assert len(found["test"].summary) == 2000
    assert [found[name].job for name in ("test", "lint", "scan")] == [job, 77, None]


def test_only_the_newest_run_of_a_check_counts(repo, forge):
    repo.add_check(HEAD, "ci", "completed", "failure")
    made = repo.add_check(HEAD, "ci", "in_progress")
    assert [check.id for check in forge.checks(HEAD, "").value] == [f"run:{made}"]


@pytest.mark.parametrize("kind", ["run", "status"])
def test_unchanged_checks_cost_nothing_and_a_change_of_either_kind_brings_both(server, repo, forge, kind):
    run = repo.add_check(HEAD, "ci", "queued")
    repo.add_status(HEAD, "old", "pending")
    seen = forge.checks(HEAD, "")
    before = server.counted
    assert forge.checks(HEAD, seen.etag).value is None
    assert server.counted == before
    if kind == "run":
        repo.finish_check(run, "failure")
    else:
        repo.add_status(HEAD, "old", "failure")
    now = {check.name: check.state for check in forge.checks(HEAD, seen.etag).value}
    assert now == ({"ci": "failed", "old": "pending"} if kind == "run" else {"ci": "pending", "old": "failed"})


def test_many_checks_are_read_page_by_page(repo, forge):
    for number in range(230):
        repo.add_check(HEAD, f"ci {number}")
    for number in range(110):
        repo.add_status(HEAD, f"old {number}", "success")
    assert len(forge.checks(HEAD, "").value) == 340


@pytest.mark.parametrize("commit", ["", ".", ".."])
def test_what_is_no_commit_is_not_asked_for(server, forge, commit):
    with pytest.raises(InvalidInput):
        forge.checks(commit, "")
    assert server.requests == []


# Reviews and comments


def test_reviews_are_read_without_those_that_are_being_written(server, repo, forge, clock):
    repo.add_pull("work/a")
    for state in ("COMMENTED", "CHANGES_REQUESTED", "APPROVED", "DISMISSED", "PENDING"):
        repo.add_review(1, "ann", state, f"I say {state}")
        clock.move(1)
    repo.add_review(1, "stranger", "APPROVED", association="NONE")
    seen = forge.reviews(1, "")
    assert [(review.state, review.trusted) for review in seen.value] == [
        ("commented", True),
        ("changes_requested", True),
        ("approved", True),
        ("dismissed", True),
        ("approved", False),
    ]
    first = seen.value[0]
    assert (first.author, first.body, first.commit, first.at) == (
        "ann",
        "I say COMMENTED",
        HEAD,
        "2031-05-06T07:08:09.000Z",
    )
    assert forge.reviews(1, seen.etag).value is None


@pytest.mark.parametrize("count", [99, 100, 199])
def test_a_review_after_a_full_page_is_noticed(server, repo, forge, count):
    repo.add_pull("work/a")
    for _ in range(count):
        repo.add_review(1, "ann", "COMMENTED")
    seen = forge.reviews(1, "")
    repo.add_review(1, "ann", "APPROVED")
    changed = forge.reviews(1, seen.etag)
    assert len(changed.value) == count + 1
    assert changed.value[-1].state == "approved"


def test_comments_of_both_kinds_are_read_in_order(server, repo, forge, clock):
    repo.add_pull("work/a")
    first = repo.add_comment(1, "ann", "On the whole")
    clock.move(1)
    second = repo.add_comment(1, "bob", "On a line", path="src/app.py", line=7, association="CONTRIBUTOR")
    clock.move(1)
    third = repo.add_comment(1, "", "By somebody who is gone")
    seen = forge.comments(1, "")
    assert [(c.id, c.author, c.path, c.line, c.outdated, c.trusted) for c in seen.value] == [
        (f"issue:{first}", "ann", "", None, False, True),
        (f"review:{second}", "bob", "src/app.py", 7, False, False),
        (f"issue:{third}", "ghost", "", None, False, True),
    ]
    before = server.counted
    assert forge.comments(1, seen.etag).value is None
    assert server.counted == before
    repo.outdate(1, second)
    (line,) = [c for c in forge.comments(1, seen.etag).value if c.path]
    assert (line.line, line.outdated) == (7, True)


def test_a_comment_that_was_deleted_is_gone(repo, forge):
    repo.add_pull("work/a")
    made = repo.add_comment(1, "ann", "Hm.")
    seen = forge.comments(1, "")
    repo.delete_comment(1, made)
    assert forge.comments(1, seen.etag).value == []


# Logs


def test_the_end_of_a_log_is_read_from_another_host_without_the_token(server, repo, forge):
    job = repo.add_check(HEAD, "ci", log="2031-05-06T07:08:09.1Z \x1b[31mone\x1b[0m\n" + "tail \x1b]0;t\x07é\n")
    assert forge.log_tail(job, max_bytes=100_000) == "2031-05-06T07:08:09.1Z one\ntail é\n"
    assert server.logs.authorizations == [None]
    assert server.authorizations == [f"token {server.token}"]


def test_only_the_end_of_a_log_is_kept(repo, forge):
    job = repo.add_check(HEAD, "ci", log=b"x" * 300_000 + b"\xff the end")
    assert forge.log_tail(job, max_bytes=9) == "� the end"
    assert forge.log_tail(job, max_bytes=0) == ""


def test_a_log_that_never_ends_is_cut_and_says_so(repo, forge):
    job = repo.add_check(HEAD, "ci", log=b"line\n" * 5_000_000)
    tail = forge.log_tail(job, max_bytes=50)
    assert tail.endswith(f"{CUT}\n")
    assert len(tail) < 200


def test_a_log_has_no_control_characters_of_either_kind(repo, forge):
    job = repo.add_check(HEAD, "ci", log="\x1b[31mred\x1b[0m \x9b1mbold\x9d0;x\x07 \x85\x80é\x9f\tend\n")
    assert forge.log_tail(job, max_bytes=1000) == "red bold0;x é\tend\n"


def test_a_log_that_is_gone_is_empty(repo, forge):
    assert forge.log_tail(repo.add_check(HEAD, "ci", log=None), max_bytes=10) == ""
    assert forge.log_tail(4711, max_bytes=10) == ""


# Merging


@pytest.mark.parametrize("method", list(MergeMethod))
def test_a_pull_request_is_merged_at_its_commit(server, repo, forge, method):
    repo.add_pull("work/a")
    commit = forge.merge(1, method=method, head_commit=HEAD, title="A title (#1)")
    assert repo.pulls[1].merge_commit == commit
    assert forge.get_pull(1, "").value.merge_commit == commit


@pytest.mark.parametrize(
    ("method", "title", "message"),
    [("squash", "Ours", "Ours"), ("merge", "Ours", "Ours"), ("rebase", "Ours", ""), ("squash", "", "")],
)
def test_the_title_is_given_where_there_is_a_new_commit(server, repo, forge, method, title, message):
    said = []
    repo.add_pull("work/a")
    repo.merge = lambda pull, method, title: said.append(title) or "c" * 40
    forge.merge(1, method=MergeMethod(method), head_commit=HEAD, title=title)
    assert said == [message]


def refused_merge(forge, code, *, head_commit=HEAD):
    with pytest.raises(Conflict) as caught:
        forge.merge(1, method=MergeMethod.SQUASH, head_commit=head_commit, title="")
    assert caught.value.code == code


def test_a_merge_that_is_not_allowed_is_a_conflict_in_github_s_words(repo, forge):
    repo.add_pull("work/a")
    repo.refuses = 'Required status check "ci" is expected.'
    with pytest.raises(Conflict) as caught:
        forge.merge(1, method=MergeMethod.SQUASH, head_commit=HEAD, title="")
    assert caught.value.code == "PULL_NOT_MERGEABLE"
    assert "Required status check" in caught.value.message
    assert repo.pulls[1].state == "open"


def test_what_conflicts_is_a_draft_or_is_closed_is_not_merged(repo, forge):
    repo.add_pull("work/a", draft=True)
    refused_merge(forge, "PULL_NOT_MERGEABLE")
    repo.edit(1, draft=False)
    repo.branches.conflicting.add("work/a")
    refused_merge(forge, "PULL_NOT_MERGEABLE")
    repo.branches.conflicting.clear()
    repo.close(1)
    refused_merge(forge, "PULL_NOT_MERGEABLE")
    assert repo.branches.tips["main"] == "0" * 40


def test_another_commit_than_the_one_that_was_meant_is_not_merged(repo, forge):
    repo.add_pull("work/a")
    repo.push("work/a", NEXT)
    refused_merge(forge, "PULL_HEAD_MOVED")
    assert repo.pulls[1].state == "open"


def test_what_is_merged_already_returns_its_commit(server, repo, forge):
    repo.add_pull("work/a")
    server.fail_next("lost", method="PUT")
    with pytest.raises(ExternalFailure):
        forge.merge(1, method=MergeMethod.SQUASH, head_commit=HEAD, title="")
    commit = forge.merge(1, method=MergeMethod.SQUASH, head_commit=HEAD, title="")
    assert commit == repo.pulls[1].merge_commit


def test_what_was_merged_at_another_commit_is_not_taken_for_ours(repo, forge):
    repo.add_pull("work/a")
    repo.merge_by_hand(1)
    refused_merge(forge, "PULL_HEAD_MOVED", head_commit=NEXT)


# Ending


def test_a_pull_request_is_closed_and_twice_is_safe(repo, forge):
    repo.add_pull("work/a")
    assert forge.close_pull(1).state == "closed"
    assert forge.close_pull(1).state == "closed"
    assert repo.pulls[1].state == "closed"


def test_closing_one_that_is_merged_says_so(repo, forge):
    repo.add_pull("work/a")
    commit = repo.merge_by_hand(1)
    closed = forge.close_pull(1)
    assert (closed.state, closed.merge_commit) == ("merged", commit)


def test_a_branch_is_deleted_only_at_its_commit(repo, forge):
    assert forge.delete_branch("work/a", at=NEXT) is False
    assert repo.branches.tips["work/a"] == HEAD
    assert forge.delete_branch("work/a", at=HEAD) is True
    assert "work/a" not in repo.branches.tips
    assert forge.delete_branch("work/a", at=HEAD) is False


def test_a_branch_that_somebody_else_deletes_first_is_no_error(server, forge):
    server.fail_next("404", method="DELETE")
    assert forge.delete_branch("work/a", at=HEAD) is False


@pytest.mark.parametrize("branch", ["", "../../pulls", "a//b", "a/./b"])
def test_what_can_be_no_branch_is_not_asked_for(server, forge, branch):
    assert forge.delete_branch(branch, at=HEAD) is False
    assert server.requests == []


def test_a_branch_with_any_name_is_deleted(repo, forge):
    name = "fix/ü ?#&;%2F"
    repo.branches.tips[name] = HEAD
    assert forge.delete_branch(name, at=HEAD) is True
    assert name not in repo.branches.tips


# Access


def test_the_scopes_of_the_token_are_read_for_nothing(server, forge):
    server.scopes = ("repo", "workflow")
    assert forge.scopes() == ("repo", "workflow")
    assert server.counted == 0
    server.scopes = ()
    assert forge.scopes() == ()
    server.scopes = None
    assert forge.scopes() is None
    assert forge_on(server, token=None).scopes() is None


def test_access_is_enough_or_a_sentence_says_what_is_not(server, repo, forge):
    assert forge.check_access() == ""
    server.scopes = ("public_repo",)
    assert forge.check_access() == ""
    repo.private = True
    assert "repo" in forge.check_access()
    server.scopes = None
    assert forge.check_access() == ""
    repo.may_push = False
    assert "may not push" in forge.check_access()
    assert "not there" in forge_on(server, "acme/secret").check_access()
    assert "no token" in forge_on(server, token=None).check_access()
    server.token = "another"
    assert "401" in forge.check_access()


# A real repository behind it


def test_pushes_merges_and_deletions_are_those_of_a_real_repository(server, forge, tmp_path):
    bare, clone = tmp_path / "bare.git", tmp_path / "clone"
    git_run(tmp_path, "init", "-q", "--bare", "-b", "main", str(bare))
    git_run(tmp_path, "clone", "-q", str(bare), str(clone))
    git_run(clone, "commit", "-q", "--allow-empty", "-m", "first")
    git_run(clone, "push", "-q", "origin", "HEAD:main")
    (clone / "new.txt").write_text("new\n")
    git_run(clone, "checkout", "-q", "-b", "work/a")
    git_run(clone, "add", "-A")
    git_run(clone, "commit", "-q", "-m", "work")
    git_run(clone, "push", "-q", "origin", "work/a")
    server.repo().remote = GitRemote(bare)
    tip = git_run(clone, "rev-parse", "HEAD")
    assert forge.open_pull(draft()).head_commit == tip
    assert forge.get_pull(1, "").value.mergeable is True
    commit = forge.merge(1, method=MergeMethod.SQUASH, head_commit=tip, title="Ours")
    assert git_run(bare, "rev-parse", "main") == commit
    assert git_run(bare, "show", "main:new.txt") == "new"
    assert git_run(bare, "log", "-1", "--format=%s", "main") == "Ours"
    assert forge.delete_branch("work/a", at=tip) is True
    assert git_run(bare, "branch", "--list", "work/a") == ""

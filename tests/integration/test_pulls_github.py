"""Opening pull requests at GitHub: pushed, created, recorded once, whatever breaks in between."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from swarm_core.models import Instance
from swarm_core.ops import forges
from swarm_core.store import actions
from swarm_core.swarm import Swarm
from tests.fakes.git_http import serve
from tests.fakes.github_server import TOKEN
from tests.integration.github_fixture import SLUG, HubWorld, hub
from tests.integration.review_fixture import all_at_once, code_of, commit, finished_work, head, named, refusal
from tests.rows import pulls_of
from tests.support import git_run

__all__ = ["hub"]
_ROOT = str(Path(__file__).parents[2])


def files_with(folder: Path, secret: str) -> list[str]:
    return [str(p) for p in folder.rglob("*") if p.is_file() and secret.encode() in p.read_bytes()]


def test_the_branch_is_pushed_and_the_pull_request_recorded_on_the_instance(hub: HubWorld) -> None:
    with hub.open() as swarm:
        work = finished_work(hub, swarm)
        hub.hub.collaborators.add("kim")
        pull = hub.open_pull(swarm, work, labels=["agent"], reviewers=["kim"])
        assert hub.remote_tip(work.branch) == pull.head_commit == pull.pushed_commit == head(work)
        [there] = hub.hub.pulls.values()
        assert (there.head, there.base, there.title, there.labels) == (work.branch, "main", "Make it", ["agent"])
        assert there.reviewers == ["kim"]
        assert (pull.forge, pull.number, pull.state) == ("github", there.number, "open")
        assert pull.repository.endswith(f"/{SLUG}")
        after = swarm.find(work.id)
        assert (after.status, after.pr_number, after.pr_url) == ("pr_created", there.number, pull.url)
        [event] = named(swarm, "pull:opened", work.id)
        assert event.metadata["commit"] == pull.head_commit
        assert pulls_of(swarm.context.db, work.id) == [pull]


def test_a_second_call_returns_the_same_one_and_asks_nobody(hub: HubWorld) -> None:
    with hub.open() as swarm:
        work = finished_work(hub, swarm)
        first = hub.open_pull(swarm, work)
        asked = len(hub.api.requests)
        assert hub.open_pull(swarm, work, title="Another title") == first
        assert len(hub.api.requests) == asked
        assert len(hub.git.pushes) == 1


def test_new_commits_reach_the_open_pull_request_by_asking_again(hub: HubWorld) -> None:
    with hub.open() as swarm:
        work, first = hub.proposed(swarm)
        later = commit(work, "later.txt")
        again = hub.open_pull(swarm, work)
        assert (again.id, again.number, again.head_commit) == (first.id, first.number, later)
        assert hub.remote_tip(work.branch) == later
        assert len(hub.hub.pulls) == 1
        [event] = named(swarm, "pull:updated", work.id)
        assert (event.metadata["from"], event.metadata["commit"]) == (first.head_commit, later)


def test_our_own_push_may_be_rewritten_and_nobody_elses(hub: HubWorld) -> None:
    with hub.open() as swarm:
        work, _ = hub.proposed(swarm)
        git_run(Path(work.worktree_path), "commit", "-q", "--amend", "-m", "said better")
        rewritten = hub.open_pull(swarm, work)
        assert hub.remote_tip(work.branch) == rewritten.head_commit == head(work)
        clone = hub.home / "clone"
        git_run(hub.repo, "clone", "-q", "-b", work.branch, str(hub.bare), str(clone))
        (clone / "theirs.txt").write_text("theirs\n")
        git_run(clone, "add", "-A")
        git_run(clone, "commit", "-q", "-m", "theirs")
        git_run(clone, "push", "-q")
        theirs = hub.remote_tip(work.branch)
        git_run(Path(work.worktree_path), "commit", "-q", "--amend", "-m", "said even better")
        refused = refusal(hub.open_pull, swarm, work)
        assert refused.code == "PUSH_REJECTED"
        assert hub.remote_tip(work.branch) == theirs
        assert actions.all_open(swarm.context.db) == []


def test_one_that_a_person_has_opened_for_the_branch_is_taken_over(hub: HubWorld) -> None:
    with hub.open() as swarm:
        work = finished_work(hub, swarm)
        git_run(Path(work.worktree_path), "push", "-q", str(hub.bare), work.branch)
        number = hub.hub.add_pull(work.branch, "By hand")
        pull = hub.open_pull(swarm, work)
        assert (pull.number, pull.title) == (number, "By hand")
        assert len(hub.hub.pulls) == 1


def test_a_closed_one_that_was_opened_again_is_the_same_one(hub: HubWorld) -> None:
    with hub.open() as swarm:
        work, first = hub.proposed(swarm)
        hub.hub.close(first.number)
        hub.look(swarm)
        assert swarm.pulls.of(work.id).pull.state == "closed"
        assert swarm.find(work.id).status == "pr_closed"
        hub.hub.reopen(first.number)
        swarm.restart(work.id)
        again = hub.open_pull(swarm, work)
        assert (again.id, again.state) == (first.id, "open")
        assert len(named(swarm, "pull:reopened", work.id)) == 1


def test_without_a_commit_nothing_is_pushed_or_opened(hub: HubWorld) -> None:
    with hub.open() as swarm:
        work = hub.work(swarm)
        assert code_of(hub.open_pull, swarm, work) == "NO_CHANGES"
        assert hub.git.pushes == []
        assert hub.api.requests == []


def test_the_text_names_issue_reviews_and_closes_the_issue(hub: HubWorld) -> None:
    hub.hub.add_issue("Count the herons", "All of them.")
    with hub.open() as swarm:
        work = finished_work(hub, swarm, "say ready", issue=1)
        review = swarm.request_review(work.id, actor=work.id)
        swarm.set_status(review.id, "approved", actor=review.id)
        hub.open_pull(swarm, work)
        [there] = hub.hub.pulls.values()
        assert there.body is not None
        assert there.body.startswith("It was not made.\n\nCloses #1\n\n## Reviews")
        assert f"round 1: {review.id} approved on {head(work)[:12]}" in there.body


def test_a_repository_may_have_its_own_text(hub: HubWorld) -> None:
    template = hub.repo / ".swarm" / "prompts" / "pull_request.md"
    template.parent.mkdir(parents=True)
    template.write_text("By {{ instance_id }}: {{ summary }}\n")
    git_run(hub.repo, "add", "-A")
    git_run(hub.repo, "commit", "-q", "-m", "our text")
    with hub.open() as swarm:
        work, _ = hub.proposed(swarm)
        [there] = hub.hub.pulls.values()
        assert there.body == f"By {work.id}: It was not made."


def test_a_reviewer_that_opens_it_approves_and_both_have_it(hub: HubWorld) -> None:
    with hub.open() as swarm:
        work = finished_work(hub, swarm)
        review = swarm.request_review(work.id, actor=work.id)
        pull = hub.open_pull(swarm, work, actor=review.id, review_id=review.id)
        assert swarm.review_link(review.id).verdict == "approved"
        assert [swarm.find(i).pr_number for i in (work.id, review.id)] == [pull.number, pull.number]
        assert swarm.find(work.id).status == "pr_created"


@pytest.mark.parametrize(
    "where",
    [
        "pull:push:before",
        "pull:push:between",
        "pull:push:after",
        "pull:create:before",
        "pull:create:between",
        "pull:create:after",
    ],
)
@pytest.mark.parametrize("then", ["asked again", "reconciled"])
def test_a_crash_at_any_step_leaves_one_pull_request_and_a_true_database(
    hub: HubWorld, where: str, then: str
) -> None:
    with hub.open() as swarm:
        work = finished_work(hub, swarm)
    argv = [sys.executable, "-m", "tests.fakes.crash", where, "open-pull", work.id]
    done = subprocess.run(
        argv, cwd=hub.repo, env=hub.environ | {"PYTHONPATH": _ROOT}, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    with hub.open() as swarm:
        if then == "asked again":
            hub.open_pull(swarm, work)
        else:
            swarm.reconcile()
        _one_and_true(hub, swarm, work)


def _one_and_true(hub: HubWorld, swarm: Swarm, work: Instance) -> None:
    [there] = hub.hub.pulls.values()
    [pull] = pulls_of(swarm.context.db, work.id)
    assert (pull.number, pull.state, pull.head_commit) == (there.number, "open", head(work))
    assert hub.remote_tip(work.branch) == head(work)
    assert swarm.find(work.id).pr_number == there.number
    assert len(named(swarm, "pull:opened", work.id)) == 1
    assert actions.all_open(swarm.context.db) == []


def test_an_answer_that_is_lost_leaves_one_pull_request_after_asking_again(hub: HubWorld) -> None:
    with hub.open() as swarm:
        work = finished_work(hub, swarm)
        hub.api.fail_next("lost", method="POST", path="/pulls")
        assert code_of(hub.open_pull, swarm, work) == "GITHUB_UNREACHABLE"
        assert pulls_of(swarm.context.db, work.id) == []
        assert swarm.find(work.id).status == "running"
        hub.open_pull(swarm, work)
        _one_and_true(hub, swarm, work)


def test_what_was_pushed_before_a_failure_may_be_rewritten(hub: HubWorld) -> None:
    with hub.open() as swarm:
        work = finished_work(hub, swarm)
        hub.api.fail_next("500", method="POST", path="/pulls")
        assert code_of(hub.open_pull, swarm, work) == "GITHUB_UNREACHABLE"
        pushed = hub.remote_tip(work.branch)
        git_run(Path(work.worktree_path), "commit", "-q", "--amend", "-m", "better words")
        assert pushed != head(work)
    with hub.open() as swarm:
        hub.open_pull(swarm, work)
        _one_and_true(hub, swarm, work)


def test_an_agent_cannot_have_the_token_sent_to_another_host(hub: HubWorld, tmp_path: Path) -> None:
    with serve(tmp_path / "elsewhere", password=TOKEN) as other, hub.open() as swarm:
        work = finished_work(hub, swarm)
        there = other.url.replace("127.0.0.1", "localhost")
        git_run(Path(work.worktree_path), "config", f"url.{there}/.pushInsteadOf", f"{hub.git.url}/")
        refused = refusal(hub.open_pull, swarm, work)
        assert refused.code == "GITHUB_UNAUTHORIZED"
        assert there.removeprefix("http://") in refused.message
        assert hub.git.url.removeprefix("http://") in refused.message
        assert other.requests == []


def test_an_address_of_the_api_makes_no_other_host_github(hub: HubWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a runner of GitHub Actions it is always set."""
    runner = hub.environ | {"GITHUB_API_URL": "https://api.github.com"}
    monkeypatch.setattr(HubWorld, "environ", property(lambda self: runner))
    with hub.open() as swarm:
        place = forges.github_place(swarm.context, "https://gitlab.example/acme/widgets.git")
        assert place is None
        assert forges.github_place(swarm.context, "https://github.com/a/b") == ("github.com", "a", "b")
        work = finished_work(hub, swarm)
        assert hub.open_pull(swarm, work).forge == "local"
    assert hub.git.requests == []


def test_many_at_once_leave_one_pull_request(hub: HubWorld) -> None:
    with hub.open() as swarm:
        work = finished_work(hub, swarm)
        found = all_at_once(hub, [lambda mine: hub.open_pull(mine, work)] * 4)
        assert len({pull.number for pull in found}) == 1
        _one_and_true(hub, swarm, work)


def test_github_down_changes_nothing_and_says_so(hub: HubWorld) -> None:
    with hub.open() as swarm:
        work = finished_work(hub, swarm)
        hub.api.go_down()
        refused = refusal(hub.open_pull, swarm, work)
        assert refused.code == "GITHUB_UNREACHABLE"
        assert refused.hint
        assert pulls_of(swarm.context.db, work.id) == []
        hub.api.come_back()
        hub.open_pull(swarm, work)
        _one_and_true(hub, swarm, work)


def test_without_a_token_it_is_kept_here_unless_github_is_wanted(
    hub: HubWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = {k: v for k, v in hub.environ.items() if k != "GITHUB_TOKEN"}
    monkeypatch.setattr(HubWorld, "environ", property(lambda self: without))
    with hub.open() as swarm:
        work = finished_work(hub, swarm)
        assert hub.open_pull(swarm, work).forge == "local"
    (hub.home / "config.toml").write_text('forge = "github"\n')
    with hub.open() as swarm:
        work = finished_work(hub, swarm)
        assert code_of(hub.open_pull, swarm, work) == "GITHUB_UNAUTHORIZED"
    assert hub.api.requests == []


def test_the_token_is_nowhere(hub: HubWorld) -> None:
    trace = hub.home.parent / "trace.txt"
    seen = subprocess.Popen(
        [sys.executable, "-c", _WATCH_ARGV, str(trace)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert seen.stdout is not None
        assert seen.stdout.readline() == b"watching\n"
        with hub.open() as swarm:
            work = finished_work(hub, swarm)
            hub.api.fail_next("500", method="POST", path="/pulls")
            refused = refusal(hub.open_pull, swarm, work)
            assert TOKEN not in json.dumps(refused.as_json())
            hub.open_pull(swarm, work)
            done = hub.command("pr", "show", work.id, "--json")
            assert done.returncode == 0, done.stderr
            assert TOKEN.encode() not in done.stdout + done.stderr
            listed = json.dumps([str(e) for e in swarm.events(after=0, limit=10_000)])
            assert TOKEN not in listed
    finally:
        seen.communicate(timeout=20)
    assert "push" in trace.read_text()
    assert TOKEN not in trace.read_text()
    assert files_with(hub.home, TOKEN) == []
    assert files_with(hub.repo, TOKEN) == []


_WATCH_ARGV = """
import pathlib, select, sys
found = set()
print("watching", flush=True)
while not select.select([sys.stdin], [], [], 0.001)[0]:
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.add(path.read_bytes())
        except OSError:
            pass
pathlib.Path(sys.argv[1]).write_bytes(b"\\n".join(found))
"""

"""Issues to work on: from GitHub with a copy for when it does not answer, or from files of the repository."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from swarm_core.models import Instance
from swarm_core.swarm import Swarm
from tests.fakes.github_server import GitHubServer
from tests.integration.cli_fixture import Cli, rows
from tests.integration.forge_fixture import Clock, clock, server
from tests.integration.review_fixture import code_of, finished_work
from tests.support import git_run, make_repo
from tests.world import World

__all__ = ["clock", "server"]

HOUR = 3600


@pytest.fixture
def at_github(world: World, server: GitHubServer, monkeypatch: pytest.MonkeyPatch) -> World:
    """The world's repository as a clone of acme/widgets."""
    monkeypatch.setenv("GITHUB_API_URL", server.api_url)
    monkeypatch.setenv("GITHUB_TOKEN", server.token)
    git_run(world.repo, "remote", "add", "origin", "https://github.com/acme/widgets.git")
    return world


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def swarm(at_github: World, clock: Clock, said: list[str]) -> Iterator[Swarm]:
    with at_github.open(clock=clock, report=said.append) as opened:
        yield opened


def issues(swarm: Swarm, world: World, **options: Any) -> list[int]:
    return [issue.number for issue in swarm.issues(str(world.repo), **options).issues]


def going_on(said: list[str]) -> list[str]:
    return [text for text in said if text.startswith("going on")]


def down(server: GitHubServer) -> None:
    server.go_down()


def limited(server: GitHubServer) -> None:
    server.fail_next("primary", times=100)


def broken(server: GitHubServer) -> None:
    server.fail_next("502", times=100)


PASSING = pytest.mark.parametrize("trouble", [down, limited, broken])


def test_title_and_text_of_an_issue_come_from_github(
    at_github: World, swarm: Swarm, server: GitHubServer, said: list[str]
) -> None:
    number = server.repo().add_issue("Fix the parser", "say I know it")
    work = at_github.work(swarm, "", issue=number)
    assert (work.id, work.issue_number, work.issue_title) == ("work-1-a1", 1, "Fix the parser")
    assert "# Work on issue #1: Fix the parser" in work.prompt
    assert "say I know it" in work.prompt
    assert going_on(said) == []


@PASSING
def test_a_copy_serves_while_github_does_not_answer_and_its_age_is_told(
    at_github: World,
    swarm: Swarm,
    server: GitHubServer,
    clock: Clock,
    said: list[str],
    trouble: Callable[[GitHubServer], None],
) -> None:
    number = server.repo().add_issue("Fix the parser", "say I know it")
    first = at_github.work(swarm, "", issue=number)
    clock.move(3 * HOUR)
    trouble(server)
    second = at_github.work(swarm, "", issue=number)
    assert second.prompt == first.prompt
    assert second.issue_title == "Fix the parser"
    [told] = going_on(said)
    assert "issue #1 as it was 3 h ago" in told


@PASSING
def test_without_a_copy_the_failure_is_told_unless_there_is_a_prompt(
    at_github: World,
    swarm: Swarm,
    server: GitHubServer,
    said: list[str],
    trouble: Callable[[GitHubServer], None],
) -> None:
    server.repo().add_issue("Fix the parser", "say I know it")
    trouble(server)
    code = "GITHUB_RATE_LIMITED" if trouble is limited else "GITHUB_UNREACHABLE"
    assert code_of(at_github.work, swarm, "", issue=1) == code
    assert swarm.instances(include_cleaned=True) == []
    work = at_github.work(swarm, "say something", issue=1)
    assert work.prompt == "# Work on issue #1\n\nsay something"
    [told] = going_on(said)
    assert told.startswith("going on without the text of issue #1")


def test_a_token_that_is_refused_is_not_hidden_by_a_copy(
    at_github: World, swarm: Swarm, server: GitHubServer
) -> None:
    server.repo().add_issue("Fix the parser", "say I know it")
    at_github.work(swarm, "", issue=1)
    assert issues(swarm, at_github) == [1]
    server.fail_next("401", times=2)
    assert code_of(at_github.work, swarm, "", issue=1) == "GITHUB_UNAUTHORIZED"
    assert code_of(swarm.issues, str(at_github.repo)) == "GITHUB_UNAUTHORIZED"


def test_an_issue_that_github_has_no_more_is_not_worked_on_from_its_copy(
    at_github: World, swarm: Swarm, server: GitHubServer
) -> None:
    server.repo().add_issue("Fix the parser", "say I know it")
    at_github.work(swarm, "", issue=1)
    server.repo().issues[1].gone = True
    assert code_of(at_github.work, swarm, "", issue=1) == "ISSUE_NOT_FOUND"
    assert code_of(at_github.work, swarm, "say something", issue=1) == "ISSUE_NOT_FOUND"
    assert len(swarm.instances(include_cleaned=True)) == 1
    server.go_down()
    assert code_of(at_github.work, swarm, "", issue=1) == "GITHUB_UNREACHABLE"


def test_a_copy_belongs_to_one_repository_however_its_name_is_spelled(
    at_github: World, swarm: Swarm, server: GitHubServer
) -> None:
    server.repo().add_issue("Fix the parser", "say I know it")
    at_github.work(swarm, "", issue=1)
    server.go_down()
    git_run(at_github.repo, "remote", "set-url", "origin", "https://github.com/acme/gadgets.git")
    assert code_of(at_github.work, swarm, "", issue=1) == "GITHUB_UNREACHABLE"
    git_run(at_github.repo, "remote", "set-url", "origin", "git@github.com:Acme/Widgets.git")
    assert at_github.work(swarm, "", issue=1).issue_title == "Fix the parser"


def test_what_anybody_may_write_is_text_and_nothing_else(
    at_github: World, swarm: Swarm, server: GitHubServer
) -> None:
    body = "{{ branch }} \x1b[2J $(touch x) \ud800 and \0 \r\nsay still here"
    server.repo().add_issue("half \udfff a pair", body)
    work = at_github.work(swarm, "", issue=1)
    at_github.wait_idle(swarm, work.id)
    assert "{{ branch }} \x1b[2J $(touch x) ? and �" in work.prompt
    assert "still here" in swarm.screen(work)
    assert issues(swarm, at_github) == [1]
    assert git_run(Path(work.worktree_path), "status", "--porcelain") == ""


def test_open_issues_are_listed_with_who_works_on_them(
    at_github: World, swarm: Swarm, server: GitHubServer, clock: Clock, tmp_path: Path
) -> None:
    repo = server.repo()
    repo.add_issue("First", labels=("bug", "help wanted"), assignees=("kim",))
    clock.move(60)
    repo.add_issue("Second")
    repo.add_pull("feature", head_sha="f" * 40)
    work = finished_work(at_github, swarm, issue=1)
    swarm.request_review(work.id, reviewer_prompt="say reviewing")
    fork = swarm.fork(work.id, "say again")
    elsewhere = make_repo(tmp_path / "elsewhere")
    swarm.work("say x", repo=str(elsewhere), agent="scripted", issue=1)
    found = swarm.issues(str(at_github.repo))
    assert (found.source, found.as_of, found.failure) == ("github.com/acme/widgets", None, "")
    assert [(i.number, i.title, i.labels, i.assignees) for i in found.issues] == [
        (2, "Second", (), ()),
        (1, "First", ("bug", "help wanted"), ("kim",)),
    ]
    assert {i.id for i in found.workers[1]} == {work.id, fork.id}
    assert 2 not in found.workers


@PASSING
def test_the_list_is_a_copy_with_its_age_while_github_does_not_answer(
    at_github: World,
    swarm: Swarm,
    server: GitHubServer,
    clock: Clock,
    trouble: Callable[[GitHubServer], None],
) -> None:
    server.repo().add_issue("First", labels=("bug",))
    listed = swarm.issues(str(at_github.repo))
    before = swarm.context.db.now()
    clock.move(2 * HOUR)
    trouble(server)
    found = swarm.issues(str(at_github.repo))
    assert (found.issues, found.as_of) == (listed.issues, before)
    assert found.failure


def test_without_copies_a_list_that_cannot_be_had_is_a_failure(
    at_github: World, swarm: Swarm, server: GitHubServer
) -> None:
    server.repo().add_issue("First")
    server.go_down()
    assert code_of(swarm.issues, str(at_github.repo)) == "GITHUB_UNREACHABLE"


@pytest.mark.parametrize(("limit", "left"), [(30, [3, 1]), (2, [3, 1]), (1, [3])])
def test_what_was_closed_since_is_not_among_the_copies(
    at_github: World, swarm: Swarm, server: GitHubServer, clock: Clock, limit: int, left: list[int]
) -> None:
    """A list of one tells nothing of what changed before its only issue, so the copy of #2 stays then."""
    for title in ("First", "Second", "Third"):
        server.repo().add_issue(title)
        clock.move(60)
    assert issues(swarm, at_github) == [3, 2, 1]
    server.repo().issues[2].state = "closed"
    assert issues(swarm, at_github, limit=limit) == left
    server.go_down()
    assert issues(swarm, at_github) == ([3, 2, 1] if limit == 1 else left)


def test_issues_without_a_forge_are_the_files_of_the_repository(world: World) -> None:
    write(world.repo, 7, "# Fix the parser\n\nIt breaks.\n")
    write(world.repo, 12, "# Paint it\n")
    with world.open() as swarm:
        work: Instance = world.work(swarm, "", issue=7)
        found = swarm.issues(str(world.repo))
        assert found.source == ".swarm/issues"
        assert [(i.number, i.title) for i in found.issues] == [(12, "Paint it"), (7, "Fix the parser")]
        assert [i.id for i in found.workers[7]] == [work.id]
        assert [i.number for i in swarm.issues(str(world.repo), limit=1).issues] == [12]


def test_who_starts_work_on_an_issue_that_nobody_can_verify_is_told_so(world: World) -> None:
    write(world.repo, 7, "# Fix the parser\n")
    told = {n: world.command("work", "say x", "--issue", str(n), "--agent", "scripted") for n in (7, 999)}
    assert {number: done.returncode for number, done in told.items()} == {7: 0, 999: 0}
    assert {number: b"not be verified" in done.stdout + done.stderr for number, done in told.items()} == {
        7: False,
        999: True,
    }


@pytest.mark.parametrize("limit", [0, -1, 1001])
def test_a_limit_without_sense_is_refused(world: World, limit: int) -> None:
    with world.open() as swarm:
        assert code_of(swarm.issues, str(world.repo), limit=limit) == "INVALID_INPUT"


@pytest.fixture
def cli(short_tmp: Path, repo: Path) -> Iterator[Cli]:
    command = Cli(home=short_tmp / "h", cwd=repo)
    yield command
    command.end()


def write(repo: Path, number: int, text: str) -> None:
    folder = repo / ".swarm" / "issues"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{number}.md").write_text(text)
    git_run(repo, "add", "-A")
    git_run(repo, "commit", "-q", "-m", f"issue {number}")


def test_the_command_prints_a_table_of_files_and_where_they_are(cli: Cli, repo: Path) -> None:
    assert cli("issues").out == "no open issues in .swarm/issues\n"
    write(repo, 7, "# Fix the \x1b[31mparser, which breaks whenever there are tabs in its input\n")
    cli("work", "say x", "--issue", "7")
    cli("work", "exit 3", "--issue", "7")
    cli.until("work-7-a2", status="failed")
    done = cli("issues")
    head, row = done.out.splitlines()
    assert head.split() == ["ISSUE", "TITLE", "LABELS", "ASSIGNEE", "CHANGED", "INSTANCES"]
    assert row.startswith("#7 ")
    assert row.endswith("work-7-a1, work-7-a2 (failed)")
    assert "\x1b" not in row
    assert max(len(line) for line in (head, row)) <= 120
    assert "from .swarm/issues" in done.err


def test_the_command_says_of_a_copy_how_old_it_is(
    cli: Cli, repo: Path, server: GitHubServer, clock: Clock
) -> None:
    cli.extra = {"GITHUB_API_URL": server.api_url, "GITHUB_TOKEN": server.token}
    git_run(repo, "remote", "add", "origin", "https://github.com/acme/widgets.git")
    server.repo().add_issue("First", labels=("bug",), assignees=("kim",))
    body = cli("issues", "--json").json
    [issue] = body.pop("issues")
    assert body == {
        "source": "github.com/acme/widgets",
        "repo_path": str(repo),
        "as_of": None,
        "failure": "",
    }
    assert issue.keys() == {"number", "title", "url", "labels", "assignees", "updated_at", "instances"}
    assert (issue["number"], issue["labels"], issue["assignees"]) == (1, ["bug"], ["kim"])
    [[synced_at]] = rows(cli.home, "SELECT synced_at FROM forge_issues")
    server.go_down()
    assert cli("issues", "--json").json["as_of"] == synced_at
    done = cli("issues")
    assert "First" in done.out
    assert "from github.com/acme/widgets as it was " in done.err
    assert server.token not in done.out + done.err

"""Input that can never work: an error with code and hint, and no trace; and odd input that must work."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swarm_core import config
from swarm_core.errors import SwarmError
from swarm_core.store import instances
from swarm_core.swarm import Swarm
from tests.integration.mcp_fixture import Coordinated
from tests.support import git_run, make_repo
from tests.world import World, assert_agreement

_MB = 1 << 20
_CONTROL = ["a\0b", "a\x1bb", "a\nb", "a\x7fb"]


def traces(world: World, swarm: Swarm) -> dict[str, Any]:
    """Everything a refused request could have left behind."""
    db = swarm.context.db
    tables = ("instances", "actions", "mcp_events", "messages", "tokens", "relationships", "preserved")
    return {
        **{table: db.rows(f"SELECT count(*) FROM {table}")[0][0] for table in tables},
        "refs": git_run(world.repo, "for-each-ref"),
        "worktrees": world.worktrees(),
        "sessions": world.sessions(),
        "status": git_run(world.repo, "status", "--porcelain"),
        "files": sorted(str(p) for p in world.home.rglob("*") if "locks" not in p.parts),
    }


def refused(world: World, swarm: Swarm, request: Callable[[], object], *codes: str) -> SwarmError:
    """The request fails with a code and leaves everything as it was. Agents that run have to be idle."""
    before = traces(world, swarm)
    with pytest.raises(SwarmError) as failed:
        request()
    assert not codes or failed.value.code in codes, failed.value.as_json()
    assert failed.value.message.isprintable(), failed.value.message
    assert len(failed.value.message) < 1000
    assert traces(world, swarm) == before
    return failed.value


def test_no_repository_or_one_that_cannot_hold_worktrees_is_refused(world: World, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "file").write_text("x")
    git_run(tmp_path, "init", "-q", "--bare", "bare.git")
    (tmp_path / "damaged" / ".git").mkdir(parents=True)
    cases = {
        "/no/such/place": "GIT_REPOSITORY_NOT_FOUND",
        str(tmp_path / "plain"): "GIT_REPOSITORY_NOT_FOUND",
        str(tmp_path / "file"): "GIT_REPOSITORY_NOT_FOUND",
        str(tmp_path / "bare.git"): "GIT_REPOSITORY_INVALID",
        str(tmp_path / "damaged"): "GIT_REPOSITORY_INVALID",
        "-C": "GIT_REPOSITORY_NOT_FOUND",
        "--upload-pack=touch /tmp/x": "GIT_REPOSITORY_NOT_FOUND",
    }
    with world.open() as swarm:
        for path, code in cases.items():
            error = refused(world, swarm, lambda path=path: swarm.work("x", repo=path, agent="scripted"), code)
            assert error.hint
            refused(world, swarm, lambda path=path: swarm.instances(repo=path))
        for path in ("a\0b", "x" * 5000):
            refused(world, swarm, lambda path=path: swarm.work("x", repo=path, agent="scripted"))


def test_a_repository_whose_path_is_no_text_is_refused(world: World, tmp_path: Path) -> None:
    odd = make_repo(tmp_path / os.fsdecode(b"\xff repo"))
    with world.open() as swarm:
        refused(world, swarm, lambda: swarm.work("x", repo=str(odd), agent="scripted"), "INVALID_INPUT")
        assert git_run(odd, "for-each-ref", "--format=%(refname)") == "refs/heads/main"


@pytest.mark.parametrize(
    "base",
    [
        "",
        "-x",
        "--help",
        "../x",
        "a..b",
        "no-such-branch",
        "main:README.md",
        "@{-1}",
        "main^{tree}",
        "HEAD:",
        "a b",
        *("refs/heads/../../x", "x" * 300, "ma*n", "main.lock", "\udcff", "0" * 40),
        *_CONTROL,
    ],
)
def test_a_base_that_is_no_commit_is_refused(world: World, base: str) -> None:
    with world.open() as swarm:
        error = refused(
            world,
            swarm,
            lambda: world.work(swarm, base=base),
            *("GIT_BRANCH_NOT_FOUND", "INVALID_BRANCH_NAME", "INVALID_INPUT"),
        )
        assert error.hint


@pytest.mark.parametrize(
    "name", ["", "  ", " fix", "fix ", "-rf", "x" * 81, "work-a1", "review-3-a1-r2", *_CONTROL, "\udcff", "\u202e"]
)
def test_a_name_that_could_not_be_shown_or_typed_is_refused(world: World, name: str) -> None:
    with world.open() as swarm:
        refused(world, swarm, lambda: world.work(swarm, name=name), "INVALID_INPUT")


@pytest.mark.parametrize("issue", [0, -1, 10**12, 10**9])
def test_an_issue_number_that_cannot_be_is_refused(world: World, issue: int) -> None:
    with world.open() as swarm:
        refused(world, swarm, lambda: world.work(swarm, issue=issue), "INVALID_INPUT")


@pytest.mark.parametrize("count", [0, -1, 33, 10**6])
def test_a_count_beyond_the_limits_is_refused(world: World, count: int) -> None:
    with world.open() as swarm:
        refused(world, swarm, lambda: world.work(swarm, count=count), "INVALID_INPUT")


@pytest.mark.parametrize("agent", ["nobody", "", "-x", "../claude", "scripted ", "a\0b", "x" * 5000])
def test_an_unknown_agent_is_refused_with_those_that_are_known(world: World, agent: str) -> None:
    with world.open() as swarm:
        error = refused(world, swarm, lambda: swarm.work("x", repo=str(world.repo), agent=agent or "?"))
        assert error.code == "AGENT_UNKNOWN"
        assert "scripted" in (error.hint or "")


def test_an_agent_that_is_not_installed_is_refused_with_how_to_install_it(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for program in ("git", "tmux"):
        (tmp_path / program).symlink_to(
            next(Path(p) / program for p in os.environ["PATH"].split(":") if (Path(p) / program).exists())
        )
    monkeypatch.setenv("PATH", str(tmp_path))
    with world.open() as swarm:
        for agent in ("claude", "codex", "gemini", "opencode"):
            error = refused(world, swarm, lambda agent=agent: swarm.work("x", repo=str(world.repo), agent=agent))
            assert error.code == "AGENT_NOT_INSTALLED"
            assert error.hint


@pytest.mark.parametrize("prompt", ["a\0b", "x" * (4 * _MB + 1), "☃" * (2 * _MB)])
def test_a_prompt_that_no_agent_could_take_is_refused(world: World, prompt: str) -> None:
    with world.open() as swarm:
        refused(world, swarm, lambda: world.work(swarm, prompt), "INVALID_INPUT", "PROMPT_TOO_LARGE")


@pytest.mark.parametrize("prompt", ["a\ud800b", "\udcff\udcfe"])
def test_a_prompt_with_half_a_character_works_or_is_refused_without_a_trace(world: World, prompt: str) -> None:
    with world.open() as swarm:
        before = traces(world, swarm)
        try:
            instance = world.work(swarm, prompt)
        except SwarmError as error:
            assert error.code == "INVALID_INPUT"  # noqa: PT017
            assert traces(world, swarm) == before
        else:
            assert swarm.find(instance.id).prompt == prompt
            assert_agreement(world, swarm)


def test_a_prompt_of_one_megabyte_arrives_whole(world: World) -> None:
    filler = "all work and no play 0123456789 äöü ☃\n" * (_MB // 42)
    prompt = f"{filler}say the end was read\n{'x' * (_MB - len(filler.encode()))}"
    assert len(prompt.encode()) >= _MB
    with world.open() as swarm:
        instance = world.work(swarm, prompt)
        assert (world.home / "instances" / instance.id / "prompt.md").read_text() == prompt
        assert swarm.find(instance.id).prompt == prompt
        world.wait_idle(swarm, instance.id)
        assert "the end was read" in swarm.screen(instance, lines=2000)


@pytest.mark.parametrize(
    "prompt",
    [
        "line one\nline two\r\n\ttabbed",
        "quotes ' \" ` $(touch owned) ; rm -rf $HOME && \\ | > x < y",
        "control \x01\x1b[31m\x7f\x9b0m bell \a",
        "unicode ☃ 日本語 \u202e \U0001f600 e\u0301",
        "-leading dash",
        "--help",
        "#{pane_id} %1 ;",
    ],
)
def test_an_odd_prompt_reaches_the_agent_as_it_is(world: World, prompt: str) -> None:
    with world.open() as swarm:
        instance = world.work(swarm, f"{prompt}\nsay I have read it")
        stored = world.home / "instances" / instance.id / "prompt.md"
        assert stored.read_bytes() == f"{prompt}\nsay I have read it".encode()
        world.wait_idle(swarm, instance.id)
        assert "I have read it" in swarm.screen(instance)
        assert git_run(Path(instance.worktree_path), "status", "--porcelain") == ""
        assert_agreement(world, swarm)


def write_issue(world: World, number: int, text: str) -> None:
    folder = world.repo / ".swarm" / "issues"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{number}.md").write_text(text)
    git_run(world.repo, "add", "-A")
    git_run(world.repo, "commit", "-q", "-m", f"issue {number}")


def test_an_issue_title_of_ten_thousand_characters_is_cut_and_nothing_of_it_lost(world: World) -> None:
    title = "A long story " * 800
    write_issue(world, 7, f"# {title}\n\nsay I know the issue\n")
    with world.open() as swarm:
        instance = world.work(swarm, "", issue=7)
        assert instance.id == "work-7-a1"
        assert len(instance.issue_title or "") <= 300
        assert title.strip() in instance.prompt
        world.wait_idle(swarm, instance.id)
        assert "I know the issue" in swarm.screen(instance, lines=500)
        assert_agreement(world, swarm)


def test_an_issue_file_that_leads_outside_the_repository_is_not_read(world: World, tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("# secret\n")
    (world.repo / ".swarm" / "issues").mkdir(parents=True)
    (world.repo / ".swarm" / "issues" / "7.md").symlink_to(tmp_path / "secret.md")
    git_run(world.repo, "add", "-A")
    git_run(world.repo, "commit", "-q", "-m", "link")
    with world.open() as swarm:
        assert "secret" not in world.work(swarm, "say x", issue=7).prompt


@pytest.mark.parametrize(
    "wanted",
    [
        *("", "nobody", "work-a99", "-rf", "--all", "../work-a1", "work-a1/../x", "work-a0", "WORK-A1"),
        *("%' OR 1=1 --", "x" * 9000, "\udcff"),
        *_CONTROL,
    ],
)
def test_an_instance_that_does_not_exist_is_not_found_by_any_door(world: World, wanted: str) -> None:
    with world.open() as swarm:
        doors: list[Callable[[str], object]] = [
            swarm.find,
            swarm.detail,
            swarm.stop,
            swarm.restart,
            swarm.restore,
            swarm.clean,
            swarm.fork,
            lambda name: swarm.message(name, "hello"),
        ]
        for door in doors:
            error = refused(world, swarm, lambda door=door: door(wanted), "INSTANCE_NOT_FOUND", "INVALID_INPUT")
            assert error.hint


def test_a_name_belongs_to_one_instance_until_that_is_cleaned(world: World) -> None:
    with world.open() as swarm:
        first = world.wait_idle(swarm, world.work(swarm, name="login fix").id)
        error = refused(world, swarm, lambda: world.work(swarm, name="login fix"), "NAME_TAKEN")
        assert error.details == {"instance_id": first.id}
        refused(world, swarm, lambda: swarm.fork(first.id, name="login fix"), "NAME_TAKEN")
        swarm.stop(first.id)
        refused(world, swarm, lambda: world.work(swarm, name="login fix"), "NAME_TAKEN")
        swarm.clean(first.id)
        second = world.work(swarm, name="login fix")
        assert swarm.find("login fix").id == second.id
        assert swarm.restore(first.id).name is None, "the name is another's by now"
        assert swarm.find("login fix").id == second.id


def test_attempts_of_one_name_are_numbered(world: World) -> None:
    with world.open() as swarm:
        made = swarm.work("say x", repo=str(world.repo), agent="scripted", name="login fix", count=2)
        assert [swarm.find(f"login fix {n}").id for n in (1, 2)] == [one.id for one in made]
        for one in made:
            world.wait_idle(swarm, one.id)
        again = {"repo": str(world.repo), "agent": "scripted", "name": "login fix", "count": 2}
        refused(world, swarm, lambda: swarm.work("say y", **again), "NAME_TAKEN")


def test_instances_of_one_name_from_before_names_were_unique_are_told_apart_by_id(world: World) -> None:
    with world.open() as swarm:
        made = [world.wait_idle(swarm, world.work(swarm).id) for _ in range(2)]
        with swarm.context.db.write():
            for one in made:
                instances.set_fields(swarm.context.db, one.id, name="login fix")
        error = refused(world, swarm, lambda: swarm.stop("login fix"), "CONFLICT")
        assert made[0].id in (error.hint or "")
        swarm.stop(made[0].id)
        swarm.clean(made[0].id)
        assert swarm.find("login fix").id == made[1].id


def test_an_issue_that_does_not_exist_starts_nobody(world: World) -> None:
    with world.open() as swarm:
        error = refused(world, swarm, lambda: world.work(swarm, "", issue=999), "ISSUE_NOT_FOUND")
        assert "PROMPT" in (error.hint or "")
        assert world.work(swarm, "say x", issue=999).issue_number == 999, "issues may be kept anywhere"


def test_without_a_task_nobody_is_started_unless_that_is_asked_for(world: World) -> None:
    with world.open() as swarm:
        for prompt in ("", " \n"):
            refused(world, swarm, lambda prompt=prompt: world.work(swarm, prompt), "INVALID_INPUT")
        refused(world, swarm, lambda: world.work(swarm, "say x", adhoc=True), "INVALID_INPUT")
        assert world.work(swarm, "", adhoc=True).kind == "adhoc"


def test_messages_and_refs_that_cannot_be_are_refused_and_odd_ones_kept(world: World) -> None:
    with world.open() as swarm:
        instance = world.wait_idle(swarm, world.work(swarm).id)
        for body in ("", " \n\t ", "a\0b", "x" * (_MB + 1), "half \ud800 a character"):
            refused(world, swarm, lambda body=body: swarm.message(instance.id, body), "INVALID_INPUT")
        odd = ["-rf", "line\nline\r\n", "\x1b[31m", "☃" * 1000, "x" * _MB, "$(touch owned)"]
        for body in odd:
            swarm.message(instance.id, body)
        assert [m.body for m in swarm.detail(instance.id).messages] == odd
        refused(world, swarm, lambda: swarm.restart("work-a1 "), "INSTANCE_NOT_FOUND")
        swarm.stop(instance.id)
        for ref in ("refs/heads/main", "../x", "-x", "", "HEAD", "99"):
            refused(world, swarm, lambda ref=ref: swarm.restore(instance.id, ref=ref), "NOTHING_PRESERVED")


def test_a_fork_takes_the_parents_commit_and_refuses_bad_names(world: World) -> None:
    with world.open() as swarm:
        parent = world.wait_idle(swarm, world.work(swarm, "write a.txt x\ncommit a\nwrite dirty.txt y").id)
        for options in ({"name": "-x"}, {"agent": "nobody"}, {"prompt": "a\0b"}):
            refused(world, swarm, lambda options=options: swarm.fork(parent.id, **options))
        fork = swarm.fork(parent.id, "say forked")
        assert (fork.id, fork.parent_id) == ("fork-a1", parent.id)
        assert (Path(fork.worktree_path) / "a.txt").exists()
        assert not (Path(fork.worktree_path) / "dirty.txt").exists()
        assert_agreement(world, swarm)


def test_cleaning_or_restoring_what_runs_is_refused(world: World) -> None:
    with world.open() as swarm:
        instance = world.wait_idle(swarm, world.work(swarm).id)
        for door in (swarm.clean, swarm.restore):
            refused(world, swarm, lambda door=door: door(instance.id), "INSTANCE_RUNNING")
        swarm.stop(instance.id)
        swarm.clean(instance.id)
        refused(world, swarm, lambda: swarm.clean(instance.id), "CONFLICT")
        refused(world, swarm, lambda: swarm.restart(instance.id), "CONFLICT")


def test_a_repository_with_an_odd_path_works(short_tmp: Path) -> None:
    repo = make_repo(short_tmp / "-my 'odd' \"repo\" ☃ $(x);#{y}")
    world = World(short_tmp / "h", repo)
    try:
        with world.open() as swarm:
            instance = world.work(swarm, "write a.txt x\ncommit a\nwrite half.txt y")
            world.wait_idle(swarm, instance.id)
            swarm.stop(instance.id)
            swarm.clean(instance.id)
            swarm.restore(instance.id)
            assert (Path(instance.worktree_path) / "half.txt").read_text() == "y\n"
            assert_agreement(world, swarm)
    finally:
        world.kill_tmux()


def test_a_home_with_an_odd_or_long_path_works(short_tmp: Path, repo: Path) -> None:
    for name in ("a 'home' #{x};☃", "h" * 150):
        world = World(short_tmp / name, repo)
        try:
            with world.open() as swarm:
                instance = world.work(swarm)
                world.wait_idle(swarm, instance.id)
                assert_agreement_of_one(world, swarm, instance.id)
                swarm.stop(instance.id)
                swarm.clean(instance.id)
        finally:
            world.kill_tmux()
            if (elsewhere := world.settings.tmux_socket.parent) != world.home:
                shutil.rmtree(elsewhere)


def assert_agreement_of_one(world: World, swarm: Swarm, instance_id: str) -> None:
    assert swarm.find(instance_id).status == "running"
    assert world.sessions() == {instance_id: True}


@pytest.mark.parametrize("home", ["a\0b", "~nobody-here/x"])
def test_a_home_that_cannot_be_is_refused_or_taken_literally(tmp_path: Path, home: str) -> None:
    try:
        settings = config.load({"SWARM_HOME": home, "HOME": str(tmp_path)})
    except SwarmError as error:
        assert error.code == "INVALID_SETTING"  # noqa: PT017
    else:
        assert settings.home.is_absolute()


_BLANK = ["", " ", "\n\t\r\n", "\u00a0\u3000", "\u200b", "\ufeff\u2060", "\x1b\x07"]


@pytest.mark.parametrize("blank", _BLANK, ids=ascii)
def test_text_that_nobody_can_see_is_no_task_and_no_message(world: World, blank: str) -> None:
    with world.open() as swarm:
        work = world.wait_idle(swarm, world.work(swarm, "say hello").id).id
        for prompt in (blank, f" {blank} "):
            refused(world, swarm, lambda p=prompt: world.work(swarm, p), "INVALID_INPUT")
            refused(world, swarm, lambda p=prompt: world.work(swarm, p, issue=999), "ISSUE_NOT_FOUND")
            refused(world, swarm, lambda p=prompt: swarm.message(work, p), "INVALID_INPUT")
        assert swarm.fork(work, blank).prompt == "say hello"


@pytest.mark.parametrize("blank", _BLANK, ids=ascii)
def test_a_fork_of_an_adhoc_instance_needs_a_task_unless_that_is_asked_for(world: World, blank: str) -> None:
    with world.open() as swarm:
        parent = world.wait_idle(swarm, world.work(swarm, "", adhoc=True).id).id
        error = refused(world, swarm, lambda: swarm.fork(parent, blank), "INVALID_INPUT")
        assert "--adhoc" in str(error.hint)
        refused(world, swarm, lambda: swarm.fork(parent, "x", adhoc=True), "INVALID_INPUT")
        assert swarm.fork(parent, "say hello").prompt == "say hello"
        assert swarm.fork(parent, blank, adhoc=True).prompt == ""


def test_an_agent_without_a_task_cannot_fork_itself_without_one(mcp: Coordinated) -> None:
    with mcp.swarm() as swarm:
        parent = mcp.world.wait_idle(swarm, mcp.world.work(swarm, "", adhoc=True).id)
    token = mcp.token(parent)
    for client in (mcp.client(token), mcp.stdio(token)):
        for given in ({}, {"prompt": " "}, {"prompt": "\u200b"}):
            assert client.call("spawn_fork_instance", **given).payload["code"] == "INVALID_INPUT"
    with mcp.swarm() as swarm:
        assert [one.id for one in swarm.instances()] == [parent.id]


def test_an_adhoc_fork_does_not_take_the_task_of_its_parent(world: World) -> None:
    with world.open() as swarm:
        parent = world.work(swarm, "say hello")
        assert swarm.fork(parent.id, adhoc=True).prompt == ""

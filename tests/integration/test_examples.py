"""What docs/examples shows works as it stands there: the cron script, and the steps of the composite action."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from swarm_core.store import verdicts
from tests.integration.github_fixture import HubWorld, hub
from tests.integration.merge_fixture import proposed, pull_of
from tests.integration.review_fixture import commit
from tests.support import git_run, wait_until
from tests.world import World

__all__ = ["hub"]
_EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
_TASK = """write made.txt by the agent
commit make it
call create_pull_request {"title": "Make it", "description": "It was not made."}
"""


def on_path(hub: HubWorld) -> dict[str, str]:
    """The environment of a job that finds `swarm`."""
    places = [str(Path(sys.executable).parent), os.environ["PATH"]]
    return hub.environ | {"PATH": os.pathsep.join(places), "MCP_SERVER_PORT": "0", "SWARM_UI_PORT": "0"}


def test_the_cron_script_merges_what_is_approved_and_nothing_else(hub: HubWorld) -> None:
    with hub.open() as swarm:
        pulls = []
        for name in ("one.txt", "two.txt", "three.txt"):
            work = hub.work(swarm)
            commit(work, name, "made\n")
            pulls.append(hub.open_pull(swarm, work, title=f"Make {name}"))
    for pull in pulls[:2]:
        hub.hub.add_review(pull.number, "kim", "APPROVED")
    hub.hub.add_check(pulls[1].head_commit, "unit", "completed", "failure")
    argv = [sys.executable, str(_EXAMPLES / "merge_approved.py")]
    done = subprocess.run(argv, cwd=hub.repo, env=on_path(hub), capture_output=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["merged"] == 1
    states = {number: there.state for number, there in hub.hub.pulls.items()}
    assert states == {pulls[0].number: "closed", pulls[1].number: "open", pulls[2].number: "open"}


def test_the_cron_script_merges_a_local_pull_request_that_our_reviewer_approved(world: World) -> None:
    with world.open() as swarm:
        approved, refused, unseen = (proposed(world, swarm, n) for n in (1, 2, 3))
        with swarm.context.db.write():
            for work, said in ((approved, "approved"), (refused, "needs_work")):
                commit_id = pull_of(swarm, work).head_commit
                verdicts.add(swarm.context.db, work.id, commit_id, said, by="review-9-a1")
    argv = [sys.executable, str(_EXAMPLES / "merge_approved.py")]
    places = [str(Path(sys.executable).parent), os.environ["PATH"]]
    env = world.environ | {"PATH": os.pathsep.join(places)}
    done = subprocess.run(argv, cwd=world.repo, env=env, capture_output=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    with world.open() as swarm:
        assert [pull_of(swarm, one).state for one in (approved, refused, unseen)] == ["merged", "open", "open"]


def steps() -> dict[str, str]:
    """The shell of each step of the action, by its name."""
    text = (_EXAMPLES / "open-and-merge" / "action.yml").read_text()
    found = re.findall(r"    - name: (.+)\n(?:      .*\n)*?      run: \|\n((?:        .*\n)+)", text)
    return {name: textwrap.dedent(script) for name, script in found}


@pytest.fixture
def job(hub: HubWorld, tmp_path: Path) -> Iterator[dict[str, str]]:
    """What a runner gives to every step; whatever the steps start is ended."""
    environ = on_path(hub) | {"GITHUB_OUTPUT": str(tmp_path / "output")}
    yield environ
    subprocess.run(["swarm", "down"], cwd=hub.repo, env=environ, capture_output=True, check=False, timeout=60)


def run(script: str, hub: HubWorld, environ: dict[str, str], *, code: int = 0) -> str:
    with begun(script, hub, environ) as process:
        out, err = process.communicate(timeout=180)
    assert process.returncode == code, out + err
    return str(out)


@contextmanager
def begun(script: str, hub: HubWorld, environ: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """As a runner begins a step, without the long pauses; it is ended with all it has begun."""
    for pause, short in (("sleep 10", "sleep 1"), ("sleep 20", "sleep 1"), ("--timeout 60", "--timeout 2")):
        script = script.replace(pause, short)
    argv = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    process = subprocess.Popen(
        argv,
        cwd=hub.repo,
        env=environ,
        text=True,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def outputs(environ: dict[str, str]) -> dict[str, str]:
    lines = Path(environ["GITHUB_OUTPUT"]).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_the_steps_of_the_action_bring_an_issue_to_a_merged_pull_request(
    hub: HubWorld, job: dict[str, str]
) -> None:
    number = hub.hub.add_issue("Make it", _TASK)
    assert list(steps()) == ["Install swarm", "Start the agent", "Follow its pull request", "End everything"]
    run(steps()["Start the agent"], hub, job | {"ISSUE": str(number), "AGENT": "scripted"})
    instance = outputs(job)["instance"]
    assert instance == f"work-{number}-a1"
    more = {"ID": instance, "METHOD": "squash", "TIMEOUT": "120"}
    run(steps()["Follow its pull request"], hub, job | more)
    [there] = hub.hub.pulls.values()
    assert (there.state, there.merged_at is not None) == ("closed", True)
    assert there.body is not None
    assert f"Closes #{number}" in there.body
    assert outputs(job)["pull"].endswith(f"/pull/{there.number}")
    run(steps()["End everything"], hub, job | more)
    shown = hub.command("status", "--json")
    assert json.loads(shown.stdout)["coordinator"] is None


def test_the_action_goes_on_when_a_check_has_failed_and_the_agent_has_mended_it(
    hub: HubWorld, job: dict[str, str]
) -> None:
    run("swarm up --detach", hub, job)
    with hub.open() as swarm:
        work, pull = hub.proposed(swarm)
        hub.hub.add_check(pull.head_commit, "unit", "completed", "failure")
        more = {"ID": work.id, "METHOD": "squash", "TIMEOUT": "120"}
        with begun(steps()["Follow its pull request"], hub, job | more) as following:
            wait_until(lambda: swarm.pulls.of(work.id).pull.auto_merge, timeout=60, what="it is to be merged")
            fixed = commit(work, "fix.txt", "mended\n")
            hub.hub.add_check(fixed, "unit")
            hub.open_pull(swarm, work)
            out, err = following.communicate(timeout=120)
        assert following.returncode == 0, out + err
        assert swarm.pulls.of(work.id).pull.state == "merged"
    assert hub.hub.pulls[pull.number].merged_at is not None
    assert "fix.txt" in git_run(hub.bare, "ls-tree", "--name-only", "main").split()


def test_the_action_ends_when_the_pull_request_is_closed_or_the_time_is_up(
    hub: HubWorld, job: dict[str, str]
) -> None:
    run("swarm up --detach", hub, job)
    with hub.open() as swarm:
        (closed, first), (red, second) = hub.proposed(swarm), hub.proposed(swarm, "two.txt")
        hub.hub.add_check(second.head_commit, "unit", "completed", "failure")
        swarm.pulls.close(closed.id)
    more = {"METHOD": "squash", "TIMEOUT": "120"}
    run(steps()["Follow its pull request"], hub, job | more | {"ID": closed.id}, code=1)
    run(steps()["Follow its pull request"], hub, job | more | {"ID": red.id, "TIMEOUT": "1"}, code=1)
    assert {there.merged_at for there in hub.hub.pulls.values()} == {None}
    assert first.number in hub.hub.pulls


def test_the_script_of_the_page_brings_an_issue_to_a_merged_pull_request(
    hub: HubWorld, job: dict[str, str]
) -> None:
    page = (_EXAMPLES.parent / "how-to" / "automation.md").read_text()
    [script] = re.findall(r"^```sh\n(set -eu\n.+?)```", page, re.MULTILINE | re.DOTALL)
    number = hub.hub.add_issue("Make it", _TASK)
    out = run(script.replace("--issue 12", f"--issue {number}"), hub, job | {"SWARM_AGENT": "scripted"})
    [there] = hub.hub.pulls.values()
    assert there.merge_commit is not None
    assert there.merge_commit in out
    assert not Path(hub.home / "worktrees").exists() or list((hub.home / "worktrees").glob("*/*")) == []

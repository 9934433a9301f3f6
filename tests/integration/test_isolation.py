"""Agents stay in their worktrees: hooks refuse what is elsewhere, and what was changed there is reported."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from swarm_core.models import Event, Instance
from swarm_core.ops import isolation
from swarm_core.ops.isolation import Watch
from swarm_core.store import checkouts, instances, messages
from swarm_core.store.database import Database
from swarm_core.swarm import Swarm
from swarm_ui import views
from tests.integration.mcp_fixture import Coordinated
from tests.support import git_run, wait_until
from tests.world import World


@pytest.fixture
def quiet_claude(stopped_mcp: Coordinated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Coordinated:
    """A coordinator whose Claude Code is a program that does nothing; the test speaks for it.

    The person keeps all of a home in one repository, Claude Code's own folder included.
    """
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(stopped_mcp.world.repo / "claude-config"))
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    stopped_mcp.start()
    return stopped_mcp


@pytest.fixture
def swarm(world: World) -> Iterator[Swarm]:
    with world.open() as opened:
        yield opened


def hook(mcp: Coordinated, event: str, token: str, tool: str, **body: Any) -> dict[str, Any]:
    given = {key: body.pop(key) for key in ("file_path", "notebook_path", "command") if key in body}
    sent = json.dumps({"tool_name": tool, "tool_input": given, **body}).encode()
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", mcp.port, timeout=20)) as connection:
        connection.request("POST", f"/hooks/{event}", sent, {"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        assert response.status == 200
        found: dict[str, Any] = json.loads(response.read())
        return found.get("hookSpecificOutput", {})


def touched(swarm: Swarm) -> list[Event]:
    return [e for e in swarm.events(after=0, limit=5000) if e.name == "checkout:touched"]


# Certain: what an agent's own hooks say


def test_a_tool_that_would_write_outside_the_worktree_is_refused_before_it_does(
    quiet_claude: Coordinated, tmp_path: Path
) -> None:
    mcp = quiet_claude
    with mcp.swarm() as swarm:
        one, two = swarm.work("do it", repo=str(mcp.world.repo), agent="claude", count=2)
        token, mine, repo = mcp.token(one), Path(one.worktree_path), mcp.world.repo
        (mine / "linked").symlink_to(repo)
        git_dir = git_run(mine, "rev-parse", "--absolute-git-dir")
        refused: list[tuple[str, dict[str, str]]] = [
            ("Write", {"file_path": f"{repo}/new.txt"}),
            ("Edit", {"file_path": f"{repo}/src/app.py"}),
            ("NotebookEdit", {"notebook_path": f"{repo}/a.ipynb"}),
            ("Write", {"file_path": f"{mine}/{os.path.relpath(repo, mine)}/new.txt"}),
            ("Write", {"file_path": f"{mine}/linked/new.txt"}),
            ("Write", {"file_path": "new.txt", "cwd": str(repo)}),
            ("Write", {"file_path": f"{repo}/.git/hooks/pre-commit"}),
            ("Edit", {"file_path": f"{two.worktree_path}/src/app.py"}),
        ]
        allowed: list[tuple[str, dict[str, str]]] = [
            ("Write", {"file_path": f"{mine}/new.txt"}),
            ("Edit", {"file_path": "src/app.py", "cwd": str(mine)}),
            ("Write", {"file_path": f"{git_dir}/info/exclude"}),
            ("Write", {"file_path": f"{tmp_path}/elsewhere.txt"}),
            ("Write", {"file_path": f"{repo}/claude-config/plans/plan.md"}),
            ("Read", {"file_path": f"{repo}/src/app.py"}),
            ("Bash", {"command": f"cat {repo}/src/app.py"}),
            ("Write", {"file_path": f"{repo}/\0"}),
            ("Write", {}),
        ]
        for tool, body in refused:
            said = hook(mcp, "PreToolUse", token, tool, **body)
            assert said.get("permissionDecision") == "deny", (tool, body)
            assert str(mine) in said["permissionDecisionReason"]
        for tool, body in allowed:
            assert hook(mcp, "PreToolUse", token, tool, **body) == {}, (tool, body)
        events = [e for e in swarm.events(after=0, limit=5000) if e.name == "tool:denied"]
        assert [(e.instance_id, e.tool_name) for e in events] == [(one.id, tool) for tool, _ in refused]
        assert {e.metadata["rule"] for e in events} == {"isolation"}
        assert [e.metadata["owner"] for e in events][-2:] == [None, two.id]
        assert touched(swarm) == []
        assert swarm.find(one.id).needs_person == ""


def test_what_was_written_all_the_same_is_reported_at_once_and_until_it_is_taken_back(
    quiet_claude: Coordinated,
) -> None:
    mcp = quiet_claude
    with mcp.swarm() as swarm:
        (one,) = swarm.work("do it", repo=str(mcp.world.repo), agent="claude")
        token, path = mcp.token(one), mcp.world.repo / "src" / "app.py"
        before = path.read_text()
        path.write_text("changed by an agent\n")
        said = hook(mcp, "PostToolUse", token, "Edit", file_path=str(path))
        assert "Take the change back" in said["additionalContext"]
        assert f"{one.worktree_path}/src/app.py" in said["additionalContext"]
        (event,) = touched(swarm)
        assert (event.instance_id, event.metadata["certain"]) == (one.id, True)
        assert (event.metadata["files"], event.metadata["where"]) == (["src/app.py"], "the main checkout")
        hook(mcp, "PostToolUse", token, "Edit", file_path=str(path))
        assert len(touched(swarm)) == 1
        assert len([m for m in messages.of(swarm.context.db, one.id) if m.sender == "swarm"]) == 1
        assert "src/app.py of the main checkout" in views.needs_you(swarm.find(one.id))
        wait_until(lambda: mcp.events(name="notice:raised"), timeout=30, what="a person is called")
        assert mcp.stop() == 0
        watch = Watch(swarm.context, pause_per_cost=0)
        watch.look()
        assert swarm.find(one.id).needs_person
        path.write_text(before)
        watch.look()
        assert swarm.find(one.id).needs_person == ""
        assert [e.metadata["certain"] for e in touched(swarm)] == [True], "nobody else is suspected of it"


def test_a_file_of_another_worktree_is_reported_with_its_owner(world: World, swarm: Swarm) -> None:
    one, two = (world.wait_idle(swarm, world.work(swarm).id) for _ in range(2))
    path = Path(two.worktree_path, "src", "app.py")
    before = path.read_text()
    path.write_text("changed by the other\n")
    wrote(swarm, one, path)
    assert f"src/app.py of the worktree of {two.id}" in swarm.find(one.id).needs_person
    watch = Watch(swarm.context, pause_per_cost=0)
    watch.look()
    assert swarm.find(one.id).needs_person
    path.write_text(before)
    watch.look()
    assert swarm.find(one.id).needs_person == ""


def test_another_reason_for_a_person_is_neither_replaced_nor_cleared(world: World, swarm: Swarm) -> None:
    one, db = world.wait_idle(swarm, world.work(swarm).id), swarm.context.db
    with db.write():
        instances.set_fields(db, one.id, needs_person="all review rounds are used (3)")
    wrote(swarm, one, world.repo / "README.md")
    Watch(swarm.context, pause_per_cost=0).look()
    assert swarm.find(one.id).needs_person == "all review rounds are used (3)"
    assert checkouts.with_strays(db) == []


def wrote(swarm: Swarm, instance: Instance, path: Path) -> None:
    """What the hook of a tool that wrote there does."""
    db: Database = swarm.context.db
    body = {"tool_name": "Write", "tool_input": {"file_path": str(path)}}
    found = isolation.found_in(db, instance, "PostToolUse", body)
    assert found is not None
    with db.write():
        isolation.record(db, instance, found, tool="Write", denied=False)


# Uncertain: the main checkout is not what it was


def busy(world: World, swarm: Swarm) -> Instance:
    made = world.work(swarm, "busy 600")

    def at_work() -> bool:
        swarm.reconcile()
        return swarm.find(made.id).activity == "busy"

    wait_until(at_work, what="it is busy")
    return swarm.find(made.id)


def test_a_main_checkout_that_changes_while_agents_work_is_told_without_blame(world: World, swarm: Swarm) -> None:
    one, two = busy(world, swarm), busy(world, swarm)
    watch = Watch(swarm.context, pause_per_cost=0)
    (world.repo / "before.txt").write_text("it was there\n")
    watch.look()
    assert touched(swarm) == []
    (world.repo / "README.md").write_text("somebody was here\n")
    watch.look()
    watch.look()
    (event,) = touched(swarm)
    assert (event.instance_id, event.metadata["certain"]) == (None, False)
    assert (event.metadata["files"], event.metadata["while"]) == (["README.md"], [one.id, two.id])
    git_run(world.repo, "commit", "-q", "-a", "-m", "a commit in the main checkout")
    Watch(swarm.context, pause_per_cost=0).look()
    assert touched(swarm)[-1].metadata["head"][1] == git_run(world.repo, "rev-parse", "HEAD")
    git_run(world.repo, "checkout", "-q", "-b", "elsewhere")
    watch.look()
    assert touched(swarm)[-1].metadata["branch"] == ["main", "elsewhere"]
    assert len(touched(swarm)) == 3
    assert [m.body for i in (one, two) for m in messages.of(swarm.context.db, i.id)] == []
    assert [swarm.find(i.id).needs_person for i in (one, two)] == ["", ""]


def test_what_a_person_changes_while_no_agent_works_is_nobodys_business(world: World, swarm: Swarm) -> None:
    idle = world.wait_idle(swarm, world.work(swarm).id)
    watch = Watch(swarm.context, pause_per_cost=0)
    watch.look()
    watch.look()
    (world.repo / "README.md").write_text("a person was here\n")
    watch.look()
    assert touched(swarm) == []
    swarm.stop(idle.id)
    (world.repo / "other.txt").write_text("a person was here too\n")
    watch.look()
    busy(world, swarm)
    watch.look()
    assert touched(swarm) == []


def test_after_a_long_time_unwatched_the_checkout_is_taken_as_it_is(
    world: World, swarm: Swarm, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy(world, swarm)
    Watch(swarm.context, pause_per_cost=0).look()
    monkeypatch.setattr(isolation, "_UNWATCHED", -1.0)
    (world.repo / "README.md").write_text("changed overnight\n")
    Watch(swarm.context, pause_per_cost=0).look()
    assert touched(swarm) == []


def test_what_an_agent_is_known_to_have_written_is_not_told_twice(world: World, swarm: Swarm) -> None:
    one, watch = busy(world, swarm), Watch(swarm.context, pause_per_cost=0)
    watch.look()
    (world.repo / "README.md").write_text("by the agent\n")
    (world.repo / "src" / "app.py").write_text("by somebody\n")
    wrote(swarm, one, world.repo / "README.md")
    watch.look()
    assert [e.metadata["files"] for e in touched(swarm)] == [["README.md"], ["src/app.py"]]


def test_a_checkout_is_looked_at_at_most_every_ten_seconds(world: World, swarm: Swarm) -> None:
    busy(world, swarm)
    watch, db = Watch(swarm.context, pause_per_cost=1e-9), swarm.context.db
    watch.look()
    first = checkouts.read(db, str(world.repo))
    watch.look()
    assert first[0]["seen"] is not None
    assert checkouts.read(db, str(world.repo)) == first


def test_a_repository_that_is_gone_breaks_nothing(world: World, swarm: Swarm) -> None:
    busy(world, swarm)
    world.repo.rename(world.repo.with_name("moved"))
    Watch(swarm.context, pause_per_cost=0).look()
    assert touched(swarm) == []

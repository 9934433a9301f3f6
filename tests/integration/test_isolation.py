"""Agents stay in their worktrees: hooks refuse what is elsewhere, and what was changed there is reported."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from swarm_core.agents import table
from swarm_core.models import Activity, Event, Instance
from swarm_core.ops import isolation
from swarm_core.ops import touched as places
from swarm_core.ops.touched import Watch
from swarm_core.store import checkouts, events, instances, messages, preserved
from swarm_core.store.database import Database
from swarm_core.swarm import Swarm
from swarm_ui import views
from tests.integration.mcp_fixture import Coordinated
from tests.integration.merge_fixture import proposed
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
    found = isolation.found_in(db, instance, table.get("claude"), "PostToolUse", body)
    assert found is not None
    with db.write():
        isolation.record(db, instance, found, tool="Write", denied=False)


# Uncertain: a command has named a place, and the place has changed


def run(
    mcp: Coordinated, token: str, command: str, writes: Path, *, after: str = "PostToolUse", **body: Any
) -> None:
    """A shell command of an agent, with its hooks around it."""
    body |= {"tool_use_id": f"toolu_{writes.name}"}
    assert hook(mcp, "PreToolUse", token, "Bash", command=command, **body) == {}
    writes.write_text("by a shell\n")
    assert hook(mcp, after, token, "Bash", command=command, **body) == {}


def test_a_command_that_names_anothers_place_is_reported_at_once_when_that_has_changed(
    quiet_claude: Coordinated,
) -> None:
    mcp = quiet_claude
    with mcp.swarm() as swarm:
        one, two = swarm.work("do it", repo=str(mcp.world.repo), agent="claude", count=2)
        token, repo = mcp.token(one), mcp.world.repo
        mine, theirs = Path(one.worktree_path), Path(two.worktree_path)
        (mine / "linked").symlink_to(theirs)
        ways: list[tuple[str, Path, dict[str, str]]] = [
            (f"echo x > {theirs}/a.txt", theirs / "a.txt", {}),
            (f"python3 -c \"open('{theirs}/b.txt', 'w')\"", theirs / "b.txt", {"after": "PostToolUseFailure"}),
            (f"cp x ../{theirs.name}/c.txt", theirs / "c.txt", {"cwd": str(mine)}),
            ("touch d.txt", theirs / "d.txt", {"cwd": str(theirs)}),
            ("cp x linked/e.txt", theirs / "e.txt", {"cwd": str(mine)}),
            (f"make -C{theirs} a.txt", theirs / "a.txt", {}),
            (f"tar x --directory={repo}/src", repo / "src" / "app.py", {}),
        ]
        for command, path, more in ways:
            run(mcp, token, command, path, **more)
        told = [e for e in touched(swarm) if e.instance_id is not None]
        assert [(e.instance_id, e.metadata["certain"]) for e in told] == [(one.id, False)] * len(ways)
        names = ["a.txt", "b.txt", "c.txt", "d.txt", "e.txt", "a.txt", "src/app.py"]
        assert [e.metadata["files"] for e in told] == [[name] for name in names]
        assert [e.metadata["owner"] for e in told] == [two.id] * 6 + [None]
        assert (told[0].metadata["tool"], told[0].metadata["where"]) == ("Bash", f"the worktree of {two.id}")
        assert told[-1].metadata["where"] == "the main checkout"
        assert messages.of(swarm.context.db, one.id) == []
        assert swarm.find(one.id).needs_person == ""


def test_a_command_that_only_reads_there_is_nobodys_business(quiet_claude: Coordinated) -> None:
    mcp = quiet_claude
    with mcp.swarm() as swarm:
        one, two = swarm.work("do it", repo=str(mcp.world.repo), agent="claude", count=2)
        token, mine = mcp.token(one), Path(one.worktree_path)
        run(mcp, token, f"diff {two.worktree_path}/src/app.py src/app.py > own.txt", mine / "own.txt")
        run(mcp, token, f"grep -r x {mcp.world.repo}", mine / "other.txt")
        assert [e for e in touched(swarm) if e.instance_id is not None] == []


def test_a_place_that_cannot_be_read_costs_the_agent_nothing(
    quiet_claude: Coordinated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one place git fails, in the other it hangs: the hooks are answered, and that git is ended."""
    mcp = quiet_claude
    with mcp.swarm() as swarm:
        one, two, three = swarm.work("do it", repo=str(mcp.world.repo), agent="claude", count=3)
        assert mcp.stop() == 0
        pids, real = tmp_path / "pids", shutil.which("git")
        program = tmp_path / "bin" / "git"
        hangs = f"*{three.worktree_path}*status*) echo $$ >> {pids}; exec sleep 600;;"
        program.write_text(f'#!/bin/sh\ncase "$*" in {hangs} esac\nexec {real} "$@"\n')
        program.chmod(0o755)
        mcp.start()
        token = mcp.token(one)
        Path(two.worktree_path, ".git").write_text("gitdir: /nowhere\n")
        run(mcp, token, f"touch {two.worktree_path}/a.txt", Path(two.worktree_path, "a.txt"))
        run(mcp, token, f"touch {three.worktree_path}/a.txt", Path(three.worktree_path, "a.txt"))
        assert [e for e in touched(swarm) if e.instance_id is not None] == []
        (pid, *_) = pids.read_text().split()
        wait_until(lambda: not Path("/proc", pid).exists(), what="the git that hung is ended")
        assert hook(mcp, "PreToolUse", token, "Bash", command="ls") == {}


@pytest.mark.parametrize("owner", ["main", "other"])
def test_what_a_hook_has_told_of_a_command_is_not_told_again(world: World, swarm: Swarm, owner: str) -> None:
    idle, one = world.wait_idle(swarm, world.work(swarm).id), busy(world, swarm)
    watch, db = Watch(swarm.context, pause_per_cost=0), swarm.context.db
    folder = world.repo if owner == "main" else Path(idle.worktree_path)
    body = {"tool_name": "Bash", "tool_input": {"command": f"touch {folder}/a.txt"}}
    watch.look()
    (found,) = isolation.named_in(db, one, table.get("claude"), body)
    before = isolation.Sight(
        found, swarm.context.host(one).folder_state(found.folder), db.now(), events.newest_id(db)
    )
    (folder / "a.txt").write_text("by a command\n")
    (folder / "b.txt").write_text("by somebody\n")
    with db.write():
        isolation.compare(db, one, before, swarm.context.host(one).folder_state(found.folder), tool="Bash")
    (folder / "c.txt").write_text("by somebody else\n")
    watch.look()
    watch.look()
    assert [e.metadata["files"] for e in touched(swarm)] == [["a.txt", "b.txt"], ["c.txt"]]


# Uncertain: a worktree has changed while its own agent was not at work


def test_a_worktree_that_changes_while_only_others_work_is_told_without_blame(world: World, swarm: Swarm) -> None:
    idle, one = world.wait_idle(swarm, world.work(swarm).id), busy(world, swarm)
    watch, theirs = Watch(swarm.context, pause_per_cost=0), Path(idle.worktree_path)
    (theirs / "before.txt").write_text("it was there\n")

    def told() -> dict[str, Any]:
        """What the two looks that it takes have brought."""
        known = len(touched(swarm))
        watch.look()
        assert len(touched(swarm)) == known
        watch.look()
        watch.look()
        assert len(touched(swarm)) == known + 1
        return touched(swarm)[-1].metadata

    watch.look()
    (theirs / "new.txt").write_text("somebody was here\n")
    said = told()
    assert (said["certain"], said["owner"], said["files"]) == (False, idle.id, ["new.txt"])
    assert (said["where"], said["while"]) == (f"the worktree of {idle.id}", [one.id])
    (theirs / "before.txt").write_text("it is another now\n")
    assert told()["files"] == ["before.txt"]
    (theirs / "new.txt").write_text("a program goes on writing there\n")
    (theirs / "other.txt").write_text("and here\n")
    assert told()["files"] == ["other.txt"]
    git_run(theirs, "add", "-A")
    git_run(theirs, "commit", "-q", "-m", "not by its agent")
    assert told()["head"][1] == git_run(theirs, "rev-parse", "HEAD")
    assert [e.instance_id for e in touched(swarm)] == [None] * 4
    assert [swarm.find(i.id).needs_person for i in (one, idle)] == ["", ""]


def test_work_that_is_taken_away_from_a_worktree_is_told(world: World, swarm: Swarm) -> None:
    idle, _ = world.wait_idle(swarm, world.work(swarm).id), busy(world, swarm)
    watch, theirs = Watch(swarm.context, pause_per_cost=0), Path(idle.worktree_path)
    (theirs / "README.md").write_text("work of an hour\n")
    swarm.stop(idle.id)
    watch.look()
    watch.look()
    git_run(theirs, "checkout", "-q", "README.md")
    watch.look()
    watch.look()
    assert [e.metadata["files"] for e in touched(swarm)] == [["README.md"]]


@pytest.mark.parametrize("late", [False, True])
def test_what_its_own_agent_changes_is_not_told(world: World, swarm: Swarm, *, late: bool) -> None:
    """Also when it is seen at work only after what it wrote was seen."""
    idle, _ = world.wait_idle(swarm, world.work(swarm).id), busy(world, swarm)
    watch, db = Watch(swarm.context, pause_per_cost=0), swarm.context.db
    watch.look()
    Path(idle.worktree_path, "own.txt").write_text("its own\n")
    if late:
        watch.look()
    with db.write():
        instances.observe(db, idle.id, Activity.BUSY, source="hook")
        instances.observe(db, idle.id, Activity.IDLE, source="hook")
    watch.look()
    watch.look()
    watch.look()
    assert touched(swarm) == []


def test_a_worktree_that_changes_while_nobody_works_is_nobodys_business(world: World, swarm: Swarm) -> None:
    idle, _ = (world.wait_idle(swarm, world.work(swarm).id) for _ in range(2))
    watch = Watch(swarm.context, pause_per_cost=0)
    watch.look()
    Path(idle.worktree_path, "new.txt").write_text("a person was here\n")
    watch.look()
    watch.look()
    assert touched(swarm) == []


def test_what_swarm_itself_brings_back_is_not_told(world: World, swarm: Swarm) -> None:
    idle, _ = world.wait_idle(swarm, world.work(swarm).id), busy(world, swarm)
    watch, path = Watch(swarm.context, pause_per_cost=0), Path(idle.worktree_path, "kept.txt")
    path.write_text("to be brought back\n")
    swarm.stop(idle.id)
    swarm.clean(idle.id)
    swarm.restore(idle.id)
    (kept,) = preserved.of(swarm.context.db, idle.id)
    path.unlink()
    watch.look()
    swarm.restore(idle.id, ref=kept.ref)
    assert path.exists()
    watch.look()
    watch.look()
    assert touched(swarm) == []


def test_a_worktree_that_follows_a_merge_of_ours_is_not_told(world: World, swarm: Swarm) -> None:
    idle, _ = world.wait_idle(swarm, world.work(swarm).id), busy(world, swarm)
    watch, theirs = Watch(swarm.context, pause_per_cost=0), Path(idle.worktree_path)
    git_run(world.repo, "checkout", "-q", "--detach")
    git_run(theirs, "checkout", "-q", "main")
    work = proposed(world, swarm, 1, {"merged.txt": "1\n"})
    watch.look()
    assert swarm.pulls.merge(work.id).merge_commit == git_run(theirs, "rev-parse", "HEAD")
    watch.look()
    watch.look()
    assert touched(swarm) == []


def test_each_turn_looks_at_one_place_and_main_checkouts_come_first(world: World, swarm: Swarm) -> None:
    idle, _ = world.wait_idle(swarm, world.work(swarm).id), busy(world, swarm)
    watch = Watch(swarm.context, pause_per_cost=1e-9)
    seen = []
    for _ in range(3):
        watch.look()
        seen.append(list(watch._looked))
    main, other = (str(world.repo), ""), (str(world.repo), idle.id)
    assert seen == [[main], [main, other], [main, other]]


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
    monkeypatch.setattr(places, "_UNWATCHED", -1.0)
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

"""What happens to sessions behind our back: the server dies, agents end, people rename and split."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from swarm_core import locks
from swarm_core.errors import Conflict
from swarm_core.hosts.base import StartOrder
from swarm_core.models import Instance
from swarm_core.ops import stop
from swarm_core.ops.doctor import Check
from swarm_core.store import actions, tokens
from swarm_core.swarm import Swarm
from tests.support import git_run, token_owner, wait_until
from tests.world import World, assert_agreement


def tmux(world: World, *words: str) -> str:
    argv = ["tmux", "-S", str(world.settings.tmux_socket), *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=20)
    return done.stdout.strip()


def kill_server(world: World) -> None:
    tmux(world, "kill-server")


def kill_server_process(world: World) -> None:
    os.kill(int(tmux(world, "display-message", "-p", "#{pid}")), signal.SIGKILL)


def exited(swarm: Swarm, instance_id: str) -> Instance | None:
    swarm.reconcile()
    found = swarm.find(instance_id)
    return found if found.activity == "exited" else None


def wait_exited(swarm: Swarm, instance_id: str) -> Instance:
    found = wait_until(lambda: exited(swarm, instance_id), what=f"{instance_id} recorded as exited")
    assert isinstance(found, Instance)
    return found


def wait_shows(swarm: Swarm, instance_id: str, text: str) -> None:
    wait_until(lambda: text in swarm.screen(swarm.find(instance_id)), what=f"{text!r} on the screen")


def checks(swarm: Swarm, name: str, **options: bool) -> list[Check]:
    return [check for check in swarm.doctor(**options) if check.name == name]


@pytest.mark.parametrize("kill", [kill_server, kill_server_process])
def test_a_killed_tmux_server_loses_no_work_and_agents_resume_their_conversations(
    world: World, kill: Callable[[World], None]
) -> None:
    with world.open() as swarm:
        committer = world.work(swarm, "write done.txt committed\ncommit done\nwrite half.txt not committed")
        other = world.work(swarm, "say ready")
        for one in (committer, other):
            world.wait_idle(swarm, one.id)
        head = git_run(Path(committer.worktree_path), "rev-parse", "HEAD")
        kill(world)
        for one in (committer, other):
            lost = wait_exited(swarm, one.id)
            assert (lost.status, lost.wanted, lost.pid) == ("failed", "stopped", None)
            assert lost.reason
        assert_agreement(world, swarm)
        assert git_run(Path(committer.worktree_path), "rev-parse", "HEAD") == head
        assert (Path(committer.worktree_path) / "half.txt").read_text() == "not committed\n"
        again = swarm.restart(committer.id)
        assert (again.status, again.epoch, again.conversation_id) == ("running", 2, committer.conversation_id)
        wait_shows(swarm, committer.id, f"resumed conversation {committer.conversation_id}")
        assert_agreement(world, swarm)


def test_a_killed_server_is_noticed_by_a_process_that_was_not_there(world: World) -> None:
    with world.open() as swarm:
        instance = world.work(swarm)
    kill_server_process(world)
    with world.open() as swarm:
        [finding] = swarm.reconcile()
        assert (finding.instance_id, finding.mended) == (instance.id, True)
        assert swarm.find(instance.id).status == "failed"
        assert swarm.reconcile() == []
        assert_agreement(world, swarm)


@pytest.mark.parametrize(
    ("last_step", "status", "code", "number"),
    [
        ("exit 0", "terminated", 0, None),
        ("exit 3", "failed", 3, None),
        ("crash", "failed", None, signal.SIGSEGV),
    ],
)
def test_an_agent_that_ended_unwatched_is_recorded_with_its_end_and_last_screen(
    world: World, last_step: str, status: str, code: int | None, number: int | None
) -> None:
    with world.open() as swarm:
        instance = world.work(swarm, f"say last words of mine\n{last_step}")
    wait_until(lambda: world.sessions().get(instance.id) is False, what="the program to end")
    with world.open() as swarm:
        token_rows = swarm.context.db.rows("SELECT revoked_at FROM tokens WHERE revoked_at IS NULL")
        assert len(token_rows) == 1
        ended = wait_exited(swarm, instance.id)
        assert (ended.status, ended.wanted) == (status, "stopped")
        assert (ended.exit_code, ended.exit_signal) == (code, number)
        assert "last words of mine" in ended.last_screen
        assert "last words of mine" in swarm.screen(ended)
        [event] = [e for e in swarm.events(instance_id=instance.id) if e.name == "instance:exited"]
        assert (event.metadata["exit_code"], event.metadata["exit_signal"]) == (code, number)
        assert swarm.context.db.rows("SELECT 1 FROM tokens WHERE revoked_at IS NULL") == []
        assert swarm.reconcile() == []
        assert_agreement(world, swarm)


def test_an_agent_killed_by_a_signal_is_recorded_with_it_and_can_be_restarted(world: World) -> None:
    with world.open() as swarm:
        instance = world.work(swarm, "write half.txt kept")
        world.wait_idle(swarm, instance.id)
        assert instance.pid is not None
        os.kill(instance.pid, signal.SIGKILL)
        ended = wait_exited(swarm, instance.id)
        assert (ended.status, ended.exit_code, ended.exit_signal) == ("failed", None, signal.SIGKILL)
        swarm.restart(instance.id)
        wait_shows(swarm, instance.id, "resumed conversation")
        again = swarm.find(instance.id)
        assert (again.exit_code, again.exit_signal, again.reason) == (None, None, "")
        assert_agreement(world, swarm)


def test_a_session_renamed_by_a_person_stays_its_instances(world: World) -> None:
    with world.open() as swarm:
        instance = world.work(swarm)
        world.wait_idle(swarm, instance.id)
        tmux(world, "rename-session", "-t", f"={instance.id}", "mine now")
        assert swarm.reconcile() == []
        assert swarm.find(instance.id).status == "running"
        assert "ready" in swarm.screen(swarm.find(instance.id))
        assert [c.state for c in checks(swarm, "sessions")] == ["ok"]
        again = swarm.restart(instance.id)
        assert again.status == "running"
        wait_shows(swarm, instance.id, "resumed conversation")
        tmux(world, "rename-session", "-t", f"={instance.id}", "another")
        stopped = swarm.stop(instance.id)
        assert stopped.status == "terminated"
        assert world.sessions() == {}
        assert_agreement(world, swarm)


def test_a_person_who_attaches_to_a_renamed_session_is_led_to_it(world: World) -> None:
    with world.open() as swarm:
        instance = world.work(swarm)
        tmux(world, "rename-session", "-t", f"={instance.id}", "mine")
        argv = swarm.attach_argv(swarm.find(instance.id))
        target = argv[argv.index("-t") + 1]
        assert tmux(world, "display-message", "-p", "-t", f"{target}:", "#{@swarm_instance}") == instance.id


def test_a_pane_split_by_a_person_is_neither_the_agent_nor_in_its_way(world: World) -> None:
    with world.open() as swarm:
        instance = world.work(swarm, "say the agent speaks")
        world.wait_idle(swarm, instance.id)
        tmux(world, "split-window", "-t", f"={instance.id}:", "exec sleep 600")
        assert swarm.reconcile() == []
        assert "the agent speaks" in swarm.screen(swarm.find(instance.id))
        assert instance.pid is not None
        os.kill(instance.pid, signal.SIGKILL)
        assert wait_exited(swarm, instance.id).exit_signal == signal.SIGKILL
        swarm.restart(instance.id)
        wait_shows(swarm, instance.id, "resumed conversation")
        assert swarm.stop(instance.id).status == "terminated"
        assert_agreement(world, swarm)


def test_a_session_nobody_recorded_is_reported_and_never_ended(world: World) -> None:
    with world.open() as swarm:
        instance = world.work(swarm)
        world.wait_idle(swarm, instance.id)
        tmux(world, "new-session", "-d", "-s", "visitor", "sleep", "600")
        tmux(world, "new-session", "-d", "-s", "work-a77", "sleep", "600")
        tmux(world, "set-option", "-t", "=work-a77:", "@swarm_instance", "work-a77")
        tmux(world, "set-option", "-F", "-t", "=work-a77:", "@swarm_pane", "#{pane_id}")
        for fix in (False, True):
            warned = {c.message.split()[1] for c in checks(swarm, "sessions", fix=fix) if c.state == "warn"}
            assert "work-a77" in warned
        swarm.reconcile()
        swarm.stop(instance.id)
        swarm.clean(instance.id)
        assert world.sessions() == {"visitor": True, "work-a77": True}


def test_a_stranger_without_our_mark_is_reported_too(world: World) -> None:
    with world.open() as swarm:
        world.work(swarm)
        tmux(world, "new-session", "-d", "-s", "visitor", "sleep", "600")
        assert any("visitor" in c.message for c in checks(swarm, "sessions"))


def test_an_open_action_in_living_hands_is_left_alone(world: World) -> None:
    with world.open() as swarm, world.open() as other:
        instance = world.work(swarm)
        world.wait_idle(swarm, instance.id)
        with swarm.context.lock(instance.id):
            stop.request(swarm.context, instance, actor="operator")
            assert other.reconcile() == []
            assert other.doctor(fix=True)
            assert actions.open_for(other.context.db, instance.id) is not None
            assert world.sessions() == {instance.id: True}
        [finding] = other.reconcile()
        assert finding.mended
        assert actions.all_open(other.context.db) == []


def test_an_operation_on_an_instance_in_other_hands_says_so_and_changes_nothing(world: World) -> None:
    with world.open() as swarm:
        instance = world.work(swarm)
    (world.home / "config.toml").write_text("lock_timeout = 0.2\n")
    with world.open() as swarm, locks.hold(world.settings.locks / f"{instance.id}.lock"):
        before = swarm.context.db.rows("SELECT count(*) FROM mcp_events")[0][0]
        for operation in (swarm.stop, swarm.restart, swarm.clean, swarm.restore):
            with pytest.raises(Conflict) as refused:
                operation(instance.id)
            assert refused.value.code == "INSTANCE_BUSY"
        assert swarm.context.db.rows("SELECT count(*) FROM mcp_events")[0][0] == before


def order(world: World, instance: Instance, epoch: int) -> StartOrder:
    return {
        "instance_id": instance.id,
        "epoch": epoch,
        "cwd": instance.worktree_path,
        "argv": ["/bin/sleep", "600"],
        "resume_argv": None,
        "resume_probe": [],
        "agent": "scripted",
        "resume": False,
        "env": {},
        "unset": [],
        "files": {},
        "secrets": {"SWARM_TOKEN": "x"},
    }


def test_a_start_with_an_older_epoch_is_refused_the_same_changes_nothing_a_newer_replaces(world: World) -> None:
    with world.open() as swarm:
        instance = world.work(swarm)
        instance = swarm.restart(instance.id)
        host = swarm.context.host(instance)
        with pytest.raises(Conflict) as refused:
            host.start(order(world, instance, 1))
        assert refused.value.code == "STALE_EPOCH"
        assert host.start(order(world, instance, 2))["pid"] == instance.pid
        newer = host.start(order(world, instance, 3))
        assert newer["epoch"] == 3
        assert newer["pid"] != instance.pid
        [running] = host.sessions()
        assert running["pid"] == newer["pid"]


def test_a_session_of_another_epoch_than_recorded_is_ended(world: World) -> None:
    with world.open() as swarm:
        instance = world.work(swarm)
        swarm.context.host(instance).start(order(world, instance, 9))
        findings = swarm.reconcile()
        assert [f.mended for f in findings] == [True]
        wait_until(lambda: not world.sessions(), what="the foreign start to end")
        assert wait_exited(swarm, instance.id).status == "failed"
        assert_agreement(world, swarm)


def test_stopping_one_agent_leaves_those_whose_names_begin_like_its_own(world: World) -> None:
    with world.open() as swarm:
        swarm.work("say ready", repo=str(world.repo), agent="scripted", count=12)
        swarm.stop("work-a1")
        swarm.stop("work-a2")
        alive = {name for name, living in world.sessions().items() if living}
        assert alive == {f"work-a{n}" for n in range(3, 13)}
        assert_agreement(world, swarm)


def test_an_agent_that_survives_its_tmux_server_does_not_run_beside_its_successor(
    world: World, short_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that ignores the hang-up goes on when the server is killed; a restart must not make it two."""
    programs = short_tmp / "bin"
    programs.mkdir()
    stubborn = programs / "codex"
    stubborn.write_text("#!/bin/sh\ntrap '' HUP\necho $$ >> pids\nwhile :; do sleep 1; done\n")
    stubborn.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    with world.open() as swarm:
        instance = swarm.work("anything", repo=str(world.repo), agent="codex")[0]
        pids = Path(instance.worktree_path) / "pids"
        wait_until(pids.exists, what="the program to run")
        first = int(pids.read_text())
        try:
            kill_server_process(world)
            wait_exited(swarm, instance.id)
            swarm.restart(instance.id)
            wait_until(lambda: len(pids.read_text().split()) == 2, what="the second program to run")
            wait_until(lambda: not Path(f"/proc/{first}").exists(), what="the first program to end")
        finally:
            subprocess.run(["kill", "-9", str(first)], check=False, capture_output=True)


def test_a_token_dies_with_its_start(world: World) -> None:
    with world.open() as swarm:
        instance = world.work(swarm)
        db = swarm.context.db
        with db.write():
            first = tokens.issue(db, instance.id, instance.epoch)
        assert token_owner(db, first) == instance.id
        swarm.restart(instance.id)
        assert token_owner(db, first) is None
        with db.write():
            stale = tokens.issue(db, instance.id, 1)
            fresh = tokens.issue(db, instance.id, 2)
        assert token_owner(db, stale) is None
        assert token_owner(db, fresh) == instance.id
        swarm.stop(instance.id)
        assert token_owner(db, fresh) is None
        assert token_owner(db, "") is None

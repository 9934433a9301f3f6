"""Where supervision once went blind: one instance's trouble, a slow chore, hostile files, races and crowds."""

from __future__ import annotations

import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from swarm_core import process
from swarm_core.errors import SwarmError
from swarm_core.hosts.base import InstanceFacts, Watched
from swarm_core.hosts.local import LocalHost
from swarm_core.hosts.look import Look
from swarm_core.hosts.pool import HostPool
from swarm_core.models import Instance
from swarm_core.ops import supervise
from swarm_core.ops.supervise import Supervisor
from swarm_core.store import actions
from swarm_core.swarm import Swarm
from swarm_core.tmux.panes import Pane, list_panes
from tests.support import wait_until
from tests.world import World, assert_agreement

LONG_AGO = "2026-01-01T00:00:00.000Z"
_ROOT = str(Path(__file__).parents[2])


def crash(world: World, checkpoint: str, operation: str, *arguments: str) -> None:
    """Run the operation in a process that dies at the checkpoint; fails if it never got there."""
    argv = [sys.executable, "-m", "tests.fakes.crash", checkpoint, operation, *arguments]
    env = world.environ | {"PYTHONPATH": _ROOT}
    done = subprocess.run(argv, cwd=world.repo, env=env, capture_output=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


def kill(world: World, instance: Instance) -> None:
    """Kill the agent's program; returns when tmux knows it."""
    assert instance.pid is not None
    os.kill(instance.pid, signal.SIGKILL)
    wait_until(lambda: world.sessions().get(instance.id) is False, what=f"{instance.id} is dead")


def in_time(work: Callable[[], object], *, seconds: float = 10.0) -> None:
    """Run it in a thread that must end in time; raises what it raised."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - handed to the test
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), f"not within {seconds:g} s"
    if raised:
        raise raised[0]


def files(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def tmux(world: World, *words: str) -> str:
    argv = ["tmux", "-S", str(world.settings.tmux_socket), "-f", os.devnull, *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=20)
    return done.stdout.strip()


# One instance's trouble is its own


@pytest.fixture
def mounted(world: World) -> Iterator[Callable[[Path], None]]:
    """Makes a folder that nobody can remove, root included: something is mounted on it."""
    if os.geteuid() != 0 or not sys.platform.startswith("linux"):
        pytest.skip("mounting needs root on Linux")

    def mount(at: Path) -> None:
        at.mkdir(parents=True)
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "none", str(at)], capture_output=True, timeout=20, check=False
        )
        if done.returncode != 0:
            pytest.skip("mounting is not allowed here")
        (at / "held").touch()

    yield mount
    unmount(world)


def unmount(world: World) -> None:
    """Also where a removal has moved the folder meanwhile."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        point = line.split()[1]
        if point.startswith(f"{world.home}/"):
            subprocess.run(["umount", "-l", point], check=True, capture_output=True, timeout=20)


def test_a_worktree_that_cannot_be_deleted_fails_with_a_code_and_the_others_are_looked_at(
    world: World, mounted: Callable[[Path], None]
) -> None:
    (world.repo / ".git" / "info" / "exclude").write_text("node_modules\n")
    with world.open() as swarm:
        stuck, other = world.work(swarm), world.work(swarm, "busy 600")
        world.wait_idle(swarm, stuck.id)
        swarm.stop(stuck.id)
        (Path(stuck.worktree_path) / "draft.txt").write_text("not committed\n")
        mounted(Path(stuck.worktree_path) / "node_modules")
        with pytest.raises(SwarmError) as refused:
            swarm.clean(stuck.id)
        assert refused.value.code == "WORKTREE_KEPT"
        kill(world, other)
        swarm.reconcile()
        found = swarm.find(other.id)
        assert (found.status, found.activity, found.exit_signal) == ("failed", "exited", signal.SIGKILL)
        assert json.loads(swarm.find(stuck.id).kept)["reason"] == "other_device"
        assert world.command("ls").returncode == 0
        unmount(world)
        swarm.reconcile()
        if not swarm.find(stuck.id).cleaned:
            swarm.clean(stuck.id)
        assert swarm.find(stuck.id).problem == ""
        assert_agreement(world, swarm)
        swarm.restore(stuck.id)
        assert (Path(stuck.worktree_path) / "draft.txt").read_text() == "not committed\n"


def test_a_coordinators_look_goes_on_past_a_worktree_that_cannot_be_deleted(
    world: World, mounted: Callable[[Path], None]
) -> None:
    (world.repo / ".git" / "info" / "exclude").write_text("node_modules\n")
    with world.open() as swarm:
        stuck, other = world.work(swarm), world.work(swarm, "busy 600")
        world.wait_idle(swarm, stuck.id)
        swarm.stop(stuck.id)
    mounted(Path(stuck.worktree_path) / "node_modules")
    crash(world, "clean:worktree:before", "clean", stuck.id)
    kill(world, other)
    with world.open() as swarm:
        supervisor = Supervisor(swarm.context)
        supervisor.look()
        assert swarm.find(other.id).status == "failed"
        assert supervisor.problem is None


def many_brackets(path: Path) -> None:
    path.write_text("[" * 60000)


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def ten_megabytes(path: Path) -> None:
    path.write_bytes(b'{"activity": "busy", "detail": "' + b"x" * (10 << 20) + b'"}')


def no_text(path: Path) -> None:
    path.write_bytes(b'{"activity": "busy", "detail": "\xff\xfe\x80"}')


def wrong_types(path: Path) -> None:
    path.write_text('{"activity": ["busy"], "detail": {}, "at": 1e400}')


def distant_time(path: Path) -> None:
    path.write_text('{"activity": "busy", "at": "0001-01-01T00:00:00+14:00"}')


def device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


ODD = (many_brackets, fifo, folder, ten_megabytes, no_text, wrong_types, distant_time, device)


def test_whatever_agents_put_in_their_status_files_the_others_are_looked_at(world: World) -> None:
    with world.open() as swarm:
        made = swarm.work("say ready", repo=str(world.repo), agent="scripted", count=len(ODD) + 2)
        for one in made:
            world.wait_idle(swarm, one.id)
        paths = [world.settings.instance_dir(one.id) / "status.json" for one in made]
        for make, path in zip(ODD, paths, strict=False):
            make(path)
        changing, dying = made[-2:]
        paths[-2].write_text('{"activity": "busy"}')
        kill(world, dying)
        try:
            in_time(swarm.reconcile)
        finally:
            os.close(os.open(paths[ODD.index(fifo)], os.O_RDWR | os.O_NONBLOCK))  # lets go of whoever waits at it
        assert swarm.find(dying.id).status == "failed"
        assert swarm.find(changing.id).activity == "busy"
        assert {swarm.find(one.id).status for one in made[:-1]} == {"running"}
        assert world.command("ls", timeout=20).returncode == 0


# A slow chore


class SlowCheckout:
    """Every checkout stops at its hook, which makes the file `began`, until `release`."""

    def __init__(self, world: World, folder: Path) -> None:
        self.began, gate = folder / "began", folder / "gate"
        os.mkfifo(gate)
        self._held = os.open(gate, os.O_RDWR)
        self._hook = world.repo / ".git" / "hooks" / "post-checkout"
        self._hook.write_text(f"#!/bin/sh\n: > {shlex.quote(str(self.began))}\ncat {shlex.quote(str(gate))} >&2\n")
        self._hook.chmod(0o755)

    def release(self) -> None:
        if self._hook.exists():
            self._hook.unlink()
            os.close(self._held)  # whoever reads the pipe comes to its end


@contextmanager
def slow_checkout(world: World, folder: Path) -> Iterator[SlowCheckout]:
    slow = SlowCheckout(world, folder)
    try:
        yield slow
    finally:
        slow.release()


@contextmanager
def supervised(swarm: Swarm) -> Iterator[Supervisor]:
    supervisor = Supervisor(swarm.context)
    thread = threading.Thread(target=supervisor.run, daemon=True)
    thread.start()
    try:
        yield supervisor
    finally:
        supervisor.stop()
        thread.join(20)
        assert not thread.is_alive()


def assert_death_is_noticed(swarm: Swarm, instance: Instance) -> None:
    assert instance.pid is not None
    os.kill(instance.pid, signal.SIGKILL)
    wait_until(
        lambda: swarm.find(instance.id).status == "failed",
        timeout=1.5,
        what=f"the death of {instance.id} is recorded",
    )


def test_a_death_is_noticed_by_itself_and_not_by_the_next_look(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No look is due for ten minutes, so only the death can tell; how soon is measured in `benchmarks death`."""
    monkeypatch.setattr(supervise, "TICK", 600.0)

    def quiet() -> bool:
        looked_at = supervisor.looked_at
        time.sleep(1)
        return supervisor.looked_at == looked_at

    with world.open() as swarm, world.open() as watching, supervised(watching) as supervisor:
        agents = [world.work(swarm, "busy 600") for _ in range(3)]
        for agent in agents:
            wait_until(lambda: swarm.find(agent.id).activity == "busy", what="it was looked at")  # noqa: B023
            wait_until(quiet, what="nothing happens, so nobody looks")
            assert_death_is_noticed(swarm, agent)


def test_an_operation_that_this_process_begins_is_looked_at_before_the_next_look_is_due(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator's tools write with its supervisor's connection; no look is due for ten minutes."""
    monkeypatch.setattr(supervise, "TICK", 600.0)
    with world.open() as swarm:
        work = world.work(swarm)
        world.wait_idle(swarm, work.id)
        with supervised(swarm) as supervisor:
            wait_until(lambda: supervisor.looked_at is not None, what="the first look")
            looked_at = supervisor.looked_at
            swarm.set_status(work.id, "terminated", actor=work.id)
            wait_until(lambda: supervisor.looked_at != looked_at, what="the begun stop is seen")


def test_an_operation_begun_during_a_look_is_looked_at_by_another(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervise, "TICK", 600.0)
    with world.open() as local, world.open() as person:
        host = Interrupted(world.settings, world.environ)
        swarm = Swarm(replace(local.context, hosts=HostPool([host])), world.environ)
        work = world.work(swarm)
        world.wait_idle(swarm, work.id)
        again = threading.Event()

        def begin() -> None:
            host.meanwhile = again.set
            person.set_status(work.id, "terminated", actor=work.id)

        host.meanwhile = begin
        with supervised(swarm):
            wait_until(again.is_set, what="another look")


def test_a_death_is_recorded_at_once_while_the_pool_is_filled(world: World, short_tmp: Path) -> None:
    world.home.mkdir()
    (world.home / "config.toml").write_text("pool = 1\n")
    with world.open() as swarm:
        instance = world.work(swarm, "busy 600")
        with supervised(swarm), slow_checkout(world, short_tmp) as slow:
            wait_until(slow.began.exists, what="the pool is being filled")
            assert_death_is_noticed(swarm, instance)


def test_a_death_is_recorded_at_once_while_an_interrupted_spawn_is_finished(world: World, short_tmp: Path) -> None:
    with world.open() as swarm:
        instance = world.work(swarm, "busy 600")
        crash(world, "spawn:worktree:before", "spawn")
        with swarm.context.db.write():  # long ago, so that nobody is about to finish it
            swarm.context.db.execute("UPDATE actions SET started_at = ? WHERE state = 'open'", [LONG_AGO])
        with supervised(swarm), slow_checkout(world, short_tmp) as slow:
            wait_until(slow.began.exists, what="the spawn is being finished")
            assert_death_is_noticed(swarm, instance)
            slow.release()
            wait_until(lambda: not actions.all_open(swarm.context.db), what="the spawn is finished")
        assert swarm.find("work-a2").status == "running"


# A repository that is gone


def test_a_clean_without_its_repository_is_refused_while_the_files_are_there_and_succeeds_without_them(
    world: World,
) -> None:
    with world.open() as swarm:
        instance = world.work(swarm)
        world.wait_idle(swarm, instance.id)
        swarm.stop(instance.id)
        root = Path(instance.worktree_path)
        (root / "draft.txt").write_text("only here\n")
        shutil.rmtree(world.repo)
        before, row = files(root), swarm.find(instance.id)
        for _ in range(2):
            with pytest.raises(SwarmError) as refused:
                swarm.clean(instance.id)
            assert refused.value.code == "GIT_REPOSITORY_NOT_FOUND"
            assert refused.value.hint
            after = swarm.find(instance.id)
            assert (after.status, after.wanted, after.cleaned) == (row.status, row.wanted, False)
            assert files(root) == before
            assert actions.all_open(swarm.context.db) == []
        swarm.reconcile()
        assert files(root) == before
        shutil.rmtree(root)
        assert swarm.clean(instance.id).cleaned
        assert swarm.instances() == []
        assert swarm.reconcile() == []


def test_an_interrupted_spawn_whose_repository_was_deleted_ends_as_failed(world: World, short_tmp: Path) -> None:
    crash(world, "spawn:worktree:before", "spawn")
    shutil.rmtree(world.repo)
    with world.open() as swarm:
        swarm.reconcile()
        swarm.reconcile()
        attempt = swarm.find("work-a1")
        assert (attempt.status, attempt.wanted, attempt.cleaned) == ("failed", "removed", True)
        assert actions.all_open(swarm.context.db) == []
        assert swarm.instances() == []
        assert not Path(attempt.worktree_path).exists()


# Races


class Interrupted(LocalHost):
    """This machine, on which something happens between a look and its recording."""

    meanwhile: Callable[[], object] | None = None

    def snapshot(self, watched: list[Watched]) -> dict[str, InstanceFacts]:
        facts = super().snapshot(watched)
        happen, self.meanwhile = self.meanwhile, None
        if happen:
            happen()
        return facts


@pytest.mark.parametrize("operation", ["stop", "restart"])
def test_what_was_seen_before_a_stop_or_restart_does_not_overwrite_what_it_recorded(
    world: World, operation: str
) -> None:
    with world.open() as local, world.open() as person:
        host = Interrupted(world.settings, world.environ)
        swarm = Swarm(replace(local.context, hosts=HostPool([host])), world.environ)
        instance = world.work(swarm)
        world.wait_idle(swarm, instance.id)
        status = world.settings.instance_dir(instance.id) / "status.json"
        status.write_text('{"activity": "blocked", "detail": "of the start before"}')
        recorded: list[Instance] = []
        host.meanwhile = lambda: recorded.append(getattr(person, operation)(instance.id))
        swarm.reconcile()
        [ended] = recorded
        found = swarm.find(instance.id)
        assert (found.activity, found.activity_detail) == (ended.activity, ended.activity_detail)
        assert (found.status, found.wanted) == (ended.status, ended.wanted)
        assert "blocked" not in [e.metadata.get("to") for e in swarm.events() if e.name == "instance:activity"]


def marked_sessions(world: World, names: list[str], program: str, folder: Path) -> None:
    """Sessions that look like instances', all made by one tmux process."""
    lines = ["set -s exit-empty off"]
    for name in names:
        lines += [
            f"new-session -d -s {name} -x 80 -y 24 {shlex.quote(program)}",
            f"set-option -t ={name}: @swarm_instance {name}",
            f"set-option -t ={name}: @swarm_epoch 1",
            f"set-option -F -t ={name}: @swarm_pane '#{{pane_id}}'",
        ]
    script = folder / "sessions.conf"
    script.write_text("\n".join(lines) + "\n")
    world.home.mkdir(exist_ok=True)
    tmux(world, "start-server", ";", "source-file", str(script))


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


class Restless(Look):
    """Looks at panes that tmux has listed once and whose programs seem to change at every look."""

    listed: list[Pane] = []  # noqa: RUF012

    def _all_panes(self) -> list[Pane]:
        if not self.listed:
            self.listed = super()._all_panes()
        pids = random.choices([pane.pid for pane in self.listed], k=len(self.listed))
        return [replace(pane, pid=pid) for pane, pid in zip(self.listed, pids, strict=True)]


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Threads that give way to each other a thousand times as often."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(usual / 1000)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("eager_threads")
def test_many_threads_look_while_one_waits_and_no_descriptor_leaks(world: World, short_tmp: Path) -> None:
    names = [f"work-a{n}" for n in range(1, 25)]
    marked_sessions(world, names, "exec cat", short_tmp)
    watched: list[Watched] = [
        {"instance_id": n, "agent": "scripted", "worktree_path": str(short_tmp)} for n in names
    ]
    for name in names:
        folder = world.settings.instance_dir(name)
        folder.mkdir(parents=True)
        (folder / "status.json").write_text('{"activity": "idle"}')
    at_first = descriptors()
    look = Restless(world.settings)
    look.snapshot(watched)
    assert len(look.listed) == len(names)
    look.wait(0)
    before = descriptors()
    raised: list[BaseException] = []
    over = time.monotonic() + 2

    def until_over(work: Callable[[], object]) -> None:
        while time.monotonic() < over and not raised:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - handed to the test
                raised.append(error)

    works = [lambda: look.snapshot(watched)] * 4 + [lambda: look.wait(0.001)]
    threads = [threading.Thread(target=until_over, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    if raised:
        raise raised[0]
    look.snapshot(watched)
    assert look.wait(0) == frozenset()
    assert descriptors() <= before
    look.close()
    assert descriptors() == at_first


@contextmanager
def coordinator(world: World) -> Iterator[None]:
    argv = [sys.executable, "-P", "-m", "swarm_mcp"]
    env = world.environ | {"MCP_SERVER_PORT": "0"}
    child = subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:

        def serving() -> bool:
            assert child.poll() is None, "the coordinator has ended"
            card = process.running(world.settings, process.COORDINATOR)
            return card is not None and bool(card.port)

        wait_until(serving, timeout=30, what="the coordinator runs")
        yield
    finally:
        child.kill()
        child.wait()


def environment(instance: Instance) -> dict[str, str]:
    """What the agent's program was started with."""
    entries = Path(f"/proc/{instance.pid}/environ").read_bytes().decode().split("\0")
    return dict(entry.split("=", 1) for entry in entries if entry)


def test_beside_a_coordinator_agents_still_get_the_environment_of_whoever_started_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with coordinator(world):
        monkeypatch.setenv("A_KEY", "of the caller")
        done = world.command("work", "say ready", "--agent", "scripted", "--count", "16", "--json")
        assert done.returncode == 0, done.stderr.decode()
    with world.open() as swarm:
        made = swarm.instances()
        assert len(made) == 16
        assert [i.id for i in made if environment(i).get("A_KEY") != "of the caller"] == []


def test_a_tmux_that_an_agent_starts_is_a_server_of_its_own(
    world: World, short_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = short_tmp / "person"
    theirs.mkdir(mode=0o700)
    monkeypatch.setenv("TMUX_TMPDIR", str(theirs))  # stands for where the person's default server is
    person = dict(os.environ)

    def run(env: dict[str, str], *words: str) -> str:
        argv = ["tmux", "-f", os.devnull, *words]
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=20)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    with world.open() as swarm:
        first, second = (world.work(swarm), world.work(swarm))
        agents = [environment(swarm.find(one.id)) for one in (first, second)]
        folders = [agent["TMUX_TMPDIR"] for agent in agents]
        assert len({*folders, str(theirs)}) == 3
        assert all(Path(folder).is_dir() for folder in folders)  # or tmux falls back to /tmp
        try:
            run(person, "new-session", "-d", "-s", "mine", "exec cat")
            for agent in agents:
                run(agent, "new-session", "-d", "-s", "devserver", "exec cat")
                assert run(agent, "list-sessions", "-F", "#{session_name}") == "devserver"
            assert run(person, "list-sessions", "-F", "#{session_name}") == "mine"
            assert world.sessions() == {first.id: True, second.id: True}
            swarm.stop(first.id)
            assert run(person, "list-sessions", "-F", "#{session_name}") == "mine"
            assert run(agents[1], "list-sessions", "-F", "#{session_name}") == "devserver"
            assert world.sessions() == {second.id: True}
        finally:
            for env in (person, *agents):
                subprocess.run(["tmux", "kill-server"], env=env, capture_output=True, check=False, timeout=20)


# Crowds


def test_the_changed_screens_of_230_panes_are_all_read_in_one_look(world: World, short_tmp: Path) -> None:
    names = [f"work-a{n}" for n in range(1, 231)]
    marked_sessions(world, names, "printf '\\342\\200\\272 '; exec cat", short_tmp)
    wait_until(
        lambda: set(tmux(world, "list-panes", "-a", "-F", "#{cursor_x}").split()) == {"2"},
        what="every program has shown its prompt",
    )
    watched: list[Watched] = [{"instance_id": n, "agent": "codex", "worktree_path": str(short_tmp)} for n in names]
    look = Look(world.settings)
    try:
        facts = look.snapshot(watched)
    finally:
        look.close()
    readings = [facts[n]["reading"] for n in names]
    assert {(r["activity"], r["source"]) for r in readings if r} == {("idle", "pane")}
    assert None not in readings


def test_a_server_without_a_session_has_no_panes(world: World, short_tmp: Path) -> None:
    marked_sessions(world, [], "", short_tmp)
    assert tmux(world, "list-sessions") == ""
    assert list_panes(world.settings.tmux_socket) == []
    with world.open() as swarm:
        assert swarm.reconcile() == []
        assert world.work(swarm).status == "running"

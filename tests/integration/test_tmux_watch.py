"""Noticing the end of processes, and ending all that a pane started."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from swarm_core.tmux import panes, processes
from swarm_core.tmux.watch import DeathWatch
from tests.integration.tmux_fixture import Server, in_time, tmux_server
from tests.support import wait_until

STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
env = {} if sys.argv[2] == "clean" else None
line = "import signal, time; signal.signal(15, signal.SIG_IGN); signal.signal(1, signal.SIG_IGN); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", line], start_new_session=True, env=env)
forks = ("import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', sys.argv[1]],"
         " start_new_session=True, stdout=-3, stderr=-3).pid)")
orphan = subprocess.run([sys.executable, "-c", forks, line], capture_output=True, text=True).stdout.strip()
with open(sys.argv[1] + ".new", "w") as sink:
    sink.write(f"{child.pid} {orphan}")
os.rename(sys.argv[1] + ".new", sys.argv[1])
print("up", flush=True)
time.sleep(600)
"""


@pytest.fixture
def server(short_tmp: Path) -> Iterator[Server]:
    with tmux_server(short_tmp) as running:
        yield running


@pytest.fixture
def watch() -> Iterator[DeathWatch]:
    with DeathWatch() as watching:
        yield watching


def test_the_end_of_a_program_is_noticed_within_a_second(server: Server, watch: DeathWatch) -> None:
    started = {name: server.start(name, "sleep", "60").pid for name in ("a", "b", "c")}
    watch.set(started)
    assert watch.wait(0.0) == set()
    os.kill(started["b"], signal.SIGKILL)
    before = time.monotonic()
    assert watch.wait(5.0) == {"b"}
    assert time.monotonic() - before < 1.0
    assert watch.wait(0.0) == set()
    assert server.until_dead("b").exit_signal == 9


def test_watching_is_changed_step_by_step_and_leaks_no_descriptor(server: Server, watch: DeathWatch) -> None:
    first, second = (server.start(name, "sleep", "60").pid for name in ("a", "b"))
    open_before = len(list(Path("/proc/self/fd").iterdir()))
    watch.set({"a": first, "b": second})
    watch.set({"b": second})
    os.kill(first, signal.SIGKILL)
    assert watch.wait(0.1) == set()
    watch.set({"b": first})
    assert watch.wait(1.0) == {"b"}
    watch.set({"b": second})
    watch.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == open_before


def test_a_process_that_already_ended_is_reported_at_once(watch: DeathWatch) -> None:
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    watch.set({"gone": gone.pid, "never": 0})
    assert watch.wait(5.0) == {"gone", "never"}


def test_another_descriptor_wakes_the_wait(watch: DeathWatch) -> None:
    watch.set({"self": os.getpid()})
    reader, writer = os.pipe()
    os.write(writer, b"x")
    before = time.monotonic()
    assert watch.wait(30.0, wake=[reader]) == set()
    assert time.monotonic() - before < 5.0
    os.close(reader)
    os.close(writer)


def test_waiting_costs_no_time_of_the_processor(watch: DeathWatch) -> None:
    watch.set({"self": os.getpid()})
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_utime
    assert watch.wait(0.5) == set()
    assert resource.getrusage(resource.RUSAGE_THREAD).ru_utime - before < 0.02


def test_without_pidfds_it_asks_four_times_a_second(
    watch: DeathWatch, monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    pane = server.start("a", "sleep", "60")
    watch.set({"a": pane.pid})
    assert watch.wait(0.3) == set()
    os.kill(pane.pid, signal.SIGKILL)
    server.until_dead("a")
    assert watch.wait(5.0) == {"a"}


@pytest.mark.parametrize("environment", ["inherited", "clean"])
def test_ending_kills_a_stubborn_program_and_what_left_its_session(server: Server, environment: str) -> None:
    report = server.folder / "pids"
    pane = server.python("stubborn", STUBBORN, str(report), environment)
    wait_until(report.exists)
    child, orphan = map(int, report.read_text().split())
    bystander = server.start("bystander", "sleep", "60")
    ended = server.tmux.end_processes("stubborn", 0.3)
    assert ended.pane is not None
    assert (ended.pane.dead, ended.pane.exit_signal) == (True, signal.SIGKILL)
    assert ended.screen == "up"
    assert ended.killed >= 1
    assert in_time([pane.pid, child, orphan])
    assert [p.instance for p in panes.list_panes(server.socket)] == ["bystander"]
    assert not in_time([bystander.pid])


def test_a_polite_program_ends_itself_and_its_exit_code_is_kept(server: Server) -> None:
    code = (
        "import signal, sys, time\n"
        "signal.signal(15, lambda *_: (print('bye', flush=True), sys.exit(7)))\n"
        "print('hello', flush=True); time.sleep(600)"
    )
    server.python("polite", code)
    server.until_shows("polite", "hello")
    before = time.monotonic()
    ended = server.tmux.end_processes("polite", 10.0)
    assert time.monotonic() - before < 5.0
    assert ended.pane is not None
    assert (ended.pane.exit_code, ended.killed) == (7, 0)
    assert ended.screen.splitlines()[0] == "hello"
    assert panes.list_panes(server.socket) == []


def test_an_interactive_shell_ends_within_the_grace(server: Server) -> None:
    server.start("shell", "env", "PS1=prompt", "bash", "--norc", "-i")
    server.until_shows("shell", "prompt")
    before = time.monotonic()
    ended = server.tmux.end_processes("shell", 10.0)
    assert time.monotonic() - before < 5.0
    assert ended.pane is not None
    assert ended.pane.exit_signal == signal.SIGHUP


def test_a_stopped_program_ends_too(server: Server) -> None:
    pane = server.start("stopped", "sleep", "60")
    os.kill(pane.pid, signal.SIGSTOP)
    ended = server.tmux.end_processes("stopped", 5.0)
    assert ended.pane is not None
    assert ended.pane.exit_signal == signal.SIGTERM


def test_ending_what_has_ended_or_never_was_is_fine(server: Server) -> None:
    server.start("gone", "sh", "-c", "echo last; read x; exit 3")
    server.until_shows("gone", "last")
    server.tmux.send_keys("gone", "Enter")
    server.until_dead("gone")
    ended = server.tmux.end_processes("gone", 5.0)
    assert ended.pane is not None
    assert (ended.pane.exit_code, ended.screen, ended.killed) == (3, "last", 0)
    assert server.tmux.end_processes("gone", 5.0).pane is None
    assert server.tmux.end_processes("never", 5.0).pane is None


def test_a_mark_finds_a_process_that_left_everything_else_behind(server: Server) -> None:
    report = server.folder / "pid"
    code = (
        "import os, subprocess, sys\n"
        "p = subprocess.Popen(['sleep', '600'], start_new_session=True,"
        " env={'SWARM_INSTANCE_DIR': sys.argv[2], 'PATH': os.environ['PATH']})\n"
        "open(sys.argv[1], 'w').write(str(p.pid))"
    )
    server.python("marked", code, str(report), str(server.folder))
    server.until_dead("marked")
    pid = int(report.read_text())
    ended = server.tmux.end_processes("marked", 1.0, mark=f"SWARM_INSTANCE_DIR={server.folder}")
    assert ended.killed == 1
    assert in_time([pid])


def test_ending_one_of_twelve_leaves_the_others_alone(server: Server) -> None:
    """Pane %1 must not be taken for %10 and %11, nor work-1 for work-11."""
    started = {
        f"work-{n}": server.start(
            f"work-{n}", "env", f"SWARM_INSTANCE_DIR={server.folder}/work-{n}", "sleep", "600"
        )
        for n in range(12)
    }
    server.tmux.end_processes("work-1", 5.0, mark=f"SWARM_INSTANCE_DIR={server.folder}/work-1")
    alive = {name for name, pane in panes.by_instance(panes.list_panes(server.socket)).items() if not pane.dead}
    assert alive == started.keys() - {"work-1"}


def test_a_reused_number_of_a_dead_leader_is_left_alone() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True) as other:
        try:
            assert processes.members(other.pid, None) == []
            seen = processes.one(other.pid)
            assert seen is not None
            assert processes.members(other.pid, "another start") == []
        finally:
            other.kill()

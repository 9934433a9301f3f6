"""Sessions on a real tmux server: what runs in them, what is marked, what leaks and what does not."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from swarm_core.errors import Conflict, ExternalFailure, InvalidInput, NotFound
from swarm_core.tmux import command, conf, panes
from tests.integration.tmux_fixture import Server, start_environment, tmux_server
from tests.support import wait_until

WRITE_ARGV = (
    "import json, os, sys; json.dump([sys.argv[2:], os.getcwd(), dict(os.environ)], open(sys.argv[1], 'w'))"
)
ODD = [
    "two words",
    'it\'s "quoted"',
    "a;b",
    "ends;",
    ";",
    "\\;",
    "back\\;",
    "#{pane_id}",
    "##",
    "#(date)",
    "-leading",
    "--",
    "",
    "$HOME `id` ~",
    "ünï ☃",
    "tab\there",
    "line\nbreak",
    "%H {x} *",
]


@pytest.fixture
def server(short_tmp: Path) -> Iterator[Server]:
    with tmux_server(short_tmp) as running:
        yield running


def test_the_program_gets_its_arguments_and_folder_exactly(server: Server) -> None:
    folder = server.folder / "odd #{pane_id} #[x] ; folder"
    folder.mkdir()
    report = server.folder / "argv.json"
    server.start("work-1-a1", sys.executable, "-c", WRITE_ARGV, str(report), *ODD, cwd=folder)
    assert server.until_dead("work-1-a1").exit_code == 0
    argv, cwd, _ = json.loads(report.read_text())
    assert argv == ODD
    assert cwd == str(folder)


def test_a_single_word_is_a_program_and_not_a_shell_line(server: Server) -> None:
    program = server.folder / "a program; exit 7"
    program.write_text('#!/bin/sh\necho "$#" "$0"\nread x\nexit 3\n')
    program.chmod(0o700)
    pane = server.start("one", str(program))
    server.until_shows("one", f"0 {program}")
    server.tmux.send_keys("one", "Enter")
    assert server.until_dead("one").exit_code == 3
    assert server.pane("one").pid == pane.pid


def test_marks_and_size_are_there_from_the_start(server: Server) -> None:
    pane = server.start("work-7-a2", "sleep", "60", epoch=4)
    assert (pane.instance, pane.session, pane.epoch) == ("work-7-a2", "work-7-a2", 4)
    assert (pane.width, pane.height, pane.dead, pane.attached) == (200, 50, False, 0)
    [listed] = panes.list_panes(server.socket)
    assert (listed.pane_id, listed.pid, listed.epoch) == (pane.pane_id, pane.pid, 4)


def test_a_taken_name_is_a_conflict_and_changes_nothing(server: Server) -> None:
    first = server.start("taken", "sleep", "60", epoch=1)
    with pytest.raises(Conflict) as caught:
        server.start("taken", "sleep", "61", epoch=2)
    assert caught.value.code == "CONFLICT"
    [pane] = panes.list_panes(server.socket)
    assert (pane.pid, pane.epoch) == (first.pid, 1)


def test_a_prefix_of_a_name_is_not_the_name(server: Server) -> None:
    server.start("work-12-a1", "sleep", "60")
    assert not server.tmux.has_session("work-1")
    server.tmux.kill_session("work-1")
    assert server.tmux.has_session("work-12-a1")
    with pytest.raises(NotFound) as caught:
        server.tmux.capture("work-1")
    assert caught.value.code == "TMUX_SESSION_NOT_FOUND"


@pytest.mark.parametrize("name", ["", "a b", "a.b", "a:b", "-a", "a;", "#{x}", "x" * 129])
def test_a_name_tmux_would_change_is_refused(server: Server, name: str) -> None:
    with pytest.raises(InvalidInput):
        server.start(name, "sleep", "60")
    assert not server.tmux.has_session(name)


def test_exit_code_and_signal_are_seen_after_death(server: Server) -> None:
    server.start("code", "sh", "-c", "exit 42")
    server.start("signal", "sh", "-c", "kill -KILL $$")
    assert (server.until_dead("code").exit_code, server.until_dead("code").exit_signal) == (42, None)
    assert (server.until_dead("signal").exit_code, server.until_dead("signal").exit_signal) == (None, 9)


def test_a_program_that_dies_at_once_keeps_its_screen(server: Server) -> None:
    """tmux closes the terminal when it learns of the end; one time in a hundred the last bytes are on the way."""
    for number in range(10):
        server.start(f"quick-{number}", "sh", "-c", f"echo first; echo last words {number}; exit 5")
    whole = 0
    for number in range(10):
        assert server.until_dead(f"quick-{number}").exit_code == 5
        whole += server.tmux.capture(f"quick-{number}") == f"first\nlast words {number}"
    assert whole >= 7


def test_an_end_that_tmux_missed_is_learnt_by_looking_twice(server: Server) -> None:
    for number in range(60):
        server.start(f"end-{number}", "sh", "-c", "exit 5")
    for number in range(60):
        assert server.until_dead(f"end-{number}").exit_code == 5


def test_a_program_that_does_not_exist_is_a_dead_pane(server: Server) -> None:
    server.start("nothing", "/no/such/program", "x")
    assert server.until_dead("nothing").exit_code not in (0, None)


def test_a_killed_caller_never_leaves_a_session_without_marks(server: Server) -> None:
    server.start("keeper", "sleep", "60")
    code = (
        "import sys; from pathlib import Path; from swarm_core.tmux.sessions import Tmux; "
        "t = Tmux(Path(sys.argv[1]), Path(sys.argv[2])); print('go', flush=True); "
        "[t.new_session(f'{sys.argv[3]}-{n}', cwd=Path('/'), argv=['sleep', '60'], epoch=1,"
        " start_environment={'PATH': '/usr/bin:/bin'}) for n in range(30)]"
    )
    for round_number in range(3):
        name = f"round{round_number}"
        with subprocess.Popen(
            [sys.executable, "-c", code, str(server.socket), str(server.config), name],
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
            start_new_session=True,
        ) as caller:
            wait_until(lambda name=name: server.tmux.has_session(f"{name}-{3}"), what="sessions appear")
            os.killpg(caller.pid, signal.SIGKILL)
    listed = panes.list_panes(server.socket)
    assert len(listed) > 9
    assert [pane for pane in listed if pane.instance != pane.session or pane.epoch is None] == []


def test_of_eight_racing_starts_exactly_one_wins(server: Server) -> None:
    outcomes: list[str] = []

    def start() -> None:
        try:
            server.start("race", "sleep", "60")
            outcomes.append("started")
        except Conflict:
            outcomes.append("conflict")

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["conflict"] * 7 + ["started"]
    assert len(panes.list_panes(server.socket)) == 1


def test_only_the_pane_we_made_is_the_instance(server: Server) -> None:
    ours = server.start("split", "sleep", "60")
    command.run(server.socket, ["split-window", "-t", "=split:", "sleep 61"])
    command.run(server.socket, ["split-window", "-b", "-t", "=split:", "sleep 62"])
    command.run(server.socket, ["new-session", "-d", "-s", "foreign | session", "sleep 63"])
    listed = panes.list_panes(server.socket)
    assert len(listed) == 4
    assert panes.by_instance(listed).keys() == {"split"}
    assert panes.by_instance(listed)["split"].pane_id == ours.pane_id
    assert server.tmux.find("split").pane_id == ours.pane_id


def test_a_renamed_session_is_still_found_and_ended(server: Server) -> None:
    ours = server.start("before", "cat", "-")
    command.run(server.socket, ["rename-session", "-t", "=before", "after"])
    assert server.pane("before").session == "after"
    server.tmux.send_keys("before", "h", "i")
    server.until_shows("before", "hi")
    ended = server.tmux.end_processes("before", 5.0)
    assert ended.pane is not None
    assert ended.pane.pane_id == ours.pane_id
    assert panes.list_panes(server.socket) == []


def test_no_server_is_an_empty_list_and_no_error(server: Server) -> None:
    assert panes.list_panes(server.socket) == []
    server.start("a", "sleep", "60")
    server.tmux.kill_server()
    wait_until(lambda: not command.is_up(server.socket))
    assert server.socket.exists()
    assert panes.list_panes(server.socket) == []
    assert not server.tmux.has_session("a")
    server.tmux.kill_session("a")
    server.tmux.kill_server()


def test_without_tmux_the_hint_says_how_to_install_it(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ExternalFailure) as caught:
        panes.list_panes(server.socket)
    monkeypatch.undo()
    assert caught.value.code == "TMUX_NOT_AVAILABLE"
    assert "install tmux" in (caught.value.hint or "")


def test_a_socket_path_that_is_too_long_or_relative_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / ("x" * 120), Path("relative")):
        with pytest.raises(InvalidInput):
            panes.list_panes(path)


def test_the_persons_own_server_is_not_touched(
    server: Server, monkeypatch: pytest.MonkeyPatch, short_tmp: Path
) -> None:
    home = Path(os.environ["HOME"])
    (home / ".tmux.conf").write_text("set -g @theirs read\nset -g remain-on-exit off\n")
    own = short_tmp / "own"
    own.mkdir()
    theirs = {**start_environment(), "TMUX_TMPDIR": str(own)}
    subprocess.run(["tmux", "new-session", "-d", "-s", "mine", "sleep 60"], env=theirs, check=True)
    try:
        [socket] = own.glob("*/default")
        monkeypatch.setenv("TMUX_TMPDIR", str(own))
        monkeypatch.setenv("TMUX", f"{socket},1,0")
        monkeypatch.setenv("TMUX_PANE", "%0")
        server.start("ours", "sleep", "60")
        assert command.run(server.socket, ["show-options", "-gqv", "@theirs"]).text == ""
        server.tmux.end_processes("ours", 5.0)
        server.tmux.kill_server()
        listing = subprocess.run(
            ["tmux", "list-sessions", "-F", "#{session_name}"], env=theirs, capture_output=True, check=True
        )
        assert listing.stdout == b"mine\n"
    finally:
        subprocess.run(["tmux", "kill-server"], env=theirs, check=True)


def test_a_secret_of_the_caller_reaches_neither_server_nor_program(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLER_SECRET", "hunter2")
    report = server.folder / "env.json"
    for name in ("first", "second"):
        server.start(name, sys.executable, "-c", WRITE_ARGV, str(report))
        server.until_dead(name)
        assert "CALLER_SECRET" not in json.loads(report.read_text())[2]
    shown = command.run(server.socket, ["show-environment", "-g"]).text
    assert {line.split("=")[0] for line in shown.splitlines()} == {"PATH", "HOME", "LANG", "PWD"}
    pid = command.run(server.socket, ["display-message", "-p", "#{pid}"]).text.strip()
    assert b"hunter2" not in Path(f"/proc/{pid}/environ").read_bytes()


def test_only_the_owner_can_reach_the_socket(server: Server) -> None:
    server.start("a", "sleep", "60")
    assert stat.S_IMODE(server.socket.stat().st_mode) & 0o077 == 0


def test_the_configuration_is_written_once_and_privately(tmp_path: Path) -> None:
    path = tmp_path / "new" / "tmux.conf"
    assert conf.write_config(path, history_limit=77)
    assert not conf.write_config(path, history_limit=77)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert conf.write_config(path, history_limit=78)
    path.chmod(0o644)
    assert conf.write_config(path, history_limit=78)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_server_takes_every_line_of_the_configuration(server: Server) -> None:
    server.start("a", "sleep", "60")
    for scope, option, value in [
        ("-gv", "history-limit", "1000"),
        ("-gwv", "remain-on-exit", "on"),
        ("-gv", "update-environment", ""),
        ("-sv", "set-clipboard", "off"),
        ("-gwv", "allow-rename", "off"),
        ("-gwv", "automatic-rename", "off"),
        ("-sv", "focus-events", "off"),
    ]:
        assert command.run(server.socket, ["show-options", scope, option]).text.strip() == value, option
    said = command.run(server.socket, ["source-file", str(server.config)])
    assert (said.stdout, said.stderr) == (b"", b"")
    assert command.run(server.socket, ["display-message", "-p", "-t", "=a:", "#{pane_in_mode}"]).text == "0\n"


def test_a_missing_configuration_is_written_before_the_server_starts(server: Server) -> None:
    server.config.unlink()
    server.start("a", "sh", "-c", "exit 1")
    assert server.until_dead("a").exit_code == 1


def test_capture_shows_the_screen_or_the_last_lines_of_history(server: Server) -> None:
    server.start("count", "sh", "-c", "seq 1 300; printf '\\033[31mred\\033[0m'; sleep 60")
    server.until_shows("count", "red")
    screen = server.tmux.capture("count").splitlines()
    assert (screen[0], screen[-1]) == ("252", "red")
    assert server.tmux.capture("count", lines=3) == "299\n300\nred"
    assert server.tmux.capture("count", lines=120).splitlines()[0] == "182"
    assert len(server.tmux.capture("count", lines=5000).splitlines()) == 301
    assert "\x1b[31mred" in server.tmux.capture("count", escapes=True)


def test_attach_works_on_a_terminal_and_read_only_does_not_type(server: Server) -> None:
    server.start("seen", "cat", "-")
    argv = server.tmux.attach_argv("seen", read_only=True)
    env = {**start_environment(), "TERM": "xterm"}
    terminal, inner = os.openpty()
    with subprocess.Popen(argv, stdin=inner, stdout=inner, stderr=inner, env=env) as person:
        os.close(inner)
        try:
            wait_until(lambda: server.pane("seen").attached == 1, what="a person is attached")
            os.write(terminal, b"typed\r")
            server.tmux.send_keys("seen", "x")
            server.until_shows("seen", "x")
            assert "typed" not in server.tmux.capture("seen")
        finally:
            person.kill()
            os.close(terminal)


def test_importing_panes_control_or_watch_does_not_import_libtmux() -> None:
    code = (
        "import sys; from swarm_core.tmux import panes, control, watch, conf; assert 'libtmux' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


def test_a_pane_line_of_a_bsd_names_its_signal() -> None:
    line = "7|%1|99|1||KILL|3|200|50|0|1700000000|2|client-4,/dev/pts/1|%1|work-1-a1|work-1-a1"
    pane = panes.parse(line)
    assert (pane.exit_signal, pane.exit_code, pane.epoch, pane.attached) == (9, None, 3, 1)
    with pytest.raises(ExternalFailure):
        panes.parse("nonsense")

"""The life of a session: make, type into, read, end. The only module that imports libtmux.

libtmux's own runner inherits the caller's environment, waits without a bound and reports failures as text, so its
objects run through ours here: named environment, timeout, exit codes.
"""

from __future__ import annotations

import re
import secrets
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import libtmux
from libtmux.common import tmux_cmd

from swarm_core import proc
from swarm_core.errors import CommandFailed, Conflict, InvalidInput, NotFound
from swarm_core.tmux import command, conf, panes, processes
from swarm_core.tmux.panes import Pane
from swarm_core.tmux.text import clean
from swarm_core.tmux.watch import DeathWatch

MAX_PASTE_BYTES = 102 * 1024  # a message of 100 KB with its header
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,127}")
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,15}")
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "fish", "ksh", "tcsh", "csh"})
_KILL_ROUNDS = 5
_KILL_WAIT = 2.0
_STATUS_WAIT = 1.0


@dataclass(frozen=True, slots=True)
class Ended:
    """What was last seen of a session before it was removed; `pane` is None when there was none."""

    pane: Pane | None
    screen: str
    killed: int


class Tmux:
    """Our tmux server on `socket`. Safe to share between threads: each call is processes of its own."""

    def __init__(self, socket: Path, config: Path) -> None:
        self.socket = socket
        self.config = config
        self._server = _Server(socket_path=socket, config_file=str(config))

    def version(self) -> tuple[int, ...]:
        """For example (3, 3) for tmux 3.3a."""
        return command.version()

    def new_session(
        self,
        name: str,
        *,
        cwd: Path,
        argv: Sequence[str],
        epoch: int,
        width: int = 200,
        height: int = 50,
        start_environment: Mapping[str, str],
    ) -> Pane:
        """Start `argv` in a detached session; its marks are set in the same request to the server.

        The server, if it is not up yet, starts with exactly `start_environment`. Later sessions see the server's
        environment, whatever they pass here. Raises Conflict when the name is taken.
        """
        if not _NAME.fullmatch(name):
            raise InvalidInput(f"not a session name: {name!r}")
        if not argv or any("\0" in word for word in argv):
            raise InvalidInput("a session needs a program to run")
        if not cwd.is_dir():
            raise InvalidInput(f"not a folder: {cwd}")
        if not self.config.is_file():
            conf.write_config(self.config)
        words = _new_session_words(name, argv, epoch, width, height)
        answer: tmux_cmd | None = None
        for _ in range(2):  # a server that was just ending answers with a failure
            with command.gate(self.socket):
                answer = self._server.ask(words, env=start_environment, cwd=cwd, check=False)
            if answer.returncode == 0:
                return panes.parse(answer.stdout[0])
            if self.has_session(name):
                raise Conflict(f"a session named {name} exists already", details={"session": name})
        assert answer is not None
        said = " ".join(answer.stderr) or "no output"
        raise CommandFailed(f"tmux could not start {name}: {said}", code="TMUX_COMMAND_FAILED")

    def has_session(self, name: str) -> bool:
        return _NAME.fullmatch(name) is not None and bool(self._server.has_session(name))

    def find(self, name: str) -> Pane | None:
        """The instance's pane, also when a person renamed its session."""
        done = command.run(self.socket, ["list-panes", "-s", "-t", f"={name}:", "-F", panes.FORMAT], check=False)
        found = panes.by_instance(panes.from_lines(done.text.splitlines())) if done.returncode == 0 else {}
        return found.get(name) or panes.by_instance(panes.list_panes(self.socket)).get(name)

    def kill_session(self, name: str) -> None:
        """Remove the session; one that is gone is fine. Its processes get a hang-up and nothing more."""
        pane = self.find(name)
        target = pane.pane_id if pane is not None else f"={name}"
        with command.gate(self.socket):
            done = command.run(self.socket, ["kill-session", "-t", target], check=False)
        if done.returncode != 0 and self.has_session(name):
            raise proc.command_failed(done, code="TMUX_COMMAND_FAILED")

    def send_keys(self, name: str, *keys: str) -> None:
        """Press keys by tmux's names, as "Escape" or "C-c". Raises Conflict when the program has ended."""
        if not keys:
            return
        pane = libtmux.Pane(server=self._server, pane_id=self._live(name).pane_id)
        words = ["--", *(command.literal(key) for key in keys)]
        try:
            pane.cmd("send-keys", *words)
        except CommandFailed:
            # tmux 3.7 refuses while a read-only client watches, unless another client is named.
            pane.cmd("send-keys", "-c", "swarm-nobody", *words)

    def paste(
        self, name: str, text: str, *, submit: bool, settle: float = 0.3, pane_id: str | None = None
    ) -> None:
        """Put `text` into the program's input as one paste; `submit` presses Enter `settle` s later.

        Naming the pane saves the question which one it is; the paste is refused when it is not the instance's.

        Carriage returns become newlines and other control characters are dropped (`clean`), so the text cannot end
        the paste. A person who scrolls is put back to the end. Raises Conflict when the program has ended.
        """
        data = clean(text).encode(errors="replace")
        if not data or len(data) > MAX_PASTE_BYTES:
            raise InvalidInput(
                f"a message has 1 to {MAX_PASTE_BYTES} bytes, this one {len(data)}", code="PROMPT_TOO_LARGE"
            )
        at = pane_id or self._live(name).pane_id
        self._insert(name, at, data, "-p", enter=submit and not settle)
        if submit and settle:
            time.sleep(settle)
            self._insert(name, at, b"\r")

    def enter(self, name: str, *, pane_id: str | None = None) -> None:
        """Press Enter, whatever mode a person has put the pane into."""
        self._insert(name, pane_id or self._live(name).pane_id, b"\r")

    def type_text(self, name: str, text: str) -> None:
        """Type one line of text as if by hand, without the marks of a paste. Raises as `paste` does."""
        self._insert(name, self._live(name).pane_id, text.encode(errors="replace"))

    def press(self, name: str, keys: Sequence[str]) -> None:
        """Press keys by tmux's names, each one word; the server itself checks that the program lives.

        A pane that a person scrolls would take them for commands of its own, so that is ended first.
        """
        if not keys or not all(_KEY.fullmatch(key) for key in keys):
            raise InvalidInput("keys are pressed by tmux's names")
        at = self._live(name).pane_id
        for flags in ("", "-c swarm-nobody "):  # as in `send_keys`
            words = ["if-shell", "-F", "-t", at, "#{pane_in_mode}", f"copy-mode -q -t {at}", ";"]
            words += ["if-shell", "-F", "-t", at, "#{pane_dead}", "display-message -p dead"]
            done = command.run(self.socket, [*words, f"send-keys {flags}-t {at} {' '.join(keys)}"], check=False)
            if done.text.strip() == "dead":
                raise _ended(name)
            if done.returncode == 0:
                return
        raise proc.command_failed(done, code="TMUX_COMMAND_FAILED")

    def capture(self, name: str, *, lines: int | None = None, escapes: bool = False) -> str:
        """The visible screen without empty lines at its end, or with history the last `lines` lines."""
        return self._screen(self._existing(name), lines=lines, escapes=escapes)

    def attach_argv(self, name: str, *, read_only: bool = False) -> list[str]:
        """What to exec to watch or type into the session.

        The caller removes TMUX from the environment it execs with, or tmux refuses inside another tmux.
        """
        return command.attach(self.socket, self.config, name, read_only=read_only)

    def end_processes(self, name: str, grace: float, *, mark: str | None = None) -> Ended:
        """End the program and all it started, then remove the session.

        Asks first (SIGTERM; SIGHUP to a shell), waits up to `grace` s for the program itself, then kills what is
        left. `mark` ("NAME=value") names an environment entry that only this instance's processes carry; it finds
        those that left everything else behind. Twice is safe.
        """
        pane = self.find(name)
        if pane is None:
            self.kill_session(name)
            return Ended(None, "", 0)
        screen = self._screen(pane)
        marks = self._marks(pane, mark)
        leader = None if pane.dead else processes.one(pane.pid)
        since = leader.started if leader else None
        started = processes.members(pane.pid, since, marks)
        if leader is not None:
            shell = leader.name.lstrip("-") in _SHELLS
            processes.send(started, signal.SIGHUP if shell else signal.SIGTERM)
            processes.send(started, signal.SIGCONT)
            _wait_for_end(pane.pid, grace)
        killed, known = processes.send(started, signal.SIGKILL), set(started)
        for _ in range(_KILL_ROUNDS):
            left = {*processes.members(pane.pid, since, marks), *processes.remaining(started)}
            if not left:
                break
            killed += processes.send(left - known, signal.SIGKILL)
            processes.send(left & known, signal.SIGKILL)  # one that takes its time to end counts once
            known |= left
            _wait_for_end(next(iter(left)).pid, _KILL_WAIT)
        last = self._final(name)
        if last is not None:
            screen = self._screen(last) or screen
        self.kill_session(name)
        return Ended(last or pane, screen, killed)

    def kill_server(self) -> None:
        """End the server and every session; no server is fine."""
        done = command.run(self.socket, ["kill-server"], check=False)
        if done.returncode != 0 and command.is_up(self.socket):
            raise proc.command_failed(done, code="TMUX_COMMAND_FAILED")

    def _existing(self, name: str) -> Pane:
        pane = self.find(name)
        if pane is None:
            raise NotFound(f"{name} has no tmux session", code="TMUX_SESSION_NOT_FOUND")
        return pane

    def _live(self, name: str) -> Pane:
        pane = self._existing(name)
        if pane.dead:
            raise _ended(name)
        return pane

    def _screen(self, pane: Pane, *, lines: int | None = None, escapes: bool = False) -> str:
        start = None if lines is None else -max(lines, 1)
        libtmux_pane = libtmux.Pane(server=self._server, pane_id=pane.pane_id)
        text = libtmux_pane.capture_pane(start=start, escape_sequences=escapes) or []
        while text and not text[-1].strip():
            text.pop()
        return "\n".join(text if lines is None else text[-max(lines, 1) :])

    def _insert(self, name: str, at: str, data: bytes, *flags: str, enter: bool = False) -> None:
        """Write bytes to the pane's program, after leaving copy mode; the server itself checks that it lives.

        tmux 3.3 crashes, with every session, when it pastes into a dead pane: the check and the paste must be one.
        In copy mode it would leave out the paste marks, and each line would be submitted.
        """
        buffer = f"swarm-{secrets.token_hex(8)}"
        words = ["load-buffer", "-b", buffer, "-", ";"]
        paste = f"paste-buffer -d -r {' '.join(flags)} -b {buffer} -t {at}"
        refuse = f"delete-buffer -b {buffer} ; display-message -p dead"
        if enter:
            words += ["set-buffer", "-b", f"{buffer}-enter", "\r", ";"]
            paste += f" ; paste-buffer -d -r -b {buffer}-enter -t {at}"
            refuse = f"delete-buffer -b {buffer}-enter ; {refuse}"
        words += ["if-shell", "-F", "-t", at, "#{pane_in_mode}", f"copy-mode -q -t {at}", ";"]
        unfit = f"#{{||:#{{pane_dead}},#{{!=:#{{@swarm_instance}},{name}}}}}"
        words += ["if-shell", "-F", "-t", at, unfit, refuse, paste]
        if command.run(self.socket, words, stdin=data).text.strip():
            raise _ended(name)

    def _marks(self, pane: Pane, mark: str | None) -> list[list[bytes]]:
        """tmux puts its socket, its pid and the pane's id into the environment of what it starts."""
        server = command.run(self.socket, ["display-message", "-p", "#{socket_path},#{pid},"]).text.strip()
        marks = [[f"TMUX={server}".encode(), f"TMUX_PANE={pane.pane_id}\0".encode()]]
        return [*marks, [f"{mark}\0".encode()]] if mark else marks

    def _final(self, name: str) -> Pane | None:
        """The pane once its exit code or signal is known, waited for a bounded time."""
        deadline = time.monotonic() + _STATUS_WAIT
        while True:
            pane = self.find(name)
            if pane is None or pane.exit_code is not None or pane.exit_signal is not None:
                return pane
            if time.monotonic() >= deadline:
                return pane
            panes.nudge(pane)
            time.sleep(0.02)


class _Server(libtmux.Server):
    """libtmux's server, run with our environment and a timeout; a failure raises, except for `has-session`."""

    def cmd(self, cmd: str, *args: Any, target: str | int | None = None) -> tmux_cmd:
        aimed = [] if target is None else ["-t", str(target)]
        return self.ask([cmd, *aimed, *map(str, args)], check=cmd != "has-session")

    def ask(
        self,
        words: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        check: bool = True,
    ) -> tmux_cmd:
        socket, config = Path(str(self.socket_path)), Path(str(self.config_file))
        done = command.run(socket, words, config=config, env=env, cwd=cwd, check=check)
        answer = tmux_cmd.__new__(tmux_cmd)
        answer.cmd = list(done.argv)
        answer.returncode = done.returncode
        answer.stdout = done.text.removesuffix("\n").split("\n") if done.stdout else []
        answer.stderr = done.stderr.decode(errors="replace").splitlines()
        return answer


def _new_session_words(name: str, argv: Sequence[str], epoch: int, width: int, height: int) -> list[str]:
    # tmux gives a single word to a shell and runs several words as they are.
    program = list(argv) if len(argv) > 1 else ["/bin/sh", "-c", 'exec "$0"', argv[0]]
    words = ["new-session", "-d", "-s", name, "-x", str(width), "-y", str(height), "--"]
    words += [command.literal(word) for word in program]
    target = f"={name}:"
    words += [";", "set-option", "-t", target, "@swarm_instance", name]
    words += [";", "set-option", "-t", target, "@swarm_epoch", str(epoch)]
    words += [";", "set-option", "-F", "-t", target, "@swarm_pane", "#{pane_id}"]
    return [*words, ";", "list-panes", "-t", target, "-F", panes.FORMAT]


def _ended(name: str) -> Conflict:
    return Conflict(f"the program of {name} has ended", details={"session": name})


def _wait_for_end(pid: int, timeout: float) -> None:
    with DeathWatch() as watch:
        watch.set({"program": pid})
        watch.wait(timeout)

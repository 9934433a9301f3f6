"""One tmux process: which program, which socket, which environment.

The person's own server and configuration are never reached: every call names our socket and our configuration,
and carries none of the variables that could lead it elsewhere.
"""

from __future__ import annotations

import os
import re
import shutil
import socket as sockets
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from swarm_core import locks, proc
from swarm_core.errors import ExternalFailure, InvalidInput

TIMEOUT = 10.0
NO_CONFIG = Path(os.devnull)
_ELSEWHERE = ("TMUX", "TMUX_PANE", "TMUX_TMPDIR")
_CLIENT_NEEDS = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TERM", "TMPDIR")
_LONGEST_SOCKET = 103  # bytes; the smallest limit of the systems we run on (macOS)


def prefix(socket: Path, config: Path = NO_CONFIG) -> list[str]:
    """`tmux -u -S socket -f config`; without -u tmux replaces tabs and non-ASCII text in its answers."""
    program = _program()
    if not socket.is_absolute() or len(os.fsencode(socket)) > _LONGEST_SOCKET:
        raise InvalidInput(
            f"the tmux socket needs an absolute path of at most {_LONGEST_SOCKET} bytes: {socket}",
            hint="use a shorter SWARM_HOME",
        )
    return [program, "-u", "-S", str(socket), "-f", str(config)]


def attach(socket: Path, config: Path, session: str, *, read_only: bool) -> list[str]:
    return [*prefix(socket, config), "attach-session", *(["-r"] if read_only else []), "-t", f"={session}"]


def gate(socket: Path, *, connecting: bool = False) -> AbstractContextManager[int]:
    """Keeps control-mode clients from coming or going while sessions are made or ended.

    That crashes the server (seen on 3.3a within seconds, reported for 3.5a), and every session with it.
    """
    return locks.hold(socket.with_name(f"{socket.name}.gate"), shared=not connecting)


def run(
    socket: Path,
    words: Sequence[str],
    *,
    config: Path = NO_CONFIG,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: bytes | None = None,
    check: bool = True,
) -> proc.Completed:
    """Run tmux with `words` as they are (see `literal`); a failure is CommandFailed TMUX_COMMAND_FAILED."""
    argv = [*prefix(socket, config), *words]
    client_env = environment() if env is None else cleaned(env)
    done = proc.run(argv, cwd=cwd, env=client_env, stdin=stdin, timeout=TIMEOUT, check=False)
    if check and done.returncode != 0:
        raise proc.command_failed(done, code="TMUX_COMMAND_FAILED")
    return done


def version() -> tuple[int, ...]:
    """For example (3, 3) for tmux 3.3a; a development version without a number is the newest of all."""
    said = proc.run([_program(), "-V"], env=environment(), timeout=TIMEOUT).text
    return tuple(int(part) for part in re.findall(r"\d+", said)) or (99,)


def literal(word: str) -> str:
    """An argument that reaches tmux as it is: a trailing `;` would end the command."""
    return word[:-1] + "\\;" if word.endswith(";") else word


def environment() -> dict[str, str]:
    """What a tmux client needs and no more: a client's whole environment is sent to the server."""
    return {name: os.environ[name] for name in _CLIENT_NEEDS if name in os.environ}


def cleaned(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name not in _ELSEWHERE}


def is_up(socket: Path) -> bool:
    """Whether a server listens on the socket; asks the kernel, because tmux's wording changes by version."""
    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM) as probe:
        probe.settimeout(TIMEOUT)
        try:
            probe.connect(str(socket))
        except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
            return False
        except OSError as error:
            raise ExternalFailure(
                f"the tmux socket {socket} cannot be used: {error}", code="TMUX_NOT_AVAILABLE"
            ) from error
    return True


def _program() -> str:
    program = shutil.which("tmux")
    if program is None:
        hint = "brew install tmux" if sys.platform == "darwin" else "apt-get install tmux"
        raise ExternalFailure("tmux is not installed", code="TMUX_NOT_AVAILABLE", hint=hint)
    return program

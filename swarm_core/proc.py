"""Programs: run with a timeout that ends the whole process group, never through a shell."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from swarm_core import cancel
from swarm_core.errors import CommandFailed, ExternalFailure, InvalidInput, TimedOut

DEFAULT_TIMEOUT = 60.0
_TAIL = 2000


@dataclass(frozen=True, slots=True)
class Completed:
    argv: tuple[str, ...]
    returncode: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        return self.stdout.decode(errors="replace")


def run(
    argv: Sequence[str],
    *,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    check: bool = True,
    keep_open: Sequence[int] = (),
) -> Completed:
    """Run a program to its end and collect its output.

    `env` replaces the environment. The file descriptors in `keep_open` stay open in the child, so that a
    lock held here is held until the child ends, even if this process is killed first.
    """
    process = _popen(argv, cwd=cwd, env=env, with_stdin=stdin is not None, keep_open=keep_open)
    try:
        with cancel.ending(lambda: end_group(process.pid)):
            stdout, stderr = process.communicate(stdin, timeout=timeout)
    except subprocess.TimeoutExpired:
        end_group(process.pid)
        process.communicate()
        raise TimedOut(
            f"{argv[0]} took longer than {timeout:g} s and was ended",
            details={"argv": list(argv), "timeout_s": timeout},
        ) from None
    except BaseException:  # an interrupted wait must not leave the program running
        end_group(process.pid)
        process.communicate()
        raise
    done = Completed(tuple(argv), process.returncode, stdout, stderr)
    if check and done.returncode != 0:
        raise command_failed(done)
    return done


def command_failed(done: Completed, *, code: str | None = None, hint: str | None = None) -> CommandFailed:
    said = done.stderr.decode(errors="replace").strip() or done.text.strip()
    return CommandFailed(
        f"{Path(done.argv[0]).name} failed with exit code {done.returncode}: {said[-_TAIL:] or 'no output'}",
        code=code,
        hint=hint,
        details={"argv": list(done.argv), "exit_code": done.returncode},
    )


def start_pipes(argv: Sequence[str], *, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start a program that is talked to over its stdin and stdout; the caller ends it with `end_group`."""
    return _popen(argv, env=env, with_stdin=True)


def start_detached(argv: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None) -> int:
    """Start a program in a session of its own, output appended to `log`; it outlives this process."""
    with log.open("ab") as sink:
        process = _checked(
            argv,
            lambda: subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                env=env,
                start_new_session=True,
            ),
        )
    process.returncode = 0  # nobody waits for it; without this Python warns that it still runs
    return process.pid


def start_child(
    argv: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a program in a group of its own that the caller waits for, output appended to `log`."""
    with log.open("ab") as sink:
        return _checked(
            argv,
            lambda: subprocess.Popen(
                list(argv), stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, env=env, process_group=0
            ),
        )


def end_group(pid: int, sig: int = signal.SIGKILL) -> None:
    """Signal the whole process group led by `pid`; a group that is gone is fine."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, sig)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _popen(
    argv: Sequence[str],
    *,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    with_stdin: bool = False,
    keep_open: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    return _checked(
        argv,
        lambda: subprocess.Popen(
            list(argv),
            cwd=cwd,
            env=env,
            stdin=subprocess.PIPE if with_stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,
            pass_fds=tuple(keep_open),
        ),
    )


def _checked(argv: Sequence[str], start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    try:
        return start()
    except FileNotFoundError as error:
        raise ExternalFailure(f"cannot run {argv[0]}: {error.strerror}: {error.filename}") from error
    except ValueError as error:  # a NUL character, or half a character
        raise InvalidInput(f"cannot run {argv[0]!r}: an argument is no text a program can take") from error
    except OSError as error:
        code = "DISK_FULL" if error.errno == errno.ENOSPC else None
        raise ExternalFailure(f"cannot run {argv[0]}: {error.strerror}", code=code) from error

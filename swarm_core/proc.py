"""Programs: run with a timeout that ends the whole process group, never through a shell."""

from __future__ import annotations

import contextlib
import contextvars
import errno
import os
import re
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from swarm_core import cancel, files
from swarm_core.errors import CommandFailed, ExternalFailure, InvalidInput, TimedOut

DEFAULT_TIMEOUT = 60.0
_PRIVATE = 0o077
_TAIL = 2000
_STDERR_MAX = 1 << 16


_umask: int | None = None
_GIVES_WAY = 10
_thread = threading.local()
_deadline: contextvars.ContextVar[float | None] = contextvars.ContextVar("programs_end_by", default=None)


def keep_files_private() -> None:
    """Let this process make files for its owner alone; the programs it starts keep the user's umask."""
    global _umask
    if _umask is None:
        _umask = os.umask(_PRIVATE)


def give_way() -> None:
    """Let other threads and processes go before this thread, and before the programs that it starts.

    Only Linux has priorities of threads. What starts tmux's server must not call it: agents would inherit it.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            own = threading.get_native_id()
            os.setpriority(os.PRIO_PROCESS, own, os.getpriority(os.PRIO_PROCESS, own) + _GIVES_WAY)


@contextlib.contextmanager
def refused(why: str) -> Iterator[None]:
    """Make starting a program a bug in this block, as long as it runs in this thread.

    For threads that others wait for: a program may hang for as long as its timeout.
    """
    before = getattr(_thread, "refused", None)
    _thread.refused = why
    try:
        yield
    finally:
        _thread.refused = before


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """End programs that `run` and `run_cut` start in this block after so many seconds, all of them together."""
    until, outer = time.monotonic() + seconds, _deadline.get()
    token = _deadline.set(until if outer is None else min(until, outer))
    try:
        yield
    finally:
        _deadline.reset(token)


def user_umask() -> int:
    """The umask this process was started with."""
    if _umask is not None:
        return _umask
    found = os.umask(_PRIVATE)
    os.umask(found)
    return found


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
    timeout = _allowed(argv, timeout)
    process = _popen(argv, cwd=cwd, env=env, with_stdin=stdin is not None, keep_open=keep_open)
    try:
        with cancel.ending(lambda: end_group(process.pid)):
            stdout, stderr = process.communicate(stdin, timeout=timeout)
    except subprocess.TimeoutExpired:
        end_group(process.pid)
        process.communicate()
        raise _timed_out(argv, timeout) from None
    except BaseException:  # an interrupted wait must not leave the program running
        end_group(process.pid)
        process.communicate()
        raise
    done = Completed(tuple(argv), process.returncode, stdout, stderr)
    if check and done.returncode != 0:
        raise command_failed(done)
    return done


def run_cut(
    argv: Sequence[str], *, most: int, env: Mapping[str, str] | None = None, timeout: float = DEFAULT_TIMEOUT
) -> tuple[Completed, bool]:
    """Run a program until it ends or has printed more than `most` bytes, which ends it; whether it was cut off."""
    timeout = _allowed(argv, timeout)
    process = _popen(argv, env=env)
    try:
        with cancel.ending(lambda: end_group(process.pid)):
            stdout, stderr = _read_at_most(process, most, timeout)
    except subprocess.TimeoutExpired:
        raise _timed_out(argv, timeout) from None
    finally:
        end_group(process.pid)
        process.communicate()
    return Completed(tuple(argv), process.returncode, stdout[:most], stderr), len(stdout) > most


def _read_at_most(process: subprocess.Popen[bytes], most: int, timeout: float) -> tuple[bytes, bytes]:
    assert process.stdout is not None
    assert process.stderr is not None
    deadline = time.monotonic() + timeout
    read: dict[int, bytearray] = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    stdout, stderr = read.values()
    with selectors.DefaultSelector() as selector:
        for fd in read:
            selector.register(fd, selectors.EVENT_READ)
        while selector.get_map() and len(stdout) <= most:
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                raise subprocess.TimeoutExpired(process.args, timeout)
            for key, _ in ready:
                if data := os.read(key.fd, 1 << 16):
                    read[key.fd] += data
                else:
                    selector.unregister(key.fd)
    if len(stdout) <= most:
        process.wait(max(0.0, deadline - time.monotonic()))
    return bytes(stdout), bytes(stderr[:_STDERR_MAX])


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
    with os.fdopen(files.append_private(log), "ab") as sink:
        process = _checked(
            argv,
            lambda: subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                env=env,
                start_new_session=True,
                umask=_child_umask(),
            ),
        )
    process.returncode = 0  # nobody waits for it; without this Python warns that it still runs
    return process.pid


def start_child(
    argv: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a program in a group of its own that the caller waits for, output appended to `log`."""
    with os.fdopen(files.append_private(log), "ab") as sink:
        return _checked(
            argv,
            lambda: subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                env=env,
                process_group=0,
                umask=_child_umask(),
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
            umask=_child_umask(),
        ),
    )


def _allowed(argv: Sequence[str], timeout: float) -> float:
    """The timeout, or what is left until the deadline of `within`."""
    deadline = _deadline.get()
    if deadline is None:
        return timeout
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimedOut(f"{argv[0]} was not started: the time for it is over", details={"argv": list(argv)})
    return min(timeout, left)


def _timed_out(argv: Sequence[str], timeout: float) -> TimedOut:
    return TimedOut(
        f"{argv[0]} took longer than {timeout:.4g} s and was ended",
        details={"argv": list(argv), "timeout_s": timeout},
    )


def _child_umask() -> int:
    """As `Popen` takes it: -1 leaves the child our own."""
    return -1 if _umask is None else _umask


def _checked(argv: Sequence[str], start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    if why := getattr(_thread, "refused", None):
        raise AssertionError(f"{argv[0]} may not be started here: {why}")
    try:
        return start()
    except FileNotFoundError as error:
        raise ExternalFailure(f"cannot run {argv[0]}: {error.strerror}: {error.filename}") from error
    except ValueError as error:  # a NUL character, or half a character
        raise InvalidInput(f"cannot run {argv[0]!r}: an argument is no text a program can take") from error
    except OSError as error:
        code = "DISK_FULL" if error.errno == errno.ENOSPC else None
        raise ExternalFailure(f"cannot run {argv[0]}: {error.strerror}", code=code) from error


def open_for_writing(folder: Path) -> list[str]:
    """The files below the folder that another process has open or mapped for writing, each with that process.

    Linux only; elsewhere nothing is known. Processes of other users cannot be looked into.
    """
    inside, own = f"{folder}/", str(os.getpid())
    found = []
    for pid in os.listdir("/proc") if os.path.isdir("/proc/self/fd") else ():  # noqa: PTH112, PTH208
        if not pid.isdigit() or pid == own:
            continue
        with contextlib.suppress(OSError):  # it has ended, or belongs to somebody else
            written = _mapped(pid, inside)
            for fd in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208
                target = os.readlink(f"/proc/{pid}/fd/{fd}")  # noqa: PTH115
                if target.startswith(inside) and _is_writable(pid, fd):
                    written.append(target)
            if written:
                name = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
                found += [f"{target.removeprefix(inside)} by {name} (process {pid})" for target in written]
    return found


def mounts_below(folder: Path) -> list[str]:
    """Where something is mounted below the folder, a folder of the same device included; Linux only."""
    try:
        listed = Path("/proc/self/mountinfo").read_bytes().splitlines()
    except OSError:
        return []
    points = [re.sub(rb"\\([0-7]{3})", lambda m: bytes([int(m[1], 8)]), line.split(b" ")[4]) for line in listed]
    return [os.fsdecode(point) for point in points if os.fsdecode(point).startswith(f"{folder}/")]


def _mapped(pid: str, inside: str) -> list[str]:
    """Files below the folder that the process can write to through its memory, which changes no time stamp."""
    maps = Path(f"/proc/{pid}/maps").read_bytes()
    if os.fsencode(inside) not in maps:
        return []
    lines = [line.split(None, 5) for line in maps.splitlines()]
    writable = [line for line in lines if len(line) == 6 and line[1][1:2] == b"w" and line[1][3:4] == b"s"]
    shared = {os.fsdecode(line[5]) for line in writable}
    return sorted(target for target in shared if target.startswith(inside))


def _is_writable(pid: str, fd: str) -> bool:
    flags = re.search(r"^flags:\s*([0-7]+)", Path(f"/proc/{pid}/fdinfo/{fd}").read_text(), re.MULTILINE)
    return flags is not None and int(flags[1], 8) & os.O_ACCMODE != os.O_RDONLY

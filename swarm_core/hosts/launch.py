"""Starting an agent's program in a session, and knowing whether it started."""

from __future__ import annotations

import contextlib
import glob
import os
import select
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from swarm_core import cancel, files, proc
from swarm_core.agents import table
from swarm_core.config import Settings
from swarm_core.errors import ExternalFailure, TimedOut
from swarm_core.hosts import launcher
from swarm_core.hosts.base import SessionFacts, StartOrder
from swarm_core.hosts.folders import check_own, make_private, write_private
from swarm_core.hosts.look import session_facts
from swarm_core.tmux.panes import Pane
from swarm_core.tmux.sessions import Tmux

_LISTEN_MS = 200


def start(settings: Settings, tmux: Tmux, order: StartOrder, environ: Mapping[str, str]) -> SessionFacts:
    """Write the agent's files, start it, and return when its program runs; raises when it does not."""
    folder = settings.instance_dir(order["instance_id"])
    make_private(folder)
    if settings.tmux_socket.parent != settings.home:
        make_private(settings.tmux_socket.parent)
        check_own(settings.tmux_socket.parent)
    for name, text in order["files"].items():
        write_private(folder / name, text.encode(errors="surrogateescape"))
    environment = _environment(settings, order, environ, folder)
    order_path, ready_path = folder / "order", folder / "ready"
    order_file = launcher.pack(order["cwd"], proc.user_umask(), _argv(order), environment)
    write_private(order_path, order_file)
    with _ready_pipe(ready_path) as ready:
        pane = tmux.new_session(
            order["instance_id"],
            cwd=Path(order["cwd"]),
            argv=[sys.executable, "-I", "-S", launcher.__file__, str(order_path), str(ready_path)],
            epoch=order["epoch"],
            start_environment=environ,
        )
        _await_exec(tmux, pane, ready, timeout=settings.number("start_timeout"))
    return session_facts(pane)


def _argv(order: StartOrder) -> list[str]:
    if not order["resume"] or order["resume_argv"] is None:
        return order["argv"]
    found = [Path(name) for pattern in order["resume_probe"] for name in glob.glob(pattern)]  # noqa: PTH207
    if any(_resumable(path, order) for path in found):
        return order["resume_argv"]
    for path in found:  # Claude Code neither resumes such a conversation nor starts another one with its id
        path.replace(path.with_name(f"{path.name}.unused"))
    return order["argv"]


def _resumable(path: Path, order: StartOrder) -> bool:
    """Whether the conversation is there; one that its program was killed in is made ready to go on at its end."""
    with files.open_regular(path) as file:
        missing = table.get(order["agent"]).mend_log(file)
    if missing:
        with path.open("ab") as file:
            file.write(missing)
    return missing is not None


def _environment(
    settings: Settings, order: StartOrder, environ: Mapping[str, str], folder: Path
) -> dict[str, str]:
    inherited = {k: v for k, v in environ.items() if k not in order["unset"]}
    # A tmux that the agent starts gets a server of its own: the person's would be ended with the agent.
    tmux = settings.agent_tmux(order["instance_id"])
    if not tmux.is_relative_to(settings.home):
        make_private(settings.short_folder)
        check_own(settings.short_folder)
    make_private(tmux)
    own = {
        "TMUX_TMPDIR": str(tmux),
        "SWARM_INSTANCE": order["instance_id"],
        "SWARM_EPOCH": str(order["epoch"]),
        "SWARM_INSTANCE_DIR": str(folder),
    }
    return inherited | order["env"] | own | order["secrets"]


@contextlib.contextmanager
def _ready_pipe(path: Path) -> Iterator[int]:
    path.unlink(missing_ok=True)
    os.mkfifo(path, 0o600)
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)
        path.unlink(missing_ok=True)


def _await_exec(tmux: Tmux, pane: Pane, ready: int, *, timeout: float) -> None:
    """Wait until the launcher has become the agent: its end of the pipe closes with nothing said."""
    poll = select.poll()
    poll.register(ready, select.POLLIN)
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if not poll.poll(_LISTEN_MS):
            cancel.check()
            if not _alive(pane.pid):
                break
            continue
        said = os.read(ready, 4096)
        if not said:
            return
        tmux.kill_session(pane.session)
        raise ExternalFailure(said.decode(errors="replace"), code="AGENT_START_FAILED")
    screen = tmux.capture(pane.session).strip()
    tmux.kill_session(pane.session)
    raise TimedOut(
        f"the program of {pane.session} did not start within {timeout:g} s",
        code="AGENT_START_FAILED",
        details={"screen": screen[-2000:]},
    )


def _alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists() if Path("/proc/self").exists() else True

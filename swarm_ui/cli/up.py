"""`swarm up`, `down` and `status`: the two processes, kept running, stopped, looked at."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from swarm_core import config, files, overview, proc, process
from swarm_core.config import Settings
from swarm_core.errors import Conflict, NotFound, SwarmError, TimedOut
from swarm_core.process import COORDINATOR, DASHBOARD, UP, Card
from swarm_core.swarm import Swarm
from swarm_ui import health, pull_views, views
from swarm_ui.cli import link, output

_HEALTHY_WITHIN = 30.0
_POLL = 0.05
_LOOKED_WITHIN = 5.0


def up(*, detach: bool, mcp_port: int | None, ui_port: int | None, json: bool) -> None:
    """Run coordinator and dashboard until asked to end, or leave them running and return once both are healthy."""
    settings = config.load(os.environ, mcp_port=mcp_port, ui_port=ui_port)
    proc.keep_files_private()
    with files.errors():
        files.make_private(settings.logs)
        for log in health.logs(settings):
            os.close(files.append_private(log))
    if detach:
        _detach(settings, os.environ, json=json)
        return
    with process.claim(settings, process.own_card(UP, settings, os.environ)) as claim:
        _end_orphans(settings)
        both = health.Children(settings, os.environ, report=output.note)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: both.stop())

        def on_healthy() -> None:
            claim.announce(0)
            _tell_up(settings, json=json, foreground=True)

        both.run(on_healthy=on_healthy)
    if not json:
        output.write(_agents_go_on(overview.live_sessions(settings)))


def down(*, json: bool) -> None:
    """Stop what `up` started; agents keep running."""
    settings = config.load(os.environ)
    before = {role: process.running(settings, role) for role in (UP, COORDINATOR, DASHBOARD)}
    killed: list[str] = []
    for role, card in before.items():
        if card is None or process.running(settings, role) != card:
            continue
        if card.home != str(settings.home):
            output.note(f"the {role} with pid {card.pid} belongs to {card.home} and is left running")
            continue
        output.note(f"ending {_name(role)} (pid {card.pid})")
        if not _end(settings, card):
            killed.append(role)
    stopped = [role for role, card in before.items() if card and process.running(settings, role) != card]
    agents = overview.live_sessions(settings)
    if json:
        output.write_json({"ok": True, "stopped": stopped, "killed": killed, "agents_running": agents})
        return
    what = ", ".join(r for r in stopped if r != UP) or "supervisor"
    output.write(f"Stopped: {what}." if stopped else "Nothing is running.")
    output.write(_agents_go_on(agents))


def status(*, json: bool) -> None:
    """What runs, whether it is well, and who needs a person."""
    told = health.overview(config.load(os.environ))
    if json:
        output.write_json(told)
        return
    now = datetime.now(UTC)
    database, instances, tmux = told["database"], told["instances"], told["tmux"]
    absent = "missing" if database["problem"] else "not made yet"
    size = views.size_label(database["bytes"]) if database["exists"] else absent
    problem = f" ({database['problem']})" if database["problem"] else ""
    sessions = f"up, {tmux['sessions']} live" if tmux["up"] else "not running"
    output.fields(
        [
            (COORDINATOR, _state_line(told[COORDINATOR], now)),
            (DASHBOARD, _state_line(told[DASHBOARD], now)),
            ("database", f"{database['path']} ({size}){problem}"),
            ("tmux", f"{sessions}  {tmux['socket']}"),
            ("instances", f"{instances['total']}{_counts(instances['by_status'])}"),
            ("activity", _counts(instances["by_activity"]).strip(" ()")),
            ("pull requests", _pulls_line(told["pulls"])),
            *(("forge", line) for one in told["github"] for line in _github_lines(one)),
        ]
    )
    if instances["needs_you"]:
        output.heading(f"Needs you ({len(instances['needs_you'])})")
        for one in instances["needs_you"]:
            output.write(output.plain(f"  {one['id']}  {one['name'] or ''}  {one['reason']}"))
    if told[COORDINATOR] is None:
        output.write("\n`swarm up --detach` starts the coordinator and the dashboard.")


def _detach(settings: Settings, environ: Mapping[str, str], *, json: bool) -> None:
    holder = process.running(settings, UP)
    if holder is not None:
        raise _already_up(holder)
    marks = health.log_sizes(settings)
    ports = [f"--mcp-port={settings.integer('mcp_port')}", f"--ui-port={settings.integer('ui_port')}"]
    argv = [sys.executable, "-P", "-m", "swarm_ui.cli", "up", *ports]
    pid = proc.start_detached(argv, log=settings.logs / "up.log", env=dict(environ))
    try:
        _await_healthy(settings, pid, marks)
    except BaseException:
        _end_all(settings, pid)
        raise
    _tell_up(settings, json=json, foreground=False)


def _await_healthy(settings: Settings, pid: int, marks: Mapping[str, int]) -> None:
    """Both answer ok, they are the ones of the supervisor `pid`, and it will start them again when they end."""
    progress = output.Progress(sys.stderr)
    deadline = time.monotonic() + _HEALTHY_WITHIN
    waiting: list[str] = []
    try:
        while time.monotonic() < deadline:
            before, waiting = waiting, [r for r in (COORDINATOR, DASHBOARD) if not _healthy(settings, r, pid)]
            if not waiting and process.has_announced(settings, UP, pid):
                return
            if waiting != before:
                progress.say(f"waiting for the {' and the '.join(waiting)}")
            if _has_ended(pid):
                holder = process.running(settings, UP)
                raise _already_up(holder) if holder else health.why(settings, marks)
            time.sleep(_POLL)
    finally:
        progress.close()
    raise TimedOut(
        f"the {' and the '.join(waiting)} did not get healthy within {_HEALTHY_WITHIN:g} s",
        hint=f"the logs are in {settings.logs}",
        details={"log": health.tails(settings, marks)},
    )


def _healthy(settings: Settings, role: str, supervisor: int) -> bool:
    card = process.running(settings, role)
    if card is None or card.supervisor != supervisor:
        return False
    body = overview.ask(card)
    return body is not None and bool(body["ok"])


def _tell_up(settings: Settings, *, json: bool, foreground: bool) -> None:
    told = {role: overview.state(settings, role) for role in (COORDINATOR, DASHBOARD)}
    lost = _lost(settings)
    # In a log, where the output of an `up` in the background goes, a link would be anybody's.
    link = _link(settings) if json or not foreground or sys.stdout.isatty() else None
    if json:
        shown = {role: one | ({"link": link} if role == DASHBOARD else {}) for role, one in told.items() if one}
        output.write_json({"ok": True, **told, **shown, "lost": lost}, indent=None if foreground else 2)
    else:
        output.fields((role, f"{s['url']}  (pid {s['pid']})") for role, s in told.items() if s)
        output.write(f"Open {link} once, within 15 minutes." if link else "`swarm link` opens the dashboard.")
        output.write("Ctrl-C stops both; agents keep running." if foreground else "`swarm down` stops both.")
        if lost:
            some = f"{lost} agents" if lost > 1 else "an agent"
            output.write(f"The sessions of {some} were lost: `swarm resume` goes on with their conversations.")
    output.flush()


def _link(settings: Settings) -> str | None:
    """A new link to the dashboard; None when that is gone again."""
    with Swarm.open(settings, os.environ) as swarm, contextlib.suppress(NotFound):
        return link.new(swarm, may_write=True).url
    return None


def _lost(settings: Settings) -> int:
    """How many agents lost their session, as in a reboot, once the coordinator has looked."""
    deadline = time.monotonic() + _LOOKED_WITHIN
    while (found := overview.state(settings, COORDINATOR)) and not found.get("ok") and time.monotonic() < deadline:
        time.sleep(_POLL)
    with Swarm.open(settings, os.environ) as swarm:
        return len(swarm.lost())


def _end_orphans(settings: Settings) -> None:
    """End what an earlier `up` left behind when it was killed; the caller holds the lock of `up`."""
    for role in (COORDINATOR, DASHBOARD):
        card = process.running(settings, role)
        if card is not None and card.supervisor is not None and card.home == str(settings.home):
            output.note(f"ending the {role} that an earlier `swarm up` left behind (pid {card.pid})")
            _end(settings, card)


def _end_all(settings: Settings, pid: int) -> None:
    """After a failed start: nothing of this supervisor may go on."""
    _end_process(pid, lambda: _has_ended(pid))
    for role in (COORDINATOR, DASHBOARD):
        card = process.running(settings, role)
        if card is not None and card.supervisor == pid:
            _end(settings, card)


def _end(settings: Settings, card: Card) -> bool:
    """Ask the holder of a role to end, then make it; False when it had to be killed."""
    return _end_process(card.pid, lambda: process.running(settings, card.role) != card)


def _end_process(pid: int, ended: Callable[[], bool]) -> bool:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGTERM)
    if _wait(ended, process.ENDS_WITHIN + 2):
        return True
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.getpgid(pid) == pid:
            proc.end_group(pid)
        else:
            os.kill(pid, signal.SIGKILL)
    _wait(ended, 2.0)
    return False


def _wait(condition: Callable[[], bool], within: float) -> bool:
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL)
    return True


def _has_ended(pid: int) -> bool:
    """Whether our own child has ended; it is reaped by asking."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def _already_up(holder: Card) -> SwarmError:
    return Conflict(
        f"swarm is already up: pid {holder.pid}, since {holder.started_at}",
        code="ALREADY_UP",
        hint="`swarm status` shows it",
        details={"pid": holder.pid},
    )


def _state_line(state: dict[str, Any] | None, now: datetime) -> str:
    if state is None:
        return "not running"
    well = "ok" if state["ok"] else f"not well: {state['problem']}"
    return f"{well}  {state['url']}  pid {state['pid']}, up {views.age(state['started_at'], now)}"


def _pulls_line(pulls: dict[str, Any]) -> str:
    """Empty when there is nothing to say, as is a field without a value."""
    parts = [f"{pulls['open']} open{_counts(pulls['by_status'])}"] if pulls["open"] else []
    if pulls["oldest_s"] is not None:
        parts.append(f"known as of {pull_views.span(pulls['oldest_s'])} ago")
    return ", ".join([*parts, *([f"{pulls['queued']} in the merge queue"] if pulls["queued"] else [])])


def _github_lines(one: dict[str, Any]) -> Iterator[str]:
    yield from (share["label"] for share in one["quota"])
    if one["unanswered"]:
        since = pull_views.span(one["silent_s"] or 0.0)
        many = "1 pull request waits" if one["unanswered"] == 1 else f"{one['unanswered']} pull requests wait"
        host = "" if one["host"] == "github.com" else f" ({one['host']})"
        yield f"GitHub{host} not reached since {since}, {many}: {one['problem']}"


def _counts(counted: Mapping[str, int]) -> str:
    parts = ", ".join(f"{number} {name}" for name, number in sorted(counted.items()))
    return f" ({parts})" if parts else ""


def _agents_go_on(count: int) -> str:
    if count == 0:
        return "No agent is running."
    many = f"{count} agents keep" if count > 1 else "1 agent keeps"
    return f"{many} running in tmux; `swarm up` takes them up again, `swarm stop --all` ends them."


def _name(role: str) -> str:
    return "the supervisor" if role == UP else f"the {role}"

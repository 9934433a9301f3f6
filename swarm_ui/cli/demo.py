"""`swarm demo`: the whole loop in a throwaway home and repository, told as it happens, checked at the end."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from swarm_core import config, files, overview, proc, process
from swarm_core.agents import table
from swarm_core.config import Settings
from swarm_core.errors import ExternalFailure, InvalidInput, SwarmError, TimedOut
from swarm_core.swarm import Swarm
from swarm_core.tmux import command
from swarm_core.tmux.sessions import Tmux
from swarm_ui import health
from swarm_ui.cli import demo_claude, demo_scripted, output
from swarm_ui.cli.demo_stage import Repository, Say, Stage

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_POLL = 0.05
_ANSWERS_WITHIN = 30.0
_COORDINATOR_ENDS_WITHIN = 5.0
_AGENT_ENDS_WITHIN = 2.0
_GONE_WITHIN = 10.0


@dataclass(frozen=True, slots=True)
class _Play:
    """Who plays: what must be there before, what the repository holds at first, and the play itself."""

    require: Callable[[Mapping[str, str]], None]
    files: Mapping[str, str]
    perform: Callable[[Stage], dict[str, Any]]


_PLAYS = {
    "scripted": _Play(demo_scripted.require, demo_scripted.FILES, demo_scripted.perform),
    "claude": _Play(demo_claude.require, demo_claude.FILES, demo_claude.perform),
}


def demo(*, agent: str, keep: bool, json: bool) -> None:
    """Show the whole loop in a temporary folder; raises when something did not happen."""
    began = time.monotonic()
    say = output.note if json else _say
    play = _chosen(agent)
    with _place(keep=keep) as (root, environ):
        play.require(environ)
        say(f"A throwaway repository and home in {root}; nothing of yours is touched.")
        result = _perform(play, root, environ, say, ending="" if keep else "everything is ended and removed")
    result |= {"agent": agent, "kept": str(root) if keep else None}
    result["checks"] += [] if keep else [{"what": "everything is removed again", "ok": not root.exists()}]
    result["seconds"] = round(time.monotonic() - began, 1)
    missing = [check["what"] for check in result["checks"] if not check["ok"]]
    if not json:
        _sum_up(result, say=say)
    if missing:
        raise ExternalFailure("did not happen: " + "; ".join(missing), details=result)
    if json:
        output.write_json({"ok": True, **result})


def _chosen(agent: str) -> _Play:
    play = _PLAYS.get(table.get(agent).name)
    if play is None:
        raise InvalidInput(f"there is no demo with {agent}", hint=f"there is one with {' and '.join(_PLAYS)}")
    return play


@contextlib.contextmanager
def _place(*, keep: bool) -> Iterator[tuple[Path, dict[str, str]]]:
    """A folder with a path short enough for tmux's socket; with all that runs in it, it goes at the end."""
    short = Path("/tmp")  # noqa: S108
    with contextlib.ExitStack() as undo:
        with _uninterrupted():
            root = Path(tempfile.mkdtemp(prefix="swarm-demo-", dir=short if os.access(short, os.W_OK) else None))
            environ = _environment(root)
            undo.callback(_remove, root, environ)
        yield root, environ
        if keep:
            undo.pop_all()


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Hold interruptions back until the block has made something and put down who undoes it.

    They are not blocked in the kernel: a program that is started meanwhile would be deaf to them for ever.
    """
    came: list[int] = []
    for number in _SIGNALS:
        signal.signal(number, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        for number in _SIGNALS:
            signal.signal(number, _interrupt)
    if came:
        _interrupt(came[0], None)


def _interrupt(number: int, frame: FrameType | None) -> None:
    _be_deaf()
    raise KeyboardInterrupt


def _be_deaf() -> None:
    """From now on things are tidied up, which nothing may interrupt."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _environment(root: Path) -> dict[str, str]:
    """No setting, git configuration or repository of the person's is used."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("SWARM_", "MCP_", "GIT_"))}
    who = {
        f"GIT_{role}_{key}": "demo@swarm.invalid" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")
    }
    unset = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    return clean | who | unset | {"SWARM_HOME": str(root / "home")}


def _remove(root: Path, environ: Mapping[str, str]) -> None:
    """End what still runs, then delete; an agent that is just ending may still write."""
    _be_deaf()
    settings = config.load(environ)
    with contextlib.suppress(SwarmError):
        _end_agents(settings, environ)
    deadline = time.monotonic() + _GONE_WITHIN
    while root.exists() and time.monotonic() < deadline:
        with contextlib.suppress(SwarmError):
            if command.is_up(settings.tmux_socket):
                Tmux(settings.tmux_socket, settings.tmux_config).kill_server()
        shutil.rmtree(root, ignore_errors=True)
        time.sleep(_POLL if root.exists() else 0)


def _end_agents(settings: Settings, environ: Mapping[str, str]) -> None:
    if not settings.database_path.exists():
        return
    with Swarm.open(settings, environ) as swarm:
        for host in swarm.context.hosts:
            for session in host.sessions():
                host.stop(session["instance_id"], grace=_AGENT_ENDS_WITHIN)


def _perform(play: _Play, root: Path, environ: Mapping[str, str], say: Say, *, ending: str) -> dict[str, Any]:
    settings = config.load(environ)
    with contextlib.ExitStack() as stack:
        with _uninterrupted():
            await_coordinator = stack.enter_context(_coordinator(settings, environ))
        repo = Repository(root / "todo", environ, play.files)
        swarm = stack.enter_context(Swarm.open(settings, environ))
        await_coordinator()
        pool = stack.enter_context(ThreadPoolExecutor(max_workers=1))
        stage = Stage(swarm, repo, pool, say)
        result = play.perform(stage)
        if ending:
            stage.tell("swarm", ending)
        return result | {"checks": stage.checks, "repo": str(repo.path), "home": str(settings.home)}


@contextlib.contextmanager
def _coordinator(settings: Settings, environ: Mapping[str, str]) -> Iterator[Callable[[], None]]:
    """A coordinator in a process of its own, as `swarm up` runs it; gives what waits until it answers."""
    files.make_private(settings.logs)
    marks = health.log_sizes(settings)
    argv = [sys.executable, "-P", "-m", "swarm_mcp"]
    log = settings.logs / f"{process.COORDINATOR}.log"
    child = proc.start_child(argv, log=log, env=dict(environ) | {"MCP_SERVER_PORT": "0"})

    def answers() -> bool:
        if child.poll() is not None:
            raise health.why(settings, marks)
        card = process.running(settings, process.COORDINATOR)
        return card is not None and card.pid == child.pid and overview.ask(card) is not None

    def until_it_answers() -> None:
        if not _wait(answers, _ANSWERS_WITHIN):
            raise TimedOut(
                f"the coordinator did not answer within {_ANSWERS_WITHIN:g} s",
                details={"log": health.tails(settings, marks)},
            )

    try:
        yield until_it_answers
    finally:
        _be_deaf()
        proc.end_group(child.pid, signal.SIGTERM)
        if not _wait(lambda: child.poll() is not None, _COORDINATOR_ENDS_WITHIN):
            proc.end_group(child.pid)
            child.wait()


def _wait(condition: Callable[[], bool], within: float) -> bool:
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL)
    return True


def _sum_up(result: dict[str, Any], *, say: Say) -> None:
    say("")
    head = ("agent", "id", "branch", "commits", "files", "lines", "review rounds", "pull request")
    keys = ("name", "id", "branch", "commits", "files_changed", "lines", "rounds", "pull")
    agents = [_row(a) for a in result["agents"]]
    output.columns(head, [[str(a[key]) for key in keys] for a in agents], [[""] * len(head)] * len(agents))
    say("")
    for check in result["checks"]:
        say(f"{'yes' if check['ok'] else 'NO '}  {check['what']}")
    say(f"\nAll of it in {result['seconds']} s, with real git, tmux and SQLite.")
    if result["kept"]:
        home = f"SWARM_HOME={result['home']} swarm"
        say(f"\nLook around:\n  {home} ls\n  {home} attach {result['agents'][0]['id']}\n  {home} events")
        say(f"  git -C {result['repo']} log --graph --all --oneline")
        say(f"Remove it:\n  {home} stop --all; rm -rf {result['kept']}")


def _row(agent: dict[str, Any]) -> dict[str, Any]:
    return agent | {
        "lines": f"+{agent['lines_added']} -{agent['lines_deleted']}",
        "rounds": ", ".join(r["verdict"] or "open" for r in agent["reviews"]) or "-",
        "pull": f"#{agent['pr_number']} {agent['status']}" if agent["pr_number"] else "-",
    }


def _say(text: str) -> None:
    output.write(text)
    output.flush()

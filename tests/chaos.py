"""Agents that exchange messages while coordinator, agents and tmux are killed: nothing lost, doubled or overtaken.

python -m tests.chaos --agents 20 --messages 500 --kills 200 --seed 1 [--seconds 60] [--json]

The seed decides who says what to whom and what is killed in which order; the moments are the machine's. Ends with
1 when a promise is broken, names the seed, tells the story of each message concerned and keeps the folder.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import os
import pty
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from swarm_core import process
from swarm_core.agents import table
from swarm_core.agents.base import Plan, Spec
from swarm_core.agents.scripted import Scripted
from swarm_core.errors import SwarmError
from swarm_core.models import Instance, Kind, Message, Wanted, iso, parse_iso
from swarm_core.store import actions, messages
from swarm_core.store.database import utc_now
from swarm_core.swarm import COUNT_MAX, Swarm
from swarm_core.tmux.panes import Pane, list_panes
from tests.integration.crash_fixture import CUT_OFF
from tests.integration.mcp_fixture import Coordinated
from tests.integration.review_fixture import commit
from tests.mcp_client import HttpClient
from tests.support import isolate, make_repo
from tests.world import World, assert_agreement

LOG = "chaos.log"
PEOPLE, AUTOMATIONS = ("operator", "anna", "bert"), ("builds", "alerts")
_KILLS = {"coordinator": 30, "agent": 34, "tmux command": 24, "tmux client": 11, "tmux server": 1}
_GAP = 0.4
_CAUGHT_WITHIN = 1.0
_AIMED = 0.6
_WATCHING = 3
_ANSWERED_WITHIN = 120.0
_RUNS_WITHIN = 90.0
_DELIVERED_WITHIN = 240.0


@dataclass(frozen=True)
class Wish:
    agents: int
    messages: int
    kills: int
    seed: int
    seconds: float


class Reporting(Scripted):
    """Every other agent reports to the coordinator with hooks, whose replies bring it messages."""

    def plan(self, spec: Spec, *, resume: bool) -> Plan:
        found = super().plan(spec, resume=resume)
        number = int(spec.instance_id.split("-a")[1].partition("-")[0])
        return replace(found, env={"SWARM_HOOKS": "1"}) if number % 2 else found


@dataclass
class Sender:
    """Sends its messages one after the other; `answered` are the marks of those it knows to be accepted."""

    name: str
    swarm: Swarm
    mcp: Coordinated
    token: str
    receivers: Sequence[Instance]
    chance: random.Random
    answered: list[str] = field(default_factory=list)
    client: HttpClient | None = None

    def run(self, count: int, progress: Callable[[], float]) -> None:
        """Spread over the killing, of which `progress` tells the part that is over."""
        moments = sorted(self.chance.uniform(0, 1) for _ in range(count))
        for number, moment in enumerate(moments):
            while progress() < moment:
                time.sleep(0.02)
            to, mark = self.chance.choice(self.receivers), f"{self.name}:{number}"
            self._send(to, self._text(to, mark))
            self.answered.append(mark)
        self._leave()

    def _text(self, to: Instance, mark: str) -> str:
        """Some make the agent work for a moment, some are long, and a reviewer passes on what it is told."""
        lines = [f"append {LOG} {mark}"]
        if self.chance.random() < 0.3:
            lines.insert(0, f"busy {self.chance.uniform(0.05, 1.0):.2f}")
        if self.chance.random() < 0.2:
            lines.insert(0, "ünïcode ✓ and some words " * self.chance.randint(1, 400))
        if to.kind == Kind.REVIEW:
            told = {"feedback": f"append {LOG} {to.id}:{mark}", "feedback_type": "suggestions"}
            lines.append(f"call send_feedback {json.dumps(told)}")
        return "\n".join(lines)

    def _send(self, to: Instance, text: str) -> None:
        """As often as it takes until it is accepted."""
        deadline = time.monotonic() + _ANSWERED_WITHIN
        while True:
            try:
                return self._send_once(to, text)
            except (SwarmError, *CUT_OFF):
                self._leave()
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def _send_once(self, to: Instance, text: str) -> None:
        if not self.token:
            self.swarm.message(to.id, text, sender=self.name)
            return
        if self.client is None:
            client = HttpClient(self.mcp.port, self.token, timeout=30)
            client.initialize()
            self.client = client
        said: dict[str, Any] = {"feedback": text, "feedback_type": "suggestions", "instance_id": to.id}
        answer = self.client.call("send_feedback", **said)
        if answer.code:
            raise SwarmError(f"{answer.code} of {self.name}: {answer.message}")

    def _leave(self) -> None:
        if self.client is not None:
            self.client.close()
            self.client = None


class Chaos:
    def __init__(self, wish: Wish, mcp: Coordinated, swarm: Swarm) -> None:
        self.wish, self.mcp, self.swarm = wish, mcp, swarm
        self.chance = random.Random(wish.seed)
        self.killer = Killer(mcp, swarm, self.chance)
        self.kills: list[tuple[str, str, str]] = []
        self.resumes: list[Future[None]] = []
        self.problems: list[str] = []
        self.began = time.monotonic()
        self._over = False

    def run(self) -> Truth:
        agents = self._hire()
        senders = self._senders(agents)
        self.began = time.monotonic()
        share, rest = divmod(self.wish.messages, len(senders))
        with ThreadPoolExecutor(len(senders)) as people, ThreadPoolExecutor(4) as self.restarts:
            sending = [people.submit(s.run, share + (n < rest), self._progress) for n, s in enumerate(senders)]
            try:
                self._kill_all()
            finally:
                self._over = True
                self._revive()
            for one in sending:
                one.result(_ANSWERED_WITHIN)
            for resumed in self.resumes:
                resumed.result(_RUNS_WITHIN)
        self._settle()
        truth = examine(self.swarm, self.mcp.world, {mark for s in senders for mark in s.answered})
        self._check_world(truth)
        truth.seconds = time.monotonic() - self.began
        return truth

    # Before

    def _hire(self) -> list[Instance]:
        reviewers = max(1, self.wish.agents // 5)
        works: list[Instance] = []
        while len(works) < self.wish.agents - reviewers:
            count = min(COUNT_MAX, self.wish.agents - reviewers - len(works))
            works += self.swarm.work("say ready", repo=str(self.mcp.world.repo), agent="scripted", count=count)
        for work in works[:reviewers]:
            commit(work)
        with ThreadPoolExecutor(2) as pool:
            chosen = works[:reviewers]
            return works + list(
                pool.map(lambda w: self.swarm.request_review(w.id, reviewer_prompt="say ready"), chosen)
            )

    def _senders(self, agents: Sequence[Instance]) -> list[Sender]:
        tokens = dict.fromkeys(PEOPLE, "")
        for name in AUTOMATIONS:
            tokens[f"automation:{name}"] = self.swarm.create_token(name, ["feedback", "read"]).token
        chances = {name: random.Random(f"{self.wish.seed} {name}") for name in tokens}
        return [Sender(name, self.swarm, self.mcp, t, agents, chances[name]) for name, t in tokens.items()]

    # Meanwhile

    def _progress(self) -> float:
        return 1.0 if self._over else len(self.kills) / max(1, self.wish.kills)

    def _kill_all(self) -> None:
        kinds = self.chance.choices(list(_KILLS), list(_KILLS.values()), k=10 * self.wish.kills)
        if self.wish.kills >= 20:
            kinds[self.wish.kills // 2] = "tmux server"
        for kind in kinds:
            if len(self.kills) == self.wish.kills or time.monotonic() > self.began + self.wish.seconds:
                return
            time.sleep(self.chance.uniform(0, 2 * _GAP))
            self._kill(kind)

    def _kill(self, kind: str) -> None:
        self._revive(now=False)
        who = self.killer.kill(kind)
        if who is None:  # nothing of that kind runs now
            kind, who = "agent", self.killer.kill("agent")
        if who is None:
            return
        self.kills.append((iso(utc_now()), kind, who))
        if kind == "agent":
            self.resumes.append(self.restarts.submit(self._resume, who, self.chance.uniform(0, 1.5)))
        elif kind == "tmux server":
            self.resumes.append(self.restarts.submit(self._resume_lost))

    def _revive(self, *, now: bool = True) -> None:
        """Start the coordinator again if it was killed, mostly at once."""
        assert self.mcp.child is not None
        if self.mcp.child.poll() is not None and (now or self.chance.random() < 0.7):
            self.mcp.restart()

    def _resume(self, instance_id: str, after: float = 0.0) -> None:
        """What a person does with `swarm restart`, again when it fails."""
        time.sleep(after)
        deadline = time.monotonic() + _RUNS_WITHIN
        while True:
            try:
                self.swarm.restart(instance_id)
                return
            except SwarmError as error:
                if time.monotonic() > deadline:
                    self.problems.append(f"{instance_id} could not be restarted: {error.message}")
                    return
                time.sleep(0.2)

    def _resume_lost(self) -> None:
        """All sessions are gone: what `swarm up` offers after a reboot."""
        self.swarm.reconcile()
        for instance in self.swarm.lost():
            self._resume(instance.id)

    # After

    def _settle(self) -> None:
        """Every agent runs, and has seen everything, or the time is over."""
        deadline = time.monotonic() + _DELIVERED_WITHIN
        while time.monotonic() < deadline:
            with contextlib.suppress(SwarmError):
                self.swarm.reconcile()
                for instance in self.swarm.instances():
                    if instance.wanted != Wanted.RUNNING:
                        self._resume(instance.id)
            waiting = messages.waiting_for(self.swarm.context.db)
            still = messages.unacknowledged(self.swarm.context.db)
            if not waiting and not still and not actions.all_open(self.swarm.context.db):
                return
            time.sleep(0.5)

    def _check_world(self, truth: Truth) -> None:
        """Everything agrees while all run; and when all are stopped nothing of this run is left."""
        try:
            assert_agreement(self.mcp.world, self.swarm)
        except AssertionError as error:
            self.problems.append(f"database, git and tmux disagree: {error}")
        self.killer.close()
        for instance in self.swarm.instances():
            self.swarm.stop(instance.id)
        if code := self.mcp.stop():
            self.problems.append(f"the coordinator ended with {code}")
        left = strays(self.mcp.world.home, within=10.0)
        self.problems += [f"a process is left: {one}" for one in left]
        truth.problems += self.problems


class Killer:
    """Ends things of this run, and nothing else, with SIGKILL; each kill answers who it was, None when nobody."""

    def __init__(self, mcp: Coordinated, swarm: Swarm, chance: random.Random) -> None:
        self._mcp, self._swarm, self._chance = mcp, swarm, chance
        self._socket = mcp.world.settings.tmux_socket
        self._clients: list[subprocess.Popen[bytes]] = []
        self._aim: str | None = None

    def kill(self, kind: str) -> str | None:
        """Mostly while a message is on its way."""
        self._aim = self._in_flight() if self._chance.random() < _AIMED else None
        time.sleep(self._chance.uniform(0, 0.1) if self._aim else 0)
        found: str | None = getattr(self, "_" + kind.replace(" ", "_"))()
        return found

    def _in_flight(self) -> str | None:
        """The receiver of a message that was handed over and not seen yet, as soon as there is one."""
        deadline = time.monotonic() + _CAUGHT_WITHIN
        while time.monotonic() < deadline:
            found = self._swarm.context.db.row("SELECT instance_id FROM messages WHERE state = 'injected'")
            if found is not None:
                return str(found[0])
            time.sleep(0.005)
        return None

    def close(self) -> None:
        for client in self._clients:
            client.kill()
            client.wait(20)

    def _coordinator(self) -> str | None:
        assert self._mcp.child is not None
        if self._mcp.child.poll() is not None:
            return None
        self._mcp.kill()
        return f"pid {self._mcp.child.pid}"

    def _agent(self) -> str | None:
        panes = [p for p in self._panes() if not p.dead]
        if not panes:
            return None
        aimed = [p for p in panes if p.instance == self._aim]
        chosen = self._chance.choice(aimed or sorted(panes, key=lambda p: p.session))
        return chosen.instance if self._end(chosen.pid) else None

    def _tmux_command(self) -> str | None:
        """One of the short commands that the coordinator runs, caught in the act."""
        deadline = time.monotonic() + _CAUGHT_WITHIN
        while self._mcp.child is not None and self._mcp.child.poll() is None and time.monotonic() < deadline:
            for pid in _children(self._mcp.child.pid):
                words = _command_line(pid)
                if words and Path(words[0]).name == "tmux" and str(self._socket) in words and self._end(pid):
                    return " ".join(words[6:9])
            time.sleep(0.0005)
        return None

    def _tmux_client(self) -> str | None:
        """Somebody who watches an agent; others watch from now on."""
        self._clients = [c for c in self._clients if c.poll() is None]
        while len(self._clients) < _WATCHING and self._watch():
            pass
        if not self._clients:
            return None
        killed = self._clients.pop(self._chance.randrange(len(self._clients)))
        killed.kill()
        killed.wait(20)
        return f"pid {killed.pid}"

    def _tmux_server(self) -> str | None:
        panes = self._panes()
        return f"pid {panes[0].server_pid}" if panes and self._end(panes[0].server_pid) else None

    def _watch(self) -> bool:
        running = [p.instance for p in self._panes() if p.instance and not p.dead]
        if not running:
            return False
        try:
            argv = self._swarm.attach_argv(self._swarm.find(self._chance.choice(sorted(running))))
        except SwarmError:
            return False
        ours, theirs = pty.openpty()
        env = self._mcp.world.environ | {"TERM": "xterm-256color"}
        self._clients.append(subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs, env=env))
        os.close(theirs)
        threading.Thread(target=_drain, args=(ours,), daemon=True).start()
        return True

    def _panes(self) -> list[Pane]:
        with contextlib.suppress(SwarmError):
            return [p for p in list_panes(self._socket) if p.instance]
        return []

    def _end(self, pid: int) -> bool:
        """Kill the process if it is of this run."""
        if not _is_of(self._mcp.world.home, pid):
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            return True
        return False


@dataclass
class Truth:
    """What the ledger, the agents' own logs and their worktrees say when all is over."""

    messages: int = 0
    lost: int = 0
    doubled: int = 0
    out_of_order: int = 0
    received_again: int = 0
    sent_again: int = 0
    waited: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    concerned: list[Message] = field(default_factory=list)
    seconds: float = 0.0

    def break_promise(self, what: str, *concerned: Message) -> None:
        self.problems.append(what)
        self.concerned += [m for m in concerned if m.id not in {c.id for c in self.concerned}]

    def quantile(self, part: float) -> float:
        return round(sorted(self.waited)[int(part * (len(self.waited) - 1))], 3) if self.waited else 0.0


def examine(swarm: Swarm, world: World, answered: set[str]) -> Truth:
    truth = Truth()
    again = swarm.context.db.row("SELECT count(*) FROM mcp_events WHERE name = 'message:lost'")
    truth.sent_again = int(again[0]) if again else 0
    marks: Counter[str] = Counter()
    for instance in swarm.instances():
        sent = messages.of(swarm.context.db, instance.id, limit=1_000_000)
        truth.messages += len(sent)
        truth.waited += [_seconds(m.created_at, m.seen_at) for m in sent if m.seen_at]
        marks += Counter(mark for m in sent if (mark := _mark(m.body)))
        _examine_receipts(truth, world, instance, sent)
        _examine_effects(truth, instance, sent)
    for mark in sorted(answered - marks.keys()):
        truth.lost += 1
        truth.break_promise(f"{mark} was accepted and is in no ledger")
    for mark, count in marks.items():
        if count > 1:
            truth.doubled += 1
            truth.break_promise(f"{mark} was accepted {count} times")
    for problem in swarm.context.db.check() + _integrity(swarm):
        truth.break_promise(f"the database: {problem}")
    return truth


def _examine_receipts(truth: Truth, world: World, instance: Instance, sent: Sequence[Message]) -> None:
    """The agent's own log has each message, those of one sender in the order they were sent."""
    log = received(world, instance.id)
    truth.received_again += sum(entry["kind"] == "duplicate" for entry in log)
    got = list(dict.fromkeys(e["message_id"] for e in log if e["message_id"]))
    for message in sent:
        if message.state not in ("seen", "acknowledged"):
            truth.lost += 1
            truth.break_promise(f"{message.id} to {instance.id} is {message.state}", message)
        elif message.id not in got:
            truth.lost += 1
            truth.break_promise(f"{message.id} to {instance.id} is seen and not in its log", message)
    place = {message_id: n for n, message_id in enumerate(got)}
    for sender in {m.sender for m in sent}:
        _examine_order(truth, [m for m in sent if m.sender == sender and m.id in place], place, "received")
    for entry in log:
        if not entry["message_id"]:
            truth.break_promise(f"{instance.id} received what nobody sent: {entry['text'][:200]!r}")


def _examine_effects(truth: Truth, instance: Instance, sent: Sequence[Message]) -> None:
    """Each message has done what it asks for once, those of one sender in the order they were sent."""
    path = Path(instance.worktree_path, LOG)
    lines = path.read_text().splitlines() if path.exists() else []
    found, by_mark = Counter(lines), {mark: m for m in sent if (mark := _mark(m.body))}
    for mark, message in by_mark.items():
        if not found[mark]:
            truth.lost += 1
            truth.break_promise(f"{mark} ({message.id}) has no effect in {instance.id}", message)
        elif found[mark] > 1:
            truth.doubled += 1
            truth.break_promise(f"{mark} ({message.id}) took effect {found[mark]} times", message)
    for line in found.keys() - by_mark.keys():
        truth.break_promise(f"{instance.id} did what nobody asked for: {line[:200]!r}")
    place = {by_mark[line].id: n for n, line in reversed(list(enumerate(lines))) if line in by_mark}
    for sender in {m.sender for m in sent}:
        _examine_order(truth, [m for m in sent if m.sender == sender and m.id in place], place, "carried out")


def _examine_order(truth: Truth, sent: Sequence[Message], place: dict[str, int], what: str) -> None:
    for first, second in itertools.pairwise(sent):
        if place[first.id] > place[second.id]:
            truth.out_of_order += 1
            truth.break_promise(f"{second.id} was {what} before {first.id}", first, second)


def tell_story(swarm: Swarm, world: World, message: Message, kills: Sequence[tuple[str, str, str]]) -> str:
    """What is known of a message: its events, its place in the agent's log, and what was killed meanwhile."""
    told = [(e.at, e.name, e.metadata) for e in swarm.events(after=0, limit=1_000_000)]
    lines = [(at, f"{name} {about}") for at, name, about in told if about.get("message_id") == message.id]
    until = max((at for at, _ in lines), default="")
    for entry in received(world, message.instance_id):
        if entry["message_id"] == message.id:
            lines.append((entry["at"], f"received as number {entry['n']}, {entry['kind']}"))
    for at, kind, who in kills:
        near = kind in ("coordinator", "tmux server") or who == message.instance_id or kind == "tmux command"
        if near and message.created_at <= at <= until:
            lines.append((at, f"-9 {kind} {who}"))
    head = f"{message.id} from {message.sender} to {message.instance_id}, {message.state}, {message.how}"
    return "\n".join([head, *(f"  {at} {what}" for at, what in sorted(lines))])


def received(world: World, instance_id: str) -> list[dict[str, Any]]:
    """What the agent's own log says it was given; a line that a kill has torn is none."""
    path = world.settings.instance_dir(instance_id) / "received.jsonl"
    entries = []
    for line in path.read_text(errors="replace").splitlines() if path.exists() else []:
        with contextlib.suppress(ValueError):
            entries.append(json.loads(line))
    return entries


def strays(home: Path, *, within: float) -> list[str]:
    """What still runs of this run after so many seconds, without this process."""
    deadline = time.monotonic() + within
    while True:
        pids = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and int(p.name) != os.getpid()]
        left = [f"{pid} {' '.join(_command_line(pid))[:200]}" for pid in pids if _is_of(home, pid)]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.2)


def _is_of(home: Path, pid: int) -> bool:
    """Whether the process works for this home; one that has ended does not."""
    try:
        if _state(pid) in "ZX":
            return False
        said = Path(f"/proc/{pid}/cmdline").read_bytes() + b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return str(home).encode() in said


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += [int(child) for child in (task / "children").read_text().split()]
    return found


def _command_line(pid: int) -> list[str]:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    return []


def _drain(terminal: int) -> None:
    with contextlib.suppress(OSError):
        while os.read(terminal, 65536):
            pass
    os.close(terminal)


def _mark(body: str) -> str:
    """What the message appends to the log; a reviewer's also says what it is to pass on, which is no line."""
    lines = [line for line in body.splitlines() if line.startswith(f"append {LOG} ")]
    return lines[0].removeprefix(f"append {LOG} ") if lines else ""


def _seconds(since: str, until: str | None) -> float:
    return (parse_iso(until or since) - parse_iso(since)).total_seconds()


def _integrity(swarm: Swarm) -> list[str]:
    """SQLite's own thorough check; empty when all is well."""
    with contextlib.closing(sqlite3.connect(swarm.context.db.path, timeout=30)) as connection:
        said = [str(row[0]) for row in connection.execute("PRAGMA integrity_check")]
        return [line for line in said if line != "ok"]


@contextlib.contextmanager
def prepared() -> Iterator[Coordinated]:
    """A home, a repository and a coordinator that always listens on the same port, as a person's does."""
    folder = Path(tempfile.mkdtemp(prefix="chaos-", dir="/tmp"))
    with pytest.MonkeyPatch.context() as patch:
        isolate(patch, folder)
        with process.listen(0) as free:
            patch.setenv("MCP_SERVER_PORT", str(free.getsockname()[1]))
        patch.setitem(table.AGENTS, "scripted", Reporting())
        made = Coordinated(World(folder / "h", make_repo(folder / "repo")), folder)
        made.environ = {"MCP_SERVER_PORT": made.world.environ["MCP_SERVER_PORT"]}
        try:
            made.start()
            yield made
        finally:
            made.end()
            made.world.kill_tmux()


def main() -> int:
    asked = _arguments()
    wish = Wish(asked.agents, asked.messages, asked.kills, asked.seed, asked.seconds)
    with prepared() as mcp, mcp.swarm() as swarm:
        chaos = Chaos(wish, mcp, swarm)
        truth = chaos.run()
        figures = _figures(wish, truth, Counter(kind for _, kind, _ in chaos.kills))
        stories = [tell_story(swarm, mcp.world, one, chaos.kills) for one in truth.concerned[:5]]
        folder = mcp.folder
    if asked.json:
        print(json.dumps(figures, indent=2))
    else:
        _show(figures)
    if not truth.problems and not asked.keep:
        shutil.rmtree(folder, ignore_errors=True)
    for problem in truth.problems:
        print(f"BROKEN: {problem}", file=sys.stderr)
    for story in stories:
        print(story, file=sys.stderr)
    if truth.problems:
        print(f"seed {wish.seed}; what is left is in {folder}", file=sys.stderr)
    return 1 if truth.problems else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--agents", type=int, default=20)
    parser.add_argument("--messages", type=int, default=500, help="what people and automations send")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None, help="a random one unless given")
    parser.add_argument(
        "--seconds", type=float, default=None, help="the killing ends then, however many there were"
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--keep", action="store_true", help="keep the folder of the run")
    asked = parser.parse_args()
    if asked.seed is None:
        asked.seed = random.SystemRandom().randrange(1_000_000)
    if asked.seconds is None:
        asked.seconds = math.inf
    return asked


def _figures(wish: Wish, truth: Truth, kills: Counter[str]) -> dict[str, Any]:
    return {
        "seed": wish.seed,
        "agents": wish.agents,
        "messages": truth.messages,
        "kills": kills.total(),
        **{f"kills: {kind}": kills[kind] for kind in _KILLS},
        "lost": truth.lost,
        "duplicated effects": truth.doubled,
        "out of order": truth.out_of_order,
        "received again and ignored by id": truth.received_again,
        "taken back and sent again": truth.sent_again,
        "p50 to seen, s": truth.quantile(0.5),
        "p99 to seen, s": truth.quantile(0.99),
        "seconds": round(truth.seconds, 1),
        "broken promises": len(truth.problems),
    }


def _show(figures: dict[str, Any]) -> None:
    for name, value in figures.items():
        print(f"{name:34} {value:>10}")


if __name__ == "__main__":
    sys.exit(main())

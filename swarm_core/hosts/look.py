"""Looking at many instances at once: sessions, worktrees, and what the agents are doing."""

from __future__ import annotations

# pathlib costs more than the system calls it makes, and every look does this for every instance
# ruff: noqa: PTH112, PTH116, PTH123
import os
import re
import secrets
import stat
import time
from pathlib import Path

from swarm_core.agents import table
from swarm_core.agents.base import Agent, Reading
from swarm_core.config import Settings
from swarm_core.git import admin
from swarm_core.hosts.base import InstanceFacts, ReadingFacts, SessionFacts, Talk, Watched
from swarm_core.hosts.rounds import Rounds
from swarm_core.models import Activity, Source, iso, parse_iso
from swarm_core.tmux import command
from swarm_core.tmux.control import quote
from swarm_core.tmux.panes import FORMAT, Pane, by_instance, from_lines, list_panes, nudge
from swarm_core.tmux.watch import DeathWatch

_STATUS_FILE_MAX = 1 << 16
_DETAIL_MAX = 500
_REMEMBERED = 64


class Look:
    """One look is one question to tmux, however many instances there are, and one more for changed screens.

    Any thread may look, one thread waits. Each question is a process: a control-mode client that attaches while a
    session is made or ended crashes tmux (3.3a and its successors), and every agent with it.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._names: dict[tuple[str, int], tuple[str, ...]] = {}
        self._files: dict[str, tuple[int, Reading | None]] = {}
        self._screens: dict[str, tuple[tuple[int, int], Reading | None]] = {}
        self._links: dict[str, tuple[int, int]] = {}
        self._deaths = DeathWatch()
        self._live: dict[str, Pane] = {}
        self._ended: dict[str, int] = {}
        self._pane_ids: dict[str, str] = {}
        self._rounds = Rounds(self._look_at)

    def panes(self) -> list[Pane]:
        return [p for p in self._all_panes() if p.instance]

    def foreign_sessions(self) -> list[str]:
        panes = self._all_panes()
        return sorted({p.session for p in panes} - {p.session for p in panes if p.instance})

    def wait(self, timeout: float) -> frozenset[str]:
        """Names of instances whose program ended, each once per program."""
        live = {n: p for n, p in self._live.items() if self._ended.get(n) != p.pid}
        self._ended = {n: pid for n, pid in self._ended.items() if n in self._live}
        self._deaths.set({name: pane.pid for name, pane in live.items()})
        ended = self._deaths.wait(timeout)
        for name in ended:
            self._ended[name] = live[name].pid
            nudge(live[name])
        return ended

    def screen(self, instance_id: str) -> str:
        """The visible screen; empty when there is no session."""
        panes = [p.pane_id for p in self.panes() if p.instance == instance_id]
        return "".join(self._capture(panes).values()) if panes else ""

    def sessions(self) -> list[SessionFacts]:
        return [session_facts(p) for p in self.panes()]

    def snapshot(self, watched: list[Watched]) -> dict[str, InstanceFacts]:
        began = int(time.time())
        panes = {p.instance: p for p in self.panes() if p.instance}
        self._live = {n: p for n, p in panes.items() if not p.dead}
        self._forget()
        facts: dict[str, InstanceFacts] = {}
        by_screen: list[tuple[Watched, Pane]] = []
        for one in watched:
            pane = panes.get(one["instance_id"])
            reading = self._read_files(one, pane) if pane and not pane.dead else None
            facts[one["instance_id"]] = {
                "session": session_facts(pane) if pane else None,
                "worktree": os.path.isdir(one["worktree_path"]),
                "link": self._link_problem(one["worktree_path"]),
                "reading": reading,
            }
            if pane and not pane.dead and reading is None:
                by_screen.append((one, pane))
        self._read_screens(by_screen, facts, began)
        return facts

    def _link_problem(self, worktree_path: str) -> str:
        """What is wrong with a worktree's `.git`; a file that was right is not read again until it changes."""
        try:
            facts = os.lstat(f"{worktree_path}/.git")
        except OSError:
            return "no_link" if os.path.isdir(worktree_path) else ""
        stamp = (facts.st_ino, facts.st_ctime_ns)
        if self._links.get(worktree_path) == stamp:
            return ""
        problem = admin.link_problem(Path(worktree_path))
        if not problem:
            self._links[worktree_path] = stamp
        return problem

    def evidence(self, talk: Talk) -> list[ReadingFacts]:
        """Every source asked anew, best first; what is on the screen is read although a better source speaks.

        Threads that ask at the same time share one tmux process.
        """
        found = self._rounds.ask(talk["instance_id"])
        if found is None:
            return [_facts(Reading(Activity.EXITED, "it has no session"), Source.PROCESS)]
        pane, shown = found
        if pane.dead:
            return [_facts(Reading(Activity.EXITED, "its program has ended"), Source.PROCESS)]
        file = self._read_files(_watch(talk), pane)
        unread = Reading(Activity.UNKNOWN, "its screen could not be read")
        screen = unread if shown is None else table.get(talk["agent"]).read_screen(shown)
        process = _facts(Reading(Activity.UNKNOWN, f"process {pane.pid} runs"), Source.PROCESS)
        seen = [_facts(screen, Source.PANE)] if screen is not None else []
        return [*([file] if file is not None else []), process, *seen]

    def pane_id(self, instance_id: str) -> str | None:
        """Return the pane in which the instance was last seen, without asking tmux."""
        return self._pane_ids.get(instance_id)

    def _look_at(self, names: list[str]) -> dict[str, tuple[Pane, str | None]]:
        """Return pane and screen of instances: one process for those whose pane is known, two for the rest."""
        found: dict[str, tuple[Pane, str | None]] = {}
        for pane, shown in self._panes_with_screens([self._pane_ids[n] for n in names if n in self._pane_ids]):
            if pane.instance in names:
                found[pane.instance] = (pane, shown)
        if left := set(names).difference(found):
            panes = by_instance(self.panes())
            self._pane_ids = {name: pane.pane_id for name, pane in panes.items()}
            asked = {name: pane for name, pane in panes.items() if name in left}
            screens = self._capture([pane.pane_id for pane in asked.values()]) if asked else {}
            found |= {name: (pane, screens.get(pane.pane_id)) for name, pane in asked.items()}
        return found

    def _panes_with_screens(self, pane_ids: list[str]) -> list[tuple[Pane, str]]:
        """Return what tmux shows of panes; those that are gone are left out."""
        if not pane_ids:
            return []
        mark = f"swarm-{secrets.token_hex(8)} "
        asked = [f"capture-pane -p -t {p} ; display-message -p -t {p} {quote(mark + FORMAT)}\n" for p in pane_ids]
        done = command.run(
            self._settings.tmux_socket, ["source-file", "-"], stdin="".join(asked).encode(), check=False
        )
        parts = re.split(rf"{mark}(.*)\n", done.text)
        described = zip(parts[::2], parts[1::2], strict=False)
        return [(pane, shown.rstrip()) for shown, line in described for pane in from_lines([line])]

    def close(self) -> None:
        self._deaths.close()

    def _all_panes(self) -> list[Pane]:
        return list_panes(self._settings.tmux_socket)

    def _forget(self) -> None:
        """Drop what is known of files of programs that are gone, now and then."""
        if len(self._names) > 2 * len(self._live) + _REMEMBERED:
            pids = {(name, pane.pid) for name, pane in self._live.items()}
            names = {key: files for key, files in self._names.copy().items() if key in pids}
            kept = {name for files in names.values() for name in files}
            # Other threads may be looking: each dictionary is built aside and then put in place.
            self._files = {name: known for name, known in self._files.copy().items() if name in kept}
            self._names = names

    def _capture(self, pane_ids: list[str]) -> dict[str, str]:
        """The visible text of panes. A line for each, so that one that has just gone takes no other with it.

        The lines are read from stdin because tmux takes only so many words as arguments.
        """
        mark = f"swarm-{secrets.token_hex(8)}"
        asked = [f"capture-pane -p -t {p} ; display-message -p -t {p} {mark}-{p[1:]}\n" for p in pane_ids]
        text = "".join(asked).encode()
        done = command.run(self._settings.tmux_socket, ["source-file", "-"], stdin=text, check=False)
        parts = re.split(rf"{mark}-(\d+)\n", done.text)
        return {f"%{number}": screen.rstrip() for screen, number in zip(parts[::2], parts[1::2], strict=False)}

    def _read_files(self, one: Watched, pane: Pane) -> ReadingFacts | None:
        agent = table.get(one["agent"])
        names = self._names.get((one["instance_id"], pane.pid))
        if names is None:
            folder = str(self._settings.instance_dir(one["instance_id"]))
            names = self._names[one["instance_id"], pane.pid] = agent.status_files(folder, pane.pid)
        for name in names:
            reading = self._read_file(agent, name)
            if reading is not None:
                return _facts(reading, Source.FILE)
        return None

    def _read_file(self, agent: Agent, name: str) -> Reading | None:
        """The file's meaning; read again only when it has changed."""
        try:
            facts = os.stat(name)
            changed = facts.st_mtime_ns
            known = self._files.get(name)
            if known is not None and known[0] == changed:
                return known[1]
            if not stat.S_ISREG(facts.st_mode):
                return None
            # An agent may put anything there, also a pipe that nobody writes to.
            with open(os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
                text = file.read(_STATUS_FILE_MAX).decode(errors="replace")
            reading = agent.read_status(text)
        except (OSError, ValueError, TypeError, RecursionError, OverflowError):
            return None
        self._files[name] = (changed, reading)
        return reading

    def _read_screens(
        self, asked: list[tuple[Watched, Pane]], facts: dict[str, InstanceFacts], began: int
    ) -> None:
        """A screen is read again only when something was written since; tmux knows when, to the second."""
        known = {p.pane_id: s for _, p in asked if (s := self._screens.get(p.pane_id)) and s[0] == _written(p)}
        new = [pane.pane_id for _, pane in asked if pane.pane_id not in known]
        screens = self._capture(new) if new else {}
        for one, pane in asked:
            if pane.pane_id in screens:
                reading = table.get(one["agent"]).read_screen(screens[pane.pane_id])
                known[pane.pane_id] = (_written(pane), reading)
            if pane.pane_id in known:
                facts[one["instance_id"]]["reading"] = _seen(known[pane.pane_id][1])
        self._screens = {
            p.pane_id: known[p.pane_id] for _, p in asked if p.activity_at < began and p.pane_id in known
        }


def _watch(talk: Talk) -> Watched:
    return {"instance_id": talk["instance_id"], "agent": talk["agent"], "worktree_path": talk["worktree_path"]}


def _written(pane: Pane) -> tuple[int, int]:
    return (pane.pid, pane.activity_at)


def _seen(reading: Reading | None) -> ReadingFacts:
    if reading is None:
        unknown = Reading(activity=Activity.UNKNOWN, detail="the program runs; nothing says what it does")
        return _facts(unknown, Source.PROCESS)
    return _facts(reading, Source.PANE)


def session_facts(pane: Pane) -> SessionFacts:
    return {
        "instance_id": pane.instance or pane.session,
        "epoch": pane.epoch or 0,
        "pid": pane.pid,
        "alive": not pane.dead,
        "exit_code": pane.exit_code,
        "exit_signal": pane.exit_signal,
    }


def _facts(reading: Reading, source: Source) -> ReadingFacts:
    """The reading as a fact; what an agent writes about itself is cut and checked like any foreign text."""
    detail = "".join(c if c.isprintable() else " " for c in reading.detail[:_DETAIL_MAX]).strip()
    return {"activity": reading.activity, "source": str(source), "detail": detail, "at": _moment(reading.at)}


def _moment(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        return iso(parse_iso(text))
    except (ValueError, OverflowError):
        return None

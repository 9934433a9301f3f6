"""Speaking to an agent's program: what is typed into its terminal, and what it is known to have heard."""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import hashlib
import os
import re
import threading
import time
from dataclasses import dataclass

from swarm_core import files, locks
from swarm_core.agents import table
from swarm_core.agents.base import Agent, Dialog
from swarm_core.config import Settings
from swarm_core.errors import Conflict, ExternalFailure, InvalidInput, NotFound
from swarm_core.hosts.base import BLOCKED, BUSY, GONE, HARMLESS, SENT, UNCLEAR, DialogFacts, LogFacts, Talk
from swarm_core.hosts.look import Look
from swarm_core.models import Activity, Source
from swarm_core.tmux.sessions import Tmux

_READ_AT_ONCE = 1 << 20
_LONGEST_LINE = 8 << 20
_HEADER = re.compile(rb"\[swarm msg ([0-9a-f]{12}) ")
_INPUT_LINES = 12
_TAKEN_WITHIN = 5.0
_ANSWERED_WITHIN = 15.0
_LOOK_EVERY = 0.05
_OURS = ("[swarm msg ", "[Pasted text", "[pasted ")


@dataclass(slots=True)
class _Log:
    """How far a log was read; a line that is not whole yet is read again."""

    place: str = ""
    inode: int = 0
    offset: int = 0


class Speech:
    """Any thread may speak; one at a time to the same program."""

    def __init__(self, settings: Settings, tmux: Tmux, look: Look) -> None:
        self._settings = settings
        self._tmux = tmux
        self._look = look
        self._logs: dict[str, _Log] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._pasted_at: dict[str, float] = {}

    def can_hear(self, talk: Talk) -> str:
        return self._state(talk)

    def hand_over(self, talk: Talk, text: str) -> str:
        name, ways = talk["instance_id"], table.get(talk["agent"]).ways
        with self._alone(name):
            time.sleep(max(0.0, self._pasted_at.get(name, 0.0) + ways.gap - time.monotonic()))
            state = self._state(talk)
            if state != SENT:
                return state
            try:
                pane_id = self._look.pane_id(name)
                self._tmux.paste(name, text, submit=not ways.settle, settle=0.0, pane_id=pane_id)
                if ways.settle:
                    time.sleep(ways.settle)
                    if self._state(talk, pasted=True) in (BLOCKED, UNCLEAR):
                        return BLOCKED
                    self._tmux.enter(name, pane_id=pane_id)
            except (Conflict, NotFound):
                return GONE
            finally:
                self._pasted_at[name] = time.monotonic()
        return SENT

    def press_enter(self, talk: Talk) -> bool:
        with self._alone(talk["instance_id"]):
            screen = "\n".join(self._look.screen(talk["instance_id"]).rstrip().splitlines()[-_INPUT_LINES:])
            if not any(mark in screen for mark in _OURS) or self._state(talk) != SENT:
                return False
            with contextlib.suppress(Conflict, NotFound):
                self._tmux.enter(talk["instance_id"])
                return True
            return False

    def type_keys(self, talk: Talk, text: str, keys: list[str]) -> str:
        with self._alone(talk["instance_id"]):
            state = self._hears(talk, harmless=not text and HARMLESS.issuperset(keys))
            if state != SENT:
                return state
            try:
                if text:
                    self._tmux.type_text(talk["instance_id"], text)
                else:
                    self._tmux.press(talk["instance_id"], keys)
            except (Conflict, NotFound):
                return GONE
        return SENT

    def dialog(self, talk: Talk) -> DialogFacts | None:
        found = self._asked(talk)
        return _facts(found) if found is not None else None

    def answer(self, talk: Talk, digest: str, choice: int | None, text: str) -> DialogFacts:
        name = talk["instance_id"]
        with self._alone(name), locks.hold(self._settings.locks / f"{name}.answer.lock", timeout=_ANSWERED_WITHIN):
            found = self._asked(talk)
            if found is None or _facts(found)["digest"] != digest:
                raise Conflict(
                    f"{talk['instance_id']} no longer shows that question",
                    code="DIALOG_CHANGED",
                    hint=f"`swarm show {talk['instance_id']}` shows what it asks now",
                    details={"shown": _facts(found) if found else None},
                )
            if choice is None:
                self._tmux.paste(talk["instance_id"], text, submit=True)
            else:
                if not 1 <= choice <= len(found.keys):
                    raise InvalidInput(f"there is no choice {choice}", hint=f"choose 1 to {len(found.keys)}")
                self._tmux.send_keys(talk["instance_id"], found.keys[choice - 1])
            self._await_over(talk, digest)
        return _facts(found)

    def _asked(self, talk: Talk) -> Dialog | None:
        return table.get(talk["agent"]).read_dialog(self._look.screen(talk["instance_id"]))

    def _await_over(self, talk: Talk, digest: str) -> None:
        """Until the program has taken the answer: who answers next must not find the question still there."""
        deadline = time.monotonic() + _TAKEN_WITHIN
        while time.monotonic() < deadline:
            shown = self._asked(talk)
            if shown is None or _facts(shown)["digest"] != digest:
                return
            time.sleep(_LOOK_EVERY)

    def read_log(self, talk: Talk) -> LogFacts:
        agent = table.get(talk["agent"])
        path = self._log_path(agent, talk)
        found: LogFacts = {"received": [], "usage": []}
        if path is None:
            return found
        beside: LogFacts = {"received": [], "usage": []}
        with self._alone(talk["instance_id"]):
            self._read(agent, self._logs.setdefault(talk["instance_id"], _Log()), path, found)
            for pattern in agent.side_logs(talk["worktree_path"], talk["conversation_id"]):
                for name in glob.glob(pattern, recursive=True):  # noqa: PTH207
                    self._read(agent, self._logs.setdefault(name, _Log()), name, beside)
        found["usage"] += beside["usage"]
        return found

    def _read(self, agent: Agent, known: _Log, path: str, found: LogFacts) -> None:
        with contextlib.suppress(OSError, ExternalFailure), files.open_regular(path) as file:
            facts = os.fstat(file.fileno())
            if (known.place, known.inode) != (path, facts.st_ino) or facts.st_size < known.offset:
                known.place, known.inode, known.offset = path, facts.st_ino, 0
            file.seek(known.offset)
            rest = b""
            while data := file.read(_READ_AT_ONCE):
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    _read_line(agent, line, found)
                if len(rest) > _LONGEST_LINE:
                    rest = b""
            known.offset = file.tell() - len(rest)

    def _log_path(self, agent: Agent, talk: Talk) -> str | None:
        folder = str(self._settings.instance_dir(talk["instance_id"]))
        patterns = agent.transcripts(folder, talk["worktree_path"], talk["conversation_id"])
        found = [name for pattern in patterns for name in glob.glob(pattern)]  # noqa: PTH207
        return found[0] if found else None

    def _state(self, talk: Talk, *, pasted: bool = False) -> str:
        """SENT when the program can be spoken to now, else why not; a file that says idle rules out no dialog.

        Once something is in its input, a screen that means nothing is no reason to stop in the middle.
        """
        readings = self._look.evidence(talk)
        activities = {r["source"]: r["activity"] for r in readings}
        if Activity.EXITED in activities.values():
            return GONE
        if Activity.BLOCKED in activities.values():
            return BLOCKED
        pane = activities.get(Source.PANE)
        if pane == Activity.UNKNOWN or (pane is None and not pasted):
            return UNCLEAR  # a screen that is not understood may show a dialog, or take text for a command
        said = activities.get(Source.FILE) or activities.get(Source.PANE)
        if said == Activity.IDLE:
            return SENT
        if said in (Activity.BUSY, Activity.STARTING):
            return BUSY
        return SENT if pasted else UNCLEAR

    def _hears(self, talk: Talk, *, harmless: bool) -> str:
        """SENT when a person may press a key now.

        Half a command in its input makes a screen that means nothing; then the program's own file decides.
        """
        readings = self._look.evidence(talk)
        activities = {r["source"]: r["activity"] for r in readings}
        if Activity.EXITED in activities.values():
            return GONE
        if Activity.BLOCKED in activities.values():
            return BLOCKED
        pane, file = activities.get(Source.PANE), activities.get(Source.FILE)
        if pane == Activity.UNKNOWN:
            return UNCLEAR
        if harmless:
            return SENT
        if {pane, file} & {Activity.BUSY, Activity.STARTING}:
            return BUSY
        return SENT if Activity.IDLE in (pane, file) else UNCLEAR

    def _alone(self, name: str) -> threading.Lock:
        return self._locks.setdefault(name, threading.Lock())


def _read_line(agent: Agent, line: bytes, found: LogFacts) -> None:
    """An agent can write into its log what it likes; what cannot be read says nothing."""
    with contextlib.suppress(ValueError, TypeError, AttributeError, RecursionError, OverflowError):
        _take_in(agent, line, found)


def _take_in(agent: Agent, line: bytes, found: LogFacts) -> None:
    text = ""
    if b"[swarm msg " in line and agent.is_receipt(text := line.decode(errors="replace")):
        found["received"] += [one.decode() for one in _HEADER.findall(line)]
    if b'"usage"' in line:
        used = agent.read_usage(text or line.decode(errors="replace"))
        if used is not None:
            found["usage"].append(dataclasses.asdict(used))


def _facts(dialog: Dialog) -> DialogFacts:
    words = " ".join([dialog.kind, dialog.text, *dialog.choices]).split()
    digest = hashlib.sha256(" ".join(words).encode()).hexdigest()[:12]
    return {"text": dialog.text, "choices": list(dialog.choices), "kind": dialog.kind, "digest": digest}

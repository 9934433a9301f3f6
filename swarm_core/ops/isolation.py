"""Agents change their own worktrees only: what a tool would write elsewhere is refused, and what was is reported.

A shell command tells only which places it names: those are compared with what they were before it.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swarm_core import files
from swarm_core.agents.base import Agent
from swarm_core.errors import ExternalFailure
from swarm_core.hosts.base import FolderFacts
from swarm_core.models import Instance, MessageKind, as_json
from swarm_core.ops import places
from swarm_core.ops.touched import ACTOR, EVENT, MAIN, Stray, at_work, call_person, changed, untold
from swarm_core.ops.touched import Watch as Watch
from swarm_core.store import checkouts, events, instances, messages
from swarm_core.store.database import Database

BEFORE, AFTER, FAILED = "PreToolUse", "PostToolUse", "PostToolUseFailure"
_MOST_WORDS = 100
_READ_AS_WORDS = 16_384  # the rest of a long command, most likely a file, is searched for known folders only
_MOST_PLACES = 4
_MOST_COMMANDS = 256
_BETWEEN_WORDS = r"\s'\"`;|&()<>{}\[\]$=,:"
_WORD = re.compile(rf"[^{_BETWEEN_WORDS}]+")
_PATH = re.compile(r"/|\A~|\A\.\.\Z")
_OPTION = re.compile(r"\A(?:-\w|@)(?=[/.~])")


@dataclass(frozen=True, slots=True)
class Sight:
    """A place that a command names, as it was before the command."""

    found: Stray
    state: FolderFacts
    at: str
    event_id: int


class Commands:
    """What the places were that commands under way name; of too many the oldest are forgotten."""

    def __init__(self) -> None:
        self._sights: dict[tuple[str, str], list[Sight]] = {}

    def begin(self, instance_id: str, call: str, sights: list[Sight]) -> None:
        self._sights.pop((instance_id, call), None)
        if sights:
            self._sights[instance_id, call] = sights
        while len(self._sights) > _MOST_COMMANDS:
            del self._sights[next(iter(self._sights))]

    def end(self, instance_id: str, call: str) -> list[Sight]:
        return self._sights.pop((instance_id, call), [])


def found_in(db: Database, instance: Instance, agent: Agent, event: str, body: Mapping[str, Any]) -> Stray | None:
    """The file that a tool is about to write, or has written, where the agent may not."""
    given = _given(agent.writes, body) if event in (BEFORE, AFTER) else None
    path = _resolved(given, _cwd(body, "/")) if given else None
    if path is None or _is_inside(path, os.path.realpath(instance.worktree_path)):
        return None
    return next(iter(stray(instance, _others(db), [path], free=_free(instance))), None)


def named_in(db: Database, instance: Instance, agent: Agent, body: Mapping[str, Any]) -> list[Stray]:
    """The places that are not the agent's own and that a shell command names or is run in, each once.

    A command that names nothing outside its worktree costs no question to the database.
    """
    command = _given(agent.shells, body)
    if command is None:
        return []
    cwd, own = _cwd(body, instance.worktree_path), os.path.realpath(instance.worktree_path)
    found_words = _WORD.findall(command[:_READ_AS_WORDS])
    words = list(dict.fromkeys(_OPTION.sub("", word) for word in found_words if _PATH.search(word)))
    paths = [own if cwd == instance.worktree_path else os.path.realpath(cwd)]
    paths += [path for word in words[:_MOST_WORDS] if (path := _resolved(word, cwd))]
    outside = [path for path in paths if not _is_inside(path, own)]
    if not outside and len(words) <= _MOST_WORDS and len(command) <= _READ_AS_WORDS:
        return []
    others = _others(db)
    outside += _spelled_out(command, [os.path.realpath(instance.repo_path), instance.repo_path, *others.values()])
    found = {one.folder: one for one in stray(instance, others, outside, free=_free(instance))}
    return list(found.values())[:_MOST_PLACES]


def call_of(body: Mapping[str, Any], agent: Agent) -> str:
    """What a command's hooks before and after it have in common."""
    return str(body.get("tool_use_id") or _given(agent.shells, body) or "")


def stray(
    instance: Instance, others: Mapping[str, str], paths: Iterable[str], *, free: Sequence[str] = ()
) -> list[Stray]:
    """Which of the paths lie in the main checkout or in the worktree of another, by the innermost folder.

    `free` are folders where everybody may write. All paths are absolute and without links.
    """
    own = os.path.realpath(instance.worktree_path)
    folders = {os.path.realpath(instance.repo_path): MAIN} | {f: i for i, f in others.items() if i != instance.id}
    folders |= dict.fromkeys((*free, own), instance.id)
    found = []
    for path in paths:
        inmost = _inmost(path, folders)
        if inmost is not None and folders[inmost] != instance.id:
            found.append(Stray(path, inmost, folders[inmost]))
    return found


def refusal(instance: Instance, found: Stray) -> str:
    """Why the agent may not write there, and where it may."""
    return (
        f"{places.printable(found.path)} is in {found.where}, and you may change files of your own worktree only."
        f" Yours is {instance.worktree_path}: the same file is"
        f" {places.printable(os.path.join(instance.worktree_path, found.name))}"  # noqa: PTH118  a host's path
    )


def record(db: Database, instance: Instance, found: Stray, *, tool: str, denied: bool) -> None:
    """Write down an attempt that was refused, or a file that was written all the same; within a transaction."""
    told: dict[str, Any] = {"path": found.path, "where": found.where, "owner": found.owner or None}
    if denied:
        events.add(
            db,
            "tool:denied",
            instance_id=instance.id,
            actor=instance.id,
            tool_name=tool,
            error_code="FORBIDDEN",
            error_message=f"{tool} in {found.where}",
            metadata=told | {"rule": "isolation"},
        )
        return
    facts, seen_at = checkouts.read(db, instance.repo_path)
    mine = as_json(found) | {"instance_id": instance.id}
    if mine in facts["strays"]:
        return
    facts["strays"].append(mine)
    checkouts.write(db, instance.repo_path, facts, seen_at=seen_at or db.now())
    told |= {"certain": True, "tool": tool, "files": [found.name]}
    events.add(db, EVENT, instance_id=instance.id, actor=instance.id, metadata=told)
    call_person(db, instance.id, facts)
    body = f"You have changed a file that is not yours. {refusal(instance, found)}. Take the change back there."
    messages.accept(db, instance.id, sender="swarm", body=body, kind=MessageKind.NOTICE)


def compare(db: Database, instance: Instance, sight: Sight, now: FolderFacts, *, tool: str) -> None:
    """Write down that a place which a command names has changed in its time; within a transaction.

    That is no proof: its owner, a person or another command may have done it, so nobody is told or called.
    """
    found = sight.found
    repo = instances.get(db, found.owner).repo_path if found.owner else instance.repo_path
    news = untold(db, repo, found.owner, changed(sight.state, now), after=sight.event_id)
    if not news:
        return
    others = [i for i in instances.listed(db, repo_path=repo) if i.id != instance.id]
    told: dict[str, Any] = {"where": found.where, "owner": found.owner or None, "repo_path": repo}
    told |= {"certain": False, "tool": tool, "while": at_work(others, sight.at)}
    events.add(db, EVENT, instance_id=instance.id, actor=ACTOR, metadata=told | news)


def _given(tools: Mapping[str, str], body: Mapping[str, Any]) -> str | None:
    """What the table says to be of interest in a tool's input."""
    given, key = body.get("tool_input"), tools.get(str(body.get("tool_name")))
    value = given.get(key) if isinstance(given, dict) and key else None
    return value if isinstance(value, str) and value else None


def _cwd(body: Mapping[str, Any], otherwise: str) -> str:
    cwd = body.get("cwd")
    return cwd if isinstance(cwd, str) and cwd.startswith("/") and "\0" not in cwd else otherwise


def _resolved(path: str, cwd: str) -> str | None:
    """Absolute and without links."""
    if "\0" in path:
        return None
    return os.path.realpath(os.path.join(cwd, os.path.expanduser(path)))  # noqa: PTH111, PTH118


def _spelled_out(command: str, folders: Sequence[str]) -> list[str]:
    """The paths in these folders that the text spells out, also where a folder's name has spaces in it."""
    text, found = command.replace("\\ ", " "), []
    parents = {parent for parent in {os.path.dirname(folder) for folder in folders} if parent in text}  # noqa: PTH120
    for folder in dict.fromkeys(folders):
        if os.path.dirname(folder) not in parents or folder not in text:  # noqa: PTH120
            continue
        rest = rf"(?:/[^{_BETWEEN_WORDS}]*)?(?=[{_BETWEEN_WORDS}]|\Z)"
        found += re.findall(rf"(?<![\w./~-]){re.escape(folder)}{rest}", text)
    return [os.path.realpath(path) for path in found if "\0" not in path]


def _others(db: Database) -> dict[str, str]:
    """Worktrees without links on the way to them: there may be many, and they are in few folders."""
    found: dict[str, str] = {}
    parents: dict[str, str] = {}
    for owner, folder in checkouts.worktrees(db).items():
        parent, name = os.path.split(folder)
        if parent not in parents:
            parents[parent] = os.path.realpath(parent)
        found[owner] = os.path.join(parents[parent], name)  # noqa: PTH118
    return found


def _inmost(path: str, folders: Container[str]) -> str | None:
    """The path itself or the nearest folder around it that is one of these."""
    while path not in folders:
        parent = os.path.dirname(path)  # noqa: PTH120
        if parent == path:
            return None
        path = parent
    return path


def _free(instance: Instance) -> list[str]:
    """Where it may write besides: temporary files, Claude Code's own, and what git keeps of its worktree."""
    configured = os.environ.get("CLAUDE_CONFIG_DIR") or str(Path.home() / ".claude")
    found = [tempfile.gettempdir(), "/tmp", configured]  # noqa: S108  a name, nothing is made there
    try:
        link = files.read_small(Path(instance.worktree_path, ".git")).decode()
    except (OSError, UnicodeDecodeError, ExternalFailure):
        link = ""
    if link.startswith("gitdir: "):
        found.append(link.removeprefix("gitdir: ").strip())
    return [os.path.realpath(folder) for folder in found]


def _is_inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")

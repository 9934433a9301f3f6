"""Merges on a host: heads in order in a scratch worktree, checked and landed; and who touches which lines."""

from __future__ import annotations

import re
import signal
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from swarm_core import cancel, git, ids, locks
from swarm_core.config import Settings
from swarm_core.errors import Conflict, InvalidInput, NotFound
from swarm_core.git import history, integrate, overlap, sound
from swarm_core.hosts.base import CheckFacts, HeadOrder, IntegrateFacts, IntegrateOrder, Place
from swarm_core.hosts.folders import make_private
from swarm_core.tmux import processes

CHECK_OUTPUT = 16_384
_METHODS = ("merge", "squash", "rebase")
_MARK = "SCRATCH_OF_SWARM"
_NO_LEADER = -1


def run(settings: Settings, order: IntegrateOrder, environ: Mapping[str, str]) -> IntegrateFacts:
    """Carry out the order. The repository is locked for git's bookkeeping alone, never while the check runs."""
    repo, base = order["repo_path"], _base(order)
    with locks.hold(_lock(settings, order), timeout=0):
        made = order.get("made")
        facts = _as_made(order, base, made) if made else _make(settings, order, base, environ)
        if order["land"] and facts["conflict"] is None and (facts["check"] is None or facts["check"]["ok"]):
            result = facts["commits"][-1] if facts["commits"] else base
            what = ", ".join(head["head_commit"][:12] for head in order["heads"])
            lock = settings.repo_lock(repo)
            integrate.land(repo, str(order["base_branch"]), result, base, lock=lock, what=what)
            facts["landed"] = True
    return facts


def touched(places: list[Place]) -> dict[str, dict[str, list[list[int]]]]:
    """What each instance changes, in one repository in lines of the last commit that all of them start from."""
    by_repo = defaultdict[str, list[Place]](list)
    for place in places:
        by_repo[place["repo_path"]].append(place)
    return {name: found for repo, there in by_repo.items() for name, found in _touched_in(repo, there).items()}


def printable(name: str) -> str:
    """A file name that can be shown and stored: agents choose them."""
    return "".join(c if c.isprintable() else "�" for c in name)


def _base(order: IntegrateOrder) -> str:
    if order["land"] and not order["base_branch"]:
        raise InvalidInput("a result can be landed on a branch only", hint="give base_branch")
    for head in order["heads"]:
        if head["method"] not in _METHODS:
            raise InvalidInput(f"{head['method'][:40]!r} is no way to merge", hint=f"one of {', '.join(_METHODS)}")
    if order["base_commit"]:
        return order["base_commit"]
    branch = order["base_branch"] or ""
    tip = history.tip(order["repo_path"], branch)
    if tip is None:
        raise NotFound(f"there is no branch {branch}", code="GIT_BRANCH_NOT_FOUND")
    return tip


def _make(settings: Settings, order: IntegrateOrder, base: str, environ: Mapping[str, str]) -> IntegrateFacts:
    """Merge the heads in a scratch worktree and check the result; what git shows of them is verified first."""
    repo, folder = order["repo_path"], _folder(settings, order)
    for head in order["heads"]:
        sound.require_sound(repo, base, head["head_commit"])
    make_private(folder.parent)
    if folder.exists():
        _end_marked(folder)
    with integrate.scratch(repo, base, folder, lock=settings.repo_lock(repo)) as path:
        facts = _combine(path, base, order["heads"])
        if facts["conflict"] is None:
            facts["tree"] = integrate.tree_of(path, "HEAD")
            if order["check"] and facts["tree"] != order.get("checked_tree"):
                facts["check"] = _check(path, order, environ)
    return facts


def _as_made(order: IntegrateOrder, base: str, made: list[str]) -> IntegrateFacts:
    """What an earlier order has made, and nothing else: it is not merged a second time."""
    repo, last = order["repo_path"], made[-1]
    sound.require_sound(repo, base, last)
    tree = integrate.tree_of(repo, last)
    if order.get("reword") and last != base:
        last = integrate.reworded(repo, last, order["heads"][-1]["message"])
    commits = [*made[:-1], last]
    return {
        "base_commit": base,
        "commits": commits,
        "conflict": None,
        "check": None,
        "landed": False,
        "tree": tree,
    }


def _combine(path: Path, base: str, heads: list[HeadOrder]) -> IntegrateFacts:
    facts: IntegrateFacts = {
        "base_commit": base,
        "commits": [],
        "conflict": None,
        "check": None,
        "landed": False,
        "tree": "",
    }
    for index, head in enumerate(heads):
        cancel.check()
        method = cast("integrate.Method", head["method"])
        try:
            commit = integrate.combine(path, head["head_commit"], method, head["message"])
        except Conflict as error:
            if error.code != "MERGE_CONFLICT":
                raise
            facts["conflict"] = {"index": index, "files": [printable(name) for name in error.details["files"]]}
            return facts
        facts["commits"].append(commit)
    return facts


def _check(path: Path, order: IntegrateOrder, environ: Mapping[str, str]) -> CheckFacts:
    try:
        ok, output = integrate.run_check(
            path,
            order["check"],
            timeout=order["check_timeout"],
            max_output=CHECK_OUTPUT,
            env={**environ, _MARK: str(path)},
            log=path.with_name(f".{path.name}.log"),
        )
    finally:
        _end_marked(path)
    return {"ok": ok, "output": output}


def _end_marked(folder: Path) -> None:
    """End what a check has left running, this one or that of a process that was killed."""
    left = processes.members(_NO_LEADER, marks=[[f"{_MARK}={folder}\0".encode(errors="surrogateescape")]])
    processes.send(left, signal.SIGKILL)


def _folder(settings: Settings, order: IntegrateOrder) -> Path:
    if not re.fullmatch(r"\w[\w.-]{0,99}", order["scratch"], re.ASCII):
        raise InvalidInput(f"{order['scratch'][:80]!r} is no name for a scratch folder")
    return settings.home.resolve() / "scratch" / ids.repo_folder(order["repo_path"]) / order["scratch"]


def _lock(settings: Settings, order: IntegrateOrder) -> Path:
    return settings.locks / f"scratch-{ids.repo_folder(order['repo_path'])}-{order['scratch']}.lock"


def _touched_in(repo: str, places: list[Place]) -> dict[str, dict[str, list[list[int]]]]:
    if not Path(repo).is_dir():
        return {place["instance_id"]: {} for place in places}
    looked = {place["instance_id"]: _look(place) for place in places}
    older = overlap.common_start(repo, [start for start, _ in looked.values() if start])
    told = {}
    for name, (start, found) in looked.items():
        same = overlap.carried_back(repo, found, start, older) if start and older else found
        told[name] = {printable(path): [list(lines) for lines in ranges] for path, ranges in same.items()}
    return told


def _look(place: Place) -> tuple[str | None, overlap.Touched]:
    """Where the work started and what it touches: of the worktree, or of the branch alone when that is gone."""
    cancel.check()
    repo, worktree = place["repo_path"], Path(place["worktree_path"])
    present = (worktree / ".git").exists()
    head = git.head_commit(worktree) if present else history.tip(repo, place["branch"])
    if head is None:
        return None, overlap.touched_in(worktree, None) if present else {}
    start = overlap.common_start(repo, [place["base_commit"], head]) if place["base_commit"] else None
    return start, overlap.touched_in(worktree, start) if present else overlap.touched(repo, start, head)

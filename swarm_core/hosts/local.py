"""This machine as a Host: git worktrees, tmux sessions and agent files under one home."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import platform
import shutil
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swarm_core import git
from swarm_core.agents import table
from swarm_core.config import Settings
from swarm_core.errors import Conflict, InvalidInput, NotFound
from swarm_core.git import admin, commits, diffs, history, ignored, push, refs, removal, retire, sound
from swarm_core.github_token import Token
from swarm_core.hosts import environment, look, merging, warm
from swarm_core.hosts.base import (
    BranchFacts,
    ChangeFacts,
    CheckoutFacts,
    DialogFacts,
    FolderFacts,
    InstanceFacts,
    IntegrateFacts,
    IntegrateOrder,
    KeptFacts,
    Leftovers,
    LogFacts,
    Place,
    PredictionFacts,
    PreservedFacts,
    ReadingFacts,
    RepoFacts,
    RestoredFacts,
    SessionFacts,
    SizedPath,
    StartOrder,
    Talk,
    Watched,
)
from swarm_core.hosts.folders import check_own, file_errors, make_private, stamp, write_private
from swarm_core.tmux import announce, command, panes, processes
from swarm_core.tmux.conf import write_config

if TYPE_CHECKING:
    from swarm_core.hosts.speech import Speech
    from swarm_core.tmux.sessions import Tmux


_NO_LEADER = -1
_DIRTY_NAMED = 20
_STAMPED = 1000
_CHANGED_NAMED = 100


class LocalHost:
    name = "local"

    def __init__(self, settings: Settings, environ: Mapping[str, str]) -> None:
        self._settings = settings
        self._environ = environment.for_agents(environ, ceiling=settings.worktrees.resolve())
        outside = settings.tmux_socket.parent
        if outside != settings.home:
            check_own(outside)
        self._look = look.Look(settings)

    @functools.cached_property
    def _tmux(self) -> Tmux:
        # libtmux costs 120 ms of CPU to import and looking, the most frequent thing of all, needs none of it.
        from swarm_core.tmux.sessions import Tmux  # noqa: PLC0415

        return Tmux(self._settings.tmux_socket, self._settings.tmux_config)

    @functools.cached_property
    def _speech(self) -> Speech:
        from swarm_core.hosts.speech import Speech  # noqa: PLC0415 - imports libtmux, see _tmux

        return Speech(self._settings, self._tmux, self._look)

    def info(self) -> dict[str, Any]:
        return {
            "platform": platform.platform(terse=True),
            "git": ".".join(map(str, git.git_version())),
            "tmux": ".".join(map(str, self._tmux.version())),
            "agents": {name: shutil.which(agent.program) for name, agent in table.AGENTS.items()},
        }

    def ensure_repo(self, path: str, base: str | None) -> RepoFacts:
        if "\0" in path:
            raise InvalidInput("a path cannot contain a NUL character", hint="give the folder of a git repository")
        with file_errors():
            info = git.inspect(path)
        known = git.Base(info.default_branch or "HEAD", info.head_commit)
        resolved = known if base is None else git.resolve_base(info.path, base)
        return {
            "repo_path": info.path,
            "base_branch": resolved.branch,
            "base_commit": resolved.commit,
            "remote": push.remote_name(info.path) if info.remote_url else None,
            "remote_url": info.remote_url,
            "remotes": info.remotes,
            "branches": sorted(git.branches(info.path)),
        }

    @file_errors()
    def ensure_worktree(self, place: Place, *, keep_open: int) -> None:
        with file_errors():
            make_private(Path(place["worktree_path"]).parent)
        if place["base_commit"] and warm.adopt(self._settings, place, keep_open=keep_open):
            return
        git.add_worktree(
            place["repo_path"],
            place["worktree_path"],
            branch=place["branch"],
            base_commit=place["base_commit"],
            lock=self._settings.repo_lock(place["repo_path"]),
            keep_open=(keep_open,),
        )

    @file_errors()
    def attach_worktree(self, place: Place, *, head_commit: str | None, keep_open: int) -> None:
        lock = self._settings.repo_lock(place["repo_path"])
        if place["branch"] in git.branches(place["repo_path"], place["branch"]):
            git.attach_worktree(
                place["repo_path"],
                place["worktree_path"],
                branch=place["branch"],
                lock=lock,
                keep_open=(keep_open,),
            )
            return
        git.add_worktree(
            place["repo_path"],
            place["worktree_path"],
            branch=place["branch"],
            base_commit=head_commit,
            lock=lock,
            keep_open=(keep_open,),
        )

    @file_errors()
    def set_aside(self, place: Place, ref: str) -> PreservedFacts | None:
        repo, path = place["repo_path"], place["worktree_path"]
        if not self._has_repo(place):
            self._refuse_orphan(place)
            return None
        lock, message = self._settings.repo_lock(repo), f"work of {place['instance_id']}"
        with removal.kept_unless_stored(repo, path, lock):
            free = self._free_ref(place, ref)
            kept = removal.store(repo, path, lock=lock, ref=free, message=message, branch=place["branch"])
        return _preserved_facts(kept)

    def preserved_refs(self, repo_path: str, instance_id: str | None) -> dict[str, str]:
        return dict(git.preserved_refs(repo_path, instance_id))

    def preserved_work(self, repo_path: str, ref: str) -> PreservedFacts | None:
        return _preserved_facts(git.measure_preserved(repo_path, ref))

    @file_errors()
    def forget_preserved(self, repo_path: str, ref: str, commit: str) -> bool:
        return git.delete_ref(repo_path, ref, commit)

    @file_errors()
    def restore_work(self, place: Place, ref: str) -> RestoredFacts:
        back = git.restore(place["worktree_path"], ref=ref)
        return {"files": back.files, "left": back.left}

    @file_errors()
    def remove_worktree(self, place: Place, *, last: bool) -> list[str]:
        if not self._has_repo(place):
            self._refuse_orphan(place)
            return []
        repo, path = place["repo_path"], place["worktree_path"]
        changed = removal.discard(repo, path, lock=self._settings.repo_lock(repo), last=last)
        return [merging.printable(name) for name in changed[:_DIRTY_NAMED]]

    @file_errors()
    def put_back(self, place: Place) -> None:
        if self._has_repo(place):
            lock = self._settings.repo_lock(place["repo_path"])
            removal.put_back(place["repo_path"], place["worktree_path"], lock=lock)

    @file_errors()
    def require_registered(self, place: Place) -> None:
        if self._has_repo(place):
            removal.require_registered(place["repo_path"], place["worktree_path"])

    def is_taken(self, instance_id: str, worktree_path: str) -> bool:
        return os.path.lexists(worktree_path) or self._settings.instance_dir(instance_id).exists()

    def branch_tip(self, place: Place) -> str | None:
        return history.tip(place["repo_path"], place["branch"]) if self._has_repo(place) else None

    def has_commit(self, repo_path: str, branch: str, commit: str) -> bool:
        tip = _commit_of(repo_path, branch)
        return tip is not None and commits.count_beyond(repo_path, commit, [tip]) == 0

    def base_tip(self, repo_path: str, base_branch: str, *, at_remote: bool) -> str | None:
        there = [f"refs/remotes/origin/{base_branch}"] if at_remote else []
        try:
            found = (refs.ref_commit(repo_path, ref) for ref in (*there, f"refs/heads/{base_branch}"))
            return next((commit for commit in found if commit is not None), None)
        except NotFound:  # a repository that is gone has no branches
            return None

    def commits_beyond(self, repo_path: str, base: str, head: str) -> dict[str, list[str]] | None:
        return history.beyond(repo_path, base, head)

    def is_merged(self, repo_path: str, branch_or_commit: str, into: str) -> bool:
        try:
            return git.is_merged(repo_path, branch_or_commit, into)
        except NotFound:
            return False

    def remote_tip(self, repo_path: str, remote: str, branch: str, token: Token | None) -> str | None:
        return push.remote_tip(repo_path, remote, branch, token=token)

    def push(
        self, repo_path: str, remote: str, branch: str, commit: str, ours: str | None, token: Token | None
    ) -> str:
        return push.push(repo_path, remote, branch, commit, ours=ours, token=token)

    def fetch(self, repo_path: str, remote: str, branch: str, token: Token | None) -> str | None:
        return push.fetch(repo_path, remote, branch, token=token)

    def replaced(self, repo_path: str) -> list[str]:
        try:
            return [merging.printable(name) for name in git.replaced(repo_path)]
        except NotFound:  # a repository that is gone shows nothing at all
            return []

    def require_sound(self, repo_path: str, bases: list[str], head: str) -> None:
        found = (_commit_of(repo_path, base) for base in bases)
        sound.require_sound(repo_path, next((commit for commit in found if commit), None), head)

    def predict(self, repo_path: str, ours: str, theirs: str) -> PredictionFacts:
        found = git.predict_merge(repo_path, ours, theirs)
        conflicts = [merging.printable(name) for name in found.conflicts]
        return {
            "clean": found.clean,
            "conflicts": conflicts,
            "supported": found.supported,
            "related": found.related,
        }

    @file_errors()
    def integrate(self, order: IntegrateOrder) -> IntegrateFacts:
        return merging.run(self._settings, order, self._environ)

    @file_errors()
    def touched(self, places: list[Place]) -> dict[str, dict[str, list[list[int]]]]:
        return merging.touched(places)

    @file_errors()
    def checkout_state(self, repo_path: str) -> CheckoutFacts:
        dirty = git.dirty_files(repo_path)
        return {
            "branch": git.current_branch(repo_path),
            "head": git.head_commit(repo_path),
            "dirty": [merging.printable(name) for name in dirty[:_DIRTY_NAMED]],
            "dirty_count": len(dirty),
        }

    @file_errors()
    def folder_state(self, folder: str) -> FolderFacts:
        if not os.path.lexists(os.path.join(folder, ".git")):  # noqa: PTH118
            raise NotFound(f"{folder} has no .git", code="GIT_REPOSITORY_NOT_FOUND")
        dirty = git.dirty_files(folder)
        stamps = {merging.printable(name): stamp(folder, name) for name in dirty[:_STAMPED]}
        return {
            "branch": git.current_branch(folder),
            "head": git.head_commit(folder),
            "dirty": list(stamps),
            "dirty_count": len(dirty) if len(dirty) > _STAMPED else len(stamps),
            "stamps": stamps,
        }

    def delete_branch(self, place: Place) -> bool:
        if not self._has_repo(place):
            return False
        lock = self._settings.repo_lock(place["repo_path"])
        return git.delete_branch(place["repo_path"], place["branch"], lock=lock)

    def retire_branch(self, place: Place, commit: str, ref: str) -> bool:
        if not self._has_repo(place):
            return False
        lock = self._settings.repo_lock(place["repo_path"])
        return retire.retire_branch(place["repo_path"], place["branch"], commit, ref=ref, lock=lock)

    @file_errors()
    def lost_branch(self, place: Place) -> str | None:
        self._require_linked(place)
        return history.lost_branch(place["worktree_path"], place["branch"])

    def revive_branch(self, place: Place, commit: str) -> None:
        history.create_branch(place["repo_path"], place["branch"], commit)

    def registered_worktrees(self, repo_path: str) -> list[str]:
        return [w.path for w in git.list_worktrees(repo_path)]

    def repair_worktrees(self, repo_path: str, worktree_paths: list[str]) -> None:
        git.repair_worktrees(repo_path, worktree_paths)

    @file_errors()
    def start(self, order: StartOrder) -> SessionFacts:
        current = self._session(order["instance_id"])
        if current is not None:
            if current["epoch"] > order["epoch"]:
                raise Conflict(
                    f"{order['instance_id']} was started again meanwhile",
                    code="STALE_EPOCH",
                    details={"epoch": current["epoch"]},
                )
            if current["epoch"] == order["epoch"]:
                return current
            self._tmux.kill_session(order["instance_id"])
        from swarm_core.hosts import launch  # noqa: PLC0415 - imports libtmux, see _tmux

        write_config(self._settings.tmux_config, history_limit=self._settings.integer("history_limit"))
        try:
            return launch.start(self._settings, self._tmux, order, self._environ)
        except Conflict:
            # A tmux client that outlived its killed starter may have been quicker, or a person has kept the name.
            late = self._session(order["instance_id"])
            if late is not None and late["epoch"] == order["epoch"]:
                return late
            self._tmux.kill_session(order["instance_id"])
            return launch.start(self._settings, self._tmux, order, self._environ)

    def hand_over(self, talk: Talk, text: str) -> str:
        return self._speech.hand_over(talk, text)

    def can_hear(self, talk: Talk) -> str:
        return self._speech.can_hear(talk)

    def press_enter(self, talk: Talk) -> bool:
        return self._speech.press_enter(talk)

    def type_keys(self, talk: Talk, text: str, keys: list[str]) -> str:
        return self._speech.type_keys(talk, text, keys)

    def read_log(self, talk: Talk) -> LogFacts:
        return self._speech.read_log(talk)

    def dialog(self, talk: Talk) -> DialogFacts | None:
        return self._speech.dialog(talk)

    def answer(self, talk: Talk, digest: str, choice: int | None, text: str) -> DialogFacts:
        return self._speech.answer(talk, digest, choice, text)

    def evidence(self, talk: Talk) -> list[ReadingFacts]:
        return self._look.evidence(talk)

    @file_errors()
    def stop(self, instance_id: str, *, grace: float) -> tuple[SessionFacts | None, str]:
        mark = f"SWARM_INSTANCE_DIR={self._settings.instance_dir(instance_id)}"
        ended = self._tmux.end_processes(instance_id, grace, mark=mark)
        if ended.pane is None:
            _end_survivors(mark, grace)
        return (look.session_facts(ended.pane) if ended.pane else None), ended.screen

    def screen(self, instance_id: str, *, lines: int | None = None) -> str:
        return self._look.screen(instance_id) if lines is None else self._tmux.capture(instance_id, lines=lines)

    def sessions(self) -> list[SessionFacts]:
        return self._look.sessions()

    def foreign_sessions(self) -> list[str]:
        return self._look.foreign_sessions()

    def snapshot(self, watched: list[Watched]) -> dict[str, InstanceFacts]:
        return self._look.snapshot(watched)

    def wait(self, timeout: float) -> frozenset[str]:
        return self._look.wait(timeout)

    @file_errors()
    def diff(self, place: Place, start: str | None, head: str | None, *, max_bytes: int) -> str:
        if Path(place["worktree_path"]).is_dir():
            self._require_linked(place)
            return git.diff(place["worktree_path"], start, max_bytes=max_bytes)
        return self.diff_between(place["repo_path"], start, head, max_bytes=max_bytes) if head else ""

    def diff_between(self, repo_path: str, one: str | None, other: str, *, max_bytes: int) -> str:
        return diffs.between(repo_path, one, other, max_bytes=max_bytes)

    @file_errors()
    def changes(self, place: Place) -> ChangeFacts:
        self._require_linked(place)
        stats = git.change_stats(place["worktree_path"], place["base_commit"])
        return {
            "head_commit": git.head_commit(place["worktree_path"]),
            "files": stats.files,
            "added": stats.added,
            "deleted": stats.deleted,
        }

    @file_errors()
    def branch_state(self, place: Place, base: str) -> BranchFacts:
        repo, path = place["repo_path"], Path(place["worktree_path"])
        if not self._has_repo(place):
            raise NotFound(f"the repository {repo} is gone", code="GIT_REPOSITORY_NOT_FOUND")
        self._require_linked(place)
        head, target = self.branch_tip(place), _commit_of(repo, base)
        before = [c for c in (target, place["base_commit"]) if c]
        found = commits.Comparison(None, [], 0, 0)
        if head:
            found = commits.compare(repo, before[0] if before else None, head)
        present = path.is_dir()
        dirty = git.dirty_files(str(path)) if present else []
        return {
            "head_commit": head,
            "base_commit": target,
            "start": found.start,
            "on_branch": git.current_branch(str(path)) if present else None,
            "worktree": present,
            "commits": commits.count_beyond(repo, head, before[:1]) if head else 0,
            "own_commits": commits.count_beyond(repo, head, before) if head else 0,
            "dirty": [merging.printable(name) for name in dirty[:_DIRTY_NAMED]],
            "dirty_count": len(dirty),
            "files": [merging.printable(name) for name in found.files[:_CHANGED_NAMED]],
            "files_count": len(found.files),
            "added": found.added,
            "deleted": found.deleted,
        }

    @file_errors()
    def read_file(self, repo_path: str, commit: str, path: str, *, max_bytes: int) -> str | None:
        data = commits.read_file(repo_path, commit, path, max_bytes=max_bytes)
        try:
            return None if data is None else data.decode()
        except UnicodeDecodeError as error:
            raise InvalidInput(f"{path} in commit {commit[:12]} is no UTF-8 text") from error

    @file_errors()
    def leftovers(self, place: Place) -> Leftovers:
        repo_path, path = place["repo_path"], Path(place["worktree_path"])
        if not self._has_repo(place):
            self._refuse_orphan(place)
        hindrance = removal.hindrance(repo_path, path)
        waits = hindrance is not None and hindrance.reason in ("special", "stuck")
        present = path.is_dir() and hindrance is None and not admin.link_problem(path)
        found = ignored.going(path) if present else ignored.Going([], [])
        return {
            "kept": _kept(hindrance),
            "dirty_files": len(found.stored),
            "dirty": _sized(found.stored[:_DIRTY_NAMED]),
            "dirty_bytes": sum(size for _, size in found.stored),
            "ignored_paths": len(found.ignored),
            "ignored": _sized(found.ignored[:_DIRTY_NAMED]),
            "ignored_bytes": sum(size for _, size in found.ignored),
            "own_commits": 0 if waits else history.own_commits(repo_path, place["branch"], place["base_commit"]),
            "bytes": _size(path) if present else 0,
        }

    @file_errors()
    def write_file(self, instance_id: str, name: str, text: str) -> str:
        path = self._own_file(instance_id, name)
        write_private(path, text.encode(), synced=True)
        return str(path)

    @file_errors()
    def remove_file(self, instance_id: str, name: str) -> None:
        self._own_file(instance_id, name).unlink(missing_ok=True)

    def remove_files(self, instance_id: str) -> None:
        with file_errors():
            _remove_tree(self._settings.instance_dir(instance_id))

    @file_errors()
    def drain_pools(self) -> int:
        return warm.drain(self._settings)

    @file_errors()
    def fill_pool(self, repo_path: str, size: int) -> int:
        return warm.fill(self._settings, repo_path, size)

    def announce(self, text: str) -> int:
        return announce.show(self._settings.tmux_socket, text)

    def attach_argv(self, instance_id: str, *, read_only: bool) -> list[str]:
        settings = self._settings
        pane = panes.by_instance(panes.list_panes(settings.tmux_socket)).get(instance_id)
        session = pane.session if pane else instance_id
        return command.attach(settings.tmux_socket, settings.tmux_config, session, read_only=read_only)

    def close(self) -> None:
        self._look.close()

    def _own_file(self, instance_id: str, name: str) -> Path:
        folder = self._settings.instance_dir(instance_id)
        path = folder / name
        if ".." in path.parts or not path.is_relative_to(folder):
            raise InvalidInput(f"{name[:200]!r} is no file of an instance's own folder")
        return path

    def _require_linked(self, place: Place) -> None:
        """Refuse a folder in which git would work on another repository, without a git command if all is well."""
        path = Path(place["worktree_path"])
        if path.is_dir() and admin.link_problem(path):
            self.require_registered(place)

    def _has_repo(self, place: Place) -> bool:
        return Path(place["repo_path"]).is_dir()

    def _refuse_orphan(self, place: Place) -> None:
        """Without its repository a worktree's files cannot be stored anywhere, so they stay where they are."""
        if os.path.lexists(place["worktree_path"]):
            raise NotFound(
                f"the repository {place['repo_path']} is gone, so the files in {place['worktree_path']} stay",
                code="GIT_REPOSITORY_NOT_FOUND",
                hint="if it was moved, `swarm doctor --fix --repo NEW_PATH`; else move the folder away first",
            )

    def _session(self, instance_id: str) -> SessionFacts | None:
        return next((s for s in self.sessions() if s["instance_id"] == instance_id), None)

    def _free_ref(self, place: Place, ref: str) -> str:
        """The ref, or a numbered one beside what a killed attempt has already stored under it."""
        taken = self.preserved_refs(place["repo_path"], place["instance_id"])
        numbered = (f"{ref}-{n}" for n in itertools.count(2))
        return next(name for name in itertools.chain([ref], numbered) if name not in taken)


def _preserved_facts(kept: git.Preserved | None) -> PreservedFacts | None:
    if kept is None:
        return None
    return {"ref": kept.ref, "commit": kept.commit, "files": kept.files, "bytes": kept.bytes}


def _sized(found: list[tuple[str, int]]) -> list[SizedPath]:
    return [{"path": merging.printable(name), "bytes": size} for name, size in found]


def _kept(found: removal.Hindrance | None) -> KeptFacts | None:
    if found is None:
        return None
    facts: KeptFacts = {"path": str(found.path), "reason": found.reason}
    return facts | {"files": list(found.files)} if found.files else facts


def _commit_of(repo_path: str, base: str) -> str | None:
    """What a base stands for now. HEAD says nothing: it moves with whatever the person has checked out."""
    if base == "HEAD":
        return None
    try:
        return git.resolve_base(repo_path, base).commit
    except (NotFound, InvalidInput):
        return None


def _end_survivors(mark: str, grace: float) -> None:
    """End what outlived its session, as a program does that ignores the hang-up of a killed tmux server."""
    marks = [[f"{mark}\0".encode()]]
    deadline = time.monotonic() + grace
    survivors = processes.members(_NO_LEADER, marks=marks)
    processes.send(survivors, signal.SIGTERM)
    while survivors and time.monotonic() < deadline:
        time.sleep(0.05)
        survivors = processes.members(_NO_LEADER, marks=marks)
    processes.send(survivors, signal.SIGKILL)


def _remove_tree(path: Path) -> None:
    def make_writable_and_retry(function: Any, name: str, _: Any) -> None:
        parent = os.path.dirname(name)  # noqa: PTH120
        os.chmod(parent, 0o700)  # noqa: PTH101
        if os.path.isdir(name) and not os.path.islink(name):  # noqa: PTH112, PTH114
            os.chmod(name, 0o700)  # noqa: PTH101
        function(name)

    if path.exists():
        shutil.rmtree(path, onerror=make_writable_and_retry)


def _size(path: Path) -> int:
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512  # noqa: PTH118
    return total

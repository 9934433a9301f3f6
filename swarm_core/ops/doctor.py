"""Doctor: everything that can be wrong with a home, each with what to do about it."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from swarm_core import process
from swarm_core.agents import table
from swarm_core.errors import Conflict, SwarmError
from swarm_core.hosts import scratch
from swarm_core.models import FOLDER_PROBLEMS, KEPT, WORKTREE_GONE, Instance, Message, parse_iso
from swarm_core.ops import backup, connection, folders, github_access, merging, replaced, tokens, unrecorded
from swarm_core.ops.context import Context, place
from swarm_core.ops.github_access import Access
from swarm_core.ops.reconcile import is_aside, reconcile, strangers
from swarm_core.store import actions, events, instances, messages, preserved, pulls

_DISK_LOW = 1 << 30
_LATE = 600.0
_SECRET_MIN = 16
_NAMED = 10
_TOKEN_HINT = "set GITHUB_TOKEN or sign in with `gh auth login`"  # noqa: S105  no secret


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at; state is ok, warn, fail or fixed."""

    name: str
    state: str
    message: str
    hint: str = ""


def examine(context: Context, *, fix: bool) -> list[Check]:
    """Look at everything; with `fix`, mend what can be mended without losing anything."""
    checks: list[Check] = []
    for look in _LOOKS:
        try:
            checks += look(context, fix)
        except SwarmError as error:
            checks.append(Check(_name(look), "fail", f"{error.message} [{error.code}]", error.hint or ""))
    return checks


def _operator_token(context: Context, fix: bool) -> Iterator[Check]:
    path, problem = context.settings.operator_token, tokens.operator_problem(context)
    if problem is None:
        yield Check("operator token", "ok", str(path))
    elif fix:
        tokens.ensure_operator(context)
        yield Check("operator token", "fixed", f"{path}: {problem}; there is a new one now")
    elif problem == tokens.MISSING:
        yield Check("operator token", "warn", f"{path}: {problem}", "the coordinator makes it when it starts")
    else:
        yield Check("operator token", "fail", f"{path}: {problem}", "`swarm doctor --fix` makes a new one")


def _programs(context: Context, fix: bool) -> Iterator[Check]:
    yield Check("python", "ok", ".".join(map(str, sys.version_info[:3])))
    for host in context.hosts:
        name = host.name
        info = host.info()
        yield Check("git", "ok", f"{info['git']} on {name}")
        yield Check("tmux", "ok", f"{info['tmux']} on {name}")
        for agent, where in info["agents"].items():
            found = table.get(agent)
            state = "ok" if where else "warn"
            yield Check(f"agent {agent}", state, where or "not installed", "" if where else found.install_hint)


def _home(context: Context, fix: bool) -> Iterator[Check]:
    home = context.settings.home
    mode = home.stat().st_mode & 0o777
    if mode & 0o077 and fix:
        home.chmod(0o700)
        yield Check("home", "fixed", f"{home} was open to others (mode {mode:o}) and is private now")
    elif mode & 0o077:
        yield Check("home", "fail", f"{home} is open to others (mode {mode:o})", "swarm doctor --fix")
    else:
        yield Check("home", "ok", str(home))
    free = shutil.disk_usage(home).free
    low = free < _DISK_LOW
    hint = "`swarm clean --dry-run` shows what can be freed" if low else ""
    yield Check("disk", "warn" if low else "ok", f"{free / (1 << 30):.1f} GB free", hint)


def _database(context: Context, fix: bool) -> Iterator[Check]:
    problems = context.db.check()
    if problems:
        hint = "`swarm down`, then `swarm backup restore FILE`; backups are in " + str(context.settings.backups)
        yield Check("database", "fail", "; ".join(problems[:3]), hint)
    else:
        yield Check("database", "ok", f"{context.db.path} ({_size(context.db.path)})")


def _backup(context: Context, fix: bool) -> Iterator[Check]:
    last = backup.newest(context.settings)
    if last is None:
        yield Check("backup", "ok", "none yet; `swarm backup` makes one")
        return
    path, made_at = last
    days = (parse_iso(context.db.now()).timestamp() - made_at) / 86_400
    yield Check("backup", "ok", f"{path}, {max(days, 0):.0f} days old")


def _interrupted(context: Context, fix: bool) -> Iterator[Check]:
    pending = actions.all_open(context.db)
    if not fix:
        for action in pending:
            what = f"{action.instance_id} is in the middle of a {action.kind}, or was interrupted in it"
            yield Check("actions", "warn", what, "swarm doctor --fix")
        if not pending:
            yield Check("actions", "ok", "nothing was interrupted")
        return
    findings = reconcile(context)
    for finding in findings:
        if finding.what in FOLDER_PROBLEMS:
            continue  # _repositories reports it, with what is known by then
        state = "fixed" if finding.mended else "fail"
        yield Check("instances", state, f"{finding.instance_id}: {finding.what}", finding.hint)
    if not findings:
        yield Check("instances", "ok", "records, worktrees and sessions agree")


def _sessions(context: Context, fix: bool) -> Iterator[Check]:
    unknown = strangers(context)
    for name in unknown:
        argv = " ".join(context.hosts.choose().attach_argv(name, read_only=False))
        yield Check("sessions", "warn", f"session {name} belongs to no recorded instance", f"look at it: {argv}")
    if not unknown:
        yield Check("sessions", "ok", "every session belongs to an instance")


def _messages(context: Context, fix: bool) -> Iterator[Check]:
    """Messages that wait, and why."""
    waiting = messages.waiting_for(context.db)
    coordinator = process.holder(context.settings.coordinator_lock)
    if waiting and coordinator is None:
        hint = "`swarm up --detach` starts the coordinator, which delivers them"
        yield Check("messages", "warn", f"{sum(waiting.values())} messages wait and nobody delivers", hint)
        return
    late = [m for i in waiting for m in messages.undelivered(context.db, i) if _age(context, m) > _LATE]
    for message in late:
        why = message.error or instances.get(context.db, message.instance_id).activity
        said = f"{message.id} to {message.instance_id} is {message.state} since {message.updated_at} ({why})"
        yield Check("messages", "warn", said, f"`swarm show {message.instance_id}` says what it does")
    if not late:
        yield Check("messages", "ok", f"{sum(waiting.values())} on their way")


def _connections(context: Context, fix: bool) -> Iterator[Check]:
    """Agents that run without their tools."""
    alone = [i for i in instances.listed(context.db) if connection.never_connected(context.db, i)]
    for instance in alone:
        hint = f"the coordinator tells it to try again when it is idle; else `swarm restart {instance.id}`"
        yield Check("tools", "warn", f"{instance.id} has not connected to the coordinator since its start", hint)
    if not alone:
        yield Check("tools", "ok", "every agent that needs the coordinator has connected")


def _github(context: Context, fix: bool) -> Iterator[Check]:
    """What keeps pull requests from being opened and followed at GitHub; offline is no failure of this home."""
    found = github_access.examine(context)
    yield from (_access(context, access) for access in found)
    if found:
        program = shutil.which("gh", path=context.environ.get("PATH", os.defpath))
        yield Check("gh", "ok", program or "not installed; it is one way to have a token")
    late = github_access.unreached(context)
    follows = process.holder(context.settings.coordinator_lock) is not None
    for old in late:
        why = old.problem or ("it is looked at in its turn" if follows else "no coordinator follows them")
        hint = "`swarm status` shows when it goes on" if follows else "`swarm up --detach` starts the coordinator"
        said = f"nothing was heard of a pull request at {old.repository} since {old.since}: {why}"
        yield Check("pull requests", "warn", said, hint)
    if found and not late:
        yield Check("pull requests", "ok", "all that are open at GitHub were heard of lately")


def _access(context: Context, access: Access) -> Check:
    name, forge = access.repository, context.settings.text("forge")
    if forge == "local":
        return Check("github", "ok", f"pull requests of {name} are kept on this machine: forge is local")
    if access.problem:
        state = "warn" if access.offline else "fail"
        source = f" (token from {access.source})" if access.source else ""
        return Check("github", state, f"{name}{source}: {access.problem}", "" if access.offline else _TOKEN_HINT)
    if access.source:
        return Check("github", "ok", f"{name}: token from {access.source}")
    if forge == "github":
        return Check("github", "fail", f"no pull request of {name} can be opened: there is no token", _TOKEN_HINT)
    kept = f"pull requests of {name} are kept on this machine: there is no token"
    return Check("github", "warn", kept, _TOKEN_HINT)


def _webhook(context: Context, fix: bool) -> Iterator[Check]:
    """The secret is that of this shell, which is the coordinator's if that was started from here."""
    secret = context.environ.get("SWARM_WEBHOOK_SECRET", "")
    if secret and len(secret) < _SECRET_MIN:
        hint = "openssl rand -hex 32 makes a good one; GitHub's webhook needs the same"
        yield Check("webhook", "warn", f"the secret of the webhook has fewer than {_SECRET_MIN} characters", hint)
    elif secret:
        yield Check("webhook", "ok", "it has a secret")


def _scratch(context: Context, fix: bool) -> Iterator[Check]:
    """What a merge that was killed left behind."""
    left = scratch.leftovers(context.settings)
    for folder in left:
        if not fix:
            yield Check("scratch", "warn", f"{folder} was left behind by a merge", "swarm doctor --fix")
        elif scratch.remove(context.settings, folder):
            yield Check("scratch", "fixed", f"{folder} was left behind by a merge and is gone now")
    if not left:
        yield Check("scratch", "ok", "no merge left anything behind")


def _age(context: Context, message: Message) -> float:
    return (parse_iso(context.db.now()) - parse_iso(message.created_at)).total_seconds()


def _repositories(context: Context, fix: bool) -> Iterator[Check]:
    """Repositories that moved, and worktrees and branches that went missing."""
    present = [i for i in instances.listed(context.db) if not i.cleaned]
    gone = sorted({i.repo_path for i in present if not Path(i.repo_path).is_dir()})
    for repo_path in gone:
        yield Check(
            "repositories",
            "fail",
            f"{repo_path} is gone; the worktrees that belong to it cannot be used",
            "if it was moved, run `swarm doctor --fix --repo NEW_PATH`",
        )
    lost = [i for i in present if i.repo_path not in gone]
    troubles = [check for i in lost for check in _instance(context, i, fix)]
    yield from troubles
    if not gone and not troubles:
        yield Check("repositories", "ok", "every worktree and branch is in its place")


def _aside(context: Context, fix: bool) -> Iterator[Check]:
    """Folders that a removal left beside their place, and what an earlier one left half deleted."""
    known = {i.worktree_path: i for i in instances.listed(context.db)}
    found = [p for p in sorted(context.settings.worktrees.glob("*/.*")) if p.name != ".pool" and p.is_dir()]
    for folder in found:
        owner = known.get(str(scratch.place_of(folder)))
        if owner is not None:
            yield Check(
                "removals", "warn", f"{folder} was kept aside", f"`swarm clean {owner.id}` goes on with it"
            )
        else:
            hint = "no instance needs it: look at it, then delete it"
            yield Check("removals", "warn", f"{folder} was left by a removal", hint)
    kept = [i for i in known.values() if i.kept]
    for instance in kept:
        facts = json.loads(instance.kept)
        said = f"{instance.id}: {facts['path']} was kept: {KEPT[facts['reason']]}"
        yield Check("removals", "warn", said, folders.kept_remedy(instance))
    if not found and not kept:
        yield Check("removals", "ok", "no folder was kept aside")


def _preserved(context: Context, fix: bool) -> Iterator[Check]:
    """Preserved work that the database does not know, as after a backup was restored."""
    found = list(unrecorded.unrecorded(context))
    for repo_path, ref, owner in found:
        said = f"{ref} in {repo_path} is not in the database"
        if owner is None:
            hint = f"`git -C {shlex.quote(repo_path)} worktree add --detach FOLDER {ref}` brings its files back"
            yield Check("preserved work", "warn", said, hint)
        elif fix and unrecorded.record(context, owner):
            yield Check("preserved work", "fixed", f"work of {owner.id} was found: `swarm restore {owner.id}`")
        elif not fix:
            yield Check("preserved work", "warn", said, f"`swarm doctor --fix`, then `swarm restore {owner.id}`")
    if not found:
        yield Check("preserved work", "ok", "all of it is in the database")


def _replaced(context: Context, fix: bool) -> Iterator[Check]:
    """Replace refs and grafts, with which nothing is reviewed or merged."""
    repositories = {i.repo_path: i for i in instances.listed(context.db) if not i.cleaned}
    named = {path: context.host(one).replaced(path) for path, one in sorted(repositories.items())}
    found = {path: names for path, names in named.items() if names}
    for path, names in found.items():
        what = f"objects of {path} are replaced: {', '.join(names[:_NAMED])}"
        yield Check("replaced objects", "fail", what, replaced.remedy(path, names))
    if not found:
        yield Check("replaced objects", "ok", "every repository shows what was committed")


def _damaged(context: Context, fix: bool) -> Iterator[Check]:
    """Objects of open pull requests that are not what their names say, with which nothing is merged."""
    found: list[Conflict] = []
    for pull in pulls.listed(context.db):
        try:
            merging.require_sound(context, pull)
        except Conflict as error:
            found.append(error)
    for one in found:
        yield Check("damaged objects", "fail", one.message, one.hint or "")
    if not found:
        yield Check("damaged objects", "ok", "the objects of open pull requests are what their names say")


def _instance(context: Context, instance: Instance, fix: bool) -> Iterator[Check]:
    if is_aside(instance):
        return
    if not Path(instance.worktree_path).is_dir():
        yield _missing(context, instance, fix)
        return
    try:
        context.host(instance).require_registered(place(instance))
    except Conflict as error:
        yield Check("worktrees", "fail", f"{instance.id}: {error.message} [{error.code}]", error.hint or "")
        return
    if (commit := context.host(instance).lost_branch(place(instance))) is not None:
        if fix:
            context.host(instance).revive_branch(place(instance), commit)
            yield Check(
                "branches", "fixed", f"{instance.id}: branch {instance.branch} was made again at {commit[:10]}"
            )
        else:
            yield Check(
                "branches", "fail", f"{instance.id}: branch {instance.branch} is gone", "swarm doctor --fix"
            )


def _missing(context: Context, instance: Instance, fix: bool) -> Check:
    """A worktree that is not where it was: it is in a home that was moved, or it is gone."""
    here = folders.in_this_home(context, instance)
    if here == instance.worktree_path or not Path(here).is_dir():
        hint = folders.problem_remedy(instance, WORKTREE_GONE)
        return Check("worktrees", "fail", f"{instance.id}: {instance.worktree_path} is gone", hint)
    if not fix:
        return Check("worktrees", "fail", f"{instance.id}: its worktree is at {here} now", "swarm doctor --fix")
    host, moved = context.host(instance), dataclasses.replace(instance, worktree_path=here)
    try:
        host.repair_worktrees(instance.repo_path, [here])
        host.require_registered(place(moved))
    except SwarmError as error:
        return Check("worktrees", "fail", f"{instance.id}: {error.message} [{error.code}]", error.hint or "")
    with context.db.write():
        problem = "" if instance.problem in FOLDER_PROBLEMS else instance.problem
        instances.set_fields(context.db, instance.id, worktree_path=here, problem=problem)
        told = {"what": f"worktree moved from {instance.worktree_path} to {here}"}
        events.add(context.db, "instance:repaired", instance_id=instance.id, actor="operator", metadata=told)
    return Check("worktrees", "fixed", f"{instance.id}: its worktree is at {here} now")


def adopt_repository(context: Context, new_path: str) -> list[Check]:
    """A repository was moved: mend its worktrees' links and the records, if its worktrees or refs prove it."""
    host = context.hosts.choose()
    try:
        repo_path = host.ensure_repo(new_path, None)["repo_path"]
    except SwarmError as error:
        return [Check("repositories", "fail", f"{error.message} [{error.code}]", error.hint or "")]
    known = set(host.registered_worktrees(repo_path))
    moved = [
        i
        for i in instances.listed(context.db, include_cleaned=True)
        if i.repo_path != repo_path and not Path(i.repo_path).is_dir()
    ]
    old_paths = {i.repo_path for i in moved if i.worktree_path in known or _is_kept_in(context, repo_path, i)}
    mine = [i for i in moved if i.repo_path in old_paths]
    if not mine:
        return [Check("repositories", "ok", f"no instance belongs to an earlier place of {repo_path}")]
    host.repair_worktrees(repo_path, [i.worktree_path for i in mine if Path(i.worktree_path).is_dir()])
    with context.db.write():
        for instance in mine:
            instances.set_fields(context.db, instance.id, repo_path=repo_path)
            told = {"what": f"repository moved from {instance.repo_path} to {repo_path}"}
            events.add(context.db, "instance:repaired", instance_id=instance.id, actor="operator", metadata=told)
    return [Check("repositories", "fixed", f"{i.id} belongs to {repo_path} now") for i in mine]


def _is_kept_in(context: Context, repo_path: str, instance: Instance) -> bool:
    """Whether the repository holds preserved work of the instance; a clone does not take such refs along."""
    stored = preserved.of(context.db, instance.id)
    there = context.host(instance).preserved_refs(repo_path, instance.id) if stored else {}
    return any(there.get(one.ref) == one.commit for one in stored)


_LOOKS: tuple[Callable[[Context, bool], Iterator[Check]], ...] = (
    _home,
    _database,
    _backup,
    _operator_token,
    _programs,
    _interrupted,
    _sessions,
    _messages,
    _connections,
    _repositories,
    _aside,
    _preserved,
    _replaced,
    _damaged,
    _github,
    _webhook,
    _scratch,
)


def _name(look: Callable[..., object]) -> str:
    return look.__name__.strip("_")


def _size(path: Path) -> str:
    return f"{os.path.getsize(path) / (1 << 20):.1f} MB"  # noqa: PTH202

"""The command that must succeed on a merged result: what it is, running it, and what it said before."""

from __future__ import annotations

import dataclasses
import hashlib
import re
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from swarm_core.errors import Conflict, InvalidInput
from swarm_core.hosts.base import CheckFacts, HeadOrder, Host, IntegrateFacts, IntegrateOrder
from swarm_core.models import CheckRun, Pull
from swarm_core.ops import lineage
from swarm_core.ops.context import Context
from swarm_core.store import check_runs, checked, events

FILE = ".swarm/check"
_FILE_MAX = 4096
_SHOWN = 4000
_QUOTED = re.compile(r"""\\.|'[^']*'|"(?:\\.|[^"\\])*"|#.*""", re.DOTALL)  # and comments, of one command
_OPERATOR = re.compile(r"[;&|<>]")  # would be an argument, and a check that fails would pass


@dataclass(frozen=True, slots=True)
class Recipe:
    """Commits to be merged in their order onto a commit of the base branch, and the command to check that with."""

    repo_path: str
    base_branch: str
    base_commit: str
    heads: Sequence[HeadOrder]
    command: Sequence[str]
    scratch: str

    @property
    def name(self) -> str:
        """The same for the same commits merged in the same way: each merge of them is another commit."""
        return _name(self.base_commit, *(f"{head['method']}:{head['head_commit']}" for head in self.heads))


def command(context: Context, host: Host, repo_path: str, base_branch: str) -> list[str]:
    """What `.swarm/check` says at a commit no agent has written, else the setting; empty is none."""
    facts = host.ensure_repo(repo_path, base_branch)
    trusted = lineage.trusted_commit(context.db, repo_path, facts["base_branch"], facts["base_commit"])
    text = host.read_file(repo_path, trusted, FILE, max_bytes=_FILE_MAX) if trusted else None
    if text and (found := _words(text, FILE)):
        return found
    return _words(context.settings.text("check_command"), "check_command")


def timeout(context: Context) -> float:
    return context.settings.number("check_minutes") * 60


def attempt(context: Context, host: Host, recipe: Recipe) -> IntegrateFacts:
    """Put it together and check it; nothing lands. Files that are known to be good are not checked again."""
    known = last(context, recipe)
    good: CheckFacts | None = {"ok": True, "output": known.output} if known is not None and known.ok else None
    if good is not None and not recipe.heads:
        return {
            "base_commit": recipe.base_commit,
            "commits": [],
            "conflict": None,
            "check": good,
            "landed": False,
            "tree": "",
        }
    if recipe.command and good is None:
        context.report(f"checking {recipe.base_branch} with {len(recipe.heads)} merged")
    began = time.monotonic()
    order = _order(context, recipe, land=False)
    order["checked_tree"] = known.tree if known is not None and known.ok else ""
    facts = host.integrate(order)
    if facts["check"] is not None:
        _note(context, host, recipe, facts, time.monotonic() - began)
    elif facts["conflict"] is None:
        facts["check"] = good
    return facts


def try_base(context: Context, host: Host, recipe: Recipe, *, again: bool = False) -> bool:
    """Whether the check passes on the base alone; what is known of that is tried anew only `again`."""
    alone = dataclasses.replace(recipe, heads=[])
    known = last(context, alone)
    if known is not None and not again:
        return known.ok
    result = attempt(context, host, alone)["check"]
    return result is None or result["ok"]


def land(
    context: Context, host: Host, recipe: Recipe, *, made: Sequence[str] = (), reword: bool = False
) -> IntegrateFacts:
    """Move the base branch to what `attempt` made; without that, merge first. A conflict is a result."""
    context.checkpoint("merge:land:before")
    order = _order(context, recipe, land=True)
    order["made"], order["reword"] = list(made), reword
    facts = host.integrate(order)
    context.checkpoint("merge:land:after")
    return facts


def last(context: Context, recipe: Recipe) -> checked.Checked | None:
    """How the command ended the last time on the same commits."""
    if not recipe.command:
        return None
    said = shlex.join(recipe.command)
    found = checked.of(context.db, recipe.repo_path, recipe.name)
    return next((one for one in found if one.command == said), None)


def record(context: Context, pull: Pull, base_commit: str, command: Sequence[str], result: CheckFacts) -> None:
    """Keep a result as the check of the pull request's commit, in the caller's transaction.

    It holds while the head, the base and the command are the same.
    """
    said, now = shlex.join(command), context.db.now()
    run = CheckRun(pull.id, pull.head_commit, base_commit, said, result["ok"], result["output"], now)
    check_runs.put(context.db, run)
    about = {"number": pull.number, "commit": pull.head_commit, "base_commit": base_commit, "ok": run.ok}
    events.add(context.db, "pull:checked", instance_id=pull.instance_id, actor="swarm", metadata=about)


def is_of(run: CheckRun, pull: Pull, recipe: Recipe) -> bool:
    """Whether a result is that of the same head, base and command."""
    mine = (pull.head_commit, recipe.base_commit, shlex.join(recipe.command))
    return (run.head_commit, run.base_commit, run.command) == mine


def drop_outdated(context: Context, host: Host, pull: Pull, base_commit: str | None) -> None:
    """Forget a result that was for another head, base or command; of a failure on an earlier base, that it was."""
    run = check_runs.of(context.db, pull.id)
    if run is None:
        return
    same = run.head_commit == pull.head_commit
    same = same and run.command == shlex.join(command(context, host, pull.repo_path, pull.base_branch))
    if same and run.base_commit in ("", base_commit):
        return
    with context.db.write():
        if check_runs.of(context.db, pull.id) != run:
            return
        if same and not run.ok:
            check_runs.put(context.db, dataclasses.replace(run, base_commit=""))
        else:
            check_runs.drop(context.db, pull.id)


def conflict(pull: Pull, files: Sequence[str]) -> Conflict:
    """The refusal of a merge that git could not make; without files the two share no commit."""
    if not files:
        return Conflict(
            f"pull request #{pull.number} shares no commit with {pull.base_branch}",
            code="MERGE_CONFLICT",
            hint=onto_base(pull),
            details={"files": [], "base_branch": pull.base_branch},
        )
    return Conflict(
        f"pull request #{pull.number} and {pull.base_branch} change the same lines: {', '.join(files[:10])}",
        code="MERGE_CONFLICT",
        hint=f"bring {pull.base_branch} into {pull.head_branch}, commit, then `swarm pr open {pull.instance_id}`",
        details={"files": list(files), "base_branch": pull.base_branch},
    )


def onto_base(pull: Pull) -> str:
    """What helps a branch that shares no commit with its base."""
    rebase = f"`git rebase {shlex.quote(pull.base_branch)}` in its worktree"
    return f"{rebase}, then `swarm pr open {pull.instance_id}` brings the new commits in"


def failed(context: Context, pull: Pull, run: CheckRun, **details: Any) -> Conflict:
    """The refusal of a pull request that failed the check; `base_fails` says that its base alone does, too."""
    name, base = pull.instance_id, pull.base_branch
    known = checked.of(context.db, pull.repo_path, _name(run.base_commit))
    base_fails = any(one.command == run.command and not one.ok for one in known)
    where = f"on {base} itself, without" if base_fails else f"on {base} with"
    first = f"mend {base}" if base_fails else f"`swarm pr show {name}` has its output"
    return Conflict(
        f"the check command failed {where} pull request #{pull.number}: {_last_line(run.output)[:300]}",
        code="CHECK_FAILED",
        hint=f"{first}; `swarm pr check {name}` runs it again;"
        f" a person can merge it all the same: `swarm pr merge {name} --anyway REASON`",
        details={"output": run.output[-_SHOWN:], "base_fails": base_fails, **details},
    )


def _name(*parts: str) -> str:
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()


def _words(text: str, where: str) -> list[str]:
    """The one command of the text; quoted parts of it may go over several lines."""
    found: list[list[str]] = []
    pending, needs_shell = "", text.startswith("#!")
    for line in text.splitlines():
        pending += f"{line}\n"
        try:
            words = shlex.split(pending, comments=True)
        except ValueError:
            continue
        needs_shell = needs_shell or bool(_OPERATOR.search(_QUOTED.sub("", pending)))
        pending = ""
        found += [words] if words else []
    if pending or len(found) > 1 or needs_shell:
        why = "a quote is open" if pending else "it is for a shell" if needs_shell else "it is several"
        raise InvalidInput(
            f"the check command in {where} cannot be read: {why}",
            code="INVALID_SETTING",
            hint="one program and its arguments, quoted as in a shell; use `sh -c '...'` or a script for more",
        )
    return found[0] if found else []


def _order(context: Context, recipe: Recipe, *, land: bool) -> IntegrateOrder:
    return {
        "repo_path": recipe.repo_path,
        "base_branch": recipe.base_branch if land else None,
        "base_commit": recipe.base_commit,
        "heads": list(recipe.heads),
        "check": [] if land else list(recipe.command),
        "check_timeout": timeout(context),
        "land": land,
        "scratch": recipe.scratch,
    }


def _note(context: Context, host: Host, recipe: Recipe, facts: IntegrateFacts, seconds: float) -> None:
    """A head that has the base in it is the merged result itself, so that is known of the head too."""
    result, names = facts["check"], [recipe.name]
    assert result is not None
    if len(recipe.heads) == 1:
        head = recipe.heads[0]["head_commit"]
        names += [head] if host.has_commit(recipe.repo_path, head, recipe.base_commit) else []
    with context.db.write():
        for name in names:
            checked.put(
                *(context.db, recipe.repo_path, name, shlex.join(recipe.command)),
                ok=result["ok"],
                output=result["output"],
                seconds=seconds,
                tree=facts["tree"],
            )


def _last_line(output: str) -> str:
    """What the command said last, not how it ended."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return next((line for line in reversed(lines) if not line.startswith("[")), lines[-1] if lines else "")

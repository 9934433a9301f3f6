"""The command that must succeed on a merged result: what it is, running it, and what it said before."""

from __future__ import annotations

import hashlib
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass

from swarm_core.errors import Conflict, InvalidInput
from swarm_core.hosts.base import CheckFacts, HeadOrder, Host, IntegrateFacts, IntegrateOrder
from swarm_core.models import Pull
from swarm_core.ops import lineage
from swarm_core.ops.context import Context
from swarm_core.store import checked

FILE = ".swarm/check"
_FILE_MAX = 4096
_SHOWN = 4000


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
        heads = (f"{head['method']}:{head['head_commit']}" for head in self.heads)
        return hashlib.sha256(" ".join((self.base_commit, *heads)).encode()).hexdigest()


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
    """Put it together and check it; nothing lands. What is known to be good is not made again."""
    known = last(context, recipe)
    if known is not None and known.ok:
        good: CheckFacts = {"ok": True, "output": known.output}
        return {
            "base_commit": recipe.base_commit,
            "commits": [],
            "conflict": None,
            "check": good,
            "landed": False,
        }
    if recipe.command:
        context.report(f"checking {recipe.base_branch} with {len(recipe.heads)} merged")
    began = time.monotonic()
    facts = host.integrate(_order(context, recipe, land=False))
    if facts["check"] is not None:
        _note(context, host, recipe, facts["check"], time.monotonic() - began)
    return facts


def land(context: Context, host: Host, recipe: Recipe) -> IntegrateFacts:
    """Put together what was checked and move the base branch there; a conflict is a result."""
    context.checkpoint("merge:land:before")
    facts = host.integrate(_order(context, recipe, land=True))
    context.checkpoint("merge:land:after")
    return facts


def last(context: Context, recipe: Recipe) -> checked.Checked | None:
    """How the command ended the last time on the same commits."""
    if not recipe.command:
        return None
    said = shlex.join(recipe.command)
    found = checked.of(context.db, recipe.repo_path, recipe.name)
    return next((one for one in found if one.command == said), None)


def conflict(pull: Pull, files: Sequence[str]) -> Conflict:
    return Conflict(
        f"pull request #{pull.number} and {pull.base_branch} change the same lines: {', '.join(files[:10])}",
        code="MERGE_CONFLICT",
        hint=f"bring {pull.base_branch} into {pull.head_branch}, commit, then `swarm pr open {pull.instance_id}`",
        details={"files": list(files), "base_branch": pull.base_branch},
    )


def failed(pull: Pull, output: str) -> Conflict:
    return Conflict(
        f"the check command failed on {pull.base_branch} with pull request #{pull.number}:"
        f" {_last_line(output)[:300]}",
        code="CHECK_FAILED",
        hint="nothing was merged; --json has its last lines in error.details.output",
        details={"output": output[-_SHOWN:]},
    )


def _words(text: str, where: str) -> list[str]:
    """The one command of the text; quoted parts of it may go over several lines."""
    found: list[list[str]] = []
    pending = ""
    for line in text.splitlines():
        pending += f"{line}\n"
        try:
            words = shlex.split(pending, comments=True)
        except ValueError:
            continue
        pending = ""
        found += [words] if words else []
    if pending or len(found) > 1:
        raise InvalidInput(
            f"the check command in {where} cannot be read: {'a quote is open' if pending else 'it is several'}",
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


def _note(context: Context, host: Host, recipe: Recipe, result: CheckFacts, seconds: float) -> None:
    """A head that has the base in it is the merged result itself, so that is known of the head too."""
    names = [recipe.name]
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
            )


def _last_line(output: str) -> str:
    """What the command said last, not how it ended."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return next((line for line in reversed(lines) if not line.startswith("[")), lines[-1] if lines else "")

"""Commands for several attempts at one task: compare, pick."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from swarm_core.errors import SwarmError
from swarm_ui.cli import output, parameters

if TYPE_CHECKING:
    from swarm_core.models import Instance
    from swarm_core.ops.attempts import Picked
    from swarm_core.ops.compare import Comparison, Side
    from swarm_core.swarm import Swarm

_WIDTH = 100
_CELL = 24
_NAMED = 8
_STYLES = {"passed": "green", "failed": "red", "approved": "green", "needs_work": "yellow"}


def compare(
    ids: parameters.Many = None,
    run_check: Annotated[
        bool, typer.Option("--run-check", help="Run the check command where it has not passed yet.")
    ] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Each one's diff; of two ids, what differs.")] = False,
    json: parameters.Json = False,
) -> None:
    """Show attempts side by side: one id of a group, or any ids of one repository.

    Lines and files are those that are committed. The check command is that of .swarm/check or of the
    setting check_command. Costs are estimates.

    --json prints repo_path, group, picked, shared and attempts, each with its instance, head_commit,
    commits, lines_added, lines_deleted, files, only, uncommitted, check, review, tokens_used, cost_usd,
    seconds; with --diff also diff, or between and diff.

    \b
    Example:
      swarm compare work-12-a1 --run-check
      swarm compare work-12-a1 work-12-a2 --diff
    """
    if not ids:
        raise typer.BadParameter("give at least one id", param_hint="ID")
    from swarm_core.ops import compare as impl
    from swarm_ui.cli.session import opened

    with opened() as swarm:
        failure = _look(swarm)
        found = swarm.attempts.compare(ids, run_check=run_check)
        pair = found.sides if diff and len(set(ids)) == len(found.sides) == 2 else None
        between = impl.diff_between(swarm.context, *pair) if pair else None
        diffs = [impl.diff_of(swarm.context, side) for side in found.sides] if diff and not pair else []
    if failure is not None:
        output.note(f"not up to date: {failure.message} [{failure.code}]")
    if json:
        body = _json(found, diffs)
        output.write_json(body | ({"between": _ids(found), "diff": between} if pair else {}))
        return
    if not diff:
        _table(found)
        if any(side.check is not None and not side.check.ok for side in found.sides):
            output.note(f"`swarm compare {' '.join(ids)} --json` has what a failed check has printed")
        return
    told = (
        [(f"{' -> '.join(_ids(found))}", between)] if between is not None else zip(_ids(found), diffs, strict=True)
    )
    for title, text in told:
        output.write(output.style(f"==== {title}", "bold"))
        output.write(output.plain(text, lines=True).rstrip("\n") or "(nothing)")


def pick(
    instance: parameters.One,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the others as they are.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: parameters.Json = False,
) -> None:
    """Pick one of several attempts; the others are ended.

    Their agents and reviewers are stopped and their open pull requests closed; their files, commits
    and branches stay. The same again is no change.

    --json prints id, group, ended, reviews, closed (numbers of pull requests) and failures by id.

    \b
    Example:
      swarm pick work-12-a2
    """
    if not (keep or yes) and (json or sys.stdin is None or not sys.stdin.isatty()):
        raise typer.BadParameter("without a terminal, --yes is needed", param_hint="--yes")
    from swarm_ui.cli.session import opened

    if not (keep or yes):
        with opened() as swarm:
            ending = swarm.attempts.ended_by_picking(instance)
        _ask(instance, ending)
    with opened() as swarm:
        done = swarm.attempts.pick(instance, keep=keep)
    _tell(done, json=json)
    if done.failures:
        raise typer.Exit(1)


def _look(swarm: Swarm) -> SwarmError | None:
    """In place of the coordinator; what is recorded can be compared even when looking fails."""
    if swarm.coordinator() is not None:
        return None
    swarm.context.report("looking at the agents")
    try:
        swarm.reconcile()
    except SwarmError as error:
        return error
    return None


def _ids(found: Comparison) -> list[str]:
    return [side.instance.id for side in found.sides]


def _json(found: Comparison, diffs: Sequence[str]) -> dict[str, Any]:
    attempts = [_side_json(side) for side in found.sides]
    for body, text in zip(attempts, diffs, strict=False):
        body["diff"] = text
    return {
        "repo_path": found.repo_path,
        "group": found.group,
        "picked": found.picked,
        "shared": list(found.shared),
        "attempts": attempts,
    }


def _side_json(side: Side) -> dict[str, Any]:
    from swarm_core.models import as_json
    from swarm_ui import views

    facts, one = side.facts, side.instance
    return {
        "instance": views.instance_json(one),
        "head_commit": facts["head_commit"],
        "commits": facts["commits"],
        "lines_added": facts["added"],
        "lines_deleted": facts["deleted"],
        "files": list(side.files),
        "only": list(side.only),
        "uncommitted": {"count": facts["dirty_count"], "files": facts["dirty"]},
        "check": as_json(side.check) if side.check else None,
        "review": as_json(side.review) if side.review else None,
        "tokens_used": one.tokens_used,
        "cost_usd": one.cost_usd,
        "estimate": True,
        "seconds": side.seconds,
    }


def _table(found: Comparison) -> None:
    """One column for each attempt, in as many blocks as the width asks for."""
    told = {side.instance.id: _cells(side, picked=found.picked) for side in found.sides}
    names = [name for name in next(iter(told.values())) if any(cells[name] for cells in told.values())]
    label = max(len(name) for name in names)
    room = min(_WIDTH, shutil.get_terminal_size((_WIDTH, 24)).columns)
    per_block = max(1, (room - label) // (_CELL + 2))
    everybody = list(told)
    for first in range(0, len(everybody), per_block):
        some = everybody[first : first + per_block]
        if first:
            output.write()
        rows = [(name, *(told[one][name] for one in some)) for name in names]
        styles = [("dim", *(_STYLES.get(told[one][name].partition(" ")[0], "") for one in some)) for name in names]
        output.columns(("", *some), rows, styles)
    if len(found.sides) > 1:
        output.write()
        output.fields(
            [
                ("touched by all", _named(found.shared)),
                *((f"only {s.instance.id}", _named(s.only)) for s in found.sides),
            ]
        )


def _cells(side: Side, *, picked: str | None) -> dict[str, str]:
    one, facts = side.instance, side.facts
    cells = {
        "agent": one.agent,
        "status": "cleaned" if one.cleaned else one.status,
        "activity": one.activity,
        "commits": str(facts["commits"]),
        "files": str(facts["files_count"]),
        "lines": f"+{facts['added']} -{facts['deleted']}",
        "uncommitted": f"{facts['dirty_count']} files" if facts["dirty_count"] else "",
        "check": _check_label(side),
        "review": _review_label(side),
        "tokens": f"{one.tokens_used:,}" if one.tokens_used else "",
        "cost": f"${one.cost_usd:.2f}" if one.tokens_used else "",
        "time": _duration(side.seconds),
        "picked": "yes" if picked == one.id else "",
    }
    return {name: output.cut(output.plain(text), _CELL) for name, text in cells.items()}


def _check_label(side: Side) -> str:
    if side.check is None:
        return "not run"
    return f"{'passed' if side.check.ok else 'failed'} ({_duration(side.check.seconds)})"


def _review_label(side: Side) -> str:
    if side.review is None:
        return "none"
    return side.review.verdict if side.review.of_head else f"{side.review.verdict}, older commit"


def _duration(seconds: float) -> str:
    whole = int(seconds)
    if whole >= 3600:
        return f"{whole // 3600}h {whole % 3600 // 60}m"
    return f"{whole // 60}m {whole % 60}s" if whole >= 60 else f"{seconds:.0f}s"


def _named(files: Sequence[str]) -> str:
    more = len(files) - _NAMED
    return ", ".join([*files[:_NAMED], *([f"and {more} more"] if more > 0 else [])])


def _ask(chosen: str, ending: Sequence[Instance]) -> None:
    if not ending:
        return
    for one in ending:
        pull = f", pull request #{one.pr_number}" if one.pr_number else ""
        output.write(output.plain(f"{one.id} ({one.status}, {one.activity}{pull})"))
    output.flush()
    try:
        answer = input(f"end these and go on with {output.plain(chosen)}? [y/N] ")
    except EOFError:
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        output.write("nothing was picked")
        raise typer.Exit(1)


def _tell(done: Picked, *, json: bool) -> None:
    if json:
        failures = {one: error.as_json() for one, error in done.failures.items()}
        body = {"id": done.id, "group": done.group, "ended": done.ended, "reviews": done.reviews}
        output.write_json(body | {"closed": done.closed, "failures": failures})
        return
    output.write(f"{done.id} is picked")
    for one in done.ended:
        output.write(f"{one} ended; its files and commits stay")
    for number in done.closed:
        output.write(f"pull request #{number} closed")
    for one, error in done.failures.items():
        output.show_error(error.code, error.message, error.hint, about=one)

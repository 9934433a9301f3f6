"""`swarm clean --merged`: what was merged is offered with what that frees, then cleaned; busy agents are left."""

from __future__ import annotations

from typing import Any

import typer

from swarm_core.errors import SwarmError
from swarm_core.models import PullState
from swarm_core.ops import clean_merged
from swarm_core.ops.clean_merged import Offer
from swarm_core.swarm import Swarm
from swarm_ui import views
from swarm_ui.cli import output
from swarm_ui.cli.act import goes_lines, kept_line
from swarm_ui.cli.session import Outcome, each, opened, tell


def run(ids: list[str], *, dry_run: bool, yes: bool, remote: bool, json: bool) -> None:
    with opened() as swarm:
        chosen = ids or [i.id for i in clean_merged.merged(swarm.context)]
        offered = each(chosen, lambda name: _offer(swarm, name))
    if not chosen and not json:
        output.write("nothing was merged that is not clean")
        return
    if dry_run:
        try:
            tell(offered, json=json, body=_body, line=_offer_line)
        finally:
            _total(offered, json=json)
        return
    if not yes:
        _ask(offered, remote=remote)
    plans = {outcome.id: outcome for outcome in offered}
    with opened() as swarm:
        done = each(chosen, lambda name: _clean(swarm, plans[name], remote=remote))
    tell(done, json=json, body=dict, line=_done_line)


def _offer(swarm: Swarm, name: str) -> Offer:
    swarm.context.report(f"looking at {name}")
    return clean_merged.offer(swarm.context, swarm.find(name))


def _body(offer: Offer) -> dict[str, Any]:
    return {
        "id": offer.instance.id,
        "status": offer.instance.status,
        "branch": offer.instance.branch,
        "repo_path": offer.instance.repo_path,
        "pull": offer.pull.number,
        "url": offer.pull.url,
        "merge_commit": offer.pull.merge_commit,
        "branch_goes": offer.branch_goes,
        "left": offer.busy,
        "cleaned": False,
    } | dict(offer.left)


def _clean(swarm: Swarm, plan: Outcome, *, remote: bool) -> dict[str, Any]:
    """A busy agent is no failure: it is left and named."""
    if plan.error is not None:
        raise plan.error
    offer: Offer = plan.value
    body = _body(offer)
    swarm.context.report(f"cleaning {offer.instance.id}")
    try:
        done = clean_merged.clean_one(swarm.context, offer.instance.id, actor="operator")
    except SwarmError as error:
        if error.code != "INSTANCE_RUNNING":
            raise
        return body | {"left": offer.busy or "its agent is busy"}
    told = [e.metadata for e in swarm.detail(done.id).events if e.name == "instance:cleaned"]
    known = told[-1] if told else {}
    body |= {"cleaned": True, "status": done.status, "left": ""}
    body |= {k: known.get(k) for k in ("branch_deleted", "preserved", "merged_ref")}
    return body | (_delete_remote(swarm, offer) if remote else {})


def _delete_remote(swarm: Swarm, offer: Offer) -> dict[str, Any]:
    """What is clean here stays clean, whether or not GitHub answers."""
    pull = offer.pull
    if pull.state != PullState.MERGED or not pull.repository:
        return {"remote_deleted": False, "remote_problem": "it was not merged at GitHub"}
    try:
        deleted = swarm.pulls.delete_branch(pull)
    except SwarmError as error:
        return {"remote_deleted": False, "remote_problem": f"{error.message} [{error.code}]"}
    return {"remote_deleted": deleted, "remote_problem": "" if deleted else "it is gone or has moved on"}


def _offer_line(offer: Offer) -> str:
    what = [f"merged as #{offer.pull.number}"]
    if offer.busy:
        return output.plain(f"{offer.instance.id} ({offer.instance.status}): {what[0]}, left: {offer.busy}")
    if offer.left["kept"]:
        return kept_line(_body(offer))
    if offer.left["dirty_files"]:
        what.append(f"{offer.left['dirty_files']} uncommitted to preserve")
    if not offer.branch_goes:
        what.append(f"branch {offer.instance.branch} stays: it has commits that were not merged")
    what.append(f"frees {views.size_label(offer.left['bytes'])}")
    lines = [f"{offer.instance.id} ({offer.instance.status}): {', '.join(what)}", *goes_lines(dict(offer.left))]
    return "\n".join(map(output.plain, lines))


def _total(offered: list[Outcome], *, json: bool) -> None:
    found = [o.value for o in offered if o.error is None and not o.value.busy]
    if not json:
        output.write(
            f"{len(found)} to clean, {views.size_label(sum(offer.left['bytes'] for offer in found))} in all"
        )


def _ask(offered: list[Outcome], *, remote: bool) -> None:
    for outcome in offered:
        if outcome.error is None:
            output.write(_offer_line(outcome.value))
    _total(offered, json=False)
    output.flush()
    also = " and their branches at GitHub" if remote else ""
    try:
        answer = input(f"remove these worktrees{also}? [y/N] ")
    except EOFError:
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        output.write("nothing was removed")
        raise typer.Exit(1)


def _done_line(done: dict[str, Any]) -> str:
    if not done["cleaned"]:
        return output.plain(f"{done['id']} is left: {done['left']}")
    said = [f"{done['id']} cleaned, {views.size_label(done['bytes'])} freed"]
    if done["preserved"]:
        said.append(f"what no branch has is in {done['preserved']}")
    if not done["branch_deleted"]:
        said.append(f"branch {done['branch']} stays")
    elif done["merged_ref"]:
        said.append(f"its commits are in {done['merged_ref']}")
    if "remote_deleted" in done:
        problem = done["remote_problem"]
        said.append(f"the branch at GitHub stays: {problem}" if problem else "the branch at GitHub is gone")
    return output.plain("; ".join(said))

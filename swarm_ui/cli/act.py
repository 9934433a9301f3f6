"""Commands that act on instances that exist: msg, stop, restart, restore, clean."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from swarm_ui.cli import output, parameters

if TYPE_CHECKING:
    from swarm_core.models import Instance
    from swarm_core.swarm import Swarm
    from swarm_ui.cli.session import Outcome

_NAMED = 5


def msg(
    instance: parameters.One,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The message; `-` reads stdin.", show_default=False)],
    json: parameters.Json = False,
) -> None:
    """Send an instance a message.

    It is recorded at once and delivered when the agent can take it.

    --json prints the message: id, instance_id, sender, state, body, created_at, updated_at, attempts, error,
    kind, document, next_at, injected_at, seen_at, acknowledged_at, expires_at, how.

    \b
    Example:
      swarm msg work-12-a1 "please use the new client"
    """
    body = parameters.long_text(text)
    from swarm_core.models import as_json
    from swarm_ui.cli.session import opened

    with opened() as swarm:
        message = swarm.message(instance, body)
    if json:
        output.write_json(as_json(message))
    else:
        output.write(f"message {message.id} to {message.instance_id}: {message.state}")


def stop(
    ids: parameters.Many = None,
    every: Annotated[bool, typer.Option("--all", help="All that run.")] = False,
    json: parameters.Json = False,
) -> None:
    """End agents and keep their work.

    Worktree, branch and uncommitted files stay.

    --json prints an array: per id the instance with "ok": true, or {"id", "ok": false, "error"}.

    \b
    Example:
      swarm stop work-12-a1 work-13-a1
    """
    if bool(ids) == every:
        raise typer.BadParameter("give ids or --all", param_hint="ID")
    _do("stopping", ids or [], lambda swarm, name: swarm.stop(name), json=json, every=every)


def restart(
    ids: parameters.Many = None, no_prompt: parameters.NoPrompt = False, json: parameters.Json = False
) -> None:
    """Start agents again in their worktrees, in the same conversation.

    An agent without a conversation to resume starts from its task.

    --json prints an array, as `swarm stop` does.

    \b
    Example:
      swarm restart work-12-a1
    """
    if not ids:
        raise typer.BadParameter("give at least one id", param_hint="ID")
    _do("restarting", ids, lambda swarm, name: swarm.restart(name, prompt=not no_prompt), json=json)


def _do(
    doing: str, ids: list[str], act: "Callable[[Swarm, str], Instance]", *, json: bool, every: bool = False
) -> None:
    from swarm_core.models import Wanted
    from swarm_ui import views
    from swarm_ui.cli.session import each, opened, tell

    with opened() as swarm:
        chosen = [i.id for i in swarm.instances() if i.wanted == Wanted.RUNNING] if every else ids

        def one(name: str) -> "Instance":
            swarm.context.report(f"{doing} {name}")
            return act(swarm, name)

        outcomes = each(chosen, one)
    if not chosen and not json:
        output.write("no agent is running")
        return
    tell(outcomes, json=json, body=views.instance_json, line=_ended_line)


def _ended_line(instance: "Instance") -> str:
    return output.plain(f"{instance.id} {instance.status}{f': {instance.reason}' if instance.reason else ''}")


def restore(
    instance: parameters.One,
    ref: Annotated[
        str | None, typer.Option(metavar="REF", help="Which preserved work (default: the newest).")
    ] = None,
    json: parameters.Json = False,
) -> None:
    """Bring back a cleaned worktree with its uncommitted files.

    `swarm show` lists what was preserved. What is stored but not put back is named, with where it is.
    --json prints the instance, as `swarm work` does.

    \b
    Example:
      swarm restore work-12-a1
    """
    from swarm_ui import views
    from swarm_ui.cli.session import opened

    with opened() as swarm:
        swarm.context.report(f"restoring {instance}")
        back = swarm.restore(instance, ref=ref)
        told = [e.metadata for e in swarm.detail(back.id).events if e.name == "instance:restored"]
    if json:
        output.write_json(views.instance_json(back))
    else:
        output.write(f"{back.id} is back in {output.plain(back.worktree_path)}")
        for what in told[-1].get("left", []) if told else []:
            output.write(output.plain(f"stored, not put back: {what}"))
        output.note(f"`swarm restart {back.id}` goes on with the work")


def clean(
    ids: parameters.Many = None,
    merged: Annotated[bool, typer.Option("--merged", help="Those whose pull request was merged.")] = False,
    remote: Annotated[bool, typer.Option("--remote", help="Delete the merged branch at GitHub too.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: parameters.Json = False,
) -> None:
    """Remove worktrees of ended instances.

    All of them if no id is given, but those stopped with an open pull request, which are named. Files that
    are not committed are preserved under a ref, those that git ignores go: --dry-run names them. Branches
    with commits of their own stay unless exactly these were merged.
    --json prints an array: id, ok, status, repo_path, branch, own_commits, bytes, cleaned, left (why); kept
    (path and reason); dirty_files, dirty (path, bytes), dirty_bytes; ignored_paths, ignored (path, bytes),
    ignored_bytes; if cleaned branch_deleted, preserved, merged_ref; or {"id", "ok": false, "error"}.

    With --merged idle agents are ended first and busy ones are left. --json has also pull, url,
    merge_commit, branch_goes, left (why it was left) and with --remote
    remote_deleted and remote_problem.

    \b
    Example:
      swarm clean --merged --dry-run
    """
    if not (dry_run or yes) and (json or sys.stdin is None or not sys.stdin.isatty()):
        raise typer.BadParameter("without a terminal, --yes is needed", param_hint="--yes")
    if remote and not merged:
        raise typer.BadParameter("only merged branches are deleted: give --merged too", param_hint="--remote")
    if merged:
        from swarm_ui.cli import clean_merged

        clean_merged.run(ids or [], dry_run=dry_run, yes=yes, remote=remote, json=json)
        return
    from swarm_ui.cli.session import each, opened, tell

    with opened() as swarm:
        left = {} if ids else {i.id: "its pull request is open" for i in swarm.stopped_with_open_pull()}
        chosen = ids or [*(i.id for i in swarm.cleanable()), *left]
        planned = each(chosen, lambda name: _plan(swarm, name) | {"left": left.get(name, "")})
    if not chosen and not json:
        output.write("nothing to clean")
        return
    if dry_run:
        tell(planned, json=json, body=dict, line=_plan_line)
        return
    if not yes:
        _ask(planned)
    plans = {o.id: o for o in planned}
    with opened() as swarm:
        done = each(chosen, lambda name: _clean(swarm, name, plans[name]))
    tell(done, json=json, body=dict, line=_done_line)


def _plan(swarm: "Swarm", name: str) -> dict[str, Any]:
    swarm.context.report(f"looking at {name}")
    instance = swarm.find(name)
    body = {"id": instance.id, "status": instance.status, "branch": instance.branch, "cleaned": False}
    body["repo_path"] = instance.repo_path
    return body | dict(swarm.leftovers(instance))


def _clean(swarm: "Swarm", name: str, plan: "Outcome") -> dict[str, Any]:
    if plan.error is not None:
        raise plan.error
    if plan.value["left"]:
        body: dict[str, Any] = plan.value
        return body
    swarm.context.report(f"cleaning {name}")
    swarm.clean(name)
    told = [e.metadata for e in swarm.detail(plan.value["id"]).events if e.name == "instance:cleaned"]
    known = told[-1] if told else {}
    body = plan.value | {"cleaned": True, "status": swarm.find(plan.value["id"]).status}
    return body | {k: known.get(k) for k in ("branch_deleted", "preserved", "merged_ref")}


def _plan_line(plan: dict[str, Any]) -> str:
    from swarm_ui import views

    if plan["left"]:
        return _left_line(plan)
    if plan["kept"]:
        return kept_line(plan)
    dirty, commits = plan["dirty_files"], plan["own_commits"]
    size = views.size_label(plan["dirty_bytes"])
    kept = [f"{_counted(dirty, 'uncommitted file')} to preserve ({size})"] if dirty else []
    kept += [f"{_counted(commits, 'commit')} on {plan['branch']} to keep"] if commits else []
    freed = f"frees {views.size_label(plan['bytes'])}"
    lines = [f"{plan['id']} ({plan['status']}): {', '.join([*kept, freed])}"]
    return "\n".join(map(output.plain, lines + goes_lines(plan)))


def _left_line(plan: dict[str, Any]) -> str:
    more = f", {_counted(plan['dirty_files'], 'uncommitted file')} in its worktree" if plan["dirty_files"] else ""
    return output.plain(
        f"{plan['id']} ({plan['status']}) is left: {plan['left']}{more}; `swarm clean {plan['id']}` takes it"
    )


def kept_line(plan: dict[str, Any]) -> str:
    from swarm_core.models import KEPT, remedy

    path, reason = plan["kept"]["path"], plan["kept"]["reason"]
    todo = remedy(reason, path, plan["kept"].get("files", ()), repo=plan["repo_path"])
    return output.plain(f"{plan['id']} ({plan['status']}): {path} would be kept: {KEPT[reason]}; {todo} first")


def goes_lines(plan: dict[str, Any]) -> list[str]:
    """What is preserved and what goes because git ignores it, by name and size."""
    lines = []
    if plan["dirty_files"]:
        lines.append(f"  preserved: {_first(_sized(plan['dirty']), plan['dirty_files'])}")
    if plan["ignored_paths"]:
        lines.append(f"  gone, since git ignores it: {_first(_sized(plan['ignored']), plan['ignored_paths'])}")
    return lines


def _sized(paths: list[dict[str, Any]]) -> list[str]:
    from swarm_ui import views

    return [f"{one['path']} ({views.size_label(one['bytes'])})" for one in paths]


def _first(names: list[str], count: int) -> str:
    more = count - len(names[:_NAMED])
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _done_line(done: dict[str, Any]) -> str:
    from swarm_ui import views

    if done["left"]:
        return _left_line(done)
    said = [f"{done['id']} cleaned, {views.size_label(done['bytes'])} freed"]
    if done["preserved"]:
        said.append(f"what no branch has is in {done['preserved']}")
    if not done["branch_deleted"]:
        said.append(f"branch {done['branch']} stays")
    elif done["merged_ref"]:
        said.append(f"its commits are in {done['merged_ref']}")
    return output.plain("; ".join(said))


def _ask(planned: "list[Outcome]") -> None:
    for outcome in planned:
        if outcome.error is None:
            output.write(_plan_line(outcome.value))
    output.flush()
    try:
        answer = input("remove these worktrees? [y/N] ")
    except EOFError:
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        output.write("nothing was removed")
        raise typer.Exit(1)

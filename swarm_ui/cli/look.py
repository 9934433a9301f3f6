"""Commands that show: ls, show, attach, logs, events. Without a coordinator they look in its place and mend."""

import os
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from swarm_core.errors import Conflict, SwarmError
from swarm_ui.cli import output, parameters

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from swarm_core.models import Event, Instance, Overlap
    from swarm_core.ops.inbox import Need
    from swarm_core.swarm import Detail, Swarm

POLL = 0.2
_LOOK_EVERY = 1.0
_COUNTED_AT_MOST = 16
_COUNTED_NOW = 8
_AT_ONCE = 500
_STYLES = {"running": "green", "failed": "red", "starting": "yellow", "terminated": "dim"}


def ls(
    every: Annotated[bool, typer.Option("--all", help="Cleaned instances too.")] = False,
    repo: Annotated[str | None, typer.Option(metavar="PATH", help="Only those of one repository.")] = None,
    json: parameters.Json = False,
) -> None:
    """List instances and why one needs you.

    Activity is shown with its evidence (hook, file, process or pane) and age. One that changes the same places as
    another is marked; `swarm show` tells where.

    --json prints an array of instances (as `swarm show`, without prompt, last_screen and arrays but overlaps).

    \b
    Example:
      swarm ls --repo . --json
    """
    from swarm_core.ops import inbox, pull_status
    from swarm_ui import views
    from swarm_ui.cli.session import opened

    with opened() as swarm:
        alone = swarm.coordinator() is None
        failure = _look(swarm) if alone else None
        listed = swarm.instances(include_cleaned=every, repo=repo)
        if alone and 0 < len([i for i in listed if not i.ended]) <= _COUNTED_AT_MOST:
            failure = _count(swarm) or failure
            listed = swarm.instances(include_cleaned=every, repo=repo)
        meets = views.overlaps_by_instance(swarm.overlaps())
        needs = inbox.board(swarm.context.db, policy=pull_status.policy(swarm.context.settings)).needs
        now = swarm.context.db.now()
    if json:
        found = ((i, views.overlaps_json(i, meets.get(i.id, []))) for i in listed)
        shown = [(views.instance_json(i, needs=needs.get(i.id)), overlaps) for i, overlaps in found]
        output.write_json([told | {"overlaps": overlaps} for told, overlaps in shown])
    elif listed:
        _table(listed, meets, needs, now)
    else:
        output.write('no instances; `swarm work "..."` starts one')
    if failure is not None:
        output.note(f"not up to date: {failure.message} [{failure.code}]")
    if alone and sys.stderr.isatty():
        output.note("the coordinator is not running; `swarm up --detach` starts it")


def _look(swarm: "Swarm") -> SwarmError | None:
    """Look in place of the coordinator; what is recorded can be shown even when looking fails."""
    swarm.context.report("looking at the agents")
    try:
        swarm.reconcile()
    except SwarmError as error:
        return error
    return None


def _count(swarm: "Swarm") -> SwarmError | None:
    swarm.context.report("counting changed lines")
    try:
        swarm.refresh_changes(_COUNTED_NOW)
    except SwarmError as error:
        return error
    return None


def _table(
    listed: "list[Instance]", meets: "dict[str, list[Overlap]]", needs: "Mapping[str, Sequence[Need]]", now: str
) -> None:
    from swarm_core.models import parse_iso
    from swarm_ui import views

    rows, styles = [], []
    for instance in listed:
        row = views.row(instance, parse_iso(now), needs.get(instance.id))
        shown = f"{row.id} ({row.name})" if row.name else row.id
        status = "cleaned" if instance.cleaned else row.status
        note = views.overlap_note(instance, meets.get(instance.id, []))
        why = "; ".join(part for part in (row.needs_you, note) if part)
        rows.append((shown, row.kind, status, row.activity, row.branch, row.changes, why))
        blocked = "yellow" if row.activity.startswith("blocked") else ""
        styles.append(("bold", "", _STYLES.get(status, ""), blocked, "", "", "red" if row.needs_you else "yellow"))
    output.columns(("ID", "KIND", "STATUS", "ACTIVITY", "BRANCH", "LINES", "NEEDS YOU"), rows, styles)


def show(
    instance: parameters.One,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say what each source says of its activity now, and which counts.")
    ] = False,
    json: parameters.Json = False,
) -> None:
    """Show one instance with everything that hangs on it.

    Costs are estimates from list prices.

    --json prints an object: every field of the instance and needs_you, and the arrays relationships,
    overlaps (instance_id, level, files with lines of the common base, conflicts of commits), messages, preserved
    and events (the last 20), account, as `swarm budget` prints it, and pull, as `swarm pr show` prints it; with
    --explain also evidence.

    \b
    Example:
      swarm show work-12-a1
    """
    from swarm_ui.cli.session import opened

    with opened() as swarm:
        if swarm.coordinator() is None:
            _look(swarm)
        detail = swarm.detail(instance)
        evidence = swarm.explain(instance) if explain and not detail.instance.cleaned else []
        now = swarm.context.db.now()
    if json:
        output.write_json(_detail_json(detail, now) | ({"evidence": evidence} if explain else {}))
        return
    _print_detail(detail, now)
    if explain:
        from swarm_core.models import parse_iso
        from swarm_ui import views

        _section("evidence, best first", views.evidence_lines(detail.instance, evidence, parse_iso(now)))


def _detail_json(detail: "Detail", now: str) -> dict[str, Any]:
    from swarm_core.models import as_json
    from swarm_ui import pull_views, views

    return views.instance_json(detail.instance, full=True) | {
        "relationships": [as_json(r) for r in detail.relationships],
        "overlaps": views.overlaps_json(detail.instance, detail.overlaps),
        "messages": [as_json(m) for m in detail.messages],
        "preserved": [as_json(p) for p in detail.preserved],
        "events": [as_json(e) for e in detail.events],
        "account": views.account_json(detail.account),
        "pull": pull_views.pull_json(detail.pull, now) if detail.pull else None,
    }


def _print_detail(detail: "Detail", now: str) -> None:
    from swarm_core.models import parse_iso
    from swarm_ui import pull_views, views

    one, moment = detail.instance, parse_iso(now)
    row = views.row(one, moment)
    task = one.prompt.strip()
    output.fields(
        (
            ("id", f"{row.id} ({row.name})" if row.name else row.id),
            ("needs you", row.needs_you),
            ("status", _joined("cleaned" if one.cleaned else row.status, one.reason)),
            ("activity", _joined(row.activity, one.activity_detail)),
            ("agent", f"{one.agent}, conversation {one.conversation_id}, start {one.epoch}"),
            ("issue", f"#{one.issue_number} {one.issue_title or ''}".strip() if one.issue_number else ""),
            ("parent", one.parent_id or ""),
            ("pull request", one.pr_url or ""),
            ("ready", pull_views.ready_label(detail.pull) if detail.pull else ""),
            ("repository", one.repo_path),
            ("worktree", one.worktree_path),
            ("branch", f"{one.branch} from {one.base_branch} at {(one.base_commit or 'no commit')[:12]}"),
            ("head", (one.head_commit or "")[:12]),
            ("changes", f"{row.changes} in {one.files_changed} files" if row.changes else ""),
            ("cost", views.cost_label(detail.account)),
            ("budget", views.budget_label(detail.account)),
            ("created", f"{one.created_at} ({views.age(one.created_at, moment)} ago)"),
            ("task", output.cut(task, 200)),
        )
    )
    _section("relationships", (f"{r.parent_id} {r.type} {r.child_id}" for r in detail.relationships))
    _section("overlaps", views.overlap_lines(one, detail.overlaps))
    _section("asks", views.dialog_lines(one))
    _section("messages", (views.message_label(m, moment, output.cut(m.body, 100)) for m in detail.messages))
    _section(
        "preserved", (f"{p.id} {p.ref}: {p.files} files, {views.size_label(p.bytes)}" for p in detail.preserved)
    )
    _section("events", (f"{views.age(e.at, moment):>4} ago  {views.event_label(e)}" for e in detail.events))


def _joined(first: str, second: str) -> str:
    return f"{first}: {second}" if second else first


def _section(title: str, lines: Any) -> None:
    shown = [output.plain(line) for line in lines]
    if shown:
        output.heading(title)
        for line in shown:
            output.write(f"  {line}")


def attach(
    instance: parameters.One,
    read_only: Annotated[bool, typer.Option("--read-only", "-r", help="Watch without typing.")] = False,
    json: parameters.Json = False,
) -> None:
    """Go into an instance's session; leave it with Ctrl-b d.

    --json prints {"argv": [...]}, the program to run, instead of running it.

    \b
    Example:
      swarm attach work-12-a1 --read-only
    """
    from swarm_ui.cli.session import opened

    with opened() as swarm:
        argv = swarm.attach_argv(swarm.find(instance), read_only=read_only)
    if json:
        output.write_json({"argv": argv})
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Conflict("there is no terminal to attach to", hint=f"`swarm logs {instance} -f` follows it as text")
    environ = {k: v for k, v in os.environ.items() if k not in ("TMUX", "TMUX_PANE")}
    os.execvpe(argv[0], argv, environ)  # noqa: S606


def logs(
    instance: parameters.One,
    lines: Annotated[int, typer.Option("--lines", "-n", metavar="LINES", help="How many of the last lines.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the agent ends.")] = False,
    json: parameters.Json = False,
) -> None:
    """Print what a session shows, or its last screen.

    --json prints {"id", "activity", "lines": [...]}; with -f one such object per line, with new lines only.

    \b
    Example:
      swarm logs work-12-a1 -f
    """
    if lines < 1:
        raise typer.BadParameter("at least 1", param_hint="--lines")
    from swarm_ui import views
    from swarm_ui.cli.session import opened

    with opened(quiet=True) as swarm:
        found = swarm.find(instance)
        window = max(lines, _AT_ONCE) if follow else lines
        shown = _screen(swarm, found, window)
        _print_lines(found, shown[-lines:], json=json, indent=None if follow else 2)
        looked = time.monotonic()
        pending: list[str] = []
        while follow and not _gone(found):
            output.flush()
            time.sleep(POLL)
            if time.monotonic() - looked >= _LOOK_EVERY and swarm.coordinator() is None:
                swarm.reconcile()
                looked = time.monotonic()
            found = swarm.find(found.id)
            screen = _screen(swarm, found, window)
            settled = screen if screen == pending or _gone(found) else screen[:-1]
            fresh = views.new_lines(shown, settled)
            if fresh:
                _print_lines(found, fresh, json=json, indent=None)
            shown, pending = (settled if fresh else shown), screen


def _gone(instance: "Instance") -> bool:
    return instance.ended or instance.activity == "exited"


def _screen(swarm: "Swarm", instance: "Instance", lines: int) -> list[str]:
    text = swarm.screen(instance, lines=lines).rstrip()
    return text.split("\n")[-lines:] if text else []


def _print_lines(instance: "Instance", lines: list[str], *, json: bool, indent: int | None) -> None:
    if json:
        body = {"id": instance.id, "activity": instance.activity, "lines": lines}
        output.write_json(body, indent=indent)
    elif lines:
        output.write("\n".join(output.plain(line) for line in lines))


def events(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what happens.")] = False,
    number: Annotated[int, typer.Option("--number", "-n", metavar="N", help="How many.")] = 50,
    instance: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Only of one instance.", autocompletion=parameters.complete_instance),
    ] = None,
    after: Annotated[int | None, typer.Option(metavar="CURSOR", help="Only those after this event id.")] = None,
    json: parameters.Json = False,
) -> None:
    """Print what happened, oldest first.

    --json prints an array of events (id, at, instance_id, actor, tool_name, name, success, error_code,
    error_message, duration_ms, status_from, status_to, metadata); with -f one object per line.

    \b
    Example:
      swarm events -f --instance work-12-a1
    """
    if number < 1 or (after is not None and after < 0):
        raise typer.BadParameter("at least 1 event, after cursor 0 or later", param_hint="--number / --after")
    from swarm_core.models import as_json
    from swarm_ui.cli.session import opened

    with opened(quiet=True) as swarm:
        only = swarm.find(instance).id if instance is not None else None
        found = swarm.events(after=after, instance_id=only, limit=min(number, 1 << 31))
        if json and not follow:
            output.write_json([as_json(e) for e in found])
            return
        # An empty first page must not turn the next question into "the newest".
        cursor = after or 0
        while True:
            for event in found:
                _print_event(event, json=json)
                cursor = event.id
            if not follow:
                return
            output.flush()
            time.sleep(POLL)
            found = swarm.events(after=cursor, instance_id=only, limit=_AT_ONCE)


def _print_event(event: "Event", *, json: bool) -> None:
    from swarm_core.models import as_json
    from swarm_ui import views

    if json:
        output.write_json(as_json(event), indent=None)
        return
    label = output.plain(views.event_label(event))
    shown = label if event.success else output.style(label, "red")
    output.write(f"{output.style(event.at, 'dim')} {event.id:>6} {event.instance_id or '-':<14} {shown}")

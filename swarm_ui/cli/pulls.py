"""Commands for pull requests: opening, watching, merging one or many, closing."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from swarm_ui.cli import light, output, parameters

if TYPE_CHECKING:
    from swarm_core.desk import PullDesk
    from swarm_core.ops.pull_status import Facts
    from swarm_core.swarm import Swarm
    from swarm_ui.cli.session import Outcome

app = typer.Typer(
    cls=light.Group,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    help="Open, follow, merge and close pull requests.",
    no_args_is_help=True,
)
_STYLES = {
    **dict.fromkeys(("blocked", "conflict", "checks failed", "changes requested", "review outdated"), "red"),
    **dict.fromkeys(("checks pending", "under review", "draft", "review comments"), "yellow"),
    **dict.fromkeys(("approved", "checks passed", "merged"), "green"),
}
_POLL, _POLL_REMOTE = 1.0, 15.0

Squash = Annotated[bool, typer.Option("--squash", help="One commit for all of it.")]
Rebase = Annotated[bool, typer.Option("--rebase", help="Its commits one by one on top of the base.")]
MergeCommit = Annotated[bool, typer.Option("--merge", help="A merge commit.")]


@app.command(name="open", cls=light.Command)
def open_(
    instance: parameters.One,
    title: Annotated[
        str, typer.Option("--title", help="One line; by default the issue's title or the task.")
    ] = "",
    body: Annotated[str | None, typer.Option("--body", help="What was done and why; - reads stdin.")] = None,
    body_file: Annotated[str | None, typer.Option("--body-file", help="The same, from a file.")] = None,
    base: Annotated[str | None, typer.Option("--base", help="Branch to merge into.")] = None,
    draft: Annotated[bool, typer.Option("--draft", help="Not to be merged yet.")] = False,
    label: Annotated[list[str] | None, typer.Option("--label", help="A label; may be repeated.")] = None,
    reviewer: Annotated[
        list[str] | None, typer.Option("--reviewer", help="A login, or ORG/TEAM; may be repeated.")
    ] = None,
    json: parameters.Json = False,
) -> None:
    """Push an instance's branch and open its pull request, or bring the one that is open to its newest commit.

    On GitHub when the remote is there and a token is at hand (GITHUB_TOKEN, gh auth login, github_token_file),
    else as a file on this machine. Twice is safe.

    --json prints the pull request.

    \b
    Example:
      swarm pr open work-12-a1 --label bug --reviewer kim
    """
    from swarm_ui.cli.session import opened

    text = parameters.long_text(body, body_file)
    with opened() as swarm:
        swarm.open_pull(
            instance,
            title=title or swarm.pulls.title_of(instance),
            description=text,
            base_branch=base,
            draft=draft,
            labels=label or [],
            reviewers=reviewer or [],
        )
        found, now = swarm.pulls.of(instance), swarm.context.db.now()
    _tell(found, now, json=json)


@app.command(cls=light.Command)
def ls(
    all_: Annotated[bool, typer.Option("--all", help="Also those that were merged or closed.")] = False,
    look: Annotated[bool, typer.Option("--look", help="Ask the forge first.")] = False,
    json: parameters.Json = False,
) -> None:
    """List pull requests: where they are, what their checks and reviewers say, and how old that is.

    --json prints an array of objects as `swarm pr show` does.

    \b
    Example:
      swarm pr ls
    """
    from swarm_core.ops.pull_status import readiness
    from swarm_ui import pull_views
    from swarm_ui.cli.session import opened

    with opened() as swarm:
        if look:
            swarm.pulls.look(swarm.pulls.listed())
        found, now = swarm.pulls.listed(include_over=all_), swarm.context.db.now()
    if json:
        output.write_json([pull_views.pull_json(one, now) for one in found])
    elif found:
        rows = [pull_views.row(one, now) for one in found]
        styles = [("bold", "", _STYLES.get(str(readiness(one).state), ""), "", "", "dim", "") for one in found]
        output.columns(("INSTANCE", "PULL", "STATUS", "CHECKS", "REVIEWS", "SEEN", "TITLE"), rows, styles)
    else:
        output.write(f"no {'' if all_ else 'open '}pull requests; `swarm pr open INSTANCE` opens one")


@app.command(cls=light.Command)
def show(
    instance: parameters.One,
    look: Annotated[bool, typer.Option("--look", help="Ask the forge first.")] = False,
    json: parameters.Json = False,
) -> None:
    """Show an instance's pull request: whether it can be merged and why, checks with output, verdicts, comments.

    --json prints the pull request with status, ready, reasons (code, blocks, text), checks, verdicts, reviews,
    comments and age_s.

    \b
    Example:
      swarm pr show work-12-a1 --look
    """
    from swarm_ui.cli.session import opened

    with opened() as swarm:
        if look:
            swarm.pulls.look([swarm.pulls.of(instance)])
        found, now = swarm.pulls.of(instance), swarm.context.db.now()
    _show(found, now, json=json)


@app.command(cls=light.Command)
def merge(
    instance: parameters.One,
    squash: Squash = False,
    rebase: Rebase = False,
    merge_commit: MergeCommit = False,
    auto: Annotated[bool, typer.Option("--auto", help="As soon as nothing hinders it, at this commit.")] = False,
    no_auto: Annotated[bool, typer.Option("--no-auto", help="Take an earlier --auto back.")] = False,
    anyway: Annotated[
        str | None,
        typer.Option("--anyway", metavar="REASON", help="Merge against verdicts and checks; the reason is kept."),
    ] = None,
    json: parameters.Json = False,
) -> None:
    """Merge an instance's pull request, if its checks and reviewers allow it, at exactly the commit they saw.

    A local pull request is merged in a scratch worktree, checked there with .swarm/check or the setting
    check_command, and only then is the base branch moved. With --anyway, verdicts and checks do not stop it;
    conflicts, drafts and replaced objects still do. The reason goes into an event and the merge message.

    --json prints the pull request.

    \b
    Example:
      swarm pr merge work-12-a1 --squash --auto
    """
    from swarm_ui.cli.session import decider, opened

    method = _method(squash=squash, rebase=rebase, merge=merge_commit)
    if anyway is not None and (auto or no_auto):
        raise typer.BadParameter("it is for a merge that happens now", param_hint="--anyway")
    if no_auto and (auto or method):
        raise typer.BadParameter(
            "it takes back what was asked for and goes with nothing else", param_hint="--no-auto"
        )
    with opened() as swarm:
        if no_auto:
            swarm.pulls.no_auto(instance)
        else:
            who = {} if anyway is None else {"actor": decider(os.environ)}
            swarm.pulls.merge(instance, method=method, auto=auto, anyway=anyway, **who)
        found, now = swarm.pulls.of(instance), swarm.context.db.now()
        alone = swarm.coordinator() is None
    _tell(found, now, json=json)
    if found.pull.auto_merge and alone:
        output.note("nobody follows it now; `swarm up` starts the coordinator, which does")


@app.command(cls=light.Command)
def check(instance: parameters.One, json: parameters.Json = False) -> None:
    """Run the check command on an instance's local pull request, merged into its base, and keep the result.

    One that failed blocks the merge until the branch, the base or the command changes, or until this passes.
    Ends with 1 and CHECK_FAILED when the check fails.

    --json prints the pull request.

    \b
    Example:
      swarm pr check work-12-a1
    """
    from swarm_ui.cli.session import opened

    with opened() as swarm:
        swarm.pulls.check(instance)
        found, now = swarm.pulls.of(instance), swarm.context.db.now()
    _show(found, now, json=json)


@app.command(cls=light.Command)
def close(instance: parameters.One, json: parameters.Json = False) -> None:
    """Close an instance's pull request without merging it; the branch and its commits stay.

    --json prints the pull request.

    \b
    Example:
      swarm pr close work-12-a1
    """
    from swarm_ui.cli.session import opened

    with opened() as swarm:
        swarm.pulls.close(instance)
        found, now = swarm.pulls.of(instance), swarm.context.db.now()
    _tell(found, now, json=json)


@app.command(cls=light.Command)
def queue(
    instances: parameters.Many = None,
    squash: Squash = False,
    rebase: Rebase = False,
    merge_commit: MergeCommit = False,
    remove: Annotated[bool, typer.Option("--remove", help="Take them out of the queue.")] = False,
    run: Annotated[bool, typer.Option("--run", help="Merge what can be merged now, and wait for it.")] = False,
    json: parameters.Json = False,
) -> None:
    """Show the merge queue, or put instances' pull requests into it.

    What is ready is merged together in a scratch worktree and checked; a batch that fails is bisected. The
    coordinator works the queue off; --run does it here.

    --json prints {"waiting": [...], "over": [...], "merged": N, "refused": [...]}.

    \b
    Example:
      swarm pr queue work-12-a1 work-13-a1 --run
    """
    from swarm_ui import pull_views
    from swarm_ui.cli.session import opened

    method = _method(squash=squash, rebase=rebase, merge=merge_commit)
    if remove and not instances:
        raise typer.BadParameter("name the instances to take out", param_hint="--remove")
    with opened() as swarm:
        refused = _change_queue(swarm.pulls, instances or [], method, remove=remove)
        merged = swarm.pulls.run_queue() if run else 0
        waiting, over = swarm.pulls.queue(), swarm.pulls.queue_over()
        busy, alone = swarm.pulls.queue_is_busy(), swarm.coordinator() is None
    if json:
        body = {"waiting": [pull_views.outlook_json(one) for one in waiting], "merged": merged}
        body |= {"over": [pull_views.queued_json(one) for one in over]}
        output.write_json(body | {"refused": [one.as_json(dict) for one in refused]})
    elif waiting or over:
        rows = pull_views.queue_rows(waiting, over)
        styles = [("bold", "", "", "", "yellow")] * len(rows)
        output.columns(("INSTANCE", "PULL", "STATE", "HOW", "REMARK"), rows, styles)
    elif not refused:
        output.write("the merge queue is empty; `swarm pr queue INSTANCE` puts a pull request into it")
    if waiting and busy:
        output.note("it is being worked off now; `swarm pr queue` shows how it goes")
    elif waiting and alone and not run:
        output.note("nobody works the queue off now; `swarm up`, or `swarm pr queue --run`")
    for one in refused:
        if one.error is not None and not json:
            output.show_error(one.error.code, one.error.message, one.error.hint, about=one.id)
    if refused:
        raise typer.Exit(1)


@app.command(cls=light.Command)
def wait(
    instance: parameters.One,
    until: Annotated[
        str, typer.Option("--until", help="checks (finished), ready (nothing hinders a merge), merged or over.")
    ] = "checks",
    timeout: Annotated[int, typer.Option("--timeout", help="Seconds; 0 waits for ever.")] = 3600,
    json: parameters.Json = False,
) -> None:
    """Wait until an instance's pull request has come so far; for scripts.

    One that is not opened yet is waited for. Ends with 0 when it has come so far, and with 1 and
    PULL_NOT_MERGEABLE when it cannot any more (checks failed, a conflict, closed) or the time is up, or
    PULL_NOT_FOUND when none was opened until then. Without a coordinator it asks the forge itself.

    --json prints the pull request.

    \b
    Example:
      swarm pr wait work-12-a1 --until ready && swarm pr merge work-12-a1
    """
    from swarm_ui.cli.session import opened

    if until not in _GOALS:
        raise typer.BadParameter(f"one of {', '.join(_GOALS)}", param_hint="--until")
    if timeout < 0:
        raise typer.BadParameter("0 or more seconds", param_hint="--timeout")
    with opened() as swarm:
        found = _await(swarm, instance, until, timeout)
        now = swarm.context.db.now()
    _tell(found, now, json=json)


_NEVER = frozenset({"checks_failed", "conflict", "unrelated_histories"})  # only another commit helps against these
_GOALS = ("checks", "ready", "merged", "over")


def _change_queue(desk: PullDesk, names: list[str], method: str | None, *, remove: bool) -> list[Outcome]:
    """One after the other, as they are named; what is refused does not stop the rest."""
    from swarm_core.errors import SwarmError
    from swarm_ui.cli.session import Outcome

    refused = []
    for name in dict.fromkeys(names):
        try:
            if remove:
                desk.dequeue(name)
            else:
                desk.enqueue(name, method=method)
        except SwarmError as error:
            refused.append(Outcome(name, error=error))
    return refused


def _await(swarm: Swarm, instance: str, until: str, timeout: int) -> Facts:
    import time

    from swarm_core.errors import Conflict, NotFound
    from swarm_core.ops.pull_status import readiness

    deadline = time.monotonic() + timeout if timeout else None
    while True:
        late = deadline is not None and time.monotonic() >= deadline
        try:
            found = _looked_at(swarm, instance)
        except NotFound as error:
            if late or error.code != "PULL_NOT_FOUND":
                raise
            time.sleep(_POLL)
            continue
        state = progress(found, until)
        if state == "there":
            return found
        if state == "never" or late:
            result = readiness(found)
            why = "; ".join(result.sentences) if state == "never" else "the time is up"
            raise Conflict(
                f"pull request #{found.pull.number} did not come to {until!r}: {why}",
                code="PULL_NOT_MERGEABLE",
                hint=f"`swarm pr show {found.pull.instance_id}` has more",
                details={
                    "hindrances": result.sentences,
                    "reasons": [reason.as_json() for reason in result.blockers],
                    "state": found.pull.state,
                },
            )
        pause = _POLL_REMOTE if found.pull.repository else _POLL
        left = deadline - time.monotonic() if deadline is not None else pause
        time.sleep(max(0.0, min(pause, left)))


def _looked_at(swarm: Swarm, instance: str) -> Facts:
    """As the coordinator last saw it; without one, as the forge has it now. No answer is no news."""
    from swarm_core.errors import ExternalFailure

    found = swarm.pulls.of(instance)
    if found.pull.state != "open" or swarm.coordinator() is not None:
        return found
    try:
        swarm.pulls.look([found])
    except ExternalFailure as error:
        if error.code == "GITHUB_UNAUTHORIZED":
            raise
        output.note(f"still waiting: {error.message} [{error.code}]")
    return swarm.pulls.of(instance)


def progress(found: Facts, until: str) -> str:
    """ "there", "never" or "not yet"."""
    from swarm_core.ops.pull_status import readiness

    pull, checks = found.pull, found.checks_state
    over, merged = pull.state != "open", pull.state == "merged"
    if until == "over":
        return "there" if over else "not yet"
    if until == "merged" or over:
        return "there" if merged else "never" if over else "not yet"
    if until == "checks":
        none_to_come = not checks and not found.checks_awaited and pull.looked_at is not None
        return "never" if checks == "failed" else "there" if checks == "passed" or none_to_come else "not yet"
    result = readiness(found)
    if any(reason.code in _NEVER for reason in result.blockers):
        return "never"
    return "there" if result.ready and result.settled else "not yet"


def _method(*, squash: bool, rebase: bool, merge: bool) -> str | None:
    if squash + rebase + merge > 1:
        raise typer.BadParameter("give one of --squash, --rebase and --merge", param_hint="--squash")
    return "squash" if squash else "rebase" if rebase else "merge" if merge else None


def _tell(found: Facts, now: str, *, json: bool) -> None:
    from swarm_core.ops.pull_status import readiness
    from swarm_ui import pull_views

    pull = found.pull
    if json:
        output.write_json(pull_views.pull_json(found, now))
        return
    output.write(
        output.plain(f"{pull.instance_id}: pull request #{pull.number} is {readiness(found).state}: {pull.url}")
    )
    output.note(pull_views.next_step(found))


def _show(found: Facts, now: str, *, json: bool) -> None:
    from swarm_ui import pull_views

    if json:
        output.write_json(pull_views.pull_json(found, now))
        return
    output.fields(pull_views.fields(found, now))
    for title, lines in pull_views.sections(found):
        output.heading(title)
        for line in lines:
            output.write(f"  {output.plain(line)}")

"""Commands for what only a person decides: answers, reviews by hand, and what becomes of work that is stuck."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from swarm_ui.cli import output, parameters

if TYPE_CHECKING:
    from swarm_core.models import Instance


def answer(
    instance: parameters.One,
    choice: Annotated[int | None, typer.Option("--choice", "-c", min=1, help="Number of the choice.")] = None,
    text: Annotated[str | None, typer.Option("--text", "-t", help="What to say to an open question.")] = None,
    digest: Annotated[
        str | None, typer.Option("--digest", help="Answer only this question, as `swarm show` names it.")
    ] = None,
    json: parameters.Json = False,
) -> None:
    """Answer what a blocked agent asks.

    Nothing is pressed unless the agent still shows the question that was recorded, or the one of --digest.

    --json prints the question that was answered: text, choices, kind, digest.

    \b
    Example:
      swarm answer work-12-a1 --choice 1
    """
    if (choice is None) == (text is None):
        raise typer.BadParameter("give --choice or --text", param_hint="--choice")
    from swarm_ui.cli.session import opened

    with opened() as swarm:
        asked = swarm.answer(instance, choice=choice, text=text, digest=digest)
    if json:
        output.write_json(dict(asked))
    else:
        said = asked["choices"][choice - 1] if choice is not None else text
        output.write(f"answered: {said}")


def review(
    instance: parameters.One,
    focus: Annotated[
        str, typer.Argument(metavar="[FOCUS]", help="What to look at besides; `-` reads stdin.")
    ] = "",
    agent: parameters.Agent = None,
    json: parameters.Json = False,
) -> None:
    """Start a review of what an instance has committed.

    --json prints the review's instance.

    \b
    Example:
      swarm review work-12-a1 "look at the error handling"
    """
    body = parameters.long_text(focus) if focus else ""
    from swarm_ui.cli.session import opened

    with opened() as swarm:
        made = swarm.request_review(instance, reviewer_prompt=body, agent=agent)
    _tell(made, json=json)


def accept(
    instance: parameters.One,
    message: Annotated[str, typer.Argument(metavar="[MESSAGE]", help="What to tell its agent besides.")] = "",
    json: parameters.Json = False,
) -> None:
    """Approve work as it is, whatever its reviews say.

    --json prints the instance.

    \b
    Example:
      swarm accept work-12-a1
    """
    from swarm_ui.cli.session import decider, opened

    with opened() as swarm:
        done = swarm.accept(instance, message=message, actor=decider(os.environ))
    _tell(done, json=json)


def rescope(
    instance: parameters.One,
    task: Annotated[
        str, typer.Argument(metavar="TASK", help="The new scope; `-` reads stdin.", show_default=False)
    ],
    json: parameters.Json = False,
) -> None:
    """Give work another scope; its review rounds count from here.

    --json prints the instance.

    \b
    Example:
      swarm rescope work-12-a1 "only the parser; leave the printer as it is"
    """
    body = parameters.long_text(task)
    from swarm_ui.cli.session import opened

    with opened() as swarm:
        done = swarm.rescope(instance, body)
    _tell(done, json=json)


def abandon(
    instance: parameters.One,
    why: Annotated[str, typer.Argument(metavar="[WHY]", help="Shown wherever the instance is.")] = "",
    json: parameters.Json = False,
) -> None:
    """Give work up: its agent is ended, its files and commits stay.

    --json prints the instance.

    \b
    Example:
      swarm abandon work-12-a1 "done in another way"
    """
    from swarm_ui.cli.session import opened

    with opened() as swarm:
        done = swarm.abandon(instance, why=why)
    _tell(done, json=json)


def merged(instance: parameters.One, json: parameters.Json = False) -> None:
    """Note that the pull request of an instance was merged.

    Merge it with git first: the base branch must have its commit. Twice is no change.

    --json prints the pull request.

    \b
    Example:
      git merge --no-ff work/work-12-a1
      swarm merged work-12-a1
    """
    from swarm_ui import pull_views
    from swarm_ui.cli.session import opened

    with opened() as swarm:
        pull = swarm.note_merged(instance)
        found, now = swarm.pulls.of(instance), swarm.context.db.now()
    if json:
        output.write_json(pull_views.pull_json(found, now))
    else:
        output.write(f"{pull.instance_id}: pull request #{pull.number} is merged into {pull.base_branch}")


def resume(no_prompt: parameters.NoPrompt = False, json: parameters.Json = False) -> None:
    """Start all agents again whose sessions were lost, as in a reboot, each in its conversation.

    Nothing is started twice: an agent that runs is left alone. Ended work is skipped and named: merged or
    closed pull requests, terminated instances and reviews whose round is over.

    --json prints an array, as `swarm stop` does; skipped instances have "skipped": the reason.

    \b
    Example:
      swarm resume
    """
    from swarm_ui.cli.session import Outcome, each, opened, tell

    with opened() as swarm:
        swarm.reconcile()
        lost, over = [i.id for i in swarm.lost()], swarm.lost_and_over()

        def one(name: str) -> tuple[Instance, str]:
            swarm.context.report(f"resuming {name}")
            return swarm.restart(name, prompt=not no_prompt), ""

        outcomes = each(lost, one) + [Outcome(i.id, value=(i, why)) for i, why in over]
    if not outcomes and not json:
        output.write("no agent has lost its session")
        return
    tell(outcomes, json=json, body=_resumed_json, line=_resumed_line)


def _resumed_json(value: tuple[Instance, str]) -> dict[str, Any]:
    from swarm_ui import views

    instance, skipped = value
    return views.instance_json(instance) | ({"skipped": skipped} if skipped else {})


def _resumed_line(value: tuple[Instance, str]) -> str:
    instance, skipped = value
    return f"{instance.id}: skipped, {skipped}" if skipped else f"{instance.id}: {instance.status}"


def _tell(instance: Instance, *, json: bool) -> None:
    from swarm_ui import views

    if json:
        output.write_json(views.instance_json(instance))
    else:
        output.write(f"{instance.id}: {instance.status}")

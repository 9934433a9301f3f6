"""Commands that start agents: work and fork."""

from typing import TYPE_CHECKING, Annotated

import typer

from swarm_ui.cli import output, parameters

if TYPE_CHECKING:
    from swarm_core.models import Instance


Agents = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Agent program (default: setting `agent`); several share the attempts.",
        autocompletion=parameters.complete_agent,
        show_default=False,
    ),
]


def work(
    prompt: Annotated[
        str | None, typer.Argument(metavar="PROMPT", help="The task; `-` reads stdin.", show_default=False)
    ] = None,
    issue: Annotated[int | None, typer.Option(metavar="N", help="Issue to work on.")] = None,
    repo: Annotated[str, typer.Option(metavar="PATH", help="Repository.")] = ".",
    base: Annotated[str | None, typer.Option(metavar="BRANCH", help="Where to start (default: HEAD).")] = None,
    agent: Agents = None,
    count: Annotated[int, typer.Option(metavar="N", help="Attempts at the same task, for comparison.")] = 1,
    name: parameters.Name = None,
    prompt_file: Annotated[str | None, typer.Option(metavar="FILE", help="Read the task; `-` is stdin.")] = None,
    adhoc: Annotated[bool, typer.Option("--adhoc", help="No task: you tell the agent at its terminal.")] = False,
    json: parameters.Json = False,
) -> None:
    """Start an agent on a task, in a new worktree on a new branch.

    Several attempts are dealt to the agents in turn; `swarm compare` shows them side by side. A name belongs to
    one instance until that is cleaned; of several attempts the first is called `NAME 1`.

    --json prints the instance (as `swarm show`, without prompt, last_screen and arrays); an array if
    there are several.

    \b
    Example:
      swarm work "fix the login test" --repo ~/shop --base main
      git diff | swarm work - --agent claude --agent codex --count 4
    """
    text = parameters.long_text(prompt, prompt_file)
    if adhoc == bool(text.strip() or issue is not None):
        raise typer.BadParameter(
            "an --adhoc instance has no task" if adhoc else "give a PROMPT, --prompt-file, --issue or --adhoc",
            param_hint="PROMPT",
        )
    from swarm_ui import views
    from swarm_ui.cli.session import opened

    with opened() as swarm:
        swarm.context.report("looking at the repository")
        started = swarm.work(
            text, repo=repo, base=base, issue=issue, agent=agent, name=name, count=count, adhoc=adhoc
        )
    if json:
        bodies = [views.instance_json(i) for i in started]
        output.write_json(bodies if len(bodies) > 1 else bodies[0])
        return
    for instance in started:
        output.write(_line(instance))
    first = started[0].id
    if issue is not None and started[0].issue_title is None:
        output.note(f"issue #{issue} could not be verified: the agent gets its number and your prompt")
    several = f", `swarm compare {first}` compares them" if len(started) > 1 else ""
    output.note(f"`swarm attach {first}` shows it, `swarm ls` lists all{several}")


def fork(
    instance: parameters.One,
    prompt: Annotated[
        str | None,
        typer.Argument(metavar="PROMPT", help="Its task (default: the parent's).", show_default=False),
    ] = None,
    agent: parameters.Agent = None,
    name: parameters.Name = None,
    adhoc: Annotated[bool, typer.Option("--adhoc", help="No task: you tell the agent at its terminal.")] = False,
    json: parameters.Json = False,
) -> None:
    """Start a second attempt from an instance's last commit.

    --json prints the new instance, as `swarm work` does.

    \b
    Example:
      swarm fork work-12-a1 "try it without the cache"
    """
    text = parameters.long_text(prompt)
    from swarm_ui import views
    from swarm_ui.cli.session import opened

    with opened() as swarm:
        swarm.context.report(f"forking {instance}")
        made = swarm.fork(instance, text, agent=agent, name=name, adhoc=adhoc)
    if json:
        output.write_json(views.instance_json(made))
    else:
        output.write(_line(made))


def _line(instance: "Instance") -> str:
    return output.plain(f"{instance.id} {instance.status}: {instance.agent} in {instance.worktree_path}")

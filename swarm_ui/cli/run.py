"""Commands that start and end processes: up, down, status and the demo, each written in a module of its own."""

from typing import Annotated

import typer

from swarm_ui.cli import parameters


def up(
    detach: Annotated[bool, typer.Option("--detach", help="Return when both processes are healthy.")] = False,
    mcp_port: Annotated[int | None, typer.Option(metavar="N", help="Port of the coordinator.")] = None,
    ui_port: Annotated[int | None, typer.Option(metavar="N", help="Port of the dashboard.")] = None,
    json: parameters.Json = False,
) -> None:
    """Run the coordinator and the dashboard.

    Agents do not need them to go on working. Ports come from the flags, then MCP_SERVER_PORT and
    SWARM_UI_PORT, then the settings mcp_port and ui_port; 0 takes a free one.

    \b
    Example:
      swarm up --detach
    """
    from swarm_ui.cli import up as impl

    impl.up(detach=detach, mcp_port=mcp_port, ui_port=ui_port, json=json)


def down(json: parameters.Json = False) -> None:
    """End the coordinator and the dashboard; agents keep running.

    \b
    Example:
      swarm down
    """
    from swarm_ui.cli import up as impl

    impl.down(json=json)


def status(json: parameters.Json = False) -> None:
    """Say whether the coordinator and the dashboard run, and where.

    \b
    Example:
      swarm status --json
    """
    from swarm_ui.cli import up as impl

    impl.status(json=json)


def demo(
    agent: Annotated[
        str, typer.Option(metavar="NAME", help="scripted, or claude for the real program.")
    ] = "scripted",
    keep: Annotated[bool, typer.Option("--keep", help="Leave everything for looking around.")] = False,
    json: parameters.Json = False,
) -> None:
    """Watch agents work, review, rework and open pull requests, which are merged.

    In a throwaway home and repository. Scripted agents need no account and no configuration; with --agent claude
    the loop is played by Claude Code, which must be installed and signed in, within ten minutes. Claude Code
    itself keeps a log of that, and remembers the demo's folder as trusted.

    \b
    Example:
      swarm demo --keep
    """
    from swarm_ui.cli import demo as impl

    impl.demo(agent=agent, keep=keep, json=json)

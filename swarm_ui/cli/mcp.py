"""`swarm mcp`: how a client reaches the coordinator's tools, and the server on stdin and stdout."""

import os
import shlex
import sys
from typing import Annotated, Any

import typer

from swarm_ui.cli import output, parameters


def mcp(
    stdio: Annotated[bool, typer.Option("--stdio", help="Be an MCP server on stdin and stdout.")] = False,
    json: parameters.Json = False,
) -> None:
    """Say how an MCP client connects, or serve one over stdio.

    Whoever calls is known by the token in SWARM_TOKEN; --stdio takes it from the environment.

    --json prints {"url", "up", "token_file", "variable", "clients": {NAME: command}}.

    \b
    Example:
      swarm mcp
      SWARM_TOKEN="$(cat ~/.swarm/operator.token)" swarm mcp --stdio
    """
    if stdio:
        argv = [sys.executable, "-P", "-m", "swarm_mcp", "--stdio"]
        os.execv(argv[0], argv)  # noqa: S606
    told = _told()
    if json:
        output.write_json(told)
        return
    state = "is up" if told["up"] else "is not running; `swarm up --detach` starts it"
    output.fields((("url", told["url"]), ("coordinator", state), ("token", told["token_file"])))
    output.heading("Take a token into the environment")
    output.write(output.plain(f'export SWARM_TOKEN="$(cat {shlex.quote(told["token_file"])})"'))
    for name, text in told["clients"].items():
        output.heading(_TITLES[name])
        output.write(output.plain(text, lines=True))


def _told() -> dict[str, Any]:
    from swarm_core import config, overview, process

    settings = config.load(os.environ)
    state = overview.state(settings, process.COORDINATOR)
    listens = state is not None and state["port"] != 0
    url = f"{state['url'] if state and listens else settings.coordinator_url}/mcp"
    # In single quotes: the client stores the name of the variable and reads its value when it connects.
    header = f"'Authorization: Bearer ${{{_VARIABLE}}}'"
    return {
        "url": url,
        "up": bool(state and state["ok"]),
        "token_file": str(settings.operator_token),
        "variable": _VARIABLE,
        "clients": {
            "claude": f"claude mcp add --transport http swarm {url} --header {header}",
            "codex": f"codex mcp add swarm --url {url} --bearer-token-env-var {_VARIABLE}",
            "inspector": "npx @modelcontextprotocol/inspector --cli swarm mcp --stdio --method tools/list",
        },
    }


_VARIABLE = "SWARM_TOKEN"
_TITLES = {
    "claude": "Claude Code",
    "codex": "Codex",
    "inspector": "MCP inspector, over stdio, so that the token is in no command line",
}

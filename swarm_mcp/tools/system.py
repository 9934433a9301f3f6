"""How swarm itself is, for whoever runs it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from swarm_core import overview
from swarm_core.models import Instance
from swarm_mcp import contract
from swarm_mcp.call import Call
from swarm_mcp.registry import Arguments, Result, Tool, shaped

# What is said of each part; where things are on this machine is left out.
_PARTS: dict[str, type] = {
    "coordinator": overview.ProcessRow,
    "dashboard": overview.ProcessRow,
    "database": overview.DatabaseRow,
    "instances": overview.Counted,
    "pulls": overview.PullsRow,
    "github": overview.ForgeRow,
    "tmux": overview.TmuxRow,
}


class StatusArguments(Arguments):
    pass


class StatusResult(Result):
    version: str
    coordinator: Annotated[Any, shaped(overview.ProcessRow | None)] = Field(description="null: it does not run.")
    dashboard: Annotated[Any, shaped(overview.ProcessRow | None)] = Field(description="null: it does not run.")
    database: Annotated[Any, shaped(overview.DatabaseRow)]
    instances: Annotated[Any, shaped(overview.Counted)]
    pulls: Annotated[Any, shaped(overview.PullsRow)]
    github: Annotated[list[Any], shaped(list[overview.ForgeRow])]
    tmux: Annotated[Any, shaped(overview.TmuxRow)]


def _status(call: Call, args: StatusArguments, target: Instance | None) -> dict[str, Any]:
    settings = call.swarm.context.settings
    found = overview.look(settings)
    told = {name: _only(found[name], shape) for name, shape in _PARTS.items()}
    return {"version": contract.TOOL_VERSION, **contract.without_paths(told, settings.own_folders)}


def _only(found: Any, shape: type) -> Any:
    if isinstance(found, list):
        return [_only(one, shape) for one in found]
    return None if found is None else {name: found[name] for name in shape.__annotations__}


STATUS = Tool(
    name="get_status",
    title="Look at the system",
    description=(
        "What `swarm status` shows: whether coordinator, dashboard, database, tmux and GitHub are well, how many "
        "instances and pull requests there are, and what waits for a person. Read-only."
    ),
    arguments=StatusArguments,
    result=StatusResult,
    run=_status,
)

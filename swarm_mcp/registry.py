"""What a tool is, and the table of them all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, TypeGuard

import mcp_types as t
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from swarm_core.models import Instance
from swarm_mcp import contract, permissions
from swarm_mcp.call import Call


class Arguments(BaseModel):
    """What a tool takes. Unknown fields, nulls and values of another type are refused, never guessed at."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _no_nulls(cls, given: Any) -> Any:
        if isinstance(given, dict):
            for name, value in given.items():
                if value is None and name in cls.model_fields:
                    raise ValueError(f"{name} must not be null; leave it out")
        return given


class Result(BaseModel):
    """What a tool returns. Fields may be added to it, so readers must not mind more."""

    model_config = ConfigDict(extra="allow")


class Run(Protocol):
    def __call__(self, call: Call, args: Any, target: Instance | None) -> dict[str, Any]: ...


def _holds(call: Call, result: dict[str, Any]) -> bool:
    return True


def _no_target(call: Call, args: Any) -> Instance | None:
    return None


@dataclass(frozen=True, slots=True)
class Tool:
    """`target` finds the instance the call acts on; a `writes` tool has one effect however often it is retried.

    `holds` tells whether a result is still how things are: if not, an equal call asks for something new.
    An `inline` tool only reads, and so little that it runs on the event loop.
    """

    name: str
    title: str
    description: str
    arguments: type[Arguments]
    result: type[Result]
    run: Run
    target: Callable[[Call, Any], Instance | None] = _no_target
    holds: Callable[[Call, dict[str, Any]], bool] = _holds
    writes: bool = False
    destructive: bool = False
    idempotent: bool = False
    long: bool = False
    inline: bool = False

    def parse(self, given: dict[str, Any] | None) -> Any:
        """The arguments; a violation of the schema is a JSON-RPC error that says which."""
        try:
            return self.arguments.model_validate(given or {})
        except ValidationError as error:
            raise contract.invalid(f"Invalid arguments for {self.name}", error) from None


def tools() -> dict[str, Tool]:
    from swarm_mcp.tools import TOOLS  # noqa: PLC0415  the tools need this module's classes

    return TOOLS


def is_inline(name: object) -> TypeGuard[str]:
    tool = tools().get(name) if isinstance(name, str) else None
    return tool is not None and tool.inline


@cache
def definition(name: str) -> t.Tool:
    tool = tools()[name]
    return t.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=schema(tool.arguments, "validation"),
        output_schema=schema(tool.result, "serialization"),
        annotations=t.ToolAnnotations(
            read_only_hint=not tool.writes,
            destructive_hint=tool.destructive,
            idempotent_hint=tool.idempotent or not tool.writes,
            open_world_hint=False,
        ),
    )


@cache
def shown_to(caller: permissions.Caller, scopes: frozenset[str]) -> tuple[t.Tool, ...]:
    """The tools a caller may use; the operator sees them all."""
    everything = caller == permissions.Caller.OPERATOR
    return tuple(definition(n) for n in tools() if everything or permissions.may_call(n, caller, scopes))


def schema(model: type[BaseModel], mode: Any) -> dict[str, Any]:
    """The model's JSON schema in few bytes: no titles, and an optional field is one that may be left out."""
    plain = model.model_json_schema(mode=mode)
    compact: dict[str, Any] = _compact(plain)
    compact.setdefault("properties", {})
    return compact


def _compact(node: Any) -> Any:
    if isinstance(node, list):
        return [_compact(n) for n in node]
    if not isinstance(node, dict):
        return node
    kept = {k: v for k, v in node.items() if not (k == "title" and isinstance(v, str))}
    options = kept.get("anyOf")
    if options and {"type": "null"} in options and kept.get("default", ...) is None:
        rest = [o for o in options if o != {"type": "null"}]
        del kept["anyOf"], kept["default"]
        kept |= rest[0] if len(rest) == 1 else {"anyOf": rest}
    return {
        k: ({n: _compact(p) for n, p in v.items()} if k in ("properties", "$defs") else _compact(v))
        for k, v in kept.items()
    }

"""What a tool is, and the table of them all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import NoneType
from typing import Any, NotRequired, Protocol, TypeGuard, get_args, get_origin, get_type_hints, is_typeddict

import mcp_types as t
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, WithJsonSchema

from swarm_core.models import Instance
from swarm_mcp import contract, permissions
from swarm_mcp.call import Call
from swarm_mcp.receipts import Receipts


class Arguments(BaseModel):
    """What a tool takes. Unknown fields, nulls and values of another type are refused, never guessed at."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Result(BaseModel):
    """What a tool returns. Fields may be added to it, so readers must not mind more."""

    model_config = ConfigDict(extra="allow")


class Run(Protocol):
    def __call__(self, call: Call, args: Any, target: Instance | None) -> Any: ...


class After(Protocol):
    async def __call__(self, call: Call, answer: dict[str, Any], receipts: Receipts) -> dict[str, Any]: ...


async def _as_it_is(call: Call, answer: dict[str, Any], receipts: Receipts) -> dict[str, Any]:
    return answer


def _holds(call: Call, result: dict[str, Any]) -> bool:
    return True


def _never(given: dict[str, Any]) -> bool:
    return False


def _no_target(call: Call, args: Any) -> Instance | None:
    return None


@dataclass(frozen=True, slots=True)
class Tool:
    """`target` finds the instance the call acts on; a `writes` tool has one effect however often it is retried.

    `holds` tells whether a result is still how things are: if not, an equal call asks for something new.
    An `inline` tool only reads, and mostly so little that it runs on the event loop; with `quick` arguments a tool
    that writes does too: all it does is one short transaction. `after` completes the answer on the event loop once
    the call is recorded; while it waits it holds no thread and no place in the queue.
    """

    name: str
    title: str
    description: str
    arguments: type[Arguments]
    result: type[Result]
    run: Run
    after: After = _as_it_is
    target: Callable[[Call, Any], Instance | None] = _no_target
    holds: Callable[[Call, dict[str, Any]], bool] = _holds
    writes: bool = False
    destructive: bool = False
    idempotent: bool = False
    long: bool = False
    inline: bool = False
    quick: Callable[[dict[str, Any]], bool] = _never

    def parse(self, given: dict[str, Any] | None) -> Any:
        """The arguments; a violation of the schema is a JSON-RPC error that says which."""
        about = f"Invalid arguments for {self.name}"
        if found := contract.nulls(given or {}, self.arguments.model_fields):
            raise contract.violated(about, found, tool=self.name)
        try:
            return self.arguments.model_validate(given or {})
        except ValidationError as error:
            raise contract.invalid(about, error, tool=self.name) from None


def shaped(kind: type) -> WithJsonSchema:
    """For the annotation of a result: the schema of a TypedDict of the core, or of a list of them."""
    return WithJsonSchema(_shape(kind))


def _shape(kind: Any, *, inner: bool = False) -> dict[str, Any]:
    """pydantic takes no TypedDict of the standard library before Python 3.12.

    Rows inside a row do not repeat which of their fields are required: agents pay for every byte of the list.
    """
    if is_typeddict(kind):
        fields = get_type_hints(kind)
        marked = get_type_hints(kind, include_extras=True)  # the class itself does not see a mark in a string
        required = [name for name in fields if get_origin(marked[name]) is not NotRequired]
        properties = {name: _shape(one, inner=True) for name, one in fields.items()}
        shape = {"type": "object", "properties": properties}
        return shape if inner else shape | {"required": required}
    if get_origin(kind) is list:
        return {"type": "array", "items": _shape(get_args(kind)[0], inner=inner)}
    options = [one for one in get_args(kind) if one is not NoneType]
    if NoneType in get_args(kind) and len(options) == 1:
        shape = _shape(options[0], inner=inner)
        return shape | {"type": [shape["type"], "null"]}
    return TypeAdapter(kind).json_schema()


def tools() -> dict[str, Tool]:
    from swarm_mcp.tools import TOOLS  # noqa: PLC0415  the tools need this module's classes

    return TOOLS


def on_loop(name: object, given: dict[str, Any]) -> TypeGuard[str]:
    """Whether a call runs on the event loop."""
    tool = tools().get(name) if isinstance(name, str) else None
    return tool is not None and (tool.inline or tool.quick(given))


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

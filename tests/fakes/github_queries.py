"""GraphQL queries and answers held against the schema that GitHub publishes.

To read the schema takes seconds, so what it says of a query is kept beside it.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema_rs
from graphql import (
    FieldNode,
    FragmentDefinitionNode,
    GraphQLEnumType,
    GraphQLList,
    GraphQLNonNull,
    GraphQLObjectType,
    GraphQLSchema,
    OperationDefinitionNode,
    SelectionSetNode,
    build_schema,
    is_composite_type,
    parse,
    validate,
)

from tests.fakes.github_schemas import FOLDER, GRAPHQL

_SCALARS = {"Int": "integer", "Float": "number", "Boolean": "boolean"}


@dataclass(frozen=True)
class Checked:
    """`errors` are the schema's, `answer` takes what comes back as `data`."""

    errors: tuple[str, ...]
    answer: jsonschema_rs.Validator | None

    def faults(self, data: Any) -> list[str]:
        assert self.answer is not None
        found = self.answer.iter_errors(data)
        return [f"{'/'.join(map(str, error.instance_path))}: {error.message[:300]}" for error in found]


def check(query: str) -> Checked:
    """Aliases and arguments that differ in their numbers alone make the same query."""
    lines = re.sub(r"\d+", "1", query).splitlines()
    return _check("\n".join(line for line, _ in itertools.groupby(lines)))


@functools.cache
def _check(query: str) -> Checked:
    key = hashlib.sha256(_digest() + query.encode()).hexdigest()
    kept = FOLDER / "queries" / f"{key[:32]}.json"
    if not kept.exists():
        kept.parent.mkdir(exist_ok=True)
        written = kept.with_suffix(f".{os.getpid()}")
        written.write_text(json.dumps(_compile(query)))
        written.replace(kept)
    found = json.loads(kept.read_bytes())
    answer = None if found["errors"] else jsonschema_rs.Draft202012Validator(found["answer"])
    return Checked(tuple(found["errors"]), answer)


@functools.cache
def _digest() -> bytes:
    return hashlib.sha256(GRAPHQL.read_bytes() + Path(__file__).read_bytes()).digest()


@functools.cache
def _schema() -> GraphQLSchema:
    """Taken as it is: GitHub's file defines two fields twice and breaks newer rules on deprecation."""
    return build_schema(GRAPHQL.read_text(), assume_valid=True, assume_valid_sdl=True)


def _compile(query: str) -> dict[str, Any]:
    document = parse(query)
    errors = [error.message for error in validate(_schema(), document)]
    if errors:
        return {"errors": errors}
    [operation] = [d for d in document.definitions if isinstance(d, OperationDefinitionNode)]
    fragments = {d.name.value: d for d in document.definitions if isinstance(d, FragmentDefinitionNode)}
    root = _schema().query_type
    assert root is not None
    return {"errors": [], "answer": _selected(root, operation.selection_set, fragments)}


def _selected(
    kind: Any, selection: SelectionSetNode, fragments: dict[str, FragmentDefinitionNode]
) -> dict[str, Any]:
    """The object that a selection yields: one alternative for each type that it may have."""
    concrete = [kind] if isinstance(kind, GraphQLObjectType) else _schema().get_possible_types(kind)
    made = []
    for one in concrete:
        fields: dict[str, dict[str, Any]] = {}
        for node in _fields(one, selection, fragments):
            key = node.alias.value if node.alias else node.name.value
            fields[key] = _field(one, node, fragments)
        known = {_numbered(name): schema for name, schema in fields.items()}
        needed = [name for name in fields if not re.search(r"\d", name)]
        made.append(
            {"type": "object", "patternProperties": known, "required": needed, "additionalProperties": False}
        )
    unique = list({json.dumps(one): one for one in made}.values())
    return unique[0] if len(unique) == 1 else {"anyOf": unique}


def _numbered(name: str) -> str:
    return "^" + re.sub(r"\d+", r"\\d+", name) + "$"


def _fields(
    kind: GraphQLObjectType, selection: SelectionSetNode, fragments: dict[str, FragmentDefinitionNode]
) -> Iterator[FieldNode]:
    for node in selection.selections:
        if isinstance(node, FieldNode):
            yield node
            continue
        found = fragments[node.name.value] if hasattr(node, "name") else node
        on = found.type_condition.name.value if found.type_condition else kind.name
        if on == kind.name or any(interface.name == on for interface in kind.interfaces):
            yield from _fields(kind, found.selection_set, fragments)


def _field(
    kind: GraphQLObjectType, node: FieldNode, fragments: dict[str, FragmentDefinitionNode]
) -> dict[str, Any]:
    if node.name.value == "__typename":
        return {"const": kind.name}
    return _typed(kind.fields[node.name.value].type, node, fragments)


def _typed(kind: Any, node: FieldNode, fragments: dict[str, FragmentDefinitionNode]) -> dict[str, Any]:
    if isinstance(kind, GraphQLNonNull):
        return _never_null(kind.of_type, node, fragments)
    found = _never_null(kind, node, fragments)
    if "type" in found:  # says better than alternatives what is wrong
        return found | {"type": [found["type"], "null"]}
    return {"anyOf": [found, {"type": "null"}]}


def _never_null(kind: Any, node: FieldNode, fragments: dict[str, FragmentDefinitionNode]) -> dict[str, Any]:
    if isinstance(kind, GraphQLList):
        return {"type": "array", "items": _typed(kind.of_type, node, fragments)}
    if is_composite_type(kind):
        assert node.selection_set is not None
        return _selected(kind, node.selection_set, fragments)
    if isinstance(kind, GraphQLEnumType):
        return {"enum": list(kind.values)}
    return {"type": _SCALARS.get(kind.name, "string")}

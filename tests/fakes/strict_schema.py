"""Schemas of an OpenAPI document made strict: no unknown field passes, and what a test leaves out is filled in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema_rs

Schema = Mapping[str, Any]
_MISSING = object()
_KEPT = frozenset(
    {"type", "enum", "required", "pattern", "format", "const"}
    | {"minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"}
)
_MADE_UP = {
    "date-time": "2031-01-01T00:00:00Z",
    "date": "2031-01-01",
    "uri": "https://github.example/",
    "email": "somebody@github.example",
}


class Schemas:
    """`document` has `components.schemas`, to which every `$ref` in a schema leads. OpenAPI 3.0 and 3.1."""

    def __init__(self, document: Schema) -> None:
        self._known: Mapping[str, Schema] = document["components"]["schemas"]
        self._validators: dict[str, jsonschema_rs.Validator] = {}
        self._templates: dict[str, Any] = {}

    def faults(self, schema: Schema, value: Any) -> list[str]:
        """What the schema does not allow, the place first."""
        return [
            f"{'/'.join(map(str, error.instance_path))}: {error.message[:300]}"
            for error in self._validator(schema).iter_errors(value)
        ]

    def whole(self, schema: Schema, given: Any = _MISSING) -> Any:
        """What was given, with every field that GitHub always sends and the test does not care about."""
        schema = self._resolved(schema)
        if given is _MISSING:
            key = json.dumps(schema, sort_keys=True)
            if key not in self._templates:
                self._templates[key] = self._made_up(schema)
            return self._templates[key]
        if given is None:
            return None
        if choices := _choices(schema):
            return self._chosen(schema, choices, given)
        if isinstance(given, list):
            items = schema.get("items", {})
            return [self.whole(items, one) for one in given]
        if isinstance(given, dict):
            fields, required = self._fields(schema)
            named = {name: self.whole(fields.get(name, {}), value) for name, value in given.items()}
            return {name: self.whole(fields.get(name, {})) for name in required if name not in given} | named
        return given

    def _made_up(self, schema: Schema) -> Any:
        """Null where that is allowed, else the first value that is."""
        made = None
        for made in self._guesses(schema):
            if not self.faults(schema, made):
                break
        return made

    def _guesses(self, schema: Schema) -> Iterator[Any]:
        yield None
        yield from schema.get("enum", ())[:1]
        fields, required = self._fields(schema)
        if fields or schema.get("type") == "object":
            yield {name: self.whole(fields.get(name, {})) for name in required}
        for part in (*_choices(schema), *schema.get("allOf", ())):
            yield from self._guesses(self._resolved(part))
        yield from (_MADE_UP.get(schema.get("format", ""), "x"), False, [], schema.get("minimum", 1))

    def _chosen(self, schema: Schema, choices: list[Schema], given: Any) -> Any:
        """By the first alternative that takes it."""
        tried = [self.whole(choice, given) for choice in choices]
        good = (one for one, choice in zip(tried, choices, strict=True) if not self.faults(choice, one))
        return next(good, tried[0])

    def _fields(self, schema: Schema) -> tuple[dict[str, Schema], list[str]]:
        """Its own and those of every part it is made of."""
        schema = self._resolved(schema)
        fields, required = dict(schema.get("properties", {})), list(schema.get("required", ()))
        for part in schema.get("allOf", ()):
            more, needed = self._fields(part)
            both = {name: {"allOf": [fields[name], more[name]]} for name in fields.keys() & more.keys()}
            fields, required = more | fields | both, [*required, *needed]
        return fields, required

    def _resolved(self, schema: Schema) -> Schema:
        while "$ref" in schema:
            schema = self._known[_name(schema)]
        return schema

    def _validator(self, schema: Schema) -> jsonschema_rs.Validator:
        key = json.dumps(schema, sort_keys=True)
        if key not in self._validators:
            defs: dict[str, Any] = {}
            root = self._strict(schema, defs, closed=True)
            self._validators[key] = jsonschema_rs.Draft202012Validator(
                {"$defs": defs, "allOf": [root]}, validate_formats=True
            )
        return self._validators[key]

    def _strict(self, schema: Schema, defs: dict[str, Any], *, closed: bool) -> dict[str, Any]:
        """As JSON Schema; a part of something larger stays open, for it does not know the other parts' fields."""
        if "$ref" in schema:
            key = f"{_name(schema)}{'' if closed else '.part'}"
            if key not in defs:
                defs[key] = {}
                defs[key] |= self._strict(self._known[_name(schema)], defs, closed=closed)
            return {"$ref": f"#/$defs/{key}"}
        strict = {name: value for name, value in schema.items() if name in _KEPT}
        parts, choices = schema.get("allOf", ()), _choices(schema)
        composed = bool(parts or (choices and "properties" in schema))
        if parts:
            strict["allOf"] = [self._strict(part, defs, closed=False) for part in parts]
        if choices:
            strict["anyOf"] = [self._strict(one, defs, closed=closed and not composed) for one in choices]
        if "properties" in schema:
            fields = schema["properties"].items()
            strict["properties"] = {name: self._strict(field, defs, closed=True) for name, field in fields}
        if isinstance(more := schema.get("additionalProperties"), dict):
            strict["additionalProperties"] = self._strict(more, defs, closed=True)
        elif more is None and closed and ("properties" in schema or parts):
            strict["unevaluatedProperties"] = False
        if "items" in schema:
            strict["items"] = self._strict(schema["items"], defs, closed=True)
        return {"anyOf": [strict, {"type": "null"}]} if schema.get("nullable") else strict


def _choices(schema: Schema) -> list[Schema]:
    return [*schema.get("oneOf", ()), *schema.get("anyOf", ())]


def _name(schema: Schema) -> str:
    return str(schema["$ref"]).rpartition("/")[2]

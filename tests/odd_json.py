"""JSON as no client sends it on purpose: what a schema allows, what it nearly allows, and rubbish."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

_LONGEST = 60


@dataclass(frozen=True)
class Raw:
    """Text that goes into the document as it is, also where that makes it no JSON."""

    text: str

    def __repr__(self) -> str:
        return f"Raw({self.text[:40]!r} of {len(self.text)})"


def encode(value: Any) -> bytes:
    """The value as a document; half a surrogate pair is escaped, so that the bytes are UTF-8."""
    return _text(value).encode()


def _text(value: Any) -> str:
    if isinstance(value, Raw):
        return value.text
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{_text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_text, value)) + "]"
    return json.dumps(value)


BROKEN = st.sampled_from(
    [
        *(Raw(text) for text in ("NaN", "Infinity", "-Infinity", "truE", "'a'", "", '"a\x01b"', '"a\\qb"', '"')),
        *(Raw("9" * digits) for digits in (4301, 20_000)),
        *(Raw("[" * depth + "]" * depth) for depth in (900, 100_000)),
        *(Raw('{"a":' * depth + "1" + "}" * depth) for depth in (900, 50_000)),
        *(Raw(text) for text in ("[" * 5000, '"\\ud800"', '"\\udfff\\ud800"', '{"\\udfff":1}')),
    ]
)
EXTREMES = st.sampled_from(
    [
        *(
            Raw(text)
            for text in ("1e400", "-0", "1.0", "0.1e-400", '"\\ud83d\\ude00"', '"\\u0000"', '{"a":1,"a":2}')
        ),
        *(Raw("9" * digits) for digits in (10, 19, 20, 310, 4000)),
        *(Raw("[" * depth + "]" * depth) for depth in (20, 150)),
        Raw('{"a":' * 150 + "1" + "}" * 150),
        Raw("{" + ",".join(f'"k{n}":{n}' for n in range(3000)) + "}"),
        Raw("[" + ",".join(["0"] * 20_000) + "]"),
        Raw('{"' + "k" * 50_000 + '":1}'),
        *("x" * size for size in (201, 10_001, 300_000)),
        *("\0", "a\nb", "\x1b[2J", "\u202e", "é́", "🦀" * 300, " ", "%s%n{0}", "';--", "$(id)", "../" * 20),
    ]
)
ODD_TEXT = st.text(max_size=_LONGEST)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | ODD_TEXT
NESTED = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ODD_TEXT, inner, max_size=4), max_leaves=6
)
VALID = NESTED | EXTREMES


def mostly(
    likely: st.SearchStrategy[Any], otherwise: st.SearchStrategy[Any], *, odds: int = 4
) -> st.SearchStrategy[Any]:
    """`odds` to one the first; `one_of` would weigh every branch of both the same."""
    return st.sampled_from([True] * odds + [False]).flatmap(lambda usual: likely if usual else otherwise)


ANYTHING = mostly(VALID, BROKEN)


def matching(schema: dict[str, Any], *, known: dict[str, list[Any]] | None = None) -> st.SearchStrategy[Any]:
    """Values that the schema allows. `known` are values for a property that mean something where they go."""
    return _matching(schema, schema.get("$defs", {}), known or {})


def _matching(node: dict[str, Any], defs: dict[str, Any], known: dict[str, list[Any]]) -> st.SearchStrategy[Any]:
    if "$ref" in node:
        return _matching(defs[node["$ref"].rpartition("/")[2]], defs, known)
    if "anyOf" in node:
        return st.one_of([_matching(option, defs, known) for option in node["anyOf"]])
    if "const" in node or "enum" in node:
        return st.sampled_from(node.get("enum") or [node["const"]])
    kind = node["type"]
    if kind == "object":
        return _object(node, defs, known)
    if kind == "array":
        return st.lists(_matching(node["items"], defs, known), max_size=node.get("maxItems", 4))
    if kind == "integer":
        return st.integers(node.get("minimum"), node.get("maximum"))
    if kind == "string":
        return _string(node)
    return {"boolean": st.booleans(), "number": st.floats(), "null": st.none()}[kind]


def _object(node: dict[str, Any], defs: dict[str, Any], known: dict[str, list[Any]]) -> st.SearchStrategy[Any]:
    fields = {
        name: st.sampled_from(known[name]) | _matching(one, defs, known)
        if name in known
        else _matching(one, defs, known)
        for name, one in node.get("properties", {}).items()
    }
    required = node.get("required", [])
    return st.fixed_dictionaries(
        {name: field for name, field in fields.items() if name in required},
        optional={name: field for name, field in fields.items() if name not in required},
    )


def _string(node: dict[str, Any]) -> st.SearchStrategy[str]:
    if "pattern" in node:
        return st.from_regex(node["pattern"], fullmatch=True)
    low, high = node.get("minLength", 0), node.get("maxLength", _LONGEST)
    short = st.text(min_size=low, max_size=min(high, max(low, _LONGEST)))
    return short | st.just("x" * high) if high <= 100_000 else short


@st.composite
def nearly(draw: st.DrawFn, schema: dict[str, Any], *, known: dict[str, list[Any]] | None = None) -> Any:
    """What the schema allows, changed in up to two places until it may not any more."""
    value = draw(matching(schema, known=known))
    for _ in range(draw(st.integers(0, 2))):
        if not isinstance(value, dict):
            return value
        value = _changed(draw, dict(value), schema)
    return value


def _changed(draw: st.DrawFn, value: dict[str, Any], schema: dict[str, Any]) -> Any:
    fields = sorted(schema["properties"])
    how = draw(
        st.sampled_from(["whole", "add", *(["replace", "edge", "null", "drop", "rename"] if fields else [])])
    )
    if how == "whole":
        return draw(ANYTHING)
    if how == "add":
        return value | {draw(ODD_TEXT | st.sampled_from(["caller", "actor", "__proto__", "self"])): draw(ANYTHING)}
    name = draw(st.sampled_from(fields))
    if how == "drop":
        value.pop(name, None)
    elif how == "rename":
        value[draw(st.sampled_from([name.upper(), f"{name} ", name.replace("_", "-")]))] = value.pop(name, 1)
    elif how == "null":
        value[name] = None
    else:
        value[name] = draw(ANYTHING if how == "replace" else _edges(schema["properties"][name]))
    return value


def _edges(node: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Just outside what is allowed."""
    outside: list[Any] = [""]
    if "maxLength" in node:
        outside += ["x" * (node["maxLength"] + 1), "🦀" * node["maxLength"]]
    if "minimum" in node:
        outside += [node["minimum"] - 1, -(2**63) - 1]
    if "maximum" in node:
        outside += [node["maximum"] + 1, 2**63, float(node["maximum"])]
    if "maxItems" in node:
        outside += [[None] * (node["maxItems"] + 1)]
    if "pattern" in node:
        outside += ["work-a1\n", "work-a1\0", " work-a1", "work-٣-a1", "work-a0", "work-999999999999-a1"]
    return st.sampled_from(outside)

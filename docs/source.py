"""What the source text itself says: which error codes, events, settings and variables it uses, and where.

Read from the syntax trees, so that a page or a contract holds for lines that no test happens to run.
"""

from __future__ import annotations

import ast
import functools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from swarm_core.models import EVENTS

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("swarm_core", "swarm_mcp", "swarm_ui")
_READERS = frozenset({"number", "integer", "text"})
_VARIABLE = re.compile(r"(SWARM|MCP)_[A-Z_]+")


def modules(*packages: str) -> list[Path]:
    """Every Python file of the packages (all of ours when none is named), in a stable order."""
    return sorted(path for package in packages or PACKAGES for path in (ROOT / package).rglob("*.py"))


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def error_codes() -> dict[str, set[str]]:
    """Codes the source raises or looks for, each with the names of what carries them."""
    found: dict[str, set[str]] = defaultdict(set)
    made_by: dict[str, str] = {}
    for path in modules():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef) and isinstance(node.returns, ast.Name):
                made_by[node.name] = node.returns.id
            for code, carrier in _codes(node):
                found[code].add(carrier)
    return {code: {made_by.get(name, name) for name in names} for code, names in found.items()}


def event_names() -> set[str]:
    """Every text in the source that is spelled like an event of a known family."""
    families = "|".join(sorted({name.partition(":")[0] for name in EVENTS}))
    spelled = re.compile(rf"({families}):[a-z_]+")
    return {text for text in _texts(leave_out=("EVENTS",)) if spelled.fullmatch(text)}


def settings_read() -> set[str]:
    """The keys given to `Settings.number`, `integer` and `text`."""
    keys = set()
    for path in modules():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _READERS:
                keys |= {a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)}
    return keys


def variables() -> set[str]:
    """Environment variables of ours that the source names outside the tables that document them."""
    return {text for text in _texts(leave_out=("ENVIRONMENT",)) if _VARIABLE.fullmatch(text)}


def texts() -> set[str]:
    """Every text constant of the source."""
    return set(_texts(leave_out=()))


# Functions that are given a code by its place.
_TAKES_CODES = ("protocol_error", "refuse", "error", "_record")


def _codes(node: ast.AST) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Call):
        for keyword in node.keywords:
            if keyword.arg in ("code", "error_code"):
                yield from ((code, _name(node.func)) for code in _upper(keyword.value))
        if _name(node.func) in _TAKES_CODES:
            yield from ((code, "") for argument in node.args for code in _upper(argument))
    elif isinstance(node, ast.ClassDef):
        for statement in node.body:
            if isinstance(statement, ast.Assign) and _targets(statement) == ["code"]:
                yield from ((code, node.name) for code in _upper(statement.value))
    elif isinstance(node, ast.Assign) and _targets(node) == ["code"]:
        yield from ((code, "") for code in _upper(node.value))
    elif isinstance(node, ast.Compare) and isinstance(node.left, ast.Attribute) and node.left.attr == "code":
        yield from ((code, "") for right in node.comparators for code in _upper(right))


def _upper(value: ast.expr) -> list[str]:
    parts = [n.value for n in ast.walk(value) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    return [part for part in parts if re.fullmatch(r"[A-Z][A-Z0-9_]+", part)]


def _name(function: ast.expr) -> str:
    return ast.unparse(function).rpartition(".")[2]


def _targets(node: ast.Assign) -> list[str]:
    return [target.id for target in node.targets if isinstance(target, ast.Name)]


def _texts(*, leave_out: tuple[str, ...]) -> Iterator[str]:
    for path in modules():
        module = tree(path)
        skipped = {id(n) for node in module.body if _defines(node) in leave_out for n in ast.walk(node)}
        for node in ast.walk(module):
            if id(node) not in skipped and isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def _defines(node: ast.stmt) -> str:
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id
    return ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [f"| {' | '.join(head)} |", f"| {' | '.join('---' for _ in head)} |"]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)

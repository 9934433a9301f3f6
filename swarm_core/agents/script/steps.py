"""What a line of a prompt or message means: the grammar of the steps."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

TYPE_CHECKING = False  # as type checkers know it, without importing typing
if TYPE_CHECKING:
    from typing import Any


class BadStep(Exception):
    """The line names a step but is not one."""


class StepFailed(Exception):
    """The step was tried and did not work."""


class Step:
    __slots__ = ("name", "path", "text", "value")

    def __init__(self, name: str, *, path: str = "", text: str = "", value: Any = None) -> None:
        self.name, self.path, self.text, self.value = name, path, text, value


def parse_line(line: str) -> Step | None:
    """The step a line stands for, None for task text; raises BadStep."""
    name, _, rest = line.strip().partition(" ")
    make = GRAMMAR.get(name)
    return make(name, rest.strip()) if make else None


def _bare(name: str, rest: str) -> Step:
    if rest:
        raise BadStep(f"{name} takes nothing after it")
    return Step(name)


def _text(name: str, rest: str) -> Step:
    if not rest:
        raise BadStep(f"{name} needs a text")
    return Step(name, text=rest)


def _file(name: str, rest: str) -> Step:
    path, _, text = rest.partition(" ")
    if not path:
        raise BadStep(f"{name} needs a path")
    if path.startswith("/") or ".." in path.split("/") or "\0" in path:
        raise BadStep(f"{name} stays inside the worktree: {path}")
    ends_open = text.endswith("\\c")
    body = re.sub(r"\\([nt\\])", _unescape, text[:-2] if ends_open else text)
    return Step(name, path=path, text=body if ends_open else body + "\n")


def _unescape(match: re.Match[str]) -> str:
    return {"n": "\n", "t": "\t", "\\": "\\"}[match[1]]


def _seconds(name: str, rest: str) -> Step:
    try:
        value = float(rest)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 86400:
        raise BadStep(f"{name} needs seconds from 0 to 86400, not {rest!r}")
    return Step(name, value=value)


def _code(name: str, rest: str) -> Step:
    if not re.fullmatch(r"\d{1,3}", rest or "0") or int(rest or "0") > 255:
        raise BadStep(f"{name} needs a code from 0 to 255, not {rest!r}")
    return Step(name, value=int(rest or "0"))


def _call(name: str, rest: str) -> Step:
    tool, _, given = rest.partition(" ")
    try:
        arguments = json.loads(given or "{}")
    except (ValueError, RecursionError):
        arguments = None
    if not tool or not isinstance(arguments, dict):
        raise BadStep(f"{name} needs a tool and a JSON object")
    return Step(name, text=tool, value=arguments)


GRAMMAR: dict[str, Callable[[str, str], Step]] = {
    "write": _file,
    "append": _file,
    "commit": _text,
    "call": _call,
    "say": _text,
    "wait": _seconds,
    "await-message": _bare,
    "ask": _text,
    "dialog": _text,
    "busy": _seconds,
    "hang": _bare,
    "crash": _bare,
    "exit": _code,
}

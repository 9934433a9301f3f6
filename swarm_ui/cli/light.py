"""Commands that convert their arguments without pydantic, whose import is 130 ms of CPU at every start.

Typer converts through it even options that are not given. A typer that converts in another way is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


class Group(TyperGroup):
    def get_params(self, ctx: Any) -> Any:
        return [_lightened(p) for p in super().get_params(ctx)]


class Command(TyperCommand):
    def get_params(self, ctx: Any) -> Any:
        return [_lightened(p) for p in super().get_params(ctx)]


def _lightened(parameter: Any) -> Any:
    convert = _CONVERTERS.get(getattr(getattr(parameter, "type_descriptor", None), "annotation", None))
    if convert is not None and getattr(parameter, "_runtime_param", parameter) is None:
        parameter._runtime_param = _Light(convert)
    return parameter


class _Light:
    """The conversion of one parameter: text, whole numbers, switches and lists of text."""

    def __init__(self, convert: Callable[[Any], Any]) -> None:
        self._convert = convert

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        if value is None:
            return () if param.nargs == -1 or param.multiple else None
        try:
            return self._convert(value)
        except ValueError:
            raise typer.BadParameter(f"{str(value)[:80]!r} is not a whole number", ctx=ctx, param=param) from None


_CONVERTERS: dict[Any, Callable[[Any], Any]] = {str: str, int: int, bool: bool, list[str]: list}

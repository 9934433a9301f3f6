"""One command's use of the core: opened with progress, closed in any case; several ids at once."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import typer

from swarm_core import config
from swarm_core.errors import SwarmError
from swarm_core.swarm import Swarm
from swarm_ui.cli import output

_AT_ONCE = 4


def _silent(_: str) -> None:
    return


@contextlib.contextmanager
def opened(*, quiet: bool = False) -> Iterator[Swarm]:
    """The core of this home; print results after the block, where no progress line is in the way."""
    progress = output.Progress(sys.stderr)
    report = _silent if quiet else progress.say
    try:
        with Swarm.open(config.load(os.environ), os.environ, report=report) as swarm:
            yield swarm
    finally:
        progress.close()


def decider(environ: Mapping[str, str]) -> str:
    """Who decides what only a person may: the agent if one runs the command, or else the operator."""
    return environ.get("SWARM_INSTANCE") or "operator"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one of several ids."""

    id: str
    value: Any = None
    error: SwarmError | None = None

    def as_json(self, body: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        if self.error is not None:
            return {"id": self.id} | output.error_body(self.error)
        return {"ok": True} | body(self.value)


def each(ids: Sequence[str], do: Callable[[str], Any]) -> list[Outcome]:
    """Do it for every id once, a few at a time; a failure does not stop the others."""

    def one(name: str) -> Outcome:
        try:
            return Outcome(name, value=do(name))
        except SwarmError as error:
            return Outcome(name, error=error)

    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        return list(pool.map(one, dict.fromkeys(ids)))


def tell(
    outcomes: list[Outcome],
    *,
    json: bool,
    body: Callable[[Any], dict[str, Any]],
    line: Callable[[Any], str],
) -> None:
    """Print every outcome and end with 1 if any failed."""
    if json:
        output.write_json([o.as_json(body) for o in outcomes])
    else:
        for outcome in outcomes:
            if outcome.error is None:
                output.write(line(outcome.value))
            else:
                error = outcome.error
                output.show_error(error.code, error.message, error.hint, about=outcome.id)
    if any(o.error for o in outcomes):
        raise typer.Exit(1)

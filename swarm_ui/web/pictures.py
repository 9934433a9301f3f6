"""A screen as it is told to a page: whole at first, then what has changed. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from swarm_core.tmux.panes import Pane
from swarm_core.tmux.screens import Screen
from swarm_ui.web import ansi
from swarm_ui.web.ansi import Line
from swarm_ui.web.frames import as_json, frame

LINES = 200


@dataclass(frozen=True, slots=True)
class Picture:
    """A screen at one moment; `series` is another one for each program that an instance has had.

    `cursor` is (column, row of the last `rows` lines), None when there is none to see.
    """

    lines: Sequence[Line]
    cols: int = 0
    rows: int = 0
    alive: bool = False
    cursor: tuple[int, int] | None = None
    history: int = 0
    series: str = ""

    def facts(self) -> dict[str, Any]:
        return {
            "cols": self.cols,
            "rows": self.rows,
            "alive": self.alive,
            "cursor": self.cursor,
            "history": self.history,
        }


@dataclass(frozen=True, slots=True)
class Ended:
    """`exit` is the exit code, or a signal as a negative number; None while nobody knows."""

    exit: int | None


def shown(screen: Screen, reader: ansi.Reader, *, series: str = "") -> Picture:
    lines = reader.lines(screen.lines)
    return Picture(lines, screen.width, screen.height, not screen.dead, screen.cursor, screen.history, series)


def kept(text: str) -> Picture:
    """What was stored of a screen whose session is gone."""
    lines = ansi.read_lines(text.splitlines()[-LINES:])
    return Picture(lines, cols=80, rows=len(lines))


def greyed(picture: Picture) -> Picture:
    return replace(picture, alive=False, cursor=None)


def series(pane: Pane) -> str:
    return f"{pane.server_pid}.{pane.pane_id}.{pane.epoch}"


def exit_of(code: int | None, signal: int | None) -> int | None:
    return -signal if code is None and signal is not None else code


def term_frames(instance_id: str, old: Picture | None, new: Picture, ended: Ended | None) -> bytes:
    """What somebody who has seen `old` has to be told."""
    told = b""
    if new is not old:
        fresh = old is None or old.series != new.series
        drop, changed = ansi.diff([] if old is None or fresh else old.lines, new.lines)
        head = as_json({"id": instance_id, **new.facts(), "len": len(new.lines), "drop": drop})
        full = ',"full":true' if fresh else ""
        lines = ",".join(f"[{n},{line.json}]" for n, line in changed)
        told = f'event: term\ndata: {head[:-1]}{full},"set":[{lines}]}}\n\n'.encode(errors="replace")
    if ended is not None:
        told += frame("term", {"id": instance_id, "ended": True, "exit": ended.exit})
    return told

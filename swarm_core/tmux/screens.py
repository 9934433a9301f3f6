"""A pane's screen as it looks: lines with colours, size and cursor, all of one moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from swarm_core.tmux import command
from swarm_core.tmux.control import Control

_FIELDS = (
    "pane_dead",
    "pane_width",
    "pane_height",
    "cursor_x",
    "cursor_y",
    "cursor_flag",
    "history_size",
    "alternate_on",
)
_FORMAT = "|".join(f"#{{{field}}}" for field in _FIELDS)


@dataclass(frozen=True, slots=True)
class Screen:
    """`lines` end with the visible part, as the terminal breaks them, with the escapes of their colours.

    Colours go on over line ends. `cursor` is (column, row) in the visible part, None while it is hidden. `history`
    counts the lines that have scrolled out of sight, more of them than `lines` may hold.
    """

    lines: Sequence[str]
    width: int
    height: int
    cursor: tuple[int, int] | None
    history: int
    alternate: bool
    dead: bool


def capture(control: Control, pane_id: str, *, lines: int) -> Screen | None:
    """The last `lines` lines, and never less than the visible part; None when the pane is gone.

    A program that has the alternate screen has no history there.
    """
    told, text = control.pipeline([_tell(pane_id), _show(pane_id, lines)])
    return None if told is None or text is None else _screen([*told, *text], lines)


def capture_once(socket: Path, pane_id: str, *, lines: int) -> Screen | None:
    """The same from one process, for whoever looks once."""
    done = command.run(socket, [*_tell(pane_id), ";", *_show(pane_id, lines)], check=False)
    text = done.text.removesuffix("\n").split("\n")
    return _screen(text, lines) if done.returncode == 0 else None


def visible(control: Control, pane_ids: Sequence[str]) -> dict[str, list[str]]:
    """The visible lines of each pane that is there."""
    answers = control.pipeline([["capture-pane", "-e", "-p", "-N", "-t", pane_id] for pane_id in pane_ids])
    return {pane_id: lines for pane_id, lines in zip(pane_ids, answers, strict=True) if lines is not None}


def _tell(pane_id: str) -> list[str]:
    return ["display-message", "-p", "-t", pane_id, _FORMAT]


def _show(pane_id: str, lines: int) -> list[str]:
    """Joined lines (-J) would be other lines than those on the screen; without -N coloured bars lose their end."""
    return ["capture-pane", "-e", "-p", "-N", "-S", str(-lines), "-t", pane_id]


def _screen(told: Sequence[str], lines: int) -> Screen | None:
    parts = told[0].split("|") if told else []
    if len(parts) != len(_FIELDS) or not parts[1]:
        return None
    fact = {name: int(value or 0) for name, value in zip(_FIELDS, parts, strict=True)}
    height, alternate = fact["pane_height"], bool(fact["alternate_on"])
    kept = told[1:][-(height if alternate else max(lines, height)) :]
    shown = fact["cursor_flag"] and not fact["pane_dead"]
    return Screen(
        lines=kept,
        width=fact["pane_width"],
        height=height,
        cursor=(fact["cursor_x"], fact["cursor_y"]) if shown else None,
        history=fact["history_size"],
        alternate=alternate,
        dead=bool(fact["pane_dead"]),
    )

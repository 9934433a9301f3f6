"""Where two instances meet: how bad that is, and the files and lines as people and agents read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from swarm_core.hosts.merging import printable as printable
from swarm_core.models import Overlap

OVERLAP, CONFLICT = "overlap", "conflict"
LEVELS = ("", OVERLAP, CONFLICT)
WHOLE_FILE = 2**31 - 1
_FILES = 5
_RANGES = 3


def level(overlap: Overlap | None) -> str:
    """One of LEVELS; nothing while both only change the same file in places far from one another."""
    if overlap is None:
        return ""
    if overlap.conflicts:
        return CONFLICT
    return OVERLAP if any(overlap.files.values()) else ""


def label(files: Mapping[str, Sequence[Sequence[int]]]) -> str:
    """`a.py:3-5,9, b.md, and 2 more`: the first few files, with lines unless it is all of the file."""
    shown = [_file(path, ranges) for path, ranges in list(files.items())[:_FILES]]
    more = len(files) - len(shown)
    return ", ".join(shown) + (f", and {more} more" if more > 0 else "")


def names(paths: Sequence[str]) -> str:
    return label({path: [] for path in paths})


def _file(path: str, ranges: Sequence[Sequence[int]]) -> str:
    name = printable(path)
    lines = [_lines(first, last) for first, last in ranges if last != WHOLE_FILE]
    if not lines:
        return name
    return f"{name}:{','.join(lines[:_RANGES])}{',…' if len(lines) > _RANGES else ''}"


def _lines(first: int, last: int) -> str:
    first = max(first, 1)
    return f"{first}-{last}" if last > first else str(first)

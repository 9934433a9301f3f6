"""docs/reference/benchmarks.md: one table a subject, replaced by each `--write`."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.figures import Figure

PATH = Path(__file__).parents[1] / "docs" / "reference" / "benchmarks.md"
_HEAD = """\
# Benchmarks

`make bench` (or `python -m benchmarks [NAME...]`) measures what swarm promises and fails when a limit is exceeded;
`--write` puts the results here, `--quick` takes less time and leaves out the repository of 100,000 files, and
`--rounds 100` repeats as often as the promise about parallel spawns says.

Ratios compare two things measured in turn in the same run, so they hold on a slower or busy machine too; times
are of the machine named below each table. The last column of numbers is the value as a part of its limit.
"""


def write(subject: str, figures: Sequence[Figure]) -> None:
    """Replace the subject's section and leave the others."""
    sections = _sections()
    sections[subject] = _section(figures)
    PATH.parent.mkdir(parents=True, exist_ok=True)
    PATH.write_text(_HEAD + "".join(f"\n## {name}\n{body}" for name, body in sorted(sections.items())))


def _sections() -> dict[str, str]:
    text = PATH.read_text() if PATH.exists() else ""
    return {name: body for name, _, body in (part.partition("\n") for part in text.split("\n## ")[1:])}


def _section(figures: Sequence[Figure]) -> str:
    rows = ["| figure | value | limit | of limit | |", "|---|--:|--:|--:|---|"]
    rows += ["| " + " | ".join(figure.cells()) + " |" for figure in figures]
    where = f"Python {platform.python_version()}, {platform.system()} {platform.release()}, {os.cpu_count()} cores"
    return "\n" + "\n".join(rows) + f"\n\nMeasured {datetime.now(UTC):%Y-%m-%d} with {where}.\n"

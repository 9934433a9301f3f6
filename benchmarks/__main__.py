"""`python -m benchmarks [NAME...]`: measure, print one line a figure, end with 1 when a limit is exceeded."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from benchmarks import (
    adopt,
    calls,
    clean,
    dashboard,
    death,
    follow,
    load,
    messages,
    page,
    parallel,
    reconcile,
    spawn,
    startup,
    status,
    supervise,
)
from benchmarks.figures import Figure, Options
from benchmarks.ground import isolated

SUBJECTS: dict[str, Callable[[Path, Options], Iterator[Figure]]] = {
    "startup": startup.measure,
    "reconcile": reconcile.measure,
    "supervise": supervise.measure,
    "death": death.measure,
    "status": status.measure,
    "adopt": adopt.measure,
    "parallel": parallel.measure,
    "spawn": spawn.measure,
    "clean": clean.measure,
    "calls": calls.measure,
    "load": load.measure,
    "messages": messages.measure,
    "follow": follow.measure,
    "dashboard": dashboard.measure,
}


def main() -> int:
    wanted = _arguments()
    options = Options(quick=wanted.quick, rounds=wanted.rounds)
    measured: dict[str, list[Figure]] = {}
    for name in wanted.names or SUBJECTS:
        measured[name] = []
        with isolated() as root:
            for figure in SUBJECTS[name](root, options):
                measured[name].append(figure)
                if not wanted.json:
                    _show(figure)
        if wanted.write:
            page.write(name, measured[name])
    if wanted.json:
        print(json.dumps([_body(name, f) for name, figures in measured.items() for f in figures], indent=2))
    return 0 if all(f.passed for figures in measured.values() for f in figures) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"what to measure: {', '.join(SUBJECTS)}")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, no repository of 100k files")
    parser.add_argument("--rounds", type=int, help="repetitions, for example 100 for `parallel`")
    parser.add_argument("--json", action="store_true", help="print all figures as one JSON array")
    parser.add_argument("--write", action="store_true", help=f"put the results into {page.PATH.name}")
    wanted = parser.parse_args()
    if unknown := set(wanted.names) - SUBJECTS.keys():
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}")
    return wanted


def _show(figure: Figure) -> None:
    name, value, limit, share, state = figure.cells()
    print(f"{name:58} {value:>20} {limit:>20} {share:>6}  {state}", flush=True)


def _body(subject: str, figure: Figure) -> dict[str, object]:
    return {"subject": subject} | asdict(figure) | {"passed": figure.passed}


if __name__ == "__main__":
    sys.exit(main())

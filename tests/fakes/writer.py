"""Saves numbered texts into a folder until a file named `stop` appears, and notes each save that returned.

python -m tests.fakes.writer HOW FOLDER NOTES

HOW is `path` (a new file by its absolute path, with the folders above it), `cwd` (a new file by a relative path
from inside) or `open` (one file, opened once and appended to).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_PAUSE = 0.002


def main(how: str, folder: str, notes: str) -> None:
    root, told = Path(folder), Path(notes)
    save = {"path": _by_path, "cwd": _by_cwd, "open": _by_descriptor}[how](root)
    with (told / "saved").open("a", buffering=1) as noted:
        for number in _until(told / "stop"):
            try:
                save(number, f"save {number} by {how}\n")
            except OSError:
                continue  # it failed, and whoever saved was told so
            noted.write(f"{number}\n")


def _until(stop: Path) -> Iterator[int]:
    number = 0
    while not stop.exists():
        number += 1
        yield number
        time.sleep(_PAUSE)


def _by_path(root: Path) -> Callable[[int, str], None]:
    def save(number: int, text: str) -> None:
        place = root / "saves" / f"{number}.txt"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    return save


def _by_cwd(root: Path) -> Callable[[int, str], None]:
    os.chdir(root)
    return lambda number, text: Path(f"{number}.txt").write_text(text) and None


def _by_descriptor(root: Path) -> Callable[[int, str], None]:
    file = (root / "log.txt").open("ab", buffering=0)
    return lambda number, text: file.write(text.encode()) and None


if __name__ == "__main__":
    main(*sys.argv[1:])

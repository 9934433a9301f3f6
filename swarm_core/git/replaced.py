"""Replace refs and grafts: they show other objects than were committed. No git of ours follows them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from swarm_core import files
from swarm_core.git.command import _git
from swarm_core.git.refs import git_dirs

GRAFTS = "info/grafts"
_PREFIX = "refs/replace/"


def replaced(repo: str | Path) -> list[str]:
    """Name every replace ref of the repository, and its file of grafts if that has any; no git is started."""
    common_dir = git_dirs(repo)[1]
    found = sorted(_refs(repo, common_dir))
    return [*found, GRAFTS] if _has_grafts(common_dir / GRAFTS) else found


def _refs(repo: str | Path, common_dir: Path) -> set[str]:
    if (common_dir / "reftable").is_dir():
        return set(_git(repo, "for-each-ref", "--format=%(refname)", _PREFIX).decode().split())
    return {*_loose(common_dir), *_packed(common_dir)}


def _loose(common_dir: Path) -> Iterator[str]:
    for folder, _, names in os.walk(common_dir / _PREFIX):
        yield from (
            str((Path(folder) / name).relative_to(common_dir)) for name in names if not name.endswith(".lock")
        )


def _packed(common_dir: Path) -> Iterator[str]:
    try:
        lines = files.read_regular(common_dir / "packed-refs").splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        name = line.partition(b" ")[2]
        if name.startswith(_PREFIX.encode()):
            yield name.decode(errors="replace")


def _has_grafts(path: Path) -> bool:
    try:
        lines = files.read_regular(path).splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return any(line.strip() and not line.startswith(b"#") for line in lines)

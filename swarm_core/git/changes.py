"""What a worktree contains beyond a commit: counted, listed and shown, without changing anything in it."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from swarm_core import files
from swarm_core.git.checkout import find_checkout
from swarm_core.git.command import (
    _git,
    check_commit_id,
    in_chunks,
    nul_list,
    shown,
    text,
    without_own_filters,
)
from swarm_core.git.refs import git_dirs

_COUNTED_BYTES = 8 * 1024 * 1024
_SNIFFED_BYTES = 8000
_PLAIN = ("--no-ext-diff", "--no-textconv", "--find-renames")


@dataclass(frozen=True, slots=True)
class ChangeStats:
    files: int
    added: int
    deleted: int
    untracked: int


@dataclass(frozen=True, slots=True)
class FileChange:
    path: str
    status: str
    old_path: str | None = None
    untracked: bool = False


def change_stats(path: str | Path, base_commit: str | None) -> ChangeStats:
    """Files and lines by which the working tree differs from the commit; binary and huge files count no lines."""
    files, added, deleted = numstat(path, _start(path, base_commit), env=unfiltered(path))
    untracked = untracked_files(path)
    added += sum(_count_lines(Path(path) / name) for name in untracked)
    return ChangeStats(len({*files, *untracked}), added, deleted, len(untracked))


def numstat(path: str | Path, *revisions: str, env: Mapping[str, str] | None = None) -> tuple[list[str], int, int]:
    """The files that differ and the lines added and deleted, from one commit to the worktree or to another."""
    listed = _git(path, "diff", "--numstat", "-z", *_PLAIN, *revisions, "--", env=env)
    fields = iter(nul_list_with_empty(listed))
    files, added, deleted = dict[str, None](), 0, 0
    for field in fields:
        plus, minus, name = field.split("\t", 2)
        if not name:
            next(fields)
            name = next(fields)
        files[name] = None
        added += int(plus) if plus.isdigit() else 0
        deleted += int(minus) if minus.isdigit() else 0
    return list(files), added, deleted


def changes(path: str | Path, base_commit: str | None) -> list[FileChange]:
    """Every file that differs from the commit, untracked ones last; a nested repository ends in `/`."""
    how = ("diff", "--name-status", "-z", *_PLAIN, _start(path, base_commit), "--")
    fields = iter(nul_list(_git(path, *how, env=unfiltered(path))))
    found: dict[str, FileChange] = {}
    for field in fields:
        status, name = field[0], next(fields)
        old_path = name if status in "RC" else None
        change = FileChange(next(fields) if old_path else name, status, old_path=old_path)
        if found.get(change.path, change).status != "U":
            found[change.path] = change
    fresh = [FileChange(name, "A", untracked=True) for name in untracked_files(path)]
    return [*found.values(), *fresh]


def diff(path: str | Path, base_commit: str | None, *, max_bytes: int) -> str:
    """The change against the commit as text, untracked files included, cut after `max_bytes`."""
    filters = unfiltered(path)
    with scratch_index(path) as index:
        env = {**index, **filters}
        fresh = [name for name in untracked_files(path) if not name.endswith("/")]
        if fresh:
            _git(
                path,
                *("add", "--intent-to-add", "--force", "--pathspec-from-file=-", "--pathspec-file-nul"),
                env={**env, "GIT_LITERAL_PATHSPECS": "1"},
                stdin=b"".join(os.fsencode(name) + b"\0" for name in fresh),
            )
        return shown(path, "diff", *_PLAIN, _start(path, base_commit), "--", env=env, max_bytes=max_bytes)


def is_dirty(path: str | Path) -> bool:
    """Whether anything is not committed: staged, changed, untracked, or changed and hidden from `git status`."""
    how = ("status", "--porcelain", "-z", "--untracked-files=normal", "--ignore-submodules=none")
    return bool(_git(path, *how, env=unfiltered(path))) or bool(hidden_files(path))


def dirty_files(path: str | Path) -> list[str]:
    """The paths of everything that is not committed."""
    how = ("status", "--porcelain", "-z", "--untracked-files=all", "--ignore-submodules=none", "--no-renames")
    found = nul_list(_git(path, *how, env=unfiltered(path)))
    return [*(line[3:] for line in found), *hidden_files(path)]


def untracked_files(path: str | Path) -> list[str]:
    """Untracked files that are not ignored; a nested repository is one entry ending in `/`."""
    return nul_list(_git(path, "ls-files", "--others", "--exclude-standard", "-z"))


def hidden_files(path: str | Path) -> list[str]:
    """Files changed on disk that git was told not to look at (assume-unchanged, skip-worktree)."""
    flagged: dict[str, str] = {}
    for line in nul_list(_git(path, "ls-files", "--stage", "-v", "-z")):
        facts, _, name = line.partition("\t")
        tag, _, oid, _ = facts.split(" ")
        place = Path(path) / name
        if (tag.islower() or tag == "S") and place.is_file() and not place.is_symlink():
            flagged[name] = oid
    changed = []
    env = without_own_filters(path) if flagged else {}
    for names in in_chunks(list(flagged)):
        oids = text(path, "hash-object", "--", *names, env=env).split("\n")
        changed += [name for name, oid in zip(names, oids, strict=True) if flagged[name] != oid]
    return changed


def unfiltered(path: str | Path) -> dict[str, str]:
    """Environment in which git runs no filter that the worktree or a submodule in it has configured itself."""
    return without_own_filters(path, *_submodules(Path(path)))


def _submodules(path: Path) -> list[Path]:
    """The submodules with a repository, and those inside them: git asks for the status of each."""
    listed = nul_list(_git(path, "ls-files", "--stage", "-z"))
    named = [path / line.partition("\t")[2] for line in listed if line.startswith("160000 ")]
    found = [place for place in named if not place.is_symlink() and find_checkout(place) is not None]
    return [*found, *(inner for place in found for inner in _submodules(place))]


@contextlib.contextmanager
def scratch_index(path: str | Path) -> Iterator[dict[str, str]]:
    """The environment in which git works on a copy of the worktree's index, thrown away at the end."""
    with tempfile.TemporaryDirectory(prefix="swarm-index-") as folder:
        copy = Path(folder) / "index"
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(git_dirs(path)[0] / "index", copy)
        yield {"GIT_INDEX_FILE": str(copy)}


def empty_tree(path: str | Path) -> str:
    """The id of the tree without files, which every repository knows."""
    return text(path, "hash-object", "-t", "tree", "--stdin", stdin=b"")


def nul_list_with_empty(output: bytes) -> list[str]:
    return [os.fsdecode(item) for item in output.split(b"\0")[:-1]]


def _start(path: str | Path, base_commit: str | None) -> str:
    if base_commit is None:
        return empty_tree(path)
    check_commit_id(base_commit)
    return base_commit


def _count_lines(path: Path) -> int:
    """Lines as `git diff --numstat` counts them for a new file."""
    try:
        facts = path.lstat()
        if stat.S_ISLNK(facts.st_mode):
            return 1
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > _COUNTED_BYTES:
            return 0
        content = files.read_regular(path, _COUNTED_BYTES)
    except OSError:  # gone or unreadable since it was listed
        return 0
    if b"\0" in content[:_SNIFFED_BYTES]:
        return 0
    return content.count(b"\n") + (not content.endswith(b"\n") and bool(content))

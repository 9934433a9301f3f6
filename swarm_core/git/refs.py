"""What HEAD and branches point at, read in this process through GitPython: no git program is started."""

from __future__ import annotations

import configparser
import contextlib
import functools
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from swarm_core import files
from swarm_core.errors import NotFound
from swarm_core.git import special
from swarm_core.git.command import _git, environment_lock, nul_list

if TYPE_CHECKING:
    import git

_NO_PROGRAM = {"GIT_PYTHON_REFRESH": "quiet", "GIT_PYTHON_GIT_EXECUTABLE": os.devnull}


def head_commit(path: str | Path) -> str | None:
    """The commit a worktree is at; None when it has no commit yet."""
    return ref_commit(path, "HEAD")


def current_branch(path: str | Path) -> str | None:
    """The branch a worktree is on, born or not; None when HEAD is detached."""
    with opened(path) as repo:
        head = os.fsdecode(files.read_small(Path(repo.git_dir) / "HEAD")).strip()
    return head.removeprefix("ref: refs/heads/") if head.startswith("ref: refs/heads/") else None


def ref_commit(path: str | Path, ref: str) -> str | None:
    """What a full ref name points at; None when it does not exist."""
    with opened(path, ref) as repo:
        try:
            return str(_gitpython().SymbolicReference.dereference_recursive(repo, ref))
        except (ValueError, AssertionError):  # missing, or a format GitPython does not read
            pass
    found = _git(path, "rev-parse", "--verify", "--quiet", f"{ref}^0", ok_codes=(0, 1))
    return found.decode().strip() or None


def branches(repo: str | Path, prefix: str = "") -> set[str]:
    """The short names of the local branches that start with `prefix`."""
    folder = prefix.rpartition("/")[0]
    pattern = f"refs/heads/{folder}/" if folder and not set(folder) & set("*?[\\") else "refs/heads/"
    names = _git(repo, "for-each-ref", "--format=%(refname:lstrip=2)%00", pattern)
    return {name for line in nul_list(names) if (name := line.lstrip("\n")) and name.startswith(prefix)}


# Lists refs for `plain_refs`, with what restricts them after it.
LIST_REFS = ("for-each-ref", "--format=%(objectname) %(refname) %(symref)%00")


def plain_refs(listed: bytes) -> list[tuple[str, str]]:
    """Refs and the objects they name, from what LIST_REFS printed.

    Symbolic ones are left out: they hold nothing and dangle when the ref that they name goes.
    """
    found = [line.lstrip("\n").split(" ") for line in nul_list(listed)]
    return [(fields[1], fields[0]) for fields in found if len(fields) == 3 and not fields[2]]


def git_dirs(path: str | Path) -> tuple[Path, Path]:
    """A worktree's own git folder and the one all worktrees of the repository share."""
    with opened(path) as repo:
        return Path(os.path.realpath(repo.git_dir)), Path(os.path.realpath(repo.common_dir))


@contextlib.contextmanager
def opened(path: str | Path, ref: str | None = None) -> Iterator[git.Repo]:
    """GitPython's view of the repository at exactly `path`; raises SPECIAL_FILE where it would wait for ever."""
    gitpython = _gitpython()
    special.refuse_refs(path, ref)
    try:
        repo = _repo_class()(path)
    except gitpython.NoSuchPathError as error:
        raise NotFound(f"{path} does not exist", code="WORKTREE_NOT_FOUND", details={"path": str(path)}) from error
    except gitpython.InvalidGitRepositoryError as error:
        raise NotFound(
            f"{path} is not a git repository", code="GIT_REPOSITORY_NOT_FOUND", details={"path": str(path)}
        ) from error
    with contextlib.closing(repo):
        yield repo


@functools.cache
def _repo_class() -> type[git.Repo]:
    class Unconfigured(_gitpython().Repo):  # type: ignore[misc]
        """Reads no configuration, which may include any file; we ask only where the git folders are."""

        def _config_reader(self, *_: object, **__: object) -> configparser.RawConfigParser:
            return configparser.RawConfigParser()

    return Unconfigured


@functools.cache
def _gitpython() -> ModuleType:
    """GitPython, imported when first needed (120 ms of CPU)."""
    with environment_lock:  # of threads that come here at once, the second finds it imported
        return _imported()


@functools.cache
def _imported() -> ModuleType:
    """GitPython would run git when it is imported, which may fail or hang."""
    before = {name: os.environ.get(name) for name in _NO_PROGRAM}
    os.environ.update(_NO_PROGRAM)
    try:
        import git  # noqa: PLC0415
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    return git

"""The one place where git programs are started and their failures get a name.

GitPython's `execute` cannot hand descriptors to the child, take bytes on stdin and end the whole process
group after a timeout, so commands go through `proc.run`; GitPython reads refs in this process (`refs`).
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import threading
from collections.abc import Container, Mapping, Sequence
from pathlib import Path

from swarm_core import proc
from swarm_core.errors import ExternalFailure, InvalidInput
from swarm_core.github_token import SECRETS

# Held by who changes this process's environment for a moment, and by who copies it.
environment_lock = threading.Lock()

DEFAULT_TIMEOUT = 120.0
LONG_TIMEOUT = 1800.0

_CHUNK = 500
_NO_SPACE_LEFT = 64 * 1024
_NO_FILES_LEFT = 16
# A hook that starts swarm must not point us at its own repository.
_LOCAL_VARIABLES = frozenset(
    {
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_COMMON_DIR",
        "GIT_CONFIG",
        "GIT_CONFIG_PARAMETERS",
        "GIT_DIR",
        "GIT_GRAFT_FILE",
        "GIT_IMPLICIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_INTERNAL_SUPER_PREFIX",
        "GIT_NAMESPACE",
        "GIT_NO_REPLACE_OBJECTS",
        "GIT_OBJECT_DIRECTORY",
        "GIT_PREFIX",
        "GIT_QUARANTINE_PATH",
        "GIT_REPLACE_REF_BASE",
        "GIT_SHALLOW_FILE",
        "GIT_WORK_TREE",
    }
)
_QUIET = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}
# No daemon (a file-system watcher would inherit our locks) and no hook: one that fails must not stop a rescue.
_ALONE = (
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "gc.auto=0",
    "-c",
    "maintenance.auto=false",
)
_ANY_CODE = range(-255, 256)


def _git(
    cwd: str | Path,
    *args: str,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    keep_open: Sequence[int] = (),
    timeout: float = DEFAULT_TIMEOUT,
    ok_codes: Container[int] = (0,),
) -> bytes:
    """Run git in `cwd` and return what it printed; `env` is added to a cleaned environment.

    Raises CommandFailed (GIT_COMMAND_FAILED) on any exit code outside `ok_codes`, ExternalFailure (DISK_FULL)
    when the disk has no room left, TimedOut, and ExternalFailure with a hint when git is not installed.
    """
    return _run(cwd, *args, env=env, stdin=stdin, keep_open=keep_open, timeout=timeout, ok_codes=ok_codes).stdout


def code_of(cwd: str | Path, *args: str, ok_codes: Container[int] = (0, 1)) -> int:
    """The exit code of a command that answers with it."""
    return _run(cwd, *args, ok_codes=ok_codes).returncode


def text(cwd: str | Path, *args: str, env: Mapping[str, str] | None = None, stdin: bytes | None = None) -> str:
    """What git printed on one line, such as an object id."""
    return os.fsdecode(_git(cwd, *args, env=env, stdin=stdin)).strip()


def run_hook(cwd: str | Path, name: str, *args: str) -> None:
    """Run a repository's hook as git does; like in git, its failure undoes nothing.

    No descriptor of ours reaches the hook, so a daemon started by it keeps no lock.
    """
    proc.run(
        ["git", "-C", str(cwd), "hook", "run", "--ignore-missing", name, "--", *args],
        env=clean_environment(),
        timeout=LONG_TIMEOUT,
        check=False,
    )


def run_post_checkout(path: str | Path, old: str | None, new: str) -> None:
    run_hook(path, "post-checkout", old or "0" * len(new), new, "1")


@functools.cache
def git_version() -> tuple[int, ...]:
    """The installed git's version, for example (2, 39, 5)."""
    found = re.search(rb"(\d+(?:\.\d+)+)", _git(".", "version"))
    return tuple(int(part) for part in found[1].split(b".")) if found else (0,)


def nul_list(output: bytes) -> list[str]:
    """The entries of a `-z` listing; bytes that are no UTF-8 survive as surrogates."""
    return [os.fsdecode(item) for item in output.split(b"\0") if item]


def in_chunks(items: Sequence[str]) -> list[Sequence[str]]:
    return [items[start : start + _CHUNK] for start in range(0, len(items), _CHUNK)]


def clean_environment() -> dict[str, str]:
    with environment_lock:
        kept = os.environ.items()
        return {name: value for name, value in kept if name not in _LOCAL_VARIABLES and name not in SECRETS}


def check_branch_name(name: str) -> None:
    """Raise InvalidInput (INVALID_BRANCH_NAME) unless git accepts the name for a local branch."""
    if name.startswith("-") or name in {"HEAD", "@"} or not _is_ref_path(name):
        raise InvalidInput(
            f"{name!r} is not a valid branch name",
            code="INVALID_BRANCH_NAME",
            hint="use letters, digits, '-', '_', '.' and '/', for example work/login-form",
        )


def check_revision(name: str) -> None:
    """Accept a ref name, object id or one of them followed by ~n and ^n; everything else is InvalidInput."""
    plain = re.sub(r"[~^][0-9~^]*\Z", "", name)
    if name.startswith("-") or not (_is_ref_path(plain) or plain == "@"):
        raise InvalidInput(
            f"{name!r} does not name a branch, tag or commit",
            code="INVALID_BRANCH_NAME",
            hint="give the name of a branch or tag, or a commit id",
        )


def check_commit_id(commit: str) -> None:
    if not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", commit):
        raise InvalidInput(f"{commit!r} is not a full commit id")


def check_swarm_ref(ref: str) -> None:
    if not ref.startswith("refs/swarm/") or not _is_ref_path(ref):
        raise InvalidInput(f"{ref!r} is not a ref under refs/swarm/")


def _is_ref_path(name: str) -> bool:
    """git check-ref-format's rules, plus a length every file system can hold."""
    if re.search(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//", name) or not name.isprintable():
        return False
    parts = name.split("/")
    return not name.endswith(".") and all(
        part and not part.startswith(".") and not part.endswith(".lock") and len(part.encode()) <= 240
        for part in parts
    )


def _run(
    cwd: str | Path,
    *args: str,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    keep_open: Sequence[int] = (),
    timeout: float = DEFAULT_TIMEOUT,
    ok_codes: Container[int] = (0,),
) -> proc.Completed:
    try:
        done = proc.run(
            ["git", "-C", str(cwd), *_ALONE, *args],
            env={**clean_environment(), **_QUIET, **(env or {})},
            stdin=stdin,
            keep_open=keep_open,
            timeout=timeout,
            check=False,
        )
    except ExternalFailure as error:
        if shutil.which("git") is None:
            raise ExternalFailure(
                "git is not installed", hint="install it, for example: apt-get install git"
            ) from error
        raise
    if done.returncode not in ok_codes:
        raise _failure(done, cwd)
    return done


def _failure(done: proc.Completed, cwd: str | Path) -> ExternalFailure:
    failed = proc.command_failed(done, code="GIT_COMMAND_FAILED")
    if Path(cwd).is_dir():
        room = os.statvfs(cwd)
        # /proc and the like have no blocks at all; some file systems have no limit of files
        no_bytes = room.f_blocks and room.f_bavail * room.f_frsize < _NO_SPACE_LEFT
        no_files = room.f_files and room.f_favail < _NO_FILES_LEFT
        if no_bytes or no_files:
            return ExternalFailure(
                f"no space is left at {cwd}: {failed.message}",
                code="DISK_FULL",
                hint="free some space and try again",
                details=failed.details,
            )
    return failed

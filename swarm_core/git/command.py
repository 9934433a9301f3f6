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
from swarm_core.errors import ExternalFailure, InvalidInput, TimedOut
from swarm_core.git import special
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
# An agent can put another object in the place of any, for all worktrees at once: we read what was committed.
_AS_COMMITTED = {"GIT_NO_REPLACE_OBJECTS": "1", "GIT_GRAFT_FILE": f"{os.devnull}/grafts"}
_QUIET = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}
# Git believes this file about parents and trees without looking at the commits.
_NO_GRAPH = ("core.commitGraph", "false")
# No daemon (a file-system watcher would inherit our locks) and no hook: one that fails must not stop a rescue.
_UNATTENDED = (("core.hooksPath", "/dev/null"), ("core.fsmonitor", "false"), ("gc.auto", "0"))
# An agent can write .git/config: whatever it says there, output has one form and a diff shows everything.
_AS_DOCUMENTED = (
    *(("color.ui", "false"), ("color.diff", "false"), ("core.bigFileThreshold", "512m")),
    *(("diff.context", "3"), ("diff.interHunkContext", "0"), ("diff.mnemonicPrefix", "false")),
    *(("diff.noprefix", "false"), ("diff.srcPrefix", "a/"), ("diff.dstPrefix", "b/")),
    *(("diff.orderFile", "/dev/null"), ("diff.relative", "false"), ("diff.submodule", "short")),
    *(("diff.suppressBlankEmpty", "false"), ("i18n.logOutputEncoding", "UTF-8")),
)
_SETTINGS = (*_UNATTENDED, ("maintenance.auto", "false"), _NO_GRAPH, *_AS_DOCUMENTED)
_ALONE = tuple(part for key, value in _SETTINGS for part in ("-c", f"{key}={value}"))
_COMPARING = frozenset({"diff", "diff-files", "diff-index", "diff-tree"})
# No setting overrides `ignore` of a submodule, in .git/config or .gitmodules; only an option does.
_WITH_SUBMODULES = "--ignore-submodules=untracked"
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

    Raises CommandFailed (GIT_COMMAND_FAILED) on any exit code outside `ok_codes`; ExternalFailure with DISK_FULL
    when the disk has no room left, with SPECIAL_FILE when git would wait for a named pipe, and with a hint when
    git is not installed; and TimedOut.
    """
    return _run(cwd, *args, env=env, stdin=stdin, keep_open=keep_open, timeout=timeout, ok_codes=ok_codes).stdout


def shown(cwd: str | Path, *args: str, env: Mapping[str, str] | None = None, max_bytes: int) -> str:
    """What git prints, as text cut after `max_bytes`; git is ended there, so that a huge output costs nothing."""
    argv = _argv(cwd, args)
    full = {**clean_environment(), **_QUIET, **(env or {})}
    special.refuse(cwd, env or {})
    try:
        done, cut = proc.run_cut(argv, env=full, most=max_bytes, timeout=DEFAULT_TIMEOUT)
    except TimedOut as error:
        raise special.explained(error, cwd) from error
    if not cut:
        if done.returncode != 0:
            raise _failure(done, cwd)
        return done.stdout.decode(errors="replace")
    kept = done.stdout.rpartition(b"\n")[0].decode(errors="replace")
    return f"{kept}\n[diff cut: the first {max_bytes} bytes are shown]\n"


def without_own_filters(*places: str | Path) -> dict[str, str]:
    """Environment in which git runs no filter that the own configuration of these repositories or worktrees names.

    An agent can write those; the filters of the person's own configuration, such as git-lfs, still run.
    """
    drivers = sorted({driver for place in places for driver in _own_filters(place)})
    off = [(f"{driver}.{name}", "") for driver in drivers for name in ("clean", "smudge", "process")]
    off += [(f"{driver}.required", "false") for driver in drivers]
    return with_settings(os.environ, off)


def _own_filters(cwd: str | Path) -> list[str]:
    asked = ("config", "--show-scope", "-z", "--get-regexp", r"^filter\..*\.(clean|smudge|process)$")
    listed = _git(cwd, *asked, ok_codes=(0, 1)).split(b"\0")
    own = [
        named for scope, named in zip(listed[::2], listed[1::2], strict=False) if scope in (b"local", b"worktree")
    ]
    return [os.fsdecode(named.partition(b"\n")[0]).rpartition(".")[0] for named in own]


def with_settings(environ: Mapping[str, str], settings: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Variables with which git has these settings after those that the environment already gives it."""
    count = environ.get("GIT_CONFIG_COUNT", "")
    first = int(count) if count.isdigit() else 0
    said = {"GIT_CONFIG_COUNT": str(first + len(settings))} if settings else {}
    for number, (key, value) in enumerate(settings, start=first):
        said |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return said


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
        mine = {name: value for name, value in kept if name not in _LOCAL_VARIABLES and name not in SECRETS}
    return mine | _AS_COMMITTED


def as_committed(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment with what makes every git in it show objects as they were committed."""
    return {**environ, **_AS_COMMITTED, **with_settings(environ, [_NO_GRAPH])}


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


def _argv(cwd: str | Path, args: Sequence[str]) -> list[str]:
    """The command line; a command that compares shows submodules, unless it says itself which changes of them."""
    at = 0
    while at < len(args) and args[at].startswith("-"):
        at += 2 if args[at] == "-c" else 1
    told = [*args]
    if told[at : at + 1] and told[at] in _COMPARING:
        told.insert(at + 1, _WITH_SUBMODULES)  # of two such options the later one counts
    return ["git", "-C", str(cwd), *_ALONE, *told]


def _run(
    cwd: str | Path,
    *args: str,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    keep_open: Sequence[int] = (),
    timeout: float = DEFAULT_TIMEOUT,
    ok_codes: Container[int] = (0,),
) -> proc.Completed:
    special.refuse(cwd, env or {})
    try:
        done = proc.run(
            _argv(cwd, args),
            env={**clean_environment(), **_QUIET, **(env or {})},
            stdin=stdin,
            keep_open=keep_open,
            timeout=timeout,
            check=False,
        )
    except TimedOut as error:
        raise special.explained(error, cwd) from error
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

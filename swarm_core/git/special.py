"""Named pipes and devices in the place of git's files, for which git would wait for ever, and files without end.

An agent can make one. What every git command opens is looked at before each; what lies deeper in a worktree is
searched for before a removal and after a command that did not end.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from swarm_core import files
from swarm_core.errors import ExternalFailure, TimedOut

_IN_TREE = (".gitignore", ".gitattributes", ".gitmodules")
_OWN = ("HEAD", "index", "commondir", "config.worktree")
_SHARED = (
    *("HEAD", "config", "packed-refs", "shallow", "info/exclude", "info/attributes"),
    "objects/info/alternates",
)
_NAMED = re.compile(
    rb"(?im)(?:^|\])[ \t]*(?:\[([a-z0-9.-]+)|(path|excludesfile|attributesfile)[ \t]*=[ \t]*([^\r\n]+)$)"
)
_INCLUDE = (b"", b"include", b"includeif")  # the first where no section was seen
_DEPTH = 10  # as deep as git follows includes
# A command that did not end has told what is in the way; the next one need not wait for it again.
_known: dict[str, list[str]] = {}


def refuse(cwd: str | Path, env: Mapping[str, str]) -> None:
    """Raise SPECIAL_FILE if git, run in `cwd`, would wait for one of its files."""
    top, git_dir = _place(str(cwd), env)
    for path in _opened(top, git_dir):
        if _is_special(path, follow=os.path.basename(path) not in _IN_TREE):  # noqa: PTH119  at every command
            raise files.special(path)
    left = [path for path in _known.pop(top, ()) if _is_special(path, follow=False)]
    if left:
        _known[top] = left
        raise files.special(left[0])


def refuse_refs(path: str | Path, ref: str | None) -> None:
    """Raise SPECIAL_FILE if reading a ref in this process would wait for one of git's files."""
    top, git_dir = _place(str(path), {})
    shared = _shared(git_dir)
    names = [f"{git_dir}/{name}" for name in ("HEAD", "commondir", "gitdir")]
    names += [f"{shared}/{name}" for name in ("HEAD", "packed-refs")]
    for name in {ref, _target(git_dir)} - {None, "HEAD"}:
        names += [f"{git_dir}/{name}", f"{shared}/{name}"]
    for name in (f"{top}/.git", *names):
        if _is_special(name):
            raise files.special(name)


def search(folder: Path) -> list[str]:
    """The special files for which git would wait in a worktree, in its own git folder and below the worktree."""
    top, git_dir = _place(str(folder), {})
    found = [path for path in _opened(top, git_dir) if _is_special(path, follow=Path(path).name not in _IN_TREE)]
    for below, _, names in os.walk(folder):
        places = [f"{below}/{name}" for name in _IN_TREE if name in names]
        found += [path for path in places if _is_special(path, follow=False)]
    return list(dict.fromkeys(found))


def explained(error: TimedOut, cwd: str | Path) -> ExternalFailure:
    """What a git command that did not end waited for, if that can be found."""
    found = search(Path(cwd))
    if found:
        _known[_place(str(cwd), {})[0]] = found
        return files.special(found[0])
    hint = f"look at what `git -C {cwd} status` waits for, or try again when the machine is less busy"
    return TimedOut(error.message, hint=hint, details=error.details)


def _place(cwd: str, env: Mapping[str, str]) -> tuple[str, str]:
    """The top folder of the files that git works on, and its git folder."""
    if given := env.get("GIT_DIR"):
        return env.get("GIT_WORK_TREE", cwd), os.path.join(cwd, given)  # noqa: PTH118
    here = os.path.abspath(cwd)  # noqa: PTH100
    for top in (here, *map(str, Path(here).parents)):
        dot_git = f"{top}/.git"
        if os.path.isdir(dot_git):  # noqa: PTH112
            return top, dot_git
        if os.path.lexists(dot_git):
            return top, _linked(top)
    return here, here


def _linked(top: str) -> str:
    link = _content(f"{top}/.git")
    return os.path.join(top, os.fsdecode(link).removeprefix("gitdir: ").rstrip("\r\n"))  # noqa: PTH118


def _shared(git_dir: str) -> str:
    named = os.fsdecode(_content(f"{git_dir}/commondir")).rstrip("\r\n")
    return os.path.normpath(os.path.join(git_dir, named)) if named else git_dir  # noqa: PTH118


def _target(git_dir: str) -> str | None:
    head = os.fsdecode(_content(f"{git_dir}/HEAD")).strip()
    return head.removeprefix("ref: ") if head.startswith("ref: refs/") else None


def _opened(top: str, git_dir: str) -> Iterator[str]:
    yield f"{top}/.git"
    yield from (f"{top}/{name}" for name in _IN_TREE)
    yield from (f"{git_dir}/{name}" for name in _OWN)
    shared = _shared(git_dir)
    yield from (f"{shared}/{name}" for name in _SHARED)
    seen: set[str] = set()
    for config in (f"{shared}/config", f"{git_dir}/config.worktree"):
        yield from _configured(config, seen)


def _configured(config: str, seen: set[str], depth: int = 0, *, is_config: bool = True) -> Iterator[str]:
    """The files that a configuration file names, and those that the files it includes name.

    What another setting named `path` names, such as a difftool, may be large.
    """
    if config in seen or depth > _DEPTH:
        return
    seen.add(config)
    section = b""
    for header, key, value in _NAMED.findall(_content(config, is_small=is_config)):
        section = header.lower() or section
        if header:
            continue
        name = os.fsdecode(value).strip().strip('"')
        path = os.path.join(os.path.dirname(config), os.path.expanduser(name))  # noqa: PTH111, PTH118, PTH120
        yield path
        if key.lower() == b"path":
            yield from _configured(path, seen, depth + 1, is_config=section in _INCLUDE)


def _content(path: str, *, is_small: bool = True) -> bytes:
    """What the file has, empty where it cannot be read; raise SPECIAL_FILE if it is large and should be small."""
    try:
        data = files.read_regular(path, files.SMALL + 1)
    except (OSError, ValueError, ExternalFailure):
        return b""
    if is_small and len(data) > files.SMALL:
        raise files.too_large(path)
    return data


def _is_special(path: str, *, follow: bool = True) -> bool:
    try:
        facts = os.stat(path, follow_symlinks=follow)  # noqa: PTH116  many, at every command
    except (OSError, ValueError):
        return False
    if stat.S_ISCHR(facts.st_mode):
        return facts.st_rdev != os.stat(os.devnull).st_rdev  # noqa: PTH116
    return stat.S_ISFIFO(facts.st_mode)

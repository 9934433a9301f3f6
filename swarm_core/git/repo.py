"""The repository a person names: where its main checkout is, and which commit new work starts from."""

from __future__ import annotations

import difflib
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from swarm_core.errors import CommandFailed, InvalidInput, NotFound, SwarmError
from swarm_core.git.command import _git, check_revision, nul_list
from swarm_core.git.refs import branches, current_branch, head_commit

_SETTINGS = r"^(core\.bare|core\.worktree|remote\..*\.url)$"


@dataclass(frozen=True, slots=True)
class RepoInfo:
    path: str
    common_dir: str
    default_branch: str | None
    head_commit: str | None
    remote_url: str | None
    remotes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Base:
    branch: str
    commit: str | None


def inspect(path: str | Path) -> RepoInfo:
    """Find the repository around `path` (a subfolder or linked worktree will do) and its main checkout.

    A name or token inside the remote's web address is left out of the result.
    """
    if not str(path):
        raise InvalidInput("the path of a repository cannot be empty", hint="give its folder, for example .")
    common_dir, git_dir = _find(Path(path))
    settings = _settings(common_dir)
    root = _main_root(Path(path), common_dir, git_dir, settings)
    return RepoInfo(
        path=str(root),
        common_dir=str(common_dir),
        default_branch=current_branch(root),
        head_commit=head_commit(root),
        remote_url=_remote_url(settings),
        remotes=_remotes(settings),
    )


def resolve_base(repo: str | Path, name: str | None) -> Base:
    """The commit that `name` (branch, remote branch, tag, commit id; None for the current branch) stands for.

    A local branch wins over a tag of the same name. Raises NotFound (GIT_BRANCH_NOT_FOUND).
    """
    if name is None:
        return Base(current_branch(repo) or "HEAD", head_commit(repo))
    check_revision(name)
    candidates = {
        f"refs/heads/{name}": name,
        f"refs/remotes/{name}": name,
        f"refs/tags/{name}": name,
        name: name,
        f"refs/remotes/origin/{name}": f"origin/{name}",
    }
    asked = "".join(f"{candidate}^{{commit}}\n" for candidate in candidates).encode()
    answers = _git(repo, "cat-file", "--batch-check=%(objectname)", stdin=asked).decode().splitlines()
    for answer, branch in zip(answers, candidates.values(), strict=True):
        if re.fullmatch(r"[0-9a-f]{40,64}", answer):
            return Base(branch, answer)
    raise _unknown_base(repo, name)


def public_url(url: str) -> str:
    """A remote's address without the name or token that a web address may carry."""
    return re.sub(r"^(https?://)[^/]*@", r"\1", url)


def _find(path: Path) -> tuple[Path, Path]:
    try:
        path.absolute()
    except FileNotFoundError:
        raise NotFound(
            "the current folder is gone",
            code="GIT_REPOSITORY_NOT_FOUND",
            hint="change to the folder of a git repository",
        ) from None
    if not path.is_dir():
        raise NotFound(
            f"{path} is not a folder",
            code="GIT_REPOSITORY_NOT_FOUND",
            hint="give the folder of a git repository",
            details={"path": str(path)},
        )
    try:
        found = _git(path, "rev-parse", "--path-format=absolute", "--git-common-dir", "--git-dir")
    except CommandFailed as error:
        raise _why_not_found(path) from error
    folders = os.fsdecode(found).splitlines()
    if len(folders) != 2:
        raise InvalidInput(
            f"the path of the repository around {path} has a line break",
            code="GIT_REPOSITORY_INVALID",
            hint="rename the folder",
        )
    common_dir, git_dir = folders
    return Path(common_dir).resolve(), Path(git_dir).resolve()


def _why_not_found(path: Path) -> SwarmError:
    here = path.resolve()
    marked = next((folder for folder in (here, *here.parents) if _looks_like_repository(folder)), None)
    if marked is None:
        return NotFound(
            f"{path} is not inside a git repository",
            code="GIT_REPOSITORY_NOT_FOUND",
            hint=f"run `git init {path}` or give another folder",
            details={"path": str(path)},
        )
    if marked.stat().st_uid != os.geteuid():
        hint = f"it belongs to another user; to trust it: git config --global --add safe.directory {marked}"
    else:
        hint = f"see what is wrong with: git -C {marked} fsck"
    return InvalidInput(
        f"git cannot use the repository at {marked}",
        code="GIT_REPOSITORY_INVALID",
        hint=hint,
        details={"path": str(marked)},
    )


def _looks_like_repository(folder: Path) -> bool:
    return os.path.lexists(folder / ".git") or all(
        (folder / name).exists() for name in ("HEAD", "objects", "refs")
    )


def _settings(common_dir: Path) -> dict[str, str]:
    listed = _git(common_dir, "config", "-z", "--local", "--get-regexp", _SETTINGS, ok_codes=(0, 1))
    pairs = [item.partition("\n") for item in nul_list(listed)]
    return {key: value for key, _, value in pairs}


def _main_root(path: Path, common_dir: Path, git_dir: Path, settings: dict[str, str]) -> Path:
    if settings.get("core.bare", "").lower() in {"true", "yes", "on", "1"}:
        raise InvalidInput(
            f"{common_dir} is a bare repository",
            code="GIT_REPOSITORY_INVALID",
            hint="give a clone of it that has files",
            details={"path": str(common_dir)},
        )
    if "core.worktree" in settings:
        return (common_dir / settings["core.worktree"]).resolve()
    if common_dir.name == ".git":
        return common_dir.parent
    if common_dir == git_dir:
        return Path(os.fsdecode(_git(path, "rev-parse", "--show-toplevel")).removesuffix("\n")).resolve()
    raise InvalidInput(
        f"the main checkout of {common_dir} cannot be found from {path}",
        code="GIT_REPOSITORY_INVALID",
        hint="give the folder of the main checkout",
        details={"path": str(path)},
    )


def _remote_url(settings: dict[str, str]) -> str | None:
    urls = [value for key, value in settings.items() if key.startswith("remote.")]
    url = settings.get("remote.origin.url") or (urls[0] if urls else None)
    return public_url(url) if url else None


def _remotes(settings: dict[str, str]) -> dict[str, str]:
    """Addresses by the remotes' names."""
    urls = {key: url for key, url in settings.items() if key.startswith("remote.") and key.endswith(".url")}
    return {key.removeprefix("remote.").removesuffix(".url"): public_url(url) for key, url in urls.items()}


def _unknown_base(repo: str | Path, name: str) -> NotFound:
    if name == current_branch(repo) and head_commit(repo) is None:
        return NotFound(
            f"{name} has no commit yet",
            code="GIT_BRANCH_NOT_FOUND",
            hint=f"make the first commit on {name}; work that was begun before needs `git rebase {name}` then",
            details={"name": name, "close": []},
        )
    known = branches(repo)
    name = name[:200]
    close = difflib.get_close_matches(name, known, n=3) or sorted(known)[:3]
    return NotFound(
        f"there is no branch, tag or commit {name}",
        code="GIT_BRANCH_NOT_FOUND",
        hint=f"did you mean {', '.join(close)}?" if close else "the repository has no branch yet",
        details={"name": name, "close": close},
    )

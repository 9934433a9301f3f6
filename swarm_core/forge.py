"""Where issues and pull requests live: the protocols of a forge, and the local one that needs no GitHub."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from swarm_core.errors import ExternalFailure

TITLE_CHARS = 300


@dataclass(frozen=True, slots=True)
class Issue:
    number: int
    title: str
    body: str
    url: str


@dataclass(frozen=True, slots=True)
class Draft:
    """A pull request that is to be opened."""

    title: str
    body: str
    head_branch: str
    base_branch: str
    head_commit: str


@dataclass(frozen=True, slots=True)
class Opened:
    number: int
    url: str


class Forge(Protocol):
    name: str
    slug: str | None

    def get_issue(self, number: int) -> Issue | None:
        """The issue, None if the forge has none with this number; raises ExternalFailure."""


class PullForge(Protocol):
    name: str

    def open_pull(self, draft: Draft, *, next_number: int) -> Opened:
        """Open it and say where it is. `next_number` is for a forge that does not count itself.

        Twice is safe: with the number of one that is open, its branch has moved on.
        """

    def withdraw(self, number: int) -> None:
        """Take back one that was opened and could not be recorded."""


class LocalForge:
    """Issues as Markdown files `.swarm/issues/<N>.md` in the repository: the first line is the title.

    Pull requests are Markdown files too, outside the repository: `keep` stores one by name and returns its path,
    `drop` removes it.
    """

    name = "local"
    slug: str | None = None

    def __init__(
        self,
        repo_path: str | Path,
        *,
        keep: Callable[[str, str], str] | None = None,
        drop: Callable[[str], None] | None = None,
    ) -> None:
        self._root = Path(repo_path).resolve()
        self._keep = keep
        self._drop = drop

    def get_issue(self, number: int) -> Issue | None:
        path = (self._root / ".swarm" / "issues" / f"{int(number)}.md").resolve()
        if number < 1 or not path.is_relative_to(self._root) or not path.is_file():
            return None
        try:
            text = path.read_text(encoding="utf-8-sig", errors="replace")
        except OSError as error:
            raise ExternalFailure(
                f"cannot read issue {number}: {error.strerror}", hint=f"Check {path}.", details={"path": str(path)}
            ) from error
        title, body = split_title(text)
        return Issue(number, title or f"Issue {number}", body, path.as_uri())

    def open_pull(self, draft: Draft, *, next_number: int) -> Opened:
        """Write down what is to be merged and how; the address is that of the file, which any editor opens."""
        if self._keep is None:
            raise AssertionError("this forge was made for reading issues")
        repo, head, base = (shlex.quote(str(t)) for t in (self._root, draft.head_branch, draft.base_branch))
        text = f"""# Pull request #{next_number}: {draft.title}

- branch: {draft.head_branch} at {draft.head_commit}
- into: {draft.base_branch}

{draft.body.strip()}

## Look at it, merge it

    git -C {repo} diff {base}...{head}
    git -C {repo} switch {base} && git -C {repo} merge {head}
"""
        return Opened(next_number, Path(self._keep(_file(next_number), text)).as_uri())

    def withdraw(self, number: int) -> None:
        if self._drop is None:
            raise AssertionError("this forge was made for reading issues")
        self._drop(_file(number))


def _file(number: int) -> str:
    return f"pulls/{number}.md"


def split_title(text: str) -> tuple[str, str]:
    """The first line without its heading mark, and the rest; a title too long is kept whole in the body."""
    first, _, rest = text.strip().partition("\n")
    title = re.sub(r"^#{1,6}(\s+|$)", "", first)
    title = "".join(c if c.isprintable() else " " for c in title).strip()
    if len(title) > TITLE_CHARS:
        return title[:TITLE_CHARS], text.strip()
    return title, rest.strip()


_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_SCP = re.compile(r"(?:[^@/\s]+@)?(?P<host>[A-Za-z0-9.-]{2,}):(?P<path>[^\s]+)")
_SSH_ALIASES = {"ssh.github.com": "github.com"}


def parse_remote(url: str) -> tuple[str, str, str] | None:
    """Host, owner and name of a remote's URL; None if it is no such place. Credentials in the URL are dropped.

    The port stays with the host of an http(s) URL, where the API is, and goes with that of an ssh one.
    """
    text = url.strip()
    if "://" in text:
        host, path = _split_url(text)
    else:
        match = _SCP.fullmatch(text)
        host, path = (match["host"], match["path"]) if match else ("", "")
    parts = path.strip("/").removesuffix(".git").split("/")
    if not host or len(parts) != 2 or any(p in (".", "..") or not _NAME.fullmatch(p) for p in parts):
        return None
    host = host.lower()
    return _SSH_ALIASES.get(host, host), parts[0], parts[1]


def _split_url(text: str) -> tuple[str, str]:
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return "", ""
    if parts.scheme not in ("http", "https", "ssh", "git", "git+ssh", "ssh+git") or parts.query or parts.fragment:
        return "", ""
    host = f"[{host}]" if ":" in host else host
    default = {"http": 80, "https": 443}.get(parts.scheme)
    keeps_port = default is not None and port not in (None, default)
    return (f"{host}:{port}" if keeps_port else host), parts.path

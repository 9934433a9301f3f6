"""Where the token for GitHub comes from: the environment, a file, or gh. It is handed on and never kept.

A token knows the host it is for, so that nobody who hands it on can offer it to another.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Self
from urllib.parse import SplitResult, urlsplit

from swarm_core import proc
from swarm_core.errors import ExternalFailure, InvalidInput

_PUBLIC = ("GITHUB_TOKEN", "GH_TOKEN")
_ENTERPRISE = ("GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN")
# What no agent, hook or other program that swarm starts may see of the coordinator's environment.
SECRETS = frozenset({*_PUBLIC, *_ENTERPRISE, "SWARM_WEBHOOK_SECRET"})
_GH_TIMEOUT_S = 5.0
_LONGEST = 10_000


class Token(str):
    """A token and the host it is for, with its port; `plain_http` if it may go there unencrypted."""

    __slots__ = ("host", "plain_http")

    host: str
    plain_http: bool

    def __new__(cls, text: str, *, host: str, plain_http: bool = False) -> Self:
        made = super().__new__(cls, text)
        made.host = host
        made.plain_http = plain_http
        return made

    def __repr__(self) -> str:
        return f"Token(***, host={self.host!r})"


def vouches(api_url: str | None, host: str) -> bool:
    """Whether the API at that address is the host's: GITHUB_API_URL speaks for its own host alone, on any port."""
    name = _address(api_url or "").hostname
    if name is None:
        return False
    # The API of github.com and of an enterprise on ghe.com has a name of its own.
    own = name.removeprefix("api.") if name == "api.github.com" or name.endswith(".ghe.com") else name
    return own == _address(f"//{host}").hostname


def find_token(environ: Mapping[str, str], host: str, *, token_file: str = "") -> Token | None:
    """The token for a host, None if there is none. One of github.com is not offered to another host unasked."""
    text = _find(environ, host, token_file)
    if text is None:
        return None
    api_url = environ.get("GITHUB_API_URL", "")
    plain_http = vouches(api_url, host) and _address(api_url).scheme == "http"
    return Token(text, host=host, plain_http=plain_http)


def _find(environ: Mapping[str, str], host: str, token_file: str) -> str | None:
    is_public = host == "github.com" or vouches(environ.get("GITHUB_API_URL"), host)
    for name in (*(_PUBLIC if is_public else ()), *(_ENTERPRISE if host != "github.com" else ())):
        if token := environ.get(name, "").strip():
            return _checked(token, name)
    if token_file and (token := _from_file(Path(token_file).expanduser())):
        return _checked(token, token_file)
    if token := _from_gh(environ, host):
        return _checked(token, "`gh auth token`")
    return None


def _address(url: str) -> SplitResult:
    try:
        return urlsplit(url.strip())
    except ValueError:
        return urlsplit("")


def _checked(token: str, source: str) -> str:
    if not token.isascii() or not token.isprintable() or " " in token:
        raise _refused(f"the GitHub token from {source} is no token: it has spaces or control characters")
    return token


def _from_file(path: Path) -> str:
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(opened, "rb") as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode):
                raise _refused(f"the token file {path} is no file")
            if info.st_uid != os.getuid():
                raise _refused(f"the token file {path} belongs to somebody else")
            if stat.S_IMODE(info.st_mode) & 0o077:
                raise _refused(f"others may read the token file {path}", hint=f"chmod 600 {path}")
            return file.read(_LONGEST).decode(errors="replace").strip()
    except OSError as error:
        raise _refused(f"the token file {path} cannot be read: {error.strerror}") from None


def _from_gh(environ: Mapping[str, str], host: str) -> str:
    program = shutil.which("gh", path=environ.get("PATH", ""))
    if program is None or host.startswith("-"):
        return ""
    quiet = {"GH_PROMPT_DISABLED": "1", "GH_NO_UPDATE_NOTIFIER": "1"}
    try:
        done = proc.run(
            [program, "auth", "token", "--hostname", host],
            env={**environ, **quiet},
            timeout=_GH_TIMEOUT_S,
            check=False,
        )
    except (ExternalFailure, InvalidInput):
        return ""
    return done.text.strip() if done.returncode == 0 else ""


def _refused(message: str, *, hint: str | None = None) -> InvalidInput:
    return InvalidInput(message, code="INVALID_SETTING", hint=hint)

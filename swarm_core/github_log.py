"""The end of a check's log, which GitHub keeps on another host: the token is not sent there."""

from __future__ import annotations

import re
from urllib.parse import urljoin, urlsplit

from swarm_core.github_http import Api, opened, session_without_credentials

_MOST_BYTES = 20 * 1024 * 1024
_MOST_REDIRECTS = 3
_CONTROL = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b(?:\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)
CUT = "[the log goes on; it is too long to be read]"


def read_tail(api: Api, url: str, *, max_bytes: int) -> str:
    """The last bytes of the text, without colours; empty when the log is gone."""
    for _ in range(_MOST_REDIRECTS):
        with api.translated():
            scheme = urlsplit(url).scheme
        if scheme != "https" and (scheme != "http" or api.is_encrypted):
            raise api.failure(None, "a log is at an address that is not encrypted", code="GITHUB_ERROR")
        with (
            api.translated(),
            session_without_credentials() as session,
            opened(session, "GET", url, api.timeout_s, headers={"User-Agent": "swarm"}) as (response, pieces),
        ):
            if response.is_redirect:
                url = urljoin(url, response.headers["Location"])
                continue
            if response.status_code in (404, 410):
                return ""
            if response.status_code != 200:
                raise api.failure(response.status_code, "a log cannot be read", code="GITHUB_UNREACHABLE")
            tail, size, is_whole = bytearray(), 0, True
            for piece in pieces:
                size += len(piece)
                tail = (tail + piece)[-max_bytes:] if max_bytes > 0 else tail
                if size > _MOST_BYTES:
                    is_whole = False
                    break
        text = _CONTROL.sub("", tail.decode(errors="replace"))
        return text if is_whole else f"{text}\n{CUT}\n"
    raise api.failure(None, "a log redirects without an end", code="GITHUB_ERROR")

"""The front end's files: read once when the process starts, under a path that changes with their content."""

from __future__ import annotations

import functools
import gzip
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from swarm_core.errors import NotFound
from swarm_ui.web import endpoint

_FOLDER = Path(__file__).with_name("static")
_KINDS = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".woff2": "font/woff2",
    ".png": "image/png",
}
_PACKED = frozenset({".js", ".css", ".svg", ".json"})
_HEADERS = {"Cache-Control": "public, max-age=31536000, immutable", "Vary": "Accept-Encoding"}
_IMPORT = re.compile(r"""^\s*(?:import|export)\b[^;"'()]*?["'](\.{1,2}/[^"']+)["']""", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class File:
    kind: str
    body: bytes
    packed: bytes | None


class Files:
    """Only what is in the table can be asked for, so no path leads anywhere else."""

    def __init__(self, folder: Path) -> None:
        found = sorted(p for p in folder.rglob("*") if p.suffix in _KINDS and p.is_file() and not p.is_symlink())
        self._table = {p.relative_to(folder).as_posix(): _read(p) for p in found}
        digest = hashlib.sha256()
        for name, file in self._table.items():
            digest.update(b"%d %s %d " % (len(name), name.encode(), len(file.body)) + file.body)
        self.hash = digest.hexdigest()[:16]

    def url(self, name: str) -> str:
        return f"/static/{self.hash}/{name}"

    def get(self, path: str) -> File | None:
        prefix, _, name = path.partition("/")
        return self._table.get(name) if prefix == self.hash else None

    def named(self, suffix: str) -> list[str]:
        return [name for name in self._table if name.endswith(suffix)]

    def imported_by(self, name: str) -> list[str]:
        """What a module needs before it starts, directly or not, so that a page can ask for all of it at once."""
        found, left = dict[str, None](), [name]
        while left:
            here = left.pop()
            text = self._table[here].body.decode(errors="replace") if here in self._table else ""
            for one in _IMPORT.findall(text):
                other = _joined(here, one)
                if other in self._table and other not in found and other != name:
                    found[other] = None
                    left.append(other)
        return list(found)


@functools.cache
def files() -> Files:
    return Files(_FOLDER)


def routes() -> list[Route]:
    return [Route("/static/{path:path}", _answer, methods=["GET"])]


async def _answer(request: Request) -> Response:
    file = files().get(request.path_params["path"])
    if file is None:
        return endpoint.failed(NotFound("there is no such file", hint="reload the page"))
    if file.packed is not None and _takes_gzip(request.headers.get("accept-encoding", "")):
        headers = _HEADERS | {"Content-Encoding": "gzip"}
        return Response(file.packed, media_type=file.kind, headers=headers)
    return Response(file.body, media_type=file.kind, headers=_HEADERS)


def packed(body: bytes, accept_encoding: str) -> bytes | None:
    """The body with gzip if the client takes that and it is worth it."""
    return gzip.compress(body, 6, mtime=0) if len(body) > 1000 and _takes_gzip(accept_encoding) else None


def _takes_gzip(header: str) -> bool:
    for part in header.lower().split(","):
        coding, _, weight = part.partition(";")
        if coding.strip() in ("gzip", "*"):
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def _read(path: Path) -> File:
    body = path.read_bytes()
    return File(_KINDS[path.suffix], body, gzip.compress(body, 9, mtime=0) if path.suffix in _PACKED else None)


def _joined(here: str, relative: str) -> str:
    parts = list(PurePosixPath(here).parent.parts)
    for part in relative.split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part != ".":
            parts.append(part)
    return "/".join(parts)

"""A server that knows nothing: `python -m benchmarks.bare_page FOLDER` serves index.html and style.css."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from swarm_core import process


def main() -> None:
    folder = Path(sys.argv[1])
    kinds = {"index.html": "text/html; charset=utf-8", "style.css": "text/css; charset=utf-8"}
    packed = {name: gzip.compress((folder / name).read_bytes(), 9) for name in kinds}

    def answer(name: str) -> Route:
        async def given(_: Request) -> Response:
            return Response(packed[name], media_type=kinds[name], headers={"Content-Encoding": "gzip"})

        return Route("/" if name == "index.html" else f"/{name}", given)

    listening = process.listen(0)
    print(listening.getsockname()[1], flush=True)
    app = Starlette(routes=[answer(name) for name in kinds])
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off"))
    server.run(sockets=[listening])


if __name__ == "__main__":
    main()

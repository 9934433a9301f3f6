"""`python -m swarm_mcp` runs the coordinator; with `--stdio` it serves one client on stdin and stdout."""

from __future__ import annotations

import os
import sys

from swarm_core import config, process
from swarm_core.errors import InvalidInput


def main() -> None:
    settings = config.load(os.environ)
    if sys.argv[1:] == ["--stdio"]:
        from swarm_mcp import pipe  # noqa: PLC0415  each way needs only its own half

        pipe.run(settings, os.environ)
    elif sys.argv[1:]:
        raise InvalidInput("usage: python -m swarm_mcp [--stdio]")
    else:
        process.require_free(settings, process.COORDINATOR)
        from swarm_mcp import coordinator  # noqa: PLC0415

        coordinator.run(settings, os.environ)


if __name__ == "__main__":
    sys.exit(process.run(main))

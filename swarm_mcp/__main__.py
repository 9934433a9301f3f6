"""`python -m swarm_mcp` runs the coordinator."""

from __future__ import annotations

import os
import sys

from swarm_core import config, process
from swarm_mcp import coordinator


def main() -> None:
    coordinator.run(config.load(os.environ), os.environ)


if __name__ == "__main__":
    sys.exit(process.run(main))

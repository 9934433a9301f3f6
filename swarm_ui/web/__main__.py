"""`python -m swarm_ui.web` runs the dashboard."""

from __future__ import annotations

import os
import sys

from swarm_core import config, process
from swarm_ui.web import dashboard


def main() -> None:
    dashboard.run(config.load(os.environ), os.environ)


if __name__ == "__main__":
    sys.exit(process.run(main))

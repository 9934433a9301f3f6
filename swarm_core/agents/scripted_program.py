"""The scripted agent's entry: runs as a file under `python -I -S`, so that it starts fast and knows no site.

What it runs is a package of its own, because a file run directly is compiled anew at every start.
"""

# ruff: noqa: PTH100, PTH120
import os
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from swarm_core.agents.script.program import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

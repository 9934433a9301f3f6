"""`python -m swarm_ui.cli` is `swarm`."""

from swarm_ui.cli.main import main

main()

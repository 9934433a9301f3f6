"""Everything a person touches: the `swarm` command line, the dashboard, the terminal interface."""

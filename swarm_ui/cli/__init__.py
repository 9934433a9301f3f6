"""The `swarm` command: translates arguments into calls of `swarm_core` and their results into text or JSON.

Modules with commands keep their annotations as objects: typer evaluates strings three times, 15 ms at every start.
"""

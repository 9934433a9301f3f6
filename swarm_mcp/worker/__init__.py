"""A process beside the server for what needs threads: tools that wait for programs, and the watching of agents."""

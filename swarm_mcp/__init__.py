"""The coordinator: one process per database that supervises the agents and answers on the loopback."""

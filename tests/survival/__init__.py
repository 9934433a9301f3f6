"""A model of what must survive: random work of agents against every operation of swarm."""

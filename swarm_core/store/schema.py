"""The schema's version: how many migrations this swarm knows."""

VERSION = 10

"""Which hosts there are; one machine alone is a pool of one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from swarm_core.errors import HostLost
from swarm_core.hosts.base import Host


class HostPool:
    def __init__(self, hosts: Iterable[Host]) -> None:
        self._hosts = {host.name: host for host in hosts}

    def __iter__(self) -> Iterator[Host]:
        return iter(self._hosts.values())

    def get(self, name: str) -> Host:
        """The host of this name; one that is not in the pool is as lost as one that does not answer."""
        if name not in self._hosts:
            raise HostLost(f"host {name} is not known here", hint="known: " + ", ".join(self._hosts))
        return self._hosts[name]

    def choose(self) -> Host:
        """Where a new instance goes."""
        return next(iter(self))

    def close(self) -> None:
        for host in self:
            host.close()

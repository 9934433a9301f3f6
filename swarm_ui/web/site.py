"""What every request of the dashboard can reach; made once, when the process starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from swarm_core.config import Settings
from swarm_core.process import Card
from swarm_core.swarm import Swarm
from swarm_ui.web.doors import Doors
from swarm_ui.web.hub import Hub
from swarm_ui.web.runner import Runner
from swarm_ui.web.slow import Slow
from swarm_ui.web.terminals import Terminals


@dataclass(slots=True)
class Site:
    card: Card
    settings: Settings
    swarm: Swarm
    doors: Doors
    hub: Hub
    terminals: Terminals
    runner: Runner
    pools: Mapping[str, Slow]

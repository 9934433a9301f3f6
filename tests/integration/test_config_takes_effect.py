"""A changed setting says which running processes use it only after a restart."""

from __future__ import annotations

import json

from swarm_core import locks
from tests.integration.test_database_taken_away import card
from tests.world import World


def test_a_changed_setting_names_the_processes_that_must_be_restarted(world: World) -> None:
    def changed() -> list[str]:
        told = json.loads(world.command("config", "review_rounds", "4", "--json").stdout)
        return list(told["review_rounds"]["restart"])

    assert changed() == []
    with locks.hold(world.settings.coordinator_lock, holder=card(pid=1)):
        assert changed() == ["coordinator"]

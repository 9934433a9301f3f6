"""A search while much is not indexed yet: it answers within a bound and says what it did not search."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from swarm_core import config
from swarm_core.ops.supervise import Supervisor
from swarm_core.store import search
from swarm_core.store.database import Database, open_database
from swarm_core.swarm import Swarm
from tests.integration.cli_fixture import Cli
from tests.integration.test_search import add_many, assert_whole
from tests.rows import add_instance, add_message


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    opened = open_database(tmp_path / "swarm.db")
    add_instance(opened)
    yield opened
    opened.close()


def test_a_search_over_a_large_backlog_indexes_only_a_part_and_says_how_much_is_missing(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_many(db.path, 100_000)
    add_message(db, "urgent common")
    monkeypatch.setattr(search, "INDEX_WITHIN", 0.05)
    assert [hit.kind for hit in search.find(db, "urgent")] == ["message"]
    missing = search.unindexed(db)
    assert 0 < missing < 100_001
    indexed = db.rows("SELECT count(*) FROM search")[0][0]
    assert indexed + missing >= 100_001
    search.find(db, "urgent")
    assert search.unindexed(db) < missing
    search.catch_up(db)
    assert search.unindexed(db) == 0
    assert_whole(db)


def test_the_command_says_on_stderr_that_rows_are_missing_and_keeps_its_json(
    short_tmp: Path, tmp_path: Path
) -> None:
    cli = Cli(short_tmp / "h", tmp_path)
    cli("ls")
    add_many(cli.home / "swarm.db", 200_000)
    done = cli("search", "common", "--json")
    assert isinstance(json.loads(done.out), list)
    assert "not indexed yet" in done.err


def test_the_coordinator_goes_on_with_the_backlog_a_little_at_a_time(tmp_path: Path) -> None:
    environ = os.environ | {"SWARM_HOME": str(tmp_path / "h")}
    with Swarm.open(config.load(environ), environ) as swarm:
        add_many(swarm.context.settings.database_path, 60_000)
        supervisor = Supervisor(swarm.context)
        supervisor.do_chores()
        left = swarm.unsearched()
        assert 0 < left < 60_000
        supervisor.do_chores()
        assert swarm.unsearched() < left

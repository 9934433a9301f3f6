"""Migrations are append-only: numbered, named once, and never edited after they were committed."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from sqlite_utils import Database

from swarm_core.store import migrations, schema

_SNAPSHOT = Path(__file__).with_name("migrations.json")


def _digests():
    """The digest of everything each migration sends to SQLite, applied one after another."""
    digests = {}
    said = []
    db = Database(memory=True, tracer=lambda sql, values: said.append(f"{sql}\n{values!r}"))
    for migration in migrations.migrations.pending(db):
        said.clear()
        migration.fn(db)
        digests[migration.name] = hashlib.sha256("\n".join(said).encode()).hexdigest()
    return digests


def test_the_schema_version_is_the_number_of_migrations():
    assert len(migrations.names()) == schema.VERSION


def test_names_are_unique_and_numbered_in_order():
    names = migrations.names()
    assert len(set(names)) == len(names)
    for number, name in enumerate(names, start=1):
        assert re.fullmatch(rf"{number:04}_[a-z0-9_]+", name)


def test_committed_migrations_have_not_changed():
    committed = json.loads(_SNAPSHOT.read_text())
    now = _digests()
    changed = [name for name, digest in committed.items() if now.get(name) != digest]
    assert changed == [], "databases out there have run these: leave them as they are and add a new migration"


def test_every_migration_is_in_the_snapshot():
    missing = {
        name: digest for name, digest in _digests().items() if name not in json.loads(_SNAPSHOT.read_text())
    }
    assert missing == {}, f"add to {_SNAPSHOT.name} what is new"

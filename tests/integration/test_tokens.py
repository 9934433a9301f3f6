"""Tokens that people hand out: what is refused, what ends when, and that a token is written down nowhere."""

from __future__ import annotations

import logging
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from swarm_core import config
from swarm_core.errors import Conflict, ExternalFailure, InvalidInput, NotFound, SwarmError
from swarm_core.models import PrincipalKind
from swarm_core.store import search, tokens
from swarm_core.store.tokens import SCOPES
from swarm_core.swarm import Swarm
from tests.rows import add_instance
from tests.support import token_owner
from tests.world import World

_ROOT = str(Path(__file__).parents[2])


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "h"


@pytest.fixture
def swarm(home: Path) -> Iterator[Swarm]:
    with open_swarm(home) as opened:
        yield opened


def open_swarm(home: Path) -> Swarm:
    environ = dict(os.environ) | {"SWARM_HOME": str(home)}
    return Swarm.open(config.load(environ), environ)


def named_events(swarm: Swarm) -> list[tuple[str, str | None, Any]]:
    return [
        (e.name, e.instance_id, e.metadata.get("name"))
        for e in swarm.events(limit=1000)
        if e.name.startswith("token:")
    ]


def files_with(folder: Path, text: str) -> list[str]:
    """Files below the folder in which the text occurs."""
    return [
        p.name for p in folder.rglob("*") if p.is_file() and not p.is_symlink() and text.encode() in p.read_bytes()
    ]


def content(path: Path) -> str:
    return path.read_text().strip()


# Automations


def test_an_automation_may_do_what_its_scopes_name_and_no_more(swarm: Swarm) -> None:
    made = swarm.create_token("ci.nightly-1", ["read", "metrics", "read"])
    assert (made.kind, made.name) == ("automation", "ci.nightly-1")
    principal = tokens.lookup(swarm.context.db, made.token).principal
    assert principal is not None
    assert principal.actor == "automation:ci.nightly-1"
    assert principal.scopes == {"mcp", "read", "metrics"}
    (row,) = swarm.list_tokens()
    assert (row.kind, row.name, row.scopes, row.revoked_at) == (
        "automation",
        "ci.nightly-1",
        ("metrics", "read"),
        None,
    )
    assert named_events(swarm) == [("token:issued", None, "ci.nightly-1")]


def test_two_tokens_are_never_the_same_and_have_256_bits(swarm: Swarm) -> None:
    made = {swarm.create_token(f"t{n}", ["read"]).token for n in range(20)}
    assert len(made) == 20
    assert all(len(token) >= 43 for token in made)


_BAD_NAMES = [
    "",
    "operator",
    "work-12-a1",
    "review-a1-r2",
    "UPPER",
    "a b",
    "x" * 65,
    "ü",
    "a/b",
    "a\n",
    "-\0",
    "a:b",
]


@pytest.mark.parametrize("name", _BAD_NAMES)
def test_a_name_that_could_be_somebody_else_is_refused(swarm: Swarm, name: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        swarm.create_token(name, ["read"])
    assert refused.value.hint
    assert refused.value.message.isprintable()
    assert swarm.list_tokens(include_revoked=True) == []
    assert named_events(swarm) == []


@pytest.mark.parametrize("name", ["a", "0", "x" * 64, "a.b_c-d", "work-12", "-"])
def test_other_names_are_taken(swarm: Swarm, name: str) -> None:
    assert token_owner(swarm.context.db, swarm.create_token(name, ["read"]).token) == name


@pytest.mark.parametrize("scopes", [[], ["everything"], ["read", "mcp"], ["hooks"], [""], ["READ"]])
def test_unknown_scopes_and_none_are_refused_and_the_known_are_named(swarm: Swarm, scopes: list[str]) -> None:
    with pytest.raises(InvalidInput) as refused:
        swarm.create_token("ci", scopes)
    assert all(scope in (refused.value.hint or "") for scope in SCOPES)
    assert swarm.list_tokens(include_revoked=True) == []


def test_every_scope_can_be_given(swarm: Swarm) -> None:
    made = swarm.create_token("all", list(SCOPES))
    principal = tokens.lookup(swarm.context.db, made.token).principal
    assert principal is not None
    assert principal.scopes == {"mcp", *SCOPES}


def test_a_name_has_one_token_until_it_is_revoked(swarm: Swarm) -> None:
    first = swarm.create_token("ci", ["read"])
    with pytest.raises(Conflict) as refused:
        swarm.create_token("ci", ["status"])
    assert "rotate" in (refused.value.hint or "")
    assert token_owner(swarm.context.db, first.token) == "ci"
    revoked = swarm.revoke_token("ci")
    assert (revoked.kind, revoked.name) == ("automation", "ci")
    assert token_owner(swarm.context.db, first.token) is None
    second = swarm.create_token("ci", ["status"])
    assert token_owner(swarm.context.db, first.token) is None
    assert token_owner(swarm.context.db, second.token) == "ci"
    assert len(swarm.list_tokens()) == 1
    assert len(swarm.list_tokens(include_revoked=True)) == 2
    assert [name for name, _, _ in named_events(swarm)] == ["token:issued", "token:revoked", "token:issued"]


def test_rotating_keeps_the_scopes_and_ends_the_old_token(swarm: Swarm) -> None:
    first = swarm.create_token("ci", ["read", "pulls"])
    second = swarm.rotate_token("ci")
    assert second.token != first.token
    assert token_owner(swarm.context.db, first.token) is None
    principal = tokens.lookup(swarm.context.db, second.token).principal
    assert principal is not None
    assert principal.scopes == {"mcp", "read", "pulls"}
    assert [name for name, _, _ in named_events(swarm)] == ["token:issued", "token:revoked", "token:issued"]


@pytest.mark.parametrize("name", ["ci", "work-9-a1", "Not A Name", ""])
def test_what_has_no_token_cannot_be_rotated_or_revoked(swarm: Swarm, name: str) -> None:
    for act in (swarm.rotate_token, swarm.revoke_token):
        with pytest.raises(NotFound) as refused:
            act(name)
        assert refused.value.code == "TOKEN_NOT_FOUND"
        assert refused.value.hint
    assert named_events(swarm) == []


def test_revoking_twice_and_rotating_what_is_revoked_is_refused(swarm: Swarm) -> None:
    swarm.create_token("ci", ["read"])
    swarm.revoke_token("ci")
    for act in (swarm.rotate_token, swarm.revoke_token):
        with pytest.raises(NotFound):
            act("ci")


def test_a_token_given_for_a_name_does_not_come_back_in_the_error(swarm: Swarm) -> None:
    token = swarm.create_token("ci", ["read"]).token
    acts: list[Callable[[], object]] = [
        lambda: swarm.create_token(token, ["read"]),
        lambda: swarm.rotate_token(token),
        lambda: swarm.revoke_token(token),
    ]
    for act in acts:
        with pytest.raises(SwarmError) as refused:
            act()
        assert token not in str(refused.value.as_json())


# Instances


def process_environment(pid: int) -> dict[str, str]:
    raw = Path(f"/proc/{pid}/environ").read_bytes().decode()
    return dict(part.partition("=")[::2] for part in raw.split("\0") if part)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_rotated_token_of_a_live_agent_works_and_the_one_it_was_started_with_does_not(world: World) -> None:
    with world.open() as swarm:
        instance = world.work(swarm, name="the login fix")
        assert instance.pid is not None
        first = process_environment(instance.pid)["SWARM_TOKEN"]
        db = swarm.context.db
        assert named_events(swarm) == []
        issued = swarm.rotate_token("the login fix")
        assert (issued.kind, issued.name) == ("instance", instance.id)
        assert token_owner(db, first) is None
        assert token_owner(db, issued.token) == instance.id
        assert named_events(swarm) == [
            ("token:revoked", instance.id, instance.id),
            ("token:issued", instance.id, instance.id),
        ]
        shown = subprocess.run(["ps", "-eo", "args"], capture_output=True, check=True, timeout=30).stdout
        assert issued.token.encode() not in shown
        assert files_with(world.home, issued.token) == []
        again = swarm.restart(instance.id)
        assert again.pid is not None
        assert token_owner(db, issued.token) is None
        assert token_owner(db, process_environment(again.pid)["SWARM_TOKEN"]) == instance.id


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_live_agent_can_be_shut_out_and_an_ended_one_gets_nothing(world: World) -> None:
    with world.open() as swarm:
        instance = world.work(swarm)
        assert instance.pid is not None
        token = process_environment(instance.pid)["SWARM_TOKEN"]
        swarm.revoke_token(instance.id)
        assert token_owner(swarm.context.db, token) is None
        assert named_events(swarm) == [("token:revoked", instance.id, instance.id)]
        swarm.stop(instance.id)
        with pytest.raises(Conflict) as refused:
            swarm.rotate_token(instance.id)
        assert f"swarm restart {instance.id}" in (refused.value.hint or "")
        with pytest.raises(NotFound):
            swarm.revoke_token(instance.id)
        swarm.clean(instance.id)
        with pytest.raises(Conflict):
            swarm.rotate_token(instance.id)


def test_an_automation_is_meant_before_an_instance_of_the_same_name(swarm: Swarm) -> None:
    add_instance(swarm.context.db, "work-1-a1", name="ci")
    swarm.create_token("ci", ["read"])
    assert swarm.rotate_token("ci").kind == "automation"
    assert swarm.rotate_token("work-1-a1").kind == "instance"
    assert swarm.revoke_token("ci").kind == "automation"
    assert swarm.revoke_token("ci").name == "work-1-a1"


# The operator


def test_the_operators_file_is_made_private_and_valid_and_then_left_alone(swarm: Swarm) -> None:
    path = swarm.ensure_operator_token()
    assert path == swarm.context.settings.home / "operator.token"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert token_owner(swarm.context.db, content(path)) == "operator"
    before = (path.read_bytes(), path.stat().st_mtime_ns, named_events(swarm))
    assert swarm.ensure_operator_token() == path
    assert (path.read_bytes(), path.stat().st_mtime_ns, named_events(swarm)) == before


def _open_to_others(path: Path, swarm: Swarm) -> None:
    path.chmod(0o644)


def _open_to_the_group(path: Path, swarm: Swarm) -> None:
    path.chmod(0o620)


def _linked(path: Path, swarm: Swarm) -> None:
    kept = path.with_name("elsewhere")
    path.replace(kept)
    path.symlink_to(kept)


def _empty(path: Path, swarm: Swarm) -> None:
    path.write_text("")


def _damaged(path: Path, swarm: Swarm) -> None:
    path.write_bytes(b"\xff\0" * 9000)


def _unknown(path: Path, swarm: Swarm) -> None:
    path.write_text("A" * 43)


def _of_an_automation(path: Path, swarm: Swarm) -> None:
    path.write_text(swarm.create_token("sly", ["read"]).token)


def _revoked(path: Path, swarm: Swarm) -> None:
    with swarm.context.db.write():
        tokens.issue_operator(swarm.context.db)


def _gone(path: Path, swarm: Swarm) -> None:
    path.unlink()


def _dangling(path: Path, swarm: Swarm) -> None:
    path.unlink()
    path.symlink_to(path.with_name("nowhere"))


_SPOILT = [_open_to_others, _open_to_the_group, _linked, _dangling, _empty, _damaged, _unknown, _of_an_automation]


@pytest.mark.parametrize("spoil", [*_SPOILT, _revoked, _gone], ids=lambda f: f.__name__.strip("_"))
def test_a_file_that_cannot_be_trusted_is_replaced_with_a_new_token(
    swarm: Swarm, spoil: Callable[[Path, Swarm], None]
) -> None:
    path = swarm.ensure_operator_token()
    first = content(path)
    spoil(path, swarm)
    assert swarm.ensure_operator_token() == path
    assert not path.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert content(path) != first
    assert token_owner(swarm.context.db, first) is None
    assert token_owner(swarm.context.db, content(path)) == "operator"
    assert not path.with_name("nowhere").exists()


def test_a_folder_in_the_way_is_told_and_changes_nothing(swarm: Swarm) -> None:
    path = swarm.context.settings.operator_token
    (path / "inside").mkdir(parents=True)
    with pytest.raises(ExternalFailure) as failed:
        swarm.ensure_operator_token()
    assert failed.value.hint
    assert (path / "inside").is_dir()
    assert swarm.list_tokens(include_revoked=True) == []


def test_a_rotation_that_cannot_write_the_file_leaves_the_old_token_valid(swarm: Swarm) -> None:
    path = swarm.ensure_operator_token()
    before = named_events(swarm)
    blocker = path.with_name(f".operator.token.{os.getpid()}-{threading.get_ident()}.new")
    (blocker / "x").mkdir(parents=True)
    with pytest.raises(ExternalFailure):
        swarm.rotate_token("operator")
    assert token_owner(swarm.context.db, content(path)) == "operator"
    assert named_events(swarm) == before
    (blocker / "x").rmdir()
    blocker.rmdir()
    assert swarm.rotate_token("operator").token == content(path)


def test_rotating_the_operator_replaces_the_file(swarm: Swarm) -> None:
    path = swarm.ensure_operator_token()
    first = content(path)
    issued = swarm.rotate_token("operator")
    assert (issued.kind, issued.name, issued.token) == ("operator", "operator", content(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert token_owner(swarm.context.db, first) is None
    assert token_owner(swarm.context.db, issued.token) == "operator"
    assert [row.name for row in swarm.list_tokens()] == ["operator"]
    with pytest.raises(InvalidInput) as refused:
        swarm.revoke_token("operator")
    assert "rotate operator" in (refused.value.hint or "")
    assert token_owner(swarm.context.db, issued.token) == "operator"


_RACE = """
import os, sys
from swarm_core import config
from swarm_core.swarm import Swarm
with Swarm.open(config.load(os.environ), os.environ) as swarm:
    print("ready", flush=True)
    sys.stdin.readline()
    print(swarm.ensure_operator_token().read_text().strip(), flush=True)
"""


def test_of_processes_that_make_the_operators_token_at_once_one_does(swarm: Swarm, home: Path) -> None:
    environ = dict(os.environ) | {"SWARM_HOME": str(home), "PYTHONPATH": _ROOT}
    racing = [
        subprocess.Popen(
            [sys.executable, "-c", _RACE], env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    for process in racing:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in racing:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    said = {process.communicate(timeout=60)[0].strip() for process in racing}
    assert said == {content(swarm.context.settings.operator_token)}
    assert named_events(swarm) == [("token:issued", None, "operator")]


_KILLED = """
import os, signal, sys
from datetime import UTC, datetime
from swarm_core import config
from swarm_core.swarm import Swarm

left = iter(range(int(sys.argv[1])))

def clock():
    if next(left, None) is None:
        os.kill(os.getpid(), signal.SIGKILL)
    return datetime.now(UTC)

with Swarm.open(config.load(os.environ), os.environ, clock=clock) as swarm:
    swarm.rotate_token("operator")
"""


@pytest.mark.parametrize("calls", [0, 1, 2, 3])
def test_a_rotation_that_is_killed_has_changed_nothing(swarm: Swarm, home: Path, calls: int) -> None:
    path = swarm.ensure_operator_token()
    first = content(path)
    environ = dict(os.environ) | {"SWARM_HOME": str(home), "PYTHONPATH": _ROOT}
    argv = [sys.executable, "-c", _KILLED, str(calls)]
    done = subprocess.run(argv, env=environ, capture_output=True, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert content(path) == first
    assert token_owner(swarm.context.db, first) == "operator"


def test_doctor_tells_of_the_operators_file_and_mends_it(swarm: Swarm) -> None:
    def states(**options: bool) -> list[str]:
        return [c.state for c in swarm.doctor(**options) if c.name == "operator token"]

    assert states() == ["warn"]
    assert not swarm.context.settings.operator_token.exists()
    assert states(fix=True) == ["fixed"]
    assert states() == ["ok"]
    swarm.context.settings.operator_token.chmod(0o640)
    first = content(swarm.context.settings.operator_token)
    assert states() == ["fail"]
    assert states(fix=True) == ["fixed"]
    assert content(swarm.context.settings.operator_token) != first


# Written down nowhere


def test_no_token_is_in_the_database_the_events_the_log_or_a_records_text(
    swarm: Swarm, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    add_instance(swarm.context.db, "work-1-a1")
    path = swarm.ensure_operator_token()
    made = [
        swarm.create_token("ci", ["read"]),
        swarm.rotate_token("ci"),
        swarm.rotate_token("work-1-a1"),
        swarm.rotate_token("operator"),
    ]
    swarm.revoke_token("ci")
    swarm.revoke_token("work-1-a1")
    search.catch_up(swarm.context.db)
    for issued in made:
        assert issued.token not in repr(issued)
        assert issued.token not in str(swarm.events(limit=1000))
        assert issued.token not in str(swarm.list_tokens(include_revoked=True))
        assert issued.token not in caplog.text
        assert [name for name in files_with(home, issued.token) if name != path.name] == []
    assert files_with(home, made[-1].token) == [path.name]
    connection = sqlite3.connect(home / "swarm.db")
    stored = {row[0] for row in connection.execute("SELECT hash FROM tokens")}
    connection.close()
    assert all(len(one) == 64 for one in stored)
    kinds = {row.kind for row in swarm.list_tokens(include_revoked=True)}
    assert kinds == set(PrincipalKind)

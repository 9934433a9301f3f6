"""`swarm search`, `swarm token` and `swarm mcp` as a person or a script runs them."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from swarm_core import config, process
from swarm_core.store.database import Database, open_database
from swarm_core.store.tokens import SCOPES
from tests.integration.cli_fixture import ARGV, ROOT, Cli
from tests.rows import add_feedback, add_instance, add_message
from tests.support import token_owner


@pytest.fixture
def cli(short_tmp: Path, repo: Path) -> Iterator[Cli]:
    command = Cli(home=short_tmp / "h", cwd=repo)
    yield command
    command.end()


@contextmanager
def records(cli: Cli) -> Iterator[Database]:
    cli.home.mkdir(mode=0o700, exist_ok=True)
    db = open_database(cli.home / "swarm.db")
    try:
        yield db
    finally:
        db.close()


# search


def test_search_prints_what_it_promises(cli: Cli) -> None:
    with records(cli) as db:
        add_instance(db, "work-1-a1", name="the login fix")
        add_instance(db, "work-2-a1")
        said = add_feedback(db, "the badger test fails on macOS")
        message = add_message(db, "the badger is yours", to="work-2-a1")
    found = cli("search", "badger", "--json").json
    assert {tuple(hit) for hit in found} == {("kind", "id", "instance_id", "at", "title", "excerpt")}
    assert {(hit["kind"], hit["id"]) for hit in found} == {("feedback", said.id), ("message", message.id)}
    narrowed = cli("search", "badger", "--instance", "the login fix", "--kind", "feedback", "--json").json
    assert [hit["id"] for hit in narrowed] == [said.id]
    assert cli("search", "badger", "macos", "--kind", "event", "--kind", "message", "--json").json == []
    assert len(cli("search", "badger", "-n", "1", "--json").json) == 1
    assert cli("search", "badg*", "--since", "1h", "--until", "2199-12-31", "--json").json == found


def test_search_shows_a_table_without_control_characters(cli: Cli) -> None:
    with records(cli) as db:
        add_instance(db)
        message = add_message(db, "a \x1b[31mbadger\x07\u202e crossed")
    head, *rows = cli("search", "badger").out.splitlines()
    assert head.split() == ["AT", "KIND", "ID", "INSTANCE", "WHAT"]
    (row,) = rows
    assert row.split()[1:4] == ["message", message.id, "work-1-a1"]
    assert row.endswith("from operator: a badger crossed")


def test_search_that_finds_nothing_says_so_and_is_no_failure(cli: Cli) -> None:
    assert "nothing" in cli("search", "badger").out
    assert cli("search", "badger", "--json").json == []


BAD: list[tuple[tuple[str | bytes, ...], int, str]] = [
    (("search",), 2, "INVALID_INPUT"),
    (("search", "***"), 1, "INVALID_INPUT"),
    (("search", "x" * 501), 1, "INVALID_INPUT"),
    (("search", "x", "--kind", "thought"), 1, "INVALID_INPUT"),
    (("search", "x", "--since", "yesterday"), 1, "INVALID_INPUT"),
    (("search", "x", "--until", "soon"), 1, "INVALID_INPUT"),
    (("search", "x", "-n", "0"), 1, "INVALID_INPUT"),
    (("search", "x", "--limit", "many"), 2, "INVALID_INPUT"),
    (("search", "x", "--instance", "work-9-a1"), 1, "INSTANCE_NOT_FOUND"),
    (("token", "create"), 2, "INVALID_INPUT"),
    (("token", "create", "ci"), 1, "INVALID_INPUT"),
    (("token", "create", "ci", "--scope", "all"), 1, "INVALID_INPUT"),
    (("token", "create", "operator", "--scope", "read"), 1, "INVALID_INPUT"),
    (("token", "rotate", "ci"), 1, "TOKEN_NOT_FOUND"),
    (("token", "revoke", "work-9-a1"), 1, "TOKEN_NOT_FOUND"),
    (("token", "revoke", "operator"), 1, "INVALID_INPUT"),
    (("token", "steal"), 2, "INVALID_INPUT"),
    (("token",), 2, "INVALID_INPUT"),
]


@pytest.mark.parametrize(("args", "exit_code", "code"), BAD, ids=[" ".join(map(str, b[0]))[:40] for b in BAD])
def test_bad_input_ends_with_a_code_and_a_hint(
    cli: Cli, args: tuple[str | bytes, ...], exit_code: int, code: str
) -> None:
    if args in (("token", "steal"), ("token",)):
        done = cli(*args, check=exit_code)
        assert f"[{code}]" in done.err
        return
    body = cli(*args, "--json", check=exit_code).json
    assert body["error"]["code"] == code
    assert body["error"]["hint"]


def test_a_query_that_is_no_text_is_searched_without_what_is_none(cli: Cli) -> None:
    assert cli("search", b"bad\xffger", "--json").json == []


# token


def test_a_token_is_printed_once_alone_on_stdout(cli: Cli) -> None:
    done = cli("token", "create", "ci", "--scope", "read", "--scope", "metrics")
    (token,) = done.out.split()
    assert "once" in done.err
    assert token not in done.err
    with records(cli) as db:
        assert token_owner(db, token) == "ci"
    (row,) = cli("token", "list", "--json").json
    assert row.keys() == {"kind", "name", "scopes", "created_at", "revoked_at"}
    assert (row["kind"], row["name"], row["scopes"]) == ("automation", "ci", ["metrics", "read"])
    assert token not in cli("token", "list", "--all").out + cli("events", "--json").out


def test_create_rotate_and_revoke_in_json(cli: Cli) -> None:
    first = cli("token", "create", "ci", "--scope", "read", "--json").json
    second = cli("token", "rotate", "ci", "--json").json
    assert first.keys() == second.keys() == {"kind", "name", "token"}
    assert (second["kind"], second["name"]) == ("automation", "ci")
    with records(cli) as db:
        assert token_owner(db, first["token"]) is None
        assert token_owner(db, second["token"]) == "ci"
    assert cli("token", "revoke", "ci", "--json").json == {"kind": "automation", "name": "ci", "revoked": True}
    assert cli("token", "list", "--json").json == []
    assert [bool(row["revoked_at"]) for row in cli("token", "list", "--all", "--json").json] == [True, True]
    with records(cli) as db:
        assert token_owner(db, second["token"]) is None


def test_token_list_shows_people_who_has_one(cli: Cli) -> None:
    assert "swarm token create" in cli("token", "list").out
    cli("token", "create", "ci", "--scope", "read")
    head, row = cli("token", "list").out.splitlines()
    assert head.split() == ["KIND", "NAME", "SCOPES", "CREATED", "REVOKED"]
    assert row.split()[:3] == ["automation", "ci", "read"]
    cli("token", "revoke", "ci")
    assert "swarm token create" in cli("token", "list").out


def test_rotating_the_operator_writes_its_file(cli: Cli) -> None:
    done = cli("token", "rotate", "operator")
    path = cli.home / "operator.token"
    assert path.read_text() == done.out
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert str(path) in done.err
    again = cli("token", "rotate", "operator", "--json").json
    assert again == {"kind": "operator", "name": "operator", "token": path.read_text().strip()}
    assert again["token"] != done.out.strip()


def test_rotating_a_live_instance_warns_that_its_agent_is_shut_out(cli: Cli) -> None:
    made = cli.work("say ready")
    done = cli("token", "rotate", made["id"], "--json")
    assert done.json.keys() == {"kind", "name", "token"}
    assert (done.json["kind"], done.json["name"]) == ("instance", made["id"])
    assert f"swarm restart {made['id']}" in done.err
    with records(cli) as db:
        assert token_owner(db, done.json["token"]) == made["id"]
    cli("stop", made["id"])
    error = cli("token", "rotate", made["id"], "--json", check=1).json["error"]
    assert error["code"] == "CONFLICT"
    assert f"swarm restart {made['id']}" in error["hint"]


def test_no_command_leaves_a_token_in_a_file_but_the_operators(cli: Cli) -> None:
    made = [
        cli("token", "create", "ci", "--scope", "read").out.strip(),
        cli("token", "rotate", "ci").out.strip(),
        cli("token", "rotate", "operator").out.strip(),
    ]
    cli("token", "rotate", made[0], check=1)
    cli("doctor", check=None)
    for token in made:
        names = [p.name for p in cli.home.rglob("*") if p.is_file() and token.encode() in p.read_bytes()]
        assert names == (["operator.token"] if token == made[-1] else [])


@pytest.mark.parametrize("command", ["create", "list", "revoke", "rotate"])
def test_help_of_each_token_command_fits_a_screen_and_has_an_example_and_json(cli: Cli, command: str) -> None:
    shown = cli("token", command, "--help").out
    assert len(shown.splitlines()) <= 30
    assert f"    swarm token {command}" in shown.partition("Example:")[2]
    assert "--json" in shown
    assert max(len(line) for line in shown.splitlines()) <= 100


def test_help_names_every_scope_and_every_command(cli: Cli) -> None:
    shown = cli("token", "create", "--help").out
    assert [scope for scope in SCOPES if scope not in shown] == []
    assert [
        name for name in ("create", "list", "revoke", "rotate") if name not in cli("token", "--help").out
    ] == []
    assert "token" in cli("--help").out


# mcp

_SERVER = """
import json, os, sys
told = {"argv": sys.argv[1:], "pid": os.getpid(), "safe_path": sys.flags.safe_path}
print(json.dumps(told | {"said": sys.stdin.read()}))
sys.exit(7)
"""


def test_stdio_becomes_the_server_with_the_same_streams(cli: Cli, tmp_path: Path) -> None:
    stand_in = tmp_path / "stand-in" / "swarm_mcp"
    stand_in.mkdir(parents=True)
    (stand_in / "__init__.py").write_text("")
    (stand_in / "__main__.py").write_text(_SERVER)
    environ = cli.environ | {"PYTHONPATH": f"{stand_in.parent}{os.pathsep}{ROOT}"}
    process = subprocess.Popen(
        [*ARGV, "mcp", "--stdio"],
        cwd=cli.cwd,
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = process.communicate(b"hello", timeout=60)
    told = json.loads(out)
    assert told == {"argv": ["--stdio"], "pid": process.pid, "safe_path": True, "said": "hello"}
    assert process.returncode == 7
    assert err == b""


def test_mcp_tells_how_to_connect_and_shows_no_token(cli: Cli) -> None:
    token = cli("token", "rotate", "operator").out.strip()
    cli.extra = {"SWARM_TOKEN": token, "MCP_SERVER_PORT": "4321"}
    shown = cli("mcp")
    told = cli("mcp", "--json")
    assert token not in shown.out + shown.err + told.out + told.err
    body = told.json
    assert body.keys() == {"url", "up", "token_file", "variable", "clients"}
    assert (body["url"], body["up"]) == ("http://127.0.0.1:4321/mcp", False)
    assert (body["token_file"], body["variable"]) == (str(cli.home / "operator.token"), "SWARM_TOKEN")
    assert body["clients"].keys() == {"claude", "codex", "inspector"}
    assert "claude mcp add --transport http swarm http://127.0.0.1:4321/mcp" in body["clients"]["claude"]
    assert "${SWARM_TOKEN}" in body["clients"]["claude"]
    assert "swarm up" in shown.out
    for command in body["clients"].values():
        assert command in shown.out


def test_mcp_needs_no_home_and_makes_none(cli: Cli) -> None:
    cli("mcp")
    assert not cli.home.exists()


class _Health(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = {"ok": True, "pid": os.getpid(), "problem": None, "last_look_age_s": 0}
        text = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        return


def test_mcp_tells_where_the_running_coordinator_listens(cli: Cli) -> None:
    cli.home.mkdir(mode=0o700)
    settings = config.load(cli.environ)
    with HTTPServer(("127.0.0.1", 0), _Health) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        with process.claim(settings, process.own_card(process.COORDINATOR, settings, cli.environ)) as claim:
            claim.announce(server.server_port)
            body = cli("mcp", "--json").json
        server.shutdown()
        thread.join(10)
    assert (body["url"], body["up"]) == (f"http://127.0.0.1:{server.server_port}/mcp", True)


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("swarm search x --kind fe", ["feedback"]),
        ("swarm token create ci --scope re", ["read", "review"]),
        ("swarm token rotate work-1", ["work-1-a1"]),
        ("swarm search x --instance work-1", ["work-1-a1"]),
        ("swarm token ro", ["rotate"]),
    ],
)
def test_kinds_scopes_and_ids_are_completed(cli: Cli, words: str, wanted: list[str]) -> None:
    with records(cli) as db:
        add_instance(db)
    known = {"_SWARM_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    cli.extra = known
    assert cli().out.split() == wanted

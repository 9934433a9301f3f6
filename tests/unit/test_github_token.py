from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from swarm_core import github_token
from swarm_core.errors import InvalidInput
from swarm_core.git.command import as_committed
from swarm_core.github_token import SECRETS, Token, find_token, vouches
from swarm_core.hosts.environment import for_agents

HOST, ENTERPRISE = "github.com", "ghe.corp.example"
SECRET = "ghp_aSecret"


@pytest.fixture
def programs(tmp_path):
    """A folder for PATH in which a test puts its own gh."""
    folder = tmp_path / "programs"
    folder.mkdir()
    return folder


def write_gh(folder, script):
    path = folder / "gh"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def write_token(path, text=SECRET, mode=0o600):
    path.write_text(text)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize(
    ("environ", "host", "expected"),
    [
        ({"GITHUB_TOKEN": "a", "GH_TOKEN": "b"}, HOST, "a"),
        ({"GH_TOKEN": "b"}, HOST, "b"),
        ({"GITHUB_TOKEN": "  a\n"}, HOST, "a"),
        ({"GITHUB_TOKEN": "   ", "GH_TOKEN": "b"}, HOST, "b"),
        ({"GITHUB_TOKEN": "a"}, ENTERPRISE, None),
        ({"GITHUB_TOKEN": "a", "GITHUB_API_URL": "https://ghe.corp.example/api/v3"}, ENTERPRISE, "a"),
        ({"GITHUB_TOKEN": "a", "GITHUB_API_URL": "https://api.github.com"}, "gitlab.example", None),
        ({"GITHUB_TOKEN": "a", "GITHUB_API_URL": "https://api.github.com"}, HOST, "a"),
        ({"GITHUB_TOKEN": "a", "GITHUB_API_URL": "https://ghe.corp.example/api/v3"}, "other.example", None),
        ({"GITHUB_TOKEN": "a", "GITHUB_API_URL": "http://127.0.0.1:81/api/v3"}, "127.0.0.1:82", "a"),
        ({"GH_ENTERPRISE_TOKEN": "c", "GITHUB_ENTERPRISE_TOKEN": "d"}, ENTERPRISE, "c"),
        ({"GITHUB_ENTERPRISE_TOKEN": "d"}, ENTERPRISE, "d"),
        ({"GH_ENTERPRISE_TOKEN": "c"}, HOST, None),
        ({}, HOST, None),
    ],
)
def test_the_environment_has_the_token_for_a_host(environ, host, expected):
    assert find_token(environ, host) == expected


@pytest.mark.parametrize(
    ("api_url", "host", "expected"),
    [
        ("https://api.github.com", "github.com", True),
        ("https://api.github.com/", "gitlab.example", False),
        ("https://api.github.com", "api.github.com", False),
        ("https://api.acme.ghe.com", "acme.ghe.com", True),
        ("https://GHE.corp.example/api/v3", "ghe.corp.example", True),
        ("https://ghe.corp.example/api/v3", "ghe.corp.example.evil.invalid", False),
        ("https://ghe.corp.example@evil.invalid/", "ghe.corp.example", False),
        ("http://localhost:8080", "localhost:9090", True),
        ("http://[::1]:8080", "[::1]:9090", True),
        ("http://[::1", "::1", False),
        ("no address", "no address", False),
        ("", "", False),
        (None, "github.com", False),
    ],
)
def test_the_address_of_an_api_speaks_for_its_own_host_alone(api_url, host, expected):
    assert vouches(api_url, host) is expected


@pytest.mark.parametrize(
    ("api_url", "plain_http"), [("http://ghe.corp.example/api/v3", True), ("https://ghe.corp.example", False)]
)
def test_a_token_knows_its_host_and_does_not_show_itself(api_url, plain_http):
    found = find_token({"GITHUB_TOKEN": SECRET, "GITHUB_API_URL": api_url}, ENTERPRISE)
    assert isinstance(found, Token)
    assert (found, found.host, found.plain_http) == (SECRET, ENTERPRISE, plain_http)
    assert SECRET not in repr(found)


def test_no_agent_inherits_a_token_or_the_secret_of_the_webhook():
    assert {"GITHUB_TOKEN", "GH_TOKEN", "GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN"} < SECRETS
    assert for_agents({**dict.fromkeys([*SECRETS, "GITHUB_API_URL"], SECRET), "MINE": "yes"}) == as_committed(
        {"MINE": "yes"}
    )


@pytest.mark.parametrize("token", ["two words", "a\nb", "a\x00b", "a\x1b[0m", "caf\u00e9", "a\tb"])
def test_what_is_no_token_is_refused_and_not_shown(token, tmp_path):
    with pytest.raises(InvalidInput) as caught:
        find_token({"GITHUB_TOKEN": token}, HOST)
    assert caught.value.code == "INVALID_SETTING"
    assert "GITHUB_TOKEN" in caught.value.message
    assert token not in str(caught.value.as_json())
    if "\x00" not in token:
        with pytest.raises(InvalidInput):
            find_token({}, HOST, token_file=write_token(tmp_path / "token", token))


def test_a_file_has_the_token(tmp_path):
    assert find_token({}, HOST, token_file=write_token(tmp_path / "token", f"{SECRET}\n")) == SECRET
    assert find_token({"GITHUB_TOKEN": "a"}, HOST, token_file=str(tmp_path / "token")) == "a"
    assert find_token({}, ENTERPRISE, token_file=str(tmp_path / "token")) == SECRET


def test_a_file_in_the_home_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    write_token(tmp_path / "token")
    assert find_token({}, HOST, token_file="~/token") == SECRET


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644, 0o666])
def test_a_file_that_others_may_read_or_write_is_refused(tmp_path, mode):
    path = write_token(tmp_path / "token", mode=mode)
    with pytest.raises(InvalidInput) as caught:
        find_token({}, HOST, token_file=path)
    assert caught.value.code == "INVALID_SETTING"
    assert SECRET not in str(caught.value.as_json())


def test_a_file_of_somebody_else_is_refused(tmp_path, monkeypatch):
    path = write_token(tmp_path / "token")
    monkeypatch.setattr(os, "getuid", lambda: Path(path).stat().st_uid + 1)
    with pytest.raises(InvalidInput) as caught:
        find_token({}, HOST, token_file=path)
    assert caught.value.code == "INVALID_SETTING"


def test_what_is_no_file_is_refused_and_nothing_waits_for_it(tmp_path):
    os.mkfifo(tmp_path / "pipe", 0o600)
    for name in ("pipe", "missing", "."):
        with pytest.raises(InvalidInput) as caught:
            find_token({}, HOST, token_file=str(tmp_path / name))
        assert caught.value.code == "INVALID_SETTING"


def test_an_empty_file_has_no_token(tmp_path):
    assert find_token({}, HOST, token_file=write_token(tmp_path / "token", "\n")) is None


def test_gh_has_the_token_of_its_host(programs):
    write_gh(programs, f'[ "$*" = "auth token --hostname {ENTERPRISE}" ] && echo {SECRET}')
    environ = {"PATH": f"{programs}:/usr/bin:/bin"}
    assert find_token(environ, ENTERPRISE) == SECRET
    assert find_token(environ, HOST) is None


@pytest.mark.parametrize("script", ["exit 1", "echo token; exit 4", "true", "echo; echo"])
def test_a_gh_that_fails_or_says_nothing_has_none(programs, script):
    write_gh(programs, script)
    assert find_token({"PATH": f"{programs}:/usr/bin:/bin"}, HOST) is None


def test_a_gh_that_does_not_end_has_none(programs, monkeypatch):
    monkeypatch.setattr(github_token, "_GH_TIMEOUT_S", 0.2)
    write_gh(programs, "sleep 60")
    assert find_token({"PATH": f"{programs}:/usr/bin:/bin"}, HOST) is None


def test_a_gh_that_says_something_else_is_refused(programs):
    write_gh(programs, "echo please sign in")
    with pytest.raises(InvalidInput):
        find_token({"PATH": f"{programs}:/usr/bin:/bin"}, HOST)


def test_a_gh_that_cannot_run_or_is_not_there_has_none(programs):
    assert find_token({"PATH": str(programs)}, HOST) is None
    assert find_token({}, HOST) is None
    (programs / "gh").write_text("#!/no/such/interpreter\n")
    (programs / "gh").chmod(stat.S_IRWXU)
    assert find_token({"PATH": str(programs)}, HOST) is None

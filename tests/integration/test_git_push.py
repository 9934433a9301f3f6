"""Pushing and fetching: nobody's commits are overwritten, and no secret is shown; on real git remotes."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from swarm_core import git
from swarm_core.errors import Conflict, ExternalFailure, InvalidInput, NotFound, SwarmError
from swarm_core.git import askpass, push
from swarm_core.github_token import SECRETS, Token
from tests.fakes.git_http import LOOK, PUSH, GitHTTPServer, serve
from tests.support import git_run

TOKEN = "ghp_S3cretTokenThatNobodyMaySee"
BRANCH = "work/work-1-a1"


@pytest.fixture
def bare(tmp_path: Path, repo: Path) -> Path:
    """An empty bare repository that is the repository's origin."""
    path = tmp_path / "origin.git"
    git_run(tmp_path, "init", "-q", "--bare", str(path))
    git_run(repo, "remote", "add", "origin", str(path))
    return path


@pytest.fixture
def server(tmp_path: Path, repo: Path) -> Iterator[GitHTTPServer]:
    """An empty repository behind HTTP with a password that is the repository's origin."""
    with serve(tmp_path / "served", password=TOKEN) as made:
        made.create("acme/widgets")
        git_run(repo, "remote", "add", "origin", f"{made.url}/acme/widgets.git")
        yield made


def commit(repo: Path, name: str, *, amend: bool = False) -> str:
    (repo / name).write_text(name)
    git_run(repo, "add", "-A")
    git_run(repo, "commit", "-q", "-m", name, *(["--amend"] if amend else []))
    return git_run(repo, "rev-parse", "HEAD")


def key(repo: Path, text: str = TOKEN) -> Token:
    """A token for the place that the repository's origin names."""
    return Token(text, host=git_run(repo, "config", "remote.origin.url").rpartition("@")[2].split("/")[-3])


def tip(bare: Path, branch: str = BRANCH) -> str:
    return git_run(bare, "rev-parse", f"refs/heads/{branch}")


def foreign(bare: Path, parent: str | None = None) -> str:
    """Somebody else's commit, made in the bare repository itself and put on the branch."""
    tree = git_run(bare, "hash-object", "-t", "tree", "-w", "--stdin", stdin=b"")
    made = git_run(bare, "commit-tree", tree, "-m", "theirs", *(["-p", parent] if parent else []))
    git_run(bare, "update-ref", f"refs/heads/{BRANCH}", made)
    return made


def hook(repository: Path, name: str, script: str) -> None:
    path = repository / "hooks" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def shown(error: SwarmError) -> str:
    return json.dumps(error.as_json()) + repr(error) + repr(error.__cause__) + repr(error.__context__)


def test_a_new_branch_is_pushed_once(repo: Path, bare: Path) -> None:
    hook(bare, "post-receive", f"echo x >> {bare}/pushes")
    first = commit(repo, "a")
    assert push.remote_tip(repo, "origin", BRANCH) is None
    assert push.push(repo, "origin", BRANCH, first, ours=None) == first
    assert push.push(repo, "origin", BRANCH, first, ours=None) == first
    assert push.push(repo, "origin", BRANCH, first, ours=first) == first
    assert push.remote_tip(repo, "origin", BRANCH) == first == tip(bare)
    assert (bare / "pushes").read_text() == "x\n"


def test_commits_are_added_whoever_pushed_last(repo: Path, bare: Path) -> None:
    first = commit(repo, "a")
    second = commit(repo, "b")
    git_run(repo, "push", "-q", "origin", f"{first}:refs/heads/{BRANCH}")
    assert push.push(repo, "origin", BRANCH, second, ours=None) == second
    assert tip(bare) == second


def test_our_own_push_may_be_rewritten(repo: Path, bare: Path) -> None:
    first = commit(repo, "a")
    push.push(repo, "origin", BRANCH, first, ours=None)
    amended = commit(repo, "b", amend=True)
    assert push.push(repo, "origin", BRANCH, amended, ours=first) == amended
    assert tip(bare) == amended


@pytest.mark.parametrize("ours", ["none", "another"])
def test_what_we_did_not_push_is_never_rewritten(repo: Path, bare: Path, ours: str) -> None:
    before = git_run(repo, "rev-parse", "HEAD")
    first = commit(repo, "a")
    git_run(repo, "push", "-q", "origin", f"{first}:refs/heads/{BRANCH}")
    amended = commit(repo, "b", amend=True)
    with pytest.raises(Conflict) as caught:
        push.push(repo, "origin", BRANCH, amended, ours=None if ours == "none" else before)
    assert caught.value.code == "PUSH_REJECTED"
    assert caught.value.hint
    assert first in caught.value.message
    assert amended in caught.value.message
    assert tip(bare) == first


def test_a_commit_of_somebody_else_is_never_overwritten(repo: Path, bare: Path) -> None:
    first = commit(repo, "a")
    push.push(repo, "origin", BRANCH, first, ours=None)
    theirs = foreign(bare, first)
    second = commit(repo, "b")
    with pytest.raises(Conflict) as caught:
        push.push(repo, "origin", BRANCH, second, ours=first)
    assert caught.value.details["remote_commit"] == theirs
    assert tip(bare) == theirs


@pytest.mark.parametrize("moment", [LOOK, PUSH])
def test_one_who_pushes_the_same_in_between_is_no_failure(repo: Path, server: GitHTTPServer, moment: str) -> None:
    bare = server.root / "acme" / "widgets.git"
    first = commit(repo, "a")

    def be_quicker(path: str) -> None:
        if path.endswith(moment):
            git_run(repo, "push", "-q", str(bare), f"{first}:refs/heads/{BRANCH}")

    server.before = be_quicker
    assert push.push(repo, "origin", BRANCH, first, ours=None, token=key(repo)) == first
    assert tip(bare) == first


def test_of_many_processes_that_push_the_same_none_fails(repo: Path, bare: Path) -> None:
    first = commit(repo, "a")
    program = "import sys; from swarm_core.git import push; push.push(*sys.argv[1:], ours=None)"
    argv = [sys.executable, "-c", program, str(repo), "origin", BRANCH, first]
    started = [subprocess.Popen(argv, stderr=subprocess.PIPE) for _ in range(6)]
    assert [process.communicate()[1].decode() for process in started] == [""] * 6
    assert tip(bare) == first


def test_after_a_push_that_nobody_wrote_down_the_same_push_succeeds(repo: Path, bare: Path) -> None:
    first = commit(repo, "a")
    push.push(repo, "origin", BRANCH, first, ours=None)
    amended = commit(repo, "b", amend=True)
    push.push(repo, "origin", BRANCH, amended, ours=first)
    assert push.push(repo, "origin", BRANCH, amended, ours=first) == amended


def test_what_we_pushed_may_be_rewritten_also_if_nobody_else_knows_that_we_did(repo: Path, bare: Path) -> None:
    first = commit(repo, "a")
    push.push(repo, "origin", BRANCH, first, ours=None)
    amended = commit(repo, "b", amend=True)
    assert push.push(repo, "origin", BRANCH, amended, ours=None) == amended
    theirs = foreign(bare, amended)
    again = commit(repo, "c", amend=True)
    with pytest.raises(Conflict):
        push.push(repo, "origin", BRANCH, again, ours=None)
    assert tip(bare) == theirs


def test_a_branch_that_was_deleted_at_the_remote_is_made_again(repo: Path, bare: Path) -> None:
    first = commit(repo, "a")
    push.push(repo, "origin", BRANCH, first, ours=None)
    git_run(bare, "update-ref", "-d", f"refs/heads/{BRANCH}")
    amended = commit(repo, "b", amend=True)
    assert push.push(repo, "origin", BRANCH, amended, ours=first) == amended


def test_only_the_branch_is_pushed(repo: Path, bare: Path) -> None:
    git_run(repo, "config", "push.followTags", "true")
    first = commit(repo, "a")
    git_run(repo, "tag", "-a", "v1", "-m", "v1")
    push.push(repo, "origin", BRANCH, first, ours=None)
    assert git_run(bare, "for-each-ref", "--format=%(refname)") == f"refs/heads/{BRANCH}"


def test_the_push_address_counts(repo: Path, bare: Path, tmp_path: Path) -> None:
    git_run(tmp_path, "init", "-q", "--bare", "mine.git")
    git_run(repo, "config", "remote.origin.pushurl", str(tmp_path / "mine.git"))
    first = commit(repo, "a")
    push.push(repo, "origin", BRANCH, first, ours=None)
    assert push.remote_tip(repo, "origin", BRANCH) == first == tip(tmp_path / "mine.git")
    assert push.fetch(repo, "origin", BRANCH) is None


@pytest.mark.parametrize("named_by", ["hook", "hooksPath", "gpg", "vcs"])
def test_no_program_that_an_agent_can_name_sees_the_token(
    repo: Path, server: GitHTTPServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named_by: str
) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, TOKEN)
    hook(tmp_path, "pre-push", f"env >> {tmp_path}/seen; exit 1")
    program = tmp_path / "hooks" / "pre-push"
    if named_by == "hook":
        hook(repo / ".git", "pre-push", f"exec {program}")
    elif named_by == "hooksPath":
        git_run(repo, "config", "core.hooksPath", str(program.parent))
    elif named_by == "gpg":
        git_run(repo, "config", "push.gpgSign", "if-asked")
        git_run(server.root / "acme" / "widgets.git", "config", "receive.certNonceSeed", "x")
        git_run(repo, "config", "gpg.program", str(program))
    else:
        (tmp_path / "hooks" / "git-remote-mine").symlink_to(program)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        git_run(repo, "config", "remote.origin.vcs", "mine")
    head = commit(repo, "a")
    if named_by == "vcs":
        with pytest.raises(ExternalFailure):
            push.push(repo, "origin", BRANCH, head, ours=None, token=key(repo))
    else:
        assert push.push(repo, "origin", BRANCH, head, ours=None, token=key(repo)) == head
    assert not (tmp_path / "seen").exists()


def test_what_runs_for_a_remote_sees_no_secret_of_the_coordinator(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, TOKEN)
    hook(tmp_path, "ssh", f"env >> {tmp_path}/seen; exit 255")
    git_run(repo, "config", "core.sshCommand", str(tmp_path / "hooks" / "ssh"))
    git_run(repo, "remote", "add", "origin", "git@github.com:acme/widgets.git")
    with pytest.raises(ExternalFailure):
        push.push(repo, "origin", BRANCH, commit(repo, "a"), ours=None, token=Token(TOKEN, host="github.com"))
    assert TOKEN not in (tmp_path / "seen").read_text()


def test_a_hook_at_the_remote_that_declines_is_quoted_and_cut(repo: Path, bare: Path) -> None:
    hook(bare, "pre-receive", "printf 'protected \\033[31mbranch\\n'; seq 100000; echo the last word; exit 1")
    with pytest.raises(ExternalFailure) as caught:
        push.push(repo, "origin", BRANCH, commit(repo, "a"), ours=None)
    assert caught.value.code == "PUSH_REJECTED"
    assert "pre-receive hook declined" in caught.value.message
    assert "the last word" in caught.value.message
    assert "\x1b" not in caught.value.message
    assert len(caught.value.message) < 1500


def test_bad_names_and_unknown_commits_are_refused(repo: Path, bare: Path) -> None:
    head = git_run(repo, "rev-parse", "HEAD")
    with pytest.raises(InvalidInput):
        push.push(repo, "origin", "--mirror", head, ours=None)
    with pytest.raises(InvalidInput):
        push.push(repo, "--all", BRANCH, head, ours=None)
    with pytest.raises(InvalidInput):
        push.push(repo, "origin", BRANCH, "main", ours=None)
    with pytest.raises(InvalidInput):
        push.push(repo, "origin", BRANCH, head, ours=":")
    with pytest.raises(NotFound):
        push.push(repo, "origin", BRANCH, "0" * 39 + "1", ours=None)
    with pytest.raises(NotFound):
        push.push(repo, "upstream", BRANCH, head, ours=None)
    assert git_run(bare, "for-each-ref") == ""


def test_fetching_changes_one_ref_and_nothing_else(repo: Path, bare: Path) -> None:
    theirs = foreign(bare)
    git_run(bare, "update-ref", "refs/heads/other", theirs)
    git_run(bare, "tag", "v1", theirs)
    assert push.fetch(repo, "origin", "nope") is None
    before = git_run(repo, "for-each-ref")
    assert push.fetch(repo, "origin", BRANCH) == theirs
    assert push.fetch(repo, "origin", BRANCH) == theirs
    assert (
        git_run(repo, "for-each-ref").replace(before, "").strip()
        == f"{theirs} commit\trefs/remotes/origin/{BRANCH}"
    )
    assert not (repo / ".git" / "FETCH_HEAD").exists()
    rewritten = git_run(bare, "commit-tree", f"{theirs}^{{tree}}", "-m", "rewritten")
    git_run(bare, "update-ref", f"refs/heads/{BRANCH}", rewritten)
    assert push.fetch(repo, "origin", BRANCH) == rewritten


@pytest.mark.parametrize("url", ["http://u:hunter22@127.0.0.1:1/a.git", "ssh://git@127.0.0.1:1/a.git", "gone.git"])
def test_a_remote_that_cannot_be_reached_says_so_without_secrets(repo: Path, url: str) -> None:
    git_run(repo, "remote", "add", "origin", url)
    head = git_run(repo, "rev-parse", "HEAD")
    token = Token(TOKEN, host="127.0.0.1:1")
    for action in (
        lambda: push.push(repo, "origin", BRANCH, head, ours=None, token=token),
        lambda: push.remote_tip(repo, "origin", BRANCH, token=token),
        lambda: push.fetch(repo, "origin", BRANCH, token=token),
    ):
        with pytest.raises(ExternalFailure) as caught:
            action()
        assert caught.value.code == "GITHUB_UNREACHABLE"
        assert "hunter22" not in shown(caught.value)
        assert TOKEN not in shown(caught.value)


def test_over_http_the_token_opens_the_remote(repo: Path, server: GitHTTPServer) -> None:
    first = commit(repo, "a")
    assert push.push(repo, "origin", BRANCH, first, ours=None, token=key(repo)) == first
    assert push.push(repo, "origin", BRANCH, first, ours=None, token=key(repo)) == first
    assert server.pushes == ["/acme/widgets.git"]
    assert push.remote_tip(repo, "origin", BRANCH, token=key(repo)) == first
    assert push.fetch(repo, "origin", BRANCH, token=key(repo)) == first
    basic = "Basic " + base64.b64encode(f"x-access-token:{TOKEN}".encode()).decode()
    assert set(server.authorizations) == {None, basic}


@pytest.mark.parametrize("token", [None, "ghp_TheWrongTokenAltogether"])
def test_without_the_right_token_the_failure_is_one_of_authorization(
    repo: Path, server: GitHTTPServer, token: str | None
) -> None:
    with pytest.raises(ExternalFailure) as caught:
        push.push(repo, "origin", BRANCH, commit(repo, "a"), ours=None, token=key(repo, token) if token else None)
    assert caught.value.code == "GITHUB_UNAUTHORIZED"
    assert caught.value.hint
    assert token is None or token not in shown(caught.value)
    assert server.pushes == []


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (403, "GITHUB_UNAUTHORIZED"),
        (404, "GITHUB_UNAUTHORIZED"),
        (500, "GITHUB_UNREACHABLE"),
        (503, "GITHUB_UNREACHABLE"),
        (429, "GITHUB_UNREACHABLE"),
    ],
)
def test_what_a_server_answers_has_a_code(repo: Path, server: GitHTTPServer, status: int, code: str) -> None:
    server.failing = status
    with pytest.raises(ExternalFailure) as caught:
        push.push(repo, "origin", BRANCH, commit(repo, "a"), ours=None, token=key(repo))
    assert caught.value.code == code


@pytest.mark.parametrize("rewrite", [False, True])
@pytest.mark.parametrize("moment", [LOOK, PUSH])
def test_somebody_who_pushes_in_between_wins(
    repo: Path, server: GitHTTPServer, moment: str, rewrite: bool
) -> None:
    """Just before git itself looks where the branch is, and just before it sends what it has."""
    bare = server.root / "acme" / "widgets.git"
    first = commit(repo, "a")
    push.push(repo, "origin", BRANCH, first, ours=None, token=key(repo))
    amended = commit(repo, "b", amend=rewrite)

    def be_quicker(path: str) -> None:
        if path.endswith(moment):
            foreign(bare, first)

    server.before = be_quicker
    with pytest.raises(Conflict) as caught:
        push.push(repo, "origin", BRANCH, amended, ours=first, token=key(repo))
    assert caught.value.code == "PUSH_REJECTED"
    assert git_run(bare, "log", "-1", "--format=%s", BRANCH) == "theirs"


@pytest.mark.parametrize("setting", ["pushurl", "pushInsteadOf", "insteadOf", "url"])
def test_the_token_goes_to_no_other_host(repo: Path, tmp_path: Path, server: GitHTTPServer, setting: str) -> None:
    """An agent can write the repository's configuration; a second server on another port is another place."""
    token, head = key(repo), commit(repo, "a")
    with serve(tmp_path / "elsewhere", password=TOKEN) as other:
        other.create("acme/widgets")
        if setting.endswith("url"):
            git_run(repo, "config", f"remote.origin.{setting}", f"{other.url}/acme/widgets.git")
        else:
            git_run(repo, "config", f"url.{other.url}/.{setting}", f"{server.url}/")
        asks = [
            lambda: push.push(repo, "origin", BRANCH, head, ours=None, token=token),
            lambda: push.remote_tip(repo, "origin", BRANCH, token=token),
        ]
        if not setting.startswith("push"):
            asks.append(lambda: push.fetch(repo, "origin", BRANCH, token=token))
        for ask in asks:
            with pytest.raises(ExternalFailure) as caught:
                ask()
            assert caught.value.code == "GITHUB_UNAUTHORIZED"
            assert token.host in caught.value.message
            assert other.url.removeprefix("http://") in caught.value.message
            assert TOKEN not in shown(caught.value)
        assert other.requests == []


@pytest.mark.parametrize("plain_http", [False, True])
def test_unencrypted_the_token_goes_only_where_the_person_has_said_so(repo: Path, plain_http: bool) -> None:
    git_run(repo, "remote", "add", "origin", "http://ghe.invalid/acme/widgets.git")
    token = Token(TOKEN, host="ghe.invalid", plain_http=plain_http)
    with pytest.raises(ExternalFailure) as caught:
        push.remote_tip(repo, "origin", BRANCH, token=token)
    assert caught.value.code == ("GITHUB_UNREACHABLE" if plain_http else "GITHUB_UNAUTHORIZED")


@pytest.mark.parametrize("key_name", ["http.sslVerify", "http.https://github.com/.sslCAInfo"])
def test_whom_to_trust_as_github_is_not_for_the_repository_to_say(repo: Path, key_name: str) -> None:
    git_run(repo, "remote", "add", "origin", "https://github.com/acme/widgets.git")
    git_run(repo, "config", key_name, "false")
    with pytest.raises(ExternalFailure) as caught:
        push.remote_tip(repo, "origin", BRANCH, token=Token(TOKEN, host="github.com"))
    assert caught.value.code == "GITHUB_UNAUTHORIZED"
    assert "ssl" in caught.value.message


def test_the_helpers_of_the_person_are_asked_only_without_a_token(repo: Path, server: GitHTTPServer) -> None:
    asked = repo.parent / "asked"
    helper = f"!f() {{ echo x >> {asked}; echo username=x-access-token; echo password={TOKEN}; }}; f"
    git_run(repo, "config", "credential.helper", helper)
    first = commit(repo, "a")
    push.push(repo, "origin", BRANCH, first, ours=None, token=key(repo))
    assert not asked.exists()
    second = commit(repo, "b")
    push.push(repo, "origin", BRANCH, second, ours=None)
    assert asked.exists()
    assert tip(server.root / "acme" / "widgets.git") == second


def test_settings_that_the_environment_gives_git_stay(
    repo: Path, server: GitHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = key(repo)
    git_run(repo, "remote", "set-url", "origin", "there:acme/widgets.git")
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", f"url.{server.url}/.insteadOf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "there:")
    push.push(repo, "origin", BRANCH, commit(repo, "a"), ours=None, token=token)
    assert server.pushes == ["/acme/widgets.git"]


def test_the_token_is_in_no_argument_file_or_output(
    repo: Path, server: GitHTTPServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every command line is written down while the push is under way, and git traces all it does."""
    seen = tmp_path / "seen"
    hook(
        server.root / "acme" / "widgets.git", "post-receive", f"cat /proc/[0-9]*/cmdline | tr '\\0' ' ' >> {seen}"
    )
    for name in ("GIT_TRACE", "GIT_TRACE_CURL", "GIT_TRACE2_EVENT", "GIT_TRACE_SETUP"):
        monkeypatch.setenv(name, str(tmp_path / f"{name}.log"))
    monkeypatch.setenv("GIT_TRACE_REDACT", "0")
    push.push(repo, "origin", BRANCH, commit(repo, "a"), ours=None, token=key(repo))
    assert "git-remote-http" in seen.read_text()
    assert "askpass.py" in (tmp_path / "GIT_TRACE.log").read_text()
    basic = base64.b64encode(f"x-access-token:{TOKEN}".encode())
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert TOKEN.encode() not in path.read_bytes(), path
            assert basic not in path.read_bytes(), path


def test_what_a_hook_says_of_a_secret_is_not_repeated(repo: Path, server: GitHTTPServer) -> None:
    coded = base64.b64encode(f"x-access-token:{TOKEN}".encode()).decode()
    said = f"echo token={TOKEN} {coded} https://person:pw@example.invalid/x"
    hook(server.root / "acme" / "widgets.git", "pre-receive", f"{said}; exit 1")
    with pytest.raises(ExternalFailure) as caught:
        push.push(repo, "origin", BRANCH, commit(repo, "a"), ours=None, token=key(repo))
    assert "token=***" in caught.value.message
    assert TOKEN not in shown(caught.value)
    assert coded not in shown(caught.value)
    assert "person:pw" not in shown(caught.value)
    assert "example.invalid" in caught.value.message


def test_a_password_in_the_address_is_used_and_not_shown(repo: Path, server: GitHTTPServer) -> None:
    url = f"{server.url}/acme/widgets.git".replace("http://", f"http://x-access-token:{TOKEN}@")
    git_run(repo, "remote", "set-url", "origin", url)
    first = commit(repo, "a")
    assert push.push(repo, "origin", BRANCH, first, ours=None) == first
    hook(server.root / "acme" / "widgets.git", "pre-receive", f"echo no: {TOKEN}; exit 1")
    with pytest.raises(ExternalFailure) as caught:
        push.push(repo, "origin", BRANCH, commit(repo, "b"), ours=first)
    assert caught.value.code == "PUSH_REJECTED"
    assert TOKEN not in shown(caught.value)


def test_ssh_is_not_allowed_to_ask_unless_the_person_says_how_it_runs(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/ssh\nexit 255\n')
    program.chmod(0o755)
    git_run(repo, "remote", "add", "origin", "git@example.invalid:acme/widgets.git")
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    with pytest.raises(ExternalFailure) as caught:
        push.remote_tip(repo, "origin", BRANCH, token=Token(TOKEN, host="example.invalid"))
    assert caught.value.code == "GITHUB_UNREACHABLE"
    assert "BatchMode=yes" in (tmp_path / "ssh").read_text()
    git_run(repo, "config", "core.sshCommand", f"{program} -o Mine=yes")
    with pytest.raises(ExternalFailure):
        push.remote_tip(repo, "origin", BRANCH)
    assert "BatchMode" not in (tmp_path / "ssh").read_text().splitlines()[-1]


def test_the_helper_answers_for_its_place_alone() -> None:
    environ = {askpass.PASSWORD_VARIABLE: TOKEN, askpass.PLACE_VARIABLE: "https://github.com"}
    asked = ["protocol=https\n", "host=github.com\n"]
    assert askpass.answer(asked, environ) == f"username=x-access-token\npassword={TOKEN}\n"
    assert askpass.answer(["protocol=http\n", "host=github.com\n"], environ) == ""
    assert askpass.answer(["protocol=https\n", "host=evil.invalid\n"], environ) == ""
    assert askpass.answer(asked, {}) == ""


@pytest.mark.parametrize("action", ["store", "erase"])
def test_the_helper_keeps_and_forgets_nothing(action: str) -> None:
    env = {**os.environ, askpass.PASSWORD_VARIABLE: TOKEN, askpass.PLACE_VARIABLE: "https://github.com"}
    argv = [sys.executable, "-I", askpass.__file__, action]
    done = subprocess.run(
        argv, input=b"protocol=https\nhost=github.com\n", env=env, capture_output=True, check=True
    )
    assert done.stdout == b""


def test_the_remote_that_an_address_belongs_to_has_a_name(repo: Path) -> None:
    assert push.remote_name(repo) is None
    git_run(repo, "remote", "add", "upstream", "https://example.invalid/a.git")
    assert push.remote_name(repo) == "upstream"
    git_run(repo, "remote", "add", "origin", "https://example.invalid/b.git")
    assert push.remote_name(repo) == "origin"


def test_pushes_of_different_branches_at_once_all_arrive(repo: Path, server: GitHTTPServer) -> None:
    first = commit(repo, "a")
    names = [f"work/work-{n}-a1" for n in range(1, 7)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda name: push.push(repo, "origin", name, first, ours=None, token=key(repo)), names))
    bare = server.root / "acme" / "widgets.git"
    assert git_run(bare, "for-each-ref", "--format=%(refname:lstrip=2)").splitlines() == names


def test_a_filter_of_the_repository_sees_no_secret_of_the_coordinator(
    tmp_path: Path, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tmp_path / "seen"
    monkeypatch.setenv("GITHUB_TOKEN", "ghp_ofThePerson")
    (repo / ".gitattributes").write_text("*.txt filter=spy\n")
    (repo / "made.txt").write_text("made\n")
    git_run(repo, "config", "filter.spy.smudge", f"sh -c 'env > {seen}; cat'")
    git_run(repo, "add", "-A")
    git_run(repo, "commit", "-q", "-m", "with a filter")
    head = git_run(repo, "rev-parse", "HEAD")
    git.add_worktree(repo, tmp_path / "tree", branch="agent", base_commit=head, lock=tmp_path / "lock")
    assert "PATH=" in seen.read_text()
    assert "ghp_ofThePerson" not in seen.read_text()

"""What goes to a remote and comes from one. Nobody's commits are overwritten there, and no secret is shown.

git has no exit codes for what a remote objects to. What it says in the C locale is read here, and only here.
Agents can write the repository's configuration and hooks: no program named there runs where a token is.
"""

from __future__ import annotations

import base64
import ipaddress
import os
import re
import shlex
import sys
from collections.abc import Container
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, quote, unquote, urlsplit

from swarm_core import proc
from swarm_core.errors import Conflict, ExternalFailure, InvalidInput, NotFound, TimedOut
from swarm_core.git import askpass
from swarm_core.git.command import (
    _ANY_CODE,
    _git,
    _run,
    check_branch_name,
    check_commit_id,
    code_of,
    nul_list,
    with_settings,
)
from swarm_core.git.refs import ref_commit
from swarm_core.git.repo import _settings
from swarm_core.github_token import SECRETS, Token

PUSH_TIMEOUT = 900.0
_LOOK_TIMEOUT = 60.0
_ATTEMPTS = 3
_WORDS = 600
_PUSH_ONLY = "swarm-push"
_PUSHED = "refs/swarm/pushed/"
# Programs that git would start, and protocols whose address is a program.
_NO_PROGRAMS = [("push.gpgSign", "false"), ("core.alternateRefsCommand", "true")]
_TRUST = re.compile(r"http\.(.*\.)?(sslverify|sslcainfo|sslcapath)")
_REFUSED = re.compile(
    r"Authentication failed|could not read (Username|Password)|returned error: 40[134]|Permission denied"
    r"|Permission to .* denied|[Rr]epository .*not found|Host key verification failed|Access denied|HTTP 40[134]"
)
_USER_INFO = re.compile(r"(\w[\w+.-]*://)[^/\s'\"]*@")
_NO_TEXT = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[^\n\x20-\x7e\xa0-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class _Remote:
    """Where git talks to and with what; `looked_at` is the name to read from, `hidden` what nobody may see."""

    repo: str
    name: str
    looked_at: str
    url: str
    env: dict[str, str] = field(repr=False)
    hidden: tuple[str, ...] = field(repr=False)


def remote_name(repo: str | Path) -> str | None:
    """The remote whose address is the repository's remote_url: `origin`, or else the first."""
    names = [key.removeprefix("remote.").removesuffix(".url") for key in _settings(Path(repo)) if "remote." in key]
    return "origin" if "origin" in names else next(iter(names), None)


def remote_tip(repo: str | Path, remote: str, branch: str, *, token: Token | None = None) -> str | None:
    """The commit of a branch at the place that `push` pushes to; None when it has no such branch."""
    check_branch_name(branch)
    return _tip(_remote(repo, remote, token, push=True), branch)


def push(
    repo: str | Path, remote: str, branch: str, commit: str, *, ours: str | None, token: Token | None = None
) -> str:
    """Put the branch at the remote to the commit; twice is safe, also at once and after a kill.

    What the remote has beyond the commit is given up only if its branch is at `ours`, the commit that we pushed
    last, or at what this repository notes as such. No hook of the repository runs, so objects of Git LFS have to
    be there before: their hook would see the token. This is sent over http(s) to its own host alone.
    Raises Conflict (PUSH_REJECTED) when somebody else has pushed, ExternalFailure (PUSH_REJECTED,
    GITHUB_UNAUTHORIZED also if the remote leads to another host, GITHUB_UNREACHABLE), TimedOut.
    """
    check_branch_name(branch)
    for one in (commit, *([ours] if ours else [])):
        check_commit_id(one)
    if code_of(repo, "cat-file", "-e", f"{commit}^{{commit}}", ok_codes=(0, 1, 128)):
        raise NotFound(f"there is no commit {commit}", code="GIT_BRANCH_NOT_FOUND")
    place = _remote(repo, remote, token, push=True)
    note = f"{_PUSHED}{quote(remote, safe='')}/{quote(branch, safe='')}"
    _bring(place, branch, commit, {ours, ref_commit(repo, note)})
    # A note that cannot be taken, as another process takes it, costs no more than a refusal to rewrite later.
    _run(repo, "update-ref", note, commit, ok_codes=_ANY_CODE)
    return commit


def fetch(repo: str | Path, remote: str, branch: str, *, token: Token | None = None) -> str | None:
    """Bring the remote's branch to refs/remotes/<remote>/<branch> alone; None when it has no such branch."""
    check_branch_name(branch)
    place = _remote(repo, remote, token, push=False)
    ref = f"refs/remotes/{remote}/{branch}"
    tip = _tip(place, branch)
    if tip is None or ref_commit(repo, ref) == tip:
        return tip
    how = ("--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--no-prune", "--refmap=", "--quiet")
    done = _talk(place, "fetch", *how, "--", place.name, f"+refs/heads/{branch}:{ref}", timeout=PUSH_TIMEOUT)
    found = ref_commit(repo, ref)
    if done.returncode != 0 and found != tip:
        raise _failure(place, done)
    return found


def _bring(place: _Remote, branch: str, commit: str, ours: Container[str | None]) -> None:
    tip = _tip(place, branch)
    for _ in range(_ATTEMPTS):
        if tip == commit:
            return
        done = _push(place, branch, commit, _lease(place, branch, commit, tip, ours))
        if done.returncode == 0:
            return
        before, tip = tip, _tip(place, branch)
        if tip == before:
            raise _rejection(place, branch, done)
    if tip != commit:
        raise _somebody_else(branch, commit, tip)


def _remote(repo: str | Path, name: str, token: Token | None, *, push: bool) -> _Remote:
    fetched, pushed = _url(repo, name), _url(repo, name, "--push")
    url = pushed if push else fetched
    settings = list(_NO_PROGRAMS)
    if url != fetched:
        # Through the environment: an address may hold a password, and arguments are there for all to read.
        settings.append((f"remote.{_PUSH_ONLY}.url", url))
    env = {"GIT_TRACE_REDACT": "1", **_quiet_ssh(repo), **dict.fromkeys(SECRETS & os.environ.keys(), "")}
    parts = urlsplit(url) if re.match(r"https?://", url) else None
    if token and parts:
        _check_place(repo, name, parts, token)
        place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        helper = f"!{shlex.quote(sys.executable)} -I {shlex.quote(askpass.__file__)}"
        settings += [("credential.helper", ""), (f"credential.{place}.helper", helper)]
        env |= {askpass.PASSWORD_VARIABLE: str(token), askpass.PLACE_VARIABLE: place, "GIT_ASKPASS": ""}
        env |= {"GIT_ALLOW_PROTOCOL": "http:https"}
    env |= with_settings(os.environ, settings)
    looked_at = name if url == fetched else _PUSH_ONLY
    return _Remote(str(repo), name, looked_at, url, env, _secrets(token, url))


def _check_place(repo: str | Path, name: str, parts: SplitResult, token: Token) -> None:
    """Raise ExternalFailure unless the token is for where the remote leads and cannot be read on the way."""
    host = _host(parts)
    if host != token.host:
        raise _not_sent(
            f"the remote {name} leads to {host}, and the token is for {token.host}",
            "see `git remote -v` and `git config --get-regexp insteadof`: somebody may have redirected it",
        )
    if parts.scheme == "http" and not token.plain_http and not _is_loopback(parts.hostname or ""):
        raise _not_sent(
            f"the remote {name} at {host} is reached without encryption, and the token is for {token.host}",
            f"`git remote set-url {name} https://...`",
        )
    listed = nul_list(_git(repo, "config", "-z", "--show-scope", "--name-only", "--list"))
    scoped = zip(listed[::2], listed[1::2], strict=False)
    if mine := [key for scope, key in scoped if scope in ("local", "worktree") and _TRUST.fullmatch(key)]:
        raise _not_sent(
            f"the repository's own configuration says whom to trust as {token.host}: {', '.join(mine)[:200]}",
            "an agent can write that: have it in your own configuration (`git config --global`) instead",
        )


def _host(parts: SplitResult) -> str:
    """As `forge.parse_remote` spells it."""
    name = (parts.hostname or "").lower()
    name = f"[{name}]" if ":" in name else name
    try:
        port = parts.port
    except ValueError:
        return ""
    return name if port in (None, {"http": 80, "https": 443}[parts.scheme]) else f"{name}:{port}"


def _is_loopback(name: str) -> bool:
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _not_sent(why: str, hint: str) -> ExternalFailure:
    return ExternalFailure(f"{why}: it was not sent", code="GITHUB_UNAUTHORIZED", hint=hint)


def _url(repo: str | Path, name: str, *which: str) -> str:
    """Where the remote is, after what the person's configuration makes of it."""
    if not name or name.startswith("-") or not name.isprintable():
        raise InvalidInput(f"{name[:200]!r} is no name of a remote")
    done = _run(repo, "remote", "get-url", *which, name, ok_codes=_ANY_CODE)
    if done.returncode != 0:
        raise NotFound(f"the repository has no remote {name[:200]}", hint="`git remote -v` lists them")
    return os.fsdecode(done.stdout).split("\n")[0]


def _quiet_ssh(repo: str | Path) -> dict[str, str]:
    """Make ssh fail rather than ask, unless the person has said how to run it."""
    if {"GIT_SSH_COMMAND", "GIT_SSH"} & os.environ.keys() or code_of(repo, "config", "core.sshCommand") == 0:
        return {}
    return {"GIT_SSH_COMMAND": "ssh -o BatchMode=yes -o ConnectTimeout=20"}


def _secrets(token: str | None, url: str) -> tuple[str, ...]:
    passwords = {token or ""}
    if info := re.match(r"\w[\w+.-]*://([^/]*)@", url):
        password = info[1].partition(":")[2] or info[1]
        passwords |= {password, unquote(password)}
    coded = {base64.b64encode(f"{askpass.USERNAME}:{word}".encode()).decode() for word in passwords if word}
    shown = {word for password in passwords for word in (password, quote(password, safe=""))} | coded
    return tuple(sorted((word for word in shown if len(word) > 3), key=len, reverse=True))


def _tip(place: _Remote, branch: str) -> str | None:
    ref = f"refs/heads/{branch}"
    try:
        done = _talk(place, "ls-remote", "--quiet", "--heads", "--", place.looked_at, ref, timeout=_LOOK_TIMEOUT)
    except TimedOut as error:
        raise _unreachable(place, f"no answer within {_LOOK_TIMEOUT:g} s") from error
    if done.returncode != 0:
        raise _failure(place, done)
    tips = dict(line.split("\t")[::-1] for line in os.fsdecode(done.stdout).splitlines() if "\t" in line)
    return tips.get(ref)


def _lease(place: _Remote, branch: str, commit: str, tip: str | None, ours: Container[str | None]) -> list[str]:
    """What lets the push rewrite the branch; nothing when it only adds to it. Raises Conflict if it may not."""
    known = tip is None or code_of(place.repo, "cat-file", "-e", tip, ok_codes=(0, 1, 128)) == 0
    if tip is None or (known and code_of(place.repo, "merge-base", "--is-ancestor", tip, commit) == 0):
        return []
    if tip not in ours:
        raise _somebody_else(branch, commit, tip)
    return [f"--force-with-lease=refs/heads/{branch}:{tip}"]


def _push(place: _Remote, branch: str, commit: str, lease: list[str]) -> proc.Completed:
    how = ("--porcelain", "--no-follow-tags", "--recurse-submodules=no", *lease)
    refspec = f"{commit}:refs/heads/{branch}"
    return _talk(place, "push", *how, "--", place.name, refspec, timeout=PUSH_TIMEOUT)


def _talk(place: _Remote, *args: str, timeout: float) -> proc.Completed:
    return _run(place.repo, *args, env=place.env, timeout=timeout, ok_codes=_ANY_CODE)


def _rejection(place: _Remote, branch: str, done: proc.Completed) -> ExternalFailure:
    """What stopped a push though the branch has not moved."""
    marks = [line.split("\t") for line in done.text.splitlines() if line.startswith("!")]
    if done.returncode > 1 and not marks:
        return _failure(place, done)
    why = "; ".join(fields[-1] for fields in marks) or "git has stopped it"
    return ExternalFailure(
        f"{_plain(place)} does not take {branch}: {_public(place, why)}: {_words(place, done)}",
        code="PUSH_REJECTED",
        hint="see what it says: the branch may be protected; files of Git LFS are sent with `git lfs push` first",
        details={"branch": branch},
    )


def _somebody_else(branch: str, commit: str, tip: str | None) -> Conflict:
    return Conflict(
        f"the remote's {branch} is at {tip}, which {commit} does not contain and swarm has not pushed",
        code="PUSH_REJECTED",
        hint="somebody else has pushed: fetch the branch and rebase onto it",
        details={"branch": branch, "commit": commit, "remote_commit": tip},
    )


def _failure(place: _Remote, done: proc.Completed) -> ExternalFailure:
    """What a git that could not do its work with the remote says."""
    words = _words(place, done)
    if _REFUSED.search(words):
        return ExternalFailure(
            f"{_plain(place)} does not let swarm in: {words}",
            code="GITHUB_UNAUTHORIZED",
            hint="check that the token or key is valid and may write to the repository, and that this exists",
        )
    if done.returncode == 1:
        return ExternalFailure(f"git could not do it: {words}", code="GIT_COMMAND_FAILED")
    return _unreachable(place, words)


def _unreachable(place: _Remote, words: str) -> ExternalFailure:
    return ExternalFailure(
        f"{_plain(place)} cannot be reached: {words}",
        code="GITHUB_UNREACHABLE",
        hint="check the address and the network; it is tried again",
    )


def _plain(place: _Remote) -> str:
    return _public(place, place.url)[:200]


def _words(place: _Remote, done: proc.Completed) -> str:
    """What was said, the end of it, fit to be shown."""
    said = _public(place, done.stderr.decode(errors="replace"))
    lines = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith("hint: ")]
    return " | ".join(lines)[-_WORDS:] or f"exit code {done.returncode}"


def _public(place: _Remote, text: str) -> str:
    shown = text
    for word in place.hidden:
        shown = shown.replace(word, "***")
    return _NO_TEXT.sub("", _USER_INFO.sub(r"\1", shown))

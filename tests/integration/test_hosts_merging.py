"""What a host does for pull requests: pushes, merges in a scratch, and says who touches what. JSON in and out."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from swarm_core import config, ids, locks
from swarm_core.errors import Conflict, ExternalFailure, InvalidInput, NotFound
from swarm_core.github_token import Token
from swarm_core.hosts.base import HeadOrder, IntegrateFacts, IntegrateOrder, Place
from swarm_core.hosts.local import LocalHost
from tests.support import git_run, wait_until

WHOLE = [0, 2**31 - 1]


@pytest.fixture
def environ(short_tmp: Path) -> dict[str, str]:
    return {
        **os.environ,
        "SWARM_HOME": str(short_tmp / "h"),
        "SWARM_TOKEN": "secret-of-swarm",
        "GITHUB_TOKEN": "secret-of-github",
        "GH_TOKEN": "secret-of-gh",
    }


@pytest.fixture
def host(environ: dict[str, str]) -> Iterator[LocalHost]:
    made = LocalHost(config.load(environ), environ)
    yield made
    made.close()


@pytest.fixture
def origin(repo: Path, tmp_path: Path) -> Path:
    git_run(tmp_path, "init", "-q", "--bare", "-b", "main", "origin.git")
    git_run(repo, "remote", "add", "origin", str(tmp_path / "origin.git"))
    return tmp_path / "origin.git"


def branch(repo: Path, name: str, files: dict[str, str], start: str = "main") -> str:
    """A branch with one commit of these files, made without touching the checkout."""
    side = repo.parent / "side"
    git_run(repo, "worktree", "add", "-q", "-b", name, str(side), start)
    for path, content in files.items():
        (side / path).write_text(content)
    git_run(side, "add", "-A")
    git_run(side, "commit", "-q", "-m", name)
    git_run(repo, "worktree", "remove", "--force", str(side))
    return rev(repo, name)


def rev(repo: Path, name: str) -> str:
    return git_run(repo, "rev-parse", name)


def order(repo: Path, *heads: str, method: str = "merge", **more: Any) -> IntegrateOrder:
    wanted: list[HeadOrder] = [
        {"head_commit": head, "method": method, "message": f"Merge {head}"} for head in heads
    ]
    made = {
        "repo_path": str(repo),
        "base_branch": "main",
        "base_commit": None,
        "heads": wanted,
        "check": [],
        "check_timeout": 60.0,
        "land": False,
        "scratch": "queue",
        **more,
    }
    return json.loads(json.dumps(made))  # type: ignore[no-any-return]


def integrate(host: LocalHost, wanted: IntegrateOrder) -> IntegrateFacts:
    facts = host.integrate(wanted)
    assert json.loads(json.dumps(facts)) == facts
    return facts


def place(repo: Path, name: str, base_commit: str | None, worktree: Path | None = None) -> Place:
    return {
        "instance_id": name,
        "repo_path": str(repo),
        "worktree_path": str(worktree or repo.parent / "nowhere" / name),
        "branch": name,
        "base_commit": base_commit,
    }


def traces(repo: Path, host: LocalHost) -> tuple[list[str], list[Path]]:
    home = host._settings.home
    return host.registered_worktrees(str(repo)), [p for p in (home / "scratch").rglob("*") if not p.is_dir()]


def test_heads_are_merged_in_order_and_the_branch_stays(host: LocalHost, repo: Path) -> None:
    one, two = branch(repo, "one", {"one": "1\n"}), branch(repo, "two", {"two": "2\n"})
    base, before = rev(repo, "main"), git_run(repo, "for-each-ref")
    facts = integrate(host, order(repo, one, two, method="squash"))
    first, second = facts["commits"]
    assert (facts["base_commit"], facts["conflict"], facts["check"], facts["landed"]) == (base, None, None, False)
    assert git_run(repo, "rev-list", "--reverse", f"main..{second}").split() == [first, second]
    assert git_run(repo, "for-each-ref") == before
    assert traces(repo, host) == ([str(repo)], [])


@pytest.mark.parametrize("method", ["merge", "squash", "rebase"])
def test_a_result_is_landed_once_also_when_it_is_asked_for_again(host: LocalHost, repo: Path, method: str) -> None:
    one, two = branch(repo, "one", {"one": "1\n"}), branch(repo, "two", {"two": "2\n"})
    wanted = order(repo, one, two, method=method, land=True, check=["test", "-f", "two"])
    facts = integrate(host, wanted)
    assert facts["landed"]
    assert rev(repo, "main") == facts["commits"][-1]
    again = integrate(host, wanted)
    assert again["landed"]
    assert again["commits"] == [facts["commits"][-1]] * 2
    assert rev(repo, "main") == facts["commits"][-1]
    assert (repo / "one").read_text() == "1\n"
    assert git_run(repo, "status", "--porcelain") == ""
    assert git_run(repo, "reflog", "-1", "--format=%gs", "main").startswith("swarm: merge")


def test_a_conflict_is_a_result_and_nothing_lands(host: LocalHost, repo: Path) -> None:
    one, two = branch(repo, "one", {"README.md": "1\n"}), branch(repo, "two", {"README.md": "2\n", "x": "x"})
    base = rev(repo, "main")
    facts = integrate(host, order(repo, one, two, land=True, check=["touch", str(repo / "ran")]))
    assert facts["conflict"] == {"index": 1, "files": ["README.md"]}
    assert len(facts["commits"]) == 1
    assert (facts["check"], facts["landed"]) == (None, False)
    assert rev(repo, "main") == base
    assert not (repo / "ran").exists()


def test_a_failed_check_is_a_result_and_nothing_lands(host: LocalHost, repo: Path) -> None:
    one = branch(repo, "one", {"one": "1\n"})
    base = rev(repo, "main")
    facts = integrate(host, order(repo, one, land=True, check=["sh", "-c", "cat one; exit 4"]))
    assert facts["check"] == {"ok": False, "output": "1\n\n[exit code 4]"}
    assert not facts["landed"]
    assert rev(repo, "main") == base


def test_a_check_sees_no_secret_of_ours(host: LocalHost, repo: Path) -> None:
    facts = integrate(host, order(repo, branch(repo, "one", {"one": "1\n"}), check=["env"]))
    assert facts["check"]
    assert facts["check"]["ok"]
    assert "secret-of" not in facts["check"]["output"]
    assert "PATH=" in facts["check"]["output"]


def test_a_check_that_hangs_is_ended_with_all_it_started(host: LocalHost, repo: Path) -> None:
    """One child stays in the check's process group, one leaves it."""
    script = "sleep 1000 & echo $!; setsid sleep 1000 & echo $!; wait"
    one = branch(repo, "one", {"one": "1\n"})
    facts = integrate(host, order(repo, one, land=True, check=["sh", "-c", script], check_timeout=1.0))
    assert facts["check"]
    assert not facts["check"]["ok"]
    assert not facts["landed"]
    for pid in facts["check"]["output"].split()[:2]:
        wait_until(lambda pid=pid: not alive(pid), what=pid)
    assert traces(repo, host) == ([str(repo)], [])


def alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_while_a_check_runs_the_repository_is_not_locked(host: LocalHost, repo: Path) -> None:
    lock = host._settings.repo_lock(str(repo))
    program = f"""
import sys
from pathlib import Path
from swarm_core import locks
with locks.hold(Path({str(lock)!r}), timeout=0):
    print("free")
"""
    check = ["env", f"PYTHONPATH={Path.cwd()}", sys.executable, "-c", program]
    facts = integrate(host, order(repo, branch(repo, "one", {"one": "1\n"}), check=check))
    assert facts["check"] == {"ok": True, "output": "free"}


def test_two_with_the_same_scratch_exclude_one_another(host: LocalHost, repo: Path) -> None:
    one = branch(repo, "one", {"one": "1\n"})
    wanted = order(repo, one)
    lock = host._settings.locks / f"scratch-{ids.repo_folder(str(repo))}-queue.lock"
    with locks.hold(lock), pytest.raises(Conflict) as caught:
        host.integrate(wanted)
    assert caught.value.code == "INSTANCE_BUSY"
    assert integrate(host, order(repo, one, scratch="another"))["conflict"] is None


def test_after_a_kill_in_the_middle_of_a_check_the_same_order_succeeds(
    host: LocalHost, repo: Path, environ: dict[str, str]
) -> None:
    """The check outlives the killed process, and is ended by who comes next."""
    ready = repo.parent / "ready"
    one = branch(repo, "one", {"one": "1\n"})
    script = f"if ! [ -e {ready} ]; then echo $$ > {ready}.new; mv {ready}.new {ready}; sleep 1000; fi"
    wanted = order(repo, one, land=True, check=["sh", "-c", script], check_timeout=900.0)
    program = f"""
import json, os
from swarm_core import config
from swarm_core.hosts.local import LocalHost
LocalHost(config.load(os.environ), os.environ).integrate(json.loads({json.dumps(wanted)!r}))
"""
    process = subprocess.Popen([sys.executable, "-c", program], env={**environ, "PYTHONPATH": str(Path.cwd())})
    wait_until(ready.exists, timeout=60, what="the check to run")
    process.send_signal(signal.SIGKILL)
    process.wait()
    pid = ready.read_text().strip()
    assert alive(pid)
    assert integrate(host, {**wanted, "check": []})["landed"]
    wait_until(lambda: not alive(pid), what="the orphan to end")
    assert integrate(host, wanted)["landed"]
    assert traces(repo, host) == ([str(repo)], [])


def test_what_cannot_be_landed_is_an_exception_and_leaves_everything(host: LocalHost, repo: Path) -> None:
    one = branch(repo, "one", {"README.md": "1\n"})
    base = rev(repo, "main")
    (repo / "README.md").write_text("mine\n")
    with pytest.raises(Conflict) as caught:
        host.integrate(order(repo, one, land=True))
    assert caught.value.details["reason"] == "checkout"
    assert caught.value.details["files"] == ["README.md"]
    assert rev(repo, "main") == base
    assert (repo / "README.md").read_text() == "mine\n"
    assert traces(repo, host) == ([str(repo)], [])


def test_a_base_that_moves_while_the_check_runs_is_seen(host: LocalHost, repo: Path) -> None:
    one = branch(repo, "one", {"one": "1\n"})
    git = shlex.join(["git", "-C", str(repo), "commit", "-q", "--allow-empty", "-m", "meanwhile"])
    with pytest.raises(Conflict) as caught:
        host.integrate(order(repo, one, land=True, check=["sh", "-c", git]))
    assert caught.value.details["reason"] == "base_moved"
    assert git_run(repo, "log", "-1", "--format=%s", "main") == "meanwhile"


def test_a_base_can_be_a_commit_that_no_local_branch_has(host: LocalHost, repo: Path) -> None:
    first = rev(repo, "main")
    one = branch(repo, "one", {"one": "1\n"})
    git_run(repo, "commit", "-q", "--allow-empty", "-m", "later")
    facts = integrate(host, order(repo, one, base_branch=None, base_commit=first))
    assert facts["base_commit"] == first
    assert git_run(repo, "show", "-s", "--format=%P", facts["commits"][0]).split()[0] == first


@pytest.mark.parametrize(
    "bad",
    [
        {"scratch": "../up"},
        {"scratch": ".hidden"},
        {"scratch": ""},
        {"base_branch": None},
        {"base_branch": None, "land": True},
        {"base_branch": "nope"},
        {"heads": [{"head_commit": "main", "method": "merge", "message": ""}]},
        {"heads": [{"head_commit": "1" * 40, "method": "octopus", "message": ""}]},
        {"check": [""]},
    ],
)
def test_a_bad_order_is_refused(host: LocalHost, repo: Path, bad: dict[str, Any]) -> None:
    before = git_run(repo, "for-each-ref")
    with pytest.raises((InvalidInput, NotFound)):
        host.integrate(order(repo, **bad))
    assert git_run(repo, "for-each-ref") == before
    assert traces(repo, host) == ([str(repo)], [])


def test_an_order_without_heads_checks_the_base(host: LocalHost, repo: Path) -> None:
    facts = integrate(host, order(repo, check=["cat", "README.md"], land=True))
    assert facts["check"] == {"ok": True, "output": "# A project"}
    assert (facts["commits"], facts["landed"]) == ([], True)


def test_a_host_pushes_fetches_and_looks_at_a_remote(host: LocalHost, repo: Path, origin: Path) -> None:
    path, head, token = str(repo), rev(repo, "main"), Token("token", host="github.com")
    facts = host.ensure_repo(path, None)
    assert (facts["remote"], facts["remote_url"]) == ("origin", str(origin))
    assert host.remote_tip(path, "origin", "work/a", None) is None
    assert host.push(path, "origin", "work/a", head, None, token) == head
    assert host.push(path, "origin", "work/a", head, None, token) == head
    assert host.remote_tip(path, "origin", "work/a", None) == head
    assert host.fetch(path, "origin", "work/a", None) == head
    git_run(repo, "remote", "set-url", "origin", str(origin / "gone"))
    with pytest.raises(ExternalFailure) as caught:
        host.push(path, "origin", "work/a", head, None, None)
    assert caught.value.code == "GITHUB_UNREACHABLE"


def test_a_repository_without_a_remote_names_none(host: LocalHost, repo: Path) -> None:
    facts = host.ensure_repo(str(repo), None)
    assert (facts["remote"], facts["remote_url"]) == (None, None)


def test_a_host_predicts_merges(host: LocalHost, repo: Path) -> None:
    branch(repo, "one", {"README.md": "1\n"})
    two = branch(repo, "two", {"README.md": "2\n"})
    known = {"supported": True, "related": True}
    assert host.predict(str(repo), "one", two) == {"clean": False, "conflicts": ["README.md"], **known}
    assert host.predict(str(repo), "main", "one") == {"clean": True, "conflicts": [], **known}
    with pytest.raises(NotFound):
        host.predict(str(repo), "main", "nope")


def test_a_host_knows_what_is_merged(host: LocalHost, repo: Path) -> None:
    one = branch(repo, "one", {"one": "1\n"})
    assert not host.is_merged(str(repo), one, "main")
    assert not host.is_merged(str(repo), "nope", "main")
    assert not host.is_merged(str(repo), one, "nope")
    integrate(host, order(repo, one, method="squash", land=True))
    assert host.is_merged(str(repo), "one", "main")


def test_what_instances_touch_is_told_with_what_is_not_committed(host: LocalHost, repo: Path) -> None:
    base = rev(repo, "main")
    branch(repo, "gone", {"README.md": "changed\n"})
    branch(repo, "there", {"new": "1\n"})
    git_run(repo, "worktree", "add", "-q", str(repo.parent / "wt"), "there")
    (repo.parent / "wt" / "src" / "app.py").write_text("changed\n")
    (repo.parent / "wt" / "fresh").write_text("x")
    places = [
        place(repo, "gone", base),
        place(repo, "there", base, repo.parent / "wt"),
        place(repo, "never", base),
        place(repo.parent / "no-repository", "lost", base),
    ]
    found = host.touched(json.loads(json.dumps(places)))
    assert json.loads(json.dumps(found)) == found
    assert found == {
        "gone": {"README.md": [[1, 1]]},
        "there": {"new": [WHOLE], "src/app.py": [[1, 1]], "fresh": [WHOLE]},
        "never": {},
        "lost": {},
    }


def test_what_instances_touch_is_told_in_lines_of_one_base(host: LocalHost, repo: Path) -> None:
    """The second started when the base had ten lines more at the top; both change the same line."""
    lines = [f"{n}\n" for n in range(1, 31)]
    git_run(repo, "reset", "-q", "--hard", branch(repo, "start", {"f": "".join(lines)}))
    first = rev(repo, "main")
    branch(repo, "one", {"f": "".join([*lines[:19], "one\n", *lines[20:]])})
    git_run(repo, "reset", "-q", "--hard", branch(repo, "later", {"f": "".join(["top\n"] * 10 + lines)}))
    second = rev(repo, "main")
    branch(repo, "two", {"f": "".join([*["top\n"] * 10, *lines[:19], "two\n", *lines[20:]])})
    found = host.touched([place(repo, "one", first), place(repo, "two", second)])
    assert found == {"one": {"f": [[20, 20]]}, "two": {"f": [[20, 20]]}}


def test_a_worktree_without_a_commit_touches_its_files(host: LocalHost, tmp_path: Path) -> None:
    git_run(tmp_path, "init", "-q", "-b", "main", "empty")
    (tmp_path / "empty" / "a").write_text("x")
    found = host.touched([place(tmp_path / "empty", "main", None, tmp_path / "empty")])
    assert found == {"main": {"a": [WHOLE]}}


def test_names_that_cannot_be_stored_are_made_printable(host: LocalHost, repo: Path) -> None:
    (repo / "a\nb").write_text("x")
    (Path(os.fsdecode(os.fsencode(repo) + b"/\xff"))).write_text("x")
    state = host.checkout_state(str(repo))
    assert sorted(state["dirty"]) == ["a�b", "�"]
    assert sorted(host.touched([place(repo, "main", rev(repo, "main"), repo)])["main"]) == ["a�b", "�"]
    json.dumps(state, ensure_ascii=False).encode()


def test_the_state_of_the_main_checkout_is_told(host: LocalHost, repo: Path) -> None:
    clean = {"branch": "main", "head": rev(repo, "main"), "dirty": [], "dirty_count": 0}
    assert host.checkout_state(str(repo)) == clean
    for number in range(30):
        (repo / f"f{number:02}").write_text("x")
    git_run(repo, "checkout", "-q", "--detach")
    state = host.checkout_state(str(repo))
    assert (state["branch"], state["dirty_count"], len(state["dirty"])) == (None, 30, 20)

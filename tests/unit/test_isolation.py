"""Which paths are not an agent's own, and how a checkout differs from what it was."""

from __future__ import annotations

from typing import cast

import pytest

from swarm_core.agents import table
from swarm_core.ops import attention, isolation, touched
from swarm_core.ops.touched import Stray
from swarm_core.store.database import Database
from tests.unit.test_views import instance

REPO, TREES = "/srv/shop", "/srv/trees"
ME = instance(repo_path=REPO, worktree_path=f"{TREES}/work-7-a1")
OTHERS = {
    "work-7-a1": f"{TREES}/work-7-a1",
    "work-8-a1": f"{TREES}/work-8-a1",
    "work-7-a10": f"{TREES}/work-7-a10",
}


@pytest.mark.parametrize(
    ("path", "owner"),
    [
        (f"{TREES}/work-7-a1/src/app.py", None),
        (f"{TREES}/work-7-a1", None),
        (f"{TREES}/work-7-a10/src/app.py", "work-7-a10"),
        (f"{TREES}/work-8-a1/src/app.py", "work-8-a1"),
        (f"{TREES}/work-9-a1/src/app.py", None),
        (f"{REPO}/src/app.py", ""),
        (f"{REPO}/.git/hooks/pre-commit", ""),
        (f"{REPO}/.git/worktrees/work-7-a1/info/exclude", None),
        (f"{REPO}/.git/worktrees/work-8-a1/info/exclude", ""),
        (f"{REPO}/tmp/scratch.txt", None),
        ("/srv/shopping/app.py", None),
        ("/etc/hosts", None),
    ],
)
def test_a_path_belongs_to_the_innermost_folder_around_it(path: str, owner: str | None) -> None:
    free = [f"{REPO}/.git/worktrees/work-7-a1", f"{REPO}/tmp", "/srv"]
    found = isolation.stray(ME, OTHERS, [path], free=free)
    assert [s.owner for s in found] == ([] if owner is None else [owner])


def test_worktrees_inside_the_main_checkout_are_their_owners() -> None:
    me = instance(repo_path="/srv", worktree_path="/srv/trees/work-7-a1")
    paths = ["/srv/trees/work-7-a1/a", "/srv/trees/work-8-a1/a", "/srv/a"]
    assert [s.owner for s in isolation.stray(me, OTHERS, paths)] == ["work-8-a1", ""]


@pytest.mark.parametrize(
    "command",
    [
        "",
        "pytest -q",
        "ls src/app.py ./tests",
        f"cat {TREES}/work-7-a1/README.md",
        "git log --oneline -- a/b",
        "cd src/../lib",
    ],
)
def test_a_command_in_the_agents_own_worktree_asks_nobody(command: str) -> None:
    body = {"tool_name": "Bash", "tool_input": {"command": command}, "cwd": ME.worktree_path}
    no_database = cast("Database", None)
    assert isolation.named_in(no_database, ME, table.get("claude"), body) == []
    assert isolation.named_in(no_database, ME, table.get("codex"), body) == []


@pytest.mark.parametrize(
    ("command", "found"),
    [
        (f"touch {REPO}/a", [f"{REPO}/a"]),
        (f"touch '{REPO}'", [REPO]),
        (f"x={REPO}/a:{REPO}/b", [f"{REPO}/a", f"{REPO}/b"]),
        (f"touch {REPO}ping/a /mnt{REPO}/a", []),
        ("cd '/srv/my shop/src'", ["/srv/my shop/src"]),
        ("cd /srv/my\\ shop/src", ["/srv/my shop/src"]),
    ],
)
def test_a_folder_is_found_in_a_command_at_the_borders_of_its_name(command: str, found: list[str]) -> None:
    assert isolation._spelled_out(command, [REPO, "/srv/my shop"]) == found


def test_of_commands_that_never_end_the_oldest_are_forgotten() -> None:
    commands = isolation.Commands()
    sight = isolation.Sight(Stray(REPO, REPO, ""), stamped(), "", 0)
    for number in range(1000):
        commands.begin("work-7-a1", str(number), [sight])
    left = [n for n in range(1000) if commands.end("work-7-a1", str(n))]
    assert left == list(range(1000 - len(left), 1000))
    assert 0 < len(left) < 1000
    assert commands.end("work-7-a1", "999") == []


def test_a_refusal_names_the_file_of_the_agents_own_worktree() -> None:
    said = isolation.refusal(ME, Stray(f"{REPO}/src/app.py", REPO, ""))
    assert "the main checkout" in said
    assert f"{TREES}/work-7-a1/src/app.py" in said
    assert "the worktree of work-8-a1" in isolation.refusal(ME, Stray(f"{TREES}/work-8-a1/x", TREES, "work-8-a1"))


def seen(*dirty: str, branch: str | None = "main", head: str | None = "a" * 40, count: int | None = None) -> dict:
    return {
        "branch": branch,
        "head": head,
        "dirty": list(dirty),
        "dirty_count": len(dirty) if count is None else count,
    }


@pytest.mark.parametrize(
    ("before", "now", "news"),
    [
        (seen(), seen(), {}),
        (seen("a"), seen("a"), {}),
        (seen("a"), seen(), {}),
        (seen("a"), seen("a", "b"), {"files": ["b"]}),
        (seen("a"), seen("b"), {"files": ["b"]}),
        (seen("a", count=30), seen("b", count=29), {}),
        (seen("a", count=30), seen("a", "b", count=31), {"files": ["b"]}),
        (seen(), seen(branch=None), {"branch": ["main", None]}),
        (seen(), seen(head="b" * 40), {"head": ["a" * 40, "b" * 40]}),
    ],
)
def test_what_became_dirty_or_moved_is_a_change(before: dict, now: dict, news: dict) -> None:
    assert touched.changed(before, now) == news


def stamped(head: str = "a" * 40, count: int | None = None, **stamps: str) -> dict:
    return seen(*stamps, head=head, count=count) | {"stamps": stamps}


@pytest.mark.parametrize(
    ("before", "now", "news"),
    [
        (stamped(a="1"), stamped(a="1"), {}),
        (stamped(a="1"), stamped(a="2"), {"files": ["a"]}),
        (stamped(a="1"), stamped(a="1", b="1"), {"files": ["b"]}),
        (stamped(a="1"), stamped(), {"files": ["a"]}),
        (stamped(a="1"), stamped(head="b" * 40), {"head": ["a" * 40, "b" * 40]}),
        (stamped(a="1", count=30), stamped(b="1", count=29), {}),
        (stamped(a="1", count=30), stamped(a="2", count=30), {"files": ["a"]}),
    ],
)
def test_what_is_written_again_or_put_back_is_a_change_too(before: dict, now: dict, news: dict) -> None:
    assert touched.changed(before, now) == news


@pytest.mark.parametrize("left", [{}, {"activity": "idle"}])
def test_what_an_agent_wrote_elsewhere_needs_a_person_who_is_told_where_to_look(left: dict) -> None:
    text = f"{attention.STRAYED}: src/app.py of the main checkout"
    (reason,) = attention.reasons(instance(needs_person=text, **left))
    assert (reason.key, reason.text) == ("strayed", text)
    assert "swarm events --instance work-7-a1" in reason.command

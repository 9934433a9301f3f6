"""Errors name files, never where they are on this machine."""

from __future__ import annotations

import pytest

from swarm_mcp.contract import without_paths

FOLDERS = ("/srv/my home (é)", "/srv/my home (é)/re po, [ü]")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("cannot open /srv/app/data.db", "cannot open <path>/data.db"),
        ("'/srv/app/x y.txt' is there", "'<path>/x y.txt' is there"),
        ("see /srv/a/b:/usr/lib/git-core", "see <path>/b:<path>/git-core"),
        ("fatal: in /srv/app/, [/srv/app/a]", "fatal: in <path>/, [<path>/a]"),
        ("/srv/my home (é)/swarm.db is locked", "<path>/swarm.db is locked"),
        ("/srv/my home (é) is full", "<path> is full"),
        ("git -C /srv/my home (é)/re po, [ü] fsck", "git -C <path> fsck"),
        ("in /srv/my home (é)/worktrees/re-po-1/work-a1 now", "in <path>/work-a1 now"),
        (
            "GET https://example.invalid/a/b and swarm://instance/x",
            "GET https://example.invalid/a/b and swarm://instance/x",
        ),
        ("branch work/work-a1, src/app.py:3, 1/2, and/or, /", "branch work/work-a1, src/app.py:3, 1/2, and/or, /"),
    ],
)
def test_the_folders_of_a_path_are_taken_out(text, shown):
    assert without_paths(text, FOLDERS) == shown


def test_everything_inside_is_looked_at_and_commands_are_left_out():
    details = {"argv": ["git"], "undo": {}, "a": [{"b": ("/srv/app/x",)}], "n": 1}
    assert without_paths(details) == {"a": [{"b": ["<path>/x"]}], "n": 1}

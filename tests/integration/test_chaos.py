"""A minute of chaos: agents exchange messages while coordinator, agents and tmux are killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

SEED = os.environ.get("CHAOS_SEED", "20261117")


@pytest.mark.timeout(400)
def test_killed_at_random_no_message_is_lost_doubled_or_overtaken() -> None:
    argv = [sys.executable, "-m", "tests.chaos", "--agents", "6", "--messages", "60", "--kills", "25"]
    done = subprocess.run(
        [*argv, "--seconds", "45", "--seed", SEED, "--json"],
        capture_output=True,
        check=False,
        timeout=380,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    said = done.stdout.decode(errors="replace") + done.stderr.decode(errors="replace")
    assert done.returncode == 0, f"seed {SEED}\n{said[-20_000:]}"
    figures = json.loads(done.stdout)
    print(figures)
    assert figures["lost"] == figures["duplicated effects"] == figures["out of order"] == 0
    assert figures["messages"] >= 60
    assert figures["kills"] > 0

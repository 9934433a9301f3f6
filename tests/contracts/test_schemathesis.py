"""Requests nobody thought of: generated from the description, sent to the real app; none may be a bug (5xx)."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, status_code_conformance

from swarm_ui.web import openapi
from tests.integration.web_fixture import Web, serving
from tests.rows import add_feedback, add_instance, add_message
from tests.support import git_run, isolate, make_repo
from tests.world import World

# It does not end by itself.
LEFT_OUT = {"/api/v1/stream"}
EXAMPLES = 5
LONGEST = 60.0
DOCUMENT = openapi.document()
OPERATIONS = [
    (path, method) for path, methods in DOCUMENT["paths"].items() for method in methods if path not in LEFT_OUT
]
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance]
# Known instances are asked for as often as invented ones, or every answer would be 404.
ROWS: dict[str, dict[str, Any]] = {
    "work-1-a1": {"prompt": "Fix it", "activity": "blocked"},
    "review-1-a1": {"parent_id": "work-1-a1", "activity": "idle"},
    "work-2-a1": {"status": "failed", "activity": "exited", "reason": "crashed", "wanted": "stopped"},
}
IDS = tuple(ROWS)
spent = 0.0


def shorter(schema: Any) -> Any:
    """The description with shorter texts, which are as good and much quicker to invent."""
    if isinstance(schema, dict):
        told = {key: shorter(value) for key, value in schema.items()}
        return told | (
            {"maxLength": min(told["maxLength"], 100)} if isinstance(told.get("maxLength"), int) else {}
        )
    return [shorter(one) for one in schema] if isinstance(schema, list) else schema


@pytest.fixture(scope="module")
def web() -> Iterator[Web]:
    with contextlib.ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="sw-", dir="/tmp", ignore_cleanup_errors=True))
        )
        monkeypatch = stack.enter_context(pytest.MonkeyPatch.context())
        isolate(monkeypatch, folder)
        world = World(folder / "h", make_repo(folder / "repo"))
        stack.callback(world.kill_tmux)
        swarm = stack.enter_context(world.open())
        made = stack.enter_context(serving(world.settings, swarm))
        for one, more in ROWS.items():
            place = folder / one
            kind = one.partition("-")[0]
            git_run(world.repo, "worktree", "add", "-q", "-b", f"{kind}/{one}", str(place))
            where = {"repo_path": str(world.repo), "worktree_path": str(place), "branch": f"{kind}/{one}"}
            head = git_run(world.repo, "rev-parse", "main")
            add_instance(made.db, one, kind=kind, base_commit=head, head_commit=head, **where, **more)
        add_message(made.db, "hello")
        add_feedback(made.db, "look at src/app.py:3")
        yield made


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_no_request_is_a_bug(web: Web, path: str, method: str) -> None:
    global spent
    if spent > LONGEST:
        pytest.fail(f"the requests took longer than {LONGEST:g} s")
    schema = schemathesis.openapi.from_dict(shorter(DOCUMENT))
    operation = schema[path][method.upper()]
    asked = 0

    @hypothesis.given(case=operation.as_strategy())
    @hypothesis.settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def ask(case: Any) -> None:
        nonlocal asked
        asked += 1
        if "id" in (case.path_parameters or {}) and asked % 2:
            case.path_parameters["id"] = IDS[asked % len(IDS)]
        response = case.call(
            base_url=f"http://127.0.0.1:{web.port}",
            headers={"Authorization": f"Bearer {web.token}"},
            cookies={},
            timeout=20,
        )
        case.validate_response(response, checks=CHECKS)

    started = time.monotonic()
    ask()
    spent += time.monotonic() - started
    assert asked >= 1

"""What the dashboard answers over HTTP, through the real app on a real port with a real database."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from swarm_core.errors import CommandFailed, SwarmError
from swarm_core.models import Kind
from swarm_core.store import events, messages, relationships
from swarm_core.store.database import translated
from swarm_ui.web import rows
from tests.integration.web_fixture import Web, serving
from tests.rows import add_feedback, add_instance, add_message
from tests.support import git_run
from tests.world import World

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")
NASTY = "\x1b]0;owned\x07\x1b[31m<script>alert(1)</script>\x1b[0m\x9b1m\u202eabc\x00\x07"
DIALOG = json.dumps({"digest": "abcdef012345", "text": "Allow rm?", "choices": ["Yes", "No"], "since": "x"})


@pytest.fixture
def web(world: World) -> Iterator[Web]:
    with world.open() as swarm, serving(world.settings, swarm) as made:
        yield made


def tell(web: Web, name: str, count: int = 1, **more: object) -> None:
    with web.db.write():
        for _ in range(count):
            events.add(web.db, name, actor=str(more.pop("actor", "courier")), **more)  # type: ignore[arg-type]


def test_health_needs_no_identity_and_says_how_long_it_runs(web: Web) -> None:
    told = web.get("/health", Authorization=None).result
    assert told["uptimeMs"] >= 0
    assert told["problem"] is None


def test_everything_else_needs_one(web: Web) -> None:
    for path in ("/status", "/api/v1/snapshot", "/api/v1/instances", "/api/v1/events", "/api/v1/openapi.json"):
        answer = web.get(path, Authorization=None)
        assert (answer.status, answer.code) == (401, "UNAUTHORIZED"), path


def test_status_is_what_the_command_tells(web: Web) -> None:
    add_instance(web.db, activity="blocked", blocked_on=DIALOG)
    told = web.get("/status").result
    assert told["repo"] is None
    assert told["status"]["instances"]["total"] == 1
    assert [one["id"] for one in told["status"]["instances"]["needs_you"]] == ["work-1-a1"]
    assert web.get("/status?repo=shop").result["repo"] == "/srv/shop"


def test_a_repository_nobody_works_on_is_forbidden(web: Web) -> None:
    add_instance(web.db)
    for answer in (
        web.get("/status?repo=/etc"),
        web.get("/status/stream?repo=/etc"),
        web.post("/search", {"query": "word", "repo": "/etc"}),
        web.post("/search/stream", {"query": "word", "repo": "/etc"}),
        web.get("/api/v1/events?repo=/etc"),
        web.get("/api/v1/issues?repo=/etc"),
    ):
        assert (answer.status, answer.code) == (403, "FORBIDDEN")


def test_status_stream_tells_start_result_done(web: Web) -> None:
    told = web.get("/status/stream").events
    assert [name for name, _ in told] == ["start", "result", "done"]
    assert all(body["ok"] and "_meta" in body for _, body in told)
    assert told[1][1]["result"].keys() == {"repo", "status"}
    assert told[2][1]["result"] == {}


def test_search_finds_what_was_said(web: Web) -> None:
    add_instance(web.db)
    add_message(web.db, "the parser drops commas")
    told = web.post("/search", {"query": "commas", "kinds": ["message"]}).result
    assert told["repo"] is None
    assert [hit["instance_id"] for hit in told["search"]["hits"]] == ["work-1-a1"]
    assert web.post("/search", {"query": "commas", "repo": "shop"}).result["search"] == told["search"]


def test_search_of_one_repository_leaves_the_others_out(web: Web) -> None:
    add_instance(web.db)
    add_instance(web.db, "work-2-a1", repo_path="/srv/other")
    add_message(web.db, "commas here", to="work-1-a1")
    add_message(web.db, "commas there", to="work-2-a1")
    hits = web.post("/search", {"query": "commas", "kinds": ["message"], "repo": "other"}).result["search"]["hits"]
    assert [hit["instance_id"] for hit in hits] == ["work-2-a1"]


def test_search_stream_tells_start_progress_result_done(web: Web) -> None:
    add_instance(web.db)
    add_message(web.db, "the parser drops commas")
    told = web.post("/search/stream", {"query": "commas"}).events
    names = [name for name, _ in told]
    assert names[0] == "start"
    assert names[-2:] == ["result", "done"]
    assert set(names[1:-2]) == {"progress"}
    assert told[1][1]["result"].keys() == {"phase", "message"}
    assert told[-2][1]["result"]["search"] == web.post("/search", {"query": "commas"}).result["search"]


def test_a_search_that_fails_under_way_ends_with_error_and_done(web: Web) -> None:
    told = web.post("/search/stream", {"query": "word", "since": "no time"}).events
    assert [name for name, _ in told if name != "progress"] == ["start", "error", "done"]
    assert told[-2][1]["ok"] is False
    assert told[-2][1]["error"]["code"] == "INVALID_INPUT"
    assert told[-1][1]["ok"] is True


@pytest.mark.parametrize("path", ["/search", "/search/stream"])
def test_requests_that_are_wrong_have_their_status(web: Web, path: str) -> None:
    assert web.post(path, {"query": ""}).status == 400
    assert web.post(path, {"query": "a", "more": 1}).code == "INVALID_REQUEST"
    assert web.ask("POST", path, raw=b"{").status == 400
    assert web.ask("POST", path, raw=b"[1]").status == 400
    assert web.ask("POST", path, raw=b"{}", Content_Type="text/plain").status == 415
    large = json.dumps({"query": "a" * 1_100_000}).encode()
    answer = web.ask("POST", path, raw=large)
    assert (answer.status, answer.code) == (413, "INVALID_REQUEST")


def test_health_names_no_folder_to_who_is_not_signed_in(web: Web) -> None:
    answer = web.get("/health", Authorization=None)
    assert answer.result["database"] == web.site.settings.database_path.name
    assert str(web.site.settings.home) not in answer.body.decode()


def test_without_a_database_there_is_no_index(web: Web) -> None:
    path = web.site.settings.database_path
    path.rename(path.with_name("away.db"))
    try:
        for answer in (
            web.post("/search", {"query": "word"}),
            web.get("/status"),
            web.get("/status/stream"),
            web.post("/search/stream", {"query": "word"}),
            web.get("/api/v1/instances"),
            web.get("/api/v1/snapshot"),
        ):
            assert (answer.status, answer.code) == (409, "NO_INDEX")
            assert str(path.parent) not in answer.body.decode()
            assert answer.json["error"]["canonical"] == "NO_INDEX"
        health = web.get("/health", Authorization=None)
        assert (health.status, health.code) == (503, "NO_INDEX")
        assert health.json["error"]["canonical"] == "NO_INDEX"
        assert str(path.parent) not in health.body.decode()
    finally:
        path.with_name("away.db").rename(path)


@pytest.mark.parametrize("name", ["SQLITE_IOERR_FSTAT", "SQLITE_CANTOPEN", "SQLITE_READONLY_DBMOVED"])
def test_a_failure_on_a_file_that_is_gone_is_that_it_is_gone(tmp_path: Path, name: str) -> None:
    """Which of them SQLite reports is a matter of the moment at which the file was taken away."""

    def code(path: Path) -> str:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorname = name
        with pytest.raises(SwarmError) as raised, translated(path):
            raise error
        return raised.value.code

    here = tmp_path / "swarm.db"
    assert code(here) == "NO_INDEX"
    here.touch()
    assert code(here) != "NO_INDEX"


def test_a_bug_is_500_and_tells_nothing(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "clean", lambda _: 1 / 0)
    answer = web.get("/api/v1/instances")
    assert (answer.status, answer.code) == (500, "INTERNAL")
    assert b"division" not in answer.body


def test_a_failure_outside_swarm_is_500_and_names_no_folder(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    home = str(web.site.settings.home)

    def fail(_: object) -> None:
        raise CommandFailed(
            f"git -C {home}/worktrees/x failed", code="GIT_COMMAND_FAILED", hint=f"look at {home}/logs"
        )

    monkeypatch.setattr(rows, "clean", fail)
    answer = web.get("/api/v1/instances")
    assert (answer.status, answer.code) == (500, "GIT_COMMAND_FAILED")
    assert answer.json["error"]["canonical"] == "INTERNAL"
    assert answer.json["error"]["retry"] is True
    assert home not in answer.body.decode()


def test_the_snapshot_has_everything_a_page_shows_at_first(web: Web) -> None:
    add_instance(web.db, "work-1-a1", prompt="# Fix the parser\nmore", activity="blocked", blocked_on=DIALOG)
    add_instance(web.db, "work-2-a1", activity="busy", issue_title="Speed")
    told = web.get("/api/v1/snapshot").result
    assert told.keys() >= {
        *("rev", "last", "now", "me", "instances", "inbox", "events", "pulls", "health", "repos", "version")
    }
    assert told["me"] == {"name": "operator", "may_write": True}
    assert {row["id"]: (row["state"], row["title"]) for row in told["instances"]} == {
        "work-1-a1": ("waiting", "Fix the parser"),
        "work-2-a1": ("running", "Speed"),
    }
    assert [(item["id"], item["acts"][0]["body"]) for item in told["inbox"]] == [
        ("work-1-a1:blocked:abcdef012345", {"choice": 1, "digest": "abcdef012345"})
    ]
    assert told["repos"] == [{"path": "/srv/shop", "name": "shop"}]
    assert told["last"] == told["events"][0]["id"]
    assert told["health"]["coordinator"]["running"] is False


def test_one_instance_has_everything_that_hangs_on_it(web: Web) -> None:
    work = add_instance(web.db, prompt="Do it", head_commit="c" * 40)
    add_instance(web.db, "review-1-a1", kind=Kind.REVIEW, parent_id=work.id, branch="review/review-1-a1")
    with web.db.write():
        relationships.add(web.db, work.id, "review-1-a1", relationships.REVIEW, head_commit="c" * 40)
    add_message(web.db, "hello")
    add_feedback(web.db, "look at src/app.py:12 please")
    told = web.get("/api/v1/instances/work-1-a1").result
    assert told["row"] in web.get("/api/v1/snapshot").result["instances"]
    assert told["detail"]["prompt"] == "Do it"
    assert told["detail"]["attach"] is None
    assert [child["id"] for child in told["children"]] == ["review-1-a1"]
    assert told["messages"][0]["body"] == "hello"
    assert told["feedback"][0]["priority"] == "high"
    assert (told["dialog"], told["pull"], told["tasks"]) == (None, None, [])
    assert told["cost"]["estimate"] is True


def test_an_instance_that_is_not_there_is_404(web: Web) -> None:
    for name in ("work-99-a1", "../../etc", "%2e%2e", "x" * 500, "work-1-a1%00"):
        for more in ("", "/timeline", "/diff", "/leftovers"):
            answer = web.get(f"/api/v1/instances/{name}{more}")
            assert (answer.status, answer.json["ok"]) == (404, False), (name, more)
    assert web.get("/api/v1/threads/work-99-a1").status == 404
    assert web.get("/api/v1/missions/m1").status == 404
    assert web.get("/api/v1/nothing").status == 404


def test_the_timeline_groups_what_happened(web: Web) -> None:
    add_instance(web.db)
    tell(web, "tool:called", 5, instance_id="work-1-a1", tool_name="search")
    tell(web, "instance:activity", instance_id="work-1-a1", metadata={"from": "idle", "to": "busy"})
    tell(web, "pull:checks", instance_id="work-1-a1", error_code="CHECK_FAILED", error_message="red")
    groups = web.get("/api/v1/instances/work-1-a1/timeline").result["groups"]
    told = {(g["kind"], g["label"], g["count"], g["level"]) for g in groups}
    assert told == {
        ("status", "running", 1, "info"),
        ("tool", "search", 5, "info"),
        ("activity", "busy", 1, "info"),
        ("pull", "pull:checks", 1, "error"),
    }
    assert all(g["from"] <= g["to"] for g in groups)


def test_the_diff_names_files_and_what_each_adds(web: Web, world: World) -> None:
    folder = web.site.settings.home / "w"
    git_run(world.repo, "worktree", "add", "-q", "-b", "work/work-1-a1", str(folder))
    base = git_run(world.repo, "rev-parse", "main")
    (folder / "src" / "app.py").write_text("print('a')\nprint('b')\n")
    git_run(folder, "commit", "-q", "-am", "change")
    (folder / "new.txt").write_text("one\n-- two\n")
    add_instance(web.db, repo_path=str(world.repo), worktree_path=str(folder), base_commit=base)
    told = web.get("/api/v1/instances/work-1-a1/diff").result
    assert {(f["path"], f["added"], f["deleted"], f["status"]) for f in told["files"]} == {
        ("src/app.py", 2, 1, "changed"),
        ("new.txt", 2, 0, "added"),
    }
    assert "+print('b')" in told["text"]
    assert told["cut"] is False
    (folder / "big.txt").write_text("x" * 300_000 + "\n" + "line\n" * 100_000)
    cut = web.get("/api/v1/instances/work-1-a1/diff").result
    assert cut["cut"] is True
    assert len(cut["text"]) <= 400_000
    assert max(map(len, cut["text"].split("\n"))) <= 2000
    left = web.get("/api/v1/instances/work-1-a1/leftovers").result
    assert left["own_commits"] == 1
    assert left["dirty_files"] == 2


def test_events_come_in_pages_without_gap_or_double(web: Web) -> None:
    add_instance(web.db)
    tell(web, "message:accepted", 25, instance_id="work-1-a1")
    tell(web, "pull:opened", 5, instance_id="work-1-a1")
    total = web.get("/api/v1/snapshot").result["last"]
    back, cursor = [], ""
    while cursor is not None:
        page = web.get(f"/api/v1/events?limit=7{cursor}").result
        back += [item["id"] for item in page["items"]]
        cursor = None if page["next"] is None else f"&before={page['next']}"
    assert back == list(range(total, 0, -1))
    forth, at = [], 0
    while at is not None:
        page = web.get(f"/api/v1/events?limit=7&after={at}").result
        forth += [item["id"] for item in page["items"]]
        at = page["next"]
    assert forth == back[::-1]


def test_events_are_filtered_by_everything_that_is_given(web: Web) -> None:
    add_instance(web.db)
    add_instance(web.db, "work-2-a1", repo_path="/srv/other")
    tell(web, "pull:opened", instance_id="work-1-a1", actor="anna", metadata={"title": "Fix 100% of_it"})
    tell(web, "pull:conflict", instance_id="work-2-a1")
    tell(web, "tool:called", instance_id="work-2-a1", tool_name="search", error_code="NOT_FOUND")

    def names(query: str) -> list[str]:
        return [item["name"] for item in web.get(f"/api/v1/events?{query}").result["items"]]

    assert names("name=pull:") == ["pull:conflict", "pull:opened"]
    assert names("name=pull:opened") == ["pull:opened"]
    assert names("name=tool:") == ["tool:called"]
    assert names("name=nothing:") == []
    assert names("level=error") == ["tool:called"]
    assert names("level=warning") == ["pull:conflict"]
    assert names("level=error&name=pull:") == []
    assert names("actor=anna") == ["pull:opened"]
    assert names("repo=other&level=warning") == ["pull:conflict"]
    assert names("repo=other&name=pull:opened") == []
    assert names("instance=work-1-a1&level=info") == ["pull:opened", "instance:created"]
    assert names("q=100%25%20of_") == ["pull:opened"]
    assert names("q=1000") == []
    assert names("q=FIX") == ["pull:opened"]


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=501",
        "level=bad",
        "before=x",
        "before=1&after=2",
        "other=1",
        "instance=x",
        "limit=1&limit=2",
    ],
)
def test_a_filter_that_is_wrong_is_400(web: Web, query: str) -> None:
    answer = web.get(f"/api/v1/events?{query}")
    assert (answer.status, answer.code) == (400, "INVALID_REQUEST")


def test_the_export_has_every_event_that_matches_once(web: Web) -> None:
    add_instance(web.db)
    tell(web, "message:accepted", 1200, instance_id="work-1-a1")
    answer = web.get("/api/v1/events/export?name=message:accepted")
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    lines = [json.loads(line) for line in answer.body.decode().splitlines()]
    assert len({line["id"] for line in lines}) == len(lines) == 1200
    assert web.get("/api/v1/events/export?level=bad").code == "INVALID_REQUEST"


def test_a_question_that_finds_little_looks_at_so_many_rows_and_says_where_to_go_on(web: Web) -> None:
    with web.db.write():
        web.db.execute(
            "INSERT INTO mcp_events (at, actor, name) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1"
            " FROM n WHERE i < 100000) SELECT '2026-01-01T00:00:00.000Z', CASE i WHEN 7 THEN 'rare' ELSE 'x' END,"
            " 'tool:called' FROM n"
        )
    first = web.get("/api/v1/events?actor=rare").result
    assert first["items"] == []
    found, rounds, cursor = [], 1, first["next"]
    while cursor is not None:
        page = web.get(f"/api/v1/events?actor=rare&before={cursor}").result
        found += page["items"]
        cursor, rounds = page["next"], rounds + 1
    assert len(found) == 1
    assert rounds > 3
    started = time.monotonic()
    web.get("/api/v1/events?name=pull:&level=warning")
    assert time.monotonic() - started < 2


def test_a_thread_has_feedback_messages_and_verdicts_in_order(web: Web) -> None:
    work = add_instance(web.db, head_commit="d" * 40)
    add_instance(
        web.db, "review-1-a1", kind=Kind.REVIEW, parent_id=work.id, branch="review/review-1-a1", started_at="x"
    )
    with web.db.write():
        relationships.add(web.db, work.id, "review-1-a1", relationships.REVIEW, head_commit="c" * 40)
        link = relationships.review_link(web.db, "review-1-a1")
    add_message(web.db, "first")
    add_feedback(web.db, "see src/app.py:12 and src/app.py:12, not http://x.y:80")
    with web.db.write():
        relationships.set_verdict(web.db, link.id, "needs_work")
        web.db.execute("UPDATE relationships SET verdict_at = '2999-01-01T00:00:00.000Z'")
        messages.accept(web.db, "review-1-a1", sender="operator", body="to the reviewer")
    told = web.get("/api/v1/threads/work-1-a1").result
    assert web.get("/api/v1/threads/review-1-a1").result == told
    assert [(i["type"], i["from"], i["to"]) for i in told["items"]] == [
        ("message", "operator", "work-1-a1"),
        ("needs_work", "review-1-a1", "work-1-a1"),
        ("message", "operator", "review-1-a1"),
        ("verdict", "review-1-a1", "work-1-a1"),
    ]
    assert told["items"][1]["refs"] == [{"path": "src/app.py", "line": 12}]
    assert told["items"][1]["state"] == "accepted"
    assert told["items"][3]["stale"] is True
    listed = web.get("/api/v1/threads").result["items"]
    assert [(one["id"], one["said"], one["reviews"]) for one in listed] == [("work-1-a1", 1, 1)]


def test_what_an_agent_writes_goes_out_as_plain_bounded_text(web: Web) -> None:
    long = NASTY + "y" * 1_000_000
    add_instance(
        web.db,
        name="n" + NASTY[:80],
        prompt=long,
        activity="blocked",
        activity_detail=long,
        reason=long,
        needs_person=long,
        problem=long,
        issue_title=long,
        blocked_on=json.dumps({"digest": "d", "text": long, "choices": [long, NASTY]}),
    )
    add_message(web.db, long)
    add_feedback(web.db, long)
    tell(web, "dialog:shown", instance_id="work-1-a1", metadata={NASTY: long}, actor=NASTY)
    for path in (
        *("/api/v1/snapshot", "/api/v1/instances/work-1-a1", "/api/v1/instances?instance_id=work-1-a1", "/status"),
        *("/api/v1/inbox", "/api/v1/events", "/api/v1/threads/work-1-a1", "/api/v1/instances/work-1-a1/timeline"),
        *("/api/v1/threads", "/api/v1/events/export"),
    ):
        answer = web.get(path)
        assert answer.status == 200, path
        assert len(answer.body) < 400_000, path
        texts = _texts(json.loads(answer.body if "export" not in path else answer.body.splitlines()[0]))
        assert not [t for t in texts if CONTROL.search(t)], path
    assert web.post("/search", {"query": "alert"}).status == 200


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield str(key)
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)


def test_what_a_new_agent_can_be_started_with(web: Web, world: World) -> None:
    folder = Path(world.repo) / ".swarm" / "issues"
    folder.mkdir(parents=True)
    (folder / "7.md").write_text("# Speed up\n\nIt is slow.\n")
    add_instance(web.db, repo_path=str(world.repo), issue_number=7)
    assert web.get("/api/v1/repos").result["items"] == [{"path": str(world.repo), "name": "repo"}]
    agents = {one["name"]: one["installed"] for one in web.get("/api/v1/agents").result["items"]}
    assert agents["scripted"] is True
    issues = web.get("/api/v1/issues?repo=repo").result
    assert [(one["number"], one["title"], one["workers"]) for one in issues["items"]] == [
        (7, "Speed up", ["work-1-a1"])
    ]
    assert web.get("/api/v1/issues").status == 400


def test_pulls_queue_and_missions_are_empty_at_first(web: Web) -> None:
    assert web.get("/api/v1/pulls").result == {"pulls": []}
    assert web.get("/api/v1/queue").result == {"items": [], "over": []}
    assert web.get("/api/v1/missions").result == {"items": []}
    assert web.get("/api/v1/pulls?instance_id=work-1-a1").status == 404


def test_a_read_only_token_may_search_and_read(web: Web) -> None:
    token = web.site.swarm.create_token("ci", ["read"]).token
    assert web.post("/search", {"query": "word"}, Authorization=f"Bearer {token}").status == 200
    told = web.get("/api/v1/instances", Authorization=f"Bearer {token}").result
    assert told["you"] == "automation:ci"


def test_a_method_that_is_not_served_is_told_which_are(web: Web) -> None:
    answer = web.ask("POST", "/api/v1/snapshot")
    assert (answer.status, answer.code) == (405, "INVALID_REQUEST")
    assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD"}


def test_a_path_with_a_slash_too_many_leads_nowhere(web: Web) -> None:
    answer = web.get("/api/v1/snapshot/")
    assert (answer.status, answer.code) == (404, "NOT_FOUND")

"""What people do at the dashboard, through its real process: answers at once, outcomes later, nothing twice."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from swarm_core.contract import ERROR_FIELDS
from swarm_core.models import Instance
from swarm_core.ops import dialogs
from swarm_core.swarm import Swarm
from swarm_ui.web.api.actions import ENDPOINTS
from tests.integration.doors_fixture import Answer, Dashboard, own_dashboard
from tests.support import git_run, wait_until
from tests.world import World

__all__ = ["own_dashboard"]

DESTROYS = ("stop", "clean", "abandon", "merge", "close_pull")


@dataclass
class Person:
    """Somebody with a page of the dashboard open."""

    dashboard: Dashboard
    headers: list[tuple[str, str]]

    def post(self, path: str, body: Any = None, *, key: str | None = None) -> Answer:
        keyed = [("Idempotency-Key", key)] if key else []
        return self.dashboard.post(f"/api/v1/{path}", body, headers=[*self.headers, *keyed])

    def get(self, path: str) -> Answer:
        return self.dashboard.ask(f"/api/v1/{path}", headers=self.headers)

    def outcome(self, answer: Answer) -> dict[str, Any]:
        """How the action ended that was accepted."""
        assert answer.status == 202, answer.body
        action = answer.json["result"]["action"]

        def over() -> dict[str, Any] | None:
            found = self.get(f"actions/{action['id']}").json["result"]["action"]
            return found if found["state"] in ("done", "failed") else None

        found = wait_until(over, timeout=60, what=f"the end of {action}")
        assert isinstance(found, dict)
        return found

    def does(self, path: str, body: Any = None) -> dict[str, Any]:
        """The result of an action that has to succeed."""
        found = self.outcome(self.post(path, body))
        assert found["state"] == "done", found
        result = found["result"]
        assert isinstance(result, dict)
        return result


@pytest.fixture
def swarm(world: World) -> Iterator[Swarm]:
    with world.open() as opened:
        yield opened


@pytest.fixture
def anna(own_dashboard: Dashboard) -> Person:
    return Person(own_dashboard, own_dashboard.enter(name="anna"))


@pytest.fixture
def ben(own_dashboard: Dashboard) -> Person:
    return Person(own_dashboard, own_dashboard.enter(name="ben"))


def idle(world: World, swarm: Swarm, **options: Any) -> Instance:
    return world.wait_idle(swarm, world.work(swarm, **options).id)


def commit(work: Instance, name: str = "made.txt") -> None:
    path = Path(work.worktree_path)
    (path / name).write_text("x\n")
    git_run(path, "add", "-A")
    git_run(path, "commit", "-q", "-m", f"add {name}")


def actors(swarm: Swarm, name: str) -> list[str]:
    return [e.actor for e in swarm.events(limit=500) if e.name == name]


def asking(world: World, swarm: Swarm, prompt: str) -> tuple[Instance, str]:
    """An agent that shows a question, and the question's digest."""
    work = world.work(swarm, prompt)

    def asks() -> bool:
        swarm.reconcile()
        return dialogs.shown(swarm.find(work.id)) is not None

    wait_until(asks, timeout=20, what="the question is read")
    shown = dialogs.shown(swarm.find(work.id))
    assert shown is not None
    return work, str(shown["digest"])


def at_once(*doing: Callable[[], Any]) -> list[Any]:
    found: dict[int, Any] = {}
    together = threading.Barrier(len(doing))

    def run(number: int) -> None:
        together.wait()
        found[number] = doing[number]()

    threads = [threading.Thread(target=run, args=(n,)) for n in range(len(doing))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[n] for n in range(len(doing))]


# Doing


def test_agents_are_started_and_ended_and_who_did_it_is_known(world: World, swarm: Swarm, anna: Person) -> None:
    body = {"repo": str(world.repo), "prompt": "say ready", "agent": "scripted", "count": 2}
    answer = anna.post("instances", body)
    action = answer.json["result"]["action"]
    assert (answer.status, action["name"], action["instance"]) == (202, "spawn", None)
    assert action["state"] == "accepted"
    made = [one["id"] for one in anna.outcome(answer)["result"]["instances"]]
    assert world.sessions() == dict.fromkeys(made, True)
    assert actors(swarm, "instance:created") == ["operator:anna"] * 2

    assert anna.does(f"instances/{made[0]}/stop", {"confirm": True})["instance"]["status"] == "terminated"
    assert world.sessions()[made[1]]
    assert made[0] not in {name for name, alive in world.sessions().items() if alive}
    assert anna.does(f"instances/{made[0]}/restart")["instance"]["id"] == made[0]
    assert world.sessions()[made[0]]
    told = [(e.tool_name, e.instance_id) for e in swarm.events(limit=500) if e.name == "dashboard:acted"]
    assert told == [("spawn", None), ("stop", made[0]), ("restart", made[0])]
    assert set(actors(swarm, "dashboard:acted")) == {"operator:anna"}


def test_neither_a_taken_name_nor_a_missing_task_starts_anybody(world: World, swarm: Swarm, anna: Person) -> None:
    named = {"repo": str(world.repo), "prompt": "say ready", "agent": "scripted", "name": "login fix"}
    first = anna.outcome(anna.post("instances", named))["result"]["instances"][0]["id"]
    assert anna.outcome(anna.post("instances", named))["error"]["code"] == "NAME_TAKEN"
    forked = anna.outcome(anna.post(f"instances/{first}/fork", {"name": "login fix"}))
    assert forked["error"]["code"] == "NAME_TAKEN"
    bare = anna.post("instances", {"repo": str(world.repo), "agent": "scripted"})
    assert (bare.status, bare.json["error"]["code"]) == (400, "INVALID_INPUT")
    unknown = anna.post("instances", {"repo": str(world.repo), "agent": "scripted", "issue": 999})
    assert anna.outcome(unknown)["error"]["code"] == "ISSUE_NOT_FOUND"
    assert [i.id for i in swarm.instances(include_cleaned=True)] == [first]


def test_a_message_is_recorded_with_its_sender(world: World, swarm: Swarm, anna: Person) -> None:
    work = idle(world, swarm)
    sent = anna.does(f"instances/{work.id}/message", {"body": "say hello <b>\n& more"})["message"]
    (message,) = swarm.detail(work.id).messages
    assert (message.id, message.sender, message.body) == (sent["id"], "operator:anna", "say hello <b>\n& more")


def test_work_is_reviewed_told_forked_approved_and_given_another_scope(
    world: World, swarm: Swarm, anna: Person
) -> None:
    work = idle(world, swarm)
    commit(work)
    said = {"body": "- app.py:1 is wrong", "feedback_type": "suggestions", "priority": "high"}
    feedback = anna.does(f"instances/{work.id}/feedback", said)["feedback"]
    assert feedback["id"].startswith("fb-")
    assert anna.does(f"instances/{work.id}/rescope", {"task": "only the parser"})["instance"]["id"] == work.id
    fork = anna.does(f"instances/{work.id}/fork", {"prompt": "say other", "name": "other way"})["instance"]["id"]
    assert (swarm.find(fork).parent_id, swarm.find(fork).name) == (work.id, "other way")
    review = anna.does(f"instances/{work.id}/review", {"focus": "say looking"})["instance"]["id"]
    assert swarm.find(work.id).status == "waiting_review"
    taken = anna.post(f"instances/{review}/stop").json["error"]["details"]
    assert taken["waiting"] == [work.id]
    assert anna.does(f"instances/{work.id}/approve", {"message": "good"})["instance"]["status"] == "approved"
    names = ("feedback:sent", "work:rescoped", "review:requested", "work:accepted")
    assert [actors(swarm, name) for name in names] == [["operator:anna"]] * 4


def test_a_budget_is_set_raised_and_taken_away(world: World, swarm: Swarm, anna: Person) -> None:
    work = idle(world, swarm)
    path = f"instances/{work.id}/budget"
    assert anna.does(path, {"usd": 2})["limit_usd"] == 2
    assert anna.does(path, {"raise_by": 1.5})["limit_usd"] == 3.5
    assert anna.does(path, {"none": True})["limit_usd"] is None
    assert set(actors(swarm, "budget:set")) == {"operator:anna"}


def test_a_pull_request_is_opened_queued_closed_and_merged(world: World, swarm: Swarm, anna: Person) -> None:
    work = idle(world, swarm)
    commit(work)
    path = f"instances/{work.id}"
    assert anna.post(f"{path}/merge", {"confirm": True}).code == "PULL_NOT_FOUND"
    opened = anna.does(f"{path}/pull", {"description": "It works."})["pull"]
    assert (opened["number"], opened["state"]) == (1, "open")
    unsure = anna.post(f"{path}/close_pull")
    assert unsure.json["error"]["details"]["pull"]["number"] == 1
    assert anna.does(f"{path}/close_pull", {"confirm": True})["pull"]["state"] == "closed"
    anna.does(f"{path}/pull", {"title": "Again"})
    unsure = anna.post(f"{path}/merge", {"method": "merge"})
    assert (unsure.status, unsure.code) == (409, "CONFIRM_NEEDED")
    assert unsure.json["error"]["details"]["pull"]["base_branch"] == "main"
    assert not (world.repo / "made.txt").exists()
    assert anna.does(f"{path}/merge", {"method": "merge", "confirm": True})["pull"]["state"] == "merged"
    assert git_run(world.repo, "show", "main:made.txt") == "x"
    assert actors(swarm, "pull:merged") == ["operator:anna"]


def test_uncommitted_work_is_named_before_it_is_taken_away_and_comes_back(
    world: World, swarm: Swarm, anna: Person
) -> None:
    work = idle(world, swarm)
    commit(work)
    (Path(work.worktree_path) / "half.txt").write_text("half done")
    unsure = anna.post(f"instances/{work.id}/stop", {"confirm": False})
    assert (unsure.status, unsure.code) == (409, "CONFIRM_NEEDED")
    left = unsure.json["error"]["details"]["leftovers"]
    assert (left["dirty_files"], left["own_commits"]) == (1, 1)
    assert left["bytes"] >= len("half done")
    assert world.sessions()[work.id]
    anna.does(f"instances/{work.id}/stop", {"confirm": True})
    assert anna.post(f"instances/{work.id}/clean").json["error"]["details"]["leftovers"] == left
    assert Path(work.worktree_path).is_dir()
    anna.does(f"instances/{work.id}/clean", {"confirm": True})
    assert not Path(work.worktree_path).exists()
    assert anna.post(f"instances/{work.id}/message", {"body": "hello"}).status == 409
    anna.does(f"instances/{work.id}/restore")
    assert (Path(work.worktree_path) / "half.txt").read_text() == "half done"


def test_work_that_is_abandoned_ends_with_its_reason(world: World, swarm: Swarm, anna: Person) -> None:
    work = idle(world, swarm)
    assert anna.post(f"instances/{work.id}/abandon", {"why": "other"}).code == "CONFIRM_NEEDED"
    anna.does(f"instances/{work.id}/abandon", {"why": "done elsewhere", "confirm": True})
    assert (swarm.find(work.id).status, swarm.find(work.id).reason) == ("failed", "done elsewhere")


def test_what_fails_later_tells_why_with_code_and_hint(world: World, swarm: Swarm, anna: Person) -> None:
    work = idle(world, swarm)
    failed = anna.outcome(anna.post(f"instances/{work.id}/review"))
    assert (failed["state"], failed["error"]["code"]) == ("failed", "NO_CHANGES")
    assert failed["error"].keys() == ERROR_FIELDS.keys()
    assert failed["error"]["instance_id"] == work.id


def test_a_dismissed_item_is_written_down_with_who_did_it(world: World, swarm: Swarm, anna: Person) -> None:
    from swarm_core.store import dismissed

    work = idle(world, swarm)
    item = f"{work.id}:pull_ready:1@abc"
    assert anna.does(f"inbox/{item}/dismiss") == {"dismissed": item}
    assert list(dismissed.listed(swarm.context.db)) == [(work.id, "pull_ready:1@abc")]
    assert anna.post(f"inbox/{work.id}/dismiss").status == 404
    assert anna.post("inbox/work-a99:x/dismiss").status == 404


# Questions, and two people at once


def test_of_two_who_answer_the_same_question_at_once_one_is_heard(
    world: World, swarm: Swarm, anna: Person, ben: Person
) -> None:
    work, digest = asking(world, swarm, "dialog Delete the build folder?")
    path, yes, no = f"instances/{work.id}/answer", {"choice": 1, "digest": digest}, {"choice": 2, "digest": digest}
    answers = at_once(
        lambda: anna.outcome(anna.post(path, yes)),
        lambda: ben.outcome(ben.post(path, no)),
    )
    (heard,) = [a for a in answers if a["state"] == "done"]
    (late,) = [a for a in answers if a["state"] == "failed"]
    assert late["error"]["code"] == "DIALOG_CHANGED"
    screen = swarm.screen(world.wait_idle(swarm, work.id))
    assert screen.count("answered: ") == 1
    assert f"answered: {heard['result']['answer'].lower()}" in screen
    assert actors(swarm, "dialog:answered") == [heard["by"]]
    received = world.settings.instance_dir(work.id) / "received.jsonl"
    assert not received.exists(), "the second key was typed into its input"


def test_the_answer_to_one_question_is_not_given_to_the_next(
    world: World, swarm: Swarm, anna: Person, ben: Person
) -> None:
    work, digest = asking(world, swarm, "dialog Delete the build folder?\ndialog Delete the home folder?")
    path, yes = f"instances/{work.id}/answer", {"choice": 1, "digest": digest}
    answers = at_once(lambda: anna.outcome(anna.post(path, yes)), lambda: ben.outcome(ben.post(path, yes)))
    assert sorted(a["state"] for a in answers) == ["done", "failed"]

    def asks_next() -> bool:
        swarm.reconcile()
        return "home folder" in str(dialogs.shown(swarm.find(work.id)))

    wait_until(asks_next, timeout=20, what="the next question")
    assert swarm.screen(work).count("answered: yes") == 1
    assert anna.outcome(anna.post(path, yes))["error"]["code"] == "DIALOG_CHANGED"
    assert swarm.screen(work).count("answered: yes") == 1


def test_an_open_question_is_answered_with_words(world: World, swarm: Swarm, anna: Person) -> None:
    work, digest = asking(world, swarm, "ask Which colour?")
    anna.does(f"instances/{work.id}/answer", {"text": "blue, please", "digest": digest})
    world.wait_idle(swarm, work.id)
    assert "answered: blue, please" in swarm.screen(work)


def test_everybody_who_looks_sees_who_does_what(world: World, swarm: Swarm, anna: Person, ben: Person) -> None:
    work = idle(world, swarm)
    connection = http.client.HTTPConnection("127.0.0.1", ben.dashboard.port, timeout=30)
    with contextlib.closing(connection):
        connection.request("GET", "/api/v1/stream", headers=dict(ben.headers))
        stream = connection.getresponse()
        assert stream.status == 200
        frames = sse(stream)
        assert next(frames)[0] == "hello"
        accepted = anna.post(f"instances/{work.id}/message", {"body": "hello"}).json["result"]["action"]
        seen: list[dict[str, Any]] = []
        while not seen or seen[-1]["state"] not in ("done", "failed"):
            seen += [frame for name, frame in [next(frames)] if name == "action"]
    assert [frame["state"] for frame in seen] == ["accepted", "running", "done"]
    assert {(frame["id"], frame["by"], frame["instance"]) for frame in seen} == {
        (accepted["id"], "operator:anna", work.id)
    }


def sse(stream: http.client.HTTPResponse) -> Iterator[tuple[str, Any]]:
    """The name and the data of every frame."""
    name = ""
    for raw in stream:
        kind, _, value = raw.decode().rstrip("\n").partition(": ")
        if kind == "event":
            name = value
        elif kind == "data":
            yield name, json.loads(value)


def test_two_who_stop_and_restart_at_once_leave_one_agent(
    world: World, swarm: Swarm, anna: Person, ben: Person
) -> None:
    work = idle(world, swarm)
    path = f"instances/{work.id}"
    ends = at_once(
        lambda: anna.outcome(anna.post(f"{path}/restart")),
        lambda: ben.outcome(ben.post(f"{path}/stop", {"confirm": True})),
        lambda: anna.outcome(anna.post(f"{path}/restart")),
    )
    assert all(end["state"] == "done" or end["error"]["code"] for end in ends)
    last = anna.outcome(anna.post(f"{path}/restart"))
    assert last["state"] == "done", last
    assert world.sessions() == {work.id: True}


# Typing


def test_keys_are_typed_at_once_and_never_into_a_question(world: World, swarm: Swarm, anna: Person) -> None:
    work = idle(world, swarm)
    answer = anna.post(f"instances/{work.id}/keys", {"text": "say typed"})
    assert (answer.status, answer.json["result"]["action"]["state"]) == (200, "done")
    assert anna.post(f"instances/{work.id}/keys", {"keys": ["Enter"]}).status == 200
    wait_until(lambda: "typed\n" in swarm.screen(work), what="it was heard")
    assert actors(swarm, "instance:typed") == ["operator:anna"]
    asks, _ = asking(world, swarm, "dialog Delete everything?")
    before = swarm.screen(asks)
    for keys in ({"text": "1"}, {"keys": ["Enter"]}, {"keys": ["Escape"]}):
        refused = anna.post(f"instances/{asks.id}/keys", keys)
        assert (refused.status, refused.code) == (409, "DIALOG_OPEN")
        assert "answer" in refused.json["error"]["recovery_hint"]
    assert swarm.screen(asks) == before


# Keys of requests


def test_the_same_key_does_nothing_twice_also_after_a_restart(
    world: World, swarm: Swarm, own_dashboard: Dashboard, anna: Person, ben: Person
) -> None:
    work = idle(world, swarm)
    path, body = f"instances/{work.id}/message", {"body": "once"}
    answers = at_once(*[lambda: anna.post(path, body, key="k-1")] * 6)
    assert {a.status for a in answers} == {202}
    assert len({a.json["result"]["action"]["id"] for a in answers}) == 1
    first = anna.outcome(answers[0])
    own_dashboard.restart()
    again = anna.outcome(anna.post(path, body, key="k-1"))
    assert again == first
    other = anna.post(path, {"body": "twice"}, key="k-1")
    assert (other.status, other.code) == (409, "KEY_REUSED")
    assert len(swarm.detail(work.id).messages) == 1
    anna.outcome(ben.post(path, body, key="k-1"))
    assert [m.sender for m in swarm.detail(work.id).messages] == ["operator:anna", "operator:ben"]


def test_what_a_kill_cut_off_is_interrupted_and_the_core_ends_what_was_begun(
    world: World, swarm: Swarm, own_dashboard: Dashboard, anna: Person
) -> None:
    """The instance's lock is held, so that the action is under way when the dashboard dies."""
    work = idle(world, swarm)
    path, body = f"instances/{work.id}/stop", {"confirm": True}
    with swarm.context.lock(work.id):
        accepted = anna.post(path, body, key="k-2").json["result"]["action"]
        runs = f"actions/{accepted['id']}"
        wait_until(lambda: anna.get(runs).json["result"]["action"]["state"] == "running", what="it runs")
        own_dashboard.stop(signal.SIGKILL)
    own_dashboard.start()
    for told in (anna.get(runs), anna.post(path, body, key="k-2"), anna.get(runs)):
        action = told.json["result"]["action"]
        assert (action["id"], action["state"], action["instance"]) == (accepted["id"], "failed", work.id)
        assert (action["error"]["code"], action["error"]["retry"]) == ("INTERRUPTED", False)
    swarm.reconcile()
    assert world.sessions()[work.id], "it had not begun"
    anna.does(path, body)
    assert not world.sessions().get(work.id, False)


# What is refused at once


BAD: list[tuple[str, Any]] = [
    ("message", {}),
    ("message", {"body": ""}),
    ("message", {"body": " \n\t"}),
    ("message", {"body": "a\0b"}),
    ("message", {"body": "x", "more": 1}),
    ("message", {"body": 7}),
    ("message", {"body": "\ud800"}),
    ("message", {"body": "x" * 200_001}),
    ("message", []),
    ("answer", {"choice": 1}),
    ("answer", {"choice": 1, "digest": "nothex"}),
    ("answer", {"choice": 1, "digest": "0123456789AB"}),
    ("answer", {"choice": 1, "digest": "0123456789ab\n"}),
    ("answer", {"digest": "0123456789ab"}),
    ("answer", {"choice": 1, "text": "x", "digest": "0123456789ab"}),
    ("answer", {"choice": 0, "digest": "0123456789ab"}),
    ("answer", {"choice": True, "digest": "0123456789ab"}),
    ("answer", {"text": "", "digest": "0123456789ab"}),
    ("rescope", {"task": ""}),
    ("feedback", {"body": "x", "feedback_type": "approval"}),
    ("budget", {}),
    ("budget", {"usd": 1, "none": True}),
    ("budget", {"usd": -1}),
    ("budget", {"raise_by": 0}),
    ("budget", {"usd": float("inf")}),
    ("merge", {"method": "octopus", "confirm": True}),
    ("stop", {"confirm": "yes"}),
    ("fork", {"agent": ""}),
    ("fork", {"agent": "no-such-agent"}),
    ("keys", {}),
    ("keys", {"text": "a", "keys": ["Enter"]}),
    ("keys", {"text": "\x1b"}),
    ("keys", {"text": "a\nb"}),
    ("keys", {"text": "x" * 2049}),
    ("keys", {"keys": ["C-z"]}),
    ("keys", {"keys": ["Enter"] * 65}),
    ("keys", {"keys": "Enter"}),
    ("restart", {"force": True}),
]


def test_what_can_never_work_is_refused_at_once(world: World, swarm: Swarm, anna: Person) -> None:
    work = idle(world, swarm)
    newest = swarm.events(limit=1)[0].id
    for act, body in BAD:
        answer = anna.post(f"instances/{work.id}/{act}", body)
        code = "AGENT_UNKNOWN" if body == {"agent": "no-such-agent"} else answer.code
        assert (answer.status, answer.code) == (404 if code == "AGENT_UNKNOWN" else 400, code), (act, body)
    spawns = [
        ({"prompt": "x"}, 400),
        ({"repo": "."}, 400),
        ({"repo": str(world.repo), "count": 33}, 400),
        ({"repo": str(world.repo), "count": "2"}, 400),
        ({"repo": str(world.repo), "issue": 0}, 400),
        ({"repo": str(world.repo), "name": "-x"}, 400),
        ({"repo": str(world.repo), "agent": "no-such-agent"}, 404),
        ({"repo": str(world.home / "nowhere")}, 404),
        ({"repo": str(world.repo), "base": "no-such-branch"}, 404),
    ]
    for body, status in spawns:
        assert anna.post("instances", body).status == status, body
    assert [e.name for e in swarm.events(after=newest)] == []


def test_an_unknown_instance_or_action_is_not_found(own_dashboard: Dashboard, anna: Person) -> None:
    for endpoint in ENDPOINTS:
        if "{id}" not in endpoint.path:
            continue
        for odd in ("work-a99", "..%2F..%2Fx", "%00", "a_1", "x" * 300):
            path = endpoint.path.replace("{id}", odd).removeprefix("/api/v1/")
            body = {
                "message": {"body": "x"},
                "feedback": {"body": "x", "feedback_type": "suggestions"},
                "answer": {"choice": 1, "digest": "0123456789ab"},
                "rescope": {"task": "x"},
                "budget": {"usd": 1},
                "keys": {"text": "x"},
            }.get(endpoint.path.rpartition("/")[2])
            answer = anna.get(path) if endpoint.method == "GET" else anna.post(path, body)
            assert answer.status == 404, (path, answer.body)


def test_a_visit_that_may_only_look_does_nothing(world: World, swarm: Swarm, own_dashboard: Dashboard) -> None:
    work = idle(world, swarm)
    newest = swarm.events(limit=1)[0].id
    guest = Person(own_dashboard, own_dashboard.enter(may_write=False, name="guest"))
    for endpoint in ENDPOINTS:
        if endpoint.method == "POST" and endpoint.path != "/api/v1/client-errors":
            path = endpoint.path.replace("{id}", work.id).removeprefix("/api/v1/")
            answer = guest.post(path, {"confirm": True, "body": "x"})
            assert (answer.status, answer.code) == (403, "FORBIDDEN"), path
    assert guest.post("client-errors", {"message": "x"}).status == 200
    told = [e.name for e in swarm.events(after=newest) if e.name != "link:used"]
    assert [name for name in told if name.startswith(("dashboard:", "instance:", "message:"))] == []


def test_everything_that_destroys_asks_first(world: World, swarm: Swarm, anna: Person) -> None:
    work = idle(world, swarm)
    commit(work)
    anna.does(f"instances/{work.id}/pull", {"title": "x"})
    for act in DESTROYS:
        answer = anna.post(f"instances/{work.id}/{act}", {}, key="same-key")
        assert (answer.status, answer.code) == (409, "CONFIRM_NEEDED"), act
        assert answer.json["error"]["details"]
    assert world.sessions() == {work.id: True}


# Failures in a page


def test_a_failure_in_a_page_is_a_line_in_the_log_and_a_flood_is_not_many(
    own_dashboard: Dashboard, anna: Person
) -> None:
    said = {"message": "boom\n\x1b[2Jfake line", "stack": "at x.js", "url": "/i/w", "line": 3}
    assert anna.post("client-errors", said).json["result"] == {"logged": True}
    (line,) = [json.loads(one) for one in own_dashboard.log.read_text().splitlines() if "boom" in one]
    assert line["level"] == "warning"
    assert "\x1b" not in line["message"]
    assert "\n" not in line["message"]
    assert anna.post("client-errors", {"message": "x", "cookie": "y"}).status == 400
    logged = [anna.post("client-errors", {"message": f"flood {n}"}).json["result"]["logged"] for n in range(40)]
    assert True in logged
    assert logged[-1] is False
    assert len([one for one in own_dashboard.log.read_text().splitlines() if "flood" in one]) < 40

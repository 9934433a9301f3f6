"""GitHub's webhook: signed deliveries make the follower look, and nothing else does anything at all."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import http.client
import itertools
import json
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

from swarm_core.models import Instance, Pull
from swarm_core.store import pulls
from swarm_core.swarm import Swarm
from swarm_mcp import webhooks
from swarm_mcp.loop import LoopStore
from swarm_mcp.metrics import Metrics
from swarm_mcp.refusals import Refusals
from swarm_mcp.webhooks import Webhooks
from tests.fakes.github_deliveries import ACTIONS, delivery
from tests.integration.mcp_fixture import Coordinated
from tests.integration.mcp_lines import coordinated
from tests.integration.test_mcp_endpoints import read_metrics
from tests.support import wait_until
from tests.world import World

SECRET = "a-secret-that-only-github-knows"
FAR = "2099-01-01T00:00:00.000+00:00"
HEAD = "0123456789abcdef0123456789abcdef01234567"
_ids = itertools.count(1)


@pytest.fixture(scope="module")
def shared() -> Iterator[Coordinated]:
    with coordinated(SWARM_WEBHOOK_SECRET=SECRET) as made:
        yield made


@pytest.fixture(scope="module")
def work(shared: Coordinated) -> Instance:
    with shared.swarm() as swarm:
        return shared.world.work(swarm, "say ready")


@pytest.fixture
def pull(shared: Coordinated, work: Instance) -> Iterator[Pull]:
    """An open one that nobody looks at before the end of the century."""
    with shared.swarm() as swarm:
        made = followed(swarm, work)
        yield made
        with swarm.context.db.write():
            pulls.change(swarm.context.db, pulls.get(swarm.context.db, made.id), state="closed")


def followed(swarm: Swarm, work: Instance, **facts: Any) -> Pull:
    number = next(_ids)
    known: dict[str, Any] = {
        "id": 0,
        "forge": "github",
        "repo_path": work.repo_path,
        "number": number,
        "url": f"https://github.com/acme/Widgets/pull/{number}",
        "instance_id": work.id,
        "opened_by": work.id,
        "head_branch": f"work/{number}",
        "base_branch": "main",
        "head_commit": HEAD,
        "title": "Make it",
        "body": "",
        "state": "open",
        "created_at": swarm.context.db.now(),
        "updated_at": swarm.context.db.now(),
        "repository": "github.com/acme/Widgets",
        "next_at": FAR,
    }
    with swarm.context.db.write():
        return pulls.insert(swarm.context.db, Pull(**known | facts))


def payload(event: str = "pull_request", /, **said: Any) -> dict[str, Any]:
    """What GitHub sends; no two of them are the same."""
    place = {"full_name": "acme/widgets", "html_url": "https://github.com/acme/widgets"}
    told = {"repository": place, "sender": {"id": next(_ids)}} | said
    return delivery(event, **told) if event in ACTIONS or event == "status" else told


def signed(body: bytes, secret: str = SECRET) -> str:
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def headers_of(body: bytes, event: str = "pull_request", **more: str | None) -> dict[str, str]:
    known: dict[str, str | None] = {
        "Content-Type": "application/json",
        "X-GitHub-Event": event,
        "X-GitHub-Delivery": f"00000000-0000-0000-0000-{next(_ids):012}",
        "X-Hub-Signature-256": signed(body),
    }
    given = known | {name.replace("_", "-"): value for name, value in more.items()}
    return {name: value for name, value in given.items() if value is not None}


def post(made: Coordinated, body: bytes, headers: dict[str, str], *, method: str = "POST") -> tuple[int, Any]:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", made.port, timeout=20)) as connection:
        connection.request(method, webhooks.PATH, body, headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read() or b"null")


def deliver(made: Coordinated, event: str, said: Any, **more: str | None) -> tuple[int, Any]:
    body = json.dumps(said).encode()
    return post(made, body, headers_of(body, event, **more))


def next_at(made: Coordinated, pull: Pull) -> str | None:
    with made.swarm() as swarm:
        return pulls.get(swarm.context.db, pull.id).next_at


# The right one


def test_a_delivery_makes_the_follower_look_at_once(shared: Coordinated, pull: Pull) -> None:
    """It has no token here, so what it writes down is that it could not ask."""
    answer = deliver(shared, "pull_request", payload(pull_request={"number": pull.number}))
    assert answer == (200, {"ok": True, "pulls": 1})

    def looked() -> Pull | None:
        with shared.swarm() as swarm:
            found = pulls.get(swarm.context.db, pull.id)
        return found if found.failures else None

    found = wait_until(looked, what="the follower has tried")
    assert isinstance(found, Pull)
    assert "GITHUB_UNAUTHORIZED" in found.failure


def reports(number: int) -> list[tuple[str, dict[str, Any]]]:
    listed = {"head_sha": "f" * 40, "pull_requests": [{"number": number}]}
    forked = {"head_sha": HEAD, "pull_requests": []}
    return [
        ("pull_request", {"pull_request": {"number": number}}),
        ("pull_request_review", {"pull_request": {"number": number}}),
        ("issue_comment", {"issue": {"number": number, "pull_request": {"url": "https://github.com/x"}}}),
        ("check_run", {"check_run": listed}),
        ("check_suite", {"check_suite": listed}),
        ("workflow_run", {"workflow_run": listed}),
        ("check_run", {"check_run": forked}),
        ("workflow_job", {"workflow_job": {"head_sha": HEAD}}),
        ("status", {"sha": HEAD, "state": "success"}),
    ]


class Desk:
    """The receiver without a coordinator around it, so that nobody but a delivery changes anything."""

    def __init__(self, swarm: Swarm, store: LoopStore, secret: str = SECRET) -> None:
        self.woken = 0
        self.store = store
        refusals = Refusals(swarm.context.db, lambda _: None)
        self.webhooks = Webhooks(secret, store, refusals, Metrics(), self.wake)

    def wake(self) -> None:
        self.woken += 1

    def deliver(self, event: str, said: Any, *, arrives: bool = True, **more: str | None) -> tuple[int, Any]:
        body = json.dumps(said).encode()
        headers = [(n.lower().encode(), v.encode()) for n, v in headers_of(body, event, **more).items()]
        scope = {"type": "http", "method": "POST", "path": webhooks.PATH, "headers": headers, "query_string": b""}
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            if not arrives:
                await asyncio.get_running_loop().create_future()
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        asyncio.run(self.webhooks(scope, receive, send))
        return sent[0]["status"], json.loads(sent[1]["body"])


@pytest.fixture
def desk(world: World) -> Iterator[tuple[Desk, Swarm, Instance]]:
    with world.open() as swarm:
        work = world.work(swarm, "say ready")
        with contextlib.closing(LoopStore(world.settings, swarm.context.db)) as store:
            yield Desk(swarm, store), swarm, work


def test_every_kind_of_report_hurries_the_pull_requests_it_is_about_and_no_other(
    desk: tuple[Desk, Swarm, Instance],
) -> None:
    receiver, swarm, work = desk
    mine = followed(swarm, work, failures=3)
    others = [
        followed(swarm, work, head_commit="a" * 40),
        followed(swarm, work, repository="github.com/acme/gadgets"),
        followed(swarm, work, repository="ghe.example/acme/widgets", number=mine.number, repo_path="/elsewhere"),
        followed(swarm, work, state="merged"),
        followed(swarm, work, forge="local", repository="", number=mine.number),
    ]
    for count, (event, said) in enumerate(reports(mine.number), start=1):
        assert receiver.deliver(event, payload(event, **said)) == (200, {"ok": True, "pulls": 1}), event
        assert receiver.woken == count
        found = pulls.get(swarm.context.db, mine.id)
        assert (found.next_at, found.failures) == (None, 0)
        with swarm.context.db.write():
            pulls.looked(swarm.context.db, found, next_at=FAR, failures=3)
    assert [pulls.get(swarm.context.db, other.id).next_at for other in others] == [FAR] * len(others)


def test_one_that_was_closed_is_looked_at_when_github_says_that_it_is_open_again(
    desk: tuple[Desk, Swarm, Instance],
) -> None:
    receiver, swarm, work = desk
    pull = followed(swarm, work, state="closed")
    said = payload(pull_request={"number": pull.number, "state": "open"})
    assert (said["action"], receiver.deliver("pull_request", said)[1]["pulls"]) == ("reopened", 1)
    found = pulls.get(swarm.context.db, pull.id)
    assert (found.next_at, found.state) == (None, "closed"), "GitHub itself is asked"


def test_a_check_of_many_pull_requests_hurries_all_of_them(desk: tuple[Desk, Swarm, Instance]) -> None:
    receiver, swarm, work = desk
    some = [followed(swarm, work) for _ in range(3)]
    listed = [{"number": pull.number} for pull in some[:2]]
    run = {"head_sha": "f" * 40, "pull_requests": listed}
    assert receiver.deliver("check_run", payload("check_run", check_run=run))[1]["pulls"] == 2
    assert [pulls.get(swarm.context.db, pull.id).next_at for pull in some] == [None, None, FAR]


def test_nothing_that_a_delivery_says_is_believed(desk: tuple[Desk, Swarm, Instance]) -> None:
    receiver, swarm, work = desk
    pull = followed(swarm, work)
    merged = {"number": pull.number, "state": "closed", "merged": True, "title": "owned", "draft": True}
    said = payload(pull_request=merged | {"head": {"sha": "b" * 40}}, action="closed")
    assert receiver.deliver("pull_request", said)[0] == 200
    assert pulls.get(swarm.context.db, pull.id) == Pull(
        **{f: getattr(pull, f) for f in Pull.__slots__} | {"next_at": None}
    )
    assert swarm.find(work.id).status == "running"


def test_ids_are_forgotten_after_a_month(desk: tuple[Desk, Swarm, Instance]) -> None:
    receiver, swarm, _ = desk
    with swarm.context.db.write():
        for name, at in (("old", "2020-01-01T00:00:00.000+00:00"), ("new", swarm.context.db.now())):
            swarm.context.db.execute("INSERT INTO webhook_deliveries VALUES (?, ?)", (name, at))
    assert receiver.deliver("status", payload("status"))[0] == 200
    kept = {row[0] for row in swarm.context.db.rows("SELECT id FROM webhook_deliveries")}
    assert "new" in kept
    assert "old" not in kept


def test_while_the_database_is_locked_a_delivery_is_refused_and_may_come_again(
    world: World, desk: tuple[Desk, Swarm, Instance], monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver, swarm, work = desk
    pull = followed(swarm, work)
    monkeypatch.setattr(webhooks, "_WRITTEN_WITHIN", 0.0)
    said, name = payload(pull_request={"number": pull.number}), "one-delivery"
    with swarm.context.db.write():
        status, answer = receiver.deliver("pull_request", said, X_GitHub_Delivery=name)
        assert (status, answer["code"]) == (503, "DATABASE_LOCKED")
    assert receiver.woken == 0
    assert receiver.deliver("pull_request", said, X_GitHub_Delivery=name) == (200, {"ok": True, "pulls": 1})


def test_a_delivery_that_does_not_arrive_in_time_is_given_up(
    desk: tuple[Desk, Swarm, Instance], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "_READ_WITHIN", 0.05)
    receiver, _, _ = desk
    status, answer = receiver.deliver("ping", payload("ping"), arrives=False)
    assert (status, answer["code"]) == (408, "INVALID_REQUEST")
    assert receiver.deliver("ping", payload("ping"))[0] == 200


def test_slow_deliveries_give_way_to_those_that_arrive(shared: Coordinated, pull: Pull) -> None:
    """As many slow bodies as are read at once, each with a signature that nobody has checked yet."""
    head = (
        f"POST {webhooks.PATH} HTTP/1.1\r\nHost: 127.0.0.1:{shared.port}\r\nContent-Length: 1000\r\n"
        f"Content-Type: application/json\r\nX-Hub-Signature-256: sha256={'0' * 64}\r\n\r\n{{"
    )
    with contextlib.ExitStack() as stack:
        for _ in range(16):
            slow = stack.enter_context(socket.create_connection(("127.0.0.1", shared.port)))
            slow.sendall(head.encode())
        body = json.dumps(payload(pull_request={"number": pull.number})).encode()
        for _ in range(3):
            assert post(shared, body, headers_of(body))[0] == 200


def test_a_form_is_read_as_well(shared: Coordinated, pull: Pull) -> None:
    body = urlencode({"payload": json.dumps(payload(pull_request={"number": pull.number}))}).encode()
    headers = headers_of(body, Content_Type="application/x-www-form-urlencoded")
    assert post(shared, body, headers) == (200, {"ok": True, "pulls": 1})


# What changes nothing


def test_a_replay_is_answered_and_does_nothing(desk: tuple[Desk, Swarm, Instance]) -> None:
    receiver, swarm, work = desk
    pull = followed(swarm, work)
    said = payload(pull_request={"number": pull.number})
    assert receiver.deliver("pull_request", said, X_GitHub_Delivery="the-id")[1] == {"ok": True, "pulls": 1}
    with swarm.context.db.write():
        pulls.looked(swarm.context.db, pulls.get(swarm.context.db, pull.id), next_at=FAR)
    same_id = payload(pull_request={"number": pull.number})
    for replay, name in ((said, "the-id"), (same_id, "the-id"), (said, "an-id-that-was-not-signed")):
        answer = receiver.deliver("pull_request", replay, X_GitHub_Delivery=name)
        assert answer == (200, {"ok": True, "replayed": True})
    assert pulls.get(swarm.context.db, pull.id).next_at == FAR
    assert receiver.woken == 1


@pytest.mark.parametrize(
    "given",
    [
        None,
        "",
        "sha256=",
        "sha256=" + "0" * 64,
        "sha1=" + "0" * 40,
        "SHA256=" + "0" * 64,
        "sha256=" + "\u00e9" * 64,
        f"sha256={SECRET}",
    ],
    ids=ascii,
)
def test_what_is_not_signed_with_the_secret_is_refused(shared: Coordinated, pull: Pull, given: str | None) -> None:
    newest = shared.newest_event()
    said = payload(pull_request={"number": pull.number})
    status, answer = deliver(shared, "pull_request", said, X_Hub_Signature_256=given)
    assert (status, answer["code"], answer["ok"]) == (401, "UNAUTHORIZED", False)
    assert next_at(shared, pull) == FAR
    (event,) = wait_until(lambda: shared.events(after=newest, name="webhook:refused"), what="the refusal is told")
    assert event.error_code == "UNAUTHORIZED"
    assert not event.success


def test_a_signature_of_another_body_or_of_another_secret_is_refused(shared: Coordinated, pull: Pull) -> None:
    said = payload(pull_request={"number": pull.number})
    body = json.dumps(said).encode()
    for forged in (signed(body + b" "), signed(body, "another"), signed(body, "")):
        assert deliver(shared, "pull_request", said, X_Hub_Signature_256=forged)[0] == 401
    assert next_at(shared, pull) == FAR
    assert deliver(shared, "pull_request", said)[0] == 200, "a refused one does not count as delivered"


def test_what_is_about_nothing_takes_no_room(desk: tuple[Desk, Swarm, Instance]) -> None:
    receiver, swarm, _ = desk
    assert receiver.deliver("push", payload("push")) == (200, {"ok": True, "pulls": 0})
    assert receiver.deliver("check_run", {"repository": None}) == (200, {"ok": True, "pulls": 0})
    assert swarm.context.db.rows("SELECT * FROM webhook_deliveries") == []


@pytest.mark.parametrize("event", ["ping", "push", "star", "nothing_like_it", "", "x" * 5000])
def test_events_that_are_about_no_pull_request_are_answered_and_change_nothing(
    shared: Coordinated, pull: Pull, event: str
) -> None:
    said = payload(pull_request={"number": pull.number}) | {"zen": "Keep it simple"}
    assert deliver(shared, event, said) == (200, {"ok": True, "pulls": 0})
    assert next_at(shared, pull) == FAR


def odd_payloads(number: int) -> list[dict[str, Any]]:
    about = {"pull_request": {"number": number}}
    good = {"full_name": "acme/widgets", "html_url": "https://github.com/acme/widgets"}
    return [
        {},
        about,
        about | {"repository": None},
        about | {"repository": []},
        about | {"repository": good | {"html_url": 7}},
        about | {"repository": good | {"html_url": "javascript:alert(1)"}},
        about | {"repository": good | {"html_url": "https://github.com/acme/other"}},
        about | {"repository": good | {"html_url": "https://evil.example/acme/widgets"}},
        about | {"repository": good | {"full_name": None}},
        *(
            {"repository": good, "pull_request": odd, "issue": {"number": number}, "nonce": next(_ids)}
            for odd in (None, [], "x", {"number": str(number)}, {"number": True}, {"number": -1})
        ),
        {"repository": good, "pull_request": {"number": 10**30}, "check_run": {"pull_requests": 7}},
        {"repository": good, "check_run": {"pull_requests": [None, 7, {"number": None}], "head_sha": [HEAD]}},
        {"repository": good, "sha": "%", "check_suite": [], "workflow_run": {"head_sha": {"a": 1}}},
    ]


def test_payloads_of_an_odd_shape_are_survived_and_change_nothing(shared: Coordinated, pull: Pull) -> None:
    for said in odd_payloads(pull.number):
        assert deliver(shared, "check_run", said) == (200, {"ok": True, "pulls": 0}), said
    assert next_at(shared, pull) == FAR


@pytest.mark.parametrize(
    "body",
    [b"", b"garbage", b"[]", b'"text"', b"7", b"null", b"{", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 50_000],
    ids=lambda b: repr(b[:12]),
)
@pytest.mark.parametrize("kind", ["application/json", "application/x-www-form-urlencoded"])
def test_a_signed_body_that_is_no_object_is_refused(shared: Coordinated, body: bytes, kind: str) -> None:
    status, answer = post(shared, body, headers_of(body, Content_Type=kind))
    assert (status, answer["code"]) == (400, "INVALID_REQUEST")


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"Content_Type": "text/plain"}, 415),
        ({"Content_Type": None}, 415),
        ({"X_GitHub_Delivery": None}, 400),
        ({"X_GitHub_Delivery": "x" * 101}, 400),
        ({"X_GitHub_Delivery": "a b"}, 400),
    ],
    ids=str,
)
def test_headers_that_github_does_not_send_are_refused(
    shared: Coordinated, pull: Pull, more: dict[str, str | None], expected: int
) -> None:
    assert deliver(shared, "pull_request", payload(pull_request={"number": pull.number}), **more)[0] == expected
    assert next_at(shared, pull) == FAR


def test_only_a_post_is_a_delivery(shared: Coordinated) -> None:
    assert post(shared, b"", {}, method="GET")[0] == 405
    assert post(shared, b"", {}, method="PUT")[0] == 405


# Its size, its number, its names


def raw_answer(made: Coordinated, head: str, chunks: int = 0) -> tuple[int, Any]:
    with contextlib.closing(socket.create_connection(("127.0.0.1", made.port), timeout=20)) as connection:
        signature = f"X-Hub-Signature-256: sha256={'0' * 64}\r\n"
        start = f"POST {webhooks.PATH} HTTP/1.1\r\nHost: 127.0.0.1:{made.port}\r\n{signature}"
        connection.sendall(f"{start}{head}\r\n\r\n".encode())
        for _ in range(chunks):
            connection.sendall(b"%x\r\n%b\r\n" % (1 << 16, b"x" * (1 << 16)))
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        return answer.status, json.loads(answer.read())


def test_a_huge_body_is_refused_before_any_of_it_was_sent(shared: Coordinated) -> None:
    status, answer = raw_answer(shared, f"Content-Length: {webhooks.BODY_MAX + 1}")
    assert (status, answer["code"]) == (413, "INVALID_REQUEST")
    assert raw_answer(shared, f"Content-Length: {'9' * 18}")[0] == 413


def test_a_huge_body_that_does_not_say_so_is_refused_before_its_end(shared: Coordinated) -> None:
    chunks = webhooks.BODY_MAX // (1 << 16) + 1
    assert raw_answer(shared, "Transfer-Encoding: chunked", chunks)[0] == 413


def test_the_largest_body_that_is_allowed_is_taken(shared: Coordinated, pull: Pull) -> None:
    said = payload(pull_request={"number": pull.number}) | {"filler": ""}
    said["filler"] = "x" * (webhooks.BODY_MAX - len(json.dumps(said).encode()))
    assert len(json.dumps(said).encode()) == webhooks.BODY_MAX
    assert deliver(shared, "pull_request", said)[0] == 200


def test_a_flood_of_forged_ones_is_a_few_events_and_a_count(stopped_mcp: Coordinated) -> None:
    stopped_mcp.start(SWARM_WEBHOOK_SECRET=SECRET)
    forged = {"X-Hub-Signature-256": "sha256=" + "0" * 64}
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", stopped_mcp.port, timeout=20)) as connection:
        for _ in range(200):
            connection.request("POST", webhooks.PATH, b"{}", forged)
            response = connection.getresponse()
            assert response.status == 401
            response.read()
    assert stopped_mcp.stop() == 0
    told = stopped_mcp.events(name="webhook:refused")
    assert len(told) < 60
    assert sum(event.metadata.get("count", 1) for event in told) == 200
    assert stopped_mcp.events(name="auth:refused") == []


def test_a_tunnel_may_bring_deliveries_under_its_own_name_and_nothing_else(
    shared: Coordinated, pull: Pull
) -> None:
    said = payload(pull_request={"number": pull.number})
    assert deliver(shared, "pull_request", said, Host="swarm.tunnel.example")[0] == 200
    for path in ("/health", "/metrics", "/mcp", "/webhooks/github/", "/webhooks", "//webhooks/github", "/nothing"):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", shared.port, timeout=20)) as connection:
            connection.request("GET", path, headers={"Host": "swarm.tunnel.example"})
            assert connection.getresponse().status == 403, path


def test_a_page_of_another_site_cannot_deliver(shared: Coordinated, pull: Pull) -> None:
    body = json.dumps(payload(pull_request={"number": pull.number})).encode()
    headers = headers_of(body, Origin="https://evil.example", Host="swarm.tunnel.example")
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", shared.port, timeout=20)) as connection:
        connection.request("POST", webhooks.PATH, body, headers)
        assert connection.getresponse().status == 403
    assert next_at(shared, pull) == FAR


def test_without_a_secret_there_is_no_receiver(mcp: Coordinated) -> None:
    body = json.dumps(payload("ping")).encode()
    for secret in ("", SECRET):
        status, answer = post(mcp, body, headers_of(body, X_Hub_Signature_256=signed(body, secret)))
        assert (status, answer["code"]) == (404, "NOT_FOUND")
        assert "SWARM_WEBHOOK_SECRET" in answer["error"]["recovery_hint"]
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", mcp.port, timeout=20)) as connection:
        connection.request("POST", webhooks.PATH, body, headers_of(body, Host="swarm.tunnel.example"))
        assert connection.getresponse().status == 403, "no other name is answered either"


def test_deliveries_are_counted(shared: Coordinated) -> None:
    with shared.swarm() as swarm:
        name = f"prometheus-{next(_ids)}"
        token = swarm.create_token(name, ["metrics"]).token

    def counts() -> dict[tuple[str, str], float]:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", shared.port, timeout=20)) as connection:
            connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"})
            return read_metrics(connection.getresponse().read().decode())[1]

    before = counts()
    deliver(shared, "ping", payload("ping"))
    deliver(shared, "ping", payload("ping"), X_Hub_Signature_256=None)
    after = counts()
    for outcome in ("ignored", "refused"):
        key = ("swarm_webhooks_total", f'outcome="{outcome}"')
        assert after[key] - before.get(key, 0) == 1


def test_the_secret_is_in_no_log_event_answer_or_file(stopped_mcp: Coordinated) -> None:
    """Not even when somebody sends it in the wrong place."""
    stopped_mcp.start(SWARM_WEBHOOK_SECRET=SECRET)
    said: list[Any] = [deliver(stopped_mcp, "ping", payload("ping"))]
    for more in (
        {"X_Hub_Signature_256": f"sha256={SECRET}"},
        {"Content_Type": SECRET},
        {"X_GitHub_Event": SECRET},
    ):
        said.append(deliver(stopped_mcp, "ping", payload("ping"), **more))
    said.append(deliver(stopped_mcp, "ping", payload("ping"), X_GitHub_Delivery=f"{SECRET} "))
    said.append(post(stopped_mcp, b"", {"Authorization": f"Bearer {SECRET}"}))
    assert stopped_mcp.stop() == 0
    assert SECRET not in json.dumps(said)
    assert SECRET not in stopped_mcp.log.read_text()
    assert SECRET not in repr(stopped_mcp.events())
    for path in stopped_mcp.world.home.rglob("*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes(), path

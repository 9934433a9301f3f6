"""The dashboard's doors, against the real process: who comes in, who does not, and what every answer carries."""

from __future__ import annotations

import concurrent.futures
import gzip
import json
import re
import signal
import socket
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from swarm_ui.web.guard import HEADERS
from tests.integration.doors_fixture import Answer, Dashboard, dashboard, own_dashboard
from tests.support import make_repo, token_owner, wait_until
from tests.world import World

__all__ = ["dashboard", "own_dashboard"]

READ = "/api/v1/snapshot"
WRITE = "/api/v1/instances/work-a1/message"
SAID = {"body": "go on"}
HTML = ("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
NO_HOSTS = ["evil.example", "127.0.0.1", "127.0.0.1:1", "127.0.0.1.evil.example:{port}", "evil.example:{port}"]


def passed(answer: Answer) -> bool:
    """Whether a write came through the doors; whether there is something to write to is another question."""
    return answer.status in (202, 404)


# Nobody comes in without a link


@pytest.mark.parametrize("path", ["/", "/i/work-a1", "/graph", "/inbox", "/threads/x", "/events", "/pulls"])
def test_without_a_visit_a_page_says_how_to_come_in(dashboard: Dashboard, path: str) -> None:
    answer = dashboard.ask(path, headers=[HTML])
    assert (answer.status, answer.is_html) == (401, True)
    assert b"swarm link" in answer.body
    assert b"boot" not in answer.body


@pytest.mark.parametrize("path", [READ, "/status", "/api/v1/openapi.json", "/api/v1/stream", "/nothing", "/ws"])
def test_without_a_visit_the_api_answers_unauthorized(dashboard: Dashboard, path: str) -> None:
    for answer in (dashboard.ask(path), dashboard.ask(path, headers=[("Cookie", f"{dashboard.cookie_name}=x")])):
        assert (answer.status, answer.code) == (401, "UNAUTHORIZED")
    assert dashboard.post(WRITE, SAID).status == 401
    assert dashboard.ask(path, method="OPTIONS").status == 401


def test_health_says_how_it_is_to_anybody_and_shows_its_page_to_visitors_only(dashboard: Dashboard) -> None:
    told = dashboard.ask("/health")
    assert (told.status, told.json["ok"]) == (200, True)
    assert dashboard.ask("/health", headers=[HTML]).status == 401
    page = dashboard.ask("/health", headers=[*dashboard.enter(), HTML])
    assert (page.status, page.is_html) == (200, True)


# Links and visits


def test_a_link_brings_in_once_and_leaves_no_token_in_the_address(dashboard: Dashboard) -> None:
    token = dashboard.link()
    answer = dashboard.ask(f"/i/work-a1?tab=diff&token={token}&q=a%20b")
    assert (answer.status, answer.headers["location"]) == (303, "/i/work-a1?tab=diff&q=a+b")
    name, *attributes = answer.headers["set-cookie"].split("; ")
    assert re.fullmatch(rf"{dashboard.cookie_name}=[\w-]{{43}}", name)
    assert {a.lower() for a in attributes} >= {"httponly", "samesite=strict", "path=/"}
    assert token not in name
    assert dashboard.ask(READ, headers=[("Cookie", name)]).status == 200
    again = dashboard.ask(f"/?token={token}")
    assert (again.status, again.headers["set-cookie"]) == (401, None)
    assert dashboard.ask(f"/?token={token}", headers=[("Cookie", name)]).headers["location"] == "/"


def test_of_eight_browsers_with_one_link_exactly_one_comes_in(dashboard: Dashboard) -> None:
    token = dashboard.link()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: dashboard.ask(f"/?token={token}").status, range(8)))
    assert sorted(found) == [303] + [401] * 7


def test_a_token_is_good_on_pages_alone_and_leads_nowhere_else(dashboard: Dashboard) -> None:
    token = dashboard.link()
    for path in (READ, "/api/v1/stream", "//evil.example/", "/\\evil.example", "/static/x", "/nothing", "/status"):
        answer = dashboard.ask(f"{path}?token={token}")
        assert answer.status in (401, 404), path
        assert answer.headers["set-cookie"] is None
        assert answer.headers["location"] is None
    twice = dashboard.ask(f"/?token={token}&token={token}")
    assert (twice.status, twice.headers["set-cookie"]) == (401, None)
    assert dashboard.post(f"/?token={token}").status == 401
    assert dashboard.ask(f"/?token={token}", method="HEAD").status == 401
    ahead = [("Sec-Purpose", "prefetch;prerender")]
    assert dashboard.ask(f"/?token={token}", headers=ahead).status == 401
    assert dashboard.ask(f"/?token={token}").status == 303, "none of this used it up"


def test_a_link_that_another_site_leads_to_goes_on_from_our_own_page(dashboard: Dashboard) -> None:
    """A browser sends no strict cookie after a redirect that began elsewhere."""
    elsewhere = [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "document")]
    first = dashboard.ask(f"/i/work-a1?token={dashboard.link()}&q=%22%3E%3Cb", headers=elsewhere)
    assert (first.status, first.is_html) == (200, True)
    assert b'content="0; url=/i/work-a1?q=%22%3E%3Cb"' in first.body
    cookie = ("Cookie", first.headers["set-cookie"].split(";")[0])
    without = dashboard.ask("/graph", headers=elsewhere)
    assert without.status == 401
    assert b'content="0; url=/graph"' in without.body
    assert dashboard.ask("/graph", headers=[cookie, *elsewhere]).status == 200
    own = [("Sec-Fetch-Site", "same-origin"), *elsewhere[1:]]
    assert b"http-equiv" not in dashboard.ask("/graph", headers=own).body, "or it would go round for ever"


def test_a_visit_outlasts_a_restart_and_ends_when_it_is_revoked(own_dashboard: Dashboard) -> None:
    anna, ben = own_dashboard.enter(name="anna"), own_dashboard.enter(name="ben")
    own_dashboard.restart()
    assert own_dashboard.ask(READ, headers=anna).status == 200
    assert own_dashboard.world.command("link", "--revoke", "anna").returncode == 0
    wait_until(lambda: own_dashboard.ask(READ, headers=anna).status == 401, timeout=5, what="anna is out")
    assert own_dashboard.ask(READ, headers=ben).status == 200


def test_a_stream_ends_when_its_visit_does(dashboard: Dashboard) -> None:
    (cookie, _) = dashboard.enter(may_write=False, name="guest")
    with socket.create_connection(("127.0.0.1", dashboard.port), timeout=20) as line:
        host = f"Host: 127.0.0.1:{dashboard.port}"
        line.sendall(f"GET /api/v1/stream HTTP/1.1\r\n{host}\r\nCookie: {cookie[1]}\r\n\r\n".encode())
        assert b"200 OK" in line.recv(65536)
        dashboard.world.command("link", "--revoke", "guest")
        wait_until(lambda: line.recv(65536) in (b"", b"0\r\n\r\n"), timeout=20, what="it ends")
    assert "without completing response" not in dashboard.log.read_text()


def test_a_shared_link_lets_many_look_and_nobody_act(dashboard: Dashboard) -> None:
    token = dashboard.link(may_write=False)
    for _ in range(2):
        answer = dashboard.ask(f"/?token={token}")
        assert answer.status == 303
        visit = [("Cookie", answer.headers["set-cookie"].split(";")[0]), ("Origin", dashboard.origin)]
        assert dashboard.ask(READ, headers=visit).json["result"]["me"] == {"name": "viewer", "may_write": False}
        refused = dashboard.post(WRITE, SAID, headers=visit)
        assert (refused.status, refused.code) == (403, "FORBIDDEN")


def test_a_cookie_of_one_port_is_worth_nothing_on_another(dashboard: Dashboard, short_tmp: Path) -> None:
    """Browsers send cookies to every port of a host, and both dashboards here have one database."""
    (_, value), _ = dashboard.enter()
    other = Dashboard(World(short_tmp / "other", make_repo(short_tmp / "repo")))
    other.environ = {"MCP_DATABASE_PATH": str(dashboard.world.settings.database_path)}
    other.start()
    try:
        secret = value.partition("=")[2]
        for name in (other.cookie_name, dashboard.cookie_name):
            assert other.ask(READ, headers=[("Cookie", f"{name}={secret}")]).status == 401
        assert dashboard.ask(READ, headers=[("Cookie", f"swarm_{other.port}={secret}")]).status == 401
        assert dashboard.ask(READ, headers=[("Cookie", value)]).status == 200
    finally:
        other.stop(signal.SIGKILL)


def test_a_cookie_that_another_port_has_put_before_ours_keeps_nobody_out(dashboard: Dashboard) -> None:
    (_, value), _ = dashboard.enter()
    headers = [("Cookie", f"a=b; {dashboard.cookie_name}=tossed; {value}")]
    assert dashboard.ask(READ, headers=headers).status == 200


# Names and pages


@pytest.mark.parametrize("path", ["/", READ, "/health", "/static/x", "/favicon.svg"])
def test_another_name_is_refused_whatever_it_resolves_to(dashboard: Dashboard, path: str) -> None:
    visit = dashboard.enter()[:1]
    for host in NO_HOSTS:
        answer = dashboard.ask(path, host=host.format(port=dashboard.port), headers=visit)
        assert (answer.status, answer.headers["set-cookie"]) == (421, None), host
    line = f"GET {path} HTTP/1.1\r\n".encode()
    own = f"Host: 127.0.0.1:{dashboard.port}\r\n".encode()
    cookie = f"Connection: close\r\nCookie: {visit[0][1]}\r\n\r\n".encode()
    for hosts in (b"", own + b"Host: evil.example\r\n", own + own, b"Host: \r\n"):
        assert b" 200 " not in dashboard.raw(line + hosts + cookie).split(b"\r\n")[0]


def test_every_name_of_this_machine_is_ours(dashboard: Dashboard) -> None:
    for name in ("localhost", "LOCALHOST", "[::1]"):
        host = f"{name}:{dashboard.port}"
        headers = [dashboard.enter()[0], ("Origin", f"http://{host}")]
        assert passed(send(dashboard, headers, host)), name
    mixed = [dashboard.enter()[0], ("Origin", f"http://localhost:{dashboard.port}")]
    assert send(dashboard, mixed, f"127.0.0.1:{dashboard.port}").status == 403


def send(dashboard: Dashboard, headers: list[tuple[str, str]], host: str) -> Answer:
    body, kind = json.dumps(SAID).encode(), ("Content-Type", "application/json")
    return dashboard.ask(WRITE, method="POST", headers=[kind, *headers], host=host, body=body)


def test_a_write_with_a_cookie_comes_from_our_own_page(dashboard: Dashboard) -> None:
    cookie, origin = dashboard.enter()
    assert passed(dashboard.post(WRITE, SAID, headers=[cookie, origin]))
    assert passed(dashboard.post(WRITE, SAID, headers=[cookie, origin, ("Sec-Fetch-Site", "same-origin")]))
    foreign = [
        *("http://evil.example", "null", f"https://127.0.0.1:{dashboard.port}", "http://127.0.0.1:1", ""),
        *(f"http://127.0.0.1.evil.example:{dashboard.port}", f"http://x@127.0.0.1:{dashboard.port}", "file://"),
    ]
    for value in foreign:
        answer = dashboard.post(WRITE, SAID, headers=[cookie, ("Origin", value)])
        assert (answer.status, answer.code) == (403, "FORBIDDEN"), value
    for site in ("cross-site", "same-site", "none"):
        answer = dashboard.post(WRITE, SAID, headers=[cookie, origin, ("Sec-Fetch-Site", site)])
        assert answer.status == 403, site
    assert dashboard.post(WRITE, SAID, headers=[cookie]).status == 403
    assert dashboard.post(WRITE, SAID, headers=[cookie, origin, ("Origin", "http://evil.example")]).status == 403
    assert dashboard.ask(READ, headers=[cookie, ("Origin", "http://evil.example")]).status == 403


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonp", ""]
)
def test_a_body_that_a_form_could_send_is_refused(dashboard: Dashboard, kind: str) -> None:
    headers = [*dashboard.enter(), *([("Content-Type", kind)] if kind else [])]
    answer = dashboard.ask(WRITE, method="POST", headers=headers, body=b'{"body":"go on"}')
    assert (answer.status, answer.code) == (415, "INVALID_REQUEST")


# Tokens of programs


def test_the_operators_token_acts_and_an_automations_looks(dashboard: Dashboard) -> None:
    with dashboard.world.open() as swarm:
        operator = swarm.ensure_operator_token().read_text().strip()
        reader = swarm.create_token("ci", ["read"]).token
        other = swarm.create_token("graphs", ["metrics"]).token
        agent = swarm.rotate_token(dashboard.world.work(swarm, "busy 600").id).token
        assert token_owner(swarm.context.db, agent) is not None
    assert passed(dashboard.post(WRITE, SAID, headers=[bearer(operator)]))
    assert dashboard.ask(READ, headers=[bearer(reader)]).json["result"]["me"]["name"] == "automation:ci"
    refused = dashboard.post(WRITE, SAID, headers=[bearer(reader)])
    assert (refused.status, refused.code) == (403, "FORBIDDEN")
    cookie = dashboard.enter()[0]
    for token in (other, agent, "nonsense", "", operator + "x", "\u00fc"):
        assert dashboard.ask(READ, headers=[bearer(token), cookie]).status == 401, "a cookie does not mend it"
    assert dashboard.ask(READ, headers=[("Authorization", f"Basic {operator}")]).status == 401
    assert dashboard.post(WRITE, SAID, headers=[bearer(operator), ("Origin", "http://evil.example")]).status == 403
    with dashboard.world.open() as swarm:
        swarm.revoke_token("ci")
    wait_until(lambda: dashboard.ask(READ, headers=[bearer(reader)]).status == 401, timeout=5, what="it is over")


def bearer(token: str) -> tuple[str, str]:
    return "Authorization", f"Bearer {token}"


# Bodies


def test_a_body_above_a_megabyte_is_refused_also_when_nobody_said_how_long_it_is(dashboard: Dashboard) -> None:
    visit = dashboard.enter()
    over = b'{"body":"' + b"x" * 1_000_000 + b'"}'
    announced = dashboard.ask(
        WRITE, method="POST", headers=[*visit, ("Content-Type", "application/json")], body=over
    )
    assert (announced.status, announced.code) == (413, "INVALID_REQUEST")
    lines = [f"POST {WRITE} HTTP/1.1", f"Host: 127.0.0.1:{dashboard.port}", "Content-Type: application/json"]
    lines += [f"{name}: {value}" for name, value in visit]
    lines.append("Connection: close")
    head = "\r\n".join([*lines, "Transfer-Encoding: chunked", "", ""]).encode()
    chunk = b"%x\r\n%s\r\n" % (len(over), over)
    assert b" 413 " in dashboard.raw(head + chunk + b"0\r\n\r\n").split(b"\r\n")[0]
    head = "\r\n".join([*lines, "Content-Length: 999999999999999999999", "", ""]).encode()
    assert dashboard.raw(head).split(b"\r\n")[0].split(b" ")[1] in (b"413", b"400")
    fits = b'{"body":"' + b"x" * 900_000 + b'"}'
    answer = dashboard.ask(WRITE, method="POST", headers=[*visit, ("Content-Type", "application/json")], body=fits)
    assert answer.status != 413


def test_a_body_without_an_end_is_answered_and_not_kept(dashboard: Dashboard) -> None:
    visit = dashboard.enter()
    lines = [f"POST {WRITE} HTTP/1.1", f"Host: 127.0.0.1:{dashboard.port}", "Content-Type: application/json"]
    lines += [f"{name}: {value}" for name, value in visit]
    chunk = b"%x\r\n%s\r\n" % (1 << 20, b"x" * (1 << 20))
    with socket.create_connection(("127.0.0.1", dashboard.port), timeout=20) as line:
        line.sendall("\r\n".join([*lines, "Transfer-Encoding: chunked", "", ""]).encode())
        sent = 0
        try:
            while sent < 400:
                line.sendall(chunk)
                sent += 1
        except OSError:
            pass
    assert sent < 400, "it hung up"
    assert dashboard.ask("/health").status == 200


# Files


def test_files_are_there_for_ever_under_the_hash_of_all_of_them(dashboard: Dashboard) -> None:
    visit = dashboard.enter()
    page = dashboard.ask("/", headers=[*visit, HTML]).body.decode()
    found = re.search(r'<script type="module" src="(/static/[0-9a-f]{16}/app\.js)"', page)
    assert found is not None
    plain = dashboard.ask(found[1])
    packed = dashboard.ask(found[1], headers=[("Accept-Encoding", "gzip, br")])
    assert plain.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert (plain.headers["content-type"], plain.headers["vary"]) == (
        "text/javascript; charset=utf-8",
        "Accept-Encoding",
    )
    assert (plain.headers["content-encoding"], packed.headers["content-encoding"]) == (None, "gzip")
    assert gzip.decompress(packed.body) == plain.body
    assert dashboard.ask(found[1], method="HEAD").body == b""
    for address in re.findall(r'(?:href|src)="(/[^"]+)"', page):
        of_a_file = address.startswith(("/static/", "/favicon"))
        assert dashboard.ask(address, headers=[] if of_a_file else visit).status == 200, address
    known = found[1].removesuffix("app.js")
    for one in re.findall(r"""(?:from|import)\s*\(?["']\./([\w/.]+\.js)["']""", plain.body.decode()):
        assert dashboard.ask(known + one).status == 200, one


def test_no_path_leads_out_of_the_files(dashboard: Dashboard) -> None:
    known = dashboard.file("").split("/")[2]
    visit = dashboard.enter()
    tricks = [
        *("../guard.py", "..%2fguard.py", "%2e%2e/guard.py", "..%252fguard.py", "....//guard.py", "..\\guard.py"),
        *(
            "",
            "pages",
            "pages/",
            "/etc/passwd",
            "//etc/passwd",
            "app.js%00.css",
            "app.js/",
            "./app.js",
            "app.js;x",
        ),
        *("../../../../../../etc/passwd", "%2e%2e%2f" * 8 + "etc/passwd", "pages/../app.js"),
    ]
    for trick in tricks:
        for path in (f"/static/{known}/{trick}", f"/static/{trick}"):
            answer = dashboard.ask(path, headers=visit)
            assert answer.status == 404, path
            assert answer.code == "NOT_FOUND"
    assert dashboard.ask("/static/0123456789abcdef/app.js").status == 404
    assert dashboard.ask(f"/static/{known}/app.js?x=/../").status == 200


# Answers


def test_every_answer_carries_the_headers_that_shut_a_browser_in(dashboard: Dashboard) -> None:
    visit = dashboard.enter()
    answers = [
        dashboard.ask("/", headers=[*visit, HTML]),
        dashboard.ask("/", headers=[HTML]),
        dashboard.ask(f"/?token={dashboard.link()}"),
        dashboard.ask(READ, headers=visit),
        dashboard.ask(READ),
        dashboard.ask("/nothing", headers=visit),
        dashboard.ask(READ, method="DELETE", headers=[*visit, ("Content-Type", "application/json")]),
        dashboard.ask("/health"),
        dashboard.ask("/favicon.svg"),
        dashboard.ask("/static/nothing"),
        dashboard.ask(dashboard.file("app.js")),
        dashboard.ask("/", host="evil.example"),
        dashboard.post(WRITE, ["not an object"], headers=visit),
        dashboard.ask(WRITE, method="POST", headers=visit, body=b"{}"),
    ]
    assert {a.status for a in answers} >= {200, 303, 400, 401, 404, 415, 421}
    for answer in answers:
        for name, value in HEADERS.items():
            if name != "Cache-Control":
                assert answer.headers.get_all(name) == [value], (name, answer.status)
        assert len(answer.headers.get_all("Cache-Control") or ()) == 1
        assert answer.headers["server"] is None
    told = HEADERS["Content-Security-Policy"]
    for part in ("default-src 'none'", "require-trusted-types-for 'script'", "frame-ancestors 'none'"):
        assert part in told
    assert "unsafe" not in told


def test_what_an_agent_wrote_stays_text_in_the_page(dashboard: Dashboard) -> None:
    name = "</script><script>alert(1)</script><!--"
    with dashboard.world.open() as swarm:
        dashboard.world.work(swarm, "exit 0", name=name)
    page = dashboard.ask("/", headers=[*dashboard.enter(name="anna"), HTML])
    assert page.status == 200
    text = page.body.decode()
    assert text.count("<script") == 2
    found = re.search(r'<script type="application/json" id="boot">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    boot = json.loads(found[1])
    assert name in [one["name"] for one in boot["instances"]]
    assert boot["me"] == {"name": "operator:anna", "may_write": True}
    small = dashboard.ask("/", headers=[*dashboard.enter(), HTML, ("Accept-Encoding", "gzip")])
    assert gzip.decompress(small.body).startswith(b"<!doctype html>")


# WebSocket


def open_socket(
    dashboard: Dashboard, headers: list[tuple[str, str]], *, origin: str | None = None, host: str | None = None
) -> ClientConnection:
    name = host or f"127.0.0.1:{dashboard.port}"
    with socket.socket() as line:
        line.connect(("127.0.0.1", dashboard.port))
        return connect(
            f"ws://{name}/ws",
            sock=line.dup(),
            origin=origin,
            additional_headers=headers,
            proxy=None,  # type: ignore[arg-type]
        )


def test_a_websocket_opens_for_our_own_page_alone(dashboard: Dashboard) -> None:
    cookie, (_, origin) = dashboard.enter()
    with open_socket(dashboard, [cookie], origin=origin) as ours:
        assert json.loads(ours.recv(10))["event"] == "hello"
    refusals = [
        (401, [], origin, None),
        (401, [("Cookie", f"{dashboard.cookie_name}=x")], origin, None),
        (403, [cookie], "http://evil.example", None),
        (403, [cookie], f"http://localhost:{dashboard.port}", None),
        (403, [cookie], None, None),
        (403, [cookie, ("Sec-Fetch-Site", "cross-site")], origin, None),
        (421, [cookie], f"http://evil.example:{dashboard.port}", f"evil.example:{dashboard.port}"),
    ]
    for status, headers, page, host in refusals:
        with pytest.raises(InvalidStatus) as refused:
            open_socket(dashboard, headers, origin=page, host=host)
        assert refused.value.response.status_code == status, (headers, page, host)
        assert refused.value.response.headers["content-security-policy"]


def test_a_websocket_closes_when_its_visit_ends(dashboard: Dashboard) -> None:
    cookie, (_, origin) = dashboard.enter(name="anna")
    with open_socket(dashboard, [cookie], origin=origin) as ours:
        dashboard.world.command("link", "--revoke", "anna")
        with pytest.raises(ConnectionClosed) as closed:
            list(ours)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1008


# What is written down


def test_refusals_are_events_but_a_flood_is_a_few(own_dashboard: Dashboard) -> None:
    before = own_dashboard.events("auth:refused")
    for _ in range(300):
        own_dashboard.ask(READ)
    found = own_dashboard.events("auth:refused")[len(before) :]
    assert 1 <= len(found) <= 3
    assert found[0].metadata["path"] == READ
    assert (found[0].success, found[0].actor, found[0].error_code) == (False, "unknown", "UNAUTHORIZED")
    assert "count" not in found[0].metadata


def test_no_secret_is_written_anywhere(own_dashboard: Dashboard) -> None:
    token, wrong = own_dashboard.link(name="anna"), "w" * 43
    cookie = own_dashboard.ask(f"/?token={token}").headers["set-cookie"].split(";")[0].partition("=")[2]
    own_dashboard.ask(f"/?token={wrong}")
    own_dashboard.ask(READ, headers=[("Cookie", f"{own_dashboard.cookie_name}={wrong}")])
    own_dashboard.ask(READ, headers=[bearer(wrong)])
    own_dashboard.raw(f"GET /?token={wrong} HTTP/9.9\r\n\r\n".encode())
    own_dashboard.stop()
    written = [own_dashboard.log, *(p for p in own_dashboard.world.home.rglob("*") if p.is_file())]
    for path in written:
        content = path.read_bytes()
        for secret in (token, cookie, wrong):
            assert secret.encode() not in content, path
    assert [e.actor for e in own_dashboard.events("visit:started")] == ["operator:anna"]

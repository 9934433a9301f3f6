"""The stream of a page: nothing lost, nothing twice, nothing kept after somebody has left."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import urllib.error
import urllib.request

import pytest

from swarm_core.store import events, instances
from swarm_core.store.database import open_database
from swarm_core.store.schema import VERSION
from swarm_ui.web import rows
from tests.integration.stream_fixture import OWNER, Listener, Streams, streams
from tests.rows import add_instance
from tests.support import wait_until

__all__ = ["streams"]


def rev_of(page: Listener) -> str:
    page.until(lambda: len(page.named("hello")) == 2)
    return str(page.named("hello")[-1]["rev"])


def test_a_new_viewer_gets_everything_and_then_what_changes(streams: Streams) -> None:
    before = streams.write(3)
    with streams.listen() as page:
        snapshot = page.first("snapshot")
        assert snapshot["last"] == before[-1]
        assert [e["id"] for e in snapshot["events"]] == before[::-1]
        assert snapshot["me"] == {"name": "operator", "may_write": True}
        assert snapshot["health"]["database"]["problem"] is None
        after = streams.write(2)
        page.until(lambda: page.event_ids == after)
        assert page.frames[0].name == "hello"
        assert page.frames[0].id == before[-1]
        assert "retry: 1000" in page.comments


def test_a_page_that_comes_again_hears_what_it_missed_and_nothing_else(streams: Streams) -> None:
    first = streams.write(1)
    with streams.listen() as page:
        rev = rev_of(page)
    missed = streams.write(7)
    with streams.listen(since=first[-1], rev=rev) as page:
        page.until(lambda: page.event_ids == missed)
        assert rev_of(page)
        assert page.named("snapshot") == []
        assert page.frames[0].id == first[-1]


def test_more_missed_events_than_fit_in_a_frame_all_come_in_order(streams: Streams) -> None:
    [first] = streams.write(1)
    missed = streams.write(1203)
    with streams.listen(since=first) as page:
        page.until(lambda: page.event_ids == missed)
        assert [len(rows) for rows in page.named("events")] == [500, 500, 203]


def test_nothing_is_lost_or_told_twice_while_others_write(streams: Streams) -> None:
    """Pages come and go at any moment, each where the one before it stopped."""
    [first] = streams.write(1)
    written: list[int] = []
    writer = threading.Thread(target=lambda: written.extend(streams.write(400)))
    writer.start()
    heard = [first]

    def heard_all() -> bool:
        return bool(written) and heard[-1] == written[-1]

    while not heard_all():
        with streams.listen(since=heard[-1]) as page:
            page.until(lambda page=page: page.event_ids or heard_all())
        heard += page.event_ids
    writer.join()
    assert heard[1:] == written


def test_a_restarted_server_tells_what_was_written_meanwhile_and_everything_anew(streams: Streams) -> None:
    [first] = streams.write(1)
    with streams.listen() as page:
        rev = rev_of(page)
        streams.stop()
        page.until(page.ended.is_set)
        assert page.frames[-1].name == "bye"
    missed = streams.write(7)
    streams.start()
    with streams.listen(since=first, rev=rev) as page:
        page.first("snapshot")
        assert page.event_ids == missed
        assert page.first("snapshot")["last"] == missed[-1]
        assert rev_of(page).startswith(f"{streams.pid}.")


def test_a_page_has_a_rev_only_once_it_has_its_rows(streams: Streams) -> None:
    with streams.listen() as page:
        rev = rev_of(page)
        assert page.named("hello")[0]["rev"] == ""
    add_instance(streams.site.swarm.context.db, "work-1-a1")
    with streams.listen(since=0, rev=rev) as page:
        newer = rev_of(page)
        assert page.named("hello")[0]["rev"] == rev
        assert newer != rev
        names = [frame.name for frame in page.frames]
        assert names.index("instances") < len(names) - 1 - names[::-1].index("hello")


def test_rows_that_changed_while_nobody_looked_are_told_whole(streams: Streams) -> None:
    db = streams.site.swarm.context.db
    for name in ("work-1-a1", "work-2-a2", "work-3-a3"):
        add_instance(db, name)
    with streams.listen() as page:
        rev, last = rev_of(page), page.first("snapshot")["last"]
        assert len(page.first("snapshot")["instances"]) == 3
    with db.write():
        instances.set_fields(db, "work-2-a2", reason="changed")
    with streams.listen(since=last, rev=rev) as page:
        [row] = page.first("instances")
        assert (row["id"], row["reason"], row["kind"]) == ("work-2-a2", "changed", "work")
        assert page.named("snapshot") == []


def test_a_changed_row_is_told_as_what_changed(streams: Streams) -> None:
    db = streams.site.swarm.context.db
    add_instance(db, "work-1-a1")
    with streams.listen() as page:
        rev_of(page)
        with db.write():
            instances.set_fields(db, "work-1-a1", reason="now this")
        [patch] = page.first("instances")
        assert patch["id"] == "work-1-a1"
        assert patch["reason"] == "now this"
        assert "kind" not in patch


def test_nobody_looks_when_nobody_watches(streams: Streams) -> None:
    """Whatever is written then is told to the next viewer, and to nobody before."""
    with streams.listen() as page:
        rev_of(page)
        assert streams.hub._watched.is_set()
    wait_until(lambda: streams.hub.viewers == 0, what="the page has left")
    assert not streams.hub._watched.is_set(), "the thread that looks goes on"
    told = streams.hub._state.last
    written = streams.write(3)
    assert streams.hub._state.last == told
    assert streams.hub.boot(OWNER)["last"] == written[-1]


def test_boot_is_what_a_stream_goes_on_from(streams: Streams) -> None:
    streams.write(2)
    boot = streams.hub.boot(OWNER)
    new = streams.write(1)
    with streams.listen(since=boot["last"], rev=boot["rev"]) as page:
        page.until(lambda: page.event_ids == new)
        rev_of(page)
        assert page.named("snapshot") == []


def test_a_reader_who_does_not_read_is_let_go_and_resumes(streams: Streams) -> None:
    [first] = streams.write(1)
    stuck = socket.socket()
    stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    stuck.connect(("127.0.0.1", streams.port))
    stuck.sendall(b"GET /api/v1/stream?since=%d HTTP/1.1\r\nHost: x\r\n\r\n" % first)
    with contextlib.closing(stuck), streams.listen(since=first) as page:
        rev_of(page)
        wait_until(lambda: streams.hub.viewers == 2, what="both are in")

        sent = 0

        def flood() -> bool:
            nonlocal sent
            for _ in range(10):
                streams.hub.publish_action({"id": "a_1", "text": "x" * 50_000})
            sent += 10
            page.until(lambda: len(page.named("action")) == sent)
            return any(client.over for client in list(streams.hub._clients))

        wait_until(flood, what="the one who does not read is let go")
        after = streams.write(3)
        page.until(lambda: page.event_ids == after)
        wait_until(lambda: streams.hub.viewers == 1, what="its place is free", timeout=30)
    with streams.listen(since=first) as again:
        again.until(lambda: again.event_ids == after)


def test_streams_do_not_keep_the_server_from_ending(streams: Streams) -> None:
    pages = [streams.listen() for _ in range(3)]
    for page in pages:
        rev_of(page)
    streams.stop()
    for page in pages:
        page.until(page.ended.is_set)
        page.close()
        assert page.frames[-1].name == "bye"
    streams.start()


def test_a_database_that_is_gone_is_told_and_so_is_its_return(streams: Streams) -> None:
    path = streams.settings.database_path
    with streams.listen() as page:
        rev_of(page)
        path.rename(path.with_suffix(".away"))
        page.until(lambda: any(h.get("database", {}).get("problem") for h in page.named("health")))
        with streams.listen() as second:
            assert second.first("health")["database"]["code"] == "NO_INDEX"
            path.with_suffix(".away").rename(path)
            page.until(lambda: page.named("health")[-1]["database"]["problem"] is None)
            second.until(second.ended.is_set, "it is asked to come again, for nobody knows what it has missed")
        after = streams.write(1)
        page.until(lambda: page.event_ids == after)


def test_a_database_of_a_newer_swarm_is_told(streams: Streams) -> None:
    with streams.listen() as page:
        rev_of(page)
        db = open_database(streams.settings.database_path)
        with contextlib.closing(db), db.write():
            db.execute(f"PRAGMA user_version = {VERSION + 1}")
        page.until(lambda: any(h["database"].get("code") == "DATABASE_TOO_NEW" for h in page.named("health")))


def test_actions_reach_every_page(streams: Streams) -> None:
    with streams.listen() as one, streams.listen() as other:
        for page in (one, other):
            rev_of(page)
        streams.hub.publish_action({"id": "a_1", "state": "done"})
        for page in (one, other):
            assert page.first("action") == {"id": "a_1", "state": "done"}


def test_a_burst_is_told_whole(streams: Streams) -> None:
    with streams.listen() as page:
        rev_of(page)
        db = open_database(streams.settings.database_path)
        with contextlib.closing(db), db.write():
            ids = [events.add(db, "coordinator:started", actor="t") for _ in range(2000)]
        page.until(lambda: page.event_ids == ids)


def test_a_browser_that_connects_again_by_itself_resumes_at_the_last_id(streams: Streams) -> None:
    ids = streams.write(3)
    raw = socket.create_connection(("127.0.0.1", streams.port))
    with contextlib.closing(raw):
        head = f"GET /api/v1/stream?since={ids[0]} HTTP/1.1\r\nHost: x\r\nLast-Event-ID: {ids[1]}\r\n\r\n"
        raw.sendall(head.encode())
        seen = b""

        def told() -> bool:
            nonlocal seen
            seen += raw.recv(65536)
            return b"event: events" in seen and b"event: snapshot" in seen

        wait_until(told, what="events and snapshot")
        assert f'id: {ids[2]}\nevent: events\ndata: [{{"id":{ids[2]}'.encode() in seen
        assert f'[{{"id":{ids[1]}'.encode() not in seen


def test_parameters_that_are_not_ours_are_refused(streams: Streams) -> None:
    for query in ("since=x", "since=-1", "since=99999999999999999999", "term=../etc", "tiles=2", "other=1"):
        with contextlib.suppress(urllib.error.HTTPError):
            urllib.request.urlopen(f"http://127.0.0.1:{streams.port}/api/v1/stream?{query}", timeout=10)
            raise AssertionError(f"{query} was taken")
    assert streams.hub.viewers == 0


def test_a_failure_to_tell_how_swarm_is_does_not_keep_rows_from_the_page(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(rows, "health", broken)
    with streams.listen() as page:
        rev_of(page)
        new = streams.write(1)
        page.until(lambda: page.event_ids == new)


def test_whoever_asks_only_for_the_head_is_answered_at_once(streams: Streams) -> None:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", streams.port, timeout=5)) as line:
        for method, path, status in (("HEAD", "/api/v1/stream", 200), ("GET", "/api/v1/stream?x=1", 400)):
            line.request(method, path)
            answer = line.getresponse()
            answer.read()
            assert answer.status == status

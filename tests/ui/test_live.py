"""What happens is shown while it happens: nothing is lost, nothing is shown twice, nobody is kept waiting."""

from __future__ import annotations

import contextlib
import http.client
import json

from playwright.sync_api import Page, expect

from swarm_core.models import Activity
from swarm_core.store import events, instances
from tests.support import wait_until
from tests.ui import seed
from tests.ui.browser import visibility
from tests.ui.conftest import Opener
from tests.ui.dashboard import Dashboard
from tests.ui.places import settle

GONE = ("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_EMPTY_RESPONSE", "ERR_CONNECTION_RESET")


def told(page: Page) -> list[str]:
    """The details of the events in the feed, as often as they are there."""
    return list(page.locator("#feed").evaluate("feed => feed.innerText.match(/step-\\d+-end/g) ?? []"))


def ids(page: Page) -> list[int]:
    """The events that the page knows, newest first, whether they are drawn or not."""
    return list(
        page.evaluate(
            """async () => {
              const own = [...document.querySelectorAll('script[src]')].find(s => s.src.includes('app'));
              const { store } = await import(new URL('store.js', own.src));
              return store.events.map(e => e.id);
            }"""
        )
    )


def tell(dashboard: Dashboard, numbers: range) -> None:
    with dashboard.db() as db, db.write():
        for n in numbers:
            events.add(
                db,
                "instance:problem",
                instance_id="work-1-a1",
                actor="supervisor",
                metadata={"problem": f"step-{n}-end"},
            )


def one_instance(dashboard: Dashboard) -> None:
    with dashboard.seeding() as seeding:
        seeding.instance("work-1-a1", issue_title="One")


def test_an_event_and_a_change_appear_without_asking(dashboard: Dashboard, visit: Opener) -> None:
    one_instance(dashboard)
    page = settle(visit(dashboard).page("/"))
    row = page.locator("#list [data-id='work-1-a1']")
    expect(row).to_contain_text("running")
    tell(dashboard, range(1))
    wait_until(lambda: told(page) == ["step-0-end"], what="the event is shown")
    with dashboard.db() as db, db.write():
        instances.observe(db, "work-1-a1", Activity.IDLE, source="hook")
    expect(row).to_contain_text("idle")
    with dashboard.seeding() as seeding:
        seeding.instance("work-2-a1", issue_title="Two")
    expect(page.locator("#list [data-id='work-2-a1']")).to_contain_text("Two")


def test_a_server_that_was_killed_and_is_back_leaves_no_gap_and_nothing_twice(
    dashboard: Dashboard, visit: Opener
) -> None:
    one_instance(dashboard)
    person = visit(dashboard)
    person.watch.allow(*GONE)
    page = settle(person.page("/"))
    tell(dashboard, range(3))
    wait_until(lambda: len(told(page)) == 3, what="the first events")
    dashboard.kill()
    expect(page.locator("#live")).to_contain_text("reconnecting")
    expect(page.locator("html")).not_to_have_attribute("data-live", "live")
    expect(page.locator("#list [data-id='work-1-a1']")).to_be_visible()
    before = ids(page)
    tell(dashboard, range(3, 150))  # more than a snapshot brings along
    dashboard.start()
    settle(page)
    tell(dashboard, range(150, 152))
    wait_until(lambda: "step-151-end" in told(page), what="the last event")
    known = ids(page)
    assert known == list(range(known[0], known[0] - len(known), -1))
    assert known[-1] == before[-1]
    shown = told(page)
    assert len(shown) == len(set(shown))


def test_a_page_opened_before_the_first_event_misses_none_over_a_restart(
    dashboard: Dashboard, visit: Opener
) -> None:
    person = visit(dashboard)
    person.watch.allow(*GONE)
    page = settle(person.page("/"))
    assert dashboard.stop() == 0
    one_instance(dashboard)
    tell(dashboard, range(7))
    dashboard.start()
    settle(page)
    wait_until(lambda: len(told(page)) >= 7, what="all events")
    assert sorted(told(page)) == sorted(f"step-{n}-end" for n in range(7))
    expect(page.locator("#list [data-id='work-1-a1']")).to_be_visible()


def test_actions_are_off_while_the_server_is_away(dashboard: Dashboard, visit: Opener) -> None:
    with dashboard.seeding() as seeding:
        seeding.instance("work-1-a1", needs_person="all review rounds are used", issue_title="One")
    person = visit(dashboard)
    person.watch.allow(*GONE)
    page = settle(person.page("/"))
    act = page.locator("#strip").get_by_role("button", name="Approve").first
    expect(act).to_be_enabled()
    dashboard.kill()
    expect(page.locator("#live")).to_contain_text("reconnecting")
    expect(act).to_be_disabled()
    dashboard.start()
    settle(page)
    expect(act).to_be_enabled()


def test_a_burst_of_2000_events_loses_none_and_the_page_answers_afterwards(
    dashboard: Dashboard, visit: Opener
) -> None:
    one_instance(dashboard)
    page = settle(visit(dashboard).page("/"))
    tell(dashboard, range(1000))
    tell(dashboard, range(1000, 2000))
    wait_until(lambda: "step-1999-end" in told(page), what="the last event")
    with dashboard.db() as db:
        newest = events.newest_id(db)
    known = ids(page)
    assert known == list(range(newest, newest - len(known), -1))
    assert len(known) >= 400
    page.keyboard.press("?")
    expect(page.locator("dialog[open]")).to_be_visible()
    page.keyboard.press("Escape")
    tell(dashboard, range(5000, 5001))
    wait_until(lambda: "step-5000-end" in told(page), what="the next event")


def test_a_hidden_tab_closes_its_stream_and_catches_up_when_it_is_seen(
    dashboard: Dashboard, visit: Opener
) -> None:
    one_instance(dashboard)
    page = settle(visit(dashboard).page("/"))
    wait_until(lambda: viewers(dashboard) == 1, what="one stream")
    visibility(page, "hidden")
    wait_until(lambda: viewers(dashboard) == 0, what="no stream")
    tell(dashboard, range(5))
    visibility(page, "visible")
    wait_until(lambda: len(told(page)) == 5, what="what happened meanwhile")
    wait_until(lambda: viewers(dashboard) == 1, what="one stream again")


def test_ten_tabs_of_one_browser_are_open_at_once(dashboard: Dashboard, visit: Opener) -> None:
    one_instance(dashboard)
    person = visit(dashboard)
    pages: list[Page] = []
    for path in (
        "/",
        "/graph",
        "/inbox",
        "/events",
        "/pulls",
        "/health",
        "/missions",
        "/wall",
        "/i/work-1-a1",
        "/",
    ):
        for before in pages:
            visibility(before, "hidden")
        pages.append(settle(person.page(path)))
    wait_until(lambda: viewers(dashboard) == 1, what="only the one in front has a stream")
    visibility(pages[-1], "hidden")
    tell(dashboard, range(3))
    visibility(pages[0], "visible")
    wait_until(lambda: len(told(pages[0])) == 3, what="the first tab again")


def test_200_instances_and_100000_events_are_shown_and_moved_through(dashboard: Dashboard, visit: Opener) -> None:
    with dashboard.seeding() as seeding:
        seed.fill(seeding)
        seed.crowd(seeding, 180)
        seeding.many_events(100_000)
    person = visit(dashboard)
    page = settle(person.page("/"))
    expect(page.locator("#counts")).to_contain_text("done")
    total = len(seeding.town.ids)
    assert total >= 200
    page.keyboard.press("/")
    page.keyboard.type("module 179 ")
    expect(page.locator("#list [data-id='work-1179-a1']")).to_be_visible()
    for path in ("/events", "/graph", f"/i/{seeding.town.running}", "/wall", "/inbox"):
        page.goto(person.base + path)
        settle(page)
    page.goto(f"{person.base}/events")
    expect(page.locator("#main")).to_contain_text("tool:called")
    nodes = page.evaluate("() => document.querySelectorAll('*').length")
    assert nodes < 12_000


def viewers(dashboard: Dashboard) -> int:
    """How many streams the dashboard has open."""
    connection = http.client.HTTPConnection("127.0.0.1", dashboard.port, timeout=10)
    with contextlib.closing(connection):
        connection.request("GET", "/api/v1/health", headers={"Authorization": f"Bearer {dashboard.token}"})
        answer = json.loads(connection.getresponse().read())
    assert answer["ok"], answer
    return int(answer["result"]["viewers"])

"""When something is broken the page says what, and which command mends it; when it is mended the page goes on."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator

from playwright.sync_api import expect

from swarm_core.store import events
from swarm_core.store.schema import VERSION
from tests.support import wait_until
from tests.ui import seed
from tests.ui.browser import overflow, violations
from tests.ui.conftest import Opener
from tests.ui.dashboard import Dashboard
from tests.ui.places import settle

REFUSED = ("status of 4", "status of 5", "ERR_")


@contextlib.contextmanager
def locked(dashboard: Dashboard) -> Iterator[None]:
    """Another program holds the file so that nobody can write it."""
    connection = sqlite3.connect(dashboard.world.settings.database_path, isolation_level=None)
    try:
        connection.execute("BEGIN EXCLUSIVE")
        yield
        connection.execute("ROLLBACK")
    finally:
        connection.close()


def version(dashboard: Dashboard, number: int) -> None:
    connection = sqlite3.connect(dashboard.world.settings.database_path, isolation_level=None)
    with contextlib.closing(connection):
        connection.execute(f"PRAGMA user_version = {number}")


def test_while_the_database_is_locked_the_page_stays_and_an_action_says_so(
    stopped: Dashboard, visit: Opener
) -> None:
    with stopped.seeding() as seeding:
        seeding.instance("work-1-a1", needs_person="all review rounds are used", issue_title="One")
    stopped.world.command("config", "busy_timeout", "0.2")
    stopped.start()
    person = visit(stopped)
    person.watch.allow(*REFUSED)
    page = settle(person.page("/"))
    with locked(stopped):
        page.locator("#strip").get_by_role("button", name="Approve").first.click()
        dialog = page.locator("dialog[open]")
        if dialog.count():
            dialog.locator(".primary").first.click()
        expect(page.locator("#toasts")).to_contain_text("DATABASE_LOCKED")
        expect(page.locator("#list [data-id='work-1-a1']")).to_be_visible()
    with stopped.seeding() as seeding:
        seeding.instance("work-2-a1", issue_title="Two")
    expect(page.locator("#list [data-id='work-2-a1']")).to_be_visible()


def test_a_database_of_a_newer_version_is_told_with_what_to_do(dashboard: Dashboard, visit: Opener) -> None:
    with dashboard.seeding() as seeding:
        seeding.instance("work-1-a1", issue_title="One")
    person = visit(dashboard)
    person.watch.allow(*REFUSED)
    page = settle(person.page("/"))
    version(dashboard, VERSION + 1)
    try:
        expect(page.locator("[role=alert], .banner").filter(has_text="newer").first).to_be_visible(timeout=30_000)
        expect(page.locator("#list [data-id='work-1-a1']")).to_be_visible()
    finally:
        version(dashboard, VERSION)


def test_a_lost_tmux_server_is_told_and_the_last_screen_stays(dashboard: Dashboard, visit: Opener) -> None:
    with dashboard.seeding() as seeding:
        seeding.instance("work-1-a1", issue_title="One")
    dashboard.session("work-1-a1", "echo still-here; exec cat")
    page = settle(visit(dashboard).page("/i/work-1-a1"))
    terminal = page.get_by_role("group", name="Terminal of work-1-a1")
    expect(terminal).to_contain_text("still-here")
    dashboard.world.kill_tmux()
    expect(page.locator(".banner").filter(has_text="tmux").first).to_be_visible(timeout=30_000)
    expect(terminal).to_contain_text("still-here")
    assert violations(page) == []


def test_what_github_said_long_ago_is_marked_with_its_age(shown: Dashboard, visit: Opener) -> None:
    page = settle(visit(shown).page("/pulls"), "pulls")
    stale = page.locator("tr, li, article, section").filter(has_text="#39").last
    expect(stale).to_contain_text("3h")


def test_without_a_link_a_page_tells_which_command_prints_one(dashboard: Dashboard, visit: Opener) -> None:
    person = visit(dashboard, link=None)
    person.watch.allow("status of 401")
    page = person.page("/")
    expect(page.locator("body")).to_contain_text("swarm link")
    assert violations(page) == []
    assert overflow(page) <= 0


def test_a_session_that_ended_is_told_on_the_open_page(dashboard: Dashboard, visit: Opener) -> None:
    person = visit(dashboard)
    person.watch.allow("status of 401", "ERR_")
    page = settle(person.page("/"))
    with dashboard.db() as db, db.write():
        db.execute("UPDATE visits SET ended_at = ?", (db.now(),))
    dashboard.kill()
    dashboard.start()
    expect(page.locator("body")).to_contain_text("swarm link")
    assert violations(page) == []


def test_a_link_works_once_and_leaves_no_token_in_the_address(dashboard: Dashboard, visit: Opener) -> None:
    link = dashboard.link()
    first = visit(dashboard, link=None).context.new_page()
    first.goto(link)
    settle(first)
    expect(first).to_have_url(f"{dashboard.base}/")
    second = visit(dashboard, link=None)
    second.watch.allow("status of 401")
    page = second.context.new_page()
    page.goto(link)
    expect(page.locator("body")).to_contain_text("swarm link")


def test_a_restart_keeps_everybody_signed_in(dashboard: Dashboard, visit: Opener) -> None:
    person = visit(dashboard)
    person.watch.allow("ERR_")
    page = settle(person.page("/"))
    assert dashboard.stop() == 0
    dashboard.start()
    settle(page)
    settle(person.page("/events"))


def test_a_failure_of_the_view_is_reported_and_told(dashboard: Dashboard, visit: Opener) -> None:
    """The watch itself: what the page must not do is seen."""
    person = visit(dashboard)
    page = settle(person.page("/"))
    person.check()
    page.evaluate("() => setTimeout(() => { throw new Error('broken on purpose') })")
    expect(page.locator(".banner").filter(has_text="failed")).to_be_visible()
    page.evaluate("() => document.body.append(Object.assign(new Image(), { src: 'http://127.0.0.2:9/x.png' }))")
    wait_until(lambda: page.evaluate("0") == 0 and len(person.watch.problems) >= 4, what="all of it is noticed")
    seen = "\n".join(person.watch.problems)
    for part in ("page error", "client error", "broken on purpose", "CSP img-src"):
        assert part in seen
    person.watch.allow(".")


def test_the_server_stops_in_good_order_while_pages_are_open(dashboard: Dashboard, visit: Opener) -> None:
    with dashboard.seeding() as seeding:
        seed.fill(seeding)
    person = visit(dashboard)
    person.watch.allow("ERR_")
    page = settle(person.page("/"))
    assert dashboard.stop() == 0
    expect(page.locator("#live")).to_contain_text("reconnecting")
    with dashboard.db() as db:
        assert events.newest_id(db) > 0

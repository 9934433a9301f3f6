"""With nothing to show, every page names the next step."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.ui.browser import overflow, violations
from tests.ui.conftest import Opener
from tests.ui.dashboard import Dashboard
from tests.ui.places import settle

EMPTY = ["/", "/graph", "/wall", "/missions", "/inbox", "/events?q=none", "/pulls"]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_says_what_to_do_when_there_is_nothing(theme: str, dashboard: Dashboard, visit: Opener) -> None:
    person = visit(dashboard, theme=theme)
    page = person.page("/")
    for path in EMPTY:
        page.goto(person.base + path)
        settle(page)
        expect(page.locator("#main .empty").first).to_be_visible()
        assert violations(page) == [], path
        assert overflow(page) <= 0, path
    page.goto(f"{person.base}/")
    expect(page.locator("#main")).to_contain_text("swarm work")
    expect(page.locator("#strip")).to_be_hidden()
    expect(page).to_have_title("Swarm")


def test_an_instance_that_is_not_there_is_told_and_not_a_blank_page(dashboard: Dashboard, visit: Opener) -> None:
    person = visit(dashboard)
    person.watch.allow("404")
    page = person.page("/i/work-9-a9")
    expect(page.locator("#main")).to_contain_text("work-9-a9")
    expect(page.locator("#main")).to_contain_text("there is no instance")


def test_when_the_last_need_is_over_the_strip_goes(dashboard: Dashboard, visit: Opener) -> None:
    with dashboard.seeding() as seeding:
        seeding.instance("work-1-a1", needs_person="all review rounds are used", issue_title="One")
    page = settle(visit(dashboard).page("/"))
    expect(page.locator("#strip")).to_be_visible()
    with dashboard.world.open() as swarm:
        swarm.rescope("work-1-a1", "half of it")
    expect(page.locator("#strip")).to_be_hidden()
    expect(page).to_have_title("Swarm")

"""Every page opens, shows its data in both themes, can be used by everybody, and fits a phone."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.ui.browser import SIZES, overflow, violations
from tests.ui.conftest import Opener
from tests.ui.dashboard import Dashboard
from tests.ui.places import PAGES, at, settle
from tests.ui.seed import Town

TOWN = Town()


# Whatever can be touched and is lower than a finger is wide.
SMALL = """() => [...document.querySelectorAll('button, select, #rail a')].filter(e => e.checkVisibility())
  .map(e => [e.getBoundingClientRect().height, e.outerHTML.slice(0, 90)]).filter(([high]) => high && high < 24)"""


@pytest.mark.parametrize("name", PAGES)
def test_a_page_shows_its_data_in_both_themes_and_on_a_phone(name: str, shown: Dashboard, visit: Opener) -> None:
    page = settle(visit(shown).page(PAGES[name][0]), name)
    assert "Swarm" in page.title()
    assert overflow(page) <= 0
    assert violations(page) == []
    light = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    page.emulate_media(color_scheme="dark")
    assert page.evaluate("() => getComputedStyle(document.body).backgroundColor") != light
    assert violations(page) == []
    width, height = SIZES["phone"]
    page.set_viewport_size({"width": width, "height": height})
    page.reload()
    settle(page)
    assert overflow(page) <= 0
    assert page.evaluate(SMALL) == []
    assert violations(page) == []


def test_the_first_glance_tells_who_needs_me_and_what_runs(page: Page) -> None:
    settle(page)
    need = len(TOWN.needing)
    expect(page).to_have_title(f"({need}) Swarm")
    strip = page.get_by_role("region", name="Needs you")
    expect(strip).to_be_visible()
    box = strip.bounding_box()
    assert box is not None
    assert box["y"] + 40 <= 400
    expect(strip).to_contain_text("rm -rf build")
    for where in (page.locator("#counts"), page.locator("#live")):
        seen = where.bounding_box()
        assert seen is not None
        assert seen["y"] < 400
    expect(page.locator("#counts")).to_contain_text("running")
    first = page.locator("#list [data-id]").first
    expect(first).to_have_attribute("data-id", TOWN.rounds)


def test_what_waits_comes_first_and_the_rest_by_state(page: Page) -> None:
    settle(page)
    order = page.locator("#list [data-id]").evaluate_all("rows => rows.map(row => row.dataset.id)")
    assert len(order) >= 24
    waits = {TOWN.dialog, TOWN.question, TOWN.rounds, TOWN.held, TOWN.ready}
    assert set(order[: len(waits)]) == waits
    assert {TOWN.failed, TOWN.lost} <= set(order[len(waits) : len(waits) + 4])
    assert order.index(TOWN.running) < order.index(TOWN.idle) < order.index(TOWN.merged)


def test_a_count_is_a_filter_and_the_words_are_one_too(page: Page) -> None:
    settle(page)
    page.locator("#counts").get_by_role("button", name="error").click()
    shown = page.locator("#list [data-id]")
    expect(shown).to_have_count(3)
    expect(shown.first).to_have_attribute("data-id", TOWN.red)
    assert page.locator(f"#list [data-id='{TOWN.running}']").count() == 0
    page.locator("#counts").get_by_role("button", name="error").click()
    page.keyboard.press("/")
    page.keyboard.type("checkout")
    expect(page.locator(f"#list [data-id='{TOWN.running}']")).to_be_visible()
    expect(page.locator(f"#list [data-id='{TOWN.dialog}']")).to_have_count(0)


def test_a_repository_can_be_chosen_alone(page: Page) -> None:
    settle(page)
    page.get_by_label("Repository").select_option(label="payments-api")
    expect(page.locator(f"#list [data-id='{TOWN.running}']")).to_have_count(0)
    expect(page.locator(f"#list [data-id='{TOWN.question}']")).to_be_visible()
    expect(page.get_by_role("region", name="Needs you")).not_to_contain_text("rm -rf build")


def test_help_lists_the_keys_and_the_palette_finds_pages(page: Page) -> None:
    settle(page)
    page.keyboard.press("?")
    shown = page.locator("dialog[open]")
    expect(shown).to_contain_text("Next that needs you")
    assert violations(page) == []
    page.keyboard.press("Escape")
    expect(shown).to_have_count(0)
    page.keyboard.press("Control+k")
    expect(page.locator("dialog[open]")).to_be_visible()
    page.keyboard.type("pulls")
    assert violations(page) == []
    page.keyboard.press("Enter")
    at(page, "/pulls")


def test_two_keys_lead_to_every_page(page: Page) -> None:
    settle(page)
    for key, path in {"g": "/graph", "w": "/wall", "i": "/inbox", "e": "/events", "m": "/missions"}.items():
        page.keyboard.press("g")
        page.keyboard.press(key)
        at(page, path)
        expect(page.locator("#main").locator("> *").first).to_be_visible()
    page.go_back()
    at(page, "/events")


def test_j_and_k_move_and_enter_opens(page: Page) -> None:
    settle(page)
    rows = page.locator("#list [data-id]").evaluate_all("rows => rows.map(row => row.dataset.id)")
    page.keyboard.press("j")
    chosen = page.locator("#list [data-id]:has([aria-current=true])")
    expect(chosen).to_have_count(1)
    first = rows.index(str(chosen.get_attribute("data-id")))
    page.keyboard.press("j")
    expect(chosen).to_have_attribute("data-id", rows[first + 1])
    page.keyboard.press("k")
    expect(chosen).to_have_attribute("data-id", rows[first])
    page.keyboard.press("Enter")
    at(page, f"/i/{rows[first]}")


def test_letters_are_no_keys_while_one_types(page: Page) -> None:
    settle(page)
    page.keyboard.press("/")
    page.keyboard.type("n?g!")
    expect(page.locator("dialog[open]")).to_have_count(0)
    at(page, "/")


def test_the_theme_is_switched_and_remembered(page: Page) -> None:
    settle(page)
    dark = "() => getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(dark)
    for _ in range(3):
        page.keyboard.press("t")
        if page.evaluate(dark) != before:
            break
    after = page.evaluate(dark)
    assert after != before
    page.reload()
    settle(page)
    assert page.evaluate(dark) == after


def test_every_tab_of_an_instance_opens_and_axe_finds_nothing(shown: Dashboard, visit: Opener) -> None:
    page = settle(visit(shown).page(f"/i/{TOWN.running}"))
    tabs = page.locator("[role=tab]")
    expect(tabs.nth(5)).to_be_visible()
    for number in range(tabs.count()):
        if number < 6:
            page.keyboard.press(str(number + 1))
        else:
            tabs.nth(number).click()
        expect(tabs.nth(number)).to_have_attribute("aria-selected", "true")
        expect(page.locator("[role=tabpanel]:visible").first).to_be_visible()
        assert violations(page) == [], tabs.nth(number).inner_text()
    page.keyboard.press("5")
    expect(page.locator("[role=tabpanel]:visible").first).to_contain_text("src/steps.py")


def test_the_filters_of_events_stand_in_the_address(shown: Dashboard, visit: Opener) -> None:
    person = visit(shown)
    page = settle(person.page(f"/events?instance={TOWN.waiting_review}&name=tool:called"))
    expect(page.locator("#main")).to_contain_text(TOWN.waiting_review)
    expect(page.locator("#main")).not_to_contain_text("forge:lost")
    page.goto(f"{person.base}/events?q=nothing-has-this-text")
    expect(page.locator("#main .empty")).to_be_visible()


def test_the_graph_has_a_table_that_says_the_same(shown: Dashboard, visit: Opener) -> None:
    page = settle(visit(shown).page("/graph"), "graph")
    page.get_by_role("button", name="Table").or_(page.get_by_role("tab", name="Table")).or_(
        page.get_by_label("Table")
    ).first.click()
    table = page.get_by_role("table")
    expect(table).to_contain_text("review-118-a1")
    expect(table).to_contain_text(TOWN.rounds)
    assert violations(page) == []

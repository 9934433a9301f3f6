"""What agents, forges and repositories write stays text, wherever it is shown."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.ui.browser import overflow, violations
from tests.ui.conftest import Opener
from tests.ui.dashboard import Dashboard
from tests.ui.places import settle

BAD = "work-666-a1"
PATHS = {
    "/": "<img src=x onerror=alert(1)>",
    f"/?i={BAD}": "<img src=x onerror=alert(1)>",
    f"/i/{BAD}": "<img src=x onerror=alert(1)>",
    "/i/work-667-a1": "<img src=x onerror=alert(1)>",
    "/graph": "",
    "/wall": "",
    "/inbox": "<img src=x onerror=alert(1)>",
    f"/threads/{BAD}": "<img src=x onerror=alert(1)>",
    "/threads/work-165-a1": "<img src=x onerror=alert(1)>",
    f"/events?instance={BAD}": "<img src=x onerror=alert(1)>",
    "/pulls": "<img src=x onerror=alert(1)>",
    "/health": "",
}


# Elements, attributes and addresses that only a text can have brought, and control characters left in one.
BROUGHT = r"""() => {
  const bad = [];
  const own = /^(\/|#|https:\/\/|data:image\/svg)/;
  for (const e of document.querySelectorAll('*')) {
    if (e.matches('img, iframe, object, embed, form[action], base, main script')) bad.push(e.outerHTML);
    for (const { name, value } of e.attributes)
      if (name.startsWith('on') || (/^(href|src|action|xlink:href)$/.test(name) && !own.test(value)))
        bad.push(`${name}=${value}`);
  }
  const text = document.documentElement.textContent;
  const control = text.match(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f]/);
  if (control) {
    const around = text.slice(Math.max(0, control.index - 60), control.index + 10);
    bad.push(`control character ${control[0].charCodeAt(0)} at ${around}`);
  }
  return bad.map(one => one.slice(0, 150));
}"""


def harmless(page: Page) -> None:
    assert page.evaluate(BROUGHT) == []


@pytest.mark.parametrize("part", range(4))
def test_hostile_text_is_shown_as_it_is_and_does_nothing(part: int, attacked: Dashboard, visit: Opener) -> None:
    person = visit(attacked)
    page = person.context.new_page()
    for path in list(PATHS)[part::4]:
        page.set_viewport_size({"width": 1440, "height": 900})
        page.goto(person.base + path)
        settle(page)
        if PATHS[path]:
            expect(page.locator("#main")).to_contain_text(PATHS[path])
        harmless(page)
        assert overflow(page) <= 0, path
        assert page.evaluate("() => document.body.innerText.length") < 2_000_000
        page.set_viewport_size({"width": 390, "height": 844})
        assert overflow(page) <= 0, f"{path} on a phone"


def test_hostile_text_stays_text_in_every_tab(attacked: Dashboard, visit: Opener) -> None:
    person = visit(attacked)
    person.watch.allow("status of 404.*/diff")
    page = settle(person.page(f"/i/{BAD}"))
    tabs = page.locator("[role=tab]")
    for number in range(tabs.count()):
        tabs.nth(number).click()
        expect(tabs.nth(number)).to_have_attribute("aria-selected", "true")
        expect(page.locator("[role=tabpanel]:visible").first).to_be_visible()
        harmless(page)


def test_hostile_text_in_the_terminal_neither_links_nor_titles_nor_copies(
    attacked: Dashboard, visit: Opener
) -> None:
    page = settle(visit(attacked).page(f"/i/{BAD}"))
    terminal = page.get_by_role("group", name=f"Terminal of {BAD}")
    expect(terminal).to_contain_text("<script>alert(2)</script>")
    expect(terminal).to_contain_text("click")
    assert terminal.locator("a[href^='javascript']").count() == 0
    assert "title" not in page.title()
    harmless(page)


def test_axe_finds_nothing_on_the_first_page_full_of_it(attacked: Dashboard, visit: Opener) -> None:
    assert violations(settle(visit(attacked, theme="dark").page("/"))) == []


def test_a_hostile_address_is_only_a_page_that_is_not_there(dashboard: Dashboard, visit: Opener) -> None:
    person = visit(dashboard)
    person.watch.allow("status of 404", "status of 400")
    page = person.page("/i/%3Cimg%20src=x%20onerror=alert(1)%3E")
    expect(page.locator("#main")).to_contain_text("<img src=x onerror=alert(1)>")
    harmless(page)
    page.goto(f"{person.base}/events?q=%3Cscript%3Ealert(1)%3C/script%3E&instance=%22%3E%3Cb%3E")
    expect(page.locator("#main .empty")).to_be_visible()
    harmless(page)

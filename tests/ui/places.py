"""Where the pages are, and what each of them must show of the town."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.ui.seed import Town

_TOWN = Town()
PAGES: dict[str, tuple[str, list[str]]] = {
    "now": ("/", [_TOWN.dialog, _TOWN.running, "Split the checkout into steps"]),
    "instance": (
        f"/i/{_TOWN.running}",
        [_TOWN.running, "Split the checkout into steps", f"swarm/{_TOWN.running}"],
    ),
    "graph": ("/graph", [_TOWN.rounds, "review-118-a3", _TOWN.fork]),
    "wall": ("/wall", [_TOWN.running, "FAILED"]),
    "missions": ("/missions", []),
    "inbox": ("/inbox", ["Rate limit the login form", "Move sessions to Redis", "Cache price lists"]),
    "thread": (f"/threads/{_TOWN.rounds}", ["Round 1", "Round 3", "src/tax/rates.py"]),
    "events": ("/events", ["tool:called", _TOWN.running]),
    "pulls": ("/pulls", ["#41", "#42", "#39", "Cache price lists", "tests failed together with #38"]),
    "health": ("/health", ["sqlite", "tmux", "swarm.db"]),
}


def settle(page: Page, name: str = "") -> Page:
    """Wait until the page is connected and shows what it is for."""
    expect(page.locator("#live")).to_contain_text("live")
    expect(page.locator("#main").locator("> *").first).to_be_visible()
    for text in PAGES[name][1] if name else []:
        expect(page.locator("#main")).to_contain_text(text)
    return page


def at(page: Page, path: str) -> None:
    """Wait until the page's address is this path, whatever is asked of it."""
    expect(page).to_have_url(re.compile(rf"^https?://[^/]+{re.escape(path)}(\?.*)?$"))

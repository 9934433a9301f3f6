"""`python -m tests.ui.screenshots [NAME...]`: docs/images again, every page in light, dark and on a phone."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect

from benchmarks.ground import isolated
from tests.support import make_repo
from tests.ui import browser as browsers
from tests.ui import picture, seed
from tests.ui.coordinator import stand_in
from tests.ui.dashboard import Dashboard
from tests.ui.places import PAGES, settle
from tests.world import World

FOLDER = Path(__file__).parents[2] / "docs" / "images"
VARIANTS = {"light": ("light", "desktop"), "dark": ("dark", "desktop"), "phone": ("light", "phone")}
TOWN = seed.Town()
SCREENS = {
    TOWN.running: """\
\033[2m● Read(src/checkout/steps.py)\033[0m
  └  Read 212 lines

\033[1m● Update(src/checkout/totals.py)\033[0m
  └  Updated with 14 additions and 6 removals
     \033[31m41 -    total = basket.total\033[0m
     \033[32m41 +    lines = [line.price * line.amount for line in basket]\033[0m
     \033[32m42 +    total = sum(lines, start=Money.zero(basket.currency))\033[0m
     43      return total.rounded()

\033[1m● Bash(pytest -q tests/checkout)\033[0m
  └  \033[32m..........................................\033[0m \033[36m[100%]\033[0m
     \033[32m42 passed\033[0m in 2.31s

● The totals are summed per line now. Next I move the address form into a step of its own.

\033[35m✻ Moving the address form… (38s · ↓ 2.1k tokens · esc to interrupt)\033[0m""",
    TOWN.dialog: """\
\033[1m● The release script fails on a stale build folder.\033[0m

 Bash command

   rm -rf build && make release
   Remove the old build and release again

 Do you want to proceed?
 \033[36m❯ 1. Yes\033[0m
   2. Yes, and do not ask again
   3. No, and tell it what to do instead""",
    TOWN.review: """\
\033[1m● Bash(git diff main...HEAD --stat)\033[0m
 src/address.py        | 61 \033[32m++++++++++\033[0m\033[31m----\033[0m
 tests/test_address.py | 33 \033[32m+++++++++\033[0m
● An empty street passes validation: src/address.py:12
✻ Reading the tests… (12s)""",
    TOWN.fork: (
        "● Update(templates/checkout.html)\n"
        "  \033[32m+ <form method=post action=/checkout/address>\033[0m\n"
        "✻ Working… (51s)"
    ),
    "work-155-a1": (
        "● Bash(make bench)\n"
        "  resize 4000x3000   \033[33m182 ms\033[0m\n"
        "  resize 800x600      \033[32m11 ms\033[0m\n"
        "✻ Thinking…"
    ),
    "work-155-a2": (
        "● Write(src/images/lanczos.py)\n"
        "  \033[32mWrote 88 lines\033[0m\n"
        "● Bash(pytest -q)\n"
        "  \033[31mF\033[0m....  1 failed"
    ),
    TOWN.idle: "● The guide is in docs/migration.md.\n\n❯ ",
    TOWN.held: (
        "● Bash(make bench-search)\n"
        "  p50 41 ms, p99 \033[31m310 ms\033[0m\n"
        "\033[33mHeld: the budget is used up.\033[0m\n"
        "❯ "
    ),
    TOWN.rounds: "● I have answered all findings of round 3.\n\n❯ ",
    TOWN.question: "? Which currency is the fee in when the card has none?\nanswer ❯ ",
}
EXTRA: dict[str, tuple[str, Callable[[Page], object]]] = {
    "palette": ("/", lambda page: (page.keyboard.press("Control+k"), page.keyboard.type("check"))),
    "spawn": ("/", lambda page: page.keyboard.press("n")),
    "help": ("/", lambda page: page.keyboard.press("?")),
    "feedback": (f"/i/{TOWN.rounds}", lambda page: page.keyboard.press("3")),
    "diff": (f"/i/{TOWN.running}", lambda page: page.keyboard.press("5")),
    "timeline": (f"/i/{TOWN.running}", lambda page: page.keyboard.press("2")),
    "pull": (f"/i/{TOWN.ready}", lambda page: page.get_by_role("tab", name="Pull").first.click()),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.ui.screenshots", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join([*PAGES, *EXTRA])}")
    parser.add_argument("--to", type=Path, default=FOLDER, help="the folder they are written to")
    wanted = parser.parse_args()
    wanted.to.mkdir(parents=True, exist_ok=True)
    with isolated() as root, tempfile.TemporaryDirectory(prefix="sw-", dir="/tmp") as short:
        dashboard = Dashboard(World(Path(short) / "h", make_repo(root / "shop")), root)
        try:
            _people_town(dashboard)
            with stand_in(dashboard.world.settings):
                dashboard.start()
                _take(dashboard, wanted.names, wanted.to)
        finally:
            dashboard.end()
    return 0


def _people_town(dashboard: Dashboard) -> None:
    dashboard.town()
    for name, text in SCREENS.items():
        screen = dashboard.folder / f"{name}.txt"
        screen.write_text(text)
        dashboard.session(name, f"cat {screen}; exec sleep 3600", cols=110, rows=32)


def _take(dashboard: Dashboard, names: list[str], folder: Path) -> None:
    with browsers.chromium() as browser:
        blank = browser.new_page()
        for variant, (theme, size) in VARIANTS.items():
            person = browsers.person(browser, dashboard.base, dashboard.link(), theme=theme, size=size)
            for name in names or [*PAGES, *(EXTRA if variant == "light" else ())]:
                path, prepare = EXTRA.get(name) or (PAGES[name][0], None)
                page = settle(person.page(f"/?i={TOWN.running}" if name == "now" else path))
                if name in ("now", "instance"):
                    expect(page.locator(".term").first).to_contain_text("Moving the address form")
                if prepare:
                    prepare(page)
                page.wait_for_timeout(900)
                taken = page.screenshot(animations="disabled")
                (folder / f"{name}-{variant}.png").write_bytes(picture.smaller(blank, taken))
                page.close()
            person.check()
            person.context.close()


if __name__ == "__main__":
    sys.exit(main())

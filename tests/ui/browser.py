"""Chromium as a person has it, and a watch over its pages: whatever a page must never do is a failure."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, sync_playwright

AXE = Path(__file__).parents[2] / ".venv" / "npm" / "node_modules" / "axe-core" / "axe.min.js"
WAIT_MS = 30_000
SIZES = {"desktop": (1440, 900), "phone": (390, 844)}
_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
# A page may be told that it is hidden: Chromium without a window shows all of them for ever.
_WATCH = """
document.addEventListener('securitypolicyviolation', (e) => console.error(
  `CSP ${e.effectiveDirective} refused ${e.blockedURI} ${e.sample} at ${e.sourceFile}:${e.lineNumber}`));
let seen = 'visible';
Object.defineProperty(document, 'visibilityState', { get: () => seen, configurable: true });
Object.defineProperty(document, 'hidden', { get: () => seen === 'hidden', configurable: true });
document.addEventListener('tests:visibility', (e) => {
  seen = e.detail;
  document.dispatchEvent(new Event('visibilitychange'));
});
"""


def program() -> str:
    """Where Chromium is. That it is missing is a failure: a suite without it has shown nothing."""
    for name in _PROGRAMS:
        if found := shutil.which(name):
            return found
    raise AssertionError("the tests of the dashboard need Chromium: apt-get install chromium fonts-dejavu-core")


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """A browser with a home of its own, which is ended with the block."""
    executable = program()
    home = tempfile.mkdtemp(prefix="sw-chromium-", dir="/tmp")
    keep = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
    args = ["--disable-dev-shm-usage", "--disable-gpu", "--font-render-hinting=none"]
    if os.geteuid() == 0:
        args.append("--no-sandbox")
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=executable, args=args, env={**keep, "HOME": home, "TMPDIR": home}, timeout=60_000
            )
            try:
                yield browser
            finally:
                browser.close()
    finally:
        shutil.rmtree(home, ignore_errors=True)


@dataclass
class Watch:
    """What the pages of one person did that they must not do."""

    host: str
    seen: list[str] = field(default_factory=list)
    allowed: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def allow(self, *patterns: str) -> None:
        """What the test itself brings about, as by ending the server."""
        self.allowed += patterns

    @property
    def problems(self) -> list[str]:
        return [one for one in self.seen if not any(re.search(p, one) for p in self.allowed)]

    def over(self, context: BrowserContext) -> None:
        context.add_init_script(_WATCH)
        context.on("request", self._request)
        context.on("console", self._console)
        context.on("weberror", lambda error: self.seen.append(f"page error: {error.error}"))
        context.on("dialog", self._dialog)

    def _request(self, request: Request) -> None:
        address = urlsplit(request.url)
        self.requests.append(f"{request.method} {address.path}?{address.query}")
        if address.scheme not in ("data", "blob") and address.netloc != self.host:
            self.seen.append(f"request to another host: {request.url}")
        if address.path.endswith("/client-errors"):
            self.seen.append(f"client error: {request.post_data}")

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.seen.append(f"console {message.type}: {message.text} ({message.location.get('url')})")

    def _dialog(self, dialog: object) -> None:
        self.seen.append(f"a dialog of the browser: {dialog}")
        dialog.dismiss()  # type: ignore[attr-defined]


@dataclass
class Person:
    """One signed-in browser profile: its own cookies and storage."""

    context: BrowserContext
    watch: Watch
    base: str

    def page(self, path: str = "/") -> Page:
        page = self.context.new_page()
        page.goto(self.base + path)
        return page

    def check(self) -> None:
        """Raise for whatever happened up to now; called at the end of every test."""
        for page in self.context.pages:
            if not page.is_closed():
                page.evaluate("0")  # events arrive only while something is asked
        if self.watch.problems:
            raise AssertionError("\n".join(self.watch.problems))


def person(
    browser: Browser, base: str, link: str | None, *, theme: str = "light", size: str = "desktop"
) -> Person:
    """A new profile, signed in by opening the link; nothing is drawn for that."""
    width, height = SIZES[size]
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if theme == "dark" else "light",
        reduced_motion="reduce",
        has_touch=size == "phone",
        locale="en-GB",
        timezone_id="UTC",
    )
    context.set_default_timeout(WAIT_MS)
    watch = Watch(urlsplit(base).netloc)
    watch.over(context)
    if link is not None:
        answer = context.request.get(link)
        assert answer.ok, f"{answer.status} for the link"
    return Person(context, watch, base)


def visibility(page: Page, state: str) -> None:
    """Hide the page as another tab in front does, or show it again."""
    page.evaluate("state => document.dispatchEvent(new CustomEvent('tests:visibility', { detail: state }))", state)


def overflow(page: Page) -> int:
    """By how many pixels the page is wider than its window."""
    return int(
        page.evaluate("() => document.scrollingElement.scrollWidth - document.scrollingElement.clientWidth")
    )


def violations(page: Page) -> list[str]:
    """What axe-core finds wrong with the page as it is now."""
    if not AXE.exists():
        raise AssertionError("axe-core is missing: `make setup` installs it")
    if not page.evaluate("() => typeof axe === 'object'"):
        page.evaluate(f"() => {{ {AXE.read_text()} }}")
    found = page.evaluate(
        "async () => (await axe.run(document, { resultTypes: ['violations'] })).violations.map("
        "v => `${v.id}: ${v.help}: ` + v.nodes.slice(0, 4).map(n => n.target + ' ' + n.html.slice(0, 120) + ' '"
        " + (n.any[0]?.message ?? '')).join(' | '))"
    )
    return [str(one) for one in found]

"""What a person who keeps the dashboard open all day notices: load, delay, bytes, memory, and a long history."""

from __future__ import annotations

import base64
import contextlib
import gzip
import http.client
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from playwright.sync_api import Browser, BrowserContext, Page

from benchmarks.figures import Figure, Options
from benchmarks.ground import cpu_of, make_repo, wait_for
from swarm_core.store import events
from tests.ui import browser as browsers
from tests.ui import seed
from tests.ui.dashboard import Dashboard
from tests.ui.places import PAGES
from tests.world import World

LIMIT_LOAD_KB = 120
LIMIT_RATIO = 1.5
LIMIT_EVENT_MS = 150
LIMIT_TERMINAL_MS = 50
LIMIT_IDLE_PERCENT = 1
LIMIT_MB = 60
LIMIT_EVENT_BYTES = 1000
CROWD = 25
_OPEN_PAGES = 5
# Marks the time of the frame after the one in which everything that is wanted stands in the page.
_MARK = """(() => {
  const { root, texts } = %s;
  const look = () => {
    const found = document.querySelector(root)?.textContent ?? '';
    if (!texts.every((text) => found.includes(text))) requestAnimationFrame(look);
    else requestAnimationFrame(() => (window.shownAt = performance.now()));
  };
  requestAnimationFrame(look);
})();"""
# Remembers when each mark with a number came into the element.
_SEE = """(root) => {
  window.seen = {};
  const look = () => {
    const at = performance.timeOrigin + performance.now();
    for (const [, mark] of document.querySelector(root).textContent.matchAll(/mark-([\\d.]+)-end/g))
      window.seen[mark] ??= at;
  };
  const all = { subtree: true, childList: true, characterData: true };
  new MutationObserver(look).observe(document.querySelector(root), all);
  look();
}"""
_WRITER = """
import os, random, sys, time
while not os.path.exists(sys.argv[2]):
    time.sleep(0.1)
for _ in range(int(sys.argv[1])):
    time.sleep(random.uniform(0.12, 0.4))
    sys.stdout.write(f"mark-{time.time():.6f}-end\\n")
    sys.stdout.flush()
time.sleep(3600)
"""


def measure(root: Path, options: Options) -> Iterator[Figure]:
    repo = make_repo(root / "repo", 20)
    with browsers.chromium() as browser, _dashboard(root / "a", repo, 10_000) as few:
        yield from _load(browser, few, root, options.times(12, 5))
        yield from _delay(browser, few, options.times(60, 20))
        yield from _terminal(browser, few, options.times(60, 20))
        yield _bytes(few, options.times(60, 20))
        yield from _idle(browser, few, 6 if options.quick else 25)
        with _dashboard(root / "b", repo, 100_000 if options.quick else 1_000_000) as many:
            yield from _history(browser, few, many, options)


@contextlib.contextmanager
def _dashboard(folder: Path, repo: Path, count: int) -> Iterator[Dashboard]:
    folder.mkdir()
    made = Dashboard(World(folder / "h", repo), folder)
    with made.seeding() as seeding:
        seed.fill(seeding)
        seed.crowd(seeding, CROWD)
        seeding.many_events(count)
    made.start()
    try:
        yield made
    finally:
        made.end()


def _load(browser: Browser, dashboard: Dashboard, root: Path, rounds: int) -> Iterator[Figure]:
    """The first page in a profile that has nothing cached, in turn with a page of the same size that is ready."""
    wanted = {"root": "#list, #first", "texts": [seed.Town().dialog, seed.Town().merged]}
    signed_in = _cookies(browser, dashboard)
    size, html, style = _whole(browser, dashboard, signed_in, wanted)
    yield Figure("first page, nothing cached", size / 1000, "KB", LIMIT_LOAD_KB)
    with _static(root / "static", html, style, size) as (base, same):
        yield Figure("static page of the same size", same / 1000, "KB")
        ours, theirs = [], []
        for _ in range(rounds):
            ours.append(_shown_after(browser, dashboard.base, "/", wanted, signed_in))
            theirs.append(_shown_after(browser, base, "/", wanted, []))
    yield Figure("list on screen, static page: p50", statistics.median(theirs), "ms")
    yield Figure("list on screen: p50", statistics.median(ours), "ms")
    ratio = statistics.median(ours) / statistics.median(theirs)
    yield Figure("list on screen, as a multiple of a static page", ratio, "", LIMIT_RATIO)


def _cookies(browser: Browser, dashboard: Dashboard) -> list[dict[str, object]]:
    person = browsers.person(browser, dashboard.base, dashboard.link())
    try:
        return [dict(cookie) for cookie in person.context.cookies()]
    finally:
        person.context.close()


def _whole(
    browser: Browser, dashboard: Dashboard, cookies: list[dict[str, object]], wanted: dict[str, object]
) -> tuple[int, str, str]:
    """Bytes of the first page with all it asks for, and what it comes to be: HTML and style."""
    with _context(browser, wanted, cookies) as context:
        page = context.new_page()
        network = context.new_cdp_session(page)
        network.send("Network.enable")
        sizes: list[int] = []
        network.on("Network.loadingFinished", lambda told: sizes.append(int(told["encodedDataLength"])))
        page.goto(dashboard.base)
        _shown(page)
        page.wait_for_timeout(1500)
        html = page.evaluate(
            "() => { const copy = document.documentElement.cloneNode(true);"
            " copy.querySelectorAll('script, link, use').forEach(e => e.remove()); return copy.outerHTML }"
        )
        style = page.evaluate(
            "() => [...document.styleSheets].flatMap(s => [...s.cssRules]).map(r => r.cssText).join('\\n')"
        )
    return sum(sizes), str(html), str(style)


@contextlib.contextmanager
def _static(folder: Path, html: str, style: str, size: int) -> Iterator[tuple[str, int]]:
    """The same page as it is, filled up to the same size, behind the same kind of server."""
    folder.mkdir()
    (folder / "style.css").write_text(style)
    head = "<!doctype html>" + html.replace("<head>", '<head><link rel="stylesheet" href="/style.css">', 1)
    missing = size - sum(len(gzip.compress(text.encode(), 9)) for text in (head, style)) - 700
    padding = base64.b64encode(random.Random(1).randbytes(max(0, missing))).decode()
    (folder / "index.html").write_text(f"{head}<!-- {padding} -->")
    child = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.bare_page", str(folder)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        port = int(child.stdout.readline())
        sent = 0
        for path in ("/", "/style.css"):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            with contextlib.closing(connection):
                connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
                answer = connection.getresponse()
                sent += len(answer.read()) + len(str(answer.headers)) + 20
        yield f"http://127.0.0.1:{port}", sent
    finally:
        child.terminate()
        child.wait(20)


@contextlib.contextmanager
def _context(
    browser: Browser, wanted: dict[str, object], cookies: Sequence[dict[str, object]]
) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    try:
        context.add_init_script(_MARK % json.dumps(wanted))
        if cookies:
            context.add_cookies([{k: v for k, v in one.items() if v is not None} for one in cookies])  # type: ignore[list-item]
        yield context
    finally:
        context.close()


def _shown_after(
    browser: Browser, base: str, path: str, wanted: dict[str, object], cookies: Sequence[dict[str, object]]
) -> float:
    with _context(browser, wanted, cookies) as context:
        page = context.new_page()
        page.goto(base + path, wait_until="commit")
        return _shown(page)


def _shown(page: Page) -> float:
    """Milliseconds from the beginning of the navigation until everything that is wanted was painted."""
    found: list[float] = []

    def shown() -> bool:
        value = page.evaluate("() => window.shownAt ?? 0")
        found.append(float(value))
        return bool(value)

    wait_for(shown, what=f"{page.url} shows what it is for", timeout=30, every=0.02)
    return found[-1]


def _delay(browser: Browser, dashboard: Dashboard, count: int) -> Iterator[Figure]:
    """From before an event is written until the page has it."""
    person = browsers.person(browser, dashboard.base, dashboard.link())
    try:
        page = person.page("/")
        page.locator("#feed").wait_for()
        wait_for(lambda: "live" in page.locator("#live").inner_text(), what="the page is live")
        page.evaluate(_SEE, "#feed")
        written: dict[str, float] = {}
        with dashboard.db() as db:
            for n in range(count):
                page.wait_for_timeout(random.uniform(100, 500))
                written[f"{n}"] = time.time() * 1000
                with db.write():
                    told = {"reason": f"mark-{n}-end", "problem": f"mark-{n}-end"}
                    events.add(
                        db, "instance:problem", instance_id=seed.Town().running, actor="bench", metadata=told
                    )
        seen = _seen(page, count)
    finally:
        person.context.close()
    yield from _percentiles("event to page", [seen[mark] - at for mark, at in written.items()], LIMIT_EVENT_MS)


def _terminal(browser: Browser, dashboard: Dashboard, count: int) -> Iterator[Figure]:
    """From before a program writes a line until the page has it; the line says when."""
    name = seed.Town().running
    script = dashboard.folder / "writer.py"
    script.write_text(_WRITER)
    person = browsers.person(browser, dashboard.base, dashboard.link())
    try:
        go = dashboard.folder / "go"
        dashboard.session(name, f"echo waiting; exec {sys.executable} {script} {count} {go}")
        page = person.page(f"/i/{name}")
        page.locator(".term-line").get_by_text("waiting").wait_for()
        page.evaluate(_SEE, ".term")
        page.wait_for_timeout(500)
        go.touch()
        seen = _seen(page, count)
        dashboard.tmux("kill-session", "-t", f"={name}")
    finally:
        person.context.close()
    spent = [at - float(mark) * 1000 for mark, at in seen.items()]
    yield from _percentiles("output of a program to page", spent, LIMIT_TERMINAL_MS)


def _seen(page: Page, count: int) -> dict[str, float]:
    found: dict[str, float] = {}

    def all_seen() -> bool:
        found.update(page.evaluate("() => window.seen"))
        return len(found) >= count

    try:
        wait_for(all_seen, what=f"{count} marks", timeout=60, every=0.1)
    except TimeoutError as error:
        raise TimeoutError(f"{error}; {len(found)} were seen") from None
    return found


def _percentiles(name: str, spent: list[float], limit: float) -> Iterator[Figure]:
    ordered = sorted(spent)
    yield Figure(f"{name}, {len(ordered)} times: p50", statistics.median(ordered), "ms")
    yield Figure(f"{name}, {len(ordered)} times: p90", ordered[int(len(ordered) * 0.9)], "ms", limit)


def _bytes(dashboard: Dashboard, count: int) -> Figure:
    """What one stream is sent for each event that comes alone, with everything that belongs to it."""
    connection = http.client.HTTPConnection("127.0.0.1", dashboard.port, timeout=1)
    with contextlib.closing(connection), dashboard.db() as db:
        since = events.newest_id(db)
        connection.request(
            "GET", f"/api/v1/stream?since={since}", headers={"Authorization": f"Bearer {dashboard.token}"}
        )
        answer = connection.getresponse()
        assert answer.status == http.client.OK, answer.read()
        assert connection.sock is not None or answer.fp is not None
        _drain(answer, 2.0)
        total = 0
        for n in range(count):
            with db.write():
                told = {"activity": "busy", "detail": f"step {n} of many"}
                events.add(db, "instance:activity", instance_id=seed.Town().running, actor="bench", metadata=told)
            total += _drain(answer, 0.25)
    return Figure(f"bytes for each of {count} events", total / count, "B", LIMIT_EVENT_BYTES)


def _drain(answer: http.client.HTTPResponse, seconds: float) -> int:
    """Read whatever comes within so many seconds; how many bytes."""
    total, until = 0, time.monotonic() + seconds
    sock = answer.fp.raw._sock  # type: ignore[attr-defined]
    while (left := until - time.monotonic()) > 0:
        sock.settimeout(left)
        with contextlib.suppress(TimeoutError):
            got = sock.recv(65536)
            if not got:
                raise RuntimeError("the stream ended")
            total += len(got)
    return total


def _idle(browser: Browser, dashboard: Dashboard, seconds: float) -> Iterator[Figure]:
    """Five people look at pages on which nothing happens."""
    town = seed.Town()
    dashboard.session(town.idle, "exec sleep 3600")
    paths = ("/", f"/i/{town.idle}", "/graph", "/events", "/pulls")
    people = [browsers.person(browser, dashboard.base, dashboard.link()) for _ in range(_OPEN_PAGES)]
    try:
        for person, path in zip(people, paths, strict=True):
            person.page(path).locator("#main > *").first.wait_for()
        people[0].context.pages[0].wait_for_timeout(4000)
        before, began = cpu_of(dashboard.pid), time.monotonic()
        people[0].context.pages[0].wait_for_timeout(seconds * 1000)
        used, lasted = cpu_of(dashboard.pid) - before, time.monotonic() - began
        yield Figure(
            f"processor with {_OPEN_PAGES} open pages, idle {lasted:.0f} s",
            100 * used / lasted,
            "%",
            LIMIT_IDLE_PERCENT,
        )
        yield Figure("memory of the dashboard", dashboard.memory() / 1_000_000, "MB", LIMIT_MB)
    finally:
        dashboard.tmux("kill-session", "-t", f"={town.idle}")
        for person in people:
            person.context.close()


def _history(browser: Browser, few: Dashboard, many: Dashboard, options: Options) -> Iterator[Figure]:
    """Each page with a long history, in turn with the same page with a short one."""
    rounds = options.times(9, 5)
    cookies = {dashboard.port: _cookies(browser, dashboard) for dashboard in (few, many)}
    for name, (path, texts) in PAGES.items():
        wanted: dict[str, object] = {"root": "#main", "texts": texts or ["ission"]}
        if name in ("wall", "events"):
            wanted["texts"] = ["tool:called"] if name == "events" else [seed.Town().running]
        spent: dict[int, list[float]] = {few.port: [], many.port: []}
        for _ in range(rounds):
            for dashboard in (few, many):
                port = dashboard.port
                spent[port].append(_shown_after(browser, dashboard.base, path, wanted, cookies[port]))
        short, long = (statistics.median(spent[d.port]) for d in (few, many))
        yield Figure(f"{name} page with a long history: p50 ({short:.0f} ms with a short one)", long, "ms")
        yield Figure(f"{name} page, as a multiple of a short history", long / short, "", LIMIT_RATIO)

"""A browser for all tests of this folder, dashboards for them, and people who open pages."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.integration.mcp_fixture import Coordinated
from tests.support import isolate, make_repo
from tests.ui import browser as browsers
from tests.ui import seed
from tests.ui.browser import Person
from tests.ui.coordinator import stand_in
from tests.ui.dashboard import Dashboard
from tests.world import World

Opener = Callable[..., Person]
expect.set_options(timeout=browsers.WAIT_MS)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with browsers.chromium() as made:
        yield made


@contextlib.contextmanager
def _running(folder: Path, *, start: bool = True) -> Iterator[Dashboard]:
    short = Path(tempfile.mkdtemp(prefix="sw-", dir="/tmp"))
    made = Dashboard(World(short / "h", make_repo(folder / "shop")), folder)
    try:
        if start:
            made.start()
        yield made
    finally:
        made.end()
        shutil.rmtree(short, ignore_errors=True)


@pytest.fixture
def dashboard(tmp_path: Path) -> Iterator[Dashboard]:
    """One of the test's own, with nothing in it."""
    with _running(tmp_path / "own") as made:
        yield made


@pytest.fixture
def staffed(dashboard: Dashboard) -> Iterator[Dashboard]:
    """One beside a real coordinator, which looks at agents and carries messages to them."""
    coordinator = Coordinated(dashboard.world, dashboard.folder)
    try:
        coordinator.start()
        yield dashboard
    finally:
        coordinator.end()


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[Dashboard]:
    """One that the test starts itself."""
    with _running(tmp_path / "own", start=False) as made:
        yield made


@pytest.fixture(scope="package")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    """One with the whole town in it, for tests that only look."""
    with _shared(tmp_path_factory.mktemp("shown")) as made:
        town = made.town()
        for name in (town.running, town.dialog, town.idle):
            made.session(name, f"printf '%s\\n' {_quoted(seed.SCREEN)}; exec cat")
        with stand_in(made.world.settings):
            yield made


@pytest.fixture(scope="package")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    """The town with hostile text in every field that somebody else fills, for tests that only look."""
    with _shared(tmp_path_factory.mktemp("attacked")) as made:
        made.town(hostile=True)
        made.session("work-666-a1", f"printf '%s' {_quoted(seed.HOSTILE.replace(chr(0), ''))}; exec cat")
        yield made


@contextlib.contextmanager
def _shared(folder: Path) -> Iterator[Dashboard]:
    with pytest.MonkeyPatch.context() as patch:
        isolate(patch, folder)
        with _running(folder) as made:
            yield made


@pytest.fixture
def visit(browser: Browser) -> Iterator[Opener]:
    """People with browser profiles of their own; whatever their pages must not do fails the test at its end."""
    with contextlib.ExitStack() as stack:
        people: list[Person] = []

        def visit(dashboard: Dashboard, *, link: str | None = "", **options: str) -> Person:
            address = dashboard.link() if link == "" else link
            made = browsers.person(browser, dashboard.base, address, **options)
            stack.callback(made.context.close)
            people.append(made)
            return made

        yield visit
        for one in people:
            one.check()


@pytest.fixture
def page(visit: Opener, shown: Dashboard) -> Page:
    """The first page of the town."""
    return visit(shown).page("/")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"

"""The parts of the dashboard's doors that need no server: what a client prefers, which files there are."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from starlette.datastructures import Headers

from swarm_ui.web import page
from swarm_ui.web.static import Files

CHROMIUM = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"


@pytest.mark.parametrize(
    ("accept", "html"),
    [
        (CHROMIUM, True),
        ("text/html", True),
        ("text/*, application/json;q=0.2", True),
        ("application/json, text/html;q=0.5", False),
        ("text/html;q=0", False),
        ("text/html;q=nonsense", False),
        ("*/*", False),
        ("application/json", False),
        ("", False),
    ],
)
def test_a_page_is_for_whoever_prefers_html(accept: str, html: bool) -> None:
    assert page.prefers_html(accept) is html
    assert page.is_page("/health", Headers({"accept": accept})) is html


@pytest.mark.parametrize("path", ["/", "/i/work-a1", "/graph", "/missions", "/missions/m1", "/threads/work-1-a1"])
def test_every_address_of_the_interface_is_a_page(path: str) -> None:
    assert page.is_page(path, Headers({}))


@pytest.mark.parametrize(
    "path",
    [
        *(
            "//",
            "//evil.example/",
            "/i/",
            "/i/a/b",
            "/api/v1/snapshot",
            "/status",
            "/search",
            "/ws",
            "/inbox/",
            "",
        ),
        *("/i/a\n/b", "/favicon.svg", "/static/x"),
    ],
)
def test_nothing_else_is_a_page(path: str) -> None:
    assert not page.is_page(path, Headers({"accept": CHROMIUM}))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "static"
    (root / "pages").mkdir(parents=True)
    (root / "app.js").write_text(
        'import { a,\n  b } from "./dom.js";\nimport "./store.js";\nexport { x } from "./pages/kit.js";\n'
        'const later = () => import("./pages/now.js");\nconst said = "./not.js";\n'
    )
    (root / "dom.js").write_text('import { store } from "./store.js";\n')
    (root / "store.js").write_text("export const store = 1;\n")
    (root / "not.js").write_text("")
    (root / "pages" / "kit.js").write_text('export const x = 1;\nimport "../dom.js";\nimport "../../out.js";\n')
    (root / "pages" / "now.js").write_text("")
    (root / "app.css").write_text("body { color: red }\n" * 100)
    (root / "notes.txt").write_text("not served")
    (tmp_path / "out.js").write_text("secret")
    (root / "link.js").symlink_to(tmp_path / "out.js")
    return root


def test_only_files_of_a_known_kind_in_the_folder_are_served(folder: Path) -> None:
    files = Files(folder)
    for name in ("app.js", "pages/kit.js", "app.css"):
        assert files.get(f"{files.hash}/{name}") is not None, name
    for name in (
        "notes.txt",
        "link.js",
        "../out.js",
        "pages/../app.js",
        "/app.js",
        "app.js/",
        "",
        "pages",
        "APP.JS",
    ):
        assert files.get(f"{files.hash}/{name}") is None, name
    assert files.get("app.js") is None
    assert files.get("0123456789abcdef/app.js") is None


def test_a_module_names_what_it_needs_at_once_and_not_what_it_loads_later(folder: Path) -> None:
    assert set(Files(folder).imported_by("app.js")) == {"dom.js", "store.js", "pages/kit.js"}


def test_any_change_of_a_file_changes_the_path_of_all(folder: Path) -> None:
    before = Files(folder)
    assert Files(folder).hash == before.hash
    (folder / "pages" / "kit.js").write_text("export const x = 2;\n")
    changed = Files(folder)
    assert changed.hash != before.hash
    (folder / "pages" / "kit.js").rename(folder / "pages" / "kit2.js")
    assert Files(folder).hash not in (before.hash, changed.hash)


def test_a_file_is_packed_once_and_unpacks_to_itself(folder: Path) -> None:
    files = Files(folder)
    style = files.get(f"{files.hash}/app.css")
    assert style is not None
    assert style.packed is not None
    assert len(style.packed) < len(style.body) / 4
    assert gzip.decompress(style.packed) == style.body

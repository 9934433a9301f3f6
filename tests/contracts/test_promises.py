"""The tests that pages name as holding a promise exist, and every promise names one."""

from __future__ import annotations

import ast
import re

import pytest

from docs import source

PAGES = sorted([source.ROOT / "README.md", *(source.ROOT / "docs").rglob("*.md")])
PROMISES = source.ROOT / "docs" / "explanation" / "promises.md"
_CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_FILES = {path.name: path for path in (source.ROOT / "tests").rglob("test_*.py")}


def _functions(path):
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


_FUNCTIONS = {name: _functions(path) for name, path in _FILES.items()}
_ALL = set().union(*_FUNCTIONS.values())


def _is_there(named):
    """Whether a file, a test, or a test in a file is there; `named` is as a page has it."""
    file, _, test = (
        named.rpartition("::") if "::" in named else (named, "", "") if ".py" in named else ("", "", named)
    )
    name = file.rpartition("/")[2]
    if file and (name not in _FILES or ("/" in file and _FILES[name] != source.ROOT / file)):
        return False
    return not test or test in (_FUNCTIONS[name] if name else _ALL)


def _named(text):
    return [code for code in _CODE.findall(text) if re.fullmatch(r"(tests/[\w/]+/)?test_\w+(\.py(::\w+)?)?", code)]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(source.ROOT)))
def test_every_test_that_a_page_names_exists(path):
    assert [named for named in _named(path.read_text()) if not _is_there(named)] == []


def test_every_promise_names_a_test():
    rows = [line for line in PROMISES.read_text().splitlines() if line.startswith("| ")]
    promises = [row for row in rows if not row.startswith(("| ---", "| promise"))]
    assert promises
    assert [row for row in promises if not _named(row)] == []


@pytest.mark.parametrize("named", ["tests/unit/test_ids.py", "test_ids.py", "test_ids.py::test_nothing"])
def test_a_name_is_looked_for_where_it_should_be(named):
    assert _is_there(named) == ("nothing" not in named)
    assert not _is_there("test_a_test_that_nobody_wrote")
    assert not _is_there("tests/integration/test_ids.py")

"""The pages say what the code does: generated ones are current, commands exist, links lead somewhere."""

from __future__ import annotations

import itertools
import re

import pytest
import typer

from docs import generate, source
from swarm_core import contract, errors
from swarm_core.store import tokens
from swarm_mcp import contract as mcp
from swarm_mcp import door, permissions
from swarm_ui.cli.main import app

PAGES = sorted(
    [*source.ROOT.glob("*.md"), *(source.ROOT / "docs").rglob("*.md")],
    key=lambda path: str(path.relative_to(source.ROOT)),
)
COMMANDS = set(typer.main.get_command(app).commands)
TARGETS = set(re.findall(r"^([a-z]+):", (source.ROOT / "Makefile").read_text(), re.MULTILINE))
_FENCED = re.compile(r"^```(?:sh|console|text)?\n(.*?)^```", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")


def _name(path):
    return str(path.relative_to(source.ROOT))


def _commands(text, program):
    """The word after `program` in every line of a code block and every piece of inline code."""
    blocks = [line.strip().removeprefix("$ ") for block in _FENCED.findall(text) for line in block.splitlines()]
    for line in [*blocks, *_INLINE.findall(text)]:
        found = re.match(rf"{program} ([a-z]+)\b", line)
        if found:
            yield found[1]


def test_generated_pages_are_up_to_date():
    assert [_name(path) for path in generate.outdated()] == [], "run `make docs`"


def test_check_mode_changes_nothing_and_tells_with_its_exit_code(tmp_path, monkeypatch):
    monkeypatch.setattr(generate, "FOLDER", source.ROOT / "docs" / "not-there")
    assert generate.main(["--check"]) == 1
    assert not (source.ROOT / "docs" / "not-there").exists()


@pytest.mark.parametrize("path", PAGES, ids=_name)
def test_every_make_target_that_is_named_exists(path):
    assert set(_commands(path.read_text(), "make")) - TARGETS == set()


@pytest.mark.parametrize("path", PAGES, ids=_name)
def test_every_swarm_command_that_is_named_exists(path):
    assert set(_commands(path.read_text(), "swarm")) - COMMANDS == set()


@pytest.mark.parametrize("path", PAGES, ids=_name)
def test_every_link_leads_to_a_file(path):
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text())
    local = [link for link in links if "://" not in link]
    assert [link for link in local if not (path.parent / link).exists()] == []


@pytest.mark.parametrize("path", PAGES, ids=_name)
def test_pages_address_the_reader_plainly(path):
    prose = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert re.findall(r"\b(?:simply|just|easily|obviously)\b", prose, re.IGNORECASE) == []


def test_the_readme_names_set_up_demo_and_tests():
    text = (source.ROOT / "README.md").read_text()
    assert {"setup", "demo", "test"} <= set(_commands(text, "make"))


def test_every_page_in_docs_is_linked_from_another():
    linked = set()
    for path in PAGES:
        for link in re.findall(r"\]\(([^)#\s]+)", path.read_text()):
            target = (path.parent / link).resolve()
            linked |= {target, *(target.glob("*.md") if target.is_dir() else ())}
    pages = {path.resolve() for path in PAGES if path.is_relative_to(source.ROOT / "docs")}
    assert sorted(_name(path) for path in pages - linked) == []


def _table(page, heading):
    """The rows below a table's head, without backticks."""
    lines = (source.ROOT / "docs" / page).read_text().splitlines()
    start = lines.index(heading) + 2
    rows = itertools.takewhile(lambda line: line.startswith("|"), lines[start:])
    return [tuple(cell.strip() for cell in row.replace("`", "").strip("|").split("|")) for row in rows]


def test_the_page_about_tokens_lists_every_scope_with_what_it_opens():
    assert dict(_table("how-to/tokens.md", "| scope | opens |")) == tokens.SCOPES
    for tool, scope in permissions.SCOPES.items():
        assert tool in tokens.SCOPES[scope]


def test_the_page_of_the_contract_lists_every_code_and_number():
    page = "contracts/mcp-error-codes.md"
    assert dict(_table(page, "| code | meaning |")) == contract.CANONICAL
    numbers = {int(number): code for number, code, _ in _table(page, "| number | `error.data.code` | when |")}
    assert numbers == {number: code for number, (code, _) in mcp.NUMBERS.items()}
    text = (source.ROOT / "docs" / page).read_text()
    assert [code for code in errors.CODES if f"| `{code}` |" not in text] == []


def test_what_is_said_to_be_refused_as_a_claim_of_identity_is():
    text = (source.ROOT / "docs/explanation/decisions/0010-targets-in-arguments.md").read_text()
    named = [name.lower().encode() for name in re.findall(r"`(X-[A-Z][\w-]*[a-z])`", text)]
    assert len(named) >= 4
    for name in named:
        assert door._claim([(name, b"x")], b"") is not None
    assert door._claim([], b"caller=x") is not None
    assert door._claim([(b"user-agent", b"x"), (b"x-request-id", b"x")], b"") is None

"""Every package that is imported is declared, and every declared one is locked with its hashes."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OURS = {"swarm_core", "swarm_mcp", "swarm_ui", "tests", "docs", "benchmarks"}
PRODUCT = ("swarm_core", "swarm_mcp", "swarm_ui")
LOCK = ROOT / "requirements.lock"


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def named(requirement: str) -> str:
    found = re.match(r"[\w.-]+", requirement)
    assert found, requirement
    return normal(found[0])


def declared(*, dev: bool) -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    found = [*project["project"]["dependencies"], *(project["dependency-groups"]["dev"] if dev else ())]
    return {named(requirement) for requirement in found}


def imported(path: Path) -> set[str]:
    """The first word of every absolute import, wherever it stands in the file."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found - OURS - sys.stdlib_module_names


def undeclared(folders: tuple[str, ...], known: set[str]) -> dict[str, str]:
    distributions = packages_distributions()
    files = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return {
        module: str(path.relative_to(ROOT))
        for path in files
        for module in imported(path)
        if not {normal(name) for name in distributions.get(module, [module])} & known
    }


def locked() -> dict[str, str]:
    """The block of each package, with its hashes."""
    blocks = re.split(r"^(?=[\w.-]+==)", LOCK.read_text(), flags=re.MULTILINE)
    return {named(block): block for block in blocks if "==" in block.partition("\n")[0]}


def test_the_product_imports_only_what_it_declares() -> None:
    assert undeclared(PRODUCT, declared(dev=False)) == {}


def test_tests_and_tools_import_only_what_is_declared() -> None:
    assert undeclared(("tests", "docs", "benchmarks"), declared(dev=True)) == {}


def test_an_undeclared_import_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def f():\n    import numpy.linalg\n    from yaml import safe_load\n")
    assert imported(tmp_path / "a.py") == {"numpy", "yaml"}


def test_everything_declared_is_locked_with_hashes() -> None:
    assert declared(dev=True) - set(locked()) == set(), "run make lock"
    assert [name for name, block in locked().items() if "--hash=sha256:" not in block] == []


def test_what_is_installed_is_what_is_locked() -> None:
    import importlib.metadata as metadata

    wrong = {}
    for name in declared(dev=True):
        version = metadata.version(name)
        if f"=={version}" not in locked()[name].partition("\n")[0]:
            wrong[name] = version
    assert wrong == {}, "run make setup"


@pytest.mark.parametrize("path", [LOCK, ROOT / "tests" / "npm" / "package-lock.json"], ids=lambda p: p.name)
def test_a_lock_names_no_place_to_download_from(path: Path) -> None:
    assert re.findall(r"https?://(?!\S*(?:opencollective|github\.com/sponsors))\S+", path.read_text()) == []

"""Every package that is imported is declared, and every declared one is locked with its hashes."""

from __future__ import annotations

import ast
import importlib.metadata as metadata
import json
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
NPM_LOCKS = sorted((ROOT / "tests" / "npm").rglob("package-lock.json"))


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
    assert [
        name for name, block in locked().items() if not re.search(r"--hash=sha256:[0-9a-f]{64}\b", block)
    ] == []


def test_the_lock_has_nothing_but_pinned_packages() -> None:
    """No other index, file, address or version range, which pip would take without a hash."""
    lines = [line for line in LOCK.read_text().splitlines() if line.strip() and not line.lstrip().startswith("#")]
    pinned = re.compile(r"[\w.-]+==[\w.!+-]+( ; [^\\]+)? \\|    --hash=sha256:[0-9a-f]{64}( \\)?")
    assert [line for line in lines if not pinned.fullmatch(line)] == []


def test_everything_locked_is_declared_or_needed_by_what_is() -> None:
    needed, more = set[str](), declared(dev=True)
    while more:
        needed |= more
        more = {name for one in more for name in needs(one)} - needed
    assert set(locked()) - needed == set(), "run make lock"


def needs(name: str) -> set[str]:
    """What a locked package may ask for, whatever the system; extras too, since others may ask for those."""
    if name not in locked():
        return set()
    try:
        return {named(one) for one in metadata.requires(name) or ()}
    except metadata.PackageNotFoundError:  # locked for another system than this one
        return set()


def npm_packages(path: Path) -> dict[str, dict[str, object]]:
    """Every package of a lock by its folder, without the entry that stands for our own package.json."""
    packages: dict[str, dict[str, object]] = json.loads(path.read_text())["packages"]
    return {folder: entry for folder, entry in packages.items() if folder}


@pytest.mark.parametrize("path", NPM_LOCKS, ids=lambda p: p.parent.name)
def test_every_npm_package_is_locked_with_a_hash(path: Path) -> None:
    packages = npm_packages(path)
    assert packages
    strong = re.compile(r"sha512-[A-Za-z0-9+/]{86}==")
    assert [f for f, entry in packages.items() if not strong.fullmatch(str(entry.get("integrity")))] == []
    assert [f for f, entry in packages.items() if entry.get("link") or not entry.get("version")] == []


@pytest.mark.parametrize("path", NPM_LOCKS, ids=lambda p: p.parent.name)
def test_an_npm_lock_is_of_the_package_file_beside_it(path: Path) -> None:
    wanted = json.loads((path.parent / "package.json").read_text())
    root = json.loads(path.read_text())["packages"][""]
    for group in ("dependencies", "devDependencies", "optionalDependencies"):
        assert root.get(group, {}) == wanted.get(group, {}), "run make lock"


def test_there_is_a_lock_beside_every_npm_package_file() -> None:
    files = sorted((ROOT / "tests" / "npm").rglob("package.json"))
    assert [path.with_name("package-lock.json") for path in files] == NPM_LOCKS


def test_what_is_installed_is_what_is_locked() -> None:
    wrong = {}
    for name in declared(dev=True):
        version = metadata.version(name)
        if f"=={version}" not in locked()[name].partition("\n")[0]:
            wrong[name] = version
    assert wrong == {}, "run make setup"


@pytest.mark.parametrize("path", [LOCK, *NPM_LOCKS], ids=lambda p: f"{p.parent.name}/{p.name}")
def test_a_lock_names_no_place_to_download_from(path: Path) -> None:
    assert re.findall(r"https?://(?!\S*(?:opencollective|github\.com/sponsors))\S+", path.read_text()) == []

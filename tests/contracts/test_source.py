"""What holds for every file: small modules with a stated purpose, no blind except, nothing of one machine."""

from __future__ import annotations

import ast
import re
import subprocess

import pytest

from docs import source

LONGEST_MODULE = 700
_PYTHON = ("swarm_core", "swarm_mcp", "swarm_ui", "docs", "benchmarks", "tests")
# The boundaries: where a failure of any kind becomes a log line, an exit code or an answer.
_MAY_CATCH_ALL = frozenset(
    {
        "swarm_core/ops/reconcile.py",
        "swarm_core/ops/supervise.py",
        "swarm_core/process.py",
        "swarm_mcp/backlog.py",
        "swarm_mcp/dispatch.py",
        "swarm_mcp/protocol.py",
        "swarm_core/ops/courier.py",
        "swarm_core/ops/follow.py",
        "swarm_core/ops/merger.py",
        "swarm_mcp/hooks.py",
        "swarm_mcp/server.py",
        "swarm_mcp/watch.py",
        "swarm_mcp/worker/handle.py",
        "swarm_mcp/worker/process.py",
        "swarm_ui/cli/main.py",
        "swarm_ui/web/asking.py",
        "swarm_ui/web/endpoint.py",
        "swarm_ui/web/look.py",
        "swarm_ui/web/terminals.py",
    }
)
_OF_THE_STORE_FOR_TESTS = frozenset({("migrations", "names")})
# Put together here, or this file would name them itself.
_HOSTS = ["pypi" + ".org", "python" + "hosted", "registry." + "npmjs", "deb." + "debian", "archive." + "ubuntu"]
_AUTHORS = ["co-authored" + "-by", "signed-off" + "-by", "__author" + "__", "@" + "author"]
_MACHINE_PATH = re.compile(r"(?<![\w.}>~\-])/(?:root|work|home/[a-z]|Users/[A-Za-z])(?:/|\b(?!-))")


def _name(path):
    return str(path.relative_to(source.ROOT))


def _repository_files():
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=source.ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    paths = [source.ROOT / name for name in listed.stdout.decode().split("\0") if name]
    return [path for path in paths if path.is_file() and b"\0" not in path.read_bytes()[:8000]]


MODULES = source.modules(*_PYTHON)


def test_no_module_is_too_long():
    lengths = {_name(path): len(path.read_text().splitlines()) for path in MODULES}
    assert {name: length for name, length in lengths.items() if length > LONGEST_MODULE} == {}


def test_every_module_says_what_it_is_for():
    stated = [path for path in MODULES if not path.name.startswith("test_")]
    assert [_name(path) for path in stated if not ast.get_docstring(source.tree(path))] == []


def test_nothing_catches_everything_except_the_boundaries():
    found = {}
    for path in source.modules():
        lines = path.read_text().splitlines()
        for node in ast.walk(source.tree(path)):
            if isinstance(node, ast.ExceptHandler) and _catches_all(node):
                found.setdefault(_name(path), []).append(lines[node.lineno - 1])
    assert found.keys() - _MAY_CATCH_ALL == set()
    assert [line for lines in found.values() for line in lines if not _says_why(line)] == []


def _says_why(line):
    return re.sub(r"noqa(: [A-Z0-9, ]+)?", "", line.partition("#")[2]).strip(" #-") != ""


def _catches_all(handler):
    """A BaseException that is raised again is tidying up and catches nothing."""
    if handler.type is None:
        return True
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {kind.id for kind in kinds if isinstance(kind, ast.Name)}
    raises_again = any(isinstance(node, ast.Raise) for node in ast.walk(handler))
    return "Exception" in names or ("BaseException" in names and not raises_again)


def test_only_known_modules_of_the_dashboard_choose_threads():
    """Of the others whoever starts a program is found: `threads` refuses that, `slow` has pools for it."""
    ways = {"run_in_threadpool", "run_in_executor", "to_thread", "ThreadPoolExecutor", "Thread", "submit"}
    found = set()
    for path in source.modules("swarm_ui/web"):
        named = {getattr(node, "attr", getattr(node, "id", "")) for node in ast.walk(source.tree(path))}
        found |= {path.stem} if named & ways else set()
    assert found == {"threads", "slow", "runner", "hub", "look", "terminals", "app"}


def test_what_the_store_offers_is_used():
    offered = set()
    for path in source.modules("swarm_core/store"):
        for node in source.tree(path).body:
            offered.update((path.stem, name) for name in _defined(node) if not name.startswith("_"))
    used = {use for path in source.modules(*_PYTHON[:-1]) for use in _uses_of_the_store(path)}
    assert sorted(f"{module}.{name}" for module, name in offered - used - _OF_THE_STORE_FOR_TESTS) == []


def _defined(node):
    """The names that a statement of a module gives to others; what is decorated is registered somewhere."""
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        registered = [d for d in node.decorator_list if isinstance(d, ast.Call) and isinstance(d.func, ast.Name)]
        return [] if registered else [node.name]
    return []


def _uses_of_the_store(path):
    """(module, name) of everything of the store that a module names, its own names included."""
    own, called = path.stem if path.parent.name == "store" else "", {}
    for node in ast.walk(source.tree(path)):
        if isinstance(node, ast.ImportFrom) and node.module == "swarm_core.store":
            called.update({alias.asname or alias.name: alias.name for alias in node.names})
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("swarm_core.store."):
            yield from ((node.module.rpartition(".")[2], alias.name) for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield own, node.id
    for node in ast.walk(source.tree(path)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in called:
            yield called[node.value.id], node.attr


def test_no_file_names_a_place_of_one_machine():
    found = {}
    for path in _repository_files():
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1):
            if _MACHINE_PATH.search(line):
                found[f"{_name(path)}:{number}"] = line.strip()
    assert found == {}


def test_no_file_names_a_package_registry_or_an_author():
    found = {}
    for path in _repository_files():
        text = path.read_text(errors="replace").lower()
        named = [word for word in [*_HOSTS, *_AUTHORS] if word in text]
        if named:
            found[_name(path)] = named
    assert found == {}

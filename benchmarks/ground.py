"""What the benchmarks stand on: a private environment, homes, generated repositories, processor time."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from swarm_core import config
from swarm_core.swarm import Swarm
from swarm_core.tmux import command

_KEEP = ("PATH", "LANG", "LC_ALL", "VIRTUAL_ENV", "TERM", "PYTHONPATH")
_FILES_PER_FOLDER = 25
_FOLDERS_PER_FOLDER = 20


@contextlib.contextmanager
def isolated() -> Iterator[Path]:
    """A temporary folder, and an environment without the person's home, configuration and tokens."""
    root = Path(tempfile.mkdtemp(prefix="swb-"))
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update({name: before[name] for name in _KEEP if name in before})
    os.environ.update({"HOME": str(root), "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull})
    for role in ("AUTHOR", "COMMITTER"):
        os.environ |= {f"GIT_{role}_NAME": "Bench", f"GIT_{role}_EMAIL": "bench@example.invalid"}
    try:
        yield root
    finally:
        os.environ.clear()
        os.environ.update(before)
        shutil.rmtree(root, ignore_errors=True)


class Home:
    """A SWARM_HOME with a tmux server of its own, ended with the block."""

    def __init__(self, path: Path, **flags: object) -> None:
        self.environ = os.environ | {"SWARM_HOME": str(path)}
        self.settings = config.load(self.environ, **flags)

    def __enter__(self) -> Home:
        return self

    def __exit__(self, *_: object) -> None:
        command.run(self.settings.tmux_socket, ["kill-server"], check=False)
        shutil.rmtree(self.settings.home, ignore_errors=True)

    def open(self) -> Swarm:
        return Swarm.open(self.settings, self.environ)


def make_repo(path: Path, files: int) -> Path:
    """A checked-out repository of text files of 200 to 2000 bytes in nested folders, the same on every run."""
    path.mkdir(parents=True)
    run("git", "init", "-q", "-b", "main", cwd=path)
    importer = subprocess.Popen(
        ["git", "-c", "fastimport.unpackLimit=0", "fast-import", "--quiet", "--depth=0"],
        cwd=path,
        stdin=subprocess.PIPE,
    )
    assert importer.stdin is not None
    with importer.stdin as pipe:
        pipe.write(b"commit refs/heads/main\ncommitter Bench <bench@example.invalid> 0 +0000\ndata 5\nfirst\n")
        for name, text in _files(files):
            pipe.write(b"M 100644 inline %s\ndata %d\n%s\n" % (name.encode(), len(text), text))
    if importer.wait(300) != 0:
        raise RuntimeError("git fast-import failed")
    run("git", "reset", "-q", "--hard", cwd=path)
    return path


def _files(count: int) -> Iterator[tuple[str, bytes]]:
    chance = random.Random(count)
    words = [bytes(chance.choices(b"abcdefghijklmnopqrstuvwxyz_", k=chance.randint(2, 10))) for _ in range(5000)]
    text = b" ".join(chance.choices(words, k=50_000)).replace(b" a", b"\n    ")
    for n in range(count):
        folder = n // _FILES_PER_FOLDER
        start = chance.randrange(len(text) - 2000)
        body = text[start : start + chance.randint(180, 1980)]
        yield f"area{folder // _FOLDERS_PER_FOLDER}/part{folder}/file{n}.py", b"# %09d\n%s\n" % (n, body)


def run(*argv: str | Path, cwd: Path | None = None) -> None:
    """Run a program to its end, bounded; a failure raises."""
    subprocess.run(argv, cwd=cwd, check=True, capture_output=True, timeout=300)


def output(*argv: str | Path) -> str:
    """What a program printed on one line."""
    return subprocess.run(argv, check=True, capture_output=True, timeout=300).stdout.decode().strip()


def wait_for(condition: Callable[[], object], *, what: str, timeout: float = 60.0, every: float = 0.01) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout:g} s: {what}")
        time.sleep(every)


def timed(do: Callable[[], object]) -> tuple[float, float]:
    """Seconds the call takes, and processor seconds with its programs; earlier garbage is not its burden."""
    gc.collect()
    used, began = own_cpu(), time.perf_counter()
    do()
    return time.perf_counter() - began, own_cpu() - used


def own_cpu() -> float:
    """Processor seconds of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def cpu_of(pid: int) -> float:
    """Processor seconds of a living process, without its children."""
    return sum(_ticks(pid)[:2]) / os.sysconf("SC_CLK_TCK")


def cpu_of_children(pid: int) -> float:
    """Processor seconds of the children of a living process, those that have ended."""
    return sum(_ticks(pid)[2:]) / os.sysconf("SC_CLK_TCK")


def worker_of(pid: int) -> int:
    """The worker of a coordinator: the child that runs the same program."""
    program = Path(f"/proc/{pid}/cmdline").read_bytes()
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return next(int(child) for child in children if Path(f"/proc/{child}/cmdline").read_bytes() == program)


def _ticks(pid: int) -> list[int]:
    """Own user and system time, then those of ended children."""
    return [int(n) for n in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]]


def server_pid(home: Home) -> int:
    return int(command.run(home.settings.tmux_socket, ["display-message", "-p", "#{pid}"]).text)

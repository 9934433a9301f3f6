"""The git folder of a repository inside a worktree, rebuilt from what was stored of it."""

from __future__ import annotations

import hashlib
import secrets
import zlib
from pathlib import Path

from swarm_core.git.checkout import Checkout
from swarm_core.git.preserve import Inside
from swarm_core.git.quarantine import reading_and_writing
from swarm_core.git.restore_state import files_of, read_blobs


def rebuild_git_dir(at: Checkout, one: Inside) -> None:
    """Make `.git` of a stored repository beside its place, then rename it: a kill leaves none or all of it."""
    is_module = one.kind == "module"
    place = at.git_dir / "modules" / one.path if is_module else at.path / one.path / one.name
    stored = {name: (mode, oid) for mode, oid, name in files_of(at, one.commit)}
    files = {name.removeprefix("git/"): facts for name, facts in stored.items() if name.startswith("git/")}
    if not files or place.exists():
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    fresh = place.parent / f".swarm-restore-{secrets.token_hex(4)}"
    for folder in ("objects/pack", "objects/info", "refs/heads", "refs/tags"):  # git wants them, even empty
        (fresh / folder).mkdir(parents=True)
    by_oid: dict[str, list[str]] = {}
    for name, (_, oid) in files.items():
        by_oid.setdefault(oid, []).append(name)
    for oid, content in read_blobs(at, list(by_oid)):
        for name in by_oid[oid]:
            (fresh / name).parent.mkdir(parents=True, exist_ok=True)
            (fresh / name).write_bytes(content)
            if files[name][0] == "100755":
                (fresh / name).chmod(0o755)
    if not any(name.startswith("objects/") for name in files):
        _copy_objects(at, one.commit, fresh / "objects")
        tags = {name.removeprefix("tags/"): oid for name, (_, oid) in stored.items() if name.startswith("tags/")}
        bodies = dict(read_blobs(at, list(tags.values())))
        for tag, oid in tags.items():
            write_loose(fresh / "objects", tag, b"tag", bodies[oid])
    if one.kind in {"submodule", "module"}:  # the address of its files
        how = ("config", "--file", str(fresh / "config"), "--unset-all", "core.worktree")
        at.run(*how, ok_codes=(0, 5))
    fresh.rename(place)


def write_loose(objects: Path, oid: str, kind: bytes, body: bytes) -> None:
    """Write one object under its id."""
    content = b"%s %d\0%s" % (kind, len(body), body)
    digest = hashlib.sha1 if len(oid) == 40 else hashlib.sha256
    if digest(content).hexdigest() != oid:
        return
    folder = objects / oid[:2]
    folder.mkdir(exist_ok=True)
    (folder / oid[2:]).write_bytes(zlib.compress(content))


def _copy_objects(at: Checkout, commit: str, target: Path) -> None:
    parents = at.line("rev-list", "--parents", "--max-count=1", commit).split()[1:]
    trees = at.run("ls-tree", "-d", "-z", "--object-only", commit, "--", "index", "objects").decode().split("\0")
    tips = [*parents, *(tree for tree in trees if tree)]
    if not tips:
        return
    asked = "".join(f"{tip}\n" for tip in tips).encode()
    needed = at.run("rev-list", "--objects", "--no-object-names", "--stdin", stdin=asked)
    writing = at.using(reading_and_writing(target, [at.objects]))
    writing.run("pack-objects", "--quiet", "--window=0", str(target / "pack" / "pack"), stdin=needed)

"""New objects kept beside a repository until they enter it as one pack that is synced to disk.

Syncing thousands of loose objects would take longer than everything else; a pack is synced once. What a killed
process leaves is told by its lock, which nobody holds then, and is removed by the next one.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from swarm_core import files, locks
from swarm_core.errors import ExternalFailure
from swarm_core.git.admin import remove_tree
from swarm_core.git.checkout import Checkout

DURABLE = ("-c", "core.fsync=all", "-c", "core.fsyncMethod=fsync")
_FOLDER = "swarm-objects-"  # git removes what begins with tmp_ while it is in use, when told to prune now
_FILES = (b"blob", b"tree")
_KEPT = b"swarm stores work in this pack\n"
_FAST = ("-c", "pack.compression=1", "-c", "pack.packSizeLimit=0", "-c", "pack.writeReverseIndex=false")


class Quarantine:
    """Objects written into `folder`; those of the repository can be read, and those of `sources` as well."""

    def __init__(self, at: Checkout, folder: Path) -> None:
        self._at = at
        self._folder = folder
        self._sources: list[Path] = []
        self._demanded: list[str] = []
        self._keep = contextlib.ExitStack()

    @property
    def env(self) -> Mapping[str, str]:
        return reading_and_writing(self._folder, [self._at.objects])

    @property
    def joined(self) -> Mapping[str, str]:
        """`env` with the objects of the sources, for reading.

        Write nothing with it that a source may have: git would renew the times of the source's files.
        """
        return reading_and_writing(self._folder, [self._at.objects, *self._sources])

    def read_from(self, objects: Path) -> None:
        """Let objects of another repository be read, and packed with the rest."""
        self._sources.append(objects)

    def demand(self, oids: Sequence[str]) -> None:
        """Have blobs and trees packed that the repository lacks, though a commit that is known may need them."""
        self._demanded += oids

    def admit(self, commit: str, *, known: Sequence[str]) -> str:
        """Pack what the commit needs beyond `known` (revisions and globs of refs) into the repository.

        Returns the pack's name. When this returns, the pack is on disk. Until `release` it has a `.keep`: no ref
        leads to it yet, and a `git gc` would drop it, even one that ends when the ref has been written.
        """
        listing = ("rev-list", "--objects", "--no-object-names", "--ignore-missing", commit, "--not", *known)
        needed = self._at.using(self.joined).run(*listing)
        needed += "".join(f"{oid}\n" for oid in self._missing()).encode()
        target = self._at.objects / "pack"
        target.mkdir(exist_ok=True)
        reading = reading_and_writing(self._at.objects, [self._folder, *self._sources])
        ready = self._folder / "ready"
        ready.mkdir()
        packing = ("pack-objects", "--quiet", "--window=0", str(ready / "pack"))
        stem = f"pack-{self._at.using(reading).line(*DURABLE, *_FAST, *packing, stdin=needed)}"
        self._keep.enter_context(_kept(self._folder / "keep", target / f"{stem}.keep"))
        for suffix in (".pack", ".idx"):  # git looks for the index
            (ready / f"{stem}{suffix}").replace(target / f"{stem}{suffix}")
        sync_folder(target)
        return f"{stem}.pack"

    def _missing(self) -> list[str]:
        """What was demanded and the repository itself has not, or cannot read."""
        if not self._demanded:
            return []
        asked = "".join(f"{oid}\n" for oid in self._demanded).encode()
        answers = self._at.run("cat-file", "--batch-check=%(objecttype)", stdin=asked).splitlines()
        return [oid for oid, told in zip(self._demanded, answers, strict=True) if told not in _FILES]

    def release(self) -> None:
        """Let `git gc` have the pack; a ref leads to it, or it was given up."""
        self._keep.close()


@contextlib.contextmanager
def quarantine(at: Checkout) -> Iterator[Quarantine]:
    """A place for new objects, removed at the end, with the `.keep` of a pack that was admitted."""
    _remove_abandoned(at.objects)
    folder, fd = _claim_folder(at.objects)
    store = Quarantine(at, folder)
    try:
        yield store
    finally:
        store.release()
        remove_tree(folder)
        os.close(fd)


def _claim_folder(above: Path) -> tuple[Path, int]:
    """Make a folder and lock it; one that was taken for abandoned before it was locked is made anew."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_FOLDER, dir=above))
        with contextlib.suppress(FileNotFoundError):
            fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            locks.claim(fd)
            if folder.exists():
                return folder, fd
            os.close(fd)


@contextlib.contextmanager
def _kept(fresh: Path, place: Path) -> Iterator[None]:
    """Have git keep a pack, by a file that is locked before it is seen; a person's own stays."""
    if place.exists():
        yield
        return
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, _KEPT)
        locks.claim(fd)
        fresh.rename(place)
        yield
        place.unlink(missing_ok=True)
    finally:
        os.close(fd)


def _remove_abandoned(objects: Path) -> None:
    """Remove what processes that were killed have left."""
    keeps = [place for place in (objects / "pack").glob("*.keep") if _content(place) == _KEPT]
    for place in (*keeps, *objects.glob(f"{_FOLDER}*")):
        with contextlib.suppress(FileNotFoundError):
            fd = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                if not locks.claim(fd, wait=False):
                    continue
                if place.is_dir():
                    remove_tree(place)
                else:
                    place.unlink()
            finally:
                os.close(fd)


def _content(place: Path) -> bytes:
    try:
        return files.read_regular(place, len(_KEPT) + 1)
    except (OSError, ExternalFailure):
        return b""


def sync_ref(common_dir: Path, ref: str) -> None:
    """Make a ref durable, whether it is a file of its own or a line in `packed-refs`."""
    sync_up(common_dir / "packed-refs", common_dir)
    sync_up(common_dir / ref, common_dir)


def sync_object(objects: Path, oid: str) -> None:
    """Make a loose object durable; one in a pack already is."""
    sync_up(objects / oid[:2] / oid[2:], objects)


def sync_up(place: Path, top: Path) -> None:
    """Make a file durable with its name: it and the folders above it, up to `top`; what is missing is skipped."""
    for one in (place, *place.parents):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            sync_folder(one)
        if one == top:
            return


def sync_folder(folder: Path) -> None:
    """Make renames in a folder durable; git itself syncs files only."""
    fd = os.open(folder, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def reading_and_writing(target: Path, sources: Sequence[Path]) -> dict[str, str]:
    listed = ":".join(_quoted(source) for source in sources)
    return {"GIT_OBJECT_DIRECTORY": str(target), "GIT_ALTERNATE_OBJECT_DIRECTORIES": listed}


def _quoted(path: Path) -> str:
    text = str(path).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{text}"'

"""Everything in a worktree that no branch has, stored as one commit under refs/swarm and synced to disk.

Files are the commit's tree; staging, operations in progress, repositories inside and commits that only a reflog
knows are among its parents, so that one ref holds it all. Nothing in the worktree or its branches changes.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from swarm_core import files
from swarm_core.errors import CommandFailed, Conflict, InvalidInput
from swarm_core.git import gitfiles, parts, snapshot
from swarm_core.git.checkout import Checkout, find_checkout, open_checkout
from swarm_core.git.command import _git, check_commit_id, check_swarm_ref, nul_list
from swarm_core.git.identity import FIXED_DATE, IDENTITY
from swarm_core.git.inside import find_linked, refuse_closed, search
from swarm_core.git.quarantine import DURABLE, Quarantine, quarantine, sync_ref
from swarm_core.git.refs import LIST_REFS, current_branch, head_commit, plain_refs, ref_commit
from swarm_core.git.snapshot import GITLINK, Snapshot

_PRESERVED = "refs/swarm/preserved/"
_ON_BRANCHES = ("--branches", "--tags", "--remotes")
_HALF_WRITTEN = 8  # more than a checkout writes at the same time


@dataclass(frozen=True, slots=True)
class Preserved:
    """`files` and `bytes` are what the snapshot changes; `pack` is the file that brought the new objects."""

    ref: str
    commit: str
    files: int
    bytes: int
    pack: str = ""


@dataclass(frozen=True, slots=True)
class Nested:
    """A repository in a record of an older version; its refs are under `modules_prefix(ref, number)`."""

    path: str
    number: int
    url: str | None
    head: str | None
    branch: str | None
    submodule: bool


@dataclass(frozen=True, slots=True)
class Inside:
    """Something inside the worktree, stored as a commit of its own.

    kind `repository` or `submodule` (whose git folder was elsewhere): the commit's tree has the git folder as
    `git` and the files as `work`; `module`: a submodule's repository without a folder, whose path is the one below
    `modules` of the worktree's git folder; `worktree`: a linked worktree of this repository, with a record of its
    own; `file`: only what is named `.git` there, as `git`.
    """

    path: str
    name: str
    kind: str
    commit: str


@dataclass(frozen=True, slots=True)
class Record:
    """What a preserved commit says about itself beside its files.

    `index` is a commit of what was staged; with `stages` its tree has a folder per stage. `state` is a commit of
    the worktree's git folder.
    """

    head: str | None
    branch: str | None
    index: str | None
    nested: list[Nested] = field(default_factory=list)
    stages: bool = False
    state: str | None = None
    inside: list[Inside] = field(default_factory=list)


def preserve(path: str | Path, *, ref: str, message: str, unfinished: bool = False) -> Preserved | None:
    """Store what only this worktree has (ignored files aside) under the new ref; None when nothing would be lost.

    That includes commits which no branch, tag or remote branch has. In an `unfinished` checkout a missing file is
    no work of anybody's. The folder may have been renamed. When this returns, all of it is on disk.
    Raises Conflict when the ref exists, and with WORK_NOT_STORED for files that cannot be read or keep changing.
    """
    check_swarm_ref(ref)
    if not ref.startswith(_PRESERVED):
        raise InvalidInput(f"{ref!r} is not a ref under {_PRESERVED}")
    at = open_checkout(Path(path))
    with _refusing_unreadable(at.path):
        try:
            return _store(at, ref=ref, message=message, unfinished=unfinished, take_over=True)
        except CommandFailed:
            if ref_commit(at.path, ref) is not None:
                raise
            # A damaged repository inside cannot be read object by object, or somebody has pruned meanwhile.
            return _store(at, ref=ref, message=message, unfinished=unfinished, take_over=False)


def check_storable(path: str | Path) -> None:
    """Raise Conflict (WORK_NOT_STORED) for what `preserve` would refuse at first sight; writes nothing."""
    at = open_checkout(Path(path))
    found = search(at.path)
    linked = {entry.folder: entry.path for entry in find_linked(at, found.dot_gits)}
    with _refusing_unreadable(at.path):
        parts.refuse_unstorable(at, found, linked)


def verify_preserved(repo: str | Path, preserved: Preserved) -> None:
    """Check from the repository's own git folder that everything stored can be read back.

    Raises Conflict (WORK_NOT_STORED) when the ref is elsewhere, an object is missing or damaged, or the snapshot
    has other files than were stored. Costs grow with what was stored, not with the history.
    """
    common_dir = open_checkout(Path(repo)).common_dir
    at = Checkout(common_dir, common_dir, common_dir)
    try:
        found = at.line("rev-parse", "--verify", "--quiet", preserved.ref)
        at.run("rev-list", "--objects", "--quiet", preserved.commit, "--not", *_ON_BRANCHES)
        extent = _extent(at, read_record(common_dir, preserved.commit).head, f"{preserved.commit}^{{tree}}")
        pack = at.objects / "pack" / preserved.pack
        if preserved.pack and pack.exists():  # else git has repacked it
            at.run("verify-pack", "--", str(pack))
    except (CommandFailed, InvalidInput) as error:
        raise snapshot.not_stored("what was stored cannot be read back", [preserved.ref]) from error
    if found != preserved.commit or extent != (preserved.files, preserved.bytes):
        raise snapshot.not_stored("the repository holds something else than was stored", [preserved.ref])


def measure_preserved(repo: str | Path, ref: str) -> Preserved | None:
    """What a ref under which work was preserved holds; None when nothing of ours is there."""
    check_swarm_ref(ref)
    common_dir = open_checkout(Path(repo)).common_dir
    at, commit = Checkout(common_dir, common_dir, common_dir), ref_commit(repo, ref)
    if commit is None:
        return None
    try:
        extent = _extent(at, read_record(common_dir, commit).head, f"{commit}^{{tree}}")
    except InvalidInput:
        return None
    return Preserved(ref, commit, *extent)


def preserved_refs(repo: str | Path, instance: str | None) -> list[tuple[str, str]]:
    """An instance's preserved refs, or all, with their commits, ordered by name (and so by time)."""
    prefix = f"{_PRESERVED}{instance}" if instance is not None else _PRESERVED.rstrip("/")
    check_swarm_ref(prefix)
    listed = _git(repo, "for-each-ref", "--sort=refname", "--format=%(objectname) %(refname)%00", f"{prefix}/")
    pairs = [line.lstrip("\n").split(" ", 1) for line in nul_list(listed)]
    return [(pair[1], pair[0]) for pair in pairs if len(pair) == 2]


def delete_ref(repo: str | Path, ref: str, old: str) -> bool:
    """Delete a preserved ref that is at `old`, with what older versions stored beside it; False if missing."""
    check_swarm_ref(ref)
    check_commit_id(old)
    if ref_commit(repo, ref) is None:
        return False
    nested = _git(repo, "for-each-ref", "--format=delete %(refname) %(objectname)", f"{modules_root(ref)}/")
    commands = f"delete {ref} {old}\n".encode() + nested
    _git(repo, "update-ref", "--no-deref", "--stdin", stdin=commands)
    return True


def modules_prefix(ref: str, number: int) -> str:
    return f"{modules_root(ref)}/{number}"


def modules_root(ref: str) -> str:
    return f"refs/swarm/modules/{ref.removeprefix(_PRESERVED)}"


def read_record(repo: str | Path, commit: str) -> Record:
    """What `preserve` wrote at the end of the commit's message."""
    body = _git(repo, "cat-file", "commit", commit).decode(errors="replace")
    found = re.findall(r"^Swarm-Record: (.*)$", body, re.MULTILINE)
    if not found:
        raise InvalidInput(f"{commit} was not stored by swarm")
    facts = json.loads(found[-1])
    facts["nested"] = [Nested(**one) for one in facts["nested"]]
    facts["inside"] = [Inside(**one) for one in facts.get("inside", [])]
    return Record(**facts)


@dataclass(frozen=True, slots=True)
class _Work:
    """What one worktree has beside its branch. `lost` are commits that nothing else would keep."""

    head: str | None
    branch: str | None
    snap: Snapshot
    state: Mapping[str, Path]
    pending: gitfiles.Named
    lost: list[str]

    def would_be_lost(self, at: Checkout) -> bool:
        tree = at.line("rev-parse", "--verify", f"{self.head}^{{tree}}") if self.head else _empty_tree(at)
        changed = self.snap.tree != tree or self.snap.index_tree not in {None, tree}
        return changed or bool(self.lost or self.snap.rescued) or gitfiles.is_under_way(self.state)

    def adds(self, at: Checkout) -> bool:
        """Whether there is anything beside files that are missing."""
        trees = {self.snap.tree, self.snap.index_tree} - {None}
        added = self.head is None or any(_adds(at, self.head, tree) for tree in trees if tree)
        return added or bool(self.lost or self.snap.rescued) or gitfiles.is_under_way(self.state)


@contextlib.contextmanager
def _refusing_unreadable(root: Path) -> Iterator[None]:
    """Say WORK_NOT_STORED of a file that the system does not let us look at, such as one with too long a path."""
    try:
        yield
    except OSError as error:
        place = str(error.filename)
        if not place.startswith(f"{root}/"):
            raise
        raise snapshot.not_stored("files cannot be read", [place.removeprefix(f"{root}/")]) from error


def _store(at: Checkout, *, ref: str, message: str, unfinished: bool, take_over: bool) -> Preserved | None:
    found = search(at.path)
    refuse_closed(at, found.closed)
    linked = {entry.folder: entry.path for entry in find_linked(at, found.dot_gits)}
    parts.refuse_unstorable(at, found, linked)
    with quarantine(at) as store:
        work = _look(at.using(store.env))
        store.demand(work.snap.written)
        chosen = parts.survey(at, work.snap, found, linked)
        inside = _store_parts(at, store, chosen, message=message, take_over=take_over)
        inside += _store_linked(at, store, linked, message=message)
        if unfinished and not (found.dot_gits or inside) and not work.adds(at.using(store.env)):
            return None
        orphans = _orphaned(at, linked)
        here = at.using(store.env)
        if not (inside or orphans or work.would_be_lost(here)):
            return None
        commit = _assemble(here, work, inside=inside, orphans=orphans, message=message)
        pack = store.admit(commit, known=(*_ON_BRANCHES, f"--glob={ref.rpartition('/')[0]}"))
        _write_ref(at, ref, commit)
    files, size = _extent(at, work.head, f"{commit}^{{tree}}")
    return Preserved(ref, commit, files, size, pack)


def _look(at: Checkout) -> _Work:
    head = head_commit(at.path)
    branch = current_branch(at.path)
    state = gitfiles.state_files(at.git_dir) if at.git_dir != at.common_dir else {}
    snap = snapshot.take(at, head=head)
    if snap.index_tree is None and at.index.is_file() and at.index.stat().st_size:
        state["index"] = at.index
    pending = gitfiles.look_up(at, gitfiles.ids_in(_named(state, history=False)))
    own = _own_branches(branch, state)
    known = [*_named(state, history=True), *_reflogs(at, own)]
    past = gitfiles.look_up(at, [*([head] if head else []), *gitfiles.ids_in(known)])
    return _Work(head, branch, snap, state, pending, _unreachable(at, past.commits, own))


def _named(state: Mapping[str, Path], *, history: bool) -> list[Path]:
    return [place for name, place in state.items() if gitfiles.is_history(name) == history and name != "index"]


def _own_branches(branch: str | None, state: Mapping[str, Path]) -> list[str]:
    """The branches that this worktree works on: its own, and one that is being rebased."""
    heads = [f"refs/heads/{branch}"] if branch else []
    heads += [
        files.read_small(state[name]).decode(errors="replace").strip()
        for name in state
        if name.endswith("/head-name")
    ]
    return [head.removeprefix("refs/heads/") for head in heads if head.startswith("refs/heads/")]


def _reflogs(at: Checkout, branches: Iterable[str]) -> list[Path]:
    """The reflogs of branches, which go when the branches are deleted."""
    logs = [at.common_dir / "logs/refs/heads" / branch for branch in branches if ".." not in branch]
    return [log for log in logs if log.is_file()]


def _unreachable(at: Checkout, commits: Iterable[str], own: Sequence[str] = ()) -> list[str]:
    """The newest of those commits that no branch, tag or remote branch has.

    What the `own` branches were pushed to does not count: it goes when the pull request is merged or closed.
    """
    asked = list(commits)
    if not asked:
        return []
    pushed = tuple(f"/{branch}" for branch in own)
    refs = plain_refs(at.run(*LIST_REFS, "refs/heads", "refs/tags", "refs/remotes"))
    held = [oid for ref, oid in refs if not (ref.startswith("refs/remotes/") and ref.endswith(pushed))]
    told = "".join(f"{one}\n" for one in (*asked, *(f"^{oid}" for oid in held))).encode()
    listed = at.run("rev-list", "--parents", "--ignore-missing", "--stdin", stdin=told).decode().splitlines()
    lines = [line.split(" ") for line in listed]
    older = {parent for _, *parents in lines for parent in parents}
    newest = [commit for commit, *_ in lines if commit not in older]
    return [commit for commit in newest if commit != _start_of_nothing(at)]


def _start_of_nothing(at: Checkout) -> str:
    """The commit without files that stands in the reflog of a worktree made before the first commit."""
    return at.line("commit-tree", _empty_tree(at), "-m", "empty", env={**IDENTITY, **FIXED_DATE})


def _store_parts(
    at: Checkout, store: Quarantine, chosen: list[parts.Part], *, message: str, take_over: bool
) -> list[Inside]:
    taken = [part for part in chosen if take_over and parts.can_be_taken_over(part, at)]
    for part in taken:
        if part.inner is not None:
            store.read_from(part.inner.objects)
    here, joined = at.using(store.env), at.using(store.joined)
    owned = [part.inner.git_dir for part in chosen if part.owned and part.inner is not None]
    stored = []
    for part in chosen:
        told = f"{message.rstrip()}\n\n{part.dot_git.folder or '.'} inside the worktree\n"
        commit = parts.store_part(here, joined, part, taken_over=part in taken, others=owned, message=told)
        stored.append(Inside(part.dot_git.folder, part.dot_git.name, _kind(at, part), commit))
    return stored


def _kind(at: Checkout, part: parts.Part) -> str:
    if part.inner is None:
        return "file"
    if part.submodule and part.dot_git.name == parts.MODULE:
        return "module"
    separate = not (at.path / part.dot_git.folder / part.dot_git.name).is_dir()
    return "submodule" if part.owned and separate else "repository"


def _store_linked(at: Checkout, store: Quarantine, linked: Mapping[Path, Path], *, message: str) -> list[Inside]:
    """Store the worktrees of this repository that are inside, where they have work."""
    stored = []
    for git_dir, place in linked.items():
        inner = find_checkout(place)
        if inner is None or inner.git_dir != git_dir:
            continue
        here = inner.using(store.env)
        work = _look(here)
        store.demand(work.snap.written)
        if work.would_be_lost(here):
            commit = _assemble(here, work, inside=[], orphans=[], message=message)
            stored.append(Inside(str(place.relative_to(at.path)), ".git", "worktree", commit))
    return stored


def _orphaned(at: Checkout, linked: Mapping[Path, Path]) -> list[str]:
    """Commits of registered worktrees whose `.git` file is gone: their files are plain files now."""
    orphans = [git_dir for git_dir, place in linked.items() if not (place / ".git").exists()]
    known = [place for git_dir in orphans for place in gitfiles.state_files(git_dir).values()]
    return _unreachable(at, gitfiles.look_up(at, gitfiles.ids_in(known)).commits)


def _assemble(at: Checkout, work: _Work, *, inside: list[Inside], orphans: list[str], message: str) -> str:
    snap = work.snap
    index = parts.commit(at, snap.index_tree, [work.head], "index\n") if snap.index_tree else None
    lines = parts.loose_objects(at, work.pending)
    state = None
    if work.state:
        files = {f"state/{name}": place for name, place in work.state.items()}
        state = parts.commit(at, parts.tree_of_files(at, files, lines), [], "state\n")
    record = Record(work.head, work.branch, index, [], snap.stages, state, inside)
    body = f"{message.rstrip()}\n\nSwarm-Record: {json.dumps(asdict(record), sort_keys=True)}\n"
    named = [*work.pending.commits, *parts.wrapped_trees(at, work.pending), *work.lost, *orphans]
    return parts.commit(at, snap.tree, [work.head, index, state, *(one.commit for one in inside), *named], body)


def _write_ref(at: Checkout, ref: str, commit: str) -> None:
    try:
        at.run(*DURABLE, "update-ref", "--no-deref", ref, commit, "0" * len(commit))
    except CommandFailed as error:
        if ref_commit(at.path, ref) is not None:
            raise Conflict(f"{ref} exists already", details={"ref": ref}) from error
        raise
    sync_ref(at.common_dir, ref)


def _extent(at: Checkout, head: str | None, tree: str) -> tuple[int, int]:
    """How many files the snapshot changes, and how many bytes their new contents have."""
    start = f"{head}^{{tree}}" if head else _empty_tree(at)
    how = ("diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev")
    listed = nul_list(at.run(*how, start, tree, env=_without_index(at)))
    blobs = [facts.split(" ")[3] for facts in listed[::2] if facts.split(" ")[1] not in {"000000", GITLINK}]
    asked = "".join(f"{blob}\n" for blob in blobs).encode()
    sizes = at.run("cat-file", "--batch-check=%(objectsize)", stdin=asked).split() if blobs else []
    return len(listed) // 2, sum(int(size) for size in sizes)


def _adds(at: Checkout, head: str, tree: str) -> bool:
    """Whether the tree has anything that the commit has not, missing and half-written files aside."""
    how = ("diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", "--diff-filter=d")
    changed = nul_list(at.run(*how, f"{head}^{{tree}}", tree, env=_without_index(at)))[::2]
    return len(changed) > _HALF_WRITTEN or not all(_is_begun(at, facts) for facts in changed)


def _is_begun(at: Checkout, facts: str) -> bool:
    """Whether a changed file is the beginning of the committed one: a killed checkout leaves such."""
    _, _, old, new, status = facts.split(" ")
    return status == "M" and at.run("cat-file", "blob", old).startswith(at.run("cat-file", "blob", new))


def _without_index(at: Checkout) -> dict[str, str]:
    """git reads the index even to compare trees, and fails when it is damaged."""
    return {"GIT_INDEX_FILE": str(at.common_dir / "swarm-no-index")}


def _empty_tree(at: Checkout) -> str:
    return at.line("hash-object", "-t", "tree", "-w", "--stdin", stdin=b"")

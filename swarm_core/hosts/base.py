"""What a machine can be asked to do. Arguments and results are JSON; every operation may be repeated.

A token is a string that knows its host; whoever carries it to another machine carries both.
A host that answers with a failure raises a SwarmError; one that does not answer raises HostLost.
"""

from __future__ import annotations

from typing import Any, NotRequired, Protocol, TypedDict

from swarm_core.github_token import Token

SENT, BUSY, BLOCKED, GONE, UNCLEAR = OUTCOMES = ("sent", "busy", "blocked", "gone", "unclear")
# Names of keys as tmux has them; those of HARMLESS approve nothing, whatever they reach.
HARMLESS = frozenset({"Escape", "C-c"})
KEYS = HARMLESS | {
    *("Enter", "Tab", "BTab", "BSpace", "DC", "Space", "Up", "Down", "Left", "Right", "Home", "End"),
    *("PPage", "NPage"),
    *(f"C-{letter}" for letter in "abcdefghjklnoprtuwxy"),
}


class RepoFacts(TypedDict):
    """`remote` is the name of the remote whose address is `remote_url`; `remotes` are all addresses by name."""

    repo_path: str
    base_branch: str
    base_commit: str | None
    remote: str | None
    remote_url: str | None
    remotes: dict[str, str]
    branches: list[str]


class Place(TypedDict):
    """Where an instance's files are."""

    instance_id: str
    repo_path: str
    worktree_path: str
    branch: str
    base_commit: str | None


class StartOrder(TypedDict):
    """One start of an agent's program; `secrets` reach only its environment."""

    instance_id: str
    agent: str
    epoch: int
    cwd: str
    argv: list[str]
    resume_argv: list[str] | None
    resume_probe: list[str]
    resume: bool
    env: dict[str, str]
    unset: list[str]
    files: dict[str, str]
    secrets: dict[str, str]


class SessionFacts(TypedDict):
    instance_id: str
    epoch: int
    pid: int
    alive: bool
    exit_code: int | None
    exit_signal: int | None


class ReadingFacts(TypedDict):
    """What an agent was seen doing, and where that was seen."""

    activity: str
    source: str
    detail: str
    at: str | None


class Watched(TypedDict):
    """An instance to look at in a bulk snapshot."""

    instance_id: str
    agent: str
    worktree_path: str


class Talk(TypedDict):
    """An instance that is spoken to, and where its program keeps its own log."""

    instance_id: str
    agent: str
    worktree_path: str
    conversation_id: str


class DialogFacts(TypedDict):
    """A question on an agent's screen. `digest` is the same as long as the question is."""

    text: str
    choices: list[str]
    kind: str
    digest: str


class LogFacts(TypedDict):
    """What is new in an agent's own log: messages it has taken, and what its model has used."""

    received: list[str]
    usage: list[dict[str, Any]]


class InstanceFacts(TypedDict):
    """`link` is why the folder's `.git` does not lead to an entry that registers the folder; empty if it does."""

    session: SessionFacts | None
    worktree: bool
    link: str
    reading: ReadingFacts | None


class PreservedFacts(TypedDict):
    ref: str
    commit: str
    files: int
    bytes: int


class RestoredFacts(TypedDict):
    """`left` names what was stored and stays under the ref alone."""

    files: list[str]
    left: list[str]


class ChangeFacts(TypedDict):
    head_commit: str | None
    files: int
    added: int
    deleted: int


class BranchFacts(TypedDict):
    """What an instance's branch holds against a base, and what its worktree holds beyond the branch.

    `commits` are those the base has not, `own_commits` those the commit it started from has not either. Of dirty
    and changed files the first are named and all are counted. `start` is where branch and base went apart.
    """

    head_commit: str | None
    base_commit: str | None
    start: str | None
    on_branch: str | None
    worktree: bool
    commits: int
    own_commits: int
    dirty: list[str]
    dirty_count: int
    files: list[str]
    files_count: int
    added: int
    deleted: int


class SizedPath(TypedDict):
    path: str
    bytes: int


class KeptFacts(TypedDict):
    """A folder that a removal would keep, why, which is one of models.KEPT, and files that are the reason."""

    path: str
    reason: str
    files: NotRequired[list[str]]


class Leftovers(TypedDict):
    """What removing an instance would take away.

    Uncommitted files are stored: `dirty` has the first of them. What git ignores is not: `ignored` has the
    largest of the topmost ignored files and folders. `bytes` is what the whole worktree takes on the disk. With
    `kept` nothing would be taken away, and nothing is said of the files.
    """

    kept: KeptFacts | None

    dirty_files: int
    dirty: list[SizedPath]
    dirty_bytes: int
    ignored_paths: int
    ignored: list[SizedPath]
    ignored_bytes: int
    own_commits: int
    bytes: int


class PredictionFacts(TypedDict):
    """What a merge would bring; not `supported` by a git before 2.38, and nothing is known then.

    What is not `related` has no commit in common and cannot be merged.
    """

    clean: bool
    conflicts: list[str]
    supported: bool
    related: bool


class HeadOrder(TypedDict):
    """One commit to be merged; `method` is merge, squash or rebase."""

    head_commit: str
    method: str
    message: str


class IntegrateOrder(TypedDict):
    """Commits to be merged in order onto `base_commit`, or onto the local `base_branch` where it is now.

    `check` is a command that must succeed on the result, none when empty. `land` moves the base branch there.
    `scratch` names the folder it is done in: two with the same name exclude one another. A result with the files
    of `checked_tree` is not checked. `made` are the commits of an earlier result of the same heads: those are
    landed as they are, but for the message of the last one if `reword`.
    """

    repo_path: str
    base_branch: str | None
    base_commit: str | None
    heads: list[HeadOrder]
    check: list[str]
    check_timeout: float
    land: bool
    scratch: str
    checked_tree: NotRequired[str]
    made: NotRequired[list[str]]
    reword: NotRequired[bool]


class ConflictFacts(TypedDict):
    """Which of the heads could not be merged, and the files that conflict."""

    index: int
    files: list[str]


class CheckFacts(TypedDict):
    ok: bool
    output: str


class IntegrateFacts(TypedDict):
    """`commits` holds the commit after each head; the same as before one that brought nothing new.

    `tree` names the files of the result, "" when there is none.
    """

    base_commit: str
    commits: list[str]
    conflict: ConflictFacts | None
    check: CheckFacts | None
    landed: bool
    tree: str


class CheckoutFacts(TypedDict):
    """The main checkout. Of dirty files the first are named and all are counted."""

    branch: str | None
    head: str | None
    dirty: list[str]
    dirty_count: int


class FolderFacts(CheckoutFacts):
    """Of dirty files also when they were last written: what was dirty before can be changed again."""

    stamps: dict[str, str]


class Host(Protocol):
    name: str

    def info(self) -> dict[str, Any]: ...

    def ensure_repo(self, path: str, base: str | None) -> RepoFacts:
        """Check that the path is a repository agents can work in and what the base means there."""
        ...

    def ensure_worktree(self, place: Place, *, keep_open: int) -> None:
        """Make the worktree on its new branch at the base commit, checked out."""
        ...

    def attach_worktree(self, place: Place, *, head_commit: str | None, keep_open: int) -> None:
        """Make the worktree again on its existing branch, or on the branch made anew at `head_commit`."""
        ...

    def set_aside(self, place: Place, ref: str) -> PreservedFacts | None:
        """Move the worktree out of the way, store what is not committed under `ref` and read it back.

        What an earlier attempt stored stays: a repeat stores beside it, under the ref it returns. Raises Conflict
        (WORKTREE_KEPT) when the folder is not the worktree that was registered.
        """
        ...

    def preserved_refs(self, repo_path: str, instance_id: str | None) -> dict[str, str]:
        """The refs under which a repository holds an instance's work, or that of all, with their commits."""
        ...

    def preserved_work(self, repo_path: str, ref: str) -> PreservedFacts | None:
        """What such a ref holds; None when it is gone or swarm did not make it."""
        ...

    def forget_preserved(self, repo_path: str, ref: str, commit: str) -> bool:
        """Delete a ref of preserved work that is at `commit`; False if it is gone already."""
        ...

    def restore_work(self, place: Place, ref: str) -> RestoredFacts:
        """Bring what is stored under `ref` back into the worktree."""
        ...

    def remove_worktree(self, place: Place, *, last: bool) -> list[str]:
        """Delete the worktree that was set aside, and its registration.

        If something was written since it was stored, nothing is deleted and the names are returned, or at the
        `last` try the folder is put back and Conflict (WORKTREE_KEPT) raised.
        """
        ...

    def put_back(self, place: Place) -> None:
        """Undo `set_aside`, unless something else has taken the place or the deletion has begun."""
        ...

    def require_registered(self, place: Place) -> None:
        """Raise Conflict (WORKTREE_MISMATCH) if a folder is there that is not the registered worktree."""
        ...

    def is_taken(self, instance_id: str, worktree_path: str) -> bool:
        """Whether something of this name is here already, as left by an earlier database."""
        ...

    def branch_tip(self, place: Place) -> str | None:
        """The commit the instance's branch is at; None when it does not exist or has none."""
        ...

    def has_commit(self, repo_path: str, branch: str, commit: str) -> bool:
        """Whether the commit is on the branch; not on one that does not exist."""
        ...

    def base_tip(self, repo_path: str, base_branch: str, *, at_remote: bool) -> str | None:
        """Where a base branch is: here, or at a remote when it was last fetched. No git is started."""
        ...

    def commits_beyond(self, repo_path: str, base: str, head: str) -> dict[str, list[str]] | None:
        """The commits that lead to `head` and not to `base`, with their parents; None if git cannot list them."""
        ...

    def is_merged(self, repo_path: str, branch_or_commit: str, into: str) -> bool:
        """Whether all of it is in `into`, also rebased or squashed; not if one of them does not exist."""
        ...

    def remote_tip(self, repo_path: str, remote: str, branch: str, token: Token | None) -> str | None:
        """The commit of a branch where `push` would put it; None when it is not there."""
        ...

    def push(
        self, repo_path: str, remote: str, branch: str, commit: str, ours: str | None, token: Token | None
    ) -> str:
        """Put the remote's branch to the commit. It is rewritten only if it is at `ours`, which we pushed before.

        Raises Conflict (PUSH_REJECTED) when somebody else has pushed; ExternalFailure with PUSH_REJECTED,
        GITHUB_UNAUTHORIZED or GITHUB_UNREACHABLE. The token goes to its own host alone, and no hook runs.
        """
        ...

    def fetch(self, repo_path: str, remote: str, branch: str, token: Token | None) -> str | None:
        """Bring the remote's branch to refs/remotes and return its commit; None when it is not there."""
        ...

    def replaced(self, repo_path: str) -> list[str]:
        """The replace refs of a repository, and `info/grafts`: what shows other objects than were committed."""
        ...

    def require_sound(self, repo_path: str, bases: list[str], head: str) -> None:
        """Raise Conflict (DAMAGED_OBJECTS) if an object that the commit brings is not what its name says.

        Its base is the first of the branches and commits that exists; without one all that it has is read.
        """
        ...

    def predict(self, repo_path: str, ours: str, theirs: str) -> PredictionFacts:
        """Which files would conflict if these branches or commits were merged now."""
        ...

    def integrate(self, order: IntegrateOrder) -> IntegrateFacts:
        """Merge in a scratch worktree. A conflict and a failed check are results, and nothing lands then.

        Raises Conflict, details["reason"] `base_moved` or `checkout`, when the result cannot be landed: the base
        has moved meanwhile, or the checkout that has it cannot follow. Nothing has changed then.
        """
        ...

    def touched(self, places: list[Place]) -> dict[str, dict[str, list[list[int]]]]:
        """By instance and path the lines [first, last] of the base that it changes, uncommitted work included.

        [0, 2147483647] is the whole file. Instances of one repository are told in lines of one common base.
        """
        ...

    def checkout_state(self, repo_path: str) -> CheckoutFacts:
        """How the main checkout is, to notice that an agent has changed it."""
        ...

    def folder_state(self, folder: str) -> FolderFacts:
        """The same of a main checkout or a worktree, with when its dirty files were written."""
        ...

    def delete_branch(self, place: Place) -> bool:
        """Delete the branch if every commit on it is on another branch or a tag too; True when it is gone."""
        ...

    def retire_branch(self, place: Place, commit: str, ref: str) -> bool:
        """Delete the branch if it is at the commit, which stays under `ref`; True when the branch is gone."""
        ...

    def lost_branch(self, place: Place) -> str | None:
        """The commit the worktree was last on, if its branch was deleted under it; None when all is well."""
        ...

    def revive_branch(self, place: Place, commit: str) -> None: ...

    def registered_worktrees(self, repo_path: str) -> list[str]:
        """The folders a repository knows as its worktrees."""
        ...

    def repair_worktrees(self, repo_path: str, worktree_paths: list[str]) -> None:
        """Mend the links between worktrees and a repository that was moved."""
        ...

    def start(self, order: StartOrder) -> SessionFacts:
        """Start the program in a session. An older epoch is refused, the same is no change, a newer replaces."""
        ...

    def hand_over(self, talk: Talk, text: str) -> str:
        """Paste text into an idle program and submit it; the outcome is one of OUTCOMES.

        Nothing is typed unless the program is seen idle, and Enter is not pressed if a dialog has come up.
        """
        ...

    def can_hear(self, talk: Talk) -> str:
        """SENT when text could be handed over now, else the outcome that `hand_over` would have."""
        ...

    def press_enter(self, talk: Talk) -> bool:
        """Submit what stands in an idle program's input; False when there is nothing of ours, or a dialog."""
        ...

    def type_keys(self, talk: Talk, text: str, keys: list[str]) -> str:
        """Type one line of text as it is, or press KEYS, unless a dialog is shown; one of OUTCOMES.

        HARMLESS keys also reach a program that is at work, or whose screen means nothing.
        """
        ...

    def read_log(self, talk: Talk) -> LogFacts:
        """What the program's own log holds that this was not asked before; after a start, all of it."""
        ...

    def dialog(self, talk: Talk) -> DialogFacts | None:
        """The question the program asks now."""
        ...

    def answer(self, talk: Talk, digest: str, choice: int | None, text: str) -> DialogFacts:
        """Answer the question with that digest by choice (from 1) or by text; raises Conflict if it is gone."""
        ...

    def evidence(self, talk: Talk) -> list[ReadingFacts]:
        """What each source says of the program now, best first."""
        ...

    def stop(self, instance_id: str, *, grace: float) -> tuple[SessionFacts | None, str]:
        """End the session and every process in it; returns its last facts and screen. Gone is fine."""
        ...

    def screen(self, instance_id: str, *, lines: int | None = None) -> str: ...

    def sessions(self) -> list[SessionFacts]:
        """All sessions of instances on this host, in one look."""
        ...

    def foreign_sessions(self) -> list[str]:
        """Names of sessions in our place that belong to no instance, such as a person's own."""
        ...

    def snapshot(self, watched: list[Watched]) -> dict[str, InstanceFacts]:
        """Sessions, worktrees and readings of many instances at once."""
        ...

    def wait(self, timeout: float) -> frozenset[str]:
        """Sleep until an agent that the last look saw alive has died, or the time is up; returns who died."""
        ...

    def changes(self, place: Place) -> ChangeFacts: ...

    def diff(self, place: Place, start: str | None, head: str | None, *, max_bytes: int) -> str:
        """What an instance has changed since the commit, as text; uncommitted files too as long as it has any."""
        ...

    def diff_between(self, repo_path: str, one: str | None, other: str, *, max_bytes: int) -> str: ...

    def branch_state(self, place: Place, base: str) -> BranchFacts:
        """What would be reviewed or merged; a base that does not exist has no commit."""
        ...

    def read_file(self, repo_path: str, commit: str, path: str, *, max_bytes: int) -> str | None:
        """A text file of a repository as a commit has it; None when it has none."""
        ...

    def leftovers(self, place: Place) -> Leftovers: ...

    def write_file(self, instance_id: str, name: str, text: str) -> str:
        """Put a file into the instance's own folder, whole or not at all; returns its path."""
        ...

    def remove_file(self, instance_id: str, name: str) -> None: ...

    def remove_files(self, instance_id: str) -> None: ...

    def drain_pools(self) -> int:
        """Take away every warm worktree; returns how many there were."""
        ...

    def fill_pool(self, repo_path: str, size: int) -> int:
        """Keep `size` warm worktrees of a repository ready; returns how many there are."""
        ...

    def announce(self, text: str) -> int:
        """Show a line to the people who look at sessions, with a bell; returns how many there are."""
        ...

    def attach_argv(self, instance_id: str, *, read_only: bool) -> list[str]:
        """The program a person runs to look at the session."""
        ...

    def close(self) -> None: ...

"""Random sequences: which moves there are, how often each is made, and with what.

Every move is a rule of its own, and hypothesis leaves some of them out of each sequence, so that rare ones meet.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.survival.agent_moves import AGENTS_ONLY
from tests.survival.full import COMMANDS, FullStory, TmuxWorld
from tests.survival.moments import ANY
from tests.survival.story import AGENT_MOVES, KILL, Lost, Step, Story, as_lines
from tests.survival.swarm_moves import OPERATIONS
from tests.survival.world import PERSON, World

TRACKED = ("README.md", "src/app.py")
NEW = ("notes.txt", "data", "secrets/readme", "debug.log")
CLASHING = ("data/x", "secrets")
ODD = ("sp ace", 'q"uote', "new\nline", "-dash", "tab\t", "ünï", "end\r", ":(glob)*", "\udcff", "a\\b")

files = st.one_of(
    st.sampled_from(TRACKED),
    st.sampled_from(TRACKED),
    st.sampled_from(NEW),
    st.sampled_from(CLASHING),
    st.sampled_from(ODD),
)
agents = st.integers(0, 2)
wheres = st.sampled_from([".", ".", "nested", "nested", "inner", "ignored/inner", "ignored/inner", "sub"])
folders = st.sampled_from(["nested", "ignored/nested"])

# What a move is given beside who makes it and where.
ARGUMENTS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "rename": {"file": files, "to": files},
    "rebase": {"backend": st.sampled_from(["merge", "apply"])},
    "abort": {"what": st.sampled_from(["rebase", "merge", "cherry-pick", "revert", "am"])},
    "reset": {"how": st.sampled_from(["hard", "soft"]), "to": st.sampled_from(["HEAD", "HEAD~1", "main"])},
    "symbolic_branch": {"to": st.sampled_from(["HEAD", "branch"])},
    "switch": {"to": st.sampled_from(["own", "new", "-", "other"])},
    "nested_repository": {"folder": folders},
    "bare_repository": {"folder": st.sampled_from(["bare", "ignored/bare"])},
    "nested_worktree": {"folder": st.sampled_from(["inner", "ignored/inner"])},
    "private_ref": {"ref": st.sampled_from(["refs/worktree/x", "refs/custom/x", "refs/notes/x"])},
    "hide": {"file": files, "how": st.sampled_from(["assume-unchanged", "skip-worktree"])},
    "bend_dot_git": {"to": st.sampled_from(["main", "nested", "own"])},
}
WITH_FILE = frozenset(
    {
        *("edit", "overwrite", "recreate", "delete", "make_executable", "make_read_only", "link", "ignore"),
        *("same_stat", "stage_one", "stage_part", "intend_to_add", "remove_cached", "commit", "amend", "stash"),
        "lose_object",
    }
)
# Moves that most others need beside them.
OFTEN = {
    "commit": 3,
    "edit": 3,
    "fork": 2,
    "stage_part": 2,
    "nested_repository": 2,
    "nested_worktree": 2,
    "stash": 2,
}
# Before which programs and renames something else happens; deletions are moments for a kill only.
MOMENTS = ("update-ref", "rename", "reset", "hash-object", "write-tree", "cat-file", "switch", "worktree", "merge")
DELETIONS = ("rename", "rmtree", "remove", "rmdir", "reset", "update-ref")


def agent_step(name: str) -> st.SearchStrategy[Step]:
    """By an agent mostly, or by the person in their own checkout, where ignored files matter too."""
    arguments = ARGUMENTS.get(name) or ({"file": files} if name in WITH_FILE else {})
    by_agent = st.fixed_dictionaries({"move": st.just(name), "who": agents, "where": wheres} | arguments)
    if name in AGENTS_ONLY:
        return by_agent
    if "file" in arguments:
        arguments |= {"file": st.sampled_from([*TRACKED, *NEW, *CLASHING, *CLASHING, *CLASHING])}
    by_person = st.fixed_dictionaries({"move": st.just(name), "who": st.just(PERSON)} | arguments)
    return st.one_of(by_agent, by_agent, by_agent, by_person)


saves = st.sampled_from(["edit", "overwrite", "recreate", "commit", "stash", "stage_part"]).flatmap(agent_step)
others = st.fixed_dictionaries(
    {"move": st.sampled_from(["clean", "clean", "fork", "restore", "spawn", "merge", "reconcile"]), "who": agents}
)


def moments(*names: str) -> st.SearchStrategy[Step]:
    named = st.fixed_dictionaries({"before": st.sampled_from(names), "number": st.integers(1, 2)})
    return named | st.fixed_dictionaries({"before": st.just(ANY), "number": st.integers(1, 30)})


def meanwhile(at: st.SearchStrategy[Step], what: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    return st.tuples(at, what).map(lambda both: {"meanwhile": both[0] | {"do": both[1]}})


held_saves = st.tuples(saves, st.booleans()).map(lambda both: both[0] | {"held": both[1]})
circumstances = st.one_of(
    st.just({}),
    st.just({}),
    meanwhile(moments(*MOMENTS, *DELETIONS), st.just(KILL)),
    meanwhile(moments(*MOMENTS), held_saves),
    meanwhile(moments(*MOMENTS), others),
)


# The first spawn, and the first clean of the evening, meet what costs most when it goes wrong.
mornings = st.just({}) | st.just({}) | st.just({}) | meanwhile(moments("reset", "worktree"), st.just(KILL))
two_cleans = meanwhile(
    st.fixed_dictionaries({"before": st.just("update-ref"), "number": st.integers(1, 2)}),
    st.fixed_dictionaries({"move": st.just("clean"), "who": st.just(1)}),
)
evenings = st.one_of(
    st.just({}),
    meanwhile(moments("rename", "update-ref", "rmtree", "remove"), st.just(KILL)),
    meanwhile(moments("rename", "update-ref", "worktree"), held_saves),
    two_cleans,
    two_cleans,
)

full_circumstances = st.one_of(
    st.just({}),
    meanwhile(st.floats(0.2, 2.0).map(lambda after: {"after": round(after, 2)}), st.just(KILL)),
    meanwhile(st.just({}), st.fixed_dictionaries({"move": st.just("save"), "who": agents})),
    meanwhile(
        st.floats(0.0, 1.0).map(lambda after: {"after": round(after, 2)}),
        st.fixed_dictionaries({"move": st.sampled_from(["clean_all", "fork", "merge", "doctor"]), "who": agents}),
    ),
)


@dataclass(frozen=True)
class Layer:
    """How swarm is driven: in this process without tmux, or as the command with agents."""

    world: type[World]
    story: Callable[[Any], Story]
    operations: Collection[str]
    circumstances: st.SearchStrategy[Step]
    mornings: st.SearchStrategy[Step]
    evenings: st.SearchStrategy[Step]

    def step(self, name: str) -> st.SearchStrategy[Step]:
        plain = st.fixed_dictionaries({"move": st.just(name), "who": agents})
        return st.tuples(plain, self.circumstances).map(lambda parts: parts[0] | parts[1])


FAST = Layer(World, Story, OPERATIONS, circumstances, mornings, evenings)
FULL = Layer(TmuxWorld, FullStory, COMMANDS, full_circumstances, st.just({}), full_circumstances)
LAYERS = {"fast": FAST, "full": FULL}


class Machine(RuleBasedStateMachine):
    """Plays in `place`; the folder is the same for every sequence, so that a replay finds the same paths.

    A loss ends the sequence and is handed to `seen`, not to hypothesis: whoever runs this makes it small by
    replaying, which is exact and can be bounded.
    """

    layer: Layer
    place: Path
    template: Path
    seen: Callable[[Story, Lost | None], None]

    def __init__(self) -> None:
        super().__init__()
        self.story = self.layer.story(self.layer.world.fresh(self.place, self.template))
        self.evening: Step = {}
        self.merging = False
        self.lost: Lost | None = None

    def begin(self, morning: Step, evening: Step, merging: bool) -> None:
        self.evening, self.merging = evening, merging
        self.play({"move": "spawn"} | morning)

    def play(self, step: Step) -> None:
        if self.lost is None:
            try:
                self.story.play(step)
            except Lost as lost:
                self.lost = lost
            except Exception as error:
                error.add_note(as_lines("the model itself failed after", self.story.steps))
                raise

    def teardown(self) -> None:
        try:
            for step in self.story.evening(self.evening, merging=self.merging):
                self.play(step)
            self.seen(self.story, self.lost)
        finally:
            self.story.close()


def machine(
    layer: Layer,
    place: Path,
    template: Path,
    *,
    without: Collection[str],
    seen: Callable[[Story, Lost | None], None],
) -> type[Machine]:
    """A machine with a rule for every move that is not left out."""
    rules: dict[str, Any] = {"layer": layer, "place": place, "template": template, "seen": staticmethod(seen)}
    rules["_begin"] = initialize(
        morning=layer.mornings, evening=layer.evenings, merging=st.sampled_from([False, False, True])
    )(_begin)
    for name in sorted({*AGENT_MOVES, *layer.operations} - {*without}):
        steps = layer.step(name) if name in layer.operations else agent_step(name)
        for number in range(OFTEN.get(name, 1)):
            rules[f"{name}_{number}"] = _rule(f"{name}_{number}", steps)
    return type("Survival", (Machine,), rules)


def _begin(self: Machine, morning: Step, evening: Step, merging: bool) -> None:
    self.begin(morning, evening, merging)


def _rule(name: str, steps: st.SearchStrategy[Step]) -> Callable[..., None]:
    def play(self: Machine, step: Step) -> None:
        self.play(step)

    play.__name__ = play.__qualname__ = name
    return rule(step=steps)(play)

"""What the body of each action holds: exactly these fields, of these types, no longer than this."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from swarm_core.ops import spawn, typing
from swarm_core.swarm import COUNT_MAX

TEXT_MAX = 200_000

Text = Annotated[str, StringConstraints(min_length=1, max_length=TEXT_MAX, pattern=r"\S")]
MaybeText = Annotated[str, StringConstraints(max_length=TEXT_MAX)]
Word = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Method = Literal["merge", "squash", "rebase"]
Usd = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=spawn.NAME_MAX)]


class Body(BaseModel):
    # A model costs 60 KB from when it is built; most are never asked for.
    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)


class Confirmed(Body):
    confirm: bool = False


class Spawn(Body):
    repo: Annotated[str, StringConstraints(min_length=1, max_length=4096)]
    prompt: MaybeText = ""
    issue: Annotated[int, Field(ge=1, le=spawn.ISSUE_MAX)] | None = None
    agent: Word | None = None
    count: Annotated[int, Field(ge=1, le=COUNT_MAX)] = 1
    name: Name | None = None
    base: Word | None = None


class Message(Body):
    body: Text


class Answer(Body):
    digest: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{12}$")]
    choice: Annotated[int, Field(ge=1, le=99)] | None = None
    text: Annotated[str, StringConstraints(min_length=1, max_length=10_000, pattern=r"\S")] | None = None

    @model_validator(mode="after")
    def one(self) -> Answer:
        if (self.choice is None) == (self.text is None):
            raise ValueError("an answer is a choice or a text")
        return self


class Approve(Body):
    message: MaybeText = ""


class Rescope(Body):
    task: Text


class Abandon(Confirmed):
    why: MaybeText = ""


class Fork(Body):
    prompt: MaybeText = ""
    agent: Word | None = None
    name: Name | None = None


class Review(Body):
    focus: MaybeText = ""
    agent: Word | None = None


class Feedback(Body):
    body: Text
    feedback_type: Literal["needs_work", "suggestions", "clarification"]
    priority: Literal["low", "medium", "high"] = "medium"


class Restore(Body):
    ref: Word | None = None


class Budget(Body):
    usd: Usd | None = None
    raise_by: Annotated[Usd, Field(gt=0)] | None = None
    none: bool = False

    @model_validator(mode="after")
    def one(self) -> Budget:
        if [self.usd is not None, self.raise_by is not None, self.none].count(True) != 1:
            raise ValueError("give one of usd, raise_by and none")
        return self


class OpenPull(Body):
    title: Annotated[str, StringConstraints(max_length=1000)] = ""
    description: MaybeText = ""
    draft: bool = False


class Merge(Confirmed):
    method: Method | None = None
    auto: bool = False
    anyway: Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=r"\S")] | None = None


class Enqueue(Body):
    method: Method | None = None


class Keys(Body):
    text: Annotated[str, StringConstraints(max_length=typing.TEXT_MAX)] = ""
    keys: Annotated[list[Word], Field(max_length=typing.KEYS_MAX)] = []


class ClientError(Body):
    """What went wrong in a page; whatever it says is text for a log."""

    message: MaybeText
    stack: MaybeText = ""
    url: MaybeText = ""
    source: MaybeText = ""
    line: int | None = None
    column: int | None = None

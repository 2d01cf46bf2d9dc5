"""Questions to people, and their answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from dagrun.errors import ContractError
from dagrun.model.plan import Names
from dagrun.model.value import Stored, decode_or_reason


class Asked(StrEnum):
    """What a person is asked for."""

    APPROVAL = "approval"  # may this call be made?
    INPUT = "input"  # a value that nobody else has
    PERMISSION = "permission"  # the call was refused for want of a right; try again?
    EFFECT = "effect"  # did this call take effect, or not?
    PAUSE = "pause"  # the plan stops here until somebody has looked
    PATCH = "patch"  # may the plan be changed like this?
    OUTPUT = "output"  # may the run hand out its answer?


Choice = Literal["approve", "deny", "escalate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Something that a run needs a person for.

    Attributes:
        id: A hash of all that the answer is valid for: run, step, its definition, tool, arguments.
        kind: What is asked for.
        text: The question, in a sentence.
        step: The step that waits; empty if the question is about the whole run.
        tool: What would be called.
        effect: What that does to the world.
        arguments: The exact arguments as canonical JSON text; `None` where there are none.
        why: Why a person is asked: ``tool``, ``rule: …``, ``confidence 0.4 is below 0.6``.
        checklist: Points that must be ticked for a yes.
        diff: For a patch: what would change, line by line.
        name: For an input: the argument that it is for; empty if a tool asks in the middle of its work.
        schema: For an input: the JSON schema of the value.
        asked_at: Seconds since the start of the run.
        deadline: When the default answer counts, in seconds since the start of the run; `None` for never.
        default: The answer that counts then.
    """

    id: str
    kind: Asked
    text: str
    step: str = ""
    tool: str = ""
    effect: str = ""
    arguments: Stored = None
    why: str = ""
    checklist: tuple[str, ...] = ()
    diff: tuple[str, ...] = ()
    name: str = ""
    schema: Mapping[str, Any] | None = None
    asked_at: float = 0.0
    deadline: float | None = None
    default: Answer | None = None

    def as_dict(self) -> dict[str, Any]:
        """The question as plain JSON."""
        return {
            "id": self.id,
            "kind": str(self.kind),
            "text": self.text,
            "step": self.step,
            "tool": self.tool,
            "effect": self.effect,
            "arguments": decode_or_reason(self.arguments),
            "why": self.why,
            "checklist": list(self.checklist),
            "diff": list(self.diff),
            "name": self.name,
            "schema": None if self.schema is None else dict(self.schema),
            "asked_at": self.asked_at,
            "deadline": self.deadline,
            "default": None if self.default is None else self.default.as_dict(),
        }


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person says.

    Attributes:
        choice: ``approve``, ``deny``, or ``escalate``: end the run and hand everything to people.
        value: The value that was asked for.
        by: Who answered, for the record.
        note: Why, for the record.
        ticked: The points of the checklist that were ticked.
    """

    choice: Choice
    value: Any = None
    by: str = ""
    note: str = ""
    ticked: tuple[str, ...] = field(default=())

    def as_dict(self) -> dict[str, Any]:
        """The answer as plain JSON."""
        return {
            "choice": self.choice,
            "value": self.value,
            "by": self.by,
            "note": self.note,
            "ticked": list(self.ticked),
        }


def answer_from(answer: Answer | bool) -> Answer:
    """The answer that *answer* stands for.

    Raises:
        ContractError: It is none.
    """
    if isinstance(answer, bool):
        return Answer("approve" if answer else "deny")
    if not isinstance(answer, Answer):
        raise ContractError(f"an answer is True, False or a dagrun.Answer, not {type(answer).__name__}")
    return answer


# Yes or no; an answer; or nothing, for "I will not say".
Approver: TypeAlias = Callable[[Question], Awaitable[Answer | bool | None]]


# Longer texts say more about a mistake than about the matter.
_MAX_NOTE = 2_000


class AnswerLetter(BaseModel):
    """An answer to one question.

    Attributes:
        question: The id of the question; an answer is valid for nothing else.
        choice: As in `Answer`, like the fields that follow.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    question: str = Field(max_length=64)
    choice: Literal["approve", "deny", "escalate"]
    value: Any = None
    by: str = Field(default="", max_length=200)
    note: str = Field(default="", max_length=_MAX_NOTE)
    ticked: Names = ()

    @property
    def answer(self) -> Answer:
        """What it says."""
        return Answer(self.choice, self.value, self.by, self.note, tuple(self.ticked))

    @classmethod
    def of(cls, question: str, answer: Answer) -> AnswerLetter:
        """The letter that gives *answer* to *question*."""
        facts = {name: getattr(answer, name) for name in ("choice", "value", "by", "note", "ticked")}
        return cls(question=question, **facts)

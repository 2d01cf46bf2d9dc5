"""Questions of a run to people, their answers, and inbox messages as JSON: answers, and orders to stop."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import from_json

from dagrun.errors import ContractError, short_repr, shorten
from dagrun.kernel.model.outcome import later
from dagrun.kernel.model.plan import Names
from dagrun.kernel.model.value import Stored, decode_or_reason


class Asked(StrEnum):
    """The kind of a question to a person; it decides which answers are possible."""

    APPROVAL = "approval"  # may this call be made?
    INPUT = "input"  # what is this missing value?
    PERMISSION = "permission"  # the call was refused because a permission is missing; try again?
    EFFECT = "effect"  # did this call take effect or not?
    PAUSE = "pause"  # the plan pauses here; may it continue?
    PATCH = "patch"  # may the plan be changed like this?
    OUTPUT = "output"  # may the run return its answer?


Choice = Literal["approve", "deny", "escalate", "took_effect", "did_not", "unknown"]
"""The answer to a question: ``approve`` or ``deny``; ``took_effect``, ``did_not`` or ``unknown`` about an effect.

``escalate`` ends the run for people to take over.
"""
_OF_EFFECTS: Final = ("took_effect", "did_not", "unknown", "escalate")
_OF_OTHERS: Final = ("approve", "deny", "escalate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question that a run asks a person.

    Attributes:
        id: A hash of everything that the answer is valid for: run, step, its definition, tool, arguments.
        kind: The kind of the question.
        text: The question, in a sentence.
        step: The step that waits; empty if the question is about the whole run.
        tool: The tool that would be called.
        effect: The effect of that tool.
        arguments: The exact arguments as canonical JSON text; `None` if there are none.
        why: Why a person is asked: ``tool``, ``rule: …``, ``confidence 0.4 is below 0.6``.
        checklist: Points that must be ticked for a yes.
        diff: For a patch: what would change, line by line.
        name: For an input: the argument that gets the value; empty if a tool asks in the middle of its work.
        schema: The JSON schema of the value: of an input, or of the output of the call that may have taken effect.
        asked_at: Seconds since the start of the run.
        deadline: When the default answer counts, in seconds since the start of the run; `None` for never.
        default: The default answer.
        transcript: For an answer of low confidence: what each step of the run did, line by line.
    """

    __repr__ = short_repr

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
    transcript: tuple[str, ...] = later(())

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that answer it. Whether a call may be made, and whether it took effect, share no word but one."""
        return _OF_EFFECTS if self.kind is Asked.EFFECT else _OF_OTHERS

    @property
    def content(self) -> str:
        """A hash of the question, by which a call that is repeated after a crash finds its answer."""
        shown = [self.text, self.schema, decode_or_reason(self.arguments)]
        return sha256(json.dumps(shown, sort_keys=True, default=str).encode()).hexdigest()

    def as_dict(self) -> dict[str, Any]:
        """Return the question as plain JSON."""
        return {
            "id": self.id,
            "kind": str(self.kind),
            "choices": list(self.choices),
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
            "transcript": list(self.transcript),
        }


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a person to a question.

    Attributes:
        choice: ``approve``, ``deny``, or ``escalate`` (end the run, and leave the rest to people). A question of the
            kind ``effect`` takes ``took_effect``, ``did_not`` (the call is made again), ``unknown`` or ``escalate``.
        value: The value that was asked for; with ``took_effect``, the output of the call.
        by: The person who answered, for the record.
        note: The reason, for the record.
        ticked: The points of the checklist that were ticked.
    """

    __repr__ = short_repr

    choice: Choice
    value: Any = None
    by: str = ""
    note: str = ""
    ticked: tuple[str, ...] = field(default=())

    def as_dict(self) -> dict[str, Any]:
        """Return the answer as plain JSON."""
        return {
            "choice": self.choice,
            "value": self.value,
            "by": self.by,
            "note": self.note,
            "ticked": list(self.ticked),
        }


def standing(answer: Answer) -> str:
    """Return the sentence that refuses a second answer: which one stands."""
    return f"it was answered already: {answer.choice}{f' by {shorten(answer.by, 60)}' if answer.by else ''}"


def answer_from(answer: Answer | bool) -> Answer:
    """Return *answer* as an `Answer`: True approves, False denies; neither reports whether a call took effect.

    Raises:
        ContractError: *answer* is neither a boolean nor an `Answer`.
    """
    if isinstance(answer, bool):
        return Answer("approve" if answer else "deny")
    if not isinstance(answer, Answer):
        raise ContractError(f"an answer is True, False or a dagrun.Answer, not {type(answer).__name__}")
    return answer


# Set by the run around each call of a planner: asks a person for a plan, with a text, the reasons and the JSON Schema
# of the answer; gives `None` if nobody can be asked.
AskPerson: TypeAlias = Callable[[str, str, Mapping[str, Any]], "Awaitable[Answer | None]"]
ASK_PERSON: ContextVar[AskPerson | None] = ContextVar("dagrun ask person", default=None)

Approver: TypeAlias = Callable[[Question], Awaitable[Answer | bool | None]]
"""An async function that answers a question: yes or no, an `Answer`, or `None` if it does not answer."""


_MAX_NOTE = 2_000  # characters; a longer note is more likely a mistake than a reason


class AnswerMessage(BaseModel):
    """An answer to one question, as JSON that another process can leave for the run.

    Attributes:
        key: The answer key of the run (`Journal.answer_key`), which proves that no tool has written the message.
        question: The id of the question; the answer is valid for no other.
        choice: As in `Answer`, like the fields that follow.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)

    key: str = Field(default="", max_length=200, repr=False)
    question: str = Field(max_length=64)
    choice: Choice
    value: Any = None
    by: str = Field(default="", max_length=200)
    note: str = Field(default="", max_length=_MAX_NOTE)
    ticked: Names = ()

    @property
    def answer(self) -> Answer:
        """The answer in the message."""
        return Answer(self.choice, self.value, self.by, self.note, tuple(self.ticked))

    @classmethod
    def of(cls, question: str, answer: Answer, key: str) -> AnswerMessage:
        """Return the message with *answer* to the question with the id *question*, for the run with *key*."""
        facts = {name: getattr(answer, name) for name in ("choice", "value", "by", "note", "ticked")}
        return cls(key=key, question=question, **facts)


class ControlMessage(BaseModel):
    """An order to stop a run, or one step of it, as JSON that another process can leave for the process at the run.

    Attributes:
        key: The answer key of the run, as in `AnswerMessage`.
        control: The order.
        after: The number of the last record that the sender has seen. The order is only for the process that has
            written this record: a later one that resumes the run throws the message away.
        step: The step to cancel; empty for the whole run.
        reason: The reason in a sentence, for the record.
        by: The person who gives the order, for the record.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    key: str = Field(default="", max_length=200, repr=False)
    control: Literal["cancel", "suspend"]
    after: int = Field(ge=1)
    step: str = Field(default="", max_length=_MAX_NOTE)
    reason: str = Field(default="", max_length=_MAX_NOTE)
    by: str = Field(default="", max_length=200)

    @property
    def text(self) -> str:
        """The order as a sentence, which becomes the reason of the run's status."""
        done = "suspended" if self.control == "suspend" else "cancelled"
        return f"{done} by {self.by or 'somebody'}{f': {self.reason}' if self.reason else ''}"


def read_message(text: bytes) -> AnswerMessage | ControlMessage:
    """Parse a message of the inbox.

    Raises:
        ValidationError: It is none.
    """
    try:
        facts = from_json(text)
    except ValueError:
        facts = None  # the error of the model says more
    is_order = isinstance(facts, dict) and "control" in facts
    return (ControlMessage if is_order else AnswerMessage).model_validate_json(text)


def answer_in(text: bytes) -> AnswerMessage | None:
    """Return the answer in the message *text*; `None` if it is another message."""
    try:
        message = read_message(text)
    except ValueError:
        return None
    return message if isinstance(message, AnswerMessage) else None

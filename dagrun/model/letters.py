"""Letters: answers that another process leaves for a run, as JSON."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from dagrun.model.plan import Names
from dagrun.model.question import Answer

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

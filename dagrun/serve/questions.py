"""Open questions as the page shows them, and answers as it sends them."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, StrictStr

from dagrun.kernel.model.question import Answer, Asked, Choice, Question
from dagrun.kernel.model.redaction.redactor import Redactor
from dagrun.kernel.model.value import decode_or_reason
from dagrun.observe.question_text import EFFECTS, TITLES, read_value

SHOWN: Final = 64 * 1024  # characters of arguments that are sent with a question; more are loaded on request


class AnswerBody(BaseModel):
    """An answer from the page. It does not name its author, who is known from the request.

    Attributes:
        question: The id of the question.
        choice: As in `Answer`.
        text: The value as it was typed, for a question that asks for one; `None` for no value.
        ticked: The points of the checklist that were ticked.
        note: The reason.
    """

    model_config = ConfigDict(extra="forbid")

    question: StrictStr = Field(max_length=64)
    choice: Choice
    text: StrictStr | None = None
    ticked: list[StrictStr] = []
    note: StrictStr = Field(default="", max_length=2_000)

    def answer_to(self, question: Question, by: str) -> Answer:
        """Return the answer, with its value read from the text as the question wants it.

        Raises:
            BadAnswer: The text is no such value.
        """
        value = None if self.text is None else read_value(self.text, question.schema or {})
        return Answer(self.choice, value=value, by=by, note=self.note, ticked=tuple(self.ticked))


class OrderBody(BaseModel):
    """An order from the page: cancel a step or a run, or suspend it."""

    model_config = ConfigDict(extra="forbid")

    step: StrictStr | None = None
    reason: StrictStr = Field(default="", max_length=2_000)


def shown_question(question: Question, redactor: Redactor, *, limit: int = SHOWN) -> dict[str, Any]:
    """Return a question as plain JSON, redacted.

    The arguments are one text, laid out: a browser would round large numbers, and a person agrees to the shown value.

    Args:
        question: The question.
        redactor: That of the run.
        limit: Characters of the arguments that are shown.
    """
    fields = question.as_dict()
    del fields["arguments"]
    shown: dict[str, Any] = {name: redactor.value(value) for name, value in fields.items()}
    # As they are: these are names and numbers, by which an answer is given.
    shown |= {name: fields[name] for name in ("id", "kind", "asked_at", "deadline", "checklist")}
    shown["schema"] = redactor.value(fields["schema"], hides_names=False)
    shown["title"] = TITLES[question.kind]
    shown["effect_words"] = EFFECTS.get(question.effect, "")
    shown["wants_value"] = question.kind in (Asked.INPUT, Asked.EFFECT)
    shown["arguments"] = None
    if question.arguments is not None:
        arguments = redactor.value(decode_or_reason(question.arguments))
        text = json.dumps(arguments, ensure_ascii=False, indent=2)
        shown["arguments"] = {
            "text": text[:limit],
            "characters": len(text),
            "sha256": hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:12],
        }
    return shown

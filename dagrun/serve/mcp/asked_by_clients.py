"""Questions that the caller's program asks its user by itself (elicitation), so that no model is in between.

A question that a yes or a no answers, or one value of a plain type, fits the forms of the protocol. If one of the
questions of a run does not, none is asked this way: the caller gets them all as data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dagrun.errors import shorten
from dagrun.model.question import Asked

_PLAIN: Final = ("string", "integer", "number", "boolean")
_MOST_ARGUMENTS: Final = 2_000
_VALUE: Final = "value"
_FIRST_VERSION: Final = "2026-07-28"  # of the protocol in which a result can ask


def can_ask(context: Any) -> bool:
    """Whether the program that has sent a request can ask its user."""
    capabilities = context.session.client_capabilities
    asks = None if capabilities is None else capabilities.elicitation
    is_form = asks is not None and (asks.form is not None or asks.url is None)
    return is_form and str(context.protocol_version) >= _FIRST_VERSION


def forms_of(questions: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, dict[str, Any]]] | None:
    """Return the text and the schema of the form for each question by its id; `None` if one fits no form.

    Args:
        questions: The questions, as `shown_question` returns them.
    """
    forms: dict[str, tuple[str, dict[str, Any]]] = {}
    for question in questions:
        schema = _form(question)
        if schema is None:
            return None
        forms[question["id"]] = (_text(question), schema)
    return forms or None


def _form(question: Mapping[str, Any]) -> dict[str, Any] | None:
    if question["checklist"] or question["kind"] == Asked.EFFECT:
        return None
    if question["kind"] != Asked.INPUT:
        return {"type": "object", "properties": {}}  # to send it is a yes, to decline a no
    schema = question["schema"] or {}
    if schema.get("type") not in _PLAIN:
        return None
    kept = {key: schema[key] for key in ("type", "description", "enum", "minimum", "maximum") if key in schema}
    return {"type": "object", "properties": {_VALUE: kept}, "required": [_VALUE]}


def _text(question: Mapping[str, Any]) -> str:
    """Return the text for the user: the question, and the exact call that it is about."""
    lines = [question["text"]]
    if question["tool"]:
        lines.append(f"Step {question['step']} calls {question['tool']} ({question['effect']}).")
    if question["why"]:
        lines.append(f"Why: {question['why']}")
    if question["arguments"] is not None:
        lines.append(question["arguments"]["text"][:_MOST_ARGUMENTS])
        if question["arguments"]["characters"] > _MOST_ARGUMENTS:
            lines.append(f"… of {question['arguments']['characters']} characters")
    lines += question["diff"]
    return "\n".join(lines)


def answers_from(responses: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the answers in a client's message; a closed form answers nothing."""
    answers: list[Mapping[str, Any]] = []
    for question, response in responses.items():
        action = getattr(response, "action", "cancel")
        if action == "decline":
            answers.append({"question": question, "choice": "deny"})
        elif action == "accept":
            content = response.content or {}
            value = {_VALUE: content[_VALUE]} if _VALUE in content else {}
            answers.append({"question": shorten(question, 64), "choice": "approve", **value})
    return answers

"""Tools that do no work of their own: `ask_user`, `handoff` and `join`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from dagrun import ToolContext, ToolError, tool

AnswerType = Literal["string", "integer", "number", "boolean", "array", "object"]
Choice = str | int | float | bool
Words = Annotated[str, Field(min_length=1, max_length=2_000)]


@tool(effect="read")
async def ask_user(
    context: ToolContext,
    question: Words,
    type: AnswerType = "string",
    choices: Annotated[list[Choice], Field(min_length=1, max_length=100)] | None = None,
) -> Any:
    """Ask the user for something that nobody else knows, and wait for the answer.

    Args:
        context: Of the call.
        question: What is asked, in a sentence.
        type: Of the answer.
        choices: The only answers there are; all of *type*.

    Returns:
        The answer.

    Raises:
        ToolError: Nobody has answered; or a choice is not of the type.
    """
    schema: dict[str, Any] = {"type": type}
    if choices is not None:
        _check(choices, type)
        schema["enum"] = choices
    return await context.ask(question, schema=schema)


# Idempotent, not a read: a call that was cut short is in doubt, because the other side may have begun the work. The key
# tells it that a second request is about the same matter.
@tool(effect="idempotent", needs_approval=False)
async def handoff(
    context: ToolContext, to: Words, message: Words, data: Any = None, returns: AnswerType | None = None
) -> Any:
    """Leave something to a person, a script or another system, and wait for what comes of it.

    It is shown as a question of the run: to whom, the message, the data, and a key that stays the same if it is asked
    anew. A script looks for it among the open questions, and answers it when it is done.

    Args:
        context: Of the call.
        to: Whoever is to take it up, by a name that they know.
        message: What they are to do.
        data: What they need for it.
        returns: The type of what they give back; by default, it may be anything.

    Returns:
        What they gave back.

    Raises:
        ToolError: Nobody has taken it up, or they would not do it.
    """
    about = {"to": to, "message": message, "data": data, "key": context.idempotency_key}
    return await context.ask(f"For {to}: {message}", schema={"type": returns} if returns else None, about=about)


_CHOICES: dict[AnswerType, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


def _check(choices: list[Choice], type_: AnswerType) -> None:
    known = _CHOICES.get(type_, ())
    wrong = [
        choice for choice in choices if not isinstance(choice, known) or isinstance(choice, bool) != (known == (bool,))
    ]
    if wrong:
        raise ToolError(f"every choice must be of the type {type_}, and {wrong[0]!r} is not")


@tool(effect="pure", timeout=60)
async def join(values: dict[str, Any] | list[Any]) -> Any:
    """Give several values as one, once all of them are there.

    Args:
        values: An object or a list of them.

    Returns:
        The same.
    """
    return values

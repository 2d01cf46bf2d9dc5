"""What a language model is asked, and what it answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from dagrun.errors import ContractError, shorten

# How an answer gets its structure: JSON by a strict schema; the arguments of one tool that must be called; or JSON by
# nothing but the word of the prompt.
Structure = Literal["schema", "tool", "json"]


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: Literal["user", "assistant"]
    text: str


@dataclass(frozen=True, slots=True)
class Form:
    """A form for answers.

    Attributes:
        name: What it is called: letters, digits and ``_``.
        description: What it is for, in a sentence.
        schema: A JSON Schema that keeps to what strict output modes take: closed objects, every field required.
    """

    name: str
    description: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One call of a model.

    Attributes:
        system: What it is told before all else.
        messages: The conversation; the last one is the user's.
        form: The form of the answer; `None` for plain text.
        max_output_tokens: The longest answer.
        temperature: How much chance there is in it; `None` for what the model does by itself.
    """

    system: str
    messages: tuple[Message, ...]
    form: Form | None = None
    max_output_tokens: int = 4_096
    temperature: float | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """What a call has used, in tokens; `None` where the model did not say.

    Attributes:
        input: Of what it was told, cached ones included.
        output: Of what it said, reasoning included.
        cached: How many of the input tokens came from its cache.
    """

    input: int | None = None
    output: int | None = None
    cached: int = 0

    @property
    def total(self) -> int | None:
        """Input and output together; `None` if either is unknown."""
        return None if self.input is None or self.output is None else self.input + self.output


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The end of an answer.

    Attributes:
        text: The whole of it; of a structured one, the JSON text, unchecked; of a refused one, maybe the reason.
        stop: ``end``, ``length`` (the answer is cut off at its ceiling), or ``refused`` (the model does not want to).
        usage: What the call has used.
        cost: In the currency of the price table; `None` if the price of the model is unknown.
        model: The name that the server gave, or the one that was asked for.
        structure: How the structure was asked for; `None` for plain text.
    """

    text: str
    stop: Literal["end", "length", "refused"]
    usage: Usage
    cost: float | None
    model: str
    structure: Structure | None = None


class LanguageModel(Protocol):
    """A model that can be asked. Its calls are charged to the meter of the run (see `usage.METER`).

    Attributes:
        name: As its provider calls it.
    """

    name: str

    def stream(self, request: Request) -> AsyncGenerator[str | Reply, None]:
        """Ask, and yield the pieces of the answer as they come; and, last, a `Reply`.

        Closing the generator, or cancelling its task, closes the connection. Nothing is tried again: that is decided
        by who asks.

        Raises:
            ModelError: There is no answer, or it broke off.
            OverCeiling: The call does not fit under a ceiling of the run.
        """
        ...


def must_be_model(model: object, user: str) -> None:
    """Check that *model* is one, before anybody asks it.

    Args:
        model: What was given as one.
        user: Who wants to ask it, for the message.

    Raises:
        ContractError: It is none.
    """
    if isinstance(model, type) or not callable(getattr(model, "stream", None)):
        raise ContractError(
            f"{user} asks a language model, such as dagrun.OpenAIModel('gpt-5'); got {shorten(repr(model), 100)}"
        )


def must_be_counts(user: str, **limits: object) -> None:
    """Check *limits* that count something, by name.

    Raises:
        ContractError: One is no whole number of at least 1.
    """
    for name, limit in limits.items():
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise ContractError(f"{user}: {name} must be at least 1, got {limit!r}")


async def ask(model: LanguageModel, request: Request) -> Reply:
    """Ask, and wait for the whole answer.

    Raises:
        ModelError: There is no answer, or it broke off.
        OverCeiling: The call does not fit under a ceiling of the run.
    """
    stream = model.stream(request)
    try:
        async for piece in stream:
            if isinstance(piece, Reply):
                return piece
    finally:
        await stream.aclose()
    raise AssertionError("a model's stream ends with a Reply or an error")

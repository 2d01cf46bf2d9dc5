"""What a `FakeModelServer` remembers of each call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from dagrun.llm.language_model import Structure

Api: TypeAlias = Literal["responses", "chat", "messages", "models"]

_SECRET = frozenset({"authorization", "proxy-authorization", "x-api-key", "api-key", "cookie"})
REDACTED = "[redacted]"


@dataclass(frozen=True, slots=True)
class Sent:
    """A piece of an answer, and when it was handed to the connection (`time.monotonic`)."""

    text: str
    at: float


@dataclass(slots=True, eq=False, kw_only=True)
class RecordedCall:
    """One request, and what became of it.

    Attributes:
        number: From 0, in the order of arrival.
        arrived: When the whole request had been read (`time.monotonic`).
        method: ``GET`` or ``POST``.
        path: Without the query.
        api: Which API was called; `None` for a path that no API has.
        headers: With names in lower case, and without the values of those that hold keys.
        body: The JSON of the request; empty if there was none.
        model: The model that was asked for.
        streams: Whether a stream was asked for.
        structure: How a structure was asked for: ``schema``, ``tool`` or ``json``; `None` for plain text.
        schema: The JSON Schema of the structure, if there was one.
        tool: The name of the tool that must be called.
        turns: The conversation as pairs of role and text, instructions first as ``system``.
        status: Of the answer; `None` while there is none.
        sent: The pieces of the answer that were sent so far; a whole answer is one piece.
        was_closed: Whether the client closed the connection before all was sent.
        ended: When the server was done with it; `None` while it is not.
    """

    number: int
    arrived: float
    method: str
    path: str
    api: Api | None
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    model: str | None = None
    streams: bool = False
    structure: Structure | None = None
    schema: Mapping[str, Any] | None = None
    tool: str | None = None
    turns: tuple[tuple[str, str], ...] = ()
    status: int | None = None
    sent: list[Sent] = field(default_factory=list)
    was_closed: bool = False
    ended: float | None = None

    @property
    def prompt(self) -> str:
        """All that the model was told, as one text."""
        return "\n\n".join(text for _, text in self.turns)

    @property
    def text(self) -> str:
        """What was sent of the answer so far."""
        return "".join(piece.text for piece in self.sent)

    def sent_at(self, offset: int) -> float:
        """Tell when this character of the answer was sent (`time.monotonic`).

        Raises:
            LookupError: It has not been sent.
        """
        seen = 0
        for piece in tuple(self.sent):
            seen += len(piece.text)
            if offset < seen:
                return piece.at
        raise LookupError(f"character {offset} of the answer to call {self.number} has not been sent: {seen} have")


def without_keys(headers: Mapping[str, str]) -> dict[str, str]:
    """Leave out the values of headers that hold keys."""
    return {name.lower(): REDACTED if name.lower() in _SECRET else value for name, value in headers.items()}


def text_of(content: object) -> str:
    """Join the texts of a message: its content is a string, or a list of parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(str(part.get("text") or "") for part in parts if isinstance(part, Mapping))


def turns_of(messages: object) -> tuple[tuple[str, str], ...]:
    """Read a list of messages as pairs of role and text; what is no message has no text."""
    listed = messages if isinstance(messages, list) else []
    return tuple(
        (str(turn.get("role") or turn.get("type") or ""), text_of(turn.get("content") or turn.get("output")))
        for turn in listed
        if isinstance(turn, Mapping)
    )


def member(value: object, *path: str) -> Any:
    """Follow keys through objects; `None` where there is none."""
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value

"""The calls that a `FakeModelServer` records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from dagrun.extend import Structure

Api: TypeAlias = Literal["responses", "chat", "messages", "models"]

_SECRET = frozenset({"authorization", "proxy-authorization", "x-api-key", "api-key", "cookie"})
REDACTED = "[redacted]"


@dataclass(frozen=True, slots=True)
class Sent:
    """A piece of an answer, and when it was written to the connection (`time.monotonic`)."""

    text: str
    at: float


@dataclass(slots=True, eq=False, kw_only=True)
class RecordedCall:
    """One request and its answer.

    Attributes:
        number: The number of the call, from 0, in the order of arrival.
        arrived: When the whole request was read (`time.monotonic`).
        method: ``GET`` or ``POST``.
        path: The path without the query.
        api: The API that was called; `None` for a path of no API.
        headers: The headers, with names in lower case, and without the values that hold keys.
        body: The JSON of the request; empty if there was none.
        model: The model that was requested.
        streams: Whether a stream was requested.
        structure: How a structure was requested: ``schema``, ``tool`` or ``json``; `None` for plain text.
        schema: The JSON Schema of the structure, if there was one.
        tool: The name of the tool that must be called.
        turns: The conversation as pairs of role and text, with the instructions first as ``system``.
        status: The status of the answer; `None` before the answer.
        sent: The pieces of the answer that were sent so far; a whole answer is one piece.
        was_closed: Whether the client closed the connection before everything was sent.
        ended: When the server finished the call; `None` before that.
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
        """The whole conversation as one text."""
        return "\n\n".join(text for _, text in self.turns)

    @property
    def text(self) -> str:
        """The text of the answer that was sent so far."""
        return "".join(piece.text for piece in self.sent)

    def sent_at(self, offset: int) -> float:
        """Return when the character at *offset* of the answer was sent (`time.monotonic`).

        Raises:
            LookupError: The character has not been sent.
        """
        seen = 0
        for piece in tuple(self.sent):
            seen += len(piece.text)
            if offset < seen:
                return piece.at
        raise LookupError(f"character {offset} of the answer to call {self.number} has not been sent: {seen} have")


def without_keys(headers: Mapping[str, str]) -> dict[str, str]:
    """Return *headers* without the values that hold keys."""
    return {name.lower(): REDACTED if name.lower() in _SECRET else value for name, value in headers.items()}


def text_of(content: object) -> str:
    """Return the text of a message, whose content is a string or a list of parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(str(part.get("text") or "") for part in parts if isinstance(part, Mapping))


def turns_of(messages: object) -> tuple[tuple[str, str], ...]:
    """Return a list of messages as pairs of role and text; other values are left out."""
    listed = messages if isinstance(messages, list) else []
    return tuple(
        (str(turn.get("role") or turn.get("type") or ""), text_of(turn.get("content") or turn.get("output")))
        for turn in listed
        if isinstance(turn, Mapping)
    )


def member(value: object, *path: str) -> Any:
    """Follow the keys of *path* through nested objects; `None` if one is missing."""
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value

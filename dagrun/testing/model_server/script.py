"""The script of a `FakeModelServer`: answers and faults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias

Stop: TypeAlias = Literal["end", "length", "refused", "filtered"]
_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """The answer of the model to one call.

    Attributes:
        text: The whole text. If the call forces a tool, the text becomes the arguments of that tool.
        tokens_per_second: The speed in pieces per second of real time; `None` to send all pieces at once.
        piece: The number of characters in a piece of a stream.
        usage: Input tokens (cached ones included) and output tokens; `None` for a server that does not report them.
        cached: The number of input tokens that came from the cache.
        stop: ``end``; ``length``, as if the text had reached its ceiling; ``refused``, with the reason as the text;
            ``filtered``, stopped in the middle by a filter.
        delay: Seconds before anything is sent.
        tool: The name of a tool that the model calls without being asked, with the text as its arguments.
        thinking: The thoughts before the answer, in the form that each API has for them.
    """

    text: str = ""
    tokens_per_second: float | None = None
    piece: int = 4
    usage: tuple[int, int] | None = (100, 50)
    cached: int = 0
    stop: Stop = "end"
    delay: float = 0
    tool: str | None = None
    thinking: str = ""

    def __post_init__(self) -> None:
        if self.piece < 1:
            raise ValueError(f"piece: a piece has at least 1 character, not {self.piece}")
        if self.tokens_per_second is not None and self.tokens_per_second <= 0:
            raise ValueError(f"tokens_per_second: more than 0, or None for at once, not {self.tokens_per_second}")

    @property
    def pieces(self) -> tuple[str, ...]:
        """The text as a stream delivers it."""
        return tuple(self.text[at : at + self.piece] for at in range(0, len(self.text), self.piece))


_UNFINISHED = ModelAnswer("This is an answer that will not be finished.")


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault instead of an answer, or in the middle of one. It is made by its static methods.

    *after* is the number of pieces of the answer *of* that are sent before the fault. With 0 the answer has begun
    without a piece; with `None` nothing is sent, not even a status. If the answer is not streamed and *after* is a
    number, half of the body is sent.
    """

    @staticmethod
    def status(
        status: int,
        *,
        code: str | None = None,
        message: str | None = None,
        retry_after: float | str | None = None,
        headers: Mapping[str, str] = _NONE,
    ) -> StatusFault:
        """Answer with an HTTP error, in the words of the provider.

        Args:
            status: 400 to 599.
            code: The code of the provider; `None` for the usual code of the status.
            message: The message for people; `None` for the usual message of the status.
            retry_after: The header of that name: seconds, or a date as text.
            headers: More headers.
        """
        return StatusFault(code=status, reason=code, message=message, retry_after=retry_after, headers=headers)

    @staticmethod
    def cut(after: int | None = None, *, how: How = "close", of: ModelAnswer | str = _UNFINISHED) -> Break:
        """Lose the connection.

        Args:
            after: See `Fault`.
            how: ``close`` in the middle of the body; ``reset``; or ``end``: the body ends regularly, but without the
                events that end an answer.
            of: The answer that breaks off.
        """
        return Break(kind=how, after=after, of=_answer(of))

    @staticmethod
    def hang(after: int | None = None, *, of: ModelAnswer | str = _UNFINISHED) -> Break:
        """Send nothing more, and keep the connection open until the client closes it or the server stops."""
        return Break(kind="hang", after=after, of=_answer(of))

    @staticmethod
    def malformed(after: int = 0, *, of: ModelAnswer | str = _UNFINISHED) -> Break:
        """Send an event with broken JSON, and then the rest of the answer."""
        return Break(kind="malformed", after=after, of=_answer(of))

    @staticmethod
    def failed(
        after: int = 0,
        *,
        code: str = "server_error",
        message: str = "The model failed.",
        of: ModelAnswer | str = _UNFINISHED,
    ) -> Break:
        """Report an error in the middle of a stream, as `response.failed` if the API has that event.

        A call that is not streamed gets a failed `response`, or status 500 if the API has none.
        """
        return Break(kind="failed", after=after, of=_answer(of), code=code, message=message)

    @staticmethod
    def error(
        after: int = 0,
        *,
        code: str = "overloaded_error",
        message: str = "Overloaded",
        of: ModelAnswer | str = _UNFINISHED,
    ) -> Break:
        """Report an error in the middle of a stream, as a plain error event; status 500 if it is not streamed."""
        return Break(kind="error", after=after, of=_answer(of), code=code, message=message)

    @staticmethod
    def not_sse() -> PageFault:
        """Answer 200 with a page for people, as a proxy or a server at a wrong address does."""
        return PageFault(body="<!DOCTYPE html><html><body><h1>Welcome</h1></body></html>", media_type="text/html")

    @staticmethod
    def empty() -> PageFault:
        """Answer 200 with an empty body."""
        return PageFault(body="", media_type=None)

    @staticmethod
    def page(body: str, media_type: str) -> PageFault:
        """Answer 200 with this body, such as the JSON of another API or an endless line."""
        return PageFault(body=body, media_type=media_type)


How: TypeAlias = Literal["close", "reset", "end"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusFault(Fault):
    """See `Fault.status`."""

    code: int
    reason: str | None
    message: str | None
    retry_after: float | str | None
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Break(Fault):
    """An answer that is interrupted: see `Fault.cut`, `hang`, `malformed`, `failed` and `error`."""

    kind: Literal["close", "reset", "end", "hang", "malformed", "failed", "error"]
    after: int | None
    of: ModelAnswer
    code: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFault(Fault):
    """A body that is not an answer: see `Fault.not_sse`, `empty` and `page`."""

    body: str
    media_type: str | None  # None for the media type of an answer


def _answer(of: ModelAnswer | str) -> ModelAnswer:
    return ModelAnswer(of) if isinstance(of, str) else of


# One act of a script.
Act: TypeAlias = "str | ModelAnswer | Fault"

"""What a `FakeModelServer` plays: answers, and faults in place of answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias

Stop: TypeAlias = Literal["end", "length", "refused", "filtered"]
_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """What the model says to one call.

    Attributes:
        text: All of it. Where the call forces a tool, the same text is delivered as the arguments of that tool.
        tokens_per_second: How fast it says it, a piece being a token; `None` for at once. It is real time.
        piece: Characters in a piece of a stream.
        usage: Tokens in (cached ones included) and out; `None` for a server that does not say.
        cached: How many of the tokens in came from its cache.
        stop: ``end``; ``length``, as if the text had reached its ceiling; ``refused``, where the text says why;
            ``filtered``, stopped in the middle by a filter.
        delay: Seconds before anything is sent.
        tool: The name of a tool that the model calls of its own accord, with the text for arguments.
        thinking: What it thinks aloud before it answers, in the form that each API has for that.
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


_HALF_SAID = ModelAnswer("This is an answer that will not be finished.")


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens in place of an answer, or in the middle of one. Made by its static methods.

    *after* is how many pieces of the answer *of* are sent before: 0 for none, but the answer has begun; `None` for
    nothing at all, not even a status. Where an answer is not streamed, half of its body is sent if *after* is a number.
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
            code: As the provider calls it; `None` for what usually comes with the status.
            message: For people; `None` for what usually comes with the status.
            retry_after: For the header of that name: seconds, or a date as text.
            headers: More headers.
        """
        return StatusFault(code=status, reason=code, message=message, retry_after=retry_after, headers=headers)

    @staticmethod
    def cut(after: int | None = None, *, how: How = "close", of: ModelAnswer | str = _HALF_SAID) -> Break:
        """Lose the connection.

        Args:
            after: See `Fault`.
            how: ``close`` in the middle of the body; ``reset``; or ``end``: the body ends as if all had been said, but
                the events that end an answer are missing.
            of: The answer that breaks off.
        """
        return Break(kind=how, after=after, of=_answer(of))

    @staticmethod
    def hang(after: int | None = None, *, of: ModelAnswer | str = _HALF_SAID) -> Break:
        """Say nothing more, and keep the connection open until the client closes it or the server stops."""
        return Break(kind="hang", after=after, of=_answer(of))

    @staticmethod
    def malformed(after: int = 0, *, of: ModelAnswer | str = _HALF_SAID) -> Break:
        """Send an event whose JSON is broken, and then the rest as if nothing had happened."""
        return Break(kind="malformed", after=after, of=_answer(of))

    @staticmethod
    def failed(
        after: int = 0,
        *,
        code: str = "server_error",
        message: str = "The model failed.",
        of: ModelAnswer | str = _HALF_SAID,
    ) -> Break:
        """Report an error in the middle of a stream, as `response.failed` where the API has that.

        A call that is not streamed gets a `response` that has failed, or status 500 where the API has no such thing.
        """
        return Break(kind="failed", after=after, of=_answer(of), code=code, message=message)

    @staticmethod
    def error(
        after: int = 0,
        *,
        code: str = "overloaded_error",
        message: str = "Overloaded",
        of: ModelAnswer | str = _HALF_SAID,
    ) -> Break:
        """Report an error in the middle of a stream, as a plain error event. Not streamed: status 500."""
        return Break(kind="error", after=after, of=_answer(of), code=code, message=message)

    @staticmethod
    def not_sse() -> PageFault:
        """Answer 200 with a page for people, as a proxy or a wrong address does."""
        return PageFault(body="<!DOCTYPE html><html><body><h1>Welcome</h1></body></html>", media_type="text/html")

    @staticmethod
    def empty() -> PageFault:
        """Answer 200 with nothing."""
        return PageFault(body="", media_type=None)

    @staticmethod
    def page(body: str, media_type: str) -> PageFault:
        """Answer 200 with this body, whatever was asked: another API's JSON, a line that never ends."""
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
    """An answer that does not come to its end: see `Fault.cut`, `hang`, `malformed`, `failed` and `error`."""

    kind: Literal["close", "reset", "end", "hang", "malformed", "failed", "error"]
    after: int | None
    of: ModelAnswer
    code: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFault(Fault):
    """A body that is no answer: see `Fault.not_sse`, `empty` and `page`."""

    body: str
    media_type: str | None  # None: that of an answer


def _answer(of: ModelAnswer | str) -> ModelAnswer:
    return ModelAnswer(of) if isinstance(of, str) else of


# One act of a script.
Act: TypeAlias = "str | ModelAnswer | Fault"

"""Answers in a form: asked for, checked by us whatever a model promises, and asked for once more if they do not fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeVar

from pydantic import ValidationError

from dagrun.errors import ModelError
from dagrun.llm.language_model import LanguageModel, Message, Reply, Request, ask
from dagrun.model.signature import explain

_FENCE: Final = "```"
_EDGE: Final = "` \t\r\n"


class Unfenced:
    """Takes the fences off an answer while it streams: a line that begins with three backticks, and all from the next.

    Nothing else is touched. Text that stands between the fences is held back only where it may be the closing one.
    """

    __slots__ = ("_held", "_is_fenced", "_is_over", "_is_text")

    def __init__(self) -> None:
        self._held = ""
        self._is_text = False
        self._is_fenced = False
        self._is_over = False

    def feed(self, piece: str) -> str:
        """The part of the answer that is certain now."""
        if not self._is_text:
            return self._begin(self._held + piece)
        return self._inside(piece) if self._is_fenced else piece

    def end(self) -> str:
        """The rest."""
        held, self._held = self._held, ""
        if self._is_over or (held.lstrip().startswith(_FENCE) and (self._is_fenced or not self._is_text)):
            return ""
        return held

    def _begin(self, text: str) -> str:
        start = text.lstrip()
        self._held = text
        if _FENCE.startswith(start[:3]) and len(start) < len(_FENCE):
            return ""
        if not start.startswith(_FENCE):
            self._held, self._is_text = "", True
            return text
        _, newline, rest = start.partition("\n")
        if not newline:
            return ""
        self._held, self._is_text, self._is_fenced = "", True, True
        return self._inside(rest)

    def _inside(self, piece: str) -> str:
        if self._is_over:
            return ""
        text = self._held + piece
        # A line break never stands inside of a string of JSON, so this cannot be a part of the answer.
        before, fence, _ = text.partition(f"\n{_FENCE}")
        if fence:
            self._is_over = True
            return before
        certain = text.rstrip(_EDGE)
        self._held = text[len(certain) :]
        return certain


T = TypeVar("T")

MAX_ANSWER: Final = 1_000_000  # characters; what is longer is not looked at

# Of an answer that was wrong; enough for a model to see which one is meant.
_MAX_REPEATED: Final = 4_000


async def ask_in_form(model: LanguageModel, request: Request, read: Callable[[str], T], tries: int = 2) -> T:
    """Ask until *read* can read the answer.

    Args:
        model: Who is asked.
        request: With the form of the answer.
        read: Makes a value of the text of an answer, or raises `ValueError`.
        tries: How often it is asked at most.

    Raises:
        ModelError: There is no answer; it was cut off or refused; or none was in the form.
        OverCeiling: A call does not fit under a ceiling.
    """
    fault = ""
    for _ in range(tries):
        reply = await ask(model, request)
        if why := why_no_answer(reply, request):
            raise ModelError(f"{model.name}: {why}")
        try:
            return read(json_text(reply.text))
        except ValueError as error:
            fault = fault_of(error)
        request = told(request, reply.text, f"That does not fit the form: {fault}\nAnswer again, in the form.")
    raise ModelError(f"{model.name} gave no answer that fits the form, {tries} times: {fault}")


def why_no_answer(reply: Reply, request: Request) -> str:
    """Why a reply must not be used, whatever it says; empty if it may be."""
    match reply.stop:
        case "length":
            return f"the answer was cut off at the ceiling of {request.max_output_tokens} output tokens"
        case "refused":
            return "the model refused to answer"
        case _:
            return ""


def json_text(text: str) -> str:
    """The JSON in an answer, without the fence that some models put around it.

    Raises:
        ValueError: The answer is longer than any that is looked at.
    """
    if len(text) > MAX_ANSWER:
        raise ValueError(f"the answer has {len(text)} characters, the ceiling is {MAX_ANSWER}")
    fences = Unfenced()
    return fences.feed(text) + fences.end()


def fault_of(error: ValueError) -> str:
    """What is wrong with an answer, without the values in it."""
    return explain(error) if isinstance(error, ValidationError) else str(error)


def told(request: Request, answer: str, reply: str) -> Request:
    """The request that goes on a conversation: what the model has *answer*ed, and what it is told now."""
    # Providers take no empty turns, and half a character cannot be sent.
    said = answer[:_MAX_REPEATED].encode(errors="replace").decode().strip() or "(nothing)"
    return replace(request, messages=(*request.messages, Message("assistant", said), Message("user", reply)))

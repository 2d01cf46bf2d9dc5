"""Ask a language model for a plan, in pieces or as a whole, and remember its last answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from dagrun.errors import CannotPlan, ContractError, ModelError, PlanRefused, Problem, shorten
from dagrun.llm.language_model import AnswerStream, LanguageModel, Reply, Request
from dagrun.model.planner import Brief
from dagrun.model.policy import PlanLimits
from dagrun.model.toolbox import Toolbox
from dagrun.planners.repetition_guard import RunawayText

# Characters of a refused answer that the model gets back. Of a longer answer, it gets back only the problems.
_MAX_KEPT: Final = 50_000
# Few runs repair a plan at the same time, but a planner may live for months.
_MAX_RUNS: Final = 200


async def pieces_of(model: LanguageModel, request: Request) -> AsyncGenerator[str, None]:
    """Ask the model, and yield the pieces of the answer as they arrive; close the generator to close the connection.

    Raises:
        PlanRefused: The answer was cut off at its ceiling, or because it went round in circles (``DR421``); all pieces
            before that have been yielded.
        CannotPlan: The model refuses to plan.
        ModelError: There is no answer, or the answer broke off.
        OverCeiling: The call does not fit under a ceiling of the run.
    """
    is_streamed, reply, judge = False, None, RunawayText()
    async with AnswerStream(model, request) as asked:
        async for piece in asked.stream:
            asked.add(piece)
            if not isinstance(piece, str):
                reply = piece
                break
            is_streamed = True
            yield piece
            judge.feed(piece)
    if reply is None:
        raise ModelError(f"{model.name}: the answer has no end; a model's stream ends with a Reply")
    if not is_streamed and reply.text:
        yield reply.text
    _must_be_whole(reply, request)


async def text_of(model: LanguageModel, request: Request, limits: PlanLimits) -> str:
    """Ask the model, and return the whole answer.

    Raises:
        PlanRefused: The answer was cut off, or has more bytes than *limits* allow; the rest was not waited for.
        CannotPlan: The model refuses to plan.
        ModelError: There is no answer, or the answer broke off.
        OverCeiling: The call does not fit under a ceiling of the run.
    """
    parts: list[str] = []
    size = 0
    async with aclosing(pieces_of(model, request)) as pieces:
        async for piece in pieces:
            size += len(piece)
            if size > limits.max_bytes:
                facts = {"size": f"more than {limits.max_bytes}", "limit": str(limits.max_bytes)}
                raise PlanRefused([Problem("DR005", "", facts)])
            parts.append(piece)
    return "".join(parts)


def _must_be_whole(reply: Reply, request: Request) -> None:
    match reply.stop:
        case "length":
            reason = f"it reached its ceiling of {request.max_output_tokens} tokens; a shorter one is needed"
            raise PlanRefused([Problem("DR421", "", {"reason": reason})])
        case "refused":
            why = f": {shorten(reply.text.strip(), 300)}" if reply.text.strip() else ""
            raise CannotPlan(f"{reply.model} does not want to{why}")


def toolbox_of(brief: Brief) -> Toolbox:
    """Return the tools that a plan may use.

    Raises:
        ContractError: The brief has no toolbox, which is possible only for a brief made by hand.
    """
    if brief.toolbox is None:
        raise ContractError("this planner needs to know the tools themselves: give the brief a toolbox")
    return brief.toolbox


class LastAnswers:
    """The last answer of each run, so that the model can repair it if it is refused."""

    __slots__ = ("_texts",)

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def keep(self, brief: Brief, text: str) -> None:
        """Remember *text* as the answer to *brief*."""
        self._texts.pop(brief.run_id, None)
        if len(text) <= _MAX_KEPT:
            self._texts[brief.run_id] = text
        if len(self._texts) > _MAX_RUNS:
            del self._texts[next(iter(self._texts))]

    def take(self, brief: Brief) -> str:
        """Return and forget the last answer in the run of *brief*; empty if there is none."""
        return self._texts.pop(brief.run_id, "")

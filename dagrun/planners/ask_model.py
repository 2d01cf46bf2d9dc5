"""Asking a language model for something that a planner can read."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from dagrun.errors import CannotPlan, ContractError, ModelError, PlanRefused, Problem, shorten
from dagrun.llm.language_model import LanguageModel, Reply, Request
from dagrun.model.planner import Brief
from dagrun.model.policy import PlanLimits
from dagrun.model.toolbox import Toolbox

# An answer that is refused goes back to its author; of one that is longer than this, only what is wrong with it does.
_MAX_KEPT: Final = 50_000
# Few runs are about to repair a plan at any time, and a planner may live for months.
_MAX_RUNS: Final = 200


async def pieces_of(model: LanguageModel, request: Request) -> AsyncGenerator[str, None]:
    """Ask, and yield the pieces of the answer as they come; close the generator to close the connection.

    Raises:
        PlanRefused: The answer was cut off at its ceiling (``DR421``); what has come of it has been yielded.
        CannotPlan: The model does not want to.
        ModelError: There is no answer, or it broke off.
        OverCeiling: The call does not fit under a ceiling of the run.
    """
    is_streamed = False
    async with aclosing(model.stream(request)) as stream:
        async for piece in stream:
            if isinstance(piece, str):
                is_streamed = True
                yield piece
                continue
            if not is_streamed and piece.text:
                yield piece.text
            _must_be_whole(piece, request)
            return
    raise ModelError(f"{model.name}: the answer has no end; a model's stream ends with a Reply")


async def text_of(model: LanguageModel, request: Request, limits: PlanLimits) -> str:
    """Ask, and wait for the whole answer.

    Raises:
        PlanRefused: The answer was cut off, or takes more bytes than *limits* allow; the rest of it was not waited for.
        CannotPlan: The model does not want to.
        ModelError: There is no answer, or it broke off.
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
    """The tools that a planner writes for.

    Raises:
        ContractError: The brief has none; only one that was made by hand can be so.
    """
    if brief.toolbox is None:
        raise ContractError("this planner needs to know the tools themselves: give the brief a toolbox")
    return brief.toolbox


class Answers:
    """The last answers, one for each run, for the case that they are refused."""

    __slots__ = ("_texts",)

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def keep(self, brief: Brief, text: str) -> None:
        """Keep what was answered to *brief*."""
        self._texts.pop(brief.run_id, None)
        if len(text) <= _MAX_KEPT:
            self._texts[brief.run_id] = text
        if len(self._texts) > _MAX_RUNS:
            del self._texts[next(iter(self._texts))]

    def take(self, brief: Brief) -> str:
        """What was answered before in the run of *brief*; nothing if nobody knows, or has asked already."""
        return self._texts.pop(brief.run_id, "")

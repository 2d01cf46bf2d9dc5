"""Ask a language model for a plan, in pieces or as a whole, remember its last answer, and stop a runaway one.

Small models lose their way: they write the same call again and again, go on in blanks, or repeat a few words until the
ceiling of tokens. Such an answer is recognised while it is still written, so that the rest is not waited for. It is
refused with ``DR421``, or ``DR108`` for too many steps; the call is charged.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Final

from dagrun.errors import CannotPlan, ContractError, ModelError, PlanRefused, Problem, shorten
from dagrun.kernel.model.plan import Step
from dagrun.kernel.model.planner import Brief
from dagrun.kernel.model.policy import PlanLimits
from dagrun.kernel.model.tool import Toolbox
from dagrun.llm.language_model import AnswerStream, LanguageModel, Reply, Request

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


# Runaway answers -----------------------------------------------------------------------------------------------------

# The same call may be wanted three times, say for three opinions of a model.
MAX_SAME: Final = 3
MAX_BLANKS: Final = 256  # blank characters in a row
MIN_LOOP: Final = 600  # characters, without blanks, that repeat a unit
MAX_UNIT: Final = 250  # characters of the unit

_TIMES: Final = 4  # a longer unit must repeat as often
_EVERY: Final = 100  # characters between two looks for a loop
_ANCHOR: Final = 24  # the last characters, whose occurrence before shows the length of the unit
_KEPT: Final = max(MIN_LOOP, _TIMES * MAX_UNIT) + _ANCHOR


class RunawayText:
    """Judges the text of an answer, piece by piece."""

    __slots__ = ("_blanks", "_tail", "_unseen")

    def __init__(self) -> None:
        self._blanks = 0
        self._tail = ""
        self._unseen = 0

    def feed(self, piece: str) -> None:
        """Read the next piece.

        Raises:
            PlanRefused: The answer goes round in circles (``DR421``).
        """
        text = piece.rstrip()
        blanks = len(piece) - len(text)
        self._blanks = blanks if text else self._blanks + blanks
        if self._blanks > MAX_BLANKS:
            raise _runaway(f"it went on in {self._blanks} blanks")
        words = "".join(piece.split())  # the blanks of an indented list are no loop
        self._tail = (self._tail + words)[-max(_KEPT, len(words)) :]
        self._unseen += len(words)
        if self._unseen < _EVERY:
            return
        self._unseen = 0
        if unit := _unit_of(self._tail):
            raise _runaway(f"it went on repeating {json.dumps(shorten(unit, 80), ensure_ascii=False)}")
        self._tail = self._tail[-_KEPT:]


class RunawaySteps:
    """Judges the steps of an answer, as they close.

    Args:
        max_steps: The most steps that the answer may have; `None` for no limit.
    """

    __slots__ = ("_calls", "_count", "_max_steps")

    def __init__(self, max_steps: int | None) -> None:
        self._max_steps = max_steps
        self._count = 0
        self._calls: Counter[str] = Counter()

    def feed(self, steps: Iterable[Step]) -> None:
        """Read the next steps.

        Raises:
            PlanRefused: There are too many (``DR108``), or it is the same call again (``DR421``).
        """
        for step in steps:
            self._count += 1
            if self._max_steps is not None and self._count > self._max_steps:
                facts = {"count": f"more than {self._max_steps}", "limit": str(self._max_steps)}
                raise PlanRefused([Problem("DR108", "steps", facts)])
            call = json.dumps([step.tool, step.args, step.for_each], sort_keys=True, ensure_ascii=False)
            self._calls[call] += 1
            if self._calls[call] > MAX_SAME:
                shown = shorten(f"{step.tool} with {json.dumps(step.args, ensure_ascii=False)}", 120)
                raise _runaway(f"it wrote the same call {self._calls[call]} times: {shown}")


def _unit_of(text: str) -> str:
    """Return the unit that the end of *text* repeats; empty if it repeats none."""
    anchor = text[-_ANCHOR:]
    before = text.rfind(anchor, 0, len(text) - 1)
    length = len(text) - len(anchor) - before
    if before < 0 or length > MAX_UNIT:
        return ""
    looped = max(MIN_LOOP, _TIMES * length)
    end = text[-looped:]
    return end[-length:] if len(end) == looped and end[:-length] == end[length:] else ""


def _runaway(how: str) -> PlanRefused:
    return PlanRefused([Problem("DR421", "", {"reason": f"{how}, and was cut off; a shorter one is needed"})])

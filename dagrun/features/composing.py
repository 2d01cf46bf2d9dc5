"""The last step of a run: its answer is composed from the results, and streamed to the host while it is written.

The step is added by a splice when everything else has succeeded, so it is a step like all others: admitted, charged,
tried again, reviewed, on record, and resumed.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio

from dagrun.errors import OverCeiling, shorten
from dagrun.kernel.graph.confidence import answer_confidences
from dagrun.kernel.graph.node import Node
from dagrun.kernel.model.outcome import State, Status
from dagrun.kernel.model.patch import Add, Patch
from dagrun.kernel.model.plan import Step
from dagrun.kernel.model.tool import COMPOSE
from dagrun.kernel.model.usage import RUN_METER, Charge
from dagrun.kernel.runtime.run_callbacks import RunMeter
from dagrun.kernel.runtime.run_features import AnswerPiece
from dagrun.kernel.runtime.run_parts import RunParts

if TYPE_CHECKING:
    from dagrun.kernel.runtime.result import RunResult
    from dagrun.kernel.runtime.steps.scheduler import Scheduler

_ID: Final = "answer"


class _AnswerMeter(RunMeter):
    """Charges the model that composes an answer. Where its worst case does not fit under a ceiling, the run ends."""

    __slots__ = ()

    def reserve(self, who: str, tokens: int | None, cost: float | None) -> Charge:
        try:
            return super().reserve(who, tokens, cost)
        except OverCeiling as error:
            self._up.stop(Status.OVER_BUDGET, f"the answer is not composed: {error}")
            raise


class Composing:
    """Composes the answer of one run.

    Args:
        parts: What the parts of the run share.
        scheduler: Applies the patch that brings the last step.
    """

    def __init__(self, parts: RunParts, scheduler: Scheduler) -> None:
        self._graph = parts.graph
        self._policy = parts.policy
        self._reviews = parts.reviews
        self._splicer = parts.record.splicer
        self._splice = scheduler.splice
        self._stop = scheduler.finish.stop
        self._pieces: list[AnswerPiece] = []
        self._attempt = 0
        self._news = anyio.Event()
        parts.up.compose, parts.up.piece = self.compose, self._take
        parts.context.run(RUN_METER.set, partial(_AnswerMeter, parts.up))

    def compose(self) -> bool:
        """Add the step that composes the answer, if it is missing; return whether the run continues with it."""
        if any(node.tool.name == COMPOSE and not node.is_gone for node in self._graph.nodes.values()):
            return False
        ids = {id_.lower() for id_ in self._graph.nodes}
        id_ = next(name for n in range(1, len(ids) + 2) if (name := _ID if n == 1 else f"{_ID}-{n}") not in ids)
        tool = self._graph.plan.toolbox[COMPOSE]
        known: Mapping[str, Any] = {"results": self._results(), "goal": self._graph.goal}
        args = {name: value for name, value in known.items() if name in tool.arguments.names}
        # A planner is not asked to fix the last step: all that the plan was for has succeeded.
        step = Step(id=id_, tool=COMPOSE, args=args, on_failure="stop", description="composes the answer")
        patch = Patch(edits=(Add(step=step),), output=f"${{{id_}}}", reason="the answer is composed from the results")
        checked, problems = self._splicer.check(patch)
        if checked is None:
            reason = shorten("; ".join(str(problem) for problem in problems if not problem.is_advice), 500)
            self._stop(Status.FAILED, f"the answer cannot be composed: {reason}")
            return True
        self._splice(checked, "host", patch.reason)
        return True

    def _results(self) -> Any:
        """Return references to the answer of the plan: its named output, or the outputs of its sinks by id."""
        match self._graph.written_output:
            case None:
                sinks = [node.id for node in self._graph.sinks() if node.state is State.SUCCEEDED]
                return {id_: f"${{{id_}}}" for id_ in sinks}
            case str(text) if "${" not in text:
                return f"${{{text}}}"
            case written:
                return written

    # The stream -------------------------------------------------------------------------------------------

    def _take(self, node: Node, text: str) -> None:
        """Take a piece of text from a tool, if it belongs to the answer and nobody must approve the answer first."""
        if node.tool.name != COMPOSE or not text or not self._may_stream(node):
            return
        attempt = len(node.attempts)
        is_anew = bool(self._pieces) and attempt != self._attempt
        self._attempt = attempt
        self._pieces.append(AnswerPiece(text, is_anew=is_anew))
        self.tell()

    def _may_stream(self, node: Node) -> bool:
        if self._policy.approve_output or (self._reviews is not None and self._reviews.wanted(node.plan.step)):
            return False
        return all(said.value >= self._policy.min_confidence for said in answer_confidences(self._graph))

    def tell(self) -> None:
        """Wake the readers of the stream: there is a piece, or the run has ended."""
        news, self._news = self._news, anyio.Event()
        news.set()

    async def stream(
        self, ended: anyio.Event, result: Callable[[], Awaitable[RunResult]]
    ) -> AsyncIterator[AnswerPiece]:
        """Yield the pieces of the answer, from its first; at the end, the whole of it if there were none.

        Args:
            ended: Set when the run has ended.
            result: Returns the result of the run then.
        """
        place = 0
        while place < len(self._pieces) or not ended.is_set():
            if place == len(self._pieces):
                await self._news.wait()
            for piece in self._pieces[place:]:
                place += 1
                yield piece
        final = await result()
        if not place and final.output is not None:
            answer = final.shown_output
            yield AnswerPiece(answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False))

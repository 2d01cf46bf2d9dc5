"""Two planners for one job: a fast one, and a strong one for what the fast one cannot do."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable
from typing import Any, Final

from dagrun.errors import ContractError, PlanRefused, Problem
from dagrun.model.patch import Add, Drop, Patch, Replace, Rewire
from dagrun.model.plan import Plan
from dagrun.model.planner import Brief, Planner, RevisedBy, Revision, must_be_planner

# How a request has ended that the next one had better not leave to the same planner.
_FAILED: Final = frozenset(("failed", "refused"))


class EnsemblePlanner:
    """Asks a fast planner first, and a strong one when that has not been good enough.

    The strong one is asked after an answer that was refused (it is no valid plan, or its author was not sure enough of
    it), and when the last replan of the run has failed or was refused.

    Args:
        fast: Asked first.
        strong: Asked then. What it answers counts, however sure it is; the policy may want a person for that.
        min_confidence: The least confidence, from 0 to 1, with which an answer of the fast one is used. An answer that
            does not say how sure it is, is used.

    Raises:
        ContractError: *min_confidence* is no such number, or one of the two is no planner.

    Example:
        >>> from dagrun import EnsemblePlanner, Plan, StaticPlanner, Step
        >>> known, other = StaticPlanner(), StaticPlanner(Plan(steps=[Step(id="one", tool="add")]))
        >>> planner = EnsemblePlanner(known, other, min_confidence=0.8)
    """

    __slots__ = ("_fast", "_min_confidence", "_strong")

    def __init__(self, fast: Planner, strong: Planner, *, min_confidence: float = 0.6) -> None:
        must_be_planner(fast, "fast")
        must_be_planner(strong, "strong")
        if not 0 <= min_confidence <= 1:
            raise ContractError(f"min_confidence must be a number from 0 to 1, got {min_confidence!r}")
        self._fast = fast
        self._strong = strong
        self._min_confidence = min_confidence

    def revise(self, brief: Brief) -> RevisedBy:
        """Answer with one of the two planners, in its own way: as a stream, or all at once.

        Raises:
            PlanRefused: The fast one is not sure enough of its answer (``DR422``); the next call goes to the strong
                one. Whatever else the two raise is raised, too.
        """
        if needs_strong(brief):
            return self._strong.revise(brief)
        said = self._fast.revise(brief)
        if isinstance(said, AsyncIterable):
            return self._stream(said)
        return self._answer(said)

    async def _answer(self, said: Awaitable[Revision]) -> Revision:
        answer = await said
        self._check(answer)
        return answer

    async def _stream(
        self, said: AsyncIterator[Add | Drop | Replace | Rewire | Patch]
    ) -> AsyncIterator[Add | Drop | Replace | Rewire | Patch]:
        try:
            async for edit in said:
                self._check(edit)
                yield edit
        finally:
            if hasattr(said, "aclose"):  # a generator, or what passes one on: it may hold a connection
                await said.aclose()

    def _check(self, answer: Any) -> None:
        sure = answer.confidence if isinstance(answer, Patch | Plan) else None
        if sure is not None and sure < self._min_confidence:
            facts = {"confidence": f"{sure:g}", "least": f"{self._min_confidence:g}"}
            raise PlanRefused([Problem("DR422", "confidence", facts)])


def needs_strong(brief: Brief) -> bool:
    """Whether the easy way has been tried already, and did not do."""
    return bool(brief.refused) or (bool(brief.past) and brief.past[-1] in _FAILED)

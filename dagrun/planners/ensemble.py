"""Two planners for one run: a fast one, and a strong one for requests that the fast one failed."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable
from typing import Any, Final

from dagrun.errors import ContractError, PlanRefused, Problem
from dagrun.model.patch import Add, Drop, Patch, Replace, Rewire
from dagrun.model.plan import Plan
from dagrun.model.planner import Brief, Planner, RevisedBy, Revision, must_be_planner

# Results of a request after which the strong planner is asked.
_FAILED: Final = frozenset(("failed", "refused"))


class EnsemblePlanner:
    """Asks a fast planner first, and a strong planner when the answer of the fast one is not good enough.

    The strong planner is asked after an answer was refused (because it was not a valid plan, or its confidence was too
    low), and when the last replan of the run failed or was refused.

    Args:
        fast: The planner that is asked first.
        strong: The planner that is asked after it. Its answers are used with any confidence; the policy may require a
            person for a low one.
        min_confidence: The least confidence, from 0 to 1, of an answer of the fast planner. An answer without a
            confidence is used.

    Raises:
        ContractError: *min_confidence* is not a number from 0 to 1, or *fast* or *strong* is not a planner.

    Examples:
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
        """Answer with one of the two planners: as a stream or at once, as that planner does.

        Raises:
            PlanRefused: The confidence of the fast planner is too low (``DR422``); the next call goes to the strong
                one. Errors of the two planners are passed on.
        """
        if needs_strong(brief):
            return self._strong.revise(brief)
        revised = self._fast.revise(brief)
        if isinstance(revised, AsyncIterable):
            return self._stream(revised)
        return self._answer(revised)

    async def _answer(self, revised: Awaitable[Revision]) -> Revision:
        answer = await revised
        self._check(answer)
        return answer

    async def _stream(
        self, edits: AsyncIterator[Add | Drop | Replace | Rewire | Patch]
    ) -> AsyncIterator[Add | Drop | Replace | Rewire | Patch]:
        try:
            async for edit in edits:
                self._check(edit)
                yield edit
        finally:
            if hasattr(edits, "aclose"):  # a generator, or a wrapper of one: it may hold a connection
                await edits.aclose()

    def _check(self, answer: Any) -> None:
        confidence = answer.confidence if isinstance(answer, Patch | Plan) else None
        if confidence is not None and confidence < self._min_confidence:
            facts = {"confidence": f"{confidence:g}", "least": f"{self._min_confidence:g}"}
            raise PlanRefused([Problem("DR422", "confidence", facts)])


def needs_strong(brief: Brief) -> bool:
    """Whether the fast planner was asked already, and its answer was refused or failed."""
    return bool(brief.refused) or (bool(brief.past) and brief.past[-1].result in _FAILED)

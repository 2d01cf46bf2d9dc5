"""`FallbackChain`: planners, the lightest first; each passes on, with a reason, requests that it cannot serve.

`EnsemblePlanner` is a chain of two, and `PersonPlanner` the end of one.
"""

from __future__ import annotations

import json
from typing import Any, Final

from dagrun.errors import CannotPlan, ContractError, ModelError, NoRoute, PlanRefused, shorten
from dagrun.kernel.model.patch import Patch
from dagrun.kernel.model.planner import (
    Brief,
    FallbackPlanner,
    Planner,
    Revision,
    low_confidence_of,
    must_be_planner,
    with_names,
)
from dagrun.kernel.model.policy import PlanLimits
from dagrun.kernel.model.question import ASK_PERSON
from dagrun.planners.answers.model_answers import read_answer
from dagrun.planners.ask_model import toolbox_of

_WANTED: Final = {
    "type": "object",
    "description": 'a plan, {"steps": […]}, or for a plan that runs already a patch, {"edits": […]}',
}


class FallbackChain:
    """Asks one planner after another, until one has a good answer. Put the lightest first.

    For each request, that is a first plan or a change, the run begins with the first planner. It goes on to the next
    one when a planner

    - has no route or nothing to say, refuses, says that a person is needed, or has reached a limit;
    - has had its answers refused (`FallbackPlanner.tries`, 2 by default, each with the problems of the one before);
    - is not sure of its answer, or of one step in it (`FallbackPlanner.min_confidence`);
    - takes too long, or gives no answer, because its server is down, for instance.

    Who has asked to see the results (`StepwisePlanner`) is asked for the next step. Every handing on is an event
    (`HandedOn`); each call counts and is charged as for one planner. Steps that a streamed plan has brought before its
    planner handed on stay in the graph, and the next planner is told of them, and of the reasons (`Brief.before`).

    Args:
        planners: The planners in order: planners, chains, or a `FallbackPlanner` for other limits than the default
            ones. The planners of an inner chain become planners of this one.
        min_confidence: The least confidence for planners that are no `FallbackPlanner`.

    Attributes:
        rungs: The planners with their limits.

    Raises:
        ContractError: There are no planners, or one of them is none; *min_confidence* is not a number from 0 to 1.

    Examples:
        >>> from dagrun import FallbackChain, PersonPlanner, Plan, Route, RouterPlanner, StaticPlanner, Step
        >>> sales = Plan(steps=[Step(id="load", tool="load_sales")])
        >>> chain = FallbackChain(RouterPlanner([Route("sales", ["sales"], sales)]), PersonPlanner())
        >>> [rung.name for rung in chain.rungs]
        ['RouterPlanner', 'PersonPlanner']
    """

    __slots__ = ("rungs",)

    def __init__(self, *planners: Planner | FallbackPlanner, min_confidence: float = 0.6) -> None:
        rungs: list[FallbackPlanner] = []
        for planner in planners:
            must_be_planner(
                planner.planner if isinstance(planner, FallbackPlanner) else planner, "each planner of a FallbackChain"
            )
            if isinstance(planner, FallbackPlanner):
                rungs.append(planner)
            elif isinstance(planner, FallbackChain):
                rungs += planner.rungs
            else:
                rungs.append(FallbackPlanner(planner, min_confidence=min_confidence))
        if not rungs:
            raise ContractError("give it planners, as in FallbackChain(RouterPlanner(…), OpenAIPlanner('gpt-5'))")
        self.rungs: tuple[FallbackPlanner, ...] = with_names(tuple(rungs))

    async def revise(self, brief: Brief) -> Revision:
        """Ask one planner after another, and return the first good answer.

        A run does not call this: it asks each planner itself, so that each call is counted, limited in time and on
        record. This is for a planner that passes its brief on to a fallback chain.

        Raises:
            PlanRefused: The last answer is no plan.
            CannotPlan: No planner can continue.
        """
        *others, last = self.rungs[min(len(brief.refused), len(self.rungs) - 1) :]
        for rung in others:
            try:
                answer = await _whole(rung.planner, brief)
            except (CannotPlan, ModelError, NoRoute, PlanRefused):
                continue
            if low_confidence_of(answer, brief, rung.min_confidence) is None:
                return answer
        return await _whole(last.planner, brief)


async def _whole(planner: Planner, brief: Brief) -> Revision:
    """Return the answer of a planner; a streamed one as a patch."""
    answer: Any = planner.revise(brief)
    if not hasattr(answer, "__aiter__"):
        revision: Revision = await answer
        return revision
    edits: list[Any] = []
    facts: dict[str, Any] = {}
    try:
        async for item in answer:
            if isinstance(item, Patch):
                edits += item.edits
                facts |= {name: getattr(item, name) for name in item.model_fields_set - {"edits"}}
            else:
                edits.append(item)
    finally:
        if hasattr(answer, "aclose"):  # a generator, or a wrapper of one: it may hold a connection
            await answer.aclose()
    return Patch(edits=tuple(edits), **facts)


class EnsemblePlanner(FallbackChain):
    """A fallback chain of two planners: a fast one, and a strong one if the answer of the fast one is not good enough.

    Each request begins with the fast planner. The strong one is asked after a refused answer, a low confidence of the
    answer or of a step in it, a refusal, a time-out or a server that does not answer; `FallbackChain` has the list.

    Args:
        fast: The planner that is asked first.
        strong: The planner that is asked after it. Its answers are used with any confidence; the policy may require a
            person for a low one.
        min_confidence: The least confidence, from 0 to 1, of an answer of the fast planner and of each step in it. An
            answer without a confidence is used.

    Raises:
        ContractError: *min_confidence* is not a number from 0 to 1, or *fast* or *strong* is not a planner.

    Examples:
        >>> from dagrun import EnsemblePlanner, Plan, StaticPlanner, Step
        >>> known, other = StaticPlanner(), StaticPlanner(Plan(steps=[Step(id="one", tool="add")]))
        >>> planner = EnsemblePlanner(known, other, min_confidence=0.8)
    """

    __slots__ = ()

    def __init__(self, fast: Planner, strong: Planner, *, min_confidence: float = 0.6) -> None:
        must_be_planner(fast, "fast")
        must_be_planner(strong, "strong")
        super().__init__(FallbackPlanner(fast, min_confidence=min_confidence, tries=1), strong)


class PersonPlanner:
    """Asks a person for a plan or a patch, at the end of a fallback chain.

    The person sees the goal, why the planner is asked, and why each planner before has handed on; and answers with
    a plan or a patch as JSON, which is checked like any, or with no. It is a question like all others: the approver of
    the run, the terminal, the live page and ``dagrun answer`` can answer it. There is no limit to the time. If nobody
    is there to be asked, the run ends as ``escalated``, with what was found so far.
    """

    __slots__ = ()

    async def revise(self, brief: Brief) -> Revision:
        """Ask, and return the plan or the patch of the person.

        Raises:
            PlanRefused: The answer of the person is no valid plan.
            CannotPlan: The person gave none, or nobody is there.
        """
        ask = ASK_PERSON.get()
        what = "a plan for" if brief.is_first else "a change of the plan for"
        answer = None if ask is None else await ask(f"No planner has {what}: {brief.goal}", _reasons(brief), _WANTED)
        if answer is None:
            raise CannotPlan("nobody was there to be asked for a plan", kind="person")
        if answer.choice != "approve":
            note = f": {shorten(answer.note)}" if answer.note else ""
            raise CannotPlan(f"a person gave no plan{note}")
        return read_answer(json.dumps(answer.value), toolbox_of(brief), PlanLimits())


def _reasons(brief: Brief) -> str:
    """Return the reasons why a person is asked, in one line."""
    reasons: list[Any] = [trigger.reason for trigger in brief.triggers if not brief.is_first]
    reasons += [f"{before.planner}: {before.reason or before.why}" for before in brief.before]
    if brief.refused:
        reasons += [f"the last answer was refused: {problem.sentence}" for problem in brief.refused[-1].problems[:5]]
    return shorten("; ".join(filter(None, reasons)), 2_000)

"""Broken parts of the drafting of plans: one plausible bug each, and the proofs must notice all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from anyio.lowlevel import checkpoint

from dagrun import Plan, Step
from dagrun.kernel.checks.checked_plan import CheckedStep
from dagrun.kernel.decide import recovery as delays
from dagrun.kernel.graph import live_graph as drafts
from dagrun.kernel.graph.ledger import Ledger, Reservation
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.runtime.planning import first_plan, planner_calls
from dagrun.kernel.runtime.planning.first_plan import FirstPlan, StreamedSteps
from dagrun.kernel.runtime.planning.planner_calls import PlannerCalls, PlannerRequest
from dagrun.kernel.runtime.run_callbacks import RunMeter
from dagrun.kernel.runtime.steps.run_completion import RunCompletion

# Effects --------------------------------------------------------------------------------------------------------------


def nothing(*_: Any, **__: Any) -> None:
    """What should have been done is not."""


def always(graph: LiveGraph, plan: CheckedStep) -> bool:
    """Every step may start early."""
    return True


def by_its_own_tool(graph: LiveGraph, plan: CheckedStep) -> bool:
    """The tool in reserve is not looked at."""
    return plan.tool.effect.is_free or plan.tool.stream_safe or plan.tool.name in graph.plan.policy.planning.stream_safe


# Steps ----------------------------------------------------------------------------------------------------------------


class TakesAtOnce(StreamedSteps):
    """A step is let in before what it names."""

    def take(self, step: Step) -> bool:
        super().take(step)
        return True


class LetsNobodyIn(StreamedSteps):
    """Who waits for a step that comes later is forgotten."""

    def let_in(self, id_: str) -> Iterator[Step]:
        list(super().let_in(id_))
        return iter(())


def declared_alone(step: Step) -> set[str]:
    """What a step refers to without declaring it is not waited for."""
    return set(step.depends_on) - {step.id}


class WaitsForTheNext(FirstPlan):
    """A step is let in when the next one is written: there was a lookahead of one."""

    _last: Any = None

    def _take(self, edit: Any) -> None:
        last, self._last = self._last, edit
        if last is not None:
            super()._take(last)

    def _plan_of(self, said: object) -> tuple[Plan, bool]:
        if self._last is not None:
            super()._take(self._last)
        return super()._plan_of(said)


class TakesOn(FirstPlan):
    """Who ends the run while a step comes in is not noticed."""

    def _take(self, edit: Any) -> None:
        if not self._graph.is_drafting or not hasattr(edit, "step"):
            super()._take(edit)
        elif self._arrivals.take(edit.step) and not self._is_held:
            arrived = [edit.step]
            while arrived:
                step = arrived.pop()
                if self._let_in(step):
                    arrived += self._arrivals.let_in(step.id)


class SkipsNothing(FirstPlan):
    """What needs a step that has failed before waits for it."""

    def skip_unreachable(self, new: Iterable[str]) -> None:
        pass


# The whole ------------------------------------------------------------------------------------------------------------


class ChecksNothing(FirstPlan):
    """A plan is carried out as it is: what came in was right by itself."""

    def _check_whole(self, plan: Plan) -> None:
        pass


class CutsShort(FirstPlan):
    """Of a stream that is too long, the first part is taken for the plan."""

    def _take_all(self, steps: Any) -> None:
        if not self._arrivals.steps:
            super()._take_all(steps)


class AsksNobody(FirstPlan):
    """A doubtful plan is carried out like any other."""

    async def _ask_person(self, request: PlannerRequest, plan: Plan) -> None:
        pass


class MendsTwice(FirstPlan):
    """A better plan may be asked for once more."""

    def _refuse(self, request: PlannerRequest, problems: Any) -> PlannerRequest | None:
        again = super()._refuse(request, problems)
        request.refusals -= 1
        return again


class OverlooksTheGoal(FirstPlan):
    """A plan that was begun for another goal is carried out."""

    @property
    def _is_wanted(self) -> bool:
        return self._graph.is_drafting


class EndsTooSoon(RunCompletion):
    """When everything has settled, the run is over, although its plan is still being written."""

    def finish_if_settled(self) -> None:
        was, self._graph.is_drafting = self._graph.is_drafting, False
        super().finish_if_settled()
        self._graph.is_drafting = was


# The planner ----------------------------------------------------------------------------------------------------------


async def answer_and_leave(planner: Any, brief: Any, gathered: Any) -> object:
    """Nobody closes the stream."""
    said = planner.revise(brief)
    if not hasattr(said, "__aiter__"):
        return await said
    async for item in said:
        if not gathered.add(item):
            break
        await checkpoint()
    return gathered.patch()


async def answer_in_one_breath(planner: Any, brief: Any, gathered: Any) -> object:
    """The loop gets no turn between two steps."""
    said = planner.revise(brief)
    if not hasattr(said, "__aiter__"):
        return await said
    try:
        async for item in said:
            if not gathered.add(item):
                break
    finally:
        await said.aclose()
    return gathered.patch()


class HearsEverything(planner_calls._Gathered):
    """What is said after the time of a call is over counts as well."""

    def add(self, item: object) -> bool:
        self.is_closed = False
        return super().add(item)

    def _is_late(self) -> bool:
        return False


class AsksTheSameAgain(PlannerCalls):
    """An answer that broke off is asked for again, whatever has come of its first half."""

    def _judge(self, error: Any, gathered: Any, attempt: int) -> float:
        gathered.has_taken = False
        return super()._judge(error, gathered, attempt)


def no_delay(*_: Any) -> float:
    """A busy model is asked again at once."""
    return 0.0


# Usage ----------------------------------------------------------------------------------------------------------------


class ChargesNothing(RunMeter):
    """What models use is given back."""

    def settle(self, reservation: Reservation, number: int, tokens: int | None, cost: float | None) -> None:
        super().settle(reservation, number, 0, 0.0)


class TellsNothing(RunMeter):
    """It is charged, but the record does not say so."""

    def settle(self, reservation: Reservation, number: int, tokens: int | None, cost: float | None) -> None:
        super().settle(reservation, number, tokens, cost)
        self.tokens = 0


class TrustsTheUnknown(RunMeter):
    """What nobody knows is charged as nothing."""

    def settle(self, reservation: Reservation, number: int, tokens: int | None, cost: float | None) -> None:
        super().settle(reservation, number, tokens or 0, cost or 0.0)


class ReservesNothing(Ledger):
    """A call of a model takes its room when it has ended."""

    def reserve_model(self, call: Any) -> Reservation | None:
        reservation = super().reserve_model(call)
        for account, _, worst in reservation.claims if reservation is not None else ():
            account.reserved -= worst
        return reservation

    def settle(self, reservation: Reservation, *args: Any, **facts: Any) -> tuple[str, ...]:
        if reservation in self._open and not hasattr(reservation.called, "effect"):
            for account, _, worst in reservation.claims:
                account.reserved += worst
        return super().settle(reservation, *args, **facts)


class CountsNoCalls(Ledger):
    """The planner may be asked as often as anybody wants."""

    def take_planner_call(self) -> bool:
        return True


DRAFT_MUTANTS: Final[Mapping[str, Mapping[Any, Any]]] = {
    "effects start early": {drafts.may_start_early: always},
    "the tool in reserve is forgotten": {drafts.may_start_early: by_its_own_tool},
    "a step is let in before what it names": {StreamedSteps: TakesAtOnce},
    "forward references are dropped": {StreamedSteps: LetsNobodyIn},
    "what is referred to is not waited for": {first_plan.named_in: declared_alone},
    "readiness waits for the planner's next word": {FirstPlan: WaitsForTheNext},
    "steps come in after the end of the run": {FirstPlan: TakesOn},
    "what needs a failed step waits for ever": {FirstPlan: SkipsNothing},
    "a refused draft does not freeze": {drafts.freeze: nothing},
    "what was kept back is never let go": {drafts.thaw: nothing},
    "a plan is carried out without the check": {FirstPlan: ChecksNothing},
    "a stream that is too long is cut short": {FirstPlan: CutsShort},
    "nobody is asked about a doubtful plan": {FirstPlan: AsksNobody},
    "the repair call is made twice": {FirstPlan: MendsTwice},
    "a changed goal is overlooked": {FirstPlan: OverlooksTheGoal},
    "a run ends while its plan is written": {RunCompletion: EndsTooSoon},
    "the stream is not closed": {planner_calls._answer: answer_and_leave},
    "the loop gets no turn between two steps": {planner_calls._answer: answer_in_one_breath},
    "late words are heard": {planner_calls._Gathered: HearsEverything},
    "half an answer is asked for again": {PlannerCalls: AsksTheSameAgain},
    "a busy model is asked at once": {delays.retry_delay: no_delay},
    "usage is not charged": {RunMeter: ChargesNothing},
    "usage is not told": {RunMeter: TellsNothing},
    "unknown usage counts as nothing": {RunMeter: TrustsTheUnknown},
    "a model reserves nothing": {Ledger: ReservesNothing},
    "calls of the planner are not counted": {Ledger: CountsNoCalls},
}

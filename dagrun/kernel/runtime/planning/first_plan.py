"""The first plan of a run: its steps are added, and may start, while the planner still writes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import anyio

from dagrun.errors import Problem, shorten
from dagrun.kernel.checks.check_plan import find_problems
from dagrun.kernel.checks.findings import Findings
from dagrun.kernel.checks.plain_json import compile_value
from dagrun.kernel.decide.recovery import ONLY_ITS_PLAN
from dagrun.kernel.decide.replanning import has_effects, lines_of, why_agree
from dagrun.kernel.graph.changes import GOAL
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.patches.apply_patch import CheckedPatch
from dagrun.kernel.graph.patches.check_patch import Origin
from dagrun.kernel.model.outcome import State, Status, TriggerKind
from dagrun.kernel.model.patch import Add, Patch
from dagrun.kernel.model.plan import Plan, Step
from dagrun.kernel.model.planner import Brief, Refusal, Trigger
from dagrun.kernel.model.reference import RESERVED, BadReference
from dagrun.kernel.model.value import decode
from dagrun.kernel.runtime.people.human_input import HumanInput
from dagrun.kernel.runtime.planning.planner_calls import AnyEdit, Over, PlannerCalls, PlannerRequest, Refused, answered
from dagrun.kernel.runtime.run_parts import RunParts

_LOG: Final = logging.getLogger("dagrun.run")
_IN_PATCH: Final = "edits[0].step"


class StreamedSteps:
    """The steps of a plan in the order in which they are written; each waits for the steps it refers to.

    Attributes:
        steps: All steps that have come, in that order.
    """

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._here: set[str] = set()
        self._lacking: dict[int, set[str]] = {}  # by place: the ids that have not come in
        self._waiting: dict[str, list[int]] = {}  # by such an id: the places of the steps that wait for it

    def take(self, step: Step) -> bool:
        """Take a step that has come; return whether all steps that it names are in the plan already."""
        place = len(self.steps)
        self.steps.append(step)
        lacking = named_in(step) - self._here
        if not lacking:
            return True
        self._lacking[place] = lacking
        for id_ in lacking:
            self._waiting.setdefault(id_, []).append(place)
        return False

    def let_in(self, id_: str) -> Iterator[Step]:
        """Note that the step *id_* is in the plan; yield the steps that waited only for it."""
        self._here.add(id_)
        for place in self._waiting.pop(id_, ()):
            self._lacking[place].discard(id_)
            if not self._lacking[place]:
                del self._lacking[place]
                yield self.steps[place]


def named_in(step: Step) -> set[str]:
    """Return the ids that *step* names in ``depends_on`` and in references; a bad reference is left to the checks."""
    names = set(step.depends_on)
    for value in (step.args, step.for_each):
        template = compile_value(value, Findings(), 0, "") if value is not None else None
        if template is not None:
            names.update(template.sources)
    for leaf in step.when.leaves() if step.when is not None else ():
        try:
            names.add(leaf.reference.step)
        except BadReference:
            continue
    return names - RESERVED.keys() - {step.id}


class FirstPlan:
    """Gets the first plan of a run.

    Args:
        parts: What the parts of the run share.
        calls: Asks the planner.
        splice: Adds a checked step to the plan.
        stop: Ends the run.
        is_plan_only: Whether nothing is to run, whatever the plan is.
    """

    def __init__(
        self,
        parts: RunParts,
        calls: PlannerCalls,
        splice: Callable[[CheckedPatch, Origin, str], None],
        stop: Callable[[Status, str], None],
        *,
        is_plan_only: bool,
    ) -> None:
        self._record = parts.record
        self._graph = parts.graph
        self._policy = parts.policy
        self._people = parts.people
        self._splicer = parts.record.splicer
        self._calls = calls
        self._splice = splice
        self._stop = stop
        policy = parts.policy
        # A frozen plan is one that was written before anything was seen.
        self._is_held = is_plan_only or policy.approve_patches == "always" or policy.freeze_plan
        self._is_plan_only = is_plan_only
        self._scope: anyio.CancelScope | None = None
        self._arrivals = StreamedSteps()
        self._faults: list[Problem] = []  # problems of steps
        self._strays: list[Problem] = []  # edits of steps that cannot be there yet

    def begin(self) -> None:
        """Record that the run begins with a plan that is still to be written."""
        self._record.start_draft(is_held=self._is_held)

    async def work(self, brief: Callable[[PlannerRequest], Brief]) -> PlannerRequest | None:
        """Get the plan; return a request for a better one, if this one is refused.

        Args:
            brief: Makes the brief for a request.
        """
        trigger = Trigger(TriggerKind.GOAL_GIVEN, GOAL, "there is no plan yet")
        request, more = PlannerRequest(0, (trigger,)), False
        try:
            with anyio.CancelScope() as self._scope:
                more = await self._get(request, brief)
        except Over as over:
            if self._is_wanted:
                self._record.end_draft(over.result, over.reason, calls=request.calls)
                self._stop(over.status, f"there is no plan: {over.reason}")
        except Refused as refused:
            if self._is_wanted:
                return self._refuse(request, refused.problems)
        else:
            if self._is_wanted:
                count = len(self._arrivals.steps)
                self._record.end_draft("applied", f"{count} step{'s' * (count != 1)}", calls=request.calls, more=more)
                self.leave_if_plan_only()
        if self._graph.is_drafting:
            self._record.end_draft("stopped", "the goal has changed since", calls=request.calls)
        return None

    def abandon_draft(self) -> None:
        """Drop the plan: the goal has changed."""
        if self._scope is not None:
            self._scope.cancel()

    async def _get(self, request: PlannerRequest, brief: Callable[[PlannerRequest], Brief]) -> bool:
        """Get the plan, and add the steps that were kept back; return whether the planner wants to be asked again."""
        answer = await self._calls.ask(request, partial(_tell, request, brief), self._take)
        try:
            plan, more = self._plan_of(answer)
            self._check_whole(plan)
            self._rest_of(plan)  # people are not asked about a plan that cannot be carried out
            await self._ask_person(request, plan)
            rest = self._rest_of(plan) if self._is_wanted else None
            if rest is not None:
                self._splice(rest, "planner", "")
        except (Over, Refused):
            raise
        except Exception as error:
            # Data that no check has foreseen, or a fault of dagrun, so the traceback is logged.
            _LOG.exception("the plan of the planner could not be checked")
            raise Over("failed", f"the planner's plan cannot be checked: {type(error).__name__}") from error
        return more

    @property
    def _is_wanted(self) -> bool:
        """Whether the plan still matters: the run is not being stopped, and has the goal that it began with."""
        graph = self._graph
        return graph.is_drafting and GOAL not in graph.triggers and graph.status is None

    def leave_if_plan_only(self) -> None:
        """End the run, if only the plan was wanted."""
        if self._is_plan_only:
            self._stop(Status.CANCELLED, ONLY_ITS_PLAN)

    # Steps ------------------------------------------------------------------------------------------------

    def _take(self, edit: AnyEdit) -> None:
        """Add a step, if it is valid by itself and all that it names is there; then the steps that waited for it."""
        if not self._graph.is_drafting:
            return
        if not isinstance(edit, Add):
            self._strays.append(Problem("DR401", "", {"id": repr(edit.id[:200]), "hint": ""}))
        elif self._arrivals.take(edit.step) and not self._is_held:
            arrived = [edit.step]
            while arrived and self._graph.is_drafting:  # an observer that sees a step come may end the run
                step = arrived.pop()
                if self._let_in(step):
                    arrived += self._arrivals.let_in(step.id)

    def _let_in(self, step: Step) -> bool:
        checked, problems = self._splicer.check(Patch(edits=(Add(step=step),)), "planner")
        if checked is None:
            place = f"steps[{self._arrivals.steps.index(step)}]"
            self._faults += (replace(p, path=p.path.replace(_IN_PATCH, place)) for p in problems if not p.is_advice)
            return False
        self._splice(checked, "planner", "")
        self.skip_unreachable((step.id,))
        return True

    def skip_unreachable(self, new: Iterable[str]) -> None:
        """Skip at once the *new* steps that need a step which had failed before they were written."""
        nodes = self._graph.nodes
        for before in {id_: nodes[id_] for step in new for id_ in nodes[step].plan.depends_on}.values():
            if before.state.is_settled and before.state is not State.SUCCEEDED:
                self._record.after_end(before)

    # The whole --------------------------------------------------------------------------------------------

    def _plan_of(self, answer: object) -> tuple[Plan, bool]:
        """Make one plan of an answer, whole or streamed; return it, and whether the planner wants to be asked again."""
        match answer:
            case Plan():
                self._take_all(answer.steps)
                return answer, False
            case Patch():
                self._take_all([edit.step for edit in answer.edits if isinstance(edit, Add)])
                # Edits of other kinds have not been looked at, unless the planner has streamed them.
                others = [edit for edit in answer.edits if not isinstance(edit, Add)]
                if others and not self._strays:
                    self._take(others[0])
                facts: dict[str, Any] = {"output": answer.output} if answer.changes_output else {}
                steps = tuple(self._arrivals.steps)
                return Plan(steps=steps, goal=self._graph.goal, confidence=answer.confidence, **facts), answer.more
            case None:
                raise Over("failed", "the planner has none")
            case _:
                raise Over("failed", f"the planner's answer is no plan but a {type(answer).__name__}")

    def _take_all(self, steps: Any) -> None:
        limit = self._policy.planning.max_edits
        if len(steps) > limit:  # of a stream that is too long, only the first were looked at
            raise Refused(Problem("DR108", "steps", {"count": str(len(steps)), "limit": str(limit)}))
        for step in steps if not self._arrivals.steps else ():  # else they were streamed
            self._take(Add(step=step))

    def _check_whole(self, plan: Plan) -> None:
        """Check the plan like a plan from a file; each step by itself has passed its checks already.

        Raises:
            Refused: The plan has problems.
        """
        known, inputs = self._graph.plan, decode(self._graph.inputs) or {}
        problems, _ = find_problems(
            plan,
            known.toolbox,
            self._policy,
            inputs=inputs,
            executors=known.executors,
            secrets=known.secrets,
            deps=known.deps,
            is_hooked=known.redact is not None,
        )
        faults = [problem for problem in problems if not problem.is_advice] or self._faults
        if faults or self._strays:
            raise Refused(*faults, *self._strays)

    async def _ask_person(self, request: PlannerRequest, plan: Plan) -> None:
        """Ask about a plan that the planner is not sure of, or that the policy shows to people first.

        Raises:
            Over: The plan was not approved.
        """
        if not self._is_plan_only and self._is_wanted:
            facts = (self._people, self._graph, plan.steps, plan.output, plan.confidence)
            await agree_to_plan(*facts, must_say=self._calls.must_say(request))

    def _rest_of(self, plan: Plan) -> CheckedPatch | None:
        """Return the steps that were kept back, and the output of the run, as a patch that can be applied now."""
        facts: dict[str, Any] = {"output": plan.output} if plan.output is not None else {}
        edits = tuple(Add(step=step) for step in plan.steps) if self._is_held else ()
        if not edits and not facts:
            return None
        checked, problems = self._splicer.check(Patch(edits=edits, **facts), "planner")
        if checked is None:
            raise Refused(*(problem for problem in problems if not problem.is_advice))
        return checked

    def _refuse(self, request: PlannerRequest, problems: tuple[Problem, ...]) -> PlannerRequest | None:
        """Record that the plan is refused, so that nothing more starts, and ask for a better one, if it may be."""
        patch = Patch(edits=tuple(Add(step=step) for step in self._arrivals.steps))
        reason = shorten("; ".join(map(str, problems)), 500) + answered(self._graph)
        self._record.end_draft("refused", reason, calls=request.calls, problems=problems)
        request.refused.append(Refusal(patch, problems))
        if why := self._calls.must_escalate(problems):
            self._stop(Status.ESCALATED, why)
            return None
        if not self._calls.may_try_again(request, problems):
            self._stop(Status.FAILED, f"there is no plan: {reason}")
            return None
        request.calls = 0  # these are on record
        self._record.want_plan(TriggerKind.GOAL_GIVEN, "the plan is refused")
        request.triggers = (self._graph.triggers[GOAL],)
        return request


async def agree_to_plan(
    people: HumanInput,
    graph: LiveGraph,
    steps: Sequence[Step],
    output: Any,
    confidence: float | None,
    *,
    must_say: bool = False,
) -> None:
    """Ask for the approval of a first plan if needed: as first written, or after its repair.

    Args:
        people: Who is asked.
        graph: Of the run.
        steps: The whole plan.
        output: What the run would answer.
        confidence: What the planner says of it.
        must_say: Whether it has to say that for a plan with effects.

    Raises:
        Over: Nobody agrees.
    """
    why = why_agree(
        graph.plan.policy, confidence, has_effects=has_effects(graph, steps), proposed="plan", must_say=must_say
    )
    if not why:
        return
    answer = await people.ask_for_patch(f"May this plan run? {why[0].upper()}{why[1:]}.", lines_of(steps, output))
    if answer is None:
        raise Over("denied", f"nobody was there to agree to it: {why}", Status.WAITING)
    if answer.choice != "approve":
        note = f": {shorten(answer.note)}" if answer.note else ""
        raise Over("denied", f"a person did not agree to the plan{note}")


def _tell(request: PlannerRequest, brief: Callable[[PlannerRequest], Brief]) -> Brief:
    request.calls += 1
    return brief(request)

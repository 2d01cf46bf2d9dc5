"""The replan coordinator: asks the planner for patches while steps run, and has them spliced in.

1. Reasons that are open when the coordinator looks are one request. A later reason has a request of its own at once,
   unless it stands near a step of an open request (`around` in `dagrun.kernel.decide.replanning`): then it waits for
   that.
2. Requests about the goal, and for the first plan or more of one, are alone: they concern the whole plan.
3. A patch is checked against the graph of the instant in which it is applied, so what other requests have changed
   meanwhile cannot hurt it. Each request has its own answers and refusals; the ceilings count all of them together.
4. While a person looks at a patch, no other patch of the planner is applied: the record says that a person has agreed,
   and the next patch is the one that was agreed to.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
from anyio.abc import TaskGroup

from dagrun.errors import Problem, shorten
from dagrun.kernel.decide.briefs import make_brief
from dagrun.kernel.decide.replanning import (
    RepairBudgets,
    around,
    as_in_plan,
    diff_of,
    has_effects,
    is_seen,
    patch_has_effects,
    signature_of,
    steps_after,
    why_agree,
)
from dagrun.kernel.graph.changes import GOAL
from dagrun.kernel.graph.ledger import Near
from dagrun.kernel.graph.patches.apply_patch import CheckedPatch
from dagrun.kernel.model.outcome import State, Status, TriggerKind
from dagrun.kernel.model.patch import Patch
from dagrun.kernel.model.plan import Plan
from dagrun.kernel.model.planner import Brief, Planner, Refusal, Trigger
from dagrun.kernel.runtime.planning.first_plan import FirstPlan, agree_to_plan
from dagrun.kernel.runtime.planning.planner_calls import (
    Over,
    PlannerCalls,
    PlannerRequest,
    Refused,
    answered,
    patch_from,
)
from dagrun.kernel.runtime.run_parts import RunParts
from dagrun.kernel.runtime.steps.scheduler import Scheduler

if TYPE_CHECKING:
    from dagrun.kernel.graph.patches.split_patch import Split

_LOG: Final = logging.getLogger("dagrun.run")

# A request for the first plan, or for more of it, changes no plan, and does not count as a replan.
_WANTS_PLAN: Final = frozenset((TriggerKind.GOAL_GIVEN, TriggerKind.NEXT))


@dataclass(slots=True)
class _Told:
    """State of one planner call: the brief, the steps that had succeeded then, and the edits left out of the answer.

    Attributes:
        may_split: Whether edits that the policy refuses may be left out; not after a person has seen all of them.
        left_out: Why edits were left out.
    """

    brief: Brief = field(init=False)
    known: frozenset[str] = frozenset()
    may_split: bool = True
    left_out: tuple[Problem, ...] = ()


class Coordinator:
    """Turns reasons to replan into patches; requests that have nothing to do with each other run side by side.

    Args:
        parts: What the parts of the run share.
        planner: The planner.
        scheduler: Applies checked patches, ends the run, and wakes workers after a change.
        is_plan_only: Whether nothing is to run, whatever the planner answers.

    Attributes:
        is_over: Whether the planner is not asked any more: the run is being stopped, or has ended.
    """

    def __init__(self, parts: RunParts, planner: Planner, scheduler: Scheduler, *, is_plan_only: bool) -> None:
        self._run_id = parts.run_id
        self._record = parts.record
        self._graph = graph = parts.graph
        self._policy = parts.policy
        self._ledger = parts.ledger
        self._people = parts.people
        self._splicer = parts.record.splicer
        self._calls = calls = PlannerCalls(parts, planner)
        self._splicer.must_be_sure = calls.asks_models
        self._splice = scheduler.splice
        self._stop = scheduler.finish.stop
        self._settle_down = scheduler.on_external_change
        self._draft: FirstPlan | None = None
        if graph.goal and not graph.nodes:
            self._draft = FirstPlan(parts, calls, scheduler.splice, scheduler.finish.stop, is_plan_only=is_plan_only)
        self._repair: PlannerRequest | None = None
        self._is_plan_only = is_plan_only
        self._is_busy = False
        self._asked: dict[str, PlannerRequest] = {}  # the requests that have a task of their own, by step
        self._scopes: set[anyio.CancelScope] = set()
        self._person = anyio.Lock()  # rule 4
        self._tasks: TaskGroup
        self.is_over = False
        parts.up.wake_planner, parts.up.ask_for_more = self.wake, self.ask_for_more

    def open(self, tasks: TaskGroup) -> None:
        """Set the task group of the run."""
        self._tasks = tasks
        self._calls.open(tasks)

    def begin(self) -> None:
        """Ask for the first plan, if the run has none."""
        if self._draft is not None:
            self._draft.begin()
            self.wake()

    def ask_for_more(self) -> bool:
        """Ask the planner for more, as it wanted when everything has ended; return whether it is asked."""
        if self.is_over:
            return False
        self._record.want_plan(TriggerKind.NEXT, "everything in the plan has ended")
        return True

    def wake(self) -> None:
        """Ask the planner soon, because there is a reason, unless it is being asked already."""
        if self._draft is not None and self._graph.is_drafting and GOAL in self._graph.triggers:
            self._draft.abandon_draft()
        if not self._is_busy and not self.is_over:
            self._is_busy = True
            self._tasks.start_soon(self._work, name="dagrun replan")

    def close(self) -> None:
        """Stop asking: the run is being stopped, or has ended."""
        self.is_over = True
        for scope in self._scopes:
            scope.cancel()

    async def _work(self) -> None:
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                if self._graph.is_drafting and self._draft is not None:
                    self._repair = await self._draft.work(self._brief)
                    self._settle_down()
                while not self.is_over and (triggers := self._open_reasons()):
                    await self._next(triggers)
                    self._settle_down()
            finally:
                self._scopes.discard(scope)
                self._is_busy = False

    def _open_reasons(self) -> tuple[Trigger, ...]:
        """Return the triggers of a request that may begin now: rules 1 and 2."""
        graph = self._graph
        if GOAL in graph.triggers:
            return () if self._asked else tuple(graph.triggers.values())
        if not self._asked:
            return tuple(graph.triggers.values())
        taken = {id_ for step in self._asked for id_ in around(graph, step)}
        free = (trigger for trigger in graph.triggers.values() if trigger.step not in self._asked)
        return tuple(trigger for trigger in free if taken.isdisjoint(around(graph, trigger.step)))

    async def _next(self, triggers: tuple[Trigger, ...]) -> None:
        """Deal with *triggers*: begin a request to the planner, or record why not."""
        graph, record = self._graph, self._record
        if GOAL in graph.triggers and graph.triggers[GOAL].kind in _WANTS_PLAN:
            await self._plan_first(graph.triggers[GOAL])
            return
        repaired = [t.step for t in triggers if t.step != GOAL and graph.nodes[t.step].is_gone]
        if repaired:
            record.end_replan(0, "repaired", "a splice has taken it out of the plan", repaired)
            return
        for number, steps in graph.asking.items():  # the request of a process that has ended continues, and was counted
            mine = tuple(trigger for trigger in triggers if trigger.step in steps)
            if mine:
                await self._begin(PlannerRequest(number, mine))
                return
        reason = self._ledger.why_no_planner() or self._ceiling_near()
        if reason:
            self._end(PlannerRequest(0, triggers), "stopped", reason)
            return
        if spent := tuple(self._spent(triggers)):
            for trigger, why in spent:
                self._end(PlannerRequest(0, (trigger,)), "stopped", why)
            return
        old = tuple(t for t in triggers if is_seen(t.fingerprint, graph.replanned))
        if old:
            self._end(PlannerRequest(0, old), "stopped", "the planner was asked about the very same failure before")
            return
        self._ledger.take_replan()
        await self._begin(PlannerRequest(graph.replans + 1, triggers))

    async def _begin(self, request: PlannerRequest) -> None:
        """Start the request in its own task. A request about the goal is awaited here: no other may run beside it."""
        if request.number not in self._graph.asking:
            self._record.start_replan(request.steps)
        self._record.deliver()
        if GOAL in request.steps:
            await self._replan(request)
            return
        self._asked.update(dict.fromkeys(request.steps, request))
        self._tasks.start_soon(self._replan_alone, request, name="dagrun replan")

    async def _replan_alone(self, request: PlannerRequest) -> None:
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            if self.is_over:
                scope.cancel()
            try:
                await self._replan(request)
            finally:
                self._scopes.discard(scope)
                for step in request.steps:
                    del self._asked[step]
        if not self.is_over:
            self._settle_down()
            self.wake()

    async def _plan_first(self, trigger: Trigger) -> None:
        """Ask for a plan that can be run, or for the next steps; all other requests wait for that."""
        request, self._repair = self._repair, None
        if request is None or request.triggers != (trigger,):
            request = PlannerRequest(0, (trigger,))
        await self._replan(request)
        if self._draft is not None and trigger.kind is TriggerKind.GOAL_GIVEN and not self.is_over:
            self._draft.leave_if_plan_only()

    def _spent(self, triggers: tuple[Trigger, ...]) -> Iterator[tuple[Trigger, str]]:
        """Yield the triggers whose part of the plan has no replan left, each with the reason as a sentence."""
        limit = self._policy.planning.max_replans_per_step
        if limit is None:
            return
        budgets = RepairBudgets(self._graph)
        for trigger in triggers:
            if trigger.step != GOAL and (part := budgets.spent(trigger.step, limit)):
                why = "" if part == trigger.step else f", which {trigger.step} belongs to"
                yield trigger, f"ceiling of {limit} replans per step is spent: {limit} used for {part}{why}"

    def _ceiling_near(self) -> str:
        warn_at, seconds, now = self._policy.warn_at, self._policy.max_seconds, self._record.at()
        near = self._ledger.near(warn_at)
        if near is None and warn_at is not None and seconds is not None and now >= warn_at * seconds:
            near = Near("seconds", now, seconds)
        if near is None:
            return ""
        return f"the ceiling of {near.limit:g} {near.ceiling} is nearly spent, so the plan is no longer changed"

    # One request ------------------------------------------------------------------------------------------

    async def _replan(self, request: PlannerRequest) -> None:
        async with AsyncExitStack() as alone:
            try:
                checked, patch, told, is_agreed = await self._find_patch(request, alone)
            except Over as over:
                self._end(request, over.result, over.reason, status=over.status)
                return
            self._apply(request, checked, patch, told.left_out, is_agreed=is_agreed)

    def _apply(
        self,
        request: PlannerRequest,
        checked: CheckedPatch,
        patch: Patch,
        left_out: tuple[Problem, ...],
        *,
        is_agreed: bool,
    ) -> None:
        reason = shorten(patch.reason)
        self._splice(checked, "planner", reason, is_agreed=is_agreed, request=request.number, refused=left_out)
        if self._draft is not None and not self.is_over:
            self._draft.skip_unreachable(checked.consequence.added)
        # A planner that wants to see the result of no edits would be asked forever.
        more = patch.more and bool(checked.edits)
        told = reason or str(checked.consequence)
        if left_out:  # the planner is told with its next request
            told = shorten(f"{told}; refused: {'; '.join(map(str, left_out))}", 500)
        self._end(request, "applied", told, more=more)

    def _end(
        self, request: PlannerRequest, result: str, reason: str, *, status: Status = Status.FAILED, more: bool = False
    ) -> None:
        if self.is_over:
            return  # the end of the run has closed the request
        wanted = request.triggers[0].kind if request.triggers[0].kind in _WANTS_PLAN else None
        if wanted is not None and result not in ("applied", "unchanged") and self._still_open(request):
            what = "there is no plan" if wanted is TriggerKind.GOAL_GIVEN else "the planner could not continue"
            self._stop(status, f"{what}: {reason}")
            return
        over = self._still_open(request)
        self._record.end_replan(
            request.number,
            result,
            reason,
            [trigger.step for trigger in over],
            calls=request.calls,
            fingerprints=tuple(trigger.fingerprint for trigger in over if trigger.fingerprint),
            signature=request.signature,
            more=more,
        )
        failed = [trigger.step for trigger in over if self._is_unrepaired(trigger.step, result)]
        if failed and result != "applied" and self._policy.last_resort == "escalate":
            named = ", ".join(filter(None, failed)) or "the changed goal"
            self._stop(Status.ESCALATED, f"nobody could help with {named}; the plan was not changed: {reason}")

    def _still_open(self, request: PlannerRequest) -> Sequence[Trigger]:
        """Return the triggers that a request settles when it ends: none, if the goal has changed again since."""
        still = [trigger for trigger in request.triggers if self._graph.triggers.get(trigger.step) is trigger]
        return still if len(still) == len(request.triggers) else ()

    def _is_unrepaired(self, step: str, result: str) -> bool:
        if step == GOAL:
            return result != "unchanged"
        node = self._graph.nodes[step]
        return not node.is_gone and node.state is not State.SUCCEEDED and not node.plan.step.optional

    async def _find_patch(
        self, request: PlannerRequest, alone: AsyncExitStack
    ) -> tuple[CheckedPatch, Patch, _Told, bool]:
        """Ask until a patch can be applied now; return also whether a person approved it.

        Args:
            request: The request.
            alone: Is closed when the patch has been applied: until then it keeps others from being applied (rule 4).
        """
        while True:
            is_agreed, told = False, _Told()
            patch, checked, problems = await self._ask(request, told)
            if patch is not None and self._must_be_alone(request, patch, checked):
                await alone.enter_async_context(self._person)
                request.is_alone = True
                patch, checked, problems = self._look_again(request, patch, told)
            if patch is not None and checked is not None and self._needs_person(request, patch, checked):
                await self._ask_person(request, checked, patch)
                is_agreed, told.may_split = True, False
                patch, checked, problems = self._look_again(request, patch, told)
            if patch is None or checked is None:
                self._refuse(request, patch, (*told.left_out, *problems))
            elif not checked.edits and not checked.changes_output:
                raise Over("unchanged", "the step to change has succeeded since")
            else:
                return checked, patch, told, is_agreed

    async def _ask(
        self, request: PlannerRequest, told: _Told
    ) -> tuple[Patch | None, CheckedPatch | None, tuple[Problem, ...]]:
        """Ask the planner, and look at its answer."""
        try:
            answer = await self._calls.ask(request, partial(self._tell, request, told))
        except Refused as error:
            self._look_around(request)
            return None, None, error.problems
        return self._look_again(request, answer, told)

    def _look_again(
        self, request: PlannerRequest, answer: object, told: _Told
    ) -> tuple[Patch | None, CheckedPatch | None, tuple[Problem, ...]]:
        """Examine an answer again after a wait, as the graph may have changed."""
        self._look_around(request)
        return self._examine(request, answer, told)

    def _must_be_alone(self, request: PlannerRequest, patch: Patch, checked: CheckedPatch | None) -> bool:
        """Whether a patch has to wait until no person looks at another one (rule 4)."""
        if request.is_alone:
            return False
        return self._person.locked() or (checked is not None and self._needs_person(request, patch, checked))

    def _needs_person(self, request: PlannerRequest, patch: Patch, checked: CheckedPatch) -> bool:
        if self._is_plan_only:
            return False  # nothing will come of it
        changes = patch_has_effects(self._graph, checked)
        if request.is_first:  # all of it, also what was written before the plan was refused, and is kept
            changes = has_effects(self._graph, steps_after(self._graph, checked))
        must_say = self._calls.must_say(request)
        return bool(why_agree(self._policy, patch.confidence, has_effects=changes, proposed="patch", must_say=must_say))

    def _look_around(self, request: PlannerRequest) -> None:
        """Check, after a wait, that the answer still matters.

        Raises:
            Over: It does not.
        """
        if not self._still_open(request):  # if the run has ended, nothing is
            raise Over("unchanged", "the goal has changed again since")
        if all(step != GOAL and self._graph.nodes[step].is_gone for step in request.steps):
            raise Over("unchanged", "a patch of the host has repaired it since")

    def _tell(self, request: PlannerRequest, told: _Told) -> Brief:
        """Make the brief for a call of the planner, and keep which steps had succeeded: the graph changes meanwhile."""
        request.calls += 1
        told.brief = self._brief(request)
        told.known = frozenset(id_ for id_, node in self._graph.nodes.items() if node.state is State.SUCCEEDED)
        return told.brief

    def _brief(self, request: PlannerRequest) -> Brief:
        left = self._ledger.left()
        if self._policy.max_seconds is not None:
            left["seconds"] = max(0.0, self._policy.max_seconds - self._record.at())
        if self._policy.max_steps is not None:
            left["steps"] = max(0, self._policy.max_steps - len(self._graph.nodes))
        if (limit := self._policy.planning.max_replans_per_step) is not None:
            budgets = RepairBudgets(self._graph)
            of_steps = [budgets.left(step, limit) for step in request.steps if step != GOAL]
            left["replans"] = min([left["replans"], *of_steps])
        facts = (self._graph, self._run_id, request.triggers, request.refused, left)
        return make_brief(*facts, request=request.number)

    # Answers ----------------------------------------------------------------------------------------------

    def _examine(
        self, request: PlannerRequest, answer: object, told: _Told
    ) -> tuple[Patch | None, CheckedPatch | None, tuple[Problem, ...]]:
        """Turn an answer into a patch, and check it; an answer of any kind cannot hurt the run."""
        try:
            patch = patch_from(answer, told.brief, told.known, self._graph)
            checked, problems = self._check(request, patch, told.known)
            whole, left_out = patch, tuple[Problem, ...]()
            if checked is None and (split := self._without_refused(request, patch, problems, told)) is not None:
                patch, left_out = split.patch, split.refused
                checked, problems = self._check(request, patch, told.known)
            if isinstance(answer, Plan):
                problems = tuple(as_in_plan(problems, patch, answer))
                left_out = tuple(as_in_plan(left_out, whole, answer))
            told.left_out += left_out
            return patch, checked, problems
        except Over:
            raise
        except Refused as refused:
            return None, None, refused.problems
        except Exception as error:
            # Data that no check has foreseen, or a fault of dagrun, so the traceback is logged.
            _LOG.exception("the answer of the planner could not be checked")
            raise Over("failed", f"the planner's answer cannot be checked: {type(error).__name__}") from error

    def _without_refused(
        self, request: PlannerRequest, patch: Patch, problems: tuple[Problem, ...], told: _Told
    ) -> Split | None:
        """Return the independent part of a patch without the edits that the policy refuses; `None` if there is none."""
        is_about_goal = GOAL in request.steps
        if is_about_goal or not told.may_split or len(patch.edits) < 2 or self._calls.must_escalate(problems):
            return None
        from dagrun.kernel.graph.patches.split_patch import split_patch  # here: few patches are refused

        return split_patch(self._splicer, patch, problems, known=told.known, failed=request.steps)

    def _check(
        self, request: PlannerRequest, patch: Patch, known: frozenset[str]
    ) -> tuple[CheckedPatch | None, tuple[Problem, ...]]:
        if request.is_first and not patch.edits and not patch.changes_output:
            return self._splicer.unchanged(), ()  # the plan that was refused has become valid as it stands
        checked, problems = self._splicer.check(patch, "planner", known)
        if checked is None:
            return None, problems
        if request.is_first and not checked.consequence.added and not self._stays(checked):
            return None, (Problem("DR111", "steps"),)
        roots = {id_: node.root for id_, node in self._graph.nodes.items() if node.extra is not None}
        request.signature = signature_of(patch, roots)
        # The next step of a plan may equal the one before, for instance to look whether something is done.
        if request.number and any(past.signature == request.signature for past in self._graph.replanned):
            return None, (Problem("DR419", "edits"),)
        return checked, problems

    def _stays(self, checked: CheckedPatch) -> bool:
        """Whether a patch leaves any step of the plan in place."""
        leaving = frozenset(checked.leaving)
        return any(node.id not in leaving for node in self._graph.planned())

    def _refuse(self, request: PlannerRequest, patch: Patch | None, problems: tuple[Problem, ...]) -> None:
        problems = tuple(problem for problem in problems if not problem.is_advice)
        request.signature = ""  # nothing was applied: a patch that is wrong now may be right later
        self._record.refuse_patch("planner", problems)
        self._record.deliver()
        request.refused.append(Refusal(patch, problems))
        if why := self._calls.must_escalate(problems):
            self._stop(Status.ESCALATED, why)
            raise Over("refused", why, Status.ESCALATED)
        if not self._calls.may_try_again(request, problems):
            reason = shorten("; ".join(str(problem) for problem in problems), 500)
            raise Over("refused", f"{reason}{answered(self._graph)}")

    async def _ask_person(self, request: PlannerRequest, checked: CheckedPatch, patch: Patch) -> None:
        if request.is_first:
            steps, output = steps_after(self._graph, checked), checked.written_output
            facts = (self._people, self._graph, steps, output, patch.confidence)
            await agree_to_plan(*facts, must_say=self._calls.must_say(request))
            return
        doubt = f" (its planner gives it a confidence of {patch.confidence:g})" if patch.confidence is not None else ""
        text = f"May the plan be changed? {shorten(patch.reason)}".strip() + doubt
        answer = await self._people.ask_for_patch(text, diff_of(self._graph, checked))
        if answer is None:
            raise Over("denied", "nobody agreed to the patch")
        if answer.choice != "approve":
            by = f" by {shorten(answer.by)}" if answer.by else ""
            raise Over("denied", f"the patch was denied{by}{f': {shorten(answer.note)}' if answer.note else ''}")

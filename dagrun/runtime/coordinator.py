"""The replan coordinator: asks the planner for a patch, beside the running steps, and has it spliced in."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from dagrun.decide.briefs import make_brief
from dagrun.decide.governor import is_seen, signature_of
from dagrun.decide.proposals import diff_of, needs_person
from dagrun.errors import Problem, shorten
from dagrun.graph.answers import GOAL
from dagrun.graph.difference import patch_of
from dagrun.graph.ledger import Ledger, Near
from dagrun.graph.live import LiveGraph
from dagrun.graph.patch import CheckedPatch, Origin, Splicer
from dagrun.model.brief import Brief, Planner, Refusal, Trigger
from dagrun.model.outcome import State, Status
from dagrun.model.patch import Add, Drop, Patch, Replace, Rewire
from dagrun.model.plan import Plan
from dagrun.runtime.people import People
from dagrun.runtime.plugin import PluginFailed, call_plugin
from dagrun.runtime.record import Record

MAX_CALLS: Final = 2  # a patch that is refused goes back once, with its problems
_LOG: Final = logging.getLogger("dagrun.run")
_EDITS: Final = (Add, Drop, Replace, Rewire)


@dataclass(slots=True)
class Request:
    """One request to the planner.

    Attributes:
        number: 1 for the first of the run.
        triggers: What it is about.
        calls: Calls of the planner so far.
        refused: Patches of this request that were refused.
        signature: Of the last patch.
    """

    number: int
    triggers: tuple[Trigger, ...]
    calls: int = 0
    refused: list[Refusal] = field(default_factory=list)
    signature: str = ""

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps that it is about."""
        return tuple(trigger.step for trigger in self.triggers)


class Over(Exception):
    """A request is over without a patch; the result is one of those of `ReplanEnded`."""

    def __init__(self, result: str, reason: str) -> None:
        super().__init__(result, reason)
        self.result = result
        self.reason = reason


class Refused(Exception):
    """An answer is refused before there is a patch of it."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.problem = problem


class Coordinator:
    """Turns reasons to replan into patches, one request at a time.

    Args:
        planner: Who is asked.
        run_id: Of the run.
        record: Makes the changes.
        splicer: Checks patches.
        splice: Applies a checked patch, and stops what it takes out.
        ledger: Counts requests and calls.
        people: Who may have to agree to a patch.
        context: The context variables that the planner starts from.
        now: The clock of the loop.
        stop: Ends the run.
        settle_down: Called after each change: wakes workers, ends the run if nothing is left.
    """

    def __init__(
        self,
        *,
        planner: Planner,
        run_id: str,
        record: Record,
        splicer: Splicer,
        splice: Callable[[CheckedPatch, Origin, str], None],
        ledger: Ledger,
        people: People,
        context: Context,
        now: Callable[[], float],
        stop: Callable[[Status, str], None],
        settle_down: Callable[[], None],
    ) -> None:
        self._planner = planner
        self._run_id = run_id
        self._record = record
        self._graph: LiveGraph = record.graph
        self._policy = record.graph.plan.policy
        self._splicer = splicer
        self._splice = splice
        self._ledger = ledger
        self._people = people
        self._context = context
        self._now = now
        self._stop = stop
        self._settle_down = settle_down
        self._is_busy = False
        self._scope: anyio.CancelScope | None = None
        self._tasks: TaskGroup
        self.is_over = False

    def open(self, tasks: TaskGroup) -> None:
        """Take what exists only inside the task group of the run."""
        self._tasks = tasks

    def wake(self) -> None:
        """There is a reason to ask: do so soon, unless the planner is being asked already."""
        if not self._is_busy and not self.is_over:
            self._is_busy = True
            self._tasks.start_soon(self._work, name="dagrun replan")

    def close(self) -> None:
        """Ask no more: the run is being stopped, or has ended."""
        self.is_over = True
        if self._scope is not None:
            self._scope.cancel()

    async def _work(self) -> None:
        try:
            with anyio.CancelScope() as self._scope:
                while self._graph.triggers and not self.is_over:
                    await self._next()
                    self._settle_down()
        finally:
            self._scope = None
            self._is_busy = False

    async def _next(self) -> None:
        """Deal with every reason that is open now: ask, or say why not."""
        graph, record = self._graph, self._record
        triggers = tuple(graph.triggers.values())
        repaired = [t.step for t in triggers if t.step != GOAL and graph.nodes[t.step].is_gone]
        if repaired:
            record.end_replan(0, "repaired", "a splice has taken it out of the plan", repaired)
            return
        reason = self._ledger.why_no_planner() or self._ceiling_near()
        if reason:
            self._end(Request(0, triggers), "stopped", reason)
            return
        old = tuple(t for t in triggers if is_seen(t.fingerprint, graph.replanned))
        if old:
            self._end(Request(0, old), "stopped", "the planner was asked about the very same failure before")
            return
        self._ledger.take_replan()
        await self._replan(Request(graph.replans + 1, triggers))

    def _ceiling_near(self) -> str:
        warn_at, seconds, now = self._policy.warn_at, self._policy.max_seconds, self._record.at()
        near = self._ledger.near(warn_at)
        if near is None and warn_at is not None and seconds is not None and now >= warn_at * seconds:
            near = Near("seconds", now, seconds)
        if near is None:
            return ""
        return f"the ceiling of {near.limit:g} {near.ceiling} is nearly spent, so the plan is not changed any more"

    # One request ------------------------------------------------------------------------------------------

    async def _replan(self, request: Request) -> None:
        self._record.start_replan(request.steps)
        self._record.deliver()
        try:
            checked, reason = await self._find_patch(request)
        except Over as over:
            self._end(request, over.result, over.reason)
            return
        self._splice(checked, "planner", reason)
        self._end(request, "applied", reason or str(checked.consequence))

    def _end(self, request: Request, result: str, reason: str) -> None:
        if self.is_over:
            return  # whoever ended the run has closed what was open
        over = self._still_open(request)
        self._record.end_replan(
            request.number,
            result,
            reason,
            [trigger.step for trigger in over],
            calls=request.calls,
            fingerprints=tuple(trigger.fingerprint for trigger in over if trigger.fingerprint),
            signature=request.signature,
        )
        failed = [trigger.step for trigger in over if self._is_unrepaired(trigger.step, result)]
        if failed and result != "applied" and self._policy.last_resort == "escalate":
            named = ", ".join(filter(None, failed)) or "the changed goal"
            self._stop(Status.ESCALATED, f"nobody could help with {named}; the plan was not changed: {reason}")

    def _still_open(self, request: Request) -> Sequence[Trigger]:
        """What of a request is dealt with when it ends: nothing, if the goal has changed once more since."""
        still = [trigger for trigger in request.triggers if self._graph.triggers.get(trigger.step) is trigger]
        return still if len(still) == len(request.triggers) else ()

    def _is_unrepaired(self, step: str, result: str) -> bool:
        if step == GOAL:
            return result != "unchanged"
        node = self._graph.nodes[step]
        return not node.is_gone and node.state is not State.SUCCEEDED and not node.plan.step.optional

    async def _find_patch(self, request: Request) -> tuple[CheckedPatch, str]:
        """Ask until there is a patch that can be applied at this instant."""
        while True:
            if not self._ledger.take_planner_call():
                raise Over("stopped", self._ledger.why_no_planner())
            request.calls += 1
            brief = self._brief(request)
            known = frozenset(id_ for id_, node in self._graph.nodes.items() if node.state is State.SUCCEEDED)
            said = await self._ask(brief)
            self._look_around(request)
            patch, checked, problems = self._examine(request, said, brief, known)
            if patch is not None and checked is not None and needs_person(self._graph, checked):
                await self._ask_person(checked, patch.reason)
                self._look_around(request)
                patch, checked, problems = self._examine(request, patch, brief, known)  # the graph has moved
            if patch is None or checked is None:
                self._refuse(request, patch, problems)
            elif not checked.edits and not checked.changes_output:
                raise Over("unchanged", "what was to be changed has succeeded meanwhile")
            else:
                return checked, shorten(patch.reason)

    def _look_around(self, request: Request) -> None:
        """After a wait: see that the answer still matters."""
        if not self._still_open(request):  # if the run has ended, nothing is
            raise Over("unchanged", "the goal has changed once more meanwhile")
        if all(step != GOAL and self._graph.nodes[step].is_gone for step in request.steps):
            raise Over("unchanged", "a splice of the host has repaired it meanwhile")

    def _brief(self, request: Request) -> Brief:
        left = self._ledger.left()
        if self._policy.max_seconds is not None:
            left["seconds"] = max(0.0, self._policy.max_seconds - self._record.at())
        if self._policy.max_steps is not None:
            left["steps"] = max(0, self._policy.max_steps - len(self._graph.nodes))
        return make_brief(self._graph, self._run_id, request.triggers, request.refused, left)

    async def _ask(self, brief: Brief) -> object:
        try:
            return await call_plugin(
                partial(_answer, self._planner, brief, self._policy.max_edits),
                tasks=self._tasks,
                name="dagrun planner",
                context=self._context,
                seconds=self._policy.planner_timeout,
                grace=self._policy.grace,
                now=self._now,
            )
        except PluginFailed as error:
            raise Over("failed", f"the planner gave no answer: {error}") from error

    # Answers ----------------------------------------------------------------------------------------------

    def _examine(
        self, request: Request, said: object, brief: Brief, known: frozenset[str]
    ) -> tuple[Patch | None, CheckedPatch | None, tuple[Problem, ...]]:
        """Turn an answer into a patch, and check that; whatever it is, looking at it cannot hurt the run."""
        try:
            patch = self._patch_from(said, brief, known)
            return patch, *self._check(request, patch, known)
        except Over:
            raise
        except Refused as refused:
            return None, None, (refused.problem,)
        except Exception as error:
            # Data that no check has thought of; or a fault of ours, so the trace is kept.
            _LOG.exception("the answer of the planner could not be checked")
            raise Over("failed", f"the planner's answer cannot be checked: {type(error).__name__}") from error

    def _patch_from(self, said: object, brief: Brief, known: frozenset[str]) -> Patch:
        match said:
            case None:
                raise Over("unchanged", "the planner leaves the plan as it is")
            case Plan():
                count, limit = len(said.steps), self._policy.max_edits
                if count > limit + len(self._graph.nodes):
                    raise Refused(Problem("DR409", "steps", {"count": str(count), "limit": str(limit)}))
                patch = patch_of(self._graph, said, brief.revision, known)
                if not patch.edits and not patch.changes_output:
                    raise Over("unchanged", "the planner's plan is the one that is carried out already")
                return patch
            case Patch():
                return said if said.base is not None else said.model_copy(update={"base": brief.revision})
            case _:
                raise Over("failed", f"the planner's answer is no patch but a {type(said).__name__}")

    def _check(
        self, request: Request, patch: Patch, known: frozenset[str]
    ) -> tuple[CheckedPatch | None, tuple[Problem, ...]]:
        checked, problems = self._splicer.check(patch, "planner", known)
        if checked is None:
            return None, problems
        roots = {id_: node.root for id_, node in self._graph.nodes.items() if node.extra is not None}
        request.signature = signature_of(patch, roots)
        if any(past.signature == request.signature for past in self._graph.replanned):
            return None, (Problem("DR419", "edits"),)
        return checked, problems

    def _refuse(self, request: Request, patch: Patch | None, problems: tuple[Problem, ...]) -> None:
        problems = tuple(problem for problem in problems if not problem.is_advice)
        request.signature = ""  # it came to nothing: what is wrong with it now may be right later
        self._record.refuse_patch("planner", problems)
        self._record.deliver()
        request.refused.append(Refusal(patch, problems))
        if len(request.refused) >= MAX_CALLS:
            raise Over("refused", shorten("; ".join(str(problem) for problem in problems), 500))

    async def _ask_person(self, checked: CheckedPatch, reason: str) -> None:
        text = f"May the plan be changed? {shorten(reason)}".strip()
        answer = await self._people.ask_for_patch(text, diff_of(self._graph, checked))
        if answer is None:
            raise Over("denied", "nobody agreed to the patch")
        if answer.choice != "approve":
            by = f" by {shorten(answer.by)}" if answer.by else ""
            raise Over("denied", f"the patch was denied{by}{f': {shorten(answer.note)}' if answer.note else ''}")


async def _answer(planner: Planner, brief: Brief, max_edits: int) -> object:
    said: Any = planner.revise(brief)
    if not hasattr(said, "__aiter__"):
        return await said
    found: list[Any] = []
    try:
        async for edit in said:
            if not isinstance(edit, _EDITS):
                raise TypeError(f"the planner streams edits, not a {type(edit).__name__}")
            found.append(edit)
            if len(found) > max_edits:
                break  # the check refuses so many
    finally:
        if hasattr(said, "aclose"):
            await said.aclose()  # a generator that is not at its end would be closed by nobody
    return Patch(edits=tuple(found))

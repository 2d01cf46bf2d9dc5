"""A planner that answers as a file says: a reply for each request, found by the steps that it is asked about."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import anyio
from pydantic import ValidationError

from dagrun.errors import CannotPlan, CasesRefused, ModelError, PlanRefused, Problem
from dagrun.evaluate.cases.case_file import FOREVER, PlannerReply
from dagrun.model.patch import Add, Patch
from dagrun.model.plan import Plan, Step
from dagrun.model.planner import Brief, RevisedBy
from dagrun.model.signature import explain
from dagrun.model.usage import METER


class PlayedPlanner:
    """Answers with the replies of a case. Each is used once: requests about the same steps get one after the other.

    Args:
        replies: The replies.
        strange: Is told of each request without a reply, in a sentence.

    Raises:
        CasesRefused: A plan or a patch among them cannot be read.
    """

    def __init__(self, replies: Sequence[PlannerReply], strange: list[str]) -> None:
        self._left = [(reply, _patch_of(number, reply)) for number, reply in enumerate(replies)]
        self._all = replies
        self._strange = strange

    def revise(self, brief: Brief) -> RevisedBy:
        """Answer with the first reply that is left for these steps; see `Planner`."""
        about = {trigger.step for trigger in brief.triggers} - {""}
        found = next((one for one in self._left if set(one[0].about) == about), None)
        if found is None:
            text = self._why_none(about)
            self._strange.append(text)
            return _whole(PlannerReply(fail=text), None)
        self._left.remove(found)
        reply = found[0]
        has_steps = bool((reply.plan or {}).get("steps"))
        if reply.at or (reply.fail is not None and has_steps) or (reply.refuse is not None and not has_steps):
            return _streamed(*found)
        if not reply.plan or reply.more:
            return _whole(*found)
        # A plan, since of one that is written once more some steps are there.
        plan = Plan.model_validate(reply.plan)
        return _whole(reply, plan if reply.refuse is None else _with_fault(plan))

    def _why_none(self, about: set[str]) -> str:
        """Say that there is no reply, and which one is nearest: that with the most steps in common."""
        asked = _named(about)
        if not self._all:
            return f"the planner is asked about {asked}, and has no reply"
        nearest = max(self._all, key=lambda reply: (len(about & set(reply.about)), -len(set(reply.about) - about)))
        used = " (which was used)" if all(reply is not nearest for reply, _ in self._left) else ""
        return f"the planner is asked about {asked}; the nearest reply is about {_named(set(nearest.about))}{used}"


async def _whole(reply: PlannerReply, patch: Patch | Plan | None) -> Patch | Plan | None:
    _charge(reply)
    await _time_of(reply, anyio.current_time())
    if reply.busy is not None:
        raise ModelError(reply.busy, is_transient=True)
    if reply.fail is not None:
        raise CannotPlan(reply.fail, reply.kind)
    return patch


async def _streamed(reply: PlannerReply, patch: Patch | None) -> AsyncIterator[Patch]:
    """Hand out an answer as it is written, or what could be used of one that is none: its steps may start before."""
    began = anyio.current_time()
    _charge(reply)
    rest: Patch | None = patch
    if patch is not None:
        for seconds, edit in zip(reply.at, patch.edits, strict=False):
            await anyio.sleep_until(began + seconds)
            yield Patch(edits=[edit])
        rest = patch.model_copy(update={"edits": patch.edits[len(reply.at) :]})
    await _time_of(reply, began)
    if rest is not None:
        yield rest
    if reply.refuse is not None:
        raise PlanRefused([Problem("DR420", "", {"reason": reply.refuse})])
    if reply.fail is not None:
        raise CannotPlan(reply.fail, reply.kind)


def _with_fault(plan: Plan) -> Plan:
    """Return a plan with steps as one that is refused as a whole, although they are good."""
    ids = {step.id.lower() for step in plan.steps}
    id_ = next(name for number in range(len(ids) + 1) if (name := f"refused-{number}") not in ids)
    nobody = next(name for number in range(len(ids) + 1) if (name := f"nobody-{number}") not in ids)
    fault = Step(id=id_, tool=plan.steps[0].tool, depends_on=(nobody,))
    return plan.model_copy(update={"steps": (*plan.steps, fault)})


def _charge(reply: PlannerReply) -> None:
    """Charge what the models of the planner use."""
    if reply.tokens is not None or reply.cost is not None:
        METER.get().reserve("the planner of the case", reply.tokens, reply.cost).settle(reply.tokens, reply.cost)


async def _time_of(reply: PlannerReply, began: float) -> None:
    if reply.takes == FOREVER:
        await anyio.sleep_forever()
    await anyio.sleep_until(began + float(reply.takes))


def _named(steps: set[str]) -> str:
    return ", ".join(sorted(steps)) or "the goal"


def _patch_of(number: int, reply: PlannerReply) -> Patch | None:
    """Return the edits of a reply; of a plan, each step is added."""
    try:
        if reply.plan is not None:
            plan = Plan.model_validate(reply.plan)
            facts: dict[str, Any] = {} if plan.output is None else {"output": plan.output}
            edits = [Add(step=step) for step in plan.steps]
            return Patch(edits=edits, more=reply.more, confidence=plan.confidence, **facts)
        if reply.patch is not None:
            return Patch.model_validate({**reply.patch, **({"more": True} if reply.more else {})})
    except ValidationError as error:
        part = "plan" if reply.plan is not None else "patch"
        raise CasesRefused([f"planner[{number}].{part}: {explain(error)}"]) from None
    return None

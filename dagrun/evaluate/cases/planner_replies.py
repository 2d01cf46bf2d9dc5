"""A planner with scripted answers: one reply for each request, found by the steps of the request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
from pydantic import ValidationError

from dagrun.errors import CannotPlan, CasesRefused
from dagrun.evaluate.cases.case_file import FOREVER, PlannerReply
from dagrun.kernel.model.patch import Add, Patch
from dagrun.kernel.model.plan import Plan
from dagrun.kernel.model.planner import Brief, RevisedBy
from dagrun.kernel.model.signature import explain
from dagrun.kernel.model.usage import METER


class PlayedPlanner:
    """Answers with the replies of a case, each used once: equal requests get them in order.

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
            return _answer(PlannerReply(fail=text), None)
        self._left.remove(found)
        return _answer(*found)

    def _why_none(self, about: set[str]) -> str:
        """Return the reason why no reply fits, with the nearest one: it shares the most steps."""
        asked = _named(about)
        if not self._all:
            return f"the planner is asked about {asked}, and has no reply"
        nearest = max(self._all, key=lambda reply: (len(about & set(reply.about)), -len(set(reply.about) - about)))
        used = " (which was used)" if all(reply is not nearest for reply, _ in self._left) else ""
        return f"the planner is asked about {asked}; the nearest reply is about {_named(set(nearest.about))}{used}"


async def _answer(reply: PlannerReply, patch: Patch | Plan | None) -> Patch | Plan | None:
    _charge(reply)
    if reply.takes == FOREVER:
        await anyio.sleep_forever()
    await anyio.sleep(float(reply.takes))
    if reply.fail is not None:
        raise CannotPlan(reply.fail, reply.kind)
    return patch


def _charge(reply: PlannerReply) -> None:
    """Charge the model usage of the planner."""
    if reply.tokens is not None or reply.cost is not None:
        METER.get().reserve("the planner of the case", reply.tokens, reply.cost).settle(reply.tokens, reply.cost)


def _named(steps: set[str]) -> str:
    return ", ".join(sorted(steps)) or "the goal"


def _patch_of(number: int, reply: PlannerReply) -> Patch | Plan | None:
    try:
        if reply.plan is not None:
            plan = Plan.model_validate(reply.plan)
            if not reply.more:
                return plan
            facts: dict[str, Any] = {} if plan.output is None else {"output": plan.output}
            edits = [Add(step=step) for step in plan.steps]
            return Patch(edits=edits, more=True, confidence=plan.confidence, **facts)
        if reply.patch is not None:
            return Patch.model_validate({**reply.patch, **({"more": True} if reply.more else {})})
    except ValidationError as error:
        part = "plan" if reply.plan is not None else "patch"
        raise CasesRefused([f"planner[{number}].{part}: {explain(error)}"]) from None
    return None

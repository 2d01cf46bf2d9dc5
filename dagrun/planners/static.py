"""`StaticPlanner`: a planner whose plan and patches are written in advance."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from dagrun.errors import ContractError
from dagrun.model.patch import Patch
from dagrun.model.plan import Plan
from dagrun.model.planner import Brief, Revision, Trigger
from dagrun.model.signature import refuse_async

Patches: TypeAlias = Sequence[Revision] | Mapping[str, Patch | Plan] | Callable[[Brief], Revision]

# Runs to remember; a service makes runs for ever. A forgotten run gets the first patch again, which is then refused.
MAX_KEPT: Final = 10_000

K = TypeVar("K")
V = TypeVar("V")


class StaticPlanner:
    """Answers with plans and patches of the host program. One may serve any number of runs; each gets all answers.

    Args:
        plan: The plan for the goal.
        patches: The answers of `revise`, in one of three forms. A list: one answer for each request, in order, `None`
            for "leave the plan as it is". A mapping: the answer by the step of a trigger, by the kind of the trigger,
            or ``*`` for any; each is used once. A plain function: it is called with the brief.

    Raises:
        ContractError: *plan* or *patches* has the wrong type.

    Examples:
        >>> from dagrun import Patch, Replace, Step, StaticPlanner
        >>> other = Step(id="load2", tool="load_copy")
        >>> planner = StaticPlanner(patches={"load": Patch(edits=[Replace(id="load", step=other)])})
    """

    __slots__ = ("_answer", "_plan")

    def __init__(self, plan: Plan | None = None, patches: Patches = ()) -> None:
        if not isinstance(plan, Plan | None):
            raise ContractError(f"the plan of a StaticPlanner must be a Plan, got {type(plan).__name__}")
        self._plan = plan
        self._answer = _answers(patches)

    def plan(self, goal: str = "", inputs: Any = None) -> Plan:
        """Return the plan; a plan without a goal gets *goal*.

        Raises:
            ContractError: There is no plan.
        """
        if self._plan is None:
            raise ContractError("this StaticPlanner has no plan, only patches: StaticPlanner(plan=…) gives it one")
        return with_goal(self._plan, goal)

    async def revise(self, brief: Brief) -> Revision:
        """Return the plan if there is none yet, else the next answer for the run of *brief*; `None` without one."""
        if self._plan is not None and brief.is_first and not brief.refused:
            return with_goal(self._plan, brief.goal)
        return self._answer(brief)


def with_goal(plan: Plan, goal: str) -> Plan:
    """Return *plan* with *goal*, if it has none of its own."""
    return plan if plan.goal or not goal else plan.model_copy(update={"goal": goal})


def keep(store: dict[K, V], key: K, value: V) -> None:
    """Put *value* in *store*; if that is full, remove the entry that was put there first."""
    store.pop(key, None)
    store[key] = value
    if len(store) > MAX_KEPT:
        del store[next(iter(store))]


def _answers(patches: Patches) -> Callable[[Brief], Revision]:
    match patches:
        case Mapping():
            _must_be_revisions(patches.items(), Patch, Plan)
            return _ByTrigger(patches)
        case Sequence():
            _must_be_revisions(enumerate(patches), Patch, Plan, type(None))
            return _InOrder(patches)
        case _:
            refuse_async(patches, "the patches of a planner: a list, a mapping or a function; they")
            return patches


def _must_be_revisions(answers: Any, *kinds: type) -> None:
    for place, answer in answers:
        if not isinstance(answer, kinds):
            raise ContractError(f"patches[{place!r}] must be a Patch or a Plan, got {type(answer).__name__}")


class _InOrder:
    """One answer for each request of a run."""

    __slots__ = ("_patches", "_used")

    def __init__(self, patches: Sequence[Revision]) -> None:
        self._patches = tuple(patches)
        self._used: dict[str, int] = {}

    def __call__(self, brief: Brief) -> Revision:
        used = self._used.get(brief.run_id, 0)
        if used >= len(self._patches):
            return None
        keep(self._used, brief.run_id, used + 1)
        return self._patches[used]


class _ByTrigger:
    """The answer for the first trigger that has an unused one."""

    __slots__ = ("_patches", "_used")

    def __init__(self, patches: Mapping[str, Patch | Plan]) -> None:
        self._patches = dict(patches)
        self._used: dict[str, frozenset[str]] = {}

    def __call__(self, brief: Brief) -> Revision:
        used = self._used.get(brief.run_id, frozenset())
        for key in (key for trigger in brief.triggers for key in _keys(trigger)):
            if key in self._patches and key not in used:
                keep(self._used, brief.run_id, used | {key})
                return self._patches[key]
        return None


def _keys(trigger: Trigger) -> Iterator[str]:
    yield trigger.step
    yield trigger.step.partition("[")[0]  # the step that this is an element of
    yield str(trigger.kind)
    yield "*"

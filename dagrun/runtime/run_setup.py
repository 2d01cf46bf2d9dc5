"""What a run is made of, before it is put together, and its state where that takes so long that a thread builds it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Final

from dagrun.checks.checked_plan import CheckedPlan
from dagrun.decide.durations import Durations
from dagrun.decide.hedging import HedgeShare
from dagrun.graph.budget import Budget
from dagrun.graph.build import Built, build
from dagrun.graph.caps import Cap
from dagrun.graph.longest_paths import Expected
from dagrun.model.critic import Critic
from dagrun.model.event import Opening
from dagrun.model.executor import Executor
from dagrun.model.journal import Tape
from dagrun.model.planner import Planner
from dagrun.model.question import Approver
from dagrun.model.value import Stored
from dagrun.runtime.artifacts import ArtifactFolder
from dagrun.runtime.large_plans import MANY, aside


@dataclass(slots=True, kw_only=True)  # not frozen: there is one for each run, and that would take four times as long
class RunSetup:
    """What a run is made of.

    Attributes:
        plan: The checked plan.
        inputs: What ``${input}`` stands for, stored.
        run_id: Its name, unique.
        executors: By name.
        artifacts: Where tools keep files.
        context: The context variables that every tool starts from.
        random: For the jitter of retry delays.
        opening: What a journal keeps of all this.
        tape: Where the run is written down; `None` if there is no journal.
        shared: A cap that counts the steps of several runs, or none.
        budget: Ceilings that several runs share, or none.
        planner: Who is asked when the plan has to change, or nobody.
        critics: Who looks at what steps give.
        approver: Who answers questions, or nobody.
        durations: How long the calls of each tool took, as far as it is known.
        hedge_share: How many of them got a second one beside them.
        attended: Whether the host answers them, through `Run.pending` and `Run.answer`.
        is_plan_only: Whether nothing runs: the planner's plan is all that is wanted.
        built: The state in which it begins, if that is built already; see `with_state`.
    """

    plan: CheckedPlan
    inputs: Stored
    run_id: str
    executors: Mapping[str, Executor]
    artifacts: ArtifactFolder
    context: Context
    random: Random
    opening: Opening | None = None
    tape: Tape | None = None
    shared: Cap | None = None
    budget: Budget | None = None
    planner: Planner | None = None
    critics: Sequence[Critic] = ()
    approver: Approver | None = None
    durations: Durations = field(default_factory=Durations)
    hedge_share: HedgeShare = field(default_factory=HedgeShare)
    attended: bool = False
    is_plan_only: bool = False
    built: Built | None = None


async def with_state(setup: RunSetup) -> RunSetup:
    """Give *setup* with its state, if that takes so long to build that it is done in a worker thread."""
    plan = setup.plan
    if len(plan.steps) < MANY:
        return setup
    medians = setup.durations.medians_of(plan.toolbox)  # here: other runs in this loop add to them
    return replace(setup, built=await aside(len(plan.steps), partial(state_of, setup, lambda: medians)))


def state_of(setup: RunSetup, learned: Callable[[], Mapping[str, float]]) -> Built:
    """Build the state in which a run begins.

    Args:
        setup: What it is made of.
        learned: Gives how long calls took by tool, if anybody needs to know: the medians, in seconds.
    """
    return build(setup.plan, setup.inputs, setup.shared, Expected(setup.plan, learned))


_SHARED: Final = Random()


def random_of(seed: int | None) -> Random:
    """A generator for one run: its own for a seed, else one that all such runs share.

    To make one that nobody can foretell takes as long as two steps do, and hardly any run ever asks it.
    """
    return _SHARED if seed is None else Random(seed)

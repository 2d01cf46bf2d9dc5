"""The setup of a run, and its first state, which a worker thread builds for large plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Final

from dagrun.kernel.checks.checked_plan import CheckedPlan
from dagrun.kernel.decide.durations import Durations
from dagrun.kernel.graph.ledger import Budget
from dagrun.kernel.graph.live_graph import LiveGraph, build
from dagrun.kernel.graph.node import Cap
from dagrun.kernel.graph.step_order import Expected
from dagrun.kernel.model.event import Event, Opening
from dagrun.kernel.model.executor import Executor
from dagrun.kernel.model.journal import RunLog
from dagrun.kernel.model.tracing import RunTracer
from dagrun.kernel.model.value import Stored
from dagrun.kernel.runtime.artifacts import ArtifactFolder
from dagrun.kernel.runtime.backend import MANY_STEPS, off_loop
from dagrun.kernel.runtime.run_options import RunOptions


@dataclass(slots=True, kw_only=True)
class SharedByRuns:
    """The objects that the runs of one engine share.

    Attributes:
        cap: Counts the running steps of all runs; `None` if there is no such limit.
        budget: Ceilings on the use of all runs together; `None` if there are none.
        durations: How long the calls of each tool took, as far as it is known.
    """

    cap: Cap | None
    budget: Budget | None
    durations: Durations


@dataclass(slots=True)  # not frozen, like `RunSetup`
class CallSettings:
    """The settings that all tool calls of one run share.

    Attributes:
        executors: By name.
        artifacts: The folder for the files of tools.
        context: The context variables of the calls.
    """

    executors: Mapping[str, Executor]
    artifacts: ArtifactFolder
    context: Context


@dataclass(slots=True)  # not frozen, like `RunSetup`
class OpenRecord:
    """The record of a run that is open for writing.

    Attributes:
        run_log: Where the journal takes the events.
        opening: What the run was opened with, as the journal keeps it.
        write: Returns the text of the record of an event.
        leaves_out: Whether a value of a step would be left out of the record; `None` if the record has every value.
    """

    run_log: RunLog
    opening: Opening
    write: Callable[[Event], bytes]
    leaves_out: Callable[[Stored], bool] | None = None


@dataclass(slots=True, kw_only=True)  # not frozen: each run has one, and a frozen one takes four times as long to make
class RunSetup:
    """The setup of a run: all its inputs and settings.

    Attributes:
        plan: The checked plan.
        inputs: The value of ``${input}``, stored.
        run_id: The name of the run, unique.
        options: All options of the run. The plan, the inputs and the name above are made of some of them, and are what
            holds.
        shared: What the run shares with others.
        calls: What every call of a tool starts from.
        record: The record of the run; `None` if there is no journal.
        is_plan_only: Whether no step runs, because only the plan of the planner is wanted.
        tracer: Traces the run; `None` if it is not traced.
        graph: The state in which the run begins, if it is built already; see `build_large`.
    """

    plan: CheckedPlan
    inputs: Stored
    run_id: str
    options: RunOptions
    shared: SharedByRuns
    calls: CallSettings
    record: OpenRecord | None = None
    is_plan_only: bool = False
    tracer: RunTracer | None = None
    graph: LiveGraph | None = field(default=None, init=False)

    @property
    def run_log(self) -> RunLog | None:
        """The run log of the run; `None` if there is no journal."""
        return None if self.record is None else self.record.run_log

    @property
    def opening(self) -> Opening | None:
        """The recorded configuration of the run; `None` if there is no journal."""
        return None if self.record is None else self.record.opening


async def build_large(setup: RunSetup) -> None:
    """Build the state of a run in a worker thread, if the plan is so large that the loop would wait for it."""
    plan = setup.plan
    if len(plan.steps) < MANY_STEPS:
        return
    medians = setup.shared.durations.medians_of(plan.toolbox)  # not in the thread: other runs in this loop add to them
    setup.graph = await off_loop(len(plan.steps), partial(state_of, setup, lambda: medians))


def state_of(setup: RunSetup, learned: Callable[[], Mapping[str, float]]) -> LiveGraph:
    """Build the initial state of a run.

    Args:
        setup: The run.
        learned: Returns the median duration of calls by tool, in seconds. It is called only if the order of steps
            depends on it.
    """
    return build(setup.plan, setup.inputs, setup.shared.cap, Expected(setup.plan, learned))


_SHARED: Final = Random()


def random_of(seed: int | None) -> Random:
    """Return a generator for one run: its own if there is a seed, else one that all runs without a seed share.

    A new generator that nobody can predict takes as long as two steps, and hardly any run uses it.
    """
    return _SHARED if seed is None else Random(seed)

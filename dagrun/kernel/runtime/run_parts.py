"""The setup of a run, its first state, and the objects that most of its parts share.

A worker thread builds the first state of a large plan. A part takes `RunParts` and its own parameters, and keeps in its
own attributes what it uses at every step. None of the shared parts is handed this object, so it belongs to no circle of
references; they call later parts through `RunCallbacks`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Final

from dagrun.kernel.checks.checked_plan import CheckedPlan
from dagrun.kernel.decide.durations import Durations
from dagrun.kernel.graph.ledger import Budget, Ledger
from dagrun.kernel.graph.live_graph import LiveGraph, build
from dagrun.kernel.graph.node import Cap
from dagrun.kernel.graph.step_order import Expected
from dagrun.kernel.model.event import Event, Opening
from dagrun.kernel.model.executor import Executor
from dagrun.kernel.model.journal import RunLog
from dagrun.kernel.model.redaction.redactor import REDACTOR
from dagrun.kernel.model.tracing import RunTracer
from dagrun.kernel.model.value import Stored
from dagrun.kernel.runtime.artifacts import ArtifactFolder
from dagrun.kernel.runtime.backend import MANY_STEPS, clock, off_loop
from dagrun.kernel.runtime.people.human_input import HumanInput
from dagrun.kernel.runtime.plugin_calls import MakePlaces
from dagrun.kernel.runtime.record.event_log import Recorder
from dagrun.kernel.runtime.record.record import Record
from dagrun.kernel.runtime.run_callbacks import RunCallbacks, RunMeter
from dagrun.kernel.runtime.run_options import RunOptions
from dagrun.kernel.runtime.steps.budget_gate import BudgetGate
from dagrun.kernel.runtime.steps.reviews import Reviews
from dagrun.kernel.runtime.stop_scope import stop_scopes


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


class RunParts:
    """The shared parts of one run.

    Args:
        setup: What the run is made of.
        up: Calls to the parts that are made later.
        on_room: Called when a shared budget has room again; `None` if there is none.
        windows: The limits that providers have shown, by provider; see `RunFeatures`.
        make_places: Makes the places of models; see `RunFeatures`.

    Attributes:
        run_id: The id of the run.
        policy: The limits of the run.
        context: The context variables that every tool and plug-in starts from.
        random: For the jitter of delays.
        run_log: Where the run is recorded; `None` if it has no journal, and so cannot be suspended.
        leaves_out: Whether a value would be left out of the record; `None` if the record has every value.
        now: The clock of the loop.
        new_scope: Makes the scope of an attempt, or of a worker that makes several, one after another.
        up: Calls to the parts that are made later.
        graph: The state; read by all parts, changed by the record alone.
        frontier: The ready steps, and the places under the limits on what runs at once.
        record: Makes the changes.
        people: Asks people.
        ledger: What may be used.
        accounts: Keeps calls under the ceilings.
        reviews: Asks the critics; `None` if there are none.
        tracer: Traces the run; `None` if it is not traced.
        windows: What each provider takes; shared by the runs of an engine.
        make_places: Makes the places of the models that one call of a planner or a critic asks.
    """

    __slots__ = (
        "accounts",
        "context",
        "frontier",
        "graph",
        "leaves_out",
        "ledger",
        "make_places",
        "new_scope",
        "now",
        "people",
        "policy",
        "random",
        "record",
        "reviews",
        "run_id",
        "run_log",
        "tracer",
        "up",
        "windows",
    )

    def __init__(
        self,
        setup: RunSetup,
        up: RunCallbacks,
        on_room: Callable[[], object] | None,
        windows: Mapping[str, Any],
        make_places: MakePlaces,
    ) -> None:
        plan, kept, context = setup.plan, setup.record, setup.calls.context
        self.graph = graph = setup.graph or state_of(setup, partial(setup.shared.durations.medians_of, plan.toolbox))
        self.run_id = setup.run_id
        self.policy = policy = plan.policy
        self.windows = windows
        self.make_places = make_places
        self.context = context
        self.random = random_of(setup.options["seed"])
        self.run_log = setup.run_log
        self.leaves_out = None if kept is None else kept.leaves_out
        self.now = now = clock()
        self.up = up
        self.new_scope = stop_scopes(policy.grace, now, up.on_cancelled_around)
        self.frontier = graph.frontier
        context.run(REDACTOR.set, plan.redactor)
        self.tracer = tracer = setup.tracer
        if tracer is not None:
            tracer.enter(context)
        recorder = None if kept is None else Recorder(kept.run_log, graph, up, kept.write)
        keep, flush = (None, None) if recorder is None else (recorder.keep, recorder.flush)
        self.record = record = Record(graph, now, up, keep, flush, run_id=setup.run_id)
        self.people = HumanInput(
            record,
            run_id=setup.run_id,
            approver=setup.options["approver"],
            is_attended=setup.options["attended"],
            context=context,
            now=now,
            up=up,
            can_wait=kept is not None,
        )
        self.ledger = ledger = Ledger(policy, setup.shared.budget, on_room)
        self.accounts = BudgetGate(graph, record, policy, ledger)
        up.reserve_model, up.settle_model = self.accounts.reserve_model, self.accounts.settle_model
        up.ask_for_plan = self.people.ask_for_plan
        meter = partial(RunMeter, up)
        critics = setup.options["critics"]
        self.reviews = Reviews(critics, policy, context, now, meter, make_places=make_places) if critics else None

"""The objects that most parts of a run share: made once from its setup, and passed to each part.

A part takes `RunParts` and its own parameters, and keeps in its own attributes what it uses at every step. None of the
shared parts is handed this object, so it belongs to no circle of references; they call later parts through
`RunCallbacks`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from dagrun.kernel.graph.ledger import Ledger
from dagrun.kernel.model.redaction.redactor import REDACTOR
from dagrun.kernel.runtime.backend import clock
from dagrun.kernel.runtime.metering import RunMeter
from dagrun.kernel.runtime.people.human_input import HumanInput
from dagrun.kernel.runtime.plugin_calls import MakePlaces
from dagrun.kernel.runtime.record.record import Record
from dagrun.kernel.runtime.record.recorder import Recorder
from dagrun.kernel.runtime.run_callbacks import RunCallbacks
from dagrun.kernel.runtime.run_setup import RunSetup, random_of, state_of
from dagrun.kernel.runtime.steps.budget_gate import BudgetGate
from dagrun.kernel.runtime.steps.reviews import Reviews
from dagrun.kernel.runtime.stop_scope import stop_scopes


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

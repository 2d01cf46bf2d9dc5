"""The figures of one recorded run, the source of all metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Calls:
    """The calls of one tool, or of one provider, in one run. Times are in seconds.

    Attributes:
        ended: Calls that have ended, without those that were told to stop.
        judged: Those of them of which the record says whether they succeeded: all calls of tools.
        succeeded: Those that succeeded.
        failures: How many of them did not succeed, by kind; see `dagrun.model.outcome.ErrorKind`. The kind of a failure
            after which the same call may succeed has a ``~`` behind it.
        seconds: How long each of them took.
        tokens: Tokens that they reported.
        known_cost: The cost that they reported.
        is_cost_known: Whether *known_cost* is all of their cost.
        hedged: Calls beside which a second one was made.
        hedges_won: Second calls whose result was used.
    """

    ended: int = 0
    judged: int = 0
    succeeded: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    tokens: int = 0
    known_cost: float = 0.0
    is_cost_known: bool = True
    hedged: int = 0
    hedges_won: int = 0

    def use(self, tokens: int, cost: float | None) -> None:
        """Add the usage of one call; *cost* is `None` if unknown, which matters if there are tokens."""
        self.tokens += tokens
        self.known_cost += cost or 0.0
        self.is_cost_known = self.is_cost_known and (cost is not None or not tokens)


@dataclass(slots=True)
class RunFigures:
    """One run in numbers. Times are in seconds, without suspensions, unless stated otherwise.

    Attributes:
        run_id: The id of the run.
        began: When it began, in seconds since 1970.
        labels: The labels that it was opened with.
        status: How it ended; empty if it has not ended.
        is_suspended: Whether it was suspended and has not been resumed.
        shape: A hash of its plan without literals and ids; see `dagrun.evaluate.plan_shape`.
        tools_planned: The tools of the steps of its plan, in order.
        planners: The planners that were called, in the order of their first call.
        tools: The calls of each tool.
        providers: The calls of each provider: a model, a pool of tools, or a tool without a pool.
        use: The tokens and the cost of the whole run.
        steps: Steps of its plan at the end, without the elements of a for_each.
        attempts: Calls of tools that have started.
        had_trouble: Whether a call failed, the planner was asked because of a failure or a surprise, or an effect was
            in doubt.
        makespan: From the start to the end.
        planning: The time in which a planner was at work; calls at the same time count once.
        critical_path: The longest chain of dependent steps by the time that each one took; `None` if it has not ended.
        replans: Requests to the planner to change the plan.
        refused: Patches that were refused.
        reviews: Outputs that at least two critics have judged.
        disagreements: Those on which they did not agree.
        questions: Questions to people.
        answered: Those that a person has answered.
        changed: Those whose answer changed what the run would have done by itself: everything but a plain yes.
        unasked: Changes that people or the host made without being asked: splices, other goals, a cancelled run.
        waits: From each question that a person has answered to its answer, by the time of day.
    """

    run_id: str
    began: float = 0.0
    labels: Mapping[str, Any] = field(default_factory=dict)
    status: str = ""
    is_suspended: bool = False
    shape: str = ""
    tools_planned: tuple[str, ...] = ()
    planners: list[str] = field(default_factory=list)
    tools: dict[str, Calls] = field(default_factory=dict)
    providers: dict[str, Calls] = field(default_factory=dict)
    use: Calls = field(default_factory=Calls)
    steps: int = 0
    attempts: int = 0
    had_trouble: bool = False
    makespan: float = 0.0
    planning: float = 0.0
    critical_path: float | None = None
    replans: int = 0
    refused: int = 0
    reviews: int = 0
    disagreements: int = 0
    questions: int = 0
    answered: int = 0
    changed: int = 0
    unasked: int = 0
    waits: list[float] = field(default_factory=list)

    @property
    def has_ended(self) -> bool:
        """Whether the run has ended."""
        return bool(self.status)

    @property
    def has_succeeded(self) -> bool:
        """Whether the run has succeeded."""
        return self.status == "succeeded"

    @property
    def calls(self) -> list[Calls]:
        """The calls of all tools, by tool."""
        return list(self.tools.values())

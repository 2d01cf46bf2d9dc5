"""Events about calls besides those of steps: second calls of slow tools, planners, and models that no tool calls."""

from __future__ import annotations

from dataclasses import dataclass

from dagrun.model.event import Event


@dataclass(slots=True)
class Hedged(Event):
    """A call takes longer than most calls of its tool: a second one is made beside it.

    Attributes:
        step: Its id.
        attempt: The number of the attempt whose call is slow.
        after: Seconds that this call has taken so far.
    """

    step: str
    attempt: int
    after: float


@dataclass(slots=True)
class HedgeEnded(Event):
    """The second call of an attempt has ended, or is stopped because the first one has.

    Attributes:
        step: Its id.
        attempt: The number of the attempt.
        has_won: Whether its result is that of the attempt, which ends next; the first call is stopped.
        tokens: What the second call has reported.
        cost: The same in money; `None` if nothing was.
        fault: Why it failed; empty if it did not.
    """

    step: str
    attempt: int
    has_won: bool
    tokens: int
    cost: float | None
    fault: str = ""


@dataclass(slots=True)
class PlannerAsked(Event):
    """The planner is called.

    Attributes:
        number: 1 for the first call of the run.
    """

    number: int


@dataclass(slots=True)
class ModelReserved(Event):
    """Room is taken for the call of a model that no tool makes: that of a planner, or of a critic.

    Attributes:
        number: 1 for the first of the run.
        who: The model.
        tokens: The most that it can use; `None` if there is no bound.
        cost: The most that it can cost; `None` if nobody knows.
    """

    number: int
    who: str
    tokens: int | None
    cost: float | None


@dataclass(slots=True)
class ModelCharged(Event):
    """Such a call has ended.

    Attributes:
        number: Of the `ModelReserved`.
        tokens: What it has used; `None` if nobody knows.
        cost: The same in money.
    """

    number: int
    tokens: int | None
    cost: float | None


@dataclass(slots=True)
class PlannerCalled(Event):
    """One call of the planner has ended.

    Attributes:
        number: 1 for the first of the run.
        seconds: How long it took.
        tokens: What its models have used, as far as they said so.
        cost: The same in money; `None` if nobody knows.
        fault: Why it gave no answer, or empty.
    """

    number: int
    seconds: float
    tokens: int
    cost: float | None
    fault: str = ""

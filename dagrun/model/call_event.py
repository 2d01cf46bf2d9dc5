"""Events about calls of planners, and of the models that no tool calls: those of planners and critics."""

from __future__ import annotations

from dataclasses import dataclass

from dagrun.model.event import Event


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

"""Metering: calls of models are charged to the run in which they are made, before they are made."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, Protocol


class Charge(Protocol):
    """Room that was reserved for one call of a model."""

    def settle(self, tokens: int | None, cost: float | None) -> None:
        """Say what the call has used; `None` where nobody knows. Called once, however the call has ended."""
        ...


class Meter(Protocol):
    """Charges the calls of models to a run."""

    def reserve(self, who: str, tokens: int | None, cost: float | None) -> Charge:
        """Take room for a call at its worst.

        Args:
            who: What is called, for messages.
            tokens: The most that it can use, input and output together; `None` if there is no bound.
            cost: The most that it can cost; `None` if nobody knows.

        Raises:
            OverCeiling: There is no room; the call must not be made.
        """
        ...


class _Nothing:
    """Charges nobody: a model that is called outside of a run."""

    def reserve(self, who: str, tokens: int | None, cost: float | None) -> Charge:
        return self

    def settle(self, tokens: int | None, cost: float | None) -> None:
        pass


UNMETERED: Final[Meter] = _Nothing()

# Set by the run around each call of a planner or a critic, and by the tools that call models.
METER: ContextVar[Meter] = ContextVar("dagrun meter", default=UNMETERED)


@dataclass(slots=True)
class ModelUse:
    """What models have used.

    Attributes:
        tokens: As far as anybody has said so.
        known_cost: In whatever currency prices are in; without that of *unpriced* tokens.
        unpriced: Tokens of which nobody knows what they cost.
    """

    tokens: int = 0
    known_cost: float = 0.0
    unpriced: int = 0

    @property
    def cost(self) -> float | None:
        """All of it; `None` if nobody knows a part of it."""
        return None if self.unpriced else self.known_cost

    def add(self, tokens: int, cost: float | None) -> None:
        """Add one call; its cost is `None` if nobody knows it."""
        self.tokens += tokens
        if cost is None:
            self.unpriced += tokens
        else:
            self.known_cost += cost

"""Metering: calls of models are charged to the run in which they are made, before they are made."""

from __future__ import annotations

from contextvars import ContextVar
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

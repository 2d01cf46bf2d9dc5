"""Charging calls of models that planners and critics make to the ledger of their run."""

from __future__ import annotations

from dataclasses import dataclass

from dagrun.kernel.graph.ledger import Reservation
from dagrun.kernel.model.usage import Charge
from dagrun.kernel.runtime.run_callbacks import RunCallbacks


class RunMeter:
    """Charges the model calls of one call of a planner or a critic. It lives in context variables, so it holds no part.

    Args:
        up: Leads to the accounts of the run.

    Attributes:
        tokens: The tokens used so far, as far as the models have reported them.
        cost: The cost so far; `None` if a part of it is unknown, or nothing was called yet.
    """

    __slots__ = ("_is_known", "_up", "cost", "tokens")

    def __init__(self, up: RunCallbacks) -> None:
        self.tokens = 0
        self.cost: float | None = None
        self._is_known = True
        self._up = up

    def reserve(self, who: str, tokens: int | None, cost: float | None) -> Charge:
        """Reserve room for a model call.

        Raises:
            OverCeiling: There is no room, and the message names the ceiling; or the run has ended.
        """
        return _RunCharge(self, *self._up.reserve_model(who, tokens, cost))

    def settle(self, reservation: Reservation, number: int, tokens: int | None, cost: float | None) -> None:
        """Charge the usage of a call; an unknown figure is charged at its worst case."""
        self._up.settle_model(reservation, number, tokens, cost)
        self.tokens += tokens or 0
        self._is_known = self._is_known and cost is not None
        self.cost = (self.cost or 0.0) + cost if cost is not None and self._is_known else None
        self._up.charged()


@dataclass(slots=True)
class _RunCharge:
    meter: RunMeter
    reservation: Reservation
    number: int

    def settle(self, tokens: int | None, cost: float | None) -> None:
        self.meter.settle(self.reservation, self.number, tokens, cost)

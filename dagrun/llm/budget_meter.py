"""Charging calls of models that no run makes to a budget."""

from __future__ import annotations

from dataclasses import dataclass

from dagrun.errors import OverCeiling, shorten
from dagrun.kernel.graph.ledger import Budget, Ledger, ModelCall, Reservation
from dagrun.kernel.model.policy import Policy
from dagrun.kernel.model.usage import Charge, ModelUse


class BudgetMeter:
    """Charges calls of models that no run makes to the ceilings of a budget.

    It takes the place of the meter of a run: ``METER.set(meter)``.

    Args:
        budget: The ceilings; `None` for none.
        use: Adds up what the calls use.

    Attributes:
        use: What was given.
        refused: Why a call was not made, in a sentence; empty if none was refused.
        is_priced: Whether the cost of each call was known, or at least the most that it could be.
    """

    __slots__ = ("_ledger", "is_priced", "refused", "use")

    def __init__(self, budget: Budget | None, use: ModelUse) -> None:
        self._ledger = Ledger(Policy(), budget)
        self.use = use
        self.refused = ""
        self.is_priced = True

    def reserve(self, who: str, tokens: int | None, cost: float | None) -> Charge:
        """Reserve the worst case of a call.

        Raises:
            OverCeiling: It does not fit any more.
        """
        call = ModelCall(shorten(who, 60), tokens, cost)
        reservation = self._ledger.reserve_model(call)
        if reservation is None:
            self.refused = self._ledger.why_no_model(call)
            raise OverCeiling(self.refused)
        return _BudgetCharge(self, reservation)

    def settle(self, reservation: Reservation, tokens: int | None, cost: float | None) -> None:
        """Charge the usage of a call; an unknown figure is charged at its worst case."""
        self._ledger.settle(reservation, tokens, cost, is_reported=tokens is not None or cost is not None)
        most = reservation.called
        paid = most.max_cost if cost is None else cost
        self.use.add((most.max_tokens if tokens is None else tokens) or 0, paid)
        self.is_priced = self.is_priced and paid is not None


@dataclass(slots=True)
class _BudgetCharge:
    meter: BudgetMeter
    reservation: Reservation

    def settle(self, tokens: int | None, cost: float | None) -> None:
        self.meter.settle(self.reservation, tokens, cost)

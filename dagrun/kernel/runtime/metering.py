"""Charging calls of models: those of planners and critics to the ledger of their run, others to a budget."""

from __future__ import annotations

from dataclasses import dataclass

from dagrun.errors import OverCeiling, shorten
from dagrun.kernel.graph.ledger import Budget, Ledger, ModelCall, Reservation
from dagrun.kernel.model.policy import Policy
from dagrun.kernel.model.usage import Charge, ModelUse
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

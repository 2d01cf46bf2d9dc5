"""Charging the model calls of planners and critics to the ledger of their run."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from dagrun.errors import OverCeiling, shorten
from dagrun.graph.ledger import Ledger, ModelCall, Reservation
from dagrun.model.usage import Charge
from dagrun.runtime.record.record import Record
from dagrun.runtime.upcalls import Upcalls

_LOG: Final = logging.getLogger("dagrun.run")


class RunMeter:
    """Charges the model calls of one call of a planner or a critic.

    Args:
        ledger: The ledger of the run.
        record: Records what was reserved and charged.
        up: Is told when a model call has been charged.

    Attributes:
        tokens: The tokens used so far, as far as the models have reported them.
        cost: The cost so far; `None` if a part of it is unknown, or nothing was called yet.
    """

    __slots__ = ("_is_known", "_ledger", "_record", "_up", "cost", "tokens")

    def __init__(self, ledger: Ledger, record: Record, up: Upcalls) -> None:
        self._record = record
        self.tokens = 0
        self.cost: float | None = None
        self._is_known = True
        self._ledger = ledger
        self._up = up

    def reserve(self, who: str, tokens: int | None, cost: float | None) -> Charge:
        """Reserve room for a model call.

        Raises:
            OverCeiling: There is no room; the message names the ceiling.
        """
        call = ModelCall(shorten(who, 60), tokens, cost)
        reservation = self._ledger.reserve_model(call)
        if reservation is None:
            raise OverCeiling(self._ledger.why_no_model(call))
        return _RunCharge(self, reservation, self._record.reserve_model(call.name, tokens, cost))

    def settle(self, reservation: Reservation, number: int, tokens: int | None, cost: float | None) -> None:
        """Charge what a call has used; a figure that is not known is charged at its worst case."""
        self._record.charge_model(number, tokens, cost)
        for fault in self._ledger.settle(reservation, tokens, cost, is_reported=tokens is not None or cost is not None):
            _LOG.warning("%s", fault)
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

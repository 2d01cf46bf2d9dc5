"""The word of a tool that calls models: what its calls use is reported, and kept within what the tool promises."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from dagrun.errors import OverCeiling, shorten
from dagrun.model.tool_context import ToolContext
from dagrun.model.usage import Charge


class ContractMeter:
    """Charges the calls of models that one call of a tool makes.

    A model whose use has no bound, or whose price nobody knows, is not called under a ceiling of that kind: the tool
    could not keep its word.

    Args:
        context: Of the call of the tool; gets the reports.
        max_tokens: The most that the tool may use, as its contract says; `None` for no bound.
        max_cost: The same in money.
    """

    __slots__ = ("_context", "_cost", "_max_cost", "_max_tokens", "_tokens")

    def __init__(self, context: ToolContext, max_tokens: int | None, max_cost: float | None) -> None:
        self._context = context
        self._max_tokens = max_tokens
        self._max_cost = max_cost
        self._tokens = 0  # used, and held for calls that go on
        self._cost = 0.0

    def reserve(self, who: str, tokens: int | None, cost: float | None) -> Charge:
        """Take room for a call at its worst.

        Raises:
            OverCeiling: There is none; the message names the ceiling.
        """
        _must_fit("max_tokens", self._max_tokens, self._tokens, tokens, who)
        _must_fit("max_cost", self._max_cost, self._cost, cost, who)
        self._tokens += tokens or 0
        self._cost += cost or 0.0
        return _ContractCharge(self, tokens, cost)

    def settle(self, charge: _ContractCharge, tokens: int | None, cost: float | None) -> None:
        """Charge what a call has used, and report it; what nobody knows is charged at its worst."""
        used = tokens if _is_figure(tokens) else charge.tokens
        paid = cost if _is_figure(cost) else charge.cost or None  # a price of 0 was a guess if nobody confirms it
        self._tokens += (used or 0) - (charge.tokens or 0)
        self._cost += (paid or 0.0) - (charge.cost or 0.0)
        if used is not None or paid is not None:
            self._context.report_usage(tokens=used or 0, cost=paid)


@dataclass(slots=True)
class _ContractCharge:
    meter: ContractMeter
    tokens: int | None
    cost: float | None
    is_open: bool = field(default=True)

    def settle(self, tokens: int | None, cost: float | None) -> None:
        if self.is_open:
            self.is_open = False
            self.meter.settle(self, tokens, cost)


def _is_figure(value: float | None) -> bool:
    return value is not None and 0 <= value < math.inf


def _must_fit(word: str, limit: float | None, used: float, worst: float | None, who: str) -> None:
    if limit is None:
        return
    what = f"{word} of {limit:g}" if word == "max_cost" else f"{word} of {limit}"
    who = shorten(who, 60)
    if worst is None:
        raise OverCeiling(f"ceiling {what}: nobody knows how much a call of {who} can use, so it is not made")
    if used + worst > limit:
        raise OverCeiling(f"ceiling {what}: {used:g} used, and a call of {who} may use {worst:g}")

"""Limits of tools that call models: the usage of their calls is reported, and kept below the declared limits."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from dagrun.errors import OverCeiling, shorten
from dagrun.kernel.model.tool_context import ToolContext
from dagrun.kernel.model.usage import Charge


class ContractMeter:
    """Charges the calls of models that one call of a tool makes.

    Under a ceiling of tokens, a model without a limit of tokens is not called; under a ceiling of cost, a model without
    a known price. The tool could not keep its contract.

    Args:
        context: The context of the tool's call, which gets the reports.
        max_tokens: The most tokens of the call by the contract of the tool; `None` for no limit.
        max_cost: The highest cost of the call by the contract of the tool; `None` for no limit.
    """

    __slots__ = ("_context", "_cost", "_max_cost", "_max_tokens", "_tokens")

    def __init__(self, context: ToolContext, max_tokens: int | None, max_cost: float | None) -> None:
        self._context = context
        self._max_tokens = max_tokens
        self._max_cost = max_cost
        self._tokens = 0  # used, and reserved for running calls
        self._cost = 0.0

    def reserve(self, who: str, tokens: int | None, cost: float | None) -> Charge:
        """Reserve the worst case of a call.

        Raises:
            OverCeiling: It does not fit; the message names the ceiling.
        """
        _must_fit("max_tokens", self._max_tokens, self._tokens, tokens, who)
        _must_fit("max_cost", self._max_cost, self._cost, cost, who)
        self._tokens += tokens or 0
        self._cost += cost or 0.0
        return _ContractCharge(self, tokens, cost)

    def settle(self, charge: _ContractCharge, tokens: int | None, cost: float | None) -> None:
        """Charge and report the usage of a call; unknown figures are charged at their worst case."""
        used = tokens if _is_figure(tokens) else charge.tokens
        paid = cost if _is_figure(cost) else charge.cost or None  # without a report, a cost of 0 is a guess
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
        raise _over(word, f"ceiling {what}: nobody knows how much a call of {who} can use, so it is not made")
    if used + worst > limit:
        raise _over(word, f"ceiling {what}: {used:g} used, and a call of {who} may use {worst:g}")


def _over(ceiling: str, text: str) -> OverCeiling:
    error = OverCeiling(text)
    error.ceiling = ceiling
    return error

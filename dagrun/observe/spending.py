"""What a run has used of models, in words."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Spending:
    """Tokens, and what they cost.

    Attributes:
        tokens: As far as anybody has said so.
        cost: In whatever currency prices are in; without that of *unpriced* tokens.
        unpriced: Tokens of which nobody knows what they cost.
    """

    tokens: int = 0
    cost: float = 0.0
    unpriced: int = 0

    def add(self, tokens: int, cost: float | None) -> None:
        """Add one call; its cost is `None` if nobody knows it."""
        self.tokens += tokens
        if cost is None:
            self.unpriced += tokens
        else:
            self.cost += cost

    def words(self) -> list[str]:
        """Say it: nothing if nothing was used; and never that something was free of which nobody knows the price."""
        tokens = [f"{self.tokens:,} token{'s' * (self.tokens != 1)}"] if self.tokens else []
        if self.unpriced and not self.cost:
            return [*tokens, "cost unknown"]
        if self.tokens or self.cost:
            return [*tokens, f"cost {'at least ' * bool(self.unpriced)}{_amount(self.cost)}"]
        return []


def _amount(cost: float) -> str:
    if 0 < cost < 1e-6:
        return "less than 0.000001"
    shown = f"{cost:,.4f}" if cost >= 0.01 else f"{cost:.6f}"
    return shown.rstrip("0").rstrip(".")

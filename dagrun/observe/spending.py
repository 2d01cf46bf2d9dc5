"""What a run has used of models, in words."""

from __future__ import annotations

from dagrun.model.usage import ModelUse


def spending_words(use: ModelUse) -> list[str]:
    """Say it: nothing if nothing was used; and never that something was free of which nobody knows the price."""
    tokens = [f"{use.tokens:,} token{'s' * (use.tokens != 1)}"] if use.tokens else []
    if use.unpriced and not use.known_cost:
        return [*tokens, "cost unknown"]
    if use.tokens or use.known_cost:
        return [*tokens, f"cost {'at least ' * bool(use.unpriced)}{_amount(use.known_cost)}"]
    return []


def _amount(cost: float) -> str:
    if 0 < cost < 1e-6:
        return "less than 0.000001"
    shown = f"{cost:,.4f}" if cost >= 0.01 else f"{cost:.6f}"
    return shown.rstrip("0").rstrip(".")

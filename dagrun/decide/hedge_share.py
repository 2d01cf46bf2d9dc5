"""How many calls got a second one beside them, and whether one more may: where all is slow, more make it slower."""

from __future__ import annotations

from collections import Counter
from typing import Final

ALWAYS: Final = 3  # second calls of a tool: a share of few calls would be none
FADES_ABOVE: Final = 1_000  # calls of a tool; then all is halved, so that what was long ago counts less


class HedgeShare:
    """Counts the calls of each tool, and the second ones, in all runs that share it."""

    __slots__ = ("_calls", "_hedged")

    def __init__(self) -> None:
        self._calls: Counter[str] = Counter()
        self._hedged: Counter[str] = Counter()

    def called(self, tool: str) -> None:
        """Count a call."""
        self._calls[tool] += 1
        if self._calls[tool] > FADES_ABOVE:
            self._calls[tool] //= 2
            self._hedged[tool] //= 2

    def allows(self, tool: str, share: float) -> bool:
        """Whether a call of *tool* may get a second one: at most the part *share* of them, the first few aside."""
        return self._hedged[tool] < ALWAYS + share * self._calls[tool]

    def hedged(self, tool: str) -> None:
        """Count a second call."""
        self._hedged[tool] += 1

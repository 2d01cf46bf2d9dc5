"""A critic that does what it is told."""

from __future__ import annotations

from typing import Any, cast

import anyio

from dagrun import Step, Verdict
from dagrun.kernel.model.outcome import Outcome


class Judge:
    """A critic of one step that takes *seconds*, and then says what it is told to.

    Attributes:
        seen: What it was shown.
    """

    def __init__(self, said: Any = "pass", *, seconds: float = 0.0, name: str = "judge", step: str = "load") -> None:
        self.name = name
        self._said = said
        self._seconds = seconds
        self._step = step
        self.seen: list[Any] = []

    def applies_to(self, step: Step) -> bool:
        """It looks at one step."""
        return step.id == self._step

    async def review(self, step: Step, outcome: Outcome) -> Any:
        """Say it."""
        self.seen.append(outcome.output)
        await anyio.sleep(self._seconds)
        if isinstance(self._said, BaseException):
            raise self._said
        if callable(self._said):
            return await self._said()
        return Verdict(cast("Any", self._said), reason="because") if isinstance(self._said, str) else self._said

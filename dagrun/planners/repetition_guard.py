"""Recognise a runaway answer while it is still written, so that the rest is not waited for.

Small models lose their way: they write the same call again and again, go on in blanks, or repeat a few words until the
ceiling of tokens. Such an answer is refused with ``DR421``, or ``DR108`` for too many steps; the call is charged.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Final

from dagrun.errors import PlanRefused, Problem, shorten
from dagrun.model.plan import Step

# The same call may be wanted three times, say for three opinions of a model.
MAX_SAME: Final = 3
MAX_BLANKS: Final = 256  # blank characters in a row
MIN_LOOP: Final = 600  # characters, without blanks, that repeat a unit
MAX_UNIT: Final = 250  # characters of the unit

_TIMES: Final = 4  # a longer unit must repeat as often
_EVERY: Final = 100  # characters between two looks for a loop
_ANCHOR: Final = 24  # the last characters, whose occurrence before shows the length of the unit
_KEPT: Final = max(MIN_LOOP, _TIMES * MAX_UNIT) + _ANCHOR


class RunawayText:
    """Judges the text of an answer, piece by piece."""

    __slots__ = ("_blanks", "_tail", "_unseen")

    def __init__(self) -> None:
        self._blanks = 0
        self._tail = ""
        self._unseen = 0

    def feed(self, piece: str) -> None:
        """Read the next piece.

        Raises:
            PlanRefused: The answer goes round in circles (``DR421``).
        """
        text = piece.rstrip()
        blanks = len(piece) - len(text)
        self._blanks = blanks if text else self._blanks + blanks
        if self._blanks > MAX_BLANKS:
            raise _runaway(f"it went on in {self._blanks} blanks")
        words = "".join(piece.split())  # the blanks of an indented list are no loop
        self._tail = (self._tail + words)[-max(_KEPT, len(words)) :]
        self._unseen += len(words)
        if self._unseen < _EVERY:
            return
        self._unseen = 0
        if unit := _unit_of(self._tail):
            raise _runaway(f"it went on repeating {json.dumps(shorten(unit, 80), ensure_ascii=False)}")
        self._tail = self._tail[-_KEPT:]


class RunawaySteps:
    """Judges the steps of an answer, as they close.

    Args:
        max_steps: The most steps that the answer may have; `None` for no limit.
    """

    __slots__ = ("_calls", "_count", "_max_steps")

    def __init__(self, max_steps: int | None) -> None:
        self._max_steps = max_steps
        self._count = 0
        self._calls: Counter[str] = Counter()

    def feed(self, steps: Iterable[Step]) -> None:
        """Read the next steps.

        Raises:
            PlanRefused: There are too many (``DR108``), or it is the same call once more (``DR421``).
        """
        for step in steps:
            self._count += 1
            if self._max_steps is not None and self._count > self._max_steps:
                facts = {"count": f"more than {self._max_steps}", "limit": str(self._max_steps)}
                raise PlanRefused([Problem("DR108", "steps", facts)])
            call = json.dumps([step.tool, step.args, step.for_each], sort_keys=True, ensure_ascii=False)
            self._calls[call] += 1
            if self._calls[call] > MAX_SAME:
                shown = shorten(f"{step.tool} with {json.dumps(step.args, ensure_ascii=False)}", 120)
                raise _runaway(f"it wrote the same call {self._calls[call]} times: {shown}")


def _unit_of(text: str) -> str:
    """Return the unit that the end of *text* repeats; empty if it repeats none."""
    anchor = text[-_ANCHOR:]
    before = text.rfind(anchor, 0, len(text) - 1)
    length = len(text) - len(anchor) - before
    if before < 0 or length > MAX_UNIT:
        return ""
    looped = max(MIN_LOOP, _TIMES * length)
    end = text[-looped:]
    return end[-length:] if len(end) == looped and end[:-length] == end[length:] else ""


def _runaway(how: str) -> PlanRefused:
    return PlanRefused([Problem("DR421", "", {"reason": f"{how}, and was cut off; a shorter one is needed"})])

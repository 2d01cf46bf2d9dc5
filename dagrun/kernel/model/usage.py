"""Metering: a call of a model is charged to its run before it is made, and its answer is kept for the record."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, Protocol


class Charge(Protocol):
    """A reservation for one call of a model."""

    def settle(self, tokens: int | None, cost: float | None) -> None:
        """Report the usage of the call, `None` for unknown. Called once, however the call has ended."""
        ...


class Meter(Protocol):
    """Charges the calls of models to a run."""

    def reserve(self, who: str, tokens: int | None, cost: float | None) -> Charge:
        """Reserve the worst case of a call.

        Args:
            who: The model that is called, for messages.
            tokens: The most tokens that the call can use, input and output together; `None` if there is no bound.
            cost: The most that the call can cost; `None` if it is not known.

        Raises:
            OverCeiling: A ceiling leaves no room; the call must not be made.
        """
        ...


class _NoMeter:
    """Charges nothing, because the model is called outside of a run."""

    def reserve(self, who: str, tokens: int | None, cost: float | None) -> Charge:
        return self

    def settle(self, tokens: int | None, cost: float | None) -> None:
        pass


UNMETERED: Final[Meter] = _NoMeter()

METER: ContextVar[Meter] = ContextVar("dagrun meter", default=UNMETERED)
"""The meter that models charge; set by the run around calls of planners and critics, and by tools that call models."""

# Set by a run that composes its answer: makes the meter of the model that does so, for whose call its tool, which is
# `Tool.is_metered`, has nothing to reserve.
RUN_METER: ContextVar[Callable[[], Meter]] = ContextVar("dagrun meter of a run", default=lambda: UNMETERED)


class ModelPlace(Protocol):
    """The place of one call of a model among those that its provider takes at once."""

    def leave(self, error: BaseException | None) -> None:
        """Release the place, once, when the call has ended; with its error, if there is one."""
        ...


class ModelPlaces(Protocol):
    """The places of the calls of models."""

    async def take(self, model: str) -> ModelPlace:
        """Wait until the provider of *model* takes one more call."""
        ...


# Set by the run around each call of a planner.
PLACES: ContextVar[ModelPlaces | None] = ContextVar("dagrun places", default=None)


class Answers:
    """The answers of models during one call of a planner.

    Attributes:
        texts: The answers, in the order in which they ended, whole or as far as they came.
    """

    MAX_COUNT: Final = 20
    MAX_TEXT: Final = 1_000_000  # characters

    __slots__ = ("texts",)

    def __init__(self) -> None:
        self.texts: list[str] = []

    def add(self, text: str) -> None:
        """Keep an answer."""
        if text and len(self.texts) < self.MAX_COUNT:
            self.texts.append(text[: self.MAX_TEXT])


# Set by the run around each call of a planner; whoever asks a model there reports what it answered.
ANSWERS: ContextVar[Answers | None] = ContextVar("dagrun answers", default=None)
"""Collects the answers of models for the record; set by the run around each call of a planner."""


@dataclass(slots=True)
class ModelUse:
    """The total usage of models.

    Attributes:
        tokens: Tokens that were reported.
        known_cost: The cost of these tokens except the *unpriced* ones, in the currency of the prices.
        unpriced: Tokens whose cost is not known.
    """

    tokens: int = 0
    known_cost: float = 0.0
    unpriced: int = 0

    @property
    def cost(self) -> float | None:
        """The whole cost; `None` if a part of it is not known."""
        return None if self.unpriced else self.known_cost

    def add(self, tokens: int, cost: float | None) -> None:
        """Add one call; *cost* is `None` if it is not known."""
        self.tokens += tokens
        if cost is None:
            self.unpriced += tokens
        else:
            self.known_cost += cost


# Set by the run around each call of a planner: takes the versions of the words of all prompts but the planner's own,
# such as the one that picks its tools.
PROMPTS: ContextVar[list[str] | None] = ContextVar("dagrun prompts", default=None)


def note_prompt(kind: str, words: str) -> None:
    """Note for the record that a model is asked with *words*, a prompt of that *kind*."""
    prompts = PROMPTS.get()
    version = f"{kind} {hashlib.sha256(words.encode()).hexdigest()[:8]}"
    if prompts is not None and version not in prompts:
        prompts.append(version)

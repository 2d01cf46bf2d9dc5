"""What a tool may ask of the run that calls it."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from dagrun.errors import ContractError, StepCancelled, ToolError, shorten
from dagrun.model.question import Answer
from dagrun.model.value import ArtifactStore

Report = Callable[[str, Mapping[str, Any]], None]
# A question, the JSON schema of its answer, and what it is about.
AskPerson = Callable[[str, Mapping[str, Any] | None, Any], Awaitable[Answer | None]]


@dataclass(slots=True, kw_only=True)
class ToolContext:
    """Handed to every tool that has a parameter of this type; never filled in by a plan.

    Attributes:
        run_id: The run.
        step: The id of the step.
        attempt: 1 for the first.
        idempotency_key: The same for every attempt of the step; hand it on to the service that is called.
        deadline: When the attempt must be over, on the clock of the run (`seconds_left` is handier); or none.
        logger: Carries the run and the step in its records.
        artifacts: Keeps files that are too large to travel as JSON.
    """

    run_id: str
    step: str
    attempt: int
    idempotency_key: str
    deadline: float | None
    logger: logging.LoggerAdapter[logging.Logger]
    artifacts: ArtifactStore
    report: Report = field(repr=False)
    clock: Callable[[], float] = field(repr=False)
    stop: threading.Event = field(default_factory=threading.Event, repr=False)
    ask_person: AskPerson | None = field(default=None, repr=False)

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the deadline, at least 0; `None` if there is none."""
        return None if self.deadline is None else max(0.0, self.deadline - self.clock())

    @property
    def is_cancelled(self) -> bool:
        """Whether the step was asked to stop; a plain function should look now and then."""
        return self.stop.is_set()

    def check_cancelled(self) -> None:
        """End a plain function in the middle, if its step was asked to stop.

        Raises:
            StepCancelled: The step was asked to stop.
        """
        if self.stop.is_set():
            raise StepCancelled(f"step {self.step} was asked to stop")

    def progress(self, fraction: float | None = None, message: str = "") -> None:
        """Tell observers how far the step is.

        Args:
            fraction: From 0 to 1, or `None` if that cannot be said; anything else is taken for that.
            message: What is going on, in a few words.
        """
        # A wrong figure is no reason to fail, and no JSON reader should meet a NaN.
        known = isinstance(fraction, int | float) and 0 <= fraction <= 1
        self.report("progress", {"fraction": fraction if known else None, "message": message})

    def report_usage(self, *, tokens: int = 0, cost: float | None = None) -> None:
        """Add to what this attempt has used.

        Args:
            tokens: Tokens of a model, input and output together; at least 0.
            cost: In the currency of the policy; `None` if it is not known.

        Raises:
            ValueError: A negative or non-finite figure.
        """
        # A report of -5 or NaN must not win room under a ceiling.
        if not 0 <= tokens < float("inf") or (cost is not None and not 0 <= cost < float("inf")):
            raise ValueError(f"usage must be finite and not negative, got {tokens} tokens and a cost of {cost}")
        self.report("usage", {"tokens": math.ceil(tokens), "cost": cost})

    def surprise(self, reason: str) -> None:
        """Say that the result is right, but not what anybody expected: ten times the rows, say.

        The step succeeds, and a planner may be asked whether the plan still fits before anything uses the result.

        Args:
            reason: Why, in a sentence.
        """
        self.report("surprise", {"reason": reason})

    def ask(self, text: str, *, schema: Mapping[str, Any] | None = None, about: Any = None) -> Coroutine[Any, Any, Any]:
        """Ask a person; await it for the answer. Meanwhile the step is held: it takes no place, and no time counts.

        Args:
            text: The question, in a sentence.
            schema: The JSON schema of the answer; its type and its ``enum`` are enforced.
            about: Plain JSON that is shown with the question.

        Returns:
            The value that the person gave.

        Raises:
            ToolError: Nobody answered, or a person said no.
            ContractError: The tool is a plain function or runs in a process of its own: only async tools can ask.
        """
        # At once: a plain function cannot await, and would never hear of it.
        if self.ask_person is None:
            raise ContractError(f"step {self.step} cannot ask anybody: only async tools that run as coroutines can")
        return _ask(self.ask_person, text, schema, about)


async def _ask(ask_person: AskPerson, text: str, schema: Mapping[str, Any] | None, about: Any) -> Any:
    answer = await ask_person(text, schema, about)
    if answer is None:
        raise ToolError(f"nobody has answered: {shorten(text)}")
    if answer.choice != "approve":
        raise ToolError(f"a person said no{': ' + shorten(answer.note) if answer.note else ''}")
    return answer.value

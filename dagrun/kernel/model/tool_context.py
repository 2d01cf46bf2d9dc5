"""`ToolContext`: the run's interface for a tool that it calls."""

from __future__ import annotations

import logging
import math
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Generic, cast

from typing_extensions import TypeVar

from dagrun.errors import ContractError, StepCancelled, ToolError, shorten
from dagrun.kernel.model.contracts.deps import NO_DEPS, Deps
from dagrun.kernel.model.contracts.spilling import ValueLimits
from dagrun.kernel.model.flow.marks import FlowViolation
from dagrun.kernel.model.question import Answer
from dagrun.kernel.model.value import ArtifactStore

Report = Callable[[str, Mapping[str, Any]], None]
D = TypeVar("D", default=object)  # with Any, type checkers could not tell the overloads of `Tool.step` apart


class _Provided:
    def __repr__(self) -> str:
        return "dagrun.PROVIDED"


PROVIDED: Final[Any] = _Provided()
"""The default of a parameter that the run fills in (``context: ToolContext = dagrun.PROVIDED``).

It is needed only for type checkers, which would else ask for the context where a plan is written with `Tool.step`.
"""

# Called with a question, the JSON schema of its answer, and JSON that is shown with it.
AskPerson = Callable[[str, Mapping[str, Any] | None, Any], Awaitable[Answer | None]]


@dataclass(slots=True, kw_only=True)
class ToolContext(Generic[D]):
    """The context of one call, passed to every tool that has a parameter of this type; a plan cannot fill it in.

    ``ToolContext[Client]`` says that *deps* is a ``Client``.

    Attributes:
        run_id: The id of the run.
        step: The id of the step.
        attempt: The number of the attempt, from 1.
        idempotency_key: The same key for every attempt of the step; pass it to the service that the tool calls.
        deadline: When the attempt must have ended, on the clock of the run (see also `seconds_left`); or none.
        logger: A logger whose records name the run and the step.
        artifacts: Stores files that are too large for JSON.
        expected_output: What the plan says should come out of the step, in words; empty if it says nothing.
        deps: What the host has passed with ``deps=``; in a ``ToolContext[T]``, the object of type ``T`` in it.
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
    limits: ValueLimits = field(default=ValueLimits(), repr=False)
    deps: D = field(default=cast(Any, None), repr=False)
    expected_output: str = ""
    provider: Deps = field(default=NO_DEPS, repr=False)
    inner_asks: Mapping[str, FlowViolation] | None = field(default=None, repr=False)

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the deadline, at least 0; `None` if there is none."""
        return None if self.deadline is None else max(0.0, self.deadline - self.clock())

    @property
    def is_cancelled(self) -> bool:
        """Whether the step was cancelled; a plain function should check this from time to time."""
        return self.stop.is_set()

    def check_cancelled(self) -> None:
        """Raise in a plain function if its step was cancelled.

        Raises:
            StepCancelled: The step was told to stop.
        """
        if self.stop.is_set():
            raise StepCancelled(f"step {self.step} was asked to stop")

    def progress(self, fraction: float | None = None, message: str = "") -> None:
        """Report the progress of the step to observers.

        Args:
            fraction: From 0 to 1, or `None` if it is not known; any other value counts as `None`.
            message: What the tool is doing, in a few words.
        """
        # A wrong figure is no reason to fail, and NaN must not get into JSON.
        known = isinstance(fraction, int | float) and 0 <= fraction <= 1
        self.report("progress", {"fraction": fraction if known else None, "message": message})

    def report_usage(self, *, tokens: int = 0, cost: float | None = None) -> None:
        """Add to the usage of this attempt.

        Args:
            tokens: Tokens of a model, input and output together; at least 0.
            cost: The cost, in the currency of the policy; `None` if it is not known.

        Raises:
            ValueError: A figure is negative or not finite.
        """
        # A report of -5 or NaN must not make room under a ceiling.
        if not 0 <= tokens < float("inf") or (cost is not None and not 0 <= cost < float("inf")):
            raise ValueError(f"usage must be finite and not negative, got {tokens} tokens and a cost of {cost}")
        self.report("usage", {"tokens": math.ceil(tokens), "cost": cost})

    def report_confidence(self, confidence: float) -> None:
        """Report the confidence of the output. An answer has the lowest confidence among its sources.

        Args:
            confidence: From 0 to 1; of several reports of an attempt, the lowest counts.

        Raises:
            ValueError: It is not a number from 0 to 1.
        """
        if not 0 <= confidence <= 1:
            raise ValueError(f"a confidence is a number from 0 to 1, got {confidence!r}")
        self.report("confidence", {"confidence": float(confidence)})

    def stream(self, text: str) -> None:
        """Pass on a piece of the output while it is made, for the host, if this is the answer of the run.

        Only of the tool that composes the answer (``compose=``), and of a coroutine; else nothing happens. The output
        is what the tool returns in any case.

        Args:
            text: The next piece.
        """
        if self.ask_person is not None and isinstance(text, str):
            self.report("piece", {"text": text})

    @contextmanager
    def before_effect(self) -> Iterator[None]:
        """Mark what a call does before it can have an effect, such as waiting for a free connection.

        If the run cuts the call off inside, nothing has happened: the step is ``timed_out`` or ``cancelled``, also if
        its tool has effects, and may be tried again. It is ``unknown`` only if it is cut off later. Nothing in the
        block, nor before it, may have an effect, and the cancellation of the run must leave the tool. In a plain
        function, and in a worker process, the block says nothing.
        """
        say = self.report if self.ask_person is not None else _say_nothing
        say("before_effect", {"is_inside": True})
        try:
            yield
        finally:
            # Left by the cancellation of the run, the tool ends here; by a time limit of its own, it may go on.
            say("before_effect", {"is_inside": self.stop.is_set() and sys.exc_info()[0] is not None})

    def surprise(self, reason: str) -> None:
        """Report that the result is right but unexpected, for example ten times as many rows.

        The step succeeds. A planner may be asked whether the plan still fits, before any step uses the result.

        Args:
            reason: Why the result is unexpected, in a sentence.
        """
        self.report("surprise", {"reason": reason})

    def ask(self, text: str, *, schema: Mapping[str, Any] | None = None, about: Any = None) -> Coroutine[Any, Any, Any]:
        """Ask a person; await the returned coroutine for the answer.

        Meanwhile the step is held: it does not count as running, and its time limits pause.

        Args:
            text: The question, in a sentence.
            schema: The JSON schema of the answer; its type and its ``enum`` are enforced.
            about: Plain JSON that is shown with the question.

        Returns:
            A coroutine that returns the value that the person gave.

        Raises:
            ToolError: Nobody answered, or a person said no.
            ContractError: The tool is a plain function or runs in a worker process: only async tools can ask.
        """
        # Checked before the coroutine is made: a plain function cannot await it, and would never see the error.
        if self.ask_person is None:
            raise ContractError(f"step {self.step} cannot ask anybody: only async tools that run as coroutines can")
        return _ask(self.ask_person, text, schema, about)


def _say_nothing(kind: str, facts: Mapping[str, Any]) -> None:
    """Report nothing."""


async def _ask(ask_person: AskPerson, text: str, schema: Mapping[str, Any] | None, about: Any) -> Any:
    answer = await ask_person(text, schema, about)
    if answer is None:
        raise ToolError(f"nobody has answered: {shorten(text)}")
    if answer.choice != "approve":
        raise ToolError(f"a person said no{': ' + shorten(answer.note) if answer.note else ''}")
    return answer.value

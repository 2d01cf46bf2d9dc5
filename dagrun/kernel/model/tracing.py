"""Traces: the interface between a run and a tracer, and the way code inside a run finds the tracer.

`dagrun.observe.tracing` is the implementation, and the only file that knows OpenTelemetry. A run without *tracing*
never imports it, and asks for each attempt only whether there is a tracer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import Context, ContextVar
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from dagrun.kernel.model.event import Event
from dagrun.kernel.model.redaction.redactor import Redactor
from dagrun.kernel.model.tool import Tool

T = TypeVar("T")

TRACEPARENT: Final = "traceparent"
"""The label of a record, and the header of a call, that names the span to go on from (W3C Trace Context)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedRun:
    """The facts of a run when its span begins.

    Attributes:
        run_id: The name of the run.
        steps: The number of steps in its plan.
        redactor: Redacts contents, if they are captured at all.
        earlier: The traceparent of the run that is resumed or retried; empty if there is none, or it had no trace.
        relation: What this run does with that one: ``resumes`` or ``retries``.
    """

    run_id: str
    steps: int
    redactor: Redactor
    earlier: str = ""
    relation: str = ""


@dataclass(slots=True, kw_only=True)  # not frozen: made for every attempt of a traced run
class AttemptFacts:
    """The facts of an attempt when its tool is called.

    Attributes:
        step: The id of the step.
        parent: The id of the for_each that it is an element of, or empty.
        number: The number of the attempt, from 1.
        tool: The tool.
        key: The idempotency key of the call.
        needs: The ids of the steps that this one waits for.
        revision: The revision of the plan.
        started: When the attempt started, in seconds since the start of the run.
        arguments: The arguments as JSON text; they hold no secret, only handles.
        is_second: Whether this is a second call beside a slow one.
        leaves: Whether the call leaves this process, so that it needs headers.
    """

    step: str
    parent: str
    number: int
    tool: Tool[..., Any]
    key: str
    needs: Sequence[str]
    revision: int
    started: float
    arguments: bytes
    is_second: bool
    leaves: bool


class ModelSpan(Protocol):
    """The span of one call of a model."""

    async def around(self, call: Callable[[], Awaitable[T]]) -> T:
        """Await *call*; spans that begin meanwhile are children of this one."""

    def end(self, *, model: str, stop: str, tokens: Mapping[str, int | None], error: str = "") -> None:
        """End the span.

        Args:
            model: The name that the server has given; empty if it has not.
            stop: Why the answer has ended: ``end``, ``length``, ``refused``; empty if it has not.
            tokens: The usage: ``input``, ``output``, ``cached``; `None` where the server did not say.
            error: The kind of error; empty if there was none.
        """


class RunTracer(Protocol):
    """Traces one run: it observes the events of the run, which end the spans that these methods begin.

    None of the methods raises, whatever an exporter does.

    Attributes:
        traceparent: Names the span of the run for other processes; empty if it is not recorded anywhere.
    """

    traceparent: str

    def enter(self, context: Context) -> None:
        """Make the span of the run the current one in *context*, and let code in it find this tracer."""

    def begin_attempt(self, attempt: AttemptFacts, context: Context) -> Mapping[str, str] | None:
        """Begin the span of an attempt, and make it the current one in *context*.

        Returns:
            The headers for a call that leaves this process; `None` for other calls.
        """

    def begin_plan(self, planner: str, context: Context, request: int = 0) -> None:
        """Begin the span of a call of the planner, and make it the current one in *context*."""

    def begin_model_call(self, provider: str, model: str, address: str) -> ModelSpan | None:
        """Begin the span of a call of a model, below the current span.

        Args:
            provider: The name of the provider.
            model: The name of the model.
            address: The address of the server; empty for the provider's.
        """

    def take(self, batch: Sequence[Event]) -> None:
        """Take the events of a change that is complete."""

    def close(self) -> None:
        """Note that no more events will come."""

    def end(self) -> None:
        """End the spans that are still open; nothing of the run is alive any more."""


class Traces(Protocol):
    """The type of ``tracing=…``: `dagrun.Tracing`, or another object that begins a tracer for each run."""

    def begin(self, run: TracedRun) -> RunTracer | None:
        """Return the tracer of a run that begins; `None` if it cannot be traced. It must not raise."""


# Set in the context of each traced run: a weak reference, as the context variables of a call may outlive its run.
TRACER: ContextVar[Callable[[], RunTracer | None]] = ContextVar("dagrun tracer", default=lambda: None)

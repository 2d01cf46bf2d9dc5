"""Traces and metrics of runs by OpenTelemetry: `Tracing`.

1. A span begins where something begins: the run, a call of the planner, an attempt, a second call, a call of a model.
   It is the current span of the code inside it, so that spans of other libraries nest by themselves.
2. It ends on the event that records the end. An attempt that critics review ends with the review.
3. A step has no span above its attempts. An attempt has links to the last attempts of the steps that it waited for.
4. Its status is an error only if nothing good follows: not if it is tried again, or a planner or a person is asked.
5. No content and no text of an exception is on a span, unless that is asked for.
6. Nothing here raises: a broken exporter or processor is logged once for each run, and the run goes on.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import Context
from functools import partial
from time import time_ns
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit
from weakref import ref

from pydantic_core import from_json

from dagrun import events
from dagrun._version import __version__
from dagrun.errors import ContractError, MissingExtra
from dagrun.events import AttemptEnded, Event, Reviewed, StepSettled
from dagrun.kernel.model.outcome import Outcome, Recovery, Status
from dagrun.kernel.model.redaction.redactor import Redactor
from dagrun.kernel.model.tracing import TRACEPARENT, TRACER, AttemptFacts, ModelSpan, RunTracer, TracedRun
from dagrun.kernel.model.value import decode_or_reason, encode_plain
from dagrun.observe import semconv as names
from dagrun.observe.run_summary import handlers_of
from dagrun.observe.semconv import Instruments

try:
    from opentelemetry import context as otel_context
    from opentelemetry import trace
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Link, Span, SpanContext, SpanKind, StatusCode, Tracer, TracerProvider
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as error:
    raise MissingExtra("traces need OpenTelemetry: pip install 'dagrun-engine[otel]'") from error

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

MAX_LINKS: Final = 128
MAX_CONTENT: Final = 8 << 10  # characters of arguments, of a result, or of a message

MAX_SENDING: Final = 3.0  # seconds for the last spans of a command

_LOG: Final = logging.getLogger("dagrun.observers")
_CAPTURE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_CAPTURING: Final = frozenset(("true", "span_only", "span_and_event"))
_FOLLOWED: Final = frozenset(
    (Recovery.PROCEED, Recovery.RETRY, Recovery.FALL_BACK, Recovery.REPLAN, Recovery.ASK, Recovery.REVIEW)
)
_STOPS: Final = {"end": "stop", "length": "length", "refused": "content_filter"}
_NEEDS: Final = {names.LINK: "needs"}
_W3C: Final = TraceContextTextMapPropagator()


def _harmless(method: F) -> F:
    """Suppress all exceptions of a tracer's method: the run does not depend on it."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except Exception:  # noqa: BLE001  (an exporter or a processor of the host may raise anything)
            if not self.is_faulty:
                self.is_faulty = True
                _LOG.exception("a trace could not be written; later faults of this run are not logged")
            return None

    return call  # type: ignore[return-value]


class Tracing:
    """Traces runs: a span for each run, each call of a planner, each attempt of a step, and each call of a model.

    Args:
        tracer_provider: Makes the tracer; `None` for the global one.
        meter_provider: Makes the meter; `None` for no metrics.
        capture_content: Whether arguments, outputs and messages of failures are on the spans of attempts, redacted and
            cut; `None` for what ``OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT`` says, and not if it is unset.
        workflow: The name of the workflow, in the names of spans and on metrics. It must not name single runs.

    Raises:
        MissingExtra: OpenTelemetry is not installed.
        ContractError: *workflow* is empty.

    Example:
        >>> tracing = Tracing(workflow="refunds")
        >>> # result = await dagrun.run(plan, tracing=tracing)
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        capture_content: bool | None = None,
        workflow: str = "dagrun",
    ) -> None:
        if not workflow or not isinstance(workflow, str):
            raise ContractError(f"workflow is a name, got {workflow!r}")
        if capture_content is None:
            capture_content = os.environ.get(_CAPTURE, "").strip().lower() in _CAPTURING
        self.workflow = workflow
        self.captures_content = capture_content
        self.tracer: Tracer = trace.get_tracer(names.SCOPE, __version__, tracer_provider)
        meter = None if meter_provider is None else meter_provider.get_meter(names.SCOPE, __version__)
        self.metrics = None if meter is None else Instruments(meter, workflow)
        self.is_faulty = False

    def __repr__(self) -> str:
        return f"<Tracing {self.workflow}{', with content' * self.captures_content}>"

    @_harmless
    def begin(self, run: TracedRun) -> RunTracer | None:
        """Begin the span of a run below the current span; see `dagrun.kernel.model.tracing.Traces`."""
        return _RunSpans(self, run)


class _Open:
    """A span that has begun.

    Attributes:
        span: The span.
        facts: The attempt; `None` for a call of the planner.
        ended_at: When it has ended, in nanoseconds since 1970, if it is ended later than that.
    """

    __slots__ = ("ended_at", "facts", "span")

    def __init__(self, span: Span, facts: AttemptFacts | None = None) -> None:
        self.span = span
        self.facts = facts
        self.ended_at: int | None = None


class _RunSpans:
    """The spans of one run; see `dagrun.kernel.model.tracing.RunTracer`.

    Args:
        tracing: The options.
        run: The run.

    Attributes:
        is_faulty: Whether a fault was logged.
        traceparent: Names the span of the run.
    """

    def __init__(self, tracing: Tracing, run: TracedRun) -> None:
        self.is_faulty = False
        self._tracer = tracing.tracer
        self._metrics = tracing.metrics
        self._redactor: Redactor | None = run.redactor if tracing.captures_content else None
        self._span: Span = self._tracer.start_span(
            f"{names.INVOKE_WORKFLOW} {tracing.workflow}",
            kind=SpanKind.INTERNAL,
            attributes={
                names.OPERATION: names.INVOKE_WORKFLOW,
                names.WORKFLOW_NAME: tracing.workflow,
                names.AGENT_NAME: tracing.workflow,
                names.RUN_ID: run.run_id,
                names.RUN_STEPS: run.steps,
            },
            links=list(_earlier(run)),
        )
        self._context = trace.set_span_in_context(self._span)
        self.traceparent = _headers(self._context).get(TRACEPARENT, "")
        self._is_recording = self._span.is_recording()
        self._is_over = False
        self._open: dict[str, _Open] = {}  # the running attempts, by step
        self._second: dict[str, _Open] = {}
        self._last: dict[str, list[SpanContext]] = {}  # the last attempt of each step, or of each element
        self._ready: dict[str, float] = {}  # when each step ended, or came with a patch
        self._backoff: dict[str, float] = {}
        self._asked: dict[str, tuple[str, float]] = {}
        self._person: dict[str, float] = {}
        self._replanned: dict[str, float] = {}  # when the planner had answered, by the step that it was asked about
        self._drafted = 0.0  # when the first plan was complete
        self._other_waits = (
            (names.PERSON_WAIT, "person", self._person),
            (names.BACKOFF_WAIT, "backoff", self._backoff),
        )
        self._plans: dict[int, _Open] = {}
        self._is_draft = False
        self._triggers: dict[str, str] = {}
        self._reasons: dict[int, str] = {}  # why the planner is asked, by request
        self._revisions = self._tokens = 0
        self._cost: float | None = None

    # Beginnings -------------------------------------------------------------------------------------------

    @_harmless
    def enter(self, context: Context) -> None:
        """Make the span of the run the current one in *context*."""
        context.run(otel_context.attach, self._context)
        context.run(TRACER.set, ref(self))

    @_harmless
    def begin_attempt(self, attempt: AttemptFacts, context: Context) -> Mapping[str, str] | None:
        """Begin the span of an attempt, or of a second call beside it."""
        step, around = attempt.step, self._context
        if attempt.is_second and (first := self._open.get(step)) is not None:
            around = trace.set_span_in_context(first.span, around)
        name = f"{names.EXECUTE_TOOL} {attempt.tool.name}"
        if self._is_recording:
            attributes, links = self._described(attempt), self._links(attempt.needs)
            span = self._tracer.start_span(name, around, SpanKind.INTERNAL, attributes, links)
        else:
            span = self._tracer.start_span(name, around)
        (self._second if attempt.is_second else self._open)[step] = _Open(span, attempt)
        if not attempt.is_second:
            self._keep_last(attempt, span.get_span_context())
        inside = trace.set_span_in_context(span, around)
        context.run(otel_context.attach, inside)
        return _headers(inside) if attempt.leaves else None

    def _described(self, attempt: AttemptFacts) -> dict[str, Any]:
        tool = attempt.tool
        attributes: dict[str, Any] = {
            names.OPERATION: names.EXECUTE_TOOL,
            names.TOOL_NAME: tool.name,
            names.TOOL_TYPE: "function",
            names.CALL_ID: attempt.key[:16],
            names.STEP_ID: attempt.step,
            names.ATTEMPT: attempt.number,
            names.EFFECT: tool.effect.value,
            names.REVISION: attempt.revision,
        }
        if attempt.is_second:
            attributes[names.HEDGE] = True
        else:
            self._add_waits(attempt, attributes)
        if self._redactor is not None:
            attributes[names.CALL_ARGUMENTS] = self._content(self._redactor, from_json(attempt.arguments))
        return attributes

    def _keep_last(self, attempt: AttemptFacts, span: SpanContext) -> None:
        self._last[attempt.step] = [span]
        if attempt.parent:
            elements = self._last.setdefault(attempt.parent, [])
            if attempt.number == 1 and len(elements) < MAX_LINKS:
                elements.append(span)

    def _links(self, needs: Sequence[str]) -> list[Link]:
        found = [span for need in needs for span in self._last.get(need, ())]
        return [Link(span, _NEEDS) for span in found[:MAX_LINKS]]

    def _add_waits(self, attempt: AttemptFacts, attributes: dict[str, Any]) -> None:
        """Add how long the step was ready before this attempt, by reason; the rest was for a free slot."""
        step, known = attempt.step, self._ready
        since = known.get(step, 0.0)
        for need in attempt.needs:
            since = max(since, known.get(need, 0.0))
        left = max(0.0, attempt.started - since)
        planner = self._planner_until(attempt) - since
        for name, reason, of_reason in self._other_waits:
            if of_reason and step in of_reason:
                seconds = min(left, of_reason.pop(step))
                left -= seconds
                self._add_wait(attributes, name, reason, seconds)
        if planner > 0:
            seconds = min(left, planner)
            left -= seconds
            self._add_wait(attributes, names.PLANNER_WAIT, "planner", seconds)
        self._add_wait(attributes, names.SLOT_WAIT, "slot", left)

    def _planner_until(self, attempt: AttemptFacts) -> float:
        """Return until when a step could not start because of the planner; 0 if it had not to wait for it.

        Dependents of a step wait while the planner is asked about that step, and all steps while it is asked about the
        goal; steps with an effect wait until the first plan is complete.
        """
        until = self._drafted if not attempt.tool.effect.is_free else 0.0
        if self._replanned:
            known = self._replanned
            until = max(until, known.get("", 0.0), *(known.get(need, 0.0) for need in attempt.needs))
        return until

    def _add_wait(self, attributes: dict[str, Any], name: str, reason: str, seconds: float) -> None:
        attributes[name] = round(seconds * 1000, 3)
        if self._metrics is not None:
            self._metrics.waited(reason, seconds)

    @_harmless
    def begin_plan(self, planner: str, context: Context, request: int = 0) -> None:
        """Begin the span of a call of the planner."""
        self._end_plan("refused", request)  # an answer that could not be used: the planner is asked again
        span = self._tracer.start_span(
            f"{names.PLAN} {planner}",
            self._context,
            SpanKind.INTERNAL,
            attributes={
                names.OPERATION: names.PLAN,
                names.PLAN_KIND: "draft" if self._is_draft else "replan",
                names.REVISION: self._revisions,
                **({names.PLAN_TRIGGER: why} if (why := self._reasons.get(request, "")) else {}),
            },
        )
        self._plans[request] = _Open(span)
        context.run(otel_context.attach, trace.set_span_in_context(span, self._context))

    @_harmless
    def begin_model_call(self, provider: str, model: str, address: str) -> ModelSpan | None:
        """Begin the span of a call of a model."""
        return _ModelCall(self._tracer, self._metrics, provider, model, address)

    # Events -----------------------------------------------------------------------------------------------

    @_harmless
    def take(self, batch: Sequence[Event]) -> None:
        """Take the events of a change that is complete."""
        for event in batch:
            kind = type(event)
            if kind is AttemptEnded or kind is Reviewed:
                self._attempt_ended(event)  # type: ignore[arg-type]
            elif (note := _NOTES.get(kind.__name__)) is not None:
                note(self, event)

    def _attempt_ended(self, event: AttemptEnded | Reviewed) -> None:
        outcome, step, recovery = event.outcome, event.step, event.decision.recovery
        if type(event) is AttemptEnded:
            self._add_usage(outcome.tokens, outcome.cost)
        if recovery is Recovery.REVIEW:
            return
        if event.decision.delay:
            self._backoff[step] = event.decision.delay
        self._ready[step] = event.at
        if self._metrics is not None and event.state.is_settled:
            self._metrics.settled(event.state)
        found = self._open.pop(step, None)
        if found is None:
            return
        if found.facts is not None and self._metrics is not None:
            kind = "" if outcome.failure is None else outcome.failure.kind.value
            self._metrics.called(found.facts.tool.name, event.at - found.facts.started, kind)
        if found.span.is_recording():
            self._describe(found.span, event)
        found.span.end()

    def _describe(self, span: Span, event: AttemptEnded | Reviewed) -> None:
        outcome, recovery = event.outcome, event.decision.recovery
        span.set_attributes({names.STEP_STATE: event.state.value, names.RECOVERY: recovery.value})
        if outcome.shared is not None:
            span.set_attribute(names.SHARED, outcome.shared.how)
        if outcome.failure is not None:
            span.set_attribute(names.ERROR_TYPE, outcome.failure.kind.value)
            if recovery not in _FOLLOWED:
                span.set_status(StatusCode.ERROR, self._message(outcome))
        elif self._redactor is not None:
            span.set_attribute(names.CALL_RESULT, self._content(self._redactor, decode_or_reason(outcome.value)))

    def _message(self, outcome: Outcome) -> str | None:
        """Return the text of a failure: nothing, unless content is captured. It is redacted already."""
        return outcome.failure.message[:MAX_CONTENT] if self._redactor is not None and outcome.failure else None

    @staticmethod
    def _content(redactor: Redactor, value: Any) -> str:
        return encode_plain(redactor.value(value))[:MAX_CONTENT]

    def _on_step_settled(self, event: StepSettled) -> None:
        self._ready[event.step] = event.at
        if self._metrics is not None:
            self._metrics.settled(event.state)

    def _on_hedge_ended(self, event: events.HedgeEnded) -> None:
        self._add_usage(event.tokens, event.cost)
        found = self._second.pop(event.step, None)
        if found is not None:
            if event.fault:
                found.span.set_attribute(names.ERROR_TYPE, "hedge_failed")
            found.span.set_attribute(names.STEP_STATE, "succeeded" if event.has_won else "cancelled")
            found.span.end()

    def _on_spliced(self, event: events.Spliced) -> None:
        self._revisions = event.revision
        self._ready.update(dict.fromkeys(event.consequence.added, event.at))
        self._span.add_event(names.SPLICED, {names.REVISION: event.revision, names.ORIGIN: event.origin})

    def _on_question_asked(self, event: events.QuestionAsked) -> None:
        question = event.question
        self._asked[question.id] = (question.step, event.at)
        facts = {names.QUESTION_ID: question.id, names.QUESTION_KIND: str(question.kind), names.STEP_ID: question.step}
        self._span.add_event(names.ASKED, facts)
        if self._metrics is not None:
            self._metrics.questions(1)

    def _on_question_answered(self, event: events.QuestionAnswered) -> None:
        step, asked_at = self._asked.pop(event.question, (event.step, event.at))
        self._person[step] = self._person.get(step, 0.0) + event.at - asked_at
        choice = "void" if event.answer is None else event.answer.choice
        self._span.add_event(names.ANSWERED, {names.QUESTION_ID: event.question, names.CHOICE: choice})
        if self._metrics is not None:
            self._metrics.questions(-1)

    def _on_ceiling_near(self, event: events.CeilingNear) -> None:
        self._span.add_event(names.NEAR, {names.CEILING: event.ceiling})

    def _on_draft_started(self, event: events.DraftStarted) -> None:
        self._is_draft, self._reasons[0] = True, "goal_given"

    def _on_draft_ended(self, event: events.DraftEnded) -> None:
        self._end_plan(event.result, 0)
        self._drafted = event.at
        self._is_draft, self._reasons[0] = False, ""

    def _on_replan_requested(self, event: events.ReplanRequested) -> None:
        self._triggers[event.trigger.step] = event.trigger.kind.value

    def _on_replan_started(self, event: events.ReplanStarted) -> None:
        why = next((self._triggers[step] for step in event.steps if step in self._triggers), "")
        self._reasons[event.number] = why

    def _on_replan_ended(self, event: events.ReplanEnded) -> None:
        self._end_plan(event.result, event.number)
        self._replanned.update(dict.fromkeys(event.steps, event.at))
        self._reasons.pop(event.number, None)
        if self._metrics is not None:
            self._metrics.replanned(event.result)

    def _on_planner_called(self, event: events.PlannerCalled) -> None:
        self._add_usage(event.tokens, event.cost)
        plan = self._plans.get(event.request)
        if plan is None:
            return
        # Its result is known only when the patch has been checked, and its time is the time of the call.
        plan.ended_at = time_ns()
        if event.fault:
            kind = "exception" if event.failure is None else event.failure.kind.value
            plan.span.set_attribute(names.ERROR_TYPE, kind)

    def _end_plan(self, result: str, request: int) -> None:
        plan = self._plans.pop(request, None)
        if plan is not None:
            plan.span.set_attribute(names.PLAN_RESULT, result)
            if result in {"failed", "stopped"}:
                plan.span.set_status(StatusCode.ERROR)
            plan.span.end(plan.ended_at)

    def _add_usage(self, tokens: int, cost: float | None) -> None:
        self._tokens += tokens
        if cost is not None:
            self._cost = (self._cost or 0.0) + cost

    def _on_run_ended(self, event: events.RunEnded | events.RunSuspended) -> None:
        self._finish(event.status.value, event.at, is_error=_is_bad(event))

    _on_run_suspended = _on_run_ended

    # The end ----------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Do nothing: the last event has ended the span of the run."""

    @_harmless
    def end(self) -> None:
        """End the open spans."""
        self._finish("interrupted", None, is_error=True)

    def _finish(self, status: str, seconds: float | None, *, is_error: bool) -> None:
        if self._is_over:
            return
        self._is_over = True
        for found in (*self._second.values(), *self._open.values()):
            found.span.set_attribute(names.RECOVERY, "interrupted")
            found.span.end()
        self._open.clear()
        self._second.clear()
        for request in list(self._plans):
            self._end_plan("stopped", request)
        span = self._span
        span.set_attribute(names.RUN_STATUS, status)
        span.set_attribute(names.RUN_REVISIONS, self._revisions)
        span.set_attribute(names.USAGE_TOKENS, self._tokens)
        if self._cost is not None:
            span.set_attribute(names.USAGE_COST, self._cost)
        if is_error:
            span.set_attribute(names.ERROR_TYPE, status)
            span.set_status(StatusCode.ERROR)
        span.end()
        if self._metrics is not None and seconds is not None:
            self._metrics.questions(-len(self._asked))
            self._metrics.ended(status, seconds, is_error=is_error)


_NOTES: Final = handlers_of(_RunSpans)


def _is_bad(event: events.RunEnded | events.RunSuspended) -> bool:
    return isinstance(event, events.RunEnded) and event.status is not Status.SUCCEEDED


class _ModelCall:
    """The span of one call of a model; see `dagrun.kernel.model.tracing.ModelSpan`."""

    def __init__(self, tracer: Tracer, metrics: Instruments | None, provider: str, model: str, address: str) -> None:
        self.is_faulty = False
        self._metrics = metrics
        self._common = {names.OPERATION: names.CHAT, names.PROVIDER: provider, names.REQUEST_MODEL: model}
        where = urlsplit(address)
        server: dict[str, Any] = {names.SERVER_ADDRESS: where.hostname} if where.hostname else {}
        if where.port is not None:
            server[names.SERVER_PORT] = where.port
        self._span = tracer.start_span(
            f"{names.CHAT} {model}", kind=SpanKind.CLIENT, attributes={**self._common, **server}
        )
        self._began = time_ns()

    async def around(self, call: Callable[[], Awaitable[T]]) -> T:
        """Await *call* inside the span."""
        token = otel_context.attach(trace.set_span_in_context(self._span))
        try:
            return await call()
        finally:
            otel_context.detach(token)

    @_harmless
    def end(self, *, model: str, stop: str, tokens: Mapping[str, int | None], error: str = "") -> None:
        """End the span, and record its duration and tokens."""
        span = self._span
        if model:
            span.set_attribute(names.RESPONSE_MODEL, model)
        if stop:
            span.set_attribute(names.FINISH_REASONS, [_STOPS.get(stop, stop)])
        for key, name in _TOKENS.items():
            if tokens.get(key):
                span.set_attribute(name, tokens[key] or 0)
        if error:
            span.set_attribute(names.ERROR_TYPE, error)
            span.set_status(StatusCode.ERROR)
        span.end()
        if self._metrics is not None:
            self._metrics.asked((time_ns() - self._began) / 1e9, tokens, self._common, error)


_TOKENS: Final = {"input": names.INPUT_TOKENS, "output": names.OUTPUT_TOKENS, "cached": names.CACHED_TOKENS}


def _headers(context: otel_context.Context) -> dict[str, str]:
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, context)
    return carrier


def _earlier(run: TracedRun) -> Iterator[Link]:
    if run.earlier:
        span = trace.get_current_span(_W3C.extract({TRACEPARENT: run.earlier}, otel_context.Context()))
        if span.get_span_context().is_valid:
            yield Link(span.get_span_context(), {names.LINK: run.relation})


def _give_up(stop: Callable[[], object]) -> None:
    _LOG.warning("the trace could not be sent within %g s; is there a collector, as OTEL_* say?", MAX_SENDING)
    stop()


@contextmanager
def exported_tracing(workflow: str = "dagrun") -> Iterator[Tracing]:
    """Trace with the SDK, and export traces and metrics by OTLP over HTTP as configured by the ``OTEL_*`` variables.

    The rest is sent when the body ends.

    Raises:
        MissingExtra: The SDK or the exporter is not installed.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider as SdkProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise MissingExtra("--trace sends spans with OpenTelemetry: pip install 'dagrun-engine[otel]'") from error
    named = Resource.create() if os.environ.get("OTEL_SERVICE_NAME") else Resource.create({SERVICE_NAME: workflow})
    provider = SdkProvider(resource=named)
    exporter = OTLPSpanExporter()
    provider.add_span_processor(BatchSpanProcessor(exporter))
    try:
        yield Tracing(tracer_provider=provider, workflow=workflow)
    finally:
        # A collector that is not there must not hold up the end of a command: by default it is tried for ten seconds.
        stopper = threading.Timer(MAX_SENDING, partial(_give_up, exporter.shutdown))
        stopper.daemon = True
        stopper.start()
        provider.shutdown()
        stopper.cancel()
        stopper.join()

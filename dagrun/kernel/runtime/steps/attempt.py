"""One attempt: arguments filled in, the tool called, its errors caught, its output checked."""

from __future__ import annotations

import hashlib
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextvars import Context
from functools import partial
from typing import Any, Final
from weakref import ref

import anyio
from pydantic import ValidationError
from pydantic_core import from_json

from dagrun.errors import JournalError, ToolError, ValueRefused, ValueTooLarge, shorten
from dagrun.kernel.decide.classify import classify
from dagrun.kernel.decide.exception_text import HostInterrupted, interrupt_in, with_error
from dagrun.kernel.graph.node import Node
from dagrun.kernel.model.contracts.received import ReceivedArguments
from dagrun.kernel.model.contracts.spilling import ValueLimits, spill
from dagrun.kernel.model.executor import Encoded, Executor, StillRunning, ToolCall
from dagrun.kernel.model.outcome import ErrorKind, Failure, Outcome, State
from dagrun.kernel.model.question import Answer
from dagrun.kernel.model.redaction.redactor import RedactingLogger
from dagrun.kernel.model.reference import Condition, ConditionMismatch, Reference, holds
from dagrun.kernel.model.secrets import KEY
from dagrun.kernel.model.signature import explain
from dagrun.kernel.model.tool import AnyTool
from dagrun.kernel.model.tool_context import ToolContext
from dagrun.kernel.model.tracing import AttemptFacts, RunTracer
from dagrun.kernel.model.value import ArtifactStore, Stored, decode, describe, encode, to_json
from dagrun.kernel.runtime.backend import is_being_cancelled, is_cancellation
from dagrun.kernel.runtime.coroutine_driver import Suspended
from dagrun.kernel.runtime.live_attempt import LiveAttempt
from dagrun.kernel.runtime.run_features import CallSharer, FrameFiles
from dagrun.kernel.runtime.run_parts import RunParts
from dagrun.kernel.runtime.steps.object_arguments import arguments_with_objects, held_elements
from dagrun.kernel.runtime.steps.spilled_outputs import refuse_kept_out, refuse_spilled, why_list_spilled

AskInside = Callable[[LiveAttempt, str, Mapping[str, Any] | None, Any], Awaitable[Answer | None]]
AskPerson = Callable[[str, Mapping[str, Any] | None, Any], Awaitable[Answer | None]]
Encoder = Callable[[object, int], Stored]

_LOG: Final = logging.getLogger("dagrun.tool")
_SUCCEEDED: Final = State.SUCCEEDED
_IN_THIS_PROCESS: Final = frozenset(("coroutine", "thread"))
_NO_OBJECTS: Final[Mapping[str, object]] = {}


class AttemptRunner:
    """Makes the attempts of one run.

    For calls that several attempts share, `dagrun.features.shared_calls` overrides `_special`, `_begin_span`,
    `_conclude`, `_charge` and `_asking`.

    Args:
        parts: What the parts of the run share.
        executors: The executors, by name.
        artifacts: The store in which tools keep files.
        root: The id of the run from which idempotency keys are made.
        ask_person: Asks a person on behalf of a running attempt; takes its slot, the question, the JSON Schema of the
            answer, and the JSON shown with the question.

    Attributes:
        shares: Whether there are tools with a cache or a batch form.
        sharing: Makes their calls; `None` until it is there.
        frames: Keeps frames in files; `None` if the run has no objects in memory.
    """

    def __init__(
        self,
        parts: RunParts,
        executors: Mapping[str, Executor],
        artifacts: ArtifactStore,
        root: str,
        ask_person: AskInside,
    ) -> None:
        self._run_id = parts.run_id
        self._graph = parts.graph
        self._context = parts.context
        self._grace = parts.policy.grace
        self._limits = ValueLimits(
            parts.policy.max_argument_bytes, parts.policy.max_spill_bytes, parts.policy.unrecorded
        )
        self._has_objects = parts.graph.has_objects
        # What may not be recorded may be in no file either.
        self._files_frames = self._has_objects and parts.run_log is not None and not parts.policy.redact_records
        tools = parts.graph.plan.toolbox.values()
        self._may_spill = any(tool.output.spills for tool in tools)
        self._on_progress = parts.record.progress
        self._on_confidence = parts.record.note_confidence
        self._tracer = parts.tracer
        self._now = parts.now
        self._leaves_out = parts.leaves_out
        self._run_log = run_log = parts.run_log
        # By the name alone: a run log of 0.2 has `held`, but no `inbox`, so it is no `HeldRunLog` of today.
        self._until_written = None if run_log is None else getattr(run_log, "held", run_log.durable)
        self._up = up = parts.up
        self._executors = executors
        self._artifacts = artifacts
        self._root = root
        self._ask_person = ask_person
        self._log: RedactingLogger | None = None
        up.key_of = self.key_of
        self.shares = any(tool.cache is not None or tool.batch is not None for tool in tools)
        self.sharing: CallSharer | None = None
        self.frames: FrameFiles | None = None
        self._is_plain = self._tracer is None and not (self._files_frames or self.shares)

    def prepare(self, live: LiveAttempt) -> Failure | None:
        """Fill in and check the arguments; return a failure if that cannot be done."""
        tool, plan = live.tool, live.node.plan
        data, objects = b"{}", _NO_OBJECTS
        arguments: dict[str, Any] = {}
        if plan.has_arguments or live.node.on_fallback or live.node.extra is not None:
            try:
                data = self.fill(live.node)
                if self._has_objects:
                    arguments, objects = arguments_with_objects(self._graph, live.node, executor_of(live), data)
                else:
                    arguments = tool.arguments.parse(data)
                if tool.arguments.takes_more:
                    self._reveal(tool, arguments)
            except (LookupError, ValueRefused) as error:
                return Failure(ErrorKind.BAD_ARGUMENTS, str(error.args[0]), nothing_happened=True)
            except ValidationError as error:
                return Failure(ErrorKind.BAD_ARGUMENTS, f"{tool.name}: {explain(error)}", nothing_happened=True)
            if tool.arguments.takes_more:
                self._add_from_host(live, arguments)
        context = partial(self.context_of, live)
        most = self._limits.most_of(tool) if tool.output.spills else tool.output_limit
        live.call = ToolCall(tool, data, arguments, context, self._grace, most, objects)
        return None

    def _add_from_host(self, live: LiveAttempt, arguments: dict[str, Any]) -> None:
        """Add the arguments that no plan has: the context, the dependencies, and a stream of elements."""
        contract = live.tool.arguments
        if contract.context is not None:
            arguments[contract.context] = self.context_of(live)
        if contract.deps:
            arguments |= self._graph.plan.deps.fill(contract.deps, contract.optional_deps)
        if contract.stream and live.node.plan.stream:
            from dagrun.kernel.graph.mapped_steps import fan_of_stream  # here: few tools take a stream

            if (fan := fan_of_stream(self._graph, live.node)) is not None:
                arguments[contract.stream] = self._up.open_stream(live, fan)

    def _reveal(self, tool: AnyTool, arguments: dict[str, Any]) -> None:
        """Replace handles by secrets: only here, so that nothing stored contains them.

        Raises:
            LookupError: There is no such secret, or the tool may not have it.
        """
        for name in tool.arguments.secrets & arguments.keys():
            if arguments[name] is not None:
                arguments[name] = self._graph.plan.secrets.reveal(tool.name, arguments[name][KEY])

    def fill(self, node: Node) -> bytes:
        """Return the arguments of the next call as JSON text.

        Raises:
            LookupError: The output of another step has no such part.
            ValueRefused: They are too large, or one is an artifact because it was too large for the step before.
        """
        limit = self._limits.arguments
        try:
            data = node.plan.args.fill(lambda reference: self._graph.look_up(reference, node), limit)
            if self._may_spill:
                refuse_spilled(self._graph, node)
            if node.extra is None or not node.extra.given:
                return data
            given = {name: decode(value) for name, value in node.extra.given.items()}
            return to_json(encode({**from_json(data), **given}, limit))
        except ValueTooLarge:
            raise ValueTooLarge(_over("the arguments", limit)) from None

    def received(self, node: Node, data: bytes) -> ReceivedArguments:
        """Return the values that the tool of *node* receives for *data*; *data* itself if it does not fit the tool."""
        try:
            parsed, objects = arguments_with_objects(self._graph, node, "coroutine", data)
            return node.tool.arguments.received(data, parsed, objects.values())
        except Exception:  # noqa: BLE001  (validators are the host's code; the attempt will fail with the reason)
            return ReceivedArguments(data, from_json(data))

    def elements(self, node: Node) -> list[Stored] | Failure:
        """Fill in the list of a for_each; return a failure if that cannot be done."""
        template = node.plan.items
        assert template is not None
        try:
            items = from_json(template.fill(self._graph.look_up, self._limits.arguments))
        except ValueTooLarge:
            text = _over("for_each: the list", self._limits.arguments)
            return Failure(ErrorKind.BAD_ARGUMENTS, text, nothing_happened=True)
        except (LookupError, ValueRefused) as error:
            return Failure(ErrorKind.BAD_ARGUMENTS, f"for_each: {error.args[0]}", nothing_happened=True)
        if not isinstance(items, list):
            why = why_list_spilled(self._graph, template)
            text = f"for_each needs a list, got {describe(items)}{why and f'; {why}'}"
            return Failure(ErrorKind.BAD_ARGUMENTS, text, nothing_happened=True)
        stored = [encode(item, self._limits.arguments) for item in items]
        return held_elements(self._graph, template, items, stored) if self._has_objects else stored

    def must_be_written(self, tool: AnyTool) -> bool:
        """Whether a call of *tool* must be on record, durably, before it is made."""
        return self._run_log is not None and not tool.effect.is_free

    async def write_start(self, live: LiveAttempt) -> Outcome | None:
        """Wait until the start of a call is durable, and the run still ours; else return the outcome without a call."""
        assert self._until_written is not None
        self._up.suspended()
        try:
            await self._until_written()
        except JournalError as error:
            failure = Failure(ErrorKind.EXCEPTION, shorten(str(error)), type(error).__name__, nothing_happened=True)
            return Outcome(State.FAILED, None, failure)
        except anyio.get_cancelled_exc_class():
            live.make_rare().is_before_effect = True
            raise
        return None

    def key_of(self, node: Node, tool: str) -> str:
        """Return the idempotency key of the next call of *node*, of the tool of that name."""
        return idempotency_key(self._root, node.root, tool, node.generation)

    async def perform(self, live: LiveAttempt) -> Outcome:
        """Make the call, and catch everything that the tool raises: this is the one place that does.

        Raises only a cancellation that was asked for.
        """
        scope = live.scope
        scope.is_inside = True
        try:
            plan, call, context = live.node.plan, live.call, self._context.copy()
            assert call is not None
            name = plan.executor if live.tool is plan.tool else live.tool.executor
            if name != "coroutine":
                call.clock_stopped = partial(self._up.clock_stopped, live)
            coroutine = self._begun(live, name, call, context)
            try:
                got = context.run(coroutine.send, None)
            except StopIteration as stop:
                result = stop.value
            else:
                self._up.suspended()
                rest = Suspended(coroutine, context, got, scope)
                result = await rest
                live.was_interrupted = rest.was_interrupted
            return self._conclude(live, result)
        except StillRunning as error:
            # If it was not told to stop, an executor has given it up by itself, and its effect is not known.
            is_known = live.asked is not None or live.tool.effect.is_free
            state = State.ABANDONED if is_known else State.UNKNOWN
            return self._failed(live, state, Failure(ErrorKind.TIMEOUT, str(error)))
        except BaseException as error:
            if is_cancellation(error) and _is_asked_for(live, error):
                raise
            return self._caught(live, error)
        finally:
            scope.is_inside = False

    def _caught(self, live: LiveAttempt, error: BaseException) -> Outcome:
        """Return the outcome of a call that has raised *error*.

        Raises:
            HostInterrupted: It is the interrupt of a signal, and not of the call.
        """
        if is_cancellation(error):
            return self._foreign_cancellation(live, error)
        if not isinstance(error, Exception) and (cause := interrupt_in(error)) is not None:
            self._up.cancelled_around()
            raise HostInterrupted(cause)
        plan = self._graph.plan
        rule = live.node.plan.step.retry or plan.policy.retry
        return self._failed(live, State.FAILED, classify(error, live.tool, plan.redactor, rule.retry_on))

    def _begun(self, live: LiveAttempt, name: str, call: ToolCall, context: Context) -> Coroutine[Any, Any, object]:
        coroutine = self._executors[name].call(call) if self._is_plain else self._traced(live, name, call, context)
        stream = None if live.rare is None else live.rare.stream
        return coroutine if stream is None else stream.until_final(coroutine)

    def _traced(self, live: LiveAttempt, name: str, call: ToolCall, context: Context) -> Coroutine[Any, Any, object]:
        """Begin the span of a call, if there are traces, and return its coroutine."""
        if self._tracer is not None:
            self._begin_span(self._tracer, live, call, context)
        return self._special(live, name, call)

    def _begin_span(self, tracer: RunTracer, live: LiveAttempt, call: ToolCall, context: Context) -> None:
        """Begin the span of a call, in its context variables."""
        node, attempt = live.node, live.node.latest
        assert attempt is not None
        facts = AttemptFacts(
            step=node.id,
            parent="" if node.parent is None else node.parent.id,
            number=attempt.number,
            tool=live.tool,
            key=self.key_of(node, live.tool.name),
            needs=node.plan.depends_on,
            revision=self._graph.revision,
            started=attempt.started,
            arguments=call.data,
            is_second=live.rare is not None and live.rare.is_second,
            leaves=executor_of(live) not in _IN_THIS_PROCESS,
        )
        call.headers = tracer.begin_attempt(facts, context)

    def _conclude(self, live: LiveAttempt, result: object) -> Outcome:
        """Check the returned value. The tool has returned, so its effect is resolved even if the value is invalid."""
        try:
            output = live.tool.output
            if output.is_direct:
                value = self._store(output.encode, result, live.tool.output_limit)
            else:
                value = self._kept(live, result)
        except ValueRefused as error:
            return self._refused(live, error)
        condition = live.node.plan.success
        if condition is not None:
            failure = self.failed_condition(condition, (live.node.plan.step.id, value))
            if failure is not None:
                return self._returned(live, failure)
        rare = live.rare
        if rare is None:
            return Outcome(_SUCCEEDED, value, None, live.tokens, live.cost)
        if rare.confidence is not None:
            self._on_confidence(live.node, rare.confidence)
        return Outcome(_SUCCEEDED, value, None, live.tokens, live.cost, rare.surprise, rare.shared)

    def _refused(self, live: LiveAttempt, error: ValueRefused) -> Outcome:
        text = f"{live.tool.name}: {error}"
        if isinstance(error, ValueTooLarge):
            text = f"{text} (the ceiling is {self._limits.name_of(live.tool)})"
        return self._returned(live, with_error(Failure(ErrorKind.BAD_OUTPUT, shorten(text, 500)), error))

    @staticmethod
    def _returned(live: LiveAttempt, failure: Failure) -> Outcome:
        """Return the failure of an attempt whose tool has returned, so that its effect is resolved."""
        shared = None if live.rare is None else live.rare.shared
        return Outcome(State.FAILED, None, failure, live.tokens, live.cost, "", shared)

    def _kept(self, live: LiveAttempt, result: object) -> Stored:
        """Store a result that has objects in memory, or becomes an artifact if it is too large."""
        tool = live.tool
        if tool.output.hold is not None:
            stored = self._store(encoder_of(tool, _call_of(live.node)), result, tool.output_limit)
            is_encoded = type(result) is Encoded  # by another process, and not by `FrameFiles`
            return self.frames.opened(stored) if self.frames is not None and is_encoded else stored
        value = self._store(tool.output.encode, result, self._limits.most_of(tool))
        plan = self._graph.plan
        if self._leaves_out is not None and len(to_json(value)) > tool.output_limit:
            refuse_kept_out(value, self._leaves_out)
        return spill(value, tool, self._artifacts, live.node.id, plan.secrets)

    def _special(self, live: LiveAttempt, name: str, call: ToolCall) -> Coroutine[Any, Any, object]:
        """Return the coroutine of a call in a run with shared calls, or with tools that return frames.

        That of a tool with a cache or a batch form may share a call, and that of a tool that returns frames here writes
        them to files.
        """
        if self.sharing is not None and (call.tool.cache is not None or call.tool.batch is not None):
            return self.sharing.call(live, name, call)
        coroutine = self._executors[name].call(call)
        tool, unrecorded = live.tool, self._limits.unrecorded
        if not self._files_frames or not tool.output.has_frames or name == "process":
            return coroutine
        if self.frames is None or tool.name in unrecorded or live.node.plan.tool.name in unrecorded:
            return coroutine
        return self.frames.filed(coroutine, tool, _call_of(live.node))

    @staticmethod
    def _store(store: Encoder, result: object, limit: int) -> Stored:
        if isinstance(result, Encoded):
            return result.store(limit)
        try:
            return store(result, limit)
        except ValueRefused:
            if inspect.iscoroutine(result):
                result.close()  # else Python would warn much later that it was never awaited
            raise
        except BaseException as error:  # a method of the value raised that; nothing is awaited here
            name = shorten(type(error).__name__, 100)
            raise ValueRefused(f"what it returned cannot be looked at: that raised {name}") from error

    def failed_condition(
        self, condition: Condition, own: tuple[str, Stored] | None = None, node: Node | None = None
    ) -> Failure | None:
        """Evaluate *condition*, of *node* if it may look at an element; return `None` if it holds, else the failure."""

        def look_at(reference: Reference) -> Any:
            return self._graph.look_at(reference, own, node)

        try:
            if holds(condition, look_at):
                return None
        except ConditionMismatch as error:
            return Failure(ErrorKind.CONDITION_MISMATCH, shorten(str(error)))
        text = condition.model_dump_json(exclude_unset=True, by_alias=True)
        return Failure(ErrorKind.SUCCESS_CONDITION, f"the condition does not hold: {shorten(text)}")

    @staticmethod
    def _failed(live: LiveAttempt, state: State, failure: Failure) -> Outcome:
        # After any exception but ToolError, it is not known whether an effect took place.
        if state is State.FAILED and not failure.nothing_happened and not live.tool.effect.is_free:
            state = State.UNKNOWN
        rare = live.rare
        return Outcome(state, None, failure, live.tokens, live.cost, "", None if rare is None else rare.shared)

    def _foreign_cancellation(self, live: LiveAttempt, error: BaseException) -> Outcome:
        if live.is_fresh:
            text = "it was cancelled, but only by itself"
            return self._failed(live, State.FAILED, with_error(Failure(ErrorKind.FOREIGN_CANCELLATION, text), error))
        text = "a cancellation hit it that a step before it had left behind"
        return self._failed(live, State.FAILED, Failure(ErrorKind.STRAY_CANCELLATION, text))

    def context_of(self, live: LiveAttempt) -> ToolContext:
        """Return the context of the call of *live*, made when it is asked for."""
        if live.context is None:
            live.context = self._make_context(live)
            if live.asked is not None:  # a tool that was left behind may ask for it only now
                live.context.stop.set()
        return live.context

    def _make_context(self, live: LiveAttempt) -> ToolContext:
        provider, kind = self._graph.plan.deps, live.tool.arguments.context_deps
        node = live.node
        if self._log is None:  # most tools ask for no context
            self._log = RedactingLogger(_LOG, self._graph.plan.redactor)
        return ToolContext(
            run_id=self._run_id,
            step=node.id,
            attempt=len(node.attempts),
            idempotency_key=self.key_of(node, live.tool.name),
            deadline=live.deadline,
            logger=logging.LoggerAdapter(self._log, {"run_id": self._run_id, "step": node.id}),
            artifacts=self._artifacts,
            # Both held weakly: the slot keeps the context, and a tool that keeps it must not keep the run.
            report=partial(_report, ref(self), ref(live)),
            clock=self._now,
            ask_person=self._asking(live),
            limits=self._limits,
            deps=provider.given if kind is None else provider.find(kind, live.tool.arguments.context or ""),
            provider=provider,
            expected_output=node.plan.step.expected_output,
            inner_asks=node.plan.inner_asks,
        )

    def _charge(self, live: LiveAttempt, tokens: int, cost: float | None) -> None:
        live.make_rare().has_reported = True
        live.tokens += tokens
        live.cost = live.cost if cost is None else (live.cost or 0.0) + cost

    def _asking(self, live: LiveAttempt) -> AskPerson | None:
        if executor_of(live) != "coroutine":
            return None
        return _ask_nobody if live.rare is not None and live.rare.is_second else partial(_ask, ref(self), ref(live))


def _over(what: str, limit: int) -> str:
    return (
        f"{what} would take over {limit} bytes of JSON, the ceiling (max_argument_bytes of the policy); raise it, pass "
        "less of it, or an Artifact"
    )


def _is_asked_for(live: LiveAttempt, cancellation: BaseException) -> bool:
    """Whether the attempt was to be cancelled; the cancellation of the other backend is none for the loop."""
    is_told = live.scope.is_told or live.asked is not None or is_being_cancelled()
    return is_told and isinstance(cancellation, anyio.get_cancelled_exc_class())


def executor_of(live: LiveAttempt) -> str:
    """Return the name of the executor that makes the call of *live*."""
    plan = live.node.plan
    return plan.executor if live.tool is plan.tool else live.tool.executor


def encoder_of(tool: AnyTool, call: str = "") -> Encoder:
    """Return the encoder for outputs of *tool*; its objects in memory are stored under the name of the *call*."""
    hold = tool.output.hold
    return tool.output.encode if hold is None else lambda value, limit: hold(value, call, limit, None)


def _call_of(node: Node) -> str:
    """Return the name of the running call of a step, which the tokens of its objects have."""
    return f"{node.id}#{len(node.attempts)}"


def _report(attempts: ref[AttemptRunner], reference: ref[LiveAttempt], kind: str, facts: Mapping[str, Any]) -> None:
    """Process a report of a tool through its context."""
    own, live = attempts(), reference()
    if own is None or live is None or live.is_done:
        return  # late: the attempt has been recorded already
    match kind:
        case "usage":
            own._charge(live, facts["tokens"], facts["cost"])
        case "surprise":
            live.make_rare().surprise = shorten(str(facts["reason"])) or "surprising"
        case "before_effect":
            live.make_rare().is_before_effect = facts["is_inside"]
        case "piece":
            own._up.piece(live.node, facts["text"])
        case "confidence":
            rare = live.make_rare()
            rare.confidence = min(facts["confidence"], 1.0 if rare.confidence is None else rare.confidence)
        case "progress":
            own._on_progress(live.node, facts["fraction"], shorten(str(facts["message"])))


async def _ask(
    attempts: ref[AttemptRunner], reference: ref[LiveAttempt], text: str, schema: Mapping[str, Any] | None, about: Any
) -> Answer | None:
    own, live = attempts(), reference()
    if own is None or live is None or live.is_done or live.scope.is_told:
        return None  # late, as in `_report`: nothing waits for the answer, nor for a question of its clean-up
    return await own._ask_person(live, text, schema, about)


async def _ask_nobody(text: str, schema: Mapping[str, Any] | None, about: Any) -> Answer | None:
    # Returning `None` would look like a question without an answer; the first call can ask.
    raise ToolError("a hedged call cannot ask a person")


def idempotency_key(run_id: str, step: str, tool: str, generation: int = 0) -> str:
    """Return the idempotency key of a step, equal at every attempt: 32 hex digits.

    Args:
        run_id: The id of the root run.
        step: The id of the root step.
        tool: The name of the tool.
        generation: Grows only when it is known that the call was not applied.
    """
    text = "\0".join((run_id, step, tool, str(generation)))
    return hashlib.sha256(text.encode()).hexdigest()[:32]

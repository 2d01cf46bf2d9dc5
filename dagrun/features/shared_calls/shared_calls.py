"""Calls that several steps share. The rules of this package are these.

1. Everything that is asked before a call is asked of each step: condition, approval, ceilings, limits. A step that
   gets the result of another call is an attempt like any other, and its outcome says whose call it was.
2. A call that several attempts wait for has a task of its own, in the run that began it. An attempt that is told to
   stop leaves; the call goes on for the others. The last one stops it, and waits for its end, for the grace period at
   most. An attempt that has run out of time closes the call to newcomers, so that its next attempt is a new call. A run
   that ends stops its calls; attempts of other runs that wait for one make it again.
3. What a call uses is charged once, as it reports it: to the attempt that waits for it longest, that of a batch in
   equal shares. The others are charged for an attempt and a call, and for no tokens and no cost.
4. A success is kept. A failure is shared by those who wait, each of which decides by its own rules whether to try
   again, and is not kept; nor is a surprising success.
5. A result that a step refuses (by its condition, a critic, a limit) is dropped, so that the next attempt, or the step
   that a planner puts in its place, makes the call.
6. Second calls beside slow ones are equal to each other, and not to the slow ones. When one wins, the slow call is
   stopped, and who waits for it gets the kept result.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import Context, copy_context
from functools import partial
from time import monotonic
from typing import Any, Final, Literal

from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint, current_token
from typing_extensions import override

from dagrun.errors import ToolError, ValueRefused
from dagrun.features.shared_calls.batches import Batches
from dagrun.features.shared_calls.result_cache import Entry, Key, ResultCache, names_artifact, same, size_of
from dagrun.features.shared_calls.single_flight import SingleFlightCall
from dagrun.kernel.decide.exception_text import drop_frames
from dagrun.kernel.model.executor import CallFailed, KeptResult, ToolCall
from dagrun.kernel.model.outcome import ErrorKind, Failure, Outcome, SharedCall, State
from dagrun.kernel.model.question import Answer
from dagrun.kernel.model.tool import AnyTool
from dagrun.kernel.model.tracing import RunTracer
from dagrun.kernel.model.value import Stored
from dagrun.kernel.runtime.backend import (
    Timers,
    is_being_cancelled,
    is_cancellation,
    leave_leaked_scopes,
    uncancel_task,
)
from dagrun.kernel.runtime.live_attempt import LiveAttempt, leaked_outcome
from dagrun.kernel.runtime.run_parts import RunParts
from dagrun.kernel.runtime.steps.attempt import AskPerson, AttemptRunner, encoder_of, executor_of

RUN_ENDED: Final = "the run that made the call has ended"
FASTER: Final = "a second call beside it was faster"
_SUCCEEDED: Final = State.SUCCEEDED


class OwnAttempts(AttemptRunner):
    """Makes the calls that have a task of their own, which have no condition and no question of a single step."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.batches: Batches | None = None
        self._is_plain = False

    @override
    def _special(self, live: LiveAttempt, name: str, call: ToolCall) -> Coroutine[Any, Any, object]:
        if self.batches is not None and self.batches.takes(name, call):
            return self.batches.call(live, call)
        if name != "coroutine":
            call.clock_stopped = partial(self._clocks_stopped, live)
        return self._executors[name].call(call)

    @contextmanager
    def _clocks_stopped(self, live: LiveAttempt) -> Iterator[None]:
        """While this is entered, the time limits of the attempts of this run that wait for a call do not run."""
        common: SingleFlightCall = live.make_rare().common
        with ExitStack() as stack:

            def stop(waiting: LiveAttempt) -> None:
                if self._graph.nodes.get(waiting.node.id) is waiting.node:
                    stack.enter_context(self._up.clock_stopped(waiting))

            for waiting in common.members:
                stop(waiting)
            common.on_join = stop
            try:
                yield
            finally:
                common.on_join = None

    @override
    def _charge(self, live: LiveAttempt, tokens: int, cost: float | None) -> None:
        if live.rare is not None and live.rare.common is not None:
            live.rare.common.charge(tokens, cost)

    @override
    def _begin_span(self, tracer: RunTracer, live: LiveAttempt, call: ToolCall, context: Context) -> None:
        for variable, value in copy_context().items():  # its task has begun in the span of the attempt that made it
            context.run(variable.set, value)

    @override
    def _conclude(self, live: LiveAttempt, result: object) -> Outcome:
        """Check and encode the result, once for all members; the results of a batch are left to its calls."""
        assert live.call is not None
        assert live.rare is not None
        if live.rare.is_batch:
            live.rare.results = result
            return Outcome(_SUCCEEDED, None, None, live.tokens, live.cost)
        try:
            value = self._store(encoder_of(live.tool), result, live.call.output_limit)
        except ValueRefused as error:
            return self._refused(live, error)
        return Outcome(_SUCCEEDED, value, None, live.tokens, live.cost)

    @override
    def _asking(self, live: LiveAttempt) -> AskPerson | None:
        return _ask_nobody if executor_of(live) == "coroutine" else None


async def _ask_nobody(text: str, schema: Mapping[str, Any] | None, about: Any) -> Answer | None:
    raise ToolError("a shared call cannot ask a person; declare neither cache nor batch on its tool")


class SharedCalls:
    """Makes the calls of one run whose tools have a cache or a batch form.

    Args:
        parts: What the parts of the run share.
        attempts: Makes the calls that have a task of their own.
        results: The results of all runs of the engine.
        tasks: The task group of the run.
        alarms: The alarms of the run.
    """

    def __init__(
        self, parts: RunParts, attempts: OwnAttempts, results: ResultCache, tasks: TaskGroup, alarms: Timers
    ) -> None:
        self._run_id = parts.run_id
        self._deps = parts.graph.plan.deps
        self._grace = parts.policy.grace
        self._record = parts.record
        self._now = parts.now
        self._new_scope = parts.new_scope
        self._attempts = attempts
        self._results = results
        self._tasks = tasks
        self._loop = current_token()
        self._running: set[SingleFlightCall] = set()
        self._kept: set[Key] = set()  # results of this run alone
        attempts.batches = Batches(self._make, self._launch, alarms, parts.now)

    def close(self) -> None:
        """Stop the running calls, and drop the results of this run: the run has ended."""
        for own in list(self._running):
            own.stop(RUN_ENDED)
        self._results.forget(self._kept)
        self._kept.clear()
        self._attempts.batches = None  # it leads back here

    def call(self, live: LiveAttempt, name: str, call: ToolCall) -> Coroutine[Any, Any, object]:
        """Return a coroutine that makes or shares the call of an attempt.

        Args:
            live: The attempt.
            name: The executor.
            call: The call.
        """
        return self._attempts._special(live, name, call) if call.tool.cache is None else self._cached(live, call)

    # Kept results, and calls under way --------------------------------------------------------------------

    async def _cached(self, live: LiveAttempt, call: ToolCall) -> KeptResult:
        key = self._key(live, call)
        rare = live.make_rare()
        while True:
            mine = key._replace(is_second=False)
            rare.on_refused = partial(self._results.forget, (mine, mine._replace(run=self._run_id)))
            entry = self._find(key)
            if entry is not None:
                rare.shared, rare.has_reported = self._whose("cached", entry), True
                return KeptResult(entry.value)
            found = self._results.under_way.get((self._loop, key))
            rare.shared = None if found is None else self._whose("joined", found)
            own = found or self._begin(key, live, call)
            own.join(live)
            outcome = await own.wait(live)
            if outcome is None:  # it was stopped: the run that made it has ended, or a second call was faster
                if live.asked is not None:  # so is this attempt, and its cancellation comes at the next await
                    await checkpoint()
                    raise CallFailed(Failure(ErrorKind.CANCELLED, live.reason, nothing_happened=True))
                continue
            if outcome.failure is not None:
                raise CallFailed(outcome.failure)
            if own.run_id == self._run_id or not names_artifact(outcome.value):
                return KeptResult(outcome.value)
            key = key._replace(run=self._run_id)  # its file is in the folder of another run

    def _find(self, key: Key) -> Entry | None:
        entry = self._results.get(key, self._loop, self._now())
        if entry is not None or key.run:
            return entry
        # What names a file of this run is kept for this run.
        return self._results.get(key._replace(run=self._run_id), self._loop, self._now())

    def _whose(self, how: Literal["cached", "joined"], made: Entry | SingleFlightCall) -> SharedCall:
        return SharedCall(how, made.step, made.attempt, "" if made.run_id == self._run_id else made.run_id)

    def _key(self, live: LiveAttempt, call: ToolCall) -> Key:
        tool, arguments = call.tool, call.arguments
        is_second = live.rare is not None and live.rare.is_second
        if tool.cache == "run" or call.objects:  # the tokens of objects are unique in a run alone
            return Key(tool, self._run_id, self._results.digest(call.data), (), is_second)
        secrets = [arguments[name] for name in sorted(tool.arguments.secrets & arguments.keys())]
        texts = [b"" if secret is None else secret.get_secret_value().encode() for secret in secrets]
        things = [arguments.get(name) for name in sorted(tool.arguments.deps)]
        if tool.arguments.context is not None:
            things.append(self._deps.given)
        return Key(tool, "", self._results.digest(call.data, texts), same(things), is_second)

    def _begin(self, key: Key, live: LiveAttempt, call: ToolCall) -> SingleFlightCall:
        own = self._make(live, call.tool, call.arguments, call.data, call.output_limit)
        place = (self._loop, key)
        self._results.under_way[place] = own
        own.close = partial(self._close, place, own)
        self._launch(own, partial(self._landed, key, own))
        return own

    def _close(self, place: Any, own: SingleFlightCall) -> None:
        if self._results.under_way.get(place) is own:
            del self._results.under_way[place]

    def _landed(self, key: Key, own: SingleFlightCall, outcome: Outcome | None) -> None:
        """End a call: charge it, cache its result, and pass it to the members."""
        live, outcome = own.live, own.end(outcome)
        if outcome is None or outcome.state is not _SUCCEEDED:
            return
        if live.rare is not None and live.rare.shared is not None and own.members:
            own.members[0].make_rare().shared = live.rare.shared  # it was part of a batch
        if live.rare is None or not live.rare.surprise:
            self._keep(key._replace(is_second=False), outcome.value, own)
        if key.is_second:
            slow = self._results.under_way.get((self._loop, key._replace(is_second=False)))
            if slow is not None:
                slow.stop(FASTER)

    def _keep(self, key: Key, value: Stored, own: SingleFlightCall) -> None:
        if not key.run and names_artifact(value):
            key = key._replace(run=self._run_id)
        if key.run:
            self._kept.add(key)
        facts = (value, size_of(value), self._run_id, own.step, own.attempt)
        self._results.put(key, Entry(*facts, at=self._now(), loop=self._loop, wall=monotonic()))

    # A call with a task of its own ------------------------------------------------------------------------

    def _make(
        self, live: LiveAttempt, tool: AnyTool, arguments: Mapping[str, Any], data: bytes, limit: int
    ) -> SingleFlightCall:
        """Make a call of *tool* on behalf of an attempt, with a slot and a context of its own.

        Raises:
            LookupError: A dependency of a batch form is missing.
        """
        own = LiveAttempt(live.node, tool, self._new_scope(), True, self._now)
        made, wanted = dict(arguments), tool.arguments
        if wanted.context is not None:
            made[wanted.context] = self._attempts.context_of(own)
        if wanted.deps:
            made |= self._deps.fill(wanted.deps, wanted.optional_deps)
        objects = {} if live.call is None else live.call.objects
        own.call = ToolCall(tool, data, made, partial(self._attempts.context_of, own), self._grace, limit, objects)
        common = own.make_rare().common = SingleFlightCall(own, self._grace, self._run_id)
        return common

    def _launch(self, own: SingleFlightCall, landed: Callable[[Outcome | None], object]) -> None:
        own.is_launched = True
        self._running.add(own)
        self._tasks.create_task(self._run(own, landed), name="dagrun shared call", context=copy_context())

    async def _run(self, own: SingleFlightCall, landed: Callable[[Outcome | None], object]) -> None:
        """Make the call; a scope or a cancellation that its tool leaves behind ends with this task."""
        live, outcome = own.live, None
        try:
            try:
                outcome = await self._perform(own)
            except RuntimeError:
                leave_leaked_scopes(live.scope.raw)
                outcome = leaked_outcome(live)
            finally:
                self._running.discard(own)
                landed(outcome)
                if outcome is not None and outcome.failure is not None and not own.members:
                    drop_frames(outcome.failure.exception)
                self._record.deliver()
            await uncancel_task()
        except BaseException as error:
            if not is_cancellation(error) or is_being_cancelled():
                raise

    async def _perform(self, own: SingleFlightCall) -> Outcome | None:
        live = own.live
        with live.scope:
            if live.asked is None and own.is_wanted:  # else all have left, or are about to, before this task began
                return await self._attempts.perform(live)
        return None

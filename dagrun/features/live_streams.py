"""The elements of a for_each, handed one by one to the running call of a step that takes them as a stream.

1. The order is that of the list, so that a call gives the same whatever was faster, and gives it again when it is made
   again. Each call begins with the first element.
2. Nothing is kept for the stream: the outputs of the elements are in the graph in any case, and a slow reader holds
   nothing up. It may stop reading before the end.
3. While the call waits for an element it takes no place under the limits on what runs at once, its time limit does not
   run, and its provider counts one call less. Else the elements that it waits for might never start.
4. An element is handed over when no patch and no answer of the planner can change it any more, or when it has
   succeeded or was left out. If one that was handed over as left out is replaced after all, the call is stopped, and
   made again; that attempt does not count. Only calls without an effect get here. A call
   that returns after it has taken one as left out ends when the for_each has settled, after which nothing is replaced.
5. An element that will not come stops the call, and the step is skipped, as it would be with the whole list; one of the
   wrong type fails it.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from typing import Any, Final, Never

import anyio
from anyio.lowlevel import checkpoint
from pydantic import ValidationError
from typing_extensions import override

from dagrun.errors import ToolError, shorten
from dagrun.kernel.decide.recovery import ANEW
from dagrun.kernel.graph.live_graph import value_of_element
from dagrun.kernel.graph.node import Node
from dagrun.kernel.model.contracts.held_objects import HeldObjects
from dagrun.kernel.model.outcome import Decision, ErrorKind, Failure, Outcome, Recovery, State
from dagrun.kernel.model.signature import explain
from dagrun.kernel.model.value import to_json
from dagrun.kernel.runtime.live_attempt import LiveAttempt, stopped_outcome
from dagrun.kernel.runtime.run_features import CallStream
from dagrun.kernel.runtime.run_parts import RunParts
from dagrun.kernel.runtime.steps.admission import AskFromTool
from dagrun.kernel.runtime.steps.attempt_completion import AttemptCompletion
from dagrun.kernel.runtime.steps.run_completion import Cancellation

_GIVES_UP: Final = "an element that it takes will not come"


class LiveStream(CallStream):
    """The stream of one call.

    Args:
        live: The call, which has no effect.
        fan: The for_each, which has its elements.
        parts: What the parts of the run share.
        stopping: Stops the call.
        endings: Takes the call from its provider while it waits.
    """

    def __init__(
        self, live: LiveAttempt, fan: Node, parts: RunParts, stopping: Cancellation, endings: AttemptCompletion
    ) -> None:
        self._live: LiveAttempt | None = live
        self._fan = fan
        self._graph = parts.graph
        self._frontier = parts.frontier
        self._progress = parts.record.progress
        self._up = parts.up
        self._accounts = parts.accounts
        self._stopping = stopping
        self._endings = endings
        self._taken: list[Node] = []
        self._news = anyio.Event()
        self._ticket: Node | None = None
        self._is_stale = False
        self._failure: Failure | None = None
        self._decision: Decision | None = None
        # The lock of questions: a call that waits for an element has no place that a question could give back.
        rare = live.make_rare()
        rare.stream = self
        if rare.asking is None:
            rare.asking = anyio.Lock()
        self._lock = rare.asking
        live.node.make_extra().on_elements = self._changed

    def __repr__(self) -> str:
        return f"<LiveStream: {len(self._taken)} of {len(self._fan.children or ())} elements of {self._fan.id} taken>"

    @override
    async def __anext__(self) -> Any:
        async with self._lock:  # a tool with tasks of its own may read in several of them
            await checkpoint()
            children = self._fan.children or []
            while True:
                live = self._open_attempt()
                if self._is_stale:
                    await self._stop(live, ANEW)
                if len(self._taken) >= len(children):
                    raise StopAsyncIteration
                child = children[len(self._taken)]
                if self._is_final(child):
                    return await self._take(live, child)
                await self._wait(live, child)

    def _open_attempt(self) -> LiveAttempt:
        if self._live is None or self._live.asked is not None:
            raise ToolError("the call that takes these elements is over")
        return self._live

    def _is_final(self, child: Node) -> bool:
        """Whether the output of an element is final."""
        if not child.state.is_settled or child.id in self._graph.kept:
            return False
        return child.state is State.SUCCEEDED or child.is_tolerated or self._fan.state.is_settled

    async def _take(self, live: LiveAttempt, child: Node) -> Any:
        """Return the value of an element that has come, or stop the call because of it."""
        fault = ""
        try:
            value = value_of_element(child)
            if type(value) is HeldObjects:
                raise LookupError(f"step {child.id} gave an object in memory, and a stream takes JSON alone")
            element = live.tool.arguments.parse_element(to_json(value))
            self._taken.append(child)
            return element
        except LookupError as error:
            fault = str(error.args[0])
        except ValidationError as error:
            fault = f"{live.tool.name}: {live.tool.arguments.stream}, {child.id}: {explain(error)}"
        if child.state is State.SUCCEEDED or child.is_tolerated:
            self._failure = Failure(ErrorKind.BAD_ARGUMENTS, shorten(fault, 500), nothing_happened=True)
            await self._stop(live, fault)
        self._decision = Decision(Recovery.GIVE_UP, _GIVES_UP)
        await self._stop(live, f"{child.id} {child.state}")

    async def _stop(self, live: LiveAttempt, reason: str) -> Never:
        """Stop the call that this stream belongs to."""
        if reason is ANEW:
            self._decision = Decision(Recovery.RETRY, ANEW)
        self._stopping.tell(live, State.CANCELLED, reason)
        await anyio.sleep_forever()
        raise AssertionError

    # Waiting ----------------------------------------------------------------------------------------------

    def _changed(self, index: int) -> None:
        """An element may have settled, or a splice has changed the one at *index*."""
        if 0 <= index < len(self._taken) and (self._fan.children or [])[index] is not self._taken[index]:
            self._is_stale = True
        news, self._news = self._news, anyio.Event()
        news.set()

    async def _wait(self, live: LiveAttempt, child: Node) -> None:
        """Wait until an element may have come, and for a place to continue."""
        count, taken, news = len(self._fan.children or ()), len(self._taken), self._news
        self._progress(live.node, taken / count, f"{taken} of {count} elements taken, waits for {child.id}")
        with self._up.clock_stopped(live):
            is_limited = self._give_place_back(live)
            try:
                await news.wait()
            finally:
                self._accounts.waiting -= 1
                if live.asked is None:
                    await self._take_place(live, is_limited=is_limited)

    def _give_place_back(self, live: LiveAttempt) -> bool:
        """Release the slot of the call; return whether slots are limited."""
        rare, is_limited = live.make_rare(), self._frontier.priorities is not None
        rare.has_place, rare.resume = False, anyio.Event()
        self._accounts.waiting += 1
        self._frontier.release(live.node)
        if rare.window is not None:
            self._endings.leave_provider(live, None)
        self._up.end_if_nothing_is_left()  # if all that runs waits here, the run may wait for people, or be stuck
        self._up.nudge()
        return is_limited

    async def _take_place(self, live: LiveAttempt, *, is_limited: bool) -> None:
        """Stand in line for a place like a step that is ready; the step itself is running all the time."""
        if not is_limited:
            live.make_rare().has_place = True
            return
        node = live.node
        self._ticket = ticket = Node(node.id, node.plan, node.order)
        ticket.latest, ticket.caps = node.latest, node.caps
        ticket.parent, ticket.index = node.parent, node.index
        self._frontier.push(ticket)
        self._up.nudge()
        await AskFromTool.wait_for_place(live)

    # The end ----------------------------------------------------------------------------------------------

    @override
    async def until_final(self, call: Awaitable[object]) -> object:
        result = await call
        async with self._lock:
            while (live := self._live) is not None and live.asked is None and not self._is_stale:
                null = next((child for child in self._taken if child.state is not State.SUCCEEDED), None)
                if null is None or self._fan.state.is_settled:
                    break
                await self._wait(live, null)
        return result

    @override
    def close(self, outcome: Outcome | None = None) -> Outcome | None:
        live, self._live = self._live, None
        assert live is not None
        live.node.make_extra().on_elements = None
        if self._ticket is not None and not live.make_rare().has_place:
            self._ticket.state = State.CANCELLED  # else a worker would take the place for a call that is over
        self._ticket = None
        if outcome is None or outcome.state is State.ABANDONED or live.node.is_gone:
            self._decision = self._failure = None
            return outcome
        if self._is_stale and live.asked is None:  # it has not asked for another element since
            live.asked, live.reason = State.CANCELLED, ANEW
            self._decision, outcome = Decision(Recovery.RETRY, ANEW), stopped_outcome(live, State.CANCELLED, outcome)
        if self._failure is not None:
            return replace(outcome, state=State.FAILED, failure=self._failure)
        if self._decision is not None and self._decision.recovery is Recovery.GIVE_UP:
            return replace(outcome, state=State.SKIPPED)
        return outcome

    @override
    def decision(self, *, is_stopping: bool) -> Decision | None:
        return None if is_stopping else self._decision

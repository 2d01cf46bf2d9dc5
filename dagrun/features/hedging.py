"""Hedging: a second call beside one that is slower than most calls of its tool.

1. Second calls are limited to a share of all calls (`HedgeShare`): where every call is slow, more calls would make it
   slower.
2. A slow call gets one only if the end of the run waits for it (`is_waited_for`), and there is room for it under every
   limit.
3. Both calls belong to one attempt. `Hedges` makes the second one, and stops the slower of the two.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from heapq import nlargest
from typing import Final

import anyio
from anyio.abc import TaskGroup

from dagrun.kernel.decide.durations import RELATIVE_ERROR, Durations
from dagrun.kernel.decide.exception_text import drop_frames
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.node import Node
from dagrun.kernel.model.event import Hedged, HedgeEnded
from dagrun.kernel.model.outcome import Outcome, State
from dagrun.kernel.model.policy import HedgeRule
from dagrun.kernel.runtime.backend import (
    Timers,
    is_being_cancelled,
    is_cancellation,
    leave_leaked_scopes,
    uncancel_task,
)
from dagrun.kernel.runtime.live_attempt import HedgedCall, LiveAttempt, leaked_outcome
from dagrun.kernel.runtime.run_features import Attempts
from dagrun.kernel.runtime.run_parts import RunParts
from dagrun.kernel.runtime.steps.attempt import executor_of
from dagrun.kernel.runtime.steps.attempt_completion import AttemptCompletion
from dagrun.kernel.runtime.steps.run_completion import RunCompletion

LOOK: Final = 0.01  # seconds for which a look at all running steps is used: a thousand calls may be slow at once
LEAST_PATIENCE: Final = 0.001  # seconds: a call that ends sooner is not made faster by a second call
FASTER: Final = "a second call beside it was faster"
SLOWER: Final = "the first call has ended"
ALWAYS: Final = 3  # second calls of a tool that are always allowed: a share of few calls would be none
FADES_ABOVE: Final = 1_000  # calls of a tool; then both counts are halved, so that old calls count less
_SAME: Final = 1e-9  # seconds: sums of the same figures in another order


class HedgeShare:
    """Counts the calls and the second calls of each tool, in all runs that share it."""

    __slots__ = ("_calls", "_hedged")

    def __init__(self) -> None:
        self._calls: Counter[str] = Counter()
        self._hedged: Counter[str] = Counter()

    def called(self, tool: str) -> None:
        """Count a call."""
        self._calls[tool] += 1
        if self._calls[tool] > FADES_ABOVE:
            self._calls[tool] //= 2
            self._hedged[tool] //= 2

    def allows(self, tool: str, share: float) -> bool:
        """Whether a call of *tool* may get a second one: at most the part *share* of its calls may, and a few more."""
        return self._hedged[tool] < ALWAYS + share * self._calls[tool]

    def hedged(self, tool: str) -> None:
        """Count a second call."""
        self._hedged[tool] += 1


@dataclass(frozen=True, slots=True)
class Rest:
    """The time until the end of the run along the path of one running step.

    Attributes:
        seconds: The expected rest of the step, and the longest path behind it.
        step: The id of the step; for an element, that of its for_each.
    """

    seconds: float
    step: str


def longest_rests(graph: LiveGraph, running: Iterable[Node], at: float) -> tuple[Rest, ...]:
    """Return the two longest rests of different running steps; fewer, if fewer run.

    The path of a waiting step is part of the path of a step that it waits for, so besides these only ready steps need a
    look (`is_waited_for`). The paths are those by which the frontier orders steps.

    Args:
        graph: The state.
        running: All running steps.
        at: Now, in seconds since the start of the run.
    """
    paths, seconds = graph.frontier.priorities or {}, graph.expected.seconds
    longest: dict[str, float] = {}
    for node in running:
        family = _family(node).id
        rest = paths.get(family, 0.0) - min(at - node.attempts[-1].started, seconds(node.plan))
        if rest > longest.get(family, -math.inf):
            longest[family] = rest
    return tuple(Rest(longest[id_], id_) for id_ in nlargest(2, longest, key=longest.__getitem__))


def is_waited_for(graph: LiveGraph, node: Node, rests: Iterable[Rest]) -> bool:
    """Whether the end of the run waits for *node*: by the paths, no other step takes longer from now on.

    Args:
        graph: The state.
        node: A running step, which may be called again from the start.
        rests: The result of `longest_rests`.
    """
    family = _family(node).id
    mine = (graph.frontier.priorities or {}).get(family, 0.0) + _SAME
    if graph.frontier.longest_waiting > mine:
        return False
    return all(rest.seconds <= mine for rest in rests if rest.step != family)


def _family(node: Node) -> Node:
    return node if node.parent is None else node.parent


class Hedges:
    """Makes the second calls of one run.

    Both calls belong to one attempt. The call that succeeds first gives its outcome, and the other is stopped; if one
    fails, the other decides. A second call takes a place under every limit on what runs at once, and a share of every
    ceiling; without room it is not made. Steps whose output critics look at get no second call.

    Args:
        parts: What the parts of the run share.
        rule: Which calls get a second one, and when.
        durations: How long the calls of each tool took.
        share: How many calls of each tool got a second one.
        running: The running attempts, by step.
        endings: Tells the providers of calls what became of them.
        finish: Knows whether the run is being ended or suspended.
    """

    def __init__(
        self,
        parts: RunParts,
        rule: HedgeRule,
        durations: Durations,
        share: HedgeShare,
        *,
        running: Mapping[str, LiveAttempt],
        endings: AttemptCompletion,
        finish: RunCompletion,
    ) -> None:
        self._graph = parts.graph
        self._record = parts.record
        self._frontier = parts.frontier
        self._accounts = parts.accounts
        self._reviews = parts.reviews
        self._context = parts.context
        self._grace = parts.policy.grace
        self._now = parts.now
        self._up = parts.up
        self._rule = rule
        self._durations = durations
        self._share = share
        self._running = running
        self._endings = endings
        self._finish = finish
        self._new_scope = parts.new_scope
        self._looked = -math.inf
        self._rests: tuple[Rest, ...] = ()
        self._tasks: TaskGroup
        self._alarms: Timers
        self._attempts: Attempts

    def open(self, tasks: TaskGroup, alarms: Timers, attempts: Attempts) -> None:
        """Set the task group of the run, and the parts that exist only inside it."""
        self._tasks, self._alarms, self._attempts = tasks, alarms, attempts

    # The first call ---------------------------------------------------------------------------------------

    async def perform(self, live: LiveAttempt) -> Outcome:
        """Make the call of an attempt, and a second call, if it is slow and the run waits for it.

        Raises only a cancellation that was asked for.
        """
        self._share.called(live.tool.name)
        patience = self._patience(live)
        if patience is not None:
            now = self._now()
            self._alarms.at(now + patience, partial(self._consider, live, now))
        outcome = await self._attempts.perform(live)
        second = live.rare.second if live.rare is not None else None
        if second is None or second.is_closed or live.asked is not None or outcome.state is State.SUCCEEDED:
            return outcome
        await _end_of(second)
        return outcome  # if the second call has won, the end of the attempt is on record by now

    def left(self, live: LiveAttempt) -> None:
        """Note that the task of the first call has left the attempt."""
        if live.rare is not None and live.rare.second is not None:
            self._leave(live.rare.second)

    def _patience(self, live: LiveAttempt) -> float | None:
        """Return the seconds after which a call is slow; `None` if it gets no second call, or that is not known yet."""
        rule, name = self._rule, live.tool.name
        if not live.tool.effect.is_free or (rule.tools and name not in rule.tools):
            return None
        if executor_of(live) == "thread":
            return None  # the slower call could not be stopped, and threads that would not stop are counted
        if self._durations.count(name) < rule.min_calls:
            return None
        if self._reviews is not None and self._reviews.wanted(live.node.plan.step):
            return None
        most, median = self._durations.quantile(name, rule.quantile), self._durations.median(name)
        if most is None or median is None:
            return None
        # The known durations are rounded, and a call must be slow beyond doubt.
        return max(min(most, median * rule.most_medians) * (1 + RELATIVE_ERROR), LEAST_PATIENCE)

    # The decision -----------------------------------------------------------------------------------------

    def _consider(self, live: LiveAttempt, started: float) -> None:
        """Make a second call beside a slow one, or look again when the slow call has taken twice as long."""
        if live.is_done or live.asked is not None or self._finish.is_closing:
            return
        rare = live.rare
        if rare is not None and (rare.second is not None or rare.asking is not None):
            return  # a call that waits for a person, or for elements of a for_each, is not slow
        if not (self._is_worth_it(live.node) and self._begin(live, started)):
            now = self._now()
            self._alarms.at(now + (now - started), partial(self._consider, live, started))

    def _is_worth_it(self, node: Node) -> bool:
        if not self._share.allows(node.attempts[-1].tool, self._rule.max_share):
            return False
        if not self._frontier.has_more_room(node) or not self._endings.provider_has_room(node):
            return False
        now = self._now()
        if now - self._looked >= LOOK:
            running = [live.node for live in self._running.values()]
            self._looked, self._rests = now, longest_rests(self._graph, running, self._record.at())
        return is_waited_for(self._graph, node, self._rests)

    def _begin(self, live: LiveAttempt, started: float) -> bool:
        """Make the second call, if there is room for it under the ceilings; return whether there was."""
        node = live.node
        self._frontier.occupy(node)
        other = LiveAttempt(node, live.tool, self._new_scope(), True, self._now)
        other.deadline, other.limit = live.deadline, live.limit
        other.make_rare().is_second = True  # before its context is made, which lets a second call ask nobody
        if not self._accounts.reserve_more(other) or self._attempts.prepare(other) is not None:
            self._accounts.withdraw(other)
            self._frontier.release(node)
            return False
        self._endings.provider_limits.begin(other)
        second = HedgedCall(other, anyio.Event())
        second.on_first_end = partial(self._first_ended, live, second)
        live.make_rare().second = second
        self._share.hedged(live.tool.name)
        record = self._record
        record.emit(Hedged(record.next_seq(), record.at(), node.id, len(node.attempts), self._now() - started))
        self._tasks.create_task(self._run(live, second), name="dagrun hedge", context=self._context)
        return True

    # The second call --------------------------------------------------------------------------------------

    async def _run(self, live: LiveAttempt, second: HedgedCall) -> None:
        """Make the second call; a scope or a cancellation that its tool leaves behind ends with this task."""
        other = second.live
        try:
            try:
                second.outcome = await self._perform_second(other)
            except RuntimeError:
                leave_leaked_scopes(other.scope.raw)
                second.outcome = leaked_outcome(other)
            finally:
                self._second_ended(live, second)
                self._record.deliver()
            await uncancel_task()
        except BaseException as error:
            if not is_cancellation(error) or is_being_cancelled():
                raise

    async def _perform_second(self, other: LiveAttempt) -> Outcome | None:
        with other.scope:
            if other.asked is None:  # else the attempt has ended before this task began
                return await self._attempts.perform(other)
        return None

    def _second_ended(self, live: LiveAttempt, second: HedgedCall) -> None:
        outcome, second.live.call = second.outcome, None  # it leads back to the live
        if not second.is_closed:
            is_late = live.asked is not None or (live.deadline is not None and self._now() > live.deadline)
            is_late = is_late or is_being_cancelled()  # with the code around the run: the call may have swallowed that
            second.has_won = outcome is not None and outcome.state is State.SUCCEEDED and not is_late
            failure = outcome.failure if outcome is not None else None
            self._close(live, second, failure.message if failure is not None else "")
            drop_frames(failure.exception if failure is not None else None)
            if second.has_won:
                self._endings.leave_provider(live, None)  # it was not answered, so its time says nothing
                self._up.conclude(live, _result(live, second))
                second.outcome = None  # an alarm keeps the call for a while, and need not keep its output
                live.tell_to_stop(State.CANCELLED, FASTER, self._grace)
        second.ended.set()
        self._leave(second)
        self._up.nudge()  # steps that are ready, or have room now, do not wait until the other call unwinds

    def _first_ended(self, live: LiveAttempt, second: HedgedCall, is_recorded: bool) -> None:
        """End the second call, because the attempt ends."""
        # A call that will not stop keeps its place no longer than other calls that will not stop.
        self._alarms.at(self._now() + self._grace, partial(self._release, second))
        if second.is_closed:
            return
        if is_recorded:
            self._close(live, second)
        else:
            second.is_closed = second.live.is_done = True
            self._endings.leave_provider(second.live, None)
            self._accounts.settle(second.live)
        second.live.tell_to_stop(State.CANCELLED, SLOWER, self._grace)

    def _close(self, live: LiveAttempt, second: HedgedCall, fault: str = "") -> None:
        """Record the end of a second call; later reports of its tool are ignored."""
        other, record, node = second.live, self._record, live.node
        second.is_closed = other.is_done = True
        facts = (node.id, len(node.attempts), second.has_won, other.tokens, other.cost, fault)
        record.emit(HedgeEnded(record.next_seq(), record.at(), *facts))
        self._endings.leave_provider(other, second.outcome)
        self._accounts.settle(other)

    def _leave(self, second: HedgedCall) -> None:
        """Release the place of the extra call, once both tasks have finished with the attempt."""
        second.leaving += 1
        if second.leaving == 2:
            second.on_first_end = None  # it refers to *second*: a circle of references
            self._release(second)

    def _release(self, second: HedgedCall) -> None:
        if second.has_place:
            second.has_place = False
            self._frontier.release(second.live.node)
            self._up.nudge()


async def _end_of(second: HedgedCall) -> None:
    """Wait until a second call has ended, on the task of a first one that has failed."""
    while not second.ended.is_set():
        try:
            await second.ended.wait()
        except BaseException as error:
            # A cancellation that the first call has left behind for its task must not end this wait.
            if not is_cancellation(error) or is_being_cancelled():
                raise


def _result(live: LiveAttempt, second: HedgedCall) -> Outcome:
    """Return the outcome of an attempt that its second call has won; the usage of the two calls is kept apart."""
    assert second.outcome is not None
    return replace(second.outcome, tokens=live.tokens, cost=live.cost)

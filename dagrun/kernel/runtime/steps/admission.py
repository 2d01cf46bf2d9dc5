"""Admission: whether a ready step is to be called now, or is settled, expanded or held instead.

A tool may ask a person in the middle of its call, too: until the answer, its step is held, without a deadline.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import anyio
from anyio.lowlevel import checkpoint

from dagrun.errors import ValueRefused
from dagrun.kernel.checks.check_context import lowest_limit
from dagrun.kernel.decide.questions import reasons_before_call
from dagrun.kernel.decide.recovery import NO_APPROVER
from dagrun.kernel.graph.live_graph import OF_ANOTHER
from dagrun.kernel.graph.mapped_steps import ended_at, mapped_step_below, source_of
from dagrun.kernel.graph.node import Node
from dagrun.kernel.model.event import StepResumed
from dagrun.kernel.model.outcome import ErrorKind, Failure, State
from dagrun.kernel.model.question import Answer
from dagrun.kernel.model.value import encode, join_stored, to_json
from dagrun.kernel.runtime.live_attempt import LiveAttempt
from dagrun.kernel.runtime.run_parts import RunParts
from dagrun.kernel.runtime.steps.attempt import AttemptRunner


class Admission:
    """Checks everything that must be checked before a call: conditions, lists, people, deadlines.

    Args:
        parts: What the parts of the run share.

    Attributes:
        attempts: Fills in arguments and evaluates conditions.
    """

    def __init__(self, parts: RunParts) -> None:
        self._graph = parts.graph
        self._record = parts.record
        self._policy = parts.policy
        self._people = parts.people
        self._now = parts.now
        self.attempts: AttemptRunner

    def is_startable(self, node: Node) -> bool:
        """Whether the tool of a ready step is to be called now; if not, it has been settled, expanded or held."""
        if node.latest is None and not node.is_defined_by_parent:
            plan = node.plan
            if plan.step.when is not None and not plan.when_by_element and not self._holds(node):
                return False
            if plan.step.pause == "before" and not (node.extra is not None and node.extra.is_passed):
                self._people.hold_at_pause(node)
                return False
            if plan.items is not None:
                self._expand(node)
                return False
        elif node.latest is None and node.plan.when_by_element and not self._holds(node):
            return False
        return not self._must_wait_for_person(node)

    def _holds(self, node: Node) -> bool:
        condition = node.plan.step.when
        assert condition is not None
        failure = self.attempts.failed_condition(condition, node=node)
        if failure is None:
            return True
        if failure.kind is ErrorKind.CONDITION_MISMATCH:
            self._record.fail_unstarted(node, failure)
        else:
            self._record.settle(node, State.SKIPPED, f"when: {failure.message}", is_tolerated=True)
        return False

    # People -----------------------------------------------------------------------------------------------

    def ask_again(self, node: Node) -> None:
        """Ask about a step that was kept back, now that there is room; or let it start, if it needs no approval now."""
        if node.state is State.READY and self.is_startable(node):
            self._graph.frontier.push(node)

    def _must_wait_for_person(self, node: Node) -> bool:
        """Whether a person has to agree first; then the step is held, or kept back until there is room to ask."""
        asks = reasons_before_call(node)
        if not asks:
            return False
        if (
            not (self._people.can_ask or self._people.can_wait)
            and self._policy.questions.answer_within is None
            and not any(
                (ask.rule is not None and (ask.rule.when is not None or ask.rule.answer_within is not None))
                or (ask.crossing is not None and ask.crossing.unless is not None)
                for ask in asks
            )
        ):
            self._record.settle(node, State.SKIPPED, NO_APPROVER)
            return True
        try:
            data = self.attempts.fill(node)
        except (LookupError, ValueRefused):
            return False  # there is no call to approve: the attempt will fail with the reason
        return self._people.hold_for_call(node, asks, self.attempts.received(node, data))

    # Lists ------------------------------------------------------------------------------------------------

    def _expand(self, node: Node) -> None:
        """Expand a for_each into its elements, if the ceilings allow so many."""
        fan = mapped_step_below(self._graph, node)
        if fan is not None:
            self._expand_over(node, fan)
            return
        items = self.attempts.elements(node)
        if not isinstance(items, Failure):
            refused = self._too_many(len(items))
            leak = ""
            if self._people.can_wait:
                joined = join_stored(items, self._policy.max_argument_bytes)
                leak = self._graph.plan.secrets.found_in(to_json(joined).decode())
            if refused is None and not leak:
                self._record.expand(node, items)
                return
            text = refused or f"an element of the list holds the secret {leak}, and elements are on record"
            items = Failure(ErrorKind.CEILING if refused else ErrorKind.BAD_ARGUMENTS, text, nothing_happened=True)
        self._record.fail_unstarted(node, items)

    def _expand_over(self, node: Node, fan: Node) -> None:
        """Expand a for_each over the elements of *fan*, another for_each, if the ceilings allow so many."""
        refused = self._too_many(len(fan.children or ()))
        if refused is None:
            self._record.expand_over(node, fan)
        else:
            self._record.fail_unstarted(node, Failure(ErrorKind.CEILING, refused, nothing_happened=True))

    def _too_many(self, count: int) -> str | None:
        used, policy = len(self._graph.nodes), self._policy
        if count > policy.max_fan_out:
            return f"ceiling of {policy.max_fan_out} elements for one for_each: {count} wanted"
        if policy.max_steps is not None and used + count > policy.max_steps:
            return f"ceiling of {policy.max_steps} steps is spent: {used} used, {count} more wanted"
        return None

    # Time -------------------------------------------------------------------------------------------------

    def is_too_late(self, node: Node) -> bool:
        """Whether the deadline of the step passed while it waited for its turn; if so, the step has been settled."""
        left = self.seconds_left(node)
        if left is None or left > 0:
            return False
        text = f"its deadline of {node.plan.step.deadline:g} s passed before it could begin"
        self._record.fail_unstarted(node, Failure(ErrorKind.TIMEOUT, text, nothing_happened=True), State.TIMED_OUT)
        return True

    def seconds_left(self, node: Node) -> float | None:
        """Return the seconds until the deadline of the whole step, which starts with its first attempt or expansion."""
        deadline = node.plan.step.deadline
        if deadline is None:
            return None
        begun = node.attempts[0].started if node.attempts else None
        if node.parent is not None and node.is_defined_by_parent:
            begun = node.parent.expanded
            if node.item is OF_ANOTHER and (source := source_of(node)) is not None:
                begun = max(begun or 0.0, ended_at(source) or 0.0)
        if begun is None:
            return deadline
        held = node.extra.held if node.extra is not None else 0.0
        return begun + held + self._record.zero + deadline - self._now()

    def seconds_for(self, node: Node) -> float | None:
        """Return the seconds that the next attempt may take: the least limit of step, tool and policy, or `None`."""
        fallback = node.tool.timeout if node.tool is not node.plan.tool else None
        return lowest_limit(node.plan.timeout, fallback, self.seconds_left(node))


class AskFromTool:
    """Passes questions of tools to people.

    Args:
        parts: What the parts of the run share.
    """

    def __init__(self, parts: RunParts) -> None:
        self._frontier = parts.frontier
        self._record = parts.record
        self._people = parts.people
        self._up = parts.up

    async def ask(self, live: LiveAttempt, text: str, schema: Mapping[str, Any] | None, about: Any) -> Answer | None:
        """Ask for a running tool, and wait for the answer and for a place to continue; `None` if there is no answer.

        Raises:
            ValueRefused: *about* or *schema* is not JSON.
        """
        encode([text, schema])
        shown = b"" if about is None else to_json(encode(about))
        rare = live.make_rare()
        if rare.asking is None:
            rare.asking = anyio.Lock()
        if rare.told is None:
            rare.told = list(live.node.extra.told) if live.node.extra is not None else []
        async with rare.asking:  # a tool with tasks of its own may want to ask two questions at once
            answer = await self._ask(live, text, None if schema is None else dict(schema), shown)
        if live.scope.is_told:
            await checkpoint()  # here it is cancelled
        return answer

    async def _ask(self, live: LiveAttempt, text: str, schema: Mapping[str, Any] | None, about: bytes) -> Answer | None:
        with self._up.clock_stopped(live):
            try:
                return await self._people.ask_inside(
                    live.node,
                    text,
                    schema,
                    about,
                    told=live.make_rare().told or [],
                    on_open=partial(self._hold, live),
                    goes_on=lambda: live.asked is None,
                    is_let_go=lambda: live.is_let_go,
                )
            finally:
                await self.wait_for_place(live)

    @staticmethod
    async def wait_for_place(live: LiveAttempt) -> None:
        """Wait until it has a place again; also if the tool waits no longer: it must not continue without one."""
        rare = live.make_rare()
        if live.asked is None and not rare.has_place and rare.resume is not None:
            with anyio.CancelScope(shield=True):
                await rare.resume.wait()

    def _hold(self, live: LiveAttempt) -> None:
        rare = live.make_rare()
        rare.resume = anyio.Event()
        rare.has_place = False
        self._frontier.release(live.node)
        self._up.nudge()

    def resume(self, live: LiveAttempt, node: Node) -> None:
        """Continue a step that has a place again: its question was answered, or the element is there it has waited for.

        Args:
            live: Its attempt.
            node: The step; or what has stood in line for it, while it was running.
        """
        rare = live.make_rare()
        rare.has_place = True
        if node is live.node:
            self._record.emit(StepResumed(self._record.next_seq(), self._record.at(), node.id))
        if rare.resume is not None:
            rare.resume.set()

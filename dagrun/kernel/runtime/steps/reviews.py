"""Reviews: critics look at the output of a step before the steps that depend on it may start."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
from anyio.abc import TaskGroup

from dagrun.errors import shorten
from dagrun.kernel.model.critic import SOURCES, Critic, Sources, Verdict
from dagrun.kernel.model.outcome import ErrorKind, Failure, Outcome, State
from dagrun.kernel.model.plan import Step
from dagrun.kernel.model.policy import Policy
from dagrun.kernel.model.usage import METER, PLACES
from dagrun.kernel.runtime.plugin_calls import CallClock, MakePlaces, PluginFailed, call_plugin
from dagrun.kernel.runtime.run_callbacks import RunMeter
from dagrun.kernel.runtime.run_features import PlacesOfCall

MAX_NAME = 60


class Reviews:
    """Asks the critics of one run.

    Args:
        critics: The critics, in the order in which their verdicts are kept.
        policy: Says how long a critic may take.
        context: The context variables that critics start from.
        now: The clock of the loop.
        meter: Makes the meter for the model calls of one review.
        make_places: Makes the places of the models that one review asks.
    """

    def __init__(
        self,
        critics: Sequence[Critic],
        policy: Policy,
        context: Context,
        now: Callable[[], float],
        meter: Callable[[], RunMeter],
        *,
        make_places: MakePlaces,
    ) -> None:
        self._critics = tuple(critics)
        self._policy = policy
        self._context = context
        self._now = now
        self._meter = meter
        self._make_places = make_places
        self._tasks: TaskGroup

    def open(self, tasks: TaskGroup) -> None:
        """Set the task group of the run."""
        self._tasks = tasks

    def wanted(self, step: Step) -> list[Critic]:
        """Return the critics that want to see the output of *step*."""
        return [critic for critic in self._critics if _applies(critic, step)]

    async def review(
        self, step: Step, outcome: Outcome, critics: Sequence[Critic], sources: Sources
    ) -> tuple[Verdict, ...]:
        """Ask *critics* concurrently, and return their verdicts in the order of the critics.

        Args:
            step: The step.
            outcome: The outcome of its attempt.
            critics: The critics that want to see it.
            sources: Returns what the output was made of.
        """
        verdicts: list[Verdict | None] = [None] * len(critics)
        given = [sources]  # taken away at the end: what a critic leaves behind keeps its context variables

        async def ask(place: int) -> None:
            verdicts[place] = await self._verdict(critics[place], step, outcome, partial(_decoded, given))

        try:
            async with anyio.create_task_group() as tasks:
                for place in range(len(critics)):
                    tasks.start_soon(ask, place, name="dagrun review")
        finally:
            given.clear()
        return tuple(verdict for verdict in verdicts if verdict is not None)

    async def _verdict(self, critic: Critic, step: Step, outcome: Outcome, sources: Sources) -> Verdict:
        name, meter = _name(critic), self._meter()
        while True:
            clock = CallClock(self._now)
            places = self._make_places(clock)
            try:
                verdict = await self._ask(critic, step, outcome, _variables(meter, places, sources), clock)
                break
            except PluginFailed as error:
                if places.crowded:  # its model takes fewer calls at once: it is asked again, and waits for its place
                    continue
                # An output without a verdict must not be used as if it had passed.
                failure = error.failure
                facts = (f"the critic failed: {error}", name, meter.tokens, meter.cost)
                return Verdict("fail", None, *facts, answer=failure.answer, failure=failure)
        if not isinstance(verdict, Verdict):
            reason = f"the critic failed: it gave a {type(verdict).__name__}, not a Verdict"
            return Verdict("fail", None, reason, name, meter.tokens, meter.cost)
        return replace(verdict, critic=name, tokens=meter.tokens, cost=meter.cost, failure=None)

    async def _ask(
        self, critic: Critic, step: Step, outcome: Outcome, enter: Callable[[], None], clock: CallClock
    ) -> object:
        context = self._context.copy()
        context.run(enter)
        return await call_plugin(
            partial(_review, critic, step, replace(outcome)),
            tasks=self._tasks,
            name="dagrun critic",
            context=context,
            seconds=self._policy.critic_timeout,
            grace=self._policy.grace,
            now=self._now,
            on_begin=clock.begin,
        )


def _variables(meter: RunMeter, places: PlacesOfCall, sources: Sources) -> Callable[[], None]:
    """Return a function that sets the context variables of a review."""

    def enter() -> None:
        METER.set(meter)
        PLACES.set(places)
        SOURCES.set(sources)

    return enter


def _decoded(sources: Sequence[Sources]) -> Mapping[str, Any]:
    return sources[0]() if sources else {}


async def _review(critic: Critic, step: Step, outcome: Outcome) -> Verdict:
    return await critic.review(step, outcome)


def _name(critic: Critic) -> str:
    try:
        return shorten(str(critic.name), MAX_NAME)
    except BaseException:  # noqa: BLE001  (code of the host may raise anything; nothing is awaited here)
        return shorten(type(critic).__name__, MAX_NAME)


def _applies(critic: Critic, step: Step) -> bool:
    try:
        return bool(critic.applies_to(step))
    except BaseException:  # noqa: BLE001  (as in `_name`; such a critic is asked, and its review shows the error)
        return True


def judged(outcome: Outcome, verdicts: Sequence[Verdict]) -> Outcome:
    """Return an outcome as it counts after its review: one critic that does not pass it makes it fail."""
    bad = next((verdict for verdict in verdicts if verdict.result == "fail"), None)
    if bad is not None:
        failure = Failure(ErrorKind.CRITIC, f"{bad.critic}: {bad.reason or 'not passed'}")
        if (own := bad.failure) is not None:
            failure = replace(failure, error=own.error, where=own.where, exception=own.exception, render=own.render)
        return replace(outcome, state=State.FAILED, failure=failure)
    odd = next((verdict for verdict in verdicts if verdict.result in ("surprising", "contradictory")), None)
    if odd is not None:
        return replace(outcome, surprise=f"{odd.critic}: {odd.reason or 'surprising'}")
    return outcome

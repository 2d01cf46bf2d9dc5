"""`EnsemblePlanner`: which planner is asked when, and that both streams are closed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from dagrun import (
    Add,
    Brief,
    ContractError,
    EnsemblePlanner,
    PastRequest,
    Patch,
    Plan,
    PlanRefused,
    Problem,
    Refusal,
    Step,
)
from dagrun.planners.ensemble import needs_strong
from replans import Thinker
from test_prompts import brief_of

pytestmark = pytest.mark.anyio

A, B = Add(step=Step(id="a", tool="look_up")), Add(step=Step(id="b", tool="look_up"))
REFUSED = (Refusal(None, (Problem("DR111", "steps"),)),)


class Streamer:
    """Streams its answers, and counts them.

    Attributes:
        said: The number of answers that it has yielded.
        is_closed: Whether its generator has ended.
    """

    def __init__(self, *items: Any) -> None:
        self._items = items
        self.said = 0
        self.is_closed = False

    async def revise(self, brief: Brief) -> AsyncIterator[Any]:
        """Stream the answer."""
        try:
            for item in self._items:
                self.said += 1
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            self.is_closed = True


async def answers(planner: EnsemblePlanner, brief: Brief) -> list[Any]:
    """Return all answers of *planner*, streamed or not."""
    said: Any = planner.revise(brief)
    return [edit async for edit in said] if hasattr(said, "__aiter__") else [await said]


def sure(confidence: float | None) -> Patch:
    """The end of a stream."""
    return Patch(edits=(), confidence=confidence)


@pytest.mark.parametrize("confidence", [None, 0.6, 1.0])
async def test_a_fast_answer_that_will_do_is_used(confidence: float | None) -> None:
    """The least confidence is enough, and an answer without a confidence is used."""
    strong = Thinker()

    assert await answers(EnsemblePlanner(Streamer(A, sure(confidence)), strong), brief_of()) == [A, sure(confidence)]
    assert await answers(EnsemblePlanner(Thinker(sure(confidence)), strong), brief_of()) == [sure(confidence)]
    assert await answers(EnsemblePlanner(Thinker(None), strong), brief_of()) == [None]
    assert not strong.briefs


@pytest.mark.parametrize("answer", [Patch(edits=[A], confidence=0.59), Plan(steps=[A.step], confidence=0.59)])
async def test_a_fast_answer_that_is_not_sure_is_refused(answer: Any) -> None:
    """It is a problem like others, so that the planner is asked for a repair."""
    with pytest.raises(PlanRefused) as refused:
        await answers(EnsemblePlanner(Thinker(answer), Thinker()), brief_of())

    assert [(problem.code, problem.path) for problem in refused.value.problems] == [("DR422", "confidence")]
    assert "0.59" in str(refused.value)


async def test_a_stream_that_is_not_sure_is_refused_at_its_end() -> None:
    """Its first edits were passed on at once, as a stream must."""
    fast = Streamer(A, B, sure(0.2))
    stream: Any = EnsemblePlanner(fast, Thinker()).revise(brief_of())

    assert [await anext(stream), await anext(stream)] == [A, B]
    with pytest.raises(PlanRefused, match="DR422"):
        await anext(stream)
    assert fast.is_closed


def past(*results: str) -> tuple[PastRequest, ...]:
    return tuple(map(PastRequest, results))


@pytest.mark.parametrize(
    ("fields", "is_strong"),
    [
        ({}, False),
        ({"refused": REFUSED}, True),
        ({"past": past("applied", "refused")}, True),
        ({"past": past("failed")}, True),
        ({"past": past("failed", "applied")}, False),
        ({"past": past("denied")}, False),  # a person refused it, which says nothing about the planner
        ({"past": past("stopped")}, False),
    ],
)
async def test_the_strong_one_is_asked_when_the_fast_one_has_failed(fields: dict[str, Any], is_strong: bool) -> None:
    fast, strong = Thinker(sure(0.9)), Thinker(sure(0.1))

    (answer,) = await answers(EnsemblePlanner(fast, strong), brief_of(**fields))

    assert needs_strong(brief_of(**fields)) == is_strong
    assert (len(fast.briefs), len(strong.briefs)) == ((0, 1) if is_strong else (1, 0))
    assert answer.confidence == (0.1 if is_strong else 0.9)  # any answer of the strong planner counts


@pytest.mark.parametrize("is_strong", [False, True])
async def test_closing_closes_whoever_streams(is_strong: bool) -> None:
    """A generator that is not closed keeps its connection."""
    member = Streamer(A, B)
    members = (Thinker(), member) if is_strong else (member, Thinker())

    stream: Any = EnsemblePlanner(*members).revise(brief_of(refused=REFUSED if is_strong else ()))
    async with aclosing(stream):
        assert await anext(stream) == A

    assert member.is_closed
    assert member.said == 1


class Pipe:
    """Passes a stream on without being a generator itself, as wrappers do."""

    def __init__(self, member: Streamer) -> None:
        self._member = member

    def revise(self, brief: Brief) -> Pipe:
        """Begin the answer."""
        self._said: Any = self._member.revise(brief)
        return self

    def __aiter__(self) -> Pipe:
        return self

    async def __anext__(self) -> Any:
        return await anext(self._said)

    async def aclose(self) -> None:
        """Pass that on, too."""
        await self._said.aclose()


async def test_closing_closes_whoever_passes_a_stream_on() -> None:
    """A wrapper of a generator may hold a connection, too."""
    member = Streamer(A, B)

    stream: Any = EnsemblePlanner(Pipe(member), Thinker()).revise(brief_of())
    async with aclosing(stream):
        assert await anext(stream) == A

    assert member.is_closed


@pytest.mark.parametrize("fault", [PlanRefused([Problem("DR111", "steps")]), ValueError("no")])
async def test_faults_of_a_member_are_its_own(fault: Exception) -> None:
    """Errors are passed on: the caller of the planners decides what follows."""
    with pytest.raises(type(fault)):
        await answers(EnsemblePlanner(Thinker(fault), Thinker()), brief_of())
    with pytest.raises(type(fault)):
        await answers(EnsemblePlanner(Streamer(A, fault), Thinker()), brief_of())


@pytest.mark.parametrize("least", [-0.1, 1.1, float("nan")])
def test_a_least_confidence_that_is_none_is_refused(least: float) -> None:
    with pytest.raises(ContractError, match="from 0 to 1"):
        EnsemblePlanner(Thinker(), Thinker(), min_confidence=least)

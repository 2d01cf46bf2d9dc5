"""Laws of objects in memory, on random plans: each is gone as soon as nothing can read it, and is in no record."""

from __future__ import annotations

import gc
import json
from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dagrun
from dagrun import MemoryJournal, Plan, Policy, Status, Step
from dagrun.kernel.graph import output_eviction
from dagrun.kernel.model.contracts import held_objects
from dagrun.kernel.model.value import for_record
from dagrun.kernel.runtime.record import event_log
from objects import CANARY, Thing, Workshop, texts_of
from simulation import replaced

pytestmark = pytest.mark.rigs

# For each step: the steps before it that it reads, and whether it returns an object or data.
Shape = Sequence[tuple[frozenset[int], bool]]


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    """Draw a plan: each step reads any of the steps before it."""
    count = draw(st.integers(2, 9))
    return [
        (draw(st.frozensets(st.integers(0, number - 1), max_size=3)) if number else frozenset(), draw(st.booleans()))
        for number in range(count)
    ]


class Watched:
    """The tools of one random plan, which look at what is alive whenever one of them is called."""

    def __init__(self, shape: Shape, answer: frozenset[int]) -> None:
        self.shape = shape
        self.answer = answer or frozenset(n for n in range(len(shape)) if not any(n in reads for reads, _ in shape))
        self.shop = Workshop()
        self.begun: list[int] = []
        self.faults: list[str] = []

        @dagrun.tool(effect="pure")
        async def thing(number: int, things: list[Any]) -> dagrun.Object[Thing]:
            self._look(number)
            return self.shop._new("", str(number))

        @dagrun.tool(effect="pure")
        async def data(number: int, things: list[Any]) -> dict[str, int]:
            self._look(number)
            return {"number": number}

        self.tools = [thing, data]

    def plan(self, *, is_named: bool) -> Plan:
        """Return the plan."""
        steps = [
            Step(
                id=f"s{number}",
                tool="thing" if is_object else "data",
                args={"number": number, "things": [f"${{s{read}}}" for read in sorted(reads)]},
            )
            for number, (reads, is_object) in enumerate(self.shape)
        ]
        return Plan(steps=steps, output=[f"${{s{number}}}" for number in sorted(self.answer)] if is_named else None)

    def _look(self, current: int) -> None:
        done, self.begun = list(self.begun), [*self.begun, current]
        for number in done:
            if self.shape[number][1]:
                unread = any(number in reads and after not in done for after, (reads, _) in enumerate(self.shape))
                is_needed = unread or number in self.answer
                if self.shop.alive(str(number)) is not is_needed:
                    self.faults.append(f"at s{current}, s{number} is {'gone' if is_needed else 'still there'}")

    def look_at_end(self) -> None:
        """What is not part of the answer is gone."""
        for number, (_, is_object) in enumerate(self.shape):
            if is_object and self.shop.alive(str(number)) is not (number in self.answer):
                self.faults.append(f"at the end, s{number}")


async def _run(shape: Shape, answer: frozenset[int], *, is_named: bool) -> tuple[Watched, str]:
    watched, journal = Watched(shape, answer if is_named else frozenset()), MemoryJournal()
    gc.disable()  # by reference count alone
    try:
        # One at a time: whenever a tool is called, all that follows from the calls before it has happened.
        result = await dagrun.run(
            watched.plan(is_named=is_named),
            tools=watched.tools,
            policy=Policy(max_running=1),
            journal=journal,
            run_id="one",
        )
        assert result.status is Status.SUCCEEDED, result.reason
        watched.look_at_end()
    finally:
        gc.enable()
    return watched, b"".join(await texts_of(journal)).decode() + json.dumps(result.as_dict())


def check(shape: Shape, answer: frozenset[int], *, is_named: bool, backend: str = "asyncio") -> None:
    """Run one plan, and compare."""
    watched, records = anyio.run(lambda: _run(shape, answer, is_named=is_named), backend=backend)
    assert not watched.faults, "; ".join(watched.faults[:3])
    assert CANARY not in records


@settings(max_examples=60, deadline=None)
@given(shape=shapes(), data=st.data(), is_named=st.booleans(), backend=st.sampled_from(["asyncio", "trio"]))
def test_an_object_is_gone_exactly_when_nothing_can_read_it(
    shape: Shape, data: st.DataObject, is_named: bool, backend: str
) -> None:
    """Neither later, or memory fills up; nor sooner, or a step fails."""
    answer = data.draw(st.frozensets(st.integers(0, len(shape) - 1), min_size=1))
    check(shape, answer, is_named=is_named, backend=backend)


CHAIN: Shape = [(frozenset(), True), (frozenset([0]), True), (frozenset([1]), True), (frozenset([2]), False)]
FORK: Shape = [(frozenset(), True), (frozenset([0]), False), (frozenset([0]), True), (frozenset([1, 2]), False)]


def _never(*_: Any, **__: Any) -> None:
    """Nothing is released."""


def _at_once(graph: Any, releasing: Any, node: Any) -> bool:
    """Nobody needs anything."""
    return False


MUTANTS: dict[str, dict[Any, Any]] = {
    "never releases": {output_eviction._drop: _never},
    "releases at once": {output_eviction._is_needed: _at_once},
    "records the object": {for_record: lambda stored: repr(getattr(stored, "value", stored))},
    "records the tokens with what they stand for": {
        event_log.without_objects: lambda event: event,
        held_objects.type_name: lambda kind: CANARY,
    },
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_laws_have_teeth(name: str) -> None:
    """Each mutant breaks a law on one of two small plans."""
    with replaced(MUTANTS[name]), pytest.raises(AssertionError):
        _check_both()


def _check_both() -> None:
    for shape in (CHAIN, FORK):
        check(shape, frozenset([len(shape) - 1]), is_named=True)

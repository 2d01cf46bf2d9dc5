"""The proofs of drafts are worth what they catch: each broken part of `draft_mutants.py`, and not the real ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import anyio
import pytest

import dagrun
from catching import Parts, Proof, survivors
from dagrun import Add, Brief, Event, PlanningRule, Policy, Run
from dagrun.events import Spliced
from dagrun.testing import run_virtual
from draft_cases import make_draft
from draft_mutants import DRAFT_MUTANTS
from draft_players import WATCHED, run_draft
from draft_steps import nap, start
from draft_usage import run_usage
from drafts import GOAL, Writer, whole
from simulation import replaced
from small_tools import states, toolset

pytestmark = pytest.mark.rigs

SEEDS: Final = 250
USAGE_SEEDS: Final = 80


def drafted(parts: Parts) -> Iterator[str]:
    """Random plans, written bit by bit."""
    for seed in range(SEEDS):
        for problem in run_draft(make_draft(seed), parts, is_watched=seed % WATCHED == 0).broken:
            yield f"seed {seed}: {problem}"


def charged(parts: Parts) -> Iterator[str]:
    """Random drafts under ceilings."""
    for seed in range(USAGE_SEEDS):
        with replaced(parts):
            faults = run_usage(seed).faults
        for problem in faults:
            yield f"seed {seed}: {problem}"


class Breathless:
    """Writes two steps, and then thinks without giving the loop a turn: here, by writing what is nothing."""

    def __init__(self) -> None:
        self.written = 0

    async def revise(self, brief: Brief) -> Any:
        """Answer *brief*."""
        for number in range(60):
            self.written = number
            yield Add(step=dagrun.Step(id=f"s{number}", tool="note"))


def breaths(parts: Parts) -> Iterator[str]:
    """A step that is ready starts before its planner has written twenty more."""
    planner, seen = Breathless(), list[int]()

    @dagrun.tool(effect="pure")
    async def note() -> None:
        seen.append(planner.written)

    async def main() -> None:
        with anyio.move_on_after(1_000):
            await dagrun.run(goal=GOAL, planner=planner, tools=[note])

    with replaced(parts):
        run_virtual(main)
    if not seen or min(seen) > 20:
        yield f"steps ran when so many were written: {seen}"


class Stubborn:
    """Swallows every cancellation, and writes on."""

    async def revise(self, brief: Brief) -> Any:
        """Answer *brief*."""
        yield Add(step=nap("a"))
        while True:
            try:
                await anyio.sleep(1_000)
            except GeneratorExit:
                raise
            except BaseException:  # noqa: BLE001  (swallowing everything is its part)
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(0.3)
            yield Add(step=nap("late"))


def late_words(parts: Parts) -> Iterator[str]:
    """What is written after the time of a call is over is no step of any plan."""

    async def main() -> Mapping[str, str]:
        policy = Policy(planning=PlanningRule(timeout=5, max_calls=1))
        with anyio.move_on_after(1_000):
            return states(await dagrun.run(goal=GOAL, planner=Stubborn(), tools=toolset(), policy=policy))
        return {"the run": "has not ended"}

    with replaced(parts):
        found = run_virtual(main)
    if found != {"a": "succeeded"}:
        yield f"the steps ended as {found}"


def ended_by_an_observer(parts: Parts) -> Iterator[str]:
    """One step lets in another; who sees the first come ends the run, while a third still runs: no more come."""
    script = [nap("long", 50), nap("b", 1, "a"), 1, nap("a"), 1, whole()]

    def see(event: Event) -> None:
        if isinstance(event, Spliced) and event.consequence.added == ("a",):
            running[0].cancel()

    running: list[Run] = []

    async def main() -> Mapping[str, str]:
        with anyio.move_on_after(1_000):
            async with start(Writer(script), on_event=see) as run:
                running.append(run)
                return states(await run.result())
        return {"the run": "has not ended"}

    with replaced(parts):
        found = run_virtual(main)
    if found != {"long": "cancelled", "a": "cancelled"}:
        yield f"the steps ended as {found}"


NAMED: Final[tuple[Proof, ...]] = (breaths, late_words, ended_by_an_observer)
PROOFS: Final[tuple[Proof, ...]] = (*NAMED, charged, drafted)


@pytest.mark.parametrize("proof", NAMED, ids=lambda proof: proof.__name__)
def test_the_real_parts_pass_the_named_checks(proof: Proof) -> None:
    """They are laws of their own, and quick."""
    assert not list(proof({}))


@pytest.mark.rigs(seconds=25)
@pytest.mark.filterwarnings("ignore")
def test_every_mutant_is_caught() -> None:
    """A bug of each of these kinds cannot come back unnoticed. That the real parts pass, the fuzzers say."""
    assert len(DRAFT_MUTANTS) >= 10
    assert not survivors(PROOFS, DRAFT_MUTANTS)

"""Proofs are worth what they catch: every broken part of `mutants.py` must be noticed, and the real parts must not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Final

import anyio
import pytest

from catching import Parts, Proof, first_catch, survivors
from dagrun import Engine, Plan, Policy, Step, check, run, start, tool
from dagrun.testing import run_virtual
from fuzz import run_case
from graphs import work
from mutants import MUTANTS
from own_scopes import PROOFS as OWN_SCOPES
from random_cases import make_case
from simulation import replaced, seeded_schedule
from test_cancellation_points import everywhere, quiet_case
from test_schedule_laws import EXACT, LAWS

pytestmark = pytest.mark.rigs


def laws(parts: Parts) -> Iterator[str]:
    """The laws of scheduling, for a few graphs each."""
    with replaced(parts), seeded_schedule(0):
        for law in LAWS:
            for seed in range(8):
                try:
                    law(seed, "trio")
                except BaseException as error:  # noqa: BLE001  (a broken runtime lets SystemExit out)
                    yield f"{law.__name__}, seed {seed}: {type(error).__name__}"


def fuzz(parts: Parts) -> Iterator[str]:
    """Random plans full of trouble."""
    for seed in range(120):
        for problem in run_case(make_case(seed), parts).broken:
            yield f"seed {seed}: {problem}"


def cancellation_points(parts: Parts) -> Iterator[str]:
    """A run that is cancelled at every point."""
    for report in everywhere(quiet_case(5), parts):
        for problem in report.broken:
            yield f"{report.case.cancels_at or report.case.cancels_between}: {problem}"


@tool(effect="pure")
async def poison() -> None:
    """Leave a cancellation of its own task behind that goes off later."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().call_later(0.5, task.cancel)


def stray_cancellations(parts: Parts) -> Iterator[str]:
    """What one step leaves behind on its task must not make the next step fail."""
    steps = [Step(id="first", tool="poison"), Step(id="next", tool="work", args={"seconds": 1}, depends_on=["first"])]

    async def main() -> str:
        return (await run(Plan(steps=steps), tools=[poison, work])).status

    with replaced(parts):
        status = run_virtual(main)
    if status != "succeeded":
        yield f"the run {status}"


def turns(parts: Parts) -> Iterator[str]:
    """Runs that share one slot take turns: a run of one step beside a run of twenty waits for few of them."""
    long, short = (Plan(steps=[Step(id=f"s{i}", tool="work", args={"seconds": 1}) for i in range(n)]) for n in (20, 1))
    ended: dict[int, float] = {}

    async def play(engine: Engine, plan: Plan) -> None:
        await engine.run(check(plan, [work]))
        ended[len(plan.steps)] = anyio.current_time()

    async def main() -> float:
        begin = anyio.current_time()
        with anyio.move_on_after(1000):
            async with Engine(max_running=1) as engine, anyio.create_task_group() as tasks:
                tasks.start_soon(play, engine, long)
                await anyio.sleep(0.5)
                tasks.start_soon(play, engine, short)
        return begin

    with replaced(parts):
        begin = run_virtual(main)
    if ended.keys() != {1, 20} or ended[1] - begin > 3 + EXACT or ended[20] - begin > 21 + EXACT:
        yield f"the short run and the long one ended at {ended}"


def cancelled_in_line(parts: Parts) -> Iterator[str]:
    """Of three steps that wait for one slot of their tool, the second is cancelled: the third must get its turn."""
    plan = Plan(steps=[Step(id=id_, tool="work", args={"seconds": 1}) for id_ in ("first", "second", "third")])

    async def main() -> Mapping[str, str]:
        with anyio.move_on_after(1000):
            async with start(check(plan, [work], policy=Policy(max_running_by_tool={"work": 1}))) as running:
                await anyio.sleep(0.5)
                running.cancel("second")
                await running.result()
        return running.states

    with replaced(parts):
        states = run_virtual(main)
    if states != {"first": "succeeded", "second": "cancelled", "third": "succeeded"}:
        yield f"the steps ended as {states}"


NAMED: Final[tuple[Proof, ...]] = (stray_cancellations, turns, cancelled_in_line, *OWN_SCOPES)
PROOFS: Final[tuple[Proof, ...]] = (laws, fuzz, cancellation_points, *NAMED)


@pytest.mark.parametrize("proof", NAMED, ids=lambda proof: proof.__name__)
def test_the_real_parts_pass_the_named_checks(proof: Proof) -> None:
    """They are laws of their own, and quick."""
    assert not list(proof({}))


@pytest.mark.rigs
def test_the_real_parts_pass_every_proof() -> None:
    """Otherwise that a mutant is caught says nothing."""
    assert first_catch(PROOFS, {}) is None


@pytest.mark.rigs(seconds=20)
@pytest.mark.filterwarnings("ignore")
def test_every_mutant_is_caught() -> None:
    """A bug of each of these kinds cannot come back unnoticed."""
    assert len(MUTANTS) >= 12
    assert not survivors(PROOFS, MUTANTS)

"""The proofs of splice are worth what they catch: each broken part of `splice_mutants.py`, and not the real ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import anyio
import pytest
from anyio.lowlevel import checkpoint

from catching import Parts, Proof, survivors
from dagrun import Add, ApprovalRule, Event, Patch, Plan, Policy, Rewire, State, Step, check, start, tool
from dagrun.events import AttemptStarted, StepResumed
from fuzz import run_case
from graphs import work
from simulation import replaced, simulate
from splice_cases import make_splice_case
from splice_mutants import SPLICE_MUTANTS

pytestmark = pytest.mark.rigs

SEEDS: Final = 300


def splices(parts: Parts) -> Iterator[str]:
    """Random patches at random instants."""
    for seed in range(SEEDS):
        for problem in run_case(make_splice_case(seed), parts).broken:
            yield f"seed {seed}: {problem}"


@tool(effect="effectful", needs_approval=False)
async def send(amount: int) -> int:
    """Changes the world."""
    await anyio.sleep(1)
    return amount


def on_their_way(parts: Parts) -> Iterator[str]:
    """A step may be rewired after a worker has taken it, and before the fresh task that it needs has begun."""
    first = [Step(id=f"a{i}", tool="work", args={"seconds": 1}) for i in range(4)]
    then = [Step(id=f"b{i}", tool="send", args={"amount": i}, depends_on=[f"a{i}"]) for i in range(4)]
    plan = check(Plan(steps=[*first, *then]), [work, send])
    seen: list[Event] = []

    async def main() -> None:
        with anyio.move_on_after(100):
            async with start(plan, on_event=seen.append) as run:
                await anyio.sleep(1)
                for _ in range(20):
                    ready = [id_ for id_, state in run.states.items() if state is State.READY]
                    if ready:
                        await run.splice(Patch(edits=[Rewire(id=id_, args={"amount": 9}) for id_ in ready]))
                    await checkpoint()

    for seed in range(12):
        seen.clear()
        with replaced(parts):
            simulate(main, seed)
        starts = Counter(event.step for event in seen if isinstance(event, AttemptStarted))
        if set(starts.values()) != {1} or any(isinstance(event, StepResumed) for event in seen):
            yield f"seed {seed}: {starts}, and something was resumed"


def agreed_calls(parts: Parts) -> Iterator[str]:
    """A person agrees to a call, which has to wait for its turn and is rewired meanwhile: it must be asked for anew."""
    pay = Step(id="pay", tool="send", args={"amount": 1}, estimate=9)
    plan = Plan(steps=[pay, Step(id="long", tool="work", args={"seconds": 5}, estimate=1)])
    policy = Policy(max_running=1, approve=[ApprovalRule(tool="send")])
    sent: list[Event] = []

    async def main() -> str:
        checked = check(plan, [work, send], policy=policy)
        with anyio.move_on_after(100):
            async with start(checked, attended=True, on_event=sent.append) as run:
                await anyio.sleep(1)
                await run.answer(run.pending, True)
                await anyio.sleep(1)
                await run.splice(Patch(edits=[Rewire(id="pay", args={"amount": 1000})]))
                await anyio.sleep(4)
                state = run.states["pay"]
                run.cancel()
            return state
        return "still running"

    with replaced(parts):
        state = simulate(main, 0)
    if state != "held" or any(isinstance(event, AttemptStarted) and event.step == "pay" for event in sent):
        yield f"pay is {state}, and nobody has agreed to 1000"


def agreed_answers(parts: Parts) -> Iterator[str]:
    """While a person looks at the answer of a run, a splice makes it another one: that must be asked about, too."""
    plan = Plan(steps=[Step(id="one", tool="work", args={"seconds": 1})])

    async def main() -> list[Any]:
        asked: list[Any] = []
        with anyio.move_on_after(100):
            async with start(check(plan, [work], policy=Policy(approve_output=True)), attended=True) as run:
                for _ in range(4):
                    await anyio.sleep(2)
                    asked += [question.as_dict()["arguments"] for question in run.pending]
                    if len(asked) == 1:
                        await run.splice(Patch(edits=[Add(step=Step(id="two", tool="work", args={"seconds": 1}))]))
                    await run.answer(run.pending, True)
        return asked

    with replaced(parts):
        asked = simulate(main, 0)
    if asked != [1, {"one": 1, "two": 1}]:
        yield f"a person was asked about {asked}"


NAMED: Final[tuple[Proof, ...]] = (on_their_way, agreed_calls, agreed_answers)
PROOFS: Final[tuple[Proof, ...]] = (*NAMED, splices)


@pytest.mark.parametrize("proof", NAMED, ids=lambda proof: proof.__name__)
def test_the_real_parts_pass_the_named_checks(proof: Proof) -> None:
    """They are laws of their own, and quick."""
    assert not list(proof({}))


@pytest.mark.rigs(seconds=30)
@pytest.mark.filterwarnings("ignore")
def test_every_mutant_is_caught() -> None:
    """A bug of each of these kinds cannot come back unnoticed. That the real parts pass, the rig of the fuzzer says."""
    assert len(SPLICE_MUTANTS) >= 14
    assert not survivors(PROOFS, SPLICE_MUTANTS)

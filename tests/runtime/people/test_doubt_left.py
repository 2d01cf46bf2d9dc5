"""A doubt about a step that has left the plan: a resumed run has it settled, and no retry forgets it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import anyio
import pytest

import dagrun
from crash_process import RUN
from dagrun import Answer, Applied, Drop, MemoryJournal, Patch, Plan, Policy, Replace, RetryRule, Rewire, Status, Step
from dagrun.codec import decode_event
from dagrun.errors import CannotResume, SpliceRefused
from dagrun.events import RunReopened
from dagrun.kernel.model.tool import make_tool
from keeping import Keeping

pytestmark = pytest.mark.anyio

POLICY: Final = Policy(retry=RetryRule(max_attempts=2, first_delay=0.5))


class Bank:
    """Takes money, and loses the line before it has answered.

    Args:
        tool: ``pay`` may not be repeated, ``put`` may.
        reconcile: Finds out whether a payment was made; or nothing.
    """

    def __init__(self, tool: str = "pay", reconcile: Any = None) -> None:
        self.paid: list[str] = []

        async def pay(to: str) -> str:
            """Pay."""
            self.paid.append(to)
            raise ConnectionError("the line is lost")

        async def const(value: str) -> str:
            """Return a text."""
            return value

        effect: Any = "effectful" if tool == "pay" else "idempotent"
        after = None if reconcile is None else 0.0
        payer = make_tool(pay, effect=effect, needs_approval=False, reconcile=reconcile, reconcile_after=after)
        self.tools = [payer, make_tool(const, effect="pure")]


class Hides:
    """Takes the steps in doubt out of the plan, in one of the `WAYS`."""

    def __init__(self, edit: Callable[[str], Any]) -> None:
        self._edit = edit

    async def revise(self, brief: dagrun.Brief) -> Patch:
        """Answer *brief*."""
        return Patch(edits=[self._edit(trigger.step) for trigger in brief.triggers])


def _by_constant(id_: str) -> Replace:
    return Replace(id=id_, step=Step(id=f"fine_{id_[2:3]}", tool="const", args={"value": "paid"}))


WAYS: Final[dict[str, Callable[[str], Any]]] = {"replaced": _by_constant, "dropped": lambda id_: Drop(id=id_)}
SHAPES: Final = {"a step": Step(id="p", tool="pay", args={"to": "ann"}), "elements": Step(
    id="p", tool="pay", args={"to": "${item}"}, for_each=["ann", "bob"])}  # fmt: skip
EVERY: Final = (
    pytest.mark.parametrize("way", WAYS),
    pytest.mark.parametrize("shape", SHAPES),
    pytest.mark.parametrize("tool", ["pay", "put"]),
)


class Asked:
    """A person who says the same to everything.

    Args:
        says: What they say.
    """

    def __init__(self, says: Answer | None) -> None:
        self.says = says
        self.about: list[str] = []

    async def __call__(self, question: dagrun.Question) -> Answer | None:
        """Answer *question*."""
        self.about.append(f"{question.kind} {question.step}")
        return self.says


async def _hidden(bank: Bank, way: str = "replaced", shape: str = "a step") -> MemoryJournal:
    """Run the plan until its doubt has left it; return the journal."""
    journal = MemoryJournal()
    plan = Plan(steps=[SHAPES[shape], Step(id="other", tool="const", args={"value": "x"})])
    result = await dagrun.run(
        plan, tools=bank.tools, policy=POLICY, planner=Hides(WAYS[way]), journal=journal, run_id=RUN
    )
    assert result.status is Status.UNKNOWN
    return journal


async def _resumed(journal: MemoryJournal, bank: Bank, asked: Asked | None = None) -> dagrun.RunResult:
    async with dagrun.resume(RUN, tools=bank.tools, journal=journal, approver=asked) as run:
        result = await run.result()
    replayed = await dagrun.replay(RUN, journal=journal)
    assert {id_: str(state) for id_, state in replayed.states.items()} == _states(result)
    return result


def _states(result: dagrun.RunResult) -> dict[str, str]:
    return {id_: str(step.state) for id_, step in result.steps.items()}


def _calls(shape: str) -> Sequence[str]:
    return ("p",) if shape == "a step" else ("p[0]", "p[1]")


@pytest.mark.parametrize(("says", "state"), [(Answer("took_effect"), "succeeded"), (Answer("did_not"), "superseded")])
@EVERY[0]
@EVERY[1]
@EVERY[2]
async def test_a_person_settles_it_when_the_run_is_resumed(
    way: str, shape: str, tool: str, says: Answer, state: str
) -> None:
    """Nothing is called again: the plan does without it, whatever the person knows."""
    bank, asked = Bank(tool), Asked(says)
    journal = await _hidden(bank, way, shape)
    paid = list(bank.paid)

    result = await _resumed(journal, bank, asked)

    assert (sorted(asked.about), bank.paid) == ([f"effect {id_}" for id_ in _calls(shape)], paid)
    assert {_states(result)[id_] for id_ in _calls(shape)} == {state}
    assert result.status is Status.SUCCEEDED


@EVERY[0]
@EVERY[1]
@EVERY[2]
async def test_it_stays_for_as_long_as_nobody_settles_it(way: str, shape: str, tool: str) -> None:
    """It is asked about each time that the run is resumed, and a cancelled run is still in doubt."""
    bank, asked = Bank(tool), Asked(None)
    journal = await _hidden(bank, way, shape)
    paid = list(bank.paid)

    for _ in range(2):
        result = await _resumed(journal, bank, asked)
        assert result.status is Status.WAITING
        assert {_states(result)[id_] for id_ in _calls(shape)} == {"held"}
    async with dagrun.resume(RUN, tools=bank.tools, journal=journal, attended=True) as run:
        await anyio.sleep(1)
        run.cancel()
        result = await run.result()

    assert result.status is Status.UNKNOWN
    assert {_states(result)[id_] for id_ in _calls(shape)} == {"unknown"}
    assert (await _resumed(journal, bank, Asked(Answer("did_not")))).status is Status.SUCCEEDED
    assert bank.paid == paid


@EVERY[0]
@EVERY[1]
@EVERY[2]
async def test_a_retry_does_not_forget_it(way: str, shape: str, tool: str) -> None:
    bank = Bank(tool)
    journal = await _hidden(bank, way, shape)

    with pytest.raises(CannotResume, match="nobody knows whether these took effect: p"):
        async with dagrun.retry(RUN, tools=bank.tools, journal=journal):
            pass


@pytest.mark.parametrize(("found", "state"), [(Applied("paid"), "succeeded"), (False, "superseded")])
async def test_its_tool_may_find_it_out(found: Any, state: str) -> None:
    """Then no person is needed."""
    known = [None, found]

    async def reconcile(key: str) -> Any:
        return known.pop(0)

    bank, journal = Bank(reconcile=reconcile), MemoryJournal()
    plan = Plan(steps=[SHAPES["a step"]])
    async with dagrun.start(plan, tools=bank.tools, journal=journal, run_id=RUN, attended=True) as run:
        await anyio.sleep(1)
        await run.splice(Patch(edits=[Drop(id="p", cancel=True)]))  # while the host is asked about it
        assert (await run.result()).status is Status.UNKNOWN
    result = await _resumed(journal, bank)

    assert (result.status, _states(result)["p"], bank.paid) == (Status.SUCCEEDED, state, ["ann"])


@EVERY[2]
async def test_a_crash_before_it_is_asked_about_calls_nothing(tool: str) -> None:
    """The record says that the step is open again, and not yet that anybody was asked."""
    bank, asked = Bank(tool), Asked(Answer("did_not"))
    journal = await _hidden(bank)
    paid = list(bank.paid)
    await _resumed(journal, bank, Asked(None))
    texts = [line.text for line in await journal.read(RUN)]
    reopened = next(n for n, text in enumerate(texts) if isinstance(decode_event(text), RunReopened))
    left = Keeping()
    left.put(texts[: reopened + 1])

    result = await _resumed(left, bank, asked)

    assert (result.status, asked.about, bank.paid) == (Status.SUCCEEDED, ["effect p"], paid)


@pytest.mark.parametrize(
    "fields",
    [
        {"on_failure": "default", "default": "paid"},
        {"for_each": ["ann"], "args": {"to": "${item}"}, "on_failure": "skip"},
        {"for_each": ["ann"], "args": {"to": "${item}"}, "on_failure": "default", "default": []},
    ],
    ids=lambda fields: ", ".join(map(str, fields)),
)
async def test_the_same_call_settles_it_only_if_it_returns(fields: dict[str, Any]) -> None:
    """A substitute can succeed without: by a default, or because what has failed is left out."""
    said: list[Exception] = [ConnectionError("the line is lost"), dagrun.ToolError("closed")]

    async def pay(to: str) -> str:
        raise said.pop(0)

    class Repeats:
        async def revise(self, brief: dagrun.Brief) -> Patch:
            step = {"id": "again", "tool": "pay", "args": {"to": "ann"}, **fields}
            return Patch(edits=[Replace(id="p", step=Step.model_validate(step))])

    shape = Step(id="p", tool="pay", args=fields.get("args", {"to": "ann"}), for_each=fields.get("for_each"))
    policy = Policy(retry=RetryRule(max_attempts=1))
    tool = make_tool(pay, effect="idempotent", needs_approval=False)
    result = await dagrun.run(Plan(steps=[shape]), tools=[tool], planner=Repeats(), policy=policy)

    assert (result.steps["again"].state, result.status, said) == ("succeeded", Status.UNKNOWN, [])


@pytest.mark.parametrize("fallback", ["pay", "put"])
async def test_no_fallback_repeats_it_in_another_way(fallback: str) -> None:
    """A step that only looks may follow a call in doubt, and fall back to no other call with an effect."""
    bank = Bank(fallback)
    other = {"to": "ann" if fallback == "pay" else "mallory"}

    async def look(to: str) -> str:
        raise dagrun.ToolError("nobody knows")

    class Looks:
        async def revise(self, brief: dagrun.Brief) -> Patch:
            return Patch(edits=[Replace(id="p", step=Step(id="p2", tool="look", fallback="pay", args=other))])

    tools = [*bank.tools, make_tool(look, effect="read")]
    plan, policy = Plan(steps=[SHAPES["a step"]]), Policy(retry=RetryRule(max_attempts=1))
    result = await dagrun.run(plan, tools=tools, planner=Looks(), policy=policy)

    assert (result.status, bank.paid) == (Status.UNKNOWN, ["ann"])


async def test_no_rewiring_gives_another_call_the_key_of_one_in_doubt() -> None:
    """The same call stands in for it, and still waits: it must stay the same."""
    bank = Bank("put")

    async def nap() -> None:
        await anyio.sleep(10)

    tools = [*bank.tools, make_tool(nap, effect="pure")]
    shape = SHAPES["a step"].model_copy(update={"retry": RetryRule(max_attempts=2, first_delay=1_000)})
    plan = Plan(steps=[Step(id="nap", tool="nap"), shape])
    async with dagrun.start(plan, tools=tools) as run:
        await anyio.sleep(1)
        again = Step(id="p2", tool="pay", args={"to": "ann"}, depends_on=["nap"])
        await run.splice(Patch(edits=[Replace(id="p", step=again, cancel=True)]))
        with pytest.raises(SpliceRefused, match="make the same call of pay"):
            await run.splice(Patch(edits=[Rewire(id="p2", args={"to": "mallory"})]))
        await run.splice(Patch(edits=[Rewire(id="p2", depends_on=[])]))
        await run.result()

    assert set(bank.paid) == {"ann"}

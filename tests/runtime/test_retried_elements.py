"""Retrying a run that has a for_each: only the elements that are not done are called again, as with separate steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dagrun
from dagrun import MemoryJournal, Plan, RunResult, SQLiteJournal, State, Status, Step, ToolContext, Unavailable
from dagrun.codec import decode_event
from dagrun.errors import CannotResume
from dagrun.events import RunStarted, StepExpanded, StepSettled
from dagrun.extend import Journal
from dagrun.kernel.model.tool import AnyTool
from dagrun.testing import run_virtual
from replans import Thinker, instead
from seeds import NIGHT

pytestmark = pytest.mark.anyio

EFFECTS: Final = ("read", "idempotent", "effectful")


class Part:
    """An object that no record can hold."""

    def __init__(self, number: int) -> None:
        self.number = number


class World:
    """Tools that count their calls, and fail where they are told to.

    Attributes:
        calls: How often each call was made, by tool and argument.
        broken: The calls that fail.
        keys: The idempotency keys of each call.
    """

    def __init__(self, effect: str = "effectful", *broken: tuple[str, Any]) -> None:
        self.calls: Counter[tuple[str, Any]] = Counter()
        self.broken = set(broken)
        self.keys: dict[tuple[str, Any], set[str]] = {}
        self._effect = effect

    @property
    def tools(self) -> list[AnyTool]:
        """The tools ``f`` and ``g`` with the effect of this world, and ``total``, which is pure."""

        async def f(n: int | None, context: ToolContext) -> int:
            return await self._call("f", n, context)

        async def g(n: int | None, context: ToolContext) -> int:
            return await self._call("g", n, context)

        async def total(values: list[int | None]) -> int:
            self.calls["total", str(values)] += 1
            return sum(value or 0 for value in values)

        effect: Any = self._effect
        return [dagrun.tool(effect=effect)(f), dagrun.tool(effect=effect)(g), dagrun.tool(effect="pure")(total)]

    async def _call(self, tool: str, n: int | None, context: ToolContext) -> int:
        self.calls[tool, n] += 1
        self.keys.setdefault((tool, n), set()).add(context.idempotency_key)
        await anyio.sleep(0.1 * (n or 0))
        if (tool, n) in self.broken:
            raise dagrun.ToolError(f"not {n} today")
        return (n or 0) * 10

    def since(self, before: Counter[tuple[str, Any]]) -> dict[tuple[str, Any], int]:
        """Return the calls that were made since *before*."""
        return dict(self.calls - before)


def each(id_: str, tool: str, items: Any, **fields: Any) -> Step:
    return Step(id=id_, tool=tool, for_each=items, args={"n": "${item}"}, **{"on_failure": "replan", **fields})


def total(of: str = "a", id_: str = "total") -> Step:
    return Step(id=id_, tool="total", args={"values": f"${{{of}}}"})


async def again(
    world: World, journal: Journal, run_id: str = "run", new_id: str = "again", **options: Any
) -> tuple[RunResult, dict[tuple[str, Any], int]]:
    """Retry a run; return the result, and the calls that were made."""
    before = world.calls.copy()
    async with dagrun.retry(run_id, journal=journal, tools=world.tools, new_id=new_id, **options) as running:
        return await running.result(), world.since(before)


async def tried(
    world: World, plan: Plan, *, journal: Journal | None = None, **options: Any
) -> tuple[RunResult, dict[tuple[str, Any], int]]:
    """Run a plan, mend all that is broken, and retry it."""
    journal = journal or MemoryJournal()
    first = await dagrun.run(plan, tools=world.tools, journal=journal, run_id="run", **options)
    assert first.status is not Status.SUCCEEDED
    world.broken.clear()
    return await again(world, journal)


@pytest.mark.parametrize("effect", EFFECTS)
async def test_only_the_failed_element_is_called_again(effect: str) -> None:
    world = World(effect, ("f", 3))
    plan = Plan(steps=[each("a", "f", [1, 2, 3, 4]), total()], output="${total}")

    result, calls = await tried(world, plan)

    assert (result.output, calls) == (100, {("f", 3): 1, ("total", "[10, 20, 30, 40]"): 1})
    assert {len(keys) for keys in world.keys.values()} == {1}  # the element has the key that it had before
    assert [result.steps[f"a[{i}]"].reason for i in (0, 2)] == ["taken over from run run", ""]


@pytest.mark.parametrize("effect", EFFECTS)
async def test_a_pipeline_goes_on_where_each_element_stood(effect: str) -> None:
    """One element has failed in the first part and one in the second; all others are through."""
    world = World(effect, ("f", 2), ("g", 30))
    steps = [each("a", "f", [1, 2, 3]), each("b", "g", "${a}"), total("b")]

    result, calls = await tried(world, Plan(steps=steps, output="${total}"))

    assert result.output == 600
    assert calls == {("f", 2): 1, ("g", 20): 1, ("g", 30): 1, ("total", "[100, 200, 300]"): 1}


async def test_a_list_that_another_step_has_made_is_taken_over_with_the_elements() -> None:
    world = World("effectful", ("f", 2))
    steps = [Step(id="list", tool="listed"), each("a", "f", "${list}")]
    made: list[int] = []

    @dagrun.tool(effect="read")
    async def listed() -> list[int]:
        made.append(1)
        return [len(made), len(made) + 1]

    journal = MemoryJournal()
    await dagrun.run(Plan(steps=steps), tools=[*world.tools, listed], journal=journal, run_id="run")
    world.broken.clear()
    before = world.calls.copy()
    async with dagrun.retry("run", journal=journal, tools=[*world.tools, listed]) as running:
        result = await running.result()

    assert (result.output, len(made), world.since(before)) == ([10, 20], 1, {("f", 2): 1})


@pytest.mark.parametrize("effect", ["read", "effectful"])
async def test_elements_of_a_list_that_has_to_be_made_again_are_called_again_or_refused(effect: str) -> None:
    """Nobody can tell whether the second list has the same elements: this one was never on record."""
    world = World("read")

    @dagrun.tool(effect="read")
    async def load() -> list[dagrun.Object[Part]]:
        return [Part(1), Part(2)]

    @dagrun.tool(effect=effect)
    async def put(part: dagrun.Object[Part]) -> int:
        world.calls["put", part.number] += 1
        if ("put", part.number) in world.broken:
            raise dagrun.ToolError("no")
        return part.number

    world.broken.add(("put", 2))
    tools, journal = [load, put], MemoryJournal()
    parts = Step(id="a", tool="put", for_each="${load}", args={"part": "${item}"})
    plan = Plan(steps=[Step(id="load", tool="load"), parts])
    first = await dagrun.run(plan, tools=tools, journal=journal, run_id="run")
    assert str(first.steps["a[0]"].state) == "succeeded"
    world.broken.clear()

    if effect == "effectful":
        with pytest.raises(CannotResume, match=r"called again, as their list must be computed again: a\[0\];"):
            async with dagrun.retry("run", journal=journal, tools=tools):
                raise AssertionError
    else:
        async with dagrun.retry("run", journal=journal, tools=tools) as running:
            assert (await running.result()).output == [1, 2]
    assert world.calls == {("put", 1): 1 + (effect == "read"), ("put", 2): 1 + (effect == "read")}


async def test_an_element_that_was_left_out_is_called_again_with_what_has_read_the_list() -> None:
    """The step behind, which changes nothing, gets the list without the gap; the other elements stay."""
    world = World("read", ("f", 2), ("g", 7))
    steps = [each("a", "f", [1, 2], on_failure="skip"), total(), Step(id="bad", tool="g", args={"n": 7})]

    result, calls = await tried(world, Plan(steps=steps, output="${total}"))

    assert (result.output, calls) == (30, {("f", 2): 1, ("g", 7): 1, ("total", "[10, 20]"): 1})


async def test_elements_further_behind_a_gap_are_called_again_too() -> None:
    """They were called with what came of the null, and would be taken over with it."""
    world = World("read", ("f", 1), ("g", 7))
    steps = [
        each("a", "f", [1], on_failure="skip"),
        each("b", "f", "${a}"),
        each("c", "g", "${b}"),
        Step(id="bad", tool="g", args={"n": 7}),
    ]

    result, calls = await tried(world, Plan(steps=steps, output="${c}"))

    assert (result.output, calls) == ([1000], {("f", 1): 1, ("f", 10): 1, ("g", 100): 1, ("g", 7): 1})


async def test_a_list_with_gaps_that_an_effect_was_made_of_stays() -> None:
    """With another list the effect would be another one, and would be made a second time."""
    world = World("effectful", ("f", 2), ("g", 7))
    steps = [
        each("a", "f", [1, 2], on_failure="skip"),
        Step(id="pay", tool="g", args={"n": "${a[0]}"}),
        Step(id="bad", tool="g", args={"n": 7}),
    ]

    result, calls = await tried(world, Plan(steps=steps))

    assert (str(result.steps["a"].state), calls) == ("succeeded", {("g", 7): 1})


async def test_an_element_behind_a_gap_is_called_again_only_without_an_effect() -> None:
    """Its item was null, and will be the output of the element that had failed."""
    for effect, repeated in (("read", {("g", 20): 1}), ("effectful", {})):
        world = World(effect, ("f", 2), ("g", 30))
        steps = [each("a", "f", [1, 2, 3], on_failure="skip"), each("b", "g", "${a}")]

        _, calls = await tried(world, Plan(steps=steps))

        expected = {("g", 30): 1, **({("f", 2): 1} if effect == "read" else {}), **repeated}
        assert calls == expected, effect


async def test_a_retry_of_a_retry_still_has_the_elements() -> None:
    """Also of a for_each that the second run did not come to."""
    world = World("effectful", ("f", 2), ("f", 9))
    steps = [
        Step(id="before", tool="f", args={"n": 9}, on_failure="skip"),
        each("a", "f", [1, 2], depends_on=["before"]),
    ]
    journal = MemoryJournal()
    await dagrun.run(Plan(steps=steps), tools=world.tools, journal=journal, run_id="run")
    async with dagrun.retry("run", journal=journal, tools=world.tools, new_id="second") as running:
        running.cancel()  # before it calls anything
        await running.result()
    _, third = await again(world, journal, "second", "third")
    world.broken.clear()
    result, fourth = await again(world, journal, "third", "fourth")

    assert (third, fourth) == ({("f", 9): 1, ("f", 2): 1}, {("f", 9): 1, ("f", 2): 1})
    assert (result.status, result.steps["a"].output) == (Status.SUCCEEDED, [10, 20])
    assert {len(keys) for keys in world.keys.values()} == {1}


async def test_a_retried_run_that_is_cut_off_anywhere_resumes_with_the_elements() -> None:
    """Also between the record of the list and that of the first element that was taken over."""
    world = World("effectful", ("f", 2))
    plan = Plan(steps=[each("a", "f", [1, 2, 3]), total()])
    journal = MemoryJournal()
    await dagrun.run(plan, tools=world.tools, journal=journal, run_id="run")
    await again(world, journal)
    lines = await journal.read("again")
    kinds = [type(decode_event(line.text)) for line in lines]
    first = kinds.index(StepExpanded)
    assert kinds[first + 1] is StepSettled
    world.broken.clear()

    for count in range(1, first + 4):
        before, part = world.calls.copy(), MemoryJournal()
        run_log = await part.create("again")
        for line in lines[:count]:
            run_log.append(line.text)
        await run_log.durable()
        await run_log.aclose()
        async with dagrun.resume("again", journal=part, tools=world.tools) as running:
            result = await running.result()
        assert result.output == 60
        assert world.since(before) == {("f", 2): 1, ("total", "[10, 20, 30]"): 1}, kinds[count - 1]


async def test_a_substitute_of_an_element_is_taken_over_in_its_place() -> None:
    world = World("effectful", ("f", 2), ("f", 3))
    planner = Thinker(instead("a[1]", Step(id="other", tool="g", args={"n": 5})))
    plan = Plan(steps=[each("a", "f", [1, 2, 3])])
    journal = MemoryJournal()
    first = await dagrun.run(plan, tools=world.tools, journal=journal, run_id="run", planner=planner)
    assert (str(first.steps["other"].state), first.status) == ("succeeded", Status.FAILED)
    world.broken.clear()

    result, calls = await again(world, journal)

    assert (result.steps["a"].output, calls) == ([10, 50, 30], {("f", 3): 1})


async def test_a_planner_cannot_replace_a_for_each_whose_elements_took_effect() -> None:
    """Not even before it has its list in the new run: its substitute would call all elements."""
    world = World("effectful", ("f", 2), ("f", 9))
    steps = [
        Step(id="before", tool="f", args={"n": 9}, on_failure="skip"),
        each("a", "f", [1, 2], depends_on=["before"], on_failure="skip"),
    ]
    journal = MemoryJournal()
    await dagrun.run(Plan(steps=steps), tools=world.tools, journal=journal, run_id="run")

    swap = dagrun.Patch(edits=[dagrun.Replace(id="a", step=each("b", "f", [1, 2]))])
    async with dagrun.retry("run", journal=journal, tools=world.tools, new_id="again") as running:
        with pytest.raises(dagrun.errors.SpliceRefused, match="DR418"):
            await running.splice(swap)
        await running.result()

    assert world.calls["f", 1] == 1


async def test_elements_in_doubt_are_settled_before_a_retry() -> None:
    """As with separate steps: nobody knows whether the call took effect."""
    world = World("effectful")
    world_tools = world.tools

    @dagrun.tool(effect="effectful")
    async def pay(n: int) -> int:
        if n == 2:
            raise ConnectionError("cut")
        return n

    plan, journal = Plan(steps=[each("a", "pay", [1, 2], on_failure="stop")]), MemoryJournal()
    first = await dagrun.run(plan, tools=[*world_tools, pay], journal=journal, run_id="run")
    assert first.status is Status.UNKNOWN

    with pytest.raises(CannotResume, match=r"nobody knows whether these took effect: a, a\[1\]"):
        async with dagrun.retry("run", journal=journal, tools=[pay]):
            raise AssertionError


@pytest.mark.real_time
async def test_elements_are_taken_over_from_a_folder(tmp_path: Path) -> None:
    world = World("effectful", ("f", 2))
    plan = Plan(steps=[each("a", "f", [1, 2, 3])])

    result, calls = await tried(world, plan, journal=SQLiteJournal(tmp_path))

    assert (result.output, calls) == ([10, 20, 30], {("f", 2): 1})


async def test_an_output_with_a_registered_secret_is_not_on_the_record_of_the_retry() -> None:
    """It is left out as a whole, also where it is taken over."""
    secret = "s3cr3t-s3cr3t"
    calls: list[int] = []

    @dagrun.tool(effect="effectful")
    async def pay(n: int) -> str:
        calls.append(n)
        if calls.count(2) < 3 and n == 2:
            raise dagrun.ToolError("no")
        return f"paid with {secret}"

    journal, plan = MemoryJournal(), Plan(steps=[each("a", "pay", [1, 2])])
    await dagrun.run(plan, tools=[pay], journal=journal, run_id="run")
    for run_id, new_id in (("run", "second"), ("second", "third")):
        options: dict[str, Any] = {"tools": [pay], "new_id": new_id, "secrets": {"bank": secret}}
        async with dagrun.retry(run_id, journal=journal, **options) as running:
            await running.result()

    opening = decode_event((await journal.read("second"))[0].text)
    assert isinstance(opening, RunStarted)
    assert opening.opening is not None
    assert opening.opening.elements["a[0]"].value == Unavailable("it holds the secret bank")
    lines = [*await journal.read("second"), *await journal.read("third")]
    assert all(secret.encode() not in line.text for line in lines)
    assert sorted(calls) == [1, 2, 2, 2]


# The law --------------------------------------------------------------------------------------------------------------


@st.composite
def chains(draw: st.DrawFn) -> tuple[list[Step], set[tuple[str, Any]]]:
    """Draw for_each steps over a list, over each other or over a step's output, with single steps, and what fails."""
    count = draw(st.integers(1, 4))
    steps: list[Step] = []
    for place in range(draw(st.integers(1, 3))):
        over = draw(st.sampled_from([None, *(step.id for step in steps if step.for_each is not None)]))
        items: Any = f"${{{over}}}" if over is not None else [100 * place + number for number in range(1, count + 1)]
        tool, fails = draw(st.sampled_from(["f", "g"])), draw(st.sampled_from(["replan", "skip"]))
        steps.append(each(f"s{place}", tool, items, on_failure=fails, max_parallel=draw(st.sampled_from([None, 1, 2]))))
        if draw(st.booleans()):
            steps.append(Step(id=f"one{place}", tool=tool, args={"n": 1000 + place}))
    broken = st.tuples(st.sampled_from(["f", "g"]), st.sampled_from([None, 1, 2, 3, 101, 10, 20, 1010, 1000, 1001]))
    return steps, draw(st.sets(broken, max_size=5))


def _done(result: RunResult) -> set[str]:
    return {id_ for id_, step in result.steps.items() if step.state is State.SUCCEEDED}


@pytest.mark.parametrize("effect", EFFECTS)
def test_a_retry_calls_exactly_what_has_not_succeeded_or_gets_other_arguments(effect: str) -> None:
    """For any chain of for_each steps, over lists and over each other."""

    @settings(max_examples=1000 if NIGHT else 20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(chains())
    def law(case: tuple[list[Step], set[tuple[str, Any]]]) -> None:
        steps, broken = case
        world, journal = World(effect, *broken), MemoryJournal()

        async def play() -> tuple[RunResult, RunResult | None, dict[tuple[str, Any], int]]:
            first = await dagrun.run(Plan(steps=steps), tools=world.tools, journal=journal, run_id="run")
            if first.status is Status.SUCCEEDED:
                return first, None, {}
            world.broken.clear()
            second, calls = await again(world, journal)
            return first, second, calls

        first, second, _ = run_virtual(play)
        if second is None:
            return
        assert second.status is Status.SUCCEEDED, second.reason
        _check(effect, steps, first, second)

    law()


def _check(effect: str, steps: Sequence[Step], first: RunResult, second: RunResult) -> None:
    """Compare the elements that were called with those that had to be."""
    changed, fixed = set[str](), set[str]()
    for step in steps:
        over = step.for_each[2:-1] if isinstance(step.for_each, str) else ""
        parts = [id_ for id_ in second.steps if id_.startswith(f"{step.id}[")]
        is_kept = second.steps[step.id].reason.startswith("taken over")
        if is_kept:
            fixed.add(step.id)
            assert effect != "read" or first.steps[step.id].errors == (), step.id
            continue
        for id_ in parts or [step.id]:
            source = id_.replace(step.id, over) if over else ""
            before = first.steps.get(id_)
            is_done = before is not None and before.state is State.SUCCEEDED
            if source in changed and effect == "read":
                is_done = False
            was_called = bool(second.steps[id_].attempts)
            assert was_called is not is_done, (id_, first.steps.get(id_), second.steps[id_])
            if not is_done:
                changed.add(id_)

"""Reducers that take a stream: they begin with the for_each, and get each element in order as soon as it is there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

import anyio
import pytest
from pydantic import Field

import dagrun
from dagrun import Condition, Drop, MemoryJournal, PlanRefused, Replace, Status, Step, ToolError
from dagrun.errors import SpliceRefused
from dagrun.kernel.model.tool import make_tool
from replans import Thinker, nap, patch, start
from small_tools import AT_ONCE, ONCE, near, run, states, toolset

pytestmark = [pytest.mark.anyio, pytest.mark.both_backends]

SECONDS = [3.0, 1.0, 2.0]


class Reader:
    """Reducers, and what they were given at which time."""

    def __init__(self, each: float = 0.0) -> None:
        self.each = each
        self.taken: list[tuple[float, Any]] = []
        self.calls = 0

    async def gather(self, values: AsyncIterator[Any]) -> list[Any]:
        """Give all, with some work on each."""
        self.calls += 1
        found = []
        async for value in values:
            self.taken.append((anyio.current_time() - self.zero, value))
            await anyio.sleep(self.each)
            found.append(value)
        return found

    async def first_two(self, values: AsyncIterator[Any]) -> list[Any]:
        """Give the first two."""
        return [await anext(values), await anext(values)]

    def tools(self, **options: Any) -> tuple[Any, ...]:
        self.zero = anyio.current_time()
        return tuple(make_tool(tool, **{"effect": "pure", **options}) for tool in (self.gather, self.first_two))


def maps(id_: str = "pages", items: Any = None, **fields: Any) -> Step:
    """A for_each whose elements sleep for as long as their item says, and give it."""
    args = {"seconds": "${item}", "gives": "${item}"}
    return Step(**{"id": id_, "tool": "nap", "args": args, "for_each": SECONDS if items is None else items, **fields})


def reduces(source: str = "pages", tool: str = "gather", **fields: Any) -> Step:
    return Step(id="all", tool=tool, args={"values": f"${{{source}}}"}, **fields)


# When it starts, and what it gets ---------------------------------------------------------------------------------


async def test_elements_are_handed_over_in_order_as_they_end() -> None:
    """Its work on an element goes on beside the elements that are not there yet: 6 seconds in place of 9."""
    reader = Reader(each=1.0)
    live = await run(maps(items=[1.0, 2.0, 5.0]), reduces(), tools=reader.tools())

    assert (live.status, live.output, live.makespan) == (Status.SUCCEEDED, [1.0, 2.0, 5.0], near(6))
    assert reader.taken == [(near(1), 1.0), (near(2), 2.0), (near(5), 5.0)]
    assert live.steps["all"].attempts[0].started == near(0)
    assert live.critical_path == near(6)


async def test_the_order_is_that_of_the_list() -> None:
    reader = Reader()
    result = await run(maps(), reduces(), tools=reader.tools())

    assert result.output == SECONDS
    assert [at for at, _ in reader.taken] == [near(3), near(3), near(3)]


async def test_it_reads_the_last_of_a_chain_of_fans() -> None:
    reader = Reader(each=1.0)
    copies = maps("copies", "${pages}")
    result = await run(maps(items=[1.0, 5.0]), copies, reduces("copies"), tools=reader.tools())

    assert (result.output, result.makespan) == ([1.0, 5.0], near(11))
    assert reader.taken[0] == (near(2), 1.0)


@pytest.mark.parametrize("items", [[], None])
async def test_a_list_that_is_complete_is_a_stream_that_never_waits(items: Any) -> None:
    """A list in the plan, an empty for_each, and the output of a step that is none."""
    reader = Reader()
    tools = reader.tools()
    values = SECONDS if items is None else items
    given = Step(id="all", tool="gather", args={"values": values})
    single = Step(id="one", tool="echo", args={"value": values})
    of_step = Step(id="of_step", tool="gather", args={"values": "${one}"})
    of_fan = Step(id="of_fan", tool="gather", args={"values": "${pages}"})
    result = await run(given, single, of_step, maps(items=values), of_fan, tools=tools)

    assert result.output == {"all": values, "of_step": values, "of_fan": values}


async def test_it_may_stop_reading() -> None:
    """It has what it needs, and what comes later is not its business: also an element that fails."""
    rows = maps(items=[1.0, 2.0, "no"], args={"seconds": "${item}", "gives": "${item}"})
    result = await run(rows, reduces(tool="first_two"), tools=Reader().tools(), retry=ONCE)

    assert (states(result)["all"], states(result)["pages"]) == ("succeeded", "failed")
    assert result.steps["all"].output == [1.0, 2.0]


@pytest.mark.parametrize(
    ("step", "options"),
    [
        (reduces(deadline=60), {}),
        (reduces(pause="before"), {}),
        (reduces(when=Condition(ref="pages", op="min_length", value=1)), {}),
        (reduces(), {"effect": "idempotent"}),
        (reduces(), {"max_tokens": 5}),
        (reduces(), {"cache": "run"}),
        (reduces(fallback="first_two"), {}),
    ],
    ids=["deadline", "pause", "condition", "effect", "tokens", "cache", "fallback"],
)
async def test_some_wait_for_the_whole_list(step: Step, options: dict[str, Any]) -> None:
    """Where the call as a whole matters: a person sees it, it is compared, or it does something that stays."""
    tools = Reader().tools(**options)

    async def yes(question: Any) -> bool:
        return True

    result = await dagrun.run(dagrun.Plan(steps=[maps(), step]), tools=toolset(*tools), approver=yes)

    assert result.output == SECONDS
    assert result.steps["all"].attempts[0].started == near(3)


async def test_with_a_trust_boundary_nothing_comes_in_after_the_start() -> None:
    """Whose data a call gets is asked when it starts; a patch could bring other data into a stream that is read."""
    result = await run(maps(), reduces(), tools=Reader().tools(), flow=dagrun.Flow())

    assert result.output == SECONDS
    assert result.steps["all"].attempts[0].started == near(3)


# Failures -----------------------------------------------------------------------------------------------------------


async def test_an_element_that_fails_ends_it_as_it_would_with_the_list() -> None:
    """It is skipped, and so is what needs it; it is not tried again."""
    reader = Reader()
    after = Step(id="after", tool="echo", args={"value": "${all}"})
    result = await run(maps(items=[1.0, "no", 2.0]), reduces(), after, tools=reader.tools())

    assert result.status is Status.FAILED
    assert (states(result)["all"], states(result)["after"]) == ("skipped", "skipped")
    assert result.steps["all"].reason == "pages[1] failed"
    assert len(result.steps["all"].attempts) == reader.calls == 1


async def test_what_was_left_out_is_null_as_in_the_list() -> None:
    result = await run(maps(items=[1.0, "no", 2.0], on_failure="skip"), reduces(), tools=Reader().tools())

    assert result.output == [1.0, None, 2.0]


async def test_an_element_of_the_wrong_type_fails_the_call() -> None:
    async def total(values: AsyncIterator[float]) -> float:
        """Add."""
        return sum([value async for value in values])

    rows = maps(args={"seconds": "${item}", "gives": "text"})
    result = await run(rows, reduces(tool="total"), tools=(make_tool(total, effect="pure"),))

    assert (states(result)["all"], len(result.steps["all"].attempts)) == ("failed", 1)
    assert "total: values, pages[0]: element: Input should be a valid number" in result.steps["all"].reason


async def test_another_attempt_gets_all_elements_again() -> None:
    seen: list[list[float]] = []

    async def total(values: AsyncIterator[float]) -> float:
        """Fail after the second element, once."""
        seen.append([])
        async for value in values:
            seen[-1].append(value)
            if len(seen) == 1 and len(seen[-1]) == 2:
                raise ConnectionError("gone")
        return sum(seen[-1])

    result = await run(maps(), reduces(tool="total"), tools=(make_tool(total, effect="read"),))

    assert (result.output, seen) == (6.0, [[3.0, 1.0], SECONDS])


# Time and places ----------------------------------------------------------------------------------------------------


async def test_waiting_takes_no_place_and_no_time() -> None:
    """One place for all, and less time for a call than the elements take: neither is spent by waiting."""
    reader = Reader(each=0.5)
    result = await run(maps(), reduces(timeout=2.0), tools=reader.tools(), max_running=1)

    assert (result.status, result.output, reader.calls) == (Status.SUCCEEDED, SECONDS, 1)
    assert result.makespan == near(7.5)
    late = await run(maps(), reduces(timeout=1.2), tools=Reader(each=0.5).tools(), retry=ONCE)
    assert states(late)["all"] == "timed_out"


async def test_there_is_never_more_at_work_than_the_limit_says() -> None:
    now = most = 0

    async def work(seconds: float) -> float:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await anyio.sleep(seconds)
        now -= 1
        return seconds

    async def total(values: AsyncIterator[float]) -> float:
        """Add, with some work on each."""
        return sum([await work(value) async for value in values])

    rows = maps(tool="work", args={"seconds": "${item}"}, items=[1.0, 2.0, 1.0, 3.0, 1.0])
    tools = (make_tool(work, effect="read"), make_tool(total, effect="read"))
    for limit in (1, 2, 3):
        now = most = 0
        result = await run(rows, reduces(tool="total"), tools=tools, max_running=limit)
        assert (result.output, most <= limit, result.status) == (8.0, True, Status.SUCCEEDED)


async def test_elements_in_back_off_get_the_place_of_the_reader() -> None:
    """Nothing else is ready while an element waits to be tried again; then it needs the only place."""
    tries = 0

    async def flaky(seconds: float) -> float:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise ConnectionError("gone")
        return seconds

    rows = maps(tool="flaky", args={"seconds": "${item}"})
    tools = (make_tool(flaky, effect="read"), *Reader().tools())
    result = await run(rows, reduces(), tools=tools, max_running=1)

    assert (result.status, result.output) == (Status.SUCCEEDED, SECONDS)


async def test_it_waits_for_a_place_to_go_on() -> None:
    """The place of the element it has waited for goes to a step that was ready before."""
    reader = Reader(each=1.0)
    long = [nap(id_, 5.0, "gate") for id_ in ("a", "b", "c")]
    result = await run(maps(items=[3.0]), reduces(), nap("gate", 1.0), *long, tools=reader.tools(), max_running=3)

    assert result.status is Status.SUCCEEDED
    assert reader.taken == [(near(6), 3.0)]


async def test_a_ceiling_that_the_elements_need_ends_the_run_by_name() -> None:
    """The reader that waits for them does not make the run wait for ever."""
    result = await run(maps(), reduces(), tools=Reader().tools(), max_calls_by_tool={"nap": 2})

    assert result.status is Status.OVER_BUDGET
    assert "ceiling of 2 calls of nap is spent" in result.reason


async def test_it_is_cancelled_while_it_waits() -> None:
    reader = Reader()
    async with start([maps(), reduces()], None, *reader.tools()) as handle:
        await anyio.sleep(1.5)
        handle.cancel("all")
        result = await handle.result()
    assert (states(result)["all"], states(result)["pages"], result.makespan) == ("cancelled", "succeeded", near(3))


# People and resume --------------------------------------------------------------------------------------------------


async def test_a_run_waits_for_people_although_a_reader_runs_and_is_resumed() -> None:
    """The reader is let go: it begins anew with the elements that are on record."""
    reader, journal = Reader(), MemoryJournal()
    asked = maps("asked", [1.0], tool="nap_asked")

    async def nap_asked(seconds: float, gives: Any = None) -> Any:
        """Sleep."""
        await anyio.sleep(seconds)
        return gives

    tools = [*toolset(*reader.tools()), make_tool(nap_asked, effect="read", needs_approval=True)]
    plan = dagrun.Plan(steps=[maps(), asked.model_copy(update={"for_each": "${pages}"}), reduces("asked")])
    async with dagrun.start(plan, tools=tools, journal=journal, run_id="r") as handle:
        result = await handle.result()
    assert (result.status, result.steps["all"].state) == (Status.WAITING, "running")

    async def yes(question: Any) -> bool:
        return True

    async with dagrun.resume("r", journal=journal, tools=tools, approver=yes) as handle:
        again = await handle.result()
    assert (again.status, again.steps["all"].output, reader.calls) == (Status.SUCCEEDED, SECONDS, 2)


@pytest.mark.parametrize("reducer", ["gather", "echo_all"])
async def test_a_doubt_about_an_element_that_is_settled_later_opens_the_reader_again(reducer: str) -> None:
    """As it does a step that takes the list."""

    calls = 0

    async def pay(seconds: float) -> float:
        """Lose the connection in the first two calls for the second element."""
        nonlocal calls
        calls += seconds == 1.0
        if seconds == 1.0 and calls <= 2:
            raise ConnectionResetError("gone")
        return seconds

    async def echo_all(values: list[float]) -> list[float]:
        """Give all."""
        return values

    journal, tools = MemoryJournal(), [*Reader().tools(), make_tool(echo_all, effect="pure")]
    tools.append(make_tool(pay, effect="idempotent"))
    rows = maps(tool="pay", args={"seconds": "${item}"}, retry=AT_ONCE)
    plan = dagrun.Plan(steps=[rows, reduces(tool=reducer)])
    first = await dagrun.run(plan, tools=tools, journal=journal, run_id="r")
    assert (first.status, first.steps["all"].state) == (Status.UNKNOWN, "skipped")
    async with dagrun.resume("r", journal=journal, tools=tools) as handle:
        again = await handle.result()
    assert (again.status, again.steps["all"].output) == (Status.SUCCEEDED, SECONDS)


@pytest.mark.parametrize("has_journal", [True, False])
async def test_the_code_around_is_cancelled_while_it_waits_without_a_place(has_journal: bool) -> None:
    """All places are taken, and nobody would hand it one any more: it ends all the same, and can be resumed."""
    reader, journal = Reader(), MemoryJournal()
    tools = toolset(*reader.tools())
    long = [nap(id_, 5.0, "gate") for id_ in ("a", "b", "c")]
    plan = dagrun.Plan(steps=[maps(items=[4.0]), reduces(), nap("gate", 1.0), *long], output="all")
    kept: dict[str, Any] = {"journal": journal, "run_id": "r"} if has_journal else {}
    with anyio.move_on_after(1.5) as scope:
        await dagrun.run(plan, tools=tools, policy=dagrun.Policy(max_running=3), **kept)
    assert (scope.cancelled_caught, anyio.current_time() - reader.zero) == (True, near(1.5))
    if has_journal:
        async with dagrun.resume("r", journal=journal, tools=tools) as handle:
            result = await handle.result()
        assert (result.status, result.output) == (Status.SUCCEEDED, [4.0])


async def test_a_tool_may_give_up_waiting_and_ask_again() -> None:
    """Its own time limit takes nothing from the stream."""

    async def impatient(values: AsyncIterator[float]) -> list[Any]:
        """Wait for 0.4 seconds at a time."""
        found: list[Any] = []
        while True:
            with anyio.move_on_after(0.4) as scope:
                try:
                    found.append(await anext(values))
                except StopAsyncIteration:
                    return found
            if scope.cancelled_caught:
                found.append("late")

    tools = (make_tool(impatient, effect="read"),)
    for limit in (None, 1):
        result = await run(maps(), reduces(tool="impatient"), tools=tools, max_running=limit)
        assert [value for value in result.output if value != "late"] == SECONDS
        assert result.output.count("late") == (7 if limit is None else 0)


# Splices ------------------------------------------------------------------------------------------------------------


async def test_an_element_is_repaired_while_the_reader_waits_for_it() -> None:
    """Whatever it has taken before stays taken."""
    reader = Reader()
    mended = Replace(id="pages[1]", step=Step(id="mended", tool="nap", args={"seconds": 1.0, "gives": "new"}))
    planner = Thinker(patch(mended), seconds=4.0)
    async with start([maps(items=[1.0, "no", 2.0]), reduces()], planner, *reader.tools(), retry=ONCE) as handle:
        result = await handle.result()

    assert (result.status, result.output, reader.calls) == (Status.SUCCEEDED, [1.0, "new", 2.0], 1)
    assert [value for _, value in reader.taken] == [1.0, "new", 2.0]


async def test_an_element_that_it_has_taken_is_replaced() -> None:
    """It was left out, so it was taken as null; the call cannot give it back, and is made anew. That is no attempt."""
    reader = Reader()
    rows = maps(items=["no", 1.0, 5.0], on_failure="skip")
    async with start([rows, reduces()], None, *reader.tools(), retry=ONCE) as handle:
        await anyio.sleep(2.0)
        await handle.splice(patch(Replace(id="pages[0]", step=Step(id="new", tool="echo", args={"value": 7.0}))))
        result = await handle.result()

    assert (result.status, result.output) == (Status.SUCCEEDED, [7.0, 1.0, 5.0])
    assert [value for _, value in reader.taken] == [None, 1.0, 7.0, 1.0, 5.0]
    first, second = result.steps["all"].attempts
    assert first.decision.reason == "an element that it had taken was changed, so it is called anew"
    assert (str(first.outcome.state), str(second.outcome.state)) == ("cancelled", "succeeded")


@pytest.mark.parametrize("max_running", [None, 1])
async def test_a_call_that_returns_early_waits_until_what_it_took_as_null_is_final(max_running: int | None) -> None:
    """Else what it gives would depend on what was faster: its return, or the patch. It waits without a place."""

    async def first(values: AsyncIterator[Any]) -> Any:
        return await anext(values)

    def steps(*items: Any) -> list[Step]:
        return [maps(items=list(items), on_failure="skip"), reduces(tool="first")]

    tools = (*Reader().tools(), make_tool(first, effect="pure"))
    policy: dict[str, Any] = {"retry": ONCE, "max_running": max_running}
    async with start(steps("no", 5.0), None, *tools, **policy) as handle:
        await anyio.sleep(1.0)
        await handle.splice(patch(Replace(id="pages[0]", step=Step(id="new", tool="echo", args={"value": 7.0}))))
        replaced = await handle.result()
    kept = await run(*steps("no", 5.0), tools=tools, **policy)
    good = await run(*steps(1.0, 5.0), tools=tools, **policy)

    assert replaced.steps["all"].output == 7.0
    assert max_running is not None or len(replaced.steps["all"].attempts) == 2
    assert (kept.steps["all"].output, kept.steps["all"].ended) == (None, near(5))
    assert (good.steps["all"].output, good.steps["all"].ended) == (1.0, near(1) if max_running is None else near(6))
    assert kept.makespan == near(5)


async def test_a_call_that_is_busy_is_made_anew_when_it_returns() -> None:
    """What it returns was made of what is not so any more, and is not used."""
    reader = Reader(each=2.0)
    rows = maps(items=["no", 10.0], on_failure="skip")

    async def first_slowly(values: AsyncIterator[Any]) -> Any:
        value = await anext(values)
        await anyio.sleep(3.0)
        return value

    tools = (*reader.tools(), make_tool(first_slowly, effect="pure"))
    async with start([rows, reduces(tool="first_slowly")], None, *tools, retry=ONCE) as handle:
        await anyio.sleep(1.0)
        await handle.splice(patch(Replace(id="pages[0]", step=Step(id="new", tool="echo", args={"value": 7.0}))))
        result = await handle.result()

    assert (result.steps["all"].output, len(result.steps["all"].attempts)) == (7.0, 2)


async def test_the_list_is_not_taken_from_under_it() -> None:
    """Not alone: but both are replaced together, and what is dropped is stopped."""
    reader = Reader()
    async with start([maps(), reduces()], None, *reader.tools()) as handle:
        await anyio.sleep(0.5)
        for edit in (Replace(id="pages", step=maps("other", [1.0])), Drop(id="pages")):
            with pytest.raises(SpliceRefused, match=r"DR425|DR406"):
                await handle.splice(patch(edit))
        both = [Replace(id="pages", step=maps("other", [1.0])), Replace(id="all", step=_renamed("other"))]
        await handle.splice(patch(*both))
        result = await handle.result()

    assert (result.status, result.output, result.steps["all"].state) == (Status.SUCCEEDED, [1.0], "superseded")


def _renamed(source: str) -> Step:
    return reduces(source).model_copy(update={"id": "all2"})


async def test_a_plan_as_the_answer_begins_it_anew_with_its_list() -> None:
    """Its list is another one, so what it has taken is void."""
    reader = Reader()
    better = dagrun.Plan(steps=[maps(items=[1.0, 2.0]), reduces()])
    planner = Thinker(better, seconds=1.0)
    async with start([maps(items=[1.0, "no", 2.0]), reduces()], planner, *reader.tools(), retry=ONCE) as handle:
        result = await handle.result()

    assert (result.status, result.output) == (Status.SUCCEEDED, [1.0, 2.0])
    assert reader.calls == 2


# Contracts ------------------------------------------------------------------------------------------------------------


async def test_planners_see_a_list() -> None:
    tool = Reader().tools()[0]
    values = tool.arguments.schema["properties"]["values"]
    assert values == {"items": {}, "title": "Values", "type": "array"}


async def test_the_type_of_the_elements_is_checked_with_the_plan() -> None:
    async def total(values: AsyncIterator[float]) -> float:
        """Add."""
        return sum([value async for value in values])

    async def name(seconds: float) -> str:
        """Give a name."""
        return str(seconds)

    tools = (make_tool(total, effect="pure"), make_tool(name, effect="pure"))
    rows = maps(tool="name", args={"seconds": "${item}"})
    with pytest.raises(PlanRefused, match="DR304") as refused:
        await run(rows, reduces(tool="total"), tools=tools)
    assert "the elements of values" in str(refused.value)
    for values in (["a"], "text"):
        with pytest.raises(PlanRefused, match="DR205"):
            await run(Step(id="all", tool="total", args={"values": values}), tools=tools)


async def test_functions_that_cannot_take_a_stream_are_refused() -> None:
    def plain(values: AsyncIterator[float]) -> float:
        return 0.0

    async def two(a: AsyncIterator[float], b: AsyncIterator[float]) -> float:
        return 0.0

    async def optional(a: AsyncIterator[float] = dagrun.PROVIDED) -> float:
        return 0.0

    async def union(a: AsyncIterator[float] | None) -> float:
        return 0.0

    async def limited(a: Annotated[AsyncIterator[float], Field(min_length=1)]) -> float:
        return 0.0

    wrong = (
        (plain, "only an async function"),
        (two, "takes 2 streams"),
        (optional, "required"),
        (union, "a stream inside"),
    )
    for function, why in (*wrong, (limited, "takes no limits")):
        with pytest.raises(dagrun.errors.ContractError, match=why):
            make_tool(function, effect="pure")


async def test_a_reader_that_fails_by_itself_fails() -> None:
    async def picky(values: AsyncIterator[float]) -> float:
        """Refuse the second."""
        await anext(values)
        raise ToolError("no second, please")

    result = await run(maps(), reduces(tool="picky"), tools=(make_tool(picky, effect="pure"),))
    assert (states(result)["all"], result.steps["all"].reason) == ("failed", "no second, please")


async def test_as_stream_is_for_type_checkers_and_for_calls_of_the_function() -> None:
    total = Reader().tools()[0]
    rows = toolset()[0].each(SECONDS).step(seconds=dagrun.item, gives=dagrun.item)
    result = await dagrun.run(dagrun.plan(output=total.step(values=dagrun.as_stream(rows))))

    assert result.output == SECONDS
    assert await Reader().first_two(dagrun.as_stream([1, 2])) == [1, 2]

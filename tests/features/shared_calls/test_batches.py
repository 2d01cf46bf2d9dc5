"""Batches: several calls of a tool become one call of its batch form, and each step has its own result and failure."""

from __future__ import annotations

from typing import Annotated, Any

import anyio
import pytest

import dagrun
from dagrun import Batch, Plan, RetryRule, Step, ToolError
from dagrun.errors import ContractError
from dagrun.kernel.model.outcome import SharedCall
from dagrun.kernel.model.tool import make_tool
from shared_tools import Prices, nap, price, shared_of
from small_tools import SMALL_TOOLS, near, states

pytestmark = pytest.mark.anyio


async def test_calls_that_start_together_are_one_call() -> None:
    """Each step gets its own result, and the record says with how many others it was made."""
    prices = Prices()
    result = await prices.play(price("a", "x"), price("b", "yy"), price("c", "zzz"))

    assert (prices.batches, prices.alone) == ([["x", "yy", "zzz"]], [])
    assert [result.steps[step].output for step in "abc"] == [1, 2, 3]
    assert result.makespan == near(1.1)
    assert shared_of(result, "b") == SharedCall("batched", "a", 1, calls=3)


async def test_a_full_batch_does_not_wait() -> None:
    """The next call begins another batch."""
    prices = Prices()
    step = Step(id="each", tool="price", for_each=list("abcdefgh"), args={"item": "${item}"})
    result = await prices.play(step)

    assert [len(batch) for batch in prices.batches] == [4, 4]
    assert result.makespan == near(1.0)
    assert result.steps["each"].output == [1] * 8


async def test_who_comes_too_late_begins_another() -> None:
    """The first call of a batch waits for so long, and no longer."""
    prices = Prices()
    await prices.play(price("a", "x"), nap("t", 0.05), price("b", "y", "t"), nap("u", 0.2), price("c", "z", "u"))

    assert prices.batches == [["x", "y"], ["z"]]


async def test_a_batch_of_one_is_no_sharing() -> None:
    """It is made by the batch form all the same, and the record says nothing of others."""
    prices = Prices()
    result = await prices.play(price("a", "x"))

    assert (prices.batches, shared_of(result, "a")) == ([["x"]], None)


async def test_calls_of_a_batch_agree_where_they_have_to() -> None:
    """Those of other values begin a batch of their own."""
    prices = Prices(by=("currency",))
    await prices.play(
        price("a", "x"), price("b", "y", currency="USD"), price("c", "z"), price("d", "w", currency="USD")
    )

    assert sorted(sorted(batch) for batch in prices.batches) == [["w", "y"], ["x", "z"]]


async def test_one_call_of_a_batch_may_fail_alone() -> None:
    """An exception in the list is the failure of that call, and its retry is a new call."""
    asked: list[int] = []

    def act(calls: list[dict[str, Any]]) -> list[Any]:
        asked.append(len(calls))
        return [ToolError("busy", retryable=True) if len(asked) == 1 and c["item"] == "y" else 7 for c in calls]

    prices = Prices(act)
    result = await prices.play(price("a", "x"), price("b", "y"), retry=RetryRule(max_attempts=2, first_delay=0))

    assert prices.batches == [["x", "y"], ["y"]]
    assert states(result) == {"a": "succeeded", "b": "succeeded"}
    assert len(result.steps["b"].attempts) == 2


async def test_a_batch_that_fails_is_the_failure_of_all() -> None:
    """Each decides by its own rules."""
    prices = Prices(lambda calls: ToolError("down"))
    result = await prices.play(price("a", "x"), price("b", "y"))

    assert states(result) == {"a": "failed", "b": "failed"}
    assert result.steps["b"].failure is not None
    assert result.steps["b"].failure.message == "down"


@pytest.mark.parametrize(
    ("made", "said"), [([1], "1 results"), ({"a": 1}, "a dict"), (None, "a NoneType"), ("ab", "a str")]
)
async def test_a_batch_form_returns_one_result_for_each(made: Any, said: str) -> None:
    """Anything else would give a step the result of another."""
    result = await Prices(lambda calls: made).play(price("a", "x"), price("b", "y"))

    failure = result.steps["a"].failure
    assert failure is not None
    assert (str(failure.kind), f"its batch form returned {said} for 2 calls" in failure.message) == ("bad_output", True)


async def test_a_result_of_a_wrong_type_hurts_its_own_step_alone() -> None:
    """Each result is checked as that of a call of the tool."""

    async def size(item: str) -> int:
        return len(item)

    async def sizes(calls: list[dict[str, Any]]) -> list[Any]:
        return [len(call["item"]) if call["item"] != "bad" else "three" for call in calls]

    tool = make_tool(size, effect="pure", batch=Batch(sizes, within=0.0))
    steps = (Step(id="a", tool="size", args={"item": "x"}), Step(id="b", tool="size", args={"item": "bad"}))
    result = await dagrun.run(Plan(steps=steps), tools=[tool])

    assert states(result) == {"a": "succeeded", "b": "failed"}


async def test_usage_is_split() -> None:
    """No token is lost, and none is counted twice."""
    prices = Prices(tool_options={"max_tokens": 100})
    result = await prices.play(price("a", "x"), price("b", "y"), price("c", "z"), max_tokens=300)

    assert [result.steps[step].attempts[0].outcome.tokens for step in "abc"] == [31, 30, 30]  # type: ignore[union-attr]
    assert (result.tokens, result.cost) == (91, near(0.5))


async def test_a_cancelled_step_leaves_its_batch() -> None:
    """Before the batch is made, its call is left out; afterwards, the batch goes on for the others."""
    prices = Prices(max_calls=10)
    steps = (price("a", "x"), price("b", "y"), price("c", "z"))
    async with dagrun.start(Plan(steps=steps), tools=[prices.tool]) as run:
        await anyio.sleep(0.05)
        run.cancel("a")
        await anyio.sleep(0.5)
        run.cancel("b")
        result = await run.result()

    assert (prices.batches, prices.ends) == ([["y", "z"]], ["returned"])
    assert states(result) == {"a": "cancelled", "b": "cancelled", "c": "succeeded"}


async def test_a_batch_that_all_have_left_is_stopped() -> None:
    """Or not made at all."""
    prices = Prices(max_calls=10)
    async with dagrun.start(Plan(steps=(price("a", "x"), nap("t", 3.0))), tools=[*SMALL_TOOLS, prices.tool]) as run:
        await anyio.sleep(0.05)
        run.cancel("a")
        await run.result()
    assert prices.batches == []

    async with dagrun.start(Plan(steps=(price("a", "x"), price("b", "y"))), tools=[prices.tool]) as run:
        await anyio.sleep(0.5)
        run.cancel()
        await run.result()
    assert (prices.batches, prices.ends) == ([["x", "y"]], ["cancelled"])


async def test_a_cache_comes_before_the_batch() -> None:
    """Equal calls are one call of the batch, and what is known is not asked again."""
    prices = Prices(tool_options={"cache": "run"})
    result = await prices.play(
        price("a", "x"), price("b", "x"), price("c", "yy"), price("d", "x", "a"), price("e", "zzz", "a")
    )

    assert prices.batches == [["x", "yy"], ["zzz"]]
    assert [result.steps[step].output for step in "abcde"] == [1, 1, 2, 1, 3]
    kinds = [shared.how if (shared := shared_of(result, step)) is not None else "" for step in "abcde"]
    assert kinds[3:] == ["cached", ""]
    assert sorted(kinds[:3]) == ["batched", "batched", "joined"]


class _Client:
    rate = 3


async def test_a_batch_form_gets_dependencies() -> None:
    """Its own, whether or not the tool takes them."""

    async def cost(item: str) -> int:
        return 0

    async def costs(calls: list[dict[str, Any]], client: Annotated[_Client, dagrun.dep]) -> list[int]:
        return [client.rate * len(call["item"]) for call in calls]

    tool = make_tool(cost, effect="read", batch=Batch(costs, within=0.0))
    plan = Plan(steps=(Step(id="a", tool="cost", args={"item": "xx"}),))

    assert (await dagrun.run(plan, tools=[tool], deps=_Client())).output == 6
    with pytest.raises(dagrun.PlanRefused, match=r"DR218.*deps has no .*_Client"):
        await dagrun.run(plan, tools=[tool])


@pytest.mark.real_time
async def test_a_plain_batch_form_runs_in_a_thread() -> None:
    """The loop goes on meanwhile."""

    def size(item: str) -> int:
        return 0

    def sizes(calls: list[dict[str, Any]]) -> list[int]:
        return [len(call["item"]) for call in calls]

    tool = make_tool(size, effect="pure", batch=Batch(sizes, max_calls=5, within=60.0))  # full at once
    plan = Plan(steps=tuple(Step(id=f"s{n}", tool="size", args={"item": "x" * n}) for n in range(5)))
    result = await dagrun.run(plan, tools=[tool])

    assert [result.steps[f"s{n}"].output for n in range(5)] == [0, 1, 2, 3, 4]
    assert shared_of(result, "s3") == SharedCall("batched", "s0", 1, calls=5)


# Declarations ---------------------------------------------------------------------------------------------------------


async def _two(calls: list[Any], more: int) -> list[Any]:
    return calls


async def _all(calls: list[Any]) -> list[Any]:
    return calls


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        (_all, r"batch is a dagrun.Batch\(function"),
        (Batch(_two), "its batch form takes one parameter"),
        (Batch(3), "the batch form is a function"),  # type: ignore[arg-type]
        (Batch(_all, max_calls=1), "max_calls of a batch is from 2"),
        (Batch(_all, within=-1.0), "within of a batch is in seconds"),
        (Batch(_all, by=("colour",)), "by= of a batch lists parameters of the tool, got colour"),
        (Batch(_all, by="item"), "by= of a batch lists parameters of the tool, got item"),  # type: ignore[arg-type]
    ],
)
def test_a_batch_that_cannot_work_is_refused_where_it_is_declared(batch: Any, said: str) -> None:
    """Not in the middle of a run."""

    async def price(item: str) -> int:
        return 0

    with pytest.raises(ContractError, match=said):
        make_tool(price, effect="read", batch=batch)


def test_a_batch_form_does_not_run_in_a_worker_process() -> None:
    """The option would be ignored, so it is refused."""

    def price(item: str) -> int:
        return 0

    with pytest.raises(ContractError, match="executor='process' does not; omit one"):
        make_tool(price, effect="read", executor="process", batch=Batch(_all))

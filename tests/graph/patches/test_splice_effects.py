"""Splices and the outside world: what may be stopped, what is in doubt then, and by which key a call is known."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from dagrun import Add, Drop, Replace, RetryRule, Status, Step, ToolContext, ToolError, Verdict
from dagrun.errors import SpliceRefused
from dagrun.kernel.model.tool import AnyTool, make_tool
from dagrun.kernel.runtime.steps.attempt import idempotency_key
from replans import Thinker, fails, nap, patch, start, uses
from small_tools import near, scripted, states

pytestmark = pytest.mark.anyio

CHANGES = ("idempotent", "effectful")


class Till:
    """A tool that changes the world, and keeps the keys of its calls.

    Args:
        acts: What each call does: raises an exception, or returns the rest; the last goes on for ever.
        name: Of the tool.
        effect: Of the tool.
        seconds: That each call takes.
    """

    def __init__(self, *acts: Any, name: str = "pay", effect: Any = "idempotent", seconds: float = 0.0) -> None:
        self.keys: list[str] = []
        self.called: list[Any] = []
        self._acts = acts
        self._seconds = seconds
        self.tool: AnyTool = make_tool(self._pay, name=name, effect=effect)

    async def _pay(self, context: ToolContext, value: Any = None) -> Any:
        act = self._acts[min(len(self.keys), len(self._acts) - 1)]
        self.keys.append(context.idempotency_key)
        self.called.append(value)
        await anyio.sleep(self._seconds)
        if isinstance(act, BaseException):
            raise act
        return act


def _pay(id_: str, value: Any = 10, tool: str = "pay", **fields: Any) -> Step:
    return Step(id=id_, tool=tool, args={"value": value}, **fields)


def _key(root: str, generation: int = 0, tool: str = "pay") -> str:
    return idempotency_key("run", root, tool, generation)


NOTHING = ToolError("surely not")
DOUBT = RuntimeError("who knows")
BUSY = ToolError("busy", retryable=True, retry_after=5)


# Stopping what changes the world ----------------------------------------------------------------------------


@pytest.mark.parametrize("effect", CHANGES)
@pytest.mark.parametrize("edit", [Drop(id="x"), Replace(id="x", step=fails("y"))], ids=["drop", "replace"])
async def test_a_running_effect_is_not_stopped_unless_the_patch_says_so(effect: str, edit: Any) -> None:
    """Stopped, it is in doubt: that outranks that the plan does without it, and all else that the run could say."""
    till = Till("paid", effect=effect, seconds=3.0)

    async with start([_pay("x"), nap("a", 4.0)], None, till.tool) as run:
        await anyio.sleep(1)
        with pytest.raises(SpliceRefused, match=r"DR405 edits\[0\].cancel: step x runs pay"):
            await run.splice(patch(edit))
        assert run.states["x"] == "running"
        await run.splice(patch(edit.model_copy(update={"cancel": True})))
        result = await run.result()

    assert (result.steps["x"].state, result.steps["x"].ended) == ("unknown", near(1))
    assert (result.status, result.makespan) == (Status.UNKNOWN, near(4))
    assert result.reason == "it is not known whether these took effect: x"


async def test_an_effect_that_vouches_for_itself_is_superseded() -> None:
    """A tool that is stopped in time can say that nothing has happened."""

    async def pay() -> None:
        try:
            await anyio.sleep(5)
        except anyio.get_cancelled_exc_class():
            raise NOTHING from None

    tool = make_tool(pay, effect="effectful")

    async with start([Step(id="x", tool="pay"), nap("a", 2.0)], None, tool) as run:
        await anyio.sleep(1)
        await run.splice(patch(Drop(id="x", cancel=True)))
        result = await run.result()

    assert (result.steps["x"].state, result.status) == ("superseded", Status.SUCCEEDED)


async def test_an_effect_that_has_not_begun_is_simply_dropped() -> None:
    till = Till("paid", effect="effectful")

    async with start([nap("a", 1.0), _pay("x", depends_on=["a"])], None, till.tool) as run:
        await run.splice(patch(Drop(id="x")))
        result = await run.result()

    assert (till.keys, result.steps["x"].state, result.status) == ([], "superseded", Status.SUCCEEDED)


@pytest.mark.parametrize("effect", CHANGES)
async def test_between_two_attempts_that_did_nothing_there_is_nothing_to_stop(effect: str) -> None:
    """The tool has vouched for it, and the next attempt is dropped."""
    till = Till(BUSY, effect=effect)

    async with start([_pay("x"), nap("a", 9.0)], None, till.tool) as run:
        await anyio.sleep(1)
        await run.splice(patch(Drop(id="x")))
        result = await run.result()

    assert (len(till.keys), result.steps["x"].state, result.status) == (1, "superseded", Status.SUCCEEDED)


async def test_between_two_attempts_one_of_which_may_have_gone_through_there_is_a_doubt() -> None:
    """An idempotent call that was lost would be repeated with the same key; dropped, it stays unknown."""
    till = Till(TimeoutError(), effect="idempotent")

    async with start([_pay("x", retry=RetryRule(first_delay=50)), nap("a", 9.0)], None, till.tool, seed=1) as run:
        await anyio.sleep(1)
        assert run.states["x"] == "ready"
        with pytest.raises(SpliceRefused, match="DR405"):
            await run.splice(patch(Drop(id="x")))
        await run.splice(patch(Drop(id="x", cancel=True)))
        result = await run.result()

    assert (len(till.keys), result.steps["x"].state, result.status) == (1, "unknown", Status.UNKNOWN)


async def test_a_doubtful_element_that_is_dropped_leaves_its_for_each_in_doubt() -> None:
    till = Till("paid", effect="effectful", seconds=3.0)

    async with start([_pay("x", "${item}", for_each=[1, 2]), uses("sum", "x")], None, till.tool) as run:
        await anyio.sleep(1)
        await run.splice(patch(Drop(id="x[0]", cancel=True)))
        result = await run.result()

    assert states(result) == {"x": "unknown", "sum": "skipped", "x[0]": "unknown", "x[1]": "succeeded"}
    assert result.reason == "it is not known whether these took effect: x"


class Reader:
    """A critic that takes its time."""

    name = "reader"

    async def review(self, step: Step, outcome: Any) -> Verdict:
        await anyio.sleep(5)
        return Verdict("pass")


async def test_a_step_whose_output_is_being_reviewed_is_dropped() -> None:
    """The review is stopped. What the call did, it did: a substitute may not do it again."""
    till = Till("paid", effect="idempotent")

    async with start([_pay("x"), nap("a", 2.0)], None, till.tool, critics=[Reader()]) as run:
        await anyio.sleep(1)
        assert run.states["x"] == "running"
        with pytest.raises(SpliceRefused, match="DR405"):
            await run.splice(patch(Drop(id="x")))
        with pytest.raises(SpliceRefused, match="DR418"):
            await run.splice(patch(Replace(id="x", step=_pay("y", 11), cancel=True)))
        did = await run.splice(patch(Drop(id="x", cancel=True)))
        result = await run.result()

    assert (did.cancelled, result.steps["x"].state, result.steps["x"].is_gone) == (("x",), "superseded", True)
    assert result.makespan == near(7)  # the review of a


# Keys -------------------------------------------------------------------------------------------------------


async def test_a_substitute_is_known_by_the_key_of_the_step_at_the_end_of_the_chain() -> None:
    """Nothing was called under it, so nothing can have been applied: the key is the same, whatever it calls."""
    till, other = Till("paid"), Till("paid", name="other")

    async with start([nap("a", 2.0), _pay("x", depends_on=["a"])], None, till.tool, other.tool, run_id="run") as run:
        await run.splice(patch(Replace(id="x", step=_pay("y", 11, depends_on=["a"]))))
        await run.splice(patch(Replace(id="y", step=_pay("z", 12)), Add(step=_pay("o", tool="other"))))
        await run.result()

    assert till.keys == [_key("x")]
    assert other.keys == [_key("o", tool="other")]


async def test_after_a_call_that_surely_did_nothing_the_substitute_is_another_call() -> None:
    """A service that has seen the key must not take the new call for the old one."""
    till = Till(NOTHING, NOTHING, "paid")

    async with start([_pay("x"), nap("a", 2.0)], None, till.tool, run_id="run") as run:
        await anyio.sleep(1)
        await run.splice(patch(Replace(id="x", step=_pay("y", 11))))
        await anyio.sleep(0.5)
        await run.splice(patch(Replace(id="y", step=_pay("z", 12))))
        await run.result()

    assert till.keys == [_key("x", 0), _key("x", 1), _key("x", 2)]


async def test_after_a_call_that_may_have_been_applied_the_substitute_makes_the_same_call() -> None:
    """With the same key, so that it is applied once; and when it succeeds, the doubt is gone."""
    till = Till(DOUBT, "paid")

    async with start([_pay("x"), nap("a", 2.0)], None, till.tool, run_id="run") as run:
        await anyio.sleep(1)
        assert run.states["x"] == "unknown"
        await run.splice(patch(Replace(id="x", step=_pay("y"))))
        result = await run.result()

    assert till.keys == [_key("x"), _key("x")]
    assert (result.status, result.steps["x"].state) == (Status.SUCCEEDED, "unknown")


async def test_elements_of_a_substitute_make_the_calls_of_the_elements_before() -> None:
    """A for_each over the same list: each element has the key that it had."""
    till = Till("paid", DOUBT, "paid")
    each: dict[str, Any] = {"value": "${item}", "for_each": [1, 2]}

    async with start([_pay("x", **each), nap("a", 2.0)], None, till.tool, run_id="run") as run:
        await anyio.sleep(1)
        assert run.states["x"] == "unknown"
        await run.splice(patch(Replace(id="x", step=_pay("y", **each))))
        result = await run.result()

    assert sorted(till.keys) == sorted([_key("x[0]"), _key("x[1]")] * 2)
    assert result.status == Status.SUCCEEDED


async def test_the_substitute_of_an_element_inherits_its_key() -> None:
    till = Till("paid", NOTHING, "paid", seconds=0.5)
    slow = [1, 2, 3]

    async with start([_pay("x", "${item}", for_each=slow, max_parallel=1)], None, till.tool, run_id="run") as run:
        await anyio.sleep(0.75)
        await run.splice(patch(Replace(id="x[2]", step=_pay("y", 11))))
        await run.result()

    assert till.keys == [_key("x[0]"), _key("x[1]"), _key("x[2]")]
    assert till.called == [1, 2, 11]


# Frozen calls -----------------------------------------------------------------------------------------------


def _sites(effect: str) -> Any:
    """A run in which the call of x may have been applied, and y depends on nothing."""
    till = Till(DOUBT, effect=effect)
    other = Till("paid", name="other", effect=effect)
    look = scripted("look", ToolError("cannot see"))
    return start([_pay("x"), nap("a", 3.0)], None, till.tool, other.tool, look, run_id="run")


@pytest.mark.parametrize(
    ("effect", "step", "fits"),
    [
        ("idempotent", _pay("y"), True),
        ("idempotent", _pay("y", 10.0), False),
        ("idempotent", _pay("y", tool="other"), False),
        ("idempotent", _pay("y", for_each=[1]), False),
        ("idempotent", Step(id="y", tool="look"), True),
        ("effectful", _pay("y"), False),
        ("effectful", _pay("y", 11), False),
        ("effectful", _pay("y", tool="other"), False),
        ("effectful", Step(id="y", tool="look"), True),
    ],
)
async def test_after_a_possible_effect_only_the_same_call_may_follow_or_one_that_looks(
    effect: str, step: Step, fits: bool
) -> None:
    async with _sites(effect) as run:
        await anyio.sleep(1)
        assert run.states["x"] == "unknown"
        if fits:
            await run.splice(patch(Replace(id="x", step=step)))
        else:
            with pytest.raises(SpliceRefused, match=r"^1 problem:\nDR418 edits\[0\].step.tool: x may have taken"):
                await run.splice(patch(Replace(id="x", step=step)))


@pytest.mark.parametrize("effect", CHANGES)
async def test_looking_in_between_does_not_thaw_the_call(effect: str) -> None:
    """The look has failed, so nobody knows more than before: neither the arguments nor the key may change."""
    async with _sites(effect) as run:
        await anyio.sleep(1)
        await run.splice(patch(Replace(id="x", step=Step(id="look", tool="look"))))
        await anyio.sleep(0.5)
        assert run.states["look"] == "failed"
        with pytest.raises(SpliceRefused, match=r"DR418.*x may have taken effect, so y must make the same call"):
            await run.splice(patch(Replace(id="look", step=_pay("y", 11))))
        if effect == "idempotent":
            await run.splice(patch(Replace(id="look", step=_pay("y"))))
        result = await run.result()

    assert result.status == Status.UNKNOWN


async def test_a_look_that_succeeds_gives_its_value_and_the_doubt_stays() -> None:
    """Whoever needs the value goes on; a person says in the end whether the call took effect."""
    look = scripted("look", {"paid": True})
    till = Till(DOUBT, effect="effectful")
    steps = [_pay("x"), uses("receipt", "x"), nap("a", 3.0)]

    async with start(steps, Thinker(seconds=2.0), till.tool, look) as run:
        await anyio.sleep(1)
        await run.splice(patch(Replace(id="x", step=Step(id="look", tool="look"))))
        result = await run.result()

    assert (result.status, result.steps["receipt"].output) == (Status.UNKNOWN, {"paid": True})


@pytest.mark.parametrize("second", [NOTHING, DOUBT], ids=["nothing", "doubt"])
async def test_a_for_each_of_effects_is_not_done_again(second: Exception) -> None:
    """What its elements have done would be done twice, under other keys; those that failed are replaced one by one."""
    till = Till("paid", second, "paid", effect="effectful")
    step = _pay("x", "${item}", for_each=[1, 2])

    async with start([step, nap("a", 3.0)], Thinker(seconds=2.0), till.tool) as run:
        await anyio.sleep(1)
        with pytest.raises(SpliceRefused, match="DR418"):
            await run.splice(patch(Replace(id="x", step=_pay("y", "${item}", for_each=[2]))))
        if second is NOTHING:
            await run.splice(patch(Replace(id="x[1]", step=_pay("y", "${item}"))))
        result = await run.result()

    assert till.called == ([1, 2, 2] if second is NOTHING else [1, 2])
    assert result.status == (Status.SUCCEEDED if second is NOTHING else Status.UNKNOWN)


async def test_a_doubt_about_an_element_outlives_its_substitute() -> None:
    """The same call again has surely done nothing; what the first one did, nobody knows as much as before."""
    till = Till(DOUBT, NOTHING)

    async with start([_pay("x", "${item}", for_each=[1]), nap("a", 3.0)], Thinker(seconds=2.0), till.tool) as run:
        await anyio.sleep(1)
        await run.splice(patch(Replace(id="x[0]", step=_pay("y", "${item}"))))
        result = await run.result()

    assert (result.status, len(till.keys)) == (Status.UNKNOWN, 2)
    assert "x[0]" in result.reason


async def test_a_doubt_travels_along_a_chain_of_substitutes() -> None:
    """Two of them do nothing; the third succeeds, and that settles what the first has left open."""
    till = Till(DOUBT, NOTHING, "paid")

    async with start([_pay("x"), nap("a", 3.0)], None, till.tool, run_id="run") as run:
        await anyio.sleep(1)
        await run.splice(patch(Replace(id="x", step=_pay("y"))))
        await anyio.sleep(0.5)
        await run.splice(patch(Replace(id="y", step=_pay("z"))))
        result = await run.result()

    assert till.keys == [_key("x")] * 3
    assert result.status == Status.SUCCEEDED


async def test_a_slow_call_that_is_replaced_by_itself_is_known_by_one_key() -> None:
    """It was stopped in the middle; the same call goes on under the same key."""
    slow = Till("paid", seconds=3.0)

    async with start([_pay("x"), uses("receipt", "x")], None, slow.tool, run_id="run") as run:
        await anyio.sleep(1)
        await run.splice(patch(Replace(id="x", step=_pay("y"), cancel=True)))
        result = await run.result()

    assert slow.keys == [_key("x"), _key("x")]
    assert (result.output, result.status, result.makespan) == ("paid", Status.SUCCEEDED, near(4))

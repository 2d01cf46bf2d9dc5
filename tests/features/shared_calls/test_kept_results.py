"""Kept results of tools: which calls are left out, for how long, and what is on record of it."""

from __future__ import annotations

import threading
from typing import Annotated, Any

import anyio
import pytest
from pydantic import SecretStr

import dagrun
from dagrun import Artifact, Condition, Engine, MemoryJournal, Plan, Step, ToolContext, ToolError
from dagrun.errors import ContractError
from dagrun.kernel.model.outcome import SharedCall
from dagrun.kernel.model.tool import make_tool
from judges import Judge
from shared_tools import Counted, look, nap, play, shared_of
from small_tools import AT_ONCE, near, states

pytestmark = pytest.mark.anyio


async def test_an_equal_call_later_in_the_run_is_not_made() -> None:
    """The second step gets the result at once, and its record says whose it is."""
    counted = Counted()
    result = await play(counted, look("a"), look("b", "a"), look("c", "b", about="y"))

    assert counted.calls == ["x", "y"]
    assert (result.steps["a"].output, result.steps["b"].output, result.steps["c"].output) == ("x 1", "x 1", "y 2")
    assert result.makespan == near(2.0)
    assert shared_of(result, "a") is None
    assert shared_of(result, "b") == SharedCall("cached", "a", 1)


async def test_without_a_cache_every_call_is_made() -> None:
    """Nothing is shared that was not declared."""
    counted = Counted(cache=None)
    result = await play(counted, look("a"), look("b", "a"), look("c", "a"))

    assert counted.calls == ["x", "x", "x"]
    assert shared_of(result, "b") is None


async def test_the_order_of_arguments_does_not_count() -> None:
    """Two planners write the same call in two ways."""
    calls: list[tuple[int, int]] = []

    async def add(a: int, b: int) -> int:
        calls.append((a, b))
        return a + b

    plan = Plan(
        steps=(
            Step(id="a", tool="add", args={"a": 1, "b": 2}),
            Step(id="b", tool="add", args={"b": 2, "a": 1}, depends_on=("a",)),
        )
    )
    await dagrun.run(plan, tools=[make_tool(add, effect="pure", cache="run")])

    assert calls == [(1, 2)]


async def test_results_of_a_run_end_with_it() -> None:
    """Another run of the engine makes the call itself."""
    counted = Counted()
    async with Engine() as engine:
        await play(counted, look("a"), engine=engine)
        result = await play(counted, look("a"), engine=engine)
        assert engine._features.results is not None
        assert "0 results, 0 of" in repr(engine._features.results)

    assert result.output == "x 2"


async def test_results_of_an_engine_serve_its_other_runs() -> None:
    """The record names the run that made the call."""
    counted = Counted(cache="engine")
    async with Engine() as engine:
        first = await play(counted, look("a"), engine=engine)
        second = await play(counted, look("b"), engine=engine)

    assert (len(counted.calls), second.output) == (1, "x 1")
    assert shared_of(second, "b") == SharedCall("cached", "a", 1, run=first.run_id)


async def test_results_are_kept_for_so_many_seconds() -> None:
    """After that the call is made again, and the new result is kept."""
    counted = Counted(cache=10.0)
    async with Engine() as engine:
        await play(counted, look("a"), engine=engine)
        await anyio.sleep(9.0)
        assert (await play(counted, look("a"), engine=engine)).output == "x 1"
        await anyio.sleep(1.5)
        assert (await play(counted, look("a"), engine=engine)).output == "x 2"
        assert (await play(counted, look("a"), engine=engine)).output == "x 2"


async def test_failures_are_not_kept() -> None:
    """The retry is a new call, and its result is kept."""
    counted = Counted(acts={1: ToolError("busy", retryable=True)})
    result = await play(counted, look("a"), look("b", "a"), retry=AT_ONCE)

    assert len(counted.calls) == 2
    assert (result.steps["b"].output, shared_of(result, "b")) == ("x 2", SharedCall("cached", "a", 2))


async def test_surprising_results_are_not_kept() -> None:
    """The next step may find the world as it should be; and its planner has to hear of it if not."""

    def surprise(context: ToolContext) -> str:
        context.surprise("ten times as many")
        return "odd"

    counted = Counted(acts={1: surprise})
    result = await play(counted, look("a"), look("b", "a"))

    assert (result.steps["a"].output, result.steps["b"].output) == ("odd", "x 2")


async def test_a_refused_result_is_dropped() -> None:
    """Whoever calls next, such as a step that a planner puts in its place, would otherwise be given it for ever."""
    counted = Counted(acts={1: "bad"})
    condition = Condition(ref="${b}", op="!=", value="bad")
    result = await play(counted, look("a"), look("b", "a", success=condition), nap("t", 5.0), look("c", "t"))

    assert states(result) == {"a": "succeeded", "b": "failed", "t": "succeeded", "c": "succeeded"}
    assert (result.steps["a"].output, result.steps["c"].output) == ("bad", "x 2")
    assert (shared_of(result, "b"), shared_of(result, "c")) == (SharedCall("cached", "a", 1), None)


async def test_a_result_that_a_critic_refuses_is_dropped() -> None:
    """The same for a verdict, which comes later than the result."""
    counted = Counted(acts={1: "bad"})
    critics = [Judge("fail", step="b")]
    result = await play(counted, look("a"), look("b", "a"), nap("t", 5.0), look("c", "t"), critics=critics)

    assert states(result) == {"a": "succeeded", "b": "failed", "t": "succeeded", "c": "succeeded"}
    assert (result.steps["a"].output, result.steps["c"].output) == ("bad", "x 2")


async def test_what_is_kept_is_bound() -> None:
    """The results that were not used for longest go first, and one that is too large is not kept at all."""
    counted = Counted(seconds=0.1, cache="engine", acts={9: "y" * 9000})
    async with Engine(max_cache_bytes=6000) as engine:
        for number in range(8):
            await play(counted, look("a", about=f"{number}" * 700), engine=engine)
            await play(counted, look("a", about="0" * 700), engine=engine)  # used all the time
        cache = engine._features.results
        assert cache is not None
        assert cache._bytes <= 6000
        assert len(counted.calls) == 8
        await play(counted, look("a", about="1" * 700), engine=engine)
        await play(counted, look("a", about="1" * 700), engine=engine)
        assert len(counted.calls) == 10  # the second time as well: the result was too large


async def test_no_room_keeps_nothing() -> None:
    """Equal calls at the same time are one call still."""
    counted = Counted(cache="engine")
    async with Engine(max_cache_bytes=0) as engine:
        result = await play(counted, look("a"), look("b"), look("c", "b"), engine=engine)

    assert len(counted.calls) == 2
    assert shared_of(result, "b") == SharedCall("joined", "a", 1)


async def test_other_dependencies_are_another_call() -> None:
    """A result that one client was given is nothing for the run of another."""
    calls: list[str] = []

    async def who(client: Annotated[_Client, dagrun.dep]) -> str:
        calls.append(client.name)
        return client.name

    tool = make_tool(who, effect="read", cache="engine")
    plan = Plan(steps=(Step(id="a", tool="who"),))
    ann, bob = _Client("ann"), _Client("bob")
    async with Engine() as engine:
        outputs = [(await engine.run(plan, tools=[tool], deps=deps)).output for deps in (ann, bob, ann)]

    assert (outputs, calls) == (["ann", "bob", "ann"], ["ann", "bob"])


class _Client:
    def __init__(self, name: str) -> None:
        self.name = name


async def test_other_secrets_are_another_call() -> None:
    """The handle is the same text in both runs; the key holds a keyed hash of the value, and no secret."""
    calls: list[str] = []

    async def who(key: SecretStr) -> int:
        calls.append(key.get_secret_value())
        return len(calls)

    tool = make_tool(who, effect="read", cache="engine")
    plan = Plan(steps=(Step(id="a", tool="who", args={"key": {"$secret": "key"}}),))
    async with Engine() as engine:
        outputs = [
            (await engine.run(plan, tools=[tool], secrets={"key": value})).output
            for value in ("of ann: 1234567", "of bob: 7654321", "of ann: 1234567")
        ]
        assert engine._features.results is not None
        assert b"1234567" not in repr(engine._features.results._entries).encode()

    assert outputs == [1, 2, 1]


async def test_a_file_stays_in_its_run() -> None:
    """Another run has no such file, so it makes the call; inside the run the artifact is shared."""
    calls: list[str] = []

    async def draw(context: ToolContext) -> Artifact:
        calls.append(context.step)
        return context.artifacts.save(b"picture", media_type="image/png", name="a.png")

    tool = make_tool(draw, effect="read", cache="engine")
    plan = Plan(steps=(Step(id="a", tool="draw"), Step(id="b", tool="draw", depends_on=("a",))))
    async with Engine() as engine:
        for _ in range(2):
            result = await engine.run(plan, tools=[tool])
            assert result.steps["a"].output == result.steps["b"].output
            assert shared_of(result, "b") == SharedCall("cached", "a", 1)

    assert calls == ["a", "a"]


async def test_a_hit_costs_an_attempt_and_no_tokens() -> None:
    """The ceilings count what was used: the second step may use 100 tokens, and used none."""
    counted = Counted(tokens=60, max_tokens=100)
    result = await play(counted, look("a"), look("b", "a"), look("c", "b"), max_tokens=160)

    assert set(states(result).values()) == {"succeeded"}
    assert result.tokens == 60


async def test_the_record_tells_it() -> None:
    """After a crash, too: the outcome is read back as it was, and inspecting and replaying show it."""
    counted, journal = Counted(), MemoryJournal()
    result = await play(counted, look("a"), look("b", "a"), journal=journal)
    past = await dagrun.replay(result.run_id, journal=journal)

    outcome = past.steps["b"].attempts[0].outcome
    assert outcome is not None
    assert outcome.shared == SharedCall("cached", "a", 1)
    ends = [event.to_dict() for event in past.events if type(event).__name__ == "AttemptEnded"]
    assert ends[1]["outcome"]["shared"] == {"how": "cached", "step": "a", "attempt": 1, "run": "", "calls": 1}


async def test_approval_is_asked_for_every_step() -> None:
    """The gate is at the call, also at one that is then left out."""
    asked: list[str] = []

    async def approve(question: dagrun.Question) -> dagrun.Answer:
        asked.append(question.step)
        return dagrun.Answer("approve")

    counted = Counted(needs_approval=True)
    await play(counted, look("a"), look("b", "a"), approver=approve)

    assert (asked, len(counted.calls)) == (["a", "b"], 1)


@pytest.mark.real_time
async def test_threads_share_an_engine(anyio_backend_name: str) -> None:
    """A result that one loop has put there is found by another; the age is told by the clock that both have."""
    counted = Counted(seconds=0.0, cache=60)
    outputs: list[Any] = []
    engine = Engine()

    async def other() -> None:
        outputs.append((await play(counted, look("b"), engine=engine)).output)

    async with engine:
        await play(counted, look("a"), engine=engine)
        thread = threading.Thread(target=anyio.run, args=(other,), kwargs={"backend": anyio_backend_name})
        thread.start()
        await anyio.to_thread.run_sync(thread.join)

    assert (outputs, len(counted.calls)) == (["x 1"], 1)


# Declarations ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [0, -1, True, "day", float("inf"), float("nan"), (1,)])
def test_a_cache_has_three_forms(kept: Any) -> None:
    """Anything else is refused where it is written."""
    with pytest.raises(ContractError, match='cache is "run", "engine", or seconds above 0'):
        Counted(cache=kept)


@pytest.mark.parametrize("effect", ["effectful", "idempotent", None])
@pytest.mark.parametrize("option", ["cache", "batch"])
def test_an_effect_is_not_left_out(effect: str | None, option: str) -> None:
    """The error says which effect it is, or that none was declared."""
    options: dict[str, Any] = {"cache": None, "effect": effect}
    options[option] = "run" if option == "cache" else dagrun.Batch(_all)
    said = "it declares no effect" if effect is None else f"its effect is {effect}"
    with pytest.raises(ContractError, match=f"{option} is for tools of effect pure or read.*{said}"):
        Counted(**options)


async def _all(calls: list[dict[str, Any]]) -> list[Any]:
    return calls


def test_an_object_in_memory_is_not_kept() -> None:
    """It belongs to the step that made it, and nobody knows its size."""

    async def load() -> dagrun.Object[dict[str, int]]:
        return {}

    with pytest.raises(ContractError, match="returns an object in memory"):
        make_tool(load, effect="read", cache="run")

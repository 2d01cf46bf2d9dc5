"""``compose=``: the answer of a run, composed from its results as the last step, and streamed to the host."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import dagrun
from dagrun import Answer, MemoryJournal, ModelPlanner, Plan, Policy, RuleCritic, Status, Step, ToolContext, ToolError
from dagrun.errors import ContractError
from persons import Person
from scripted_model import Said, ScriptedModel
from small_tools import AT_ONCE, ONCE, near, scripted, states

pytestmark = pytest.mark.anyio

TWO = Plan(steps=[Step(id="a", tool="load"), Step(id="b", tool="load")], goal="how many?")


async def tell(results: Any, goal: str) -> str:
    """Tell what came out."""
    return f"{goal} {results}"


async def write(results: Any, ctx: ToolContext) -> str:
    """Write word by word, a second each."""
    words = ["there ", "are ", str(results)]
    for word in words:
        await anyio.sleep(1)
        ctx.stream(word)
    return "".join(words)


def load() -> Any:
    return scripted("load", 1, 2).tool


async def pieces(compose: Any, plan: Plan = TWO, **options: Any) -> tuple[list[tuple[str, bool, float]], Any]:
    """Run a plan; return each piece of its answer with the time at which it came, and the result."""
    began = anyio.current_time()
    async with dagrun.start(plan, tools=options.pop("tools", [load()]), compose=compose, **options) as run:
        got = [(str(p), p.is_anew, anyio.current_time() - began) async for p in run.answer_stream()]
        return got, await run.result()


# The last step -------------------------------------------------------------------------------------------------------


async def test_the_answer_is_composed_last_from_the_results() -> None:
    """It is a step like all others, with the goal and the outputs of the last steps."""
    result = await dagrun.run(TWO, tools=[load()], compose=tell)

    assert (result.status, result.output) == (Status.SUCCEEDED, "how many? {'a': 1, 'b': 2}")
    assert list(states(result)) == ["a", "b", "answer"]
    assert result.steps["answer"].attempts[0].tool == "compose_answer"


@pytest.mark.parametrize(
    ("output", "results"), [("b", 2), ("${b}", 2), ({"x": "${a}", "y": 7}, {"x": 1, "y": 7}), (["${b}"], [2])]
)
async def test_the_answer_that_the_plan_names_is_what_is_composed(output: Any, results: Any) -> None:
    @dagrun.tool(effect="pure")
    async def same(results: Any) -> Any:
        return {"composed": results}

    result = await dagrun.run(TWO.model_copy(update={"output": output}), tools=[load()], compose=same)

    assert result.output == {"composed": results}


async def test_a_step_called_answer_keeps_its_name() -> None:
    result = await dagrun.run(Plan(steps=[Step(id="Answer", tool="load")]), tools=[load()], compose=tell)

    assert list(states(result)) == ["Answer", "answer-2"]


async def test_nothing_is_composed_of_a_run_that_failed() -> None:
    bad = scripted("load", ToolError("gone"))

    result = await dagrun.run(TWO, tools=[bad.tool], compose=tell, policy=Policy(retry=ONCE))

    assert (result.status, list(states(result))) == (Status.FAILED, ["a", "b"])


async def test_an_answer_that_cannot_be_composed_fails_the_run_and_asks_no_planner() -> None:
    @dagrun.tool(effect="read")
    async def fails(results: Any) -> str:
        raise ToolError("no words")

    model = ScriptedModel({"steps": [{"id": "a", "tool": "load", "args": {}}], "confidence": 0.9})
    result = await dagrun.run(goal="g", planner=ModelPlanner(model), tools=[load()], compose=fails)

    assert (result.status, len(model.requests)) == (Status.FAILED, 1)
    assert "answer failed" in result.reason


async def test_planners_do_not_see_the_tool_that_composes() -> None:
    model = ScriptedModel({"steps": [{"id": "a", "tool": "load", "args": {}}], "confidence": 0.9})

    result = await dagrun.run(goal="how many?", planner=ModelPlanner(model), tools=[load()], compose=tell)

    assert result.output == "how many? {'a': 1}"
    assert "compose_answer" not in model.prompts[0]


async def test_a_model_composes_the_answer() -> None:
    """Its tokens are charged; the results stand in a quotation."""
    model = ScriptedModel(Said(text="There are three.", piece=6))

    got, result = await pieces(model)

    assert (result.status, result.output) == (Status.SUCCEEDED, "There are three.")
    assert "".join(text for text, _, _ in got) == "There are three."
    assert len(got) > 1
    assert result.tokens == 150
    assert '"b":2' in model.prompts[0].replace(" ", "")


@pytest.mark.parametrize(("ceiling", "words"), [({"max_tokens": 4_000}, "4000 tokens"), ({"max_cost": 1.0}, "cost")])
async def test_a_model_whose_worst_case_does_not_fit_is_not_asked(ceiling: dict[str, Any], words: str) -> None:
    """Else the answer would be paid for before anybody could say that there was no room for it."""
    model = ScriptedModel(Said(text="There are three.", cost=2.0))
    result = await dagrun.run(TWO, tools=[load()], compose=model, policy=Policy(**ceiling))

    assert (result.status, result.output, model.closed) == (Status.OVER_BUDGET, None, 0)
    assert result.reason.startswith("the answer is not composed: ceiling of")
    assert words in result.reason


async def test_its_use_is_charged_once_and_for_good() -> None:
    """To the ceilings of the run, also when it is resumed in the middle of the call: then at its worst case."""
    asked = ScriptedModel(Said(text="There are three.", delay=100), Said(text="There are three."))
    policy, options = Policy(max_tokens=9_000), dict[str, Any](tools=[load()], journal=MemoryJournal())
    async with dagrun.start(TWO, compose=asked, policy=policy, run_id="r", **options) as run:
        await anyio.sleep(10)
        run.suspend("a break")
        await run.result()
    async with dagrun.resume("r", compose=asked, **options) as run:
        again = await run.result()
    assert (again.status, asked.closed) == (Status.OVER_BUDGET, 1)
    assert "ceiling of 9000 tokens" in again.reason

    fits = await dagrun.run(TWO, tools=[load()], compose=ScriptedModel(Said(text="Three.")), policy=policy)
    assert (fits.status, fits.output, fits.tokens) == (Status.SUCCEEDED, "Three.", 150)


@pytest.mark.parametrize(
    ("compose", "words"),
    [
        (scripted("pay", 1, effect="effectful").tool, "only reads"),
        (scripted("other", 1).tool, "needs an argument results"),
        (7, "is a tool, a function, or a model"),
    ],
)
async def test_what_cannot_compose_is_refused_before_anything_runs(compose: Any, words: str) -> None:
    with pytest.raises(ContractError, match=words):
        await dagrun.run(TWO, tools=[load()], compose=compose)


async def test_a_resumed_run_composes_its_answer_once() -> None:
    """Killed while it was written, the answer is written anew by the same step; the steps before are not run again."""
    journal, calls = MemoryJournal(), scripted("load", 1, 2)
    with anyio.move_on_after(1.5):
        await dagrun.run(TWO, tools=[calls.tool], compose=write, journal=journal, run_id="r")

    async with dagrun.resume("r", journal=journal, tools=[calls.tool], compose=write) as run:
        got = [str(piece) async for piece in run.answer_stream()]
        result = await run.result()

    assert (result.status, result.output) == (Status.SUCCEEDED, "there are {'a': 1, 'b': 2}")
    assert "".join(got) == result.output
    assert (list(states(result)), len(calls.calls)) == (["a", "b", "answer"], 2)


# The stream ----------------------------------------------------------------------------------------------------------


async def test_the_answer_is_streamed_while_it_is_written() -> None:
    got, result = await pieces(write)

    assert got == [("there ", False, near(1)), ("are ", False, near(2)), ("{'a': 1, 'b': 2}", False, near(3))]
    assert result.output == "there are {'a': 1, 'b': 2}"


async def test_a_tool_that_streams_nothing_comes_whole() -> None:
    async def same(results: Any) -> Any:
        return results

    for compose, whole in ((tell, "how many? {'a': 1, 'b': 2}"), (same, '{"a": 1, "b": 2}')):
        got, _ = await pieces(compose)
        assert [text for text, _, _ in got] == [whole]


async def test_a_call_that_is_made_again_begins_anew() -> None:
    """What was streamed of the first call is void, and the reader is told."""
    calls = 0

    async def flaky(results: Any, ctx: ToolContext) -> str:
        nonlocal calls
        calls += 1
        ctx.stream(f"call {calls}")
        if calls == 1:
            raise ToolError("busy", retryable=True)
        return f"call {calls}"

    got, result = await pieces(flaky, policy=Policy(retry=AT_ONCE))

    assert [(text, is_anew) for text, is_anew, _ in got] == [("call 1", False), ("call 2", True)]
    assert result.output == "call 2"


@pytest.mark.parametrize("guard", ["approve_output", "critic", "confidence"])
@pytest.mark.parametrize("yes", [True, False])
async def test_nothing_is_streamed_before_somebody_has_looked(guard: str, yes: bool) -> None:
    """A person or a critic who may still hold the answer back is not got round by the stream."""

    @dagrun.tool(effect="read", name="load")
    async def doubtful(ctx: ToolContext) -> int:
        ctx.report_confidence(0.1)
        return 1

    person = Person(lambda question: Answer("approve" if yes else "deny", ticked=question.checklist), seconds=10.0)
    ways: dict[str, dict[str, Any]] = {
        "approve_output": {"policy": Policy(approve_output=True), "approver": person},
        "critic": {"critics": [RuleCritic("c", lambda _: yes, tools=["compose_answer"])]},
        "confidence": {"tools": [doubtful], "approver": person},
    }

    got, result = await pieces(write, **ways[guard])

    assert [text for text, _, _ in got] == ([result.output] if yes else [])
    assert (result.status is Status.SUCCEEDED) is yes


async def test_several_may_read_and_late_ones_get_it_all() -> None:
    async with dagrun.start(TWO, tools=[load()], compose=write) as run:
        first = [str(piece) async for piece in run.answer_stream()]
        again = [str(piece) async for piece in run.answer_stream()]

    assert first == again
    assert len(first) == 3


async def test_only_a_run_that_composes_has_a_stream() -> None:
    async with dagrun.start(TWO, tools=[load()]) as run:
        with pytest.raises(ContractError, match="compose="):
            run.answer_stream()

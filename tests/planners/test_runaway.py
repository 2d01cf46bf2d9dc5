"""Answers that come to no good end: cut while they are written, told, asked for once more, charged, and on record."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dagrun
from dagrun import ModelPlanner, OpenAIPlanner, PlanRefused, Status, Step
from dagrun.events import DraftEnded, ModelReserved, PlannerCalled, ReplanEnded
from dagrun.planners.answers.plan_schemas import toolset_schema
from dagrun.planners.ask_model import MAX_BLANKS, MAX_SAME, RunawaySteps, RunawayText
from dagrun.testing import FakeModelServer, ModelAnswer
from model_clients import DROPS_GENERATORS
from scripted_model import Said, ScriptedModel
from test_model_planner import answer
from test_prompts import blocks, brief_of

FIRST = '{"id": "a1", "tool": "look_up", "args": {"key": "A"}}'
AGAIN = '{"steps": [' + ", ".join(FIRST.replace("a1", f"a{number}") for number in range(1, 200)) + "]}"
BLANK = '{"steps": [' + FIRST + "," + " \n" * 20_000
ROUND = '{"steps": [{"id": "a", "tool": "look_up", "args": {"key": "' + "22, 25, 20, 18, " * 3_000 + '"}}]}'
LEAN = {"steps": [{"tool": "look_up", "id": "a1", "args": {"key": "A"}, "depends_on": []}], "output": "a1"}

RUNAWAYS = {"same": (AGAIN, "the same call 4 times"), "blank": (BLANK, "blanks"), "round": (ROUND, "repeating")}


def pieces(text: str, size: int) -> Iterator[str]:
    return (text[start : start + size] for start in range(0, len(text), size))


# The text -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 7, 64, 5_000])
@pytest.mark.parametrize("text", [BLANK, ROUND, "[" + "0, " * 2_000, "x" * 5_000], ids=range(4))
def test_a_text_that_goes_round_is_recognised_in_pieces_of_any_size(text: str, size: int) -> None:
    """And soon: after some hundred characters, not at the ceiling of tokens."""
    judge, rest = RunawayText(), pieces(text, size)

    def read_all() -> None:
        for piece in rest:
            judge.feed(piece)

    with pytest.raises(PlanRefused, match="DR421"):
        read_all()
    assert sum(map(len, rest)) >= len(text) - 1_200 - size


@given(st.integers(1, 40), st.sampled_from([1, 13, 400]), st.sampled_from([None, 2, 8]))
def test_a_wide_plan_goes_nowhere_round(width: int, size: int, indent: int | None) -> None:
    """Steps of a fan are alike but for a name, and a plan with line breaks has rows of blanks."""
    steps = [{"id": f"s{n}", "tool": "look_up", "args": {"key": f"city {n}", "rows": [0] * 40}} for n in range(width)]
    judge = RunawayText()

    for piece in pieces(json.dumps({"steps": steps}, indent=indent), size):
        judge.feed(piece)


def test_blanks_between_words_are_counted_anew() -> None:
    judge = RunawayText()

    for number in range(20):
        judge.feed(" " * MAX_BLANKS)
        judge.feed(f"word {number}")


# The steps ----------------------------------------------------------------------------------------------------------


def test_the_same_call_is_taken_three_times() -> None:
    """Three opinions of a model are a plan; a hundred are none."""
    judge = RunawaySteps(None)
    same = [Step(id=f"s{number}", tool="ask", args={"text": "?"}) for number in range(MAX_SAME + 1)]

    judge.feed(same[:MAX_SAME])
    judge.feed([Step(id="other", tool="ask", args={"text": "!"})])
    with pytest.raises(PlanRefused, match=r'the same call 4 times: ask with \{"text": "\?"\}'):
        judge.feed(same[MAX_SAME:])


def test_more_steps_than_are_left_are_not_read() -> None:
    judge = RunawaySteps(2)

    with pytest.raises(PlanRefused, match="DR108"):
        judge.feed(Step(id=f"s{number}", tool="ask", args={"n": number}) for number in range(3))


# The planner --------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("kind", RUNAWAYS)
async def test_a_runaway_is_left_and_asked_for_once_more_in_the_lean_form(kind: str) -> None:
    """It is told why; it does not get its answer back, of which it would only write more."""
    text, reason = RUNAWAYS[kind]
    model = ScriptedModel(Said(text=text, piece=10, delay=1), LEAN)
    planner, began = ModelPlanner(model), anyio.current_time()

    _, error = await answer(planner, brief_of())
    assert isinstance(error, PlanRefused)
    assert reason in str(error)
    assert model.closed == 1
    assert anyio.current_time() - began < len(text) / 10 / 4

    refused = dagrun.Refusal(None, error.problems)
    found, error = await answer(planner, brief_of(refused=(refused,)))
    assert error is None
    assert [step.id for step in found[0].steps] == ["a1"]
    [told] = model.requests[1].messages
    assert reason in str(blocks(told.text)["problems"])
    assert model.requests[1].form is not None
    assert model.requests[1].form.schema == toolset_schema(brief_of().toolbox or dagrun.Toolbox(), "lean")


@pytest.mark.anyio
async def test_a_repair_has_no_more_steps_than_are_left() -> None:
    """The ceiling of the run counts while the answer is written, and steps that are there already count in it."""
    steps = [{"id": f"s{n}", "tool": "look_up", "args": {"key": f"{n}"}} for n in range(50)]
    view = dagrun.StepView(Step(id="s0", tool="look_up", args={"key": "0"}), dagrun.State.SUCCEEDED)
    model = ScriptedModel(Said(text=json.dumps({"steps": steps}), piece=10, delay=1))
    problem = dagrun.Problem("DR111", "steps")

    brief = brief_of(left={"steps": 2}, steps={"s0": view}, refused=(dagrun.Refusal(None, (problem,)),))
    _, error = await answer(ModelPlanner(model), brief)

    assert isinstance(error, PlanRefused)
    assert [(p.code, p.facts["limit"]) for p in error.problems] == [("DR108", "3")]
    assert anyio.current_time() < 30


@pytest.mark.anyio
@pytest.mark.parametrize("triggers", ["replan", "next"])
async def test_a_change_that_goes_round_is_left_too(triggers: str) -> None:
    """Patches and next steps come as a whole, but are not waited for as a whole."""
    model = ScriptedModel(Said(text=ROUND, piece=10, delay=1))
    kind = dagrun.TriggerKind.FAILED if triggers == "replan" else dagrun.TriggerKind.NEXT
    planner: Any = ModelPlanner(model) if triggers == "replan" else dagrun.StepwisePlanner(model)

    _, error = await answer(planner, brief_of(triggers=(dagrun.Trigger(kind, "a", ""),)))

    assert isinstance(error, PlanRefused)
    assert "repeating" in str(error)
    assert model.closed == 1


# A run --------------------------------------------------------------------------------------------------------------


async def look_up(key: str) -> str:
    """Look a key up."""
    return key


@pytest.mark.anyio
@pytest.mark.real_time
@pytest.mark.filterwarnings(DROPS_GENERATORS)
@pytest.mark.parametrize("kind", RUNAWAYS)
async def test_a_run_survives_a_runaway_of_a_real_stream(kind: str) -> None:
    """Over HTTP: the connection is closed early, the run goes on with the lean plan, and both calls are paid for."""
    text, reason = RUNAWAYS[kind]
    events: list[Any] = []
    acts = [ModelAnswer(text, piece=16, tokens_per_second=2_000), ModelAnswer(json.dumps(LEAN), usage=(70, 30))]
    with FakeModelServer(acts) as server:
        planner = OpenAIPlanner("any", base_url=server.base_url, api_key="none")
        tools = [dagrun.tool(effect="read")(look_up)]
        result = await dagrun.run(goal="find A", planner=planner, tools=tools, on_event=events.append)

    assert result.status is Status.SUCCEEDED, result.reason
    assert result.output == "A"
    assert len(server.calls) == 2
    [draft] = [event for event in events if isinstance(event, DraftEnded)]
    [repair] = [event for event in events if isinstance(event, ReplanEnded)]
    assert (draft.result, repair.result) == ("refused", "applied")
    assert reason in draft.problems[0].sentence
    first, second = [event for event in events if isinstance(event, PlannerCalled)]
    assert len(first.answers[0]) < len(text) / 2  # on record as far as it came
    assert second.tokens == 100


@pytest.mark.anyio
@pytest.mark.real_time
@pytest.mark.filterwarnings(DROPS_GENERATORS)
async def test_a_call_that_was_cut_is_charged_with_all_that_was_reserved() -> None:
    """The server says what a call has used at its end, which was not waited for."""
    events: list[Any] = []
    with FakeModelServer([ModelAnswer(AGAIN, piece=16, tokens_per_second=2_000)]) as server:
        planner = OpenAIPlanner("any", base_url=server.base_url, api_key="none")
        tools = [dagrun.tool(effect="read")(look_up)]
        policy = dagrun.Policy(max_tokens=15_000)
        result = await dagrun.run(goal="find A", planner=planner, tools=tools, policy=policy, on_event=events.append)

    assert result.status is Status.OVER_BUDGET
    [reserved] = [event.tokens or 0 for event in events if isinstance(event, ModelReserved)]
    assert reserved > 15_000 / 2  # so that there is no room for the second call
    assert len(server.calls) == 1

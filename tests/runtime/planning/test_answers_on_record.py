"""What a model answered can be read afterwards: in the event, the record, the log and the error."""

from __future__ import annotations

import json
import logging
from typing import Any, Final

import pytest

import dagrun
from dagrun import Event, MemoryJournal, ModelPlanner, Plan, Policy, RubricCritic, Step
from dagrun.codec import decode_event, encode_event
from dagrun.events import PlannerCalled
from dagrun.kernel.model.redaction.redactor import MAX_ANSWERS
from dagrun.observe.narrative import PLANNER, answers, chronicle
from dagrun.planners.prompt_texts import PROMPT_VERSION
from scripted_model import Said, ScriptedModel
from small_tools import ONCE

pytestmark = pytest.mark.anyio

PROSE: Final = "I am sorry,\nI cannot do that."
SHOWN: Final = r"I am sorry,\nI cannot do that."
SECRET: Final = "hunter2-hunter2"


@dagrun.tool(effect="pure")
async def look(x: int = 1) -> int:
    """Look."""
    return x


@dagrun.tool(effect="pure")
async def breaks() -> int:
    """Fail."""
    raise ValueError("no")


def planned(*steps: dict[str, Any]) -> str:
    return json.dumps({"steps": steps})


def calls_in(events: list[Event]) -> list[PlannerCalled]:
    return [event for event in events if isinstance(event, PlannerCalled)]


async def draft(*said: Said | object, **options: Any) -> tuple[dagrun.RunResult, list[Event]]:
    seen: list[Event] = []
    planner = ModelPlanner(ScriptedModel(*said))
    result = await dagrun.run(goal="Look", planner=planner, tools=[look], on_event=seen.append, **options)
    return result, seen


# Planners -------------------------------------------------------------------------------------------------------------


async def test_an_answer_that_is_no_plan_is_in_the_event_the_error_and_the_result() -> None:
    result, seen = await draft(Said(text=PROSE), Said(text="Still no."))

    assert [call.answers for call in calls_in(seen)] == [(PROSE,), ("Still no.",)]
    assert result.reason.endswith("; its model answered: Still no.")
    assert result.planner_answers == ("Still no.",)
    ended = next(event for event in seen if isinstance(event, dagrun.events.DraftEnded))
    assert ended.reason.endswith(f"; its model answered: {SHOWN}")


async def test_a_plan_with_problems_is_on_record_whole() -> None:
    bad = planned({"id": "a", "tool": "nothing", "args": {}})
    result, seen = await draft(Said(text=bad), Said(text=planned({"id": "a", "tool": "look", "args": {}})))

    assert result.status == "succeeded"
    assert calls_in(seen)[0].answers == (bad,)


async def test_an_answer_that_breaks_off_is_kept_as_far_as_it_came() -> None:
    fault = dagrun.errors.ModelError("the line is cut")
    result, seen = await draft(Said(text='{"steps": [{"id"', fault=fault), policy=Policy(retry=ONCE))

    assert calls_in(seen)[0].answers == ('{"steps": [{"id"',)
    assert calls_in(seen)[0].fault == "the line is cut"
    assert "the line is cut" in result.reason
    assert 'its model answered: {"steps": [{"id"' in result.reason


async def test_a_patch_that_is_refused_is_on_record_and_in_the_error() -> None:
    seen: list[Event] = []
    planner = ModelPlanner(ScriptedModel(Said(text=PROSE), Said(text=PROSE)))
    result = await dagrun.run(
        Plan(steps=[Step(id="a", tool="breaks")]),
        tools=[breaks],
        planner=planner,
        on_event=seen.append,
        policy=Policy(retry=ONCE),
    )

    assert [call.answers for call in calls_in(seen)] == [(PROSE,), (PROSE,)]
    assert SHOWN in result.reason


async def test_a_planner_without_a_model_has_no_answers() -> None:
    class Knows:
        async def revise(self, _: dagrun.Brief) -> Plan:
            return Plan(steps=[Step(id="a", tool="look")])

    seen: list[Event] = []
    await dagrun.run(goal="Look", planner=Knows(), tools=[look], on_event=seen.append)

    assert [call.answers for call in calls_in(seen)] == [()]
    assert b"answers" not in encode_event(calls_in(seen)[0])
    assert decode_event(encode_event(calls_in(seen)[0])) == calls_in(seen)[0]


async def test_every_call_says_which_words_its_model_was_told() -> None:
    """First plans, changes and steps of a loop, each planner of a chain by itself; also read back from the record."""

    async def prompts_of(planner: Any, journal: MemoryJournal | None = None, **options: Any) -> list[str]:
        seen: list[Event] = []
        tools = [look, breaks]
        await dagrun.run(planner=planner, tools=tools, on_event=seen.append, journal=journal, run_id="r", **options)
        assert all(decode_event(encode_event(call)) == call for call in calls_in(seen))
        return [call.prompt for call in calls_in(seen)]

    said = Said(text=PROSE)
    own = ModelPlanner(ScriptedModel(said, said), instructions="Be brief.")
    broken = Plan(steps=[Step(id="a", tool="breaks")])
    journal = MemoryJournal()

    assert own.wording.version.startswith(f"{PROMPT_VERSION}+")
    assert await prompts_of(own, goal="Look") == [own.wording.version] * 2
    steps = dagrun.StepwisePlanner(ScriptedModel(said, said))
    assert await prompts_of(steps, goal="Look") == [PROMPT_VERSION] * 2
    once = Policy(retry=ONCE)
    plain = ModelPlanner(ScriptedModel(said, said))
    assert await prompts_of(plain, journal, plan=broken, policy=once) == [PROMPT_VERSION] * 2
    chain = dagrun.FallbackChain(
        dagrun.StaticPlanner(), ModelPlanner(ScriptedModel(said, said), prompts={"role": "Plan."}), steps
    )
    assert [bool(prompt) for prompt in (await prompts_of(chain, goal="Look"))[:3]] == [False, True, True]

    told = [line for entry in chronicle(await dagrun.replay("r", journal=journal)) for line in entry.details]
    assert told.count(f"prompt {PROMPT_VERSION}") == 2
    await journal.aclose()


@pytest.mark.parametrize("version", [ValueError("no words"), 8, None])
async def test_words_without_a_proper_version_hurt_no_run(version: Any) -> None:
    """A planner is the host's own: whatever it has there, its call is on record."""

    class Words:
        @property
        def version(self) -> Any:
            if isinstance(version, Exception):
                raise version
            return version

    class Odd:
        wording = Words()

        async def revise(self, _: dagrun.Brief) -> Plan:
            return Plan(steps=[Step(id="a", tool="look")])

    seen: list[Event] = []
    result = await dagrun.run(goal="Look", planner=Odd(), tools=[look], on_event=seen.append)

    assert result.status == ("failed" if isinstance(version, Exception) else "succeeded")
    assert [call.prompt for call in calls_in(seen)] == [""]


async def test_an_answer_on_record_is_redacted_and_has_a_ceiling() -> None:
    """The secret lies across the ceiling: it is taken out before the cut, so that no half of it stays."""
    text = "x" * (MAX_ANSWERS - 7) + SECRET + "y" * 200_000
    _, seen = await draft(Said(text=f"{SECRET} {text}", piece=0), Said(text="no"), secrets={"db": SECRET})
    answer = calls_in(seen)[0].answers[0]

    assert answer.startswith("[secret:db] ")
    assert len(answer.encode()) <= MAX_ANSWERS
    assert "bytes)" in answer[-30:]
    assert "hunter2" not in answer


async def test_the_answer_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    await draft(Said(text=PROSE), Said(text=PROSE))

    assert f"call 1 of the planner: its model answered:\n{PROSE}" in caplog.text


async def test_the_whole_answer_can_be_read_from_the_record() -> None:
    journal = MemoryJournal()
    await draft(Said(text=PROSE), Said(text=PROSE), journal=journal, run_id="one")
    past = await dagrun.replay("one", journal=journal)

    assert [(answer.about, answer.text) for answer in answers(past)] == [(PLANNER, PROSE)] * 2
    assert f"answered: {SHOWN}" in [detail for entry in chronicle(past) for detail in entry.details]
    await journal.aclose()


# Tools and critics ----------------------------------------------------------------------------------------------------


async def test_an_llm_tool_keeps_an_answer_that_cannot_be_used() -> None:
    ask = dagrun.llm_tool(ScriptedModel(Said(text=PROSE), Said(text=PROSE)), output=int)
    step = Step(id="a", tool="llm", args={"prompt": "How many?"})
    result = await dagrun.run(Plan(steps=[step]), tools=[ask], policy=Policy(retry=ONCE))
    failure = result.steps["a"].failure
    assert failure is not None

    assert failure.answer == PROSE
    assert failure.message.endswith(f"; it answered: {SHOWN}")
    assert failure.as_dict()["answer"] == PROSE


@pytest.mark.parametrize("stop", ["length", "refused"])
async def test_an_answer_that_is_cut_off_or_refused_is_kept(stop: Any) -> None:
    ask = dagrun.llm_tool(ScriptedModel(Said(text=PROSE, stop=stop)))
    step = Step(id="a", tool="llm", args={"prompt": "How many?"})
    result = await dagrun.run(Plan(steps=[step]), tools=[ask], policy=Policy(retry=ONCE))

    assert result.steps["a"].failure.answer == PROSE  # type: ignore[union-attr]


async def test_an_agent_keeps_a_turn_that_cannot_be_used() -> None:
    agent = dagrun.agent_tool(ScriptedModel(Said(text="no"), Said(text=PROSE)), [look], name="agent")
    step = Step(id="a", tool="agent", args={"task": "Look"})
    result = await dagrun.run(Plan(steps=[step]), tools=[agent], policy=Policy(retry=ONCE))
    failure = result.steps["a"].failure
    assert failure is not None

    assert failure.answer == PROSE
    assert SHOWN in failure.message


async def test_a_rubric_critic_keeps_marks_that_cannot_be_used() -> None:
    journal = MemoryJournal()
    critic = RubricCritic(ScriptedModel(Said(text=PROSE), Said(text=PROSE)), "Good.")
    step = Step(id="a", tool="look")
    policy = Policy(retry=ONCE)
    result = await dagrun.run(
        Plan(steps=[step]), tools=[look], critics=[critic], policy=policy, journal=journal, run_id="one"
    )
    past = await dagrun.replay("one", journal=journal)

    assert result.steps["a"].verdicts[0].answer == PROSE
    assert SHOWN in result.steps["a"].reason
    assert [(answer.about, answer.text) for answer in answers(past, "a")] == [("a", PROSE)]
    await journal.aclose()

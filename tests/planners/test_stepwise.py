"""`StepwisePlanner`: the result of each answer of the model, and all ends of the loop."""

from __future__ import annotations

import json
from typing import Any

import pytest

import dagrun
from dagrun import (
    Brief,
    Condition,
    Patch,
    PlanRefused,
    Problem,
    Refusal,
    State,
    Step,
    StepView,
    StepwisePlanner,
    Trigger,
    TriggerKind,
)
from dagrun.errors import CannotPlan, ContractError
from dagrun.planners.answers.plan_schemas import next_step_schema
from persons import Person
from scripted_model import Said, ScriptedModel
from test_prompts import blocks, brief_of

pytestmark = pytest.mark.anyio

NEXT = (Trigger(TriggerKind.NEXT, "", ""),)


def wants(id_: str, key: Any = "A", **fields: Any) -> dict[str, Any]:
    """Return the answer of a model that wants a step."""
    return {"thought": "look", "step": {"id": id_, "tool": "look_up", "args": {"key": key}, **fields}}


def stops(why: str, **fields: Any) -> dict[str, Any]:
    """Return the answer of a model that stops."""
    return {"thought": "enough", "stop": why, **fields}


def done(*steps: tuple[str, Any, State], **fields: Any) -> Brief:
    """Return a brief in which some steps have ended, each with a key."""
    views = {id_: StepView(Step(id=id_, tool="look_up", args={"key": key}), state) for id_, key, state in steps}
    return brief_of(**({"triggers": NEXT, "steps": views} | fields))


async def step_of(planner: StepwisePlanner, brief: Brief) -> Step:
    """Return the only step of the answer."""
    patch = await planner.revise(brief)
    (edit,) = patch.edits
    assert edit.op == "add"
    assert patch.more
    return edit.step


# Going on -----------------------------------------------------------------------------------------------------------


async def test_the_answer_is_one_step_and_the_wish_to_be_asked_again() -> None:
    patch = await StepwisePlanner(ScriptedModel({**wants("a"), "confidence": 0.7})).revise(brief_of())

    assert [edit.step.id for edit in patch.edits if edit.op == "add"] == ["a"]
    assert (patch.more, patch.reason, patch.confidence) == (True, "look", 0.7)


async def test_a_failure_is_history_unless_the_model_says_otherwise() -> None:
    """A replan beside the loop would ask the same model twice about the same thing."""
    planner = StepwisePlanner(ScriptedModel(wants("a"), wants("b", on_failure="stop")))

    assert (await step_of(planner, brief_of())).on_failure == "skip"
    assert (await step_of(planner, brief_of())).on_failure == "stop"


async def test_the_thought_stays_with_its_step() -> None:
    """The next request shows it: a model without its thoughts starts from nothing each time."""
    planner = StepwisePlanner(ScriptedModel(wants("a"), wants("b", description="mine")))

    assert (await step_of(planner, brief_of())).description == "look"
    assert (await step_of(planner, brief_of())).description == "mine"


async def test_the_model_sees_the_history_and_what_is_left() -> None:
    model = ScriptedModel(wants("c"))
    brief = done(("a", "A", State.SUCCEEDED), ("b", "B", State.FAILED), results={"a": "x"}, left={"tokens": 50})

    await StepwisePlanner(model, max_steps=7).revise(brief)

    found = blocks(model.requests[0].messages[0].text)
    assert [(step["id"], step["state"]) for step in found["steps"]] == [("a", "succeeded"), ("b", "failed")]
    assert found["results"] == [{"id": "a", "output": "x"}]
    assert found["left"] == [{"tokens": 50, "steps": 5}]
    form = model.requests[0].form
    assert form is not None
    assert brief.toolbox is not None
    assert form.schema == next_step_schema(brief.toolbox)


@pytest.mark.parametrize(
    ("taken", "wanted", "got"),
    [
        (("a",), "a", "a-2"),
        (("a", "a-2"), "a", "a-3"),
        (("A",), "a", "a-2"),  # ids that differ only in case are refused
        (("b",), "a", "a"),
        (("x" * 48,), "x" * 48, "x" * 46 + "-2"),
    ],
)
async def test_a_repeated_id_gets_a_number(taken: tuple[str, ...], wanted: str, got: str) -> None:
    """Models often call every step "search", but no id is used twice in a run."""
    brief = done(*((id_, "other", State.SUCCEEDED) for id_ in taken))

    assert (await step_of(StepwisePlanner(ScriptedModel(wants(wanted))), brief)).id == got


async def test_in_a_renamed_step_references_mean_what_they_meant() -> None:
    """In arguments they mean the earlier step, and in the success condition the step itself."""
    said = wants("a", "${a}", success={"ref": "a", "op": "!=", "value": ""})

    step = await step_of(StepwisePlanner(ScriptedModel(said)), done(("a", "A", State.SUCCEEDED)))

    assert step.args == {"key": "${a}"}
    assert step.success == Condition(ref="a-2", op="!=", value="")


async def test_an_answer_that_was_refused_goes_back() -> None:
    model = ScriptedModel(wants("a", 3), wants("a"))
    planner = StepwisePlanner(model)
    await planner.revise(brief_of())
    problem = Problem("DR111", "steps")

    await planner.revise(brief_of(refused=(Refusal(None, (problem,)),)))

    _, said, objection = model.requests[1].messages
    assert '"key": 3' in said.text
    assert blocks(objection.text)["problems"] == [{"at": "steps", "problem": "the plan has no steps"}]


# The end ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "reason"),
    [({"reason": "it is there", "output": "a"}, "goal met: it is there"), ({}, "goal met: enough")],
)
async def test_a_goal_that_is_met_ends_the_loop(fields: dict[str, Any], reason: str) -> None:
    patch = await StepwisePlanner(ScriptedModel(stops("goal_met", **fields))).revise(done(("a", "A", State.SUCCEEDED)))

    assert (patch.edits, patch.more, patch.reason) == ((), False, reason)
    assert patch.output == fields.get("output")
    assert patch.changes_output == ("output" in fields)


@pytest.mark.parametrize(("why", "kind"), [("cannot", "cannot"), ("needs_person", "person")])
async def test_a_model_that_gives_up_says_so(why: str, kind: str) -> None:
    """The run ends with its reason, and with a status of its own if a person must take over."""
    with pytest.raises(CannotPlan) as stopped:
        await StepwisePlanner(ScriptedModel(stops(why, reason="no access"))).revise(brief_of())

    assert (stopped.value.reason, stopped.value.kind) == ("no access", kind)


@pytest.mark.parametrize("count", [2, 3])
async def test_the_ceiling_of_steps_holds(count: int) -> None:
    """The model is asked once more at the ceiling, because the last step may have met the goal."""
    brief = done(*((f"s{number}", str(number), State.SUCCEEDED) for number in range(count)))
    model = ScriptedModel(stops("goal_met"), wants("more"))
    planner = StepwisePlanner(model, max_steps=2)

    patch = await planner.revise(brief)
    with pytest.raises(CannotPlan, match="ceiling of 2 steps") as stopped:
        await planner.revise(brief)

    assert isinstance(patch, Patch)
    assert stopped.value.kind == "ceiling"
    assert blocks(model.requests[0].messages[0].text)["left"] == [{"steps": 0}]


async def test_one_step_below_the_ceiling_is_allowed() -> None:
    """The elements of a for_each count as part of their step."""
    brief = done(("a", "A", State.SUCCEEDED), ("a[0]", "B", State.FAILED))

    assert (await step_of(StepwisePlanner(ScriptedModel(wants("b")), max_steps=2), brief)).id == "b"


@pytest.mark.parametrize("state", [State.FAILED, State.TIMED_OUT, State.UNKNOWN, State.ABANDONED])
async def test_the_same_call_after_its_failure_is_no_progress(state: State) -> None:
    """Whatever its id is: a loop that repeats a call only costs."""
    planner = StepwisePlanner(ScriptedModel(wants("again")))

    with pytest.raises(CannotPlan, match="no progress: a has failed"):
        await planner.revise(done(("a", "A", state)))


@pytest.mark.parametrize(
    ("steps", "key"),
    [
        ([("a", "A", State.SUCCEEDED)], "A"),  # a look-up may be repeated
        ([("a", "A", State.FAILED)], "B"),
        ([("a", 1, State.FAILED)], True),  # equal for Python
        ([("a", "A", State.FAILED), ("b", "B", State.SUCCEEDED)], "A"),  # something has happened in between
    ],
)
async def test_another_call_is_progress(steps: Any, key: Any) -> None:
    assert (await step_of(StepwisePlanner(ScriptedModel(wants("again", key))), done(*steps))).args == {"key": key}


@pytest.mark.parametrize("said", ["", "no", {}, {"step": None}, {**wants("a"), "stop": "cannot"}, {"steps": []}])
async def test_rubbish_is_refused(said: Any) -> None:
    with pytest.raises(PlanRefused):
        await StepwisePlanner(ScriptedModel(said)).revise(brief_of())


async def test_an_answer_that_is_cut_off_or_refused_is_told_apart() -> None:
    planner = StepwisePlanner(ScriptedModel(Said(text="{", stop="length"), Said(text="no", stop="refused")))

    with pytest.raises(PlanRefused, match="DR421"):
        await planner.revise(brief_of())
    with pytest.raises(CannotPlan, match="does not want to"):
        await planner.revise(brief_of())


@pytest.mark.parametrize("options", [{"max_steps": 0}, {"max_output_tokens": 0}])
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ContractError):
        StepwisePlanner(ScriptedModel(), **options)


# A plan on a scratchpad ----------------------------------------------------------------------------------------------


@dagrun.tool(effect="read", name="look_up")
async def find(key: str) -> str:
    """Find."""
    return key


def planned(id_: str, *plan: str, **fields: Any) -> dict[str, Any]:
    """Return the answer of a model that wants a step, and says what is left after it."""
    return {**wants(id_, key=id_), "plan": list(plan), **fields}


async def test_the_plan_on_the_scratchpad_is_shown_rewritten_and_on_record() -> None:
    """Each request shows the plan of the last answer; a resumed run has it from the record."""
    model = ScriptedModel(
        planned("a", "load b", "join"), planned("b", "join"), planned("c", "check", "mail"), stops("goal_met", plan=[])
    )
    journal = dagrun.MemoryJournal()
    events: list[Any] = []
    result = await dagrun.run(
        goal="g",
        planner=StepwisePlanner(model, keeps_plan=True),
        tools=[find],
        journal=journal,
        run_id="r",
        on_event=events.append,
    )

    assert result.status is dagrun.Status.SUCCEEDED
    assert "plan" not in blocks(model.prompts[0])
    assert [blocks(prompt)["plan"] for prompt in model.prompts[1:]] == [["load b", "join"], ["join"], ["check", "mail"]]
    notes = [
        json.loads(event.notes) for event in events if isinstance(event, dagrun.events.PlannerCalled) and event.notes
    ]
    assert [note["plan"] for note in notes] == [["load b", "join"], ["join"], ["check", "mail"], []]
    past = await dagrun.replay("r", journal=journal)
    assert json.loads(past.graph.planner_notes) == notes[-1]
    form = model.requests[0].form
    assert form is not None
    assert list(form.schema["properties"])[:2] == ["thought", "plan"]


# A failed review -----------------------------------------------------------------------------------------------------

PICKY = dagrun.RuleCritic("facts", lambda output: output != "A" or "not supported by any source")


@pytest.mark.parametrize(
    ("says", "status", "requests"),
    [
        (True, dagrun.Status.FAILED, 3),  # the loop went on; a step has failed all the same
        (False, dagrun.Status.ESCALATED, 1),
        (None, dagrun.Status.ESCALATED, 1),
    ],
)
async def test_a_step_that_failed_its_review_stops_the_loop_for_a_person(
    says: Any, status: dagrun.Status, requests: int
) -> None:
    """The person may take hours; the time of the planner does not run meanwhile."""
    model = ScriptedModel(wants("a"), wants("b", "B"), stops("goal_met", output="b"))
    person = None if says is None else Person(says, seconds=10_000.0)

    result = await dagrun.run(goal="g", planner=StepwisePlanner(model), tools=[find], critics=[PICKY], approver=person)

    assert (result.status, len(model.requests)) == (status, requests)
    if person is not None:
        (asked,) = person.asked
        assert asked.text == "Step a did not pass its review. Continue?"
        assert asked.why == "facts: not supported by any source"
    if status is dagrun.Status.ESCALATED:
        assert "not supported by any source" in result.reason


async def test_the_host_may_let_the_model_judge_a_failed_review() -> None:
    model = ScriptedModel(wants("a"), wants("b", "B"), stops("goal_met", output="b"))
    planner = StepwisePlanner(model, on_failed_review="go_on")

    result = await dagrun.run(goal="g", planner=planner, tools=[find], critics=[PICKY])

    assert (len(model.requests), result.output) == (3, "B")
    assert "not supported by any source" in model.prompts[1]
    with pytest.raises(ContractError, match="on_failed_review"):
        StepwisePlanner(model, on_failed_review="what")  # type: ignore[arg-type]


async def test_a_failure_without_a_review_asks_nobody() -> None:
    @dagrun.tool(effect="read", name="look_up")
    async def fails(key: str) -> str:
        raise dagrun.ToolError("gone")

    person = Person(True)
    await dagrun.run(
        goal="g",
        planner=StepwisePlanner(ScriptedModel(wants("a"), stops("cannot"))),
        tools=[fails],
        critics=[PICKY],
        approver=person,
    )

    assert person.asked == []


# A tool that is not there --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("unknown", "status"), [("refuse", "failed"), ("escalate", "escalated")])
@pytest.mark.parametrize("kind", ["first", "next", "patch"])
async def test_a_tool_that_is_not_there_is_for_people_where_the_policy_says_so(
    unknown: Any, status: str, kind: str
) -> None:
    """A planner that needs a tool may be right: then only people can add it."""
    strange = {"id": "x", "tool": "send_fax", "args": {}}
    bad = {"gone": {"edits": [{"op": "add", "step": strange}]}, "plan": {"steps": [strange], "confidence": 0.9}}
    step = {"thought": "t", "step": strange}

    @dagrun.tool(effect="read", name="look_up")
    async def fails(key: str) -> str:
        raise dagrun.ToolError("gone")

    first = {"steps": [{"id": "a", "tool": "look_up", "args": {"key": "A"}}], "confidence": 0.9}
    says: dict[str, list[Any]] = {
        "first": [bad["plan"]] * 2,
        "next": [step] * 2,
        "patch": [first, bad["gone"], bad["gone"]],
    }
    model = ScriptedModel(*says[kind])
    planner: Any = StepwisePlanner(model) if kind == "next" else dagrun.ModelPlanner(model)

    result = await dagrun.run(
        goal="g",
        planner=planner,
        tools=[fails],
        policy=dagrun.Policy(planning=dagrun.PlanningRule(unknown_tools=unknown)),
    )

    assert str(result.status) == status
    if unknown == "escalate":
        assert "send_fax" in result.reason
        assert result.handoff is not None

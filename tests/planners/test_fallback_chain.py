"""`FallbackChain`: who is asked when, why it is handed on, and that all of it is on record."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

import dagrun
from dagrun import (
    Add,
    Answer,
    Brief,
    EnsemblePlanner,
    Event,
    FallbackChain,
    FallbackPlanner,
    MemoryJournal,
    ModelChooser,
    ModelPlanner,
    Patch,
    PersonPlanner,
    Plan,
    PlanningRule,
    PlanRefused,
    Policy,
    Problem,
    Replace,
    Route,
    RouterPlanner,
    RunResult,
    StaticPlanner,
    Status,
    Step,
    StepwisePlanner,
    ToolError,
)
from dagrun.errors import CannotPlan, ContractError, ModelError, OverCeiling
from dagrun.events import HandedOn, PlannerCalled
from dagrun.extend import HandOn
from dagrun.observe.narrative import chronicle
from persons import Person
from replans import Thinker
from scripted_model import ScriptedModel
from small_tools import ONCE, scripted, states
from test_prompts import brief_of
from test_stepwise import stops

pytestmark = pytest.mark.anyio

A, B, WRONG = Step(id="a", tool="load"), Step(id="b", tool="load"), Step(id="x", tool="lod")
GOOD = Plan(steps=[A], confidence=0.9)


class Streamer:
    """Streams its answers, with *seconds* before each; an exception is raised."""

    def __init__(self, *items: Any, seconds: float = 0.0) -> None:
        self._items = items
        self._seconds = seconds
        self.briefs: list[Brief] = []
        self.is_closed = False

    async def revise(self, brief: Brief) -> AsyncIterator[Any]:
        """Stream the answer."""
        self.briefs.append(brief)
        try:
            for item in self._items:
                await anyio.sleep(self._seconds)
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            self.is_closed = True


async def climb(
    *planners: Any, tools: Sequence[Any] = (), goal: str = "find it", **options: Any
) -> tuple[RunResult, list[Event]]:
    """Run a goal with a fallback chain; return the result and all events."""
    events: list[Event] = []
    tools = [tool.tool for tool in tools] or [scripted("load", 1).tool]
    result = await dagrun.run(
        goal=goal, planner=FallbackChain(*planners), tools=tools, on_event=events.append, **options
    )
    return result, events


def handings(events: Sequence[Event]) -> list[tuple[int, str]]:
    return [(event.rung, str(event.why)) for event in events if isinstance(event, HandedOn)]


BUSY = Policy(retry=ONCE, planning=PlanningRule(timeout=5.0))
REASONS: list[tuple[Callable[[], Any], HandOn]] = [
    (lambda: RouterPlanner([Route("sales", ["sales"], GOOD)], chooser=lambda *_: None), HandOn.NO_ROUTE),
    (lambda: StaticPlanner(), HandOn.NOTHING),
    (lambda: Thinker(None), HandOn.NOTHING),
    (lambda: Thinker(CannotPlan("no")), HandOn.REFUSAL),
    (lambda: Thinker(CannotPlan("no", kind="person")), HandOn.PERSON),
    (lambda: Thinker(CannotPlan("no", kind="ceiling")), HandOn.LIMIT),
    (lambda: Thinker(OverCeiling("no tokens left")), HandOn.LIMIT),
    (lambda: Thinker(Plan(steps=[A], confidence=0.59)), HandOn.LOW_CONFIDENCE),
    (lambda: Thinker(Plan(steps=[A, B.model_copy(update={"confidence": 0.2})])), HandOn.AMBIGUOUS_STEP),
    (lambda: Thinker(GOOD, seconds=9.0), HandOn.TIMEOUT),
    (lambda: Streamer(Add(step=A), seconds=9.0), HandOn.TIMEOUT),
    (lambda: Thinker(ModelError("the server is down", is_transient=True)), HandOn.NO_ANSWER),
    (lambda: Thinker(ModelError("there is no such model")), HandOn.NO_ANSWER),
    (lambda: Thinker(ZeroDivisionError("oh")), HandOn.NO_ANSWER),
    (lambda: FallbackPlanner(Thinker(Plan(steps=[WRONG])), tries=1), HandOn.INVALID),
    (lambda: Thinker(*[Plan(steps=[WRONG])] * 2), HandOn.INVALID),
    (lambda: Thinker(*[PlanRefused([Problem("DR111", "steps")])] * 2), HandOn.INVALID),
]


@pytest.mark.parametrize(("light", "why"), REASONS, ids=lambda part: str(part) if isinstance(part, HandOn) else "")
async def test_each_reason_hands_on_and_is_on_record(light: Callable[[], Any], why: HandOn) -> None:
    """What the first planner cannot do well, the second one does; and the record says why it was asked."""
    strong = Thinker(GOOD)

    result, events = await climb(light(), strong, policy=BUSY)

    assert (result.status, states(result)) == (Status.SUCCEEDED, {"a": "succeeded"})
    assert handings(events) == [(1, why)]
    assert len(strong.briefs) == 1
    assert [before.why for before in strong.briefs[0].before] == [why]
    calls = [event.planner for event in events if isinstance(event, PlannerCalled)]
    assert calls[-1] in ("Thinker", "Thinker (2)")
    assert calls[-1] not in calls[:-1]


@pytest.mark.parametrize("confidence", [None, 0.6, 1.0])
async def test_a_good_answer_of_the_first_planner_is_used(confidence: float | None) -> None:
    """The least confidence is enough, and an answer without one is used; nobody else is asked."""
    strong = Thinker(GOOD)

    for light in (
        Thinker(Plan(steps=[A], confidence=confidence)),
        Streamer(Add(step=A), Patch(edits=(), confidence=confidence)),
    ):
        result, events = await climb(light, strong)

        assert (result.status, states(result)) == (Status.SUCCEEDED, {"a": "succeeded"})
        assert handings(events) == []
    assert strong.briefs == []


async def test_the_last_planner_hands_nothing_on() -> None:
    """Its low confidence is for the policy and for people; its refusal ends the run with the reasons on record."""
    result, events = await climb(Thinker(CannotPlan("too hard")), Thinker(Plan(steps=[A], confidence=0.1)))
    assert (result.status, handings(events)) == (Status.WAITING, [(1, "refusal")])  # nobody is there to agree to it

    result, events = await climb(Thinker(CannotPlan("too hard")), Thinker(CannotPlan("never")))
    assert (result.status, "never" in result.reason) == (Status.FAILED, True)


async def test_all_planners_of_a_ladder_are_tried_in_order() -> None:
    dead = Thinker(ModelError("down"))

    result, events = await climb(
        RouterPlanner([Route("sales", ["sales"], GOOD)]), dead, Thinker(None), Thinker(GOOD), PersonPlanner()
    )

    assert result.status is Status.SUCCEEDED
    assert handings(events) == [(1, "no_route"), (2, "no_answer"), (3, "nothing")]
    names = [event.planner for event in events if isinstance(event, PlannerCalled)]
    assert names == ["RouterPlanner", "Thinker", "Thinker (2)", "Thinker (3)"]


async def test_a_route_that_fits_costs_no_model() -> None:
    """The lightest pattern first: a template for what is known; inputs reach the functions of its routes."""
    plan = Plan(steps=[Step(id="one", tool="load", args={"value": "${input.region}"})])
    seen: list[Any] = []

    def is_north(goal: str, inputs: Any) -> bool:
        seen.append(inputs)
        return bool(inputs and inputs["region"] == "north")

    model = Thinker()
    load = scripted("load", 1)
    result, _ = await climb(
        RouterPlanner([Route("north", is_north, plan)]), model, tools=[load], inputs={"region": "north"}
    )

    assert (result.status, model.briefs, seen) == (Status.SUCCEEDED, [], [{"region": "north"}])


# Streams -------------------------------------------------------------------------------------------------------------


async def test_a_streamed_plan_that_breaks_off_keeps_what_runs() -> None:
    """Its first step ran while it was written; the next planner sees it, and it is not done again."""
    load = scripted("load", 1)
    light = Streamer(Add(step=A), ModelError("reset", is_transient=True))
    strong = Thinker(Plan(steps=[A, B]))

    result, events = await climb(light, strong, tools=[load], policy=BUSY)

    assert (result.status, states(result)) == (Status.SUCCEEDED, {"a": "succeeded", "b": "succeeded"})
    assert (len(load.calls), handings(events)) == (2, [(1, "no_answer")])
    assert list(strong.briefs[0].steps) == ["a"]
    assert light.is_closed


async def test_an_ambiguous_step_of_a_stream_goes_to_the_strong_planner_before_any_effect() -> None:
    """The step that looks up has run; the payment that the fast planner was not sure of was never made."""
    load, pay = scripted("load", 1), scripted("pay", "paid", effect="effectful")
    doubtful = Step(id="p", tool="pay", args={"value": 100}, confidence=0.2)
    sure = Step(id="q", tool="pay", args={"value": 10}, confidence=0.9)
    strong = Thinker(Plan(steps=[A, sure]))

    result, events = await climb(
        Streamer(Add(step=A), Add(step=doubtful), Patch(edits=(), confidence=0.9)), strong, tools=[load, pay]
    )

    assert result.status is Status.SUCCEEDED
    assert handings(events) == [(1, "ambiguous_step")]
    assert [problem.code for problem in strong.briefs[0].refused[0].problems] == ["DR426"]
    assert [call["value"] for call in pay.calls] == [10]


async def test_the_next_planner_may_stream_when_nothing_has_come() -> None:
    """After a refusal the strong planner writes a first plan like any: its steps start while it writes."""
    strong = Streamer(Add(step=A), Add(step=B), seconds=10.0)
    starts: list[float] = []
    load = scripted("load", lambda **_: starts.append(anyio.current_time()))

    result, _ = await climb(Thinker(CannotPlan("no")), strong, tools=[load])

    assert result.status is Status.SUCCEEDED
    assert starts[1] - starts[0] == pytest.approx(10)


# Changes of a plan ---------------------------------------------------------------------------------------------------


async def test_each_request_begins_with_the_first_planner() -> None:
    """A failure goes to the template first, which has no patch for it; then to the model that has one."""
    fixed = Patch(edits=[Replace(id="a", step=Step(id="a2", tool="spare"))])
    light, strong = StaticPlanner(GOOD), Thinker(fixed)

    result, events = await climb(light, strong, tools=[scripted("load", ToolError("gone")), scripted("spare", 2)])

    assert (result.status, result.output) == (Status.SUCCEEDED, 2)
    assert [(e.request, e.rung, e.why) for e in events if isinstance(e, HandedOn)] == [(1, 1, HandOn.NOTHING)]
    assert strong.briefs[0].before[0].planner == "StaticPlanner"


async def test_a_refused_patch_goes_back_once_and_then_on() -> None:
    bad = Patch(edits=[Replace(id="a", step=WRONG)])
    fixed = Patch(edits=[Replace(id="a", step=Step(id="a2", tool="spare"))])
    light, strong = Thinker(GOOD, bad, bad), Thinker(fixed)

    result, events = await climb(light, strong, tools=[scripted("load", ToolError("gone")), scripted("spare", 2)])

    assert result.status is Status.SUCCEEDED
    assert (len(light.briefs), len(strong.briefs), handings(events)) == (3, 1, [(1, "invalid")])
    assert [len(brief.refused) for brief in (*light.briefs, *strong.briefs)] == [0, 0, 1, 2]


async def test_who_wants_to_see_the_results_is_asked_for_the_next_step() -> None:
    """A router has no route, so the planner step by step begins; the router is not asked between its steps."""
    step = {"thought": "t", "step": {"id": "s", "tool": "load", "args": {}}}
    model = ScriptedModel(step, step | {"step": {"id": "t", "tool": "load", "args": {"value": 2}}}, stops("goal_met"))
    router = RouterPlanner([Route("sales", ["sales"], GOOD)])

    result, events = await climb(router, StepwisePlanner(model), Thinker())

    assert (result.status, list(states(result))) == (Status.SUCCEEDED, ["s", "t"])
    assert handings(events) == [(1, "no_route")]
    names = [event.planner for event in events if isinstance(event, PlannerCalled)]
    assert names == ["RouterPlanner", *["StepwisePlanner scripted"] * 3]


async def test_a_step_by_step_planner_that_gives_up_hands_on() -> None:
    step = {"thought": "t", "step": {"id": "s", "tool": "load", "args": {}}}
    strong = Thinker(Patch(edits=[Add(step=B)]))

    result, events = await climb(StepwisePlanner(ScriptedModel(step, stops("cannot"))), strong)

    assert (result.status, list(states(result))) == (Status.SUCCEEDED, ["s", "b"])
    assert handings(events) == [(1, "refusal")]


# Limits and records --------------------------------------------------------------------------------------------------


async def test_every_call_of_every_planner_counts() -> None:
    """The ceiling of calls is for the run, not for each planner; what models use is charged to it."""
    result, events = await climb(
        Thinker(None), Thinker(None), Thinker(GOOD), policy=Policy(planning=PlanningRule(max_calls=2))
    )

    assert result.status is Status.OVER_BUDGET
    assert handings(events) == [(1, "nothing"), (2, "nothing")]


async def test_a_rung_has_its_own_time() -> None:
    began = anyio.current_time()

    result, events = await climb(FallbackPlanner(Thinker(GOOD, seconds=100.0), timeout=2.0), Thinker(GOOD))

    assert (result.status, handings(events)) == (Status.SUCCEEDED, [(1, "timeout")])
    assert anyio.current_time() - began == pytest.approx(2)


async def test_a_resumed_run_asks_nobody_twice() -> None:
    """The record says who has handed on; the planner whose call was cut off is asked again."""
    journal = MemoryJournal()
    first, second = Thinker(CannotPlan("no")), Thinker(GOOD, seconds=100.0)
    tools = [scripted("load", 1).tool]
    with anyio.move_on_after(10):
        await dagrun.run(goal="g", planner=FallbackChain(first, second), tools=tools, journal=journal, run_id="r")
    again, spare = Thinker(GOOD), Thinker(GOOD)

    async with dagrun.resume("r", journal=journal, tools=tools, planner=FallbackChain(spare, again)) as run:
        result = await run.result()

    assert (result.status, len(first.briefs), len(spare.briefs), len(again.briefs)) == (Status.SUCCEEDED, 1, 0, 1)
    past = await dagrun.replay("r", journal=journal)
    told = [entry.text for entry in chronicle(past)]
    assert "Thinker hands on to Thinker (2): refusal" in told
    assert any(" of Thinker (2) took" in text for text in told)


async def test_the_view_and_the_report_show_who_handed_on() -> None:
    journal = MemoryJournal()
    await dagrun.run(
        goal="g",
        planner=FallbackChain(
            FallbackPlanner(Thinker(CannotPlan("too hard")), "fast"), FallbackPlanner(Thinker(GOOD), "strong")
        ),
        tools=[scripted("load", 1).tool],
        journal=journal,
        run_id="r",
    )

    past = await dagrun.replay("r", journal=journal)
    (work,) = json.loads(dagrun.report(past, format="json"))["planner"]
    page = dagrun.report(past)

    assert [(call["planner"], call["handed_on"][:11]) for call in work["calls"]] == [
        ("fast", "to strong: "),
        ("strong", ""),
    ]
    assert "too hard" in work["calls"][0]["handed_on"]
    assert "handed on to strong" in page
    assert "(planner) fast" in page


async def test_the_view_and_the_report_show_the_version_of_the_prompt() -> None:
    """So that two versions of a prompt can be told apart by what they cost."""
    journal = MemoryJournal()
    thinker = Thinker(GOOD)
    thinker.wording = SimpleNamespace(version="8+1a2b3c4d")  # type: ignore[attr-defined]  # as planners of models have
    await dagrun.run(goal="g", planner=thinker, tools=[scripted("load", 1).tool], journal=journal, run_id="r")

    past = await dagrun.replay("r", journal=journal)
    (work,) = json.loads(dagrun.report(past, format="json"))["planner"]

    assert [call["prompt"] for call in work["calls"]] == ["8+1a2b3c4d"]
    assert "(planner), prompt 8+1a2b3c4d" in dagrun.report(past)


# People --------------------------------------------------------------------------------------------------------------


async def test_the_last_planner_may_be_a_person() -> None:
    """A person sees why nobody else had a plan, and gives one; it takes the time that it takes."""
    person = Person(Answer("approve", value={"steps": [{"id": "a", "tool": "load"}]}), seconds=10_000.0)

    result, _ = await climb(Thinker(CannotPlan("too vague")), PersonPlanner(), approver=person)

    assert (result.status, states(result)) == (Status.SUCCEEDED, {"a": "succeeded"})
    (asked,) = person.asked
    assert "too vague" in asked.why
    assert asked.text == "No planner has a plan for: find it"


async def test_a_person_is_told_what_is_wrong_with_a_plan() -> None:
    plans = [Answer("approve", value={"steps": [{"id": "a", "tool": tool}]}) for tool in ("lod", "load")]
    person = Person(*plans)

    result, _ = await climb(Thinker(None), PersonPlanner(), approver=person)

    assert result.status is Status.SUCCEEDED
    assert "lod" in person.asked[1].why


@pytest.mark.parametrize(
    ("says", "status"), [(False, Status.FAILED), (Answer("escalate"), Status.ESCALATED), (None, Status.ESCALATED)]
)
async def test_without_a_plan_of_a_person_the_run_ends(says: Any, status: Status) -> None:
    result, _ = await climb(Thinker(None), PersonPlanner(), approver=None if says is None else Person(says))

    assert result.status is status


async def test_a_person_gives_a_patch_for_a_failure() -> None:
    patch = {"edits": [{"op": "replace", "id": "a", "step": {"id": "a2", "tool": "spare"}}]}
    person = Person(Answer("approve", value=patch))

    result, _ = await climb(
        StaticPlanner(GOOD),
        PersonPlanner(),
        tools=[scripted("load", ToolError("gone")), scripted("spare", 2)],
        approver=person,
    )

    assert (result.status, result.output) == (Status.SUCCEEDED, 2)


# Routers that ask ----------------------------------------------------------------------------------------------------


async def test_a_router_may_ask_a_coroutine() -> None:
    """It is asked only for goals that no word recognises."""
    asked: list[str] = []

    async def choose(goal: str, inputs: Any, routes: Sequence[Route]) -> str | None:
        asked.append(goal)
        await anyio.sleep(1)
        return routes[0].name if "money" in goal else None

    router = RouterPlanner([Route("refund", ["refund"], GOOD)], chooser=choose)
    for goal, status in (("a refund", "succeeded"), ("my money", "succeeded"), ("the weather", "failed")):
        result = await dagrun.run(goal=goal, planner=router, tools=[scripted("load", 1).tool])
        assert str(result.status) == status
    assert asked == ["my money", "the weather"]


async def test_a_router_may_ask_a_model() -> None:
    """One short call, charged to the run; it never sees the inputs."""
    model = ScriptedModel({"route": "refund"}, {"route": "none"})
    router = RouterPlanner(
        [Route("refund", ["refund"], GOOD, description="gives money back")], chooser=ModelChooser(model)
    )

    result, _ = await climb(router, Thinker(), goal="my money", inputs={"card": "4711"})
    assert result.status is Status.SUCCEEDED
    assert "gives money back" in model.prompts[0]
    assert "4711" not in model.prompts[0]

    result, events = await climb(router, Thinker(GOOD), goal="the weather")
    assert (result.status, handings(events)) == (Status.SUCCEEDED, [(1, "no_route")])


async def test_a_chooser_that_names_no_route_is_a_fault() -> None:
    router = RouterPlanner([Route("refund", ["refund"], GOOD)], chooser=lambda *_: "refnd")

    result = await dagrun.run(goal="my money", planner=router, tools=[scripted("load", 1).tool])

    assert result.status is Status.FAILED
    assert "no route of it" in result.reason


# What it is made of --------------------------------------------------------------------------------------------------


def test_ladders_join_and_names_differ() -> None:
    chain = FallbackChain(
        Thinker(), FallbackChain(Thinker(), FallbackPlanner(Thinker(), "mine")), FallbackPlanner(Thinker(), "mine")
    )

    assert [rung.name for rung in chain.rungs] == ["Thinker", "Thinker (2)", "mine", "mine (2)"]


@pytest.mark.parametrize(
    "make",
    [
        FallbackChain,
        lambda: FallbackChain(object()),  # type: ignore[arg-type]
        lambda: FallbackChain(Thinker(), min_confidence=1.1),
        lambda: EnsemblePlanner(Thinker(), Thinker(), min_confidence=float("nan")),
        lambda: FallbackPlanner(Thinker(), tries=0),
        lambda: FallbackPlanner(Thinker(), timeout=0.0),
    ],
)
def test_what_is_no_ladder_is_refused(make: Any) -> None:
    with pytest.raises(ContractError):
        make()


async def test_a_planner_that_wraps_a_ladder_gets_its_whole_answer() -> None:
    """Then the chain does by itself what the run would do, without the record."""
    strong = Streamer(Add(step=A), Patch(edits=(), confidence=0.9))
    chain = FallbackChain(Thinker(CannotPlan("no")), Thinker(Plan(steps=[A], confidence=0.2)), strong)

    assert await chain.revise(brief_of()) == Patch(edits=[Add(step=A)], confidence=0.9)
    with pytest.raises(CannotPlan):
        await FallbackChain(Thinker(None), Thinker(CannotPlan("no"))).revise(brief_of())


async def test_a_brief_tells_a_model_who_was_asked_before() -> None:
    strong = Thinker(GOOD)
    await climb(Thinker(CannotPlan("too vague")), strong, policy=Policy(planning=PlanningRule(brief="structural")))
    assert json.dumps(strong.briefs[0].as_dict()["before"]) == (
        '[{"planner": "Thinker", "why": "refusal", "reason": ""}]'
    )


async def test_a_model_is_told_why_the_planner_before_it_handed_on() -> None:
    """The strong model knows what the fast one found too vague; a model that is asked first is told of nobody."""
    strong = ScriptedModel({"steps": [{"id": "a", "tool": "load", "args": {}}], "confidence": 0.9})

    result, _ = await climb(Thinker(CannotPlan("which region?")), ModelPlanner(strong))

    assert result.status is Status.SUCCEEDED
    (told,) = re.findall(r'<data name="before">\n(.*)\n</data>', strong.requests[0].messages[-1].text)
    assert json.loads(told)["planner"] == "Thinker"
    assert json.loads(told)["why"] == "refusal"
    assert "which region?" in json.loads(told)["reason"]
    alone = ScriptedModel({"steps": [], "refusal": "no"})
    await dagrun.run(goal="g", planner=ModelPlanner(alone), tools=[scripted("load", 1).tool])
    assert '<data name="before">' not in alone.requests[0].messages[-1].text

"""The first plan is a stream: its steps start while the planner writes, and what has an effect waits for its end."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import dagrun
from dagrun import (
    Answer,
    Condition,
    Event,
    Patch,
    Plan,
    PlanningRule,
    PlanRefused,
    Policy,
    Problem,
    Route,
    RouterPlanner,
    RunFailed,
    StaticPlanner,
    Status,
    Step,
    ToolError,
)
from dagrun.cli.terminal.event_lines import as_dict
from dagrun.errors import CannotPlan, ContractError, ModelError, OverCeiling
from dagrun.events import DraftEnded, PlannerCalled
from dagrun.kernel.model.usage import METER
from drafts import GOAL, Says, Writer, run, started, whole
from persons import Person
from places import unplaced
from small_tools import near, scripted, states, toolset

pytestmark = pytest.mark.anyio


def nap(id_: str, seconds: float = 1.0, *after: str, **fields: Any) -> Step:
    return Step(id=id_, tool="nap", args={"seconds": seconds, "gives": id_}, depends_on=after, **fields)


def send(id_: str = "send", *after: str, **fields: Any) -> Step:
    return Step(id=id_, tool="send", depends_on=after, **fields)


def sender(**options: Any) -> Any:
    return scripted("send", "sent", effect="effectful", **options)


# Streams -------------------------------------------------------------------------------------------------------------


async def test_a_step_starts_when_it_is_written() -> None:
    """Not when the next one is, nor when the plan has ended."""
    planner = Writer([1, nap("a", 1), 1, nap("b", 1, "a"), nap("c", 3), 10, whole(output="${c}")])

    result = await run(planner)

    assert started(result) == {"a": near(1), "b": near(2), "c": near(2)}
    assert (result.status, result.output, result.makespan) == (Status.SUCCEEDED, "c", near(12))


async def test_a_step_starts_when_its_dependency_ends_whatever_the_planner_does() -> None:
    """Readiness is driven by completions, never by the planner's next word."""
    result = await run(Writer([nap("a", 2), nap("b", 2, "a"), nap("c", 2, "b"), 100]))

    assert started(result) == {"a": near(0), "b": near(2), "c": near(4)}


async def test_a_forward_reference_waits_for_what_it_names() -> None:
    last = Step(id="last", tool="echo", args={"value": "${first} and ${second[0]}"})
    second = Step(id="second", tool="nap", args={"seconds": 1.0, "gives": ["x"]}, depends_on=["first"])

    result = await run(Writer([last, 1, second, 1, nap("first", 1)]))

    assert started(result) == {"first": near(2), "second": near(3), "last": near(4)}
    assert result.output == "first and x"


async def test_effects_wait_until_the_plan_is_ended() -> None:
    """What is done cannot be undone when the plan turns out to be wrong."""
    tool = sender()

    result = await run(Writer([send(), nap("a", 1), nap("b", 1, "send"), 5, whole()]), tool)

    assert started(result) == {"send": near(5), "a": near(0), "b": near(5)}


@pytest.mark.parametrize("how", ["tool", "policy"])
async def test_an_effect_that_is_marked_safe_does_not_wait(how: str) -> None:
    tool = sender(stream_safe=how == "tool")

    result = await run(
        Writer([send(), 5, whole()]), tool, planning=PlanningRule(stream_safe=("send",) if how == "policy" else ())
    )

    assert started(result) == {"send": near(0)}


async def test_lists_and_conditions_are_at_home_in_a_stream() -> None:
    each = Step(id="each", tool="echo", args={"value": "${item}!"}, for_each="${list}")
    never = Step(id="never", tool="echo", args={"value": 1}, when=Condition(ref="list", op="==", value=[]))
    some = Step(id="list", tool="echo", args={"value": ["x", "y"]})

    result = await run(Writer([each, never, some, 3, whole(output="${each}")]))

    assert result.output == ["x!", "y!"]
    assert states(result)["never"] == "skipped"


async def test_a_step_that_needs_one_which_has_failed_already_is_skipped() -> None:
    """The planner could not know; its plan is as good as it was, and the run ends as if it had come at once."""
    fails = Step(id="fails", tool="fail", on_failure="skip")
    user = Step(id="user", tool="echo", args={"value": "${fails}"})
    later = Step(id="later", tool="echo", args={"value": "${user}"})

    result = await run(Writer([fails, 2, user, later, nap("free", 1, "fails"), 1, whole()]))

    assert states(result) == {"fails": "failed", "user": "skipped", "later": "skipped", "free": "succeeded"}
    assert result.status is Status.FAILED


async def test_a_failure_meanwhile_is_asked_about_after_the_plan() -> None:
    """One request at a time: the planner still writes."""
    instead = Patch(edits=[dagrun.Replace(id="fails", step=nap("other", 1))])
    planner = Writer([Step(id="fails", tool="fail"), nap("user", 1, "fails"), 4, whole()], [instead])

    result = await run(planner)

    assert started(result) == {"fails": near(0), "other": near(4), "user": near(5)}
    assert [str(t.kind) for brief in planner.briefs for t in brief.triggers] == ["goal_given", "failed"]
    assert (result.status, result.replans) == (Status.SUCCEEDED, 1)


async def test_a_plan_in_one_piece_is_a_plan_too() -> None:
    result = await run(Says(Plan(steps=[nap("a"), nap("b", 1, "a")], output="b")))

    assert (result.status, result.output, result.makespan) == (Status.SUCCEEDED, "b", near(2))


async def test_the_planner_is_told_what_a_first_plan_needs() -> None:
    planner = Writer([nap("a"), whole()])

    await run(planner, max_tokens=500, inputs={"region": "a secret place"})

    [brief] = planner.briefs
    assert (brief.is_first, brief.goal, brief.steps, brief.left["tokens"]) == (True, GOAL, {}, 500)
    assert brief.inputs == {"region": "text of 14 characters"}
    assert [tool["name"] for tool in brief.tools] == ["nap", "echo", "fail"]
    assert brief.toolbox is not None


BROKEN = PlanRefused([Problem("DR003", "", {"syntax": "JSON", "line": "1", "column": "2", "reason": "x"})])


# Plans that are no good -----------------------------------------------------------------------------------------------

NO_TOOL = Step(id="b", tool="fly")


async def test_a_plan_that_is_refused_goes_back_once_with_its_problems() -> None:
    """What has started goes on, and what the better plan has in common with the first is kept."""
    planner = Writer([nap("a", 9), send(), 1, NO_TOOL, 1], [2, plan_as_patch(nap("c", 1, "a"))])
    events: list[Event] = []

    result = await run(planner, sender(), events=events)

    [refusal] = planner.briefs[1].refused
    assert [(p.code, p.path) for p in refusal.problems] == [("DR201", "steps[2].tool")]
    assert {id_: str(view.state) for id_, view in planner.briefs[1].steps.items()} == {
        "a": "running",
        "send": "blocked",
    }
    assert started(result) == {"a": near(0), "send": near(4), "c": near(9)}
    assert [event.result for event in events if isinstance(event, DraftEnded)] == ["refused"]
    assert (result.status, result.problems, result.replans) == (Status.SUCCEEDED, (), 0)


async def test_a_plan_without_steps_is_no_plan_the_second_time_either() -> None:
    """It changes nothing of a graph that is empty, but nothing has succeeded with that."""
    result = await run(Says(Plan(steps=[]), Plan(steps=[])))

    assert result.status is Status.FAILED
    assert [problem.code for problem in result.problems] == ["DR111"]


def plan_as_patch(*steps: Step) -> Patch:
    return Patch(edits=[dagrun.Add(step=step) for step in steps])


async def test_a_better_plan_in_one_piece_replaces_the_first_by_difference() -> None:
    first = Plan(steps=[nap("a", 5), nap("gone", 1, "a"), NO_TOOL])
    better = Plan(steps=[nap("a", 5), nap("b", 1, "a")], output="b")

    result = await run(Says(first, better))

    assert states(result) == {"a": "succeeded", "gone": "superseded", "b": "succeeded"}
    assert (result.makespan, result.output, list(result.plan.steps)) == (near(6), "b", ["a", "b"])


@pytest.mark.parametrize("later", [Plan(steps=[NO_TOOL]), None, Plan(steps=[])], ids=["wrong", "none", "empty"])
async def test_a_second_plan_that_is_no_better_ends_the_run(later: Plan | None) -> None:
    """What runs is stopped, nothing else starts, and the result says what was wrong."""
    planner = Says(Plan(steps=[nap("a", 60), send(), NO_TOOL]), later)
    tool = sender()

    result = await run(planner, tool)

    assert (result.status, result.has_plan, tool.calls) == (Status.FAILED, False, [])
    assert result.reason.startswith("there is no plan: ")
    assert "DR201" in {problem.code for problem in result.problems} or later is not None
    assert len(planner.briefs) == 2
    assert result.makespan == near(0)
    assert states(result)["a"] == "cancelled"


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ([nap("a", 1, "b"), nap("b", 1, "a")], "DR106"),
        ([nap("a", 1, "nowhere")], "DR104"),
        ([nap("a"), nap("a")], "DR102"),
        ([Step(id="a", tool="echo", args={"value": "${never.x}"})], "DR302"),
        ([nap("a"), whole(output="${never}")], "DR311"),
        ([whole()], "DR111"),
        ([Patch(edits=[dagrun.Drop(id="a")])], "DR401"),
        ([nap("a", 1, retry=dagrun.RetryRule(max_attempts=9))], "DR412"),
        ([nap("a"), BROKEN], "DR003"),
    ],
)  # fmt: skip
async def test_what_is_wrong_with_the_whole_is_found_at_its_end(script: list[Any], code: str) -> None:
    planner = Writer(script, [CannotPlan("enough")])

    result = await run(planner)

    assert code in {problem.code for refusal in planner.briefs[1].refused for problem in refusal.problems}
    assert (result.status, result.reason) == (Status.FAILED, "there is no plan: the planner cannot: enough")
    assert code in {problem.code for problem in result.problems}


async def test_a_planner_does_not_make_retries_wait_longer_than_the_policy_does() -> None:
    """A step is kept when the planner writes the same once more: it is the step that it wrote."""
    flaky, bad = scripted("flaky", ToolError("busy", retryable=True), 1), scripted("bad", ValueError("no"))
    loose = dagrun.RetryRule(first_delay=60, factor=9, max_delay=None, retry_on=[ValueError])
    limit = dagrun.RetryRule(first_delay=1.0, factor=2.0, max_delay=4.0)
    steps = [Step(id="flaky", tool="flaky", retry=loose), Step(id="bad", tool="bad", depends_on=["flaky"])]
    better = Plan(steps=[steps[0], nap("good", 1.0, "flaky")])

    streamed = await run(Writer(steps), flaky, bad, retry=limit)
    whole_ones = await run(Says(Plan(steps=steps), better), flaky, bad, retry=limit)

    for result in (streamed, whole_ones):
        assert result.plan.current.steps[0].retry == limit
        assert result.makespan <= 1 + 1  # at most a second of back-off
    assert {name: str(step.state) for name, step in whole_ones.steps.items()} == {
        "flaky": "succeeded",
        "bad": "failed",
        "good": "succeeded",
    }


async def test_an_answer_that_breaks_off_is_no_plan() -> None:
    """Steps of it run already: the same is not simply asked again."""
    planner = Writer([nap("a", 5), 1, ModelError("the connection was lost", is_transient=True)], [nap("b")])

    result = await run(planner)

    [problem] = planner.briefs[1].refused[0].problems
    assert str(problem) == ("DR421 the answer broke off: the connection was lost")
    assert started(result) == {"a": near(0), "b": near(1)}


# Calls of the planner ------------------------------------------------------------------------------------------------


async def test_a_model_that_was_busy_is_asked_again_when_it_wants_to() -> None:
    events: list[Event] = []
    busy = ModelError("busy", status=429, is_transient=True, retry_after=7)

    result = await run(Writer([busy], [nap("a")]), events=events, retry=dagrun.RetryRule(first_delay=0))

    assert started(result) == {"a": near(7)}
    assert [(e.number, e.fault) for e in events if isinstance(e, PlannerCalled)] == [
        (1, "busy"),
        (2, ""),
    ]


NO_ANSWER = "the planner gave no answer:"


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (ModelError("no key", status=401), Status.FAILED, f"{NO_ANSWER} no key"),
        (ModelError("busy", is_transient=True), Status.FAILED, f"{NO_ANSWER} busy"),
        (CannotPlan("no tool reads minds"), Status.FAILED, "the planner cannot: no tool reads minds"),
        (CannotPlan("your turn", "person"), Status.ESCALATED, "the planner cannot: your turn"),
        (CannotPlan("20 steps", "ceiling"), Status.OVER_BUDGET, "the planner cannot: 20 steps"),
        (OverCeiling("ceiling of 5 tokens"), Status.OVER_BUDGET, "ceiling of 5 tokens"),
        (ValueError("oops"), Status.FAILED, f"{NO_ANSWER} it raised ValueError: oops"),
    ],
)  # fmt: skip
async def test_a_planner_that_gives_nothing_ends_the_run(error: Exception, status: Status, reason: str) -> None:
    result = await run(Says(error))

    assert (result.status, unplaced(result.reason)) == (status, f"there is no plan: {reason}")


async def test_a_planner_that_takes_too_long_ends_the_run_and_is_closed() -> None:
    planner = Writer([nap("a", 1), 1_000])

    result = await run(planner, planning=PlanningRule(timeout=10, max_calls=1))

    assert (result.status, result.makespan, planner.closed) == (Status.OVER_BUDGET, near(10), 1)


async def test_calls_of_the_planner_have_a_ceiling() -> None:
    result = await run(Says(ModelError("busy", is_transient=True, retry_after=1)), planning=PlanningRule(max_calls=1))

    assert result.status is Status.OVER_BUDGET
    assert "ceiling of 1 planner calls is spent" in result.reason


async def test_cancelling_the_run_closes_the_planner() -> None:
    planner = Writer([nap("a", 100), 100])
    async with dagrun.start(goal=GOAL, planner=planner, tools=toolset()) as running:
        await anyio.sleep(3)
        running.cancel()
        result = await running.result()

    assert (result.status, result.makespan, planner.closed) == (Status.CANCELLED, near(3), 1)


class Charges:
    """A planner whose model uses tokens, which it reserves before."""

    def __init__(self, most: int | None, used: int | None, cost: float | None = None) -> None:
        self._most, self._used, self._cost = most, used, cost

    async def revise(self, brief: dagrun.Brief) -> Plan:
        charge = METER.get().reserve("a-model", self._most, self._cost)
        charge.settle(self._used, self._cost)
        return Plan(steps=[nap("a")])


async def test_what_the_planner_uses_is_charged() -> None:
    events: list[Event] = []

    result = await run(Charges(100, 40, 0.5), events=events, max_tokens=100)

    assert (result.tokens, result.cost, result.used.unpriced) == (40, 0.5, 0)
    assert [(e.tokens, e.cost) for e in events if isinstance(e, PlannerCalled)] == [(40, 0.5)]


async def test_a_cost_that_nobody_knows_is_not_nothing() -> None:
    result = await run(Charges(100, 40))

    assert (result.cost, result.used.unpriced) == (None, 40)


async def test_a_call_that_does_not_fit_is_not_made() -> None:
    result = await run(Charges(101, 40), max_tokens=100)

    assert (result.status, result.tokens) == (Status.OVER_BUDGET, 0)
    assert result.reason == (
        "there is no plan: ceiling of 100 tokens has no room for a-model, which may use 101: 0 used"
    )


# People --------------------------------------------------------------------------------------------------------------


async def test_a_plan_that_its_planner_is_not_sure_of_waits_for_a_person() -> None:
    """What only looks has begun; what has an effect has not."""
    person = Person(True, seconds=10)

    result = await run(Writer([nap("a"), send(), 1, whole(confidence=0.4)]), sender(), approver=person)

    assert started(result) == {"a": near(0), "send": near(11)}
    [question] = person.asked
    assert "confidence of 0.4, and at least 0.6" in question.text
    assert len(question.diff) == 2


async def test_a_plan_that_a_person_denies_is_not_carried_out() -> None:
    tool = sender()

    result = await run(
        Writer([nap("a", 60), send(), whole(confidence=0.4)]), tool, approver=Person(Answer("deny", note="too wild"))
    )

    assert (result.status, tool.calls) == (Status.FAILED, [])
    assert result.reason == "there is no plan: a person did not agree to the plan: too wild"


async def test_without_anybody_to_ask_a_doubtful_plan_waits() -> None:
    result = await run(Writer([send(), whole(confidence=0.4)]), sender())

    assert result.status is Status.WAITING


async def test_a_policy_that_wants_to_see_plans_lets_nothing_start_before() -> None:
    result = await run(Writer([nap("a"), 1]), approver=Person(True, seconds=10), approve_patches="always")

    assert started(result) == {"a": near(11)}


# One step at a time --------------------------------------------------------------------------------------------------


async def test_a_planner_may_want_to_see_what_comes_of_it() -> None:
    more = [Patch(edits=[dagrun.Add(step=nap(f"s{n}", 1))], more=True) for n in range(3)]
    planner = Says(*more, Patch(edits=(), output="${s2}", reason="goal met"))

    result = await run(planner)

    assert [[str(t.kind) for t in brief.triggers] for brief in planner.briefs] == [["goal_given"], *[["next"]] * 3]
    assert started(result) == {"s0": near(0), "s1": near(1), "s2": near(2)}
    assert (result.status, result.output, result.replans) == (Status.SUCCEEDED, "s2", 0)


async def test_a_planner_that_has_nothing_to_add_ends_the_loop() -> None:
    planner = Says(Patch(edits=[dagrun.Add(step=nap("a"))], more=True), None)

    assert (await run(planner)).status is Status.SUCCEEDED
    assert len(planner.briefs) == 2


async def test_a_planner_that_cannot_go_on_fails_the_run() -> None:
    planner = Says(Patch(edits=[dagrun.Add(step=nap("a"))], more=True), CannotPlan("no tool for that"))

    result = await run(planner)

    assert (result.status, states(result)) == (Status.FAILED, {"a": "succeeded"})
    assert result.reason == "the planner could not continue: the planner cannot: no tool for that"


# The faces -----------------------------------------------------------------------------------------------------------


async def test_a_planner_that_knows_its_plan_needs_no_stream() -> None:
    """Rules are the host's own: their plan is checked whole, before anything runs."""
    router = RouterPlanner(
        [Route("one", ["find"], Plan(steps=[Step(id="a", tool="echo", args={"value": "${input.x}"})]))]
    )

    assert (await run(router, inputs={"x": 7})).output == 7
    with pytest.raises(PlanRefused, match="DR201"):
        await run(StaticPlanner(Plan(steps=[NO_TOOL])))


async def test_a_draft_runs_nothing() -> None:
    tool = sender()
    planner = Writer([send(), 1, nap("a"), 1, whole(output="${a}")])

    drafted = await dagrun.draft(GOAL, planner=planner, tools=toolset(tool))

    assert (tool.calls, [step.id for step in drafted.plan.steps], drafted.plan.output) == ([], ["send", "a"], "${a}")
    assert anyio.current_time() == near(2)
    result = await dagrun.run(drafted)
    assert result.output == "a"


async def test_a_draft_that_comes_to_nothing_says_why() -> None:
    with pytest.raises(PlanRefused, match="DR201"):
        await dagrun.draft(GOAL, planner=Says(Plan(steps=[NO_TOOL])), tools=toolset())
    with pytest.raises(RunFailed, match="no key"):
        await dagrun.draft(GOAL, planner=Says(ModelError("no key")), tools=toolset())


async def test_a_draft_may_be_mended() -> None:
    planner = Says(Plan(steps=[nap("a"), NO_TOOL]), Plan(steps=[nap("a"), nap("b")]))

    drafted = await dagrun.draft(GOAL, planner=planner, tools=toolset())

    assert [step.id for step in drafted.plan.steps] == ["a", "b"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "give a plan, or a goal and a planner"),
        ({"goal": "x"}, "a goal needs words, and a planner"),
        ({"goal": " ", "planner": Says(None)}, "a goal needs words"),
        ({"goal": "x", "plan": Plan(steps=[nap("a")]), "planner": Says(None)}, "with a goal, not with both"),
    ],
)  # fmt: skip
async def test_a_run_begins_with_a_plan_or_with_a_goal(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ContractError, match=why):
        await dagrun.run(options.get("plan"), tools=toolset(), **{k: v for k, v in options.items() if k != "plan"})


async def test_events_of_a_draft_are_plain_json() -> None:
    events: list[Event] = []

    await run(Writer([nap("a"), NO_TOOL], [whole(), patch_of_nothing()]), events=events)

    shown = {event["event"]: event for event in map(as_dict, events)}
    assert shown["DraftStarted"]["goal"] == GOAL
    assert shown["DraftEnded"]["problems"][0]["code"] == "DR201"
    assert shown["PlannerCalled"]["fault"] == ""


def patch_of_nothing() -> Patch:
    return Patch(edits=())


async def test_the_policy_of_an_engine_holds_for_goals_too() -> None:
    async with dagrun.Engine(policy=Policy(max_steps=1)) as engine:
        result = await engine.run(goal=GOAL, planner=Says(Plan(steps=[nap("a"), nap("b")])), tools=toolset())

    assert {problem.code for problem in result.problems} <= {"DR108", "DR413"}
    assert not result.has_plan


async def test_a_changed_goal_does_not_wait_for_the_plan_of_the_old_one() -> None:
    """The call for it is left, what has started goes on, and the planner is asked for the new one at once."""
    planner = Writer([nap("a", 10), 1_000], [1, dagrun.Add(step=nap("b", 1))])
    async with dagrun.start(goal=GOAL, planner=planner, tools=toolset()) as running:
        await anyio.sleep(3)
        await running.change_goal("something else")
        result = await running.result()

    assert started(result) == {"a": near(0), "b": near(4)}
    assert [brief.goal for brief in planner.briefs] == [GOAL, "something else"]
    assert (result.status, result.makespan) == (Status.SUCCEEDED, near(10))


async def test_problems_of_a_better_plan_are_told_by_its_own_places() -> None:
    """Not by those of the patch that is made of it, which its author has never seen."""
    planner = Says(Plan(steps=[nap("a"), NO_TOOL]), Plan(steps=[nap("a"), nap("c"), NO_TOOL]))

    result = await run(planner)

    assert [(p.code, p.path) for p in result.problems] == [("DR201", "steps[2].tool")]

"""Confidence of results: who gives one, how it travels, and that a doubtful answer is held for a person."""

from __future__ import annotations

import functools
from typing import Any

import pytest

import dagrun
from dagrun import (
    AgreementCritic,
    Answer,
    MemoryJournal,
    ModelPlanner,
    Patch,
    Plan,
    PlanningRule,
    Policy,
    QuestionRule,
    RubricCritic,
    RuleCritic,
    RunResult,
    Status,
    Step,
    StepwisePlanner,
    ToolContext,
    ToolError,
    TriggerKind,
    Verdict,
)
from dagrun.errors import ContractError
from dagrun.events import ConfidenceReported
from dagrun.extend import SOURCES
from dagrun.kernel.model.outcome import Outcome
from dagrun.observe.narrative import chronicle
from persons import Person
from replans import Thinker
from scripted_model import ScriptedModel
from small_tools import AT_ONCE, scripted

pytestmark = pytest.mark.anyio


@dagrun.tool(effect="read")
async def guess(value: Any, ctx: ToolContext, sure: float | None = None) -> Any:
    """Give a value, and say how sure one can be of it."""
    if sure is not None:
        ctx.report_confidence(sure)
    return value


@dagrun.tool(effect="pure")
async def join(parts: list[Any]) -> list[Any]:
    """Join what others gave."""
    return parts


@dagrun.tool(effect="read", executor="thread")
def guess_in_thread(ctx: ToolContext) -> str:
    """Guess in a thread."""
    ctx.report_confidence(0.7)
    return "x"


def g(id_: str, sure: float | None = None, value: Any = 1, **fields: Any) -> Step:
    return Step(id=id_, tool="guess", args={"value": value, "sure": sure}, **fields)


def j(id_: str, *of: str, **fields: Any) -> Step:
    return Step(id=id_, tool="join", args={"parts": [f"${{{source}}}" for source in of]}, **fields)


LAX = Policy(min_confidence=0.0)


async def run(*steps: Step, output: Any = None, policy: Policy = LAX, **options: Any) -> RunResult:
    tools = [guess, join, guess_in_thread, *options.pop("tools", ())]
    return await dagrun.run(Plan(steps=steps, output=output), tools=tools, policy=policy, **options)


# Travelling ----------------------------------------------------------------------------------------------------------


async def test_the_lowest_confidence_of_what_was_used_is_that_of_the_answer() -> None:
    """What an answer is made of counts, over any number of steps; what it did not use does not."""
    result = await run(g("a", 0.9), g("b", 0.4), g("c", 0.1), j("ab", "a", "b"), j("end", "ab"), output="${end}")

    assert (result.status, result.confidence) == (Status.SUCCEEDED, 0.4)
    assert [result.confidence_of(id_) for id_ in ("a", "b", "c", "ab", "end")] == [0.9, 0.4, 0.1, 0.4, 0.4]
    with pytest.raises(KeyError):
        result.confidence_of("zebra")


async def test_without_any_confidence_there_is_none() -> None:
    result = await run(g("a"), j("end", "a"))

    assert (result.confidence, result.confidence_of("end")) == (None, None)


async def test_an_order_without_data_carries_no_confidence() -> None:
    assert (await run(g("a", 0.1), g("b", 0.8, depends_on=["a"]))).confidence == 0.8


async def test_elements_of_a_for_each_count() -> None:
    each = Step(id="each", tool="guess", for_each=[0.9, 0.3, 0.8], args={"value": 1, "sure": "${item}"})

    assert (await run(each, j("end", "each"))).confidence == 0.3


async def test_only_the_attempt_that_succeeded_counts() -> None:
    """A call that was tried again has said nothing of the output of the next one."""
    calls = 0

    @dagrun.tool(effect="read")
    async def unsure(ctx: ToolContext) -> int:
        nonlocal calls
        calls += 1
        if calls == 1:
            ctx.report_confidence(0.1)
            raise ToolError("busy", retryable=True)
        return calls

    result = await run(Step(id="a", tool="unsure"), tools=[unsure], policy=Policy(min_confidence=0, retry=AT_ONCE))

    assert (result.output, result.confidence) == (2, None)


@pytest.mark.real_time
async def test_plain_functions_in_threads_may_say_it_too() -> None:
    assert (await run(Step(id="a", tool="guess_in_thread"))).confidence == 0.7


@pytest.mark.parametrize("sure", [-0.1, 1.1, float("nan")])
async def test_what_is_no_confidence_is_refused(sure: float) -> None:
    @dagrun.tool(effect="read")
    async def wrong(ctx: ToolContext) -> None:
        ctx.report_confidence(sure)

    result = await run(Step(id="a", tool="wrong"), tools=[wrong])

    assert result.status is Status.FAILED
    assert "a confidence is a number from 0 to 1" in result.steps["a"].reason
    with pytest.raises(ContractError, match="from 0 to 1"):
        Verdict("pass", confidence=sure)


async def test_critics_give_a_confidence() -> None:
    """The lowest of the tool and its critics holds; a rubric gives its lowest mark."""
    rule = RuleCritic("rule", lambda _: Verdict("pass", confidence=0.5), tools=["guess"])
    model = ScriptedModel({"reason": "fair", "scores": {"rubric": 0.75}, "surprising": False})
    rubric = RubricCritic(model, "It is right.", tools=["join"])

    assert (await run(g("a", 0.8), critics=[rule])).confidence == 0.5
    assert (await run(g("a", 0.8), j("end", "a"), critics=[rubric])).confidence == 0.75


async def test_a_model_tool_gives_a_confidence() -> None:
    """The model says it beside its answer, with or without a type."""
    for output, said, gives in ((None, "blue", "blue"), (list[int], [1, 2], [1, 2])):
        llm = dagrun.llm_tool(ScriptedModel({"answer": said, "confidence": 0.45}), output=output, confidence=True)
        step = Step(id="a", tool="llm", args={"prompt": "what?"})

        result = await run(step, tools=[llm])

        assert (result.output, result.confidence) == (gives, 0.45)


async def test_it_is_on_record_and_a_resumed_run_knows_it() -> None:
    journal = MemoryJournal()
    events: list[Any] = []
    result = await run(g("a", 0.4), j("end", "a"), journal=journal, run_id="r", on_event=events.append)

    assert [(e.step, e.confidence) for e in events if isinstance(e, ConfidenceReported)] == [("a", 0.4)]
    past = await dagrun.replay("r", journal=journal)
    assert past.graph.has_confidence
    assert "its tool gives its output a confidence of 0.4" in [entry.text for entry in chronicle(past)]
    assert result.confidence == 0.4


# The gate of the answer ----------------------------------------------------------------------------------------------

AT_HALF = Policy(min_confidence=0.5)


@pytest.mark.parametrize(("sure", "is_asked"), [(0.49, True), (0.5, False), (None, False)])
async def test_an_answer_of_low_confidence_is_held_for_a_person(sure: float | None, is_asked: bool) -> None:
    """The person sees the answer, what to check, and what each step did; and ticks each point for a yes."""
    person = Person(lambda question: Answer("approve", by="ann", ticked=question.checklist))

    result = await run(g("a", sure), j("end", "a"), policy=AT_HALF, approver=person)

    assert (result.status, result.output) == (Status.SUCCEEDED, [1])
    assert len(person.asked) == is_asked
    if is_asked:
        (asked,) = person.asked
        assert asked.why == "its confidence is 0.49, and at least 0.5 is wanted"
        assert asked.checklist == ("a is right (guess: confidence 0.49)",)
        assert [line.split(",")[0] for line in asked.transcript] == [
            "a (guess): succeeded after 1 call",
            "end (join): succeeded after 1 call",
        ]


@pytest.mark.parametrize(
    ("says", "status"),
    [
        (False, Status.FAILED),
        (True, Status.WAITING),  # a yes without the ticks is no yes
        (Answer("escalate"), Status.ESCALATED),
        (None, Status.WAITING),
    ],
)
async def test_without_a_yes_the_answer_is_not_handed_out(says: Any, status: Status) -> None:
    result = await run(g("a", 0.1), policy=AT_HALF, approver=None if says is None else Person(says))

    assert (result.status, result.output) == (status, None)


async def test_silence_is_no_yes_to_a_doubtful_answer() -> None:
    policy = Policy(min_confidence=0.5, questions=QuestionRule(answer_within=10.0, default_answer="approve"))

    assert (await run(g("a", 0.1), policy=policy)).status is Status.FAILED


async def test_a_held_answer_waits_in_the_record() -> None:
    """A person may answer days later: the run is suspended, and resumed with its question."""
    journal = MemoryJournal()
    first = await run(g("a", 0.1), policy=AT_HALF, journal=journal, run_id="r")
    person = Person(lambda question: Answer("approve", ticked=question.checklist))

    async with dagrun.resume("r", journal=journal, tools=[guess, join, guess_in_thread], approver=person) as again:
        result = await again.result()

    assert (first.status, first.output) == (Status.WAITING, None)
    assert (result.status, result.output, result.confidence) == (Status.SUCCEEDED, 1, 0.1)
    assert person.asked[0].transcript


# The gate of effects -------------------------------------------------------------------------------------------------


def plan_of(confidence: float | None, tool: str = "pay") -> dict[str, Any]:
    facts = {} if confidence is None else {"confidence": confidence}
    return {"steps": [{"id": "p", "tool": tool, "args": {}}], **facts}


@pytest.mark.parametrize(
    ("confidence", "tool", "least", "is_asked"),
    [(None, "pay", 0.6, True), (0.9, "pay", 0.6, False), (None, "look", 0.6, False), (None, "pay", 0.0, False)],
)
async def test_a_models_plan_without_confidence_does_not_pass_the_gate_of_effects(
    confidence: float | None, tool: str, least: float, is_asked: bool
) -> None:
    pay, look = scripted("pay", "paid", effect="effectful", needs_approval=False), scripted("look", "seen")
    person = Person(False)

    result = await dagrun.run(
        goal="g",
        planner=ModelPlanner(ScriptedModel(plan_of(confidence, tool))),
        tools=[pay.tool, look.tool],
        policy=Policy(min_confidence=least),
        approver=person,
    )

    assert (len(person.asked), result.status) == ((1, Status.FAILED) if is_asked else (0, Status.SUCCEEDED))
    assert len(pay.calls) == (tool == "pay" and not is_asked)
    if is_asked:
        assert "gives it no confidence" in person.asked[0].text


async def test_nor_does_a_step_of_a_loop_or_a_patch() -> None:
    pay, load = scripted("pay", "paid", effect="effectful", needs_approval=False), scripted("load", ToolError("gone"))
    step = {"thought": "t", "step": {"id": "p", "tool": "pay", "args": {}}}
    patch = {"edits": [{"op": "add", "step": {"id": "p", "tool": "pay", "args": {}}}]}
    loads = {"steps": [{"id": "l", "tool": "load", "args": {}}], "confidence": 0.9}
    planners = (StepwisePlanner(ScriptedModel(step)), ModelPlanner(ScriptedModel(loads, patch)))

    for planner in planners:
        person = Person(False)
        await dagrun.run(goal="g", planner=planner, tools=[pay.tool, load.tool], approver=person)
        assert len(person.asked) == 1

    assert pay.calls == []


async def test_plans_of_the_host_need_no_confidence() -> None:
    """A planner that is a rule of the host is as sure as its author."""
    pay = scripted("pay", "paid", effect="effectful", needs_approval=False)

    result = await dagrun.run(goal="g", planner=Thinker(Plan(steps=[Step(id="p", tool="pay")])), tools=[pay.tool])

    assert result.status is Status.SUCCEEDED


# Contradictions ------------------------------------------------------------------------------------------------------


async def agreed(says: Any = None, *values: Any, tolerance: float = 0.0) -> Verdict:
    """Return the verdict on a join of some sources."""
    verdicts: list[Verdict] = []

    class Keeps(AgreementCritic):
        async def review(self, step: Step, outcome: Outcome) -> Verdict:
            verdicts.append(await super().review(step, outcome))
            return verdicts[-1]

    steps = [g(f"s{place}", value=value) for place, value in enumerate(values)]
    critic = Keeps("sums", says, tolerance=tolerance, tools=["join"])
    await run(*steps, j("end", *(step.id for step in steps)), critics=[critic])
    return verdicts[0]


@pytest.mark.parametrize(
    ("values", "tolerance", "result", "confidence"),
    [
        ((10, 10), 0.0, "pass", 1.0),
        ((10, 10.05), 0.01, "pass", 1.0),
        ((10, 10.05), 0.0, "contradictory", 0.5),
        ((10, 10, 12), 0.0, "contradictory", 2 / 3),
        (("Oslo", " oslo "), 0.0, "pass", 1.0),
        (("Oslo", "Lima"), 0.0, "contradictory", 0.5),
        (({"a": 1, "b": 2}, {"b": 2, "a": 1}), 0.0, "pass", 1.0),
        ((True, 1), 0.0, "contradictory", 0.5),
        ((10,), 0.0, "pass", None),
    ],
)
async def test_what_sources_gave_is_compared(
    values: tuple[Any, ...], tolerance: float, result: str, confidence: float | None
) -> None:
    verdict = await agreed(None, *values, tolerance=tolerance)

    assert (verdict.result, verdict.confidence) == (result, confidence)
    if result == "contradictory":
        assert "s0" in verdict.reason
        assert "contradict" in verdict.reason


async def test_a_function_says_what_is_compared() -> None:
    says = functools.partial(lambda key, output: output.get(key), "total")

    assert (await agreed(says, {"total": 1, "n": 1}, {"total": 1, "n": 2}, {"n": 3})).result == "pass"
    assert (await agreed(says, {"total": 1}, {"total": 2})).result == "contradictory"


@pytest.mark.parametrize("source", ["for_each", "list"])
async def test_many_sources_in_one_step_are_compared(source: str) -> None:
    many = (
        Step(id="s", tool="guess", for_each=[1, 1, 2], args={"value": "${item}"})
        if source == "for_each"
        else g("s", value=[1, 1, 2])
    )
    end = Step(id="end", tool="guess", args={"value": "${s}"})
    events: list[Any] = []

    result = await run(many, end, critics=[AgreementCritic(steps=["end"])], on_event=events.append)

    (verdict,) = result.steps["end"].verdicts
    assert verdict.result == "contradictory"
    assert "s[2]" in verdict.reason
    assert "contradict" in result.warnings[0]


async def test_a_contradiction_is_a_trigger_of_its_own() -> None:
    """The planner is asked before any step uses the output; it may add a third source, or keep the plan."""
    seen: list[Any] = []
    third = Patch(edits=[dagrun.Add(step=g("s2", value=10))])
    for policy, asked in (
        (LAX, 1),
        (Policy(min_confidence=0, planning=PlanningRule(replan_on=[TriggerKind.SURPRISE])), 0),
    ):
        planner = Thinker(third)
        result = await run(
            g("s0", value=10),
            g("s1", value=12),
            j("both", "s0", "s1"),
            j("end", "both"),
            critics=[AgreementCritic(steps=["both"])],
            planner=planner,
            policy=policy,
        )
        assert (result.status, len(planner.briefs)) == (Status.SUCCEEDED, asked)
        seen += [trigger.kind for brief in planner.briefs for trigger in brief.triggers]
    assert seen == [TriggerKind.CONTRADICTION]


async def test_own_critics_may_look_at_the_sources() -> None:
    seen: list[Any] = []

    class Looks:
        name = "looks"

        def applies_to(self, step: Step) -> bool:
            return step.tool == "join"

        async def review(self, step: Step, outcome: Outcome) -> Verdict:
            sources = SOURCES.get()
            assert sources is not None
            seen.append(sources())
            return Verdict("pass")

    await run(
        g("a", value=1), g("b", value=2), g("c", value=3), j("end", "a", "b", depends_on=["c"]), critics=[Looks()]
    )

    assert seen == [{"a": 1, "b": 2}]


@pytest.mark.parametrize("tolerance", [-0.1, float("nan"), float("inf")])
def test_a_tolerance_that_is_none_is_refused(tolerance: float) -> None:
    with pytest.raises(ContractError, match="tolerance"):
        AgreementCritic(tolerance=tolerance)

"""What a notebook or a debugger shows of plans and results fits a screen, and hides what must not be shown."""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Any

import pytest

import dagrun
from dagrun import Plan, Policy, RetryRule, Secrets, Step
from dagrun.evaluate.metrics.metrics import measure
from records import EXAMPLES
from small_tools import toolset

pytestmark = pytest.mark.anyio

SECRET = "correct-horse-battery"
LINES = 20


def _fan(count: int, **fields: Any) -> Plan:
    return Plan(steps=[Step(id=f"s{n}", tool="nap", args={"seconds": 1.0, "gives": n}) for n in range(count)], **fields)


def test_fields_with_their_defaults_are_left_out() -> None:
    assert repr(Step(id="a", tool="nap")) == "Step(id='a', tool='nap')"
    assert repr(Policy()) == "Policy()"
    assert repr(Policy(max_steps=3, retry=RetryRule(max_attempts=5))) == (
        "Policy(max_steps=3, retry=RetryRule(max_attempts=5))"
    )


def test_a_plan_shows_its_steps_and_its_output() -> None:
    plan = Plan(steps=[Step(id="a", tool="nap", args={"seconds": 1.0})], output="${a}")

    assert repr(plan) == str(plan) == "<Plan of 1 step; output ${a}\n  Step(id='a', tool='nap', args={'seconds': 1.0})>"


async def test_none_is_longer_than_a_screen() -> None:
    plan = _fan(40, output={f"part{n}": f"${{s{n}}}" for n in range(40)})
    checked = dagrun.check(plan, toolset())
    result = await dagrun.run(plan, tools=toolset())

    for shown in map(repr, (plan, checked, result, result.steps)):
        lines = shown.splitlines()
        assert len(lines) <= LINES
        assert max(map(len, lines)) <= 160
        assert "… and 25 more" in shown


async def test_what_failed_comes_first_and_tells_no_secret() -> None:
    async def leak() -> None:
        raise dagrun.ToolError(f"refused \x1b[31m{SECRET}")

    tools = toolset(dagrun.tool(effect="pure")(leak))
    plan = Plan(steps=[*_fan(20).steps, Step(id="bad", tool="leak", retry=RetryRule(max_attempts=1))])
    result = await dagrun.run(plan, tools=tools, secrets=Secrets({"key": SECRET}))
    title, first, *_ = repr(result).splitlines()

    assert title.startswith(f"<RunResult {result.run_id}: failed in ")
    assert first.split()[:2] == ["bad", "failed"]
    assert "refused" in first
    assert SECRET not in repr(result)
    assert "\x1b" not in repr(result)


BIG = "x" * 300_000
MANY = tuple(f"s{n}" for n in range(2_000))
EDITS = tuple(dagrun.Add(step=Step(id=f"n{n}", tool="nap", args={"seconds": 1.0, "gives": BIG})) for n in range(200))
PATCH = dagrun.Patch(edits=EDITS, reason=BIG)
PROBLEM = dagrun.Problem("DR104", "steps[0]", {"step": BIG, "dependency": "b", "hint": ""})
QUESTION = dagrun.Question(
    id="q", kind=dagrun.Asked.APPROVAL, text=BIG, arguments=BIG.encode(), checklist=MANY, diff=MANY
)
VIEWS = {name: dagrun.StepView(Step(id=name, tool="t", args={"a": BIG}), dagrun.State.WAITING) for name in MANY}
BIG_STEP = Step(id="a", tool="nap", args={"seconds": 1.0, "gives": BIG})
SUMMARY = dagrun.records.RunSummary("r", goal=BIG, labels=dict.fromkeys(MANY, BIG), waits_for=MANY)
TICKET = dagrun.extend.QueueTicket(pool=BIG)
QUEUED = dagrun.extend.QueueStatus.QUEUED
SIMULATION = dagrun.simulate(_fan(300), toolset(), runs=2, durations={"nap": 1.0})
METRICS = measure((), left_out=dict.fromkeys(MANY, BIG))
LARGE: list[object] = [
    PATCH,
    EDITS[0],
    QUESTION,
    dagrun.Drop(id=BIG),
    dagrun.Rewire(id="a", use=dict.fromkeys(MANY, "b")),
    dagrun.Consequence(added=MANY, replaced=dict.fromkeys(MANY, "b")),
    dagrun.Step(id="a", tool="t", args={"a": list(range(10_000)), "b": BIG}, description=BIG),
    dagrun.Condition(all=[dagrun.Condition(ref="a", op="==", value=BIG)] * 500),
    dagrun.Answer("approve", value=BIG, note=BIG, ticked=MANY),
    dagrun.Verdict("pass", reason=BIG),
    dagrun.Brief(run_id="r", goal=BIG, revision=0, triggers=(), steps=VIEWS, results=dict.fromkeys(MANY, BIG)),
    dagrun.Refusal(PATCH, (PROBLEM,) * 500),
    dagrun.extend.Request(system=BIG, messages=(dagrun.extend.Message("user", BIG),) * 50),
    dagrun.extend.Reply(text=BIG, stop="end", usage=dagrun.extend.Usage(), cost=None, model="m"),
    dagrun.Unavailable(BIG),
    dagrun.Applied(BIG),
    dagrun.Budget(max_calls_by_tool=dict.fromkeys(MANY, 3)),
    dagrun.Engine(max_running=3),
    dagrun.Toolbox(*toolset()),
    dagrun.PlanDiff(added=dict(zip(MANY, (edit.step for edit in EDITS), strict=False)), removed={}, changed={}),
    *toolset(),
    PROBLEM,
    *dagrun.check(Plan(steps=[BIG_STEP]), toolset()).steps.values(),
    dagrun.extend.Form(BIG, BIG, {"type": BIG}),
    dagrun.extend.InboxMessage("1", BIG.encode()),
    dagrun.extend.Outcome(dagrun.State.FAILED, failure=dagrun.extend.Failure(dagrun.extend.ErrorKind.TOOL, BIG)),
    dagrun.extend.Failure(dagrun.extend.ErrorKind.TOOL, BIG),
    TICKET,
    dagrun.extend.Wanted(pools=MANY),
    dagrun.records.Line(1, BIG.encode(), "0"),
    dagrun.records.QueuedRun(run_id="r", standing=QUEUED, ticket=TICKET, reason=BIG),
    dagrun.records.Reference("a", MANY),
    dagrun.records.Calls(failures=dict.fromkeys(MANY, 1), seconds=[1.0] * 10_000),
    SUMMARY,
    dagrun.records.RecordCount(SUMMARY, output=BIG),
    Policy(approve=[dagrun.ApprovalRule(tool=name, why=BIG) for name in MANY]),
    Secrets({name: f"a long value of {name}" for name in MANY[:300]}),  # each costs a pattern of all
    dagrun.events.StepExpanded(1, 0.0, "a", tuple(range(10_000))),
    dagrun.RunVariant(policy={"goal": BIG}),
    dagrun.VariantComparison(("a", "b"), cases=MANY, runs=3, stopped=BIG, left_out=MANY),
    dagrun.ClaimEvent(run_id="r", standing=None, reason=BIG),
    dagrun.Variant("max_running=2", makespans=[1.0] * 10_000),
    SIMULATION,
    METRICS,
    dagrun.events.Spliced(1, 0.0, 1, "host", BIG, EDITS, dagrun.Consequence(added=MANY)),
    dagrun.events.QuestionAsked(1, 0.0, QUESTION),
    dagrun.events.RunReopened(1, 0.0, MANY, BIG),
    dagrun.events.PatchRefused(1, 0.0, "host", (PROBLEM,) * 500),
    dagrun.GuardedCall("load", {"key": BIG}, BIG),
    dagrun.events.PlannerCalled(1, 0.0, 1, 1.0, 1, None, "", (BIG,) * 5),
    dagrun.events.Progress(1, 0.0, "a", 0.1, BIG),
    *EXAMPLES,
]
COLUMNS = 100


def _lines(shown: str) -> int:
    """The lines that it takes on a terminal."""
    return sum(1 + len(line) // COLUMNS for line in shown.splitlines())


@pytest.mark.parametrize("value", LARGE, ids=lambda value: type(value).__name__)
def test_no_public_object_fills_the_screen(value: object) -> None:
    """A debugger and a notebook show whatever is at hand; a value of a megabyte must not scroll all else away."""
    shown = repr(value)

    assert _lines(shown) <= LINES
    assert type(value).__name__ in shown
    assert " object at 0x" not in shown


async def test_no_handle_of_a_run_fills_the_screen() -> None:
    journal = dagrun.MemoryJournal()
    async with dagrun.start(_fan(300), tools=toolset(), journal=journal) as run:
        events = run.events()
        done = await run.splice(dagrun.Patch(edits=[*EDITS[:20]], reason=BIG))
        handles: list[object] = [run, run.plan, run.plan.revisions[0], run.plan.diff(0, 1), events, done]
        result = await run.result()
    past = await dagrun.replay(run.id, journal=journal)
    handles += [result, result.steps, result.steps["s1"], past, past.opening, past.history, journal, result.plan]

    for value in handles:
        shown = repr(value)
        assert _lines(shown) <= LINES
        assert type(value).__name__ in shown
        assert " object at 0x" not in shown
    assert repr(past).startswith(f"<Replayed {run.id}: succeeded after ")
    assert repr(journal) == "<MemoryJournal of 1 run>"


def test_every_public_class_of_data_is_in_the_list() -> None:
    """A class that is added later is tried here, or is one of those that hold next to nothing."""
    tried = {type(value).__name__ for value in LARGE}
    tiers = (dagrun, dagrun.errors, dagrun.events, dagrun.extend, dagrun.records)
    kinds = [getattr(tier, name) for tier in tiers for name in tier.__all__]
    public = {kind.__name__ for kind in kinds if isinstance(kind, type) and is_dataclass(kind)}
    elsewhere = {"Plan", "CheckedPlan", "RunResult", "StepResult", "Replayed", "Revision", "Event"}
    small = {"Gap", "HedgeRule", "StepView", "Trigger", "Message", "Usage", "Route", "ToolCall", "ModelUse"}
    small |= {"Batch", "EarlierPlanner", "HandedOn", "FallbackPlanner", "PastRequest", "Secret", "ToolContext"}
    small |= {"Held", "KeptResult", "Opening"}

    assert sorted(public - tried - elsewhere - small) == []

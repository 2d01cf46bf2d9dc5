"""Events of every sort, for what is tested about records: at least one of each class, with every field filled in."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from dagrun import (
    Add,
    Answer,
    ApprovalRule,
    Asked,
    Condition,
    Consequence,
    Drop,
    Event,
    Plan,
    PlanningRule,
    Policy,
    Problem,
    Question,
    Replace,
    RetryRule,
    Rewire,
    State,
    Status,
    Step,
    Trigger,
    TriggerKind,
    Unavailable,
    Verdict,
)
from dagrun.events import Hedged, HedgeEnded, ModelCharged, ModelReserved, PlannerAsked, PlannerCalled
from dagrun.extend import HandOn
from dagrun.kernel.model import event as events
from dagrun.kernel.model.event import Opening
from dagrun.kernel.model.outcome import Decision, ErrorKind, Failure, Outcome, Recovery

FAILURE: Final = Failure(
    kind=ErrorKind.RATE_LIMITED,
    message="the other side is busy: “später” …",
    error="HTTPStatusError",
    is_transient=True,
    nothing_happened=True,
    retry_after=2.5,
    missing_input="region",
)
WELL: Final = Outcome(State.SUCCEEDED, b'{"rows":[1,2.0,-0.0,1e+22],"of":"caf\xc3\xa9"}', tokens=12, cost=0.25)
ILL: Final = Outcome(State.FAILED, None, FAILURE, 7, None, "ten times the rows")
AGAIN: Final = Decision(Recovery.RETRY, "rate_limited is transient", 0.75, TriggerKind.FAILED_TWICE)
TRIGGER: Final = Trigger(TriggerKind.FAILED, "load", "no such file", "FileNotFoundError", ErrorKind.EXCEPTION, "ab12")
PROBLEM: Final = Problem("DR104", "steps[2].depends_on[0]", {"step": "b", "dependency": "a", "hint": ""})
VERDICT: Final = Verdict("surprising", 0.5, "it may be right", "rules", 40, 0.01)
ANSWER: Final = Answer("approve", {"limit": [1, None, "€"]}, "ann", "looks fine", ("checked the sum",))
LOAD: Final = Step(
    id="load",
    tool="load_rows",
    args={"path": "${input.path}", "of": [1, 2.5, None, True, {"deep": "\u2028"}]},
    depends_on=["first"],
    description="Loads.",
    expected_output="Rows.",
    when=Condition(all=[Condition(ref="first", op="exists"), Condition(not_=Condition(ref="x", op=">", value=0))]),
    for_each=[1, 2],
    max_parallel=2,
    success=Condition(ref="load", op="min_length", value=1),
    timeout=5.0,
    deadline=60.0,
    retry=RetryRule(max_attempts=3),
    fallback="load_slowly",
    on_failure="default",
    default=None,
    optional=True,
    confidence=0.75,
    executor="thread",
    pool="disk",
    estimate=0.0,
    pause="after",
)
FIRST: Final = Step(id="first", tool="add", args={"a": 1, "b": 2**70})
EDITS: Final = (
    Add(step=FIRST),
    Drop(id="old", cancel=True),
    Replace(id="load", step=LOAD),
    Rewire(id="join", use={"load": "first"}, depends_on=["first"], args={"a": "${first}"}),
    Drop(op="drop", id="older"),
)
CONSEQUENCE: Final = Consequence(
    added=("first", "load-2"),
    dropped=("old",),
    replaced={"load": "load-2"},
    rewired=("join",),
    cancelled=("old",),
    superseded=("load",),
    unblocked=("join",),
    reused=("first",),
    fallen=("gone",),
)
OPENING: Final = Opening(
    plan=Plan(steps=[FIRST, LOAD], goal="Total of Q4", output={"rows": "${load}"}, confidence=0.9),
    policy=Policy(
        max_running=4,
        max_calls_by_tool={"load_rows": 3},
        max_cost=5.0,
        retry=RetryRule(first_delay=0.0),
        planning=PlanningRule(replan_on=(TriggerKind.SURPRISE, TriggerKind.FAILED), stream_safe=["load_rows"]),
        approve=[ApprovalRule(tool="pay", when=Condition(ref="args.amount", op=">", value=100), checklist=["sum"])],
        last_resort="escalate",
    ),
    inputs=b'{"path":"a.csv"}',
    tools={"add": {"name": "add", "effect": "pure", "arguments": {"type": "object"}, "timeout": None}},
    executors=("ray",),
    critics=("rules", "rubric"),
    in_waves=True,
    root="run-1",
    parent="run-2",
    roots={"load": ("load-1", 2)},
    seed=7,
    labels={"command": ["dagrun", "run", "plan.json"], "n": 1},
    expires_at=1_800_000_000.5,
    version="0.6.0",
)
ELEMENTS: Final = {
    "load[0]": Outcome(State.SUCCEEDED, b'{"total":7}'),
    "load[2]": Outcome(State.SUCCEEDED, Unavailable("it holds the secret API_KEY")),
}
QUESTION: Final = Question(
    id="0f3c",
    kind=Asked.INPUT,
    text="Which region?",
    step="load",
    tool="load_rows",
    effect="read",
    arguments=b'{"path":"a.csv"}',
    why="the tool asks",
    checklist=("one", "two"),
    diff=("+ load", "- old"),
    name="region",
    schema={"type": "string", "enum": ["EU", "US"]},
    asked_at=1.5,
    deadline=61.5,
    default=ANSWER,
)

# By class: as many as it takes to have every field with and without a value.
EXAMPLES: Final[tuple[Event, ...]] = (
    events.RunStarted(1, 0.0, "run-3", 2, "Total of Q4", 1_795_000_000.123, OPENING),
    events.RunStarted(1, 0.0, "run-4", 0, "", 1_795_000_000.0),
    events.RunStarted(
        1, 0.0, "run-5", 0, "go", 0.5, Opening(plan=Plan(steps=()), policy=Policy(), inputs=None, tools={})
    ),
    events.AttemptStarted(2, 0.000012345, "load[0]", 1, "load_rows"),
    events.AttemptStarted(2, 3.25, "first", 1, "add"),
    events.AttemptEnded(3, 0.1, "load", 1, State.SUCCEEDED, WELL, Decision(Recovery.PROCEED)),
    events.AttemptEnded(3, 0.1, "load", 2, State.READY, ILL, AGAIN),
    events.AttemptEnded(3, 0.1, "first", 1, State.SUCCEEDED, Outcome(State.SUCCEEDED, 3), Decision(Recovery.PROCEED)),
    events.AttemptEnded(
        3,
        0.1,
        "key",
        1,
        State.SUCCEEDED,
        Outcome(State.SUCCEEDED, Unavailable("it holds the secret API_KEY")),
        Decision(Recovery.PROCEED),
    ),
    events.AttemptEnded(
        3,
        0.1,
        "load",
        1,
        State.RUNNING,
        Outcome(State.SUCCEEDED, b"[]"),
        Decision(Recovery.REVIEW, "critics look at it first"),
    ),
    events.StepSettled(
        4,
        0.2,
        "load",
        State.SUCCEEDED,
        "1 of 2",
        "load[1]",
        True,
        b"[1,null]",
        True,
        ((1, "failed: no"),),
        FAILURE,
        True,
    ),
    events.StepSettled(4, 0.2, "old", State.SKIPPED, "load failed", "load"),
    events.StepSettled(4, 0.2, "key", State.SUCCEEDED, "", value=Unavailable("kept out")),
    events.StepExpanded(5, 0.3, "load", (1, "two", b'{"three":3}', None, True, 2.5, b"[]")),
    events.StepExpanded(5, 0.3, "load", ()),
    events.Reviewed(6, 0.4, "load", 1, State.FAILED, (VERDICT, Verdict("pass")), ILL, AGAIN),
    events.Spliced(7, 0.5, 1, "planner", "a better way", EDITS, CONSEQUENCE, True, {"rows": "${load-2}"}),
    events.Spliced(7, 0.5, 2, "host", "", (), Consequence()),
    events.PatchRefused(8, 0.6, "planner", (PROBLEM, Problem("DR111", "steps"))),
    events.GoalChanged(9, 0.7, "Total of Q3"),
    events.DraftStarted(10, 0.8, "Total of Q3", True),
    events.DraftEnded(11, 0.9, "refused", "1 problem", 2, (PROBLEM,), True),
    PlannerAsked(12, 1.0, 1),
    ModelReserved(13, 1.1, 1, "gpt-5", 4000, 0.5),
    ModelReserved(13, 1.1, 1, "mine", None, None),
    ModelCharged(14, 1.2, 1, 123, 0.01),
    ModelCharged(14, 1.2, 1, None, None),
    PlannerCalled(15, 1.3, 1, 0.25, 123, 0.01, "it broke off"),
    PlannerCalled(15, 1.3, 1, 0.25, 0, None),
    events.ReplanRequested(16, 1.4, TRIGGER),
    events.ReplanRequested(16, 1.4, Trigger(TriggerKind.NEXT, "", "all has ended")),
    events.ReplanStarted(17, 1.5, 1, ("load", "")),
    events.ReplanEnded(18, 1.6, 1, "applied", "a better way", ("load",), 2, ("ab12",), "cd34", True),
    events.QuestionAsked(19, 1.7, QUESTION),
    events.QuestionAsked(19, 1.7, Question(id="1", kind=Asked.OUTPUT, text="May it?")),
    events.QuestionAnswered(20, 1.8, "0f3c", "load", ANSWER, State.READY, "in time"),
    events.QuestionAnswered(20, 1.8, "0f3c", "", None, None),
    events.StepResumed(21, 1.9, "load"),
    events.CeilingNear(22, 2.0, "max_cost", 4.0, 5.0),
    events.RunStopping(23, 2.1, Status.ESCALATED, "handed over by ann"),
    events.RunSuspended(24, 2.2, Status.WAITING, "for ann"),
    events.RunResumed(25, 2.3, 1_795_000_100.0, ("policy: max_cost was 5.0, is none",), OPENING),
    events.RunResumed(25, 2.3, 1_795_000_100.0),
    events.RunReopened(26, 2.4, ("load", "join"), "its effect was in doubt"),
    events.RunEnded(27, 2.5, Status.SUCCEEDED, "all 2 steps have succeeded"),
    Hedged(28, 2.6, "load", 1, 0.75),
    HedgeEnded(29, 2.7, "load", 1, True, 12, 0.01),
    HedgeEnded(29, 2.7, "load", 1, False, 0, None, "no connection"),
    events.ConfidenceReported(15, 1.3, "load", 1, 0.25),
    PlannerAsked(15, 1.3, 2, "OpenAIPlanner fast"),
    PlannerCalled(15, 1.3, 2, 0.25, 0, None, planner="OpenAIPlanner fast", notes="left: pay", prompt="8+1a2b3c4d"),
    events.HandedOn(15, 1.3, 0, 1, "OpenAIPlanner fast", "strong", HandOn.AMBIGUOUS_STEP, "step b: 0.2"),
    events.Spliced(7, 0.5, 3, "planner", "", EDITS, CONSEQUENCE, request=2, refused=(PROBLEM,)),
    events.RunStarted(1, 0.0, "run-6", 2, "Total of Q4", 1_795_000_000.0, replace(OPENING, elements=ELEMENTS)),
)

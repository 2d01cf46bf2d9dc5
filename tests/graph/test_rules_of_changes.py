"""The rules of `changes.py`, one by one: a state, an event, and what the graph is afterwards. No run is made."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

import pytest

from dagrun import (
    Answer,
    Asked,
    Drop,
    Plan,
    Policy,
    Question,
    Replace,
    State,
    Status,
    Step,
    Toolbox,
    Trigger,
    TriggerKind,
    Unavailable,
    Verdict,
)
from dagrun.events import (
    AttemptEnded,
    CeilingNear,
    ConfidenceReported,
    DraftEnded,
    DraftStarted,
    GoalChanged,
    HandedOn,
    Hedged,
    HedgeEnded,
    ModelCharged,
    ModelReserved,
    PatchRefused,
    PlannerAsked,
    PlannerCalled,
    QuestionAnswered,
    QuestionAsked,
    ReplanEnded,
    ReplanRequested,
    ReplanStarted,
    Reviewed,
    RunReopened,
    RunResumed,
    RunStopping,
    RunSuspended,
    StepResumed,
    StepSettled,
)
from dagrun.extend import HandOn
from dagrun.kernel.checks.check_plan import check_plan
from dagrun.kernel.checks.waves import in_waves
from dagrun.kernel.graph.changes import GOAL
from dagrun.kernel.graph.live_graph import PAUSE, REPLAN
from dagrun.kernel.graph.mapped_steps import needed
from dagrun.kernel.model.contracts.held_objects import NOT_RECORDED
from dagrun.kernel.model.outcome import Decision, Outcome, Recovery
from dagrun.kernel.model.tool import make_tool
from dagrun.kernel.model.value import encode
from played import Played


async def look(value: Any = None) -> Any: ...


async def pay(value: Any = None) -> None: ...


TOOLS = Toolbox(make_tool(look, effect="read"), make_tool(pay, effect="idempotent"))
LOOKS = Step(id="a", tool="look")
CHAIN = (LOOKS, Step(id="b", tool="look", depends_on=("a",)), Step(id="c", tool="look", args={"value": "${a}"}))
FAN = Step(id="f", tool="look", for_each=[1, 2], args={"value": "${item}"})
YES, NO = Answer("approve"), Answer("deny")


def ask(played: Played, step: str, kind: Asked = Asked.APPROVAL, id_: str = "q", **facts: Any) -> None:
    played.apply(QuestionAsked, Question(id=id_, kind=kind, text="?", step=step, **facts))


def end(played: Played, id_: str, state: State, recovery: Recovery, result: State = State.FAILED) -> None:
    """Call the tool of a step, and end the call."""
    played.start(id_)
    played.apply(AttemptEnded, id_, len(played[id_].attempts), state, Outcome(result), Decision(recovery))


def change_goal(played: Played) -> None:
    played.apply(GoalChanged, "another goal")
    played.apply(ReplanRequested, Trigger(TriggerKind.GOAL_CHANGED, GOAL, "the goal has changed"))


def end_replan(played: Played, result: str, *steps: str, **facts: Any) -> None:
    played.apply(ReplanEnded, len(played.graph.asking), result, "why", steps, *facts.values())


def ready(played: Played) -> list[str]:
    """The steps that are handed out to be called, in their order."""
    taken = []
    while (node := played.graph.frontier.take()) is not None:
        taken.append(node.id)
    return taken


# Rules 3 and 4: how a step ends, and what follows for those that wait for it by order (b) and for its output (c) ------


@pytest.mark.parametrize(
    ("state", "recovery", "by_order", "by_value", "kept"),
    [
        (State.SUCCEEDED, Recovery.PROCEED, "ready", "ready", False),
        (State.SUCCEEDED, Recovery.DEFAULT, "ready", "ready", False),
        (State.SUCCEEDED, Recovery.REPLAN, "blocked", "blocked", True),
        (State.FAILED, Recovery.REPLAN, "blocked", "blocked", True),
        (State.FAILED, Recovery.GIVE_UP, "blocked", "blocked", False),
        (State.FAILED, Recovery.SKIP, "ready", "blocked", False),
        (State.UNKNOWN, Recovery.SKIP, "ready", "blocked", False),
        (State.CANCELLED, Recovery.GIVE_UP, "blocked", "blocked", False),
        (State.READY, Recovery.RETRY, "waiting", "waiting", False),
        (State.READY, Recovery.FALL_BACK, "waiting", "waiting", False),
        (State.HELD, Recovery.ASK, "waiting", "waiting", False),
        (State.RUNNING, Recovery.REVIEW, "waiting", "waiting", False),
    ],
)
@pytest.mark.parametrize("by", ["attempt", "review"])
def test_what_the_end_of_a_call_means_for_others(
    state: State, recovery: Recovery, by_order: str, by_value: str, kept: bool, by: str
) -> None:
    """A review has the same consequences as an end without critics."""
    if by == "review" and recovery is Recovery.REVIEW:
        return
    played = Played(CHAIN, TOOLS)
    first = played.graph.unsettled
    if by == "attempt":
        end(played, "a", state, recovery, state if state.is_settled else State.FAILED)
    else:
        end(played, "a", State.RUNNING, Recovery.REVIEW, State.SUCCEEDED)
        facts = ((Verdict("fail", tokens=5, cost=0.5, confidence=0.9),), Outcome(state), Decision(recovery))
        played.apply(Reviewed, "a", 1, state, *facts)
        assert (played.graph.models.tokens, played.graph.models.known_cost) == (5, 0.5)
        assert played.graph.has_confidence
        assert played["a"].attempts[-1].decision == Decision(recovery)

    assert (played.states["b"], played.states["c"]) == (by_order, by_value)
    assert played.graph.kept == ({"a": {REPLAN}} if kept else {})
    assert first - played.graph.unsettled == state.is_settled
    assert played["a"].on_fallback == (recovery is Recovery.FALL_BACK)
    assert (played.graph.all_well, played.graph.all_known) == (
        state is State.SUCCEEDED or not state.is_settled,
        state is not State.UNKNOWN,
    )
    assert ready(played) == [id_ for id_ in ("b", "c") if played.states[id_] == "ready"]


@pytest.mark.parametrize("state", [State.SUCCEEDED, State.FAILED, State.UNKNOWN])
@pytest.mark.parametrize("tolerated", [False, True])
@pytest.mark.parametrize("asks", [False, True])
def test_an_end_without_a_call_has_the_same_consequences(state: State, tolerated: bool, asks: bool) -> None:
    played = Played(CHAIN, TOOLS)
    played.apply(StepSettled, "a", state, "why", "", tolerated, b"1", False, (), None, asks)

    is_well = state is State.SUCCEEDED
    assert (played["a"].reason, played["a"].value, played["a"].is_tolerated) == ("why", b"1", tolerated)
    assert played.states["b"] == ("blocked" if asks or not (is_well or tolerated) else "ready")
    assert played.states["c"] == ("ready" if is_well and not asks else "blocked")
    assert played.graph.kept == ({"a": {REPLAN}} if asks else {})
    assert (played.graph.all_well, played.graph.all_known) == (is_well, state is not State.UNKNOWN)
    assert played.graph.unsettled == 2


@pytest.mark.parametrize(("answer", "by_order"), [(YES, "ready"), (NO, "blocked"), (None, "blocked")])
def test_a_pause_keeps_its_dependents_until_a_person_has_agreed(answer: Answer | None, by_order: str) -> None:
    pausing = (LOOKS.model_copy(update={"pause": "after"}), *CHAIN[1:])
    played = Played(pausing, TOOLS)
    played.succeed("a", value=1)
    assert (played.states["b"], played.graph.kept) == ("blocked", {"a": {PAUSE}})

    ask(played, "a", Asked.PAUSE)
    played.apply(QuestionAnswered, "q", "a", answer, None)

    assert played.graph.kept == {}
    assert played.states == {"a": "succeeded", "b": by_order, "c": by_order}
    assert played["a"].make_extra().is_closed == (by_order == "blocked")


@pytest.mark.parametrize(("first", "second"), [(REPLAN, PAUSE), (PAUSE, REPLAN)])
def test_dependents_wait_for_the_last_reason_that_keeps_them(first: str, second: str) -> None:
    played = Played(CHAIN, TOOLS)
    played.fail("a", state=State.SUCCEEDED)
    played.graph.kept["a"].add(PAUSE)

    played.graph.unblock_dependents(played["a"], first)
    assert (played.states["b"], played.graph.kept) == ("blocked", {"a": {second}})

    played.graph.unblock_dependents(played["a"], second)
    assert (played.states["b"], played.graph.kept) == ("ready", {})


@pytest.mark.parametrize("recovery", [Recovery.REPLAN, Recovery.GIVE_UP])
def test_what_a_failure_blocks_stays_blocked_after_a_request(recovery: Recovery) -> None:
    played = Played(CHAIN, TOOLS)
    end(played, "a", State.FAILED, recovery)
    end_replan(played, "refused", "a")

    assert (played.states["b"], played.states["c"]) == ("blocked", "blocked")
    assert ready(played) == []


def test_an_element_whose_object_is_not_made_again_stays_blocked_after_a_request() -> None:
    """It waits for its producer by itself, although its for_each has its list already."""
    objects = Step(id="f", tool="look", for_each="${a}", args={"value": "${item}"})
    played = Played((LOOKS, objects), TOOLS)
    played.succeed("a", value=[1])
    played.expand("f", 1)
    played["f[0]"].item = Unavailable(f"{NOT_RECORDED}a frame")
    played.apply(RunReopened, ("a",), "it is needed again")
    assert played.states == {"a": "ready", "f": "running", "f[0]": "waiting"}

    end(played, "a", State.FAILED, Recovery.REPLAN)
    assert played.states["f[0]"] == "blocked"
    end_replan(played, "refused", "a")

    assert played.states["f[0]"] == "blocked"


# Rule 5: a frozen graph, and a first plan -----------------------------------------------------------------------------


def test_a_changed_goal_stops_steps_that_were_never_called() -> None:
    """What waits for its retry, runs, or was answered after a call goes on: it has started before."""
    steps = [Step(id=id_, tool="look") for id_ in ("new", "again", "runs", "asked", "told")]
    played = Played([*steps, Step(id="late", tool="look", depends_on=("runs",))], TOOLS)
    end(played, "again", State.READY, Recovery.RETRY)
    played.start("runs")
    end(played, "asked", State.HELD, Recovery.ASK)
    ask(played, "asked", Asked.INPUT, "asked")
    ask(played, "told", Asked.APPROVAL, "told")
    change_goal(played)
    played.apply(QuestionAnswered, "asked", "asked", YES, State.READY)
    played.apply(QuestionAnswered, "told", "told", YES, State.READY)
    played.end("runs")

    assert played.graph.is_frozen
    assert played.states == {
        "new": "blocked", "again": "ready", "runs": "succeeded", "asked": "ready", "told": "blocked", "late": "blocked",
    }  # fmt: skip
    assert ready(played) == ["asked"]

    end_replan(played, "unchanged", GOAL)
    assert not played.graph.is_frozen
    assert {played.states[id_] for id_ in ("new", "told", "late")} == {"ready"}


@pytest.mark.parametrize(
    ("result", "goal_changes", "is_frozen", "state"),
    [
        ("applied", False, False, "ready"),
        ("applied", True, True, "blocked"),
        ("refused", False, True, "blocked"),
        ("refused", True, True, "blocked"),
    ],
)
def test_the_end_of_the_first_plan(result: str, goal_changes: bool, is_frozen: bool, state: str) -> None:
    """A goal that has changed meanwhile keeps the graph frozen: the plan was made for another one."""
    played = Played(CHAIN, TOOLS)
    played.apply(DraftStarted, "the goal", False)
    assert played.graph.is_drafting
    if goal_changes:
        change_goal(played)
    played.apply(DraftEnded, result, "why", 1, (), True)

    assert (played.graph.is_drafting, played.graph.is_frozen, played.states["a"]) == (False, is_frozen, state)
    assert played.graph.draft_end == (result, "why")
    assert played.graph.wants_more == (result == "applied")


@pytest.mark.parametrize(("tool", "state"), [("look", "ready"), ("pay", "blocked")])
@pytest.mark.parametrize("is_held", [False, True])
def test_only_calls_that_do_no_harm_start_before_the_plan_is_complete(tool: str, state: str, is_held: bool) -> None:
    played = Played((LOOKS, Step(id="b", tool=tool, depends_on=("a",))), TOOLS)
    played.start("a")
    played.apply(DraftStarted, "the goal", is_held)
    played.end("a")

    assert played.states["b"] == ("blocked" if is_held else state)
    played.apply(DraftEnded, "applied", "")
    assert played.states["b"] == "ready"


# Rules 1 and 2, and what is noted about the run, the planner and models -----------------------------------------------


def test_a_suspended_run_is_resumed_where_it_was() -> None:
    """Who was held without a call and without an open question is asked again; the others stay held."""
    played = Played([Step(id=id_, tool="look") for id_ in ("early", "asked", "failed", "calling", "again")], TOOLS)
    ask(played, "early", id_="1")
    played.apply(QuestionAnswered, "1", "early", None, None)
    ask(played, "asked", id_="2")
    end(played, "failed", State.HELD, Recovery.ASK)
    played.start("calling")
    ask(played, "calling", id_="3")
    end(played, "again", State.READY, Recovery.RETRY)
    ask(played, "again", id_="4")
    for number, step in (("3", "calling"), ("4", "again")):
        played.apply(QuestionAnswered, number, step, None, None)
    played.apply(RunSuspended, Status.WAITING, "for people")
    assert (played.graph.status, played.graph.reason) == (Status.WAITING, "for people")

    played.apply(RunResumed, 50.0)

    assert (played.graph.status, played.graph.reason) == (None, "")
    assert played.states == {
        "early": "ready", "asked": "held", "failed": "held", "calling": "held", "again": "ready",
    }  # fmt: skip


def test_a_reopened_step_waits_runs_or_is_held_as_it_was_before_it_settled() -> None:
    played = Played((*CHAIN, FAN), TOOLS)
    played.expand("f", 1)
    played.succeed("a", "b", "f[0]", value=1)
    played.apply(StepSettled, "f", State.SUCCEEDED, "")
    played.apply(StepSettled, "c", State.SKIPPED, "why", "a", True)
    played.apply(RunStopping, Status.FAILED, "why")
    played.apply(RunReopened, ("a", "f", "f[0]", "c"), "why")

    assert (played.graph.status, played.graph.stopping, played.graph.unsettled) == (None, None, 4)
    assert played.states == {"a": "ready", "b": "succeeded", "c": "waiting", "f": "running", "f[0]": "ready"}
    assert (played["f"].missing, played["c"].ended, played["c"].is_tolerated, played["a"].value) == (
        1,
        None,
        False,
        None,
    )


@pytest.mark.parametrize(
    ("events", "fact"),
    [
        ([(CeilingNear, "tokens", 8.0, 10.0)], lambda graph: graph.saving.used == 8.0),
        ([(RunStopping, Status.FAILED, "why")], lambda graph: graph.stopping == (Status.FAILED, "why")),
        ([(PlannerAsked, 3)], lambda graph: graph.planner_calls == 3),
        ([(PlannerCalled, 1, 0.5, 7, 0.25)], lambda graph: (graph.models.tokens, graph.models.known_cost) == (7, 0.25)),
        (
            [(PlannerCalled, 1, 0.5, 0, None, "", ("one",), None, "", "kept"), (PlannerCalled, 2, 0.5, 0, None)],
            lambda graph: (graph.planner_notes, graph.planner_answers) == ("kept", ()),
        ),
        (
            [(ReplanStarted, 1, ("a",)), (ReplanStarted, 2, ("b",))],
            lambda graph: graph.asking == {1: ("a",), 2: ("b",)},
        ),
        (
            [(ReplanStarted, 1, ("a",)), (ReplanEnded, 1, "unchanged", "why", ("a",))],
            lambda graph: (graph.asking, graph.replans, graph.replanned[0].reason) == ({}, 1, "why"),
        ),
        ([(HandedOn, 1, 1, "x", "y", HandOn.NOTHING, "why")] * 2, lambda graph: len(graph.handed_on[1]) == 2),
        (
            [(HandedOn, 1, 1, "x", "y", HandOn.NOTHING, "why"), (ReplanEnded, 1, "unchanged", "", ())],
            lambda graph: graph.handed_on == {},
        ),
        ([(ModelReserved, 1, "m", 5, None)], lambda graph: graph.model_calls[1][1] is None),
        (
            [(ModelReserved, 1, "m", 5, None), (ModelCharged, 1, 3, 0.5)],
            lambda graph: [part.tokens for part in graph.model_calls[1]] == [5, 3],
        ),
        ([(PatchRefused, "planner", ("wrong",))], lambda graph: graph.problems == ()),
        (
            [(ReplanRequested, Trigger(TriggerKind.GOAL_GIVEN, GOAL, "")), (PatchRefused, "planner", ("wrong",))],
            lambda graph: graph.problems == ("wrong",),
        ),
        (
            [(ReplanRequested, Trigger(TriggerKind.GOAL_GIVEN, GOAL, "")), (PatchRefused, "host", ("wrong",))],
            lambda graph: graph.problems == (),
        ),
    ],
)
def test_what_is_noted_about_the_run(events: list[tuple[Any, ...]], fact: Callable[[Any], bool]) -> None:
    played = Played(CHAIN, TOOLS)
    for kind, *facts in events:
        played.apply(kind, *facts)

    assert fact(played.graph)


@pytest.mark.parametrize(
    ("kind", "result", "warnings", "unchanged"),
    [
        (TriggerKind.SURPRISE, "unchanged", ["a was surprising (odd), and the plan was not changed: why"], ""),
        (TriggerKind.SURPRISE, "applied", [], ""),
        (TriggerKind.FAILED, "refused", [], "why"),
        (TriggerKind.FAILED, "repaired", [], ""),
    ],
)
def test_a_request_that_changes_nothing_says_so(
    kind: TriggerKind, result: str, warnings: list[str], unchanged: str
) -> None:
    played = Played(CHAIN, TOOLS)
    played.fail("a", state=State.SUCCEEDED if kind is TriggerKind.SURPRISE else State.FAILED)
    played.apply(ReplanRequested, Trigger(kind, "a", "odd"))
    end_replan(played, result, "a")

    assert (played.graph.warnings, played.graph.why_unchanged, played.graph.triggers) == (warnings, unchanged, {})


# People ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("step", "is_called", "waited"), [("a", False, 0.0), ("a", True, 1.0), ("f[0]", False, 1.0)])
def test_the_deadline_of_a_step_stands_still_while_it_is_held(step: str, is_called: bool, waited: float) -> None:
    """It begins with the first call, and of an element with the list of its for_each: before that, nothing is lost."""
    played = Played((LOOKS, FAN), TOOLS)
    played.expand("f", 1)
    if is_called:
        end(played, step, State.READY, Recovery.RETRY)
    ask(played, step)
    played.apply(QuestionAnswered, "q", step, YES, State.READY)

    assert played[step].make_extra().held == waited
    assert played[step].make_extra().held_since is None


def test_the_deadline_of_a_call_that_asks_stands_still_until_it_has_a_slot_again() -> None:
    played = Played(CHAIN, TOOLS)
    played.start("a")
    ask(played, "a", Asked.INPUT)
    played.apply(QuestionAnswered, "q", "a", YES, State.READY)
    played.apply(StepResumed, "a")

    assert (played["a"].make_extra().held, played["a"].make_extra().asked, played.states["a"]) == (2.0, 1, "running")


@pytest.mark.parametrize(
    ("kind", "choice", "name", "changed"),
    [
        (Asked.APPROVAL, "approve", "", {"approved": "q"}),
        (Asked.APPROVAL, "deny", "", {}),
        (Asked.PAUSE, "approve", "", {"is_passed": True}),
        (Asked.PERMISSION, "approve", "", {"forgiven": 1}),
        (Asked.EFFECT, "did_not", "", {"generation": 1, "forgiven": 1, "cleared": 1}),
        (Asked.EFFECT, "deny", "", {"generation": 1, "forgiven": 1, "cleared": 1}),
        (Asked.EFFECT, "took_effect", "", {"applied": 1}),
        (Asked.INPUT, "approve", "value", {"given": {"value": encode(3)}, "generation": 1, "forgiven": 1}),
    ],
)
def test_an_answer_changes_the_next_call(kind: Asked, choice: Any, name: str, changed: dict[str, Any]) -> None:
    played = Played(CHAIN, TOOLS)
    end(played, "a", State.HELD, Recovery.ASK)
    ask(played, "a", kind, name=name)
    extra = played["a"].make_extra()
    before = {field: copy(getattr(extra, field)) for field in extra.__slots__}
    played.apply(QuestionAnswered, "q", "a", Answer(choice, value=3), State.READY)

    now = {field: getattr(extra, field) for field in extra.__slots__ if not field.startswith("held")}
    assert {field: value for field, value in now.items() if value != before[field]} == changed
    assert played["a"].on_fallback == (kind is Asked.PERMISSION and choice != "approve")


def test_a_refused_permission_leads_to_the_fallback() -> None:
    played = Played(CHAIN, TOOLS)
    end(played, "a", State.HELD, Recovery.ASK)
    ask(played, "a", Asked.PERMISSION)
    played.apply(QuestionAnswered, "q", "a", NO, State.READY)

    assert (played["a"].on_fallback, played.states["a"]) == (True, "ready")


@pytest.mark.parametrize(
    ("answer", "withheld"),
    [
        (YES, None),
        (NO, (Status.FAILED, "a person did not let the answer out")),
        (Answer("deny", note="no"), (Status.FAILED, "a person did not let the answer out: no")),
        (None, (Status.WAITING, "nobody was there to let the answer out")),
    ],
)
def test_an_answer_of_the_run_is_let_out_by_a_yes_alone(answer: Answer | None, withheld: Any) -> None:
    played = Played(CHAIN, TOOLS)
    ask(played, "", Asked.OUTPUT, arguments=b"1")
    played.apply(QuestionAnswered, "q", "", answer, None)

    assert (played.graph.shown_output, played.graph.withheld, played.graph.questions) == (b"1", withheld, {})


@pytest.mark.parametrize(("answer", "agreed"), [(YES, True), (NO, False), (None, False)])
def test_a_yes_to_a_patch_is_kept_until_the_request_ends(answer: Answer | None, agreed: bool) -> None:
    played = Played(CHAIN, TOOLS)
    ask(played, "", Asked.PATCH)
    played.apply(QuestionAnswered, "q", "", answer, None)
    assert played.graph.has_agreed == agreed

    end_replan(played, "refused", GOAL)
    assert not played.graph.has_agreed


# Elements, hedges -----------------------------------------------------------------------------------------------------


def test_the_calls_of_a_substitute_for_a_for_each_have_keys_of_their_own() -> None:
    """The calls so far had no effect: those of the substitute are other calls, of every element."""
    played = Played((FAN,), TOOLS)
    played.expand("f", 1)
    played.fail("f[0]", Recovery.GIVE_UP, nothing_happened=True)
    played.splice(Replace(id="f", step=FAN.model_copy(update={"id": "g"})))
    played.expand("g", 1)

    assert (played["g[0]"].root, played["g[0]"].generation, played["f[0]"].generation) == ("f[0]", 1, 0)


@pytest.mark.parametrize(("waves", "state"), [(False, "ready"), (True, "waiting")])
def test_in_waves_a_step_that_needs_one_element_waits_for_all(waves: bool, state: str) -> None:
    reader = Step(id="r", tool="look", args={"value": "${f[0]}"})
    plan = check_plan(Plan(steps=(FAN, reader), goal="the goal"), TOOLS, Policy())
    played = Played.of(in_waves(plan) if waves else plan)
    played.expand("f", 1, 2)
    played.succeed("f[0]")

    assert needed(played["r"].plan, played["f"]) == (None if waves else frozenset((0,)))
    assert played.states["r"] == state


def test_a_second_call_is_noted_in_the_attempt_beside_which_it_is_made() -> None:
    played = Played(CHAIN, TOOLS)
    played.start("a")
    played.apply(Hedged, "a", 1, 0.5)
    played.apply(HedgeEnded, "a", 1, True, 5, 0.5, "slow")
    hedge = played["a"].attempts[-1].hedge

    assert hedge is not None
    assert (hedge.has_won, hedge.tokens, hedge.cost, hedge.fault) == (True, 5, 0.5, "slow")
    assert hedge.ended is not None
    assert hedge.started < hedge.ended


def test_a_confidence_is_noted_with_its_attempt() -> None:
    played = Played(CHAIN, TOOLS)
    played.start("a")
    played.apply(ConfidenceReported, "a", 1, 0.75)

    assert (played["a"].make_extra().confidence, played.graph.has_confidence) == ((1, 0.75), True)


def test_a_dropped_step_that_runs_settles_with_its_call() -> None:
    """Also if its tool asks a person, or waits for a slot with the answer (rule 6)."""
    for answered in (None, False, True):
        played = Played((*CHAIN, Step(id="x", tool="pay")), TOOLS)
        played.start("x")
        if answered is not None:
            ask(played, "x", Asked.INPUT)
        if answered:
            played.apply(QuestionAnswered, "q", "x", YES, State.READY)
        was = played.states["x"]
        played.splice(Drop(id="x", cancel=True))
        assert (played.states["x"], played.graph.unsettled) == (was, 4)

        played.apply(AttemptEnded, "x", 1, State.SUPERSEDED, Outcome(State.CANCELLED), Decision(Recovery.GIVE_UP))
        assert (played.states["x"], played.graph.unsettled, played["x"].is_tolerated) == ("superseded", 3, True)

"""The table of transitions: which event may come in which state, and what becomes of a record that breaks it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from dagrun import Asked, Event, Plan, Policy, Question, State, Status, Step, Toolbox, Verdict
from dagrun.errors import JournalDamaged
from dagrun.events import (
    AttemptEnded,
    AttemptStarted,
    ConfidenceReported,
    Hedged,
    HedgeEnded,
    QuestionAnswered,
    QuestionAsked,
    Reviewed,
    RunEnded,
    StepExpanded,
    StepResumed,
    StepSettled,
)
from dagrun.kernel.checks.check_plan import check_plan
from dagrun.kernel.graph.changes import CHANGES, OTHER_TRANSITIONS, STEP_TRANSITIONS, apply_recorded, attempt_ended
from dagrun.kernel.graph.fold import fold
from dagrun.kernel.graph.live_graph import build
from dagrun.kernel.graph.step_order import Expected
from dagrun.kernel.model.outcome import SETTLED, Decision, Outcome, Recovery
from dagrun.kernel.model.tool import make_tool
from played import Played


async def work() -> None: ...


TOOLS = Toolbox(make_tool(work, effect="read"))
STEPS = (
    Step(id="before", tool="work"),
    Step(id="x", tool="work", depends_on=("before",)),
    Step(id="after", tool="work", depends_on=("x",)),
)
DONE = Outcome(State.SUCCEEDED, b"1")


def _question(id_: str) -> Question:
    return Question(id=id_, kind=Asked.PAUSE, text="?", step="x")


def staged(state: State) -> Played:
    """A run in which step x is in *state*, after an attempt if a step with one can be in it."""
    played = Played(STEPS, TOOLS)
    match state:
        case State.WAITING:
            return played
        case State.BLOCKED:
            played.fail("before")
            return played
    played.succeed("before")
    played.start("x")
    if state.is_settled:
        played.apply(AttemptEnded, "x", 1, state, Outcome(state), Decision(Recovery.GIVE_UP))
    elif state is State.HELD:
        played.apply(QuestionAsked, _question("q"))
    elif state is State.READY:
        played.apply(QuestionAsked, _question("q"))
        played.apply(QuestionAnswered, "q", "x", None, State.READY)
    assert played["x"].state is state
    return played


# Of each event about a step, the facts of one that leads to a state; that the step keeps its state is `None`.
FACTS: dict[type[Event], Any] = {
    AttemptStarted: lambda to: ("x", 2, "work"),
    StepExpanded: lambda to: ("x", (b"1", b"2")),
    ConfidenceReported: lambda to: ("x", 1, 0.5),
    AttemptEnded: lambda to: ("x", 1, to, DONE, Decision(Recovery.GIVE_UP)),
    Reviewed: lambda to: ("x", 1, to, (Verdict("pass"),), DONE, Decision(Recovery.GIVE_UP)),
    StepSettled: lambda to: ("x", to, "why"),
    QuestionAsked: lambda to: (_question("other"),),
    QuestionAnswered: lambda to: ("q", "x", None, None if to is State.BLOCKED else to),
    StepResumed: lambda to: ("x",),
    Hedged: lambda to: ("x", 1, 0.5),
    HedgeEnded: lambda to: ("x", 1, False, 0, None),
}


def _came(state: State, kind: type[Event], to: State) -> str:
    played = staged(state)
    node = played["x"]
    if kind is HedgeEnded and node.latest is not None:
        played.apply(Hedged, "x", 1, 0.5) if state in STEP_TRANSITIONS[Hedged] else None
    if kind is QuestionAnswered and "q" not in played.graph.questions:
        played.graph.questions["q"] = _question("q")
    return apply_recorded(played.graph, kind(len(played.events) + 1, 9.0, *FACTS[kind](to)))


LEGAL = [(state, kind, to) for kind, row in STEP_TRANSITIONS.items() for state, after in row.items() for to in after]
ILLEGAL = [(state, kind) for kind, row in STEP_TRANSITIONS.items() for state in State if state not in row]


@pytest.mark.parametrize("kind", STEP_TRANSITIONS)
def test_every_transition_of_the_table_can_be_made(kind: type[Event]) -> None:
    """To blocked, a question leads only while the graph is frozen; that is shown with the rules."""
    for state, event, to in LEGAL:
        if event is kind and (kind is not QuestionAnswered or to is not State.BLOCKED):
            assert _came(state, kind, to) == "", (state, to)


@pytest.mark.parametrize("kind", STEP_TRANSITIONS)
def test_an_event_in_a_state_that_the_table_does_not_have_is_refused(kind: type[Event]) -> None:
    for state, event in ILLEGAL:
        if event is kind:
            assert _came(state, kind, state) == f"{kind.__name__} comes while step x is {state}"


def test_the_tables_name_events_that_are_applied_and_no_step_leaves_its_end_but_by_reopening() -> None:
    assert set(STEP_TRANSITIONS) <= set(CHANGES)
    assert set(OTHER_TRANSITIONS) <= set(CHANGES)
    for kind, row in (*STEP_TRANSITIONS.items(), *OTHER_TRANSITIONS.items()):
        leaving = {state for state in SETTLED if row.get(state, frozenset[State]()) - {state}}
        assert leaving == (SETTLED if kind.__name__ == "RunReopened" else set())


# Records --------------------------------------------------------------------------------------------------------------


def _fold(events: list[Event]) -> None:
    plan = check_plan(Plan(steps=STEPS, goal="the goal"), TOOLS, Policy())
    fold(build(plan, None, None, Expected(plan)), events, "run")


def _record() -> list[Event]:
    played = Played(STEPS, TOOLS)
    played.succeed("before", "x", "after")
    played.apply(RunEnded, Status.SUCCEEDED, "done")
    return played.events


def test_a_record_of_a_run_is_folded() -> None:
    _fold(_record())


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        (1, "AttemptEnded does not follow from what was recorded before it: AssertionError: it was not called"),
        (2, "AttemptStarted comes while step x is waiting"),
        (3, "AttemptEnded does not follow from what was recorded before it: AssertionError: it was not called"),
    ],
)
def test_a_record_without_one_of_its_events_is_damaged(place: int, sentence: str) -> None:
    """The text says which event comes too early, and the state that its step is in."""
    events = _record()
    del events[place]
    with pytest.raises(JournalDamaged, match=sentence) as caught:
        _fold(events)
    assert caught.value.seq == place + 2


def test_a_record_with_an_event_twice_is_damaged() -> None:
    events = _record()
    with pytest.raises(JournalDamaged, match="AttemptEnded comes while step before is succeeded"):
        _fold([*events[:3], *events[2:]])


def test_a_record_whose_event_leads_nowhere_is_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that has ended leaves no step waiting. The watch over all tests would say so first."""
    monkeypatch.setitem(cast("dict[type[Event], Any]", CHANGES), AttemptEnded, attempt_ended)
    events = _record()
    events[2] = AttemptEnded(3, 3.0, "before", 1, State.WAITING, DONE, Decision(Recovery.RETRY))
    with pytest.raises(JournalDamaged, match="AttemptEnded makes step before waiting, which is running"):
        _fold(events)

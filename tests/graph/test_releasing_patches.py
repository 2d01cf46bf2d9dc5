"""What was released, afterwards: patches that want it, records that have it, and what is said to who asks for it."""

from __future__ import annotations

from typing import Any

import pytest

from dagrun import Add, Drop, Replace, Rewire, State, Step
from dagrun.errors import ValueRefused
from dagrun.events import AttemptEnded, DraftEnded, DraftStarted, RunReopened, StepSettled
from dagrun.kernel.graph.changes import apply
from dagrun.kernel.graph.fold import state_hash
from dagrun.kernel.graph.output_eviction import drop_values
from dagrun.kernel.model.outcome import Decision, Outcome, Recovery
from dagrun.kernel.model.value import RELEASED
from dagrun.kernel.runtime.result import StepResults
from played import Played
from releasing_plays import TEXT, folded, gives, play, reads, released

# Patches -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def halfway() -> Played:
    """a was read and released; c waits only for it to have ended."""
    played = play(
        reads("a"), reads("b", "a"), reads("c", after=("a",)), reads("d", after=("c",)), output=["${b}", "${d}"]
    )
    gives(played, "a", "b")
    assert released(played) == {"a"}
    return played


NEEDS = "which was released; add a step that computes it again"


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (Add(step=reads("new", "b", "a")), f"DR423 edits[0].step: step new reads the output of a, {NEEDS}"),
        (Replace(id="c", step=reads("new", "a")), f"DR423 edits[0].step: step new reads the output of a, {NEEDS}"),
        (Rewire(id="c", args={"of": "${a}"}), f"DR423 edits[0]: step c reads the output of a, {NEEDS}"),
    ],
)
def test_a_patch_that_reads_what_is_gone_is_refused(halfway: Played, edit: Any, said: str) -> None:
    """To call the step once more by itself would be a call that nobody has planned, and maybe of another result."""
    assert halfway.refusal(edit) == [said]


def test_waiting_for_it_is_fine(halfway: Played) -> None:
    halfway.splice(Add(step=reads("new", "b", after=("a",))))

    gives(halfway, "new")


def test_a_patch_after_which_the_run_would_answer_with_what_is_gone_is_refused() -> None:
    """It would answer something else than without the policy."""
    played = play(reads("a"), reads("b", "a"), reads("c", after=("b",)), reads("other"))
    gives(played, "a")
    played.fail("b", Recovery.GIVE_UP)
    said = "DR424 output: the answer of the run would be the output of a, which was released; give the patch "

    (dropped,) = played.refusal(Drop(id="b"), Drop(id="c"))
    (replaced,) = played.refusal(Replace(id="b", step=reads("new")))
    (named,) = played.refusal(output={"it": "${a}"})

    assert {dropped, replaced, named} == {f"{said}another output, or add a step that computes it again"}
    played.splice(Replace(id="b", step=reads("new", after=("a",))))


def test_so_is_one_by_which_nobody_waits_for_it_any_more() -> None:
    """It was released when the output named another step."""
    played = play(reads("a"), reads("b", after=("a",)), output="${b}")
    gives(played, "a")
    played.splice(output=None)

    (rewired,) = played.refusal(Rewire(id="b", depends_on=()))

    assert rewired.startswith("DR424 output: the answer of the run would be the output of a")


def test_so_is_one_that_lets_the_sinks_answer_again() -> None:
    """What the output did not name has not been kept."""
    played = play(reads("a"), reads("b"), output="${b}")
    gives(played, "a")

    assert [said[:67] for said in played.refusal(output=None)] == [
        "DR424 output: the answer of the run would be the output of a, which"
    ]


def test_a_reader_that_is_rewired_needs_nothing_any_more() -> None:
    played = play(reads("a"), reads("x"), reads("b", "a"), reads("c", after=("a",)), output="${c}")
    gives(played, "a")

    played.splice(Rewire(id="b", args={"of": "${x}"}, depends_on=()))

    assert released(played) == {"a"}


def test_another_output_lets_those_count_that_only_wait() -> None:
    """Also those that stand before the reader that was looked at last."""
    played = play(reads("a"), reads("waits", after=("a",)), reads("b", "a"), output="${b}")
    gives(played, "a")
    played.splice(output=None)
    gives(played, "b")

    played.splice(Drop(id="waits"), Add(step=reads("new", "a")))

    assert released(played) == set()


def test_what_was_taken_out_while_it_ran_keeps_nothing() -> None:
    """What it gives after that is on record, and nobody needs it."""
    played = play(reads("a"), reads("b"))
    played.start("a")
    played.splice(Replace(id="a", step=reads("new")))

    outcome = Outcome(State.SUPERSEDED, TEXT)
    played.apply(AttemptEnded, "a", 1, State.SUPERSEDED, outcome, Decision(Recovery.GIVE_UP))

    assert released(played) == {"a"}


def test_while_no_plan_can_be_run_nothing_goes() -> None:
    """The one that was refused is mended, and may name any step."""
    played = play(reads("a"), reads("b", "a"))
    played.apply(DraftStarted, "the goal", False)
    gives(played, "a")
    played.start("b")
    played.apply(DraftEnded, "refused", "")

    played.end("b", TEXT)

    assert released(played) == set()


# Folded --------------------------------------------------------------------------------------------------------------


def test_what_is_folded_has_all_values_and_shows_what_is_gone(halfway: Played) -> None:
    """A run that has been killed goes on with what its record has; the state is the same all the same."""
    graph = folded(halfway)

    assert graph.nodes["a"].value == TEXT
    assert state_hash(graph) == state_hash(halfway.graph)
    drop_values(graph)
    dropped: Any = graph.nodes["a"].value
    assert dropped is RELEASED
    assert state_hash(graph) == state_hash(halfway.graph)


def test_what_opens_again_has_what_it_reads(halfway: Played) -> None:
    """An effect in doubt is settled when the run goes on, perhaps by the same call once more."""
    halfway.start("c")
    halfway.end("c", TEXT)
    graph = folded(halfway)

    apply(graph, RunReopened(99, 99.0, ("b",), "in doubt"))
    drop_values(graph)

    assert graph.nodes["a"].value == TEXT
    assert graph.releasing is not None
    assert graph.releasing.marked == set()


def test_elements_are_joined_again_when_their_list_is_opened() -> None:
    """And it shows the same before what is gone is dropped, and after."""
    played = play(Step(id="each", tool="load", for_each=["x", "y"], args={"of": "${item}"}), reads("b", "each"))
    played.expand("each", "x", "y")
    gives(played, "each[0]")
    played.fail("each[1]", Recovery.GIVE_UP, State.UNKNOWN)
    played.apply(StepSettled, "each", State.UNKNOWN, "")
    before = released(played)
    graph = folded(played)

    apply(graph, RunReopened(99, 99.0, ("each", "each[1]"), "in doubt"))
    shown = state_hash(graph)
    drop_values(graph)

    assert before == {"each[0]"}
    assert graph.nodes["each[0]"].value == TEXT
    assert state_hash(graph) == shown


# What is said --------------------------------------------------------------------------------------------------------


def test_who_asks_for_it_is_told_which_why_and_how_to_keep_it(halfway: Played) -> None:
    result = StepResults(halfway.graph.nodes)["a"]

    said = r"^what step a gave was released, because no step needed it.*; name it in the output of the plan"
    with pytest.raises(ValueRefused, match=said):
        _ = result.output
    outcome = result.attempts[0].outcome
    assert outcome is not None
    with pytest.raises(ValueRefused, match="the value was released"):
        _ = outcome.output

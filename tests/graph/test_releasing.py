"""Outputs that nobody needs any more: when they are released, when they are not yet, and what is said of them then.

The graph is played by hand, event by event; what runs make of it is in `test_releasing_runs.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, SupportsIndex

import pytest

from dagrun import Add, Drop, Plan, Policy, Replace, State, Step
from dagrun.events import DraftEnded, DraftStarted, ReplanEnded, ReplanRequested, StepSettled
from dagrun.kernel.checks.check_plan import check_plan
from dagrun.kernel.checks.waves import in_waves
from dagrun.kernel.graph.node import Node
from dagrun.kernel.model.outcome import Recovery
from dagrun.kernel.model.value import RELEASED, encode
from played import Played
from releasing_plays import TEXT, TOOLS, gives, play, reads, released, trigger

# When ----------------------------------------------------------------------------------------------------------------


def test_without_the_policy_everything_stays() -> None:
    """It is off unless somebody wants it; then the graph is the plain one, and pays nothing."""
    played = Played([reads("a"), reads("b", "a"), reads("c", "b")], TOOLS)

    gives(played, "a", "b", "c")

    assert released(played) == set()
    assert played.graph.releasing is None


def test_a_value_goes_when_the_last_that_reads_it_has_settled() -> None:
    """Not when it has started: it may be tried again, with the same arguments."""
    played = play(reads("a"), reads("b", "a"), reads("c", "a"), reads("last", "b", "c"))

    gives(played, "a", "b")
    played.start("c")
    before = released(played)
    played.end("c", TEXT)

    assert before == set()
    assert released(played) == {"a"}


@pytest.mark.parametrize("recovery", [Recovery.GIVE_UP, Recovery.SKIP])
def test_a_reader_that_has_failed_for_good_needs_nothing(recovery: Recovery) -> None:
    played = play(reads("a"), reads("b", "a"), reads("last", after=("a",)), output="${last}")
    gives(played, "a")

    played.fail("b", recovery)

    assert released(played) == {"a"}


def test_a_reader_that_is_tried_again_needs_it_still() -> None:
    played = play(reads("a"), reads("b", "a"))
    gives(played, "a")

    played.fail("b", Recovery.RETRY)

    assert released(played) == set()


def test_what_only_waits_reads_nothing() -> None:
    """What a step gives that others wait for, and nobody reads, is never needed."""
    played = play(reads("a"), reads("b", after=("a",)), output="${b}")

    gives(played, "a")

    assert released(played) == {"a"}


def test_where_sinks_answer_it_keeps_it_all_the_same() -> None:
    """If it is dropped, the step before it is a sink: a planner does that, to mend what has failed."""
    played = play(reads("a"), reads("b", after=("a",)))
    gives(played, "a")
    before = released(played)

    played.splice(Drop(id="b"))

    assert (before, released(played)) == (set(), set())


def test_the_barrier_of_a_wave_keeps_nothing() -> None:
    """It is nothing that the plan asks for, and no more so if it is dropped."""
    policy = Policy(release_outputs=True)
    plan = in_waves(check_plan(Plan(steps=[reads("a"), reads("b", "a"), reads("x"), reads("y", "x")]), TOOLS, policy))
    played = Played.of(plan)
    gives(played, "a", "x", "b")

    assert released(played) == {"a"}


def test_conditions_and_lists_read() -> None:
    """They are looked at when the step is about to begin, and after its call."""
    looks = {"ref": "b", "op": "exists"}
    played = play(
        *(reads(id_) for id_ in "abc"),
        reads("when", when={"ref": "a", "op": "exists"}),
        reads("success", after=("b",), success=looks),
        Step(id="each", tool="load", for_each="${c}"),
        reads("last", after=("when", "success", "each")),
        output="${last}",
    )
    gives(played, "a", "b", "c")
    before = released(played)

    gives(played, "when", "success")
    played.expand("each")
    half = released(played)
    played.apply(StepSettled, "each", State.SUCCEEDED, "", "", False, encode([]))

    assert (before, half) == (set(), {"a", "b", "when", "success"})
    assert released(played) == {"a", "b", "c", "when", "success", "each"}


def test_elements_go_when_they_are_joined() -> None:
    """Their values are needed for the list; what all of them read, until the last has ended."""
    elements = Step(id="each", tool="load", for_each=["x", "y"], args={"of": ["${a}", "${item}"]})
    played = play(reads("a"), elements, reads("b", "each"))
    gives(played, "a")
    played.expand("each", "x", "y")
    gives(played, "each[0]", "each[1]")
    before = released(played)

    played.apply(StepSettled, "each", State.SUCCEEDED, "", "", False, encode([TEXT, TEXT]))

    assert before == set()
    assert released(played) == {"a", "each[0]", "each[1]"}
    assert played["each[0]"].item is RELEASED
    gives(played, "b")
    assert released(played) == {"a", "each[0]", "each[1]", "each"}


def test_numbers_and_truth_values_stay() -> None:
    """They take no more room than what says that they are gone."""
    played = play(reads("a"), reads("b"), reads("c", "a", "b"))

    played.succeed("a", value=7)
    played.succeed("b", value=True)
    gives(played, "c")

    assert released(played) == set()


def test_events_keep_what_they_say() -> None:
    """Observers and journals have them, and may look at them later."""
    played = play(reads("a"), reads("b", after=("a",)), output="${b}")

    gives(played, "a")

    assert released(played) == {"a"}
    (event,) = [event for event in played.events if getattr(event, "outcome", None) is not None]
    assert event.outcome.value == TEXT  # type: ignore[attr-defined]


# The answer ----------------------------------------------------------------------------------------------------------


def test_what_the_output_names_stays_and_sinks_do_not() -> None:
    played = play(reads("a"), reads("b", "a"), reads("c", "b"), output={"it": "${b}"})

    gives(played, "a", "b", "c")

    assert released(played) == {"a", "c"}


def test_without_an_output_the_sinks_stay() -> None:
    played = play(reads("a"), reads("b", "a"), reads("c", "a"))

    gives(played, "a", "b", "c")

    assert released(played) == {"a"}


def test_a_sink_that_somebody_waits_for_now_goes() -> None:
    """It is no longer what the run answers."""
    played = play(reads("a"), reads("b"))
    gives(played, "a")

    played.splice(Add(step=reads("c", after=("a",))))
    gives(played, "c")

    assert released(played) == {"a"}


def test_another_output_releases_what_was_the_answer() -> None:
    played = play(reads("a"), reads("b"), reads("c"), output="${a}")
    gives(played, "a", "b")
    before = released(played)

    played.splice(output="${c}")

    assert (before, released(played)) == ({"b"}, {"a", "b"})


# While somebody may still name it -------------------------------------------------------------------------------------


def test_while_the_planner_is_asked_nothing_goes() -> None:
    """It has seen what is there, and may name any of it."""
    played = play(reads("a"), reads("b", "a"), reads("x"), reads("y", "x"), reads("last", "b", "y"))
    gives(played, "a", "x")
    played.fail("b", Recovery.REPLAN)
    played.apply(ReplanRequested, trigger("b"))
    gives(played, "y")
    before = released(played)

    played.splice(Replace(id="b", step=reads("b2", "a", "x")))
    played.apply(ReplanEnded, 1, "applied", "", ("b",))

    assert before == set()
    assert released(played) == set()
    gives(played, "b2")
    assert released(played) == {"a", "x"}


def test_what_a_failed_step_has_read_goes_when_the_planner_has_no_use_for_it() -> None:
    played = play(reads("a"), reads("b", "a"), reads("last", after=("a",)), output="${last}")
    gives(played, "a")
    played.fail("b", Recovery.REPLAN)
    before = released(played)  # that it is asked about is not on record yet
    played.apply(ReplanRequested, trigger("b"))

    played.apply(ReplanEnded, 1, "unchanged", "", ("b",))

    assert (before, released(played)) == (set(), {"a"})


def test_while_the_plan_is_written_nothing_goes() -> None:
    """The step that reads it may be on its way."""
    played = play(reads("a"))
    played.apply(DraftStarted, "the goal", False)
    played.splice(Add(step=reads("b", after=("a",))), origin="planner")
    gives(played, "a", "b")
    played.splice(Add(step=reads("c", "a", "b")), origin="planner")
    before = released(played)

    played.apply(DraftEnded, "applied", "")
    gives(played, "c")

    assert (before, released(played)) == (set(), {"a", "b"})


def test_a_planner_that_wants_to_go_on_keeps_everything() -> None:
    """One that goes step by step builds on all that it has seen."""
    played = play(reads("a"))
    played.apply(DraftStarted, "the goal", False)
    played.apply(DraftEnded, "applied", "", 1, (), True)
    gives(played, "a")
    played.splice(Add(step=reads("b", "a")), origin="planner")
    gives(played, "b")

    assert released(played) == set()


def test_a_reader_that_is_dropped_needs_nothing_any_more() -> None:
    played = play(reads("a"), reads("b", "a"), reads("c", after=("a",)), output="${c}")
    gives(played, "a")

    played.splice(Drop(id="b"))

    assert released(played) == {"a"}


# What it costs -------------------------------------------------------------------------------------------------------


class Counting(list[Node]):
    """A list that counts how often it is looked into."""

    looks = 0

    def __getitem__(self, at: SupportsIndex | slice) -> Any:
        Counting.looks += 1
        return super().__getitem__(at)


@pytest.mark.parametrize("order", [list, reversed], ids=["first to last", "last to first"])
def test_each_reader_is_looked_at_about_once(order: Callable[[Any], Any]) -> None:
    """A step that a hundred thousand read must not have all of them looked through whenever one has ended."""
    ids = [f"b{number}" for number in range(500)]
    played = play(reads("a"), *(reads(id_, "a") for id_ in ids))
    played["a"].successors = Counting(played["a"].successors)
    gives(played, "a")
    Counting.looks = 0

    gives(played, *order(ids))

    assert released(played) == {"a"}
    assert Counting.looks <= 3 * len(ids)

"""The ledger: at no instant is more spent and reserved than a ceiling allows, and nothing that is free is kept."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broken_ledgers import BROKEN
from dagrun import Budget, PlanningRule, Policy
from dagrun.kernel.graph.ledger import Ledger
from dagrun.kernel.model.tool import AnyTool
from ledgers import STORIES, Happening, add, ask, chance, look, play, search, taken, think
from seeds import choose_seeds


def room(ledger: Ledger, tool: AnyTool) -> int:
    """How many calls of *tool* fit beside each other."""
    count = 0
    while ledger.reserve(tool) is not None:
        count += 1
    return count


# Laws -----------------------------------------------------------------------------------------------------------------


PARTS = st.floats(0, 1)
HAPPENINGS = st.builds(Happening, st.integers(0, 2), st.sampled_from(STORIES), st.integers(0, 99), PARTS, PARTS)


@given(st.lists(HAPPENINGS, max_size=60))
def test_no_interleaving_gets_above_a_ceiling_or_loses_room(events: list[Happening]) -> None:
    """Three runs reserve, settle, withdraw and end in any order; a book of what was truly used is the judge."""
    assert play(events) == []


def test_no_seed_gets_above_a_ceiling_or_loses_room() -> None:
    """The same at more length: ceilings are reached, and runs wait for each other."""
    assert [found for seed in choose_seeds(20, 1_000) if (found := play(chance(seed)))] == []


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_the_laws_notice_a_broken_ledger(kind: type[Ledger]) -> None:
    """Check-then-act broke the ceiling in 999 of 1,000 runs, reserving the estimate in 876 (F13)."""
    assert any(play(chance(seed), kind) for seed in range(30))


# Reserving ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "fit"),
    [
        (Policy(max_attempts=3), 3),
        (Policy(max_calls_by_tool={"think": 2, "add": 1}), 2),
        (Policy(max_tokens=399), 3),
        (Policy(max_tokens=400), 4),
        (Policy(max_cost=1.0), 10),
        (Policy(max_cost=5), 50),
        (Policy(max_attempts=9, max_tokens=800, max_cost=0.7), 7),
    ],
)
def test_what_is_reserved_is_the_worst_case(policy: Policy, fit: int) -> None:
    """Of calls that begin at the same time, as many as can all take the most that they may."""
    assert room(Ledger(policy), think) == fit


def test_it_shows_what_is_spent_and_reserved() -> None:
    ledger = Ledger(Policy(max_tokens=250, max_cost=1.0, max_replans=2), Budget(max_attempts=5))
    first = taken(ledger, think)
    assert ledger.reserve(think) is not None
    ledger.settle(first, 40, 0.05, is_reported=True)

    assert repr(ledger) == (
        "<Ledger: 40 and 100 reserved of 250 tokens, 0.05 and 0.1 reserved of 1 cost, "
        "2 of 5 attempts of all runs, 0 of 2 replans>"
    )


def test_what_was_not_used_is_given_back() -> None:
    """A call that is over has used what it has used."""
    ledger = Ledger(Policy(max_tokens=250, max_cost=1.0))
    first, second = taken(ledger, think), taken(ledger, think)
    assert ledger.reserve(think) is None

    ledger.settle(first, 30, 0.02, is_reported=True)

    assert ledger.used() == {"tokens": 30, "cost": 0.02, "replans": 0}
    assert ledger.left() == {"tokens": 120, "cost": 0.88, "replans": 3}
    third = taken(ledger, think)
    ledger.settle(second, is_reported=False)
    ledger.settle(third, 100, 0.1, is_reported=True)
    assert ledger.used() == {"tokens": 230, "cost": 0.22, "replans": 0}
    assert not ledger.may_fit_later(think)


def test_a_call_is_spent_by_being_made() -> None:
    """Attempts are not given back, unless none was made after all."""
    ledger = Ledger(Policy(max_attempts=2, max_calls_by_tool={"add": 1}))
    first = taken(ledger, add)
    assert ledger.reserve(add) is None
    ledger.withdraw(first)
    ledger.withdraw(first)
    ledger.settle(taken(ledger, add), is_reported=False)

    assert ledger.reserve(add) is None
    assert ledger.used() == {"attempts": 1, "calls of add": 1, "replans": 0}
    ledger.settle(taken(ledger, look), is_reported=False)
    assert ledger.reserve(look) is None


def test_what_names_no_bound_begins_while_anything_is_left() -> None:
    """It cannot be bound beforehand, only not be called any more; what is pure calls no model, and goes on."""
    ledger = Ledger(Policy(max_tokens=100))
    assert room(Ledger(Policy(max_tokens=100, max_attempts=50)), look) == 50

    ledger.settle(taken(ledger, look), 5_000, is_reported=True)

    assert ledger.used()["tokens"] == 5_000
    assert ledger.left()["tokens"] == 0
    assert ledger.reserve(look) is None
    assert ledger.reserve(think) is None
    assert ledger.reserve(add) is not None


def test_a_policy_without_ceilings_binds_no_attempt() -> None:
    """Then nobody needs to reserve, and the hot path pays nothing."""
    assert not Ledger(Policy()).binds_attempts
    assert Ledger(Policy(max_cost=1)).binds_attempts
    assert Ledger(Policy(max_calls_by_tool={"add": 1})).binds_attempts
    assert Ledger(Policy(), Budget(max_attempts=1)).binds_attempts


# Settling -------------------------------------------------------------------------------------------------------------


def settled(tool: AnyTool, tokens: Any, cost: Any, *, is_reported: bool = True) -> tuple[dict[str, float], str]:
    """What is charged for such a report of a call, and what is said about it."""
    ledger = Ledger(Policy(max_tokens=1_000, max_cost=10.0))
    said = ledger.settle(taken(ledger, tool), tokens, cost, is_reported=is_reported)
    used = ledger.used()
    return {name: used[name] for name in ("tokens", "cost")}, "; ".join(said)


@pytest.mark.parametrize(
    ("tokens", "cost", "charged"),
    [
        (40, 0.05, (40, 0.05)),
        (0, 0.0, (0, 0)),
        (40, None, (40, 0.1)),  # it did not say what it cost
        (40, 0, (40, 0.1)),  # tokens for nothing
        (0, 0.05, (100, 0.05)),  # money for nothing
        (40.2, 0.05, (41, 0.05)),
    ],
)
def test_what_was_not_said_is_charged_at_its_worst(tokens: Any, cost: Any, charged: tuple[float, float]) -> None:
    """A report that leaves something out must not win room."""
    assert settled(think, tokens, cost) == ({"tokens": charged[0], "cost": charged[1]}, "")


def test_silence_is_charged_at_its_worst() -> None:
    """An attempt that was cancelled or abandoned in the middle may have used all that it could."""
    assert settled(think, 0, None, is_reported=False) == ({"tokens": 100, "cost": 0.1}, "")
    assert settled(add, 0, None, is_reported=False) == ({"tokens": 0, "cost": 0}, "")


@pytest.mark.parametrize(
    ("tokens", "cost", "said"),
    [
        (-5, 0.05, "reported -5 as its tokens, which cannot be"),
        (math.nan, 0.05, "reported nan as its tokens"),
        (5, -0.1, "reported -0.1 as its cost"),
        (5, math.inf, "reported inf as its cost"),
        (5, 10**400, "as its cost"),
        (True, 0.05, "reported True as its tokens"),
        ("5", 0.05, "reported '5' as its tokens"),
    ],
)
def test_nonsense_is_charged_at_its_worst_and_told(tokens: Any, cost: Any, said: str) -> None:
    """A negative figure would win room, and NaN compares with nothing (S88)."""
    charged, told = settled(think, tokens, cost)

    assert (charged["tokens"], charged["cost"]) == ((5, 0.1) if tokens == 5 else (100, 0.05))
    assert said in told


def test_a_promise_that_was_broken_is_charged_as_it_is_and_told() -> None:
    """It is used, whatever the tool has promised; nothing more is reserved then."""
    ledger = Ledger(Policy(max_tokens=150, max_cost=1))

    told = ledger.settle(taken(ledger, think), 400, 0.25, is_reported=True)

    assert told == ("think used 400 tokens, and its max_tokens is 100", "think cost 0.25, and its max_cost is 0.1")
    assert ledger.used()["tokens"] == 400
    assert ledger.left()["tokens"] == 0
    assert ledger.reserve(think) is None


def test_to_settle_again_changes_nothing() -> None:
    """An attempt that was abandoned may come back, and must not win room."""
    ledger = Ledger(Policy(max_tokens=200))
    first = taken(ledger, think)
    ledger.settle(first, 90, is_reported=True)
    assert ledger.settle(first, 0, is_reported=True) == ()
    ledger.withdraw(first)

    assert ledger.used()["tokens"] == 90
    assert room(ledger, think) == 1
    Ledger(Policy(max_tokens=200)).settle(first, 0, is_reported=True)
    assert ledger.used()["tokens"] == 90


def test_ten_times_a_tenth_is_one() -> None:
    """Sums of floats are neither: ten calls fit, an eleventh does not, and nothing is left over after all of them."""
    ledger = Ledger(Policy(max_cost=1.0))
    made = [taken(ledger, think) for _ in range(10)]
    assert ledger.left()["cost"] == 0
    assert ledger.reserve(think) is None

    for reservation in made:
        ledger.settle(reservation, 1, 0.1 + 0.2 - 0.2, is_reported=True)  # 0.10000000000000003 is no broken promise

    assert (ledger.used()["cost"], ledger.left()["cost"]) == (1.0, 0.0)


def test_many_small_costs_add_up() -> None:
    """What is less than the smallest unit counts as one: rounded to nothing, it would be free for ever."""
    ledger = Ledger(Policy(max_cost=1e-8))
    for _ in range(10):
        ledger.settle(taken(ledger, look), 1, 1e-10, is_reported=True)

    assert ledger.reserve(look) is None


def test_a_ceiling_between_two_units_is_rounded_down() -> None:
    """Two calls of a billionth each are more than a billionth and a half."""
    ledger = Ledger(Policy(max_cost=1.5e-9))
    ledger.settle(taken(ledger, look), 1, 1e-9, is_reported=True)

    assert ledger.reserve(look) is None


# Waiting and warning --------------------------------------------------------------------------------------------------


def test_the_ceiling_is_named_with_the_amount_reached() -> None:
    """The limit, what was used, and what is left undone."""
    ledger = Ledger(Policy(max_attempts=2, max_calls_by_tool={"ask": 1}))
    assert ledger.why_not(ask, 3) == ""
    taken(ledger, ask)
    assert ledger.why_not(ask, 3) == "ceiling of 1 calls of ask is spent: 1 used, 3 still ready"
    taken(ledger, add)
    assert ledger.why_not(ask, 3) == "ceiling of 2 attempts is spent: 2 used, 3 still ready"


@pytest.mark.parametrize(
    ("policy", "reserve", "use", "tool", "sentence"),
    [
        (
            Policy(max_tokens=300),
            2,
            (150, 0.1),
            think,
            "ceiling of 300 tokens has no room for think, which may use 100: 150 used, 100 reserved, 1 still ready",
        ),
        (
            Policy(max_cost=0.25),
            1,
            (1, 0.075),
            search,
            "ceiling of 0.25 in cost has no room for search, which may use 0.3: 0.075 used, 1 still ready",
        ),
        (
            Policy(max_tokens=200),
            2,
            (100, 0.1),
            look,
            "ceiling of 200 tokens has no room for look, which names no bound: 100 used, 100 reserved, 1 still ready",
        ),
        (Policy(max_cost=1e-1), 1, (100, 0.1), think, "ceiling of 0.1 in cost is spent: 0.1 used, 1 still ready"),
    ],
)
def test_a_ceiling_that_is_not_spent_says_what_does_not_fit(
    policy: Policy, reserve: int, use: tuple[int, float], tool: AnyTool, sentence: str
) -> None:
    """That a ceiling of 300 is spent by 150 would not be believed."""
    ledger = Ledger(policy)
    first, *_ = [taken(ledger, think) for _ in range(reserve)]
    ledger.settle(first, *use, is_reported=True)

    assert ledger.why_not(tool, 1) == sentence


def test_who_waits_for_nothing_is_told() -> None:
    """While calls go on they may give room back; when none does, the run is over."""
    ledger = Ledger(Policy(max_tokens=150))
    first = taken(ledger, think)
    assert ledger.may_fit_later(think)
    ledger.settle(first, 60, is_reported=True)
    assert not ledger.may_fit_later(think)


def test_the_calls_of_a_run_are_waited_for_in_any_case() -> None:
    """They give no attempt back, but to end the run now would throw away what they are about to give."""
    ledger = Ledger(Policy(max_attempts=1))
    last = taken(ledger, add)
    assert ledger.may_fit_later(add)
    ledger.settle(last, is_reported=False)
    assert not ledger.may_fit_later(add)


def test_a_warning_counts_what_is_spent_and_not_what_is_reserved() -> None:
    """What is reserved may come back, and a step that was dropped does not."""
    ledger = Ledger(Policy(max_tokens=1_000, max_cost=0.3))
    made = [taken(ledger, think) for _ in range(3)]
    assert ledger.near(0.3) is None

    ledger.settle(made[0], 1, 0.1, is_reported=True)

    assert ledger.near(None) is None
    assert ledger.near(0.34) is None
    assert ledger.near(0.33) == ("cost", 0.1, 0.3)


def test_exactly_that_part_is_a_warning() -> None:
    """0.07 times 100 is more than 7, as floats go."""
    ledger = Ledger(Policy(max_attempts=100))
    for _ in range(7):
        taken(ledger, add)

    assert ledger.near(0.07) == ("attempts", 7, 100)


# The planner ----------------------------------------------------------------------------------------------------------


def test_the_planner_is_asked_as_often_as_the_policy_says() -> None:
    """Replans by default three times; calls, repairs counted, without end unless somebody says so."""
    ledger = Ledger(Policy(planning=PlanningRule(max_calls=2)))
    assert [ledger.take_planner_call() for _ in range(3)] == [True, True, False]
    assert ledger.why_no_planner() == "ceiling of 2 planner calls is spent: 2 used"
    assert [ledger.take_replan() for _ in range(4)] == [True, True, True, False]
    assert ledger.why_no_planner() == "ceiling of 2 planner calls is spent: 2 used"
    assert ledger.used() == {"replans": 3, "planner calls": 2}
    assert ledger.left() == {"replans": 0, "planner calls": 0}
    assert ledger.near(0.5) is None

    free = Ledger(Policy(max_replans=0))
    assert not free.take_replan()
    assert free.why_no_planner() == "ceiling of 0 replans is spent: 0 used"
    assert all(free.take_planner_call() for _ in range(100))

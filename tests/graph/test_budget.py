"""Budgets: ceilings that several runs share, none of which can overspend, or wait for ever, because of another."""

from __future__ import annotations

import math
from typing import Any

import pytest

from dagrun import Budget, Policy
from dagrun.errors import ContractError
from dagrun.kernel.graph.ledger import Ledger, Reservation
from ledgers import add, look, taken, think


def test_runs_cannot_overspend_together() -> None:
    """What one has reserved, the other cannot have; a refusal in one takes nothing of the other."""
    budget = Budget(max_tokens=250)
    first, second = Ledger(Policy(), budget), Ledger(Policy(max_cost=1), budget)
    taken(first, think)
    kept = taken(second, think)

    assert second.reserve(think) is None
    assert second.left() == {"cost": 0.9, "tokens of all runs": 50, "replans": 3}
    assert first.may_fit_later(think)
    assert second.why_not(think, 2) == (
        "ceiling of 250 tokens of all runs has no room for think, which may use 100: "
        "0 used, 200 reserved, 2 still ready"
    )

    second.settle(kept, 20, 0.1, is_reported=True)
    assert (budget.used(), budget.left()) == ({"tokens of all runs": 20}, {"tokens of all runs": 130})
    assert second.reserve(think) is not None


def test_runs_are_told_in_the_order_of_asking() -> None:
    """Whoever asked first gets the first chance; who still wants room asks again."""
    budget, told = Budget(max_tokens=100), list[str]()
    one, two, three = (Ledger(Policy(), budget, lambda name=name: told.append(name)) for name in "123")  # type: ignore[misc]
    made = taken(one, think)
    for ledger in (three, two, three):
        assert ledger.reserve(think) is None

    one.settle(made, 0, 0, is_reported=True)
    assert told == ["3", "2"]
    taken(two, look)
    one.settle(taken(one, think), 100, 0.1, is_reported=True)
    assert told == ["3", "2"]


def test_who_is_told_may_take_the_room_at_once() -> None:
    """A run that goes on in the middle of the settling of another finds everything in order."""
    budget, got = Budget(max_tokens=100), list[Reservation | None]()
    one = Ledger(Policy(), budget)
    two = Ledger(Policy(), budget, lambda: got.append(two.reserve(think)))
    three = Ledger(Policy(), budget, lambda: got.append(three.reserve(think)))
    made = taken(one, think)
    assert (two.reserve(think), three.reserve(think)) == (None, None)

    one.settle(made, 0, 0, is_reported=True)

    assert [reservation is not None for reservation in got] == [True, False]
    assert list(budget.waiting) == [three]


def test_who_is_told_sees_that_nothing_is_open_any_more() -> None:
    """Else it would go on waiting for a call that has ended, and nobody would tell it again."""
    budget, seen = Budget(max_tokens=100), list[bool]()
    one = Ledger(Policy(), budget)
    two = Ledger(Policy(), budget, lambda: seen.append(two.may_fit_later(think)))
    made = taken(one, think)
    assert two.reserve(think) is None

    one.settle(made, 60, 0.1, is_reported=True)

    assert seen == [False]


def test_a_run_that_has_ended_leaves_nothing_behind() -> None:
    """It waits no more; what it had reserved is spent, and not kept for ever; the others hear of it."""
    budget, told = Budget(max_tokens=300), list[str]()
    gone = Ledger(Policy(), budget, lambda: told.append("gone"))
    stays = Ledger(Policy(), budget, lambda: told.append("stays"))
    made, *_ = [taken(gone, think) for _ in range(3)]
    assert (gone.reserve(think), stays.reserve(think)) == (None, None)
    assert stays.may_fit_later(think)

    gone.leave()

    assert told == ["stays"]
    assert budget.left() == {"tokens of all runs": 0}
    assert not stays.may_fit_later(think)
    gone.settle(made, 0, 0, is_reported=True)
    assert budget.used() == {"tokens of all runs": 300}


def test_the_calls_of_others_are_waited_for_only_if_they_may_give_room() -> None:
    """Attempts never come back: a run would wait for an hour for what it cannot get."""
    budget = Budget(max_attempts=1)
    other, run = Ledger(Policy(), budget), Ledger(Policy(max_tokens=50), budget)
    taken(other, add)

    assert not run.may_fit_later(add)
    assert not run.may_fit_later(think)


@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"max_attempts": 0},
        {"max_tokens": 1.5},
        {"max_tokens": True},
        {"max_cost": 0},
        {"max_cost": math.nan},
        {"max_cost": math.inf},
        {"max_calls_by_tool": {"add": -1}},
    ],
)
def test_a_budget_that_makes_no_sense_is_refused(limits: dict[str, Any]) -> None:
    """It is written by the host, so it is an error of the program."""
    with pytest.raises(ContractError, match=r"ceiling|must be"):
        Budget(**limits)

"""Big plans are checked in portions: what is found is the same, wherever a portion ends."""

from __future__ import annotations

import random
from typing import Any

import pytest

from dagrun import Plan, Step, Toolbox
from dagrun.graph import check, check_ids, portions
from dagrun.graph.check import find_problems
from dagrun.graph.portions import has_all, let_go, set_of
from dagrun.model.tool import make_tool
from small_tools import echo

TOOLS = Toolbox(echo, make_tool(echo, name="look", effect="pure"))


@pytest.fixture
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that few entries are many."""
    for module in (check, check_ids, portions):
        monkeypatch.setattr(module, "AT_ONCE", 3)


def _any_plan(seed: int) -> Plan:
    """A plan of which much may be wrong: ids twice, in two cases, reserved or no ids; cycles; nobody to wait for."""
    rng = random.Random(seed)
    count = rng.randint(1, 14)
    ids = [f"s{number}" for number in range(count)]
    if rng.random() < 0.5:
        ids[rng.randrange(count)] = rng.choice(["input", "S1", "s0", "no id", "", "s2\n"])
    steps = []
    for number, id_ in enumerate(ids):
        others = ids if rng.random() < 0.2 else ids[:number]
        needs = rng.sample(others, min(len(others), rng.choice([0, 1, 2, 9])))
        if rng.random() < 0.1:
            needs += [rng.choice(["nobody", id_, *needs])]
        args: dict[str, Any] = {"value": f"${{{rng.choice(ids)}}}" if rng.random() < 0.3 else str(number)}
        tool = "echo" if rng.random() < 0.95 else "nothing"
        step = Step(id="x", tool=rng.choice(["look", tool]), args=args, depends_on=needs)
        steps.append(step.model_copy(update={"id": id_}))
    return Plan(steps=[]).model_copy(update={"steps": tuple(steps)})


def _found(seed: int) -> tuple[Any, ...]:
    problems, checked = find_problems(_any_plan(seed), TOOLS)
    if checked is None:
        return problems, None
    return problems, (dict(checked.successors), list(checked.steps), checked.is_ordered)


SEEDS = range(300)
AT_ONCE = [_found(seed) for seed in SEEDS]


def test_the_same_is_found_in_portions(small_portions: None) -> None:
    assert [_found(seed) for seed in SEEDS] == AT_ONCE

    refused = sum(graph is None for _, graph in AT_ONCE)
    assert len(AT_ONCE) - refused > 20


def test_every_fault_of_an_id_is_met() -> None:
    codes = {problem.code for problems, _ in AT_ONCE for problem in problems}
    assert {"DR101", "DR102", "DR103", "DR104", "DR105", "DR106", "DR107", "DR110"} <= codes


@pytest.mark.parametrize("count", range(9))
def test_sets_are_made_and_compared_in_portions(count: int, small_portions: None) -> None:
    entries = [number % 5 for number in range(count)]

    assert set_of(entries) == set(entries)
    assert has_all(set(entries), entries)
    assert not has_all({0, 1, 2, 3}, [*entries, 4])
    assert not has_all({0, 1, 2, 3}, [4, *entries])


@pytest.mark.parametrize("count", [0, 3, 4, 9])
def test_what_is_let_go_is_empty_if_it_was_big(count: int, small_portions: None) -> None:
    held = dict.fromkeys(range(count))
    let_go(held)
    assert len(held) == (count if count <= 3 else 0)

"""Big plans are checked in portions, and kept in parts: what is found is the same, and so is how they run."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

import pytest

from checking import waiting_for
from dagrun import Plan, Step, Toolbox
from dagrun.graph import check_ids, scope, wide
from dagrun.graph.building import build
from dagrun.graph.by_place import ByPlace, Growing, by_id
from dagrun.graph.check import check_plan, find_problems
from dagrun.graph.critical import Expected
from dagrun.graph.wide import AnyDict, WideDict, WideSet, set_for, set_of, with_room
from dagrun.model.tool import make_tool
from fuzz import run_case
from random_cases import make_case
from small_tools import echo
from splice_cases import make_splice_case

TOOLS = Toolbox(echo, make_tool(echo, name="look", effect="pure"))


def _set_many(monkeypatch: pytest.MonkeyPatch, many: int) -> None:
    for module in (scope, wide):
        monkeypatch.setattr(module, "MANY", many)


@pytest.fixture
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that few entries are taken at once."""
    monkeypatch.setattr(check_ids, "AT_ONCE", 3)


@pytest.fixture
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that few entries are kept in parts."""
    _set_many(monkeypatch, 3)


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
    return problems, (waiting_for(checked), list(checked.steps), checked.is_ordered)


SEEDS = range(300)
AT_ONCE = [_found(seed) for seed in SEEDS]


def test_the_same_is_found_in_portions(small_portions: None) -> None:
    assert [_found(seed) for seed in SEEDS] == AT_ONCE

    refused = sum(graph is None for _, graph in AT_ONCE)
    assert len(AT_ONCE) - refused > 20


def test_the_same_is_found_in_parts(small_portions: None, few_are_many: None) -> None:
    assert [_found(seed) for seed in SEEDS] == AT_ONCE


def test_every_fault_of_an_id_is_met() -> None:
    codes = {problem.code for problems, _ in AT_ONCE for problem in problems}
    assert {"DR101", "DR102", "DR103", "DR104", "DR105", "DR106", "DR107", "DR110"} <= codes


def _assert_alike(held: Mapping[str, int], plain: dict[str, int]) -> None:
    """All lookups give the same, of what is there and of what is not."""
    assert len(held) == len(plain)
    for key in (f"s{number}" for number in range(30)):
        assert held.get(key) == plain.get(key)
        assert (key in held) == (key in plain)
    with pytest.raises(KeyError, match="nobody"):
        held["nobody"]


@pytest.mark.parametrize("seed", range(50))
def test_a_wide_dict_is_a_dict(seed: int, few_are_many: None) -> None:
    rng = random.Random(seed)
    plain: dict[str, int] = {}
    held: AnyDict[str, int] = {}
    for number in range(rng.randrange(40)):
        key = f"s{rng.randrange(30)}"
        held = with_room(held)
        if rng.random() < 0.5:
            assert held.setdefault(key, number) == plain.setdefault(key, number)
        else:
            held[key] = plain[key] = number

    assert isinstance(held, WideDict) == (len(plain) > 3)
    assert dict(held) == plain
    _assert_alike(held, plain)


@pytest.mark.parametrize("seed", range(50))
def test_a_wide_set_is_a_set(seed: int, few_are_many: None) -> None:
    rng = random.Random(seed)
    entries = tuple(f"s{rng.randrange(30)}" for _ in range(rng.randrange(20)))
    held, added = set_of(entries), set_for(20)
    for entry in entries:
        added.add(entry)

    assert isinstance(held, WideSet) == (len(entries) > 3)
    assert isinstance(added, WideSet)
    assert set(held) == set(added) == set(entries)
    assert len(held) == len(added) == len(set(entries))
    assert all((f"s{number}" in held) == (f"s{number}" in entries) for number in range(30))


def _growing(count: int) -> tuple[Growing[int], dict[str, int]]:
    """Ten times its place for each of so many steps, and the same as a dict."""
    steps = [Step(id=f"s{number}", tool="echo") for number in range(count)]
    index = WideDict({step.id: number for number, step in enumerate(steps)})
    held = by_id(ByPlace(index, steps, steps), [number * 10 for number in range(count)])
    assert isinstance(held, Growing)
    return held, {f"s{number}": number * 10 for number in range(count)}


@pytest.mark.parametrize("seed", range(50))
def test_what_grows_is_a_dict_of_what_was_there_and_what_came_later(seed: int) -> None:
    rng = random.Random(seed)
    held, plain = _growing(rng.randrange(12))
    for number in range(rng.randrange(20)):
        key = f"s{rng.randrange(30)}"
        held[key] = plain[key] = number

    assert list(held) == list(plain)
    assert list(reversed(held)) == list(reversed(plain))
    assert list(held.values()) == list(plain.values())
    assert list(held.items()) == list(plain.items())
    _assert_alike(held, plain)


@pytest.mark.parametrize(
    "make", [make_case, make_splice_case], ids=["as planned", "changed while it runs, by right and by wrong patches"]
)
def test_runs_of_plans_that_are_kept_in_parts_keep_all_rules(make: Callable[[int], Any], few_are_many: None) -> None:
    for seed in range(25):
        report = run_case(make(seed))
        assert not report.broken, f"DAGRUN_SEED={seed}: " + "\n".join(report.broken[:10])


def test_entries_are_spread_evenly_and_find_their_places_in_a_part() -> None:
    """Were a part chosen by the bits by which it finds its own places, its entries would all want the same ones."""
    held = WideDict({f"s{number}": number for number in range(64_000)})
    assert all(800 < len(part) < 1_200 for part in held.parts)
    for part in held.parts[:8]:
        assert len({hash(key) & 1023 for key in part}) > 500  # of 1,024, a thousand at random hit 639


@pytest.mark.parametrize("shape", ["chain", "fan"])
def test_of_a_big_plan_nothing_that_stays_is_a_dict_or_a_set_of_all_steps(
    shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _set_many(monkeypatch, 100)
    count = 2_000
    needs = {number: [f"s{number - 1}"] if shape == "chain" else ["s0"] for number in range(1, count - 1)}
    needs |= {0: [], count - 1: [f"s{number}" for number in range(count - 1)]}
    plan = Plan(
        steps=[
            Step(id=f"s{number}", tool="look", args={"value": ""}, depends_on=needs[number]) for number in range(count)
        ]
    )
    checked = check_plan(plan, TOOLS)
    graph = build(checked, b"{}", None, Expected(checked)).graph

    biggest = max(len(held) for held in _reached(checked, graph) if isinstance(held, dict | set | frozenset))
    assert isinstance(graph.nodes, Growing)
    assert [node.order for node in graph.nodes.values()] == list(range(count))
    assert {id_: [after.id for after in node.successors] for id_, node in graph.nodes.items()} == waiting_for(checked)
    assert biggest < count / 2


def _reached(*roots: Any) -> Iterator[Any]:
    """All objects that belong to *roots*, modules and classes aside."""
    seen: set[int] = set()
    left = list(roots)
    while left:
        at = left.pop()
        if id(at) in seen or isinstance(at, type | ModuleType | FunctionType):
            continue
        seen.add(id(at))
        yield at
        left += gc.get_referents(at)

"""The structure of a plan: ids, dependencies, cycles, limits; and the content of a checked plan."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checking import TOOLBOX, errors, find, places, texts, waiting_for
from dagrun import Plan, PlanRefused, Policy, Step
from dagrun.kernel.checks.check_plan import check_plan
from dagrun.kernel.checks.findings import MAX_ERRORS


def step(id_: str, *needs: str, **fields: Any) -> dict[str, Any]:
    """Return a step that does nothing, and waits for others."""
    return {"id": id_, "tool": "anything", "depends_on": needs, **fields}


def test_a_checked_plan_holds_what_the_runtime_needs() -> None:
    """It contains everything that can be known before a run, so that no run works it out again."""
    problems, checked = find(
        {"id": "load", "tool": "load", "args": {"path": "a"}},
        {"id": "more", "tool": "load", "args": {"path": "b"}, "timeout": 60, "pool": "disk", "fallback": "load_copy"},
        {
            "id": "each",
            "tool": "add",
            "for_each": "${load.rows}",
            "args": {"a": "${item.total}", "b": "${more.count}"},
            "when": {"ref": "load.count", "op": ">", "value": 0},
            "depends_on": ["more"],
            "timeout": 1,
        },
        policy=Policy(timeout=3),
        output="each[0]",
    )

    assert not [p for p in problems if not p.is_advice]
    assert checked is not None
    assert list(checked.steps) == ["load", "more", "each"]
    assert waiting_for(checked) == {"load": ["each"], "more": ["each"], "each": []}
    each, more = checked.steps["each"], checked.steps["more"]
    assert each.depends_on == ("more", "load")
    assert each.value_sources == {"load", "more"}
    assert each.items is not None
    assert (each.timeout, more.timeout) == (1, 3)
    assert (more.pool, each.pool) == ("disk", None)
    assert more.fallback is TOOLBOX["load_copy"]
    assert checked.steps["load"].fallback is TOOLBOX["load_copy"]
    assert checked.output is not None
    assert checked.output.sources == {"each"}


def test_a_plan_needs_steps() -> None:
    """A plan that does nothing is a mistake of its author."""
    assert errors() == ["DR111 steps"]


def test_ids_are_taken_once() -> None:
    """Each later use is reported, with the place of the first."""
    assert errors(step("a"), step("b"), step("a"), step("a")) == ["DR102 steps[2].id", "DR102 steps[3].id"]
    assert "the id a is taken by steps[0]" in texts(step("a"), step("a"))


@pytest.mark.parametrize("id_", ["input", "item"])
def test_reserved_ids_are_refused(id_: str) -> None:
    """`${input}` and `${item}` would have two meanings."""
    assert errors(step(id_)) == ["DR110 steps[0].id"]


def test_dependencies_are_checked_one_by_one() -> None:
    """Each fault is reported at its own place, with the id that was probably meant."""
    assert errors(step("load"), step("a", "laod", "load", "a", "load")) == [
        "DR104 steps[1].depends_on[0]",
        "DR105 steps[1].depends_on[2]",
        "DR107 steps[1].depends_on[3]",
    ]
    assert "did you mean load?" in texts(step("load"), step("a", "laod"))


@pytest.mark.parametrize(
    ("steps", "cycles"),
    [
        ([step("a", "b"), step("b", "a")], ["a -> b -> a"]),
        ([step("x"), step("a", "x", "c"), step("b", "a"), step("c", "b"), step("after", "c")], ["a -> c -> b -> a"]),
        ([step("a", "b"), step("b", "a"), step("c", "d", "a"), step("d", "c")], ["a -> b -> a", "c -> d -> c"]),
        ([step("a", args={"value": "${b}"}), step("b", args={"value": ["${a}"]})], ["a -> b -> a"]),
        ([step("a", when={"ref": "b", "op": "exists"}), step("b", for_each="${a}")], ["a -> b -> a"]),
    ],
)
def test_cycles_are_named(steps: list[dict[str, Any]], cycles: list[str]) -> None:
    """Each knot is named once, whether declared or implied by references; steps that only wait for it are not in it."""
    problems = [problem for problem in find(*steps)[0] if not problem.is_advice]

    assert [problem.code for problem in problems] == ["DR106"] * len(cycles)
    assert [problem.facts["cycle"] for problem in problems] == cycles


@given(st.integers(0, 2**32), st.integers(1, 12))
def test_networkx_agrees_on_what_is_a_cycle(seed: int, size: int) -> None:
    """networkx is the oracle: any graph in any order is refused exactly if it has a cycle, and the named one exists."""
    rng = random.Random(seed)
    edges = {(rng.randrange(size), rng.randrange(size)) for _ in range(rng.randrange(2 * size))}
    edges = {(a, b) for a, b in edges if a != b}
    graph = nx.DiGraph(sorted(edges))

    problems, checked = find(*(step(str(b), *(str(a) for a in range(size) if (a, b) in edges)) for b in range(size)))

    assert (checked is not None) == nx.is_directed_acyclic_graph(graph)
    for problem in problems:
        if problem.code == "DR106" and "…" not in problem.facts["cycle"]:
            walk = [int(id_) for id_ in problem.facts["cycle"].split(" -> ")]
            assert all((need, at) in edges for at, need in pairwise(walk))
            assert walk[0] == walk[-1]


def test_every_knot_is_found_by_networkx_too() -> None:
    """There is a named cycle for each knot."""
    rng = random.Random(3)
    for _ in range(50):
        edges = {(a, b) for a, b in ((rng.randrange(15), rng.randrange(15)) for _ in range(18)) if a != b}
        knots = [k for k in nx.strongly_connected_components(nx.DiGraph(sorted(edges))) if len(k) > 1]
        problems, _ = find(*(step(str(b), *(str(a) for a in range(15) if (a, b) in edges)) for b in range(15)))
        assert sum(problem.code == "DR106" for problem in problems) == len(knots)


def test_policy_counts_elements_that_stand_in_the_plan() -> None:
    """An element of a for_each is a step, and the length of a list in the plan is known."""
    steps = [step("a"), step("b", for_each=[1, 2, 3])]

    assert errors(*steps, policy=Policy(max_steps=4)) == ["DR108 steps"]
    assert errors(*steps, policy=Policy(max_steps=5)) == []


def test_problems_come_in_the_order_of_the_plan() -> None:
    """Whatever part of the check finds them: first those of the whole plan, then step by step, then the output."""
    found = errors(
        step("a", "b", args={"value": "${x}"}),
        step("b", "a"),
        {"id": "b", "tool": "ad", "args": {}},
        {"id": "c", "tool": "add", "args": {"b": "x"}},
        output="nothing",
    )

    assert found == [
        "DR302 steps[0].args.value",
        "DR106 steps[0].depends_on",
        "DR102 steps[2].id",
        "DR201 steps[2].tool",
        "DR203 steps[3].args",
        "DR205 steps[3].args.b",
        "DR311 output",
    ]


def test_check_plan_raises_what_find_problems_gives() -> None:
    """Both functions run the same check; advice is no reason to refuse, unless the check is strict."""
    plan = Plan(steps=(Step(id="a", tool="send", args={"to": "x"}),))
    advised = check_plan(plan, TOOLBOX)
    assert places(advised.advice) == ["DR912 steps[0]"]

    with pytest.raises(PlanRefused) as strict:
        check_plan(plan, TOOLBOX, strict=True)
    assert strict.value.problems == advised.advice

    with pytest.raises(PlanRefused) as lenient:
        check_plan(Plan(steps=(*plan.steps, Step(id="b", tool="sned"))), TOOLBOX)
    assert places(lenient.value.problems) == ["DR201 steps[1].tool"]


def test_a_crowd_of_faults_is_cut_and_said_to_be() -> None:
    """A plan that the host builds may have the same fault a million times."""
    problems, _ = find(*(step(f"s{i}", f"x{i}") for i in range(MAX_ERRORS + 5)))

    assert sum(problem.code == "DR104" for problem in problems) == MAX_ERRORS
    assert problems[-1].facts == {"code": "DR104", "limit": str(MAX_ERRORS)}


def test_a_plan_is_never_changed_by_its_check() -> None:
    """It may be checked again, also by others at the same time."""
    plan = Plan(steps=(Step(id="a", tool="anything", args={"value": {"x": ["${input.y}"]}}),), output="a")
    before = plan.model_dump_json()

    first, second = check_plan(plan, TOOLBOX), check_plan(plan, TOOLBOX)

    assert plan.model_dump_json() == before
    assert first.steps["a"] == second.steps["a"]

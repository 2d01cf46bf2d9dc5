"""Advice about the shape of a plan: what could be left out, side by side, or a list."""

from __future__ import annotations

from typing import Any

from checking import TOOLBOX, find
from dagrun import Problem
from dagrun.advice.shape_advice import shape_advice

LOAD = {"id": "load", "tool": "load", "args": {"path": "a.csv"}}


def add(id_: str, *after: str, **args: Any) -> dict[str, Any]:
    """A step that only computes."""
    return {"id": id_, "tool": "add", "args": {"a": 1, **args}, "depends_on": list(after)}


def send(id_: str, *after: str, to: str = "x") -> dict[str, Any]:
    """A step with an effect."""
    return {"id": id_, "tool": "send", "args": {"to": to}, "depends_on": list(after), "on_failure": "stop"}


def shape(*steps: dict[str, Any]) -> list[Problem]:
    """The advice about the shape of a plan without problems."""
    problems, checked = find(*steps, toolbox=TOOLBOX)
    assert checked is not None, problems
    return list(shape_advice(checked))


def test_a_dependency_that_another_one_implies() -> None:
    """The order holds without it."""
    found = shape(send("a"), send("b", "a"), send("c", "a", "b"))

    assert [(problem.code, problem.path) for problem in found] == [("DR903", "steps[2].depends_on[0]")]
    assert str(found[0]).endswith("step c depends on a, which b waits for already; without it, the order is the same")


def test_an_implied_dependency_over_several_steps() -> None:
    """However long the way is, and also if it is a reference."""
    value = {"id": "v", "tool": "anything", "args": {"value": "${b}"}}
    found = shape(send("a"), send("b", "a"), value, send("d", "v", "a"))

    assert [problem.facts["through"] for problem in found if problem.code == "DR903"] == ["v"]


def test_a_dependency_whose_output_is_used_is_needed() -> None:
    """It may be implied, and is where the value comes from."""
    value = {"id": "v", "tool": "anything", "args": {"value": "${a}"}, "depends_on": ["a", "b"]}

    assert shape(send("a"), send("b", "a"), value) == []


def test_steps_in_a_row_that_use_nothing_of_each_other() -> None:
    """They would take as long as the longest of them."""
    found = shape(LOAD, add("a", b=7), add("b", "a", a=2, b=8), add("c", "b", a=3), add("d", "c", a=4, b=1))

    assert [(problem.code, problem.facts["steps"]) for problem in found] == [("DR904", "a, b, c, d")]


def test_two_steps_are_no_row() -> None:
    """The advice about the one dependency says enough."""
    assert shape(add("a"), add("b", "a", a=2)) == []


def test_steps_that_are_the_elements_of_a_list() -> None:
    """One argument differs, and everything else is the same."""
    loads = [{"id": f"l{n}", "tool": "load", "args": {"path": f"{n}.csv"}} for n in range(4)]
    other = {**LOAD, "timeout": 3}
    found = shape(*loads, other)

    assert [(p.code, p.path, p.facts["steps"], p.facts["argument"]) for p in found] == [
        ("DR905", "steps[0]", "l0, l1, l2, l3", "path")
    ]


def test_what_is_no_list() -> None:
    """Two steps; values from other steps; two arguments that differ; equal calls; other dependencies."""
    assert shape(add("a", a=1), add("b", a=2)) == []
    assert shape(add("a", a=1, b=1), add("b", a=2, b=2), add("c", a=3, b=3)) == []
    assert [p.code for p in shape(add("a"), add("b"), add("c"))] == []
    assert [p.code for p in shape(add("a", a=1), add("b", "a", a=2), add("c", "a", a=3))] == []
    sources = [{"id": f"s{n}", "tool": "load", "args": {"path": "a"}, "timeout": n + 1} for n in range(3)]
    values = [{"id": f"v{n}", "tool": "anything", "args": {"value": f"${{s{n}}}"}} for n in range(3)]
    assert shape(*sources, *values) == []


def test_very_large_plans_are_left_alone() -> None:
    """Each step is compared with all before it."""
    assert shape(*(add(f"s{n}", a=n) for n in range(3_001))) == []

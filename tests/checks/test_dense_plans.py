"""Plans with nearly all possible dependencies are checked or refused in time that grows with their number."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import dagrun
from dagrun import PlanLimits, PlanRefused, read_plan
from dagrun.kernel.checks import check_plan as topology
from dagrun.kernel.checks.findings import MAX_ERRORS, MAX_HINTS
from dagrun.plans.json_reader import parse_json

STEPS = 700  # with 244,650 dependencies: far more than the reported problems of one code
EDGES = STEPS * (STEPS - 1) // 2
# The most calls of Python functions for a step, and for a reported fault; there is none for a dependency.
PER_STEP, PER_FAULT = 120, 12


@dagrun.tool(effect="pure")
async def noop() -> None:
    """Do nothing."""


def dense(count: int = STEPS) -> dict[str, list[str]]:
    """Return a plan in which each step waits for all steps before it."""
    ids = [f"s{i}" for i in range(count)]
    return {id_: ids[:number] for number, id_ in enumerate(ids)}


def plan_of(shape: dict[str, list[str]]) -> dagrun.Plan:
    return dagrun.Plan(steps=[dagrun.Step(id=id_, tool="noop", depends_on=before) for id_, before in shape.items()])


def text_of(shape: dict[str, list[str]]) -> str:
    return json.dumps({"steps": [{"id": id_, "tool": "noop", "depends_on": v} for id_, v in shape.items()]})


def calls_of(work: Callable[[], object]) -> Counter[str]:
    """Count the calls of Python functions (``call``) and C functions (``c_call``) in *work*; equal on every machine."""
    count: Counter[str] = Counter()

    def note(_frame: object, event: str, _argument: object) -> None:
        count[event] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def python_calls(work: Callable[[], object]) -> int:
    return calls_of(work)["call"]


def refused(work: Callable[[], object]) -> tuple[dagrun.Problem, ...]:
    with pytest.raises(PlanRefused) as caught:
        work()
    return caught.value.problems


def hostile() -> Iterator[tuple[str, dict[str, list[str]], str]]:
    """Yield dense plans with a fault, and the code of the fault."""
    shape = dense()
    yield "cycle", dense(200) | {"s0": ["s199"]}, "DR106"
    yield "unknown", {id_: [f"x{need}" for need in before] for id_, before in shape.items()}, "DR104"
    yield "twice", {id_: [*before, *before] for id_, before in shape.items()}, "DR107"
    yield "itself", {id_: [*before, id_] for id_, before in shape.items()}, "DR105"


def test_a_plan_with_all_edges_is_checked_without_a_call_for_each() -> None:
    """3,000 steps have 4.5 million dependencies: a microsecond for each would be five seconds."""
    plan = plan_of(dense())
    dagrun.check(plan, [noop])  # loads modules that are loaded on first use

    assert python_calls(lambda: dagrun.check(plan, [noop])) < STEPS * PER_STEP < EDGES


@pytest.mark.parametrize(("shape", "code"), [case[1:] for case in hostile()], ids=[case[0] for case in hostile()])
@pytest.mark.rigs
def test_a_fault_in_every_dependency_costs_no_more_than_the_faults_that_are_told(
    shape: dict[str, list[str]], code: str
) -> None:
    """Formatting a quarter of a million faults, of which few are reported, took most of the time."""
    found: list[dagrun.Problem] = []
    plan = plan_of(shape)
    refused(lambda: dagrun.check(plan, [noop]))

    calls = python_calls(lambda: found.extend(refused(lambda: dagrun.check(plan, [noop]))))

    assert {problem.code for problem in found} <= {code, "DR990"}
    told = sum(problem.code == code for problem in found)
    assert 0 < told <= MAX_ERRORS
    # networkx looks at each edge, and a hint looks at each name.
    extra = {"DR106": 200 * 200 * 4, "DR104": MAX_HINTS * STEPS * 6}.get(code, 0)
    assert calls < STEPS * PER_STEP + (told + STEPS) * PER_FAULT + extra


def test_only_the_wanted_faults_are_named_in_a_step_with_several() -> None:
    """Each fault has its code and its place, and valid dependencies are not reported."""
    steps = [
        dagrun.Step(id="a", tool="noop"),
        dagrun.Step(id="b", tool="noop", depends_on=["x", "a", "b", "a", "x", "b"]),
    ]

    found = refused(lambda: dagrun.check(dagrun.Plan(steps=steps), [noop]))

    assert [(p.code, p.path.rpartition(".")[2]) for p in found] == [
        ("DR104", "depends_on[0]"),
        ("DR105", "depends_on[2]"),
        ("DR107", "depends_on[3]"),
        ("DR107", "depends_on[4]"),
        ("DR107", "depends_on[5]"),
    ]


def test_too_many_dependencies_against_the_order_are_refused_with_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal names the number, the limit, and how the plan can be changed to be checkable."""
    monkeypatch.setattr(topology, "MAX_LOOSE_EDGES", 100)
    shape = dense(20)

    (problem,) = refused(lambda: dagrun.check(plan_of(dict(reversed(shape.items()))), [noop]))

    assert problem.code == "DR114"
    assert problem.facts == {"count": "190", "limit": "100"}
    assert "put the steps in topological order" in problem.sentence
    assert dagrun.check(plan_of(shape), [noop]).is_ordered


# Reading ----------------------------------------------------------------------------------------------------------


def test_reading_a_plan_with_all_edges_makes_no_call_for_each() -> None:
    """Each text of a plan is checked for characters that no record can hold; a list of plain texts at once."""
    limits = PlanLimits(max_bytes=10**8, max_dependencies=STEPS)
    text = text_of(dense())
    read_plan(text, limits=limits)

    calls = calls_of(lambda: read_plan(text, limits=limits))

    assert calls["call"] + calls["c_call"] < STEPS * PER_STEP < EDGES


def test_a_ceiling_on_all_dependencies_together_is_named_with_the_number_found() -> None:
    """Many steps with many dependencies each can exceed this limit alone; the sentence names it."""
    text = text_of(dense(20))
    (problem,) = refused(lambda: read_plan(text, limits=PlanLimits(max_edges=189)))

    assert (problem.code, problem.facts) == ("DR113", {"count": "190", "limit": "189"})
    assert "max_edges of PlanLimits" in problem.sentence
    assert len(read_plan(text, limits=PlanLimits(max_edges=190)).steps) == 20


@pytest.mark.parametrize(
    ("limits", "named"),
    [
        (PlanLimits(max_bytes=100), "max_bytes of PlanLimits"),
        (PlanLimits(max_steps=19), "max_steps"),
        (PlanLimits(max_dependencies=18), "max_dependencies of PlanLimits"),
    ],
)
def test_each_ceiling_of_size_is_named_where_it_is_met(limits: PlanLimits, named: str) -> None:
    """There are five limits, so each refusal names its own."""
    assert named in str(refused(lambda: read_plan(text_of(dense(20)), limits=limits))[0])


# The depth of a text ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        '["]", "[[[[", "\\"[[[[", {"}": "{{{{"}]',
        '["[[[[", "[[[[", "", "", "[[[["]',
        '["", ["", [""]]]',
        '["\u00e9[[[[", "\u4e2d"]',
    ],
)
def test_brackets_in_texts_do_not_count_as_depth(text: str) -> None:
    """Text between quotes is data, with and without escapes around it."""
    assert parse_json(text, 3) == json.loads(text)


@pytest.mark.parametrize("text", ['["", ["", [[""]]]]', '["\\"", ["[", [["]"]]]]', '[[[["a"'])
def test_the_depth_between_texts_counts(text: str) -> None:
    """Also in a text without an end: the parser is never asked to go deeper than the limit."""
    assert [p.code for p in refused(lambda: parse_json(text, 3))] == ["DR006"]


@pytest.mark.parametrize("tail", ['"\\n', "\\n,", 'x"y"\\n'])
def test_a_long_tail_without_brackets_is_looked_at_once(tail: str) -> None:
    """A search that fails at each character of the tail would take an hour."""
    text: Any = "[[], [], []]" + tail * 300_000  # with more brackets than levels, because else nothing is searched

    assert [p.code for p in refused(lambda: parse_json(text, 2))] == ["DR003"]

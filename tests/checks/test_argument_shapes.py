"""Arguments of one shape are checked once in a check, and the result holds for nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import SecretStr
from typing_extensions import TypedDict

import dagrun
from dagrun import PlanRefused, Policy
from dagrun.kernel.checks.check_context import CheckContext, ToolFacts, context_of
from dagrun.kernel.checks.findings import Findings
from dagrun.kernel.checks.reference_sources import ReferenceSources


class Parcel(TypedDict):
    """A value that is passed between steps."""

    name: str
    total: float


@dagrun.tool(effect="pure")
async def make() -> Parcel:
    """Return a parcel."""
    return {"name": "a", "total": 1.0}


@dagrun.tool(effect="pure")
async def weigh(parcels: list[Parcel], unit: str = "kg") -> float:
    """Add up."""
    return sum(parcel["total"] for parcel in parcels)


def plan_of(*args: dict[str, Any], tool: str = "weigh") -> dagrun.Plan:
    first = [dagrun.Step(id=id_, tool="make") for id_ in ("a", "b")]
    return dagrun.Plan(steps=[*first, *(dagrun.Step(id=f"s{i}", tool=tool, args=one) for i, one in enumerate(args))])


def faults_of(plan: dagrun.Plan, *tools: Any, **options: Any) -> list[tuple[str, str]]:
    with pytest.raises(PlanRefused) as caught:
        dagrun.check(plan, tools, **options)
    return [(problem.code, problem.path) for problem in caught.value.problems]


def noted(patch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the look-ups of types of arguments and of outputs from here on."""
    types_of, of_call = ToolFacts.types_of, ReferenceSources._of_call
    seen = Counter[str]()

    def noted_types(self: ToolFacts, *place: str | int) -> Any:
        seen["types"] += 1
        return types_of(self, *place)

    def noted_output(self: ReferenceSources, *what: Any) -> Any:
        seen["output"] += 1
        return of_call(self, *what)

    patch.setattr(ToolFacts, "types_of", noted_types)
    patch.setattr(ReferenceSources, "_of_call", noted_output)
    return seen


def test_arguments_of_one_shape_are_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred steps of one shape cost as many look-ups as one."""
    looked_up = noted(monkeypatch)

    def count(steps: int) -> Counter[str]:
        looked_up.clear()
        args = [{"parcels": ["${a}", "${b}"], "unit": "g"} for _ in range(steps)]
        dagrun.check(plan_of(*args), [make, weigh])
        return looked_up.copy()

    assert count(100) == count(1)
    assert min(count(1).values()) > 0


def test_references_of_one_kind_are_compared_once_whatever_the_keys_and_positions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a hundred steps without a common shape, the output of a tool is compared with a place in another one once."""

    @dagrun.tool(effect="pure")
    async def sort(parcels: dict[str, list[Parcel]]) -> None: ...

    looked_up = noted(monkeypatch)

    def count(steps: int) -> Counter[str]:
        looked_up.clear()
        args = [{"parcels": {f"k{n}": [{"name": "x", "total": n}, "${a}"] + ["${b}"] * n}} for n in range(steps)]
        dagrun.check(plan_of(*args, tool="sort"), [make, sort])
        return looked_up.copy()

    assert count(100) == count(1)
    assert count(1)["types"] == 1


def test_wrong_arguments_of_one_shape_are_reported_for_every_step() -> None:
    """Only valid arguments are remembered: each fault has its own place in the plan."""
    wrong = {"parcels": ["${a.total}", "${b}"]}

    assert faults_of(plan_of(wrong, wrong, {"parcels": ["${b}", "${a}"]}, wrong), make, weigh) == [
        ("DR304", "steps[2].args.parcels[0]"),
        ("DR304", "steps[3].args.parcels[0]"),
        ("DR304", "steps[5].args.parcels[0]"),
    ]


def test_a_shape_that_was_valid_is_wrong_with_values_of_other_types() -> None:
    """The types of the references decide, not the shape alone."""
    args = [{"parcels": [text]} for text in ("${a}", "${a.name}", "${b}", "${b.nope}", "${c}", "${s5}", '${a["name"]}')]

    assert faults_of(plan_of(*args), make, weigh) == [
        ("DR304", "steps[3].args.parcels[0]"),
        ("DR303", "steps[5].args.parcels[0]"),
        ("DR302", "steps[6].args.parcels[0]"),
        ("DR305", "steps[7].args.parcels[0]"),
        ("DR304", "steps[8].args.parcels[0]"),
    ]


def test_literals_are_part_of_a_shape() -> None:
    """Arguments that differ in a literal differ in shape: 1, true and 1.0 are different, and so are 0.0 and -0.0."""
    values: list[Any] = ["kg", 1, True, 1.0, "g", None]
    args = [{"parcels": ["${a}"], "unit": value} for value in values]
    assert faults_of(plan_of(*args), make, weigh) == [("DR205", f"steps[{i}].args.unit") for i in (3, 4, 5, 7)]

    @dagrun.tool(effect="pure")
    async def take(parcels: list[Parcel], number: Any) -> None: ...

    numbers: list[Any] = [1, True, 1.0, 0.0, -0.0, 0, False]
    plan = plan_of(*({"parcels": ["${a}"], "number": value} for value in numbers), tool="take")
    texts = [b"".join(step.args.pieces) for step in dagrun.check(plan, [make, take]).steps.values()][2:]
    assert [text.split(b":")[-1] for text in texts] == [b"1}", b"true}", b"1.0}", b"0.0}", b"-0.0}", b"0}", b"false}"]


def test_a_shape_that_was_valid_for_one_tool_is_checked_for_another() -> None:
    """Equal arguments may be wrong for another tool."""

    @dagrun.tool(effect="pure")
    async def count(parcels: list[int]) -> int:
        return len(parcels)

    args = {"parcels": ["${a}"]}
    steps = [dagrun.Step(id=f"s{i}", tool=tool, args=args) for i, tool in enumerate(("weigh", "count", "weigh"))]
    plan = dagrun.Plan(steps=[dagrun.Step(id="a", tool="make"), *steps])

    assert faults_of(plan, make, weigh, count) == [("DR304", "steps[2].args.parcels[0]")]


def test_a_step_that_uses_its_own_output_is_found_among_valid_ones() -> None:
    """Its own output may have the right type, but a step cannot use it."""

    @dagrun.tool(effect="pure")
    async def merge(parcels: list[Parcel]) -> Parcel:
        return parcels[0]

    plan = plan_of({"parcels": ["${a}"]}, {"parcels": ["${s1}"]}, {"parcels": ["${s0}"]}, tool="merge")

    assert faults_of(plan, make, merge) == [("DR305", "steps[3].args.parcels[0]")]


def test_a_missing_part_differs_from_a_value_of_unknown_type() -> None:
    """The type of an input is not known either, but a reference to it is valid."""
    plan = plan_of({"parcels": ["${input.one}"]}, {"parcels": ["${a.nope}"]})

    assert faults_of(plan, make, weigh) == [("DR303", "steps[3].args.parcels[0]")]


def test_an_item_is_checked_in_each_step() -> None:
    """Equal texts stand for elements of different lists."""

    @dagrun.tool(effect="pure")
    async def list_parcels() -> list[Parcel]:
        return []

    @dagrun.tool(effect="pure")
    async def list_totals() -> list[float]:
        return []

    args = {"parcels": ["${item}"]}
    lists = [dagrun.Step(id=tool, tool=tool) for tool in ("list_parcels", "list_totals")]
    steps = [dagrun.Step(id=f"s{i}", tool="weigh", args=args, for_each=f"${{{one.id}}}") for i, one in enumerate(lists)]

    found = faults_of(dagrun.Plan(steps=[*lists, *steps]), list_parcels, list_totals, weigh)
    assert found == [("DR304", "steps[3].args.parcels[0]")]


@pytest.mark.parametrize("depth", [70, 5_000])
@pytest.mark.parametrize("wrap", [lambda value: {"a": value}, lambda value: [value]], ids=["objects", "lists"])
def test_arguments_that_are_too_deep_are_refused_with_a_shape_or_without(
    wrap: Callable[[object], object], depth: int
) -> None:
    """The depth limit of shapes is far below Python's recursion limit."""
    value: object = "${a}"
    for _ in range(depth):
        value = wrap(value)

    assert faults_of(plan_of({"parcels": value}), make, weigh) == [("DR006", "steps[2].args")]


def test_an_object_is_no_list_of_the_same_parts() -> None:
    """Their outlines differ, so each gets its own template."""

    @dagrun.tool(effect="pure")
    async def take(thing: Any) -> None: ...

    things: list[Any] = [{"k": "${a}"}, ["k", "${a}"], {"k": {}}, {"k": ["${a}"]}, ["${a}", "k"]]
    checked = dagrun.check(plan_of(*({"thing": thing} for thing in things), tool="take"), [make, take])

    filled = [step.args.fill(lambda _: 0) for step in list(checked.steps.values())[2:]]
    wanted = [b'{"k":0}', b'["k",0]', b'{"k":{}}', b'{"k":[0]}', b'[0,"k"]']
    assert filled == [b'{"thing":' + thing + b"}" for thing in wanted]


def test_an_input_is_no_step_to_wait_for() -> None:
    """Neither in the first step of a shape, nor in the steps after it."""
    args = {"parcels": ["${input.one}", "${b}", "${a}"]}
    steps = dagrun.check(plan_of(args, args), [make, weigh]).steps

    assert [steps[id_].depends_on for id_ in ("s0", "s1")] == [("b", "a")] * 2


def test_arguments_that_are_one_reference_are_refused() -> None:
    """A reference cannot stand for all arguments; and an object with other keys beside ``$step`` is no reference."""
    found = faults_of(plan_of({"$step": "a"}, {"$step": "a", "parcels": ["${a}"]}), make, weigh)
    assert found == [("DR301", "steps[2].args"), ("DR301", "steps[3].args")]


def test_a_tool_of_the_same_name_in_another_toolbox_is_another_tool() -> None:
    """No result of a check outlives it."""
    plan = plan_of({"parcels": ["${a}"]}, {"parcels": ["${b}"]})

    @dagrun.tool(effect="pure", name="weigh")
    async def other(parcels: list[int]) -> None: ...

    dagrun.check(plan, [make, weigh])
    assert faults_of(plan, make, other) == [("DR304", f"steps[{i}].args.parcels[0]") for i in (2, 3)]
    dagrun.check(plan, [make, weigh])


def test_a_policy_or_a_secret_of_another_check_changes_nothing() -> None:
    """Arguments that were valid in one check are checked again in the next, with its own policy and secrets."""

    @dagrun.tool(effect="pure")
    async def send(parcel: Parcel, key: SecretStr) -> None: ...

    plan = plan_of(*[{"parcel": "${a}", "key": {"$secret": "k"}}] * 2, tool="send")

    dagrun.check(plan, [make, send], secrets={"k": "a long enough secret"})
    assert faults_of(plan, make, send) == [("DR210", f"steps[{i}].args.key") for i in (2, 3)]
    assert faults_of(plan, make, send, policy=Policy(max_steps=1)) == [("DR108", "steps")]


def test_each_check_has_its_own_shapes() -> None:
    """Two contexts of the same toolbox share no results."""
    plan = plan_of({"parcels": ["${a}"]})
    toolbox = dagrun.Toolbox(make, weigh)
    index = {step.id: place for place, step in enumerate(plan.steps)}
    first, second = (context_of(plan, index, toolbox, Policy(), Findings(), inputs=None, executors={}) for _ in "ab")

    def known(context: CheckContext) -> Any:
        read = context.shapes.read(plan.steps[2].args)
        assert read is not None
        return read[2]

    for context in (first, second):
        known(context)  # what occurs once is not kept
    known(first)["weigh"] = []
    assert known(first) == {"weigh": []}
    assert known(second) == {}

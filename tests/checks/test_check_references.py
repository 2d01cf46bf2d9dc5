"""References, conditions, for_each and the output of a plan: their values must exist when they are needed."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, TypeAdapter

import dagrun
from checking import TOOLBOX, errors, find, texts
from dagrun import Condition, Plan, PlanRefused, Policy, Step
from dagrun.kernel.model.contracts.schema_types import look_up, types_of
from dagrun.kernel.model.tool import make_tool

LOAD = {"id": "load", "tool": "load", "args": {"path": "a.csv"}}
ANY = {"id": "any", "tool": "anything"}


def use(value: Any, **fields: Any) -> dict[str, Any]:
    """Return a step that takes any value."""
    return {"id": "use", "tool": "anything", "args": {"value": value}, **fields}


@pytest.mark.parametrize(
    "reference",
    [
        "load",
        "load.rows",
        "load.rows[0]",
        "load.rows[999].name",
        "load.note",
        "load.extra.anything",
        'load["rows"]',
        "any.x[1].y",
    ],
)
def test_parts_that_the_producer_may_give_are_there(reference: str) -> None:
    """Fields, elements, values of open objects; and any part of the output of a tool without a schema."""
    assert errors(LOAD, ANY, use(f"${{{reference}}}")) == []


@pytest.mark.parametrize(
    ("reference", "field", "hint"),
    [
        ("load.row", "row", "; did you mean rows?"),
        ("load.rows.name", "name", ""),
        ("load.rows[0].totals", "totals", "; did you mean total?"),
        ("load[0]", "[0]", ""),
        ("load.count.x", "x", ""),
        ("load.note.x", "x", ""),
        ("load.extra.x.y", "y", ""),
        ("load.__class__", "__class__", ""),
    ],
)
def test_parts_that_the_producer_does_not_have_are_refused(reference: str, field: str, hint: str) -> None:
    """The output type of a tool is known before the run, and so is a reference to a missing part."""
    shown = texts(LOAD, use({"deep": [f"${{{reference}}}"]}))

    assert shown.startswith("DR303 steps[1].args.value.deep[0]: ")
    assert shown.endswith(f"but the output of load has no {field}{hint}")


def test_tuples_have_as_many_elements_as_they_have() -> None:
    """A tool may return several values at once."""
    pick = {"id": "pick", "tool": "pick", "args": {"value": [1]}}

    assert errors(pick, {"id": "a", "tool": "add", "args": {"a": "${pick[0]}"}}) == []
    assert errors(pick, {"id": "a", "tool": "add", "args": {"a": "${pick[1]}"}}) == ["DR304 steps[1].args.a"]
    assert errors(pick, use("${pick[2]}")) == ["DR303 steps[1].args.value"]


def test_references_name_steps_of_the_plan() -> None:
    """Unknown ids come with the id that was probably meant; a step cannot use its own output."""
    assert errors(LOAD, use("${laod.rows}")) == ["DR302 steps[1].args.value"]
    assert "refers to ${laod.rows}, which is not in the plan; did you mean load?" in texts(LOAD, use("${laod.rows}"))
    assert errors(use("${use}")) == ["DR305 steps[0].args.value"]
    assert errors(use({"$step": "load", "path": "rows"})) == ["DR302 steps[0].args.value"]


def test_a_repeated_id_does_not_move_the_steps_after_it() -> None:
    """A reference to a later step is looked up at that step, and not at the step before it."""
    pick = {"id": "pick", "tool": "pick", "args": {"value": [1]}}

    assert errors(pick, pick, LOAD, use("${load.rows}")) == ["DR102 steps[1].id"]


@pytest.mark.parametrize("text", ["${", "${}", "${load", "${load .rows}", "${load.*}", "a ${load..x} b"])
def test_what_begins_like_a_reference_and_is_none_is_refused(text: str) -> None:
    """Else the text would be passed to a tool."""
    assert errors(LOAD, use(text)) == ["DR301 steps[1].args.value"]


@pytest.mark.parametrize(
    "value", [{"$step": 3}, {"$step": "load", "pth": "x"}, {"$step": "load", "path": [1.5]}, {"$step": "a b"}]
)
def test_malformed_reference_objects_are_refused(value: Any) -> None:
    """The object form of references is checked like the text form."""
    assert errors(LOAD, use(value)) == ["DR301 steps[1].args.value"]


@pytest.mark.parametrize("text", ["$100", "$load", "{load}", "$${load.rows}", "$$", "{{load}}", "%(load)s"])
def test_only_braces_after_a_dollar_are_special(text: str) -> None:
    """Prices and templates of other systems are texts."""
    problems, checked = find(LOAD, use(text))

    assert not [p for p in problems if not p.is_advice]
    assert checked is not None
    assert checked.steps["use"].depends_on == ()


def test_inputs_are_checked_when_they_are_known() -> None:
    """If the inputs are not known yet, any reference to them is accepted."""
    step = use("${input.region.name}")

    assert errors(step) == errors(step, inputs={"region": {"name": "x"}}) == []
    assert errors(step, inputs={"regoin": {}}) == ["DR306 steps[0].args.value"]
    assert "the run has no such input; did you mean regoin?" in texts(step, inputs={"regoin": {}})
    assert errors(step, inputs={"region": "x"}) == ["DR306 steps[0].args.value"]
    assert errors(use("${input}"), inputs={}) == []


# for_each -------------------------------------------------------------------------------------------------------------


def each(for_each: Any, value: Any = "${item}", **fields: Any) -> dict[str, Any]:
    """Return a step that runs for each element."""
    return {"id": "each", "tool": "anything", "for_each": for_each, "args": {"value": value}, **fields}


@pytest.mark.parametrize(
    "items",
    [
        [],
        [1, 2],
        ["${load.count}", {"x": "${any}"}],
        "${load.rows}",
        {"$step": "load", "path": "rows"},
        "${any}",
        "${input}",
    ],
)
def test_for_each_takes_a_list_or_a_reference_to_one(items: Any) -> None:
    """A list in the plan, with or without references, or any value that may be a list."""
    assert errors(LOAD, ANY, each(items)) == []


@pytest.mark.parametrize(
    "items",
    [
        "load.rows",
        "load",
        "${load.rows} and more",
        {"a": 1},
        {"x": "${load.rows}"},
        "${load.count}",
        "${load}",
        "${load.note}",
    ],
)
def test_for_each_over_what_is_no_list_is_refused(items: Any) -> None:
    """A text, an object, or a value that is known to be no list."""
    assert errors(LOAD, each(items)) == ["DR309 steps[1].for_each"]


def test_a_list_in_the_plan_keeps_the_ceiling_of_fan_out() -> None:
    """A list that is known to be too long is refused before the run."""
    assert errors(each([1] * 4), policy=Policy(max_fan_out=3)) == ["DR309 steps[0].for_each"]
    assert errors(each([1] * 3), policy=Policy(max_fan_out=3)) == []


def test_item_is_known_from_the_list() -> None:
    """The element of a list of rows is a row."""
    assert errors(LOAD, each("${load.rows}", "${item.name}")) == []
    assert errors(LOAD, each("${load.rows}", "${item.nmae}")) == ["DR303 steps[1].args.value"]
    number = {"id": "each", "tool": "add", "for_each": "${load.rows}", "args": {"a": "${item.name}"}}
    assert errors(LOAD, number) == ["DR304 steps[1].args.a"]


@pytest.mark.parametrize(
    "step",
    [
        use("${item}"),
        each("${item}", 1),
        use(1, when={"ref": "item", "op": "exists"}),
        each([1], 1, success={"ref": "item", "op": "exists"}),
    ],
)
def test_item_exists_only_in_the_arguments_and_the_condition_of_a_for_each(step: dict[str, Any]) -> None:
    """Elsewhere there is no element."""
    assert [problem.split()[0] for problem in errors(step)] == ["DR307"]


def test_a_condition_may_look_at_the_element() -> None:
    """It is checked against the list, like an argument."""
    assert errors(LOAD, each("${load.rows}", 1, when={"ref": "item.name", "op": "==", "value": "a"})) == []
    assert errors(LOAD, each("${load.rows}", 1, when={"ref": "item.nmae", "op": "exists"})) == []
    wrong = each("${load.rows}", 1, when={"ref": "item.nmae", "op": "==", "value": "a"})
    assert errors(LOAD, wrong) == ["DR303 steps[1].when.ref"]


def test_the_output_of_a_for_each_is_a_list() -> None:
    """It is a list of the tool's outputs: `${id[0]}` is the first one, and `${id.x}` does not exist."""
    steps = (LOAD, {"id": "each", "tool": "load", "for_each": [1, 2], "args": {"path": "${item}"}})

    assert errors(*steps, use("${each[1].rows}")) == []
    assert errors(*steps, use("${each.rows}")) == ["DR303 steps[2].args.value"]
    assert errors(*steps, use("${each[0].row}")) == ["DR303 steps[2].args.value"]
    assert errors(*steps, {"id": "s", "tool": "show", "args": {"text": "${each}"}}) == ["DR304 steps[2].args.text"]


def test_for_each_may_not_feed_itself() -> None:
    """It would wait for its own end."""
    assert errors(each("${each}", 1)) == ["DR305 steps[0].for_each"]


# Conditions -----------------------------------------------------------------------------------------------------------


def leaf(ref: str, op: str = ">", value: Any = 0) -> dict[str, Any]:
    """Return a comparison."""
    return {"ref": ref, "op": op, "value": value}


def test_when_looks_at_other_steps_and_implies_the_dependency() -> None:
    """The value must exist before the step starts."""
    _, checked = find(LOAD, use(1, when={"any": [leaf("load.count"), {"not": leaf("${load.note}", "==", None)}]}))

    assert checked is not None
    assert checked.steps["use"].depends_on == ("load",)
    assert checked.steps["use"].value_sources == {"load"}


@pytest.mark.parametrize(
    ("ref", "problem"),
    [
        ("use", "DR305 steps[1].when.all[1].not.ref"),
        ("nope", "DR302 steps[1].when.all[1].not.ref"),
        ("load.cuont", "DR303 steps[1].when.all[1].not.ref"),
        ("a b", "DR301 steps[1].when.all[1].not.ref"),
        ("${load", "DR301 steps[1].when.all[1].not.ref"),
    ],
)
def test_faults_in_a_condition_are_found_at_their_place(ref: str, problem: str) -> None:
    """However deep the comparison is nested."""
    assert errors(LOAD, use(1, when={"all": [leaf("load.count"), {"not": leaf(ref)}]})) == [problem]


def test_exists_may_ask_for_what_is_not_there() -> None:
    """This is the purpose of `exists`."""
    assert errors(LOAD, use(1, when=leaf("load.nothing", "exists", True))) == []


def test_success_looks_at_the_step_itself_and_at_what_it_waits_for() -> None:
    """Any other value may be missing when the step has ended."""
    own = {"id": "own", "tool": "load", "args": {"path": "x"}}

    assert errors(LOAD, {**own, "success": leaf("own.count")}) == []
    assert errors(LOAD, {**own, "success": leaf("own.cuont")}) == ["DR303 steps[1].success.ref"]
    assert errors(LOAD, {**own, "success": leaf("load.count"), "depends_on": ["load"]}) == []
    assert errors(LOAD, {**own, "success": leaf("load.count")}) == ["DR308 steps[1].success.ref"]
    assert errors(LOAD, {**own, "success": leaf("nope")}) == ["DR302 steps[1].success.ref"]


def test_success_of_a_for_each_looks_at_each_element() -> None:
    """The condition is checked for every child, which it names by the id of the parent."""
    step = {"id": "each", "tool": "load", "for_each": [1], "args": {"path": "x"}}

    assert errors({**step, "success": leaf("each.count")}) == []
    assert errors({**step, "success": leaf("each[0].count")}) == ["DR303 steps[0].success.ref"]


def test_values_of_conditions_are_plain_json() -> None:
    """They are recorded like arguments."""
    condition = Condition(ref="load.count", op="==", value=object())

    assert errors(LOAD, Step(id="use", tool="anything", when=condition)) == ["DR012 steps[1].when.value"]


# The output of the plan -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "sources"),
    [
        ("load", {"load"}),
        ("load.rows[0].name", {"load"}),
        ("${load.rows}", {"load"}),
        ("Found ${load.count} in ${any}", {"load", "any"}),
        ({"count": "${load.count}", "all": [{"$step": "any"}]}, {"load", "any"}),
        ("${input.x}", {"input"}),
        (None, None),
    ],
)
def test_a_plan_may_say_what_it_answers(output: Any, sources: set[str] | None) -> None:
    """An id, a path, a reference, or JSON with references."""
    _, checked = find(LOAD, ANY, output=output)

    assert checked is not None
    assert (checked.output.sources if checked.output is not None else None) == sources


@pytest.mark.parametrize(
    ("output", "code"),
    [
        ("laod", "DR311"),
        ("${laod}", "DR311"),
        ("load.row", "DR312"),
        ({"x": ["${load.row}"]}, "DR312"),
        ("The answer is 42", "DR301"),
        ("", "DR301"),
        ("${load", "DR301"),
        ("${item}", "DR308"),
        ("input.x", "DR311"),
    ],
)
def test_an_output_that_cannot_be_is_refused(output: Any, code: str) -> None:
    """Before the run, not at its end."""
    assert [problem.split()[0] for problem in errors(LOAD, output=output, inputs={})] == [code]


# Schemas --------------------------------------------------------------------------------------------------------------


class Open(BaseModel):
    """A model that allows other fields."""

    model_config = ConfigDict(extra="allow")

    a: int


class Tree(BaseModel):
    """A model that refers to itself."""

    name: str
    left: Tree | None = None
    rest: list[Tree] = []


@pytest.mark.parametrize(
    ("hint", "path", "types"),
    [
        (Open, ("b",), None),
        (Tree, ("left", "rest", 3, "left", "name"), {"string"}),
        (dict[str, int], ("x",), {"integer"}),
        (dict[str, Any], ("x", "y", 0), None),
        (list[list[bool]], (1, 2), {"boolean"}),
        (int | list[str], (0,), {"string"}),
        (tuple[int, ...], (5,), {"integer"}),
        (tuple[int, str], (1,), {"string"}),
        (Any, ("x",), None),
        (Tree | None, ("left",), {"object", "null"}),
    ],
)
def test_schemas_are_followed(hint: Any, path: tuple[str | int, ...], types: set[str] | None) -> None:
    """Through models, unions, definitions, open objects and lists; if a schema says nothing, any type is possible."""
    schema = TypeAdapter(hint).json_schema(mode="serialization")

    found = look_up([(schema, schema)], path)

    assert found.missing is None
    assert found.types == types


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
        {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#"}], "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}},
        {"$ref": "https://example.org/schema"},
        {"$ref": "#/$defs/nowhere"},
        {"allOf": [{"type": "string"}, {"minLength": 3}]},
        {"anyOf": [{"const": i} for i in range(1000)]},
        {"type": "object", "patternProperties": {"^a": {}}},
        True,
    ],
)
def test_schemas_that_say_little_refuse_nothing(schema: Any) -> None:
    """A schema from outside may be anything; only what it rules out is refused, in limited time."""
    look_up([(schema, schema if isinstance(schema, dict) else {})], ("a", 0, "b"))
    types_of(schema, schema if isinstance(schema, dict) else {})


def test_a_default_may_be_of_another_type() -> None:
    """It takes the place of the output, so the type of the output is not certain; its fields still are."""
    step = {**LOAD, "on_failure": "default", "default": None}

    assert errors(step, {"id": "s", "tool": "show", "args": {"text": "${load.count}"}}) == []
    assert errors(step, use("${load.cuont}")) == ["DR303 steps[1].args.value"]


def test_the_output_of_a_fallback_counts_too() -> None:
    """A part of the output of either tool may be used."""
    step = {"id": "a", "tool": "anything", "fallback": "load", "args": {"path": "x"}}

    assert "DR303 steps[1].args.value" not in errors(step, use("${a.whatever}"))


def test_the_toolbox_of_these_tests_has_outputs_to_follow() -> None:
    """A guard: without schemas, every test above would pass for the wrong reason."""
    assert "rows" in TOOLBOX["load"].output.schema["properties"]


def test_a_wrong_type_names_the_steps_that_give_the_right_one() -> None:
    """Whoever took the wrong step, as small models do, reads which one to take; steps behind it are no help."""

    async def rows(region: str) -> list[float]:
        """Give rows."""
        return []

    async def mean(numbers: list[float]) -> float:
        """Give the mean."""
        return 0.0

    tools = [make_tool(rows, effect="read"), make_tool(mean, effect="pure")]
    steps = [
        Step(id="north", tool="rows", args={"region": "north"}),
        Step(id="first", tool="mean", args={"numbers": "${north}"}),
        Step(id="south", tool="rows", args={"region": "south"}),
        Step(id="second", tool="mean", args={"numbers": "${first}"}),
        Step(id="west", tool="rows", args={"region": "west"}),
    ]
    with pytest.raises(PlanRefused) as refused:
        dagrun.check(Plan(steps=steps), tools)
    [problem] = refused.value.problems
    assert problem.sentence == (
        "step second passes ${first} as numbers: mean takes a list, first gives a number; "
        "a list comes from ${north} or ${south}"
    )

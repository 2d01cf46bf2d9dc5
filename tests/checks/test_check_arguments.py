"""Arguments against the schema of the tool: literals are checked by value, references by type."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel, Field
from pydantic_core import PydanticCustomError

from checking import TOOLBOX, errors, find, texts
from dagrun import Toolbox, tool

LOAD = {"id": "load", "tool": "load", "args": {"path": "a.csv"}}
NUMBER = {"id": "number", "tool": "add", "args": {"a": 1}}
ANY = {"id": "any", "tool": "anything"}


def call(tool_name: str, **args: Any) -> dict[str, Any]:
    """Return a step that calls a tool."""
    return {"id": "call", "tool": tool_name, "args": args}


def test_names_are_checked_in_both_directions() -> None:
    """A missing argument, and an unknown one with the name that was probably meant."""
    step = call("show", txt="x")

    assert errors(step) == ["DR204 steps[0].args.txt", "DR203 steps[0].args"]
    assert "passes txt, which show does not take; did you mean text?" in texts(step)
    assert "leaves out text, which show requires (a text)" in texts(step)


def test_a_missing_argument_is_told_by_the_name_that_planners_are_shown() -> None:
    """The schema of a tool shows aliases to planners."""
    assert "leaves out recipient" in texts(call("send"))


def test_an_argument_goes_by_any_of_its_names_but_once() -> None:
    """By name or by alias; both at once would be two values for one argument."""
    assert errors(call("send", to="x")) == errors(call("send", recipient="x")) == []
    assert errors(call("send", to="x", recipient="y")) == ["DR205 steps[0].args.recipient"]
    assert errors(ANY, call("send", to="${any}", recipient="${any}")) == ["DR205 steps[1].args.recipient"]


@pytest.mark.parametrize(
    ("step", "place"),
    [
        (call("add", a="1"), "a"),
        (call("add", a=1.0), "a"),
        (call("add", a=True), "a"),
        (call("add", a=None), "a"),
        (call("show", text=1), "text"),
        (call("show", text="x", level="medium"), "level"),
        (call("clean", rows={}), "rows"),
        (call("clean", rows=[{"name": "x"}]), "rows[0]"),
        (call("clean", rows=[{"name": "x", "total": "1"}]), "rows[0].total"),
        (call("clean", rows=[], options={"depth": "x"}), "options.depth"),
        (call("pick", value="x"), "value"),
    ],
)
def test_values_are_checked_strictly(step: dict[str, Any], place: str) -> None:
    """The text "1" is no number, and neither is true: the tool gets exactly what the plan says."""
    assert errors(step) == [f"DR205 steps[0].args.{place}"]


def test_values_are_described_and_never_shown() -> None:
    """An argument may be a password."""
    shown = texts(call("add", a="hunter2", b={"key": "hunter2"}))

    assert "hunter2" not in shown
    assert "passes a to add: it should be a valid integer, got a text of 7 characters" in shown
    assert "passes b to add: it should be a valid integer, got an object of 1 fields" in shown


def test_every_fault_of_a_call_is_told() -> None:
    """A union reports an error for each branch, but there is one problem for each place."""
    assert errors(call("clean", rows=[{"name": 1, "total": "x"}], options={"depth": "x", "names": [1]})) == [
        "DR205 steps[0].args.rows[0].name",
        "DR205 steps[0].args.rows[0].total",
        "DR205 steps[0].args.options.depth",
        "DR205 steps[0].args.options.names[0]",
    ]
    assert errors(call("pick", value=3)) == ["DR205 steps[0].args.value"]


@pytest.mark.parametrize(
    "args",
    [
        {"rows": "${load.rows}", "options": {"depth": "${number}", "names": ["x", "${any}"]}},
        {"rows": ["${any}", {"name": "${any}", "total": 1}]},
        {"rows": "${any}", "options": "${any}"},
        {"rows": "${any}", "options": None},
    ],
)
def test_a_reference_fits_wherever_its_value_may(args: dict[str, Any]) -> None:
    """The arguments around a reference are checked; of the reference, the type that the producer returns."""
    assert errors(LOAD, NUMBER, ANY, call("clean", **args)) == []


@pytest.mark.parametrize(
    ("args", "places"),
    [
        ({"rows": "${load.rows}", "options": {"depth": "x", "names": "${any}"}}, ["options.depth"]),
        ({"rows": ["${any}", {"name": 1, "total": "${any}"}]}, ["rows[1].name"]),
        ({"rows": [{"name": "${any}"}]}, ["rows[0]"]),
        (
            {"rows": "${any}", "options": {"names": ["${any}", 1], "dept": "${any}"}},
            ["options.names[1]", "options.dept"],
        ),
        ({"rows": [{"name": "${any}", "total": 1}, 3]}, ["rows[1]"]),
    ],
)
def test_what_stands_beside_a_reference_is_checked(args: dict[str, Any], places: list[str]) -> None:
    """A reference excuses errors at its own place only."""
    assert errors(ANY, LOAD, call("clean", **args)) == [f"DR205 steps[2].args.{place}" for place in places]


def test_an_unlucky_branch_of_a_union_is_no_fault() -> None:
    """While the number is unknown, a list of texts is still possible; pydantic also reports the branch of numbers."""
    assert errors(ANY, call("pick", value=["${any}", "x"])) == []


@pytest.mark.parametrize(
    ("reference", "argument", "expected"),
    [
        ("${load.count}", "text", ["DR304"]),
        ("${load.rows}", "text", ["DR304"]),
        ("${load.rows[0].name}", "text", []),
        ("${load.note}", "text", []),  # a text or null, so it may be a text
        ("${any}", "text", []),
        ("got ${load.count}", "text", []),
    ],
)
def test_types_that_cannot_meet_are_refused(reference: str, argument: str, expected: list[str]) -> None:
    """Only if it is certain: if the producer may return a right type, the run will show."""
    found = errors(LOAD, ANY, call("show", **{argument: reference}))

    assert [problem.split()[0] for problem in found] == expected


@pytest.mark.parametrize(
    ("reference", "fits"), [("${load.rows[0].total}", True), ("${number}", True), ("${load.note}", False)]
)
def test_json_has_one_kind_of_number(reference: str, fits: bool) -> None:
    """A number may be whole, and a whole number is a number."""
    steps = (LOAD, NUMBER, call("add", a=reference))

    assert errors(*steps) == ([] if fits else ["DR304 steps[2].args.a"])


def test_a_type_mismatch_names_both_sides() -> None:
    """To correct the plan, its author must know both types."""
    shown = texts(LOAD, call("show", text="${load.count}"))

    assert "passes ${load.count} as text: show takes a text, load gives a whole number" in shown


def test_types_are_followed_into_arguments() -> None:
    """A reference deep in an argument is compared with the type at its place."""
    step = call("clean", rows=[{"name": "${load.count}", "total": "${load.note}"}], options={"depth": "${load.rows}"})

    assert errors(LOAD, step) == [
        "DR304 steps[1].args.rows[0].name",
        "DR304 steps[1].args.rows[0].total",
        "DR304 steps[1].args.options.depth",
    ]


def test_interpolation_gives_a_text() -> None:
    """Text with a reference inside is a text, whatever is put in; it cannot be a number."""
    assert errors(NUMBER, call("add", a="${number}0")) == ["DR205 steps[1].args.a"]


def test_inputs_are_compared_by_the_values_they_have() -> None:
    """If the inputs are known, so are their types."""
    step = call("add", a="${input.n}")

    assert errors(step) == errors(step, inputs={"n": 3}) == []
    assert errors(step, inputs={"n": "3"}) == ["DR304 steps[0].args.a"]


class Even(BaseModel):
    """A number with its own validator."""

    n: Annotated[int, Field(ge=0), AfterValidator(lambda n: n if n % 2 == 0 else 1 // 0)]


@tool(effect="pure")
async def fussy(even: Even, word: Annotated[str, AfterValidator(lambda text: text + 1)] = "") -> int:
    """A tool whose validators raise unusual errors."""
    raise NotImplementedError


def test_validators_that_break_are_the_arguments_fault_not_the_checks() -> None:
    """Validators are code of the host. The check survives their errors, and ignores them if a reference is involved."""
    box = Toolbox(fussy, TOOLBOX["anything"])

    assert errors(call("fussy", even={"n": 2}), toolbox=box) == []
    assert errors(call("fussy", even={"n": 3}), toolbox=box) == ["DR205 steps[0].args"]
    assert errors(call("fussy", even={"n": 2}, word="x"), toolbox=box) == ["DR205 steps[0].args"]
    assert errors(ANY, call("fussy", even="${any}", word="x"), toolbox=box) == []


def _on_disk(path: str) -> str:
    raise PydanticCustomError("missing_file", "there is no such file")


@tool(effect="read")
async def load_from(path: Annotated[str, AfterValidator(_on_disk)]) -> str:
    """A tool whose validator has a kind of error of its own."""
    raise NotImplementedError


def test_only_the_kinds_of_pydantic_for_a_missing_field_say_so() -> None:
    """Others may begin with the same word: `missing_sentinel_error`, and those of hosts."""
    box = Toolbox(load_from)

    assert errors(call("load_from", path="x"), toolbox=box) == ["DR205 steps[0].args.path"]
    assert "there is no such file" in texts(call("load_from", path="x"), toolbox=box)


def test_arguments_that_nobody_passes_need_no_check() -> None:
    """A tool with only optional arguments accepts an empty call."""
    assert find({"id": "a", "tool": "plain"})[1] is not None


def test_nothing_follows_from_an_unknown_tool_but_that() -> None:
    """The arguments of an unknown tool are not checked, but the references in them are."""
    step = {"id": "a", "tool": "nope", "args": {"x": 1, "y": "${b}"}}

    assert errors(step) == ["DR201 steps[0].tool", "DR302 steps[0].args.y"]

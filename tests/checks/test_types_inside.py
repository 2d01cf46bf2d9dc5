"""What is inside a list, an object or a model is compared as the types of scalars are."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

import dagrun
from dagrun import Plan, PlanRefused, Step
from dagrun.kernel.model.contracts.schema_types import clash
from dagrun.kernel.model.tool import AnyTool


class Text(BaseModel):
    """A row with a text."""

    amount: str
    note: str | None = None


class Number(BaseModel):
    """A row with a number."""

    amount: float
    note: str | None = None


class Tree(BaseModel):
    """A tree of texts."""

    name: str
    kids: list[Tree] = []


class Numbers(BaseModel):
    """A tree of numbers."""

    name: float
    kids: list[Numbers] = []


class Forest(BaseModel):
    """A tree whose leaves are numbers."""

    name: str
    kids: list[Forest] = []
    size: list[float] = []


class Part(TypedDict):
    """An object in which a number may be left out."""

    name: str
    size: NotRequired[float]


class PartText(TypedDict):
    """One in which a text may be."""

    name: str
    size: NotRequired[str]


@dataclass
class Point:
    """Two numbers."""

    x: float
    y: float


def tools(gives: Any, takes: Any) -> list[AnyTool]:
    """A tool that returns one type, and a tool that takes another."""

    async def give() -> Any:
        raise NotImplementedError

    async def take(value: Any) -> None:
        raise NotImplementedError

    give.__annotations__["return"] = gives
    take.__annotations__["value"] = takes
    return [dagrun.tool(effect="read")(give), dagrun.tool(effect="pure")(take)]


def problems(gives: Any, takes: Any, value: Any = "${give}", **fields: Any) -> list[str]:
    """The problems of a plan that passes what one tool returns to the other."""
    steps = [Step(id="give", tool="give", **fields), Step(id="take", tool="take", args={"value": value})]
    try:
        dagrun.check(Plan(steps=steps), tools(gives, takes))
    except PlanRefused as refused:
        return [str(problem) for problem in refused.problems]
    return []


@pytest.mark.parametrize(
    ("gives", "takes"),
    [
        (list[str], list[float]),
        (dict[str, str], dict[str, float]),
        (list[str], list[float] | None),
        (list[str] | list[bool], list[float]),
        (list[str], list[float] | dict[str, float]),
        (list[str | None], list[float]),
        (list[list[str]], list[list[float]]),
        (dict[str, list[dict[str, str]]], dict[str, list[dict[str, float]]]),
        (tuple[float, str], tuple[float, float]),
        (list[str], tuple[float, float]),
        (tuple[float, str], list[float]),
        (Text, Number),
        (list[Text], list[Number]),
        (dict[str, str], Number),
        (Text, dict[str, float]),
        (Text | None, Number),
        (Tree, Numbers),
        (dict[str, str], Point),
        (list[dict[str, Any]], list[float]),
        (list[float], list[str]),
        (list[list[float]], list[float]),
    ],
)
def test_types_that_cannot_meet_are_refused_at_every_depth(gives: Any, takes: Any) -> None:
    """An empty list would fit, and would hide that the wrong one was taken."""
    (problem,) = problems(gives, takes)

    assert problem.startswith("DR304 steps[1].args.value")


@pytest.mark.parametrize(
    ("gives", "takes"),
    [
        (list[int], list[float]),
        (list[float], list[int]),
        (list[str], list[str | float]),
        (list[str | int], list[float]),
        (list[Any], list[float]),
        (list, list[float]),
        (dict[str, Any], dict[str, float]),
        (list[str], list[float] | list[str]),
        (list[str | None], list[float | None]),
        (list[str] | None, list[float] | None),
        (list[str] | list[int], list[float]),
        (Number, Text | Number),
        (PartText, Part),
        (Part, PartText),
        (Number, dict[str, Any]),
        (Tree, Forest),
        (Forest, Tree),
        (dict[str, float], Point),
        (list[float], tuple[float, float]),
        (list[Annotated[str, Field(pattern="x")]], list[str]),
        (Any, list[float]),
    ],
)
def test_types_that_may_meet_are_not(gives: Any, takes: Any) -> None:
    """If the producer may return a right value, the run will show."""
    assert problems(gives, takes) == []


@pytest.mark.parametrize(
    ("gives", "takes", "told"),
    [
        (list[str], list[float], "takes a list with a number in [0], give gives a list with a text there"),
        (
            dict[str, Text], dict[str, Number] | None,
            'takes null or an object with a number in ["*"].amount, give gives an object with a text there',
        ),
        (list[list[str]], list[float], "takes a list with a number in [0], give gives a list with a list there"),
    ],
)  # fmt: skip
def test_the_problem_names_the_place_and_both_types(gives: Any, takes: Any, told: str) -> None:
    """Two lists would say nothing."""
    (problem,) = problems(gives, takes)

    assert problem.endswith(told)


@pytest.mark.parametrize(
    ("value", "takes", "is_refused"),
    [
        (["${give}"], list[list[float]], True),
        ({"rows": "${give}"}, dict[str, list[float]], True),
        ({"rows": "${give}"}, dict[str, list[str]], False),
        ("texts: ${give}", str, False),
    ],
)
def test_a_reference_deep_in_an_argument_is_compared_as_well(value: Any, takes: Any, is_refused: bool) -> None:
    """With the type at its place."""
    assert len(problems(list[str], takes, value)) == is_refused


def test_the_outputs_of_a_for_each_are_a_list_of_what_its_tool_returns() -> None:
    """So is a single element of it."""
    assert len(problems(str, list[float], for_each=[1, 2])) == 1
    assert len(problems(str, list[str], for_each=[1, 2])) == 0
    assert len(problems(list[str], list[float], "${give[0]}", for_each=[1, 2])) == 1


def test_a_default_and_a_fallback_may_be_of_another_type() -> None:
    """Nothing is certain then."""
    assert problems(list[str], list[float], on_failure="default", default=[1]) == []


def test_two_tools_whose_outputs_look_alike_are_told_apart() -> None:
    """Arguments of one shape are checked once, unless the inside of what they get differs."""
    numbers, take = tools(list[float], list[float])
    texts = dagrun.tool(effect="read", name="texts")(tools(list[str], None)[0].function)
    steps = [
        Step(id="a", tool="give"),
        Step(id="b", tool="texts"),
        *(Step(id=f"take_{id_}", tool="take", args={"value": f"${{{id_}}}"}) for id_ in "ab"),
    ]

    with pytest.raises(PlanRefused) as refused:
        dagrun.check(Plan(steps=steps), [numbers, texts, take])

    assert [problem.path for problem in refused.value.problems] == ["steps[3].args.value"]


@pytest.mark.anyio
async def test_a_record_from_before_can_still_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """An older version has let such a plan run; its list may have been empty."""
    from dagrun.kernel.checks import check_arguments

    @dagrun.tool(effect="read")
    async def give() -> list[str]:
        return []

    @dagrun.tool(effect="pure")
    async def take(value: list[float]) -> int:
        return len(value)

    journal = dagrun.MemoryJournal()
    plan = Plan(steps=[Step(id="give", tool="give"), Step(id="take", tool="take", args={"value": "${give}"})])
    with monkeypatch.context() as patched:
        patched.setattr(check_arguments, "clash", lambda *_: None)
        assert (await dagrun.run(plan, tools=[give, take], journal=journal, run_id="r")).status == "succeeded"

    assert str((await dagrun.replay("r", journal=journal)).status) == "succeeded"


# A law ----------------------------------------------------------------------------------------------------------------

_SCALARS = st.sampled_from([str, int, float, bool, None])
_TYPES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        inner.map(lambda one: list[one]),  # type: ignore[valid-type]
        inner.map(lambda one: dict[str, one]),  # type: ignore[valid-type]
        st.tuples(inner, inner).map(lambda two: two[0] | two[1] if two[0] != two[1] else two[0]),
        st.tuples(inner, inner).map(lambda two: tuple[two[0], two[1]]),  # type: ignore[valid-type]
    ),
    max_leaves=5,
)
_ANY = st.sampled_from([None, True, 3, 1.5, "a"])


@st.composite
def values(draw: st.DrawFn, kind: Any) -> Any:
    """A value of a type, without empty lists and objects."""
    parts = get_args(kind)
    if get_origin(kind) is list:
        return draw(st.lists(values(parts[0]), min_size=1, max_size=2))
    if get_origin(kind) is dict:
        return {"a": draw(values(parts[1]))}
    if get_origin(kind) is tuple:
        return [draw(values(part)) for part in parts]
    if parts:
        return draw(values(draw(st.sampled_from(parts))))
    return draw(_ANY.filter(lambda value: type(value) is (kind or type(None)) or kind is type(value)))


@given(gives=_TYPES, other=_TYPES, data=st.data())
def test_what_fits_both_types_is_never_refused(gives: Any, other: Any, data: st.DataObject) -> None:
    """Whether the type that is taken has parts of the other, or happens to fit."""
    takes = data.draw(
        st.sampled_from([gives, other, *([gives | other] if gives != other else ()), *get_args(gives)[:1]])
    )
    value = data.draw(values(gives))
    if not fits(value, takes):
        return
    schemas = [TypeAdapter(kind).json_schema() for kind in (takes, gives)]

    assert clash([(schemas[0], schemas[0])], [(schemas[1], schemas[1])], {}) is None


def fits(value: Any, kind: Any) -> bool:
    """Whether a parameter of a type takes a value."""
    try:
        TypeAdapter(kind).validate_json(json.dumps(value), strict=True)
    except ValidationError:
        return False
    return True

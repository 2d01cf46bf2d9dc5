"""Objects in memory in the check of a plan: where they may go, which classes fit, and that they have no parts."""

from __future__ import annotations

from typing import Any, Protocol

import pytest
from pydantic import BaseModel

import dagrun
from dagrun import Condition, Plan, PlanRefused, Step
from dagrun.kernel.model.contracts.objects import hint_at, may_take
from objects import OtherThing, Stranger, Thing


class Named(Protocol):
    """Anything with a name."""

    name: str


class Model(BaseModel):
    """A class with a JSON form."""

    name: str


@dagrun.tool(effect="pure")
async def make() -> dagrun.Object[Thing]:
    """Make one."""
    return Thing("a")


@dagrun.tool(effect="pure")
async def make_all() -> list[dagrun.Object[Thing]]:
    """Make two."""
    return [Thing("a"), Thing("b")]


@dagrun.tool(effect="pure")
async def model() -> dagrun.Object[Model]:
    """Make a model."""
    return Model(name="a")


@dagrun.tool(effect="pure")
async def data() -> dict[str, str]:
    """Return data."""
    return {"name": "a"}


@dagrun.tool(effect="pure")
async def as_thing(value: Thing) -> str:
    """Take one."""
    return value.name


@dagrun.tool(effect="pure")
async def as_special(value: dagrun.Object[OtherThing]) -> str:
    """Take a special one."""
    return value.name


@dagrun.tool(effect="pure")
async def as_stranger(value: Stranger) -> str:
    """Take another."""
    return repr(value)


@dagrun.tool(effect="pure")
async def as_text(value: str) -> str:
    """Take a text."""
    return value


@dagrun.tool(effect="pure")
async def as_list(value: list[Thing]) -> int:
    """Take many."""
    return len(value)


@dagrun.tool(effect="pure")
async def as_texts(value: list[str]) -> int:
    """Take texts."""
    return len(value)


@dagrun.tool(effect="pure")
async def as_model(value: Model) -> str:
    """Take a model."""
    return value.name


@dagrun.tool(effect="pure")
async def as_anything(value: Any) -> str:
    """Take what comes."""
    return repr(value)


@dagrun.tool(effect="pure")
async def as_named(value: dagrun.Object[Named]) -> str:
    """Take what has a name."""
    return value.name


@dagrun.tool(effect="pure", executor="process")
def elsewhere(value: Any) -> str:
    """Run in another process."""
    return repr(value)


@dagrun.tool(effect="pure", executor="process")
def made_elsewhere() -> dagrun.Object[Thing]:
    """Make one in another process."""
    return Thing("a")


TOOLS = [
    *(make, make_all, model, data, as_thing, as_special, as_stranger, as_text, as_list, as_texts, as_model),
    *(as_anything, as_named, elsewhere, made_elsewhere),
]


def problems(*steps: Step, output: Any = None) -> list[str]:
    """Return the problems of a plan, as they are shown."""
    try:
        dagrun.check(Plan(steps=list(steps), output=output), TOOLS, executors=["remote"])
    except PlanRefused as refused:
        return [f"{problem.code} {problem.sentence}" for problem in refused.problems if not problem.is_advice]
    return []


def use(tool: str, value: Any = "${a}", source: str = "make", **fields: Any) -> list[str]:
    """Return the problems of a step that takes the output of another."""
    return problems(Step(id="a", tool=source), Step(id="b", tool=tool, args={"value": value}, **fields))


@pytest.mark.parametrize(
    ("tool", "source", "value"),
    [
        ("as_thing", "make", "${a}"),
        ("as_special", "make", "${a}"),  # it may be one
        ("as_anything", "make", "${a}"),
        ("as_named", "make", "${a}"),
        ("as_list", "make_all", "${a}"),
        ("as_list", "make", ["${a}", "${a}"]),
        ("as_thing", "make_all", "${a[0]}"),
        ("as_model", "model", "${a}"),
        ("as_model", "data", "${a}"),
    ],
)
def test_what_may_fit_passes(tool: str, source: str, value: Any) -> None:
    """The class that is declared, one above or below it, and lists of them."""
    assert use(tool, value, source) == []


@pytest.mark.parametrize(
    ("tool", "source", "value", "problem"),
    [
        ("as_text", "make", "${a}", "DR304 {} as_text takes str, a gives an object in memory (objects.Thing)"),
        ("as_stranger", "make", "${a}", "DR304 {} as_stranger takes objects.Stranger, a gives an object in memory"),
        ("as_texts", "make", ["${a}"], "DR304 step b passes ${a} as value[0]: as_texts takes str, a gives an object"),
        (
            "as_texts",
            "make_all",
            "${a}",
            "DR304 {} as_texts takes list[str], a gives objects in memory (list[objects.Thing])",
        ),
        (
            "as_thing",
            "make_all",
            "${a}",
            "DR304 {} as_thing takes objects.Thing, a gives objects in memory (list[objects.Thing])",
        ),
        ("as_list", "make", "${a}", "DR304 {} as_list takes list[objects.Thing], a gives an object in memory (object"),
        ("as_thing", "data", "${a}", "DR304 {} as_thing takes an object in memory (objects.Thing), a gives an object"),
        ("as_model", "make", "${a}", "DR304 {} as_model takes test_check_objects.Model, a gives an object in memory"),
        (
            "as_text",
            "make",
            "it is ${a}",
            "DR313 step b refers to ${a}, an object in memory (objects.Thing): it can",
        ),
        ("as_anything", "make", "${a.name}", "DR313 step b refers to ${a.name}, an object in memory (objects.Thing):"),
        (
            "as_thing",
            "make",
            "a",
            "DR205 step b passes value to as_thing: it should be an object in memory (objects.",
        ),
    ],
)
def test_what_can_never_fit_is_a_problem(tool: str, source: str, value: Any, problem: str) -> None:
    """Before anything runs, and in words."""
    found = use(tool, value, source)

    assert len(found) == 1
    assert found[0].startswith(problem.replace("{}", "step b passes ${a} as value:"))


def test_conditions_and_lists_look_into_no_object() -> None:
    """Nothing in a plan can."""
    found = use("as_anything", when=Condition(ref="a", op="==", value=1))
    assert found == [
        "DR313 step b refers to ${a}, an object in memory (objects.Thing): a condition cannot read it; return "
        "the compared value as data"
    ]
    assert use("as_anything", when=Condition(ref="a", op="exists")) == []
    [own] = problems(Step(id="a", tool="make", success=Condition(ref="a", op="==", value=1)))
    assert own.startswith("DR313 step a refers to ${a}")
    [found_list] = use("as_anything", "${item}", for_each="${a}")
    assert found_list.startswith("DR309")
    assert "${a} is an object in memory (objects.Thing)" in found_list


def test_the_answer_names_whole_objects() -> None:
    """A part of one, or one inside a text, cannot be had."""
    assert problems(Step(id="a", tool="make"), output={"thing": "${a}"}) == []
    for output in ("a.name", "so: ${a}"):
        [found] = problems(Step(id="a", tool="make"), output=output)
        assert found.startswith("DR313 the plan's output refers to ${a")


def test_no_object_gets_to_another_process() -> None:
    """It would have to be copied, by a serializer that nobody has chosen."""
    [there] = use("elsewhere")
    [back] = problems(Step(id="a", tool="made_elsewhere"))
    [host] = use("as_anything", executor="remote")
    [item] = use("elsewhere", "${item}", source="make_all", for_each="${a}")

    assert there == (
        "DR217 step b runs elsewhere in the executor process, which cannot receive an object in memory: ${a} is one; "
        "run it as a coroutine or in a thread, or pass data or an Artifact"
    )
    assert "made_elsewhere returns one" in back
    assert "in the executor remote" in host
    assert "${item} is one" in item


def test_only_null_can_stand_for_an_object() -> None:
    """A plan is JSON, and so is the default in it."""
    assert problems(Step(id="a", tool="make", on_failure="default", default=None)) == []
    [found] = problems(Step(id="a", tool="make", on_failure="default", default="none"))
    assert found == "DR112 step a: make returns an object in memory, so nothing but null can be its default"


@pytest.mark.parametrize(
    ("accepted", "given", "fits"),
    [
        (int | None, int, True),
        (float, int, True),
        (int, str, False),
        (list[Thing], list[OtherThing], True),
        (list[Thing], list[Stranger], False),
        (dict[str, Thing], dict[str, Stranger], False),
        (Thing | str, Stranger | None, False),
        (object, Thing, True),
        (Thing, Any, True),
        (Named, Stranger, True),
    ],
)
def test_types_are_compared_as_classes(accepted: Any, given: Any, fits: bool) -> None:
    """Only what can be known is refused."""
    assert may_take(accepted, given) is fits


def test_the_type_of_a_part_is_found_in_lists_and_dicts() -> None:
    """Anything else is not known."""
    assert hint_at(list[dict[str, Thing]], (0, "a")) is Thing
    assert hint_at(tuple[int, Thing], (1,)) is Thing
    assert hint_at(list[Thing] | None, (3,)) is Thing
    assert hint_at(Thing, ("name",)) is Any

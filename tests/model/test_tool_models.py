"""Models between tools: what one tool returns, the next one takes, whatever names and extra fields the model has."""

from __future__ import annotations

import json
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    WithJsonSchema,
    computed_field,
    create_model,
)
from pydantic.alias_generators import to_camel
from pydantic.dataclasses import dataclass
from typing_extensions import TypedDict

import dagrun
from dagrun import Plan, Step
from dagrun.errors import ContractError
from dagrun.kernel.model.contracts.schema_types import look_up
from dagrun.kernel.model.tool import AnyTool, make_tool
from dagrun.kernel.model.value import decode

pytestmark = pytest.mark.anyio


class _Computing(BaseModel):
    """Has a field that follows from nothing, so that any model can inherit it."""

    @computed_field(alias="theTotal")  # type: ignore[prop-decorator]
    @property
    def grand_total(self) -> int:
        return 7


FIELDS: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {},
        {"alias": "anAlias"},
        {"validation_alias": "readAs"},
        {"serialization_alias": "writtenAs"},
        {"validation_alias": "readAs", "serialization_alias": "writtenAs"},
        {"validation_alias": AliasChoices("one", "other")},
    ]
)
CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        "extra": st.sampled_from(["forbid", "ignore"]),
        "alias_generator": st.just(to_camel),
        "serialize_by_alias": st.booleans(),
        "validate_by_name": st.just(True),
        "frozen": st.booleans(),
    },
)


@st.composite
def models(draw: st.DrawFn, depth: int = 2) -> type[BaseModel]:
    """A model with aliases, a configuration, computed fields, and models in its fields."""
    fields: dict[str, Any] = {"plain_field": (int, ...), "aliased_field": (str, Field(**draw(FIELDS)))}
    if depth and draw(st.booleans()):
        inner = draw(models(depth=depth - 1))
        shapes = [inner, list[inner], dict[str, inner], inner | None, inner | int]  # type: ignore[valid-type]
        fields["inner_field"] = (draw(st.sampled_from(shapes)), Field(**draw(FIELDS.filter(lambda f: not f))))
    base = type("Base", (_Computing if draw(st.booleans()) else BaseModel,), {"model_config": draw(CONFIGS)})
    return create_model("Made", __base__=base, **fields)


def _tools(kind: Any) -> tuple[AnyTool, AnyTool]:
    def give() -> Any:
        raise NotImplementedError

    def take(order: Any) -> None:
        raise NotImplementedError

    give.__annotations__ = {"return": kind}
    take.__annotations__ = {"order": kind, "return": None}
    return make_tool(give, effect="pure"), make_tool(take, effect="pure")


@st.composite
def values(draw: st.DrawFn) -> tuple[type[BaseModel], BaseModel]:
    """A model, and a value of it."""
    kind = draw(models())
    return kind, draw(_value_of(kind))


def _value_of(kind: Any) -> st.SearchStrategy[Any]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        parts = {name: _value_of(field.annotation) for name, field in kind.model_fields.items()}
        # By name, whatever the configuration of the model asks for.
        return st.fixed_dictionaries(parts).map(lambda given: kind.model_validate(given, by_name=True, by_alias=False))
    return st.from_type(kind) if kind in (int, str) else _composed(kind)


def _composed(kind: Any) -> st.SearchStrategy[Any]:
    parts = [_value_of(part) for part in kind.__args__ if part is not type(None)]
    if kind.__origin__ is list if hasattr(kind, "__origin__") else False:
        return st.lists(parts[0], max_size=2)
    if kind.__origin__ is dict if hasattr(kind, "__origin__") else False:
        return st.dictionaries(st.sampled_from("ab"), parts[-1], max_size=2)
    return st.one_of(*parts, *([st.none()] if type(None) in kind.__args__ else []))


@given(values())
def test_a_model_out_of_one_tool_goes_into_the_next(case: tuple[type[BaseModel], BaseModel]) -> None:
    """The law of round trips: aliases, computed fields and forbidden extras included."""
    kind, value = case
    give, take = _tools(kind)

    stored = give.output.encode(value, 1 << 20)
    read = take.arguments.parse(json.dumps({"order": decode(stored)}).encode())

    assert read == {"order": value}


@given(values())
def test_the_schema_names_every_field_of_the_output_and_no_other(case: tuple[type[BaseModel], BaseModel]) -> None:
    """References are checked against the schema, and read from the value: both must have the same names."""
    kind, value = case
    give, _ = _tools(kind)
    shown = decode(give.output.encode(value, 1 << 20))

    for name in shown:
        assert look_up([(give.output.schema, give.output.schema)], (name,)).missing is None
    for alias in ("anAlias", "writtenAs", "readAs", "aliasedField", "theTotal"):
        assert alias not in shown
        assert look_up([(give.output.schema, give.output.schema)], (alias,)).missing == alias


class Strict(BaseModel, extra="forbid"):
    """Forbids what it does not know, and computes one field."""

    x: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def twice(self) -> int:
        return 2 * self.x


class Camel(BaseModel):
    """Has aliases by rule."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid")
    order_id: int
    parts: list[Strict] = []


@dataclass(config=ConfigDict(extra="forbid"))
class Record:
    """A dataclass of pydantic, with an alias."""

    order_id: Annotated[int, Field(alias="orderId")]


class Fields(TypedDict):
    """A typed dict, with an alias."""

    order_id: Annotated[int, Field(alias="orderId")]


async def _give() -> Camel:
    return Camel(orderId=3, parts=[Strict(x=1)])


async def _take(order: Camel, many: list[Camel], number: int, twice: int) -> list[int]:
    return [order.order_id, len(many), number, twice]


async def test_models_and_their_fields_pass_from_step_to_step() -> None:
    """Whole, in a list, and part by part, with a computed field among the parts."""
    args = {
        "order": "${give}",
        "many": ["${give}", {"orderId": 1, "parts": ["${give.parts[0]}"]}],
        "number": "${give.order_id}",
        "twice": "${give.parts[0].twice}",
    }
    plan = Plan(steps=[Step(id="give", tool="_give"), Step(id="take", tool="_take", args=args)])

    result = await dagrun.run(plan, tools=[make_tool(_give, effect="read"), make_tool(_take, effect="pure")])

    assert (result.status, result.output) == ("succeeded", [3, 2, 3, 2])


def test_what_is_extra_but_not_computed_is_still_refused() -> None:
    """Only what the model computes by itself is dropped."""
    _, take = _tools(Strict)

    assert take.arguments.parse(b'{"order": {"x": 1, "twice": 9}}')["order"] == Strict(x=1)
    with pytest.raises(ValueError, match="Extra inputs"):
        take.arguments.parse(b'{"order": {"x": 1, "twice": 2, "more": 3}}')


@pytest.mark.parametrize(
    ("kind", "value"), [(Record, TypeAdapter(Record).validate_python({"orderId": 3})), (Fields, {"order_id": 3})]
)
def test_other_classes_with_aliases_pass_too(kind: Any, value: Any) -> None:
    give, take = _tools(kind)
    shown = decode(give.output.encode(value, 1000))

    assert shown == {"order_id": 3}
    assert take.arguments.parse(json.dumps({"order": shown}).encode()) == {"order": value}


# Schemas of their own -------------------------------------------------------------------------------------------------

ITEM = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/Item"}}},
    "additionalProperties": False,
}
OWN: dict[str, Any] = {"$ref": "#/$defs/Item", "$defs": {"Item": ITEM}}
LIST: dict[str, Any] = {"type": "array", "items": {"$ref": "#/$defs/Item"}, "$defs": {"Item": ITEM}}
TREE: dict[str, Any] = {"type": "object", "properties": {"up": {"$ref": "#"}, "name": {"type": "string"}}}


class Item(BaseModel):
    """Has the name of a definition of a schema from elsewhere."""

    z: str


async def _look(
    item: Annotated[Any, WithJsonSchema(OWN)],
    items: Annotated[Any, WithJsonSchema(LIST)] = None,
    tree: Annotated[Any, WithJsonSchema(TREE)] = None,
    other: Item | None = None,
) -> Annotated[Any, WithJsonSchema(OWN)]:
    """Look.

    Args:
        item: What to look at.
    """
    return item


def test_definitions_of_a_schema_of_its_own_move_to_the_top() -> None:
    """As every tool of a server has them. Equal ones move once, and the names of pydantic's own stay free."""
    schema = make_tool(_look).arguments.schema
    definitions = schema["$defs"]

    assert definitions["Item"]["properties"] == {"z": {"title": "Z", "type": "string"}}
    assert definitions["Item_2"]["properties"]["kids"]["items"] == {"$ref": "#/$defs/Item_2"}
    assert schema["properties"]["item"] | {"title": ""} == {
        "$ref": "#/$defs/Item_2",
        "description": "What to look at.",
        "title": "",
    }
    assert schema["properties"]["items"]["items"] == {"$ref": "#/$defs/Item_2"}
    assert set(definitions) == {"Item", "Item_2", "Schema"}
    assert "dagrun" not in json.dumps(schema)


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({"item": {"kids": [{"kids": [{"n": "${look.n}"}]}]}}, None),
        ({"item": {"kids": [{"kids": [{"n": "${text}"}]}]}}, "DR304"),
        ({"item": "${text}"}, "DR304"),
        ({"item": {}, "items": [{"n": "${text}"}]}, "DR304"),
        ({"item": {}, "tree": {"up": {"up": {"name": "${look.kids[0].n}"}}}}, "DR304"),
        ({"item": {}, "tree": {"up": {"up": {"name": "${text}"}}}}, None),
        ({"item": "${look.kids[0].kids[0].m}"}, "DR303"),
    ],
)
async def test_checks_follow_references_of_schemas(args: dict[str, Any], problem: str | None) -> None:
    """Through definitions that hold themselves, of arguments and of outputs, to any depth."""

    async def text() -> str:
        return ""

    steps = [
        Step(id="text", tool="text"),
        Step(id="look", tool="_look", args={"item": {}}),
        Step(id="last", tool="_look", args=args),
    ]
    tools = [make_tool(text, effect="pure"), make_tool(_look, effect="pure")]
    try:
        dagrun.check(Plan(steps=steps), tools)
        found = None
    except dagrun.PlanRefused as refused:
        found = refused.problems[0].code

    assert found == problem


@pytest.mark.parametrize("target", ["#/$defs/Nowhere", "#/definitions/Nowhere/properties/a"])
def test_a_reference_of_a_schema_to_nothing_is_named(target: str) -> None:
    async def broken(a: Any) -> None: ...

    broken.__annotations__["a"] = Annotated[Any, WithJsonSchema({"$ref": target})]

    with pytest.raises(ContractError, match=f"broken: its arguments: its schema refers to {target.replace('$', '.')}"):
        make_tool(broken)

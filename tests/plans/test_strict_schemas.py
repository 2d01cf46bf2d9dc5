"""Schemas in the strict form: providers take them, and values of them become values of the true schema again."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from pydantic import BaseModel, Field, TypeAdapter
from typing_extensions import TypedDict

import dagrun
from dagrun import Toolbox
from dagrun.extend import Form, Request
from dagrun.llm.strict_answers import restored
from dagrun.llm.strict_schemas import count_unions, strict_schema, with_null, with_reference
from dagrun.planners.answers.plan_schemas import next_step_schema, patch_schema, toolset_schema
from dagrun.testing import FakeModelServer, ModelAnswer
from dagrun.testing.model_server.schema_rules import MAX_UNIONS, schema_faults
from dagrun_tools import TOOLS as READY_MADE


class Level(enum.Enum):
    LOW = "low"
    HIGH = 3


class Cat(BaseModel):
    name: str
    kind: Literal["cat"]


class Dog(BaseModel):
    name: str
    kind: Literal["dog", "puppy"]


class Left(BaseModel):
    x: int


class Right(BaseModel):
    x: str


class Tree(BaseModel):
    value: int
    parts: list[Tree] = []


class Deep(BaseModel):
    a: dict[str, dict[str, dict[str, list[int]]]]


class Row(TypedDict):
    name: str


@dataclass
class Point:
    x: float
    y: float = Field(default=0.0, description="Upwards.", ge=0)


# A type; a value as a model writes it in the strict form; and what that is.
CASES: dict[str, tuple[Any, Any, Any]] = {
    "text": (str, "x", "x"),
    "a text that is JSON": (str, "[1]", "[1]"),
    "number": (Annotated[int, Field(ge=1, le=9)], 3, 3),
    "a number is no JSON text": (int, 3, 3),
    "enum": (Level, 3, 3),
    "optional": (int | None, None, None),
    "dataclass": (Point, {"x": 1.0, "y": 2.0}, {"x": 1.0, "y": 2.0}),
    "list": (list[Row], [{"name": "a"}], [{"name": "a"}]),
    "dict": (dict[str, int], [{"key": "a", "value": 1}, {"key": "b", "value": 2}], {"a": 1, "b": 2}),
    "empty dict": (dict[str, int], [], {}),
    "dict in a list": (list[dict[str, Row]], [[{"key": "a", "value": {"name": "x"}}]], [{"a": {"name": "x"}}]),
    "dict or list": (list[int] | dict[str, int], [{"key": "a", "value": 1}], {"a": 1}),
    "list beside a dict": (list[int] | dict[str, int], [1, 2], [1, 2]),
    "empty list beside a dict": (list[int] | dict[str, int], [], []),
    "any dict": (dict[str, Any], [{"key": "a", "value": "b"}], {"a": "b"}),
    "pair": (tuple[float, float], [1.0, 2.0], [1.0, 2.0]),
    "mixed pair": (tuple[int, str], '[1, "x"]', [1, "x"]),
    "told apart": (Annotated[Cat | Dog, Field(discriminator="kind")], {"kind": "dog", "name": "x"},
                   {"kind": "dog", "name": "x"}),
    "not told apart": (Left | Right, '{"x": "y"}', {"x": "y"}),
    "recursive": (Tree, {"value": 1, "parts": ['{"value": 2, "parts": []}']},
                  {"value": 1, "parts": [{"value": 2, "parts": []}]}),
    "deep": (Deep, {"a": [{"key": "k", "value": [{"key": "l", "value": '{"m": [1]}'}]}]},
             {"a": {"k": {"l": {"m": [1]}}}}),
    "anything": (Any, [1, "x"], [1, "x"]),
    "a reference stays": (dict[str, int], "${load.counts}", "${load.counts}"),
    "a list of references": (list[int], ["${a}", "${b}"], ["${a}", "${b}"]),
}  # fmt: skip


def _tool(type_: Any) -> dagrun.Tool[..., Any]:
    async def take(value: Any) -> None: ...

    take.__annotations__["value"] = type_
    return dagrun.tool(effect="pure")(take)


@pytest.mark.parametrize("case", CASES)
def test_a_provider_takes_the_schema_of_any_type(case: str) -> None:
    """With and without references and nulls; OpenAI and Anthropic refuse the whole call for one keyword."""
    strict = strict_schema(TypeAdapter(CASES[case][0]).json_schema())
    whole = {name: wrap(strict) for name, wrap in (("plain", dict), ("maybe", with_null), ("refers", with_reference))}
    schema = {"type": "object", "properties": whole, "required": list(whole), "additionalProperties": False}

    assert schema_faults(schema, limits_unions=True) == []


@pytest.mark.parametrize("case", CASES)
def test_a_value_in_the_strict_form_becomes_a_value_of_the_type(case: str) -> None:
    """The strict schema takes what the model writes, and the true schema what is made of it."""
    type_, written, meant = CASES[case]
    schema = TypeAdapter(type_).json_schema()
    takes_reference = isinstance(written, str) and written.startswith("${")

    made = restored(json.loads(json.dumps(written)), schema, schema)

    assert made == meant
    shape = with_reference(strict_schema(schema))
    if "references" not in case:
        assert Draft202012Validator(shape).is_valid(written)
    if "reference" not in case and not takes_reference:
        TypeAdapter(type_).validate_json(json.dumps(made))


@pytest.mark.parametrize("case", CASES)
def test_a_value_that_has_the_form_of_the_type_stays(case: str) -> None:
    """Models without a strict mode, and files, write it."""
    type_, _, meant = CASES[case]
    schema = TypeAdapter(type_).json_schema()

    assert restored(json.loads(json.dumps(meant)), schema, schema) == meant


def test_a_text_that_is_no_json_is_left_to_the_check() -> None:
    """So that its sentence names what the model wrote."""
    schema = TypeAdapter(dict[str, int]).json_schema()

    for text in ("no", "3", "[1", "NaN", "[" * 5_000):
        assert restored(text, schema, schema) == text


def test_limits_of_values_are_told_in_words() -> None:
    """Providers refuse the keywords, and a model that does not know them writes what the check refuses."""
    schema = TypeAdapter(Annotated[int, Field(ge=1, le=9, description="How many.")]).json_schema()

    assert strict_schema(schema) == {"type": "integer", "description": "How many. At least 1, at most 9."}


@pytest.mark.parametrize(
    ("rule", "kept"),
    [
        ({"pattern": "^[a-z]+-[0-9]+$"}, True),
        ({"pattern": r"^(low|high)(\.[A-Z_]*)?$"}, True),
        ({"pattern": r"^\$[0-9]+\.[0-9]+$"}, True),
        ({"pattern": "^[A-Z]{3}$"}, False),
        ({"pattern": '^[^"]+$'}, False),
        ({"pattern": r"^\d+$"}, False),
        ({"pattern": r"^[\w-]+$"}, False),
        ({"pattern": "^a.c$"}, False),
        ({"pattern": "^(?!x)[a-z]+$"}, False),
        ({"pattern": "^a|b$"}, False),
        ({"pattern": "^[a-z]+?$"}, False),
        ({"pattern": r"^https:\/\/x$"}, False),
        ({"pattern": "[a-z]+"}, False),
        ({"pattern": "^é$"}, False),
        ({"pattern": "^[z-a]$"}, False),
        ({"format": "date-time"}, True),
        ({"format": "uri"}, False),
    ],
)
def test_a_rule_for_texts_that_a_server_misreads_is_told_in_words(rule: dict[str, str], kept: bool) -> None:
    """llama.cpp lets a negated class and a dot stand for an unescaped quote; vLLM refuses unknown formats."""
    (key, value), strict = next(iter(rule.items())), strict_schema({"type": "string", **rule})

    assert (strict.get(key) == value) is kept
    assert strict.get("description", "") == ("" if kept else f"{key.capitalize()} {value}.")
    assert schema_faults({"type": "object", "properties": {"x": strict}, "required": ["x"],
                          "additionalProperties": False}, limits_unions=True) == []  # fmt: skip


@pytest.mark.parametrize("make", [toolset_schema, patch_schema, next_step_schema])
@pytest.mark.parametrize("form", ["all types", "ready-made"])
def test_providers_take_the_schemas_of_whole_answers(make: Any, form: str) -> None:
    """OpenAI takes all of them; of Anthropic's rules, only the limit on unions is not kept by large toolsets."""
    if form == "ready-made":
        toolbox = Toolbox(*READY_MADE)
    else:
        toolbox = Toolbox(
            [dagrun.tool(effect="pure", name=f"t{n}")(_tool(case[0]).function) for n, case in enumerate(CASES.values())]
        )

    assert schema_faults(make(toolbox), limits_unions=False) == []


@pytest.mark.anyio
@pytest.mark.real_time
@pytest.mark.costly
@pytest.mark.parametrize(("count", "asked"), [(1, "schema"), (MAX_UNIONS + 1, "tool")])
async def test_anthropic_gets_a_tool_where_its_schemas_may_not_have_so_many_unions(count: int, asked: str) -> None:
    """It has no such limit for tools, and a refused call costs a second."""
    fields = {f"f{n}": {"anyOf": [{"type": "string"}, {"type": "null"}]} for n in range(count)}
    schema = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    request = Request(
        system="", messages=(dagrun.extend.Message("user", "x"),), form=Form("f", "F.", schema), max_output_tokens=9
    )

    async with (
        FakeModelServer([ModelAnswer("{}")]) as server,
        dagrun.AnthropicModel("m", base_url=server.anthropic_url, api_key="none") as model,
    ):
        async for _ in model.stream(request):
            pass

    assert [call.structure for call in server.calls] == [asked]
    assert count_unions(schema) == count


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        ({"minLength": 1}, "keyword minLength"),
        ({"$ref": "#/$defs/x"}, "keyword $ref"),
        ({"type": ["string", "null"]}, "several types"),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "required": []}, "not closed"),
        ({"type": "object", "properties": {"a": {}}, "additionalProperties": False}, "a field is not required"),
        ({"pattern": "^(?=x)$"}, "a pattern with a group that looks around"),
        ({"pattern": r"^\$\{[^{}]+\}$"}, "a pattern with a negated class"),
        ({"pattern": r"^\d+$"}, "a pattern with a shorthand"),
        ({"pattern": r"^[\w-]+$"}, "a pattern with a shorthand"),
        ({"pattern": "^a.c$"}, "a pattern with a dot"),
        ({"pattern": "^[a-z]{1,48}$"}, "a pattern with a counted repetition"),
        ({"pattern": "[a-z]+"}, "a pattern with no anchors"),
        ({"format": "uri"}, "format uri"),
        ({"anyOf": [strict_schema(schema) for schema in [TypeAdapter(Left).json_schema()] * 2]}, "begin alike"),
    ],
)
def test_the_rules_of_providers_are_kept_by_the_fake_server(spoil: dict[str, Any], fault: str) -> None:
    """A rule that never refuses anything would prove nothing."""
    part = {"type": "string", **spoil}
    schema = {"type": "object", "properties": {"x": part}, "required": ["x"], "additionalProperties": False}

    assert any(fault in found for found in schema_faults(schema, limits_unions=False))


@pytest.mark.anyio
@pytest.mark.real_time
@pytest.mark.costly
@pytest.mark.parametrize("is_strict", [True, False])
async def test_a_strict_server_refuses_a_schema_that_providers_refuse(is_strict: bool) -> None:
    schema = {"type": "object", "properties": {}, "additionalProperties": True}
    request = Request(
        system="", messages=(dagrun.extend.Message("user", "x"),), form=Form("f", "", schema), max_output_tokens=9
    )

    async with (
        FakeModelServer([ModelAnswer("{}")], is_strict=is_strict) as server,
        dagrun.OpenAIModel("m", base_url=server.base_url, api_key="none") as model,
    ):
        async for _ in model.stream(request):
            pass

    assert (server.calls[0].status == 400) is is_strict
    assert server.calls[-1].status == 200

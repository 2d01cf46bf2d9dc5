"""Values held to a foreign schema: as jsonschema judges them, within bounded work."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from dagrun.errors import ContractError
from dagrun.sources.foreign_schema import read_schema
from dagrun.sources.schema_check import SchemaRules

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([0.5, 1.0, 2.5])
    | st.sampled_from(["", "a", "bcd"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3),
    max_leaves=6,
)
TYPES = ["string", "integer", "number", "boolean", "null", "array", "object"]
COUNT = st.integers(0, 3)


def keywords(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return schemas with any of the keywords that are enforced."""
    some = st.lists(inner, min_size=1, max_size=3)
    fields = st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3)
    names = st.lists(st.sampled_from(["a", "b", "c"]), unique=True, max_size=2)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(TYPES) | st.lists(st.sampled_from(TYPES), min_size=1, max_size=3, unique=True),
            "enum": st.lists(JSON, min_size=1, max_size=3),
            "const": JSON,
            "minimum": st.integers(-2, 2),
            "maximum": st.integers(-2, 2),
            "exclusiveMinimum": st.integers(-2, 2),
            "exclusiveMaximum": st.integers(-2, 2),
            "multipleOf": st.sampled_from([1, 2, 0.5]),
            "minLength": COUNT,
            "maxLength": COUNT,
            "minItems": COUNT,
            "maxItems": COUNT,
            "minProperties": COUNT,
            "maxProperties": COUNT,
            "prefixItems": some,
            "items": inner,
            "contains": inner,
            "minContains": COUNT,
            "maxContains": COUNT,
            "properties": fields,
            "required": names,
            "additionalProperties": inner | st.booleans(),
            "propertyNames": inner,
            "dependentRequired": st.dictionaries(st.sampled_from(["a", "b"]), names, max_size=2),
            "dependentSchemas": fields,
            "allOf": some,
            "anyOf": some,
            "oneOf": some,
            "not": inner,
            "if": inner,
            "then": inner,
            "else": inner,
            "$ref": st.sampled_from(["#/$defs/tree", "#/$defs/odd~1name"]),
        },
    )


SCHEMAS = st.recursive(
    st.booleans() | st.sampled_from([{"$ref": "#/$defs/tree"}, {"$ref": "#/$defs/odd~1name"}]),
    keywords,
    max_leaves=8,
)
DEFINITIONS = {
    "tree": {"type": ["object", "integer"], "additionalProperties": {"$ref": "#/$defs/tree"}},
    "odd/name": {"type": "array", "items": {"$ref": "#/$defs/odd~1name"}, "maxItems": 2},
}


@pytest.mark.rigs
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SCHEMAS, st.lists(JSON, min_size=1, max_size=6))
@example({"enum": [1]}, [True, 1.0])
@example({"$ref": "#/$defs/tree", "maxProperties": 1}, [{"a": {"b": 1, "c": "x"}}, {"a": 1, "b": 1}])
@example({"oneOf": [{"type": "object"}, {"required": ["a"]}]}, [{"a": 1}, {}])
def test_judges_as_jsonschema_does(schema: Any, values: list[Any]) -> None:
    """An implementation of our own is a risk of its own, so the reference implementation is its oracle."""
    whole = {**schema, "$defs": DEFINITIONS} if isinstance(schema, dict) else schema
    rules = SchemaRules(read_schema(whole, "it"))
    oracle = Draft202012Validator(whole)
    for value in values:
        faults = rules.faults(value, 1_000)
        assert (not faults) == oracle.is_valid(value), (faults, value)


def faults(schema: Any, value: Any) -> list[str]:
    rules = SchemaRules(read_schema(schema, "it"))
    return [str(fault) for fault in rules.faults(value, len(json.dumps(value)))]


def test_old_drafts_mean_what_they_meant() -> None:
    """Draft 4 has boolean bounds, older drafts lists of items and dependencies, OpenAPI has nullable."""
    assert faults({"minimum": 3, "exclusiveMinimum": True}, 3) == ["it should be more than 3"]
    assert faults({"items": [{"type": "string"}], "additionalItems": False}, ["a", 1]) == ["[1]: no value may be here"]
    assert faults({"dependencies": {"a": ["b"], "c": {"required": ["d"]}}}, {"a": 1, "c": 1}) == [
        "with a, it should have b",
        "d: it is missing",
    ]
    assert faults({"type": "string", "nullable": True, "enum": ["x"]}, None) == []
    draft_7 = {"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"T": {"type": "string"}}}
    beside = {"$ref": "#/definitions/T", "maxLength": 1}
    assert faults({**draft_7, "properties": {"a": beside}}, {"a": "long"}) == []
    assert faults({"definitions": draft_7["definitions"], "properties": {"a": beside}}, {"a": "long"}) != []


def test_messages_say_what_is_wrong_and_never_show_the_value() -> None:
    """A value may be a secret, or 55 MB long."""
    secret = "hunter2"
    schema = {
        "properties": {
            "city": {"type": "string", "maxLength": 3},
            "at": {"anyOf": [{"type": "object", "required": ["lat", "lon"]}, {"type": "null"}]},
            "unit": {"enum": ["C", "F"]},
        }
    }
    assert faults(schema, {"city": secret, "at": {"lat": 1}, "unit": secret}) == [
        "city: it should have at most 3 characters",
        "at.lon: it is missing",
        "unit: it should be one of 'C', 'F'",
    ]
    either = {"anyOf": [{"required": ["a", "b"], "type": "object"}, {"required": ["c"], "type": "object"}]}
    assert faults(either, {"x": secret}) == ["it fits none of its 2 forms (nearest is form 2: c: it is missing)"]


EVIL = "^(a+)+$"


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param({"pattern": EVIL}, id="pattern"),
        pytest.param({"patternProperties": {EVIL: {"type": "integer"}}, "additionalProperties": False}, id="names"),
        pytest.param({"propertyNames": {"pattern": EVIL}}, id="property names"),
        pytest.param({"oneOf": [{"pattern": EVIL}, {"pattern": "b"}]}, id="in oneOf: fits both, as far as is known"),
        pytest.param({"not": {"pattern": EVIL}}, id="in not"),
        pytest.param({"if": {"pattern": EVIL}, "then": False}, id="in if"),
        pytest.param({"$defs": {"E": {"pattern": EVIL}}, "not": {"$ref": "#/$defs/E"}}, id="behind a reference"),
        pytest.param({"format": "regex"}, id="format"),
    ],
)
def test_patterns_are_never_executed(schema: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pattern of 7 characters can stop the event loop for years; what it would refuse, the server refuses."""
    rules = SchemaRules(read_schema(schema, "it"))
    text = "a" * 40 + "!"
    with monkeypatch.context() as patch:
        for name in ("search", "match", "compile"):
            patch.setattr(f"re.{name}", pytest.fail)
        found = rules.faults(text, 50) + rules.faults({text: "x"}, 50)
    assert found == []


def deep(levels: int) -> Any:
    schema: Any = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


def endless() -> Any:
    schema: dict[str, Any] = {"type": "object"}
    schema["properties"] = {"a": schema}
    return schema


DOUBLING = {
    "$defs": {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(30)} | {"d30": {"type": "string"}},
    "properties": {"a": {"$ref": "#/$defs/d0"}},
}

HOSTILE = {
    "nested too deep": (deep(40), "nested deeper than 32 schemas"),
    "10,000 levels": (deep(10_000), "nested deeper than 32 schemas"),
    "10 MB": ({"description": "x" * 10_000_000}, "the ceiling is 65536"),
    "100 KB of small parts": (
        {"properties": {f"p{n}": {"type": "string"} for n in range(5_000)}},
        "the ceiling is 65536",
    ),
    "contains itself": (endless(), "nested deeper than"),
    "shares its parts a million times": ({"enum": [[["x" * 100] * 100] * 100] * 100}, "the ceiling is 65536"),
    "a reference to the network": ({"$ref": "https://example.com/schema.json"}, "only references inside the schema"),
    "a reference to a file": ({"properties": {"a": {"$ref": "file:///etc/passwd"}}}, "properties/a/$ref refers to"),
    "a reference to an anchor": ({"$ref": "#here", "$defs": {"x": {"$anchor": "here"}}}, "only references inside"),
    "a reference to nothing": ({"$ref": "#/$defs/nope"}, "which is not in the schema"),
    "a dynamic reference": ({"$dynamicRef": "#x"}, "dynamic reference"),
    "a circle of references": (
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"},
        "refers to itself without a step into the value",
    ),
    "a reference to the whole": ({"allOf": [{"$ref": "#"}]}, "refers to itself"),
    "definitions that double": (DOUBLING, "would look at one value with over 2000 schemas"),
    "600 definitions": (
        {"$defs": {f"d{n}": {} for n in range(600)}, "anyOf": [{"$ref": f"#/$defs/d{n}"} for n in range(600)]},
        "over 500 definitions",
    ),
    "an unknown type": ({"type": "file"}, "type is 'file', not of array, boolean"),
    "types that are no texts": ({"type": [["string"]]}, "not of array, boolean"),
    "properties that are a list": ({"properties": [{"name": "a"}]}, "properties must be an object"),
    "required that is a text": ({"required": "name"}, "required must be a list of names"),
    "a union of nothing": ({"anyOf": []}, "anyOf must be a list with an element"),
    "a bound that is a text": ({"properties": {"n": {"minimum": "0"}}}, "properties/n/minimum must be a number"),
    "a number that is none": ({"minimum": float("nan")}, "is a number that is not finite"),
    "a number of 10,000 digits": ({"const": 10**10_000}, "number of over 4096 bits"),
    "half a character": ({"description": "\ud800"}, "half a character"),
    "keys that are no texts": ({"properties": {1: {}}}, "a key that is no text"),
    "an object of Python": ({"default": object()}, "is no JSON but a object"),
    "a text": ("string", "must be an object, true or false"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_schema_is_refused_with_its_place(name: str) -> None:
    """Each in bounded time: no walk over what is too large, no RecursionError, nothing fetched."""
    schema, reason = HOSTILE[name]
    with pytest.raises(ContractError, match="not a JSON Schema that can be used") as caught:
        read_schema(schema, "evil: the arguments")
    assert reason in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.rigs
def test_work_is_bounded_where_references_multiply_with_the_value() -> None:
    """Two branches at each of 60 levels of a value would be 2 ** 60 looks at it."""
    branches = [{"properties": {"x": {"$ref": "#/$defs/N"}}, "required": ["no", name]} for name in ("a", "b")]
    node = {"type": "object", "anyOf": branches}
    rules = SchemaRules(read_schema({"$defs": {"N": node}, "$ref": "#/$defs/N"}, "it"))
    value: dict[str, Any] = {}
    for _ in range(60):
        value = {"x": value}
    assert [str(fault) for fault in rules.faults(value, 300)] == [
        "checking it against the schema takes more work than is allowed"
    ]


def test_definitions_that_nothing_uses_are_left_out_and_others_find_a_name() -> None:
    """Planners read what is left; every reference is one that the rest of dagrun follows."""
    schema = {
        "$id": "https://example.com/root",
        "title": "T",
        "x-internal": True,
        "definitions": {"unused": {}, "a/b": {"type": "string"}},
        "$defs": {"a_b": {"type": "integer"}},
        "properties": {
            "p": {"$ref": "#/definitions/a~1b"},
            "q": {"$ref": "#/$defs/a_b"},
            "r": {"$ref": "#/properties/p"},
        },
    }
    read = read_schema(schema, "it")
    assert read == {
        "properties": {"p": {"$ref": "#/$defs/a_1b"}, "q": {"$ref": "#/$defs/a_b"}, "r": {"$ref": "#/$defs/p"}},
        "$defs": {"a_1b": {"type": "string"}, "a_b": {"type": "integer"}, "p": {"$ref": "#/$defs/a_1b"}},
    }

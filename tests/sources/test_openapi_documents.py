"""Documents made by chance: those that a validator accepts become tools, and no damage is more than a refusal."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dagrun
from dagrun.errors import ContractError
from openapi_service import document

validator = pytest.importorskip("openapi_spec_validator")

NAMES = st.text("abcXYZ_-./ 01é", min_size=1, max_size=8)
PLAIN = st.sampled_from([
    {"type": "string"}, {"type": "integer", "minimum": 0}, {"type": "boolean"}, {"type": "number"},
    {"type": "string", "enum": ["a", "b"]}, {"$ref": "#/components/schemas/Thing"},
])  # fmt: skip
SCHEMAS = st.recursive(
    PLAIN,
    lambda inner: st.one_of(
        st.builds(lambda items: {"type": "array", "items": items}, inner),
        st.builds(lambda each: {"type": "object", "properties": each}, st.dictionaries(NAMES, inner, max_size=3)),
        st.builds(lambda parts: {"oneOf": parts}, st.lists(inner, min_size=1, max_size=2)),
    ),
    max_leaves=5,
)
STYLES = {"query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"), "header": ("simple",)}
ANSWERS = st.sampled_from(["application/json", "text/plain", "application/pdf", None])


@st.composite
def parameters(draw: Any, place: str) -> dict[str, Any]:
    made = {"name": draw(NAMES if place == "query" else st.sampled_from(["X-A", "X-B"])), "in": place}
    made["schema"] = draw(SCHEMAS)
    if draw(st.booleans()):
        made |= {"style": draw(st.sampled_from(STYLES[place])), "explode": draw(st.booleans())}
    if draw(st.booleans()):
        made["required"] = draw(st.booleans())
    return made


@st.composite
def operations(draw: Any, path: str, number: int) -> dict[str, Any]:
    listed = [*draw(st.lists(parameters("query"), max_size=2)), *draw(st.lists(parameters("header"), max_size=1))]
    unique = {(each["name"], each["in"]): each for each in listed}
    if "{id}" in path:
        unique["id", "path"] = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
    answer = draw(ANSWERS)
    content = {} if answer is None else {"content": {answer: {"schema": draw(SCHEMAS)}}}
    made: dict[str, Any] = {"parameters": list(unique.values()), "responses": {"200": {"description": "ok", **content}}}
    if draw(st.booleans()):
        made["operationId"] = f"{draw(NAMES)}{number}"
    if draw(st.booleans()):
        made["requestBody"] = {"content": {"application/json": {"schema": draw(SCHEMAS)}}, "required": True}
    return made


@st.composite
def documents(draw: Any) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for number, path in enumerate(draw(st.lists(st.sampled_from(["/a", "/a/{id}", "/b"]), min_size=1, unique=True))):
        methods = draw(st.lists(st.sampled_from(["get", "put", "post", "delete"]), min_size=1, unique=True))
        paths[path] = {each: draw(operations(path, 10 * number + k)) for k, each in enumerate(methods)}
    thing = {"type": "object", "properties": {"n": {"type": "integer"}}}
    made = document(paths, components={"schemas": {"Thing": thing}})
    return made | {"openapi": draw(st.sampled_from(["3.0.3", "3.1.0"]))}


def places(part: Any) -> list[tuple[Any, Any]]:
    """Every container of a document, with each of its keys."""
    found = []
    waiting = [part]
    while waiting:
        each = waiting.pop()
        keys = each.keys() if isinstance(each, dict) else range(len(each)) if isinstance(each, list) else ()
        found += [(each, key) for key in keys]
        waiting += [each[key] for key in keys]
    return found


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(documents())
@pytest.mark.rigs
def test_every_operation_of_a_valid_document_becomes_a_tool(made: dict[str, Any]) -> None:
    """The validator of the specification is the oracle of what a document is; required parameters are its own."""
    validator.validate(made)
    tools = dagrun.openapi_tools(made)
    count = sum(len(item) for item in made["paths"].values())
    assert len(tools) == count
    for tool in tools.values():
        assert "default" not in tool.output.schema
    for path, item in made["paths"].items():
        for method, operation in item.items():
            wanted = {each["name"] for each in operation["parameters"]} | (
                {"body"} if "requestBody" in operation else set()
            )
            fitting = [tool for tool in tools.values() if wanted == set(tool.arguments.schema["properties"])]
            assert fitting, (path, method, wanted)


DAMAGE: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, -1, "x", "", [], {}, [[]], {"$ref": "#"}, {"$ref": "#/paths"}, {"$ref": "a.json"}]
)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(documents(), DAMAGE, st.integers(0, 10_000), st.booleans())
@pytest.mark.rigs
def test_damage_is_refused_or_left_out(made: dict[str, Any], damage: Any, where: int, is_removed: bool) -> None:
    """Any part of a document may be of any kind: the error is ours, and what is made can be described."""
    broken = copy.deepcopy(made)
    all_places = places(broken)
    container, key = all_places[where % len(all_places)]
    if is_removed:
        del container[key]
    else:
        container[key] = damage
    try:
        tools = dagrun.openapi_tools(broken, base_url="https://api.example.com")
    except ContractError:
        return
    for tool in tools.values():
        assert tool.describe()["name"] == tool.name

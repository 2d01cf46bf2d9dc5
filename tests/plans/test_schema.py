"""Schemas: values that they accept can be read, and values that they refuse cannot."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from checking import TOOLBOX, TOOLS, refusal
from dagrun import Condition, PlanRefused, Toolbox, read_plan
from dagrun.kernel.checks.check_plan import check_plan
from dagrun.planners.answers.model_answers import read_answer, read_next_step
from dagrun.planners.answers.plan_schemas import next_step_schema, patch_schema, plan_schema, toolset_schema

PLAN = plan_schema()
STRICT = toolset_schema(TOOLBOX)
PATCH = patch_schema(TOOLBOX)
NEXT = next_step_schema(TOOLBOX)
EMPTY = Toolbox()
SCHEMAS = {
    "plan": PLAN,
    "toolset": STRICT,
    "patch": PATCH,
    "next": NEXT,
    "no tools": toolset_schema(EMPTY),
    "no tools to patch with": patch_schema(EMPTY),
    "no tools for the next step": next_step_schema(EMPTY),
}


def accepts(schema: dict[str, Any], value: Any) -> bool:
    """Whether *schema* accepts *value*."""
    return bool(Draft202012Validator(schema).is_valid(value))


def step(tool: str, args: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a step in the strict form, with every field."""
    empty: dict[str, Any] = {
        "description": "",
        "depends_on": [],
        "when": [],
        "for_each": "",
        "success": [],
        "on_failure": "",
    }
    return {"id": "a", "tool": tool, "args": args, **empty, **fields}


def plan(*steps: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a plan in the strict form."""
    return {"refusal": "", "steps": list(steps), "output": "", "confidence": 0.9, **fields}


def objects(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield every schema of an object in a schema."""
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            yield schema
        for part in schema.values():
            yield from objects(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from objects(part)


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas_are_schemas(name: str) -> None:
    """Schemas of the draft that they name, without an address of their own, and plain JSON."""
    schema = SCHEMAS[name]
    Draft202012Validator.check_schema(schema)

    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert "$id" not in schema
    assert json.loads(json.dumps(schema)) == schema


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"$schema": "plan.schema.json", "goal": "x", "output": {"x": "${a}"}, "confidence": 1},
        {"output": "a.rows"},
        {"confidence": 2},
        {"goal": 3},
        {"goals": "x"},
    ],
)
def test_the_plan_schema_agrees_with_reading_on_plans(fields: dict[str, Any]) -> None:
    """An editor marks exactly the faults for which reading would refuse the plan."""
    value = {"steps": [{"id": "a", "tool": "t"}], **fields}

    assert accepts(PLAN, value) == _can_be_read(value)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {
            "args": {"x": ["${b}"]},
            "depends_on": ["b"],
            "timeout": 3,
            "retry": {"max_attempts": 2},
            "on_failure": "skip",
        },
        {"when": {"all": [{"ref": "b", "op": "==", "value": None}, {"not": {"ref": "b", "op": "exists"}}]}},
        {"for_each": "${b}", "max_parallel": 2},
        {"for_each": [1, 2]},
        {"for_each": 3},
        {"timeout": 0},
        {"timeout": "3s"},
        {"depends_on": "b"},
        {"depends_on": [1]},
        {"on_failure": "explode"},
        {"retry": {"max_attempts": 0}},
        {"retry": {"attempts": 1}},
        {"when": {"reff": "b"}},
        {"approved": True},
        {"pause": "between"},
        {"confidence": -1},
        {"optional": "yes"},
    ],
)
def test_the_plan_schema_agrees_with_reading_on_steps(fields: dict[str, Any]) -> None:
    """For every kind of field."""
    value = {"steps": [{"id": "a", "tool": "t", **fields}]}

    assert accepts(PLAN, value) == _can_be_read(value)


def _can_be_read(value: Any) -> bool:
    try:
        read_plan(json.dumps(value))
    except PlanRefused:
        return False
    return True


def test_the_plan_schema_knows_what_an_id_is() -> None:
    """The check tests ids, not the reader; but an editor can report faults at once."""
    assert accepts(PLAN, {"steps": [{"id": "a-1_B", "tool": "t"}]})
    assert not accepts(PLAN, {"steps": [{"id": "a b", "tool": "t"}]})


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("load", {"path": "a.csv"}),
        ("load", {"path": "${input.path}"}),
        ("load", {"path": "data/${b}.csv"}),
        ("add", {"a": 1, "b": None}),
        ("clean", {"rows": [{"name": "x", "total": 1.5}], "options": {"depth": 1, "names": []}}),
        ("clean", {"rows": "${b}", "options": None}),
        ("show", {"text": "x", "level": "high"}),
        ("pick", {"value": ["x"]}),
        ("pick", {"value": [{"key": "x", "value": 1}]}),
        ("anything", {"value": [1, "x"]}),
        ("send", {"recipient": "x", "body": None}),
    ],
)
def test_the_toolset_schema_accepts_calls_that_check(tool: str, args: dict[str, Any]) -> None:
    """Every plan that follows the schema can be read and passes the check."""
    other = step("anything", {"value": None}, id="b")
    value = plan(step(tool, args), other)

    assert accepts(STRICT, value)
    assert check_plan(read_plan(json.dumps(value), toolbox=TOOLBOX), TOOLBOX).steps["a"].tool.name == tool


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("load", {}),
        ("load", {"path": 3}),
        ("load", {"path": "x", "mode": "y"}),
        ("add", {"a": "1", "b": None}),
        ("add", {"a": 1}),
        ("pick", {"value": [{"key": "x", "value": "y"}]}),
        ("show", {"text": "x", "level": "medium"}),
        ("clean", {"rows": [{"name": "x"}], "options": None}),
        ("nope", {}),
        ("send", {"recipient": "x", "body": None, "context": None}),
    ],
)
def test_the_toolset_schema_refuses_calls_that_do_not(tool: str, args: dict[str, Any]) -> None:
    """Unknown tools, unknown arguments, wrong types; and the arguments of one tool with the name of another."""
    assert not accepts(STRICT, plan(step(tool, args)))


def test_conditions_and_lists_are_in_the_toolset_schema() -> None:
    """A planner may use them beside calls."""
    leaves = [{"ref": "b.count", "op": ">", "value": "0"}, {"ref": "b.note", "op": "exists", "value": ""}]
    full = step("load", {"path": "${item}"}, for_each='["x"]', when=leaves, on_failure="skip")
    other = step("load", {"path": "x"}, id="b")
    value = plan(full, other, output="a")

    made = read_plan(json.dumps(value), toolbox=TOOLBOX).steps[0]
    assert accepts(STRICT, value)
    assert made.for_each == ["x"]
    assert made.when == Condition(all=[Condition(ref="b.count", op=">", value=0), Condition(ref="b.note", op="exists")])
    assert check_plan(read_plan(json.dumps(value), toolbox=TOOLBOX), TOOLBOX).steps.keys() == {"a", "b"}
    assert not accepts(STRICT, plan({**full, "when": [{"ref": "b"}]}))
    assert not accepts(STRICT, plan({**full, "on_failure": "default"}))


def test_a_lean_form_has_only_the_call_and_what_it_waits_for() -> None:
    """A small model fills in each field that it is offered."""
    lean = toolset_schema(TOOLBOX, "lean")
    call = {"tool": "load", "id": "a", "args": {"path": "x"}, "depends_on": []}

    assert accepts(lean, plan(call))
    assert not accepts(lean, plan(call | {"when": []}))
    assert len(json.dumps(lean)) < 0.5 * len(json.dumps(STRICT))


@pytest.mark.parametrize("schema", [STRICT, PATCH, NEXT], ids=["toolset", "patch", "next"])
def test_every_object_that_a_model_writes_is_closed_and_complete(schema: dict[str, Any]) -> None:
    """Strict output modes require this, also of the types of tools; only open objects of a tool are an exception."""
    closed = [part for part in objects(schema) if "properties" in part]

    assert len(closed) > 20
    for part in closed:
        assert part["additionalProperties"] is False
        assert sorted(part["required"]) == sorted(part["properties"])
    assert schema["type"] == "object"
    assert not re_find(schema, "default")
    assert not re_find(schema, "oneOf")


def re_find(schema: Any, key: str) -> bool:
    """Whether a schema contains a keyword anywhere."""
    if isinstance(schema, dict):
        is_schema = "type" in schema or "anyOf" in schema or "$ref" in schema
        return (is_schema and key in schema) or any(re_find(part, key) for part in schema.values())
    return isinstance(schema, list) and any(re_find(part, key) for part in schema)


def test_a_toolset_schema_names_what_the_run_allows() -> None:
    """A tool that may not be called is not offered."""
    schema = toolset_schema(Toolbox(TOOLS, allow=["add", "count"]))

    names = [item["properties"]["tool"]["const"] for item in schema["properties"]["steps"]["items"]["anyOf"]]
    assert names == ["add", "count"]


def test_a_toolset_schema_is_the_same_each_time(tmp_path: Path) -> None:
    """Providers cache by the schema."""
    assert json.dumps(STRICT) == json.dumps(toolset_schema(Toolbox(*reversed(TOOLS))))


def edit(op: str, **fields: Any) -> dict[str, Any]:
    """Return a patch of one edit in the strict form."""
    return {"reason": "", "refusal": "", "edits": [{"op": op, **fields}], "output": "", "confidence": 0.9}


@pytest.mark.parametrize(
    "patch",
    [
        edit("add", id="", step=step("add", {"a": 1, "b": None}), cancel=False),
        edit("replace", id="x", step=step("clean", {"rows": "${b}", "options": None}), cancel=False),
        edit("drop", id="x[3]", cancel=True),
        edit("rewire", id="x", use=[{"old": "a", "new": "b"}], depends_on=None, args=[]),
        edit("rewire", id="x", use=[], depends_on=["b"], args=[{"name": "a", "value": "${b}"}]),
        edit("drop", id="x", cancel=False) | {"output": "b.rows", "confidence": 1, "reason": "why"},
        edit("drop", id="x", cancel=False) | {"edits": []},
    ],
)
def test_the_patch_schema_accepts_patches_that_can_be_read(patch: dict[str, Any]) -> None:
    """Every answer that follows the schema is a patch."""
    assert accepts(PATCH, patch)
    assert len(read_answer(json.dumps(patch), TOOLBOX).edits) == len(patch["edits"])  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "patch",
    [
        edit("add", id="", step=step("add", {"a": "1", "b": None}), cancel=False),
        edit("add", id="", step=step("nope", {}), cancel=False),
        edit("add", step=step("add", {"a": 1, "b": None})),
        edit("explode", id="x"),
        edit("drop", id="x"),
        edit("rewire", id="x", use={"a": "b"}, depends_on=None, args=[]),
        edit("rewire", id="x", use=[], depends_on=None, args={"mode": "x"}),
        {"edits": []},
    ],
)
def test_the_patch_schema_refuses_what_it_has_no_words_for(patch: dict[str, Any]) -> None:
    """Unknown edits, tools and arguments; and missing fields."""
    assert not accepts(PATCH, patch)


def test_without_tools_a_patch_can_only_take_away() -> None:
    """There is no tool that a new step could call."""
    schema = patch_schema(EMPTY)

    assert accepts(schema, edit("drop", id="x", cancel=False))
    assert accepts(schema, edit("rewire", id="x", use=[], depends_on=None, args=[]))
    assert not accepts(schema, edit("add", id="", step=step("add", {"a": 1, "b": None}), cancel=False))


def following(**fields: Any) -> dict[str, Any]:
    """Return an answer with the next step, in the strict form."""
    return {"thought": "", "step": None, "stop": "", "output": "", "reason": "", "confidence": 0.9, **fields}


@pytest.mark.parametrize(
    "fields",
    [
        {"step": step("add", {"a": 1, "b": None}), "confidence": 0.5},
        {"stop": "goal_met", "output": "a.rows"},
        {"stop": "needs_person", "reason": "the key is missing"},
    ],
)
def test_the_schema_of_the_next_step_accepts_what_can_be_read(fields: dict[str, Any]) -> None:
    """A step, or a reason to stop."""
    value = following(**fields)

    assert accepts(NEXT, value)
    assert read_next_step(json.dumps(value), TOOLBOX).stop == fields.get("stop")
    assert not accepts(NEXT, {**value, "stop": "bored"})
    assert not accepts(NEXT, {**value, "more": 1})


def test_a_model_can_refuse_and_say_how_sure_it_is() -> None:
    """In every form of a plan or a patch; an empty refusal is none."""
    sure = plan(step("add", {"a": 1, "b": None}), confidence=0.5)

    assert accepts(STRICT, sure)
    assert read_plan(json.dumps(sure), toolbox=TOOLBOX).confidence == 0.5
    assert accepts(STRICT, plan(refusal="No tool can do that."))
    assert accepts(PATCH, edit("drop", id="x", cancel=False) | {"edits": [], "refusal": "No tool can do that."})
    assert "DR014" in str(refusal(json.dumps(plan(refusal="No tool can do that.")), toolbox=TOOLBOX))

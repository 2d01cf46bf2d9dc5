"""JSON Schemas of plans, for editors; and of the answers of planners, for a set of tools."""

from __future__ import annotations

from typing import Any, Final, Literal

from dagrun.kernel.model.contracts.objects import is_object_place
from dagrun.kernel.model.plan import Plan
from dagrun.kernel.model.tool import AnyTool, Toolbox
from dagrun.llm.strict_schemas import OTHER_ARGUMENTS, OTHERS, closed, strict_schema, with_null, with_reference

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"

PlanForm = Literal["lean", "full"]

_TEXT: Final = {"type": "string"}
_ID: Final = {"type": "string", "pattern": "^[A-Za-z0-9_-]+$"}  # the check knows how long an id may be
_IDS: Final = {"type": "array", "items": _TEXT}
_NULL: Final = {"type": "null"}
_OUTPUT: Final = {**_TEXT, "description": 'The answer: "step_id.path"; "" for the outputs of the last steps.'}
_CONFIDENCE: Final = {"type": "number", "description": "How sure you are, from 0 to 1."}
_REFUSAL: Final = {**_TEXT, "description": 'Why this cannot be planned with these tools; "" where it can.'}
_REASON: Final = {**_TEXT, "description": "Why, in a sentence."}
_SCALARS: Final = [{"type": name} for name in ("string", "number", "boolean", "null")]


def plan_schema() -> dict[str, Any]:
    """Return the JSON Schema of a plan in our dialect, for editors and validators."""
    schema = Plan.model_json_schema()
    # A file may name its schema; `read_plan` ignores that.
    schema["properties"]["$schema"] = {"type": "string", "description": "For editors."}
    return {"$schema": DRAFT, **schema}


def toolset_schema(toolbox: Toolbox, form: PlanForm = "full") -> dict[str, Any]:
    """Return the JSON Schema of a plan that calls only the tools that *toolbox* allows, in the strict form.

    The strict form (see `strict_schemas`) is what output modes of models require: every field must be written, so an
    empty text, an empty list or a null stands for an omitted field. `read_answer` and `PlanReader` read it.

    Args:
        toolbox: The tools.
        form: The fields of a step: ``full``; or ``lean``, which has only the call and its dependencies. Small models
            fill in each field that they are offered.
    """
    steps = _steps(toolbox, form)
    # Steps first, because they start while the answer is written. Refusal last, because a weak model fills in each
    # field that comes.
    properties = {
        "steps": {"type": "array", "items": {"anyOf": steps} if steps else _TEXT},
        "output": _OUTPUT,
        "confidence": _CONFIDENCE,
        "refusal": _REFUSAL,
    }
    return _whole(properties)


def patch_schema(toolbox: Toolbox) -> dict[str, Any]:
    """Return the JSON Schema of a patch whose steps call only the tools that *toolbox* allows; see `toolset_schema`.

    One edit stands for ``add`` and ``replace``, so that each tool is in the schema once. The arguments of a ``rewire``
    are those of any tool, because the tool is not in the edit.
    """
    properties = {
        "reason": _REASON,
        "edits": {"type": "array", "items": {"anyOf": _edits(_steps(toolbox, "full"))}},
        "output": {**_OUTPUT, "description": 'What the run answers from now on; "" where that stays.'},
        "confidence": _CONFIDENCE,
        "refusal": _REFUSAL,
    }
    return _whole(properties)


def next_step_schema(toolbox: Toolbox) -> dict[str, Any]:
    """Return the JSON Schema of one step or the end, for planners that go step by step; see `read_next_step`."""
    properties = {
        "thought": _TEXT,
        "step": {"anyOf": [*_steps(toolbox, "full"), _NULL], "description": "The next step; null to stop."},
        "stop": {
            **_enum("", "goal_met", "cannot", "needs_person"),
            "description": 'Why to stop; "" where there is a step.',
        },
        "output": {**_OUTPUT, "description": 'With goal_met, the answer: "step_id.path".'},
        "reason": {**_TEXT, "description": 'Why there is no next step; "" where there is one.'},
        "confidence": _CONFIDENCE,
    }
    return _whole(properties)


def _whole(properties: dict[str, Any]) -> dict[str, Any]:
    return {"$schema": DRAFT, **closed(properties)}


def _steps(toolbox: Toolbox, form: PlanForm) -> list[dict[str, Any]]:
    """Return the schema of a step for each tool, with the tool first, as it distinguishes the schemas."""
    return [_step(toolbox[name], form) for name in sorted(toolbox.allowed)]


def _step(tool: AnyTool, form: PlanForm) -> dict[str, Any]:
    """Return the schema of a step that calls *tool*."""
    call = {"tool": _enum(tool.name), "id": _ID}
    args, waits = closed(_arguments(tool)), {**_IDS, "description": "For an order without data."}
    if form == "lean":
        return closed({**call, "args": args, "depends_on": waits}, _purpose(tool))
    fields = {
        "args": args,
        "depends_on": waits,
        "description": {**_TEXT, "description": "What it is for, in a few words."},
        "when": _conditions("The step is skipped unless all of them hold."),
        "for_each": {**_TEXT, "description": 'A reference to a list, or the JSON text of one; "" for one call.'},
        "success": _conditions("The step has failed unless all of them hold for its output."),
        "on_failure": _enum("", "replan", "skip", "stop"),
    }
    return closed({**call, **fields}, _purpose(tool))


def _purpose(tool: AnyTool) -> str:
    return tool.description.partition("\n")[0] or tool.name


def _edits(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the schema of each kind of edit; *steps* are the schemas of a step."""
    old = {**_TEXT, "description": "The id of the step."}
    cancel = {"type": "boolean", "description": "Whether to stop a call that runs and may have an effect."}
    pairs = {"type": "array", "items": closed({"old": _TEXT, "new": _TEXT})}
    value = {"anyOf": [*_SCALARS, {"type": "array", "items": {"anyOf": _SCALARS}}]}
    args = {"type": "array", "items": closed({"name": _TEXT, "value": value})}
    changes = {
        "use": {**pairs, "description": "Steps to use in place of others."},
        "depends_on": {"anyOf": [_IDS, _NULL], "description": "null where nothing changes."},
        "args": {**args, "description": "[] where nothing changes."},
    }
    edits = [
        closed({"op": _enum("drop"), "id": old, "cancel": cancel}),
        closed({"op": _enum("rewire"), "id": old, **changes}),
    ]
    if steps:
        replaced = {**_TEXT, "description": 'The id of the step that it replaces; "" to add.'}
        step = {"anyOf": steps}
        edits.append(closed({"op": _enum("add", "replace"), "id": replaced, "step": step, "cancel": cancel}))
    return edits


def _conditions(description: str) -> dict[str, Any]:
    """Return the schema of conditions that must all hold: a flat list, because providers take no recursion."""
    leaf = closed(
        {
            "ref": {**_TEXT, "description": 'A value: "load.rows[0].total".'},
            "op": _enum("==", "!=", "<", "<=", ">", ">=", "in", "contains", "exists"),
            "value": {**_TEXT, "description": 'As JSON text: "5", "true", "\\"north\\""; "" for exists.'},
        }
    )
    return {"type": "array", "items": leaf, "description": description}


def _arguments(tool: AnyTool) -> dict[str, Any]:
    """Return the schemas of arguments: each has its own type or is a reference; a secret is only a handle.

    An optional argument may also be null.
    """
    arguments = tool.arguments
    properties = {}
    for name, schema in arguments.schema.get("properties", {}).items():
        parameter = arguments.names.get(name, name)
        strict = strict_schema(schema, arguments.schema)
        if parameter not in arguments.secrets and not is_object_place(schema):
            strict = with_reference(strict)
        properties[name] = strict if parameter in arguments.required else with_null(strict)
    if arguments.is_open:
        properties[OTHERS] = OTHER_ARGUMENTS
    return properties


def _enum(*values: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(values)} if len(values) > 1 else {"type": "string", "const": values[0]}

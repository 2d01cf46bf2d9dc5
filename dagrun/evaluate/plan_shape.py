"""Normal form of a plan (no literals, no ids): equal for plans that differ only in values.

Two plans have one shape if they call the same tools in the same order, wire them in the same way, and hold literals of
the same kind in the same places. Ids of steps count by their place. Descriptions, confidences and estimates do not
count. Plans are taken as plain JSON, as records have them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

from dagrun import Add, Event, Plan
from dagrun.events import Spliced
from dagrun.records import BadReference, leading_id, parse_reference, references_in, text_of_reference

Steps = Sequence[Mapping[str, Any]]

# What people and planners say about a step, and what changes nothing about its call.
_SAID: Final = frozenset(("id", "description", "expected_output", "confidence", "estimate"))
_VALUES: Final = ("args", "for_each", "default")
_CONDITIONS: Final = ("when", "success")


def _compared(condition: Any) -> Iterator[str]:
    """Yield the references of a condition."""
    if isinstance(condition, Mapping):
        if isinstance(condition.get("ref"), str):
            yield condition["ref"]
        for part in (*(condition.get("all") or ()), *(condition.get("any") or ()), condition.get("not")):
            yield from _compared(part)


def needs_of(step: Mapping[str, Any]) -> set[str]:
    """Return the ids of the steps that *step* waits for, declared or implied by its references."""
    texts = [*references_in(step.get("args")), *references_in(step.get("for_each")), *_compared(step.get("when"))]
    named = {leading_id(text.removeprefix("${").removesuffix("}")) for text in texts}
    return (named | set(step.get("depends_on") or ())) - {"input", "item", "", step["id"]}


def shape_of(steps: Steps, output: Any = None) -> str:
    """Return the shape of a plan as a hash of 16 hex digits.

    Args:
        steps: The steps, as plain JSON.
        output: The output that the plan names.
    """
    places = {step["id"]: number for number, step in enumerate(steps)}
    whole = [[_of_step(step, places) for step in steps], _of_output(output, places)]
    text = json.dumps(whole, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=repr)
    return sha256(text.encode()).hexdigest()[:16]


def _of_step(step: Mapping[str, Any], places: Mapping[str, int]) -> dict[str, Any]:
    places = {**places, step["id"]: -1} if "success" in step else places
    shape = {name: value for name, value in step.items() if name not in _SAID}
    for name in _VALUES:
        if name in shape:
            shape[name] = without_literals(shape[name], places)
    for name in _CONDITIONS:
        if name in shape:
            shape[name] = _of_condition(shape[name], places)
    if "depends_on" in shape:
        shape["depends_on"] = sorted(_place(id_, places) for id_ in shape["depends_on"])
    return shape


def _of_output(output: Any, places: Mapping[str, int]) -> Any:
    return _place(output, places) if isinstance(output, str) and output in places else without_literals(output, places)


def without_literals(value: Any, places: Mapping[str, int]) -> Any:
    """Return a value of a plan with the kind of each literal in its place, and references by the place of their step.

    A list without references is one literal, however long it is.
    """
    if isinstance(value, str):
        references = list(references_in(value))
        if not references:
            return "<text>"
        named = [_renamed(text, places) for text in references]
        return named[0] if value == f"${{{references[0]}}}" else ["<text>", *named]
    if isinstance(value, Mapping):
        if isinstance(value.get("$step"), str):
            return _renamed(text_of_reference(value), places)
        return {name: without_literals(part, places) for name, part in value.items()}
    if isinstance(value, list | tuple):
        has_references = next(references_in(value), None) is not None
        return [without_literals(part, places) for part in value] if has_references else "<list>"
    return kind_of(value)


def kind_of(literal: Any) -> str:
    """Return the kind of a literal that is no object: ``<text>``, ``<number>``, ``<truth>``, ``<list>``, ``<null>``."""
    if isinstance(literal, bool):
        return "<truth>"
    if isinstance(literal, int | float):
        return "<number>"
    return "<null>" if literal is None else "<text>" if isinstance(literal, str) else "<list>"


def _of_condition(condition: Any, places: Mapping[str, int]) -> Any:
    if isinstance(condition, Mapping):
        if isinstance(condition.get("ref"), str):
            value = without_literals(condition.get("value"), places)
            return {**condition, "ref": _renamed(condition["ref"], places), "value": value}
        return {name: _of_condition(part, places) for name, part in condition.items()}
    return [_of_condition(part, places) for part in condition] if isinstance(condition, list | tuple) else condition


def _renamed(text: str, places: Mapping[str, int]) -> str:
    text = text.removeprefix("${").removesuffix("}")
    try:
        reference = parse_reference(text)
    except BadReference:
        return f"!{text}"
    return f"${_place(reference.step, places)}{list(reference.path)}"


def _place(id_: str, places: Mapping[str, int]) -> str:
    return f"#{places[id_]}" if id_ in places else id_


def tools_of(steps: Steps) -> tuple[str, ...]:
    """Return the tools of the steps of a plan, in order."""
    return tuple(step["tool"] for step in steps)


def first_plan(begun: Plan, events: Iterable[Event]) -> Plan:
    """Return the plan that the planner of a run wrote, before any change of it.

    Args:
        begun: The plan that the run began with: without steps, but for planners that write a plan at once.
        events: The events of the run.
    """
    spliced = [event for event in events if isinstance(event, Spliced)]
    written = [event for event in spliced if event.origin == "planner" and event.request == 0]
    steps = [edit.step for event in written for edit in event.edits if isinstance(edit, Add)]
    output = next((event.output for event in reversed(written) if event.changes_output), begun.output)
    return Plan(steps=[*begun.steps, *steps], output=output)


def plain_plan(plan: Plan) -> dict[str, Any]:
    """Return the steps of a plan by id, and its output, as plain JSON without default fields."""
    shown = plan.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return {"steps": {step["id"]: step for step in shown.get("steps", [])}, "output": shown.get("output")}

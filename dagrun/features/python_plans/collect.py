"""`plan()`: make a plan of steps that were written in Python, and of all steps that they need."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from dagrun.errors import ContractError, shorten
from dagrun.features.python_plans.planned_values import Comparison, PlannedStep, PlannedValue, marked_values
from dagrun.features.python_plans.step_maker import ElementsMaker, StepMaker
from dagrun.kernel.model.plan import Plan, PlanSource, Step
from dagrun.kernel.model.reference import ID_PATTERN, RESERVED, Condition, Reference, quote_template
from dagrun.kernel.model.value import numpy_fallback

_MOST_OF_A_NAME: Final = 44  # characters, so that a number fits behind it


def plan(*steps: Any, output: Any = None, goal: str = "", confidence: float | None = None) -> Plan:
    """Make a plan of steps that were made with `Tool.step`, and of all steps that these need.

    Args:
        steps: Steps that belong to the plan even if *output* does not need them; or lists of steps.
        output: What the run answers: a step, a part of one, or lists and dicts with steps in them. By default, the
            outputs of the steps that no other step uses.
        goal: What the plan is for, for people and critics.
        confidence: How sure the author is of the plan, from 0 to 1.

    Returns:
        The same plan that JSON would describe. It brings its tools, so ``dagrun.run(plan)`` needs no *tools*.

    Raises:
        ContractError: A step is used in a wrong place, has an invalid option, or shares its id with another one.

    Examples:
        >>> from dagrun import tool
        >>> @tool(effect="pure")
        ... async def add(a: int, b: int) -> int:
        ...     return a + b
        >>> three = add.step(1, 2)
        >>> plan(output=add.step(three, 4)).steps[1].args
        {'a': '${add}', 'b': 4}
    """
    writer = _PlanWriter()
    for step in _flat(steps):
        if not isinstance(step, PlannedStep):
            raise ContractError(f"plan() takes steps, made with tool.step(…), {_what(step)}")
        writer.collect(step)
    writer.collect_in(output)
    if not writer.found:
        raise ContractError("the plan has no steps: name its output, or steps: dagrun.plan(output=tool.step(…))")
    writer.name_steps()
    written = [writer.written(step) for step in writer.found]
    facts = {
        "goal": goal or None,
        "confidence": confidence,
        "output": None if output is None else writer.output(output),
    }
    made = Plan.model_validate({"steps": written, **{name: fact for name, fact in facts.items() if fact is not None}})
    made._source = PlanSource(writer.ids, tuple({step._tool.name: step._tool for step in writer.found}.values()))
    return made


def _flat(steps: Iterable[Any]) -> Iterator[Any]:
    for step in steps:
        if isinstance(step, list | tuple):
            yield from _flat(step)
        else:
            yield step


class _PlanWriter:
    """Writes planned steps as steps of a plan.

    Attributes:
        found: The steps that were collected, each after those that it needs.
        ids: The id of each.
    """

    def __init__(self) -> None:
        self.found: list[PlannedStep] = []
        self.ids: dict[PlannedStep, str] = {}
        self._seen: set[int] = set()

    # Which steps there are ----------------------------------------------------------------------------------------

    def collect(self, step: PlannedStep) -> None:
        """Add a step, after all steps that it needs."""
        waiting = [step]
        new: list[PlannedStep] = []
        while waiting:
            current = waiting.pop()
            if current._serial not in self._seen:
                self._seen.add(current._serial)
                new.append(current)
                waiting += _sources(current)
        # A step is made after the steps in its arguments, so the order of making them is an order of the plan.
        self.found = sorted([*self.found, *new], key=lambda found: found._serial)

    def collect_in(self, value: Any) -> None:
        """Add the steps that stand in a value."""
        for step in _steps_in(value):
            self.collect(step)

    def name_steps(self) -> None:
        """Give each step its id: the chosen one, or one derived from the name of its tool."""
        taken: dict[str, PlannedStep] = {}
        for step in self.found:
            given = step._given_id
            if given is None:
                continue
            if not re.fullmatch(ID_PATTERN, str(given)) or given in RESERVED:
                raise ContractError(f"{given!r} is no id of a step: at most 48 letters, digits, '_' and '-'")
            if given in taken:
                raise ContractError(f"two steps of the plan have the id {given}: {taken[given]!r} and {step!r}")
            taken[given] = step
        for step in self.found:
            if step._given_id is None:
                taken[_free_name(step._tool.name, taken)] = step
        self.ids = {step: id_ for id_, step in taken.items()}

    # How they are written -----------------------------------------------------------------------------------------

    def written(self, step: PlannedStep) -> Step:
        """Return a planned step as a step of a plan."""
        options = {name: value for name, value in step._options.items() if value is not None or name == "default"}
        place = f"{step._tool.name}.options"
        fields: dict[str, Any] = {**options, "id": self.ids[step], "tool": step._tool.name}
        fields["args"] = {name: self._value(value, f"{step!r}: {name}") for name, value in step._args.items()}
        if step._items is not None:
            fields["for_each"] = self._value(step._items, f"{step!r}: each")
            if not isinstance(fields["for_each"], str | list | dict):
                raise ContractError(f"{step!r}: each() takes a list, or a step whose output is one")
        if "when" in options:
            fields["when"] = self._condition(options["when"], f"{place}(when=…)")
        if "success" in options:
            fields["success"] = self._success(step, options["success"])
        if "depends_on" in options:
            fields["depends_on"] = [self._id_of(other, place) for other in options["depends_on"]]
        if "fallback" in options and not isinstance(options["fallback"], str):
            fields["fallback"] = options["fallback"].name
        if "default" in options:
            fields["default"] = _as_json(options["default"], f"{place}(default=…)")
        try:
            return Step(**fields)
        except ValidationError as error:
            faults = "; ".join(f"{fault['loc'][0]}: {fault['msg']}" for fault in error.errors(include_url=False))
            raise ContractError(f"{step!r}: {faults}") from None

    def output(self, output: Any) -> Any:
        """Return the output of the plan, with references instead of steps."""
        written = self._value(output, "output")
        if not isinstance(written, str | dict | list):
            raise ContractError(f"output takes a step, or a list or dict with steps in it, {_what(output)}")
        return written

    def _success(self, step: PlannedStep, success: Any) -> Condition:
        place = f"{step._tool.name}.options(success=…)"
        if callable(success) and not isinstance(success, Condition):
            success = success(step)
        return self._condition(success, place)

    def _condition(self, condition: Any, place: str) -> Condition:
        if isinstance(condition, Condition):
            return condition
        if not isinstance(condition, Comparison):
            raise ContractError(f"{place} takes a condition such as step['rows'] > 0, {_what(condition)}")
        try:
            return condition._make(self._reference)
        except ValidationError as error:
            raise ContractError(f"{place}: {error.errors(include_url=False)[0]['msg']}") from None

    def _id_of(self, step: Any, place: str) -> str:
        if isinstance(step, str):
            return step
        if not isinstance(step, PlannedStep):
            raise ContractError(f"{place}(depends_on=…) takes steps, or their ids, {_what(step)}")
        return self.ids[step]

    def _reference(self, value: PlannedValue) -> Reference:
        root = value._root
        return Reference(root if isinstance(root, str) else self.ids[root], value._path)

    def _value(self, value: Any, place: str) -> Any:
        """Return a value as JSON of a plan: planned values become references, and texts are taken literally."""
        match value:
            case PlannedValue():
                return str(self._reference(value))
            case str() if type(value) is str:
                return self._text(value, place)
            case Mapping():
                return self._object(value, place)
            case list() | tuple():
                return [self._value(part, place) for part in value]
            case Step() | Plan() | Comparison() | StepMaker() | ElementsMaker():
                raise ContractError(f"{place} {_what(value)}; make a step with tool.step(…), and pass that")
            case _ if _is_tool(value):
                raise ContractError(f"{place} got the tool {value.name}; pass a step of it: {value.name}.step(…)")
            case _:
                written = _as_json(value, place)
                return written if written is value else self._value(written, place)

    def _text(self, text: str, place: str) -> str:
        written = ""
        for literal, found in marked_values(text):
            if found is not None and written.endswith("$"):  # a plan takes "$${" for the text "${"
                raise ContractError(
                    f"{place}: a text cannot have a $ right before {found!r}; put a blank between them, or let a tool "
                    "write the text"
                )
            written += quote_template(literal) if found is None else str(self._reference(found))
        return written

    def _object(self, fields: Mapping[Any, Any], place: str) -> dict[str, Any]:
        if "$step" in fields:
            raise ContractError(
                f"{place}: an object with the key $step would be a reference; pass the step itself, or write $$step if "
                "the key is data"
            )
        if wrong := [key for key in fields if not isinstance(key, str)]:
            if not _sources_in(fields):
                return self._object(_as_json(fields, place), place)  # keys that are numbers or dates, say
            raise ContractError(f"{place}: the keys of an object are texts, got {wrong[0]!r}")
        return {key: self._value(part, place) for key, part in fields.items()}


def _sources(step: PlannedStep) -> list[PlannedStep]:
    options = step._options
    values = [step._args, step._items, options.get("when"), list(options.get("depends_on") or ())]
    return _sources_in(values)


def _sources_in(value: Any) -> list[PlannedStep]:
    return list(_steps_in(value))


def _steps_in(value: Any) -> Iterator[PlannedStep]:
    match value:
        case PlannedValue():
            if isinstance(value._root, PlannedStep):
                yield value._root
        case str():
            yield from _in_each(found for _, found in marked_values(value))
        case Comparison():
            yield from _in_each(value._values)
        case Mapping():
            yield from _in_each(value.values())
        case list() | tuple():
            yield from _in_each(value)


def _in_each(values: Iterable[Any]) -> Iterator[PlannedStep]:
    for value in values:
        yield from _steps_in(value)


def _free_name(tool: str, taken: Mapping[str, Any]) -> str:
    name = re.sub(r"[^A-Za-z0-9_-]", "_", tool)[:_MOST_OF_A_NAME]
    if name not in taken and name not in RESERVED:
        return name
    number = 2
    while f"{name}_{number}" in taken:
        number += 1
    return f"{name}_{number}"


def _as_json(value: Any, place: str) -> Any:
    if value is None or isinstance(value, bool) or type(value) in (int, float):
        return value
    try:
        return to_jsonable_python(value, by_alias=True, fallback=numpy_fallback)
    except (PydanticSerializationError, TypeError, UnicodeDecodeError) as error:
        reason = shorten(str(error), 200)
        raise ContractError(
            f"{place}: a {type(value).__name__} cannot stand in a plan, which is JSON: {reason}"
        ) from None


def _is_tool(value: Any) -> bool:
    return hasattr(value, "effect_declared") and hasattr(value, "function")


def _what(value: Any) -> str:
    if isinstance(value, PlannedValue):
        return f"got {value!r}"
    return f"got {'the tool ' + value.name if _is_tool(value) else 'a ' + type(value).__name__}"

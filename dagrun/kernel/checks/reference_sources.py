"""Look up the types of a reference's value before the plan runs."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from types import GenericAlias
from typing import Any, Union

from dagrun.kernel.model.contracts.objects import hint_at
from dagrun.kernel.model.contracts.schema_types import UNKNOWN, Lookup, Schema, look_up, type_of
from dagrun.kernel.model.plan import Step
from dagrun.kernel.model.reference import Reference, Template
from dagrun.kernel.model.tool import AnyTool
from dagrun.kernel.model.value import Path

_LIST = Lookup(frozenset(("array",)))


class ReferenceSources:
    """The values that references can refer to: outputs of steps, the inputs of the run, elements of a for_each.

    Args:
        steps: The steps by id.
        tools: The tools by name.
        inputs: The inputs of the run; `None` if they are not known yet.

    Attributes:
        input_paths: The parts of the inputs that were looked up.
    """

    __slots__ = ("_inputs", "_memo", "_steps", "_tools", "input_paths")

    def __init__(
        self,
        steps: Mapping[str, Step],
        tools: Mapping[str, AnyTool],
        inputs: Mapping[str, Any] | None,
    ) -> None:
        self._steps = steps
        self._tools = tools
        self._inputs = None if inputs is None else dict(inputs)
        # Memoized, because many steps use the same part of the output of the same tool.
        self._memo: dict[Hashable, Lookup] = {}
        self.input_paths: dict[Path, Lookup] = {}

    def producer(self, id_: str) -> Step:
        """Return the step with the id *id_*."""
        return self._steps[id_]

    def look_up(self, reference: Reference, items: Template | None = None) -> Lookup:
        """Return the type information of the value of *reference*.

        Args:
            reference: A reference to a step of the plan, to ``input``, or to ``item``.
            items: The list of the for_each to which ``item`` belongs.
        """
        if reference.step == "input":
            return self._input(reference.path)
        if reference.step == "item":
            whole = self.list_reference(items)
            return UNKNOWN if whole is None else self.look_up(Reference(whole.step, (*whole.path, 0, *reference.path)))
        step = self._steps[reference.step]
        return self._known(step, reference.path, is_list=step.for_each is not None)

    def output(self, step: Step, path: Path) -> Lookup:
        """Return the type information of a part of the output of one call of *step*."""
        return self._known(step, path, is_list=False)

    def _known(self, step: Step, path: Path, *, is_list: bool) -> Lookup:
        """Return one object for all steps whose outputs have the same type there."""
        key = (step.tool, step.fallback, step.on_failure == "default", is_list, path)
        lookup = self._memo.get(key)
        if lookup is None:
            lookup = self._memo[key] = self._of_list(step, path) if is_list else self._of_call(step, path)
        return lookup

    def _of_call(self, step: Step, path: Path) -> Lookup:
        names = (step.tool,) if step.fallback is None else (step.tool, step.fallback)
        found = look_up([schema for name in names for schema in self._schemas(name)], path)
        lookup = self._with_hint(found, names, path)
        # A default takes the place of the output, whatever its type is.
        return replace(lookup, types=None, schemas=[]) if step.on_failure == "default" else lookup

    def list_reference(self, items: Template | None) -> Reference | None:
        """Return the reference to the list of a for_each; `None` if there is no valid one."""
        if items is None or not items.references or items.places[0] or items.texts:
            return None
        reference = items.references[0]
        return reference if reference.step in self._steps or reference.step == "input" else None

    def _of_list(self, step: Step, path: Path) -> Lookup:
        if not path:
            whole = self.output(step, ())
            hint = None if whole.hint is None else GenericAlias(list, (whole.hint,))
            return replace(_LIST, hint=hint, schemas=[(_list_of(schema), root) for schema, root in whole.schemas])
        if not isinstance(path[0], int):
            return Lookup(None, path[0])
        return self.output(step, path[1:])

    def _schemas(self, name: str) -> list[tuple[Schema, Schema]]:
        """Return the output schemas of a tool and of its own fallback, each with its root."""
        return [(tool.output.schema, tool.output.schema) for tool in self._and_fallback(name)] or [({}, {})]

    def _and_fallback(self, name: str) -> list[AnyTool]:
        """Return a tool and its own fallback; nothing if there is no such tool."""
        tool = self._tools.get(name)
        if tool is None:
            return []
        fallback = self._tools.get(tool.fallback) if tool.fallback is not None else None
        return [tool] if fallback is None else [tool, fallback]

    def _with_hint(self, lookup: Lookup, names: tuple[str, ...], path: Path) -> Lookup:
        """Add the declared type, if the outputs of the tools contain objects in memory."""
        tools = [tool for name in names for tool in self._and_fallback(name)]
        if lookup.missing is not None or not any(tool.output.has_objects for tool in tools):
            return lookup
        hints = tuple(hint_at(tool.output.hint, path) for tool in tools)
        return replace(lookup, hint=Union[hints])  # noqa: UP007  (the parts are computed)

    def _input(self, path: Path) -> Lookup:
        if path not in self.input_paths:
            self.input_paths[path] = UNKNOWN if self._inputs is None else look_up_input(self._inputs, path)
        return self.input_paths[path]


def _list_of(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def look_up_input(inputs: Mapping[str, Any], path: Path) -> Lookup:
    """Return the type information of a part of the inputs of a run."""
    value: Any = dict(inputs)
    for part in path:
        known = isinstance(value, dict) if isinstance(part, str) else isinstance(value, list | tuple)
        if not known or not (part in value if isinstance(part, str) else part < len(value)):
            return Lookup(None, part, tuple(map(str, value)) if isinstance(value, dict) else ())
        value = value[part]
    return Lookup(type_of(value))

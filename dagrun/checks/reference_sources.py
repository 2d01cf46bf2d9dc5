"""What stands behind a reference: the output of a step, the inputs of the run, or an element of a for_each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dagrun.checks.schema_types import UNKNOWN, Lookup, Schema, look_up, type_of
from dagrun.model.plan import Step
from dagrun.model.reference import Reference, Template
from dagrun.model.toolbox import AnyTool
from dagrun.model.value import Path

_LIST = Lookup(frozenset(("array",)))


class ReferenceSources:
    """Answers what is known, before anything has run, about the value of a reference.

    Args:
        steps: By id.
        tools: By name.
        inputs: Of the run; `None` if they are not known yet.
    """

    __slots__ = ("_inputs", "_memo", "_steps", "_tools")

    def __init__(
        self,
        steps: Mapping[str, Step],
        tools: Mapping[str, AnyTool],
        inputs: Mapping[str, Any] | None,
    ) -> None:
        self._steps = steps
        self._tools = tools
        self._inputs = None if inputs is None else dict(inputs)
        # Many steps use the same part of the output of the same tool.
        self._memo: dict[tuple[str, Path], Lookup] = {}

    def producer(self, id_: str) -> Step:
        """The step called *id_*."""
        return self._steps[id_]

    def look_up(self, reference: Reference, items: Template | None = None) -> Lookup:
        """What is known about the value of *reference*.

        Args:
            reference: To a step of the plan, ``input``, or ``item``.
            items: The list of the for_each that ``item`` stands in.
        """
        if reference.step == "input":
            return self._input(reference.path)
        if reference.step == "item":
            whole = self.list_behind(items)
            return UNKNOWN if whole is None else self.look_up(Reference(whole.step, (*whole.path, 0, *reference.path)))
        step = self._steps[reference.step]
        if step.for_each is not None:
            return self._of_list(step, reference.path)
        return self.output(step, reference.path)

    def output(self, step: Step, path: Path) -> Lookup:
        """What is known about a part of what one call of *step* gives."""
        if step.fallback is not None:
            return self._lenient(step, look_up([*self._schemas(step.tool), *self._schemas(step.fallback)], path))
        key = (step.tool, path)
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = look_up(self._schemas(step.tool), path)
        return found if step.on_failure is None else self._lenient(step, found)

    def list_behind(self, items: Template | None) -> Reference | None:
        """The reference that the list of a for_each is, if it is one, to something that exists."""
        if items is None or not items.holes or items.holes[0].place or items.holes[0].is_text:
            return None
        reference = items.holes[0].reference
        return reference if reference.step in self._steps or reference.step == "input" else None

    @staticmethod
    def _lenient(step: Step, found: Lookup) -> Lookup:
        # A default stands in for the output whatever its type is.
        return Lookup(None, found.missing, found.known) if step.on_failure == "default" else found

    def _of_list(self, step: Step, path: Path) -> Lookup:
        if not path:
            return _LIST
        if not isinstance(path[0], int):
            return Lookup(None, path[0])
        return self.output(step, path[1:])

    def _schemas(self, tool: str) -> list[tuple[Schema, Schema]]:
        """The schema of what *tool* gives, and of what its own fallback gives in its place."""
        found = self._tools.get(tool)
        if found is None:
            return [({}, {})]
        second = self._tools.get(found.fallback) if found.fallback is not None else None
        return [(t.output.schema, t.output.schema) for t in (found, second) if t is not None]

    def _input(self, path: Path) -> Lookup:
        if self._inputs is None:
            return UNKNOWN
        value: Any = self._inputs
        for part in path:
            known = isinstance(value, dict) if isinstance(part, str) else isinstance(value, list | tuple)
            if not known or not (part in value if isinstance(part, str) else part < len(value)):
                return Lookup(None, part, tuple(map(str, value)) if isinstance(value, dict) else ())
            value = value[part]
        return Lookup(type_of(value))

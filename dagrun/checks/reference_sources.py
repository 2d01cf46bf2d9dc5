"""Look up what is known about the value of a reference before the plan runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dagrun.model.contracts.schema_types import UNKNOWN, Lookup, Schema, look_up, type_of
from dagrun.model.plan import Step
from dagrun.model.reference import Reference, Template
from dagrun.model.toolbox import AnyTool
from dagrun.model.value import Path

_LIST = Lookup(frozenset(("array",)))


class ReferenceSources:
    """The values that references can refer to: outputs of steps, the inputs of the run, elements of a for_each.

    Args:
        steps: The steps by id.
        tools: The tools by name.
        inputs: The inputs of the run; `None` if they are not known yet.
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
        # Memoized, because many steps use the same part of the output of the same tool.
        self._memo: dict[tuple[str, Path], Lookup] = {}

    def producer(self, id_: str) -> Step:
        """Return the step with the id *id_*."""
        return self._steps[id_]

    def look_up(self, reference: Reference, items: Template | None = None) -> Lookup:
        """Return what is known about the value of *reference*.

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
        if step.for_each is not None:
            return self._of_list(step, reference.path)
        return self.output(step, reference.path)

    def output(self, step: Step, path: Path) -> Lookup:
        """Return what is known about a part of the output of one call of *step*."""
        if step.fallback is not None:
            return self._with_default(step, look_up([*self._schemas(step.tool), *self._schemas(step.fallback)], path))
        key = (step.tool, path)
        lookup = self._memo.get(key)
        if lookup is None:
            lookup = self._memo[key] = look_up(self._schemas(step.tool), path)
        return lookup if step.on_failure is None else self._with_default(step, lookup)

    def list_reference(self, items: Template | None) -> Reference | None:
        """Return the reference that stands for the list of a for_each; `None` if there is no valid one."""
        if items is None or not items.holes or items.holes[0].place or items.holes[0].is_text:
            return None
        reference = items.holes[0].reference
        return reference if reference.step in self._steps or reference.step == "input" else None

    @staticmethod
    def _with_default(step: Step, lookup: Lookup) -> Lookup:
        # A default takes the place of the output, whatever its type is.
        return Lookup(None, lookup.missing, lookup.known) if step.on_failure == "default" else lookup

    def _of_list(self, step: Step, path: Path) -> Lookup:
        if not path:
            return _LIST
        if not isinstance(path[0], int):
            return Lookup(None, path[0])
        return self.output(step, path[1:])

    def _schemas(self, name: str) -> list[tuple[Schema, Schema]]:
        """Return the output schemas of a tool and of its own fallback, each with its root."""
        tool = self._tools.get(name)
        if tool is None:
            return [({}, {})]
        fallback = self._tools.get(tool.fallback) if tool.fallback is not None else None
        return [(t.output.schema, t.output.schema) for t in (tool, fallback) if t is not None]

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

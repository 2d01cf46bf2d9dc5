"""The calls of a plan that the policy freezes, and which calls are equal.

A call is its tool, its arguments and its list, its condition, and what stands in for its answer. A reference counts for
the call whose output it means: so a repeated step may stand in for the first one. Texts for people, time limits and
attempts do not count.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dagrun.kernel.checks.checked_plan import CheckedStep, effects_of
from dagrun.kernel.checks.flow.labels import OF_THE_CALL
from dagrun.kernel.model.plan import Step
from dagrun.kernel.model.reference import HOLE, RESERVED, BadReference, Condition, Reference, parse_reference, read_path

# Tools are compared by themselves. An optional step is dropped when a ceiling is near, and what follows it runs.
_FIELDS: Final = tuple(sorted(OF_THE_CALL - {"tool", "fallback"} | {"optional"}))
_OWN: Final = "="  # stands for the own id of a step; no step can be called that


@dataclass(slots=True)
class FrozenPlan:
    """The calls that a planner's patches may make.

    Attributes:
        calls: The steps of the first plan and of the host, by id.
        origins: By id of a step that a planner has added or changed: the id of the call that it makes.
    """

    calls: dict[str, CheckedStep]
    origins: dict[str, str] = field(default_factory=dict)
    _kinds: dict[str, str] = field(default_factory=dict)
    _by_key: dict[str, list[str]] = field(default_factory=dict)
    _by_tool: dict[str, list[str]] = field(default_factory=dict)

    def origin(self, id_: str) -> str:
        """Return the id of the call that a step makes; empty if it makes none of the first plan."""
        return self.origins.get(id_) or (id_ if id_ in self.calls else "")

    def kind(self, id_: str) -> str:
        """Return a text that is equal for equal calls; for a step that makes none of them, a text of its own."""
        if not self._kinds:
            self._work_out()
        return self._kinds.get(self.origin(id_), f"?{id_}")

    def same(self, key: str, checked: CheckedStep) -> list[str]:
        """Return the ids of the first plan's calls that match a step with this key, its own tool before a fallback."""
        if not self._kinds:
            self._work_out()
        found = [id_ for id_ in self._by_key.get(key, ()) if self.fits(id_, checked)]
        return sorted(found, key=lambda id_: self.calls[id_].tool is not checked.tool)

    def of_tool(self, name: str) -> list[str]:
        """Return the ids of the calls of a tool, also of those that fall back on it."""
        if not self._kinds:
            self._work_out()
        return self._by_tool.get(name, [])

    def fits(self, id_: str, checked: CheckedStep) -> bool:
        """Whether a step calls no other tools than a call of the first plan, fallbacks included."""
        return tools_of(checked) <= tools_of(self.calls[id_])

    def _work_out(self) -> None:
        self._by_key.clear()
        self._by_tool.clear()
        needs = {id_: [self.origin(need) for need in plan.depends_on] for id_, plan in self.calls.items()}
        for id_ in in_order(needs):
            plan = self.calls[id_]
            key = key_of(plan.step, lambda need: self._kinds.get(self.origin(need)))
            self._kinds[id_] = f"{plan.tool.name} {key}"
            self._by_key.setdefault(key, []).append(id_)
            for name in tools_of(plan):
                self._by_tool.setdefault(name, []).append(id_)

    def change(self, calls: Mapping[str, CheckedStep], dropped: Iterable[str]) -> None:
        """Note which *calls* a patch of the host adds or changes, and the ids of those that it has *dropped*."""
        for id_ in dropped:
            self.calls.pop(self.origin(id_), None)
        for id_, checked in calls.items():
            old = self.origins.pop(id_, id_)
            if effects_of(checked):  # which is made once: now as the host has it
                self.calls.pop(old, None)
            self.calls[id_] = checked
        self._kinds.clear()


# Equal calls ----------------------------------------------------------------------------------------------------------


def key_of(step: Step, kind_of: Callable[[str], str | None], *, is_element: bool = False) -> str:
    """Return a key that is equal for steps with equal calls, whatever their tools.

    Args:
        step: The step.
        kind_of: Returns the kind of the call whose output a reference means.
        is_element: Whether it is about one element of a for_each, and has no list.
    """
    said = {**parts_of(step, kind_of), **({"for_each": "null"} if is_element else {})}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:32]


def parts_of(step: Step, kind_of: Callable[[str], str | None]) -> dict[str, str]:
    """Return the fields of a step that define its call; each argument is a field."""

    def name(id_: str) -> str:
        if id_ in RESERVED:
            return id_
        return _OWN if id_ == step.id else kind_of(id_) or f"?{id_}"

    said: dict[str, Any] = {field: getattr(step, field) for field in _FIELDS}
    said |= {f"args.{name}": value for name, value in step.args.items()}
    said["default"] = [step.default] if step.has_default else None  # it holds no references
    written = {part: value if part == "default" else _named(value, name) for part, value in said.items()}
    return {part: json.dumps(value, sort_keys=True, default=str) for part, value in written.items()}


def _named(value: Any, name: Callable[[str], str]) -> Any:
    """Return a value of a plan with all references in normal form, and their names replaced."""
    match value:
        case str() if "${" in value:
            return HOLE.sub(lambda hole: hole[0] if hole[1] is None else _reference(hole[1], name), value)
        case Condition():
            parts = {part: _named(getattr(value, part), name) for part in ("op", "all", "any", "not_")}
            return {**parts, "ref": value.ref and _reference(value.ref, name), "value": json.dumps(value.value)}
        case Mapping() if "$step" in value:
            return str(Reference(name(str(value["$step"])), read_path(value.get("path", ""))))
        case Mapping():
            return {key: _named(part, name) for key, part in value.items()}
        case list() | tuple():
            return [_named(part, name) for part in value]
        case _:
            return value


def _reference(text: str, name: Callable[[str], str]) -> str:
    try:
        known = parse_reference(text)
    except BadReference:
        return text
    return str(Reference(name(known.step), known.path))


def in_order(needs: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Yield ids so that each stands after those that it needs, as far as there is no circle."""
    begun: set[str] = set()
    for first in needs:
        stack: list[tuple[str, bool]] = [(first, False)]
        while stack:
            id_, is_done = stack.pop()
            if is_done:
                yield id_
            elif id_ not in begun:
                begun.add(id_)
                stack.append((id_, True))
                stack += ((need, False) for need in needs[id_] if need in needs and need not in begun)


def tools_of(checked: CheckedStep) -> set[str]:
    """Return the names of the tools that a step calls itself: its own, and its fallback."""
    return {tool.name for tool in (checked.tool, checked.fallback) if tool is not None}

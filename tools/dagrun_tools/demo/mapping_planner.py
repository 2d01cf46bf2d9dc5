"""A planner without a model: it knows one repair, for a column that has a new name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Final

import anyio

from dagrun import Add, Brief, Condition, Patch, Replace, Step, Trigger, TriggerKind
from dagrun.kernel.model.patch import rename_in_step

THINKING: Final = 0.4  # seconds; a model would take longer
TOOL: Final = "map_columns"


class MappingPlanner:
    """Adds a step that renames columns before a step whose output lacks some of them.

    It reads three things from the brief: the condition that was not met, which names the columns that must be there;
    the step that the table comes from; and the columns of that table. If it cannot tell which column has which new
    name, it proposes nothing.

    Args:
        seconds: The time that it pretends to think.
    """

    def __init__(self, seconds: float = THINKING) -> None:
        self._seconds = seconds

    async def revise(self, brief: Brief) -> Patch | None:
        """Return the repair as a patch; `None` if the repair does not fit."""
        await anyio.sleep(self._seconds)
        for trigger in brief.triggers:
            patch = _repair(brief, trigger)
            if patch is not None:
                return patch
        return None


def _repair(brief: Brief, trigger: Trigger) -> Patch | None:
    view = brief.steps.get(trigger.step)
    if trigger.kind is not TriggerKind.SUCCESS_CONDITION or view is None:
        return None
    source = _source_of(view.step, brief)
    if source is None:
        return None
    present = brief.results[source]["columns"]
    mapping = match_columns(_wanted(view.step.success), present)
    if not mapping:
        return None
    ending = f"_{brief.number}" if brief.number > 1 else ""  # ids are never used twice
    first = Step(
        id=f"map_columns{ending}",
        tool=TOOL,
        args={"data": f"${{{source}}}", "columns": mapping},
        description="Give the columns the names that the plan knows",
    )
    again = rename_in_step(view.step, {source: first.id, view.step.id: f"{view.step.id}_mapped{ending}"})
    return Patch(
        base=brief.revision,
        reason=f"{source} has changed: {', '.join(f'{new} is called {old} now' for old, new in mapping.items())}",
        edits=[
            Add(step=first),
            Replace(id=view.step.id, step=again.model_copy(update={"id": f"{view.step.id}_mapped{ending}"})),
        ],
    )


def _source_of(step: Step, brief: Brief) -> str | None:
    """Return the step that the table is read from, if the columns of its output are known."""
    data = step.args.get("data")
    source = data[2:-1] if isinstance(data, str) and data.startswith("${") and data.endswith("}") else ""
    known = brief.results.get(source)
    return source if isinstance(known, Mapping) and isinstance(known.get("columns"), list) else None


def _wanted(condition: Condition | None) -> list[str]:
    """Return the columns that a condition asks for."""
    leaves: Iterable[Condition] = condition.leaves() if condition is not None else ()
    return [leaf.value for leaf in leaves if leaf.op == "contains" and (leaf.ref or "").endswith(".columns")]


def match_columns(wanted: Iterable[Any], present: Iterable[str]) -> dict[str, str]:
    """Find which column has which new name.

    Args:
        wanted: The columns that must be there.
        present: The columns that are there.

    Returns:
        Present names to wanted names, for every wanted name that is missing; empty if no match is certain.
    """
    there = list(present)
    missing = [name for name in wanted if name not in there]
    others = [name for name in there if name not in set(wanted)]
    if len(missing) == len(others) == 1:  # only one is possible, however different the two names look
        return {others[0]: missing[0]}
    mapping: dict[str, str] = {}
    for name in missing:
        close = get_close_matches(name, [other for other in others if other not in mapping], n=1)
        if not close:
            return {}
        mapping[close[0]] = name
    return mapping

"""Advice about the shape of a plan: edges that are not needed, steps that could run side by side, lists in disguise.

It takes longer than the advice of a check, so `dagrun check` gives it, and no run does.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from graphlib import TopologicalSorter
from typing import Any, Final

from dagrun.errors import Problem
from dagrun.kernel.checks.checked_plan import CheckedPlan, CheckedStep

MANY: Final = 3  # steps that make a chain or a list
MAX_STEPS: Final = 3_000  # of a plan that is looked at: every step is compared with all that come before it
MAX_FOUND: Final = 20  # of each code
_MAX_NAMED: Final = 10
_OWN: Final = frozenset(
    ("id", "args", "description", "expected_output", "estimate")
)  # fields in which calls may differ


def shape_advice(plan: CheckedPlan) -> tuple[Problem, ...]:
    """Return advice about the shape of a plan of up to 3,000 steps.

    Returns:
        ``DR903``: a dependency that another one implies. ``DR904``: steps in a row that need nothing of each other.
        ``DR905``: steps that are the elements of a list.
    """
    if len(plan.steps) > MAX_STEPS:
        return ()
    index = {id_: number for number, id_ in enumerate(plan.steps)}
    found = (_implied_edges(plan, index), _rows(plan, index), _lists(plan.steps, index))
    return tuple(problem for kind in found for _, problem in zip(range(MAX_FOUND), kind, strict=False))


def _implied_edges(plan: CheckedPlan, index: Mapping[str, int]) -> Iterator[Problem]:
    """Yield dependencies for the order alone that hold anyway, because another dependency waits for them."""
    before = _ancestors(plan, index)
    unused = {
        (problem.facts["step"], problem.facts["dependency"]) for problem in plan.advice if problem.code == "DR901"
    }
    for id_, checked in plan.steps.items():
        for number, need in enumerate(checked.step.depends_on):
            if need in checked.value_sources or (id_, need) in unused:
                continue
            bit = 1 << index[need]
            through = next((other for other in checked.depends_on if other != need and before[other] & bit), None)
            if through is not None:
                facts = {"step": id_, "dependency": need, "through": through}
                yield Problem("DR903", f"steps[{index[id_]}].depends_on[{number}]", facts)


def _ancestors(plan: CheckedPlan, index: Mapping[str, int]) -> dict[str, int]:
    """Return all steps that each step waits for, as a number with a bit for each."""
    needs = {id_: checked.depends_on for id_, checked in plan.steps.items()}
    before: dict[str, int] = {}
    for id_ in TopologicalSorter(needs).static_order():
        bits = 0
        for need in needs[id_]:
            bits |= before[need] | 1 << index[need]
        before[id_] = bits
    return before


def _rows(plan: CheckedPlan, index: Mapping[str, int]) -> Iterator[Problem]:
    """Yield chains of steps in which each waits for the previous one without using its output."""
    before = {
        problem.facts["step"]: problem.facts["dependency"]
        for problem in plan.advice
        if problem.code == "DR901" and len(plan.steps[problem.facts["step"]].depends_on) == 1
    }
    after: dict[str, list[str]] = defaultdict(list)
    for step, need in before.items():
        after[need].append(step)
    for first in [need for need in after if need not in before]:
        row = [first]
        while len(nexts := after.get(row[-1], [])) == 1:
            row.append(nexts[0])
        if len(row) >= MANY:
            facts = {"steps": _names(row), "count": str(len(row))}
            yield Problem("DR904", f"steps[{index[row[0]]}]", facts)


def _lists(steps: Mapping[str, CheckedStep], index: Mapping[str, int]) -> Iterator[Problem]:
    """Yield steps that call one tool with arguments that differ in one literal alone."""
    groups: dict[tuple[str, str, object], dict[str, str]] = defaultdict(dict)
    for id_, checked in steps.items():
        step = checked.step
        if checked.items is not None or not step.args:
            continue
        rest = step.model_dump(mode="json", exclude=set(_OWN), exclude_defaults=True, by_alias=True)
        shape = _text([checked.tool.name, rest, sorted(checked.depends_on)])
        texts = {name: _text(value) for name, value in step.args.items()}
        for name, text in texts.items():
            if "${" not in text and '"$step"' not in text and '"$secret"' not in text:
                same = tuple(sorted((other, texts[other]) for other in texts if other != name))
                groups[shape, name, same][id_] = text
    taken: set[str] = set()
    for key, calls in sorted(groups.items(), key=lambda group: -len(group[1])):
        names = [id_ for id_ in calls if id_ not in taken]
        if len(names) >= MANY and len({calls[id_] for id_ in names}) > 1:
            taken.update(names)
            facts = {"steps": _names(names), "tool": steps[names[0]].tool.name, "argument": key[1]}
            yield Problem("DR905", f"steps[{index[names[0]]}]", facts)


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)


def _names(names: Sequence[str]) -> str:
    more = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")

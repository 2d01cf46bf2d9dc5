"""Where data gets to a call that does not accept it: found by the labels, and worded with the way that the data takes.

The five kinds, by their codes:

- ``DR501``: what others can write gets into a guarded argument; or data that the guard does not accept.
- ``DR502``: a planner has written the call after it was shown what others can write. It may look, and may not act.
- ``DR503``: what must not leave gets into a call that carries it out.
- ``DR504``: what others can write decides whether the call is made, and its guard looks at that; or such a planner has
  written a step that stood before the call as a check.
- ``DR505``: an agent that has read what others can write may make a guarded call by itself. It asks at that call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from dagrun.errors import Problem
from dagrun.kernel.checks.checked_plan import Ask, CheckedStep
from dagrun.kernel.checks.flow.labels import (
    PLANNED,
    Author,
    Define,
    FlowLabels,
    argument_references,
    condition_references,
)
from dagrun.kernel.checks.flow.sources import ToolFlow
from dagrun.kernel.model.flow.marks import FlowViolation
from dagrun.kernel.model.reference import Reference, Template
from dagrun.kernel.model.tool import AnyTool

_MOST_STEPS: Final = 8  # of a way that is shown
_MOST_NAMES: Final = 4
_MOST_FOUND: Final = 10  # of one call: one is enough to ask, and a hostile plan may have thousands


@dataclass(frozen=True, slots=True)
class Found:
    """One crossing of a step.

    Attributes:
        code: The code of the problem.
        place: Where it is in the step: ``args.recipient``, ``when``, or empty for all of it.
        facts: The facts for the sentence.
    """

    code: str
    place: str
    facts: Mapping[str, str]

    @property
    def sentence(self) -> str:
        """The crossing in words."""
        return Problem(self.code, self.place, self.facts).sentence


@dataclass(slots=True)
class _Look:
    """One step under examination.

    Attributes:
        labels: The labels of the run.
        define: Returns the definitions of steps.
        id: The id of the step.
        checked: The step.
        author: Its author.
        items: The list of the ``for_each`` that it is, or that it is an element of.
    """

    labels: FlowLabels
    define: Define
    id: str
    checked: CheckedStep
    author: Author
    items: Template | None


def crossings(
    labels: FlowLabels,
    define: Define,
    id_: str,
    checked: CheckedStep,
    tool: AnyTool,
    *,
    items: Template | None = None,
    author: Author = PLANNED,
) -> list[Found]:
    """Find where data gets to the call of a tool by a step, and is not accepted there.

    Args:
        labels: The labels of all steps before it.
        define: Returns the definitions of steps, to tell the way of the data.
        id_: The id of the step.
        checked: The step.
        tool: Its tool, or its fallback.
        items: The list of the ``for_each`` that it is an element of.
        author: Who has written it.
    """
    rules, facts = labels.rules, labels.rules.facts(tool)
    items = checked.items if items is None else items
    look = _Look(labels, define, id_, checked, author, items)
    found = []
    if facts.acts and author.whole & rules.untrusted:
        seen = _listed(rules.names_of(author.whole, rules.untrusted))
        found.append(Found("DR502", "", {"step": id_, "tool": tool.name, "seen": seen}))
    elif facts.acts and labels.authors:
        found += _behind_checks(look, tool)
    if facts.is_guarded:
        found += islice(_at_arguments(look, tool, facts, is_author_said=bool(found)), _MOST_FOUND)
        if facts.control and facts.acts and not any(one.code == "DR504" for one in found):
            found += _at_conditions(look, tool)
        if facts.inner:
            found += _inside(look, tool, facts)
    return found


def _at_arguments(look: _Look, tool: AnyTool, facts: ToolFlow, *, is_author_said: bool) -> Iterator[Found]:
    """Yield the crossings of arguments; their literals count only if the author is not named already."""
    rules, names = look.labels.rules, tool.arguments.names
    used = look.labels.by_argument(look.checked, look.items)
    for name in look.checked.step.args:
        written = look.author.of(name) & ~(rules.untrusted if is_author_said else 0)
        sources, parameter = written | used.get(name, 0), names.get(name, name)
        bad = 0
        for guard in facts.guards:
            if guard.takes(parameter):
                bad |= rules.refused(guard, sources)
        if bad:
            yield Found("DR501", f"args.{name}", _facts(look, tool, name, bad))
        if facts.keeps and sources & rules.private:
            yield Found("DR503", f"args.{name}", _facts(look, tool, name, sources & rules.private))


def _at_conditions(look: _Look, tool: AnyTool) -> Iterator[Found]:
    labels = look.labels
    bad = (labels.conditions(look.checked, look.items) | look.author.call) & labels.rules.untrusted
    if bad:
        listed = look.items.references if look.items is not None else ()
        references = [*listed, *condition_references(look.checked)]
        place = "when" if look.checked.step.when is not None else "for_each"
        yield Found("DR504", place, _way_facts(look, tool, references, bad))


def _behind_checks(look: _Look, tool: AnyTool) -> Iterator[Found]:
    """Yield the violation of a call that depends, by order or condition only, on a step by an influenced planner."""
    labels, checked = look.labels, look.checked
    looked_at = dict.fromkeys(reference.step for reference in condition_references(checked))
    waits_for = (need for need in checked.depends_on if need not in checked.value_sources)
    for need in (*looked_at, *waits_for):
        if labels.steered((need,)):
            bad = labels.whole[need] & labels.rules.untrusted or labels.seen & labels.rules.untrusted
            facts = _way_facts(look, tool, [Reference(need)], bad)
            yield Found("DR504", "when" if need in looked_at else "depends_on", facts)
            return


def _inside(look: _Look, tool: AnyTool, facts: ToolFlow) -> Iterator[Found]:
    """Yield the crossings of calls that an agent makes by itself; it is the author of their arguments."""
    labels = look.labels
    rules = labels.rules
    sources = labels.given(look.checked, look.author, look.items) | facts.gives
    for name, inner in _all_inside(facts):
        is_looked_at = inner.acts or bool(inner.guards)
        bad = sources & rules.untrusted if is_looked_at else 0
        for guard in inner.guards:
            bad |= rules.refused(guard, sources & ~rules.source(tool.name)) if guard.accepts is not None else 0
        bad |= sources & rules.private if inner.keeps else 0
        if bad:
            seen = _listed(rules.names_of(bad))
            yield Found("DR505", "tool", {"step": look.id, "tool": tool.name, "inner": name, "seen": seen})


def _all_inside(facts: ToolFlow) -> Iterator[tuple[str, ToolFlow]]:
    """Yield the tools that an agent may call, and those that its own agents may call."""
    for name, inner in facts.inner.items():
        yield name, inner
        yield from _all_inside(inner)


def _facts(look: _Look, tool: AnyTool, argument: str, bad: int) -> dict[str, str]:
    references = list(argument_references(look.checked, argument))
    return {**_way_facts(look, tool, references, bad), "argument": argument}


def _way_facts(look: _Look, tool: AnyTool, references: list[Reference], bad: int) -> dict[str, str]:
    labels = look.labels
    rules = labels.rules
    guilty = [reference for reference in references if labels.of(reference, look.items) & bad]
    if guilty:
        what, way = ", ".join(map(str, guilty[:_MOST_NAMES])), way_of(look, guilty[0], bad)
    else:
        what, way = "the text of its author", _listed(rules.names_of(bad))
    which = (
        "others can write" if bad & rules.untrusted else "must not leave" if bad & rules.private else "it does not take"
    )
    return {"step": look.id, "tool": tool.name, "what": what, "way": way, "which": which}


def way_of(look: _Look, reference: Reference, bad: int) -> str:
    """Return the path that data from a bad source takes to a reference: the last step first."""
    labels, items = look.labels, look.items
    parts: list[str] = []
    passed: set[str] = set()
    while len(parts) < _MOST_STEPS:
        while reference.step == "item" and items is not None:
            reference = next((one for one in items.references if labels.of(one) & bad), Reference(""))
        if reference.step == "input":
            name = reference.path[0] if reference.path else ""
            parts.append(f"the input {name}".rstrip())
            break
        checked = look.define(reference.step)
        if checked is None or reference.step in passed:
            break
        passed.add(reference.step)
        parts.append(f"{reference.step} ({checked.tool.name})")
        tools = [tool for tool in (checked.tool, checked.fallback) if tool is not None]
        if any(labels.rules.facts(tool).gives & bad for tool in tools):
            break
        author = labels.author(reference.step).whole & bad
        if author:
            parts.append(f"its planner, which was shown {_listed(labels.rules.names_of(author))}")
            break
        items = checked.items
        ways = [*checked.args.references, *(items.references if items is not None else ())]
        further = next((one for one in ways if labels.of(one, items) & bad), None)
        if further is None:
            break
        reference = further
    return " <- ".join(parts)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"{', '.join(names[:_MOST_NAMES])}{more}" or "nothing"


# Asks ----------------------------------------------------------------------------------------------------------------


def with_asks(labels: FlowLabels, checked: CheckedStep, own: list[Found], fallback: list[Found]) -> CheckedStep:
    """Return a step whose calls a person is asked about, for these crossings and no others of the trust boundary."""
    asks = (*_others(checked.asks), *_asks(labels, checked.tool, own))
    fallback_asks = _others(checked.fallback_asks)
    if checked.fallback is not None:
        fallback_asks = (*fallback_asks, *_asks(labels, checked.fallback, fallback))
    inner = {
        found.facts["inner"]: _crossing(labels, found, found.facts["inner"])
        for found in (*own, *fallback)
        if found.code == "DR505"
    }
    if (asks, fallback_asks, inner) == (checked.asks, checked.fallback_asks, checked.inner_asks or {}):
        return checked
    return replace(checked, asks=asks, fallback_asks=fallback_asks, inner_asks=inner or None)


def _others(asks: tuple[Ask, ...]) -> tuple[Ask, ...]:
    return tuple(ask for ask in asks if ask.crossing is None)


def _asks(labels: FlowLabels, tool: AnyTool, found: list[Found]) -> Iterator[Ask]:
    for one in found:
        if one.code != "DR505":  # its calls ask by themselves
            crossing = _crossing(labels, one, tool.name)
            yield Ask(crossing.reason, crossing=crossing)


def _crossing(labels: FlowLabels, found: Found, tool: str) -> FlowViolation:
    return FlowViolation(tool, found.sentence, labels.rules.flow.unless)

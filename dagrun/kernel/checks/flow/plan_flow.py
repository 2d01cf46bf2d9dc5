"""The trust boundary of a whole plan: every step labelled, and the calls that a person must agree to found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from graphlib import TopologicalSorter

from dagrun.kernel.checks.checked_plan import CheckedStep
from dagrun.kernel.checks.findings import Findings
from dagrun.kernel.checks.flow.crossings import crossings, with_asks
from dagrun.kernel.checks.flow.labels import FlowLabels
from dagrun.kernel.checks.flow.sources import PLAN, ToolFlow, rules_of
from dagrun.kernel.model.flow.boundary import Flow
from dagrun.kernel.model.tool import AnyTool


def label_plan(
    flow: Flow, steps: list[CheckedStep], index: Mapping[str, int], findings: Findings, *, is_ordered: bool
) -> FlowLabels:
    """Label the steps of a plan, and change those that a person must be asked about.

    Args:
        flow: The trust boundary.
        steps: The steps; changed in place.
        index: The place of each id in the plan.
        findings: Collects the problems, where the policy refuses.
        is_ordered: Whether every step is written after all steps that it waits for.
    """
    labels = FlowLabels(rules_of(flow))
    if not is_ordered and findings.has_errors:
        return labels  # there may be a cycle, and the plan is refused in any case
    doubtful = set(_label_all(labels, steps if is_ordered else list(_in_order(steps))))
    if doubtful:
        known = {checked.step.id: checked for checked in steps}
        for place, checked in enumerate(steps):
            if checked.step.id in doubtful:
                steps[place] = known[checked.step.id] = _guarded(labels, known, checked, index, findings)
    return labels


def _label_all(labels: FlowLabels, steps: Iterable[CheckedStep]) -> Iterator[str]:
    """Label the steps of a first plan, one after the other; yield the ids of those that must be looked at."""
    rules, whole, clean, label_of = labels.rules, labels.whole, labels.clean, labels.whole.get
    known: dict[AnyTool, ToolFlow] = {}
    for checked in steps:
        tool, sources = checked.tool, PLAN
        facts = known.get(tool)
        if facts is None:
            facts = known[tool] = rules.facts(tool)
        for reference in checked.args.references:
            found = label_of(reference.step)  # the same as `labels.of`, without a call at nearly every reference
            sources |= labels.of(reference, checked.items) if found is None or clean else found
        if checked.items is None and checked.fallback is None and facts.is_simple:
            whole[checked.step.id] = facts.gives | sources
            is_guarded = facts.is_guarded
        else:
            sources |= labels.joined_of(checked.items)
            labels.label(checked.step.id, checked, sources)
            is_guarded = facts.is_guarded or (checked.fallback is not None and rules.facts(checked.fallback).is_guarded)
        if not is_guarded:
            continue
        is_suspect = sources & rules.suspect or rules.asks_for_more or facts.control or facts.inner
        if is_suspect and _may_cross(labels, checked, facts):
            yield checked.step.id


def _may_cross(labels: FlowLabels, checked: CheckedStep, facts: ToolFlow) -> bool:
    """Whether a closer look may find anything: most calls take data of others where nothing is guarded."""
    rules = labels.rules
    if rules.asks_for_more or facts.control or facts.inner or checked.fallback is not None:
        return True
    names = checked.tool.arguments.names
    for reference, place in zip(checked.args.references, checked.args.places, strict=True):
        is_taken = facts.keeps or any(guard.takes(names.get(str(place[0]), str(place[0]))) for guard in facts.guards)
        if is_taken and labels.of(reference, checked.items) & rules.suspect:
            return True
    return False


def _in_order(steps: list[CheckedStep]) -> Iterator[CheckedStep]:
    known = {checked.step.id: checked for checked in steps}
    yield from map(
        known.__getitem__, TopologicalSorter({id_: one.depends_on for id_, one in known.items()}).static_order()
    )


def _guarded(
    labels: FlowLabels,
    known: Mapping[str, CheckedStep],
    checked: CheckedStep,
    index: Mapping[str, int],
    findings: Findings,
) -> CheckedStep:
    """Return a step with the questions of the trust boundary, or report its crossings."""
    rules, id_ = labels.rules, checked.step.id
    tools = [tool for tool in (checked.tool, checked.fallback) if tool is not None]
    found = [crossings(labels, known.get, id_, checked, tool) for tool in tools]
    if not any(found):
        return checked
    if rules.flow.otherwise == "refuse":
        for one in (one for of_tool in found for one in of_tool):
            findings.add(one.code, index[id_], one.place, **one.facts)
        return checked
    return with_asks(labels, checked, found[0], found[1] if len(found) > 1 else [])

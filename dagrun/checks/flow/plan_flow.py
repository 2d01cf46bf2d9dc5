"""The trust boundary of a whole plan: every step labelled, and the calls that a person must agree to found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from graphlib import TopologicalSorter

from dagrun.checks.checked_plan import CheckedStep
from dagrun.checks.findings import Findings
from dagrun.checks.flow.crossings import crossings, with_asks
from dagrun.checks.flow.labels import PLANNED, FlowLabels
from dagrun.checks.flow.sources import PLAN, FlowRules
from dagrun.model.flow.boundary import Flow


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
    labels = FlowLabels(FlowRules(flow))
    if not is_ordered and findings.has_errors:
        return labels  # there may be a cycle, and the plan is refused in any case
    for checked in steps if is_ordered else _in_order(steps):
        labels.label(checked.step.id, checked, labels.given(checked, PLANNED))
    rules = labels.rules
    if rules.suspect or rules.asks_for_more:
        known = {checked.step.id: checked for checked in steps}
        for place, checked in enumerate(steps):
            changed = _guarded(labels, known, checked, index, findings)
            if changed is not checked:
                steps[place] = known[checked.step.id] = changed
    return labels


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
    if not any(rules.facts(tool).is_guarded for tool in tools):
        return checked
    if not rules.asks_for_more and not _is_suspect(labels, checked):
        return checked
    found = [crossings(labels, known.get, id_, checked, tool) for tool in tools]
    if not any(found):
        return checked
    if rules.flow.otherwise == "refuse":
        for one in (one for of_tool in found for one in of_tool):
            findings.add(one.code, index[id_], one.place, **one.facts)
        return checked
    return with_asks(labels, checked, found[0], found[1] if len(found) > 1 else [])


def _is_suspect(labels: FlowLabels, checked: CheckedStep) -> bool:
    """Whether anything that decides about the call of a step has a source that matters."""
    rules = labels.rules
    sources = PLAN | labels.given(checked, PLANNED) | labels.conditions(checked)
    if checked.tool.inner_tools:
        sources |= labels.whole[checked.step.id]
    return bool(sources & rules.suspect)

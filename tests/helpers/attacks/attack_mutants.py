"""Trust boundaries with a hole, in plans as in patches: the five ways of data that are easily forgotten."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from dagrun.kernel.checks.checked_plan import CheckedStep
from dagrun.kernel.checks.flow import plan_flow
from dagrun.kernel.checks.flow.labels import FlowLabels
from dagrun.kernel.checks.flow.sources import PLAN
from flow_mutants import FLOW_MUTANTS

LabelAll = Callable[[FlowLabels, Iterable[CheckedStep]], Iterator[str]]


def _labels(given_of: Callable[[FlowLabels, CheckedStep], int]) -> LabelAll:
    """Label the steps of a first plan by what each is given; look at each of them."""

    def label_all(labels: FlowLabels, steps: Iterable[CheckedStep]) -> Iterator[str]:
        for checked in steps:
            labels.label(checked.step.id, checked, given_of(labels, checked))
            yield checked.step.id

    return label_all


def without_texts(labels: FlowLabels, checked: CheckedStep) -> int:
    """A reference inside a longer text does not count."""
    given = PLAN | labels.joined_of(checked.items)
    for hole in checked.args.holes:
        given |= 0 if hole.is_text else labels.of(hole.reference, checked.items)
    return given


def all_given(labels: FlowLabels, checked: CheckedStep) -> int:
    """All that counts."""
    return PLAN | labels.joined_of(checked.args, checked.items) | labels.joined_of(checked.items)


def unless_endorsed(labels: FlowLabels, checked: CheckedStep) -> int:
    """A step may say of itself that it can be trusted."""
    return PLAN if "endorsed" in checked.step.description else all_given(labels, checked)


def _with_plans(hole: str, given_of: Callable[[FlowLabels, CheckedStep], int]) -> dict[Any, Any]:
    return {**FLOW_MUTANTS[hole], plan_flow._label_all: _labels(given_of)}


ATTACK_MUTANTS: Final[Mapping[str, Mapping[Any, Any]]] = {
    "interpolation forgotten": _with_plans("interpolation forgotten", without_texts),
    "fallback forgotten": FLOW_MUTANTS["fallback forgotten"],
    "item forgotten": FLOW_MUTANTS["item forgotten"],
    "patch author forgotten": FLOW_MUTANTS["patch author forgotten"],
    "endorsement by plan": _with_plans("endorsement by plan", unless_endorsed),
}
SOUND: Final = {plan_flow._label_all: _labels(all_given)}
"""No hole: the way in which these mutants label plans."""

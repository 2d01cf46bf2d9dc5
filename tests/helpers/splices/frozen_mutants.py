"""Frozen plans with a hole: parts that forget one thing of a call."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from dagrun import Step
from dagrun.kernel.checks.checked_plan import CheckedStep
from dagrun.kernel.graph.frozen_plan import FrozenPlan, parts_of
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.patches import plan_freeze
from dagrun.kernel.graph.patches.plan_freeze import FreezeValidation, frozen_plan_of

_parts_of: Final = parts_of


def _without(*fields: str) -> Callable[..., dict[str, str]]:
    def parts(step: Step, kind_of: Callable[[str], str | None]) -> dict[str, str]:
        said = _parts_of(step, kind_of)
        return {name: "" if name.startswith(fields) else value for name, value in said.items()}

    return parts


def by_name(step: Step, kind_of: Callable[[str], str | None]) -> dict[str, str]:
    """Whatever a reference means, only that there is one counts."""
    return _parts_of(step, lambda _: "any")


class TakesEveryTool(FrozenPlan):
    """The arguments count, and not who gets them."""

    def fits(self, id_: str, checked: CheckedStep) -> bool:
        return True


class ForgetsFallbacks(FrozenPlan):
    """Which tool stands in does not count."""

    def fits(self, id_: str, checked: CheckedStep) -> bool:
        return checked.tool in (self.calls[id_].tool, self.calls[id_].fallback)


class LetsDoublesPass(FreezeValidation):
    """A call may be repeated as often as one wants."""

    def _look_for_doubles(self, touched: Collection[str]) -> None:
        pass


class LetsGoBefore(FreezeValidation):
    """What stood before a call does not count."""

    def _look_before(self, id_: str, checked: CheckedStep) -> None:
        pass


class SeesNewStepsAlone(FreezeValidation):
    """A step that keeps its id is not looked at."""

    def _find(self, id_: str, checked: CheckedStep) -> None:
        if id_ in self.after.graph.nodes:
            self._origins[id_] = self._model(id_)
        else:
            super()._find(id_, checked)


class TrustsElements(FreezeValidation):
    """What stands in for one element of a list is not looked at."""

    def _found_element(self, id_: str, checked: CheckedStep, parent: Any) -> list[str]:
        return [self._origin(parent.id)]


class SkipsFollowers(FreezeValidation):
    """A step that changes only because of another one is taken for the same call."""

    def _find(self, id_: str, checked: CheckedStep) -> None:
        if id_ not in self.changed:
            self._origins[id_] = self._model(id_)
        else:
            super()._find(id_, checked)


def grows(graph: LiveGraph) -> FrozenPlan:
    """The plan as it stands is the first plan, also after patches."""
    return FrozenPlan({node.id: node.plan for node in graph.nodes.values() if not node.is_defined_by_parent})


def is_not_made(node: Any) -> bool:
    """Nothing has been called so far."""
    return False


FROZEN_MUTANTS: Final[Mapping[str, Mapping[Any, Any]]] = {
    "arguments forgotten": {parts_of: _without("args.")},
    "conditions forgotten": {parts_of: _without("when")},
    "defaults forgotten": {parts_of: _without("default", "on_failure")},
    "lists forgotten": {parts_of: _without("for_each")},
    "sources forgotten": {parts_of: by_name},
    "tools forgotten": {FrozenPlan: TakesEveryTool},
    "fallbacks forgotten": {FrozenPlan: ForgetsFallbacks},
    "doubles forgotten": {FreezeValidation: LetsDoublesPass},
    "what was called is forgotten": {plan_freeze._is_made: is_not_made},
    "order forgotten": {FreezeValidation: LetsGoBefore},
    "changed steps forgotten": {FreezeValidation: SeesNewStepsAlone},
    "followers forgotten": {FreezeValidation: SkipsFollowers},
    "elements forgotten": {FreezeValidation: TrustsElements},
    "the plan thaws with each patch": {frozen_plan_of: grows},
}

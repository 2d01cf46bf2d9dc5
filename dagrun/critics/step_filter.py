"""The base class of all critics: a name, and the steps whose outputs it judges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from dagrun.errors import ContractError
from dagrun.kernel.model.plan import Step


class FilterOptions(TypedDict, total=False):
    """The options of `StepFilter`, for critics that pass them on."""

    steps: Sequence[str]
    tools: Sequence[str]


class StepFilter:
    """Decides which steps a critic judges.

    Args:
        name: The name of the critic, for records and messages.
        steps: Ids of the steps whose outputs are judged. A step that replaces one of them in a patch has another id.
        tools: Names of the tools whose outputs are judged. Without *steps* and *tools*, every output is judged.

    Raises:
        ContractError: An argument has the wrong type.
    """

    __slots__ = ("_steps", "_tools", "name")

    def __init__(self, name: str, *, steps: Sequence[str] = (), tools: Sequence[str] = ()) -> None:
        if not name:
            raise ContractError("a critic needs a name, such as 'row count'")
        self.name = name
        self._steps = _names(name, "steps", steps)
        self._tools = _names(name, "tools", tools)

    def applies_to(self, step: Step) -> bool:
        """Whether the critic judges the output of *step*."""
        is_for_all = not self._steps and not self._tools
        return is_for_all or step.id in self._steps or step.tool in self._tools


def _names(critic: str, what: str, names: Sequence[str]) -> frozenset[str]:
    # A text is a sequence, too: its letters would be taken for the ids of steps.
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise ContractError(f"critic {critic}: {what} must be a list of names")
    return frozenset(names)

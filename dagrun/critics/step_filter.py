"""Which steps a critic looks at."""

from __future__ import annotations

from collections.abc import Sequence

from dagrun.errors import ContractError
from dagrun.model.plan import Step


class StepFilter:
    """The part that all critics share.

    Args:
        name: Of the critic, for records and messages.
        steps: Ids of the steps whose output it looks at. A step that a patch puts in the place of one has another id.
        tools: Names of tools: it looks at the output of every step that calls one of them. With neither steps nor
            tools, it looks at every step.

    Raises:
        ContractError: One of them is something else.
    """

    __slots__ = ("_steps", "_tools", "name")

    def __init__(self, name: str, *, steps: Sequence[str] = (), tools: Sequence[str] = ()) -> None:
        if not name:
            raise ContractError("a critic needs a name, such as 'row count'")
        self.name = name
        self._steps = _names(name, "steps", steps)
        self._tools = _names(name, "tools", tools)

    def applies_to(self, step: Step) -> bool:
        """Whether it looks at the output of *step*."""
        is_for_all = not self._steps and not self._tools
        return is_for_all or step.id in self._steps or step.tool in self._tools


def _names(critic: str, what: str, names: Sequence[str]) -> frozenset[str]:
    # A text is a sequence of letters: taken for one, it would be a critic of steps that do not exist.
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise ContractError(f"critic {critic}: {what} must be a list of names")
    return frozenset(names)

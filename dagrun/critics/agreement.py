"""`AgreementCritic`: compares several sources, and reports contradictions."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from dagrun.critics.step_filter import StepFilter
from dagrun.errors import ContractError, shorten
from dagrun.kernel.model.critic import SOURCES, Verdict
from dagrun.kernel.model.outcome import Outcome
from dagrun.kernel.model.plan import Step
from dagrun.kernel.model.signature import refuse_async

# Returns what a source says, of its output; `None` if it says nothing about it.
Says: TypeAlias = Callable[[Any], Any]

_MAX_SHOWN: Final = 5


class AgreementCritic(StepFilter):
    """Compares the sources of a step, which are the steps whose outputs it uses, and reports contradictions.

    The output of the step is judged by what it was made of: a sum of two reports that name different totals may be
    right, but somebody should look. The verdict is ``contradictory``, and the planner is asked (trigger
    ``contradiction``) before any step uses the output. Its confidence is the share of the sources that agree with
    most, so the answer of the run may be held for a person (`Policy.min_confidence`). Fewer than two sources that say
    anything pass. Of a ``for_each``, each element is a source.

    Args:
        name: The name of the critic, for records and messages.
        says: Returns what is compared, of the output of a source: a number, a text, any JSON; `None` for nothing. By
            default the whole output. It is called in the event loop, so it must be quick.
        tolerance: Numbers agree if they differ by at most this part of the greater one.
        steps: Ids of the steps whose sources are compared.
        tools: Names of the tools whose sources are compared. Without *steps* and *tools*, every step's are.

    Raises:
        ContractError: An argument is not valid.

    Examples:
        >>> critic = AgreementCritic("totals", lambda report: report["total"], tolerance=0.01, tools=["summarise"])
    """

    __slots__ = ("_says", "_tolerance")

    def __init__(
        self,
        name: str = "agreement",
        says: Says | None = None,
        *,
        tolerance: float = 0.0,
        steps: Sequence[str] = (),
        tools: Sequence[str] = (),
    ) -> None:
        super().__init__(name, steps=steps, tools=tools)
        if says is not None:
            refuse_async(says, f"critic {name}: what a source says is a function; it")
        if not 0 <= tolerance < math.inf:
            raise ContractError(f"critic {name}: tolerance is a number of at least 0, got {tolerance!r}")
        self._says = says
        self._tolerance = tolerance

    async def review(self, step: Step, outcome: Outcome) -> Verdict:
        """Compare the sources of a step."""
        sources = SOURCES.get()
        said = self._all(sources() if sources is not None else {})
        if len(said) < 2:
            return Verdict("pass")
        groups = self._groups(said)
        most = max(groups, key=len)
        confidence = len(most) / len(said)
        if len(groups) == 1:
            return Verdict("pass", confidence=confidence)
        return Verdict("contradictory", reason=_words(groups, said), confidence=confidence)

    def _all(self, sources: Mapping[str, Any]) -> dict[str, Any]:
        said: dict[str, Any] = {}
        for id_, output in sources.items():
            # A list is what several sources gave, if it is all that there is.
            parts = output if len(sources) == 1 and isinstance(output, list) else None
            for place, part in enumerate(parts) if parts is not None else ((None, output),):
                value = part if self._says is None else self._says(part)
                if value is not None:
                    said[id_ if place is None else f"{id_}[{place}]"] = value
        return said

    def _groups(self, said: Mapping[str, Any]) -> list[list[str]]:
        """Return the sources in groups that agree with their first member."""
        groups: list[list[str]] = []
        for id_, value in said.items():
            group = next((group for group in groups if self._agree(said[group[0]], value)), None)
            if group is None:
                groups.append([id_])
            else:
                group.append(id_)
        return groups

    def _agree(self, one: Any, other: Any) -> bool:
        if _is_number(one) and _is_number(other):
            return math.isclose(one, other, rel_tol=self._tolerance, abs_tol=0.0)
        if isinstance(one, str) and isinstance(other, str):
            return " ".join(one.split()).casefold() == " ".join(other.split()).casefold()
        return json.dumps(one, sort_keys=True, default=str) == json.dumps(other, sort_keys=True, default=str)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _words(groups: list[list[str]], said: Mapping[str, Any]) -> str:
    shown = [f"{', '.join(group[:3])}: {shorten(repr(said[group[0]]), 60)}" for group in groups[:_MAX_SHOWN]]
    return f"the sources contradict each other: {'; '.join(shown)}"

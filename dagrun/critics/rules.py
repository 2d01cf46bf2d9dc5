"""`RuleCritic`: a Python function that judges outputs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from dagrun.critics.step_filter import StepFilter
from dagrun.errors import ContractError
from dagrun.kernel.model.critic import Verdict
from dagrun.kernel.model.outcome import Outcome
from dagrun.kernel.model.plan import Step
from dagrun.kernel.model.signature import refuse_async

Rule: TypeAlias = Callable[[Any], "bool | str | Verdict | None"]

_NOT_PASSED = "the rule did not pass it"


class RuleCritic(StepFilter):
    """Asks a function about each output.

    The function gets a copy of the output as plain data. It returns `True` or `None` for a pass, `False` for a fail, a
    text for a fail with that reason, or a `Verdict`. It is called in the event loop, so it must be quick: nothing can
    interrupt it, and all other steps wait. A rule that has to wait needs a class of its own with an async ``review``
    (see `Critic`).

    Args:
        name: The name of the critic, for records and messages.
        rule: The function, which is not async.
        steps: Ids of the steps whose outputs are judged.
        tools: Names of the tools whose outputs are judged. Without *steps* and *tools*, every output is judged.

    Raises:
        ContractError: An argument has the wrong type.

    Examples:
        >>> def sums_up(output):
        ...     return sum(output["parts"]) == output["total"] or "the parts do not make the total"
        >>> critic = RuleCritic("sums up", sums_up, tools=["split_revenue"])
    """

    __slots__ = ("_rule",)

    def __init__(self, name: str, rule: Rule, *, steps: Sequence[str] = (), tools: Sequence[str] = ()) -> None:
        super().__init__(name, steps=steps, tools=tools)
        refuse_async(rule, f"critic {name}: its rule")
        self._rule = rule

    async def review(self, step: Step, outcome: Outcome) -> Verdict:
        """Judge the output of a successful outcome.

        Raises:
            ContractError: The rule returned something else than a bool, `None`, a text or a `Verdict`.
        """
        return self._verdict(self._rule(outcome.output))

    def _verdict(self, answer: object) -> Verdict:
        match answer:
            case True | None:
                return Verdict("pass")
            case False:
                return Verdict("fail", reason=_NOT_PASSED)
            case str():
                return Verdict("fail", reason=answer or _NOT_PASSED)
            case Verdict():
                return answer
        if inspect.iscoroutine(answer):  # from a lambda that calls an async function
            answer.close()
        # Other values are refused: the truth value of an array, or of a number of faults, would often be misleading.
        raise ContractError(
            f"critic {self.name}: its rule gave {type(answer).__name__}; it gives True, False, None, a reason or a "
            "Verdict (bool(…) makes True or False of anything else)"
        )

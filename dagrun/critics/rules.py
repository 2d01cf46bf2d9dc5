"""Rules for outputs, as Python functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from dagrun.critics.step_filter import StepFilter
from dagrun.errors import ContractError
from dagrun.model.critic import Verdict
from dagrun.model.outcome import Outcome
from dagrun.model.plan import Step
from dagrun.model.signature import refuse_async

Rule: TypeAlias = Callable[[Any], "bool | str | Verdict | None"]

_NOT_PASSED = "the rule did not pass it"


class RuleCritic(StepFilter):
    """Asks a function about an output.

    The function gets the output as plain data of its own. It gives `True` or `None` for a pass, `False` for a fail, a
    text for a fail with that reason, or a `Verdict`. It is called in the event loop, where nothing can interrupt it,
    and everything else stands still meanwhile: it must be quick. What has to wait for something is a class of your
    own with an async ``review`` (see `Critic`).

    Args:
        name: Of the critic, for records and messages.
        rule: The function, not an async one.
        steps: Ids of the steps whose output it looks at.
        tools: Names of tools whose outputs it looks at. With neither steps nor tools, it looks at every output.

    Raises:
        ContractError: One of them is something else.

    Example:
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
        """Judge an outcome that has succeeded.

        Raises:
            ContractError: The rule gave something that is no answer.
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
        if inspect.iscoroutine(answer):  # of a lambda around an async function
            answer.close()
        # Not taken for true or false: that of an array, or of a count of faults, would often be the wrong one.
        raise ContractError(
            f"critic {self.name}: its rule gave {type(answer).__name__}; it gives True, False, None, a reason or a "
            "Verdict (bool(…) makes True or False of anything else)"
        )

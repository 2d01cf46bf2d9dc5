"""`CountCritic`: too few, too many, or surprisingly few or many."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dagrun.critics.step_filter import StepFilter
from dagrun.errors import ContractError, shorten
from dagrun.kernel.model.critic import Verdict
from dagrun.kernel.model.outcome import Outcome
from dagrun.kernel.model.plan import Step
from dagrun.kernel.model.reference import BadReference, parse_path
from dagrun.kernel.model.value import describe, value_at


class CountCritic(StepFilter):
    """Compares the length of a list, or a number, with thresholds.

    An output that has neither a list nor a number at *path* fails.

    Args:
        name: The name of the critic, for records and messages.
        path: The place in the output, such as ``rows`` or ``tables[0].count``; empty for the whole output.
        at_least: The output fails with a smaller count.
        at_most: The output fails with a larger count.
        expected: The expected count, more than 0.
        factor: The output is surprising if the count is over *factor* times larger or smaller than *expected*; more
            than 1.
        steps: Ids of the steps whose outputs are judged.
        tools: Names of the tools whose outputs are judged. Without *steps* and *tools*, every output is judged.

    Raises:
        ContractError: The path is not valid, or the thresholds contradict each other.

    Examples:
        >>> critic = CountCritic("rows", "rows", at_least=1, expected=5_000, factor=10, steps=["load"])
    """

    __slots__ = ("_at_least", "_at_most", "_expected", "_factor", "_path", "_place")

    def __init__(
        self,
        name: str,
        path: str = "",
        *,
        at_least: float | None = None,
        at_most: float | None = None,
        expected: float | None = None,
        factor: float = 5.0,
        steps: Sequence[str] = (),
        tools: Sequence[str] = (),
    ) -> None:
        super().__init__(name, steps=steps, tools=tools)
        try:
            self._path = parse_path(path)
        except BadReference as error:
            raise ContractError(f"critic {name}: {path!r} is not a path: {error}") from None
        self._place = path or "the output"
        limits = {"at_least": at_least, "at_most": at_most, "expected": expected, "factor": factor}
        for word, limit in limits.items():
            _must_be_number(name, word, limit)
        if fault := _fault(at_least, at_most, expected, factor):
            raise ContractError(f"critic {name}: {fault}")
        self._at_least, self._at_most, self._expected, self._factor = at_least, at_most, expected, factor

    async def review(self, step: Step, outcome: Outcome) -> Verdict:
        """Judge the output of a successful outcome."""
        try:
            value = value_at(outcome.output, self._path)
        except LookupError as error:
            return Verdict("fail", reason=f"nothing to count at {self._place}: {error.args[0]}")
        if isinstance(value, list):
            return self._judge(len(value))
        if isinstance(value, int | float) and not isinstance(value, bool):
            return self._judge(value)
        return Verdict("fail", reason=f"{self._place} is {describe(value)}, neither a list nor a number")

    def _judge(self, count: float) -> Verdict:
        shown = f"{self._place}: {shorten(str(count), 40)}"
        if self._at_least is not None and count < self._at_least:
            return Verdict("fail", reason=f"{shown}, at least {self._at_least} wanted")
        if self._at_most is not None and count > self._at_most:
            return Verdict("fail", reason=f"{shown}, at most {self._at_most} wanted")
        surprise = "" if self._expected is None else self._surprise(count, self._expected)
        return Verdict("surprising", reason=f"{shown}, {surprise}") if surprise else Verdict("pass")

    def _surprise(self, count: float, expected: float) -> str:
        if count > expected * self._factor:
            return f"over {self._factor:g} times the {expected} expected"
        # *expected* is divided, and the count not multiplied: a count from an output may be too large for a float.
        return f"under 1/{self._factor:g} of the {expected} expected" if count < expected / self._factor else ""


def _must_be_number(name: str, word: str, limit: object) -> None:
    is_number = isinstance(limit, int | float) and not isinstance(limit, bool) and math.isfinite(limit)
    if limit is not None and not is_number:
        raise ContractError(f"critic {name}: {word} must be a number, got {limit!r}")


def _fault(at_least: float | None, at_most: float | None, expected: float | None, factor: float) -> str:
    if at_least is None and at_most is None and expected is None:
        return "it needs a threshold: at_least, at_most or expected"
    if at_least is not None and at_most is not None and at_least > at_most:
        return f"no count is at least {at_least} and at most {at_most}"
    if expected is not None and expected <= 0:
        return f"expected must be more than 0, got {expected}; at_most=0 says that there should be nothing"
    return f"factor must be more than 1, got {factor}" if factor <= 1 else ""

"""Alert rules: a comparison of a metric with a number, or with its value in the period before.

The grammar is closed, and nothing is evaluated::

    RULE   = METRIC OP BOUND
    OP     = ">" | ">=" | "<" | "<="
    BOUND  = NUMBER ["%"] | [NUMBER "x"] "last" PERIOD
    PERIOD = "day" | "week" | "month" | NUMBER "days"

``cost_per_success > 1.3 x last week`` compares the runs of the last 7 days with those of the 7 days before. A bound
that is a number is compared with the metric over the time that was asked for.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NoReturn

from dagrun.errors import ContractError, shorten
from dagrun.evaluate.metrics.definitions import NAMES, RUN_METRICS, Figure
from dagrun.evaluate.metrics.metrics import within
from dagrun.model.toolbox import hint
from dagrun.observe.run_summary import RunSummary

_OPS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_TOKEN: Final = re.compile(r">=|<=|[<>]|\d+(?:\.\d+)?|\.\d+|[A-Za-z]\w*|\S")
_PERIODS: Final[Mapping[str, int]] = {"day": 1, "week": 7, "month": 30}
_TIMES: Final = ("x", "*")
_DAY: Final = 86_400.0
_FORM: Final = (
    "a rule is METRIC > NUMBER, or METRIC > NUMBER x last week; also with >=, < or <=, and day, month, N days"
)
_ALL: Final = ", ".join(NAMES)
_MEASURES: Final = {one.name: one.measure for one in RUN_METRICS}


@dataclass(frozen=True, slots=True)
class AlertRule:
    """A comparison that should not hold.

    Attributes:
        text: The rule as it was written.
        metric: The name of the metric.
        op: ``>``, ``>=``, ``<`` or ``<=``.
        bound: The number to compare with; of a relative rule, the factor.
        days: Of a relative rule, the days of each of the two periods that are compared; `None` for an absolute one.
    """

    text: str
    metric: str
    op: str
    bound: float
    days: int | None = None


@dataclass(frozen=True, slots=True)
class Alert:
    """The result of a rule for some runs.

    Attributes:
        rule: The rule.
        is_on: Whether its comparison holds; `None` if that cannot be said, as a value is not known.
        text: The comparison with its values, in a sentence.
    """

    rule: AlertRule
    is_on: bool | None
    text: str


def read_rule(text: str) -> AlertRule:
    """Read an alert rule.

    Raises:
        ContractError: *text* is no rule; the message says where, and what is expected there.
    """
    return _RuleReader(text).rule()


class _RuleReader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._words: list[str] = _TOKEN.findall(text)
        self._at = 0

    def rule(self) -> AlertRule:
        metric = self._next("the name of a metric")
        if metric not in NAMES:
            self._fail(f"{shorten(repr(metric), 60)} is no metric{hint(metric, NAMES) or f': {_ALL}'}")
        op = self._next("a comparison")
        if op not in _OPS:
            self._fail(f"after {metric} comes >, >=, < or <=, not {shorten(repr(op), 40)}")
        bound, days = self._bound()
        if self._at < len(self._words):
            self._fail(f"there is more after the end of the rule: {shorten(' '.join(self._words[self._at :]), 60)!r}")
        return AlertRule(self._text.strip(), metric, op, bound, days)

    def _bound(self) -> tuple[float, int | None]:
        word = self._next("a number, or last week")
        if word == "last":
            return 1.0, self._period()
        bound = self._number(word)
        if self._peek() == "%":
            self._at += 1
            return bound / 100, None
        if self._peek() in _TIMES:
            self._at += 1
            if self._next("last") != "last":
                self._fail(f"after {bound:g} x comes last, as in {bound:g} x last week")
            return bound, self._period()
        if self._peek() == "last":
            self._fail(f"write {bound:g} x last …")
        return bound, None

    def _period(self) -> int:
        word = self._next("day, week, month or N days")
        if word in _PERIODS:
            return _PERIODS[word]
        if not word.isdecimal() or self._next("days") != "days" or not 1 <= int(word) <= 3650:
            self._fail("after last comes day, week, month or N days")
        return int(word)

    def _number(self, word: str) -> float:
        try:
            return float(word) if len(word) <= 30 else self._fail("the number is too long")
        except ValueError:
            self._fail(f"expected a number, not {shorten(repr(word), 40)}")

    def _peek(self) -> str:
        return self._words[self._at] if self._at < len(self._words) else ""

    def _next(self, wanted: str) -> str:
        if self._at >= len(self._words):
            self._fail(f"it ends where {wanted} should be")
        self._at += 1
        return self._words[self._at - 1]

    def _fail(self, reason: str) -> NoReturn:
        raise ContractError(f"the rule {shorten(repr(self._text), 100)} cannot be read: {reason} ({_FORM})")


def judge(
    rule: AlertRule, runs: Iterable[RunSummary], *, now: float, since: float | None = None, until: float | None = None
) -> Alert:
    """Return the result of a rule for some runs.

    Args:
        rule: The rule.
        runs: The summaries of all runs; each rule takes those of its own time.
        now: The time of day, in seconds since 1970.
        since: The time that an absolute rule is about: its begin.
        until: Its end.
    """
    known, measured = list(runs), _MEASURES[rule.metric]
    if rule.days is None:
        figure = measured(within(known, since, until))
        return _compared(rule, figure, rule.bound, f"{rule.bound:g}")
    span = rule.days * _DAY
    figure = measured(within(known, now - span, None))
    past = measured(within(known, now - 2 * span, now - span))
    period = f"the {rule.days} days before" if rule.days > 1 else "the day before"
    if past.value is None:
        return Alert(rule, None, f"{rule.metric} cannot be judged: it is not known of {period}{_at_least(past)}")
    return _compared(rule, figure, rule.bound * past.value, f"{rule.bound:g} x {past.value:.4g} of {period}")


def _compared(rule: AlertRule, figure: Figure, bound: float, shown: str) -> Alert:
    compare = _OPS[rule.op]
    if figure.value is not None:
        is_on = compare(figure.value, bound)
        return Alert(rule, is_on, f"{rule.metric} is {figure.value:.4g}, {'' if is_on else 'not '}{rule.op} {shown}")
    if figure.low is not None and rule.op.startswith(">") and compare(figure.low, bound):
        return Alert(rule, True, f"{rule.metric} is at least {figure.low:.4g}, {rule.op} {shown}")
    return Alert(rule, None, f"{rule.metric} cannot be judged: it is not known of these runs{_at_least(figure)}")


def _at_least(figure: Figure) -> str:
    return "" if figure.low is None else f", only that it is at least {figure.low:.4g}"

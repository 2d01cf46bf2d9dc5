"""Alert rules: a comparison of a metric with a number, or with its value in the period before.

The grammar is closed, and nothing is evaluated::

    RULE   = METRIC OP BOUND
    OP     = ">" | ">=" | "<" | "<="
    BOUND  = NUMBER ["%"] | [NUMBER "x"] "last" PERIOD
    PERIOD = "day" | "week" | "month" | NUMBER "days"

``cost_per_success > 1.3 x last week`` compares the runs of the last 7 days with the runs of the 7 days before. A bound
that is a number is compared with the metric over the time that was asked for.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from dagrun.errors import ContractError
from dagrun.evaluate.metrics.definitions import NAMES, RUN_METRICS, Figure
from dagrun.evaluate.metrics.metrics import within
from dagrun.records import RunSummary
from dagrun.texts import hint, shorten

_OPS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_PERIODS: Final[Mapping[str, int]] = {"day": 1, "week": 7, "month": 30}
_NUMBER: Final = r"\d{1,15}(?:\.\d{1,15})?|\.\d{1,15}"
_RULE: Final = re.compile(
    rf"\s*(?P<metric>[A-Za-z_]\w*)\s*(?P<op>[<>]=?)\s*(?:(?P<number>{_NUMBER})\s*(?P<percent>%)?|"
    rf"(?:(?P<factor>{_NUMBER})\s*[x*]\s*)?last\s+(?P<period>{'|'.join(_PERIODS)}|[1-9]\d{{0,3}}\s+days))\s*"
)
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
        ContractError: *text* is no rule, or names no metric.
    """
    found = _RULE.fullmatch(text)
    metric = found["metric"] if found is not None else ""
    if found is None or metric not in NAMES:
        reason = f"{shorten(repr(metric), 60)} is no metric{hint(metric, NAMES) or f': {_ALL}'}; " if metric else ""
        raise ContractError(f"the rule {shorten(repr(text), 100)} cannot be read: {reason}{_FORM}")
    if found["period"] is None:
        bound = float(found["number"]) / (100 if found["percent"] else 1)
        return AlertRule(text.strip(), metric, found["op"], bound)
    word = found["period"].split()[0]
    days = _PERIODS[word] if word in _PERIODS else int(word)
    return AlertRule(text.strip(), metric, found["op"], float(found["factor"] or 1), days)


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

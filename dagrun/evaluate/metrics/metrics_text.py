"""Metrics as text: for people, with units, intervals and changes; and in the form that Prometheus reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from dagrun import Metrics
from dagrun.evaluate.metrics.definitions import RUN_METRICS, Definition, Figure, Unit
from dagrun.evaluate.metrics.metrics import Group

UNKNOWN: Final = "-"

# The metrics of a group that have a column; --json has all of them.
RUN_COLUMNS: Final = (
    ("runs", "runs"),
    ("succeeded", "task_success"),
    ("recovered", "recovery_success"),
    ("replans", "replans"),
    ("questions", "questions"),
    ("p50", "makespan_p50"),
    ("p95", "makespan_p95"),
    ("tokens", "tokens"),
    ("cost", "cost"),
    ("cost/success", "cost_per_success"),
)
CALL_COLUMNS: Final = (
    ("runs", "runs"),
    ("calls", "calls"),
    ("succeeded", "call_success"),
    ("p50", "seconds_p50"),
    ("p95", "seconds_p95"),
    ("p99", "seconds_p99"),
    ("tokens", "tokens"),
    ("cost", "cost"),
)


def text_of(figure: Figure, unit: Unit) -> str:
    """Return a value with its unit; ``-`` if it is unknown, and for a cost its known part."""
    if figure.value is None:
        return f">= {_number(figure.low, unit)}" if figure.low is not None else UNKNOWN
    return _number(figure.value, unit)


def _number(value: float, unit: Unit) -> str:
    match unit:
        case "ratio":
            return f"{100 * value:.1f} %"
        case "seconds":
            return f"{1000 * value:.3g} ms" if 0 < value < 1 else f"{value:.4g} s" if value < 1000 else f"{value:.0f} s"
        case "tokens":
            return f"{value:,.0f}".replace(",", " ")
        case "cost":
            return f"{value:.4g}"
        case _:
            return f"{value:.0f}" if value == int(value) else f"{value:.2f}"


def certainty_of(figure: Figure, unit: Unit) -> str:
    """Return the interval of a value, and the number of observations behind it."""
    if figure.value is None:
        return "not known in full" if figure.low is not None else ""
    low, high = figure.low, figure.high
    if low is None:
        return "" if high is None else f"at most {_number(high, unit)}, of {figure.of}"
    if high is None:
        return f"at least {_number(low, unit)}, of {figure.of}"
    return f"{_number(low, unit)} to {_number(high, unit)}, of {figure.of}"


def change_of(before: Figure, since: Figure, unit: Unit) -> str:
    """Return a change in words: as a factor or in points, and whether the intervals leave room for chance.

    What has an interval and no remark is more than chance. Ends that too few values bound say nothing, so two quantiles
    are told apart only by the ends that there are.
    """
    if before.value is None or since.value is None:
        return ""
    if unit == "ratio":
        text = f"{100 * (since.value - before.value):+.1f} points"
    elif not before.value:
        return ""
    else:
        text = f"x {since.value / before.value:.2f}"
    ends = (before.low, before.high, since.low, since.high)
    if _is_above(since.low, before.high) or _is_above(before.low, since.high):
        return text
    if None not in ends:
        return f"{text} (may be chance)"
    return f"{text} (too few to tell)" if since.is_quantile else text


def _is_above(low: float | None, high: float | None) -> bool:
    return low is not None and high is not None and low > high


CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_SUFFIX: Final[dict[Unit, str]] = {
    "count": "", "ratio": "_ratio", "seconds": "_seconds", "tokens": "", "cost": "",
}  # fmt: skip


def prometheus_text(metrics: Metrics) -> str:
    """Return the metrics, a line each, with their definitions before them; ends with a line end."""
    lines = list(_family("dagrun", RUN_METRICS, [metrics.total], ""))
    if metrics.by:
        label = metrics.by.partition(":")[2] if ":" in metrics.by else metrics.by
        lines += _family(f"dagrun_by_{_name(label)}", metrics.definitions, metrics.groups, _name(label))
    lines += [
        "# HELP dagrun_records_left_out Records that are damaged or cannot be read.",
        "# TYPE dagrun_records_left_out gauge",
        f"dagrun_records_left_out {len(metrics.left_out)}",
    ]
    return "\n".join(lines) + "\n"


def _family(prefix: str, definitions: Sequence[Definition[Any]], groups: Sequence[Group], label: str) -> Iterator[str]:
    for one in definitions:
        suffix = _SUFFIX[one.unit]
        name = f"{prefix}_{one.name}{'' if one.name.endswith(suffix) else suffix}"
        known = [(group, value) for group in groups if (value := group[one.name].value) is not None]
        if known:
            yield f"# HELP {name} {_escaped(one.text)}"
            yield f"# TYPE {name} gauge"
        for group, value in known:
            labels = f'{{{label}="{_quoted(group.name)}"}}' if label else ""
            yield f"{name}{labels} {value!r}"


def _name(text: str) -> str:
    """Return *text* as a name of a metric or a label: letters, digits and ``_``."""
    name = "".join(char if char.isascii() and char.isalnum() else "_" for char in text)
    return f"_{name}" if name[:1].isdigit() else name


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', r"\"")

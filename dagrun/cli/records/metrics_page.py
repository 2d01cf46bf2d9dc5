"""The metrics of runs as text: a line for each metric, a row for each group, or two times side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from dagrun.cli.terminal.text import columns
from dagrun.errors import visible
from dagrun.evaluate.metrics.definitions import Definition, Figure, Unit
from dagrun.evaluate.metrics.metrics import Group, Metrics
from dagrun.evaluate.metrics.read_runs import shown_time

UNKNOWN: Final = "-"

# The metrics of a group that have a column; --json has all of them.
_RUN_COLUMNS: Final = (
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
_CALL_COLUMNS: Final = (
    ("runs", "runs"),
    ("calls", "calls"),
    ("succeeded", "call_success"),
    ("p50", "seconds_p50"),
    ("p95", "seconds_p95"),
    ("p99", "seconds_p99"),
    ("tokens", "tokens"),
    ("cost", "cost"),
)


def metrics_lines(metrics: Metrics) -> list[str]:
    """Return the metrics of all runs; or of each group, a row each, if there are groups."""
    head = _head(metrics)
    if metrics.by:
        wanted = _CALL_COLUMNS if metrics.by in ("tool", "provider") else _RUN_COLUMNS
        return [head, "", *_table(metrics, wanted)] if metrics.groups else [head]
    return [head, "", *_lines(metrics)] if metrics.total["runs"].value else [head]


def _head(metrics: Metrics) -> str:
    runs, ended = int(metrics.total["runs"].value or 0), int(metrics.total["ended_runs"].value or 0)
    since = f" since {shown_time(metrics.since)}" if metrics.since is not None else ""
    until = f" until {shown_time(metrics.until)}" if metrics.until is not None else ""
    if not runs:
        return f"no runs{since}{until}"
    return f"{runs} run{'s' * (runs != 1)}{since}{until}; {ended} {'has' if ended == 1 else 'have'} ended"


def _lines(metrics: Metrics) -> Iterator[str]:
    units: Mapping[str, Unit] = {one.name: one.unit for one in metrics.definitions}
    rows = []
    for name, figure in metrics.total.figures.items():
        if name in ("runs", "ended_runs"):
            continue
        rows.append((name.replace("_", " "), text_of(figure, units[name]), _certainty(figure, units[name])))
    yield from columns(rows).splitlines()


def _table(metrics: Metrics, wanted: Sequence[tuple[str, str]]) -> list[str]:
    units: Mapping[str, Unit] = {one.name: one.unit for one in metrics.definitions}
    head = [metrics.by, *(title for title, _ in wanted)]
    rows = [
        [visible(group.name), *(text_of(group[name], units[name]) for _, name in wanted)] for group in metrics.groups
    ]
    return _right(head, rows)


def _right(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lay out a table whose columns, except for the first, are aligned on the right."""
    table = [head, *rows]
    widths = [max(len(row[at]) for row in table) for at in range(len(head))]
    return [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in table
    ]


def split_lines(metrics: Metrics, before: Group, since: Group, at: float) -> list[str]:
    """Return the metrics of the runs before a change, and of those since then, side by side."""
    definitions: Sequence[Definition[Any]] = metrics.definitions
    rows = [
        (
            one.name.replace("_", " "),
            text_of(before[one.name], one.unit),
            text_of(since[one.name], one.unit),
            change_of(before[one.name], since[one.name], one.unit),
        )
        for one in definitions
    ]
    return [_head(metrics), "", *_right(("", "before", f"since {shown_time(at)}", "change"), rows)]


def text_of(figure: Figure, unit: Unit) -> str:
    """Return a value with its unit; ``-`` if it is not known, and for a cost what is known of it."""
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


def _certainty(figure: Figure, unit: Unit) -> str:
    """Return the interval of a value, and the number of observations behind it."""
    if figure.value is None:
        return "not known in full" if figure.low is not None else ""
    if figure.low is None or figure.high is None:
        return ""
    return f"{_number(figure.low, unit)} to {_number(figure.high, unit)}, of {figure.of}"


def change_of(before: Figure, since: Figure, unit: Unit) -> str:
    """Return a change in words: as a factor or in points, and whether the intervals leave room for chance."""
    if before.value is None or since.value is None:
        return ""
    if unit == "ratio":
        text = f"{100 * (since.value - before.value):+.1f} points"
    elif not before.value:
        return ""
    else:
        text = f"x {since.value / before.value:.2f}"
    if before.low is None or before.high is None or since.low is None or since.high is None:
        return text
    is_clear = since.low > before.high or since.high < before.low
    return text if is_clear else f"{text} (may be chance)"

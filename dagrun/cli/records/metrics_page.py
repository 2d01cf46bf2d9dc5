"""The metrics of runs as text: a line for each metric, a row for each group, or two times side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Any, Final

from dagrun.cli.terminal.text import columns
from dagrun.errors import visible
from dagrun.evaluate.metrics.definitions import Definition, Unit
from dagrun.evaluate.metrics.metrics import Group, Metrics, shown_time
from dagrun.evaluate.metrics.metrics_text import CALL_COLUMNS, RUN_COLUMNS, certainty_of, change_of, text_of

_CHANCE: Final = (
    "Of rates and quantiles, a change without a remark is more than chance (95 %). Of means, medians and sums, which"
    " have no interval, chance is not judged."
)


def metrics_lines(metrics: Metrics) -> list[str]:
    """Return the metrics of all runs; or of each group, a row each, if there are groups."""
    head = _head(metrics)
    if metrics.by:
        wanted = CALL_COLUMNS if metrics.by in ("tool", "provider") else RUN_COLUMNS
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
        rows.append((name.replace("_", " "), text_of(figure, units[name]), certainty_of(figure, units[name])))
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
    table = _right(("", "before", f"since {shown_time(at)}", "change"), rows)
    return [_head(metrics), "", *table, "", *wrap(_CHANCE, 90)]

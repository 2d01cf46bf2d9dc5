"""``dagrun metrics``: measures the recorded runs, as lines, as groups, or before and after a change."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final

import click

from dagrun.cli.records.run_store import open_runs, wait
from dagrun.cli.setup.settings import configure
from dagrun.cli.table_command import command
from dagrun.cli.terminal.text import SCHEMA_VERSION, Data, columns, data_output, printable
from dagrun.cli.terminal.user_errors import FAILED, BadInput
from dagrun.errors import ContractError, visible
from dagrun.evaluate.metrics.definitions import CALL_METRICS, RUN_METRICS, Definition, Unit

if TYPE_CHECKING:
    from dagrun import Metrics
    from dagrun.evaluate.metrics.alert_rules import Alert, AlertRule
    from dagrun.evaluate.metrics.metrics import Group, RecordedRuns

_MEDIAN: Final = "The median of "
_HELP_WIDTH: Final = 74  # characters


def _definition_lines(definitions: Sequence[Definition[Any]]) -> Iterator[str]:
    """Yield the definitions for the help page; the three quantiles of one quantity share one."""
    for one in definitions:
        if one.name.endswith(("_p95", "_p99")):
            continue
        name = f"{one.name}, _p95, _p99" if one.name.endswith("_p50") else one.name
        text = f"Quantiles of {one.text.removeprefix(_MEDIAN)}" if one.name.endswith("_p50") else one.text
        yield f"  {name}"
        yield from wrap(text, _HELP_WIDTH, initial_indent="      ", subsequent_indent="      ")


_NEWLINE: Final = "\n"
EPILOG: Final = f"""
\b
Examples:
  dagrun metrics
  dagrun metrics --since 7d --by tool
  dagrun metrics --by week
  dagrun metrics --split 2026-11-20
  dagrun metrics --fail-if 'cost_per_success > 1.3 x last week'
  dagrun metrics --prom > /var/lib/node_exporter/dagrun.prom

\b
The metrics of runs; what the records do not say is shown as "-":
{_NEWLINE.join(_definition_lines(RUN_METRICS))}

\b
The metrics of calls, by tool, or by provider: a model, a pool of tools, or a
tool without a pool:
{_NEWLINE.join(_definition_lines(CALL_METRICS))}

\b
Alert rules:
  METRIC OP NUMBER               OP is >, >=, < or <=; 95 % is 0.95
  METRIC OP NUMBER x last week   the last 7 days against the 7 days before;
                                 or day, month (30 days), N days
  A rule whose values are not known is reported, and does not count.

Exit codes: 0, 1 if the comparison of a rule holds, 2 wrong usage.
"""


@command("metrics", epilog=EPILOG)
def metrics(*, as_json: bool, as_prom: bool, **flags: Any) -> int:
    """Measure the recorded runs: success, recovery, escalations, people, times, tokens, cost.

    All of it comes from the records, so neither tools nor a planner are needed. Intervals are 95 %.
    """
    return show_metrics(flags, as_json=as_json, as_prom=as_prom)


def show_metrics(flags: dict[str, Any], *, as_json: bool, as_prom: bool) -> int:
    """Measure the recorded runs, and print the metrics.

    Args:
        flags: The flags of the command line.
        as_json: Whether to print JSON.
        as_prom: Whether to print the text form of Prometheus.

    Returns:
        The exit code: that of a failure if an alert is on.

    Raises:
        BadInput: An option cannot be read, or two do not go together.
    """
    from dagrun.evaluate.metrics.metrics_text import prometheus_text

    now = time.time()
    request = _Request(now, flags)
    if sum((as_json, as_prom)) > 1:
        raise BadInput("--json and --prom are two forms of the same; name one")
    if as_prom and request.split is not None:
        raise BadInput("--split compares two times, for which Prometheus has its own means; leave out --prom")
    recorded = wait(lambda: _read(flags))
    with data_output() as data:
        found = request.measured(recorded)
        if as_prom:
            data.text(prometheus_text(found))
        elif as_json:
            data.json(request.as_dict(found, recorded))
        else:
            _show(data, request, found, recorded)
    alerts = request.alerts(recorded)
    for alert in alerts:
        sign = {True: "ALERT", False: "ok", None: "not judged"}[alert.is_on]
        click.echo(printable(f"{sign}: {alert.text}  ({alert.rule.text})"), err=True)
    return FAILED if any(alert.is_on for alert in alerts) else 0


class _Request:
    """The parsed options of the command.

    Raises:
        BadInput: An option cannot be read.
    """

    def __init__(self, now: float, flags: dict[str, Any]) -> None:
        from dagrun.evaluate.metrics.alert_rules import read_rule
        from dagrun.evaluate.metrics.metrics import measure, read_time

        self.now = now
        self.by: str = flags["by"]
        try:
            self.since, self.until, self.split = (
                None if flags[name] is None else read_time(flags[name], now) for name in ("since", "until", "split")
            )
            self.rules: list[AlertRule] = [read_rule(text) for text in flags["rules"]]
            measure((), by=self.by)
        except ContractError as error:
            raise BadInput(str(error)) from error
        if self.split is not None and self.by:
            raise BadInput("--split and --by make groups both; name one")
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise BadInput("--since is not before --until, so no run can have begun between them")

    def measured(self, recorded: RecordedRuns) -> Metrics:
        from dagrun.evaluate.metrics.metrics import measure

        runs = recorded.figures.values()
        return measure(runs, by=self.by, since=self.since, until=self.until, left_out=recorded.left_out)

    def alerts(self, recorded: RecordedRuns) -> list[Alert]:
        from dagrun.evaluate.metrics.alert_rules import judge

        runs = list(recorded.figures.values())
        return [judge(rule, runs, now=self.now, since=self.since, until=self.until) for rule in self.rules]

    def as_dict(self, found: Metrics, recorded: RecordedRuns) -> dict[str, Any]:
        from dagrun.evaluate.metrics.metrics import compared

        facts: dict[str, Any] = {"schema_version": SCHEMA_VERSION, **found.as_dict()}
        if self.split is not None:
            before, since = compared(found.runs, self.split)
            facts["split"] = {"at": self.split, "before": before.as_dict(), "since": since.as_dict()}
        alerts = self.alerts(recorded)
        return {**facts, "alerts": [{"rule": a.rule.text, "is_on": a.is_on, "text": a.text} for a in alerts]}


def _show(data: Data, request: _Request, found: Metrics, recorded: RecordedRuns) -> None:
    from dagrun.evaluate.metrics.metrics import compared

    if request.split is not None:
        data.text("\n".join(split_lines(found, *compared(found.runs, request.split), request.split)))
    else:
        data.text("\n".join(metrics_lines(found)))
    if recorded.left_out:
        count, names = len(recorded.left_out), ", ".join(list(recorded.left_out)[:5])
        what = "record is" if count == 1 else "records are"
        click.echo(
            printable(f"{count} {what} damaged or unreadable, and not counted: {names}; see dagrun runs"), err=True
        )


async def _read(flags: dict[str, Any]) -> RecordedRuns:
    from dagrun.evaluate.metrics.metrics import FiguresReader

    return await FiguresReader(open_runs(configure(flags)).journal).read()


_CHANCE: Final = (
    "Of rates and quantiles, a change without a remark is more than chance (95 %). Of means, medians and sums, which"
    " have no interval, chance is not judged."
)


def metrics_lines(metrics: Metrics) -> list[str]:
    """Return the metrics of all runs; or of each group, a row each, if there are groups."""
    from dagrun.evaluate.metrics.metrics_text import CALL_COLUMNS, RUN_COLUMNS

    head = _head(metrics)
    if metrics.by:
        wanted = CALL_COLUMNS if metrics.by in ("tool", "provider") else RUN_COLUMNS
        return [head, "", *_table(metrics, wanted)] if metrics.groups else [head]
    return [head, "", *_total_lines(metrics)] if metrics.total["runs"].value else [head]


def _head(metrics: Metrics) -> str:
    from dagrun.evaluate.metrics.metrics import shown_time

    runs, ended = int(metrics.total["runs"].value or 0), int(metrics.total["ended_runs"].value or 0)
    since = f" since {shown_time(metrics.since)}" if metrics.since is not None else ""
    until = f" until {shown_time(metrics.until)}" if metrics.until is not None else ""
    if not runs:
        return f"no runs{since}{until}"
    return f"{runs} run{'s' * (runs != 1)}{since}{until}; {ended} {'has' if ended == 1 else 'have'} ended"


def _total_lines(metrics: Metrics) -> Iterator[str]:
    from dagrun.evaluate.metrics.metrics_text import certainty_of, text_of

    units: Mapping[str, Unit] = {one.name: one.unit for one in metrics.definitions}
    rows = []
    for name, figure in metrics.total.figures.items():
        if name in ("runs", "ended_runs"):
            continue
        rows.append((name.replace("_", " "), text_of(figure, units[name]), certainty_of(figure, units[name])))
    yield from columns(rows).splitlines()


def _table(metrics: Metrics, wanted: Sequence[tuple[str, str]]) -> list[str]:
    from dagrun.evaluate.metrics.metrics_text import text_of

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
    from dagrun.evaluate.metrics.metrics import shown_time
    from dagrun.evaluate.metrics.metrics_text import change_of, text_of

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

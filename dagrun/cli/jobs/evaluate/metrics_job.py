"""The metrics of recorded runs, from the options of ``dagrun metrics`` to its output."""

from __future__ import annotations

import time
from typing import Any

import click

from dagrun.cli.records.metrics_page import metrics_lines, split_lines
from dagrun.cli.records.record_place import wait
from dagrun.cli.records.run_records import open_records
from dagrun.cli.setup.settings import configure
from dagrun.cli.terminal.text import SCHEMA_VERSION, Data, data_output, printable
from dagrun.cli.terminal.user_errors import FAILED, BadInput
from dagrun.errors import ContractError
from dagrun.evaluate.metrics.alert_rules import Alert, AlertRule, judge, read_rule
from dagrun.evaluate.metrics.metrics import FiguresReader, Metrics, RecordedRuns, compared, measure, read_time
from dagrun.evaluate.metrics.metrics_text import prometheus_text


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
        runs = recorded.figures.values()
        return measure(runs, by=self.by, since=self.since, until=self.until, left_out=recorded.left_out)

    def alerts(self, recorded: RecordedRuns) -> list[Alert]:
        runs = list(recorded.figures.values())
        return [judge(rule, runs, now=self.now, since=self.since, until=self.until) for rule in self.rules]

    def as_dict(self, found: Metrics, recorded: RecordedRuns) -> dict[str, Any]:
        facts: dict[str, Any] = {"schema_version": SCHEMA_VERSION, **found.as_dict()}
        if self.split is not None:
            before, since = compared(found.runs, self.split)
            facts["split"] = {"at": self.split, "before": before.as_dict(), "since": since.as_dict()}
        alerts = self.alerts(recorded)
        return {**facts, "alerts": [{"rule": a.rule.text, "is_on": a.is_on, "text": a.text} for a in alerts]}


def _show(data: Data, request: _Request, found: Metrics, recorded: RecordedRuns) -> None:
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
    return await FiguresReader(open_records(configure(flags)).journal).read()

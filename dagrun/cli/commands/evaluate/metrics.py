"""``dagrun metrics``: rates, times, tokens and cost of the recorded runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Any, Final

from dagrun.cli.table_command import command
from dagrun.evaluate.metrics.definitions import CALL_METRICS, RUN_METRICS, Definition

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
    from dagrun.cli.jobs.evaluate.metrics_job import show_metrics

    return show_metrics(flags, as_json=as_json, as_prom=as_prom)

"""``dagrun bench``: runs a plan in each mode (sequential, waves, parallel), and compares the times."""

from __future__ import annotations

from typing import Any, Final

import click

from dagrun.cli import options
from dagrun.cli.setup.settings import configure
from dagrun.cli.terminal.stdout import data_output

EPILOG: Final = """
\b
Examples:
  dagrun bench plan.json --tools my_tools
  dagrun bench plan.json --tools my_tools --repeat 5 --plot bench.png
"""


@click.command(epilog=EPILOG)
@options.combined(
    options.plan, options.tools, options.inputs, options.policy, options.max_running, options.output, options.directory
)
@click.option("--repeat", type=click.IntRange(1, 1000), default=3, show_default=True, help="Runs in each mode.")
@click.option("--plot", metavar="FILE", type=click.Path(dir_okay=False), help="Draw the figures: .png, .svg or .pdf.")
@click.option("--repeat-effects", is_flag=True, help="Call tools with effects, too, once in each run.")
@options.as_json
def bench(*, plan: str, inputs: tuple[str, ...], **flags: Any) -> int:
    """Run PLAN in each mode, several times, and compare the times.

    sequential runs one step after another, waves one generation after another, parallel each step as soon as it can
    run. A first run, in which tools load their libraries, is not counted. The figures are medians. Efficiency is the
    critical path (the longest chain of steps that wait for each other) divided by the makespan, for each run.
    """
    from dagrun.cli.jobs.bench_job import measure

    configuration = configure(flags)
    with data_output() as data:
        return measure(configuration, data, plan, inputs, flags)

"""``dagrun inspect``: shows what happened in a run, and why."""

from __future__ import annotations

from typing import Any, Final

import click

from dagrun.cli import options
from dagrun.cli.records.run_records import records_option, run_argument
from dagrun.cli.setup.settings import configure
from dagrun.cli.terminal.stdout import data_output

EPILOG: Final = """
\b
Examples:
  dagrun inspect last
  dagrun inspect last load_prices
  dagrun inspect last --timeline
  dagrun inspect last --answers
  dagrun inspect last --json | jq '.entries[]'

Exit codes: 0, 1 if the record is damaged, 2 if there is no such run or step.
"""


@click.command(epilog=EPILOG)
@run_argument
@click.argument("step", required=False)
@click.option("--answers", "with_answers", is_flag=True, help="Show the answers of models on record, whole.")
@options.combined(options.timeline, records_option, options.as_json, options.directory)
def inspect(*, run: str, step: str | None, timeline: bool, with_answers: bool, as_json: bool, **flags: Any) -> None:
    """Show what happened in RUN, in order, and the reason of each decision; or only what happened to STEP.

    Each failure is shown with the row of the recovery table that decided what to do; each change of the plan with its
    edits; each question with the person who answered. Answers of models are shown by their first lines. Times are in
    seconds from the start of the run, without pauses. A run that is not over is shown as far as it is recorded. Neither
    its tools nor its planner are needed.
    """
    from dagrun.cli.records.inspect_page import show_run

    configuration = configure(flags)
    with data_output() as data:
        show_run(configuration, data, run, step, timeline=timeline, with_answers=with_answers, as_json=as_json)

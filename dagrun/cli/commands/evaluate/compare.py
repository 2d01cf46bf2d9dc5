"""``dagrun compare``: carries out the same goals by several ways, and says what can be told about them."""

from __future__ import annotations

from typing import Any, Final

import click

from dagrun.cli import options
from dagrun.cli.setup.settings import configure
from dagrun.cli.terminal.stdout import data_output

EPILOG: Final = """
\b
Examples:
  dagrun compare evals/ --model NAME
  dagrun compare evals/ --ways ways.toml --repeat 20 --max-cost 2
  dagrun compare evals/refund.yaml --only refund-happy --ways ways.toml --json

\b
A file of ways has a table for each:
  [loop]                              # a step at a time
  planner = "stepwise"
  policy = {brief = "full"}
  [agent]                             # no plan: one agent calls the tools
  planner = "agent"
  [plan]                              # a whole plan at once
  planner = "openai"
  model = "a-model"                   # and dialect, instructions, prompts, …
  [ladder]
  planner = "my_routes:router,openai=a-fast-model,openai=a-model"

\b
Figures:
  success      everything is as the case expects it
  seconds      from the goal to the end; median of the runs that succeeded
  idle calls   calls that succeeded, in steps that nothing uses: neither the
               answer, nor a step that is used, nor the case; they have no
               effect, and no planner has decided anything after them
  repeats      calls with a tool and arguments that have succeeded before,
               while nothing was changed in between
  early stops  the run says succeeded, and the answer, a step or a call that
               is expected is not there

Exit codes: 0 all runs were made, whatever they say; 2 wrong usage, or a file that cannot be used; 4 a ceiling has ended
the comparison; 130 Ctrl-C has. What was found before is reported.
"""


@click.command(epilog=EPILOG)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(exists=True))
@click.option(
    "--ways",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="The ways to compare: a TOML file, see below.  [default: loop, a step at a time, and plan, by the planner of"
    " the settings]",
)
@click.option(
    "--repeat",
    type=click.IntRange(1, 1_000),
    default=10,
    show_default=True,
    help="Runs of each case by each way. Fewer than 6 in all can tell no difference.",
)
@click.option("--only", metavar="ID", multiple=True, help="Carry out the case of this id alone. May be repeated.")
@click.option(
    "--max-cost",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="What all runs together may cost, with judges of answers. A model without a price ends the comparison.",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(min=1),
    metavar="N",
    help="The tokens that all runs together may use, with judges of answers.",
)
@click.option("--github", is_flag=True, help="Add the tables to the summary of the job, in GitHub Actions.")
@options.combined(options.tools, options.planner, options.model_options, options.verbose, options.directory)
@options.as_json
def compare(*, paths: tuple[str, ...], **flags: Any) -> int:
    """Carry out golden tasks by several ways, and compare success, time, tokens and cost.

    The cases are those of dagrun eval that have a goal; those with a plan are left out. Every way meets each of them in
    the same worlds with the same seeds, so runs are compared in pairs. For each two ways, a verdict says what can be
    told from the runs; and where nothing can, about how many would be needed.

    Tools are stand-ins, except those that a case names as real: each run may call them, and they may only read.
    """
    from dagrun.cli.jobs.evaluate.compare_job import compare_ways

    configuration = configure(flags)
    with data_output() as data:
        return compare_ways(configuration, data, paths, flags)

"""``dagrun sim``: simulates runs of a plan on a virtual clock, and calls no tool."""

from __future__ import annotations

from typing import Any, Final

import click

from dagrun.cli import options
from dagrun.cli.records.run_records import records_option
from dagrun.cli.setup.settings import configure
from dagrun.cli.terminal.stdout import data_output

EPILOG: Final = """
\b
Examples:
  dagrun sim plan.json --tools my_tools
  dagrun sim plan.json --tools my_tools --duration 'fetch=lognorm(0.2,0.8)'
  dagrun sim plan.json --tools my_tools --fail fetch=0.02:timeout --person 60
  dagrun sim plan.json --tools my_tools --fail learned --fail fetch=0.1
  dagrun sim plan.json -t my_tools --vary max_running=2,4 --vary hedge=off,on

\b
Durations: 0.3 (seconds), uniform(LOW,HIGH), exp(MEAN), lognorm(MEDIAN,SIGMA).
Failures: a part of the calls, and how they fail (by default: connection):
  timeout     the call does not come back
  connection  it breaks, and may have had its effect
  busy        the tool says that it cannot now
  refused     the tool says no for good
  bug         it raises anything else
"""


@click.command(epilog=EPILOG)
@options.combined(
    options.plan,
    options.tools,
    options.inputs,
    options.secrets,
    options.policy,
    options.max_running,
    records_option,
    options.directory,
)
@click.option("--repeat", type=click.IntRange(1, 100_000), default=1_000, show_default=True, help="Runs of a variant.")
@click.option("--seed", type=int, default=0, show_default=True, help="The same seed gives the same figures.")
@click.option(
    "--duration",
    "durations",
    multiple=True,
    metavar="NAME=TEXT",
    help="How long the calls of a tool, or of a step, take: see below. May be repeated.  [default: what the records of"
    " runs say, or else the estimate of the step]",
)
@click.option(
    "--fail",
    "failures",
    multiple=True,
    metavar="NAME=RATE[:HOW]|learned",
    help="How often the calls of a tool, or of a step, fail, and how: see below. May be repeated. With 'learned', the"
    " calls of all other tools fail as the records of runs say.  [default: never]",
)
@click.option(
    "--items",
    multiple=True,
    metavar="STEP=N",
    help="How many elements the list has that a step returns, for a for_each over it. May be repeated.  [default: 3]",
)
@click.option(
    "--returns",
    multiple=True,
    metavar="STEP=JSON",
    help="What a step returns, for conditions that look at it. May be repeated.",
)
@click.option("--cost", "costs", multiple=True, metavar="NAME=N", help="What a call of a tool, or of a step, costs.")
@click.option(
    "--person", "people", metavar="TEXT", default="0", help="How long people take to say yes, as in --duration."
)
@click.option(
    "--vary",
    multiple=True,
    metavar="FIELD=V,V…",
    help="Values of a field of the policy, to compare: numbers, on, off, none. May be repeated: every combination is"
    " simulated.",
)
@click.option("--plot", metavar="FILE", type=click.Path(dir_okay=False), help="Draw the figures: .png, .svg or .pdf.")
@options.as_json
def sim(*, plan: str, inputs: tuple[str, ...], **flags: Any) -> None:
    """Simulate many runs of PLAN on a virtual clock, and call no tool.

    The engine is the real one, so everything that the policy says counts: limits, retries, fallbacks, second calls,
    time limits, ceilings. Only the tools are replaced: a call takes a time that is drawn from how long real calls took
    (as the records of runs say), or from --duration, and fails as often as --fail says. Variants meet the same luck,
    call by call, so that small differences between them show. Brackets are 95 % intervals.
    """
    from dagrun.cli.jobs.evaluate.sim_job import simulate_plan

    configuration = configure(flags)
    with data_output() as data:
        simulate_plan(configuration, data, plan, inputs, flags)

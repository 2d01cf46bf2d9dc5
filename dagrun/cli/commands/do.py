"""``dagrun do``: plans a goal and runs the plan; first steps run while the planner still writes."""

from __future__ import annotations

from typing import Any, Final

import click

from dagrun.cli import options
from dagrun.cli.jobs.goals import get_plan, goal_of, is_saved, tell_stopped
from dagrun.cli.jobs.job import Job
from dagrun.cli.jobs.one_run import OneRun
from dagrun.cli.jobs.recording import new_record
from dagrun.cli.records.output_folder import artifacts_in, writable
from dagrun.cli.records.run_records import runs_option
from dagrun.cli.setup.inputs import read_inputs
from dagrun.cli.setup.planners import load_critics, make_planner, name_of
from dagrun.cli.setup.plans import show_order
from dagrun.cli.setup.settings import configure
from dagrun.cli.terminal.stdout import data_output
from dagrun.cli.terminal.user_errors import BadInput

EPILOG: Final = """
\b
Examples:
  export OPENAI_API_KEY=… DAGRUN_MODEL=…
  dagrun do "Compare the sales of the regions" --tools my_tools
  dagrun do "Compare them" -t my_tools -n
  dagrun do "Compare them" -t my_tools --base-url http://127.0.0.1:8000/v1

\b
Exit codes:
  0 succeeded, 1 failed, 2 wrong usage, 3 no valid plan, 4 over budget,
  5 waiting for a person, 6 escalated, 7 an effect is in doubt,
  130 cancelled by Ctrl-C, 143 by SIGTERM
"""


@click.command(epilog=EPILOG)
@options.combined(
    options.goal,
    options.tools,
    options.deps,
    options.inputs,
    options.secrets,
    options.policy,
    options.max_running,
    options.output,
    options.directory,
)
@options.combined(options.planner, options.model_options, options.critics)
@click.option(
    "--mode",
    type=click.Choice(["parallel", "sequential"]),
    help="Run each step as soon as it is written and can run; or one step at a time.  [default: parallel]",
)
@options.combined(runs_option, options.run_id, options.durability, options.expires_after, options.no_journal)
@options.combined(options.as_json, options.events)
@click.option(
    "-n", "--dry-run", is_flag=True, help="Let the planner write the plan, check it, show what would run; run nothing."
)
@click.option("--save-plan", metavar="FILE", type=click.Path(), help="Write the plan to FILE when the run has ended.")
@options.combined(options.timeline, options.report, options.page, options.trace, options.verbose, options.quiet)
def do(*, goal: str, inputs: tuple[str, ...], save_plan: str | None, **flags: Any) -> int:
    """Let a planner write a plan for GOAL, and run its first steps while the planner still writes.

    GOAL is a sentence, or - for the standard input. A step without effects starts as soon as it is written and its
    inputs are there; a step with effects waits until the whole plan is written and valid. The answer goes to the
    standard output, everything else to the standard error.

    Questions to a person are asked on the terminal, while other steps run. Without a terminal, the run waits; dagrun
    approve answers from elsewhere.

    The run is recorded. Ctrl-C ends it, also while the planner writes, and prints the outputs so far, and the command
    that resumes the run.
    """
    configuration = configure(flags)
    if configuration.settings.mode == "waves":
        raise BadInput(
            "waves need the whole plan before anything runs: dagrun plan GOAL -o plan.json, and then dagrun run"
            " plan.json --mode waves; or do with --mode parallel"
        )
    with data_output() as data:
        file = writable(save_plan, "--save-plan")
        input_values = read_inputs(inputs)
        wanted = goal_of(goal, configuration, is_run=not flags["dry_run"])
        if flags["dry_run"]:
            drafting = get_plan(wanted, configuration, input_values, flags)
            if drafting.plan is None:
                return tell_stopped(drafting, data, flags)
            show_order(drafting.plan, data, as_json=flags["as_json"])
            return 0 if file is None or is_saved(drafting.plan, file) else 1
        named = name_of(configuration)
        planner = make_planner(configuration, named)
        critics = load_critics(flags["critics"])
        output = configuration.path("output")
        job = Job(
            plan=wanted,
            inputs=input_values,
            planner=planner,
            critics=critics,
            recording=new_record(configuration, flags, wanted.toolbox, named),
            artifacts=artifacts_in(output),
            deps=configuration.settings.deps,
        )
        return OneRun(job, output, data, flags, save_plan=file).carry_out()

"""``dagrun run``: checks a plan and runs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dagrun.cli.setup.settings import Configuration, configure
from dagrun.cli.table_command import command
from dagrun.cli.terminal.text import Data, data_output

if TYPE_CHECKING:
    from dagrun.kernel.checks.checked_plan import CheckedPlan


@command("run")
def run(*, plan: str, inputs: tuple[str, ...], **flags: Any) -> int:
    """Check PLAN and run it, each step as soon as its inputs are ready.

    PLAN is a file, or - for the standard input: JSON, YAML, or numbered calls. The answer goes to the standard output,
    everything else to the standard error.

    Questions to a person are asked on the terminal, while other steps run. Without a terminal, the run waits; dagrun
    answer answers from elsewhere. A planner is asked only if --planner names one.

    The run is recorded in a folder of its own under --runs. Ctrl-C ends it, and prints the outputs so far, and the
    command that resumes the run. A second Ctrl-C ends the program at once; the run can still be resumed.

    Examples:
      dagrun run plan.json --tools my_tools
      dagrun run plan.json --tools my_tools --input region=EU --json > result.json
      dagrun run plan.json --tools my_tools -n

    Exit codes:
      0 succeeded, 1 failed, 2 wrong usage, 3 plan refused, 4 over budget,
      5 waiting for a person, 6 escalated, 7 an effect is unresolved,
      130 cancelled by Ctrl-C, 143 by SIGTERM
    """
    from dagrun.cli.setup.plans import read_inputs, show_order

    configuration = configure(flags)
    with data_output() as data:
        input_values = read_inputs(inputs)
        checked = _check(plan, input_values, configuration)
        if flags["dry_run"]:
            show_order(checked, data, as_json=flags["as_json"])
            return 0
        return _run(checked, input_values, configuration, data, flags)


def _check(plan: str, inputs: dict[str, Any], configuration: Configuration) -> CheckedPlan:
    from dagrun.cli.setup.plans import load_plan
    from dagrun.cli.setup.secrets import secrets_of
    from dagrun.cli.setup.tool_modules import configure_tools, load_toolbox
    from dagrun.kernel.checks.check_plan import check_plan

    limits = configuration.limits()
    toolbox = load_toolbox(configuration)
    configure_tools(configuration, limits)
    secrets = secrets_of(configuration)
    return check_plan(load_plan(plan, toolbox), toolbox, limits.policy, inputs=inputs, secrets=secrets)


def _run(
    checked: CheckedPlan, inputs: dict[str, Any], configuration: Configuration, data: Data, flags: Mapping[str, Any]
) -> int:
    from dagrun.cli.jobs.job import Job
    from dagrun.cli.jobs.one_run import OneRun
    from dagrun.cli.jobs.recording import new_record
    from dagrun.cli.records.output_folder import artifacts_in
    from dagrun.cli.setup.planners import load_compose, load_critics, make_planner
    from dagrun.cli.setup.plans import scheduled

    named = flags["planner"]
    planner = make_planner(configuration, named) if named is not None else None
    output = configuration.path("output")
    job = Job(
        plan=scheduled(checked, configuration.settings.mode),
        inputs=inputs,
        planner=planner,
        critics=load_critics(flags["critics"]),
        compose=load_compose(configuration, flags["compose"]),
        recording=new_record(configuration, flags, checked.toolbox, named),
        artifacts=artifacts_in(output),
        deps=configuration.settings.deps,
    )
    return OneRun(job, output, data, flags).carry_out()

"""``dagrun run`` and ``dagrun do``: check a plan and run it, or plan a goal and run its first steps meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagrun.cli.setup.settings import Configuration, configure
from dagrun.cli.table_command import command
from dagrun.cli.terminal.text import Data, data_output
from dagrun.cli.terminal.user_errors import BadInput

if TYPE_CHECKING:
    from dagrun import CheckedPlan
    from dagrun.cli.jobs.job import Goal


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
    from dagrun.cli.jobs.job import Job, new_record
    from dagrun.cli.jobs.one_run import OneRun
    from dagrun.cli.records.output_files import artifacts_in
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


@command("do")
def do(*, goal: str, inputs: tuple[str, ...], save_plan: str | None, **flags: Any) -> int:
    """Let a planner write a plan for GOAL, and run its first steps before it is finished.

    GOAL is a sentence, or - for the standard input. A step without effects starts as soon as it is written and its
    inputs are there; a step with effects waits until the whole plan is written and valid. The answer goes to the
    standard output, everything else to the standard error.

    Questions to a person are asked on the terminal, while other steps run. Without a terminal, the run waits; dagrun
    answer answers from elsewhere.

    The run is recorded. Ctrl-C ends it, also while the planner writes, and prints the outputs so far, and the command
    that resumes the run.

    Examples:
      export OPENAI_API_KEY=… DAGRUN_MODEL=…
      dagrun do "Compare the sales of the regions" --tools my_tools
      dagrun do "Compare them" -t my_tools -n
      dagrun do "Compare them" -t my_tools --base-url http://127.0.0.1:8000/v1

    Exit codes:
      0 succeeded, 1 failed, 2 wrong usage, 3 no valid plan, 4 over budget,
      5 waiting for a person, 6 escalated, 7 an effect is unresolved,
      130 cancelled by Ctrl-C, 143 by SIGTERM
    """
    configuration = configure(flags)
    if configuration.settings.mode == "waves":
        raise BadInput(
            "waves need the whole plan before anything runs: dagrun plan GOAL -o plan.json, and then dagrun run"
            " plan.json --mode waves; or do with --mode parallel"
        )
    from dagrun.cli.jobs.goals import goal_of
    from dagrun.cli.records.output_files import writable
    from dagrun.cli.setup.plans import read_inputs

    with data_output() as data:
        file = writable(save_plan, "--save-plan")
        input_values = read_inputs(inputs)
        wanted = goal_of(goal, configuration, is_run=not flags["dry_run"])
        doing = _Doing(wanted, input_values, file, configuration, flags)
        return doing.show(data) if flags["dry_run"] else doing.run(data)


@dataclass(frozen=True, slots=True)
class _Doing:
    """A goal, and where its plan is written."""

    wanted: Goal
    inputs: dict[str, Any]
    file: Path | None
    configuration: Configuration
    flags: Mapping[str, Any]

    def show(self, data: Data) -> int:
        """Show the plan without running it, and return the exit code."""
        from dagrun.cli.jobs.goals import get_plan, is_saved, tell_stopped
        from dagrun.cli.setup.plans import show_order

        drafting = get_plan(self.wanted, self.configuration, self.inputs, self.flags)
        if drafting.plan is None:
            return tell_stopped(drafting, data, self.flags)
        show_order(drafting.plan, data, as_json=self.flags["as_json"])
        return 0 if self.file is None or is_saved(drafting.plan, self.file) else 1

    def run(self, data: Data) -> int:
        """Run it, and return the exit code."""
        from dagrun.cli.jobs.job import Job, new_record
        from dagrun.cli.jobs.one_run import OneRun
        from dagrun.cli.records.output_files import artifacts_in
        from dagrun.cli.setup.planners import load_compose, load_critics, make_planner, name_of

        named = name_of(self.configuration)
        planner = make_planner(self.configuration, named)
        output = self.configuration.path("output")
        job = Job(
            plan=self.wanted,
            inputs=self.inputs,
            planner=planner,
            critics=load_critics(self.flags["critics"]),
            compose=load_compose(self.configuration, self.flags["compose"]),
            recording=new_record(self.configuration, self.flags, self.wanted.toolbox, named),
            artifacts=artifacts_in(output),
            deps=self.configuration.settings.deps,
        )
        return OneRun(job, output, data, self.flags, save_plan=self.file).carry_out()

"""``dagrun plan``: lets a planner write a plan for a goal, or shows its prompt, and runs nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from dagrun.cli.setup.settings import Configuration, configure
from dagrun.cli.table_command import command
from dagrun.cli.terminal.text import SCHEMA_VERSION, Data, data_output
from dagrun.cli.terminal.user_errors import BadInput

if TYPE_CHECKING:
    from dagrun.cli.jobs.draft_plan import PlanDraft
    from dagrun.kernel.checks.checked_plan import CheckedPlan

_GOAL: Final = "(the goal, in words)"  # in a prompt without one


@command("plan")
def plan(*, goal: str | None, inputs: tuple[str, ...], file: str, **flags: Any) -> int:
    """Let a planner write a plan for GOAL, and check it. Runs nothing, asks no person.

    GOAL is a sentence, or - for the standard input. Only the shapes of the inputs reach the planner, unless the policy
    says otherwise. The plan is JSON, and goes to a file or to the standard output. --json prints an object with the
    plan and its costs.

    Ctrl-C stops the planner, and prints the steps that are written so far.

    --show-prompt prints the prompt that the planner sends to its model, and asks no model. GOAL may be left out, and
    the tools are those of --tools, or else of installed packages. For every kind but the first, an example stands for
    what has happened. --json also prints the version of the prompt, and the schema of the answer: that goes to the
    model beside the prompt, or, if a server takes no schema, at the end of it. dagrun.toml may have instructions,
    constraints, and a table of prompts, whose texts take the place of those that --texts prints; the version of the
    prompt, which the record of a run has, too, tells such words apart.

    Examples:
      export OPENAI_API_KEY=… DAGRUN_MODEL=…
      dagrun plan "Compare the regions" --tools my_tools -o plan.json
      dagrun run plan.json --tools my_tools
      dagrun plan --show-prompt --tools my_tools --kind replan
      dagrun plan --show-prompt --texts > prompts.toml

    Exit codes:
      0 there is a plan, 1 the planner failed, 2 wrong usage, 3 no valid plan,
      4 over budget, 6 a person must take over, 130 cancelled by Ctrl-C,
      143 by SIGTERM
    """
    from dagrun.cli.jobs.goals import get_plan, goal_of, is_saved, tell_stopped
    from dagrun.cli.records.output_folder import writable
    from dagrun.cli.setup.plans import STDIN, plan_text, read_inputs

    configuration = configure(flags)
    with data_output() as data:
        if flags["show_prompt"]:
            _show_prompt(configuration, data, goal or _GOAL, inputs, flags)
            return 0
        if flags["kind"] or flags["texts"]:
            raise BadInput(f"{'--kind' if flags['kind'] else '--texts'} is for --show-prompt")
        if goal is None:
            raise BadInput("name the GOAL, in quotation marks; or --show-prompt")
        path = writable(None if file in (STDIN, "/dev/stdout") else file, "-o")
        input_values = read_inputs(inputs)
        wanted = goal_of(goal, configuration, is_run=False)
        drafting = get_plan(wanted, configuration, input_values, flags)
        made = drafting.plan
        if made is None:
            return tell_stopped(drafting, data, flags)
        is_lost = path is not None and not is_saved(made, path)
        if flags["as_json"]:
            data.json(_as_dict(drafting, made))
        elif path is None or is_lost:  # the plan is paid for, so it must not get lost
            data.text(plan_text(made.plan))
        return int(is_lost)


def _show_prompt(
    configuration: Configuration, data: Data, goal: str, inputs: tuple[str, ...], flags: Mapping[str, Any]
) -> None:
    from dagrun.cli.jobs.prompt_preview import show_prompt, show_texts

    if flags["texts"]:
        show_texts(configuration, data)
    else:
        show_prompt(configuration, data, goal, inputs, flags["kind"] or "first", as_json=flags["as_json"])


def _as_dict(drafting: PlanDraft, made: CheckedPlan) -> dict[str, Any]:
    from dagrun.cli.jobs.goals import usage_of
    from dagrun.cli.setup.plans import as_written

    return {
        "schema_version": SCHEMA_VERSION,
        "status": "planned",
        "exit_code": 0,
        "plan": as_written(made.plan),
        **usage_of(drafting),
    }

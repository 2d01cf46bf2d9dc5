"""``dagrun eval`` and ``dagrun compare``: run golden tasks with stubs, once or with several variants."""

from __future__ import annotations

from typing import Any

import click

from dagrun.cli.setup.settings import configure
from dagrun.cli.table_command import command
from dagrun.cli.terminal.text import data_output


class _Group(click.Group):
    """Takes a first word that is none of its commands for a file of cases."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments, with the command ``run`` in front if they name none."""
        names_one = bool(args) and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if names_one else ["run", *args])


@click.group(cls=_Group)
def evaluate() -> None:
    """Run golden tasks: goals and plans with stubs for tools, and with expected results.

    dagrun eval PATH… is short for dagrun eval run PATH…; the files are described by dagrun schema eval.
    """


@command("eval.run", evaluate, short_help="Run the golden tasks of files and folders.")
def run_cases(*, paths: tuple[str, ...], **flags: Any) -> int:
    """Run the cases of files and folders: each with its stubs, on a virtual clock unless a model is asked.

    A tool that a case names neither in its world nor under real is refused, and never called. Options for models apply
    to cases that name a model, options for tools to files that name none.

    Examples:
      dagrun eval evals/
      dagrun eval run evals/
      dagrun eval evals/refund.yaml --only refund-happy
      dagrun eval evals/ --record evals/base.json
      dagrun eval evals/ --baseline evals/base.json --junit eval.xml --github
      dagrun eval evals/ --policy stricter.toml
      dagrun eval from last -o evals/incident.yaml

    A file of cases names modules, which are imported: carry out only cases whose author you trust.

    Exit codes: 0 all is as the gates want it, 1 it is not, 2 wrong usage, or a file that cannot be used.
    """
    from dagrun.cli.jobs.evaluate.eval_job import carry_out

    configuration = configure({name: value for name, value in flags.items() if name != "planner"})
    with data_output() as data:
        return carry_out(configuration, data, paths, flags)


@command("eval.from", evaluate, short_help="Make a golden task of a recorded run that has ended.")
def from_run(*, run: str, **flags: Any) -> int:
    """Make a golden task of RUN, a recorded run that has ended, and carry it out once.

    Its tools are those that it was begun with, unless others are named.

    Examples:
      dagrun eval from last -o evals/incident.yaml
      dagrun eval evals/incident.yaml

    What is in the case:
      world      what each tool did, by step where that matters
      people     what people answered
      planner    the answers of the planner, and so the changes of the plan
      expect     how the run and its steps ended, and its answer; of a long
                 answer, its kind and size

    Redacted is what looks like a token, has the name of a secret, or is of the kinds that the policy on record names. A
    redact function of the program that ran it is not applied: check the file before you share it. No tool is called.
    Today's policy on yesterday's run: dagrun eval CASE --policy policy.toml.

    Exit codes: 0 it comes to the same as on record, 1 it does not, 2 wrong usage, or a run that cannot become a case.
    """
    from dagrun.cli.jobs.evaluate.case_job import make_case

    configuration = configure(flags)
    with data_output() as data:
        return make_case(configuration, data, run, flags)


@command("compare")
def compare(*, paths: tuple[str, ...], **flags: Any) -> int:
    """Run golden tasks with several variants, and compare success, time, tokens and cost.

    The cases of dagrun eval with a goal are run; cases with a plan are left out. Every variant runs each case with
    equal stubs and seeds, so runs are compared in pairs. For each two variants there is a verdict; where there is no
    difference, about how many runs would be needed to see one.

    Tools are stubs, unless a case names them as real: each run may call these, and they may only read.

    Examples:
      dagrun compare evals/ --model NAME
      dagrun compare evals/ --ways ways.toml --repeat 20 --max-cost 2
      dagrun compare evals/refund.yaml --only refund-happy --ways ways.toml --json

    A file of variants has a table for each:
      [loop]                              # a step at a time
      planner = "stepwise"
      policy = {planning = {brief = "full"}}
      [agent]                             # no plan: one agent calls the tools
      planner = "agent"
      [plan]                              # a whole plan at once
      planner = "openai"
      model = "a-model"                   # and dialect, instructions, prompts, …
      [chain]
      planner = "my_routes:router,openai=a-fast-model,openai=a-model"

    Figures:
      success      everything is as the case expects it
      seconds      from the goal to the end; median of the runs that succeeded
      idle calls   calls that succeeded, in steps that nothing uses: neither the
                   answer, nor a step that is used, nor the case; they have no
                   effect, and no planner has decided anything after them
      early stops  the run says succeeded, and the answer, a step or a call that
                   is expected is not there

    Exit codes: 0 all runs were made, whatever they say; 2 wrong usage, or a file that cannot be used; 4 a ceiling has
    ended the comparison; 130 Ctrl-C has. What was found before is reported.
    """
    from dagrun.cli.jobs.evaluate.compare_job import compare_ways

    configuration = configure(flags)
    with data_output() as data:
        return compare_ways(configuration, data, paths, flags)

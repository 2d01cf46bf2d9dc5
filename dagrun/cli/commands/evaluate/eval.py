"""``dagrun eval`` and ``dagrun compare``: carry out golden tasks in a world of stand-ins, once or in several ways."""

from __future__ import annotations

from typing import Any

import click

from dagrun.cli.setup.settings import configure
from dagrun.cli.table_command import command
from dagrun.cli.terminal.stdout import data_output


class _Group(click.Group):
    """Takes a first word that is none of its commands for a file of cases."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments, with the command ``run`` in front if they name none."""
        names_one = bool(args) and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if names_one else ["run", *args])


@click.group(cls=_Group)
def evaluate() -> None:
    """Carry out golden tasks: goals and plans in a world of stand-ins, with what is expected of them.

    dagrun eval PATH… is short for dagrun eval run PATH…; the files are described by dagrun schema eval.
    """


@command("eval.run", evaluate, short_help="Carry out the golden tasks of files and folders.")
def run_cases(*, paths: tuple[str, ...], **flags: Any) -> int:
    """Carry out the cases of files and folders: each in its world, on a virtual clock wherever no model is asked.

    A tool that a case names neither in its world nor under real is refused, and never called. The options of models are
    for cases that name a model, those of tools for files that name none.

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
    """Carry out golden tasks by several ways, and compare success, time, tokens and cost.

    The cases are those of dagrun eval that have a goal; those with a plan are left out. Every way meets each of them in
    the same worlds with the same seeds, so runs are compared in pairs. For each two ways, a verdict says what can be
    told from the runs; and where nothing can, about how many would be needed.

    Tools are stand-ins, except those that a case names as real: each run may call them, and they may only read.

    Examples:
      dagrun compare evals/ --model NAME
      dagrun compare evals/ --ways ways.toml --repeat 20 --max-cost 2
      dagrun compare evals/refund.yaml --only refund-happy --ways ways.toml --json

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

    Exit codes: 0 all runs were made, whatever they say; 2 wrong usage, or a file that cannot be used; 4 a ceiling has
    ended the comparison; 130 Ctrl-C has. What was found before is reported.
    """
    from dagrun.cli.jobs.evaluate.compare_job import compare_ways

    configuration = configure(flags)
    with data_output() as data:
        return compare_ways(configuration, data, paths, flags)

"""``dagrun eval``: carries out golden tasks in a world of stand-ins, and says what is not as expected."""

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


@evaluate.command("run", epilog=EPILOG, short_help="Carry out the golden tasks of files and folders.")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(exists=True))
@click.option("--only", metavar="ID", multiple=True, help="Carry out the case of this id alone. May be repeated.")
@click.option("--record", metavar="FILE", type=click.Path(dir_okay=False), help="Keep the figures, as a baseline.")
@click.option("--baseline", metavar="FILE", type=click.Path(dir_okay=False), help="Compare with figures kept earlier.")
@click.option("--junit", metavar="FILE", type=click.Path(dir_okay=False), help="Write a report for CI servers.")
@click.option("--github", is_flag=True, help="Add a table to the summary of the job, in GitHub Actions.")
@click.option(
    "--policy",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="A TOML file with limits, in place of those of the cases: what would change with it?",
)
@options.combined(options.tools, options.planner, options.model_options, options.verbose, options.directory)
@options.as_json
def run_cases(*, paths: tuple[str, ...], **flags: Any) -> int:
    """Carry out the cases of files and folders: each in its world, on a virtual clock wherever no model is asked.

    A tool that a case names neither in its world nor under real is refused, and never called. The options of models are
    for cases that name a model, those of tools for files that name none.
    """
    from dagrun.cli.jobs.evaluate.eval_job import carry_out

    configuration = configure({name: value for name, value in flags.items() if name != "planner"})
    with data_output() as data:
        return carry_out(configuration, data, paths, flags)


_FROM: Final = """
\b
Examples:
  dagrun eval from last -o evals/incident.yaml
  dagrun eval evals/incident.yaml

\b
What is in the case:
  world      what each call of a tool came to, by its arguments, and when
  people     what people answered
  planner    the answers of the planner, and so the changes of the plan
  host       what its host did: changes of the plan, cancellations
  expect     how the run and its steps ended, and its answer; of a long
             answer, its kind and size

Redacted is what looks like a token, has the name of a secret, or is of the kinds that the policy on record names. A
redact function of the program that ran it is not applied: check the file before you share it. No tool is called.
Today's policy on yesterday's run: dagrun eval CASE --policy policy.toml.

Exit codes: 0 it comes to the same as on record, 1 it does not, 2 wrong usage, or a run that cannot become a case.
"""


@evaluate.command("from", epilog=_FROM, short_help="Make a golden task of a recorded run that has ended.")
@run_argument
@click.option("-o", "--output", metavar="FILE", type=click.Path(dir_okay=False), help="The file.  [default: stdout]")
@click.option("--id", "case_id", metavar="ID", help="The name of the case.  [default: that of the run]")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@options.combined(records_option, options.tools, options.as_json, options.directory)
def from_run(*, run: str, **flags: Any) -> int:
    """Make a golden task of RUN, a recorded run that has ended, and carry it out once.

    Its tools are those that it was begun with, unless others are named.
    """
    from dagrun.cli.jobs.evaluate.case_job import make_case

    configuration = configure(flags)
    with data_output() as data:
        return make_case(configuration, data, run, flags)

"""``dagrun approve`` and ``dagrun answer``: answer a run that waits, or that is in use elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from dagrun.cli import options
from dagrun.cli.records.run_records import records_option, run_argument

F = TypeVar("F", bound=Callable[..., Any])

APPROVE: Final = """
\b
Examples:
  dagrun approve last pay
  dagrun approve last pay --yes --tick "invoice seen"
  dagrun approve last pay --deny --note "the amount is wrong"

\b
Exit codes:
  0 the answer is left for the run, 130 you did not answer,
  2 there is no such question, or it was answered already
"""
ANSWER: Final = """
\b
Examples:
  dagrun answer last region EU
  dagrun answer last pay took_effect 17   # a call in doubt; its output is 17
  dagrun answer last pay did_not          # it did not, so it is called again
  dagrun answer last pay unknown          # nobody knows: it stays in doubt
  dagrun answer last change -- -5         # a value that begins with a dash

\b
Exit codes:
  0 the answer is left for the run, 130 you did not answer,
  2 there is no such question, or it was answered already
"""


def _shared(function: F) -> F:
    return options.combined(
        click.option("--note", default="", metavar="TEXT", help="The reason, for the record."),
        click.option("--by", metavar="NAME", help="Your name, for the record.  [default: your login name]"),
        click.option("--yes", "is_sure", is_flag=True, help="Do not ask whether you are sure."),
        records_option,
        options.as_json,
        options.directory,
    )(function)


@click.command(epilog=APPROVE)
@run_argument
@click.argument("step", required=False)
@click.option("--deny", is_flag=True, help="Say no.")
@click.option("--tick", "ticked", multiple=True, metavar="POINT", help="Tick a checklist point. May be repeated.")
@_shared
def approve(*, run: str, step: str | None, deny: bool, ticked: tuple[str, ...], **flags: Any) -> int:
    """Answer a question of RUN about STEP with yes or no: may it make this call, continue, or change the plan?

    STEP is the step that is held, or the id of a question; it may be left out if only one question is open. The
    question is shown with the exact arguments of the call. On a terminal you are asked for the answer; elsewhere, pass
    --yes or --deny. A yes is only for the call that is shown. If no process holds the run, the answer waits for dagrun
    resume.
    """
    from dagrun.cli.records.answering import Reply, points
    from dagrun.model.question import Answer

    reply = Reply(run, flags)
    question = reply.find(step, is_value=False)
    reply.show(question)
    if deny:
        return reply.post(question, Answer("deny"), "Say no?")
    if flags["is_sure"]:
        return reply.post(question, Answer("approve", ticked=points(question, ticked)), "")
    return reply.ask(question)


@click.command(epilog=ANSWER)
@run_argument
@click.argument("step")
@click.argument("values", metavar="VALUE...", nargs=-1)
@_shared
def answer(*, run: str, step: str, values: tuple[str, ...], **flags: Any) -> int:
    """Give RUN the value that it asks for about STEP: JSON, or just the text if it asks for a text.

    If a call of STEP is in doubt, say whether it took effect: took_effect, followed by the output of the call if its
    tool returns one (without it, the step fails); did_not, and the call is made again; or unknown. The question is
    shown in full; on a terminal you are asked whether you are sure.
    """
    from dagrun.cli.records.answering import Reply, answer_of

    reply = Reply(run, flags)
    question = reply.find(step, is_value=True)
    reply.show(question)
    return reply.post(question, answer_of(question, values), "Is that your answer?")

"""``dagrun answer``: the answer of a person to a question of a run of any process, which is found and shown."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

import click

from dagrun.cli.records.resume_command import answer_command, command_again, label, quoted, waits_for, where_is
from dagrun.cli.records.run_store import open_runs, wait
from dagrun.cli.setup.settings import configure
from dagrun.cli.table_command import command
from dagrun.cli.terminal.text import SCHEMA_VERSION, columns_of, data_output, printable, terminal_of
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import AnswerRefused, shorten, visible
from dagrun.kernel.model.journal import Held

if TYPE_CHECKING:
    from dagrun import Answer, Question, Replayed
    from dagrun.kernel.model.question import Choice


@command("answer")
def answer(
    *, run: str, step: str | None, values: tuple[str, ...], deny: bool, ticked: tuple[str, ...], **flags: Any
) -> int:
    """Answer a question of RUN about STEP: yes or no, or the value that it asks for.

    STEP is the step that is held, or the id of a question; it may be left out if only one question is open. The
    question is shown, with the exact arguments of the call. On a terminal you are asked for the answer; elsewhere, pass
    --yes, --deny or VALUE. A yes is only for the call that is shown. If no process holds the run, the answer waits for
    dagrun resume.

    VALUE is JSON, or just the text if a text is asked for. If the effect of a call of STEP is unresolved, answer
    took_effect, followed by the output of the call if its tool returns one (without it, the step fails); did_not, and
    the call is made again; or unknown.

    Examples:
      dagrun answer last pay
      dagrun answer last pay --yes --tick "invoice seen"
      dagrun answer last pay --deny --note "the amount is wrong"
      dagrun answer last region EU
      dagrun answer last pay took_effect 17   # it took effect; its output is 17
      dagrun answer last pay did_not          # it did not, so it is called again
      dagrun answer last pay unknown          # it stays unresolved
      dagrun answer last change -- -5         # a value that begins with a dash

    Exit codes:
      0 the answer is left for the run, 130 you did not answer,
      2 there is no such question, or it was answered already
    """
    return Reply(run, flags).answer(step, values, deny=deny, ticked=ticked)


NOT_ANSWERED: Final = 130
PATIENCE: Final = 10.0  # seconds until the process at a run should have taken an answer


class Reply:
    """Answers a question of one run.

    Args:
        run_id: The run, as the user has typed it.
        flags: The flags of the command line.
    """

    def __init__(self, run_id: str, flags: Mapping[str, Any]) -> None:
        self._flags = flags
        configuration = configure(flags)
        self._records = open_runs(configuration)
        self._run_id = self._records.find(run_id)
        self._past: Replayed = self._records.whole(self._run_id)
        self._where = where_is(configuration)

    def answer(self, about: str | None, values: tuple[str, ...], *, deny: bool, ticked: tuple[str, ...]) -> int:
        """Answer a question, or ask the person at the terminal, and return the exit code.

        Args:
            about: A step or the beginning of the id of a question; `None` for the only open question.
            values: The words of the value.
            deny: Whether the answer is no.
            ticked: The points of the checklist that are ticked.

        Raises:
            BadInput: There is no such question, or more than one; or the answer does not fit it.
        """
        from dagrun import Answer, Asked
        from dagrun.observe.question_text import lay_out

        question = self._find(about)
        is_value, is_sure = question.kind in (Asked.INPUT, Asked.EFFECT), self._flags["is_sure"]
        is_asked = not values and not deny and (is_value or not is_sure)
        if values and not is_value:
            raise BadInput(f"{shorten(question.text)} Answer by --yes or --deny; it takes no VALUE")
        if is_value and (deny or ticked or (is_asked and not self._is_at_terminal)):
            command = answer_command(self._run_id, question, self._where)
            raise BadInput(f"{shorten(question.text)} This is answered by: {command}")
        if is_asked and self._is_at_terminal:
            return self._ask(question)
        page = lay_out(question, width=columns_of(sys.stderr) - 1, is_whole=True)
        click.echo("\n".join(["", *page.lines, ""]), err=True)
        if is_asked:
            raise BadInput("here is nobody to ask; look at the question, and say --yes or --deny")
        if deny:
            return self._post(question, Answer("deny"), "Say no?")
        if is_value:
            return self._post(question, answer_of(question, values), "Is that your answer?")
        return self._post(question, Answer("approve", ticked=points(question, ticked)), "")

    def _find(self, about: str | None) -> Question:
        """Return the question that is meant."""
        fitting = [q for q in self._past.pending if about is None or q.step == about or q.id.startswith(about)]
        if not fitting:
            raise BadInput(*self._no_question(about))
        if len(fitting) > 1:
            listed = (f"{visible(q.id)}: {shorten(q.text)}" for q in fitting)
            raise BadInput(f"{len(fitting)} questions are open; name one by its id:", *listed)
        return fitting[0]

    def _no_question(self, about: str | None) -> list[str]:
        asked = ", ".join(waits_for(self._past.pending))
        others = f"it asks about {shorten(asked)}" if asked else "no question of it is open"
        if self._past.has_ended:
            others = f"it has ended: {self._past.status}"
        return [f"run {self._run_id} asks nothing{'' if about is None else f' about {shorten(about, 60)}'}: {others}"]

    @property
    def _is_at_terminal(self) -> bool:
        return terminal_of(sys.stdin) is not None and terminal_of(sys.stderr) is not None

    def _ask(self, question: Question) -> int:
        """Ask at the terminal, as a run does."""
        import anyio

        from dagrun import Answer
        from dagrun.cli.terminal.ask_person import make_approver
        from dagrun.cli.terminal.display import Display

        approver = make_approver(Display(None, 0))
        assert approver is not None
        response = anyio.run(approver, replace(question, deadline=None))
        if not isinstance(response, Answer):
            click.echo("not answered", err=True)
            return NOT_ANSWERED
        return self._leave(question, self._signed(response, self._flags["note"] or response.note))

    def _post(self, question: Question, response: Answer, sure: str) -> int:
        """Leave an answer for the run, if it fits the question, and the user is sure."""
        from dagrun.kernel.decide.questions import fault_of

        response = self._signed(response, self._flags["note"])
        if fault := fault_of(question, response):
            raise BadInput(f"this does not answer the question: {fault}")
        if not self._flags["is_sure"]:
            if not self._is_at_terminal:
                raise BadInput("here is nobody to ask whether you are sure; look at the question, and add --yes")
            if not click.confirm(sure, err=True):
                click.echo("not answered", err=True)
                return NOT_ANSWERED
        return self._leave(question, response)

    def _signed(self, response: Answer, note: str) -> Answer:
        from dagrun.cli.terminal.ask_person import login

        return replace(response, by=self._flags["by"] or response.by or login(), note=note)

    def _leave(self, question: Question, response: Answer) -> int:
        from dagrun.workers.submitting import leave_answer

        submitted = self._records.in_queue(self._run_id)  # before: a worker may be at its end a moment later
        journal = self._records.journal
        try:
            counts = wait(lambda: leave_answer(journal, self._run_id, question.id, response, seconds=PATIENCE))
        except AnswerRefused as error:
            raise BadInput(f"{shorten(question.text)} This answer does not count: {error}") from error
        held = self._records.held(self._run_id)
        standing = None if submitted is None or held.is_held else self._standing()
        words = command_again("resume", self._run_id, label(self._past.opening.labels, "again"))
        with data_output() as data:
            if self._flags["as_json"]:
                data.json(
                    {
                        "schema_version": SCHEMA_VERSION,
                        "run_id": self._run_id,
                        "question": question.id,
                        "answer": response.as_dict(),
                        "is_held": held.is_held,
                        "counts": counts,
                        "queue_status": standing,
                        "standing": standing,  # its name in 0.2; removed in 0.4
                        "next_command": None if held.is_held or standing is not None else words,
                    }
                )
            else:
                pool = "" if submitted is None else printable(submitted.ticket.pool)
                data.text(_told(counts, standing, pool, held, printable(quoted(words))))
        return 0

    def _standing(self) -> str:
        row = self._records.in_queue(self._run_id)
        return "ended" if row is None else str(row.standing)


def _told(counts: bool, standing: str | None, pool: str, held: Held, resume: str) -> str:
    """Return the effect of an answer that was left in the inbox."""
    if standing == "ended":
        return f"answered; a worker of pool {pool} has brought the run to its end"
    if standing is not None:
        return f"answered; the run is {standing} for a worker of pool {pool}, which continues it"
    if not counts:
        return f"the answer is left for {held.owner}, which holds the run and has not taken it yet"
    if held.is_held:
        return f"answered; {held.owner} holds the run, and continues it"
    return f"answered; no process holds the run now, so resume it:\n  {resume}"


def points(question: Question, ticked: tuple[str, ...]) -> tuple[str, ...]:
    """Return the points of the checklist that a person has ticked.

    Raises:
        BadInput: One of them is not on the checklist.
    """
    strange = [point for point in ticked if point not in question.checklist]
    if strange:
        raise BadInput(*(f"--tick {shorten(point, 100)}: there is no such point on the checklist" for point in strange))
    return ticked


def answer_of(question: Question, values: tuple[str, ...]) -> Answer:
    """Return the answer that a person has typed as *values*.

    Raises:
        BadInput: The values do not answer the question.
    """
    from dagrun import Answer, Asked

    if question.kind is Asked.INPUT:
        if len(values) != 1:
            raise BadInput("give one VALUE; a text with blanks goes in quotes")
        return Answer("approve", value=_read(values[0], question.schema or {}))
    match values:
        case ("took_effect",) | ("did_not",) | ("unknown",):
            return Answer(cast("Choice", values[0]))
        case "took_effect", output:
            return Answer("took_effect", value=_read(output, question.schema or {}))
    raise BadInput(
        "say took_effect, and what the call returned if it returns anything; did_not, so that it is called again; or"
        " unknown"
    )


def _read(text: str, schema: Mapping[str, Any]) -> Any:
    from dagrun.observe.question_text import BadAnswer, read_value

    try:
        return read_value(text, schema)
    except BadAnswer as error:
        raise BadInput(f"VALUE: {error}") from error

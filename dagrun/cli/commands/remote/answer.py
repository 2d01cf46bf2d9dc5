"""``dagrun answer`` and ``dagrun stop``: messages of people to a run of any process."""

from __future__ import annotations

from typing import Any

from dagrun.cli.table_command import command
from dagrun.cli.terminal.user_errors import BadInput


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
    from dagrun.cli.records.answering import Reply

    return Reply(run, flags).answer(step, values, deny=deny, ticked=ticked)


@command("stop")
def stop(*, run: str, step: str | None, suspend: bool, **flags: Any) -> int:
    """Stop RUN, or one STEP of it, which another process carries out now.

    The run ends as cancelled. If a STEP is stopped, the steps that depend on it are skipped, and all others run on. A
    call that is running gets the grace period of the policy to clean up.

    With --suspend the run does not end, and dagrun resume resumes it later: nothing starts any more; a call without an
    effect is stopped, and is made again later; a call with an effect gets the grace period to end.

    Examples:
      dagrun stop last
      dagrun stop last fetch --reason "the page is gone"
      dagrun stop last --suspend --reason "the machine is needed"

    Exit codes:
      0 the run has stopped, 1 it did not react,
      2 there is nothing to stop, 5 no process is at the run
    """
    from dagrun.cli.records.control_messages import RunOrder

    if suspend and step is not None:
        raise BadInput("--suspend is for a whole run; leave the step out")
    return RunOrder("suspend" if suspend else "cancel", run, step, flags).carry_out()

"""``dagrun approve``, ``answer``, ``cancel`` and ``suspend``: messages of people to a run of any process."""

from __future__ import annotations

from typing import Any

from dagrun.cli.table_command import command


@command("approve")
def approve(*, run: str, step: str | None, deny: bool, ticked: tuple[str, ...], **flags: Any) -> int:
    """Answer a question of RUN about STEP with yes or no: may it make this call, continue, or change the plan?

    STEP is the step that is held, or the id of a question; it may be left out if only one question is open. The
    question is shown with the exact arguments of the call. On a terminal you are asked for the answer; elsewhere, pass
    --yes or --deny. A yes is only for the call that is shown. If no process holds the run, the answer waits for dagrun
    resume.

    Examples:
      dagrun approve last pay
      dagrun approve last pay --yes --tick "invoice seen"
      dagrun approve last pay --deny --note "the amount is wrong"

    Exit codes:
      0 the answer is left for the run, 130 you did not answer,
      2 there is no such question, or it was answered already
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


@command("answer")
def answer(*, run: str, step: str, values: tuple[str, ...], **flags: Any) -> int:
    """Give RUN the value that it asks for about STEP: JSON, or just the text if it asks for a text.

    If a call of STEP is in doubt, say whether it took effect: took_effect, followed by the output of the call if its
    tool returns one (without it, the step fails); did_not, and the call is made again; or unknown. The question is
    shown in full; on a terminal you are asked whether you are sure.

    Examples:
      dagrun answer last region EU
      dagrun answer last pay took_effect 17   # a call in doubt; its output is 17
      dagrun answer last pay did_not          # it did not, so it is called again
      dagrun answer last pay unknown          # nobody knows: it stays in doubt
      dagrun answer last change -- -5         # a value that begins with a dash

    Exit codes:
      0 the answer is left for the run, 130 you did not answer,
      2 there is no such question, or it was answered already
    """
    from dagrun.cli.records.answering import Reply, answer_of

    reply = Reply(run, flags)
    question = reply.find(step, is_value=True)
    reply.show(question)
    return reply.post(question, answer_of(question, values), "Is that your answer?")


@command("cancel")
def cancel(*, run: str, step: str | None, **flags: Any) -> int:
    """Cancel RUN, or one STEP of it, which another process carries out now.

    A cancelled run ends. If a STEP is cancelled, the steps that depend on it are skipped, and all others run on. A call
    that is running gets the grace period of the policy to clean up.

    Examples:
      dagrun cancel last
      dagrun cancel last fetch --reason "the page is gone"

    Exit codes:
      0 the run was told, and has done so, 1 it did not react,
      2 there is nothing to cancel, 5 no process is at the run
    """
    from dagrun.cli.records.control_messages import RunOrder

    return RunOrder("cancel", run, step, flags).carry_out()


@command("suspend")
def suspend(*, run: str, **flags: Any) -> int:
    """Suspend RUN, which another process carries out now, so that dagrun resume can resume it later.

    Nothing starts any more. A call without an effect is stopped, and is made again later; a call with an effect gets
    the grace period of the policy to end.

    Example:
      dagrun suspend last --reason "the machine is needed"

    Exit codes:
      0 the run was told, and is suspended, 1 it did not react,
      2 it has ended, 5 no process is at the run
    """
    from dagrun.cli.records.control_messages import RunOrder

    return RunOrder("suspend", run, None, flags).carry_out()

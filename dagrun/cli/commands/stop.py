"""``dagrun stop``: an order to the process at a run, left in its inbox; and the wait until it shows on record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from dagrun.cli.records.resume_command import command_again, label, quoted
from dagrun.cli.records.run_store import open_runs, wait
from dagrun.cli.setup.settings import configure
from dagrun.cli.table_command import command
from dagrun.cli.terminal.text import SCHEMA_VERSION, data_output, printable
from dagrun.cli.terminal.user_errors import FAILED, BadInput
from dagrun.errors import hint, shorten

if TYPE_CHECKING:
    from dagrun import Event, Replayed
    from dagrun.kernel.model.event import RunEnded, RunStopping, RunSuspended
    from dagrun.kernel.model.question import ControlMessage


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
    if suspend and step is not None:
        raise BadInput("--suspend is for a whole run; leave the step out")
    return RunOrder("suspend" if suspend else "cancel", run, step, flags).carry_out()


Order = Literal["cancel", "suspend"]

NOBODY: Final = 5
PATIENCE: Final = 10.0  # seconds until a run should have reacted, besides the grace periods of its calls


class RunOrder:
    """Sends an order to the process of a run, and waits until it is recorded.

    Args:
        order: The order.
        run_id: The run, as the user has typed it.
        step: The step to cancel; `None` for the run.
        flags: The flags of the command line.
    """

    def __init__(self, order: Order, run_id: str, step: str | None, flags: Mapping[str, Any]) -> None:
        self._order: Order = order
        self._flags = flags
        self._step = step
        self._records = open_runs(configure(flags))
        self._run_id = self._records.find(run_id)
        self._is_submitted = False
        self._past: Replayed = self._records.replay(self._run_id)

    def carry_out(self) -> int:
        """Send the order, and return the exit code."""
        self._check()
        self._is_submitted = self._records.in_queue(self._run_id) is not None
        return wait(self._give)

    def _check(self) -> None:
        """Refuse an order about a run or step that has ended or does not exist."""
        past, step = self._past, self._step
        if past.has_ended:
            raise BadInput(f"run {self._run_id} has ended: {past.status}")
        if step is None:
            return
        if step not in past.graph.nodes:
            raise BadInput(f"run {self._run_id} has no step {shorten(step, 60)}{hint(step, past.graph.nodes)}")
        if (state := past.states[step]).is_settled:
            raise BadInput(f"step {shorten(step, 60)} of run {self._run_id} has ended: {state}")

    async def _give(self) -> int:
        import anyio

        from dagrun.cli.terminal.ask_person import login
        from dagrun.codec import decode_event
        from dagrun.journal.following import RecordFollower
        from dagrun.kernel.model.question import ControlMessage
        from dagrun.workers.submitting import held_run

        journal = self._records.journal
        held = await held_run(journal, self._run_id)
        if not held.is_held and self._order == "cancel" and self._step is None and self._is_submitted:
            return await self._cancel_on_record()
        if not held.is_held:
            return await self._nobody()
        follower = RecordFollower(journal, self._run_id)
        await follower.news()
        message = ControlMessage(
            key=await journal.answer_key(self._run_id),
            control=self._order,
            after=follower.seq,
            step=self._step or "",
            reason=self._flags["reason"],
            by=self._flags["by"] or login(),
        )
        await journal.post(self._run_id, message.model_dump_json().encode())
        with anyio.move_on_after(PATIENCE + 2 * self._past.opening.policy.grace):
            while True:
                is_held = (await held_run(journal, self._run_id)).is_held  # before the last records are read
                told = [text for line in await follower.news() if (text := told_by(message, decode_event(line.text)))]
                if told:
                    return self._say("done", told[0])
                if not is_held:
                    return await self._nobody()
                await follower.wait()
        return self._say("ignored", f"{held.owner} has not reacted; an older dagrun takes answers, and no orders")

    async def _cancel_on_record(self) -> int:
        """Cancel a submitted run that no worker has now: the next one ends it, and starts nothing of it."""
        from dagrun import cancel
        from dagrun.cli.terminal.ask_person import login

        is_open = await cancel(
            self._run_id, journal=self._records.journal, reason=self._flags["reason"], by=self._flags["by"] or login()
        )
        return self._say("done", "run cancelled: the next worker ends it" if is_open else "the run has just ended")

    async def _nobody(self) -> int:
        """Report that no process has the run; or its end, if it ended since its record was first read."""
        from dagrun.codec import decode_event
        from dagrun.journal.following import RecordFollower
        from dagrun.kernel.model.event import RunEnded

        lines = await RecordFollower(self._records.journal, self._run_id).news()
        if lines and isinstance(last := decode_event(lines[-1].text), RunEnded):
            return self._say("done", _end_of(last))
        words = quoted(command_again("resume", self._run_id, label(self._past.opening.labels, "again")))
        return self._say("nobody", f"no process is at run {self._run_id}; dagrun resume would go on:\n  {words}")

    def _say(self, result: Literal["done", "ignored", "nobody"], text: str) -> int:
        with data_output() as data:
            if self._flags["as_json"]:
                facts = {"run_id": self._run_id, "order": self._order, "step": self._step, "result": result}
                data.json({"schema_version": SCHEMA_VERSION, **facts, "text": text})
            elif result == "done":
                data.text(printable(text))
            else:
                click.echo(printable(text), err=True)
        return {"done": 0, "ignored": FAILED, "nobody": NOBODY}[result]


def told_by(order: ControlMessage, event: Event) -> str:
    """Return the effect of *order* that *event* shows; empty if there is none.

    It may also tell that the order came too late, as the run or the step had just ended by itself.
    """
    from dagrun.kernel.model.event import AttemptEnded, Reviewed, RunEnded, RunStopping, RunSuspended, StepSettled

    match event:
        case RunEnded() | RunStopping() | RunSuspended():
            return _end_of(event)
        case AttemptEnded() | Reviewed() | StepSettled() if event.step == order.step and event.state.is_settled:
            return f"step {shorten(event.step, 60)} {event.state}"
        case _:
            return ""


def _end_of(event: RunEnded | RunStopping | RunSuspended) -> str:
    return f"run {event.status}: {event.reason}" if event.reason else f"run {event.status}"

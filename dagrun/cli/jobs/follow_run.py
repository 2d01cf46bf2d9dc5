"""A run that is followed while any process carries it out: its steps as they end, its questions, and its answer."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import anyio
import click

from dagrun import Event, Replayed, Status, follow
from dagrun.cli.jobs.job import OnEvent
from dagrun.cli.records.resume_command import answer_command, command_again, quoted
from dagrun.cli.records.run_store import RunStore
from dagrun.cli.terminal.display import StepLines
from dagrun.cli.terminal.event_lines import EventLines
from dagrun.cli.terminal.signals import Interrupts, next_in_loop
from dagrun.cli.terminal.text import SCHEMA_VERSION, Data, coloured, printable
from dagrun.errors import shorten
from dagrun.kernel.model.event import QuestionAsked, RunEnded, RunResumed, RunSuspended
from dagrun.kernel.runtime.result import answer_of


def follow_run(records: RunStore, run_id: str, where: Sequence[str], data: Data, flags: Mapping[str, Any]) -> int:
    """Follow a run to its end, print its answer, and return its exit code.

    Args:
        records: Where the run is.
        run_id: The run.
        where: The options that lead to its record, for the commands that are shown.
        data: The standard output.
        flags: The flags of the command line: ``as_json``, ``events``, ``quiet``.

    Raises:
        JournalError: The record cannot be read.
    """
    with Interrupts() as signals, ExitStack() as stack:
        seen: list[OnEvent] = []
        if flags["events"]:
            seen.append(stack.enter_context(EventLines(data)).on_event)
        if not flags["quiet"]:
            seen.append(_RunLines(run_id, where).on_event)
        _say_where_it_stands(records, run_id, where, is_quiet=flags["quiet"])
        anyio.run(_follow, records, run_id, seen, signals)
        if signals.first is not None:
            click.echo(f"run {run_id} goes on; nobody follows it here any more", err=True)
            return 128 + signals.first
    past = records.shown(run_id)
    status = past.status or Status.FAILED
    if flags["as_json"]:
        data.json(
            {
                "schema_version": SCHEMA_VERSION,
                "run_id": run_id,
                "status": str(status),
                "reason": past.reason,
                "output": answer_of(past.graph),
            }
        )
    elif not flags["events"]:
        _tell(past, status, data, is_quiet=flags["quiet"])
    return status.exit_code


def _say_where_it_stands(records: RunStore, run_id: str, where: Sequence[str], *, is_quiet: bool) -> None:
    """Explain why nothing may happen: a record does not show that no worker takes its run.

    Of a run that is stuck this is said in any case: the command waits until somebody puts it back.
    """
    row = records.in_queue(run_id)
    is_stuck = row is not None and row.standing == "stuck"
    if row is None or row.standing == "running" or (is_quiet and not is_stuck):
        return
    reason = f": {shorten(row.reason, 1_000)}" if row.reason else ""
    lines = [f"{run_id} is {row.standing} in pool {row.ticket.pool}{reason}"]
    if is_stuck:
        lines.append(f"no worker takes it up before: {quoted(command_again('resume', run_id, ['--requeue', *where]))}")
    click.echo(printable("; ".join(lines)) if is_quiet else "\n".join(map(printable, lines)), err=True)


def _tell(past: Replayed, status: Status, data: Data, *, is_quiet: bool) -> None:
    if status is Status.SUCCEEDED:
        data.value(answer_of(past.graph))
    if not is_quiet or status is not Status.SUCCEEDED:
        colour = 32 if status is Status.SUCCEEDED else 31
        click.echo(coloured(f"{status}: {printable(shorten(past.reason, 1_000))}", colour, sys.stderr), err=True)


async def _follow(records: RunStore, run_id: str, seen: Sequence[OnEvent], signals: Interrupts) -> None:
    with anyio.CancelScope() as scope:
        signals.on_first(next_in_loop(lambda _: scope.cancel()))
        async for event in follow(run_id, journal=records.journal):
            for on_event in seen:
                on_event(event)


class _RunLines:
    """A line for each step that has ended, and for each possible action of people."""

    def __init__(self, run_id: str, where: Sequence[str]) -> None:
        self._run_id = run_id
        self._where = where
        self._steps = StepLines()

    def on_event(self, event: Event) -> None:
        """Write lines about an event."""
        match event:
            case QuestionAsked(question=question):
                self._say(event, f"asks: {shorten(question.text)}")
                click.echo(f"           {printable(answer_command(self._run_id, question, self._where))}", err=True)
            case RunSuspended(status=status, reason=reason):
                self._say(event, f"suspended as {status}: {shorten(reason)}")
            case RunResumed():
                self._say(event, "a process carries it on")
            case RunEnded():
                return
            case _:
                self._steps.on_event(event)

    @staticmethod
    def _say(event: Event, text: str) -> None:
        click.echo(f"{event.at:7.2f} s  {printable(text)}", err=True)

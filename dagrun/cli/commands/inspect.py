"""``dagrun inspect`` and ``dagrun replay``: what happened in a run, and its state by its record alone."""

from __future__ import annotations

from typing import Any, Final

from dagrun.cli.records.run_records import open_records
from dagrun.cli.setup.settings import configure
from dagrun.cli.table_command import command
from dagrun.cli.terminal.stdout import data_output
from dagrun.cli.terminal.text import SCHEMA_VERSION, bounded, columns
from dagrun.errors import shorten


@command("inspect")
def inspect(*, run: str, step: str | None, timeline: bool, with_answers: bool, as_json: bool, **flags: Any) -> None:
    """Show what happened in RUN, in order, and the reason of each decision; or only what happened to STEP.

    Each failure is shown with the row of the recovery table that decided what to do; each change of the plan with its
    edits; each question with the person who answered. Answers of models are shown by their first lines. Times are in
    seconds from the start of the run, without pauses. A run that is not over is shown as far as it is recorded. Neither
    its tools nor its planner are needed.

    Examples:
      dagrun inspect last
      dagrun inspect last load_prices
      dagrun inspect last --timeline
      dagrun inspect last --answers
      dagrun inspect last --json | jq '.entries[]'

    Exit codes: 0, 1 if the record is damaged, 2 if there is no such run or step.
    """
    from dagrun.cli.records.inspect_page import show_run

    configuration = configure(flags)
    with data_output() as data:
        show_run(configuration, data, run, step, timeline=timeline, with_answers=with_answers, as_json=as_json)


_MAX_STEPS: Final = 1_000


@command("replay")
def replay(*, run: str, only_hash: bool, as_json: bool, **flags: Any) -> None:
    """Rebuild the state of RUN from its record, without calling anything, and print the state of the run and each step.

    Equal records have equal hashes of the state on every machine. Neither tools nor a planner are needed.

    Examples:
      dagrun replay last
      dagrun replay last --hash

    Exit codes: 0, 1 if the record is damaged, 2 if there is no such run.
    """
    records = open_records(configure(flags))
    with data_output() as data:
        past = records.replay(records.find(run))
        status = None if past.status is None else str(past.status)
        if only_hash:
            data.text(past.hash)
        elif as_json:
            steps = {id_: str(state) for id_, state in past.states.items()}
            data.json(
                {
                    "schema_version": SCHEMA_VERSION,
                    "run_id": past.run_id,
                    "records": len(past.events),
                    "status": status,
                    "reason": past.reason,
                    "has_ended": past.has_ended,
                    "revision": past.history.revision,
                    "hash": past.hash,
                    "steps": steps,
                }
            )
        else:
            rows = [(id_, str(state)) for id_, state in past.states.items()]
            lines = columns(rows).splitlines()
            ended = f"{status}: {past.reason}" if status else "it goes on, or was cut off"
            head = [f"run {past.run_id}: {shorten(ended)}", f"{len(past.events)} records, state {past.hash}", ""]
            data.text("\n".join([*head, *bounded(lines, _MAX_STEPS, lambda more: f"… and {more} more (--json)")]))

"""``dagrun inspect``: the history of a run, its state, its records, and its current events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dagrun.cli.records.run_records import open_records
from dagrun.cli.setup.settings import configure
from dagrun.cli.table_command import command
from dagrun.cli.terminal.text import SCHEMA_VERSION, Data, bounded, columns, data_output
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import shorten

if TYPE_CHECKING:
    from dagrun.cli.records.record_place import Records

_MAX_STEPS: Final = 1_000
_OF_A_RUN: Final = ("timeline", "follow", "state", "export")  # one of these at most, and of a whole run


@command("inspect")
def inspect(*, run: str, step: str | None, with_answers: bool, as_json: bool, **flags: Any) -> int:
    """Show the history of RUN, with the reason of each decision; or only the history of STEP.

    Each failure is shown with the row of the recovery table that decided what to do; each change of the plan with its
    edits; each question with the person who answered. Answers of models are shown by their first lines. Times are in
    seconds from the start of the run, without pauses. A run that is not over is shown as far as it is recorded. Neither
    its tools nor its planner are needed.

    --follow shows the run from its first step to its end, whichever process carries it out, and prints its answer. A
    run that waits in the queue, or for an answer, is followed on. Ctrl-C ends this command, and not the run.

    --state rebuilds the state of the run and of each step from its record, and calls nothing. Equal records have equal
    hashes of the state on every machine.

    --export prints the records, a line of JSON each; the first says how the run was opened. The kinds of personal data
    that the recorded policy names (redact) are taken out, and what is sealed is left out. A line that was changed by
    this ends with the field "redacted". Such an export is for reading: no run can be resumed from it. Only a copy made
    with --full has the whole record.

    Examples:
      dagrun inspect last
      dagrun inspect last load_prices
      dagrun inspect last --timeline
      dagrun inspect last --json | jq '.entries[]'
      dagrun inspect last --follow
      dagrun inspect last --export --full > copy.jsonl

    Exit codes: 0, 1 if the record is damaged, 2 if there is no such run or step. With --follow, as for dagrun run, by
    the end of the run; 130 after Ctrl-C, and the run continues.
    """
    flags["state"] |= flags["hash"]
    chosen = [f"--{name}" for name in _OF_A_RUN if flags[name]]
    if len(chosen) > 1:
        raise BadInput(f"{chosen[0]} and {chosen[1]} are two pages; ask for one")
    if step is not None and chosen:
        raise BadInput(f"{chosen[0]} is about a whole run; leave the step out")
    if flags["is_full"] and not flags["export"]:
        raise BadInput("--full is for --export")
    if (flags["events"] or flags["quiet"]) and not flags["follow"]:
        raise BadInput(f"{'--events' if flags['events'] else '--quiet'} is for --follow")
    configuration = configure(flags)
    with data_output() as data:
        if not chosen or flags["timeline"]:
            from dagrun.cli.records.inspect_page import show_run

            show_run(
                configuration, data, run, step, timeline=flags["timeline"], with_answers=with_answers, as_json=as_json
            )
            return 0
        records = open_records(configuration)
        run_id = records.find(run)
        if flags["follow"]:
            from dagrun.cli.jobs.queued.follow_job import follow_run
            from dagrun.cli.records.resume_command import where_is

            return follow_run(records, run_id, where_is(configuration), data, {**flags, "as_json": as_json})
        if flags["export"]:
            _export(records, run_id, data, is_full=flags["is_full"])
        else:
            _show_state(records, run_id, data, only_hash=flags["hash"], as_json=as_json)
    return 0


def _export(records: Records, run_id: str, data: Data, *, is_full: bool) -> None:
    from dagrun.features.redacted_records.records import shown_lines
    from dagrun.kernel.model.codec.event_codec import events_of

    lines = records.lines(run_id)
    texts = [line.text for line in lines]
    for text in texts if is_full or not lines else shown_lines(events_of(run_id, lines), texts):
        data.text(text.decode("utf-8", "backslashreplace"))
        if data.is_closed:  # the reader has closed its end
            return


def _show_state(records: Records, run_id: str, data: Data, *, only_hash: bool, as_json: bool) -> None:
    past = records.replay(run_id)
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

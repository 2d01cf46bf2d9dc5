"""``dagrun journal``: verifies the records of runs, or exports them."""

from __future__ import annotations

from typing import Any

import click

from dagrun.cli.records.run_records import open_records
from dagrun.cli.records.run_standings import Known, verified
from dagrun.cli.setup.settings import configure
from dagrun.cli.table_command import DefaultGroup, command
from dagrun.cli.terminal.stdout import data_output
from dagrun.cli.terminal.text import SCHEMA_VERSION
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import JournalDamaged


@click.group(cls=DefaultGroup, default=["verify", "--all"])
def journal() -> None:
    """Verify the records of runs, or export them; without a command, verify all of them."""


@command("journal.verify", journal, short_help="Check that no record was changed, and that none is missing.")
def verify(*, run_ids: tuple[str, ...], is_all: bool, as_json: bool, **flags: Any) -> int:
    """Check that no record of RUN was changed, that none is missing, and that they follow from each other.

    Examples:
      dagrun journal verify last
      dagrun journal verify --all

    Exit codes: 0 all records are good, 1 a record is damaged, 2 wrong usage.
    """
    if is_all == bool(run_ids):
        raise BadInput("name runs, or all of them by --all")
    records = open_records(configure(flags))
    with data_output() as data:
        listed = verified(records, None if is_all else [records.find(run_id) for run_id in run_ids])
        if as_json:
            data.json({"schema_version": SCHEMA_VERSION, "runs": [_as_dict(known) for known in listed]})
        else:
            data.text("\n".join(_line(known) for known in listed) or "no runs")
    return int(any(known.fault is not None for known in listed))


def _line(known: Known) -> str:
    name = known.standing.run_id
    if known.fault is not None:
        return f"{name}: {known.standing.text}"
    return f"{name}: good, {known.standing.records or 0} records"


def _as_dict(known: Known) -> dict[str, Any]:
    fault = known.fault
    return {
        "run_id": known.standing.run_id,
        "is_good": fault is None,
        "records": known.standing.records,
        "seq": fault.seq if isinstance(fault, JournalDamaged) else None,
        "reason": known.standing.reason if fault is not None else "",
    }


@command("journal.export", journal, short_help="Print the records of RUN, a line of JSON each.")
def export(*, run: str, is_full: bool, **flags: Any) -> None:
    """Print the records of RUN, a line of JSON each; the first says how the run was opened.

    The kinds of personal data that the recorded policy names (redact) are taken out, and what is sealed is left out. A
    line that was changed by this ends with the field "redacted". Such an export is for reading: no run can be resumed
    from it. Only a copy made with --full holds all that the record holds.

    Examples:
      dagrun journal export last > run.jsonl
      dagrun journal export last --full > copy.jsonl
    """
    from dagrun.model.codec.event_codec import events_of
    from dagrun.model.redaction.records import shown_lines

    records = open_records(configure(flags))
    with data_output() as data:
        name = records.find(run)
        lines = records.lines(name)
        texts = [line.text for line in lines]
        for text in texts if is_full or not lines else shown_lines(events_of(name, lines), texts):
            data.text(text.decode("utf-8", "backslashreplace"))
            if data.is_closed:  # the reader has closed its end
                return

"""``dagrun replay``: rebuilds the state of a run from its record alone."""

from __future__ import annotations

from typing import Any, Final

import click

from dagrun.cli import options
from dagrun.cli.records.run_records import open_records, records_option, run_argument
from dagrun.cli.setup.settings import configure
from dagrun.cli.terminal.stdout import data_output
from dagrun.cli.terminal.text import SCHEMA_VERSION, bounded, columns
from dagrun.errors import shorten

EPILOG: Final = """
\b
Examples:
  dagrun replay last
  dagrun replay last --hash

Exit codes: 0, 1 if the record is damaged, 2 if there is no such run.
"""

_MAX_STEPS: Final = 1_000


@click.command(epilog=EPILOG)
@run_argument
@click.option("--hash", "only_hash", is_flag=True, help="Print only the hash of the state.")
@options.combined(records_option, options.as_json, options.directory)
def replay(*, run: str, only_hash: bool, as_json: bool, **flags: Any) -> None:
    """Rebuild the state of RUN from its record, without calling anything, and print the state of the run and each step.

    Equal records have equal hashes of the state on every machine. Neither tools nor a planner are needed.
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

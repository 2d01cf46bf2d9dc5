"""``dagrun runs``: lists the recorded runs, and where each of them stands."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from dagrun.cli.records.queued_runs import advice_lines, listed_runs, queue_dict, read_standings, standing_words
from dagrun.cli.records.resume_command import label, where_is
from dagrun.cli.records.run_records import open_records
from dagrun.cli.records.run_standings import Known, verified
from dagrun.cli.records.run_titles import what, when
from dagrun.cli.setup.settings import configure
from dagrun.cli.table_command import command
from dagrun.cli.terminal.text import SCHEMA_VERSION, columns, columns_of, data_output
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import JournalDamaged, shorten, visible
from dagrun.observe.line_breaks import wrap_words
from dagrun.observe.run_standing import RunState

if TYPE_CHECKING:
    from dagrun.cli.records.record_place import Records

_HEAD: Final = ("run", "began", "steps", "what", "where it stands")
_WHAT: Final = 40  # characters
_LEAST: Final = 30  # characters for the last two columns; with less, each run is shown as a paragraph


@command("runs")
def runs(*, run_ids: tuple[str, ...], standing: str, verify: bool, as_json: bool, **flags: Any) -> int:
    """List the recorded runs, or each RUN that is named, the oldest first, and where each of them stands.

    A run that is not over is listed, too. Neither tools nor a planner are needed. Of runs that were submitted to
    workers (dagrun submit), the pool is shown, how often a worker has taken one over from another that had ended, and
    what to do about those that are stuck.

    --verify checks that no record was changed, that none is missing, and that they follow from each other.

    Examples:
      dagrun runs
      dagrun runs --json
      dagrun runs --standing queued,running,stuck --journal URL
      dagrun runs --verify
      dagrun runs --verify last

    Exit codes: 0, or 1 if the record of a run is damaged.
    """
    wanted = read_standings(standing)
    configuration = configure(flags)
    records, where = open_records(configuration), where_is(configuration)
    width = columns_of(sys.stdout)
    named = [records.find(run_id) for run_id in run_ids]
    if verify:
        if standing:
            raise BadInput("--verify reads every record; leave --standing out")
        return _verify(records, named or None, as_json=as_json)
    with data_output() as data:
        found = [known for known in listed_runs(records, wanted) if not named or known.standing.run_id in named]
        if as_json:
            shown = [_dict(known, where) for known in found]
            data.json({"schema_version": SCHEMA_VERSION, "folder": records.where, "runs": shown})
        elif not found:
            data.text(f"no {standing + ' ' if standing else ''}runs in {visible(records.where)}")
        else:
            data.text("\n".join([*_lines(found, width), *map(visible, advice_lines(found, where))]))
    return int(any(known.standing.stand is RunState.DAMAGED for known in found))


def _verify(records: Records, named: Sequence[str] | None, *, as_json: bool) -> int:
    with data_output() as data:
        listed = verified(records, named)
        if as_json:
            data.json({"schema_version": SCHEMA_VERSION, "runs": [_verdict(known) for known in listed]})
        else:
            data.text("\n".join(_line(known) for known in listed) or "no runs")
    return int(any(known.fault is not None for known in listed))


def _line(known: Known) -> str:
    name = known.standing.run_id
    if known.fault is not None:
        return f"{name}: {known.standing.text}"
    return f"{name}: good, {known.standing.records or 0} records"


def _verdict(known: Known) -> dict[str, Any]:
    fault = known.fault
    return {
        "run_id": known.standing.run_id,
        "is_good": fault is None,
        "records": known.standing.records,
        "seq": fault.seq if isinstance(fault, JournalDamaged) else None,
        "reason": known.standing.reason if fault is not None else "",
    }


def _dict(known: Known, where: Sequence[str]) -> dict[str, Any]:
    command = label(known.standing.labels, "command")
    return {**known.standing.as_dict(), "command": command, "queue": queue_dict(known, where)}


def _lines(found: Sequence[Known], width: int) -> list[str]:
    rows = [_row(known) for known in found]
    room = width - len("  ".join([max((row[at] for row in rows), key=len) for at in range(3)])) - 4
    if room < _LEAST:
        return list(_paragraphs(rows, max(20, width - 1)))
    half = min(max(len(row[3]) for row in rows), _WHAT, room * 2 // 5)
    cut = [(*row[:3], _cut(row[3], half), _cut(row[4], room - max(half, len(_HEAD[3])))) for row in rows]
    return columns(cut, head=_HEAD).splitlines()


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"


def _row(known: Known) -> tuple[str, ...]:
    standing = known.standing
    began = "-" if standing.began is None else when(standing.began)
    steps = f"{standing.settled}/{standing.steps}" if known.standing.records else "-"
    return standing.run_id, began, steps, shorten(what(standing)), standing_words(known)


def _paragraphs(rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    for run_id, *facts in rows:
        yield from wrap_words(visible(run_id), width, "", "")
        for name, fact in zip(_HEAD[1:], facts, strict=True):
            yield from wrap_words(visible(fact), width, f"  {name}: ", "    ")

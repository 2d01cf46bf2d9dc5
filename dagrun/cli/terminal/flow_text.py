"""The trust boundary of a plan as text: a table of the sources of guarded arguments; paragraphs if it is too wide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Final

from dagrun.cli.terminal.text import bounded, columns
from dagrun.errors import visible
from dagrun.kernel.checks.flow.flow_table import FlowRow, FlowTable

_HEAD: Final = ("step", "argument", "made of", "way", "verdict")
_MAX_ROWS: Final = 200
_PREVIEW: Final = (
    "The policy has no [flow], so a run computes nothing of this; it is shown as an empty [flow] would have it."
)


def flow_lines(table: FlowTable, width: int, *, is_preview: bool) -> list[str]:
    """Return the table in lines of at most *width* characters, where that can be.

    Args:
        table: The table.
        width: The columns of the terminal.
        is_preview: Whether the policy has no trust boundary.
    """
    asked = sum(row.verdict != "passes" for row in table.rows)
    head = f"Trust boundary: {len(table.rows)} guarded argument{'s' * (len(table.rows) != 1)}, {asked} not accepted"
    lines = ["", *([*wrap(_PREVIEW, max(width, 20)), ""] if is_preview else ()), head]
    if table.rows:
        lines += ["", *_rows(table.rows, width)]
    return [*lines, *endorsement_lines(table)]


def endorsement_lines(table: FlowTable) -> list[str]:
    """Return the endorsements that the policy makes in the plan, and their effect; nothing without any."""
    if not table.endorsed:
        return []
    count, passes = len(table.endorsed), table.passes_by_endorsement
    named = visible(", ".join(table.endorsed[:10]))
    return [
        "",
        f"The policy endorses {count} tool{'s' * (count != 1)} of the plan, so that {passes} more pass: {named}",
    ]


def _rows(rows: Sequence[FlowRow], width: int) -> list[str]:
    cells = [_cells(row) for row in rows]
    lines = columns(cells, head=_HEAD).splitlines()
    if max(map(len, lines)) > width:
        lines = [line for row in cells for line in _paragraph(row)]
    return bounded(lines, _MAX_ROWS, lambda more: f"… and {more} more lines (--json has them all)")


def _paragraph(cells: tuple[str, ...]) -> Iterator[str]:
    step, argument, made_of, way, verdict = map(visible, cells)
    yield f"{step} {argument}: {verdict}"
    yield f"  made of {made_of}"
    if way:
        yield f"  by way of {way}"


def _cells(row: FlowRow) -> tuple[str, ...]:
    place = row.place.removeprefix("args.") if row.place != "tool" else "(its own calls)"
    verdict = row.verdict if not row.code else f"{row.verdict} ({row.code})"
    return row.step, f"{place} of {row.tool}", ", ".join(row.sources), row.way, verdict

"""`clean_data`: fix types, remove incomplete and repeated rows, and count all of that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from dagrun import ToolContext, ToolError, tool
from dagrun_tools.facts import Cleaning, Table
from dagrun_tools.tables.cells import is_missing
from dagrun_tools.tables.columns import Cell, ColumnReader, reader_of
from dagrun_tools.tables.rows import Row, read_rows, save_rows

Names = str | list[str]


class CleanOptions(BaseModel):
    """The options of `clean_data`; the names may also be written like ``remove_nulls``."""

    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=True)

    remove_nulls: Annotated[
        bool | list[str],
        Field(
            alias="removeNulls", description="Drop rows in which something is missing; a list looks at these columns."
        ),
    ] = False
    fix_types: Annotated[
        bool, Field(alias="fixTypes", description="Make numbers and dates of the texts that stand for them.")
    ] = True
    deduplicate_by: Annotated[
        Names | None,
        Field(alias="deduplicateBy", description="Keep the first row for each value of this column, or these columns."),
    ] = None


@tool(effect="pure", timeout=120)
def clean_data(context: ToolContext, data: Table, options: CleanOptions | None = None) -> Table:
    """Clean a table: fix types, then drop rows in which something is missing, then drop repeats.

    Args:
        context: Of the call.
        data: The table, as `load_csv` gives it.
        options: What to do.

    Returns:
        The cleaned table, and how many rows and cells were touched.
    """
    chosen = options or CleanOptions()
    needed = _columns(data, chosen.remove_nulls if isinstance(chosen.remove_nulls, list) else data.columns)
    keys = _columns(data, _listed(chosen.deduplicate_by))
    raw = read_rows(context, data)
    readers = _readers(data, raw, fix=chosen.fix_types)
    columns = {name: _read(reader, [row.get(name) for row in raw]) for name, reader in readers.items()}
    context.check_cancelled()
    rows: list[Row] = [
        dict(zip(columns, cells, strict=True)) for cells in zip(*(c.cells for c in columns.values()), strict=True)
    ]
    complete = [row for row in rows if all(row[name] is not None for name in needed)] if chosen.remove_nulls else rows
    unique = list(_first_of_each(complete, keys)) if keys else complete
    cleaning = Cleaning(
        rows_before=len(raw),
        rows_after=len(unique),
        removed_nulls=len(rows) - len(complete),
        removed_duplicates=len(complete) - len(unique),
        fixed={name: column.fixed for name, column in columns.items() if column.fixed},
        unreadable={name: column.unreadable for name, column in columns.items() if column.unreadable},
    )
    facts = {
        "missing": {n: count for n in data.columns if (count := sum(row[n] is None for row in unique))},
        "types": {name: reader.type for name, reader in readers.items()},
        "units": {name: reader.unit for name, reader in readers.items() if reader.unit},
        "notes": [*data.notes, *(reader.note for reader in readers.values() if reader.note)],
        "cleaning": cleaning,
    }
    return save_rows(context, unique, data.model_dump() | facts)


def _listed(names: Names | None) -> list[str]:
    return [] if names is None else [names] if isinstance(names, str) else names


def _columns(data: Table, names: list[str]) -> list[str]:
    if unknown := [name for name in names if name not in data.columns]:
        raise ToolError(f"there is no column {', '.join(unknown)}; there is {', '.join(data.columns)}")
    return names


def _readers(data: Table, rows: list[Row], *, fix: bool) -> dict[str, ColumnReader]:
    if not fix:
        return {name: ColumnReader(data.types.get(name, "text")) for name in data.columns}
    return {name: reader_of(name, (row.get(name) for row in rows)) for name in data.columns}


@dataclass(frozen=True, slots=True)
class _Column:
    """The cells of a column as they were read, and how many changed their form or could not be read."""

    cells: list[Cell]
    fixed: int
    unreadable: int


def _read(reader: ColumnReader, cells: list[Cell]) -> _Column:
    counts = Counter(cells)
    read = {cell: reader.read(cell) for cell in counts}  # most columns repeat their values, so each value is read once
    return _Column(
        cells=[read[cell] for cell in cells],
        fixed=sum(count for cell, count in counts.items() if _is_fixed(cell, read[cell])),
        unreadable=sum(count for cell, count in counts.items() if read[cell] is None and not is_missing(cell)),
    )


def _is_fixed(before: Cell, after: Cell) -> bool:
    """Whether a cell had to be interpreted: a text that Python reads as a number does not count."""
    if not isinstance(before, str) or after is None or before == after:
        return False
    return isinstance(after, str) or not _shows(before)


def _shows(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _first_of_each(rows: list[Row], keys: list[str]) -> Iterator[Row]:
    seen: set[tuple[Cell, ...]] = set()
    for row in rows:
        key = tuple(row[name] for name in keys)
        # Rows without any key are not repeats of each other.
        if key not in seen or all(part is None for part in key):
            seen.add(key)
            yield row

"""The rows of a table, kept as an artifact: JSON lines, one object for each row."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dagrun import ToolContext, ToolError
from dagrun_tools.facts import Table
from dagrun_tools.tables.columns import Cell, ColumnReader, reader_of

Row = dict[str, Cell]

MEDIA_TYPE = "application/x-ndjson"


def save_rows(context: ToolContext, rows: Iterable[Mapping[str, Cell]], facts: Mapping[str, Any]) -> Table:
    """Save *rows* as an artifact, and return the table.

    Args:
        context: The context of the call.
        rows: The rows to save.
        facts: All other fields of the `Table`.
    """
    encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
    lines = [encode(row) for row in rows]
    name = f"{str(facts.get('source', '')).rsplit('/', 1)[-1] or 'table'}.jsonl"
    artifact = context.artifacts.save("".join(f"{line}\n" for line in lines), media_type=MEDIA_TYPE, name=name[-200:])
    return Table.model_validate({**facts, "table": artifact, "rows": len(lines)})


def read_rows(context: ToolContext, table: Table) -> list[Row]:
    """Read the rows of *table*.

    Raises:
        ToolError: The run has no such artifact, or the artifact is not a table.
    """
    try:
        with context.artifacts.path(table.table).open(encoding="utf-8") as lines:
            return list(_rows(context, lines))
    except FileNotFoundError as error:
        raise ToolError(str(error)) from error
    except ValueError as error:
        raise ToolError(f"the artifact {table.table.name or table.table.sha256[:12]} is not a table") from error


def _rows(context: ToolContext, lines: Iterable[str]) -> Iterator[Row]:
    for number, line in enumerate(lines):
        if number % 10_000 == 0:
            context.check_cancelled()
        row = json.loads(line)
        if not isinstance(row, dict):
            raise ValueError("a line is not an object")
        yield row


def readers_of(table: Table, rows: list[Row]) -> dict[str, ColumnReader]:
    """Return the readers of the columns of *table*. The cells of a cleaned table have their types already."""
    if table.types:
        return {name: ColumnReader(type_, table.units.get(name, ""), "iso") for name, type_ in table.types.items()}
    return {name: reader_of(name, (row.get(name) for row in rows)) for name in table.columns}


def typed_rows(context: ToolContext, table: Table) -> tuple[list[Row], dict[str, ColumnReader]]:
    """Read the rows of *table* with cells turned into numbers and dates; return the readers of the columns, too."""
    rows = read_rows(context, table)
    readers = readers_of(table, rows)
    if not table.types:
        rows = [{name: reader.read(row.get(name)) for name, reader in readers.items()} for row in rows]
    return rows, readers

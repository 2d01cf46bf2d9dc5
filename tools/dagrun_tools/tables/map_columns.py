"""`map_columns`: give the columns of a table the names that later steps expect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, TypeVar

from pydantic import Field

from dagrun import ToolContext, ToolError, tool
from dagrun_tools.facts import Table
from dagrun_tools.tables.rows import read_rows, save_rows

T = TypeVar("T")

NewName = Annotated[str, Field(min_length=1, max_length=200)]


@tool(effect="pure", timeout=120)
def map_columns(
    context: ToolContext, data: Table, columns: Annotated[dict[str, NewName], Field(min_length=1)]
) -> Table:
    """Rename columns of a table; the others, and all rows, stay as they are.

    Args:
        context: Of the call.
        data: The table, as `load_csv` or `clean_data` gives it.
        columns: Old names to new names; two columns may swap theirs.

    Returns:
        The table with its new names, in the same order.
    """
    names = _renamed(data.columns, columns)
    rows = [{names.get(name, name): cell for name, cell in row.items()} for row in read_rows(context, data)]
    facts = {
        "columns": list(names.values()),
        "missing": _by_new_name(data.missing, names),
        "types": _by_new_name(data.types, names),
        "units": _by_new_name(data.units, names),
        "notes": [
            *data.notes,
            *(f"The column {old} is called {new} here." for old, new in columns.items() if old != new),
        ],
    }
    if data.cleaning is not None:
        cleaning = data.cleaning.model_dump()
        facts["cleaning"] = cleaning | {part: _by_new_name(cleaning[part], names) for part in ("fixed", "unreadable")}
    return save_rows(context, rows, data.model_dump() | facts)


def _renamed(columns: list[str], mapping: Mapping[str, str]) -> dict[str, str]:
    """Map every column to its new name, in order."""
    if unknown := [name for name in mapping if name not in columns]:
        raise ToolError(f"there is no column {', '.join(unknown)}; there is {', '.join(columns)}")
    names = {name: mapping.get(name, name) for name in columns}
    if twice := [name for name, count in Counter(names.values()).items() if count > 1]:
        raise ToolError(f"two columns would be called {', '.join(twice)}; rename or leave out one of each")
    return names


def _by_new_name(facts: Mapping[str, T], names: Mapping[str, str]) -> dict[str, T]:
    return {names.get(name, name): fact for name, fact in facts.items()}

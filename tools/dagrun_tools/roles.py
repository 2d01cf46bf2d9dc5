"""Which column of a table is the value, which the time, and which ones to break down by."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Final

from dagrun import ToolError
from dagrun_tools.columns import ColumnReader
from dagrun_tools.facts import Roles
from dagrun_tools.tables import Row

_VALUES: Final = ("revenue", "sales", "amount", "turnover", "income", "volume", "total", "value", "price", "quantity")
_GROUPS: Final = ("product", "city", "category", "region", "country", "store", "segment", "channel", "department")
_DATES: Final = ("date", "day", "timestamp", "time", "month", "period")
_MAX_GROUPS: Final = 1000  # a text column with more different values is a name or a comment


def find_roles(  # noqa: PLR0917  (called from one place)
    columns: Sequence[str],
    rows: Sequence[Row],
    readers: Mapping[str, ColumnReader],
    date: str | None,
    value: str | None,
    groups: Sequence[str],
) -> Roles:
    """Say which column plays which part: as told, else by type and name.

    Args:
        columns: Of the table.
        rows: With numbers and dates in place.
        readers: The types of the columns.
        date: The column of dates, if it is told.
        value: The column to add up, if it is told.
        groups: The columns to break down by, if they are told.

    Raises:
        ToolError: A column that was told does not exist or is of the wrong type, or there is nothing to add up.
    """
    for name in (date, value, *groups):
        if name is not None and name not in columns:
            near = get_close_matches(name, columns, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ToolError(f"there is no column {name}{hint} (there is {', '.join(columns)})")
    time = _time(readers, date)
    taken = {time.get("year"), time.get("month")}
    return Roles(
        value=_value(rows, {n: r for n, r in readers.items() if n not in taken}, value),
        groups=list(groups) or _groups(rows, readers),
        **time,
    )


def _time(readers: Mapping[str, ColumnReader], told: str | None) -> dict[str, str]:
    if told is not None:
        if readers[told].type != "date":
            raise ToolError(f"the column {told} holds no dates that can be read")
        return {"date": told}
    dates = [name for name, reader in readers.items() if reader.type == "date"]
    if dates:
        return {"date": _preferred(dates, _DATES)}
    numbers = {name.casefold(): name for name, reader in readers.items() if reader.type == "number"}
    if "year" in numbers and "month" in numbers:
        return {"year": numbers["year"], "month": numbers["month"]}
    return {}


def _value(rows: Sequence[Row], readers: Mapping[str, ColumnReader], told: str | None) -> str:
    if told is not None:
        if told not in readers or readers[told].type != "number":
            raise ToolError(f"the column {told} holds no numbers to add up")
        return told
    numbers = [name for name, reader in readers.items() if reader.type == "number" and not _is_key(name, rows)]
    if not numbers:
        raise ToolError(f"there is no column of numbers to add up in {', '.join(readers)}")
    return _preferred(numbers, _VALUES)


def _is_key(name: str, rows: Sequence[Row]) -> bool:
    return re.search(r"(^|_)(id|no|nr|number|key|code|zip)$", name.casefold()) is not None and bool(rows)


def _groups(rows: Sequence[Row], readers: Mapping[str, ColumnReader]) -> list[str]:
    found = []
    for name, reader in readers.items():
        different = {row[name] for row in rows} if reader.type == "text" else set()
        if 2 <= len(different) <= min(_MAX_GROUPS, len(rows) // 2):
            found.append(name)
    return sorted(found, key=lambda name: _rank(name, _GROUPS))


def _preferred(names: Sequence[str], wanted: Sequence[str]) -> str:
    return min(names, key=lambda name: _rank(name, wanted))


def _rank(name: str, wanted: Sequence[str]) -> tuple[int, int]:
    """Whole names before parts of names, each in the order of *wanted*."""
    folded = name.casefold()
    parts = [at for at, word in enumerate(wanted) if word in folded]
    return (0, wanted.index(folded)) if folded in wanted else (1, parts[0]) if parts else (2, 0)

"""The roles of the columns of a table: the value, the time, and the groups to break down by."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Final

from dagrun import ToolError
from dagrun_tools.facts import Roles
from dagrun_tools.tables.columns import ColumnReader
from dagrun_tools.tables.rows import Row

_VALUES: Final = ("revenue", "sales", "amount", "turnover", "income", "volume", "total", "value", "price", "quantity")
_GROUPS: Final = ("product", "city", "category", "region", "country", "store", "segment", "channel", "department")
_DATES: Final = ("date", "day", "timestamp", "time", "month", "period")
_MAX_GROUPS: Final = 1000  # different values of a text column; one with more holds names or comments


def find_roles(  # noqa: PLR0917  (called from one place)
    columns: Sequence[str],
    rows: Sequence[Row],
    readers: Mapping[str, ColumnReader],
    date: str | None,
    value: str | None,
    groups: Sequence[str],
) -> Roles:
    """Find the role of each column: as the caller names it, or else by type and name.

    Args:
        columns: The names of the columns.
        rows: The rows, with cells turned into numbers and dates.
        readers: The types of the columns.
        date: The column of dates; `None` to find it.
        value: The column to add up; `None` to find it.
        groups: The columns to break down by; empty to find them.

    Raises:
        ToolError: A named column does not exist or is of the wrong type, or no column can be added up.
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


def _time(readers: Mapping[str, ColumnReader], named: str | None) -> dict[str, str]:
    if named is not None:
        if readers[named].type != "date":
            raise ToolError(f"the column {named} holds no dates that can be read")
        return {"date": named}
    dates = [name for name, reader in readers.items() if reader.type == "date"]
    if dates:
        return {"date": _preferred(dates, _DATES)}
    numbers = {name.casefold(): name for name, reader in readers.items() if reader.type == "number"}
    if "year" in numbers and "month" in numbers:
        return {"year": numbers["year"], "month": numbers["month"]}
    return {}


def _value(rows: Sequence[Row], readers: Mapping[str, ColumnReader], named: str | None) -> str:
    if named is not None:
        if named not in readers or readers[named].type != "number":
            raise ToolError(f"the column {named} holds no numbers to add up")
        return named
    numbers = [name for name, reader in readers.items() if reader.type == "number" and not _is_key(name, rows)]
    if not numbers:
        raise ToolError(f"there is no column of numbers to add up in {', '.join(readers)}")
    return _preferred(numbers, _VALUES)


def _is_key(name: str, rows: Sequence[Row]) -> bool:
    return re.search(r"(^|_)(id|no|nr|number|key|code|zip)$", name.casefold()) is not None and bool(rows)


def _groups(rows: Sequence[Row], readers: Mapping[str, ColumnReader]) -> list[str]:
    groups = []
    for name, reader in readers.items():
        different = {row[name] for row in rows} if reader.type == "text" else set()
        if 2 <= len(different) <= min(_MAX_GROUPS, len(rows) // 2):
            groups.append(name)
    return sorted(groups, key=lambda name: _rank(name, _GROUPS))


def _preferred(names: Sequence[str], wanted: Sequence[str]) -> str:
    return min(names, key=lambda name: _rank(name, wanted))


def _rank(name: str, wanted: Sequence[str]) -> tuple[int, int]:
    """Rank whole names before parts of names, and each in the order of *wanted*."""
    folded = name.casefold()
    parts = [at for at, word in enumerate(wanted) if word in folded]
    return (0, wanted.index(folded)) if folded in wanted else (1, parts[0]) if parts else (2, 0)

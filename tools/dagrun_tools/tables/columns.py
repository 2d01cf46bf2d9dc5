"""The type of a column, and how its cells are read: decided by all of its cells together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final

from dagrun_tools.facts import ColumnType
from dagrun_tools.tables.cells import DATE_FORMATS, currency_of, is_code, is_missing, parse_date, parse_number

Cell = str | int | float | None

# The share of cells that decides the type of a column: one stray "n. a." must not turn a thousand numbers into texts.
_ENOUGH: Final = 0.95


@dataclass(frozen=True, slots=True)
class ColumnReader:
    """Reads the cells of one column.

    Attributes:
        type: The type of the column.
        unit: The currency sign that most of its cells show; empty for none.
        form: The decimal mark of numbers, or the format of dates.
        note: A remark for careful readers; empty for none.
    """

    type: ColumnType
    unit: str = ""
    form: str = ""
    note: str = ""

    def read(self, cell: Cell) -> Cell:
        """Return the value of a cell; `None` if it is missing, or does not fit the type."""
        if not isinstance(cell, str):
            return cell
        if is_missing(cell):
            return None
        if self.type == "number":
            return parse_number(cell, self.form)
        if self.type == "date":
            return parse_date(cell, self.form)
        return cell.strip()


def reader_of(name: str, cells: Iterable[Cell]) -> ColumnReader:
    """Find the type of a column.

    Args:
        name: The name of the column, for notes.
        cells: All of its cells.
    """
    counts = Counter(cell.strip() if isinstance(cell, str) else cell for cell in cells if not is_missing(cell))
    if not counts:
        return ColumnReader("empty")
    texts = {cell: count for cell, count in counts.items() if isinstance(cell, str)}
    if not texts:
        return ColumnReader("number", form=".")
    return _numbers(texts) or _dates(name, texts) or ColumnReader("text")


def _share(texts: dict[str, int], reads: Callable[[str], bool]) -> float:
    return sum(count for text, count in texts.items() if reads(text)) / sum(texts.values())


def _numbers(texts: dict[str, int]) -> ColumnReader | None:
    if any(is_code(text) for text in texts):
        return None
    point = _share(texts, lambda text: parse_number(text) is not None)
    comma = _share(texts, lambda text: parse_number(text, ",") is not None) if point < 1 else 0.0
    if max(point, comma) < _ENOUGH:
        return None
    signs = Counter(currency_of(text) for text in texts)
    del signs[""]
    unit = signs.most_common(1)[0][0] if signs else ""
    return ColumnReader("number", unit, "," if comma > point else ".")


def _dates(name: str, texts: dict[str, int]) -> ColumnReader | None:
    few = dict(islice(texts.items(), 200))  # a column of 10,000 comments is not read in twenty formats
    forms = [form for form in DATE_FORMATS if _share(few, partial(_is_date, form=form)) >= _ENOUGH / 2]
    shares = {form: _share(texts, partial(_is_date, form=form)) for form in forms}
    best = max(shares.values(), default=0.0)
    if best < _ENOUGH:
        return None
    forms = [form for form, share in shares.items() if share == best]
    if len(forms) == 1 or not {"%d", "%m"} <= set(forms[0].replace("-", "/").replace(".", "/").split("/")):
        return ColumnReader("date", form=forms[0])
    form = min(forms, key=lambda f: _width(list(texts), f))
    order = "day before month" if form.startswith("%d") else "month before day"
    return ColumnReader("date", form=form, note=f"The dates in {name} could be read two ways; they were read {order}.")


def _is_date(text: str, form: str) -> bool:
    return parse_date(text, form) is not None


def _width(texts: Sequence[str], form: str) -> tuple[int, int]:
    """Return in how many months and on how many days *texts* lie, if they are read as *form*.

    Read the wrong way round, the days of a month scatter over the whole year.
    """
    dates = sorted(date for text in texts if (date := parse_date(text, form)))
    months = {date[:7] for date in dates}
    return len(months), len(dates)

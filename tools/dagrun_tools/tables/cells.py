"""One cell of a table: missing values, numbers with currency signs and separators, dates in common forms."""

from __future__ import annotations

import datetime
import re
from functools import lru_cache
from typing import Final

MISSING: Final = frozenset(("", "na", "n/a", "#n/a", "nan", "null", "none", "nil", "-", "--", "\u2013", "\u2014"))

_MISSING_STARTS: Final = frozenset("nN#-\u2013\u2014 ") | {""}  # most cells start with another character

_CURRENCY: Final = re.compile(r"^(US\$|[$€£¥])\s*|\s*(US\$|[$€£¥])$")
# For each decimal mark, the numbers that use it, with the separators of thousands that go with it.
_NUMBERS: Final = {
    ".": re.compile(r"[+-]?(?:\d{1,3}(?:[,' ]\d{3})+|\d+)?(?:\.\d*)?(?:[eE][+-]?\d{1,3})?"),
    ",": re.compile(r"[+-]?(?:\d{1,3}(?:[.' ]\d{3})+|\d+)?(?:,\d*)?"),
}
_SIMPLE: Final = re.compile(r"-?\d{1,15}(\.\d+)?", re.ASCII)  # the form of nearly every number in nearly every file
_CODE: Final = re.compile(r"0\d+|\d{16,}")  # post codes and card numbers: digits that are not a number

_SLASHES: Final = ("%d/%m/%Y", "%m/%d/%Y")
DATE_FORMATS: Final = (
    "iso",
    *_SLASHES,
    "%d.%m.%Y",
    "%d-%m-%Y",
    "%m-%d-%Y",
    "%Y/%m/%d",
    "%d/%m/%y",
    "%m/%d/%y",
    "%d.%m.%y",
    "%d %b %Y",
    "%d %B %Y",
    "%d-%b-%Y",
    "%d-%b-%y",
    "%b %d, %Y",
    "%B %d, %Y",
    "%Y-%m",
    "%b %Y",
    "%B %Y",
)
_MONTHS_ONLY: Final = frozenset(("%Y-%m", "%b %Y", "%B %Y"))


def is_missing(cell: object) -> bool:
    """Whether a cell is empty, or holds a word for a missing value."""
    if not isinstance(cell, str):
        return cell is None
    return (cell[:1] in _MISSING_STARTS or cell.isspace()) and cell.strip().casefold() in MISSING


def parse_number(text: str, decimal: str = ".") -> float | int | None:
    """Read a number such as ``$1,234.50``, ``(12)``, ``12.5 %`` or ``-3``; with *decimal* ``,`` also ``1.234,50``.

    Args:
        text: The cell.
        decimal: The decimal mark: ``.`` or ``,``.

    Returns:
        The number, for a percentage the figure before its sign; `None` if the cell is not a number.
    """
    if (simple := _SIMPLE.fullmatch(text)) and (decimal == "." or not simple[1]):
        return float(text) if simple[1] else int(text)
    body = text.strip().replace("\u2212", "-").replace("\u00a0", " ").replace("\u202f", " ")
    is_negative = body.startswith("(") and body.endswith(")")
    if is_negative:
        body = body[1:-1].strip()
    sign = body[:1] if body[:1] in ("-", "+") else ""
    body = sign + _CURRENCY.sub("", body[len(sign) :]).removesuffix("%").strip()
    if not any(c.isdigit() for c in body) or not body.isascii() or not _NUMBERS[decimal].fullmatch(body):
        return None
    plain = re.sub(r"[,' ]" if decimal == "." else r"[.' ]", "", body).replace(",", ".")
    number = float(plain) if any(c in ".eE" for c in plain) or len(plain) > 16 else int(plain)
    if abs(number) == float("inf"):
        return None
    return -number if is_negative else number


def is_code(text: str) -> bool:
    """Whether *text* is a code of digits, not a number: it has a leading zero, or 16 digits and more."""
    return _CODE.fullmatch(text.strip()) is not None


def currency_of(text: str) -> str:
    """Return the currency sign of a cell; empty if it has none."""
    sign = _CURRENCY.search(text.strip().lstrip("(-+"))
    return (sign.group(1) or sign.group(2)) if sign else ""


@lru_cache(maxsize=50_000)
def parse_date(text: str, form: str) -> str | None:
    """Read a date in one of `DATE_FORMATS`.

    Returns:
        The date in ISO form: a month, a day, or a day with its time of day; `None` if *text* does not fit *form*.
    """
    body = text.strip()
    try:
        if form == "iso":
            return _parse_iso(body)
        moment = datetime.datetime.strptime(body, form)
    except ValueError:
        return None
    return moment.strftime("%Y-%m") if form in _MONTHS_ONLY else moment.date().isoformat()


def _parse_iso(body: str) -> str | None:
    if not re.match(r"\d{4}-\d{2}-\d{2}", body):  # fromisoformat also accepts 20251001, which may be a number
        return None
    moment = datetime.datetime.fromisoformat(body)
    has_time = len(body) > 10 and (moment.time() != datetime.time() or moment.tzinfo is not None)
    return moment.isoformat() if has_time else moment.date().isoformat()

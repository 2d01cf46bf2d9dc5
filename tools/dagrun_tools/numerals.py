"""Numbers, dates and units, written for people."""

from __future__ import annotations

import datetime
import math
from typing import Final

MINUS: Final = "\N{MINUS SIGN}"
EN_DASH: Final = "\N{EN DASH}"

_SIGNS: Final = ("US$", "$", "€", "£", "¥")
_SCALES: Final = ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"))
_MONTHS: Final = (
    "January February March April May June July August September October November December".split()  # noqa: SIM905
)


def tidy(value: float) -> float:
    """Round away the noise of binary fractions: 144999.99999999997 becomes 145000."""
    return float(f"{value:.12g}")


def amount(value: float, unit: str = "", *, compact: bool = False) -> str:
    """Write a value with its unit: ``$145,000``, ``12.5 percent``, ``1.24 million homes``.

    Args:
        value: The number.
        unit: A currency sign, which is written in front, or a noun, which is written behind.
        compact: Whether to write millions and more in words.
    """
    sign = MINUS if value < 0 else ""
    text = _plain(abs(value), cents=unit in _SIGNS or not unit)
    if compact:
        scale, word = next(((s, w) for s, w in _SCALES if abs(value) >= s), (1.0, ""))
        text = f"{abs(value) / scale:.3g} {word}" if word else text
    if unit in _SIGNS:
        return f"{sign}{unit}{text}"
    return f"{sign}{text} {unit}".rstrip()


def _plain(value: float, *, cents: bool) -> str:
    """Write a number of 0 or more: with cents for money, with about three digits for anything else."""
    decimals = 0 if value >= 10_000 else 2 if cents else max(0, 2 - int(math.log10(max(value, 1))))
    if round(value, decimals) == int(value):
        return f"{int(value):,}"
    return f"{value:,.{decimals}f}" if value >= 0.01 else f"{value:.3g}"


def percent(value: float | None, *, signed: bool = True) -> str:
    """Write a percentage with one decimal: ``+11.7 %``; a dash for `None`."""
    if value is None:
        return EN_DASH
    if abs(value) < 0.05:
        return "0.0 %"
    sign = MINUS if value < 0 else "+" if signed else ""
    return f"{sign}{abs(value):,.1f} %"


def confidence(value: float) -> str:
    """Write a confidence between 0 and 1 as a percentage that never claims certainty."""
    return "over 99.9 %" if value > 0.999 else f"{100 * value:.0f} %" if value < 0.99 else f"{100 * value:.1f} %"


def period(text: str) -> str:
    """Write a day, a month or a year, given in ISO form, in words: ``15 November 2025``, ``November 2025``."""
    parts = text[:10].split("-")
    if len(parts) == 1:
        return parts[0]
    month = f"{_MONTHS[int(parts[1]) - 1]} {parts[0]}"
    return month if len(parts) == 2 else f"{int(parts[2])} {month}"


def span(start: str, end: str) -> str:
    """Write a period from *start* to *end*: ``15 to 24 December 2025``, ``March to May 2010``."""
    first, last = period(start), period(end)
    if first == last:
        return first
    words, others = first.split(), last.split()
    while len(words) > 1 and words[-1] == others[-1]:  # words that both ends share are written once
        words.pop()
        others.pop()
    return f"{' '.join(words)} to {last}"


def as_date(text: str) -> datetime.date:
    """Return the first day of a day, a month or a year in ISO form."""
    parts = [int(part) for part in text[:10].split("-")]
    return datetime.date(*[*parts, 1, 1][:3])


def next_month(month: str) -> str:
    """Return the month after *month*, such as ``2026-01`` after ``2025-12``."""
    year, number = int(month[:4]), int(month[5:7])
    return f"{year + 1}-01" if number == 12 else f"{year}-{number + 1:02d}"


def labelled(name: str, unit: str) -> str:
    """Write the name of a column as a label, with its unit if the name does not have it."""
    words = name.replace("_", " ")
    words = words[:1].upper() + words[1:]
    return f"{words} ({unit})" if unit and unit.casefold() not in words.casefold() else words

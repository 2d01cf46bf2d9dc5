"""A report, independent of its format: sections of paragraphs, lists, tables and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dagrun_tools.facts import Chart


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Running text."""

    text: str


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list of sentences."""

    items: Sequence[str]


@dataclass(frozen=True, slots=True)
class Grid:
    """A table.

    Attributes:
        caption: The line above the table.
        headers: The names of the columns.
        rows: Cells as text, as many in each row as there are headers.
        numeric: The columns that hold figures, and are aligned to the right; counted from 0.
    """

    caption: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Picture:
    """A chart."""

    chart: Chart


Block = Paragraph | Bullets | Grid | Picture


@dataclass(frozen=True, slots=True)
class Section:
    """A headed part of a report."""

    title: str
    blocks: list[Block] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Document:
    """A report."""

    title: str
    subtitle: str
    sections: list[Section]

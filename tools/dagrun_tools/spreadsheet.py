"""The figures of a report as CSV, in cells that no spreadsheet takes for a formula."""

from __future__ import annotations

import csv
import io
import re
from typing import Final

from dagrun_tools.document import Document, Grid

# The full-width forms count too: some spreadsheets take them for the plain ones.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
_FIGURE: Final = re.compile(r"[+-]?(US\$|[$€£¥])?\d[\d,]*(\.\d+)?( %)?")


def to_csv(document: Document) -> str:
    """Write the tables of *document*, one below the other, each headed by its caption."""
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\r\n")
    grids = [block for section in document.sections for block in section.blocks if isinstance(block, Grid)]
    for number, grid in enumerate(grids):
        if number:
            writer.writerow([])
        for row in ([grid.caption], grid.headers, *grid.rows):
            writer.writerow([safe_cell(cell) for cell in row])
    return target.getvalue()


def safe_cell(text: str) -> str:
    """Make *text* a text for every spreadsheet: an apostrophe goes before what could be a formula.

    Source: OWASP, CSV Injection.
    """
    if text.lstrip(" ").startswith(_FORMULA) and not _FIGURE.fullmatch(text):
        return f"'{text}"
    return text

"""A report as Markdown. Whatever came from data is text: it makes no markup, no link and no picture."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import quote

from dagrun_tools.document import Block, Bullets, Document, Grid, Paragraph, Picture

# An underscore inside a word is one; escaping it too would only make file names hard to read.
_SPECIAL: Final = re.compile(r"([\\`*\[\]<>|~&]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")
# What viewers turn into links by themselves, without any markup around it.
_LINKS: Final = re.compile(r"(?i)(?<=[a-z])(:)(?=//)|(?<=www)(\.)|(@)")
# What makes a heading, a list or a rule at the start of a line.
_STARTS: Final = re.compile(r"^(\d*)([-+#.)]|=+$)(?=$|\s|#|-)")


def to_markdown(document: Document, folder: str) -> str:
    """Write *document* as Markdown (GitHub's kind, for the tables).

    Args:
        document: What to write.
        folder: Where the report will be; pictures are linked relative to it.
    """
    lines = [f"# {escape(document.title)}", ""]
    if document.subtitle:
        lines += [escape(document.subtitle), ""]
    for section in document.sections:
        lines += [f"## {escape(section.title)}", ""]
        for block in section.blocks:
            lines += [*_block(block, folder), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def escape(text: str) -> str:
    """Make *text* mean itself anywhere in Markdown, also in a cell of a table."""
    flat = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    safe = _LINKS.sub(lambda found: f"\\{found.group()}", _SPECIAL.sub(r"\\\1", flat))
    return _STARTS.sub(r"\1\\\2", safe)


def _block(block: Block, folder: str) -> Iterator[str]:
    match block:
        case Paragraph():
            yield escape(block.text)
        case Bullets():
            yield from (f"- {escape(item)}" for item in block.items)
        case Grid():
            yield from _grid(block)
        case Picture():
            path = posixpath.relpath(block.chart.file, folder or ".")
            yield f"![{escape(block.chart.alt or block.chart.title)}]({quote(path)})"


def _grid(grid: Grid) -> Iterator[str]:
    yield f"**{escape(grid.caption)}**"
    yield ""
    yield _row(grid.headers)
    yield "|" + "|".join("---:" if at in grid.numeric else "---" for at in range(len(grid.headers))) + "|"
    yield from (_row(row) for row in grid.rows)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(escape(cell) for cell in cells) + " |"

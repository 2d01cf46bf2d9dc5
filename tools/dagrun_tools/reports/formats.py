"""A report written as Markdown, as one HTML page, or as CSV.

Data is never markup. Whatever came from data stays text in every format: it makes no link, no picture and no formula,
and the HTML page runs no script and loads nothing from elsewhere.
"""

from __future__ import annotations

import csv
import html
import io
import posixpath
import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from typing import Final
from urllib.parse import quote

from dagrun_tools.facts import Chart
from dagrun_tools.reports.document import Block, Bullets, Document, Grid, Paragraph, Picture

# Markdown ------------------------------------------------------------------------------------------------------------

# An underscore inside a word is plain text in Markdown; escaping it, too, would only make file names hard to read.
_SPECIAL: Final = re.compile(r"([\\`*\[\]<>|~&]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")
# Characters that make a viewer turn plain text into a link: the colon of https://, the dot of www., the @ of a mail.
_LINKS: Final = re.compile(r"(?i)(?<=[a-z])(:)(?=//)|(?<=www)(\.)|(@)")
# Characters that make a heading, a list or a rule at the start of a line.
_STARTS: Final = re.compile(r"^(\d*)([-+#.)]|=+$)(?=$|\s|#|-)")


def to_markdown(document: Document, folder: str) -> str:
    """Write *document* as Markdown, in the dialect of GitHub, which has tables.

    Args:
        document: The report.
        folder: The folder of the report; pictures are linked relative to it.
    """
    lines = [f"# {escape_markdown(document.title)}", ""]
    if document.subtitle:
        lines += [escape_markdown(document.subtitle), ""]
    for section in document.sections:
        lines += [f"## {escape_markdown(section.title)}", ""]
        for block in section.blocks:
            lines += [*_markdown_block(block, folder), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def escape_markdown(text: str) -> str:
    """Escape *text* for literal display in Markdown, also in a cell of a table."""
    flat = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    safe = _LINKS.sub(lambda match: f"\\{match.group()}", _SPECIAL.sub(r"\\\1", flat))
    return _STARTS.sub(r"\1\\\2", safe)


def _markdown_block(block: Block, folder: str) -> Iterator[str]:
    match block:
        case Paragraph():
            yield escape_markdown(block.text)
        case Bullets():
            yield from (f"- {escape_markdown(item)}" for item in block.items)
        case Grid():
            yield from _markdown_grid(block)
        case Picture():
            path = posixpath.relpath(block.chart.file, folder or ".")
            yield f"![{escape_markdown(block.chart.alt or block.chart.title)}]({quote(path)})"


def _markdown_grid(grid: Grid) -> Iterator[str]:
    yield f"**{escape_markdown(grid.caption)}**"
    yield ""
    yield _markdown_row(grid.headers)
    yield "|" + "|".join("---:" if at in grid.numeric else "---" for at in range(len(grid.headers))) + "|"
    yield from (_markdown_row(row) for row in grid.rows)


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(escape_markdown(cell) for cell in cells) + " |"


# HTML ----------------------------------------------------------------------------------------------------------------

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c2530; --soft: #5b6673; --paper: #ffffff; --line: #d9dee4; --tint: #f4f6f8;
  --accent: #0072b2; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ed; --soft: #a3adb8; --paper: #14181d; --line: #343c46;
  --tint: #1d232a; --accent: #56b4e9; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 2.5rem 1.5rem 4rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.55 system-ui, "Segoe UI", "Liberation Sans", sans-serif; }
h1 { margin: 0; font-size: 2rem; line-height: 1.2; }
h2 { margin: 2.5rem 0 .75rem; padding-bottom: .3rem; border-bottom: 2px solid var(--accent); font-size: 1.35rem; }
.subtitle, figcaption, caption { color: var(--soft); }
.subtitle { margin: .4rem 0 0; }
ul { padding-left: 1.3rem; } li { margin: .3rem 0; }
.scroll { overflow-x: auto; margin: 1.2rem 0; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: .4rem; font-weight: 600; }
th, td { padding: .35rem .7rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
th { background: var(--tint); } .n { text-align: right; white-space: nowrap; }
figure { margin: 1.4rem 0; } img { width: 100%; height: auto; border: 1px solid var(--line); border-radius: .4rem;
  background: #ffffff; }
nav { margin-top: 1.2rem; } nav a { margin-right: 1rem; color: var(--accent); }
@media print { body { max-width: none; padding: 0; } nav { display: none; } figure, tr { break-inside: avoid; }
  h2 { break-after: avoid; } }
"""


def to_html(document: Document, picture: Callable[[Chart], tuple[str, bytes]]) -> str:
    """Write *document* as one HTML page.

    Args:
        document: The report.
        picture: Returns the media type and the bytes of a chart.
    """
    title = escape_html(document.title)
    names = [(f"s{number}", escape_html(section.title)) for number, section in enumerate(document.sections, 1)]
    lines = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{escape_html(_POLICY)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{title}</title>",
        f"<style>{_STYLE}</style>",
        "</head>",
        "<body>",
        f"<header><h1>{title}</h1>",
        f'<p class="subtitle">{escape_html(document.subtitle)}</p>' if document.subtitle else "",
        "<nav>" + " ".join(f'<a href="#{id_}">{name}</a>' for id_, name in names) + "</nav></header>",
        "<main>",
    ]
    for (id_, name), section in zip(names, document.sections, strict=True):
        lines += [f'<section aria-labelledby="{id_}">', f'<h2 id="{id_}">{name}</h2>']
        lines += [line for block in section.blocks for line in _html_block(block, picture)]
        lines.append("</section>")
    return "\n".join([*lines, "</main>", "</body>", "</html>", ""])


def escape_html(text: str) -> str:
    """Escape *text* for literal display in HTML, also inside an attribute."""
    return html.escape("".join(c if c.isprintable() else " " for c in text), quote=True)


def _html_block(block: Block, picture: Callable[[Chart], tuple[str, bytes]]) -> Iterator[str]:
    match block:
        case Paragraph():
            yield f"<p>{escape_html(block.text)}</p>"
        case Bullets():
            yield "<ul>" + "".join(f"<li>{escape_html(item)}</li>" for item in block.items) + "</ul>"
        case Grid():
            yield from _html_grid(block)
        case Picture():
            # As an image, not as markup: an SVG in an image runs no script and loads nothing, whatever it holds.
            media, data = picture(block.chart)
            source = f"data:{media};base64,{b64encode(data).decode()}"
            caption = escape_html(block.chart.title)
            alt = escape_html(block.chart.alt or block.chart.title)
            yield f'<figure><img alt="{alt}" src="{source}"><figcaption>{caption}</figcaption></figure>'


def _html_grid(grid: Grid) -> Iterator[str]:
    classes = [' class="n"' if at in grid.numeric else "" for at in range(len(grid.headers))]
    headers = zip(classes, grid.headers, strict=True)
    head = "".join(f'<th scope="col"{class_}>{escape_html(name)}</th>' for class_, name in headers)
    yield f'<div class="scroll"><table><caption>{escape_html(grid.caption)}</caption>'
    yield f"<thead><tr>{head}</tr></thead><tbody>"
    for row in grid.rows:
        cells = zip(classes, row, strict=True)
        yield "<tr>" + "".join(f"<td{class_}>{escape_html(cell)}</td>" for class_, cell in cells) + "</tr>"
    yield "</tbody></table></div>"


# CSV -----------------------------------------------------------------------------------------------------------------

# Characters that begin a formula. The full-width forms count, too: some spreadsheets take them for the plain ones.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
_FIGURE: Final = re.compile(r"[+-]?(US\$|[$€£¥])?\d[\d,]*(\.\d+)?( %)?")


def to_csv(document: Document) -> str:
    """Write the tables of *document* as CSV, one below the other, each below its caption."""
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
    """Return *text* with an apostrophe in front, if a spreadsheet could take it for a formula.

    Source: OWASP, CSV Injection.
    """
    if text.lstrip(" ").startswith(_FORMULA) and not _FIGURE.fullmatch(text):
        return f"'{text}"
    return text

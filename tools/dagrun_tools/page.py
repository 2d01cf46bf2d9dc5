"""A report as one HTML page that needs nothing else: no script, no load from outside, no markup from data."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from html import escape as escape_html
from typing import Final

from dagrun_tools.document import Block, Bullets, Document, Grid, Paragraph, Picture
from dagrun_tools.facts import Chart

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
    """Write *document* as a page.

    Args:
        document: What to write.
        picture: Gives the media type and the bytes of a chart.
    """
    title = escape(document.title)
    names = [(f"s{number}", escape(section.title)) for number, section in enumerate(document.sections, 1)]
    lines = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{title}</title>",
        f"<style>{_STYLE}</style>",
        "</head>",
        "<body>",
        f"<header><h1>{title}</h1>",
        f'<p class="subtitle">{escape(document.subtitle)}</p>' if document.subtitle else "",
        "<nav>" + " ".join(f'<a href="#{id_}">{name}</a>' for id_, name in names) + "</nav></header>",
        "<main>",
    ]
    for (id_, name), section in zip(names, document.sections, strict=True):
        lines += [f'<section aria-labelledby="{id_}">', f'<h2 id="{id_}">{name}</h2>']
        lines += [line for block in section.blocks for line in _block(block, picture)]
        lines.append("</section>")
    return "\n".join([*lines, "</main>", "</body>", "</html>", ""])


def escape(text: str) -> str:
    """Make *text* mean itself in HTML, also inside an attribute."""
    return escape_html("".join(c if c.isprintable() else " " for c in text), quote=True)


def _block(block: Block, picture: Callable[[Chart], tuple[str, bytes]]) -> Iterator[str]:
    match block:
        case Paragraph():
            yield f"<p>{escape(block.text)}</p>"
        case Bullets():
            yield "<ul>" + "".join(f"<li>{escape(item)}</li>" for item in block.items) + "</ul>"
        case Grid():
            yield from _grid(block)
        case Picture():
            # As an image, not as markup: whatever an SVG holds, an image runs no script and loads nothing.
            media, data = picture(block.chart)
            source = f"data:{media};base64,{b64encode(data).decode()}"
            caption = escape(block.chart.title)
            alt = escape(block.chart.alt or block.chart.title)
            yield f'<figure><img alt="{alt}" src="{source}"><figcaption>{caption}</figcaption></figure>'


def _grid(grid: Grid) -> Iterator[str]:
    classes = [' class="n"' if at in grid.numeric else "" for at in range(len(grid.headers))]
    head = "".join(f'<th scope="col"{c}>{escape(name)}</th>' for c, name in zip(classes, grid.headers, strict=True))
    yield f'<div class="scroll"><table><caption>{escape(grid.caption)}</caption>'
    yield f"<thead><tr>{head}</tr></thead><tbody>"
    for row in grid.rows:
        yield "<tr>" + "".join(f"<td{c}>{escape(cell)}</td>" for c, cell in zip(classes, row, strict=True)) + "</tr>"
    yield "</tbody></table></div>"

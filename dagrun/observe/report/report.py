"""`make_report`: a view in any of the forms that a report has."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from dagrun.errors import ContractError, MissingExtra
from dagrun.observe.html import Markup, join, number, tag
from dagrun.observe.picture.condense import DEFAULT_BOXES, MOST_BOXES
from dagrun.observe.picture.graph_svg import DARK, FONT, LIGHT, draw_graph
from dagrun.observe.picture.text_graph import dot, mermaid
from dagrun.observe.picture.timeline_svg import draw_timeline
from dagrun.observe.report.markdown import markdown
from dagrun.observe.report.page import report_page
from dagrun.observe.report.sections import title_of

Form = Literal["html", "svg", "png", "json", "markdown", "dot", "mermaid"]
FORMS: Final = get_args(Form)
Part = Literal["graph", "timeline", "both"]

ENDINGS: Final = {
    ".html": "html",
    ".htm": "html",
    ".svg": "svg",
    ".png": "png",
    ".json": "json",
    ".md": "markdown",
    ".dot": "dot",
    ".gv": "dot",
    ".mmd": "mermaid",
}


_LETTER: Final = 9.7  # pixels of a letter of the heading of a picture, in the widest of its fonts, on average
_HEADING: Final = 640.0  # pixels up to which a picture is made wider for its heading, which is cut after that


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportStyle:
    """How a report looks.

    Attributes:
        title: The heading; empty for the goal of the run.
        max_boxes: The most boxes of a graph, at most 2,000; above that, many steps share a box.
        part: What an SVG or PNG shows.
        is_dark: Whether an SVG or PNG is for a dark background; a page follows its reader.
        note: A warning at the top of a page.
    """

    title: str = ""
    max_boxes: int = DEFAULT_BOXES
    part: Part = "both"
    is_dark: bool = False
    note: str = ""

    def __post_init__(self) -> None:
        if not 1 <= self.max_boxes <= MOST_BOXES:
            raise ContractError(f"a graph has 1 to {MOST_BOXES:,} boxes, not {self.max_boxes}")


def form_of(name: str) -> str:
    """Return the format for the ending of a file name; empty if there is none."""
    return next((form for ending, form in ENDINGS.items() if name.lower().endswith(ending)), "")


def make_report(view: Mapping[str, Any], form: str = "html", style: ReportStyle | None = None) -> bytes:
    """Return a report.

    Args:
        view: The view of a run; see `view_of`.
        form: One of `FORMS`.
        style: How it looks.

    Raises:
        ContractError: There is no such form.
        MissingExtra: A PNG is asked for, and the library that makes it is not installed.
    """
    style = style or ReportStyle()
    match form:
        case "html":
            text = report_page(view, title=style.title, max_boxes=style.max_boxes, note=style.note)
        case "svg":
            text = str(_picture(view, style)) + "\n"
        case "png":
            return _png(_picture(view, style))
        case "json":
            text = json.dumps(view, ensure_ascii=False, indent=1) + "\n"
        case "markdown":
            text = markdown(view)
        case "dot":
            text = dot(view, style.max_boxes)
        case "mermaid":
            text = mermaid(view, style.max_boxes)
        case _:
            raise ContractError(f"a report is one of {', '.join(FORMS)}, not {form}")
    return text.encode("utf-8", "backslashreplace")


def _picture(view: Mapping[str, Any], style: ReportStyle) -> Markup:
    """Return graph and timeline below each other, as one SVG with its own background."""
    paper = DARK if style.is_dark else LIGHT
    pictures = []
    if style.part != "timeline":
        pictures.append(draw_graph(view, most=style.max_boxes, paper=paper))
    if style.part != "graph" and view["run"]["stand"] != "plan":
        pictures.append(draw_timeline(view, paper=paper))
    pictures = [picture for picture in pictures if picture.width]
    heading = style.title or title_of(view).removesuffix(" · dagrun")
    width = max([320.0, min(16 + _LETTER * len(heading), _HEADING), *(picture.width for picture in pictures)])
    room = int((width - 16) / _LETTER)
    shown = heading if len(heading) <= room else f"{heading[: room - 1].rstrip()}…"
    ink = paper.ink["ink"]
    parts: list[Markup] = [tag("text", shown, x=8, y=20, font_size=15, font_weight="bold", fill=ink)]
    top = 34.0
    for picture in pictures:
        parts.append(tag("g", picture.markup, transform=f"translate(0 {number(top)})"))
        top += picture.height + 18
    back = tag("rect", width="100%", height="100%", fill=paper.ink["paper"])
    return tag(
        "svg",
        tag("title", heading),
        back,
        join(*parts),
        xmlns="http://www.w3.org/2000/svg",
        role="img",
        width=width,
        height=top,
        viewBox=f"0 0 {number(width)} {number(top)}",
        font_family=FONT,
        font_size=12,
    )


def png_library() -> Any:
    """Return the library that makes a PNG of an SVG.

    Raises:
        MissingExtra: It is not installed.
    """
    try:
        import resvg_py
    except ImportError as error:
        raise MissingExtra("a PNG is made by resvg-py: pip install 'dagrun-engine[png]', or make an SVG") from error
    return resvg_py


def _png(picture: Markup) -> bytes:
    return bytes(png_library().svg_to_bytes(svg_string=str(picture), zoom=2))

"""`make_report`: a view as a page that loads nothing, a picture, Markdown, JSON or a text for another program."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final, Literal, get_args

from dagrun.errors import ContractError, MissingExtra
from dagrun.observe.html import Markup, escape, join, number, plain, raw, tag
from dagrun.observe.picture.condense import DEFAULT_BOXES, MOST_BOXES, dot, mermaid
from dagrun.observe.picture.graph_svg import DARK, FONT, LIGHT, draw_graph
from dagrun.observe.picture.timeline_svg import (
    FIRST,
    TimeScale,
    downsampled,
    draw_timeline,
    idle_stretches,
    running_at_once,
)
from dagrun.observe.report import sections
from dagrun.observe.report.sections import is_plan, run_look, title_of
from dagrun.observe.state_styles import STATES, WAITS, counted, counts_text, look_of, seconds_text, waits_text, work_of

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
    if style.part != "graph" and view["run"]["state"] != "plan":
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


# The page -------------------------------------------------------------------------------------------------------------

MAKER: Final = "dagrun report"  # marks our own pages, which may be overwritten

# Indents and lines of comments of the script, which has no text over several lines.
_UNREAD: Final = re.compile(r"^ *(?://.*\n|/\*\*.*\*/\n)?", re.MULTILINE)
_NOTHING: Final[tuple[Any, ...]] = (None, "", False, 0, 0.0, [])


def report_page(view: Mapping[str, Any], *, title: str = "", max_boxes: int = DEFAULT_BOXES, note: str = "") -> str:
    """Return the page about a run.

    Args:
        view: The view of the run.
        title: The heading; empty for the goal of the run.
        max_boxes: The most boxes of its graph.
        note: A warning at the top; empty for none.
    """
    style, script = (
        files("dagrun.observe.report").joinpath(name).read_text("utf-8") for name in ("report.css", "report.js")
    )
    script = _UNREAD.sub("", script)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="generator", content=f"{MAKER} {view['dagrun']}"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("link", rel="icon", href="data:,"),
        tag("title", title or sections.title_of(view)),
        tag("style", raw(style)),
    )
    body = tag(
        "body",
        tag("a", "Skip to the graph", href="#graph", class_="skip"),
        tag("div", sections.header(view, title), _main(view, max_boxes, note), _made_by(view), class_="page"),
        tag("aside", id="step", role="dialog", aria_labelledby="step-title", hidden=True),
        tag("script", raw(packed(view)), id="view", type="application/octet-stream"),
        tag("script", raw(script)),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _main(view: Mapping[str, Any], max_boxes: int, note: str) -> Markup:
    return tag(
        "main",
        tag("p", note, class_="warning", role="note") if note else None,
        sections.wrong(view),
        sections.open_questions(view),
        sections.answer(view),
        _graph(view, max_boxes),
        _time(view) if view["run"]["state"] != "plan" else None,
        sections.changes(view),
        sections.questions(view),
        sections.cost(view),
        sections.log(view),
    )


def _graph(view: Mapping[str, Any], max_boxes: int) -> Markup:
    picture = draw_graph(view, most=max_boxes)
    note = tag("p", picture.note, class_="note")
    if not picture.width:
        return sections.section("graph", "Graph", note)
    drawing = tag("div", picture.svg("Graph of the steps", class_="dag"), class_="scroll")
    slider = tag("p", id="revisions", class_="note")
    return sections.section("graph", "Graph", note, sections.legend(view), slider, drawing)


def _time(view: Mapping[str, Any]) -> Markup:
    picture = draw_timeline(view)
    if not picture.width:
        return sections.section("time", "Time", tag("p", picture.note, class_="note"))
    hint = f"Without its script, this page shows no filter and no details: dagrun inspect {view['run']['id']}"
    static = tag(
        "div",
        tag("p", picture.note, class_="note") if picture.note else None,
        tag("div", picture.svg("When each step ran", class_="running"), class_="scroll"),
        tag("noscript", tag("p", hint, class_="note")),
        class_="static",
    )
    return sections.section("time", "Time", static, tag("div", id="live"))


def _made_by(view: Mapping[str, Any]) -> Markup:
    run = view["run"]
    by = f"Made by dagrun {view['dagrun']}"
    recorded = (
        f"; the run was carried out by dagrun {run['recorded_by']}"
        if run["recorded_by"] not in ("", view["dagrun"])
        else ""
    )
    left = view["left_out"]["values"]
    cut = f" {counted(left, 'value')} cut or left out." if left else ""
    source = "" if sections.is_plan(view) else f", from record {view['seq']:,}"
    return tag("footer", f"{by}{recorded}{source}.{cut}")


def packed(view: Mapping[str, Any]) -> str:
    """Return the view's data for the script: JSON without empty fields, compressed, as base64."""
    at, folds = view["at"], idle_stretches(view)
    curve = downsampled(running_at_once(view), TimeScale(at, folds), 400)
    data = {
        "at": at,
        "cut": view["run"]["state"] == "interrupted",
        "steps": [
            {key: part for key, part in step.items() if part not in _NOTHING or key == "n"} for step in view["steps"]
        ],
        "revisions": [[c["at"], c["number"], c["did"]] for c in view["revisions"] if not c["is_draft"]],
        "last": len(view["revisions"]),
        "planner": [[w["started"], w["ended"], w["kind"], w["number"], w["result"]] for w in view["planner"]],
        "curve": [[round(when, 6), value] for when, value in curve],
        "folds": folds,
        "looks": {state: [look.symbol, look.word, look.kind] for state, look in STATES.items()},
        "waits": WAITS,
    }
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    # Level 6 for size and speed; no time in the header, so that equal views give equal bytes.
    return base64.b64encode(gzip.compress(text.encode("utf-8", "replace"), 6, mtime=0)).decode()


def is_ours(text: str) -> bool:
    """Whether a file begins like a page of ours."""
    return f'content="{MAKER} ' in text[:4_000]


MAX_ROWS: Final = 50


# Markdown, for pull requests, issues and the summaries of CI ----------------------------------------------------------

_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]()#+!|~@-])")


def escaped(value: str) -> str:
    """Return a text as it looks in Markdown as well: on one line, without links, images, tags or mentions."""
    flat = " ".join(plain(value).split())
    return _SPECIAL.sub(r"\\\1", str(escape(flat)).replace("&#39;", "'").replace("&quot;", '"'))


def markdown(view: Mapping[str, Any]) -> str:
    """Return the report as Markdown: failures first, then the graph, if it is small, and the longest steps."""
    return "\n".join(_lines(view)) + "\n"


def _lines(view: Mapping[str, Any]) -> Iterator[str]:
    run, look = view["run"], run_look(view)
    yield f"## {look.symbol} {look.word}: {escaped(run['goal'] or run['id'] or 'a plan')}"
    yield ""
    yield from (f"{counted(len(view['steps']), 'step')}.",) if is_plan(view) else _figures(view)
    bad = [step for step in view["steps"] if step["state"] in FIRST]
    if bad:
        yield f"\n### {'What the check found' if is_plan(view) else 'What went wrong'}\n"
        yield from (
            f"- {look_of(s['state']).symbol} **{escaped(s['id'])}** ({escaped(s['tool'])}): {escaped(s['why'])}"
            for s in bad[:MAX_ROWS]
        )
        if len(bad) > MAX_ROWS:
            yield f"- … and {len(bad) - MAX_ROWS} more"
    if 0 < len(view["steps"]) <= 40:
        yield f"\n```mermaid\n{mermaid(view)}```"
    ran = sorted((s for s in view["steps"] if s["attempts"]), key=lambda s: -work_of(s, view["at"]))
    if ran:
        yield "\n### Longest steps\n\n| step | tool | state | took | attempts |\n| --- | --- | --- | ---: | ---: |"
        for step in ran[:20]:
            state = look_of(step["state"])
            took = seconds_text(work_of(step, view["at"]))
            name, tool = escaped(step["id"]), escaped(step["tool"])
            yield f"| {name} | {tool} | {state.symbol} {state.word} | {took} | {len(step['attempts'])} |"


def _figures(view: Mapping[str, Any]) -> Iterator[str]:
    run = view["run"]
    steps = f"{counted(sum(run['counts'].values()), 'step')} ({counts_text(run['counts'])})"
    yield f"{steps}, {seconds_text(run['makespan'])} in all, "
    yield f"{seconds_text(run['work'])} of work, run `{run['id']}`."
    if waits := waits_text(run["waits"]):
        yield f"Waits: {waits}."
    if run["reason"]:
        yield f"\n{escaped(run['reason'])}"

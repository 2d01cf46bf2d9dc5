"""The report page: one HTML file that loads nothing."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final

from dagrun.observe.html import Markup, raw, tag
from dagrun.observe.picture.condense import DEFAULT_BOXES
from dagrun.observe.picture.graph_svg import draw_graph
from dagrun.observe.picture.time_scale import TimeScale, downsampled, idle_stretches, running_at_once
from dagrun.observe.picture.timeline_svg import draw_timeline
from dagrun.observe.report import sections
from dagrun.observe.state_styles import STATES, WAITS, counted

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
        _time(view) if view["run"]["stand"] != "plan" else None,
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
        "cut": view["run"]["stand"] == "interrupted",
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

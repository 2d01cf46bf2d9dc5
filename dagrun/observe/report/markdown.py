"""A report as Markdown, for pull requests, issues and the summaries of CI."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from dagrun.observe.html import escape, plain
from dagrun.observe.picture.text_graph import mermaid
from dagrun.observe.report.sections import is_plan, run_look
from dagrun.observe.state_styles import WAITS, counted, look_of, seconds_text

MAX_ROWS: Final = 50
_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]()#+!|~@-])")
_BAD: Final = ("failed", "timed_out", "unknown", "abandoned", "held", "cancelled")


def text(value: str) -> str:
    """Return a text as it looks in Markdown as well: on one line, without links, images, tags or mentions."""
    flat = " ".join(plain(value).split())
    return _SPECIAL.sub(r"\\\1", str(escape(flat)).replace("&#39;", "'").replace("&quot;", '"'))


def markdown(view: Mapping[str, Any]) -> str:
    """Return the report as Markdown: failures first, then the graph, if it is small, and the longest steps."""
    return "\n".join(_lines(view)) + "\n"


def _lines(view: Mapping[str, Any]) -> Iterator[str]:
    run, look = view["run"], run_look(view)
    yield f"## {look.symbol} {look.word}: {text(run['goal'] or run['id'] or 'a plan')}"
    yield ""
    yield from (f"{counted(len(view['steps']), 'step')}.",) if is_plan(view) else _figures(view)
    bad = [step for step in view["steps"] if step["state"] in _BAD]
    if bad:
        yield f"\n### {'What the check found' if is_plan(view) else 'What went wrong'}\n"
        yield from (
            f"- {look_of(s['state']).symbol} **{text(s['id'])}** ({text(s['tool'])}): {text(s['why'])}"
            for s in bad[:MAX_ROWS]
        )
        if len(bad) > MAX_ROWS:
            yield f"- … and {len(bad) - MAX_ROWS} more"
    if 0 < len(view["steps"]) <= 40:
        yield f"\n```mermaid\n{mermaid(view)}```"
    ran = sorted((s for s in view["steps"] if s["attempts"]), key=lambda s: -_work(s, view["at"]))
    if ran:
        yield "\n### Longest steps\n\n| step | tool | state | took | attempts |\n| --- | --- | --- | ---: | ---: |"
        for step in ran[:20]:
            state = look_of(step["state"])
            took = seconds_text(_work(step, view["at"]))
            cells = (
                text(step["id"]),
                text(step["tool"]),
                f"{state.symbol} {state.word}",
                took,
                str(len(step["attempts"])),
            )
            yield f"| {' | '.join(cells)} |"


def _figures(view: Mapping[str, Any]) -> Iterator[str]:
    run = view["run"]
    counts = ", ".join(f"{count} {look_of(state).word or state}" for state, count in run["counts"].items())
    yield f"{counted(sum(run['counts'].values()), 'step')} ({counts}), {seconds_text(run['makespan'])} in all, "
    yield f"{seconds_text(run['work'])} of work, run `{run['id']}`."
    waits = [f"{seconds_text(s)} {WAITS[reason]}" for reason, s in run["waits"].items() if s >= 0.001]
    if waits:
        yield f"Waits: {', '.join(waits)}."
    if run["reason"]:
        yield f"\n{text(run['reason'])}"


def _work(step: Mapping[str, Any], now: float) -> float:
    return math.fsum((now if call["ended"] is None else call["ended"]) - call["started"] for call in step["attempts"])

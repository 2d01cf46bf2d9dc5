"""The notebook display of a run or a plan: a piece of HTML that neither runs nor loads anything, and a text.

Notebooks are kept, mailed and put on forges, with all that was ever shown in them: a cell is at most 200 KB, whatever
the size of the run. Colours follow the theme of JupyterLab, VS Code and Colab by their variables; they are attributes,
too, for places that take the style sheet away.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from operator import attrgetter
from typing import Any, Final

from dagrun.errors import Problem, listing, shorten
from dagrun.kernel.checks.check_plan import find_problems
from dagrun.kernel.checks.checked_plan import CheckedPlan
from dagrun.kernel.graph.plan_history import PlanDiff
from dagrun.kernel.model.plan import Plan
from dagrun.kernel.model.policy import Policy
from dagrun.kernel.model.redaction.redactor import DEFAULT_REDACTOR
from dagrun.kernel.model.tool import Toolbox
from dagrun.kernel.runtime.result import StepResults
from dagrun.kernel.runtime.run import Run
from dagrun.observe.html import NOTHING, Markup, join, raw, tag
from dagrun.observe.picture.graph_svg import Picture, draw_graph
from dagrun.observe.picture.timeline_svg import draw_timeline
from dagrun.observe.report.sections import ANSWERS, answer_command, cut_off, resume_hint, run_look, value_block
from dagrun.observe.state_styles import FAULTS, counted, counts_text, look_of, seconds_text, waits_text, work_of
from dagrun.observe.view.document import PLAN, plan_view, view_of

# Of the problems of a plan, those that can be seen without its tools and its inputs.
_OF_SHAPE: Final = "DR1"
_CEILINGS: Final = (
    *("max_running", "max_steps", "max_attempts", "max_seconds", "max_tokens", "max_cost"),
    *("planning.max_calls", "max_replans"),
)
_values_of: Final = attrgetter(*_CEILINGS)


def bundle_of(source: Any) -> dict[str, str]:
    """Return the bundle of a run, a result, a record, a plan, or the difference of two.

    Raises:
        ContractError: There is nothing to show in *source*.
    """
    return {"text/plain": text_of(source), "text/html": _html(source)}


def _html(source: Any) -> str:
    match source:
        case PlanDiff():
            return diff_cell(source)
        case CheckedPlan():
            return cell_of(plan_view(source.plan), [*_ceilings(source.policy), *map(str, source.advice)])
        case Plan():
            return cell_of(plan_view(source, _problems(source)))
        case _:
            return cell_of(view_of(source), is_live=isinstance(source, Run))


def _problems(plan: Plan) -> list[Problem]:
    found, _ = find_problems(plan, Toolbox(()))
    return [problem for problem in found if problem.code.startswith(_OF_SHAPE)]


def _ceilings(policy: Policy) -> Iterator[str]:
    """Yield the ceilings that were set."""
    values = zip(_CEILINGS, _values_of(policy), _values_of(Policy()), strict=True)
    shown = [f"{name} {value:g}" for name, value, usual in values if value is not None and value != usual]
    if shown:
        yield f"Ceilings: {', '.join(shown)}"


MAX_BYTES: Final = 200_000
WIDTH: Final = 960.0  # pixels of a timeline
MOST_SHRUNK: Final = 1_400.0  # pixels of a graph; a wider one scrolls, as its texts would be too small
MAX_WRONG: Final = 6
MAX_WHY: Final = 300  # characters of one reason
MAX_ARGUMENTS: Final = 2_000  # characters
MAX_ADVICE: Final = 50
MAX_DIFF: Final = 400  # lines

# The boxes of the graph, the rows of the timeline and those of the table; from too large to smaller.
SIZES: Final = ((150, 40, 200), (80, 40, 100), (40, 20, 40), (12, 8, 0), (0, 0, 0))

# Text from models must not be read as mathematics by a notebook that sets it.
_ROOT: Final = "dagrun-cell mathjax_ignore tex2jax_ignore"


def text_of(source: object) -> str:
    """Return the text of a source, for places that show no HTML."""
    if isinstance(source, Run):
        return listing(repr(source)[1:-1], StepResults(source.graph.nodes).table())
    return repr(source)


def cell_of(view: Mapping[str, Any], notes: Iterable[str] = (), *, is_live: bool = False) -> str:
    """Return the cell about a run or a plan.

    Args:
        view: Its view.
        notes: Advice about it, a sentence each.
        is_live: Whether the reader is in the process of the run, and can answer its questions there.
    """
    head = join(_head(view), _wrong(view), _questions(view, is_live=is_live), _answer(view), _advice(list(notes)))
    cell = NOTHING
    for boxes, rows, lines in SIZES:
        cell = framed(head, _drawing(view, boxes), _timeline(view, rows), _table(view, lines))
        if len(cell.encode("utf-8", "replace")) <= MAX_BYTES:
            break
    return str(cell)


def framed(*content: Markup) -> Markup:
    """Return a cell around its content."""
    return tag("div", tag("style", raw(_style())), *content, class_=_ROOT)


def diff_cell(diff: PlanDiff) -> str:
    """Return the cell about the differences of two plans, redacted by the rules that hold without a policy."""
    lines = [DEFAULT_REDACTOR.text(line) for line in diff.lines()]
    shown = [tag("span", f"{line}\n", class_="add" if line[0] == "+" else "del") for line in lines[:MAX_DIFF]]
    counts = f"{len(diff.added)} added, {len(diff.removed)} removed, {len(diff.changed)} changed"
    more = f", the first {MAX_DIFF} of {len(lines):,} lines" if len(lines) > MAX_DIFF else ""
    body = tag("pre", *shown, tabindex=0) if shown else tag("p", "The plans are equal.")
    return str(framed(tag("p", tag("b", "Difference of two plans"), f": {counts}{more}"), body))


@cache
def _style() -> str:
    return files("dagrun.observe.report").joinpath("cell.css").read_text("utf-8").replace("\n", "")


# Above the drawings ---------------------------------------------------------------------------------------------------


def _head(view: Mapping[str, Any]) -> Markup:
    run, look = view["run"], run_look(view)
    badge = tag("span", f"{look.symbol} {look.word}", class_=f"badge {look.kind}")
    goal = run["goal"] or (f"Run {run['id']}" if run["id"] else f"A plan of {counted(len(view['steps']), 'step')}")
    facts = [] if run["state"] == PLAN else list(_facts(view))
    is_telling = run["reason"] and run["status"] != "succeeded"
    return join(
        tag("p", badge, " ", tag("span", shorten(goal, MAX_WHY), class_="goal")),
        tag("p", " · ".join(facts), class_="note") if facts else None,
        tag("p", shorten(run["reason"], MAX_WHY)) if is_telling else None,
        cut_off(run),
    )


def _advice(notes: list[str]) -> Markup:
    if not notes:
        return NOTHING
    shown = [tag("li", note) for note in notes[:MAX_ADVICE]]
    left = len(notes) - len(shown)
    more = tag("p", f"… and {left:,} more: see .advice", class_="note") if left > 0 else None
    return tag("details", tag("summary", counted(len(notes), "remark")), tag("ul", *shown), more)


def _facts(view: Mapping[str, Any]) -> Iterator[str]:
    run = view["run"]
    counts = counts_text(run["counts"])
    yield f"{counted(sum(run['counts'].values()), 'step')}: {counts}" if counts else "no steps"
    yield f"{seconds_text(run['makespan'])} {'so far' if run['stand'] == 'running' else 'in all'}"
    if waits := waits_text(run["waits"]):
        yield f"waited {waits}"
    if run["tokens"]:
        yield counted(run["tokens"], "token")
    if run["id"]:
        yield f"run {run['id']}"


def _wrong(view: Mapping[str, Any]) -> Markup:
    """Return the first things that went wrong: problems, then failed steps, without those that were replaced."""
    bad = [step for step in view["steps"] if step["state"] in FAULTS]
    bad.sort(key=lambda step: (step["gone"] is not None, step["n"]))
    items: list[tuple[Markup | str, ...]] = [(f"Problem: {shorten(p, MAX_WHY)}",) for p in view["run"]["problems"]]
    items += [
        (
            tag("span", look_of(step["state"]).symbol, class_="sym bad"),
            " ",
            tag("b", step["id"]),
            f": {shorten(step['why'], MAX_WHY)}",
            f" (replaced by {view['steps'][step['substitute']]['id']})" if step["substitute"] is not None else "",
        )
        for step in bad
    ]
    shown = [tag("p", *item, class_="look bad") for item in items[:MAX_WRONG]]
    left = len(items) - len(shown)
    return join(*shown, tag("p", f"… and {left:,} more", class_="note") if left > 0 else None)


def _questions(view: Mapping[str, Any], *, is_live: bool) -> Markup:
    """Return the open questions, and how to answer: here, or by a command where the run waits for people."""
    run = view["run"]
    waiting = [q for q in view["questions"] if q["answered_at"] is None] if run["state"] != "ended" else []
    shown = []
    for question in waiting[:MAX_WRONG]:
        code = answer_command(run, question)
        if is_live:
            given = "Answer(…)" if question["kind"] in ANSWERS else "True"
            code = f"await run.answer({question['id']!r}, {given})"
        text = shorten(question["text"], MAX_WHY)
        shown.append(
            tag(
                "div",
                tag("p", tag("span", "‖ ", class_="sym hold"), text, " ", tag("code", code)),
                _arguments(question["arguments"], "run.pending" if is_live else f"dagrun inspect {run['id']}"),
                class_="look hold",
            )
        )
    left = len(waiting) - len(shown)
    if left > 0:
        shown.append(tag("p", f"… and {counted(left, 'question')} more", class_="note"))
    if run["state"] == "waiting":
        shown.append(tag("p", *resume_hint(run)))
    return join(*shown)


def _arguments(arguments: Any, place: str) -> Markup | None:
    """Return the arguments in question; if they are cut, with the place of the whole."""
    if arguments is None:
        return None
    text = json.dumps(arguments, ensure_ascii=False, indent=2)
    cut = f"\n… the first {MAX_ARGUMENTS:,} of {len(text):,} characters; all of them: {place}"
    return tag("pre", text[:MAX_ARGUMENTS] + (cut if len(text) > MAX_ARGUMENTS else ""), tabindex=0)


def _answer(view: Mapping[str, Any]) -> Markup:
    shown = view["run"]["output"]
    return NOTHING if shown is None else join(tag("p", "Answer", class_="note"), value_block(shown))


# Drawings and table ---------------------------------------------------------------------------------------------------


def _scrolling(content: Markup, label: str) -> Markup:
    """Return content that scrolls where it is too large, also by keyboard."""
    style = "overflow:auto;max-height:420px"
    return tag("div", content, class_="scroll", style=style, tabindex=0, role="group", aria_label=label)


def _fitting(picture: Picture, label: str) -> Markup:
    """Return a picture that is made a little smaller to fit, or scrolls if that would not do."""
    svg = picture.svg(label, class_="fits" if picture.width <= MOST_SHRUNK else "")
    return _scrolling(svg, label)


def _drawing(view: Mapping[str, Any], boxes: int) -> Markup:
    if not boxes or not view["steps"]:
        return NOTHING
    picture = draw_graph(view, most=boxes, is_linked=False)
    note = "" if picture.note == "Every step has a box." else picture.note
    return join(_fitting(picture, "Graph of the steps"), tag("p", note, class_="note") if note else None)


def _timeline(view: Mapping[str, Any], rows: int) -> Markup:
    if not rows or view["run"]["state"] == PLAN:
        return NOTHING
    picture = draw_timeline(view, width=WIDTH, max_rows=rows, is_linked=False)
    if not picture.width:
        return NOTHING
    note = picture.note.partition(";")[0]
    return join(_fitting(picture, "When each step ran"), tag("p", f"{note}.", class_="note") if note else None)


def _table(view: Mapping[str, Any], most: int) -> Markup:
    """Return the steps as a table: those that need a look first, then in the order of the plan."""
    steps = sorted(view["steps"], key=lambda step: (step["state"] not in FAULTS, step["n"]))[:most]
    if not steps:
        return NOTHING
    is_plan = view["run"]["state"] == PLAN
    heads = ("step", "tool", "needs") if is_plan else ("step", "tool", "state", "took", "calls", "")
    rows = [_planned_row(step, view) if is_plan else _row(step, view["at"]) for step in steps]
    left = len(view["steps"]) - len(rows)
    table = tag("table", tag("thead", tag("tr", *(tag("th", head) for head in heads))), tag("tbody", *rows))
    more = tag("p", f"… and {left:,} more", class_="note") if left else None
    title = tag("summary", counted(len(view["steps"]), "step"))
    return tag("details", title, _scrolling(join(table, more), "Steps"))


def _row(step: Mapping[str, Any], now: float) -> Markup:
    look = look_of(step["state"])
    calls = len(step["attempts"])
    return tag(
        "tr",
        tag("td", step["id"]),
        tag("td", step["tool"]),
        tag("td", tag("span", look.symbol, class_=f"sym {look.kind}"), f" {look.word or step['state']}"),
        tag("td", seconds_text(work_of(step, now)) if calls else "", class_="num"),
        tag("td", str(calls or ""), class_="num"),
        tag("td", shorten(step["why"], MAX_WHY)),
    )


def _planned_row(step: Mapping[str, Any], view: Mapping[str, Any]) -> Markup:
    needs = [view["steps"][n]["id"] for n in step["needs"]]
    names = ", ".join(needs[:8]) + (f" and {len(needs) - 8} more" if len(needs) > 8 else "")
    return tag("tr", tag("td", step["id"]), tag("td", step["tool"]), tag("td", names))

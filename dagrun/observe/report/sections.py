"""The sections of a report page, in plain HTML: each returns its markup, or nothing if it is empty."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from dagrun.kernel.model.usage import ModelUse
from dagrun.observe.html import NOTHING, Markup, join, tag
from dagrun.observe.state_styles import (
    FAULTS,
    RECOVERIES,
    RUNS,
    STATES,
    WAITS,
    StateStyle,
    cost_words,
    counted,
    counts_text,
    look_of,
    seconds_text,
    waits_text,
)

View = Mapping[str, Any]

MAX_WRONG: Final = 50
_FIRST: Final = 8  # of what went wrong, seen at once
MAX_ROWS: Final = 200  # of questions and changes
MAX_LOG: Final = 500  # lines that are in the page without its script
_MAX_IDS: Final = 8


def section(name: str, title: str, *content: Markup | str | None) -> Markup:
    """Return a section with a heading."""
    return tag("section", tag("h2", title, id=f"{name}-title"), *content, id=name, aria_labelledby=f"{name}-title")


def run_look(view: View) -> StateStyle:
    """Return how the run as a whole looks."""
    run = view["run"]
    key = run["status"] if run["status"] is not None else run["state"]
    if run["state"] == "interrupted":
        key = "interrupted"
    return RUNS.get(key, RUNS["plan"])


def is_plan(view: View) -> bool:
    """Whether the view shows a plan that has not run."""
    return bool(view["run"]["state"] == "plan")


def title_of(view: View) -> str:
    """Return the title of the page."""
    look, run = run_look(view), view["run"]
    return f"{look.symbol} {look.word}: {run['goal'] or run['id'] or 'a plan'} · dagrun"


def step_link(view: View, n: int, text: str = "") -> Markup:
    """Return a link to a step."""
    id_ = view["steps"][n]["id"]
    return tag("a", text or id_, href=f"#step-{id_}", class_="step", data_n=n)


def _clock(at: float | None) -> str:
    return "" if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"


# The head -------------------------------------------------------------------------------------------------------------


def header(view: View, title: str) -> Markup:
    """Return the head of the page: the state of the run, its goal, and its figures."""
    run, look = view["run"], run_look(view)
    badge = tag("span", f"{look.symbol} {look.word}", class_=f"badge {look.kind}")
    goal = title or run["goal"] or (f"Run {run['id']}" if run["id"] else "A plan that has not run")
    return tag(
        "header",
        tag("h1", badge, " ", tag("span", goal, class_="goal")),
        tag("p", run["reason"], class_="reason") if run["reason"] and run["status"] != "succeeded" else None,
        cut_off(run),
        tag("ul", *(tag("li", *fact) for fact in _facts(view)), class_="facts") if run["state"] != "plan" else None,
        _origin(view),
        _ceilings(run["ceilings"]),
        id="run",
    )


def cut_off(run: View) -> Markup | None:
    """Return how to continue a run that was cut off; nothing for any other."""
    if run["state"] != "interrupted":
        return None
    running = run["counts"].get("running", 0)
    what = "It was suspended. " if run["status"] is not None else "The record ends here, and no process runs it. "
    what += f"{counted(running, 'step')} {'were' if running != 1 else 'was'} running. " if running else ""
    return tag("p", what, *resume_hint(run, "To go on: "), class_="reason")


def _facts(view: View) -> Iterator[tuple[Markup | str, ...]]:
    run = view["run"]
    counts = counts_text(run["counts"])
    yield tag("b", seconds_text(run["makespan"])), " in all"
    yield tag("b", counted(sum(run["counts"].values()), "step")), f": {counts}" if counts else ""
    if run["work"]:
        yield tag("b", seconds_text(run["work"])), f" of work, {run['parallelism']:.1f} at once on average"
    if run["critical_path"]:
        yield (
            tag("b", seconds_text(run["critical_path"])),
            " critical path: no schedule of these steps is faster",
        )
    if waits := waits_text(run["waits"]):
        yield tag("b", "Waits of all steps"), f": {waits}"
    gaps: Counter[str] = Counter()
    for reason, seconds, _ in view["path_gaps"]:
        gaps[reason] += seconds
    if waits := waits_text(gaps):
        yield tag("b", "Waits on the path"), f": {waits}"
    for key, one, many in _COUNTED:
        if run[key]:
            yield tag("b", f"{run[key]:,}"), f" {one if run[key] == 1 else many}"
    if run["tokens"]:
        yield tag("b", f"{run['tokens']:,}"), f" tokens, {cost_words(run['known_cost'], run['unpriced'])}"


_COUNTED: Final = (
    ("retries", "repeated attempt", "repeated attempts"),
    ("fallbacks", "fallback", "fallbacks"),
    ("replans", "change asked of the planner", "changes asked of the planner"),
)


def _origin(view: View) -> Markup | None:
    run = view["run"]
    command = run["labels"].get("command")
    parts: list[Markup | str] = []
    if run["id"]:
        parts += ["Run ", tag("code", run["id"])]
    if run["began"] is not None:
        parts.append(f", began {_clock(run['began'])}")
    if run["ended"] is not None and run["state"] == "ended":
        parts.append(f", ended {_clock(run['ended'])}")
    if run["parent"]:
        parts += [", does again run ", tag("code", run["parent"])]
    for at, _, until in run["suspended"]:
        parts.append(f"; suspended at {seconds_text(at)}{'' if until is None else f', resumed {_clock(until)}'}")
    if isinstance(command, list) and all(isinstance(word, str) for word in command):
        parts += [": ", tag("code", shlex.join(command))]
    return tag("p", *parts, class_="origin") if parts else None


def _ceilings(ceilings: list[View]) -> Markup | None:
    if not ceilings:
        return None
    shown = []
    for ceiling in ceilings:
        name, used, limit = ceiling["name"], ceiling["used"], ceiling["limit"]
        label = f"{name.replace('max_', '')}: {_amount(name, used)} of {_amount(name, limit)}"
        part = min(1.0, used / limit) if limit else 1.0
        bar = tag("i", class_="meter", style=f"--part:{part:.3f}", aria_hidden="true")
        shown.append(tag("li", label, bar, class_="full" if part >= 1 else None))
    return tag("ul", *shown, class_="ceilings", aria_label="Ceilings")


def _amount(name: str, figure: float) -> str:
    """Format the used amount of a ceiling, or the ceiling itself, in its unit."""
    if name == "max_seconds":
        return seconds_text(figure)
    return f"{figure:,.4f}".rstrip("0").rstrip(".")


# What needs a look ----------------------------------------------------------------------------------------------------


def wrong(view: View) -> Markup:
    """Return the failures: each failed step, the reason, the decision, and the steps skipped because of it.

    Of a plan that has not run, it is the result of its check.
    """
    run = view["run"]
    title, advice = ("What the check found", "Advice") if is_plan(view) else ("What went wrong", "Warning")
    bad = [step for step in view["steps"] if step["state"] in FAULTS and not _is_told_by_elements(step, view)]
    bad.sort(key=lambda step: (step["gone"] is not None, step["n"]))
    items = [_wrong_step(step, view) for step in bad[:MAX_WRONG]]
    items += [tag("li", f"Problem of the plan: {problem}") for problem in run["problems"][:MAX_WRONG]]
    items += [tag("li", f"{advice}: {warning}") for warning in run["warnings"][:MAX_WRONG]]
    items += [
        tag("li", tag("b", call["planner"] or "planner"), f": {_call_words(call)}")
        for work in view["planner"]
        for call in work["calls"]
        if call["fault"] or call["handed_on"]
    ]
    if not items:
        return NOTHING
    more = tag("p", f"… and {len(bad) - MAX_WRONG:,} more steps", class_="note") if len(bad) > MAX_WRONG else None
    hidden = items[_FIRST:]
    rest = tag("details", tag("summary", f"{len(hidden)} more"), tag("ul", *hidden), more) if hidden else more
    return section("wrong", title, tag("ul", *items[:_FIRST]), rest)


def _call_words(call: View) -> str:
    """Return why a planner returned no answer, or passed the request on to the next planner."""
    handed_on = f"handed on {call['handed_on']}" if call["handed_on"] else ""
    return handed_on if call["fault"] in handed_on else "; ".join(filter(None, (call["fault"], handed_on)))


def _is_told_by_elements(step: View, view: View) -> bool:
    """Whether a for_each failed only because elements did, which are listed by themselves."""
    if step["children"] is None:
        return False
    first, last = step["children"]
    return any(view["steps"][n]["state"] in FAULTS for n in range(first, last + 1))


def _wrong_step(step: View, view: View) -> Markup:
    look = look_of(step["state"])
    failed = [call for call in step["attempts"] if call["failure"] is not None]
    last = failed[-1] if failed else None
    kind = last["failure"]["kind"].replace("_", " ") if last is not None else "" if is_plan(view) else look.word
    details: list[Markup] = []
    if last is not None and last["row"]:
        words = RECOVERIES.get(last["recovery"], last["recovery"]).capitalize()
        details.append(tag("p", tag("b", f"{words}: "), last["row"], class_="row"))
    if last is not None and last["failure"].get("where"):
        details.append(tag("p", "at ", tag("code", last["failure"]["where"]), class_="note"))
    if step["substitute"] is not None:
        details.append(tag("p", "Replaced by ", step_link(view, step["substitute"]), class_="note"))
    if skipped := _skipped_by(step, view):
        names = join(*(part for n in skipped[:_MAX_IDS] for part in (step_link(view, n), " ")))
        more = f"and {len(skipped) - _MAX_IDS:,} more" if len(skipped) > _MAX_IDS else ""
        details.append(
            tag("p", f"Because of it, {counted(len(skipped), 'step')} did not run: ", names, more, class_="note")
        )
    attempts = f", {len(step['attempts'])} attempts" if len(step["attempts"]) > 1 else ""
    head = tag(
        "p",
        tag("span", look.symbol, class_="sym bad"),
        " ",
        step_link(view, step["n"]),
        f" {kind}{attempts}: " if kind else ": ",
        step["why"],
    )
    return tag("li", head, *details)


def _skipped_by(step: View, view: View) -> list[int]:
    return [other["n"] for other in view["steps"] if other["cause"] == step["id"] and other["state"] != "succeeded"]


# What `dagrun answer` takes for a question of these kinds; for the others it asks for a yes or a no.
ANSWERS: Final = {"input": " VALUE", "effect": " took_effect/did_not/unknown"}


def answer_command(run: View, question: View) -> str:
    """Return the command that answers a question."""
    command = shlex.join(["dagrun", "answer", run["id"], question["step"] or question["id"]])
    return command + ANSWERS.get(question["kind"], "")


def resume_hint(run: View, words: str = "Then: ") -> tuple[str, Markup]:
    """Return how a run that was suspended or cut off goes on."""
    return words, tag("code", shlex.join(["dagrun", "resume", run["id"]]))


def open_questions(view: View) -> Markup:
    """Return the questions that wait for an answer, each with the command that gives it."""
    run = view["run"]
    waiting = [q for q in view["questions"] if q["answered_at"] is None] if run["state"] != "ended" else []
    if not waiting:
        return NOTHING
    items = []
    for question in waiting[:MAX_ROWS]:
        command = tag("code", answer_command(run, question))
        arguments = None
        if question["arguments"] is not None:
            arguments = tag("pre", json.dumps(question["arguments"], ensure_ascii=False, indent=2)[:20_000])
        why = tag("p", f"Why: {question['why']}", class_="note") if question["why"] else None
        items.append(tag("li", tag("p", tag("b", question["text"])), why, arguments, tag("p", command)))
    resume = tag("p", *resume_hint(run)) if run["state"] == "waiting" else None
    return section("open", "Waiting for you", tag("ul", *items), resume)


def answer(view: View) -> Markup:
    """Return the answer of the run."""
    shown = view["run"]["output"]
    return NOTHING if shown is None else section("answer", "Answer", value_block(shown))


def value_block(shown: View) -> Markup:
    """Return the markup of a value."""
    value = shown["$value"]
    for reason in ("unavailable", "hidden"):
        if reason in value:
            return tag("p", f"({value[reason]})", class_="note")
    if "artifact" in value:
        return tag("p", "File ", tag("code", value["artifact"]), f", {value['media']}, {value['bytes']:,} bytes")
    if "json" not in value:
        return tag("p", "(values are left out of this report)", class_="note")
    text = value["json"]
    cut = tag("p", f"The beginning of {value['bytes']:,} bytes", class_="note") if value.get("cut") else None
    if not value.get("cut"):
        plain = json.loads(text)
        if not isinstance(plain, str) and len(text) > 120:
            text = json.dumps(plain, ensure_ascii=False, indent=2)
        text = plain if isinstance(plain, str) else text
    return join(tag("pre", text, tabindex=0), cut)


# What happened --------------------------------------------------------------------------------------------------------


def changes(view: View) -> Markup:
    """Return the changes of the plan: the reason, the author, the difference, and the steps that ran on."""
    real = [change for change in view["revisions"] if not change["is_draft"]]
    if not real:
        return NOTHING
    shown = [_change(change, view) for change in real[:MAX_ROWS]]
    return section("changes", "Changes of the plan", *shown)


def _change(change: View, view: View) -> Markup:
    number = change["number"]
    thought = change["at"] - change["asked_at"]
    asked = f", asked {seconds_text(thought)} before" if thought > 0 else ""
    head = f"Revision {number} at {seconds_text(change['at'])}, by the {change['origin']}{asked}: {change['did']}"
    lines = [tag("span", line, class_=_DIFF.get(line[:2], "same")) for line in change["diff"]]
    diff = tag("pre", *(part for line in lines for part in (line, "\n")), class_="diff", tabindex=0) if lines else None
    return tag(
        "details",
        tag("summary", head),
        tag("p", f"Why: {change['reason']}") if change["reason"] else None,
        diff,
        _ran(change["ran_on"], "ran on without a break", view),
        _ran(change["started_meanwhile"], "started meanwhile", view),
        _ran(change["ended_meanwhile"], "succeeded meanwhile", view),
        id=f"revision-{number}",
        open=len(view["revisions"]) < 4,
    )


_DIFF: Final = {"+ ": "add", "- ": "del"}


def _ran(steps: list[int], what: str, view: View) -> Markup | None:
    if not steps:
        return None
    names = join(*(part for n in steps[:_MAX_IDS] for part in (step_link(view, n), " ")))
    more = f"and {len(steps) - _MAX_IDS} more" if len(steps) > _MAX_IDS else ""
    return tag("p", f"{counted(len(steps), 'step')} {what}: ", names, more, class_="note")


def questions(view: View) -> Markup:
    """Return the questions to people, and their answers."""
    if not view["questions"]:
        return NOTHING
    rows = [_question(question) for question in view["questions"][:MAX_ROWS]]
    return section("questions", "Questions and answers", table(("Question", "About", "Answer", "By", "Took"), rows))


def _question(question: View) -> Markup:
    given = question["answer"]
    words = {"approve": "yes", "deny": "no", "escalate": "handed to people"}
    if given is not None:
        said = words.get(given["choice"], given["choice"])
        said += f": {json.dumps(given['value'], ensure_ascii=False)}" if given["value"] is not None else ""
        said += f" ({given['note']})" if given["note"] else ""
        said += f", ticked: {'; '.join(given['ticked'])}" if given["ticked"] else ""
    else:
        said = question["why_void"] or "not answered"
    until = question["answered_at"]
    took = "" if until is None else seconds_text(until - question["asked_at"])
    about = question["step"] or question["kind"]
    why = tag("p", question["why"], class_="note") if question["why"] else None
    by = given["by"] if given is not None else ""
    return tag("tr", tag("td", question["text"], why), *(tag("td", text) for text in (about, said, by, took)))


def table(heads: Iterable[str], rows: Iterable[Markup]) -> Markup:
    """Return a table that scrolls by itself where it is too wide."""
    head = tag("thead", tag("tr", *(tag("th", text, scope="col") for text in heads)))
    return tag(
        "div", tag("table", head, tag("tbody", *rows)), class_="wide", tabindex=0, role="group", aria_label="Table"
    )


def cost(view: View) -> Markup:
    """Return calls, time and usage by tool, and of the planner."""
    rows: dict[str, list[float]] = {}
    used: dict[str, ModelUse] = {}
    for name, seconds, call in _calls(view):
        row = rows.setdefault(name, [0, 0.0, 0.0])
        row[:] = row[0] + 1, row[1] + seconds, max(row[2], seconds)
        used.setdefault(name, ModelUse()).add(call["tokens"], call["cost"])
    if not rows:
        return NOTHING
    is_priced = any(use.tokens or use.known_cost for use in used.values())
    lines = []
    for tool, (calls, total, longest) in sorted(rows.items(), key=lambda item: -item[1][1]):
        use = used[tool]
        words = (f"{use.tokens:,}", cost_words(use.known_cost, use.unpriced))
        usage: tuple[str, ...] = words if use.tokens or use.known_cost else ("", "")
        usage = usage if is_priced else ()
        cells = (f"{calls:,.0f}", seconds_text(total), seconds_text(total / calls), seconds_text(longest), *usage)
        lines.append(tag("tr", tag("td", tool), *(tag("td", cell, class_="num") for cell in cells)))
    heads = ("Tool", "Calls", "Work", "Mean", "Longest", *(("Tokens", "Cost") if is_priced else ()))
    return section("cost", "Cost", table(heads, lines))


def _calls(view: View) -> Iterator[tuple[str, float, View]]:
    """Yield every call of a tool or a planner: whose it was, how long it took, and its usage."""
    for step in view["steps"]:
        for call in step["attempts"]:
            yield call["tool"], (view["at"] if call["ended"] is None else call["ended"]) - call["started"], call
    for work in view["planner"]:
        for call in work["calls"]:
            prompt = f", prompt {call['prompt']}" if call["prompt"] else ""  # so that two versions can be compared
            yield f"(planner) {call['planner']}".strip() + prompt, call["seconds"], call


def log(view: View) -> Markup:
    """Return the log: rare events and failures."""
    lines = view["log"]
    if not lines:
        return NOTHING
    rows = []
    for line in lines[:MAX_LOG]:
        details = [tag("p", detail, class_="note") for detail in line["details"]]
        text = tag("td", line["text"], *details)
        rows.append(tag("tr", tag("td", f"{line['at']:.3f} s", class_="num"), tag("td", line["about"]), text))
    left = len(lines) - MAX_LOG + view["left_out"]["log"]
    more = (
        tag("p", f"… and {left:,} more lines: dagrun inspect {view['run']['id']}", class_="note") if left > 0 else None
    )
    inside = tag("details", tag("summary", counted(len(lines), "line")), table(("At", "About", "What"), rows), more)
    return section("log", "Log", inside)


def legend(view: View) -> Markup:
    """Return the meaning of the symbols, colours and lines that occur."""
    states = dict.fromkeys(step["state"] for step in view["steps"])
    order = [state for state in STATES if state in states]
    parts = [
        tag("li", tag("span", STATES[s].symbol, class_=f"sym {STATES[s].kind}"), f" {STATES[s].word}") for s in order
    ]
    reasons = {wait[0] for step in view["steps"] for wait in step["waits"]}
    parts += [tag("li", tag("i", class_=f"line {r}"), f" waits {WAITS[r]}") for r in WAITS if r in reasons]
    if view["path"]:
        parts.append(tag("li", tag("i", class_="line hot"), " critical path"))
    if any(not change["is_draft"] for change in view["revisions"]):
        parts.append(tag("li", tag("i", class_="line splice"), " change of the plan"))
    return tag("ul", *parts, class_="legend", aria_label="Legend")

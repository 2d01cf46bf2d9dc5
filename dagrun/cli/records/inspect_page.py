"""The page of ``dagrun inspect``: the history of a run, with reasons."""

from __future__ import annotations

import sys
from typing import Any, Final

from dagrun.api.replaying import Replayed
from dagrun.cli.records.next_steps import answer_command
from dagrun.cli.records.resume_command import command_again, label, quoted, where_is
from dagrun.cli.records.run_records import open_records
from dagrun.cli.records.run_titles import what, when
from dagrun.cli.setup.settings import Configuration
from dagrun.cli.terminal.text import SCHEMA_VERSION, Data, columns_of, is_ascii, printable, to_json
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import shorten, visible
from dagrun.kernel.graph.figures import RunFigures
from dagrun.kernel.model.redaction.redactor import Redactor
from dagrun.kernel.model.toolbox import hint
from dagrun.kernel.model.value import Stored, Unavailable, decode
from dagrun.observe.line_breaks import wrap_words
from dagrun.observe.narrative import Entry, RecordedAnswer, answers, chronicle
from dagrun.observe.run_standing import RunOverview, RunState, standing_of
from dagrun.observe.run_summary import count_events
from dagrun.observe.state_styles import spending_words
from dagrun.observe.timeline import read_timeline, timeline_page
from dagrun.observe.view.document import view_of

_MAX_ENTRIES: Final = 2_000
_MAX_VALUE: Final = 2_000  # characters
_INDENT: Final = " " * 11


def show_run(
    configuration: Configuration,
    data: Data,
    run: str,
    step: str | None,
    *,
    timeline: bool = False,
    with_answers: bool = False,
    as_json: bool = False,
) -> None:
    """Print the history of a run.

    Args:
        configuration: The settings that hold.
        data: Takes the page.
        run: The run, as the user has typed it.
        step: The only step that is shown; `None` for all.
        timeline: Whether the timeline is drawn instead.
        with_answers: Whether the answers of models are shown whole.
        as_json: Whether JSON is printed.

    Raises:
        BadInput: There is no such run or step.
    """
    records = open_records(configuration)
    name = records.find(run)
    past = records.shown(name)
    if step is not None and step not in past.states:
        raise BadInput(f"run {name} has no step {shorten(step, 100)}{hint(step, past.states)}")
    standing = standing_of(count_events(name, past.events).run, records.held(name))
    width = min(120, max(40, columns_of(sys.stdout)))
    if timeline:
        if step is not None:
            raise BadInput("--timeline is about a whole run; leave the step out")
        _show_timeline(past, data, width, as_json=as_json)
        return
    entries = list(chronicle(past, step))
    if as_json:
        data.json({**_as_dict(standing, past, entries, step), "hash": records.replay(name).hash})
        return
    page = _Page(width)
    page.text([*_head(standing, past), *(_step_lines(past, step) if step is not None else ())])
    for entry in entries[:_MAX_ENTRIES]:
        page.entry(entry)
    more = len(entries) - _MAX_ENTRIES
    page.text([f"… and {more} more (--json has them all)"] if more > 0 else [])
    said = list(answers(past, step))
    page.text(_answer_lines(said) if with_answers else _answers_hint(said))
    page.lines += _next(standing, past, where_is(configuration))  # commands stay on one line, to be copied
    data.text("\n".join(page.lines))


def _show_timeline(past: Replayed, data: Data, width: int, *, as_json: bool) -> None:
    drawn = read_timeline(view_of(past, values="none"))
    if as_json:
        data.json({"schema_version": SCHEMA_VERSION, "run_id": past.run_id, "timeline": drawn.as_dict()})
    else:
        data.text("\n".join(timeline_page(drawn, width, is_ascii=is_ascii(sys.stdout))))


class _Page:
    """Wraps lines to a width."""

    def __init__(self, width: int) -> None:
        self.lines: list[str] = []
        self._width = width

    def text(self, lines: list[str]) -> None:
        for line in lines:
            self.lines += wrap_words(visible(line), self._width, "", "  ")

    def entry(self, entry: Entry) -> None:
        head = f"{entry.at:>9.3f}  "
        self.lines += wrap_words(f"{entry.about}: {entry.text}", self._width, head, _INDENT)
        for detail in entry.details:
            self.lines += wrap_words(detail, self._width, f"{_INDENT}  ", f"{_INDENT}    ")


def _answer_lines(said: list[RecordedAnswer]) -> list[str]:
    lines = []
    for answer in said:
        lines += ["", f"{answer.at:.3f}  {answer.about} answered:", *answer.text.splitlines()]
    return lines or ["", "no answer of a model is on record"]


def _answers_hint(said: list[RecordedAnswer]) -> list[str]:
    count = len(said)
    return ["", f"{count} answer{'s' * (count != 1)} of models on record: --answers shows all of it"] if said else []


def _head(standing: RunOverview, past: Replayed) -> list[str]:
    opening = past.opening
    used = RunFigures(past.graph).used
    facts = {
        "run": standing.run_id,
        "what": shorten(what(standing)),
        "stands": standing.text,
        "began": "-" if standing.began is None else when(standing.began),
        "steps": f"{standing.settled} of {standing.steps} have ended",
        "plan": f"revision {past.history.revision}" if past.history.revision else "",
        "used": ", ".join(spending_words(used)),
        "does again": opening.parent,
        "expires": "" if standing.expires is None else when(standing.expires),
        "made by": f"dagrun {opening.version}",
    }
    return [*(f"{name}: {fact}" for name, fact in facts.items() if fact), ""]


def _step_facts(past: Replayed, step: str) -> dict[str, Any]:
    """Return the definition of a step and its result, without whatever looks like a secret."""
    result, shown = past.steps[step], past.graph.plan.redactor
    definition = past.graph.nodes[step].plan.step.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return {
        "state": str(result.state),
        "reason": result.reason,
        "definition": shown.value(definition),
        **_output(result.stored, shown),
        **_boundary(past, step),
    }


def _boundary(past: Replayed, step: str) -> dict[str, Any]:
    """Return the sources of a step, and the reasons why its calls need approval; nothing without a boundary."""
    if past.opening.policy.flow is None:
        return {}
    from dagrun.kernel.graph.patches.flow_after import sources_of

    plan, shown = past.graph.nodes[step].plan, past.graph.plan.redactor
    crossings = [ask.crossing for ask in (*plan.asks, *plan.fallback_asks) if ask.crossing is not None]
    reasons = [crossing.reason for crossing in (*crossings, *(plan.inner_asks or {}).values())]
    return {"made_of": sources_of(past.graph, step), "boundary": [shown.text(reason) for reason in reasons]}


def _output(stored: Stored, shown: Redactor) -> dict[str, Any]:
    if isinstance(stored, Unavailable):
        return {"output": None, "unavailable": visible(shown.text(stored.reason))}
    return {"output": shown.value(decode(stored))}


def _step_lines(past: Replayed, step: str) -> list[str]:
    facts = _step_facts(past, step)
    lines = [f"step {step}: {facts['state']}{': ' if facts['reason'] else ''}{facts['reason']}"]
    lines.append(f"definition: {_short(facts['definition'])}")
    if "unavailable" in facts:
        lines.append(f"output: not in the record: {facts['unavailable']}")
    lines += [f"output: {_short(facts['output'])}"] if facts["output"] is not None else []
    lines += [f"made of data of: {', '.join(facts['made_of'])}"] if facts.get("made_of") else []
    return [*lines, *(f"a person must agree: {why}" for why in facts.get("boundary", ())), ""]


def _short(value: Any) -> str:
    return shorten(to_json(value), _MAX_VALUE)


def _next(standing: RunOverview, past: Replayed, where: list[str]) -> list[str]:
    """Return the next steps: recorded commands, which are only shown, and never executed."""
    lines: list[str] = []
    if standing.stand in (RunState.RUNNING, RunState.WAITING, RunState.INTERRUPTED):
        for question in past.pending:
            lines += [f"open: {shorten(question.text)}", f"  {answer_command(past.run_id, question, where)}"]
    again = label(past.opening.labels, "again")
    verb = "resume" if standing.is_resumable else "retry" if _can_be_retried(standing) else ""
    if verb:
        lines += [f"{verb}:", f"  {quoted(command_again(verb, past.run_id, again))}"]
    return ["", *map(printable, lines)] if lines else []


def _can_be_retried(standing: RunOverview) -> bool:
    return standing.stand is RunState.ENDED and standing.status != "succeeded"


def _as_dict(standing: RunOverview, past: Replayed, entries: list[Entry], step: str | None) -> dict[str, Any]:
    used = RunFigures(past.graph).used
    return {
        "schema_version": SCHEMA_VERSION,
        **standing.as_dict(),
        "labels": dict(past.opening.labels),
        "parent": past.opening.parent or None,
        "version": past.opening.version,
        "revision": past.history.revision,
        "hash": "",
        "tokens": used.tokens,
        "cost": used.cost,
        "questions": [question.as_dict() for question in past.pending],
        **({"step": {"id": step, **_step_facts(past, step)}} if step is not None else {}),
        "entries": [entry.as_dict() for entry in entries],
        "answers": [answer.as_dict() for answer in answers(past, step)],
    }

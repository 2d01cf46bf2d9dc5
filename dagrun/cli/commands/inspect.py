"""``dagrun inspect``: the history of a run with reasons, its state, its records, and its current events."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from dagrun.cli.records.resume_command import answer_command, command_again, label, quoted, where_is
from dagrun.cli.records.run_store import open_runs
from dagrun.cli.setup.settings import Configuration, configure
from dagrun.cli.table_command import command
from dagrun.cli.terminal.text import (
    SCHEMA_VERSION,
    Data,
    bounded,
    columns,
    columns_of,
    data_output,
    is_ascii,
    printable,
    to_json,
)
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import hint, shorten, visible
from dagrun.observe.line_breaks import wrap_words

if TYPE_CHECKING:
    from dagrun import Replayed
    from dagrun.cli.records.run_store import RunStore
    from dagrun.kernel.model.redaction.redactor import Redactor
    from dagrun.kernel.model.value import Stored
    from dagrun.observe.narrative import Entry, RecordedAnswer
    from dagrun.observe.run_standing import RunOverview


_MAX_STEPS: Final = 1_000
_OF_A_RUN: Final = ("timeline", "follow", "state", "export")  # one of these at most, and of a whole run


@command("inspect")
def inspect(*, run: str, step: str | None, with_answers: bool, as_json: bool, **flags: Any) -> int:
    """Show the history of RUN, with the reason of each decision; or only the history of STEP.

    Each failure is shown with the row of the recovery table that decided what to do; each change of the plan with its
    edits; each question with the person who answered. Answers of models are shown by their first lines. Times are in
    seconds from the start of the run, without pauses. A run that is not over is shown as far as it is recorded. Neither
    its tools nor its planner are needed.

    --follow shows the run from its first step to its end, whichever process carries it out, and prints its answer. A
    run that waits in the queue, or for an answer, is followed on. Ctrl-C ends this command, and not the run.

    --state rebuilds the state of the run and of each step from its record, and calls nothing. Equal records have equal
    hashes of the state on every machine.

    --export prints the records, a line of JSON each; the first says how the run was opened. The kinds of personal data
    that the recorded policy names (redact) are taken out, and what is sealed is left out. A line that was changed by
    this ends with the field "redacted". Such an export is for reading: no run can be resumed from it. Only a copy made
    with --full has the whole record.

    Examples:
      dagrun inspect last
      dagrun inspect last load_prices
      dagrun inspect last --timeline
      dagrun inspect last --json | jq '.entries[]'
      dagrun inspect last --follow
      dagrun inspect last --export --full > copy.jsonl

    Exit codes: 0, 1 if the record is damaged, 2 if there is no such run or step. With --follow, as for dagrun run, by
    the end of the run; 130 after Ctrl-C, and the run continues.
    """
    flags["state"] |= flags["hash"]
    chosen = [f"--{name}" for name in _OF_A_RUN if flags[name]]
    if len(chosen) > 1:
        raise BadInput(f"{chosen[0]} and {chosen[1]} are two pages; ask for one")
    if step is not None and chosen:
        raise BadInput(f"{chosen[0]} is about a whole run; leave the step out")
    if flags["is_full"] and not flags["export"]:
        raise BadInput("--full is for --export")
    if (flags["events"] or flags["quiet"]) and not flags["follow"]:
        raise BadInput(f"{'--events' if flags['events'] else '--quiet'} is for --follow")
    configuration = configure(flags)
    with data_output() as data:
        if not chosen or flags["timeline"]:
            show_run(
                configuration, data, run, step, timeline=flags["timeline"], with_answers=with_answers, as_json=as_json
            )
            return 0
        records = open_runs(configuration)
        run_id = records.find(run)
        if flags["follow"]:
            from dagrun.cli.jobs.follow_run import follow_run

            return follow_run(records, run_id, where_is(configuration), data, {**flags, "as_json": as_json})
        if flags["export"]:
            _export(records, run_id, data, is_full=flags["is_full"])
        else:
            _show_state(records, run_id, data, only_hash=flags["hash"], as_json=as_json)
    return 0


def _export(records: RunStore, run_id: str, data: Data, *, is_full: bool) -> None:
    from dagrun.codec import events_of
    from dagrun.features.redacted_records.records import shown_lines

    lines = records.lines(run_id)
    texts = [line.text for line in lines]
    for text in texts if is_full or not lines else shown_lines(events_of(run_id, lines), texts):
        data.text(text.decode("utf-8", "backslashreplace"))
        if data.is_closed:  # the reader has closed its end
            return


def _show_state(records: RunStore, run_id: str, data: Data, *, only_hash: bool, as_json: bool) -> None:
    past = records.replay(run_id)
    status = None if past.status is None else str(past.status)
    if only_hash:
        data.text(past.hash)
    elif as_json:
        steps = {id_: str(state) for id_, state in past.states.items()}
        data.json(
            {
                "schema_version": SCHEMA_VERSION,
                "run_id": past.run_id,
                "records": len(past.events),
                "status": status,
                "reason": past.reason,
                "has_ended": past.has_ended,
                "revision": past.history.revision,
                "hash": past.hash,
                "steps": steps,
            }
        )
    else:
        rows = [(id_, str(state)) for id_, state in past.states.items()]
        lines = columns(rows).splitlines()
        ended = f"{status}: {past.reason}" if status else "it goes on, or was cut off"
        head = [f"run {past.run_id}: {shorten(ended)}", f"{len(past.events)} records, state {past.hash}", ""]
        data.text("\n".join([*head, *bounded(lines, _MAX_STEPS, lambda more: f"… and {more} more (--json)")]))


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
    from dagrun.observe.narrative import answers, chronicle
    from dagrun.observe.run_standing import standing_of
    from dagrun.observe.run_summary import count_events

    records = open_runs(configuration)
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
    from dagrun.observe.timeline import read_timeline, timeline_page
    from dagrun.observe.view.document import view_of

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
    from dagrun.cli.records.run_list import what, when
    from dagrun.kernel.graph.figures import RunFigures
    from dagrun.observe.state_styles import spending_words

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
    from dagrun import Unavailable
    from dagrun.kernel.model.value import decode

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
    from dagrun.observe.run_standing import RunState

    lines: list[str] = []
    if standing.state in (RunState.RUNNING, RunState.WAITING, RunState.INTERRUPTED):
        for question in past.pending:
            lines += [f"open: {shorten(question.text)}", f"  {answer_command(past.run_id, question, where)}"]
    again = label(past.opening.labels, "again")
    verb = "resume" if standing.is_resumable else "retry" if _can_be_retried(standing) else ""
    if verb:
        lines += [f"{verb}:", f"  {quoted(command_again(verb, past.run_id, again))}"]
    return ["", *map(printable, lines)] if lines else []


def _can_be_retried(standing: RunOverview) -> bool:
    from dagrun.observe.run_standing import RunState

    return standing.state is RunState.ENDED and standing.status != "succeeded"


def _as_dict(standing: RunOverview, past: Replayed, entries: list[Entry], step: str | None) -> dict[str, Any]:
    from dagrun.kernel.graph.figures import RunFigures
    from dagrun.observe.narrative import answers

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

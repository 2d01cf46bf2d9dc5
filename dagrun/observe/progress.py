"""The progress of a run: counts and a few rows, kept up to date by its events; and its end in one line."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from dagrun import events
from dagrun.errors import shorten
from dagrun.kernel.model.outcome import Recovery, State, Status
from dagrun.kernel.model.usage import ModelUse
from dagrun.kernel.runtime.result import RunResult
from dagrun.observe.run_summary import handlers_of
from dagrun.observe.state_styles import counted, spending_words

KEEP: Final = 200  # ended steps that are kept; hardly any terminal is taller
MAX_NOTE: Final = 120

# What people must see before anything else. Steps that were skipped or cancelled are consequences.
FAILURES: Final = frozenset((State.FAILED, State.TIMED_OUT, State.ABANDONED, State.UNKNOWN))
_PART: Final = 3  # failures take at most a third of a table while other steps run


@dataclass(slots=True)
class Row:
    """A step as a table shows it. Texts are one line, without control characters.

    Attributes:
        step: The id of the step.
        tool: The name of its tool; empty if unknown.
        state: The state of the step.
        attempt: 1 for the first call; 0 if there was none.
        since: When this attempt began, or when the step ended without one; in seconds from the start of the run.
        seconds: How long the attempt took, or has taken so far.
        note: The last report of the tool, or why the step did not succeed.
        fraction: The progress that the tool reports, from 0 to 1; `None` if unknown.
    """

    step: str
    tool: str
    state: State
    attempt: int = 0
    since: float = 0.0
    seconds: float = 0.0
    note: str = ""
    fraction: float | None = None


class ProgressTable:
    """Follows a run by its events. Each event takes constant time, and the memory is bounded.

    Pass `on_event` to `dagrun.start`, and call `rows` now and then. Rows are made on request, so a run of a million
    steps costs no more to show than a run of ten.

    Args:
        now: A clock in seconds, for the durations of running steps.

    Attributes:
        steps: The number of steps, including the elements of for_each.
        settled: The number of steps that have ended.
        counts: The number of steps that have ended, by state.
        retries: Attempts that were repeated.
        fallbacks: Steps that used their fallback.
        replans: How often the planner was asked to change the plan.
        is_replanning: Whether the planner is being asked now.
        is_drafting: Whether the planner is writing the first plan, so that the number of steps is not known yet.
        written: Steps of the first plan so far.
        spent: What models and tools have used so far, as far as they have reported it.
        status: How the run ended; `None` while it runs.
        reason: Why the run ended.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.steps = 0
        self.settled = 0
        self.counts: Counter[State] = Counter()
        self.retries = 0
        self.fallbacks = 0
        self.replans = 0
        self.is_replanning = False
        self._asking: set[int] = set()
        self.is_drafting = False
        self.written = 0
        self.spent = ModelUse()
        self.status: Status | None = None
        self.reason = ""
        self._now = now
        self._zero = now()
        self._ended_at: float | None = None
        self._running: dict[str, Row] = {}  # in the order of their starts
        self._delayed: dict[str, Row] = {}  # steps that wait for a retry or for a person
        self._ended: deque[Row] = deque(maxlen=KEEP)
        self._unsuccessful: list[Row] = []  # the first steps that did not succeed

    @property
    def running(self) -> int:
        """The number of steps that run now."""
        return len(self._running)

    @property
    def elapsed(self) -> float:
        """Seconds from the start of the run until now, or until its end."""
        return self._now() - self._zero if self._ended_at is None else self._ended_at

    def on_event(self, event: events.Event) -> None:
        """Update the table by an event."""
        handle = _HANDLERS.get(type(event).__name__)
        if handle is not None:
            handle(self, event)

    @property
    def failed(self) -> int:
        """The number of steps that have failed, timed out, or are unresolved."""
        return sum(self.counts[state] for state in FAILURES)

    def rows(self, limit: int = KEEP) -> list[Row]:
        """Return the rows to show: failures, then running steps, then delayed steps, then the last to end.

        Failures and running steps come in the order of time. Failures take at most a third of the rows if other steps
        need them.
        """
        failures = [row for row in self._unsuccessful if row.state in FAILURES]
        at_work = len(self._running) + len(self._delayed)
        shown = failures[: max(1, limit // _PART, limit - at_work)]
        elapsed = self.elapsed
        for row in islice(self._running.values(), limit - len(shown)):
            row.seconds = max(0.0, elapsed - row.since)  # the run reads its clock at other instants
            shown.append(row)
        shown += islice(self._delayed.values(), limit - len(shown))
        ended = (row for row in reversed(self._ended) if row.state not in FAILURES)
        shown += islice(ended, limit - len(shown))
        return shown

    def last_rows(self, limit: int = KEEP) -> list[Row]:
        """Return the rows to keep after the end: the first unsuccessful steps, then the last successful ones."""
        shown = self._unsuccessful[:limit]
        good = [row for row in self._ended if row.state is State.SUCCEEDED]
        return shown + good[-(limit - len(shown)) :] if len(shown) < limit else shown

    # Events -----------------------------------------------------------------------------------------------

    def _on_run_started(self, event: events.RunStarted) -> None:
        self.steps = event.steps
        self._zero = self._now() - event.at

    def _on_attempt_started(self, event: events.AttemptStarted) -> None:
        self._delayed.pop(event.step, None)
        self._running[event.step] = Row(event.step, event.tool, State.RUNNING, event.attempt, event.at)

    def _on_attempt_ended(self, event: events.AttemptEnded) -> None:
        self.spent.add(event.outcome.tokens, event.outcome.cost)
        if event.decision.recovery is Recovery.REVIEW:
            self._note(event.step, "critics look at it")
            return
        self._on_reviewed(event)

    def _on_reviewed(self, event: events.AttemptEnded | events.Reviewed) -> None:
        row = self._running.pop(event.step, None) or Row(event.step, "", event.state, event.attempt, event.at)
        row.state, row.seconds, row.fraction = event.state, event.at - row.since, None
        failure = event.outcome.failure
        shared = "" if event.outcome.shared is None else str(event.outcome.shared)
        row.note = shorten(failure.message, MAX_NOTE) if failure is not None else event.outcome.surprise or shared
        if event.state.is_settled:
            self._settle(row)
            return
        self._delayed[event.step] = row
        if event.decision.recovery is Recovery.ASK:
            return
        is_retry = event.decision.recovery is Recovery.RETRY
        self.retries += is_retry
        self.fallbacks += event.decision.recovery is Recovery.FALL_BACK
        row.note = f"{'again' if is_retry else 'fallback'} in {event.decision.delay:.1f} s: {row.note}"

    def _on_step_settled(self, event: events.StepSettled) -> None:
        row = self._delayed.pop(event.step, None) or Row(event.step, "", event.state, 0, event.at)
        row.state, row.note = event.state, shorten(event.reason, MAX_NOTE)
        self._settle(row)

    def _on_step_expanded(self, event: events.StepExpanded) -> None:
        self.steps += len(event.items)

    def _on_progress(self, event: events.Progress) -> None:
        row = self._running.get(event.step)
        if row is not None:
            row.note, row.fraction = shorten(event.message, MAX_NOTE), event.fraction

    # Changes of the plan, and people ------------------------------------------------------------------------

    def _on_spliced(self, event: events.Spliced) -> None:
        did = event.consequence
        self.steps += len(did.added)
        if self.is_drafting:
            self.written = max(self.written, self.steps)
        for step in did.superseded:
            row = self._delayed.pop(step, None) or Row(step, "", State.SUPERSEDED, 0, event.at)
            row.state, row.note = State.SUPERSEDED, "a later plan does without it"
            self._settle(row)
        for row in self._unsuccessful:
            if row.step in did.replaced:
                row.note = shorten(f"replaced by {did.replaced[row.step]}: {row.note}", MAX_NOTE)

    def step_written(self) -> None:
        """Count a step of a plan that starts nothing before it is complete, so that no event reports the step."""
        self.written += 1

    def _on_draft_started(self, event: events.DraftStarted) -> None:
        self.is_drafting = True

    def _on_draft_ended(self, event: events.DraftEnded) -> None:
        self.is_drafting = False

    def _on_planner_called(self, event: events.PlannerCalled) -> None:
        self.spent.add(event.tokens, event.cost)

    def _on_replan_started(self, event: events.ReplanStarted) -> None:
        self.replans += 1
        self._asking.add(event.number)
        self.is_replanning = True

    def _on_replan_ended(self, event: events.ReplanEnded) -> None:
        self._asking.discard(event.number)
        self.is_replanning = bool(self._asking)

    def _on_question_asked(self, event: events.QuestionAsked) -> None:
        question = event.question
        if not question.step:
            return
        row = self._running.pop(question.step, None) or self._delayed.pop(question.step, None)
        row = row or Row(question.step, question.tool, State.HELD, 0, event.at)
        row.state, row.note = State.HELD, shorten(question.text, MAX_NOTE)
        self._delayed[question.step] = row

    def _on_question_answered(self, event: events.QuestionAnswered) -> None:
        row = self._delayed.get(event.step)
        if row is not None and event.state is not None:
            row.state, row.note = event.state, ""

    def _on_step_resumed(self, event: events.StepResumed) -> None:
        row = self._delayed.pop(event.step, None)
        if row is not None:
            row.state = State.RUNNING
            self._running[event.step] = row

    def _note(self, step: str, note: str) -> None:
        row = self._running.get(step)
        if row is not None:
            row.note = note

    def _on_run_ended(self, event: events.RunEnded | events.RunSuspended) -> None:
        self.status, self.reason, self._ended_at = event.status, event.reason, event.at

    _on_run_suspended = _on_run_ended

    def _on_run_resumed(self, event: events.RunResumed) -> None:
        self.status, self.reason, self._ended_at = None, "", None
        self._zero = self._now() - event.at
        self._delayed |= self._running  # they were cut off; the next events say what becomes of them
        self._running.clear()

    def _on_run_reopened(self, event: events.RunReopened) -> None:
        self.status, self.reason, self._ended_at = None, "", None
        self.settled -= len(event.steps)
        again = frozenset(event.steps)
        for row in [row for row in self._unsuccessful if row.step in again]:
            self._unsuccessful.remove(row)
            self.counts[row.state] -= 1

    def _settle(self, row: Row) -> None:
        self.settled += 1
        self.counts[row.state] += 1
        self._ended.append(row)
        if row.state is not State.SUCCEEDED and len(self._unsuccessful) < KEEP:
            self._unsuccessful.append(row)


_HANDLERS: Final = handlers_of(ProgressTable)


# The end of a run -----------------------------------------------------------------------------------------------------

MAX_WARNINGS: Final = 20


def summarise(result: RunResult) -> str:
    """Write in one line how a run ended, without control characters.

    Args:
        result: The result of the run.
    """
    facts = [f"{result.makespan:.2f} s", *_counts(result)]
    if result.status is Status.SUCCEEDED:
        facts.append(f"{result.parallelism:.1f} at once on average")
        facts.append(f"critical path {result.critical_path:.2f} s")
    facts += spending_words(result.used)
    problems = len(result.problems)
    # The reason names only the first few problems; the caller shows all of them.
    reason = f"the plan has {counted(problems, 'problem')}" if problems else shorten(result.reason, 1_000)
    return f"{result.status}: {reason} ({', '.join(facts)})"


def warnings_of(result: RunResult) -> list[str]:
    """Return the first warnings of a run, one line each, without control characters.

    Args:
        result: The result of the run.
    """
    lines = [shorten(warning, 1_000) for warning in result.warnings[:MAX_WARNINGS]]
    more = len(result.warnings) - len(lines)
    return lines + [f"… and {more} more"] * bool(more)


def count_recoveries(result: RunResult) -> tuple[int, int]:
    """Count the attempts that were repeated, and the steps that used their fallback."""
    decisions = [a.decision.recovery for step in result.steps.values() for a in step.attempts if a.decision]
    return decisions.count(Recovery.RETRY), decisions.count(Recovery.FALL_BACK)


def _counts(result: RunResult) -> list[str]:
    retries, fallbacks = count_recoveries(result)
    counts = (
        (retries, counted(retries, "retry", "retries")),
        (fallbacks, counted(fallbacks, "fallback")),
        (result.replans, counted(result.replans, "replan")),
    )
    return [text for count, text in counts if count]

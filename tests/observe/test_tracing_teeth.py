"""The tests of traces are worth what they catch: planted faults, each of which one of them must notice."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Any

import pytest
from opentelemetry.context import get_current

import test_tracing
from dagrun import Tracing
from dagrun.api import engine, retrying
from dagrun.api.record_opening import traceparent_of
from dagrun.events import AttemptEnded
from dagrun.kernel.model.outcome import Recovery
from dagrun.kernel.model.value import encode_plain
from dagrun.observe import tracing
from dagrun.observe.semconv import Instruments
from dagrun.observe.tracing import _RunSpans

pytestmark = pytest.mark.rigs

Plant = Callable[[pytest.MonkeyPatch], None]


def _spans_end_when_they_begin(patch: pytest.MonkeyPatch) -> None:
    begin = _RunSpans.begin_attempt

    def hasty(self: Any, attempt: Any, context: Context) -> Any:
        headers = begin(self, attempt, context)
        self._open[attempt.step].span.end()
        return headers

    patch.setattr(_RunSpans, "begin_attempt", hasty)


def _links_go_to_all_steps(patch: pytest.MonkeyPatch) -> None:
    links = _RunSpans._links
    patch.setattr(_RunSpans, "_links", lambda self, needs: links(self, list(self._last)))


def _links_go_to_no_element(patch: pytest.MonkeyPatch) -> None:
    keep = _RunSpans._keep_last

    def forgetful(self: Any, attempt: Any, span: Any) -> None:
        attempt.parent = ""
        keep(self, attempt, span)

    patch.setattr(_RunSpans, "_keep_last", forgetful)


def _attempts_are_above_nothing(patch: pytest.MonkeyPatch) -> None:
    begin = _RunSpans.begin_attempt
    patch.setattr(_RunSpans, "begin_attempt", lambda self, attempt, context: begin(self, attempt, Context()))


def _attempts_are_below_their_caller(patch: pytest.MonkeyPatch) -> None:
    begin = tracing._RunSpans.__init__

    def beside(self: Any, *args: Any) -> None:
        begin(self, *args)
        self._context = get_current()

    patch.setattr(_RunSpans, "__init__", beside)


def _repeated_attempts_are_errors(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tracing, "_FOLLOWED", frozenset((Recovery.PROCEED,)))


def _attempts_have_no_end(patch: pytest.MonkeyPatch) -> None:
    ended = _RunSpans._attempt_ended

    def only_reviews(self: Any, event: Any) -> None:
        if type(event) is not AttemptEnded or event.state != "succeeded":
            ended(self, event)

    patch.setattr(_RunSpans, "_attempt_ended", only_reviews)


def _content_is_on_spans(patch: pytest.MonkeyPatch) -> None:
    begin = Tracing.__init__

    def telling(self: Tracing, **options: Any) -> None:
        begin(self, **{**options, "capture_content": True})

    patch.setattr(Tracing, "__init__", telling)


def _content_is_not_redacted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_RunSpans, "_content", staticmethod(lambda redactor, value: encode_plain(value)[:8192]))


def _content_is_not_cut(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tracing, "MAX_CONTENT", 1 << 30)


def _goal_is_the_name(patch: pytest.MonkeyPatch) -> None:
    begin = Tracing.begin

    def named(self: Tracing, run: Any) -> Any:
        self.workflow = "canary-goal"
        return begin(self, run)

    patch.setattr(Tracing, "begin", named)


def _planner_is_a_slot(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_RunSpans, "_planner_until", lambda self, attempt: 0.0)


def _planner_is_waited_for_by_all(patch: pytest.MonkeyPatch) -> None:
    until = _RunSpans._planner_until

    def blaming(self: Any, attempt: Any) -> float:
        attempt.needs = [*attempt.needs, *self._replanned]
        return until(self, attempt) + 1.0

    patch.setattr(_RunSpans, "_planner_until", blaming)


def _early_steps_wait_for_the_plan(patch: pytest.MonkeyPatch) -> None:
    drafted = _RunSpans._add_waits

    def late(self: Any, attempt: Any, attributes: Any) -> None:
        self._ready.clear()
        drafted(self, attempt, attributes)

    patch.setattr(_RunSpans, "_add_waits", late)


def _people_are_slots(patch: pytest.MonkeyPatch) -> None:
    answer = _RunSpans._on_question_answered

    def forgetful(self: Any, event: Any) -> None:
        answer(self, event)
        self._person.clear()

    patch.setattr(_RunSpans, "_on_question_answered", forgetful)
    patch.setitem(tracing._NOTES, "QuestionAnswered", forgetful)


def _links_go_to_the_first_trace(patch: pytest.MonkeyPatch) -> None:
    found = traceparent_of
    for module in (engine, retrying):
        patch.setattr(module, "traceparent_of", lambda events: found(events[:1]))


def _faults_are_raised(patch: pytest.MonkeyPatch) -> None:
    for name in ("begin_attempt", "take", "begin_plan", "end"):
        patch.setattr(_RunSpans, name, inspect.unwrap(getattr(_RunSpans, name)))
    patch.setattr(Tracing, "begin", inspect.unwrap(Tracing.begin))


def _metrics_have_ids(patch: pytest.MonkeyPatch) -> None:
    waited = Instruments.waited
    patch.setattr(Instruments, "waited", lambda self, reason, seconds: waited(self, f"{reason} of s1", seconds))


FAULTS: dict[Plant, Callable[[], Awaitable[None]]] = {
    _spans_end_when_they_begin: test_tracing.test_the_tree_of_a_run,
    _links_go_to_all_steps: test_tracing.test_the_tree_of_a_run,
    _links_go_to_no_element: test_tracing.test_the_tree_of_a_run,
    _attempts_are_below_their_caller: test_tracing.test_the_tree_of_a_run,
    _repeated_attempts_are_errors: test_tracing.test_the_tree_of_a_run,
    _attempts_have_no_end: test_tracing.test_the_tree_of_a_run,
    _content_is_on_spans: test_tracing.test_spans_hold_no_content,
    _goal_is_the_name: test_tracing.test_spans_hold_no_content,
    _planner_is_a_slot: test_tracing.test_waits_for_a_planner_are_none_for_a_slot,
    _planner_is_waited_for_by_all: test_tracing.test_waits_for_a_planner_are_none_for_a_slot,
    _early_steps_wait_for_the_plan: test_tracing.test_steps_with_an_effect_wait_for_the_whole_plan,
    _people_are_slots: test_tracing.test_waits_for_slots_and_for_people_are_told_apart,
    _links_go_to_the_first_trace: test_tracing.test_resumed_and_retried_runs_link_to_the_last_trace,
    _metrics_have_ids: test_tracing.test_waits_for_a_planner_are_none_for_a_slot,
}


@pytest.mark.anyio
@pytest.mark.parametrize("plant", FAULTS, ids=[plant.__name__.strip("_") for plant in FAULTS])
async def test_a_planted_fault_is_noticed(plant: Plant) -> None:
    check = FAULTS[plant]
    await check()  # without the fault, it passes
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        with pytest.raises((AssertionError, ValueError, LookupError)):
            await check()


@pytest.mark.anyio
@pytest.mark.parametrize("plant", [_content_is_not_redacted, _content_is_not_cut])
async def test_a_fault_of_captured_content_is_noticed(plant: Plant) -> None:
    for is_planted in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            if not is_planted:
                await test_tracing.test_captured_content_is_redacted_and_cut(patch)
                continue
            plant(patch)
            with pytest.raises(AssertionError):
                await test_tracing.test_captured_content_is_redacted_and_cut(patch)


@pytest.mark.anyio
async def test_a_fault_that_is_raised_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.MonkeyPatch.context() as patch:
        _faults_are_raised(patch)
        with pytest.raises((OSError, BaseExceptionGroup, AssertionError)):
            await test_tracing.test_a_broken_exporter_or_processor_hurts_no_run(
                test_tracing.BrokenProcessor("start", "end"), caplog
            )


@pytest.mark.anyio
@pytest.mark.real_time
async def test_a_span_that_tools_do_not_see_is_noticed() -> None:
    """In the loop, in threads, and in worker processes, which need a real clock."""
    with pytest.MonkeyPatch.context() as patch:
        _attempts_are_above_nothing(patch)
        with pytest.raises(AssertionError):
            await test_tracing.test_spans_of_tools_are_below_their_attempts()

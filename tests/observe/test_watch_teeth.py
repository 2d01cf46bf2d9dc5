"""The tests of views, reports and cells are worth what they catch: planted faults, each noticed by one of them."""

from __future__ import annotations

import gzip
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

import test_notebook
import test_picture
import test_report
import test_view
import test_view_waits
from dagrun.kernel.graph.node import Node
from dagrun.kernel.model.redaction.redactor import Redactor
from dagrun.kernel.model.value import decode
from dagrun.observe import html
from dagrun.observe.html import Markup
from dagrun.observe.picture import timeline_svg
from dagrun.observe.report import cell, report, sections
from dagrun.observe.view import steps, waits
from dagrun.observe.view.steps import ValueWriter
from dagrun.observe.view.waits import Wait, Waits

pytestmark = pytest.mark.rigs

# A test may also stumble over what it looks for and does not find.
NOTICED = (AssertionError, ValueError, IndexError)

Plant = Callable[[pytest.MonkeyPatch], None]


# Views ----------------------------------------------------------------------------------------------------------------


def _arguments_are_not_redacted(patch: pytest.MonkeyPatch) -> None:
    redacted = steps.shown_value

    def plainly(value: Any, redactor: Redactor, limit: int, **facts: Any) -> Any:
        class Nothing(Redactor):
            def value(self, value: Any, *, hides_names: bool = True) -> Any:
                return value

        is_output = isinstance(value, str)
        return redacted(value, redactor if is_output else Nothing(), limit, **facts)

    patch.setattr(steps, "shown_value", plainly)


def _outputs_are_not_redacted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ValueWriter, "stored", lambda self, value: {"$value": {"json": decode(value)}})


def _values_are_cut_before_they_are_redacted(patch: pytest.MonkeyPatch) -> None:
    redacted = steps.shown_value
    patch.setattr(
        steps,
        "shown_value",
        lambda value, redactor, limit, **facts: redacted(
            value[:limit] if isinstance(value, str) else value, redactor, limit, **facts
        ),
    )


def _planned_arguments_are_shown(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ValueWriter, "arguments", lambda self, node: self.plain(dict(node.plan.step.args)))


def _every_wait_is_for_a_slot(patch: pytest.MonkeyPatch) -> None:
    of = Waits.of
    patch.setattr(Waits, "of", lambda self, node: [replace(wait, reason="slot") for wait in of(self, node)])


def _people_are_not_asked_first(patch: pytest.MonkeyPatch) -> None:
    layers = Waits._layers
    patch.setattr(Waits, "_layers", lambda self, *args: layers(self, *args)[1:])


def _backoffs_have_no_reason(patch: pytest.MonkeyPatch) -> None:
    gaps = Waits._gaps
    patch.setattr(Waits, "_gaps", lambda self, *args: ((start, end, 0.0) for start, end, _ in gaps(self, *args)))


def _planner_is_blamed_for_all_that_it_was_asked_about(patch: pytest.MonkeyPatch) -> None:
    def careless(self: Waits, node: Node, due: float | None) -> Iterator[Wait]:
        for replan, _ in self._behind.get(node.id, ()):
            yield Wait("planner", replan.at.start, min(replan.at.end, self._at))

    patch.setattr(Waits, "_blocked", careless)


def _path_knows_no_for_each(patch: pytest.MonkeyPatch) -> None:
    before = waits._before

    def blind(graph: Any, history: Any, node: Node) -> Any:
        kept = graph.nodes
        graph.nodes = {id_: one for id_, one in kept.items() if not one.children or one is node} | {
            id_: _Unstarted(one) for id_, one in kept.items() if one.children and one is not node
        }
        try:
            return before(graph, history, node)
        finally:
            graph.nodes = kept

    patch.setattr(waits, "_before", blind)


class _Unstarted:
    """A node of which only its attempts are looked at."""

    has_started = False

    def __init__(self, node: Node) -> None:
        self._node = node

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)


def _path_knows_no_splice(patch: pytest.MonkeyPatch) -> None:
    before = waits._before

    def blind(graph: Any, history: Any, node: Node) -> Any:
        kept, history.triggers = history.triggers, {}
        try:
            return before(graph, history, node)
        finally:
            history.triggers = kept

    patch.setattr(waits, "_before", blind)


OF_VIEWS: dict[Plant, Callable[[], Awaitable[None]]] = {
    _arguments_are_not_redacted: test_view.test_nothing_hidden_is_in_any_view,
    _outputs_are_not_redacted: test_view.test_nothing_hidden_is_in_any_view,
    _values_are_cut_before_they_are_redacted: test_view.test_long_values_are_cut_after_they_were_redacted,
    _planned_arguments_are_shown: test_view.test_arguments_are_filled_in_again,
    _every_wait_is_for_a_slot: test_view_waits.test_each_reason_has_its_wait,
    _people_are_not_asked_first: test_view_waits.test_each_reason_has_its_wait,
    _backoffs_have_no_reason: test_view_waits.test_each_reason_has_its_wait,
    _planner_is_blamed_for_all_that_it_was_asked_about: (
        test_view_waits.test_planner_is_no_reason_where_another_step_was_waited_for
    ),
    _path_knows_no_for_each: test_view_waits.test_path_goes_over_elements_of_a_for_each,
    _path_knows_no_splice: test_view_waits.test_path_goes_over_a_splice,
}


@pytest.mark.anyio
@pytest.mark.parametrize("plant", OF_VIEWS, ids=[plant.__name__.strip("_") for plant in OF_VIEWS])
async def test_fault_of_a_view_is_noticed(plant: Plant) -> None:
    check = OF_VIEWS[plant]
    await check()  # without the fault, it passes
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        with pytest.raises(NOTICED):
            await check()


# Reports and cells ----------------------------------------------------------------------------------------------------


def _unescaped(module: Any, *, only: str) -> Plant:
    """Return a fault: elements of one name, as one file writes them, take texts as markup."""
    tag = module.tag

    def careless(name: str, /, *children: Any, **facts: Any) -> Markup:
        if name == only:
            children = tuple(Markup(part) if isinstance(part, str) else part for part in children)
        return Markup(tag(name, *children, **facts))

    def plant(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(module, "tag", careless)

    return plant


def _attributes_are_not_escaped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(html, "_attribute", lambda key, value: f' {key.rstrip("_")}="{value}"')


def _controls_pass(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(html, "plain", lambda text: text)


def _markdown_is_not_escaped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(report, "escaped", lambda value: value)


def _view_in_the_page_has_a_clock(patch: pytest.MonkeyPatch) -> None:
    clock, squeeze = count(1), gzip.compress
    patch.setattr(gzip, "compress", lambda data, level, mtime=0: squeeze(data, level, mtime=next(clock)))


def _running_bars_have_an_end(patch: pytest.MonkeyPatch) -> None:
    artist = timeline_svg._TimeArtist
    bar = artist._bar
    patch.setattr(
        artist,
        "_bar",
        lambda self, who, span, state, y, step: bar(self, who, span, state.replace("running", "ready"), y, step),
    )


def _nothing_is_folded(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(timeline_svg, "idle_stretches", lambda view: [])


def _planner_is_idle(patch: pytest.MonkeyPatch) -> None:
    idle = timeline_svg.idle_stretches
    patch.setattr(test_picture, "idle_stretches", lambda view: idle({**view, "planner": []}))


def _cells_are_as_large_as_their_runs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cell, "MAX_BYTES", 10_000_000)
    patch.setattr(cell, "SIZES", ((2_000, 400, 10_000),))


def _boxes_of_a_cell_are_links(patch: pytest.MonkeyPatch) -> None:
    draw: Any = vars(cell)["draw_graph"]
    patch.setattr(cell, "draw_graph", lambda view, **options: draw(view, **{**options, "is_linked": True}))


def _check_html() -> None:
    test_report.test_hostile_texts_are_escaped("html")


OF_REPORTS: dict[str, tuple[Plant, Callable[[], None]]] = {
    "goal is markup": (_unescaped(sections, only="span"), _check_html),
    "questions are markup": (_unescaped(sections, only="td"), _check_html),
    "reasons are markup": (_unescaped(sections, only="p"), _check_html),
    "values are markup": (_unescaped(sections, only="pre"), _check_html),
    "title is markup": (_unescaped(report, only="title"), _check_html),
    "attributes are not escaped": (_attributes_are_not_escaped, test_picture.test_html_escapes_by_type),
    "controls pass": (_controls_pass, _check_html),
    "markdown is not escaped": (_markdown_is_not_escaped, test_report.test_hostile_markdown_is_text),
    "page has a clock": (_view_in_the_page_has_a_clock, lambda: test_report.test_equal_runs_give_equal_bytes("html")),
    "running bars have an end": (
        _running_bars_have_an_end,
        test_report.test_drawing_of_an_interrupted_run_is_torn,
    ),
    "nothing is folded": (_nothing_is_folded, test_report.test_drawing_folds_what_was_idle),
    "planner is idle": (_planner_is_idle, test_picture.test_only_long_idle_stretches_are_folded),
    "cells are as large as their runs": (
        _cells_are_as_large_as_their_runs,
        test_notebook.test_cell_of_long_texts_is_small,
    ),
    "boxes of a cell are links": (_boxes_of_a_cell_are_links, test_notebook.test_cells_load_nothing_and_run_nothing),
}


@pytest.mark.parametrize("name", OF_REPORTS)
def test_fault_of_a_report_is_noticed(name: str) -> None:
    plant, check = OF_REPORTS[name]
    check()  # without the fault, it passes
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        with pytest.raises(NOTICED):
            check()

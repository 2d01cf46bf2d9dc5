"""`report` and `show`: a run or a plan as a page, a picture or a text, and in a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from dagrun.kernel.checks.checked_plan import CheckedPlan
from dagrun.kernel.model.plan import Plan
from dagrun.observe.report.report import Form, ReportStyle, form_of, make_report
from dagrun.observe.view.document import plan_view, view_of
from dagrun.observe.view.shape import RunView
from dagrun.observe.view.steps import Values


def report(
    source: Any,
    path: str | Path | None = None,
    *,
    format: Form | None = None,  # the word of the command line
    values: Values = "short",
    title: str = "",
    max_nodes: int = 60,
) -> str:
    """Write a report of a run or a plan: one HTML file that loads nothing, or another form.

    Args:
        source: A `RunResult`, a `Replayed`, a `Run` that goes on, a plan (checked or not), or the content of a
            ``run.json``.
        path: The file to write; `None` to return the report as text.
        format: ``html``, ``svg``, ``png``, ``json``, ``markdown``, ``dot`` or ``mermaid``; `None` for
            what the ending of *path* says, or else ``html``.
        values: How much of arguments and outputs is in it: ``none``, ``short`` or ``full``; see `view_of`.
        title: The heading; empty for the goal.
        max_nodes: The most boxes of the graph; above that, many steps share a box.

    Returns:
        The report; or, if it was written to a file, the path of that.

    Raises:
        ContractError: There is nothing to report on in *source*, or a PNG is asked for without a *path*.
        MissingExtra: A PNG is asked for, and the library that makes it is not installed.
        OSError: The file cannot be written.
    """
    form = format or (form_of(str(path)) if path is not None else "") or "html"
    data = make_report(_view(source, values), form, ReportStyle(title=title, max_boxes=max_nodes))
    if path is not None:
        Path(path).write_bytes(data)
        return str(path)
    if form == "png":
        from dagrun.errors import ContractError

        raise ContractError("a PNG is no text: name a file, as in result.report('run.png')")
    return data.decode("utf-8", "replace")


def _view(source: Any, values: Values) -> RunView:
    match source:
        case CheckedPlan():
            return plan_view(source.plan, source.advice)
        case Plan():
            return plan_view(source)
        case Mapping():
            return view_of(cast(Mapping[str, Any], source))
        case _:
            return view_of(source, values=values)


def notebook_bundle(source: Any) -> dict[str, str]:
    """Return the notebook display of a source of `show`: ``text/plain`` and ``text/html``, at most 200 KB of it."""
    from dagrun.observe.report.cell import bundle_of

    return bundle_of(source)


def show(source: Any) -> None:
    """Show a run or a plan in a notebook, below the cell that calls this.

    A `Run` that goes on is shown until its end, in one display that is updated at most four times a second; its last
    frame stays in the notebook. Call it where the run is: in the ``async with`` of `dagrun.start`. For functions that
    return a result, pass ``show=True``.

    Outside of a notebook, the text of *source* goes to stderr; that of a run that goes on, when the run has ended.

    Args:
        source: A `Run`, a `RunResult`, a `Replayed`, a plan (checked or not), or a `PlanDiff`.

    Raises:
        ContractError: There is nothing to show in *source*; or it is a run, and this is not the thread of its loop.
    """
    from dagrun.observe.report.live_cell import show_in_cell

    show_in_cell(source)

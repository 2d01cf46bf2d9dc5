"""A comparison in words: tables with the variants side by side, verdicts for pairs, and Markdown for a GitHub job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import isfinite
from statistics import median
from textwrap import wrap
from typing import Final

from dagrun import VariantComparison
from dagrun.evaluate.cases.reports import cell, rate_text
from dagrun.evaluate.comparison.comparison import VariantFigures
from dagrun.evaluate.comparison.differences import MOST_SHOWN, VariantDifference, difference_of, times
from dagrun.evaluate.intervals import CONFIDENCE
from dagrun.texts import shorten, visible

_MOST_MISSES: Final = 3  # of a variant


def text_of(comparison: VariantComparison, width: int = 80) -> str:
    """Return the comparison as lines for people, no wider than *width* where words can be parted."""
    lines = _wrapped(_title(comparison), width)
    if comparison.stopped:
        lines += _wrapped(f"STOPPED: {comparison.stopped}{_unpaired(comparison)}", width)
    if comparison.samples:
        lines += ["", *_table(*_figures(comparison), width)]
        if len(comparison.cases) > 1:
            lines += ["", *_table(*_by_case(comparison), width)]
        missed = [text for variant in comparison.variants for text in _misses(comparison, variant)]
        lines += ["", *(line for text in missed for line in _wrapped(text, width))] if missed else []
        lines.append("")
        for verdict in comparison.verdicts:
            lines += _wrapped(verdict, width)
        lines += ["", *_wrapped(_remark(comparison), width)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def markdown_of(comparison: VariantComparison) -> str:
    """Return the comparison as Markdown, for the summary of a job."""
    lines = [f"## {cell(_title(comparison))}", ""]
    if comparison.stopped:
        lines += [f"**Stopped:** {cell(comparison.stopped + _unpaired(comparison))}", ""]
    if comparison.samples:
        for head, rows in (_figures(comparison), _by_case(comparison)):
            lines += [_row(head), "|" + " --- |" * len(head), *map(_row, rows), ""]
        lines += [f"- {cell(verdict)}" for verdict in comparison.verdicts]
        lines += ["", cell(_remark(comparison)), ""]
    return "\n".join(lines)


# Tables --------------------------------------------------------------------------------------------------------------


def _title(comparison: VariantComparison) -> str:
    cases, clock = len(comparison.cases), "on a virtual clock" if comparison.is_virtual else "in real time"
    counts = f"{len(comparison.variants)} variants, {cases} case{'s' * (cases != 1)}"
    left_out = len(comparison.left_out)
    note = f" ({left_out} with a plan left out)" if left_out else ""
    return f"{counts}{note}, {comparison.runs} run{'s' * (comparison.runs != 1)} of each by each, {clock}"


def _unpaired(comparison: VariantComparison) -> str:
    count = len(comparison.unpaired)
    made = f"{comparison.done} runs of each variant are counted"
    return f"; {made}, and {count} of an unfinished round {'is' if count == 1 else 'are'} not" if count else f"; {made}"


def _figures(comparison: VariantComparison) -> tuple[list[str], list[list[str]]]:
    found = [comparison.figures(variant) for variant in comparison.variants]
    rows = [
        ["success", *(rate_text(one.shares["success"]) for one in found)],
        ["seconds, median", *("-" if one.seconds is None else f"{one.seconds:.3f}" for one in found)],
        ["tokens a run", *(f"{one.means['tokens']:,.0f}" for one in found)],
        ["cost a success", *map(_cost, found)],
        ["planner calls a run", *(f"{one.means['planner_calls']:.1f}" for one in found)],
        ["tool calls a run", *(f"{one.means['calls']:.1f}" for one in found)],
        ["runs with idle calls", *(rate_text(one.shares["idle"]) for one in found)],
        ["early stops", *(rate_text(one.shares["early_stops"]) for one in found)],
    ]
    return ["", *(shorten(variant, MOST_SHOWN) for variant in comparison.variants)], rows


def _cost(figures: VariantFigures) -> str:
    if figures.cost_per_success is not None:
        return f"{figures.cost_per_success:.4g}"
    return "-" if figures.has_cost else "not known"


def _by_case(comparison: VariantComparison) -> tuple[list[str], list[list[str]]]:
    """Return a row for each case: successes and median time of each variant, and the ratio of times to the first."""
    first = comparison.variants[0]
    rows = []
    for case in comparison.cases:
        row = [shorten(case, MOST_SHOWN)]
        for variant in comparison.variants:
            runs = comparison.of(variant, case)
            passed = [run.seconds for run in runs if run.passed]
            text = f"{len(passed)}/{len(runs)}" + (f" {median(passed):.3f} s" if passed else "")
            found = difference_of(comparison.pairs(first, variant, case), "seconds", CONFIDENCE)
            row.append(f"{text}, {_briefly(found)}" if variant != first and found.value is not None else text)
        rows.append(row)
    return ["by case", *(shorten(variant, MOST_SHOWN) for variant in comparison.variants)], rows


def _briefly(found: VariantDifference) -> str:
    assert found.value is not None
    low, high = found.interval
    ends = f"{times(low, '')} to {times(high, '')}" if isfinite(high) else "too few"
    return f"{times(found.value)} ({ends})"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Yield the lines of a table; where it is too wide, the variants come in several blocks, one below the other."""
    lines = [[visible(text) for text in line] for line in (head, *rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(head))]
    start = 1
    while start < len(head):
        stop = start + 1
        while stop < len(head) and widths[0] + sum(one + 2 for one in widths[start : stop + 1]) <= width:
            stop += 1
        if start > 1:
            yield ""
        for line in lines:
            cells = [line[0].ljust(widths[0]), *(line[at].ljust(widths[at]) for at in range(start, stop))]
            yield "  ".join(cells).rstrip()
        start = stop


def _misses(comparison: VariantComparison, variant: str) -> Iterator[str]:
    """Yield the most frequent misses."""
    counts = Counter(miss for run in comparison.of(variant) for miss in run.misses)
    name = shorten(variant, MOST_SHOWN)
    for miss, count in counts.most_common(_MOST_MISSES):
        yield f"{name} missed {count}x: {shorten(miss, 300)}"


def _remark(comparison: VariantComparison) -> str:
    each = f"{100 * comparison.confidence:.1f} % each"
    wider = f"; between two variants, {each}, so that those of one figure hold together"
    which = f" in the tables{wider}" if len(comparison.variants) > 2 else ""
    return (
        f"Brackets are 95 % intervals{which}. Times, tokens and costs are compared"
        " run by run, where both variants succeeded. All of it is about these cases; other goals can differ."
    )


def _wrapped(text: str, width: int) -> list[str]:
    return wrap(visible(text), max(30, width), subsequent_indent="  ", break_on_hyphens=False)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(cell, cells))} |"

"""The autonomy worksheet as text: a table if it fits, otherwise paragraphs; then the reasons."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap
from typing import Final

from dagrun.checks.worksheet import QUESTIONS, RetrySafety, StepSheet, Worksheet
from dagrun.cli.terminal.text import bounded, columns
from dagrun.errors import visible

_HEAD: Final = ("step", "risk", "safe to retry", "fallback", "failed for good")
_RETRY: Final = {
    RetrySafety.ANY: "any failure",
    RetrySafety.NOTHING_HAPPENED: "if nothing happened",
    RetrySafety.NEVER: "never by itself",
}
_MAX_STEPS: Final = 100
_MAX_NAMES: Final = 10
_MIN_WIDTH: Final = 20


def worksheet_lines(sheet: Worksheet, width: int) -> list[str]:
    """Return a worksheet in lines of at most *width* characters, and at least 20."""
    width = max(width, _MIN_WIDTH)
    risky = sum(1 for step in sheet.steps if step.risks)
    of_all = [f"{_name(name)} {_number(most)}" for name, most in sheet.ceilings.items()]
    sections = {
        "High risk": _grouped((step.step, step.risks) for step in sheet.steps),
        "A person takes over": [
            *_grouped((step.step, step.people) for step in sheet.steps),
            *(f"any step: {when}" for when in sheet.people),
        ],
        "Ceilings": [", ".join(of_all)],
        "Unstable contracts": [f"{tool}: {', '.join(facts)}" for tool, facts in sheet.contracts.items()],
        "Not known before": list(sheet.unknown),
        "Metrics": [f"{name.removesuffix('_metric')}: {text}" for name, text in sheet.metrics.items() if text],
        "Nobody has answered": [
            *_grouped((step.step, tuple(QUESTIONS[key] for key in step.unanswered)) for step in sheet.steps),
            *(f"policy ({key}): {QUESTIONS[key]}" for key in sheet.unanswered),
        ],
    }
    lines = ["", *_wrapped(f"Autonomy worksheet: {risky} of {len(sheet.steps)} steps of high risk", width, 0)]
    lines += ["", *_steps(sheet.steps, width)]
    for title, entries in sections.items():
        if entries:
            shown = bounded(entries, _MAX_STEPS, _more)
            lines += ["", title, *(line for entry in shown for line in _wrapped(entry, width, 2))]
    return lines


def _steps(steps: Sequence[StepSheet], width: int) -> list[str]:
    cells = {step.step: _cells(step) for step in steps}
    lines = columns([(name, *row) for name, row in cells.items()], head=_HEAD).splitlines()
    if max(map(len, lines)) <= width:
        return bounded(lines, _MAX_STEPS, _more)
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, row in cells.items():
        groups.setdefault(row, []).append(name)
    return [line for row, names in groups.items() for line in _paragraph(names, row, width)]


def _cells(step: StepSheet) -> tuple[str, ...]:
    return "high" if step.risks else "-", _RETRY[step.retry], step.fallback or "-", step.on_failure


def _paragraph(names: Sequence[str], row: Sequence[str], width: int) -> Iterator[str]:
    yield from _wrapped(_names(names), width, 0)
    for name, cell in zip(_HEAD[1:], row, strict=True):
        yield from _wrapped(f"{name}: {cell}", width, 2)


def _grouped(facts: Iterable[tuple[str, tuple[str, ...]]]) -> list[str]:
    """Return a line for each set of facts: the names that share it, then the facts. Leave out names without facts."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, shared in facts:
        if shared:
            groups.setdefault(shared, []).append(name)
    return [f"{_names(names)}: {'; '.join(shared)}" for shared, names in groups.items()]


def _names(names: Sequence[str]) -> str:
    more = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")


def _name(ceiling: str) -> str:
    """Return the name of a ceiling in words: ``max_calls_by_tool.pay`` is "calls of pay"."""
    return ceiling.replace("max_calls_by_tool.", "calls of ").removeprefix("max_").replace("_", " ", 1)


def _number(most: float | None) -> str:
    if most is None:
        return "none"
    return str(most) if isinstance(most, int) else f"{most:.15g}"


def _more(count: int) -> str:
    return f"… and {count} more (--json has them all)"


def _wrapped(text: str, width: int, indent: int) -> list[str]:
    indents = " " * indent, " " * (indent + 2)
    return wrap(visible(text), width, initial_indent=indents[0], subsequent_indent=indents[1], break_on_hyphens=False)

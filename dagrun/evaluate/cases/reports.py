"""An evaluation as text for terminals, as JUnit XML for CI servers, and as Markdown for the summary of a GitHub job."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap
from typing import Final
from xml.etree import ElementTree

from dagrun.evaluate.cases.evaluation import CaseResult, Evaluation, FileResult
from dagrun.evaluate.cases.figures import PassRate
from dagrun.texts import visible

_MAX_MISSES: Final = 20  # of a case
_WIDTH: Final = 80  # characters of a line of figures


def text_of(evaluation: Evaluation) -> str:
    """Return the evaluation as lines: each case, its misses, the figures, and the results of the gates."""
    return "\n".join(line for file in evaluation.files for line in _file_lines(file))


def _file_lines(file: FileResult) -> Iterator[str]:
    yield file.name
    width = max((len(case.ready.case.id) for case in file.cases), default=0)
    for case in file.cases:
        yield f"  {case.ready.case.id:{width}}  {_summary(case)}"
        yield from (f"      {visible(miss)}" for miss in _first(case.misses))
    yield ""
    yield from wrap(", ".join(_figures(file)), _WIDTH, initial_indent="  ", subsequent_indent="  ")
    yield from (f"  {gate}" for gate in file.gates)
    yield from (f"  WORSE: {line}" for line in file.regressions)
    yield f"  {'passed' if file.holds else 'FAILED'}"


def _first(misses: list[str]) -> Iterator[str]:
    yield from misses[:_MAX_MISSES]
    if len(misses) > _MAX_MISSES:
        yield f"… and {len(misses) - _MAX_MISSES} more (--json has them all)"


def _summary(case: CaseResult) -> str:
    runs = len(case.trials)
    seconds = sorted(trial.seconds for trial in case.trials)[(runs - 1) // 2]
    calls = sorted(len(trial.world.calls) for trial in case.trials)[(runs - 1) // 2]
    word = "passed" if case.passed == runs else "FAILED"
    clock = "" if case.ready.is_virtual else " in real time"
    faults = f", and {case.cells} faults" if case.cells else ""
    return f"{case.passed}/{runs} {word}  {seconds:7.3f} s{clock}  {calls} call{'s' * (calls != 1)}{faults}"


def _figures(file: FileResult) -> Iterator[str]:
    figures = file.figures
    for name, rate in figures.rates.items():
        if rate.of:
            yield f"{name.replace('_', ' ')} {rate_text(rate)}"
    yield from (
        f"{name.replace('_', ' ')} {value:.4g}"
        for name, value in figures.amounts.items()
        if value is not None and value > 0
    )


def rate_text(rate: PassRate) -> str:
    """Return a rate with its 95 % interval, as in ``4/5 (38-96 %)``."""
    low, high = rate.interval
    return f"{rate.successes}/{rate.of} ({100 * low:.0f}-{100 * high:.0f} %)"


def junit_of(evaluation: Evaluation) -> str:
    """Return the evaluation as JUnit XML: a suite for each file, a test for each trial and each line of a gate."""
    root = ElementTree.Element("testsuites", name="dagrun eval")
    for file in evaluation.files:
        suite = ElementTree.SubElement(root, "testsuite", name=file.name)
        for case in file.cases:
            _junit_case(suite, file, case)
        for gate in file.gates:
            test = _junit_test(suite, file.name, f"gate {gate.name}", 0.0)
            if not gate.holds:
                _junit_failure(test, str(gate), str(gate))
        if file.regressions:
            text = "\n".join(file.regressions)
            _junit_failure(_junit_test(suite, file.name, "baseline", 0.0), "worse than the baseline", text)
        suite.set("tests", str(len(suite)))
        suite.set("failures", str(sum(test.find("failure") is not None for test in suite)))
    root.set("tests", str(sum(int(suite.get("tests", "0")) for suite in root)))
    root.set("failures", str(sum(int(suite.get("failures", "0")) for suite in root)))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _junit_case(suite: ElementTree.Element, file: FileResult, case: CaseResult) -> None:
    name = case.ready.case.id
    for trial in case.trials:
        shown = f"{name}[{trial.seed}]" if len(case.trials) > 1 else name
        test = _junit_test(suite, file.name, shown, trial.seconds)
        if trial.misses:
            _junit_failure(test, trial.misses[0], "\n".join(trial.misses))


def _junit_test(suite: ElementTree.Element, file: str, name: str, seconds: float) -> ElementTree.Element:
    return ElementTree.SubElement(suite, "testcase", classname=file, name=name, time=f"{seconds:.3f}")


def _junit_failure(test: ElementTree.Element, message: str, text: str) -> None:
    """Add a failure. Characters that XML does not allow would make the whole file unreadable."""
    ElementTree.SubElement(test, "failure", message=visible(message)).text = "\n".join(map(visible, text.splitlines()))


def markdown_of(evaluation: Evaluation) -> str:
    """Return the evaluation as Markdown, for the summary of a job."""
    lines = [f"## Golden tasks: {'passed' if evaluation.holds else 'failed'}", ""]
    for file in evaluation.files:
        lines += [f"### {cell(file.name)}", "", "| case | passed | seconds | missed |", "| --- | --- | --- | --- |"]
        lines += [_row(case) for case in file.cases]
        lines += ["", f"{cell(', '.join(_figures(file)))}", ""]
        lines += [f"- {cell(str(gate))}" for gate in file.gates]
        lines += [f"- worse: {cell(line)}" for line in file.regressions] + [""]
    return "\n".join(lines)


def _row(case: CaseResult) -> str:
    seconds = sorted(trial.seconds for trial in case.trials)[(len(case.trials) - 1) // 2]
    missed = "<br>".join(cell(miss) for miss in _first(case.misses))
    return f"| {cell(case.ready.case.id)} | {case.passed}/{len(case.trials)} | {seconds:.3f} | {missed} |"


def cell(text: str) -> str:
    """Return a text escaped for the cell of a table, whatever a run has put into it."""
    shown = visible(text).replace("&", "&amp;").replace("<", "&lt;").replace("|", "&#124;")
    return shown.replace("`", "&#96;").replace("[", "&#91;").replace("!", "&#33;").replace("*", "&#42;")

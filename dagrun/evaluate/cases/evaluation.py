"""Carry out files of cases, and collect how each trial ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from dagrun.errors import CasesRefused
from dagrun.evaluate.cases.case_file import CaseFile, find_files
from dagrun.evaluate.cases.expectations import misses_of, objection_to
from dagrun.evaluate.cases.fault_matrix import fault_matrix_failures
from dagrun.evaluate.cases.figures import Figures, GateResult, figures_of, judge_gate, new_failing_cases, regressions
from dagrun.evaluate.cases.load_cases import CaseHost, ReadyCase, load_cases
from dagrun.evaluate.cases.stand_in_world import Bend
from dagrun.evaluate.cases.trial import CaseRun, carry_out
from dagrun.testing import run_virtual

SCHEMA_VERSION = 1


@dataclass(slots=True)
class CaseResult:
    """How the trials of a case ended.

    Attributes:
        ready: The case.
        trials: Its trials, in the order of their seeds.
        cells: How many cells its fault matrix has. What does not hold in one counts as a miss of the first trial.
    """

    ready: ReadyCase
    trials: list[CaseRun] = field(default_factory=list)
    cells: int = 0

    @property
    def passed(self) -> int:
        """How many trials ended as expected."""
        return sum(trial.passed for trial in self.trials)

    @property
    def misses(self) -> list[str]:
        """The unmet expectations, one line each."""
        several = len(self.trials) > 1
        return [f"seed {trial.seed}: {miss}" if several else miss for trial in self.trials for miss in trial.misses]

    def as_dict(self) -> dict[str, Any]:
        """Return the result as plain JSON."""
        return {
            "id": self.ready.case.id,
            "clock": "virtual" if self.ready.is_virtual else "real",
            "passed": self.passed,
            "runs": len(self.trials),
            "faults": self.cells,
            "seconds": [trial.seconds for trial in self.trials],
            "calls": [len(trial.world.calls) for trial in self.trials],
            "statuses": [str(trial.status) for trial in self.trials],
            "misses": self.misses,
        }


@dataclass(slots=True)
class FileResult:
    """How the cases of a file ended.

    Attributes:
        name: The name of the file, as it is called in the baseline.
        file: What it says.
        cases: The results of its cases.
        gates: What became of its gate; filled in by `judge`.
        regressions: Where it is worse than the baseline, a line each.
    """

    name: str
    file: CaseFile
    cases: list[CaseResult] = field(default_factory=list)
    gates: list[GateResult] = field(default_factory=list)
    regressions: list[str] = field(default_factory=list)

    @property
    def figures(self) -> Figures:
        """The figures of all its trials."""
        return figures_of([(case.ready.case, trial) for case in self.cases for trial in case.trials])

    def judge(self, baseline: dict[str, Any] | None) -> None:
        """Hold the results against the gate of the file, and against a baseline.

        Args:
            baseline: What `as_dict` of a `FileResult` gave earlier; `None` if there is none.
        """
        figures = self.figures
        gate = dict(self.file.gate)
        if not gate and baseline is None:
            gate = {"task_success": 1.0}
        self.gates = [judge_gate(name, bound, figures, baseline) for name, bound in gate.items()]
        if baseline is not None:
            cases = [case.as_dict() for case in self.cases]
            self.regressions = regressions(figures, cases, baseline)
            if not gate:
                self.regressions += new_failing_cases(cases, baseline)

    @property
    def holds(self) -> bool:
        """Whether the file has passed: its gate, and the comparison with the baseline."""
        return all(gate.holds for gate in self.gates) and not self.regressions

    def as_dict(self) -> dict[str, Any]:
        """Return the result as plain JSON."""
        return {
            "figures": self.figures.as_dict(),
            "gates": [gate.as_dict() for gate in self.gates],
            "regressions": self.regressions,
            "cases": {case.ready.case.id: case.as_dict() for case in self.cases},
        }


@dataclass(slots=True)
class Evaluation:
    """How files of cases ended.

    Attributes:
        files: The results by file.
    """

    files: list[FileResult]

    @property
    def holds(self) -> bool:
        """Whether all files have passed."""
        return all(file.holds for file in self.files)

    def as_dict(self) -> dict[str, Any]:
        """Return the evaluation as plain JSON; a later one can be compared with it."""
        return {
            "schema_version": SCHEMA_VERSION,
            "status": "ok" if self.holds else "failed",
            "files": {file.name: file.as_dict() for file in self.files},
        }


def evaluate(
    paths: Sequence[str | Path],
    *,
    host: CaseHost | None = None,
    only: Sequence[str] = (),
    baseline: dict[str, Any] | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Evaluation:
    """Carry out all cases of files.

    Args:
        paths: The files, or folders with ``.yaml`` files. All are read before anything runs.
        host: What the program around lends.
        only: The ids of the cases that are wanted; empty for all.
        baseline: What `Evaluation.as_dict` gave earlier, to compare with.
        tell: Called with a line about progress, for a display.

    Raises:
        CasesRefused: A file, or something that it names, cannot be used; nothing was run.
    """
    files = []
    for path in find_files([Path(path) for path in paths]):
        file, ready = load_cases(path, host or CaseHost(), only)
        files.append((FileResult(str(path), file), ready))
    if only and (missing := set(only) - {case.case.id for _, ready in files for case in ready}):
        raise CasesRefused([f"there is no case {name}" for name in sorted(missing)])
    before = _files_of(baseline)
    if baseline is not None and not any(result.name in before for result, _ in files):
        raise CasesRefused(["the baseline has none of these files; name them as when it was recorded"])
    for result, ready in files:
        for case in ready:
            tell(case.id)
            result.cases.append(run_case(case))
        result.judge(before.get(result.name))
    return Evaluation([result for result, _ in files])


def _files_of(baseline: dict[str, Any] | None) -> dict[str, Any]:
    if baseline is None:
        return {}
    if baseline.get("schema_version") != SCHEMA_VERSION or not isinstance(baseline.get("files"), dict):
        raise CasesRefused(["the baseline was not written by this version of dagrun eval --record"])
    files: dict[str, Any] = baseline["files"]
    return files


async def _bent(ready: ReadyCase, bend: Bend) -> CaseRun:
    return await carry_out(ready.means, replace(ready.world(), bend=bend), ready.case.seed)


def run_case(ready: ReadyCase) -> CaseResult:
    """Carry out one case: a trial for each seed."""

    async def main() -> CaseResult:
        result = CaseResult(ready)
        for number in range(ready.case.runs):
            trial = await carry_out(ready.means, ready.world(), ready.case.seed + number)
            objection = await objection_to(trial, ready.judge, ready.case.expect.critic)
            trial.misses = misses_of(ready.case.expect, trial, objection)
            result.trials.append(trial)
        if ready.case.faults is not None:
            good = result.trials[0]
            result.cells, misses = await fault_matrix_failures(good, partial(_bent, ready))
            good.misses += misses
        return result

    return run_virtual(main) if ready.is_virtual else anyio.run(main)


# For pytest ----------------------------------------------------------------------------------------------------------


class CheckedCase:
    """A case that a test carries out; see `dagrun.testing.GoldenTask`.

    Args:
        ready: The case.
    """

    def __init__(self, ready: ReadyCase) -> None:
        self._ready = ready
        self.id = ready.id

    def __repr__(self) -> str:
        return f"<GoldenTask {self.id}>"

    def check(self) -> None:
        """Carry the case out, with all its runs.

        Raises:
            AssertionError: Something was not as expected; the text has a line for each miss.
        """
        misses = run_case(self._ready).misses
        if misses:
            raise AssertionError("\n".join([f"{self.id}:", *(f"  {miss}" for miss in misses)]))


def pytest_cases(paths: Sequence[str | Path]) -> list[Any]:
    """See `dagrun.testing.cases`."""
    import pytest

    found = []
    for path in find_files([Path(path) for path in paths]):
        _, ready = load_cases(path, CaseHost())
        found += [pytest.param(CheckedCase(case), id=case.id) for case in ready]
    return found

"""The tests of metrics are worth what they catch: planted faults, each noticed by one of the runs computed by hand."""

from __future__ import annotations

import inspect
import logging
import types
from collections.abc import Iterator

import pytest

import test_metrics
from dagrun import DagrunError
from dagrun.evaluate.metrics import definitions, metrics
from dagrun.observe import run_summary
from dagrun.testing import run_virtual

pytestmark = pytest.mark.rigs

NOTICED = (AssertionError, DagrunError, TypeError, KeyError)

RECORD_MUTANTS = {
    "a retry is a failure for ever": (
        "calls.judge(fault, 1)\n            calls.seconds",
        'calls.judge(fault, int(event["attempt"] == 1))\n            calls.seconds',
    ),
    "a stopped call is a failure": (
        "        if state in _STOPPED:\n            return\n        fault = ",
        "        fault = ",
    ),
    "trouble is forgotten": (
        "        self.run.had_trouble = True\n        if failure is None:",
        "        if failure is None:",
    ),
    "the verdict of critics does not count": (
        "                calls.judge(before, -1)\n",
        "                continue\n",
    ),
    "one critic can disagree with itself": ("if len(verdicts) > 1:", "if verdicts:"),
    "an unpriced call is free": ('calls.use(outcome["tokens"], cost)', 'calls.use(outcome["tokens"], cost or 0.0)'),
    "a lost model call is free": ("if self._models or (self._uses_models and self._planner_calls):", "if not run:"),
    "a lost call of a tool is free": ("            if tool in self._billed:\n", "            if not tool:\n"),
    "planning is counted twice": (
        "self._planned.append((",
        "self._planned.append((0.0, event['at'])); self._planned.append((",
    ),
    "a refused patch is none": ("self.run.refused += 1", "pass"),
    "dropped steps stay": ("            self.steps.pop(old, None)", "            pass"),
    "a yes changes the run": ('run.changed += answer["choice"] != "approve" or', "run.changed += True or"),
    "waits stand still while the run does": ("self._offset = event[", "self._offset = self._offset or event["),
    "a suspended run has ended": ('shorten(event["reason"]), True\n', 'shorten(event["reason"]), False\n'),
    "nobody changes anything unasked": ('        self.run.unasked += event["origin"] == "host"\n', ""),
    "each hedge wins": ('calls.hedges_won += event["has_won"]', "calls.hedges_won += True"),
}
PATH_MUTANTS = {"dependencies are not followed": ("for need in needs[id_])", "for need in ())")}
TABLE_MUTANTS = {
    "open runs have failed": ("return [run for run in runs if run.has_ended]", "return list(runs)"),
    "failures cost nothing": (
        "    known = sum(use.known_cost for use in uses) / by",
        "    known = max(use.known_cost for use in uses) / by",
    ),
    "the known part is all": (
        "return Figure(known, of=len(uses)) if is_known else",
        "return Figure(known, of=len(uses)) if True else",
    ),
    "recovery counts runs without trouble": ("if run.had_trouble),", "if True),"),
    "the share of a planner is its time": ("min(1.0, seconds / run.makespan)", "seconds"),
    "overhead is the makespan": ("run.makespan - run.critical_path", "run.makespan"),
    "intervals are points": (
        "    return Figure(good / all_, low, high, all_)",
        "    return Figure(good / all_, 0.5, 0.5, all_)",
    ),
    "the median is the mean": ("Figure(quantile(found, q), _bound(low)", "Figure(sum(found) / len(found), _bound(low)"),
}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def plant(patch: pytest.MonkeyPatch, module: types.ModuleType, old: str, new: str) -> None:
    """Change a module as if its source were another one."""
    source = inspect.getsource(module)
    assert source.count(old) == 1, f"the source has not what is to be changed: {old}"
    broken = types.ModuleType(module.__name__)
    broken.__dict__.update(__name__=module.__name__, __file__=module.__file__)
    patch.setitem(__import__("sys").modules, module.__name__, broken)  # dataclasses look their module up
    exec(compile(source.replace(old, new), str(module.__file__), "exec"), broken.__dict__)
    patch.setitem(__import__("sys").modules, module.__name__, module)
    for where in (module, metrics):
        for name in ("RecordCount", "_critical_path", "RUN_METRICS", "CALL_METRICS"):
            if hasattr(where, name) and hasattr(broken, name):
                patch.setattr(where, name, getattr(broken, name))


def is_noticed() -> bool:
    """Whether a run that was computed by hand has other figures now."""
    for name, function in vars(test_metrics).items():
        if not name.startswith("test_") or inspect.signature(function).parameters:
            continue
        try:
            run_virtual(function) if inspect.iscoroutinefunction(function) else function()
        except NOTICED:
            return True
    return False


@pytest.mark.parametrize("name", RECORD_MUTANTS)
def test_a_fault_in_the_count_is_noticed(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    plant(monkeypatch, run_summary, *RECORD_MUTANTS[name])
    assert is_noticed()


@pytest.mark.parametrize("name", PATH_MUTANTS)
def test_a_fault_in_the_critical_path_is_noticed(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    plant(monkeypatch, metrics, *PATH_MUTANTS[name])
    assert is_noticed()


@pytest.mark.parametrize("name", TABLE_MUTANTS)
def test_a_fault_in_a_definition_is_noticed(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    plant(monkeypatch, definitions, *TABLE_MUTANTS[name])
    assert is_noticed()


def test_without_a_fault_nothing_is_noticed() -> None:
    """Else the proofs above prove nothing."""
    assert not is_noticed()

"""Gates and baselines: what lets a file of cases through, and what is worse than before."""

import json
from pathlib import Path
from typing import Any

import pytest

from dagrun.errors import CasesRefused
from dagrun.evaluate.cases.evaluation import Evaluation, evaluate

pytestmark = pytest.mark.real_time  # a virtual clock of its own


def play(folder: Path, passes: int, of: int, *, baseline: Any = None, clock: str = "real", **file: Any) -> Evaluation:
    """Carry out so many cases, of which some pass."""
    ship = {"id": "ship", "tool": "ship", "args": {"order": 17}}
    cases = [
        {"id": f"c{n}", "clock": clock, "plan": {"steps": [ship]}, "expect": {"output": "gone" if n < passes else "?"}}
        for n in range(of)
    ]
    path = folder / "case.yaml"
    shared = {"tools": "golden_tools", "world": {"ship": {"return": "gone"}}}
    path.write_text(json.dumps({**shared, "cases": cases, **file}), encoding="utf-8")
    return evaluate([path], baseline=baseline)


def test_without_a_gate_every_trial_must_pass(tmp_path: Path) -> None:
    assert play(tmp_path, 5, 5).holds
    assert not play(tmp_path, 4, 5).holds


def test_a_gate_says_what_is_enough(tmp_path: Path) -> None:
    assert play(tmp_path, 4, 5, gate={"task_success": 0.8}).holds
    assert not play(tmp_path, 4, 5, gate={"task_success": 0.81}).holds
    assert play(tmp_path, 5, 5, gate={"mean_calls": 1}).holds
    assert not play(tmp_path, 5, 5, gate={"mean_calls": 0.9}).holds
    assert play(tmp_path, 5, 5, gate={"recovery_success": 1}).holds  # nothing has gone wrong on the way


def test_fewer_successes_alone_can_be_chance(tmp_path: Path) -> None:
    """The intervals of 4/5 and 3/5 are nearly the same; those of 10/10 and 1/10 are apart."""
    before = play(tmp_path, 4, 5).as_dict()
    assert play(tmp_path, 3, 5, baseline=before).holds

    before = play(tmp_path, 10, 10).as_dict()
    worse = play(tmp_path, 1, 10, baseline=before)
    assert not worse.holds
    assert worse.files[0].regressions == ["task_success was 10/10 (72% to 100%), and is 1/10 (2% to 40%)"]


def test_on_a_virtual_clock_nothing_is_chance(tmp_path: Path) -> None:
    before = play(tmp_path, 5, 5, clock="virtual").as_dict()
    worse = play(tmp_path, 4, 5, clock="virtual", baseline=before)

    assert worse.files[0].regressions == ["case c4 passed in the baseline, and does not now"]
    assert not worse.holds


@pytest.mark.parametrize("clock", ["real", "virtual"])
def test_a_new_case_must_pass_unless_a_gate_says_what_is_enough(tmp_path: Path, clock: str) -> None:
    before = play(tmp_path, 4, 4, clock=clock).as_dict()
    worse = play(tmp_path, 4, 5, clock=clock, baseline=before)

    assert worse.files[0].regressions == ["case c4 is new, and does not pass"]
    assert not worse.holds
    assert play(tmp_path, 5, 5, clock=clock, baseline=before).holds
    assert play(tmp_path, 4, 5, clock=clock, baseline=before, gate={"task_success": 0.8}).holds


def test_a_bound_can_be_a_change_against_the_baseline(tmp_path: Path) -> None:
    before = play(tmp_path, 5, 5).as_dict()
    before["files"][str(tmp_path / "case.yaml")]["figures"]["amounts"]["mean_calls"] = 0.95
    assert play(tmp_path, 5, 5, gate={"mean_calls": "+10%"}, baseline=before).holds
    worse = play(tmp_path, 5, 5, gate={"mean_calls": "+5%"}, baseline=before)
    assert str(worse.files[0].gates[0]) == "gate mean_calls <= 0.9975: FAILED, it is 1"

    alone = play(tmp_path, 5, 5, gate={"mean_calls": "+5%"})
    assert alone.holds
    assert "there is no baseline" in str(alone.files[0].gates[0])


def test_a_cost_without_any_success_fails_its_gate(tmp_path: Path) -> None:
    """Nothing was bought, so it is no reason to pass that nobody knows what it cost."""
    evaluation = play(tmp_path, 0, 2, gate={"cost_per_success": 1.0})
    assert not evaluation.holds
    assert "FAILED, no trial has passed" in str(evaluation.files[0].gates[0])


def test_a_baseline_of_other_files_is_refused(tmp_path: Path) -> None:
    """Else nothing would be compared, and all would seem well."""
    before = play(tmp_path, 2, 2).as_dict()
    before["files"] = {"elsewhere/case.yaml": before["files"].popitem()[1]}
    with pytest.raises(CasesRefused, match="none of these files"):
        play(tmp_path, 1, 2, baseline=before)

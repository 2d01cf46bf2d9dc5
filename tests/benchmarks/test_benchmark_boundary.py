"""The benchmark of the trust boundary: it measures what it says, and its must can be missed."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest

import boundary
import dagrun
from boundary import Row
from dagrun import Flow, Policy


def test_the_plan_is_full_of_data_of_others_and_asks_nobody() -> None:
    """Else it would measure an empty boundary, or questions."""
    checked = dagrun.check(boundary.plan_of(100), boundary.TOOLS, policy=Policy(flow=Flow()))

    rules = checked.flow.rules
    tainted = [id_ for id_, sources in checked.flow.whole.items() if sources & rules.untrusted]
    assert len(tainted) > 50
    assert not any(step.asks for step in checked.steps.values())
    assert {step.tool.name for step in checked.steps.values()} == {"read_file", "extract", "send"}


def test_a_must_can_be_missed() -> None:
    assert Row(100, 1.04, 1.0).misses()
    assert not Row(100, 1.02, 1.0).misses()
    assert Row(10, 1.04, 1.0).misses()


def test_rows_are_written_and_the_gate_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def dear(sizes: object, count: int) -> list[Row]:
        await anyio.lowlevel.checkpoint()
        return [Row(100, 1.5, 1.0)]

    monkeypatch.setattr(boundary, "measure", dear)

    assert boundary.main(["--gate", "--out", str(tmp_path)]) == 1
    assert boundary.main(["--out", str(tmp_path)]) == 0
    assert json.loads((tmp_path / "boundary.json").read_text())["rows"] == [{"steps": 100, "check": 1.5, "run": 1.0}]


@pytest.mark.anyio
@pytest.mark.rigs
async def test_it_measures_checks_and_runs() -> None:
    (row,) = await boundary.measure((10,), 1)

    assert row.steps == 10
    assert row.check > 0
    assert row.run > 0

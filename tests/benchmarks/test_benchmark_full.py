"""The benchmark of big plans, run tiny: what it says, not how fast."""

from __future__ import annotations

import json
import math
from pathlib import Path

import anyio
import pytest

import full
from full import Held, Row
from stopped import Stopped, measure_stopped
from ticker import Ticker


def row(shape: str = "chain", steps: int = 10, **changed: float) -> Row:
    facts = {"build": 1.0, "open": 2.0, "run": 8.0, "bytes": 900.0, "lag_open": 3.0, "lag_run": 4.0}
    return Row(shape, steps, **facts | changed)


@pytest.mark.parametrize("shape", full.GRAPHS)
def test_every_figure_of_a_run_is_there(shape: str) -> None:
    """The run itself is checked: a step that was left out would make the rest look cheap."""
    found = full.measure(shape, 50)

    assert (found.shape, found.steps) == (shape, 50)
    assert min(found.build, found.open, found.run, found.lag) > 0
    assert found.bytes >= 0


def test_the_exponent_is_that_of_open_and_run_together() -> None:
    """Making the objects of the plan is the host's work."""
    rows = [row(steps=10), row(steps=1_000, build=5.0, open=20.0, run=80.0), row("fan", steps=10)]

    (growth,) = full.growth_of(rows)

    assert (growth.shape, growth.sizes) == ("chain", (10, 1_000))
    assert growth.exponent == pytest.approx(1.5)


def test_both_lags_count() -> None:
    """A loop that stands still while a plan is opened stands still."""
    assert row(lag_open=60.0).lag == row(lag_run=60.0).lag == 60.0
    assert full.line_of(row(lag_open=60.0)).endswith("MISSED")
    assert full.line_of(row()).endswith("ok")


def test_a_larger_plan_may_keep_the_loop_longer() -> None:
    """At 10,000 steps there is a must; beyond, the lag is only shown."""
    assert full.line_of(row(steps=10_000, lag_open=20.0)).endswith("ok")
    assert full.line_of(row(steps=10_000, lag_open=20.1)).endswith("MISSED")
    assert full.line_of(row(steps=100_000, lag_open=90.0)).endswith("ok")


@pytest.mark.parametrize("outputs", ["kept", "released"])
def test_a_chain_that_hands_on_is_measured(outputs: str) -> None:
    """Its answer is checked: it went through every step."""
    found = full.measure_outputs(outputs, 20)

    assert (found.outputs, found.steps) == (outputs, 20)
    assert found.cpu > 0
    assert found.bytes >= 0


def test_what_is_saved_is_what_both_differ_by() -> None:
    """The plan and the states take as much in both."""
    held = [Held("kept", 10, 30.0, 4_100.0), Held("released", 10, 33.0, 3_000.0)]

    assert full.saved_by(held) == 1_100
    assert full.held_lines(held)[-1] == "saved of 1,000 bytes: 1,100  ok"
    assert full.held_lines([held[1], Held("kept", 10, 30.0, 3_400.0)])[-1].endswith("MISSED")


@pytest.mark.parametrize("shape", full.GRAPHS)
@pytest.mark.parametrize("how", full.ENDS)
def test_a_run_that_is_ended_early_is_measured(shape: str, how: str) -> None:
    """It is looked at whether it ended so, with all of its steps."""
    found = measure_stopped(shape, how, 40)

    assert (found.shape, found.how, found.steps) == (shape, how, 40)
    assert min(found.cpu, found.lag) > 0
    assert full.stopped_lines([Stopped(shape, how, 40, 1.0, 7.0)])[-1].endswith("ok")
    assert full.stopped_lines([Stopped(shape, how, 40, 1.0, 51.0)])[-1].endswith("MISSED")


def test_of_several_rounds_the_mean_counts_of_times_and_the_median_of_the_rest() -> None:
    """A long run has a share of whatever slows the machine down: of short ones, all together have it."""
    found = full.middle_of([row(open=9.0, lag_run=1.0), row(open=2.0, lag_run=2.0), row(open=4.0, lag_run=30.0)])

    assert (found.open, found.lag_run, found.steps) == (5.0, 2.0, 10)


def test_rounds_of_each_size_are_spread_over_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the machine could be another one by the time that the biggest has its turn."""
    done: list[int] = []

    def measure(shape: str, steps: int) -> Row:
        done.append(steps)
        return row(shape, steps)

    monkeypatch.setattr(full, "measure_apart", measure)
    monkeypatch.setattr(full, "ROUNDS", {10: 6, 20: 3, 30: 2})

    full.rounds("chain", (10, 20, 30), is_quick=False)

    assert done == [10, 20, 30, 10, 10, 20, 10, 30, 10, 20, 10]


@pytest.mark.anyio
@pytest.mark.real_time
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_ticker_notes_for_how_long_it_got_no_turn() -> None:
    """Its own sleep is no lag, and what the process computes meanwhile is."""
    ticker = Ticker()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ticker.tick)
        idle = math.inf
        for _ in range(5):  # others may have had the machine meanwhile, but hardly each time
            await anyio.sleep(0.01)
            idle = min(idle, ticker.take())
        sum(range(3_000_000))
        await anyio.sleep(0.01)
        busy = ticker.take()
        tasks.cancel_scope.cancel()

    assert busy > 2 * idle


@pytest.mark.rigs
def test_a_whole_run_prints_and_keeps_its_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row comes from a process of its own."""
    monkeypatch.setattr(full, "SIZES", (20, 200))
    monkeypatch.setattr(full, "QUICKLY_HANDED_ON", 20)

    full.main(["--quick", "--out", str(tmp_path)])

    kept = json.loads((tmp_path / "full.json").read_text())
    assert [(one["shape"], one["steps"]) for one in kept["rows"]] == [
        (shape, steps) for shape in full.GRAPHS for steps in (20, 200)
    ]
    assert [one["shape"] for one in kept["growth"]] == list(full.GRAPHS)
    assert [one["outputs"] for one in kept["outputs"]] == ["kept", "released"]
    assert "musts missed" in capsys.readouterr().out

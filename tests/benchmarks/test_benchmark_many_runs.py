"""The benchmark of many runs at once measures what it says. How long anything takes, no test claims."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import anyio
import pytest

import baseline
import dagrun
import many_runs
from many_runs import Round, Row, all_at_once, bare_work, row_of, ways_of
from shapes import SHAPES, successors


@pytest.mark.anyio
@pytest.mark.parametrize("shape", many_runs.GRAPHS)
async def test_every_way_runs_every_step_of_every_run(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does less is fast."""
    steps: Counter[str] = Counter()
    way = ""

    def count() -> None:
        steps[way] += 1
        note()

    note = many_runs._note
    monkeypatch.setattr(many_runs, "_note", count)
    async with dagrun.Engine() as engine:
        ways = ways_of(shape, engine)
        for name, run in ways.items():
            way = name
            found = await all_at_once(run, 7)
            assert len(found.starts) == len(found.totals) == 7

    assert steps == dict.fromkeys(ways, 7 * many_runs.STEPS)
    assert set(ways) == {"one engine", "own engines", "bare groups"} | ({"plain"} if shape == "chain" else set())


@pytest.mark.anyio
async def test_runs_are_carried_out_at_once() -> None:
    """Not one after another: the last one has begun before the first one has ended."""
    begun = 0
    most = 0

    async def run() -> None:
        nonlocal begun, most
        many_runs._note()
        begun += 1
        most = max(most, begun)
        await anyio.sleep(1)
        begun -= 1

    found = await all_at_once(run, 20)

    assert most == 20
    assert len(found.totals) == 20


@pytest.mark.anyio
async def test_a_start_is_that_of_the_first_step_of_the_same_run() -> None:
    """Also where the steps run in tasks of their own: each run has its own note."""
    graph = SHAPES["chain"](3)

    async def slow(id_: str, values: Mapping[str, object]) -> None:
        await bare_work(id_, values)
        await anyio.sleep(1)

    found = await all_at_once(partial(baseline.run, graph, successors(graph), slow), 5)

    assert all(0 <= start <= total for start, total in zip(found.starts, found.totals, strict=True))
    assert len(set(found.starts)) == 5


def test_a_row_is_the_median_of_its_rounds() -> None:
    """And the ratio is of rounds side by side, so that a machine that becomes slower hits both alike."""
    rounds = [Round([0.001] * 99 + [0.1], [0.01] * 100, cpu) for cpu in (2e-6, 4e-6, 60e-6)]
    bare = [Round([0.0], [0.0], cpu) for cpu in (1e-6, 2e-6, 1e-6)]

    row = row_of("chain", "one engine", rounds, bare)

    assert (row.runs, row.rounds) == (100, 3)
    assert (row.start_p50, row.total_p50, row.cpu, row.ratio) == pytest.approx((1, 10, 4, 2))
    assert row.start_p99 > 50


def test_results_are_kept_with_their_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = Row("chain", "plain", 10, 1, 1.0, 2.0, 3.0, 4.0, 5.0, 0.5)
    monkeypatch.setattr(many_runs, "measure", lambda shape, runs, rounds: [row])

    assert many_runs.main(["--out", str(tmp_path)]) == 0

    kept = json.loads((tmp_path / "many_runs.json").read_text())
    assert [one["ratio"] for one in kept["many_runs"]] == [0.5, 0.5]
    assert kept["python"].startswith("CPython")

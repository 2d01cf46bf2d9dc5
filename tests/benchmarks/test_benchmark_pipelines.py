"""The benchmarks of pipelines and of providers' limits: they measure what they say, and their musts can be missed."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path

import pytest
from matplotlib.figure import Figure

import limits
import pipelines
from limits import Provider
from pipelines import Row
from plot_pipelines import COLOURS


@pytest.fixture(scope="module", autouse=True)
def fonts() -> None:
    """Let matplotlib open its fonts, which it keeps open, before anybody counts open files."""
    figure = Figure()
    figure.suptitle("10", fontsize=10)
    figure.subplots().set_xscale("log", base=2)
    figure.savefig(BytesIO(), format="png")
    figure.savefig(BytesIO(), format="svg")


@pytest.mark.rigs
@pytest.mark.parametrize("way", pipelines.OWN)
def test_each_way_takes_its_time(way: str) -> None:
    """On the same elements: the chain, or the wave."""
    row = pipelines.measure(way, 4, 1)
    assert row is not None
    least = row.wave if way == "asyncio, in waves" else row.chain
    assert least - 0.01 <= row.makespan
    assert row.chain < row.wave


def test_a_peer_that_is_not_there_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipelines, "python_of", lambda peer: None)
    assert pipelines.measure("Hamilton", 2, 1) is None


@pytest.mark.parametrize(("makespan", "code"), [(1.0, 0), (1.3, 1)])
def test_the_must_of_pipelines_can_be_missed(
    makespan: float, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(pipelines, "measure", lambda way, elements, seeds: Row(way, elements, 1.0, 2.0, makespan))

    assert pipelines.main(["--quick", "--gate", "--out", str(tmp_path)]) == code
    written = json.loads((tmp_path / "pipelines.json").read_text())
    assert [row["ratio"] for row in written["pipelines"]] == [makespan] * len(pipelines.OWN)
    assert (tmp_path / "pipelines.png").stat().st_size > 1_000


def test_dagrun_finds_out_what_others_have_to_be_told(tmp_path: Path) -> None:
    assert limits.main(["--quick", "--gate", "--out", str(tmp_path)]) == 0
    rows = {row["way"]: row for row in json.loads((tmp_path / "limits.json").read_text())["limits"]}

    assert rows.keys() <= COLOURS.keys()
    assert [rows[way]["done"] for way in ("dagrun", "dagrun, told", "asyncio, told")] == [20] * 3
    assert rows["asyncio, two tries"]["done"] < 20
    assert rows["asyncio, back-off"]["refused"] > 10 * rows["dagrun"]["refused"]
    assert (tmp_path / "limits.svg").stat().st_size > 1_000


def test_the_must_of_limits_can_be_missed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def idle(provider: Provider, calls: int) -> None:
        """Call nothing."""

    monkeypatch.setitem(limits.WAYS, "dagrun", idle)
    assert limits.main(["--quick", "--gate"]) == 1

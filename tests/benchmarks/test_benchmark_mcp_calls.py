"""The benchmark of calls of MCP servers: it measures what it says, and its must can be missed."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest

import mcp_calls


@pytest.mark.real_time
@pytest.mark.costly
def test_it_measures_calls_of_a_server() -> None:
    figures = anyio.run(mcp_calls.measure, 1)

    assert set(figures) == {"bare", "step", "own", "added"}
    assert figures["bare"] > 0
    assert figures["step"] > figures["own"]


def test_results_are_written_and_the_gate_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def dear(rounds: int) -> dict[str, float]:
        await anyio.lowlevel.checkpoint()
        return {"bare": 0.4, "step": 0.7, "own": 0.0, "added": 0.3}

    monkeypatch.setattr(mcp_calls, "measure", dear)

    assert mcp_calls.main(["--gate", "--out", str(tmp_path)]) == 1
    assert mcp_calls.main(["--out", str(tmp_path)]) == 0
    assert json.loads((tmp_path / "mcp_calls.json").read_text())["milliseconds"]["added"] == 0.3

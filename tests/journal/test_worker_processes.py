"""Worker processes on one PostgreSQL under a nemesis: each run ends once, and nobody pays twice."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import postgres_server
from worker_rig import MOVES, Rig

pytestmark = [pytest.mark.anyio, pytest.mark.real_time, pytest.mark.rigs(seconds=20)]

RUNS = int(os.environ.get("DAGRUN_WORKER_RUNS", "0"))  # 2000 in `make workers`


@pytest.fixture
def anyio_backend() -> str:
    """Once: the processes are what is tried."""
    return "asyncio"


@pytest.fixture
def server() -> Iterator[postgres_server.Server]:
    """A server of the rig's own, as it is restarted."""
    try:
        server = postgres_server.started()
    except postgres_server.NoServer as error:
        pytest.skip(str(error))
    try:
        yield server
    finally:
        server.remove()


async def test_each_run_ends_once_and_no_effect_happens_twice(server: postgres_server.Server, tmp_path: Path) -> None:
    """Workers are killed, stopped for longer than their leases, and told to stop; the server stops, and crashes."""
    runs = RUNS or 48
    figures = await Rig(server, tmp_path / "book", runs, MOVES * max(1, RUNS // 160)).run()
    print(f"\n{runs} runs: {figures}")
    assert figures.faults(runs) == []
    assert sum(figures.moves.values()) >= len(MOVES)


async def test_without_the_fence_somebody_pays_twice(server: postgres_server.Server, tmp_path: Path) -> None:
    """The rig has teeth: a worker that wakes up without its runs goes on with them."""
    figures = await Rig(server, tmp_path / "book", 40, ["stop"], mutant="unfenced").run()
    print(f"\nwithout the fence: {figures}")
    assert any("paid more than once" in fault for fault in figures.faults(40)), str(figures)

"""What it costs a run to be looked at on the live page: CPU microseconds a step, with no, one and ten browsers.

    python benchmarks/live_page.py [--gate] [--write]
    python benchmarks/live_page.py --unwatched STEPS

A plan of 10,000 steps that do nothing is carried out in the loop of a real server; the browsers are streams in another
process, so that what they cost is not counted. The figure is the CPU time of the process of the run, up to the last
byte that it sends, less that of the same run without a page, in alternating pairs. The must is 6 microseconds.

``--unwatched`` carries out one run without a page, to count its instructions with another checkout on PYTHONPATH:
``valgrind --tool=cachegrind --cache-sim=no python benchmarks/live_page.py --unwatched 2000``.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

import anyio

import dagrun
from dagrun import Plan, Step, tool
from environment import describe

STEPS: Final = 10_000
MUST: Final = 6.0  # microseconds a step
READERS: Final = (0, 1, 10)
TURNS: Final = 7
TOKEN: Final = "the-token-of-the-benchmark"
RESULTS: Final = Path(__file__).parent / "results"


def plan_of(count: int) -> Plan:
    """Return a plan of steps that do nothing, after one that waits."""
    begin = Step(id="begin", tool="begin")
    return Plan(steps=[begin, *(Step(id=f"s{n}", tool="nothing", depends_on=["begin"]) for n in range(count))])


async def carry_out(count: int, readers: int | None) -> float:
    """Carry out a run, and return the CPU seconds of this process from the first step to the last byte.

    Args:
        count: Steps.
        readers: Browsers that look at it; `None` for a run without a page.
    """
    go, is_watched = anyio.Event(), readers is not None

    @tool(effect="pure")
    async def begin() -> None:
        """Wait until all browsers are there."""
        await go.wait()

    @tool(effect="pure")
    async def nothing() -> None:
        """Do nothing."""

    async with dagrun.start(plan_of(count), tools=[begin, nothing], run_id="r") as run:
        if not is_watched:
            return await _until_over(run, go)
        page = dagrun.web(token=TOKEN)
        page.watch(run)
        async with _served(page) as port, _looked_at(port, readers or 0):
            return await _until_over(run, go, page)


async def _until_over(run: dagrun.Run, go: anyio.Event, page: Any = None) -> float:
    gc.collect()
    begun = time.process_time()
    go.set()
    await run.result()
    if page is not None:
        await page.drained()
    return time.process_time() - begun


class _served:  # noqa: N801  (used as a function)
    """A server in this loop."""

    def __init__(self, page: Any) -> None:
        import uvicorn

        self._socket = socket.create_server(("127.0.0.1", 0))
        self._page = page
        self._server = uvicorn.Server(uvicorn.Config(page, log_level="warning", lifespan="off", access_log=False))
        self._tasks = anyio.create_task_group()

    async def __aenter__(self) -> int:
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._server.serve, [self._socket])
        with anyio.fail_after(10):
            await _connected(self._socket.getsockname())
        return int(self._socket.getsockname()[1])

    async def __aexit__(self, *error: object) -> None:
        self._page.close()
        self._server.should_exit = True
        await self._tasks.__aexit__(None, None, None)


async def _connected(address: tuple[str, int]) -> None:
    """Wait until a server answers; its socket listens already, so it is enough to ask."""
    stream = await anyio.connect_tcp(*address)
    await stream.send(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
    await stream.receive()
    await stream.aclose()


class _looked_at:  # noqa: N801  (used as a function)
    """Browsers in a process of their own, each with the first view already."""

    def __init__(self, port: int, count: int) -> None:
        self._ours, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.Process(target=read_streams, args=(port, count, theirs), daemon=True)
        self._count = count

    async def __aenter__(self) -> None:
        if self._count:
            self._process.start()
            await anyio.to_thread.run_sync(self._ours.recv)

    async def __aexit__(self, *error: object) -> None:
        if self._count:
            await anyio.to_thread.run_sync(self._process.join)  # the last bytes may still be on their way


def read_streams(port: int, count: int, told: Any) -> None:
    """Open streams, tell when each has its first view, and read them to their ends."""
    request = f"GET /api/runs/r/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
    streams = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
    for stream in streams:
        stream.settimeout(60)
        stream.sendall(request)
    for stream in streams:
        text = b""
        while b"event: snapshot" not in text:
            text += stream.recv(1 << 20)
    told.send("there")
    tails = dict.fromkeys(streams, b"")
    while tails:
        for stream in list(tails):
            text = tails[stream] + stream.recv(1 << 20)
            tails[stream] = text[-20:]  # the name of the last event may come in two parts
            if b"event: end" in text:
                del tails[stream]
                stream.close()


async def measured(count: int, turns: int) -> dict[int, float]:
    """Return the microseconds a step that looking costs, by browsers: the median of alternating pairs."""
    found: dict[int, list[float]] = {readers: [] for readers in READERS}
    await carry_out(count, None)  # imports and caches
    await carry_out(count, 1)
    for _ in range(turns):
        for readers in READERS:
            alone = await carry_out(count, None)
            found[readers].append((await carry_out(count, readers) - alone) / count * 1e6)
    return {readers: median(costs) for readers, costs in found.items()}


def main(words: Sequence[str] | None = None) -> int:
    """Measure and print; with ``--gate`` the exit code is 1 if a must is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gate", action="store_true", help="fail if a must is missed")
    parser.add_argument("--write", action="store_true", help="write results/live_page.json")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--unwatched", type=int, metavar="STEPS", help="carry out one run without a page")
    options = parser.parse_args(words)
    if options.unwatched:
        anyio.run(carry_out, options.unwatched, None)
        return 0
    costs = anyio.run(measured, STEPS, options.turns)
    figures = [
        {
            "name": f"{readers} browser{'s' * (readers != 1)}",
            "unit": "us a step",
            "value": round(cost, 2),
            "must": MUST,
            "passed": cost <= MUST,
        }
        for readers, cost in costs.items()
    ]
    for figure in figures:
        print(f"{figure['name']:>12}  {figure['value']:>6} {figure['unit']}  (must {MUST})")
    if options.write:
        text = json.dumps({**describe(), "live_page": figures}, indent=1, ensure_ascii=False)
        (RESULTS / "live_page.json").write_text(text + "\n")
    return int(options.gate and not all(figure["passed"] for figure in figures))


if __name__ == "__main__":
    sys.exit(main())

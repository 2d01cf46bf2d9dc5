"""The three measures, as they are taken in the interpreter of a peer: cost, makespan, and what a failure does."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Mapping
from statistics import median
from typing import Any, Final

import anyio

import baseline
from peers.interface import Adapter, Run, Shape, Step
from peers.steps import Book, StepFailed, opened, step_for
from shapes import SHAPES, successors

# What is run to see what a failure does: `good` and its child have nothing to do with `bad`.
FAILURE: Final[Shape] = {"bad": (), "good": (), "child": ("good",), "dependent": ("bad",)}
FAILURE_SECONDS: Final[Mapping[str, float]] = {"bad": 0.1, "good": 0.5, "child": 0.2, "dependent": 0.1}
NEVER: Final = 4.0  # seconds after which a run of them is not waited for any more
AFTERWARDS: Final = 1.5  # seconds that what is left gets, to show itself


async def cost(adapter: Adapter, task: Mapping[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """CPU per step of steps that end at once, in turn with x, for each of the ``sizes`` of one ``shape``.

    A size gets ``rounds`` rounds, but stops after ``seconds``. Building is part of the cost, as each plan of a planner
    has to be built, but is also told apart.
    """
    step = step_for(is_blocking=adapter.IS_BLOCKING, is_timed=False)
    bare = step_for(is_blocking=False, is_timed=False)
    await _round(adapter, SHAPES[task["shape"]](10), step, bare)  # loads what is loaded on first use
    for size in task["sizes"]:
        shape = SHAPES[task["shape"]](size)
        began = time.monotonic()
        rounds = [await _round(adapter, shape, step, bare)]
        took = time.monotonic() - began
        count = min(task["rounds"], int((task["seconds"] - took) / took))
        if count > 0:  # or the first one, which fills caches, has to do
            rounds = [await _round(adapter, shape, step, bare) for _ in range(count)]
        micro = 1e6 / size
        yield {
            "steps": size,
            "rounds": len(rounds),
            "build": median(one["build"] for one in rounds) * micro,
            "run": median(one["run"] for one in rounds) * micro,
            "wall": median(one["wall"] for one in rounds) * micro,
            "base": median(one["base"] for one in rounds) * micro,
            "running": median(one["run"] / one["base"] for one in rounds),
            "ratio": median((one["build"] + one["run"]) / one["base"] for one in rounds),
        }


async def _round(adapter: Adapter, shape: dict[str, tuple[str, ...]], step: Step, bare: Step) -> dict[str, float]:
    """The CPU seconds of x, and of building and running the same with the peer; both are checked."""
    after = successors(shape)
    gc.collect()  # or one would pay for the garbage of the one before
    book, start = opened(Book()), time.process_time()
    values = await baseline.run(shape, after, bare)
    base = time.process_time() - start
    book.check(shape, values)
    gc.collect()
    book, wall, start = opened(Book()), time.monotonic(), time.process_time()
    run = adapter.prepare(shape, step)
    built = time.process_time()
    peer_values = await run()
    ended, wall = time.process_time(), time.monotonic() - wall
    book.check(shape, peer_values)
    return {"base": base, "build": built - start, "run": ended - built, "wall": wall}


async def makespan(adapter: Adapter, task: Mapping[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """How long runs of real waiting take, in turn with bare tasks, for each of the ``graphs``, ``repeats`` times.

    What is built before a run does not count. The first graph is run once without waiting, to fill caches. Where
    ``is_alone`` is set, there are no bare tasks.
    """
    step = step_for(is_blocking=adapter.IS_BLOCKING, is_timed=True)
    graphs = [({id_: tuple(before) for id_, before in one["needs"].items()}, one["seconds"]) for one in task["graphs"]]
    shape, seconds = graphs[0]
    await _timed(adapter.prepare(shape, step), shape, dict.fromkeys(seconds, 0.0))
    for _ in range(task["repeats"]):
        for index, (shape, seconds) in enumerate(graphs):
            base = None if task.get("is_alone") else (await _timed(_bare(shape), shape, seconds))[0]
            makespan_, took = await _timed(adapter.prepare(shape, step), shape, seconds)
            yield {"graph": index, "makespan": makespan_, "took": took, "base": base}


async def _timed(run: Run, shape: Shape, seconds: Mapping[str, float]) -> tuple[float, dict[str, float]]:
    """The makespan of a run that has to be right, and how long each step took, in seconds."""
    book = opened(Book(seconds))
    start = anyio.current_time()  # the loop's clock, which may be a virtual one
    values = await run()
    ended = anyio.current_time()
    book.check(shape, values)
    return ended - start, {id_: book.ended[id_] - book.began[id_] for id_ in shape}


def _bare(shape: dict[str, tuple[str, ...]]) -> Run:
    after = successors(shape)
    return lambda: baseline.run(shape, after, step_for(is_blocking=False, is_timed=True))


async def failure(adapter: Adapter, task: Mapping[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """What becomes of the rest when a step fails: in words, with what is still alive when the run has returned."""
    step = step_for(is_blocking=adapter.IS_BLOCKING, is_timed=True)
    await _timed(adapter.prepare(FAILURE, step), FAILURE, dict.fromkeys(FAILURE, 0.0))  # loads what is loaded late
    run = adapter.prepare(FAILURE, step)
    book, before = opened(Book(FAILURE_SECONDS, failing="bad")), asyncio.all_tasks()
    start = time.monotonic()
    told = await _end_of(run)
    returned = time.monotonic()
    tasks = [one for one in asyncio.all_tasks() - before if not one.done()]
    alive = sorted(book.began.keys() - book.ended.keys() - book.stopped.keys())
    await anyio.sleep(AFTERWARDS)
    yield {
        "told": told,
        "seconds": returned - start,
        "sibling": _fate(book, "good", returned),
        "child": _fate(book, "child", returned),
        "dependent": _fate(book, "dependent", returned),
        "steps_alive": alive,
        "tasks_alive": len(tasks),
    }


async def _end_of(run: Run) -> str:
    """How a run in which a step fails ends, as its caller sees it."""
    with anyio.move_on_after(NEVER):
        try:
            await run()
        except Exception as error:  # noqa: BLE001  # whatever a peer makes of the failure is the answer
            return f"raises {'the error' if isinstance(error, StepFailed) else type(error).__name__}"
        return "returns"
    return "never returns"


def _fate(book: Book, step: str, returned: float) -> str:
    """What became of a step; late is what happened after the run had returned."""
    if step not in book.began:
        return "not run"
    ended = book.ended.get(step, book.stopped.get(step))
    if ended is None:
        return "never ends"
    return ("cancelled" if step in book.stopped else "ends") + (" late" if ended > returned else "")

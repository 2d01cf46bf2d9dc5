"""Crashes without processes: a run leaves behind what a crash at any instant would leave, and is resumed from that.

A run is carried out once, to its end. Whenever a record is added, and around every effect of a tool, what a crash at
this very instant would leave is kept aside: the records so far, and the world outside. From each of these the run is
taken up again, by an engine that knows nothing but the records; and while that one runs, it leaves more such instants.
"""

from __future__ import annotations

import asyncio
import random
import traceback
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import anyio

from crash_cases import Case
from crash_process import RUN, Ended, Hang, Instant, Process, letter_to
from crash_rules import judge, judge_instant
from crash_world import World
from dagrun import Status
from dagrun.codec import decode_event
from dagrun.events import RunEnded
from dagrun.testing import run_virtual
from simulation import simulate

FOR_EVER: Final = 100_000.0  # virtual seconds; no run needs a thousand
MOST_LIVES: Final = 12
MOST_PROBLEMS: Final = 20  # of one case; more say nothing more


@dataclass
class Report:
    """What came of the crashes of a case.

    Attributes:
        case: To do it again.
        points: How many crashes there were.
        broken: What was wrong, with the place.
        met: What was going on at these crashes.
    """

    case: Case
    points: int = 0
    broken: list[str] = field(default_factory=list)
    met: Counter[str] = field(default_factory=Counter)


def crash_everywhere(case: Case, *, backend: str = "trio", part: float = 1.0, again: float = 0.2) -> Report:
    """Carry *case* out, crash it at every instant, and look at what comes of each.

    Args:
        case: The run.
        backend: Of the loop; on trio, the seed of the case decides the order of tasks, too.
        part: Of the instants that are crashed at.
        again: The part of the resumed runs that crash once more.
    """
    report, rng = Report(case), random.Random(f"points {case.seed}")
    process = Process(case, World(), lambda _: rng.random() < part, random.Random(f"cut {case.seed}"))
    whole = _carried_out(report, process, None, backend)
    if whole is None:
        return report
    report.broken += [f"without a crash: {problem}" for problem in judge(case, process.world, whole)]
    todo = list(process.instants)
    while todo and len(report.broken) < MOST_PROBLEMS:
        instant = todo.pop()
        report.points += 1
        report.met.update([*instant.met, instant.kind, "whole" if instant.is_whole else "cut in two"])
        report.broken += [f"{instant}: {problem}" for problem in judge_instant(case, instant)]
        last = decode_event(instant.texts[-1])
        if isinstance(last, RunEnded) and last.status is not Status.UNKNOWN:
            continue  # there is nothing to go on with
        later = _after(instant, rng.randint(1, 25) if rng.random() < again else 0, case, rng)
        ended = _carried_out(report, later, instant, backend)
        if ended is not None:
            report.broken += [f"{instant}: {problem}" for problem in judge(case, later.world, ended, instant, whole)]
        report.met["crashed again"] += len(later.instants)
        todo += later.instants
    return report


def _after(instant: Instant, wanted: int, case: Case, rng: random.Random) -> Process:
    """The process that goes on after a crash; of its own instants, one may be *wanted*."""
    instant.world.life += 1
    return Process(case, instant.world, lambda number: number == wanted, rng)


def _carried_out(report: Report, process: Process, instant: Instant | None, backend: str) -> Ended | None:
    function = partial(_to_end, report.case, process, instant)
    try:
        if backend == "trio":
            return simulate(function, report.case.seed)
        return run_virtual(function, backend=backend)
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  (whatever a broken runtime lets out)
        trace = "".join(line for line in traceback.format_exception(error) if "dagrun" in line)
        report.broken.append(f"{instant or 'without a crash'}: it ended with {error!r}\n{trace[-1500:]}")
        return None


async def _to_end(case: Case, process: Process, instant: Instant | None) -> Ended:
    """Carry on, with as many processes as it takes, until the run is over; people answer between them."""
    for _ in range(MOST_LIVES):
        ended: Ended | None = None
        with anyio.move_on_after(FOR_EVER):
            ended = await process.carry_out(instant)
        if ended is None:
            raise Hang("the run did not end")
        if isinstance(decode_event(ended.texts[-1]), RunEnded):
            return ended
        for question in list(ended.graph.questions.values()):
            await process.journal.post(RUN, letter_to(case, question, process.world))
        process.world.life += 1
        instant = process.suspended()
        process = process.next()
    raise Hang(f"the run was suspended {MOST_LIVES} times")

"""Has anything become slower since it was last recorded?

    python benchmarks/check.py [--results FOLDER]

**What is measured.** A part of what ``overhead.py``, ``latency.py``, ``whole.py`` and ``commands.py`` measure, by the
same functions, compared with what their last full runs have left in ``results/``. CI does so with every change.

**How to read it.** One line for each figure: recorded, now, the change, a verdict. Only ratios to a baseline that took
turns with dagrun, an exponent of growth, and bytes are compared, never times. A machine that changes its speed hits
both halves of a pair alike, and a figure is the median of many pairs; still, something else may run meanwhile. So what
seems to be a regression is measured again when all others are through, up to twice, and the best figure counts. A
regression is a change of more than 25 %; of an exponent, of what ten times as many steps take. For all figures, less is
better.

It takes at most 90 seconds: no figure is left out, but once the time is up, none is measured again.

The exit code is 1 if there is a regression, or if a figure was never recorded: then ``make bench`` does so. What has
become better by more than that deserves to be recorded, or it may be lost again unseen.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import anyio

import command
import commands
import latency
import memory
import overhead
import whole

SLACK: Final = 0.25
MAX_SECONDS: Final = 90
REPEATS: Final = 2

Kind = Literal["ratio", "exponent", "bytes"]


@dataclass(frozen=True, slots=True)
class Watched:
    """A figure that must not get worse.

    Attributes:
        name: Of it.
        kind: What sort of figure it is.
        file: Where it is recorded, without the ending.
        table: The list in that file.
        row: What the fields of its row are.
        field: The figure in that row.
        measure: Gives the figure of now.
    """

    name: str
    kind: Kind
    file: str
    table: str
    row: Mapping[str, object]
    field: str
    measure: Callable[[], float]

    def recorded(self, folder: Path) -> float | None:
        """What the figure was when it was last recorded; `None` if it never was."""
        path = folder / f"{self.file}.json"
        rows: list[dict[str, Any]] = json.loads(path.read_text()).get(self.table, []) if path.exists() else []
        found = [one[self.field] for one in rows if self.row.items() <= one.items()]
        return float(found[0]) if found else None


@dataclass(frozen=True, slots=True)
class Comparison:
    """A figure, then and now.

    Attributes:
        name: Of it.
        recorded: Then; `None` if it was never recorded.
        now: The best of the measurements.
        change: By how much more it is now; -0.1 is a tenth less.
        count: How often it was measured.
        seconds: What the first measurement took.
    """

    name: str
    recorded: float | None
    now: float
    change: float
    count: int
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether it was recorded, and has not got worse."""
        return self.recorded is not None and self.change <= SLACK

    @property
    def verdict(self) -> str:
        """The same in words."""
        if self.recorded is None:
            return "NOT RECORDED: make bench"
        if self.change > SLACK:
            return "REGRESSION"
        return "better: record it" if self.change < 1 / (1 + SLACK) - 1 else "ok"


def change_of(kind: Kind, recorded: float, now: float) -> float:
    """By how much more it is now than recorded; of exponents, by how much more ten times as many steps take."""
    return float(10 ** (now - recorded)) - 1 if kind == "exponent" else now / recorded - 1


def compare(watched: Watched, folder: Path) -> Comparison:
    """Measure *watched* for the first time."""
    began = time.monotonic()
    recorded, now = watched.recorded(folder), watched.measure()
    change = 0.0 if recorded is None else change_of(watched.kind, recorded, now)
    return Comparison(watched.name, recorded, now, change, 1, time.monotonic() - began)


def compare_again(watched: Watched, before: Comparison) -> Comparison:
    """Measure *watched* once more; what is better counts."""
    assert before.recorded is not None
    now = min(before.now, watched.measure())
    return replace(before, now=now, change=change_of(watched.kind, before.recorded, now), count=before.count + 1)


# What is watched ------------------------------------------------------------------------------------------------------


def per_step(case: str, shape: str, pairs: int) -> Watched:
    """The cost of 1,000 steps of one case."""
    of = next(one for one in overhead.FULL if one.name == case)
    return Watched(
        f"{case}, {shape} 1,000",
        "ratio",
        "overhead",
        "overhead",
        {"case": case, "shape": shape, "steps": 1_000},
        "ratio",
        lambda: overhead.measure_row(of, shape, 1_000, pairs).ratio,
    )


def latency_ratio(name: str, measure: Callable[[], float]) -> Watched:
    """A ratio of `latency`."""
    return Watched(name, "ratio", "latency", "latency", {"name": name}, "value", measure)


def whole_ratio(field: str) -> Watched:
    """What a job of 1,000 steps without a common shape costs, or a part of it."""
    row, name = {"shape": "random3", "steps": 1_000}, "whole job" if field == "whole" else f"{field} of a whole job"
    return Watched(
        f"{name} / bare",
        "ratio",
        "whole",
        "whole",
        row,
        field,
        lambda: float(getattr(anyio.run(whole.measure_row, "random3", 1_000, 5), field)),
    )


def start_ratio(name: str) -> Watched:
    """What a command costs to start, as a ratio to the libraries that it needs."""
    row, measure = {"name": name}, lambda: commands.ratio_of(name, 4)
    return Watched(f"dagrun {name} / imports", "ratio", "commands", "commands", row, "ratio", measure)


def watched() -> Iterator[Watched]:
    """Everything, in the order of the table."""
    yield per_step("no-op", "chain", 15)
    yield per_step("no-op", "random3", 15)
    yield per_step("suspending", "random3", 15)
    yield per_step("burst", "independent", 15)
    yield per_step("by reference", "random3", 15)
    yield Watched(
        "growth, 1,000 to 10,000",
        "exponent",
        "overhead",
        "growth",
        {"shape": "random3", "in_turn": True},
        "ours",
        lambda: overhead.growth_in_turn("random3", 1_000, 10_000, 5, of_base=False).ours,
    )
    yield Watched(
        "memory per step",
        "bytes",
        "overhead",
        "memory",
        {"shape": "random3", "steps": 10_000, "how": "traced"},
        "bytes",
        lambda: memory.bytes_per_step("random3", 10_000, "traced"),
    )
    yield latency_ratio("check, named / pydantic", lambda: latency.checking("no-op", latency.PLAN_STEPS, 7).ratio)
    yield latency_ratio(
        "check, referred / pydantic", lambda: latency.checking("by reference", latency.PLAN_STEPS, 7).ratio
    )
    yield whole_ratio("whole")
    yield whole_ratio("check")
    yield latency_ratio("start-up / bare", lambda: latency.starting(11)[0].ratio)
    yield latency_ratio("cancel / bare", lambda: latency.cancelling(7).ratio)
    yield start_ratio("runs")
    yield start_ratio("run")


# Showing --------------------------------------------------------------------------------------------------------------

HEAD: Final = f"{'figure':28}{'recorded':>10}{'now':>10}{'change':>9}  verdict"


def line_of(one: Comparison) -> str:
    """One line of the table."""
    again = {1: "", 2: ", measured twice"}.get(one.count, f", measured {one.count} times")
    if one.recorded is None:
        return f"{one.name:28}{'-':>10}{one.now:>10.3f}{'-':>9}  {one.verdict}"
    return f"{one.name:28}{one.recorded:>10.3f}{one.now:>10.3f}{one.change:>+9.0%}  {one.verdict}{again}"


def compare_all(figures: Iterable[Watched], folder: Path, until: float = math.inf) -> bool:
    """Compare each, print its line as soon as it is there, and say whether none has got worse.

    Args:
        figures: What is measured, all of it.
        folder: Where the recorded figures are.
        until: When nothing more is measured again, on the monotonic clock.
    """
    print(HEAD)
    passed, worse = True, []
    for one in figures:
        found = compare(one, folder)
        print(line_of(found), flush=True)
        if found.recorded is None:
            passed = False
        elif not found.passed:
            worse.append((one, found))
    for _ in range(REPEATS):
        worse = [(one, again) for one, found in worse if not (again := _again(one, found, until)).passed]
    return passed and not worse


def _again(one: Watched, found: Comparison, until: float) -> Comparison:
    """Measure *one* again, if there is time, and print its line."""
    if time.monotonic() + found.seconds > until:
        print(f"{one.name:28}  there is no time to measure it again", flush=True)
        return found
    again = compare_again(one, found)
    print(line_of(again), flush=True)
    return again


def main(arguments: Sequence[str] | None = None, figures: Iterable[Watched] | None = None) -> int:
    """Compare, print, and say by the exit code whether nothing has got worse."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--results", type=Path, default=command.RESULTS, help="where the recorded figures are")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    passed = compare_all(watched() if figures is None else figures, options.results, began + MAX_SECONDS)
    seconds = time.monotonic() - began
    print(f"{'nothing is slower' if passed else 'FAILED'}; {seconds:.0f} s of at most {MAX_SECONDS}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())

"""What it costs to change a plan while it is carried out.

    python benchmarks/splicing.py [--quick] [--gate] [--out FOLDER]

**What is measured.** Patches of ten edits (three steps added, three replaced, two rewired, two dropped) go one after
another into a plan of which a twentieth has been carried out; the rest is waiting, ready or running. *Early* patches
concern the steps that come next, *late* ones the last of the plan. The figures are medians of the CPU time of one
thread, with garbage collection as usual:

- *check*: from the patch to the checked patch, or to everything that is wrong with it;
- *apply*: from the checked patch to the applied event, after which the changed steps may start;
- *whole*: all of ``await run.splice(patch)`` in a live run: both, the record, and telling observers.

With a *limit* on what runs at once the order of starting matters: then the longest remaining path of every unfinished
step before a change may have to be found anew, which for the last steps of a plan can be all of them.

**How to read it.** Apply is to cost what the patch touches, and not what the plan holds: the columns of a shape should
look alike. The must is for plans without a limit: 0.5 ms in a plan of 1,000 steps, 2 ms in one of 10,000.

With ``--gate`` the exit code is 1 if a must is missed. A full run writes ``results/splicing.json``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import product
from statistics import median, quantiles
from typing import Any, Final

import anyio
import anyio.lowlevel

import command
import dagrun
import environment
from dagrun import Add, CheckedPlan, Drop, Event, Patch, Replace, Rewire, State, Step, tool
from dagrun.events import AttemptEnded, AttemptStarted, RunStarted, Spliced
from dagrun.kernel.graph.changes import apply
from dagrun.kernel.graph.live_graph import LiveGraph, make_frontier
from dagrun.kernel.graph.patches.check_patch import Splicer
from dagrun.kernel.model.outcome import Decision, Outcome, Recovery
from shapes import SHAPES

GRAPHS: Final = ("chain", "layered", "random3")
SIZES: Final = (1_000, 10_000, 100_000)
BIG: Final = 100_000  # where one shape and few patches have to do: to make such a plan takes longer than all of them
FEW, MANY = 15, 30  # patches
WHERE: Final = ("early", "late")
MUSTS: Final = {1_000: 0.5, 10_000: 2.0}  # milliseconds
LIMIT: Final = 8
DONE: Final = 20  # one in so many steps has succeeded
EDITS: Final = 10


@tool(effect="pure")
async def work(value: int = 0) -> int:
    """Give what it got."""
    return value


@tool(effect="pure")
async def hold() -> int:
    """Go on until the run is cancelled."""
    await anyio.sleep_forever()
    return 0


@dataclass(frozen=True, slots=True)
class Row:
    """Patches of one place in one plan; times are in milliseconds.

    Attributes:
        shape: Of the plan.
        steps: Its size.
        where: Where in it the patches are.
        limit: Steps that may run at once; `None` for no limit.
        patches: How many there were.
        check: Median.
        apply: Median.
        slowest: The 95th percentile of apply.
        whole: Median in a live run.
        must: What apply may take; `None` where nothing is promised.
    """

    shape: str
    steps: int
    where: str
    limit: int | None
    patches: int
    check: float
    apply: float
    slowest: float
    whole: float
    must: float | None

    @property
    def passed(self) -> bool:
        """Whether the must is kept."""
        return self.must is None or self.apply <= self.must


class Patches:
    """Makes patches for one place of a plan, each for steps that no patch has touched before.

    Args:
        ids: The steps of that place, in the order of the plan; each patch takes seven.
        needs: What each of them waits for.
    """

    def __init__(self, ids: Sequence[str], needs: Callable[[str], Sequence[str]]) -> None:
        self._ids = iter(ids)
        self._needs = needs
        self._number = 0
        self._replaced: dict[str, str] = {}
        self._leaves: tuple[str, str] = ("", "")

    def first(self) -> Patch:
        """A patch that brings what the next one drops."""
        self._leaves = ("leaf0-a", "leaf0-b")
        return Patch(edits=[Add(step=Step(id=id_, tool=work.name)) for id_ in self._leaves])

    def next(self) -> Patch:
        """Three steps added, three replaced, two rewired, two dropped."""
        self._number += 1
        name, (used, other, *changed) = f"n{self._number}", [next(self._ids) for _ in range(7)]
        leaves = (f"leaf{self._number}-a", f"leaf{self._number}-b")
        edits: list[Add | Drop | Replace | Rewire] = [
            Add(step=Step(id=name, tool=work.name, args={"value": f"${{{used}}}"})),
            *(Add(step=Step(id=leaf, tool=work.name, depends_on=[other])) for leaf in leaves),
            *(Drop(id=leaf) for leaf in self._leaves),
        ]
        for number, id_ in enumerate(changed):
            before = [self._replaced.get(need, need) for need in self._needs(id_)]
            if number < 3:
                step = Step(id=f"{name}-{number}", tool=work.name, depends_on=before)
                edits.append(Replace(id=id_, step=step))
                self._replaced[id_] = step.id
            else:
                edits.append(Rewire(id=id_, depends_on=[*before, name]))
        self._leaves = leaves
        return Patch(edits=edits)


@lru_cache(maxsize=1)  # all places of a plan come one after another
def plan_of(shape: str, steps: int, limit: int | None) -> CheckedPlan:
    """A plan of *steps* steps behind one that never ends, so that all of them wait when it is run."""
    graph = SHAPES[shape](steps)
    planned = [Step(id=id_, tool=work.name, depends_on=before or ("hold",)) for id_, before in graph.items()]
    policy = dagrun.Policy(max_running=limit)
    return dagrun.check(dagrun.Plan(steps=[Step(id="hold", tool=hold.name), *planned]), [work, hold], policy=policy)


def place_of(graph: LiveGraph, where: str, count: int) -> list[str]:
    """The steps of a place: *count* that wait, right behind what is done or right before the end."""
    waiting = [id_ for id_, node in graph.nodes.items() if node.state is State.WAITING]
    return waiting[:count] if where == "early" else waiting[-count:]


def graph_of(plan: CheckedPlan, done: int) -> LiveGraph:
    """The live graph of *plan*, with its first *done* steps carried out."""
    frontier, caps_of = make_frontier(plan, None)
    graph = LiveGraph(plan, b"{}", frontier, caps_of)
    apply(graph, RunStarted(1, 0.0, "run", len(plan.steps), "", 0.0))
    for number, id_ in enumerate(list(plan.steps)[:done]):
        at = float(number)
        graph.frontier.take()
        apply(graph, AttemptStarted(2 * number + 2, at, id_, 1, work.name))
        facts = (State.SUCCEEDED, Outcome(State.SUCCEEDED, 1), Decision(Recovery.PROCEED))
        apply(graph, AttemptEnded(2 * number + 3, at, id_, 1, *facts))
        graph.frontier.release(graph.nodes[id_])
    return graph


def measure_graph(plan: CheckedPlan, where: str, count: int) -> tuple[list[float], list[float]]:
    """Check and apply *count* patches, one after another; milliseconds of both."""
    graph = graph_of(plan, len(plan.steps) // DONE)
    splicer = Splicer(graph)
    patches = Patches(place_of(graph, where, 7 * count), lambda id_: graph.nodes[id_].plan.depends_on)
    checks, applied = [], []
    for number in range(count + 1):
        patch = patches.next() if number else patches.first()
        begun = time.thread_time()
        checked, problems = splicer.check(patch)
        after = time.thread_time()
        if checked is None:
            raise AssertionError(f"refused: {problems[0]}")
        facts = (graph.revision + 1, "host", "", checked.edits, checked.consequence)
        event = Spliced(number, 0.0, *facts, checked=checked)
        apply(graph, event)
        ended = time.thread_time()
        if number:  # the first one builds what is kept, labels for instance
            checks.append((after - begun) * 1e3)
            applied.append((ended - after) * 1e3)
    return checks, applied


async def measure_run(plan: CheckedPlan, where: str, count: int) -> list[float]:
    """Splice *count* patches into a live run; milliseconds of each."""
    seen: list[Event] = []
    taken = []
    async with dagrun.start(plan, on_event=seen.append) as run:
        await anyio.lowlevel.checkpoint()
        ids = [id_ for id_ in plan.steps if id_ != "hold"]
        patches = Patches(
            ids[: 7 * count] if where == "early" else ids[-7 * count :], lambda id_: plan.steps[id_].depends_on
        )
        await run.splice(patches.first())
        for _ in range(count):
            patch = patches.next()
            begun = time.thread_time()
            await run.splice(patch)
            taken.append((time.thread_time() - begun) * 1e3)
        run.cancel()
    if sum(isinstance(event, Spliced) for event in seen) != count + 1:
        raise AssertionError("not every splice was told to the observer")
    return taken


def measure_row(shape: str, steps: int, where: str, limit: int | None, count: int) -> Row:
    """Measure one place of one plan."""
    plan = plan_of(shape, steps, limit)
    checks, applied = measure_graph(plan, where, count)
    whole = anyio.run(measure_run, plan, where, count)
    return Row(
        shape,
        steps,
        where,
        limit,
        len(applied),
        check=median(checks),
        apply=median(applied),
        slowest=quantiles(applied, n=20)[-1],
        whole=median(whole),
        must=MUSTS.get(steps) if limit is None else None,
    )


def measure(sizes: Sequence[int], count: int) -> Iterator[Row]:
    """Measure every shape, size and place, with and without a limit; of the biggest size, one shape and few patches."""
    for shape, steps, limit, where in product(GRAPHS, sizes, (None, LIMIT), WHERE):
        if steps < BIG:
            yield measure_row(shape, steps, where, limit, count)
        elif shape == GRAPHS[-1]:
            yield measure_row(shape, steps, where, limit, FEW)


# Showing --------------------------------------------------------------------------------------------------------------

HEAD: Final = (
    f"{'shape':10}{'n':>8}  {'where':7}{'limit':>6}{'check':>9}{'apply':>9}{'95 %':>9}{'whole':>9}{'must':>7}  ms"
)


def line_of(row: Row) -> str:
    """One line of the table."""
    limit, must = row.limit or "-", "-" if row.must is None else row.must
    figures = f"{row.check:>9.3f}{row.apply:>9.3f}{row.slowest:>9.3f}{row.whole:>9.3f}{must:>7}"
    return f"{row.shape:10}{row.steps:>8,}  {row.where:7}{limit:>6}{figures}  {'ok' if row.passed else 'MISSED'}"


def as_json(rows: Sequence[Row]) -> dict[str, Any]:
    """The results as they are kept."""
    return environment.describe() | {"edits": EDITS, "splices": [_rounded(row) for row in rows]}


def _rounded(row: Row) -> dict[str, Any]:
    facts = asdict(row) | {"passed": row.passed}
    return {key: round(value, 4) if isinstance(value, float) else value for key, value in facts.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and say by the exit code whether every must is kept."""
    options = command.parser_of(__doc__, "fewer patches and smaller plans").parse_args(arguments)
    print(HEAD)
    rows = []
    for row in measure(SIZES[:2] if options.quick else SIZES, FEW if options.quick else MANY):
        print(line_of(row), flush=True)
        rows.append(row)
    if (folder := command.folder_of(options)) is not None:
        command.write(folder, "splicing", as_json(rows))
    missed = sum(not row.passed for row in rows)
    print(f"{missed} of {sum(row.must is not None for row in rows)} musts missed")
    return 1 if options.gate and missed else 0


if __name__ == "__main__":
    sys.exit(main())

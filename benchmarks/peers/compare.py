"""dagrun beside other ways to run a graph of steps: what a step costs, how long runs take, and what a failure does.

    PYTHONPATH=benchmarks python -m peers.compare [--quick] [--only NAME ...] [--out FOLDER]

Each peer runs in an interpreter and an environment of its own, which ``python -m peers.environments`` makes; one whose
environment is missing is named in the tables, and the rest goes on. All run the same graphs of the same steps, and
every run is checked step by step: each step got what its dependencies gave, and its own value came out.

**Cost.** CPU microseconds per step of steps that end at once, and ratios to x (one `start_soon` per step in a bare task
group of anyio) in the same process, in turn, medians: *run/x* of running alone, *all/x* with building the graph before,
as each plan of a planner is a new one. For dagrun, building is making the plan and checking it, references included.
The CPU of other processes, such as Prefect's server, is not counted; the time on the wall tells of it.

**Makespan.** Graphs of 100 steps of 5 to 50 ms, all of which only wait. *Ratio* is the makespan over the critical path
by the durations that the steps of that run really had; *asked* is that by what they asked for; *bare* is *asked* of
bare tasks in the same process, in turn. Nothing built before a run is counted.

**Failure.** ``bad`` fails after 0.1 s. ``good`` takes 0.5 s, then its child runs; both have nothing to do with ``bad``.
``dependent`` waits for ``bad``. *Late* is after the run had returned, and
*alive* what had begun and not ended by then. Where the order of steps
is the user's own code, that code lets an error through, as the documentation of the peer has it.

**Pipelines.** The plans of the LLMCompiler data sets (see `peers.pipelines`, also for where their latencies are from),
on real waiting; and for dagrun on a virtual clock, where nothing but the steps takes time.

A run writes ``results/peers.json`` with the plots ``peers_cost`` and ``peers_makespan``; with ``--quick`` or ``--only``
it writes nothing, unless it is told where.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import command
import environment
from dagrun.testing import run_virtual
from peers import measures, pipelines, tables
from peers.adapters import with_dagrun
from peers.jobs import Report, ask
from peers.registry import PEERS, Peer
from uneven import Uneven, longest_chain, make_uneven

SHAPES: Final = ("chain", "fan", "random3")
UNEVEN: Final = ("random3", "layered")
STEPS: Final = 100  # of an uneven graph


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured.

    Attributes:
        sizes: In steps, for the cost.
        rounds: At most, for each size.
        seconds: After which a size gets no more rounds.
        limit: Seconds for one figure, after which a peer is stopped.
        seeds: Uneven graphs of each shape.
        repeats: Of each uneven graph and each pipeline.
    """

    sizes: tuple[int, ...]
    rounds: int
    seconds: float
    limit: float
    seeds: int
    repeats: int


FULL: Final = Extent(sizes=(10, 100, 1_000), rounds=9, seconds=1.5, limit=40, seeds=3, repeats=1)
QUICK: Final = Extent(sizes=(10, 100), rounds=3, seconds=1, limit=15, seeds=1, repeats=1)
Rows = list[dict[str, Any]]


# Measuring ------------------------------------------------------------------------------------------------------------


def measure_cost(peer: Peer, extent: Extent) -> Iterator[dict[str, Any]]:
    """One row for each shape and size; where a peer gives none, the row says why."""
    sizes = [size for size in extent.sizes if size <= (peer.max_steps or size)]
    for shape in SHAPES:
        task = {"shape": shape, "sizes": sizes, "rounds": extent.rounds, "seconds": extent.seconds}
        report = ask(peer, "cost", task, limit=extent.limit) if sizes else Report()
        yield from ({"peer": peer.name, "shape": shape} | answer for answer in report.answers)
        for size in extent.sizes[len(report.answers) :]:
            trouble = report.trouble if size in sizes else "not asked: takes too long"
            yield {"peer": peer.name, "shape": shape, "steps": size, "trouble": trouble or "no answer"}


def measure_makespan(peer: Peer, extent: Extent) -> Iterator[dict[str, Any]]:
    """One row for each shape of uneven graphs: medians over the seeds and repeats."""
    graphs = {f"{shape} {STEPS}": [make_uneven(shape, STEPS, seed) for seed in range(extent.seeds)] for shape in UNEVEN}
    yield from _spans(peer, graphs, extent)


def measure_pipelines(peer: Peer, extent: Extent) -> Iterator[dict[str, Any]]:
    """One row for each of the LLMCompiler data sets; without bare tasks, which in seconds lose nothing that shows."""
    graphs = {name: [graph] for name, graph in pipeline_graphs().items()}
    yield from _spans(peer, graphs, extent, is_alone=True)


def pipeline_graphs() -> dict[str, Uneven]:
    """The plans of the data sets, with their latencies."""
    return {name: Uneven(shape, pipelines.seconds_of(shape)) for name, shape in pipelines.SHAPES.items()}


def _spans(
    peer: Peer, kinds: Mapping[str, Sequence[Uneven]], extent: Extent, *, is_alone: bool = False
) -> Iterator[dict[str, Any]]:
    graphs = [(kind, graph) for kind, several in kinds.items() for graph in several]
    task = {"graphs": [task_of(graph) for _, graph in graphs], "repeats": extent.repeats, "is_alone": is_alone}
    report = ask(peer, "makespan", task, limit=extent.limit)
    for kind in kinds:
        runs = [(answer, graphs[answer["graph"]][1]) for answer in report.answers if graphs[answer["graph"]][0] == kind]
        trouble = {"trouble": report.trouble} if report.trouble else {}
        yield {"peer": peer.name, "graph": kind} | (sum_up(runs) if runs else {}) | trouble


def task_of(graph: Uneven) -> dict[str, Any]:
    """What a worker has to know of a graph."""
    return {"needs": graph.needs, "seconds": dict(graph.seconds)}


def sum_up(runs: Sequence[tuple[Mapping[str, Any], Uneven]]) -> dict[str, Any]:
    """Medians over some runs, each compared to the critical path of its own graph."""
    bare = [answer["base"] / graph.critical_path for answer, graph in runs if answer["base"] is not None]
    return {
        "runs": len(runs),
        "makespan": median(answer["makespan"] for answer, _ in runs),
        "critical_path": median(graph.critical_path for _, graph in runs),
        "ratio": median(answer["makespan"] / longest_chain(graph.needs, answer["took"]) for answer, graph in runs),
        "asked": median(answer["makespan"] / graph.critical_path for answer, graph in runs),
    } | ({"bare": median(bare)} if bare else {})


def measure_virtual() -> Iterator[dict[str, Any]]:
    """The pipelines with dagrun on a virtual clock: what its schedule makes of them when nothing else takes time."""
    for name, graph in pipeline_graphs().items():
        answer = run_virtual(_first_span, {"graphs": [task_of(graph)], "repeats": 1})
        yield {"graph": name, "makespan": answer["makespan"], "critical_path": graph.critical_path}


async def _first_span(task: dict[str, Any]) -> dict[str, Any]:
    [answer] = [answer async for answer in measures.makespan(with_dagrun, task)]
    return answer


def measure_failure(peer: Peer, extent: Extent) -> Iterator[dict[str, Any]]:
    """One row: what becomes of the rest."""
    report = ask(peer, "failure", {}, limit=extent.limit)
    yield {"peer": peer.name} | (report.answers[0] if report.answers else {"trouble": report.trouble})


def describe(peer: Peer) -> dict[str, Any]:
    """Who *peer* is, with its versions, or the trouble if it does not run here."""
    report = ask(peer, "versions", {}, limit=30)
    return {"name": peer.name, "how": peer.how, "versions": report.versions, "trouble": report.trouble}


# Showing --------------------------------------------------------------------------------------------------------------


def measure_all(peers: Sequence[Peer], extent: Extent) -> dict[str, Any]:
    """Take all measures of all peers, print each row as soon as it is there, and give them as they are kept."""
    described = [describe(peer) for peer in peers]
    print(*map(tables.peer_line, described), sep="\n", flush=True)
    results = environment.describe() | {"peers": described}
    for name, head, line, measure in (
        ("cost", tables.COST_HEAD, tables.cost_line, measure_cost),
        ("makespan", tables.SPAN_HEAD, tables.span_line, measure_makespan),
        ("failure", tables.FAILURE_HEAD, tables.failure_line, measure_failure),
        ("pipelines", tables.SPAN_HEAD, tables.span_line, measure_pipelines),
    ):
        print(f"\n{name.capitalize()}\n{head}", flush=True)
        rows: Rows = []
        for peer in peers:
            for row in measure(peer, extent):
                print(line(row), flush=True)
                rows.append(rounded(row))
        results[name] = rows
    results["virtual"] = [rounded(row) for row in measure_virtual()]
    print("\nPipelines, dagrun on a virtual clock", *map(tables.virtual_line, results["virtual"]), sep="\n")
    return results


def rounded(row: dict[str, Any]) -> dict[str, Any]:
    """A row as it is kept: four digits after the point are more than any of it is good for."""
    return {key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()}


def write(results: dict[str, Any], folder: Path) -> None:
    """Keep *results* as ``peers.json`` in *folder*, with the plots beside it."""
    from peers.drawing import draw_cost, draw_makespan

    command.write(folder, "peers", results)
    draw_cost(results, folder / "peers_cost")
    draw_makespan(results, folder / "peers_makespan")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and keep; nothing is gated, as peers are not ours to keep fast."""
    parser = command.parser_of(__doc__, "small sizes, few repeats", has_musts=False)
    names = ", ".join(peer.name for peer in PEERS)
    parser.add_argument("--only", metavar="NAME", action="append", help=f"one peer; may be given again: {names}")
    options = parser.parse_args(arguments)
    unknown = set(options.only or ()) - {peer.name for peer in PEERS}
    if unknown:
        parser.error(f"no peer is called {', '.join(sorted(unknown))}; there are {names}")
    began = time.monotonic()
    peers = [peer for peer in PEERS if not options.only or peer.name in options.only]
    results = measure_all(peers, QUICK if options.quick else FULL)
    is_part = bool(options.only) and options.out is None  # no result to keep
    if not is_part and (folder := command.folder_of(options)) is not None:
        write(results, folder)
    print(f"{len(peers)} peers; {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())

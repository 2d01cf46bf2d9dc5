"""The comparison with the peers measures what it says, and a peer that is not there does not stop the rest.

No peer is installed where these tests run: the adapters of dagrun and of polling stand for the others.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

import command
from dagrun.testing import run_virtual
from peers import compare, measures, pipelines, tables
from peers.adapters import polling, with_dagrun
from peers.compare import Extent
from peers.environments import COMPLETE, python_of
from peers.jobs import ask
from peers.registry import HERE, PEERS, Peer
from peers.steps import Book, WrongRun, note, opened, value_of
from shapes import SHAPES
from uneven import Uneven

adapters = pytest.mark.parametrize("adapter", [with_dagrun, polling], ids=["dagrun", "polling"])
TINY = Extent(sizes=(10,), rounds=1, seconds=0.1, limit=30, seeds=1, repeats=1)
_ONE = Uneven({"a": ()}, {"a": 1.0})
ABSENT = Peer(name="absent", adapter="none", environment="no-such", how="not at all")


async def _answers(measure: Any, adapter: Any, task: dict[str, Any]) -> list[dict[str, Any]]:
    return [answer async for answer in measure(adapter, task)]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recorded results, drawn once; the fonts that this opens stay open."""
    folder = tmp_path_factory.mktemp("peers")
    compare.write(json.loads((command.RESULTS / "peers.json").read_text()), folder)
    return folder


# What is run ----------------------------------------------------------------------------------------------------------


@adapters
@pytest.mark.parametrize("shape", ["chain", "fan", "random3"])
def test_every_step_gets_what_its_dependencies_gave(adapter: Any, shape: str) -> None:
    """A peer that leaves out values would be fast."""
    graph = SHAPES[shape](30)
    book = opened(Book())

    values = run_virtual(adapter.prepare(graph, note))

    book.check(graph, values)
    assert book.got["s29"] == {one: value_of(one) for one in graph["s29"]}


@pytest.mark.parametrize("fault", ["left out", "without its values", "another value", "one more"])
def test_a_wrong_run_is_no_measurement(fault: str) -> None:
    """The check of a run finds each of the ways in which it can be too fast."""
    book = Book(got={"a": {}, "b": {"a": value_of("a")}})
    values = {"a": value_of("a"), "b": value_of("b")}
    book.check({"a": (), "b": ("a",)}, values)
    match fault:
        case "left out":
            del book.got["b"]
        case "without its values":
            book.got["b"] = {}
        case "another value":
            values["b"] = value_of("a")
        case _:
            book.got["c"] = {}

    with pytest.raises(WrongRun):
        book.check({"a": (), "b": ("a",)}, values)


def test_polling_starts_a_step_at_the_next_look() -> None:
    """On a virtual clock each hop of a chain costs what is left of its 10 ms: 15 ms of a step become 20."""
    graph = {"needs": {"a": (), "b": ("a",), "c": ("b",)}, "seconds": {"a": 0.015, "b": 0.015, "c": 0.015}}

    [answer] = run_virtual(_answers, measures.makespan, polling, {"graphs": [graph], "repeats": 1})

    assert answer["makespan"] == pytest.approx(0.06, abs=1e-6)
    assert answer["base"] == pytest.approx(0.045, abs=1e-6)


def test_pipelines_have_the_published_latencies() -> None:
    """On Movie Recommendation: 0.61 s for a search in the mean, 1.13 s for the slowest, 1.62 s for the answer."""
    movie = compare.pipeline_graphs()["eight searches, choose"]
    searches = [seconds for step, seconds in movie.seconds.items() if step != "choose"]

    assert sum(searches) / 8 == pytest.approx(0.61)
    assert max(searches) == 1.13
    assert movie.seconds["choose"] == pipelines.ANSWER == 1.62


def test_on_a_virtual_clock_dagrun_takes_the_critical_path() -> None:
    """No step of the pipelines waits for anything but what it needs."""
    rows = list(compare.measure_virtual())

    assert len(rows) == 3
    for row in rows:
        assert row["makespan"] == pytest.approx(row["critical_path"], abs=1e-6)


# What is told ---------------------------------------------------------------------------------------------------------


@pytest.mark.rigs
def test_the_cost_is_told_for_each_size() -> None:
    """With what building and running took, and the ratio of both to x."""
    task = {"shape": "random3", "sizes": [5, 20], "rounds": 2, "seconds": 600}

    rows = anyio.run(_answers, measures.cost, with_dagrun, task)

    assert [row["steps"] for row in rows] == [5, 20]
    for row in rows:
        assert row["rounds"] == 2
        assert min(row["build"], row["run"], row["base"]) > 0
        assert row["ratio"] > row["running"] > 0


@pytest.mark.rigs
def test_what_a_failure_does_is_told() -> None:
    """Of dagrun: the sibling ends, its child runs, the dependent does not. Polling never comes back."""
    [ours] = anyio.run(_answers, measures.failure, with_dagrun, {})
    [theirs] = anyio.run(_answers, measures.failure, polling, {})

    fates = ("ends", "ends", "not run")
    assert (ours["told"], ours["sibling"], ours["child"], ours["dependent"]) == ("returns", *fates)
    assert (ours["steps_alive"], ours["tasks_alive"]) == ([], 0)
    assert theirs["told"] == "never returns"


def test_a_step_that_outlives_its_run_is_told_to_end_late() -> None:
    """That is what an orphan is."""
    book = Book(began={"good": 1.0, "bad": 1.0}, ended={"good": 5.0}, stopped={"bad": 2.0})

    assert measures._fate(book, "good", returned=2.0) == "ends late"
    assert measures._fate(book, "good", returned=6.0) == "ends"
    assert measures._fate(book, "bad", returned=2.5) == "cancelled"
    assert measures._fate(book, "child", returned=2.5) == "not run"


def test_a_peer_without_an_environment_is_named() -> None:
    """A gap in a table must say what it is, and the rest goes on."""
    rows = [*compare.measure_cost(ABSENT, TINY), *compare.measure_makespan(ABSENT, TINY)]
    rows += compare.measure_failure(ABSENT, TINY)

    assert len(rows) == 3 + 2 + 1
    assert {row["trouble"] for row in rows} == {"no environment"}
    assert "no environment" in tables.cost_line(rows[0])
    assert "no environment" in tables.span_line(rows[3])
    assert "no environment" in tables.failure_line(rows[5])
    assert "does not run here: no environment" in tables.peer_line(compare.describe(ABSENT))


def test_what_a_slow_peer_is_not_asked_is_named() -> None:
    """Its small sizes are measured all the same."""
    slow = replace(next(peer for peer in PEERS if peer.adapter == "polling"), max_steps=1)

    rows = list(compare.measure_cost(slow, TINY))

    assert {(row["steps"], row["trouble"]) for row in rows} == {(10, "not asked: takes too long")}


def test_pipelines_are_told_without_bare_tasks() -> None:
    """They would double the time, and lose nothing that shows."""
    runs = [({"graph": 0, "makespan": 2.0, "took": {"a": 1.0}, "base": base}, _ONE) for base in (None, 1.5)]

    assert "bare" not in compare.sum_up(runs[:1])
    assert compare.sum_up(runs[1:])["bare"] == 1.5
    shown = tables.span_line({"peer": "some", "graph": "one"} | compare.sum_up(runs[:1]))
    assert shown.split() == ["some", "one", "1", "2.000", "s", "2.000", "2.000", "-"]


def test_an_environment_of_other_versions_is_none(tmp_path: Path) -> None:
    """A list of versions that was changed must not be shown beside figures of the old ones."""
    peer = next(peer for peer in PEERS if peer.environment)
    assert peer.requirements is not None
    home = tmp_path / str(peer.environment)
    home.mkdir()
    (home / COMPLETE).write_text(peer.requirements.read_text())
    assert python_of(peer, tmp_path) is not None

    (home / COMPLETE).write_text("something==1.0\n")

    assert python_of(peer, tmp_path) is None


def test_each_peer_has_its_adapter_and_exact_versions() -> None:
    """What the table of peers names is there."""
    for peer in PEERS:
        assert (HERE / "adapters" / f"{peer.adapter}.py").exists()
        if peer.requirements is not None:
            lines = [line for line in peer.requirements.read_text().splitlines() if not line.startswith("#")]
            assert lines
            assert all(line.count("==") == 1 and "/" not in line for line in lines)


@pytest.mark.rigs
def test_a_worker_that_dies_is_told_with_its_last_words() -> None:
    """And one that takes too long with its limit."""
    broken = Peer(name="broken", adapter="no_such_adapter", how="not at all")
    slow = next(peer for peer in PEERS if peer.adapter == "polling")
    graph = {"needs": {"a": ()}, "seconds": {"a": 60.0}}

    assert "no_such_adapter" in ask(broken, "failure", {}, limit=20).trouble
    report = ask(slow, "makespan", {"graphs": [graph], "repeats": 1}, limit=-28)  # 2 s after what a start gets

    assert report.trouble.startswith("over")


@pytest.mark.rigs
def test_the_recorded_results_are_drawn(kept: Path) -> None:
    """Both plots, in both kinds."""
    assert {path.name for path in kept.iterdir()} == {
        "peers.json",
        *(f"peers_{plot}.{kind}" for plot in ("cost", "makespan") for kind in ("png", "svg")),
    }


@pytest.mark.rigs
@pytest.mark.timeout(300)  # all measures, in processes, on real time
def test_the_comparison_is_printed_and_kept(tmp_path: Path) -> None:
    """Once through, as it is started from the command line."""
    options = ["--quick", "--only", "dagrun", "--out", str(tmp_path)]
    command = [sys.executable, "-m", "peers.compare", *options]

    done = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert all(len(line) <= 100 for line in done.stdout.splitlines())
    results = json.loads((tmp_path / "peers.json").read_text())
    assert {row["peer"] for row in results["cost"]} == {"dagrun"}
    assert {"date", "machine", "python", "versions"} <= results.keys()
    assert (tmp_path / "peers_cost.png").exists()
    assert (tmp_path / "peers_makespan.png").exists()

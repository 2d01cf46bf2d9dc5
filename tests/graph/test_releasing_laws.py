"""Releasing outputs changes nothing but what is held: on random plans, in which everything goes wrong, and in crashes.

The tools of the random cases give a hash of all that they got, so one wrong argument shows in every value behind it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

import pytest

import crash_cases
import random_cases
import splice_cases
from catching import Parts, survivors
from crashing import crash_everywhere
from dagrun import Drop, Replace
from dagrun.events import ReplanEnded, ReplanRequested, RunReopened
from dagrun.kernel.graph import output_eviction
from dagrun.kernel.graph.changes import apply
from dagrun.kernel.graph.fold import state_hash
from dagrun.kernel.model.outcome import Recovery
from dagrun.kernel.model.value import RELEASED
from random_cases import Case
from released import compare
from releasing_mutants import MUTANTS
from releasing_plays import TEXT, folded, gives, play, reads, released, trigger
from seeds import NIGHT, choose_seeds
from simulation import replaced

pytestmark = pytest.mark.rigs

# What a hundred seeds must exercise at least; about half of what they do. Below that the fuzzer has gone blind.
LEAST: Final = {"compared": 60, "released": 150}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Tools that break on purpose are logged as such."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def compared(make: Callable[[int], Case], seeds: Iterable[int]) -> Counter[str]:
    """Compare the cases of *seeds*; give counts of what they exercised."""
    done: Counter[str] = Counter()
    for seed in seeds:
        found = compare(make(seed))
        assert not found.problems, f"DAGRUN_SEED={seed}: " + "\n".join(found.problems[:5])
        done.update(found.counts)
    return done


def test_some_runs_are_the_same() -> None:
    """Every event, every argument and every value, but for patches that want what is gone."""
    done = compared(random_cases.make_case, range(4)) + compared(splice_cases.make_splice_case, range(3, 5))

    assert done["released"] > 10
    assert done["compared"] > 3


@pytest.mark.rigs
@pytest.mark.timeout(300)
@pytest.mark.parametrize("make", [random_cases.make_case, splice_cases.make_splice_case])
def test_many_runs_are_the_same(make: Callable[[int], Case]) -> None:
    seeds = choose_seeds(30, 4_000)

    done = compared(make, seeds)

    print(dict(done))
    assert all(done[what] >= least * len(seeds) / 100 for what, least in LEAST.items() if len(seeds) > 1)


def crashes(seeds: Iterable[int], part: float, backend: str = "trio") -> Iterator[str]:
    """Crash cases in which outputs are released, at a *part* of their instants, and go on; say what was wrong."""
    for seed in seeds:
        case = crash_cases.make_case(seed)
        case = replace(case, policy=case.policy.model_copy(update={"release_outputs": True}))
        report = crash_everywhere(case, backend=backend, part=part)
        yield from (f"DAGRUN_SEED={seed}, of {report.points} points: {problem}" for problem in report.broken)


def test_a_few_crashes_lose_nothing() -> None:
    """The state of a live run is that of its record, whatever was dropped here and is marked there."""
    assert list(crashes(range(12), 0.1)) == []


@pytest.mark.rigs
@pytest.mark.timeout(300)
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_many_crashes_lose_nothing(backend: str) -> None:
    seeds = range(1_000, 2_000 if NIGHT else 1_008)

    assert list(crashes(seeds, 0.3, backend)) == []


# Teeth ---------------------------------------------------------------------------------------------------------------


def random_runs(parts: Parts) -> Iterator[str]:
    """Random runs that are compared."""
    for seed in range(60):
        yield from compare(random_cases.make_case(seed), parts).problems
        yield from compare(splice_cases.make_splice_case(seed), parts).problems


def played(parts: Parts) -> Iterator[str]:
    """What a planner may name, and what a patch may hide."""
    with replaced(parts):
        yield from _asked()
        yield from _hidden()
        yield from _read()
        yield from _opened()


def _asked() -> Iterator[str]:
    run = play(reads("a"), reads("b", "a"), reads("x"), reads("y", "x"), reads("last", "b", "y"))
    gives(run, "a", "x")
    run.fail("b", Recovery.REPLAN)
    if released(run):
        yield "what a failed step has read is gone before the planner is asked"
        return
    run.apply(ReplanRequested, trigger("b"))
    gives(run, "y")
    if released(run):
        yield "what a planner has seen is gone while it thinks"
        return
    run.splice(Replace(id="b", step=reads("b2", "a", "x")))
    run.apply(ReplanEnded, 1, "applied", "", ("b",))


def _hidden() -> Iterator[str]:
    """A reader that failed and is dropped: what was looked at before is at another place then."""
    run = play(reads("a"), *(reads(id_, "a") for id_ in "bcd"), reads("last", "c", "d"))
    gives(run, "a")
    run.start("c")
    run.fail("b", Recovery.GIVE_UP)
    run.splice(Drop(id="b"))
    gives(run, "d")
    if released(run):
        yield "what c reads is gone before it has ended"
        return
    run.end("c", TEXT)
    if released(run) != {"a"}:
        yield "what nobody needs is held"


def _read() -> Iterator[str]:
    run = play(reads("a"), reads("b", "a"), reads("c", "b"))
    gives(run, "a")
    run.start("b")
    run.end("b", TEXT)
    if released(run) != {"a"}:
        yield "what nobody needs is held"
    if state_hash(folded(run)) != state_hash(run.graph):
        yield "the record gives another state"


def _opened() -> Iterator[str]:
    run = play(reads("a"), reads("b", "a"), reads("c", "b"), output="${c}")
    gives(run, "a", "b", "c")
    graph = folded(run)
    apply(graph, RunReopened(99, 99.0, ("b",), "in doubt"))
    output_eviction.drop_values(graph)  # by its module, where a mutant of it stands
    if graph.nodes["a"].value is RELEASED:
        yield "what is open again cannot be called"


def test_the_real_parts_pass_the_plays() -> None:
    """Otherwise that a mutant is caught by them says nothing."""
    assert list(played({})) == []


def crashed(parts: Parts) -> Iterator[str]:
    """Runs that are crashed and go on."""
    with replaced(parts):
        yield from crashes(range(40), 0.35)


@pytest.mark.rigs
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore")
def test_each_way_to_do_it_wrongly_is_noticed() -> None:
    """The proofs above are worth what they catch."""
    assert survivors([played, random_runs, crashed], MUTANTS) == []

"""Schedule fuzzing: random plans in random orders of tasks keep all rules, after every transition and at the end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from typing import Final

import pytest

from dagrun import Event, Plan, Step, run
from dagrun.events import AttemptEnded
from dagrun.kernel.runtime.record.record import Backlog
from fuzz import run_case
from graphs import work
from random_cases import make_case
from seeds import ONE_SEED, choose_seeds
from simulation import simulate

pytestmark = pytest.mark.rigs

# What a hundred seeds must exercise at least; about a third of what they do. Below that the fuzzer has gone blind.
LEAST: Final = {
    "attempts": 250,
    "expansions": 30,
    "cancels": 17,
    "succeeded": 150,
    "skipped": 120,
    "failed": 15,
    "timed_out": 5,
    "unknown": 20,
    "cancelled": 25,
    "abandoned": 1.5,
    "retry": 45,
    "fall_back": 25,
    "default": 3,
    "skip": 3,
    "stop": 1.1,
    "superseded": 4,
    "spliced by the host": 30,
    "spliced by the planner": 4,
    "replan stopped": 2.5,
    "ask": 0.3,
    "fresh runs": 6,
}


def fuzz(seeds: Iterable[int]) -> Counter[str]:
    """Run the cases of *seeds*; give counts of what they exercised."""
    done: Counter[str] = Counter()
    for seed in seeds:
        report = run_case(make_case(seed))
        assert not report.broken, f"DAGRUN_SEED={seed}: " + "\n".join(report.broken[:10])
        done.update(report.counts)
    return done


def test_some_seeds_keep_all_rules() -> None:
    """What breaks often is seen without waiting for the rig."""
    assert fuzz(range(40))["attempts"] > 100


def test_runs_whose_steps_are_settled_one_in_a_turn_keep_all_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """With all else that may happen meanwhile: splices, planners, people, and ends before the time."""
    monkeypatch.setattr(Backlog, "portion", 1)
    done = fuzz((*range(40), 153, 356, 820))  # in these a step fails in the turn in which all else has been skipped
    assert done["skipped"] > 40
    assert done["cancelled"] > 10


@pytest.mark.rigs(seconds=25)
def test_many_seeds_keep_all_rules() -> None:
    """Rare orders of rare events are where a scheduler breaks; that they were met is counted, not hoped."""
    seeds = choose_seeds(500, 30_000)
    done = fuzz(seeds)
    print(", ".join(f"{count} {what}" for what, count in done.most_common()))
    if ONE_SEED is None:
        met = {what: done[what] / len(seeds) * 100 for what in LEAST}
        assert not {what: rate for what, rate in met.items() if rate < LEAST[what]}, "the fuzzer has gone blind"


def test_a_seed_gives_the_same_trace_again() -> None:
    """A failing seed is worth something only if it fails again."""
    for seed in range(100, 112):
        assert run_case(make_case(seed)).trace == run_case(make_case(seed)).trace, seed


def test_another_seed_is_another_order() -> None:
    """The seed reaches the loop: steps that end at the same instant end in another order."""
    plan = Plan(steps=[Step(id=f"s{i}", tool="work", args={"seconds": 1}) for i in range(6)])

    async def main() -> tuple[str, ...]:
        events: list[Event] = []
        await run(plan, tools=[work], on_event=events.append)
        return tuple(event.step for event in events if isinstance(event, AttemptEnded))

    orders = [simulate(main, seed) for seed in range(20)]
    assert len(set(orders)) > 5
    assert orders == [simulate(main, seed) for seed in range(20)]


@pytest.mark.rigs
def test_a_seed_gives_the_same_trace_in_another_process() -> None:
    """No order of a set, no address in memory and no hash of a text decides anything."""
    program = (
        "from fuzz import run_case; from random_cases import make_case; from splice_cases import make_splice_case\n"
        "for seed in range(60): print(run_case(make_case(seed)).trace)\n"
        "for seed in range(30): print(run_case(make_splice_case(seed)).trace)"
    )
    path = os.pathsep.join(sys.path)
    traces = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hash_seed in ("0", "1", "random")
    }
    assert len(traces) == 1
    assert len(traces.pop().split()) == 90

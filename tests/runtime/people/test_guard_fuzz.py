"""A hostile planner against the people of random runs: no guarded call is made without a yes that covers it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

import pytest

from catching import Parts, chosen_mutants, first_catch
from dagrun.kernel.graph.patches.guards import removed_approvals
from guard_cases import IMPOSSIBLE, NAMES, ROUND, WAYS, make_guard_case
from guard_doors import STORIES, tell
from guard_mutants import GUARD_MUTANTS, no_loss
from guard_rig import described, run_guards, shrunk
from guard_targets import GUARDS
from seeds import NIGHT, ONE_SEED, choose_seeds
from simulation import replaced, simulate

pytestmark = pytest.mark.rigs

STRIDE: Final = 9  # has no factor in common with the numbers of ways, guards and attacks: neighbours differ in all
BY_DAY: Final = 600  # of these cases, in which every two of a way, a guard and an attack meet

# What a hundred seeds must exercise at least; about half of what they do. Below that the rig has gone blind.
LEAST: Final = {
    "calls": 30,
    "spliced": 180,
    "asked: approval": 45,
    "asked: pause": 55,
    "asked: patch": 20,
    "asked: input": 1,
    "asked: element by element": 2,
    "yes: approval": 12,
    "yes: pause": 17,
    "yes: patch": 10,
    "yes: input": 0.3,
    "refused: DR411": 5,
    "resumed": 6,
    "retried": 6,
    "loop: asyncio": 35,
    "loop: trio": 35,
}


def fuzz(seeds: Iterable[int]) -> Counter[str]:
    """Run the cases of *seeds*; return counts of what they exercised. The first failure is made small and told."""
    done: Counter[str] = Counter()
    for seed in seeds:
        case = make_guard_case(seed)
        report = run_guards(case)
        assert not report.broken, f"DAGRUN_SEED={seed}: {report.broken[0]}\n\n{described(shrunk(case))}"
        done.update(report.counts)
    return done


def test_some_seeds_let_nobody_round() -> None:
    """What breaks often is seen without waiting for the rig."""
    done = fuzz(range(0, ROUND, STRIDE))

    assert done["calls"] > 40
    assert sum(name.startswith("met: ") for name in done) > 150


@pytest.mark.rigs(seconds=50)
def test_many_seeds_let_nobody_round() -> None:
    """Twenty thousand at night. That each way in met each guard and each attack is counted, not hoped."""
    seeds: Sequence[int] = choose_seeds(ROUND, 20_000)
    if not NIGHT and ONE_SEED is None:
        seeds = [number * STRIDE % ROUND for number in range(BY_DAY)]
    done = fuzz(seeds)
    print(", ".join(f"{count} {what}" for what, count in done.most_common() if not what.startswith(("met", "pair"))))
    if ONE_SEED is not None:
        return
    assert sum(name.startswith("met: ") for name in done) > 0.9 * min(ROUND, len(seeds))
    found = {what: done[what] / len(seeds) * 100 for what in LEAST}
    assert not {what: rate for what, rate in found.items() if rate < LEAST[what]}, "the rig has gone blind"
    wanted = {f"pair: {one}, {other}" for one, other in pairs()}
    assert wanted <= done.keys(), f"never met: {sorted(wanted - done.keys())}"


def pairs() -> Iterable[tuple[str, str]]:
    """Every two of a way in, a guard and an attack that can meet."""
    yield from itertools.product(WAYS, GUARDS)
    yield from itertools.product(GUARDS, NAMES)
    for way, attack in itertools.product(WAYS, NAMES):
        if (way, GUARDS[0], attack) not in IMPOSSIBLE:
            yield way, attack


def test_a_seed_gives_the_same_story_again() -> None:
    """A failing seed is worth something only if it fails again."""
    for seed in range(100, 112):
        case = make_guard_case(seed)
        assert described(run_guards(case)) == described(run_guards(case)), seed


def test_a_failing_case_is_told_as_a_small_story() -> None:
    """Whoever reads it sees what was proposed, who was asked and what was called, and nothing that does not matter."""
    parts = {removed_approvals: no_loss}
    case = next(case for seed in range(500) if run_guards(case := make_guard_case(seed), parts).violations)

    report = shrunk(case, parts)

    assert report.kinds & run_guards(case, parts).kinds
    assert len(report.case.messages) <= len(case.messages)
    assert all(what in described(report) for what in ("first plan by", "carried out", "CALLED", f"seed {case.seed}"))


def guarded(parts: Parts) -> Iterator[str]:
    """Say what is wrong in random runs, with these parts of the engine replaced."""
    for number in range(ROUND):
        seed = number * STRIDE % ROUND
        yield from (f"seed {seed}: {problem}" for problem in run_guards(make_guard_case(seed), parts).broken)


def told(parts: Parts) -> Iterator[str]:
    """Say what is wrong in the stories: they are rare among random runs."""
    for story in STORIES:
        try:
            with replaced(parts):
                outcome = simulate(partial(tell, story), 0)
        except TimeoutError:
            yield f"{story.name}: it does not end"
            continue
        if tuple(outcome.paid) != story.paid:
            yield f"{story.name}: {outcome.paid}"


@pytest.mark.rigs(seconds=10)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", chosen_mutants(GUARD_MUTANTS))
@pytest.mark.bad_records
def test_every_mutant_is_caught(name: str) -> None:
    """A hole of each of these kinds cannot come back unnoticed. That the real gate has none, the seeds say."""
    assert first_catch((told, guarded), GUARD_MUTANTS[name])

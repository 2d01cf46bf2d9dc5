"""Laws of scheduling, each for random graphs on virtual time, where they hold exactly."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

import pytest

from dagrun import Plan, Policy, PoolLimits, Step
from graphs import Graph, list_schedule, make_graph, makespan_bounds, other_work
from schedules import BACKENDS, bad_choices, schedule
from seeds import choose_seeds

pytestmark = pytest.mark.rigs

EXACT: Final = 1e-6

Law = Callable[[int, str], None]


def free_runs_take_the_critical_path(seed: int, backend: str) -> None:
    """With nothing limited, each step starts the moment the last of its dependencies ends, once, and nothing waits."""
    graph = make_graph(seed)
    made = schedule(graph, backend)
    assert made.makespan == pytest.approx(graph.critical_path, abs=EXACT), graph.name
    assert list(made.started) == sorted(made.started, key=lambda id_: made.started[id_])
    for id_, needed in graph.needs.items():
        begin = max((made.ended[need][0] for need in needed), default=0.0)
        assert made.started[id_] == [pytest.approx(begin, abs=EXACT)], (graph.name, id_)
        assert made.ended[id_] == [pytest.approx(begin + graph.seconds[id_], abs=EXACT)], (graph.name, id_)


def slots_are_never_idle_nor_exceeded(seed: int, backend: str) -> None:
    """With k slots no more than k run, none is idle while a step is ready, and Graham's bounds hold."""
    graph, slots = make_graph(seed), random.Random(seed).randint(1, 5)
    made = schedule(graph, backend, Policy(max_running=slots), estimate=graph.seconds)
    assert not list(bad_choices(made, graph.longest_paths())), graph.name
    least, most = makespan_bounds(graph.work, graph.critical_path, slots)
    assert least - EXACT <= made.makespan <= most + EXACT, graph.name


def slots_go_to_the_longest_path(seed: int, backend: str) -> None:
    """Where no two things happen at once there is one right schedule: a slow and simple scheduler finds it too."""
    graph, slots = make_graph(seed, ties=False), random.Random(seed).randint(1, 4)
    made = schedule(graph, backend, Policy(max_running=slots), estimate=graph.seconds)
    wanted = list_schedule(graph, slots, graph.longest_paths())
    assert {id_: times[0] for id_, times in made.started.items()} == pytest.approx(wanted, abs=EXACT), graph.name


def without_estimates_hops_count(seed: int, backend: str) -> None:
    """Where nobody knows how long steps take, the path with the most steps goes first, then the order of the plan."""
    graph, slots = make_graph(seed, ties=False), random.Random(seed).randint(1, 4)
    hops = replace(graph, seconds=dict.fromkeys(graph.seconds, 1.0)).longest_paths()
    made = schedule(graph, backend, Policy(max_running=slots))
    wanted = list_schedule(graph, slots, hops)
    assert {id_: times[0] for id_, times in made.started.items()} == pytest.approx(wanted, abs=EXACT), graph.name


def several_limits_hold_at_once(seed: int, backend: str) -> None:
    """A step waits only while a limit that counts it is full; one that is kept back keeps nobody else back."""
    graph, rng = make_graph(seed), random.Random(seed)
    policy = Policy(
        max_running=rng.choice((None, 2, 4)),
        max_running_by_tool={other_work.name: rng.randint(1, 2)} if rng.random() < 0.7 else {},
        pools={pool: PoolLimits(max_running=rng.randint(1, 3)) for pool in "ab" if rng.random() < 0.7},
    )
    # In pairs, so that steps which are limited twice meet steps which are limited once or not at all.
    tools = {id_: other_work.name for id_ in graph.needs if rng.random() < 0.5}
    pools = {id_: rng.choice("abc") for id_ in graph.needs if rng.random() < 0.6}
    made = schedule(graph, backend, policy, tool=tools, pool=pools, estimate=graph.seconds)
    is_limited = policy != Policy()
    found = list(bad_choices(made, graph.longest_paths()))
    # Without any limit there is no order to keep, but a step still must not wait.
    assert not [text for text in found if is_limited or "preferred" not in text], (graph.name, policy, found[:3])
    assert all(len(times) == 1 for times in made.started.values()), graph.name


LAWS: Final[tuple[Law, ...]] = (
    free_runs_take_the_critical_path,
    slots_are_never_idle_nor_exceeded,
    slots_go_to_the_longest_path,
    without_estimates_hops_count,
    several_limits_hold_at_once,
)


def keep(law: Law, seeds: Iterable[int], backend: str) -> None:
    """Try *law* on many graphs."""
    for seed in seeds:
        try:
            law(seed, backend)
        except Exception as error:
            error.add_note(f"law {law.__name__} on {backend}, DAGRUN_SEED={seed}")
            raise


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_law_on_some_graphs(law: Law, backend: str) -> None:
    """A law that breaks often is seen without waiting for the rigs."""
    keep(law, range(20), backend)


@pytest.mark.rigs
@pytest.mark.parametrize("backend", BACKENDS)
def test_many_free_graphs_take_their_critical_paths(backend: str) -> None:
    """The first promise of dagrun; for ten thousand graphs at night."""
    keep(free_runs_take_the_critical_path, choose_seeds(300, 10_000), backend)


@pytest.mark.rigs
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("law", LAWS[1:], ids=lambda law: law.__name__)
def test_law_on_many_graphs(law: Law, backend: str) -> None:
    """Rare coincidences of limits and durations are where a slot is lost."""
    keep(law, choose_seeds(80, 5_000), backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_equal_steps_start_in_the_order_of_the_plan(backend: str) -> None:
    """Nothing but the plan decides between equals: no hash, no order of completion."""
    ids = [f"s{i}" for i in random.Random(3).sample(range(50), 12)]
    graph = Graph("equals", dict.fromkeys(ids, ()), dict.fromkeys(ids, 1.0))
    made = schedule(graph, backend, Policy(max_running=1))
    assert list(made.started) == ids


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_longer_path_overtakes_what_was_ready_before(backend: str) -> None:
    """First come, first served would start `early` while `long`, which most of the work waits for, is ready."""
    steps = [
        Step(id="opener", tool="work", args={"seconds": 1}, estimate=1),
        Step(id="early", tool="work", args={"seconds": 1}, estimate=1),
        Step(id="long", tool="work", args={"seconds": 1}, estimate=1, depends_on=["opener"]),
        Step(id="tail", tool="work", args={"seconds": 5}, estimate=5, depends_on=["long"]),
    ]
    made = schedule(Plan(steps=steps), backend, Policy(max_running=1))
    assert list(made.started) == ["opener", "long", "tail", "early"]


def test_the_judge_of_schedules_is_not_blind() -> None:
    """A schedule that starts the wrong step, or leaves a slot idle, is found out."""
    ids = ["a", "b", "c"]
    graph = Graph("three", dict.fromkeys(ids, ()), dict.fromkeys(ids, 1.0))
    made = schedule(graph, "trio", Policy(max_running=1))
    assert not list(bad_choices(made, {"a": 3, "b": 2, "c": 1}))
    assert list(bad_choices(made, {"a": 1, "b": 2, "c": 1})) == ["a was preferred to b, at 0.0"]
    made.plan = schedule(graph, "trio", Policy(max_running=2)).plan
    assert any("it waited" in text for text in bad_choices(made, {"a": 3, "b": 2, "c": 1}))

"""A step for which very many wait: they are told in portions, and nobody can tell that from telling all at once.

What is compared: the same random plans, changed and stopped while they run, with a graph that tells one step at a time,
and with the plain one; and each run with the record of it, folded into a plain graph.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import anyio
import pytest

import dagrun
from acts import STAGE, TOOLS, Stage
from dagrun import Add, Drop, Event, Plan, Policy, Step
from dagrun.api import check
from dagrun.errors import SpliceRefused
from dagrun.graph.building import build, kind_of
from dagrun.graph.critical import Expected
from dagrun.graph.fans import FanningGraph, ReleasingFanningGraph
from dagrun.graph.fold import state_hash
from dagrun.graph.frontier import Frontier
from dagrun.graph.live import LiveGraph
from dagrun.graph.node import Node
from dagrun.graph.releasing import ReleasingGraph
from dagrun.model.event import AttemptEnded, AttemptStarted, GoalChanged, Progress, RunStarted
from dagrun.model.outcome import PROCEED, Outcome, State
from dagrun.model.patch import Patch
from dagrun.model.value import RELEASED, encode
from random_cases import make_case
from simulation import replaced, simulate

SEEDS = 40


class Small(FanningGraph):
    """Tells one step at a time, wherever any wait."""

    many = 0
    portion = 1


class Pairs(Small):
    """Tells two at a time."""

    portion = 2


class SmallReleasing(ReleasingFanningGraph):
    """The same, and lets go of what nobody needs any more."""

    many = 0
    portion = 1


class Nobody(Frontier):
    """Where ready steps go when nobody takes them."""

    may_count_later = False

    def push(self, node: Node) -> None:
        """Forget it."""


@dataclass
class Played:
    """One run.

    Attributes:
        graph: Its state, at its end.
        seen: Its events.
        delayed: How often something happened while some steps had still to be told.
    """

    graph: LiveGraph
    seen: list[Event]
    delayed: int


def _play(seed: int, kind: type[LiveGraph]) -> Played:
    """Run the plan of *seed*, with a graph of that kind; change it, and maybe stop it, while it runs."""
    case = make_case(seed)
    made: list[Any] = []
    seen: list[Event] = []
    policy = case.policy.model_copy(
        update={"max_running": None, "max_running_by_tool": {}, "max_running_by_pool": {}, "hedge": None}
    )
    steps = tuple(step.model_copy(update={"max_parallel": None}) for step in case.plan.steps)
    plan = check(case.plan.model_copy(update={"steps": steps}), TOOLS, policy=policy)

    class Watched(kind):  # type: ignore[misc, valid-type]
        delayed = 0

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            made.append(self)

        def apply(self, event: Event, node: Node | None = None) -> None:
            super().apply(event, node)
            self.delayed += bool(getattr(self, "fans", 0))

    async def play() -> None:
        STAGE.set(Stage())
        async with dagrun.start(plan, run_id="run", seed=seed, on_event=seen.append) as run:
            await _trouble(run, case.plan, random.Random(seed))
            with anyio.fail_after(100_000):
                await run.result()

    with replaced({LiveGraph: Watched}):
        simulate(play, seed)
    return Played(made[0], seen, made[0].delayed)


async def _trouble(run: dagrun.Run, plan: Plan, rng: random.Random) -> None:
    ids = [step.id for step in plan.steps]
    for n in range(3):
        await anyio.sleep(rng.choice((0.11, 0.27, 0.63, 1.06)))  # beside the grid on which steps end
        if run.has_ended:
            return
        needs = tuple(rng.sample(ids, min(3, len(ids))))
        edits: list[Any] = [Add(step=rng.choice(plan.steps).model_copy(update={"id": f"x{n}", "depends_on": needs}))]
        edits += [Drop(id=rng.choice(ids))] if rng.random() < 0.5 else []
        with suppress(SpliceRefused):
            await run.splice(Patch(edits=tuple(edits)))
        if n == 2 and rng.random() < 0.3:
            run.cancel(rng.choice((None, rng.choice(ids))))


def _folded(played: Played) -> LiveGraph:
    again = LiveGraph(played.graph.plan, played.graph.inputs, Nobody())
    for event in played.seen:
        if not isinstance(event, Progress):
            again.apply(event)
    return again


@pytest.mark.rigs
@pytest.mark.parametrize("seeds", [range(n, n + 10) for n in range(0, SEEDS, 10)], ids=str)
def test_runs_end_as_with_all_told_at_once_and_as_their_record_says(seeds: range) -> None:
    """With failures, retries, for_each, steps that are left out, patches and cancellations in between."""
    delayed = 0
    for seed in seeds:
        plain, small = _play(seed, LiveGraph), _play(seed, Small)
        assert _ends(small.graph) == _ends(plain.graph), seed
        assert state_hash(_folded(small)) == state_hash(small.graph), seed
        delayed += small.delayed
    assert delayed > 20  # else nothing was told later, and nothing is shown


@pytest.mark.rigs
def test_what_is_released_is_the_same_however_steps_are_told() -> None:
    """A step that has not been told yet has not read what it waits for."""
    delayed = gone = 0
    for seed in range(20):
        plain, small = _play(seed, ReleasingGraph), _play(seed, SmallReleasing)
        assert _ends(small.graph) == _ends(plain.graph), seed
        assert _released(small.graph) == _released(plain.graph), seed
        delayed += small.delayed
        gone += len(_released(small.graph))
    assert delayed > 20
    assert gone > 20


def _released(graph: LiveGraph) -> set[str]:
    return {id_ for id_, node in graph.nodes.items() if node.value is RELEASED}


def _ends(graph: LiveGraph) -> tuple[object, dict[str, str]]:
    return graph.status, {id_: str(node.state) for id_, node in graph.nodes.items()}


@dagrun.tool(effect="pure")
async def gives() -> str:
    """Give something."""
    return "x"


# By hand --------------------------------------------------------------------------------------------------------------


def _begun(plan: Plan, kind: type[FanningGraph] = Small) -> FanningGraph:
    checked = check(plan, [gives])
    graph = kind(checked, encode({}), Frontier())
    graph.apply(RunStarted(1, 0.0, "run", len(checked.steps), "", 0.0))
    return graph


def _wide(count: int = 5, *others: Step) -> Plan:
    return Plan(
        steps=[
            Step(id="hub", tool="gives"),
            *others,
            *(Step(id=f"s{n}", tool="gives", depends_on=("hub", *(o.id for o in others))) for n in range(count)),
        ]
    )


def _end(graph: FanningGraph, node: Node | None, seq: Iterator[int]) -> str:
    assert node is not None
    graph.apply(AttemptStarted(next(seq), 0.0, node.id, 1, node.tool.name))
    outcome = Outcome(State.SUCCEEDED, encode("x"))
    graph.apply(AttemptEnded(next(seq), 0.0, node.id, 1, State.SUCCEEDED, outcome, PROCEED))
    return node.id


@pytest.mark.parametrize("kind", [Small, Pairs])
def test_what_is_behind_a_fan_in_line_stays_behind_it(kind: type[FanningGraph]) -> None:
    """First ready, first started: that a step was told late does not cost it its place."""
    graph, seq = _begun(_wide(), kind), iter(range(2, 100))
    _end(graph, graph.frontier.take(), seq)
    assert graph.fans == 1
    first = graph.frontier.take()
    graph.frontier.push(graph._nodes["hub"])  # stands for whatever has become ready meanwhile
    graph._nodes["hub"].state = State.READY

    order = [node.id for node in iter(graph.frontier.take, None)]

    assert first is not None
    assert [first.id, *order] == ["s0", "s1", "s2", "s3", "s4", "hub"]
    assert graph.fans == 0


def test_whoever_looks_at_the_steps_sees_all_of_them_told() -> None:
    """A host, a planner, a patch that is checked: they know nothing of portions."""
    graph, seq = _begun(_wide()), iter(range(2, 100))
    _end(graph, graph.frontier.take(), seq)
    assert graph.fans == 1

    states = {id_: str(node.state) for id_, node in graph.nodes.items()}

    assert states == {"hub": "succeeded"} | {f"s{n}": "ready" for n in range(5)}
    assert [node.id for node in iter(graph.frontier.take, None)] == [f"s{n}" for n in range(5)]


def test_what_waits_for_another_step_as_well_holds_nobody_up() -> None:
    """Nothing behind the hub is ready: what is behind it in line is taken at once, and the loop gets its turn."""
    graph, seq = _begun(_wide(5, Step(id="slow", tool="gives"), Step(id="other", tool="gives"))), iter(range(2, 100))
    line = [graph.frontier.take() for _ in range(2)]
    _end(graph, line[0], seq)
    graph.frontier._queue.rotate(1)  # the hub's first, then the step that is ready

    other = graph.frontier.take()
    nothing = [graph.frontier.take() for _ in range(3)]

    assert other is not None
    assert other.id == "other"
    assert nothing == [None] * 3
    assert graph.frontier.is_counting
    _end(graph, other, seq)
    _end(graph, line[1], seq)
    found = [_end(graph, node, seq) for _ in range(40) if (node := graph.frontier.take()) is not None]
    assert sorted(found) == [f"s{n}" for n in range(5)]
    assert not graph.frontier.is_counting


@pytest.mark.anyio
async def test_a_worker_goes_on_telling_when_nobody_is_ready_yet() -> None:
    """Two hubs end, and nothing else is left to wake anybody."""
    with replaced({LiveGraph: Small}):
        result = await dagrun.run(
            _wide(30, Step(id="two", tool="gives"), Step(id="three", tool="gives")), tools=[gives]
        )
    assert result.status == "succeeded"
    assert len(result.steps) == 33


def test_only_plans_in_which_very_many_wait_for_one_step_have_such_a_graph() -> None:
    """All others pay nothing; and where order matters, the best of them all is to come first."""
    wide, narrow = (check(_wide(count), [gives]) for count in (FanningGraph.many + 1, 5))
    assert kind_of(wide) is FanningGraph
    assert kind_of(narrow) is LiveGraph
    assert kind_of(replace(wide, policy=Policy(release_outputs=True))) is ReleasingFanningGraph
    assert type(build(wide, encode({}), None, Expected(wide)).graph) is FanningGraph


def test_under_a_cap_all_are_told_at_once() -> None:
    """The longest of them comes first, and that may be the last."""
    checked = check(_wide(), [gives], policy=Policy(max_running=2))
    graph = Small(checked, encode({}), Frontier(None, {"s4": 5.0}))
    graph.apply(RunStarted(1, 0.0, "run", len(checked.steps), "", 0.0))
    seq = iter(range(2, 100))
    _end(graph, graph.frontier.take(), seq)

    first = graph.frontier.take()

    assert graph.fans == 0
    assert first is not None
    assert first.id == "s4"


def _is_blocked(graph: FanningGraph) -> bool:
    return {str(node.state) for id_, node in graph.nodes.items() if id_ != "hub"} == {"blocked"}


@pytest.mark.parametrize("is_before", [True, False])
def test_a_changed_goal_stops_those_who_were_not_told_as_well(is_before: bool) -> None:
    """Whether it comes before the hub has ended, or right after."""
    graph, seq = _begun(_wide()), iter(range(2, 100))
    hub = graph.frontier.take()
    if is_before:
        graph.apply(GoalChanged(next(seq), 0.0, "another"))
    _end(graph, hub, seq)
    if not is_before:
        graph.apply(GoalChanged(next(seq), 0.0, "another"))

    assert _is_blocked(graph)
    assert graph.frontier.take() is None


def test_what_waits_for_a_person_is_told_at_once_and_waits() -> None:
    """The hub has ended well, and somebody is to look at it first."""
    plan = _wide()
    steps = (plan.steps[0].model_copy(update={"pause": "after"}), *plan.steps[1:])
    graph, seq = _begun(plan.model_copy(update={"steps": steps})), iter(range(2, 100))
    _end(graph, graph.frontier.take(), seq)

    assert graph.fans == 0
    assert _is_blocked(graph)


def test_a_record_that_is_folded_tells_all_at_once() -> None:
    """Nobody takes steps meanwhile, and when somebody does, it is from another line."""
    checked = check(_wide(), [gives])
    graph = Small(checked, encode({}), Nobody())
    graph.apply(RunStarted(1, 0.0, "run", len(checked.steps), "", 0.0))
    _end(graph, graph._nodes["hub"], iter(range(2, 100)))

    assert graph.fans == 0
    assert {str(node.state) for node in graph._nodes.values()} == {"succeeded", "ready"}


# Building -------------------------------------------------------------------------------------------------------------


def test_small_collections_come_in_time_while_a_graph_is_built() -> None:
    """They come when more has been made than freed: lists in place of freed ones would all be left to the next one.

    That comes in the loop, looks at every one of them, and takes 0.1 s for a million steps.
    """
    steps = [Step(id=f"s{n}", tool="gives", depends_on=(f"s{n - 1}",) if n else ()) for n in range(20_000)]
    checked = check(Plan(steps=steps), [gives], policy=Policy())
    gc.collect()

    graph = LiveGraph(checked, encode({}), Frontier())

    assert len(gc.get_objects(generation=0)) < 5_000
    assert len(graph.nodes) == 20_000

"""A step that has not succeeded, for which very many wait: they are told in portions, by whoever skips them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

import dagrun
from dagrun import Plan, RetryRule, RunResult, Step
from dagrun.graph.fans import FanningGraph
from dagrun.graph.live import LiveGraph
from dagrun.graph.node import Node
from dagrun.model.event import AttemptEnded, AttemptStarted, GoalChanged
from dagrun.model.outcome import Decision, ErrorKind, Failure, Outcome, Recovery, State
from dagrun.runtime.skips import Skips
from dagrun.runtime.sweep import Sweep
from simulation import replaced
from test_fans import Pairs, Small, _begun, _is_blocked, _wide


class OneByOne(Skips):
    """Skips one step at a time."""

    portion = 1


@dagrun.tool(effect="pure")
async def waits(turns: int = 0) -> None:
    """Wait until it is told to stop, and for some more turns of the loop."""
    try:
        await anyio.sleep_forever()
    finally:
        with anyio.CancelScope(shield=True):
            for _ in range(turns):
                await checkpoint()


@dagrun.tool(effect="read")
async def breaks(seconds: float = 0.0) -> str:
    """Fail after a while."""
    await anyio.sleep(seconds)
    raise ValueError("broken")


@dagrun.tool(effect="pure")
async def takes(text: str) -> str:
    """Give what it takes."""
    return text


def _fail(graph: FanningGraph, seq: Iterator[int], recovery: Recovery = Recovery.GIVE_UP) -> Node:
    """Let the hub fail."""
    node = graph.frontier.take()
    assert node is not None
    graph.apply(AttemptStarted(next(seq), 0.0, node.id, 1, node.tool.name))
    outcome = Outcome(State.FAILED, None, Failure(ErrorKind.TOOL, "broken"))
    graph.apply(AttemptEnded(next(seq), 0.0, node.id, 1, State.FAILED, outcome, Decision(recovery)))
    return node


def _known(graph: FanningGraph) -> list[str]:
    """Where those stand that wait for the hub, without having them told."""
    return [str(node.state) for id_, node in graph._nodes.items() if id_ != "hub"]


@pytest.mark.parametrize(("kind", "portion"), [(Small, 1), (Pairs, 2)])
def test_who_waits_for_what_has_failed_is_told_when_somebody_comes_to_it(
    kind: type[FanningGraph], portion: int
) -> None:
    """Whoever skips them, say: each knows by then that it is blocked, and most of the rest do not."""
    graph, seq = _begun(_wide(), kind), iter(range(2, 100))
    hub = _fail(graph, seq)
    assert _known(graph) == ["waiting"] * 5

    told = graph.told(hub)
    for number, node in enumerate(told, 1):
        assert (node.id, node.state) == (f"s{number - 1}", State.BLOCKED)
        assert _known(graph).count("blocked") <= number + portion - 1

    assert number == 5
    assert graph.fans == 0
    assert [node.missing for node in graph.nodes.values()] == [0] * 6


def test_whoever_looks_meanwhile_sees_all_of_them_told_and_none_is_left_out() -> None:
    """Nor is any told twice."""
    graph, seq = _begun(_wide()), iter(range(2, 100))
    told = iter(graph.told(_fail(graph, seq)))
    next(told)
    assert _known(graph) == ["blocked", *["waiting"] * 4]

    assert _is_blocked(graph)
    assert [node.id for node in told] == [f"s{n}" for n in range(1, 5)]
    assert [node.missing for node in graph.nodes.values()] == [0] * 6
    assert graph.fans == 0


def test_what_only_waits_for_the_end_of_a_failed_step_becomes_ready_when_it_is_told() -> None:
    """Its failure is tolerated; what has been come to can start, the rest is still to be told."""
    graph, seq = _begun(_wide()), iter(range(2, 100))
    told = iter(graph.told(_fail(graph, seq, Recovery.SKIP)))
    next(told)
    next(told)

    found = [node.id for node in iter(graph.frontier.take, None)]
    assert found == ["s0", "s1"]
    assert [node.id for node in told] == ["s2", "s3", "s4"]
    assert [node.id for node in iter(graph.frontier.take, None)] == ["s2", "s3", "s4"]


def test_a_changed_goal_finds_those_told_who_wait_for_what_has_failed() -> None:
    graph, seq = _begun(_wide()), iter(range(2, 100))
    _fail(graph, seq)
    graph.apply(GoalChanged(next(seq), 0.0, "another"))
    assert _known(graph) == ["blocked"] * 5


def test_what_the_planner_is_to_look_at_is_told_at_once() -> None:
    """Those behind it wait for its answer, and nobody comes to skip them."""
    graph, seq = _begun(_wide()), iter(range(2, 100))
    _fail(graph, seq, Recovery.REPLAN)
    assert graph.fans == 0
    assert _known(graph) == ["blocked"] * 5


@pytest.mark.anyio
@pytest.mark.parametrize("on_failure", [None, "skip"])
@pytest.mark.parametrize("is_read", [True, False])
async def test_a_hub_that_fails_takes_along_what_it_would_at_once(on_failure: Any, is_read: bool) -> None:
    """Steps that need what it gives are skipped; where its failure is tolerated, those that only come after it run."""
    hub = Step(id="hub", tool="breaks", on_failure=on_failure, retry=RetryRule(max_attempts=1))
    args = {"text": "${hub}"} if is_read else {"text": "x"}
    steps = [hub, *(Step(id=f"s{n}", tool="takes", args=args, depends_on=("hub",)) for n in range(30))]
    tools = [breaks, takes]
    plain = await dagrun.run(Plan(steps=steps), tools=tools)
    with replaced({LiveGraph: Small, Skips: OneByOne}):
        small = await dagrun.run(Plan(steps=steps), tools=tools)

    assert (small.status, small.reason) == (plain.status, plain.reason)
    ends = [{id_: (str(step.state), step.reason) for id_, step in result.steps.items()} for result in (plain, small)]
    assert ends[0] == ends[1]
    ran = on_failure == "skip" and not is_read
    assert {state for id_, (state, _) in ends[1].items() if id_ != "hub"} == {"succeeded" if ran else "skipped"}


async def _most_told(hub: Step, act: Callable[[dagrun.Run], object]) -> tuple[int, Small, RunResult]:
    """Run a hub with thirty steps behind it, and *act* while it is at work.

    Returns:
        How many of the thirty were told in a turn of the loop, at most; the state at the end, and the result.
    """
    made: list[Small] = []

    class Kept(Small):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            made.append(self)

    steps = [hub, *(Step(id=f"s{n}", tool="waits", depends_on=("hub",)) for n in range(30))]
    most, before = 0, 30
    with replaced({LiveGraph: Kept}):
        async with dagrun.start(Plan(steps=steps), tools=[waits, breaks]) as running:
            await anyio.sleep(0.1)
            act(running)
            while before:
                now = sum(node.missing for node in made[0]._nodes.values())
                most, before = max(most, before - now), now
                await checkpoint()
            result = await running.result()
    return most, made[0], result


@pytest.mark.anyio
@pytest.mark.parametrize("portion", [1, 500], ids=["swept in portions", "swept at once"])
@pytest.mark.parametrize("turns", range(0, 150, 3))
async def test_a_hub_that_is_cancelled_tells_those_behind_it(
    portion: int, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In portions where the rest is settled so, whether it stops before that, amid it or after it."""
    monkeypatch.setattr(Sweep, "portion", portion)
    monkeypatch.setattr(Skips, "portion", portion)
    hub = Step(id="hub", tool="waits", args={"turns": turns})
    most, graph, result = await _most_told(hub, lambda running: running.cancel(reason="enough"))

    assert {str(step.state) for step in result.steps.values()} == {"cancelled"}
    assert graph.fans == 0
    assert not any(node.missing for node in graph._nodes.values())
    assert most <= 2 or portion > 1  # on trio, who is first in a turn is left to chance


@pytest.mark.anyio
async def test_a_hub_whose_failure_ends_the_run_tells_those_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sweep that this begins does so, in portions."""
    monkeypatch.setattr(Sweep, "portion", 1)
    monkeypatch.setattr(Skips, "portion", 1)
    hub = Step(id="hub", tool="breaks", args={"seconds": 0.1}, on_failure="stop", retry=RetryRule(max_attempts=1))
    most, graph, result = await _most_told(hub, lambda _: None)

    assert (result.status, result.reason) == ("failed", "hub failed, and its on_failure is stop")
    assert graph.fans == 0
    assert most <= 3

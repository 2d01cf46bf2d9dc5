"""Waves: every generation waits for the whole generation before it, and nothing else changes."""

from typing import Any

import anyio
import networkx as nx
import pytest

import dagrun
from dagrun import RunResult, State
from dagrun.kernel.checks.waves import generations, in_waves
from graphs import Graph, make_graph, work

pytestmark = pytest.mark.anyio


@dagrun.tool(effect="read")
async def fail(seconds: float = 0) -> float:
    await anyio.sleep(seconds)
    raise dagrun.ToolError("no")


async def both_ways(plan: dagrun.Plan) -> tuple[RunResult, RunResult]:
    checked = dagrun.check(plan, [work, fail])
    return await dagrun.run(checked), await dagrun.run(in_waves(checked))


def wave_makespan(graph: Graph) -> float:
    """Compute the makespan by its definition: the sum of the longest step of each generation."""
    plain: nx.DiGraph[str] = nx.DiGraph()
    plain.add_nodes_from(graph.needs)
    plain.add_edges_from((need, id_) for id_, needs in graph.needs.items() for need in needs)
    return sum(max(graph.seconds[id_] for id_ in wave) for wave in nx.topological_generations(plain))


async def test_makespan_is_the_sum_of_the_longest_steps() -> None:
    for graph in map(make_graph, range(15)):
        ready, waves = await both_ways(graph.plan())

        assert ready.makespan == pytest.approx(graph.critical_path), graph.name
        assert waves.makespan == pytest.approx(wave_makespan(graph)), graph.name


async def test_answer_and_critical_path_stay_those_of_the_plan() -> None:
    """A barrier does not change which steps are sinks, and is not part of the critical path."""
    for graph in map(make_graph, range(100, 100 + 15)):
        ready, waves = await both_ways(graph.plan())

        assert waves.output == ready.output, graph.name
        assert waves.critical_path == pytest.approx(ready.critical_path), graph.name


async def test_failure_means_the_same() -> None:
    """A wave waits until a failed step has ended; only the steps that need its output are skipped."""
    for graph in map(make_graph, range(200, 200 + 15)):
        failing = {id_: "fail" for number, id_ in enumerate(graph.needs) if number % 5 == 2}
        optional: dict[str, Any] = {id_: "skip" for number, id_ in enumerate(graph.needs) if number % 10 == 2}
        ready, waves = await both_ways(graph.plan(tool=failing, on_failure=optional))

        assert {id_: step.state for id_, step in waves.steps.items()} == {
            id_: step.state for id_, step in ready.steps.items()
        }, graph.name
        assert waves.status == ready.status


async def test_wave_waits_for_a_retry() -> None:
    @dagrun.tool(effect="read")
    async def flaky(context: dagrun.ToolContext) -> int:
        if context.attempt == 1:
            raise dagrun.ToolError("busy", retryable=True, retry_after=10)
        return 1

    steps = [
        dagrun.Step(id="flaky", tool="flaky"),
        dagrun.Step(id="a", tool="work", args={"seconds": 1}),
        dagrun.Step(id="b", tool="work", args={"seconds": 1}, depends_on=("a",)),
    ]
    result = await dagrun.run(in_waves(dagrun.check(dagrun.Plan(steps=steps), [flaky, work])))

    assert result.steps["flaky"].state is State.SUCCEEDED
    assert (result.steps["b"].started or 0) >= 10


async def test_generations_stand_in_the_order_of_the_plan() -> None:
    steps = [
        dagrun.Step(id=id_, tool="work", args={"seconds": 1}, depends_on=needs)
        for id_, needs in [("d", ("b", "c")), ("c", ("a",)), ("b", ("a",)), ("a", ()), ("alone", ())]
    ]

    assert generations(dagrun.check(dagrun.Plan(steps=steps), [work])) == [["a", "alone"], ["c", "b"], ["d"]]


async def test_plan_itself_is_left_as_it_is() -> None:
    graph = make_graph(7)
    checked = dagrun.check(graph.plan(), [work])
    before = {id_: step.depends_on for id_, step in checked.steps.items()}

    in_waves(checked)

    assert {id_: step.depends_on for id_, step in checked.steps.items()} == before
